"""Filters graphs that may be equal at a context's types but at no more general ones, by the dimensions that they link.

A letter of a context stands at *positions*: in one or more dimensions of its operands. An operator that requires equal
sizes links the positions from which the letters of these sizes come. Suppose that some positions of a letter stay
unlinked by the two sides of an equation and by the equality of their result types. A different letter may then stand at
each of these positions: the equation holds in a more general context, or nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from .application import Application
from .dimensions import Dim, TensorType, letters_of

Origins = tuple[tuple[tuple[str, int], ...], ...]
"""For each dimension its letters, each with the position from which it comes."""
_Slot = tuple[int, int, str]
"""A letter in a dimension of an operand: the number of the operand, the number of the dimension, and the letter."""


@dataclass(frozen=True)
class _Links:
    """The links of an application: pairs of slots, and for each result the slot of each letter of each dimension."""

    pairs: tuple[tuple[_Slot, _Slot], ...]
    results: tuple[tuple[tuple[tuple[str, _Slot], ...], ...], ...]

    @cached_property
    def slots(self) -> tuple[_Slot, ...]:
        """All slots, each once."""
        linked = [slot for pair in self.pairs for slot in pair]
        made = [slot for result in self.results for part in result for _, slot in part]
        return tuple(dict.fromkeys([*linked, *made]))


@dataclass
class TypeLinks:
    """Partitions of the positions of a context's letters, and *states*. A state has the links of a graph and the
    origins of its type.

    Partitions and states are represented by numbers. `whole` is the partition in which all positions of each letter are
    linked.
    """

    inputs: Sequence[TensorType]
    degrees: frozenset[str]
    whole: int = field(init=False)

    def __post_init__(self) -> None:
        self._partitions: list[tuple[int, ...]] = []
        self._partition_numbers: dict[tuple[int, ...], int] = {}
        self._states: list[tuple[int, Origins]] = []
        self._state_numbers: dict[tuple[int, Origins], int] = {}
        self._unions: dict[tuple[int, int], int] = {}
        self._joins: dict[tuple[int, int], int] = {}
        self._applied: dict[tuple[object, ...], tuple[int, ...]] = {}
        self._known: dict[int, tuple[Application, _Links]] = {}
        positions: dict[tuple[int, int, str], int] = {}
        for number, tensor in enumerate(self.inputs):
            for place, part in enumerate(tensor.parts):
                for letter in self._letters(part):
                    positions[number, place, letter] = len(positions)
        self._positions = positions
        self.none = self._partition(tuple(range(len(positions))))
        first: dict[str, int] = {}
        self.whole = self._partition(tuple(first.setdefault(slot[2], place) for slot, place in positions.items()))
        self._first = first
        # A letter of unknown position, such as the end of a slice, counts as linked at all its positions.
        self._together = {
            own: self._partition(
                tuple(first[own] if letter == own else place for (_, _, letter), place in positions.items())
            )
            for own in first
        }

    def _letters(self, dim: Dim) -> tuple[str, ...]:
        return tuple(letter for letter in letters_of(dim.total) if letter not in self.degrees)

    def input(self, number: int) -> int:
        """The state of an input."""
        origins = tuple(
            tuple((letter, self._positions[number, place, letter]) for letter in self._letters(part))
            for place, part in enumerate(self.inputs[number].parts)
        )
        return self._state(self.none, origins)

    def applied(self, application: Application, operands: tuple[int, ...]) -> tuple[int, ...]:
        """The states of an application's results, given the states of its operands."""
        key = id(application), operands
        if key not in self._applied:
            links = self._links(application)
            linked = self.none
            for operand in operands:
                linked = self.union(linked, self._states[operand][0])
            origins = [[dict(part) for part in self._states[operand][1]] for operand in operands]
            places: dict[_Slot, int] = {}
            for slot in links.slots:
                operand, part, letter = slot
                if letter not in origins[operand][part]:
                    linked = self.union(linked, self._together[letter])
                places[slot] = origins[operand][part].get(letter, self._first[letter])
            for one, other in links.pairs:
                linked = self._linked(linked, places[one], places[other])
            self._applied[key] = tuple(
                self._state(linked, tuple(tuple((letter, places[slot]) for letter, slot in part) for part in result))
                for result in links.results
            )
        return self._applied[key]

    def join(self, one: int, other: int) -> int:
        """The partition that results when two graphs of one type are the sides of an equation."""
        key = (one, other) if one <= other else (other, one)
        if key not in self._joins:
            (left, left_origins), (right, right_origins) = (self._states[state] for state in key)
            linked = self.union(left, right)
            for first, second in zip(left_origins, right_origins, strict=True):
                positions = dict(second)
                for letter, position in first:
                    if letter in positions:
                        linked = self._linked(linked, position, positions[letter])
            self._joins[key] = linked
        return self._joins[key]

    def union(self, one: int, other: int) -> int:
        """The partition that has the links of both."""
        if one == other or other == self.none:
            return one
        if one == self.none:
            return other
        key = (one, other) if one < other else (other, one)
        if key not in self._unions:
            linked = one
            for position, label in enumerate(self._partitions[other]):
                linked = self._linked(linked, position, label)
            self._unions[key] = linked
        return self._unions[key]

    # ------------------------------------------------------------------------------------------ numbers

    def _partition(self, labels: tuple[int, ...]) -> int:
        number = self._partition_numbers.setdefault(labels, len(self._partitions))
        if number == len(self._partitions):
            self._partitions.append(labels)
        return number

    def _state(self, partition: int, origins: Origins) -> int:
        labels = self._partitions[partition]
        own = tuple(tuple((letter, labels[position]) for letter, position in part) for part in origins)
        number = self._state_numbers.setdefault((partition, own), len(self._states))
        if number == len(self._states):
            self._states.append((partition, own))
        return number

    def _linked(self, partition: int, one: int, other: int) -> int:
        labels = self._partitions[partition]
        low, high = sorted((labels[one], labels[other]))
        return partition if low == high else self._partition(tuple(low if one == high else one for one in labels))

    # ------------------------------------------------------------------------------------------ applications

    def _links(self, application: Application) -> _Links:
        """The links of an application. The application is stored with them, so that its `id` stays unique."""
        if id(application) not in self._known:
            self._known[id(application)] = application, self._made(application)
        return self._known[id(application)][1]

    def _made(self, application: Application) -> _Links:
        values = {name: self._letters(value) for name, value in application.letters}
        slots: dict[tuple[str, str], list[_Slot]] = {}
        anywhere: dict[str, _Slot] = {}
        declared = application.signature.operands
        for operand, (tensor, signature) in enumerate(zip(application.operands, declared, strict=True)):
            for place, (given, part) in enumerate(zip(tensor.parts, signature.parts, strict=True)):
                own = self._letters(given)
                for letter in own:
                    anywhere.setdefault(letter, (operand, place, letter))
                for name, letter in _bound(part, values):
                    if letter in own:
                        slots.setdefault((name, letter), []).append((operand, place, letter))
        pairs = [(found[0], other) for found in slots.values() for other in found[1:]]
        results = []
        for result in application.signature.types:
            parts = []
            for part in result.parts:
                chosen: dict[str, _Slot] = {}
                for name, letter in _bound(part, values):
                    slot = slots[name, letter][0] if (name, letter) in slots else anywhere.get(letter, (0, 0, letter))
                    if chosen.setdefault(letter, slot) != slot:
                        pairs.append((chosen[letter], slot))
                parts.append(tuple(sorted(chosen.items())))
            results.append(tuple(parts))
        return _Links(tuple(pairs), tuple(results))


def _bound(declared: Dim, values: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    """The letters of a declared dimension, each paired with every letter of its value in the context."""
    for name in letters_of(declared.total):
        for letter in values.get(name, ()):
            yield name, letter
