"""Symbolic sizes of one call: dimensions as tuples of factors, major first, solved from `where` conditions.

A dimension that is divided over devices, split into heads or merged from axes is a tuple of indices on both sides of a
rule. Partition and flatten are then renamings, and index arithmetic stays linear.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from ...index.equations.instance import Dim, Instance
from ...index.equations.term import COMPARISONS
from ...index.equations.where_conditions import determine, keys, mentions_rank
from ...syntax.ast import Apply, Expr, Name, Number, OperatorDecl, Size
from ..decision.integer_arithmetic import Arithmetic
from ..normal_form.form import Unsupported
from ..normal_form.guard import Guard, compare
from ..normal_form.polynomial import (
    ONE,
    Entry,
    Poly,
    Quotient,
    Symbol,
    Var,
    number,
    of,
    plain_quotient,
    product,
    quotient,
)

Factors: TypeAlias = tuple[Poly, ...]


class Failed(Exception):
    """An obligation that could not be discharged: its name and its statement."""

    def __init__(self, obligation: str, message: str) -> None:
        super().__init__(f"{obligation}: {message}")
        self.obligation = obligation
        self.message = message


def factors_of(size: Poly) -> Factors:
    """A size as a tuple of one factor; () for the size 1."""
    return () if size == ONE else (size,)


def share(factor: Poly, size: Poly) -> Poly | None:
    """size / factor where that is an integer at all sizes, else None."""
    if factor == size:
        return ONE
    if len(factor.terms) == 1:
        exact, rest = size.divided(factor)
        return None if rest.terms else exact
    whole = size.exactly_divided(factor)
    return whole if whole is not None and whole.is_integral else None


def _without(whole: Factors, part: Factors) -> Factors | None:
    """`whole` with each factor of `part` divided out of one of its factors; None where that is not possible."""
    left = list(whole)
    for factor in part:
        shares = ((place, share(factor, own)) for place, own in enumerate(left))
        place, rest = next(((place, rest) for place, rest in shares if rest is not None), (-1, ONE))
        if place < 0:
            return None
        left[place : place + 1] = factors_of(rest)
    return tuple(left)


def common_refinement(first: Factors, second: Factors) -> Factors | None:
    """The common refinement of two factorisations of a dimension, None where block boundaries cross.

    (p * e) and (p, e) give (p, e). A position is the same number under every refinement (mixed radix).
    """
    ends = [product(factors[place:]) for factors in (first, second) for place in range(len(factors))]
    found: list[Poly] = []
    known = ONE
    while ends := [end for end in dict.fromkeys(ends) if end != known]:
        least = next((end for end in ends if all(share(end, other) is not None for other in ends)), None)
        factor = None if least is None else share(known, least)
        if least is None or factor is None:
            return None
        found.insert(0, factor)
        known = least
    return tuple(found)


def shown(size: Poly, names: Mapping[Var, str] | None = None) -> str:
    """A polynomial in sizes and indices as text; unnamed indices are i, j, k, … in order of appearance."""
    if not size.terms:
        return "0"
    known = dict(names or {})
    letters = (letter for letter in "ijklmnopqrstuvwxyz" if letter not in {*known.values(), *size.symbols()})
    for symbol in size.symbols():
        if isinstance(symbol, Var) and symbol not in known:
            known[symbol] = next(letters, "…")
    text = ""
    for monomial, coefficient in sorted(size.terms, key=lambda term: term[1] < 0):
        factors = [f"{_symbol_text(s, known)}{'' if n == 1 else f'^{n}'}" for s, n in monomial]
        value = abs(coefficient)
        part = "*".join(factors if value == 1 and factors else [str(value), *factors])
        sign = "-" if coefficient < 0 else "+"
        text += f" {sign} {part}" if text else ("-" if coefficient < 0 else "") + part
    return text


def _symbol_text(symbol: Symbol, names: Mapping[Var, str]) -> str:
    match symbol:
        case str():
            return symbol
        case Var():
            return names[symbol]
        case Entry(tensor, index, _):
            return f"{tensor}[{', '.join(shown(part, names) for part in index)}]"
        case Quotient(numerator, denominator):
            return f"({_bracketed(numerator, names)} // {_bracketed(denominator, names)})"
        case _:
            return "a position"


def _bracketed(divisor: Poly, names: Mapping[Var, str]) -> str:
    return f"({shown(divisor, names)})" if len(divisor.terms) > 1 else shown(divisor, names)


def exactly(size: Poly, sizes: Mapping[str, int]) -> Fraction:
    """The value of a polynomial in sizes at numeric sizes."""
    total = Fraction(0)
    for monomial, coefficient in size.terms:
        value = coefficient
        for symbol, power in monomial:
            value *= _symbol(symbol, sizes) ** power
        total += value
    return total


def _symbol(symbol: Symbol, sizes: Mapping[str, int]) -> Fraction:
    match symbol:
        case str():
            return Fraction(sizes[symbol])
        case Quotient(numerator, denominator):
            return Fraction(exactly(numerator, sizes) // exactly(denominator, sizes))
    raise TypeError(f"{symbol} is no size")


def valued(size: Poly, sizes: Mapping[str, int]) -> int:
    """The value of a size at numeric sizes. Raises Unsupported where it is not an integer."""
    value = exactly(size, sizes)
    if value.denominator != 1:
        raise Unsupported(f"a size of {value}")
    return int(value)


@dataclass
class Sizes:
    """The bindings of one call's names: dimensions by name or axis, attributes, degrees (as `@p`).

    `divisions` state which exact divisions of sizes were used. `unchecked` are sizes from conditions that are not yet
    known to be at least 1.
    """

    arithmetic: Arithmetic
    dims: dict[str, Factors] = field(default_factory=dict)
    attributes: dict[str, Poly] = field(default_factory=dict)
    divisions: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    # ------------------------------------------------------------------------------------------ operands

    def bind(self, axis: str, factors: Factors, what: str) -> None:
        """Binds an axis to factors. Raises Failed where it is bound to another size.

        If it gets two factorisations, their common refinement is kept or, without one, the first.
        """
        known = self.dims.setdefault(axis, factors)
        if known == factors:
            return
        if not self.arithmetic.equal_sizes(known, factors):
            sizes = [" * ".join(map(shown, side)) or "1" for side in (known, factors)]
            raise Failed("same_shape", f"{what}: `{axis}` has size {sizes[0]} and {sizes[1]}")
        self.dims[axis] = common_refinement(known, factors) or known

    def bind_operands(self, instance: Instance, dims: Sequence[Sequence[Factors]]) -> None:
        """Binds the axes of an instance to its operands' symbolic dimensions; merged dimensions last."""
        merged: list[tuple[Dim, Factors, str]] = []
        for operand, own in zip(instance.inputs, dims, strict=True):
            what = f"`{operand.name}` of `{instance.name}`"
            for axes, factors in zip(operand.dims, own, strict=True):
                if len(axes) == 1:
                    self.bind(axes[0], factors, what)
                else:
                    merged.append((axes, factors, what))
        known = set(self.dims)
        for condition in instance.operator.conditions if merged else ():
            if not mentions_rank(condition):
                determine(condition, self)
        self.unchecked += [name for name in self.dims if name not in known]
        for axes, factors, what in merged:
            self._bind_merged(axes, factors, what)

    def _bind_merged(self, axes: Dim, factors: Factors, what: str) -> None:
        """Binds the one unbound axis of a merged dimension to the remaining factors. Raises Failed."""
        known = tuple(factor for axis in axes for factor in self.dims.get(axis, ()))
        unknown = [axis for axis in axes if axis not in self.dims]
        if len(unknown) == 1:
            self.dims[unknown[0]] = self._quotient(factors, known, unknown[0])
        elif unknown or not self.arithmetic.equal_sizes(known, factors):
            names = " * ".join(map(shown, factors)) or "1"
            raise Failed("same_shape", f"{what}: a dimension of size {names} is used as {len(axes)} axes")

    # ------------------------------------------------------------------------------------------ conditions

    def solve(self, operator: OperatorDecl, *, assumed: bool = False) -> None:
        """Binds the sizes that `where` determines. Other conditions become obligations or, if `assumed`, assumptions.

        Raises Failed and Unsupported.
        """
        pending = [condition for condition in operator.conditions if not mentions_rank(condition)]
        known = self.dims.keys() - set(self.unchecked)
        progress = True
        while progress:
            progress = False
            for condition in list(pending):
                if determine(condition, self):
                    pending.remove(condition)
                    progress = True
        self._positive([name for name in self.dims if name not in known], assumed)
        for condition in pending:
            found = self._comparison(operator, condition)
            if found is not None and assumed:
                self.arithmetic.conditions += (found,)
            elif found is not None and not self.arithmetic.certain(found, obligation="same_shape"):
                text = condition.span.text if condition.span is not None else found.key
                raise Failed("same_shape", f"`{operator.name}` needs `{text}`")

    def parametrise(self, operator: OperatorDecl, free: Container[str]) -> None:
        """Replaces a `free` size by the product with one unknown size that it equals: `c == 2 * h` binds c to 2 h.

        Solving for h = c / 2 instead would require a proof that 2 divides c.
        """
        for condition in operator.conditions:
            match condition:
                case Apply("==", (Name(name, False), Apply("*", _) as value)) | Apply(
                    "==", (Apply("*", _) as value, Name(name, False))
                ) if name in free:
                    unknown = [key for key in keys(value) if key not in self.dims and key not in self.attributes]
                    if len(unknown) == 1 and self.determine(unknown[0], (of(unknown[0]),)):
                        found = self.value(value)
                        assert found is not None, "nothing else is unknown"
                        self.dims[name] = found

    def _positive(self, names: Sequence[str], assumed: bool) -> None:
        """Shows or, if `assumed`, assumes that sizes from conditions, such as `stop - start`, are at least 1.

        Raises Failed.
        """
        for name in names:
            for factor in self.dims[name]:
                least = compare(">=", factor, ONE)
                if assumed:
                    self.arithmetic.conditions += (least,)
                elif not self.arithmetic.certain(least, obligation="same_shape"):
                    raise Failed("same_shape", f"the size `{name}` = {shown(factor)} is not known to be at least 1")

    def determine(self, key: str, value: Factors) -> bool:
        """Binds a size to these factors. False for products of rest axes and ranks, which are not unknowns here."""
        if key.endswith("..") or key.startswith("rank("):
            return False
        self.dims[key] = value
        return True

    def inverse(self, function: str, result: Factors, given: Factors, unknown: Expr) -> Factors:
        """The unknown operand of an operation. Raises Failed where a product has no such factor."""
        if function == "neg":
            return factors_of(-product(result))
        if function == "+":
            return factors_of(product(result) - product(given))
        return self._quotient(result, given, ", ".join(keys(unknown)))

    def _quotient(self, whole: Factors, part: Factors, name: str) -> Factors:
        """The remaining factors of a dimension. Raises Failed where `part` does not divide it."""
        texts = [" * ".join(map(shown, side)) or "1" for side in (part, whole)]
        left = _without(whole, part)
        if left is None:
            rest = share(product(part), product(whole))
            if rest is None:
                raise Failed("divides", f"{texts[0]} is not known to divide {texts[1]} (for `{name}`)")
            left = factors_of(rest)
        self.divisions.append(f"{texts[0]} divides {texts[1]}")
        return left

    def _comparison(self, operator: OperatorDecl, condition: Expr) -> Guard | None:
        """A condition on sizes as a guard; None for one between numbers, which is checked with the instance.

        Raises Unsupported.
        """
        if not (isinstance(condition, Apply) and condition.function in COMPARISONS):
            raise Unsupported(f"`{operator.name}`: a condition of another form than a comparison")
        left, right = (self.size(side) for side in condition.arguments)
        text = condition.span.text if condition.span is not None else condition.function
        if left is None or right is None:
            raise Unsupported(f"`{operator.name}`: nothing determines `{text}`")
        if left.constant is not None and right.constant is not None:
            return None
        return compare(condition.function, left, right)

    # ------------------------------------------------------------------------------------------ expressions

    def value(self, expr: Expr) -> Factors | None:
        """The factors of a size expression, None where something in it is unbound."""
        match expr:
            case Name(name, False) | Size(name, False) if name in self.dims:
                return self.dims[name]
            case Apply("*", (left, right)):
                first, second = self.value(left), self.value(right)
                return None if first is None or second is None else first + second
        size = self.size(expr)
        return None if size is None else factors_of(size)

    def size(self, expr: Expr) -> Poly | None:
        """A size expression as a polynomial, None where something in it is unbound."""
        match expr:
            case Number(value) if isinstance(value, int):
                return number(value)
            case Name(name, False) | Size(name, False):
                if name in self.attributes:
                    return self.attributes[name]
                return product(self.dims[name]) if name in self.dims else None
            case Apply(function, arguments):
                parts = [self.size(argument) for argument in arguments]
                known = [part for part in parts if part is not None]
                return arithmetic_value(function, known) if len(known) == len(parts) else None
        return None


def arithmetic_value(function: str, parts: Sequence[Poly]) -> Poly:
    """Arithmetic on sizes. Raises Unsupported unless `//` is exact, by a positive number, or determined by bounds."""
    if function == "neg":
        return -parts[0]
    left, right = parts
    match function:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "//" if len(right.terms) == 1:
            exact, rest = left.divided(right)
            if not rest.terms:
                return exact
            if right.constant is not None and right.constant > 0:
                return quotient(left, right)
            plain = plain_quotient(left, right)
            if plain is not None:
                return plain
    raise Unsupported(f"sizes with `{function}`")
