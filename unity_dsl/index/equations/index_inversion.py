"""Solves index expressions for their axes: the positions at which an equation reads a given element.

An adjoint sums over all positions of an equation that read element `j`: a sum guarded by `[j == index]`. If the
equality can be solved for an axis, this axis is eliminated together with the guard.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...syntax.ast import Apply, Expr, Name, Number, Read
from .axis_lengths import Lengths, Sizes, dim_size
from .instance import Dim
from .rewriting import simplify
from .term import call, dim_index, free_axes, interval, merged_axes, merged_index, substitute


@dataclass(frozen=True)
class Inside:
    """A bound on a solved axis: the term is at least 0, or below `end`.

    An axis as the end stands for its length.
    """

    term: Expr
    end: Expr | str | None = None

    def at(self, solved: Mapping[str, Expr]) -> Inside:
        """The bound with axes replaced by terms."""
        end = self.end if self.end is None or isinstance(self.end, str) else simplify(substitute(self.end, solved))
        return Inside(simplify(substitute(self.term, solved)), end)


@dataclass
class Inversion:
    """Axes of the equation as terms in the element's position and in unsolved axes.

    `inside` bounds solved axes to their ranges, `equal` are the equations that no axis solves.
    """

    solved: dict[str, Expr] = field(default_factory=dict)
    inside: list[Inside] = field(default_factory=list)
    equal: list[Expr] = field(default_factory=list)


def invert(read: Read, dims: Sequence[Dim], axes: Sequence[str], sizes: Lengths) -> Inversion:
    """Solves `read.index == position` for `axes`, in order of preference.

    `dims` name the axes of the tensor read, none of them among `axes`; `sizes` covers both. Lengths of `axes` appear as
    numbers in the result, so that the axes may be renamed.
    """
    found = Inversion()
    left: list[tuple[Expr, Expr]] = []
    for index, dim in zip(read.index, dims, strict=True):
        if not _straight(index, dim, axes, sizes, found):
            left.append((index, dim_index(dim)))
    left = list(_divided(left, axes, sizes, found))
    for index, position in left:
        _solve_one(index, position, axes, sizes, found)
    return found


def _straight(index: Expr, dim: Dim, axes: Sequence[str], sizes: Lengths, found: Inversion) -> bool:
    """Solves a bare or merged index for its axes, if none of them is solved yet."""
    factors = (index.name,) if isinstance(index, Name) else sizes.ask(_merged_axes, index)
    if factors is None or any(axis in found.solved or axis not in axes for axis in factors):
        return False
    if factors == dim or (len(factors) == len(dim) and all(map(sizes.same, factors, dim))):
        found.solved |= {axis: Name(own) for axis, own in zip(factors, dim, strict=True)}
        return True
    position, stride = dim_index(dim), 1
    for place, axis in reversed(list(enumerate(factors))):
        term = position if stride == 1 else call("//", position, Number(stride))
        _add(axis, term if place == 0 else call("%", term, Number(sizes.number((axis,)))), sizes, found)
        stride *= sizes.number((axis,)) if place else 1
    if not factors and not sizes.ask(_single, dim):
        found.equal.append(call("==", position, Number(0)))
    return True


def _divided(
    left: Sequence[tuple[Expr, Expr]], axes: Sequence[str], sizes: Lengths, found: Inversion
) -> Iterator[tuple[Expr, Expr]]:
    """Solves `i // e` and `i % e` for `i`. Yields the remaining pairs."""
    rest = list(left)
    for major in left:
        match major[0]:
            case Apply("//", (Name(axis), by)) if axis in axes and axis not in found.solved:
                minor = next((pair for pair in rest if pair[0] == call("%", Name(axis), by)), None)
                if minor is not None:
                    _add(axis, merged_index([(major[1], by), (minor[1], by)]), sizes, found)
                    if not sizes.ask(_below, minor[1], by):
                        found.inside.append(Inside(minor[1], by))
                    rest = [pair for pair in rest if pair not in (major, minor)]
    yield from rest


def _solve_one(index: Expr, position: Expr, axes: Sequence[str], sizes: Lengths, found: Inversion) -> None:
    index = substitute(index, found.solved)
    for axis in axes:
        if axis not in found.solved and (term := isolate(index, position, axis)) is not None:
            found.solved = {known: substitute(value, {axis: term}) for known, value in found.solved.items()}
            found.inside = [part.at({axis: term}) for part in found.inside]
            found.equal = [substitute(condition, {axis: term}) for condition in found.equal]
            _add(axis, term, sizes, found)
            return
    found.equal.append(call("==", position, index))


def isolate(index: Expr, position: Expr, axis: str) -> Expr | None:
    """The axis from `index == position`, if it occurs once with coefficient 1 or -1; else None."""
    match index:
        case Name(name) if name == axis:
            return position
        case Apply("+" | "-" as function, (left, right)) if (axis in free_axes(left)) != (axis in free_axes(right)):
            if axis in free_axes(left):
                return isolate(left, call("-" if function == "+" else "+", position, right), axis)
            return isolate(right, call("-", position, left) if function == "+" else call("-", left, position), axis)
        case Apply("neg", (argument,)):
            return isolate(argument, call("neg", position), axis)
        case Apply("*", (argument, Number(1))) | Apply("*", (Number(1), argument)):
            return isolate(argument, position, axis)
    return None


def _add(axis: str, term: Expr, sizes: Lengths, found: Inversion) -> None:
    """Records a solution and its bounds."""
    term = simplify(term)
    found.solved[axis] = term
    below, beyond = sizes.ask(_leaves, term, axis)
    if below:
        found.inside.append(Inside(term))
    if beyond:
        found.inside.append(Inside(term, axis))


# ---------------------------------------------------------------------------------------------- queries about sizes


def _merged_axes(sizes: Sizes, index: Expr) -> tuple[str, ...] | None:
    return merged_axes(index, sizes)


def _single(sizes: Sizes, dim: Dim) -> bool:
    return dim_size(sizes, dim) <= 1


def _below(sizes: Sizes, index: Expr, end: Expr) -> bool:
    return interval(index, sizes)[1] < interval(end, sizes)[0]


def _leaves(sizes: Sizes, term: Expr, axis: str) -> tuple[bool, bool]:
    """Whether a term may be below 0, and whether it may exceed the axis's range."""
    low, high = interval(term, sizes)
    return low < 0, high >= sizes[axis]
