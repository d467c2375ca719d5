"""Contexts: the operand types over which graphs are compared, found as the most general types of small graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import count, permutations, product
from math import factorial, prod

from ...index.library import Library
from ...prove.translation.symbolic_sizes import shown
from .dimensions import Dim, TensorType, letters_of, named, unified
from .signature import Signature, read_signature
from .signature_table import SignatureTable, Theme

LETTERS = (*"mnkhijloqrstuvwabefg", *(f"m{number}" for number in range(1, 40)))
"""Names of sizes; `c` and `d` are left to real numbers, `p` to degrees."""
MAX_LETTERS = len(LETTERS)
INPUTS = 5
"""The most operands of a graph."""


@dataclass(frozen=True)
class Context:
    """Operands of a theme's graphs, by their types. One unit of work: it depends on nothing but its text.

    `only` are operators of which each substitution has at least one.
    """

    theme: str
    operators: int
    inputs: tuple[TensorType, ...]
    signatures: tuple[str, ...]
    numbers: tuple[str, ...]
    degrees: frozenset[str] = frozenset()
    only: frozenset[str] = frozenset()

    @cached_property
    def text(self) -> str:
        """The operands, readable: `[m, k], [k, n]`."""
        return ", ".join(map(type_text, self.inputs))

    @cached_property
    def digest(self) -> str:
        """What the candidates of the context depend on, besides the declarations."""
        parts = (str(self.operators), *self.signatures, *self.numbers, *sorted(self.only), context_key(self.inputs))
        return sha256("\n".join(parts).encode()).hexdigest()[:16]


def type_text(tensor: TensorType) -> str:
    """A type in the notation of rules: `int<v>[@p, m, h * k]`."""
    parts = [f"@{name}" for name in tensor.devices] + [shown(dim.total) for dim in tensor.dims]
    integers = "" if tensor.bound is None else f"int<{shown(tensor.bound.total)}>"
    return f"{integers}[{', '.join(parts)}]"


def contexts(table: SignatureTable, library: Library) -> tuple[Context, ...]:
    """The contexts of a table's themes, those of few and small operands first. Raises E509."""
    return tuple(made for theme in table.themes for made in theme_contexts(theme, library, table))


def theme_contexts(theme: Theme, library: Library, table: SignatureTable) -> tuple[Context, ...]:
    """The contexts of one theme: the most general operand types of every graph, operands identified in all ways."""
    own = [read_signature(text, library, table.place(text)) for text in theme.signatures]
    special = [read_signature(text, library, table.place(text)) for text in theme.special]
    degrees = frozenset(name for signature in own for name in signature.degrees)
    found: dict[str, tuple[TensorType, ...]] = {}
    for inputs in _graph_types((*own, *special), theme.operators, degrees):
        found.setdefault(context_key(inputs), inputs)
    pending = list(found.values())
    while pending:
        for inputs in _identified(pending.pop(), degrees):
            key = context_key(inputs)
            if key not in found:
                found[key] = inputs
                pending.append(inputs)
    made = [
        Context(theme.name, theme.operators, _renamed(inputs), theme.signatures, theme.numbers, degrees)
        for inputs in found.values()
    ]
    return tuple(sorted(made, key=lambda one: (len(one.inputs), len(one.text), one.text, one.digest)))


# ---------------------------------------------------------------------------------------------- types of graphs


@dataclass(frozen=True)
class _Graph:
    """The types of a graph while it grows: its operands, and its tensors, each with whether something reads it."""

    inputs: tuple[TensorType, ...]
    tensors: tuple[tuple[TensorType, bool], ...]

    def replaced(self, values: dict[str, Dim]) -> _Graph:
        inputs = tuple(tensor.replaced(values) for tensor in self.inputs)
        return _Graph(inputs, tuple((tensor.replaced(values), used) for tensor, used in self.tensors))

    @property
    def key(self) -> str:
        """The same for graphs whose letters are named otherwise; for some whose operands are in another order."""
        renamed = renaming([*self.inputs, *(tensor for tensor, _ in self.tensors)])
        inputs = [structure_text(tensor.replaced(renamed)) for tensor in self.inputs]
        return f"{inputs}{[(structure_text(tensor.replaced(renamed)), used) for tensor, used in self.tensors]}"


