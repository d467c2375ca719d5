"""The grammar of candidate conditions on sizes, weakest first.

Over the names of a rule that its own conditions do not determine and that its text can write (sizes s, t, u; attributes
a):

    a == 0            attributes only, that are neither a size of a tensor nor a degree
    s == 1
    s == t
    s % t == 0        t divides s
    s == t + u        t and u may be one name
    s == t * u        factors in the order of the text, major first for views
    s <= t
    s < t
    s * t == u * v    four names

An attribute may stand for a size, `a == t`, `a <= t` and so on. A condition is one comparison or a conjunction of two.
Every name is at least 1, as in every rule, except an attribute that the condition sets to 0. A real number c may stand
for a size, except in `%`. It may have any value, and these comparisons are added for it:

    c == 0, c == -1, c != 0, c >= 0, c <= 0, c > 0, c < 0, c <= 1, c >= 1
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, combinations_with_replacement, permutations, product
from typing import Any

import numpy as np
import numpy.typing as npt

from ...syntax.ast import Apply, Expr, Name, Number

Array = npt.NDArray[Any]
_COMPARISONS: Mapping[str, Callable[[Array, Array], Array]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<=": np.less_equal,
    "<": np.less,
    ">=": np.greater_equal,
    ">": np.greater,
}


@dataclass(frozen=True)
class Atom:
    """A comparison.

    `kind` is the position of its production: of equivalent comparisons the earlier one is preferred.
    """

    kind: int
    comparison: Apply

    @cached_property
    def text(self) -> str:
        return expression_text(self.comparison)

    @cached_property
    def zeros(self) -> frozenset[str]:
        """The attributes that it sets to 0."""
        left, right = self.comparison.arguments
        found = self.comparison.function == "==" and right == Number(0) and isinstance(left, Name)
        return frozenset({left.name}) if found and isinstance(left, Name) else frozenset()

    @property
    def divides(self) -> frozenset[str]:
        """The names s and t of `s % t == 0`; empty for other comparisons."""
        left, _ = self.comparison.arguments
        parts = left.arguments if isinstance(left, Apply) and left.function == "%" else ()
        return frozenset(part.name for part in parts if isinstance(part, Name))

    def holds(self, values: Mapping[str, Array]) -> Array:
        """Whether the comparison holds, per sample. Nothing is a multiple of 0."""
        left, right = self.comparison.arguments
        first, second = _value(left, values), _value(right, values)
        if isinstance(left, Apply) and left.function == "%":
            divisor = _value(left.arguments[1], values)
            return np.asarray((first == second) & (divisor != 0))
        return _COMPARISONS[self.comparison.function](first, second)


EQUALITY = 2
"""The kind of `s == t`."""
MAX_PRODUCT_NAMES = 9
"""No `s * t == u * v` for more names: the number of candidates grows with the fourth power."""


def atoms(
    names: Sequence[str], attributes: frozenset[str], determined: Sequence[str] = (), reals: Sequence[str] = ()
) -> tuple[Atom, ...]:
    """Every comparison of the grammar over these names, in order of preference.

    `determined` names, fixed by the rule's own conditions, occur in equalities and products only.
    """
    found = [*_atoms(sorted((*names, *reals)), attributes), *_of_products(sorted(names), sorted(determined))]
    found = [atom for atom in found if not (reals and atom.divides & {*reals})] + list(_of_reals(reals))
    return tuple(sorted(found, key=lambda atom: (atom.kind, len(atom.text))))


def _of_reals(reals: Sequence[str]) -> Iterator[Atom]:
    for name in reals:
        yield _atom(0, "==", Name(name), Number(0))
        yield _atom(1, "==", Name(name), Number(-1))
        for kind, signs in ((3, ("!=", ">=", "<=")), (7, (">", "<"))):
            for sign in signs:
                yield _atom(kind, sign, Name(name), Number(0))
        for sign in ("<=", ">="):
            yield _atom(6, sign, Name(name), Number(1))


def _of_products(names: Sequence[str], determined: Sequence[str]) -> Iterator[Atom]:
    for s in determined:
        for t in (*names, *(other for other in determined if other > s)):
            yield _atom(EQUALITY, "==", Name(s), Name(t))
    every = [*names, *determined]
    for four in combinations(every, 4) if len(every) <= MAX_PRODUCT_NAMES else ():
        for first, second in _pairings(four):
            products = [Apply("*", (Name(left), Name(right))) for left, right in (first, second)]
            yield _atom(8, "==", *products)


def _pairings(four: tuple[str, ...]) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """The three partitions of four names into two pairs."""
    first, *others = four
    for other in others:
        rest = [name for name in others if name != other]
        yield (first, other), (rest[0], rest[1])


def _atoms(names: Sequence[str], attributes: frozenset[str]) -> Iterator[Atom]:
    for name in names:
        if name in attributes:
            yield _atom(0, "==", Name(name), Number(0))
        yield _atom(1, "==", Name(name), Number(1))
    for s, t in combinations(names, 2):
        yield _atom(EQUALITY, "==", Name(s), Name(t))
    for s, t in permutations(names, 2):
        yield _atom(3, "==", Apply("%", (Name(s), Name(t))), Number(0))
        yield _atom(6, "<=", Name(s), Name(t))
        yield _atom(7, "<", Name(s), Name(t))
    for s in names:
        others = [name for name in names if name != s]
        for t, u in combinations_with_replacement(others, 2):
            yield _atom(4, "==", Name(s), Apply("+", (Name(t), Name(u))))
        for t, u in product(others, repeat=2):
            yield _atom(5, "==", Name(s), Apply("*", (Name(t), Name(u))))


def _atom(kind: int, sign: str, left: Expr, right: Expr) -> Atom:
    return Atom(kind, Apply(sign, (left, right)))


def expression_text(expr: Expr) -> str:
    """A condition in `.rules` notation."""
    match expr:
        case Name(name):
            return name
        case Number(value):
            return str(value)
        case Apply(sign, (left, right)):
            return f"{expression_text(left)} {sign} {expression_text(right)}"
    raise TypeError(expr)


def _value(expr: Expr, values: Mapping[str, Array]) -> Array:
    match expr:
        case Name(name):
            return values[name]
        case Number(value):
            return np.array(value)
        case Apply(sign, (left, right)):
            first, second = _value(left, values), _value(right, values)
            match sign:
                case "+":
                    return first + second
                case "*":
                    return first * second
                case "%":
                    return first % np.where(second == 0, 1, second)
    raise TypeError(expr)
