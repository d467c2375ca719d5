"""Which branch of a model runs on which coordinate of a mesh axis: branches of a series-parallel form, the longest
first.

Branches on different coordinates run at the same time. A region therefore takes as long as the fullest coordinate, and
what enters and leaves it goes over the links. A parallel composition becomes a region if that saves more than regions
within its parts do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from .series_parallel import Leaf, Parallel, Tree

Groups = tuple[tuple[int, ...], ...]
"""The steps on each coordinate."""


@dataclass(frozen=True)
class Steps:
    """For every step: its seconds as it is `planned`; its seconds `there`, on one coordinate, None where it cannot be
    there; the `weights` that it reads, by name. `moved` gives the seconds of what enters and leaves groups of steps.
    """

    planned: Sequence[float]
    there: Sequence[float | None]
    weights: Sequence[frozenset[str]]
    moved: Callable[[Groups], float]


@dataclass(frozen=True)
class Assignment:
    """Regions with the steps on each coordinate, and the seconds that they save together."""

    regions: tuple[Groups, ...] = ()
    saved: float = 0.0


def assign(tree: Tree, steps: Steps, coordinates: int) -> Assignment:
    """The regions that save the most."""
    if isinstance(tree, Leaf):
        return Assignment()
    inner = [assign(part, steps, coordinates) for part in tree.parts]
    regions = tuple(region for found in inner for region in found.regions)
    apart = Assignment(regions, sum(found.saved for found in inner))
    if not isinstance(tree, Parallel):
        return apart
    groups = balanced(tree.parts, steps, coordinates)
    filled = sum(bool(group) for group in groups)
    saved = _saved(groups, steps, apart.saved) if filled > 1 else 0.0
    return Assignment((groups,), saved) if saved > apart.saved else apart


def balanced(branches: Sequence[Tree], steps: Steps, coordinates: int) -> Groups:
    """Distributes the branches that can be on one coordinate over so many groups; those that read the same weights stay
    together. The longest comes first, each goes to the group that takes the least so far (Graham 1969, longest
    processing time).
    """
    together = _sharing(
        [branch.steps for branch in branches if all(steps.there[n] is not None for n in branch.steps)], steps
    )
    lasting = sorted(((_seconds(part, steps), part) for part in together), key=lambda found: (-found[0], found[1]))
    groups: list[list[int]] = [[] for _ in range(coordinates)]
    loads = [0.0] * coordinates
    for seconds, part in lasting:
        least = loads.index(min(loads))
        loads[least] += seconds
        groups[least] += part
    return tuple(tuple(sorted(group)) for group in groups)


def _sharing(parts: Sequence[tuple[int, ...]], steps: Steps) -> list[tuple[int, ...]]:
    """Joins parts that read a weight in common: its gradient would be summed over coordinates otherwise."""
    weights = [frozenset[str]().union(*(steps.weights[step] for step in part)) for part in parts]
    groups = [{number} for number in range(len(parts))]
    for first, second in combinations(range(len(parts)), 2):
        if weights[first] & weights[second]:
            one = next(group for group in groups if first in group)
            other = next(group for group in groups if second in group)
            if one is not other:
                one |= other
                groups.remove(other)
    return [tuple(sorted(step for number in group for step in parts[number])) for group in groups]


def _seconds(part: Sequence[int], steps: Steps) -> float:
    return sum(there for step in part if (there := steps.there[step]) is not None)


def _saved(groups: Groups, steps: Steps, least: float) -> float:
    """The seconds that groups save; an upper bound if that is at most `least` even without the cost of what
    is moved.
    """
    planned = sum(steps.planned[step] for group in groups for step in group)
    at_most = planned - max(_seconds(group, steps) for group in groups)
    return at_most - steps.moved(groups) if at_most > least else at_most
