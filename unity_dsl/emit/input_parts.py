"""Inputs that a rank reads only one block of: by dimension, the mesh axes that divide it and the size of a block."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..graph.layout import PARTITION, Invariant, Kind, Layout, Mesh, Shard, invariant
from ..graph.plan import Plan, PlannedGraph, PlannedNode, PlannedValue
from ..schedule.ir import Tensor
from .comment_words import layout_word
from .forward_text import ForwardText
from .source_lines import broken, statement
from .templates import tuple_text


@dataclass(frozen=True)
class InputPart:
    """The part of an input that the operators of a rank read: its layout and, for each divided dimension, the axes
    (major first) and the size of a block.
    """

    layout: Layout
    divided: dict[int, tuple[tuple[int, ...], int]]


def input_parts(plan: Plan) -> dict[str, InputPart]:
    """The inputs, by name, of which no operator reads more than one block along the divided dimensions."""
    found = {}
    kept = {value.name for value in (*plan.model.returned, *(update.value for update in plan.graph.graph.updates))}
    for given in plan.graph.graph.inputs:
        value = given.value
        if value.name in kept or value.unpadded:
            continue
        layout = _one_layout(plan.graph.values[value.name], _read(plan.graph, value.name), invariant(plan.mesh))
        if layout is not None and all(map(_is_block, layout.kinds)):
            divided = _divided(layout, value.shape, plan.mesh)
            if divided:
                found[value.name] = InputPart(layout, divided)
    return found


def _is_block(kind: Kind) -> bool:
    return isinstance(kind, Invariant) or (isinstance(kind, Shard) and kind.by == PARTITION)


def _divided(layout: Layout, shape: tuple[int, ...], mesh: Mesh) -> dict[int, tuple[tuple[int, ...], int]]:
    local = layout.local_shape(shape, mesh)
    cut = [dim for dim in range(len(shape)) if local[dim] != shape[dim]]
    return {dim: (layout.nesting(dim), local[dim]) for dim in cut}


def _read(graph: PlannedGraph, name: str) -> set[Layout]:
    """The layouts in which the steps of a graph read a value."""
    found: set[Layout] = set()
    for step in graph.steps:
        if isinstance(step, PlannedNode):
            reads = list(zip(step.node.arguments, step.typed.arguments, strict=True))
        else:
            reads = list(step.border.reads(step.segment))
            entered = zip(step.segment.initial, step.segment.entry, strict=True)
            if step.segment.predicate is None and step.runs:
                first = step.runs[0].body.values
                reads += [(value, first[entry.name].produced) for value, entry in entered]
        found |= {layout.without_copies for value, layout in reads if value.name == name}
    return found


def _one_layout(planned: PlannedValue, read: set[Layout], whole: Layout) -> Layout | None:
    """The layout that is cut out of the whole tensor, if it is the only one and all that is read is made from it; else
    None.
    """
    sources: dict[Layout, Layout] = {}
    for made in planned.materialised:  # layouts that differ in copies count as one: its first source is kept
        sources.setdefault(made.layout.without_copies, made.source.without_copies)
    produced = planned.produced.without_copies
    first = set()
    for layout in read:
        while layout not in (produced, whole) and sources.get(layout, whole) not in (layout, whole):
            layout = sources[layout]
        first.add(layout)
    return first.pop() if len(first) == 1 else None


def part_entries(plan: Plan, parts: Mapping[str, InputPart]) -> Iterator[str]:
    """The entries of PARTS in model.py."""
    for name, part in parts.items():
        dims = []
        for dim, (axes, size) in part.divided.items():
            names = tuple_text(json.dumps(plan.mesh.axes[axis].name) for axis in axes)
            dims.append(f"{dim}: ({names}, {size})")
        yield from broken(f"{json.dumps(name)}: {{{', '.join(dims)}}},", "    ")


def write_inputs(
    forward: ForwardText, tensors: Iterable[Tensor], variables: Mapping[str, str], sizes: str, parts: Collection[str]
) -> None:
    """Writes the check of every input, and the cut of its part. Every rank may pass the whole batch: an input is one
    logical tensor, from which its planned layout is made. If a rank reads only a part of an input, it may pass that
    part.

    `sizes` is the variable with the sizes of this call, if they may differ.
    """
    for tensor in tensors:
        name = tensor.value.name
        variable, given = variables[name], f", {sizes}" if sizes else ""
        forward.module.lines += statement(f"{variable} = checked({json.dumps(name)}, {variable}{given})")
        if tensor.value.unpadded:
            shape = tuple_text(map(str, tensor.value.shape))
            forward.module.lines += statement(f"{variable} = padded_input({variable}, {shape})")
        if name in parts:
            own = forward.names.fresh(f"{name}_{layout_word(tensor.layout)}")
            words = f"{invariant(forward.program.mesh)} -> {tensor.layout}"
            forward.module.lines += statement(f"{own} = self.own({json.dumps(name)}, {variable})", words)
            variable = own
        forward.add([tensor], [variable])
