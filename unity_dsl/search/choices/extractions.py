"""Groups of values whose operators algebra chooses together, and the extractions of each group.

An extraction of an e-graph takes one operator for every value that it computes. Values whose choices depend on each
other form a group: a value that only some extractions compute is in one group with the values that may be made of it.
The extractions of a group are enumerated, so that layouts can be chosen for each of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING

from ...graph.graph import Node, Value
from ...rules.egraph.enode import Enode
from .components import Components
from .necessary_values import necessary_values

if TYPE_CHECKING:
    from ...rules.egraph.equality_graph import EqualityGraph

MOST = 16
"""Extractions of a group that are kept: those that cost least on one device, the graph's own among them."""
_ENUMERATED = 2048
"""Extractions of a group that are enumerated to find these."""

Price = Callable[[Node], float]
"""Seconds of an operator on one device."""


@dataclass(frozen=True)
class Choice:
    """A value whose operator algebra chooses. `enodes` has its operator by extraction of its group, None where it is
    unused.
    """

    value: Value
    enodes: tuple[Enode | None, ...]

    @property
    def necessary(self) -> bool:
        """Whether every extraction computes it."""
        return None not in self.enodes

    @cached_property
    def reads(self) -> tuple[tuple[Value, int], ...]:
        """The operands of the value in some extraction, each with how often the same operator read it before."""
        return tuple(dict.fromkeys(read for enode in self.enodes for read in _numbered(enode)))

    @cached_property
    def partly_read(self) -> frozenset[str]:
        """The values that some extractions read less often than others."""
        every = [set(_numbered(enode)) for enode in self.enodes]
        return frozenset(value.name for read in every for value, _ in set().union(*every) - read)


@dataclass(frozen=True)
class Group:
    """Values whose choices depend on each other. Extraction 0 is that of the graph itself. `complete` says that no
    limit left an extraction out.
    """

    choices: tuple[Choice, ...]
    extractions: int
    complete: bool


@dataclass(frozen=True)
class Extractions:
    """The groups of an e-graph. `fixed` gives, by value, the operators that belong to no group: every extraction has
    them.
    """

    egraph: EqualityGraph
    groups: tuple[Group, ...]
    fixed: Mapping[str, Enode]

    @cached_property
    def choices(self) -> Mapping[str, Choice]:
        """Choices by value."""
        return {choice.value.name: choice for group in self.groups for choice in group.choices}

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Every operator of some extraction, those of all extractions first."""
        enodes = {id(e): e for choice in self.choices.values() for e in choice.enodes if e is not None}
        return tuple(enode.node for enode in (*self.fixed_enodes, *enodes.values()))

    @cached_property
    def fixed_enodes(self) -> tuple[Enode, ...]:
        """The fixed operators, each once: an operator may make several values."""
        return tuple({id(enode): enode for enode in self.fixed.values()}.values())

    @property
    def changed(self) -> bool:
        """Whether rules made some of the operators that are in every extraction."""
        return any(enode.applied for enode in self.fixed_enodes)

    @cached_property
    def group_of(self) -> Mapping[str, int]:
        """The number of a value's group."""
        return {choice.value.name: number for number, group in enumerate(self.groups) for choice in group.choices}

    @cached_property
    def partly_used(self) -> frozenset[str]:
        """The values that some extractions do not make, or read less often than others."""
        unmade = (name for name, choice in self.choices.items() if not choice.necessary)
        return frozenset(unmade).union(*(choice.partly_read for choice in self.choices.values()))

    @cached_property
    def linked(self) -> frozenset[str]:
        """The values of a group that only one operator reads, one of the same group."""
        outside = set(self.egraph.leaving) | {v.name for enode in self.fixed_enodes for v in enode.node.arguments}
        alone = {name: readers[0] for name, readers in self._readers.items() if len(readers) == 1}
        inside = (name for name, reader in alone.items() if self.group_of[reader] == self.group_of[name])
        return frozenset(name for name in inside if name not in outside)

    @cached_property
    def _readers(self) -> Mapping[str, list[str]]:
        """By value, the choices that read it in some extraction, once for each read."""
        found: dict[str, list[str]] = {}
        for name, choice in self.choices.items():
            for value, _ in choice.reads:
                found.setdefault(value.name, []).append(name)
        return {name: found.get(name, []) for name in self.choices}

    @cached_property
    def agreeing(self) -> tuple[tuple[str, str], ...]:
        """Pairs of choices that must agree so that each group, with its `linked` values, has one extraction. A pair in
        which one reads the other is preferred.
        """
        found = []
        for group in self.groups:
            names = [choice.value.name for choice in group.choices]
            components = Components()
            for name in names:
                if name in self.linked:
                    components.join(name, self._readers[name][0])
            read = [(name, reader) for name in names for reader in self._readers[name] if reader in names]
            found += [pair for pair in (*read, *pairwise(names)) if components.join(*pair)]
        return tuple(found)

    @property
    def reads(self) -> Iterator[str]:
        """Names of values, once for each time that an extraction, or a segment or update of the graph, reads them."""
        for choice in self.choices.values():
            yield from (value.name for value, _ in choice.reads)
        for enode in self.fixed_enodes:
            yield from (value.name for value in enode.node.arguments)
        for segment in self.egraph.graph.segments:
            yield from (value.name for value in segment.reads)
        yield from (update.value.name for update in self.egraph.graph.updates)


