"""Finds intermediates that the results provably do not depend on, so that they carry no gradient (softmax’s maximum).

An intermediate m cancels if every output is invariant under m[i] -> m[i] + d[i] for any d. Abstract interpretation
shows this: a term gains k * d[i], or is multiplied by exp(k * d[i]), at one position i, or its change is unknown; `exp`
and `log` convert one into the other. A position may be chosen by data, `to[e]`: a gather reads it, and a sum of values
that are added at `v` where `v == to[e]` has it at v.

For gradients, d is infinitesimal: a comparison does not change. If one branch of a choice changes by d[i] and the other
one does not, the choice changes by d'[i] = [condition at i] * d[i], which is as arbitrary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import isfinite

from ...syntax.ast import Apply, Expr, Name, Number, Read, ReductionKind, Select
from ..equations.instance import Instance, Kind, Operand
from ..equations.loop_nest import LoopNest, loop_nest
from ..equations.term import children, dim_axes, free_axes, reads, substitute, with_children
from .derivative import dependents


@dataclass(frozen=True)
class _Change:
    """An abstract change: if `times` is false, the term gains amount * d[place].

    If it is true, the term is multiplied by exp(amount * d[place]). `branches` are the conditions that multiply d, as
    terms in the place, each with whether it holds.
    """

    times: bool
    amount: Fraction = Fraction(0)
    place: tuple[Expr, ...] = ()
    branches: tuple[tuple[bool, Expr], ...] = ()

    @property
    def axes(self) -> set[str]:
        return {axis for part in self.place for axis in free_axes(part)}


Response = frozenset[_Change]
"""The abstract changes known of a term. An invariant term gains 0 and is multiplied by 1."""

_SAME: Response = frozenset({_Change(False), _Change(True)})
_UNKNOWN: Response = frozenset()


def gradient_free(instance: Instance) -> frozenset[str]:
    """Intermediates by which every output provably has derivative 0, or that do not depend on a float input.

    Sound, not complete: a term with an unknown change counts as dependent.
    """
    return _gradient_free(instance.kind)


@lru_cache(maxsize=4096)
def _gradient_free(kind: Kind) -> frozenset[str]:
    instance = kind.instance
    outputs = {output.name for output in instance.outputs}
    floats = frozenset(operand.name for operand in instance.inputs if operand.integer_range is None)
    varying = dependents(instance, floats)
    names = [e.target.name for e in instance.equations if e.target.name not in outputs]
    return frozenset(
        name for name in names if name not in varying or _Changed(instance, name, infinitesimal=True).cancels()
    )


def scaling(
    instance: Instance, name: str, by: str, *, multiplied: bool = False, held: frozenset[str] = frozenset()
) -> Fraction | None:
    """The a for which tensor `name` is multiplied by exp(a * d[i]) if intermediate `by` gains d[i]; None if not known.

    If `multiplied`, `by` is multiplied by exp(d[i]) instead. Tensors that are `held` do not change.
    """
    changed = _Changed(instance, by, multiplied, held)
    place = tuple(map(Name, changed.operands[by].axes))
    known = changed.known[name]
    found = [change.amount for change in known if change.times and (change.place, change.branches) == (place, ())]
    return found[0] if found else None


class _Changed:
    """The changes of all tensors of an instance in response to a change of one intermediate."""

    def __init__(
        self,
        instance: Instance,
        name: str,
        multiplied: bool = False,
        held: frozenset[str] = frozenset(),
        *,
        infinitesimal: bool = False,
    ) -> None:
        self.instance = instance
        self.infinitesimal = infinitesimal
        self.assumed: dict[Expr, bool] = {}
        self.operands: dict[str, Operand] = {operand.name: operand for operand in instance.inputs}
        self.known: dict[str, Response] = dict.fromkeys(self.operands, _SAME)
        for equation in instance.equations:
            target = equation.target
            if target.name == name:
                answer = frozenset({_Change(multiplied, Fraction(1), tuple(map(Name, target.axes)))})
            elif target.name in held:
                answer = _SAME
            else:
                nest = loop_nest(instance, equation)
                if nest.everywhere:
                    answer = _reduced(nest, nest.over, self.response(nest.value))
                else:
                    answer = _reduced(nest, equation.over, self.response(equation.value))
            self.operands[target.name] = target
            self.known[target.name] = answer

    def cancels(self) -> bool:
        return all(self.known[output.name] == _SAME for output in self.instance.outputs)

    def response(self, expr: Expr) -> Response:
        match expr:
            case Read(tensor, index, fill):
                found = self.moved(self.known[tensor], self.operands[tensor], index)
                return found if fill is None else _either(found, self.branch(fill))
            case Select(condition, then, otherwise):
                if condition in self.assumed:
                    return self.response(then if self.assumed[condition] else otherwise)
                if self.response(condition) != _SAME and not self.infinitesimal:
                    return _UNKNOWN
                first, second = self.branch(then, (condition, True)), self.branch(otherwise, (condition, False))
                return self.choice(condition, first, second)
            case Apply("exp", (argument,)):
                return _all(replace(c, times=True) for c in self.response(argument) if not c.times)
            case Apply("log", (argument,)):
                return _all(replace(c, times=False) for c in self.response(argument) if c.times)
            case Apply("neg", (argument,)):
                return _scaled(self.response(argument), Fraction(-1))
            case Apply("+", (left, right)):
                return _sum(self.branch(left), self.branch(right))
            case Apply("-", (left, right)):
                right_change = self.branch(right)
                return _sum(self.branch(left), right_change and _scaled(right_change, Fraction(-1)))
            case Apply("*" | "/" as function, (left, right)):
                return self.product(left, right, 1 if function == "*" else -1)
        same = all(self.response(child) == _SAME for child in children(expr))
        return _SAME if same else _UNKNOWN

    def branch(self, expr: Expr, under: tuple[Expr, bool] | None = None) -> Response | None:
        """The change of a term, given whether a condition holds; None for 0, which factors leave invariant."""
        if expr == Number(0):
            return None
        if under is None:
            return self.response(expr)
        condition, holds = under
        self.assumed[condition] = holds
        found = self.response(expr)
        del self.assumed[condition]
        return found

    def choice(self, condition: Expr, then: Response | None, otherwise: Response | None) -> Response:
        """The change of a choice: one common to both branches, or that of one branch if the other does not change."""
        found = set(_either(then, otherwise))
        for holds, one, other in ((True, then, otherwise), (False, otherwise, then)):
            if one is not None and other in (None, _SAME):
                for change in one:
                    there = _in_place(condition, change.place) if change.amount else None
                    if there is not None:
                        found.add(replace(change, branches=(*change.branches, (holds, there))))
        return _all(found)

    def moved(self, response: Response, operand: Operand, index: tuple[Expr, ...]) -> Response:
        """The change of a tensor that is read at positions other than its own axes."""
        if response == _SAME:
            return response
        axes: dict[str, Expr] = {}
        for dim, part in zip(operand.dims, index, strict=True):
            found = dim_axes(part, self.instance.sizes)
            if found is not None and len(found) == len(dim):
                axes |= {axis: Name(name) for axis, name in zip(dim, found, strict=True)}
            elif len(dim) == 1 and all(self.known[read.tensor] == _SAME for read in reads(part)):
                axes[dim[0]] = part
        return _all(
            replace(c, place=tuple(substitute(part, axes) for part in c.place)) for c in response if c.axes <= {*axes}
        )

    def product(self, left: Expr, right: Expr, sign: int) -> Response:
        a, b = self.response(left), self.response(right)
        found = set(_pairs(a, b, True, sign))
        if (factor := _factor(right)) is not None:
            found |= {change for change in _scaled(a, factor**sign) if not change.times}
        if (factor := _factor(left)) is not None and sign == 1:
            found |= {change for change in _scaled(b, factor) if not change.times}
        return _all(found)


def _factor(expr: Expr) -> Fraction | None:
    return Fraction(expr.value) if isinstance(expr, Number) and expr.value and isfinite(expr.value) else None


def _all(changes: Iterable[_Change]) -> Response:
    """The set of changes. One with amount 0 makes it `_SAME`: gaining 0 and being multiplied by 1 are the same."""
    found = frozenset(changes)
    return _SAME if any(change.amount == 0 for change in found) else found


def _scaled(response: Response, factor: Fraction) -> Response:
    return _all(c if c.times else replace(c, amount=c.amount * factor) for c in response)


def _pairs(left: Response, right: Response, times: bool, sign: int) -> Iterator[_Change]:
    """Sums of changes of one kind, at one place or with one of them trivial."""
    for a in left:
        for b in right:
            alike = (a.place, a.branches) == (b.place, b.branches) or not a.amount or not b.amount
            if a.times == b.times == times and alike:
                amount = a.amount + sign * b.amount
                yield replace(a if a.amount else b, amount=amount) if amount else _Change(times)


def _sum(left: Response | None, right: Response | None) -> Response:
    if left is None or right is None:
        return _either(left, right)
    return _all({*_pairs(left, right, False, 1), *(change for change in left & right if change.times)})


def _either(left: Response | None, right: Response | None) -> Response:
    """Changes common to both branches."""
    if left is None and right is None:
        return _SAME
    if left is None or right is None:
        other = left if right is None else right
        assert other is not None
        return _all(change for change in other if change.times)
    return left & right


def _reduced(nest: LoopNest, over: Iterable[str], response: Response) -> Response:
    """The change of a reduction over these axes: sums preserve a common factor, extrema also a common summand."""
    if response == _SAME:
        return response
    there: dict[Expr, Expr] = {found.position: Name(found.axis) for found in nest.placed if nest.everywhere}
    found = _all(replace(c, place=tuple(there.get(part, part) for part in c.place)) for c in response)
    if not over:
        return found
    kept = _all(change for change in found if not change.axes & {*over})
    match nest.equation.kind:
        case ReductionKind.SUM:
            return _all(change for change in kept if change.times)
        case ReductionKind.MAX | ReductionKind.MIN:
            return kept
    return _UNKNOWN


def _in_place(condition: Expr, place: tuple[Expr, ...]) -> Expr | None:
    """A condition as a function of a place alone; None if it depends on more."""
    names: dict[Expr, Expr] = {part: Name(f"#{number}") for number, part in enumerate(place)}

    def replaced(node: Expr) -> Expr:
        if node in names:
            return names[node]
        return with_children(node, tuple(map(replaced, children(node))))

    found = replaced(condition)
    return found if all(axis.startswith("#") for axis in free_axes(found)) else None
