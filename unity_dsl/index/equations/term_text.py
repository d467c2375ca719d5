"""Prints terms and equations in `.uop` notation; parsing the text gives the same term."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from ...syntax.ast import Apply, DeviceName, Expr, FactDecl, Name, Number, Read, Reduce, Select, Size, Ties, Uniform
from ...syntax.rational import Rational
from .instance import Dim, Equation
from .term import COMPARISONS

_SUM, _PRODUCT, _SIGN, _ATOM = range(4)
_LEVELS = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "//": _PRODUCT, "%": _PRODUCT, "neg": _SIGN}

Renaming = Mapping[str, str]
"""Names to print for axes and tensors, for example `b..` for `b0`. Other names are printed unchanged."""


def expression_text(expr: Expr, names: Renaming | None = None, numbers: Mapping[Rational, str] | None = None) -> str:
    """A term as text. `numbers` maps values to attributes whose names are printed instead."""
    return _Writer(names or {}, numbers or {}).text(expr, _SUM)


def condition_text(expr: Expr) -> str:
    """A comparison as it stands in a `where` line."""
    return _Writer({}, {}).condition(expr)


def fact_text(fact: FactDecl) -> str:
    """A fact as it is declared."""
    where = ", ".join(map(condition_text, fact.conditions))
    return condition_text(fact.claim) + (f" where {where}" if where else "")


def equation_text(
    equation: Equation, names: Renaming | None = None, numbers: Mapping[Rational, str] | None = None
) -> str:
    """`y[b.., o] = sum(i) x[b.., i] * w[o, i]`."""
    writer = _Writer(names or {}, numbers or {})
    target = f"{writer.name(equation.target.name)}[{', '.join(map(writer.dim, equation.target.dims))}]"
    if equation.kind is None:
        return f"{target} = {writer.text(equation.value, _SUM)}"
    over = ", ".join(map(writer.name, equation.over)) + _ties_text(equation.ties)
    return f"{target} = {equation.kind}({over}) {writer.text(equation.value, _PRODUCT)}"


def _ties_text(ties: Ties) -> str:
    return "" if ties is Ties.SHARE else f"; ties = {ties}"


class _Writer:
    def __init__(self, names: Renaming, numbers: Mapping[Rational, str]) -> None:
        self.names = names
        self.numbers = numbers

    def name(self, name: str) -> str:
        return self.names.get(name, name)

    def dim(self, dim: Dim) -> str:
        """A dimension on a left side: its axis, `(h k)` for merged axes, 0 if it has none."""
        axes = " ".join(map(self.name, dim))
        return axes if len(dim) == 1 else f"({axes})" if dim else "0"

    def text(self, expr: Expr, level: int) -> str:
        """The text, in parentheses if the context binds tighter than the term."""
        text, own = self.plain(expr)
        return f"({text})" if own < level else text

    def plain(self, expr: Expr) -> tuple[str, int]:
        match expr:
            case Number(value):
                return self.numbers.get(value, _number(value)), _SIGN if value < 0 else _ATOM
            case Name(name, rest):
                return self.name(name) + (".." if rest else ""), _ATOM
            case Size(name, rest):
                return f"|{self.name(name)}{'..' if rest else ''}|", _ATOM
            case DeviceName(name):
                return f"@{name}", _ATOM
            case Read(tensor, index, fill):
                otherwise = "" if fill is None else f" else {self.text(fill, _SUM)}"
                return f"{self.name(tensor)}[{self.listed(index)}{otherwise}]", _ATOM
            case Uniform(index):
                return f"uniform[{self.listed(index)}]", _ATOM
            case Select(condition, then, otherwise):
                branches = self.listed((then, otherwise))
                return f"select({self.condition(condition)}, {branches})", _ATOM
            case Reduce(kind, axes, body, ties):
                over = ", ".join(self.text(axis, _SUM) for axis in axes) + _ties_text(ties)
                return f"{kind}({over}) {self.text(body, _PRODUCT)}", _PRODUCT
            case Apply(function, arguments):
                return self.applied(function, arguments)

    def listed(self, parts: Iterable[Expr]) -> str:
        return ", ".join(self.text(part, _SUM) for part in parts)

    def condition(self, expr: Expr) -> str:
        """A comparison without brackets; any other term as `term != 0`."""
        if isinstance(expr, Apply) and expr.function in COMPARISONS:
            left, right = expr.arguments
            return f"{self.text(left, _SUM)} {expr.function} {self.text(right, _SUM)}"
        return f"{self.text(expr, _SUM)} != 0"

    def applied(self, function: str, arguments: tuple[Expr, ...]) -> tuple[str, int]:
        if function in COMPARISONS:
            return f"[{self.condition(Apply(function, arguments))}]", _ATOM
        if function == "neg":
            return f"-{self.text(arguments[0], _SIGN)}", _SIGN
        if not arguments:
            return function, _ATOM
        if function not in _LEVELS:
            return f"{function}({self.listed(arguments)})", _ATOM
        level = _LEVELS[function]
        left, right = arguments
        # A reduction extends as far to the right as possible.
        first = self.text(left, level + isinstance(left, Reduce))
        return f"{first} {function} {self.text(right, level + 1)}", level


def _number(value: Rational) -> str:
    return f"({value.numerator} / {value.denominator})" if isinstance(value, Fraction) else repr(value)