def extractions(egraph: EqualityGraph, price: Price, most: int = MOST) -> Extractions:
    """The groups of an e-graph, with at most `most` extractions each."""
    return _Grouping(egraph, price, most).run()


class _Grouping:
    def __init__(self, egraph: EqualityGraph, price: Price, most: int) -> None:
        self.egraph = egraph
        self.price = price
        self.most = most
        self.makers = _makers(egraph)
        self.seconds: dict[int, float] = {}
        self.necessary = self._necessary()
        self.optional = self._reachable() - self.necessary

    def _necessary(self) -> set[str]:
        """The values that every extraction computes: those that leave the graph, random ones, and what these need."""
        sites = {value.name for node in self.egraph.nodes if node.site for value in node.results}
        reads = {name: [_read(enode) for enode in enodes] for name, enodes in self.makers.items()}
        return necessary_values(reads, (name for name in reads if name in self.egraph.leaving or name in sites))

    def _reachable(self) -> set[str]:
        found, pending = set(self.necessary), list(self.necessary)
        while pending:
            for enode in self.makers[pending.pop()]:
                new = [name for name in _read(enode) if name in self.makers and name not in found]
                found.update(new)
                pending += new
        return found

    def run(self) -> Extractions:
        groups, fixed = [], {name: self.makers[name][0] for name in self.makers if name in self.necessary}
        for names in self._members():
            group = self._group(names)
            alike = {
                choice.value.name: choice.enodes[0] for choice in group.choices if len(set(map(id, choice.enodes))) == 1
            }
            fixed |= {name: enode for name, enode in alike.items() if enode is not None}
            left = tuple(choice for choice in group.choices if choice.value.name not in alike)
            groups += [replace(group, choices=left)] if left else []
        chosen = {choice.value.name for group in groups for choice in group.choices}
        others = {name: enode for name, enode in fixed.items() if name not in chosen}
        return Extractions(self.egraph, tuple(groups), others)

    def _members(self) -> Iterator[list[str]]:
        """The values of each group in the order of their makers, and groups in the order of their first values."""
        components, grouped = Components(), set(self.optional)
        for name in (name for name in self.makers if name in self.necessary or name in self.optional):
            read = set[str]().union(*map(_read, self.makers[name])) & self.optional
            if read or len(self.makers[name]) > 1:
                grouped.add(name)
            for value in read:
                components.join(name, value)
        found: dict[str, list[str]] = {}
        for name in (name for name in self.makers if name in grouped):
            found.setdefault(components.of(name), []).append(name)
        yield from found.values()

    def _group(self, names: Sequence[str]) -> Group:
        roots = tuple(name for name in names if name in self.necessary)
        every = list(islice(self._extended({}, 0.0, roots), _ENUMERATED + 1))
        (_, own), *others = every
        ranked = sorted((one for one in others if self._reads_kept(one[1], names)), key=itemgetter(0))
        kept = [own, *(chosen for _, chosen in ranked[: self.most])]
        complete = len(kept) <= self.most and len(every) <= _ENUMERATED
        kept = kept[: self.most]
        values = {value.name: value for name in names for value in self.makers[name][0].node.results}
        choices = (Choice(values[name], tuple(chosen.get(name) for chosen in kept)) for name in names)
        computed = (choice for choice in choices if any(enode is not None for enode in choice.enodes))
        return Group(tuple(computed), len(kept), complete)

    def _reads_kept(self, chosen: Mapping[str, Enode], names: Sequence[str]) -> bool:
        """Whether each value that must be kept is still read, among values that only this group may read."""
        for name in self.egraph.kept:
            readers = {reader for reader, enodes in self.makers.items() for enode in enodes if name in _read(enode)}
            if readers and readers <= set(names) and not any(name in _read(e) for e in chosen.values()):
                return False
        return True

    def _seconds(self, enode: Enode) -> float:
        if id(enode) not in self.seconds:
            self.seconds[id(enode)] = self.price(enode.node)
        return self.seconds[id(enode)]

    def _extended(
        self, chosen: Mapping[str, Enode], seconds: float, pending: tuple[str, ...]
    ) -> Iterator[tuple[float, Mapping[str, Enode]]]:
        """Every extraction that has the operators `chosen` so far, with its seconds. It also computes the values
        `pending` and what these read. No value is made of itself.
        """
        if not pending:
            yield seconds, chosen
            return
        name, *rest = pending
        for enode in self.makers[name]:
            if not _reaches(enode, name, chosen):
                read = sorted(_read(enode) & self.optional)
                new = [value for value in read if value not in chosen and value not in pending]
                yield from self._extended({**chosen, name: enode}, seconds + self._seconds(enode), (*rest, *new))


