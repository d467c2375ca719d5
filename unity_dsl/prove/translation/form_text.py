"""Prints normal forms and queries for people: `sum(k < h) [j < o] x[i, k] * w[j, k]`.

Sizes and tensors keep their names; indices are i, j, k, …, outermost first. Maxima are printed as sets, dimensions with
several factors in parentheses, major first, device axes as `@p`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count

from ..decision.integer_arithmetic import Case, Question
from ..normal_form.form import Atom, Element, Extremum, Family, Form, Function, Term
from ..normal_form.guard import Guard, Relation
from ..normal_form.polynomial import Coordinate, Entry, Monomial, Poly, Quotient, Symbol, Var
from .operator_forms import Tensor

LETTERS = "ijklmnopqrstuvwxyzabcdefgh"


@dataclass(frozen=True)
class Notation:
    """Names for symbols. `taken` are the names of sizes and tensors.

    `dims` gives each tensor the number of factors of each of its dimensions.
    """

    taken: frozenset[str] = frozenset()
    dims: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    indices: Mapping[Var, str] = field(default_factory=dict)
    places: Mapping[Coordinate, str] = field(default_factory=dict)

    def binding(self, indices: Iterable[Var]) -> Notation:
        """The notation with names for further indices."""
        names = dict(self.indices)
        free = self._free()
        names |= {var: next(free) for var in indices}
        return Notation(self.taken, self.dims, names, self.places)

    def _free(self) -> Iterator[str]:
        used = self.taken | set(self.indices.values())
        yield from (letter for letter in LETTERS if letter not in used)
        yield from (name for number in count(1) if (name := f"i{number}") not in used)

    # ------------------------------------------------------------------------------------------ whole numbers

    def poly(self, poly: Poly) -> str:
        """An index or size, positive terms first."""
        parts = sorted(poly.terms, key=_place)
        if not parts:
            return "0"
        text = ""
        for monomial, coefficient in parts:
            sign = "-" if coefficient < 0 else "+"
            product = self.product(monomial, abs(coefficient))
            text += f" {sign} {product}" if text else ("-" if coefficient < 0 else "") + product
        return text

    def product(self, monomial: Monomial, coefficient: Fraction, sign: str = "*") -> str:
        """A coefficient times a monomial, `2*p*h/(3*m)`; `sign` separates factors."""
        decimal = repr(float(coefficient))
        if coefficient.denominator > 1000 and Fraction(decimal) == coefficient:
            above, below = [decimal], []
        else:
            above = [str(coefficient.numerator)] if coefficient.numerator != 1 else []
            below = [str(coefficient.denominator)] if coefficient.denominator != 1 else []
        for symbol, power in monomial:
            name = self.symbol(symbol)
            (above if power > 0 else below).append(name if abs(power) == 1 else f"{name}^{abs(power)}")
        text = sign.join(above) or "1"
        if not below:
            return text
        return f"{text}/{below[0]}" if len(below) == 1 else f"{text}/({'*'.join(below)})"

    def symbol(self, symbol: Symbol) -> str:
        match symbol:
            case str():
                return symbol
            case Var():
                return self.indices.get(symbol) or f"index_{symbol.number}"
            case Coordinate():
                return self.places.get(symbol) or f"place_{symbol.number}"
            case Entry(tensor, index, _):
                return self.read(tensor, index)
            case Quotient(numerator, denominator):
                divisor = self.poly(denominator)
                return f"(({self.poly(numerator)}) // {divisor if divisor.isalnum() else f'({divisor})'})"

    def read(self, tensor: str, index: Sequence[Poly]) -> str:
        """`x[i, (j k)]`; a tensor without dimensions by its name."""
        parts = [self.poly(part) for part in index]
        dims, grouped = self.dims.get(tensor, (1,) * len(parts)), []
        if sum(dims) != len(parts):
            dims = (1,) * len(parts)
        for factors in dims:
            own, parts = parts[:factors], parts[factors:]
            grouped.append(own[0] if factors == 1 else f"({' '.join(_bracketed(part) for part in own)})")
        return f"{tensor}[{', '.join(grouped)}]" if grouped else tensor

    def guard(self, condition: Guard) -> str:
        """`i < m`: negative terms are moved to the right side."""
        above = Poly(tuple(term for term in condition.poly.terms if term[1] > 0 and term[0]))
        below = Poly(tuple((monomial, -c) for monomial, c in condition.poly.terms if c < 0 and monomial))
        constant = next((c for monomial, c in condition.poly.terms if not monomial), Fraction(0))
        sign: str = condition.relation.value
        if condition.relation is Relation.NOT_NEGATIVE and constant == -1 and (below.terms or not above.terms):
            sign, constant = ">", Fraction(0)
        if constant > 0:
            above += Poly((((), constant),))
        elif constant < 0:
            below += Poly((((), -constant),))
        if _leads(below) and not _leads(above):
            above, below, sign = below, above, {">=": "<=", ">": "<"}.get(sign, sign)
        return f"{self.poly(above)} {sign} {self.poly(below)}"

    def case(self, conditions: Case) -> str:
        return " and ".join(map(self.guard, conditions))

    # ------------------------------------------------------------------------------------------ forms

    def form(self, form: Form) -> str:
        """The sum of terms on one line."""
        text = ""
        for term in form:
            sign, body = self.term(term)
            text += f" {sign} {body}" if text else ("-" if sign == "-" else "") + body
        return text or "0"

    def term(self, term: Term) -> tuple[str, str]:
        """(sign, unsigned text) of a term."""
        inner = self.binding(term.bound)
        ranges = ", ".join(f"{inner.indices[var]} < {inner.poly(var.size)}" for var in term.bound)
        prefix = f"sum({ranges}) " if ranges else ""
        if term.guards:
            prefix += f"[{', '.join(map(inner.guard, term.guards))}] "
        sign, number = "+", ""
        if len(term.coefficient.terms) == 1:
            ((monomial, coefficient),) = term.coefficient.terms
            sign = "-" if coefficient < 0 else "+"
            number = inner.product(monomial, abs(coefficient), " * ")
        else:
            number = f"({inner.poly(term.coefficient)})"
        factors = [inner.power(atom, power) for atom, power in term.factors]
        return sign, prefix + (" * ".join(factors if number == "1" and factors else [number, *factors]))

    def power(self, atom: Atom, power: int) -> str:
        return self.atom(atom) if power == 1 else f"{self.atom(atom)}^{power}"

    def atom(self, atom: Atom) -> str:
        match atom:
            case Element("#", (index,)):
                return _bracketed(self.poly(index))
            case Element(tensor, index):
                return self.read("uniform" if tensor.startswith("uniform<") else tensor, index)
            case Function(name, arguments):
                inside = ", ".join(map(self.form, arguments))
                return f"{name.removeprefix('fn ')}({inside})" if arguments else name
            case Extremum(families):
                return f"max{{{'; '.join(map(self.family, families))}}}"

    def family(self, family: Family) -> str:
        """`x[i, j] : j < n, j >= 2`, a family in set-builder notation."""
        inner = self.binding(family.bound)
        ranges = [f"{inner.indices[var]} < {inner.poly(var.size)}" for var in family.bound]
        conditions = ", ".join([*ranges, *map(inner.guard, family.guards)])
        return inner.form(family.value) + (f" : {conditions}" if conditions else "")


def _place(term: tuple[Monomial, Fraction]) -> tuple[bool, bool, bool]:
    """The sort key of a term: positive first, then indices, sizes, constants."""
    monomial, coefficient = term
    return coefficient < 0, not monomial, all(isinstance(symbol, str) for symbol, _ in monomial)


def _bracketed(text: str) -> str:
    return f"({text})" if " " in text else text


def _leads(poly: Poly) -> bool:
    """Whether a polynomial contains an index, and so is printed on the left."""
    return any(not isinstance(symbol, str) for symbol in poly.symbols())


# ---------------------------------------------------------------------------------------------- tensors


def notation_of(inputs: Mapping[str, Tensor], sizes: Iterable[str]) -> Notation:
    """A notation with names distinct from those of the inputs and sizes."""
    dims = {name: (*(1 for _ in tensor.devices), *(len(dim) for dim in tensor.dims)) for name, tensor in inputs.items()}
    return Notation(frozenset((*inputs, *sizes)), dims)


def tensor_lines(tensor: Tensor, notation: Notation, name: str) -> list[str]:
    """`name[i, j], i < m, j < n =`, and its value below, term by term."""
    axes = [var for dim in tensor.dims for var in dim]
    own = notation.binding(axes)
    own = Notation(own.taken, own.dims, {**own.indices, **{var: f"@{device}" for device, var in tensor.devices}})
    dims = [f"@{device}" for device, _ in tensor.devices]
    for dim in tensor.dims:
        names = [own.indices[var] for var in dim]
        dims.append(names[0] if len(names) == 1 else f"({' '.join(names)})")
    ranges = "".join(f", {own.indices[var]} < {own.poly(var.size)}" for var in axes)
    head = f"{name}[{', '.join(dims)}]{ranges} ="
    if tensor.entry is not None:
        return [head, f"  {own.poly(tensor.entry)}"]
    lines = [head]
    for number, term in enumerate(tensor.value):
        sign, body = own.term(term)
        lines.append(f"  {sign if number or sign == '-' else ' '} {body}")
    return lines if tensor.value else [*lines, "    0"]


# ---------------------------------------------------------------------------------------------- questions


def question_text(question: Question, notation: Notation) -> str:
    """A query in words. Indices and coordinates are named anew in each query."""
    guards = [
        *question.given,
        *(condition for case in question.cases for condition in case),
        *(condition for _, case in question.counts for condition in case),
    ]
    symbols = [symbol for condition in guards for symbol in condition.poly.symbols()]
    variables = dict.fromkeys(symbol for symbol in symbols if isinstance(symbol, Var))
    places = dict.fromkeys(symbol for symbol in symbols if isinstance(symbol, Coordinate))
    bound = notation.binding(variables)
    named = {place: f"u{number}" for number, place in enumerate(places, 1)}
    own = Notation(bound.taken, bound.dims, bound.indices, named)
    where = f"where {own.case(question.given)}: " if question.given else ""
    if question.counts:
        counts = " ".join(f"{_signed(number)} if {own.case(case) or 'true'}," for number, case in question.counts)
        return f"{where}{counts.removesuffix(',')}: these add up to 0"
    if not question.cases:
        return f"{own.case(question.given)}: cannot be" if question.given else "the conditions cannot be met"
    return where + ", or ".join(map(own.case, question.cases))


def _signed(number: Fraction) -> str:
    return f"{'+' if number > 0 else '-'}{abs(number)}"
