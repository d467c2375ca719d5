"""The series-parallel form of an acyclic graph: steps one behind the other, and branches that may run at the same time.

Two steps are comparable if one comes before the other. A set of steps that is not connected by comparable pairs is a
parallel composition of its components. If its parts each come after all of the one before, it is a series of them
(Valdes, Tarjan and Lawler 1982, "The recognition of series parallel digraphs"). A set that is neither has steps in the
form of an N. A barrier makes it a series: all steps up to one depth come before all that are deeper, which adds
dependencies and drops none (SP-ization).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class Leaf:
    """One step, by its number."""

    step: int

    @property
    def steps(self) -> tuple[int, ...]:
        return (self.step,)


@dataclass(frozen=True)
class Series:
    """Each part comes after the one before."""

    parts: tuple[Tree, ...]

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(step for part in self.parts for step in part.steps)


@dataclass(frozen=True)
class Parallel:
    """No part depends on another one."""

    parts: tuple[Tree, ...]

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(step for part in self.parts for step in part.steps)


Tree = Leaf | Series | Parallel


def decompose(before: Sequence[Sequence[int]]) -> Tree:
    """The form of the steps 0 to n - 1. `before[i]` are the steps that step i reads, which have smaller numbers."""
    return _Decomposition(before).tree((1 << len(before)) - 1)


class _Decomposition:
    """Sets of steps are bit sets. `related[i]` are the steps that come before or after step i. `depth[i]` is the number
    of steps on the longest path to it.
    """

    def __init__(self, before: Sequence[Sequence[int]]) -> None:
        earlier: list[int] = []
        self.depth: list[int] = []
        self.read = [sum(1 << other for other in {*others}) for others in before]
        for others in before:
            mask = 0
            for other in others:
                mask |= earlier[other] | 1 << other
            earlier.append(mask)
            self.depth.append(1 + max((self.depth[other] for other in others), default=0))
        later = [0] * len(before)
        for step in reversed(range(len(before))):
            for other in before[step]:
                later[other] |= later[step] | 1 << step
        self.related = [one | other for one, other in zip(earlier, later, strict=True)]

    def tree(self, members: int) -> Tree:
        steps = list(_members(members))
        if len(steps) == 1:
            return Leaf(steps[0])
        branches = _components(members, lambda step: self.related[step])
        if len(branches) > 1:
            return Parallel(tuple(map(self.tree, branches)))
        parts = _components(members, lambda step: ~self.related[step])
        if len(parts) == 1:
            parts = self.barrier(steps)
        parts = sorted(parts, key=lambda part: min(self.depth[step] for step in _members(part)))
        found = (self.tree(part) for part in parts)
        return Series(tuple(one for tree in found for one in (tree.parts if isinstance(tree, Series) else (tree,))))

    def barrier(self, steps: Sequence[int]) -> list[int]:
        """The steps up to a depth and those that are deeper: the first of the cuts that the fewest reads cross."""
        inside = sum(1 << step for step in steps)
        begun: dict[int, int] = {self.depth[step]: 0 for step in steps}
        for step in steps:
            for other in _members(self.read[step] & inside):
                begun[self.depth[other]] += 1
                begun[self.depth[step]] -= 1
        depths = sorted(begun)
        crossing = list(accumulate(begun[depth] for depth in depths))[:-1]
        deepest = depths[crossing.index(min(crossing))]
        upper = sum(1 << step for step in steps if self.depth[step] <= deepest)
        return [upper, inside & ~upper]


def _members(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _components(members: int, neighbours: Callable[[int], int]) -> list[int]:
    """Connected components, those with the smallest steps first."""
    found = []
    while members:
        component, new = 0, members & -members
        while new:
            component |= new
            reached = 0
            for step in _members(new):
                reached |= neighbours(step)
            new = reached & members & ~component
        found.append(component)
        members &= ~component
    return found
