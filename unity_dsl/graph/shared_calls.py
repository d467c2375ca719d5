"""Operators that share one call of torch: concatenations of concatenations, and the slices of a tensor."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from ..index.library import Library
from ..index.lowering.torch_term import Argument, Term, Variable
from ..syntax.ast import NativeCall
from .graph import Value
from .layout import Mesh
from .local_lowering import evaluation_lowering, training_lowering
from .plan import PlannedGraph, PlannedNode, PlannedSegment


@dataclass(frozen=True)
class Part:
    """Positions of a dimension that an operator takes."""

    dim: int
    start: int
    length: int


@dataclass(frozen=True)
class SharedCalls:
    """Which steps of a planned graph may share a call, on one device."""

    planned: PlannedGraph
    mesh: Mesh
    library: Library

    def joined_along(self, step: PlannedNode) -> int | None:
        """The dimension along which an operator joins its operands, each once and in order, if that is all it does."""
        match self._call(step):
            case Term("torch.cat", (list() as parts, dim)) if [_variable(part) for part in parts] == list(
                range(len(step.node.arguments))
            ):
                return _number(dim)
        return None

    def joined_later(self, step: PlannedNode) -> bool:
        """Whether the only use of an operator's result is that another operator joins it along the same dimension."""
        dim, (value, *_) = self.joined_along(step), step.node.results
        readers = self._readers.get(value.name, [])
        if dim is None or len(readers) != 1 or self.planned.values[value.name].materialised:
            return False
        (reader,) = readers
        if not isinstance(reader, PlannedNode) or self.joined_along(reader) != dim:
            return False
        place = [read.name for read in reader.node.arguments].index(value.name)
        return reader.typed.arguments[place] == step.typed.results[0]

    def joined(self, leaving: Collection[str]) -> frozenset[str]:
        """The values that no call makes, because the operators that read them join their parts. Values `leaving` the
        graph are not among them.
        """
        nodes = (step for step in self.planned.steps if isinstance(step, PlannedNode))
        found = (step.node.results[0].name for step in nodes if self.joined_later(step))
        return frozenset(found).difference(leaving)

    @cached_property
    def _readers(self) -> Mapping[str, list[PlannedNode | PlannedSegment]]:
        """The readers of each value; a step is listed as often as it reads the value."""
        found: dict[str, list[PlannedNode | PlannedSegment]] = {}
        for step in self.planned.steps:
            for value in _reads(step):
                found.setdefault(value.name, []).append(step)
        return found

    def slices(self, step: PlannedNode) -> tuple[int, list[PlannedNode]] | None:
        """The dimension and, in order, the operators whose slices make up the tensor that this one slices, or None."""
        part = self._taken(step)
        if part is None:
            return None
        source, layout, found = step.node.arguments[0], step.typed.arguments[0], []
        for other in self.planned.steps:
            if isinstance(other, PlannedNode) and other.node.arguments == (source,):
                taken = self._taken(other)
                if taken is not None and taken.dim == part.dim and other.typed.arguments[0] == layout:
                    found.append((taken.start, taken.length, other))
        found.sort(key=lambda one: one[0])
        ends = [start + length for start, length, _ in found]
        whole = layout.local_shape(source.shape, self.mesh)[part.dim]
        if len(found) < 2 or [start for start, _, _ in found] != [0, *ends[:-1]] or ends[-1] != whole:
            return None
        return part.dim, [other for _, _, other in found]

    def _taken(self, step: PlannedNode) -> Part | None:
        match self._call(step):
            case Term("torch.narrow", (given, dim, start, length)) if _variable(given) == 0:
                return Part(_number(dim), _number(start), _number(length))
        return None

    def _call(self, step: PlannedNode) -> Term | None:
        """The `torch.cat` or `torch.narrow` that makes the only result without a cast; None for other operators."""
        node, typed = step.node, step.typed
        declared = node.instance.operator.torch
        if step.placement:
            return None  # in a branch of its own
        if not isinstance(declared, NativeCall) or declared.function not in ("torch.cat", "torch.narrow"):
            return None
        if len(node.results) != 1 or any(value.dtype != node.dtype for value in (*node.arguments, *node.results)):
            return None
        if not step.native or evaluation_lowering(node.instance, typed, self.mesh, self.library) is not None:
            return None
        statements = training_lowering(node.instance, typed, self.mesh, self.library).statements
        return statements[0].value if len(statements) == 1 else None


def _reads(step: PlannedNode | PlannedSegment) -> tuple[Value, ...]:
    return step.node.reads if isinstance(step, PlannedNode) else step.segment.reads


def _variable(argument: Argument) -> int | None:
    match argument:
        case Term("name", (Variable(number),)):
            return number
    return None


def _number(argument: Argument) -> int:
    value = argument.value if isinstance(argument, Term) else argument
    if not isinstance(value, int):
        raise TypeError(f"{argument} among the dimensions and positions of a call")
    return value