def _graph_types(
    signatures: Sequence[Signature], operators: int, degrees: frozenset[str]
) -> Iterator[tuple[TensorType, ...]]:
    """Operand types of all graphs of up to so many operators with one root, each operand read once."""
    level = {"": _Graph((), ())}
    fresh = (f"_{number}" for number in count())
    for made in range(operators):
        grown: dict[str, _Graph] = {}
        for graph in level.values():
            for signature in signatures:
                for larger in _applied(graph, signature, degrees, fresh):
                    unread = sum(not used for _, used in larger.tensors)
                    if unread - 1 <= (operators - made - 1) * _widest(signatures) and len(larger.inputs) <= INPUTS:
                        grown.setdefault(larger.key, larger)
                        if unread <= 1:
                            yield larger.inputs
        level = grown


def _widest(signatures: Sequence[Signature]) -> int:
    """How many tensors one operator can make one of, less one."""
    return max(len(signature.operands) for signature in signatures) - 1


def _applied(graph: _Graph, signature: Signature, degrees: frozenset[str], fresh: Iterator[str]) -> Iterator[_Graph]:
    """The graph with one more operator, whose operands are its tensors or new inputs."""
    names = dict.fromkeys(
        name for tensor in signature.operands for part in tensor.parts for name in letters_of(part.total)
    )
    renamed = {name: named(next(fresh)) for name in names if name not in degrees}
    operands = [tensor.replaced(renamed) for tensor in signature.operands]
    choices = [
        [None, *(place for place, (tensor, _) in enumerate(graph.tensors) if _may_meet(tensor, operand, signature))]
        for operand in operands
    ]
    for chosen in product(*choices):
        new = [operand for operand, place in zip(operands, chosen, strict=True) if place is None]
        ambient = {
            _ambient(graph.tensors[place][0], operand)
            for operand, place in zip(operands, chosen, strict=True)
            if place is not None
        } or {()}
        if len(ambient) > 1 or len(graph.inputs) + len(new) > INPUTS:
            continue
        (over,) = ambient
        pairs = [
            pair
            for operand, place in zip(operands, chosen, strict=True)
            if place is not None
            for pair in zip(graph.tensors[place][0].parts, operand.parts, strict=True)
        ]
        for values in unified(pairs, degrees, fresh):
            results = [(_lifted(result.replaced(renamed), over).replaced(values), False) for result in signature.types]
            old = [(tensor, used or place in chosen) for place, (tensor, used) in enumerate(graph.tensors)]
            inputs = (*graph.inputs, *(_lifted(operand, over) for operand in new))
            larger = _Graph(inputs, tuple(old)).replaced(values)
            # One result of several is taken: the other is what another graph takes.
            for result in results:
                yield _Graph(larger.inputs, (*larger.tensors, result))


def _may_meet(tensor: TensorType, operand: TensorType, signature: Signature) -> bool:
    same = len(tensor.dims) == len(operand.dims) and (tensor.bound is None) == (operand.bound is None)
    made = {name for result in signature.types for name in result.devices} - set(operand.devices)
    over = set(tensor.devices) - set(operand.devices)
    return same and set(operand.devices) <= set(tensor.devices) and made.isdisjoint(over)


def _ambient(tensor: TensorType, operand: TensorType) -> tuple[str, ...]:
    """The device axes over which an operator is mapped."""
    return tuple(name for name in tensor.devices if name not in operand.devices)