def _numbered(enode: Enode | None) -> Iterator[tuple[Value, int]]:
    """The operands of an operator, each with how often the operator read it before."""
    seen = Counter[str]()
    for value in () if enode is None else enode.node.arguments:
        yield value, seen[value.name]
        seen[value.name] += 1


def _read(enode: Enode) -> set[str]:
    return {value.name for value in enode.node.arguments}


def _reaches(enode: Enode, name: str, chosen: Mapping[str, Enode]) -> bool:
    """Whether an operator reads a value, directly or through the `chosen` operators."""
    pending, seen = [value.name for value in enode.node.arguments], set[str]()
    while pending:
        read = pending.pop()
        if read == name:
            return True
        if read in chosen and read not in seen:
            seen.add(read)
            pending += (value.name for value in chosen[read].node.arguments)
    return False


def _makers(egraph: EqualityGraph) -> dict[str, list[Enode]]:
    """By value, the operators that may make it, the graph's own first. An operator with several results, or with random
    numbers, has no alternatives. Operators with equal name and attributes that read the same values in another order
    count as one, the first. An operator that a rule made must have its gradient-free operands ready.
    """
    before = _before(egraph)
    found: dict[str, list[Enode]] = {}
    for name, enodes in egraph.makers().items():
        if name in egraph.stored:
            continue
        opaque = [enode for enode in enodes if len(enode.node.results) > 1 or enode.node.site]
        kept: dict[object, Enode] = {}
        for enode in opaque[:1] or enodes:
            read = sorted(value.name for value in enode.node.arguments)
            if not enode.applied or all(_is_ready(value, name, before) for value in enode.node.arguments):
                kept.setdefault(
                    (enode.node.instance.name, *read, *sorted(enode.node.instance.attributes.items())), enode
                )
        found[name] = list(kept.values())
    return found


def _before(egraph: EqualityGraph) -> Mapping[str, int]:
    """The place in the graph of the step that makes each value."""
    return {value.name: place for place, step in enumerate(egraph.graph.steps) for value in step.makes}


def _is_ready(value: Value, name: str, before: Mapping[str, int]) -> bool:
    """Whether an operand without gradient is made before the value `name`: it must be known by then whether it is
    whole.
    """
    if value.needs_gradient or value.name not in before or name not in before:
        return True
    return before[value.name] < before[name]