def _lifted(tensor: TensorType, over: tuple[str, ...]) -> TensorType:
    return TensorType(tuple(sorted((*tensor.devices, *over))), tensor.dims, tensor.bound)


def _identified(inputs: tuple[TensorType, ...], degrees: frozenset[str]) -> Iterator[tuple[TensorType, ...]]:
    """The operand types with two of the operands made one."""
    fresh = (f"_i{number}" for number in count())
    for second in range(len(inputs)):
        for first in range(second):
            one, other = inputs[first], inputs[second]
            if one.kind != other.kind:
                continue
            for values in unified(list(zip(one.parts, other.parts, strict=True)), degrees, fresh):
                merged = [tensor.replaced(values) for tensor in inputs]
                joined = tuple(a.joined(b) for a, b in zip(merged[first].dims, merged[second].dims, strict=True))
                merged[first] = TensorType(merged[first].devices, joined, merged[first].bound)
                yield tuple(merged[:second] + merged[second + 1 :])


# ---------------------------------------------------------------------------------------------- names of letters


def renaming(tensors: Sequence[TensorType], fixed: frozenset[str] = frozenset({"p"})) -> dict[str, Dim]:
    """New names of the letters, by their first appearance."""
    letters = dict.fromkeys(name for tensor in tensors for part in tensor.parts for name in letters_of(part.total))
    names = iter(LETTERS)
    return {name: named(next(names)) for name in letters if name not in fixed}


def _renamed(inputs: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
    """In the order and with the letters of the context's key."""
    first = min(_likely_orders(inputs), key=_ordered_text)
    renamed = renaming(first)
    return tuple(tensor.replaced(renamed) for tensor in first)


def structure_text(tensor: TensorType) -> str:
    """A type with the structure of its dimensions: what tells contexts apart."""
    dims = []
    for dim in tensor.parts:
        if dim.letter is not None:
            dims.append(dim.letter)
            continue
        cuts, prefixes = (",".join(sorted(part.key for part in parts)) for parts in (dim.cuts, dim.prefixes))
        dims.append(f"{dim.total.key}|{cuts}|{prefixes}")
    return f"{tensor.devices}{tensor.bound is None}[{'; '.join(dims)}]"


def context_key(inputs: Sequence[TensorType]) -> str:
    """A text that is the same for operands in another order, and for other names of letters."""
    return min(_ordered_text(order) for order in _likely_orders(inputs))


def context_totals(inputs: Sequence[TensorType]) -> str:
    """As `context_key`, for sizes without their structure."""
    plain = [
        TensorType(
            tensor.devices,
            tuple(Dim(dim.total) for dim in tensor.dims),
            None if tensor.bound is None else Dim(tensor.bound.total),
        )
        for tensor in inputs
    ]
    return context_key(plain)


def _ordered_text(inputs: Sequence[TensorType]) -> str:
    renamed = renaming(inputs)
    return " ".join(structure_text(tensor.replaced(renamed)) for tensor in inputs)


def _likely_orders(inputs: Sequence[TensorType]) -> Iterator[tuple[TensorType, ...]]:
    """Orders by how often the letters of each operand occur: equal for operands in another order, save for ties."""
    counts = Counter(name for tensor in inputs for part in tensor.parts for name in letters_of(part.total))

    def rank(tensor: TensorType) -> str:
        occurs = [[counts[name] for name in letters_of(part.total)] for part in tensor.parts]
        return f"{tensor.kind}{occurs}{[len(part.cuts) for part in tensor.parts]}"

    groups: dict[str, list[TensorType]] = {}
    for tensor in inputs:
        groups.setdefault(rank(tensor), []).append(tensor)
    ordered = [groups[key] for key in sorted(groups)]
    if prod(factorial(len(group)) for group in ordered) > 24:
        yield tuple(tensor for group in ordered for tensor in group)
        return
    for parts in product(*(list(permutations(group)) for group in ordered)):
        yield tuple(tensor for part in parts for tensor in part)
