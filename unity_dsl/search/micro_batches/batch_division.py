"""Proves that a step over a batch is the sum of steps over its micro-batches.

Micro-batches one after the other are data parallelism along a mesh axis in time. Consider a layout in which the inputs
are slices of the batch along that axis, and weights are copies. Micro-batches are right if no operator of the model
needs a collective in it, and the loss is a term of a sum. Each operator's role along the axis is proved as it is for
devices (`rules/sharding_theorems.py`); its operands must arrive in the kinds that it takes. The model that is planned
is the one at the size of a micro-batch. Its operators are those that one device would have, save for numbers that
depend on the size of the batch, as the divisor of a mean does. `index/axes/term_scales.py` tells how much larger its
loss is for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ...graph.graph import Graph, Model, Node, Segment, Value
from ...graph.layout import PARTITION, Invariant, Kind, Mesh, MeshAxis, Partial, Replicate, Shard
from ...graph.layout_typing import Along, Linearly, Role, Typing
from ...graph.model_graph import build_model
from ...graph.model_parameters import Setting
from ...graph.plan import BatchDivision, OutputPart
from ...graph.typed_configurations import Theorems
from ...index.axes.term_scales import ONE, NoScale, Scale, result_scales
from ...index.library import Library
from ...rules.sharding_theorems import ShardingTheorems
from ...syntax.ast import ModelFile, Name, Storage, StorageDecl
from ...syntax.diagnostic import InputError, fail
from ...syntax.span import Span
from ..choices.restriction import stored_values

WHOLE, SUM = "whole", "sum"
"""Parts of a value: every micro-batch has the same whole value, or each has a term of a sum."""


@dataclass(frozen=True)
class _Held:
    """The part of a value that a micro-batch has: a slice of a dimension (by its number), `WHOLE` or `SUM`. It is
    `scale` times that of the model at the size of the batch.
    """

    part: int | str
    scale: Scale = ONE


def divided_model(
    whole: Model,
    file: ModelFile,
    library: Library,
    settings: Mapping[str, Setting],
    preset: str | None,
    count: int,
) -> tuple[Model, BatchDivision | None]:
    """The model of a file, `whole`, at the size of one of `count` micro-batches, and how they make up a step. Raises
    E316, E317 and as `build_model`.
    """
    if count == 1:
        return whole, None
    parameter = batch_parameter(file, whole)
    size = _size_of_part(file, whole, parameter, count)
    part = build_model(file, library, {**settings, parameter: size}, preset, whole.precision)
    return part, divide_batch(whole, part, parameter, count, library, ShardingTheorems(library))


def batch_parameter(file: ModelFile, model: Model) -> str:
    """The parameter that is the first dimension of every input. Raises E317 where there is none, or several."""
    first: dict[str, Span | None] = {}
    for statement in file.model.body:
        if isinstance(statement, StorageDecl) and statement.storage is Storage.INPUT and statement.type.dims:
            dim = statement.type.dims[0]
            if not isinstance(dim, Name) or dim.name not in model.parameters:
                message = f"the first dimension of input `{statement.name}` is no parameter of the model"
                raise fail("E317", message, statement.span, help=_BATCH_FIRST)
            first.setdefault(dim.name, statement.span)
    if not first:
        raise fail("E317", f"no input of model `{model.name}` has a batch", file.model.span, help=_BATCH_FIRST)
    if len(first) > 1:
        names = " and ".join(f"`{name}`" for name in first)
        message = f"{names} are first dimensions of inputs: which is the batch is not known"
        raise fail("E317", message, list(first.values())[1], help=_BATCH_FIRST)
    return next(iter(first))


_BATCH_FIRST = "a batch is divided where one parameter is the first dimension of every input: `input x: f32[b, d]`"


def _size_of_part(file: ModelFile, model: Model, parameter: str, count: int) -> int:
    """The size of a micro-batch. Raises E317 where `count` does not divide the batch."""
    batch = model.parameters[parameter]
    if not isinstance(batch, int) or batch % count:
        span = next(declared.span for declared in file.model.parameters if declared.name == parameter)
        message = f"{count} micro-batches do not divide the batch, `{parameter} = {batch}`"
        raise fail("E317", message, span, help=f"choose a divisor of {batch}, or another batch: `--set {parameter}=…`")
    return batch // count


def divide_batch(
    whole: Model, part: Model, parameter: str, count: int, library: Library, theorems: Theorems
) -> BatchDivision:
    """How `count` steps of `part`, the model at the size of a micro-batch, make up one step of `whole`.

    Raises E316 at the first operator by which a step over the batch is not the sum of these steps, and E317 without a
    loss.
    """
    walk = _Walk(count, library, theorems)
    values = walk.graph(whole.graph, part.graph, {})
    if whole.loss is None:
        raise fail("E317", f"model `{whole.name}` has no loss: there is nothing to accumulate", whole.span)
    loss = values[whole.loss.name]
    if loss.part != SUM or loss.scale is None:
        raise _mixes("the loss is no sum over the examples of a batch", whole.loss.span)
    outputs = tuple(
        _output(value, values[value.name], count, name)
        for value, name in zip(whole.outputs, whole.output_names, strict=True)
    )
    divided = tuple(given.value.name for given in whole.graph.inputs if values[given.value.name].part == 0)
    return BatchDivision(parameter, whole.parameters, count, divided, _number(loss.scale), outputs)


def _output(value: Value, held: _Held, count: int, name: str) -> OutputPart:
    if isinstance(held.part, int):
        if held.scale not in (None, ONE):
            raise _mixes(f"output `{name}` depends on the size of the batch", value.span)
        return OutputPart(held.part)
    return OutputPart(None, count if held.part == WHOLE else _number(held.scale or ONE))


def _number(scale: Fraction) -> int | float:
    return scale.numerator if scale.denominator == 1 else float(scale)


def _mixes(message: str, span: Span | None, label: str = "") -> InputError:
    help = "micro-batches are for models that treat the examples of a batch apart and add up or average their losses"
    return fail("E316", message, span, label=label, help=help)


class _Walk:
    """Walks the graphs of a model at two batch sizes together, with the micro-batches as a mesh axis."""

    def __init__(self, count: int, library: Library, theorems: Theorems) -> None:
        self.count, self.library, self.theorems = count, library, theorems
        self.mesh = Mesh((MeshAxis("micro_batch", count),))

    def graph(self, whole: Graph, part: Graph, outside: Mapping[str, _Held]) -> dict[str, _Held]:
        held = dict(outside)
        for given, smaller in zip(whole.inputs, part.inputs, strict=True):
            held[given.value.name] = self.source(given.value, smaller.value)
        for kept, same in zip(stored_values(whole), stored_values(part), strict=True):
            if kept.shape != same.shape:
                raise _mixes(f"the shape of `{kept.name}` depends on the size of the batch", kept.span)
            held[kept.name] = _Held(WHOLE)
        if len(whole.steps) != len(part.steps):
            raise _mixes("how many operators the model has depends on the size of the batch", None)
        for step, other in zip(whole.steps, part.steps, strict=True):
            if isinstance(step, Node) and isinstance(other, Node):
                held |= self.node(step, other, held)
            elif isinstance(step, Segment) and isinstance(other, Segment):
                held |= self.segment(step, other, held)
            else:
                raise _mixes("which operators the model has depends on the size of the batch", step.span)
        if whole.updates:
            update = whole.updates[0]
            message = f"buffer `{update.buffer.name}` is updated in every step, and would be for each micro-batch"
            raise _mixes(message, update.span)
        return held

    def source(self, value: Value, smaller: Value) -> _Held:
        if value.shape == smaller.shape:
            return _Held(WHOLE)
        if value.shape != (self.count * smaller.shape[0], *smaller.shape[1:]):
            raise _mixes(f"input `{value.name}` has the batch in more dimensions than the first", value.span)
        return _Held(0)

    # ------------------------------------------------------------------------------------------ operators

    def node(self, node: Node, other: Node, held: Mapping[str, _Held]) -> dict[str, _Held]:
        """The parts of an operator's results that a micro-batch has."""
        given, smaller = node.instance, other.instance
        if (given.operator, node.site) != (smaller.operator, other.site) or given.sizes.keys() != smaller.sizes.keys():
            raise _mixes("which operators the model has depends on the size of the batch", node.span)
        if [value.name for value in node.arguments] != [value.name for value in other.arguments]:
            raise _mixes("what an operator reads depends on the size of the batch", node.span)
        arguments = [held[value.name] for value in node.arguments]
        shorter = [axis for axis, size in given.sizes.items() if smaller.sizes[axis] != size]
        if len(shorter) > 1:
            raise self.refused(node, "it pairs the examples of a batch")
        axis = shorter[0] if shorter else None
        arguments = self.as_terms(node, arguments) if axis is None else arguments
        parts = self.parts(node, arguments, axis, smaller.sizes)
        operands = {o.name: found.scale for o, found in zip(given.inputs, arguments, strict=True)}
        try:
            scales = result_scales(given, smaller, shorter, operands)
        except NoScale as reason:
            raise self.refused(node, str(reason)) from None
        return {
            value.name: _Held(part, scales[output.name])
            for value, output, part in zip(node.results, given.outputs, parts, strict=True)
        }

    def as_terms(self, node: Node, arguments: list[_Held]) -> list[_Held]:
        """The operands as an operator reads them. If it reads sums, an operand that is whole may count as a sum of
        `count` equal terms; every micro-batch then has `count` times its term.
        """
        summed = {number for number, found in enumerate(arguments) if found.part == SUM}
        if not summed:
            return arguments
        for operands in Typing(node.instance, self.mesh, self.library).linear:
            if summed <= set(operands):
                more = [found.scale and found.scale * self.count for found in arguments]
                return [
                    _Held(SUM, more[number]) if number in operands and number not in summed else found
                    for number, found in enumerate(arguments)
                ]
        return arguments

    def parts(
        self, node: Node, arguments: Sequence[_Held], axis: str | None, sizes: Mapping[str, int]
    ) -> list[int | str]:
        """The parts of the results that a micro-batch has, if the operator's role along the axis of micro-batches is
        proved. Raises E316 if it is not.
        """
        summed = tuple(number for number, found in enumerate(arguments) if found.part == SUM)
        if axis is None and not summed:
            return [WHOLE] * len(node.results)
        role: Role = Linearly(summed) if axis is None else Along(axis)
        typing = Typing(node.instance, self.mesh, self.library)
        typed = typing.type((role,))
        if isinstance(typed, str):
            raise self.refused(node, _misfit(node.arguments[summed[0]].name, arguments[summed[0]]) if summed else typed)
        if typed.inner:
            raise self.refused(node, f"it reduces over the examples of a batch, axis `{axis}`, on the way")
        if typed.local_sizes != dict(sizes):
            raise self.refused(node, f"a micro-batch is no {self.count}th of its axis `{axis}`")
        for number, (layout, found) in enumerate(zip(typed.arguments, arguments, strict=True)):
            if not _fits(layout.kinds[0], found, constant=not node.gradients[number]):
                raise self.refused(node, _misfit(node.arguments[number].name, found))
        if not self.theorems.about(node.instance, node.gradients)(role):
            what = "takes terms of a sum" if axis is None else f"may be divided along `{axis}`"
            raise self.refused(node, f"that it {what} is not proved")
        parts = [_part(layout.kinds[0], value) for layout, value in zip(typed.results, node.results, strict=True)]
        for output, part in zip(node.instance.outputs, parts, strict=True):
            if part == WHOLE and not node.instance.extern and axis in typing.equation_of(output.name).over:
                raise self.refused(node, f"it reduces over the examples of a batch, axis `{axis}`")
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            raise self.refused(node, "every micro-batch would add the same to a gradient")
        return known

    def refused(self, node: Node, reason: str) -> InputError:
        return _mixes(f"`{node.instance.name}` does not treat the examples of a batch apart", node.span, reason)

    # ------------------------------------------------------------------------------------------ bodies

    def segment(self, segment: Segment, other: Segment, held: Mapping[str, _Held]) -> dict[str, _Held]:
        """The parts that a micro-batch has of the results of a repeat, scan or cond, whose iterations must carry the
        same kinds.
        """
        if (segment.name, segment.count) != (other.name, other.count):
            raise _mixes(f"how often `{segment.name}` is repeated depends on the size of the batch", segment.span)
        if segment.predicate is not None and held[segment.predicate.name].part != WHOLE:
            raise _mixes(f"whether `{segment.name}` is executed depends on the examples of a batch", segment.span)
        inner = {value.name: held[value.name] for value in segment.captured}
        for initial, entry in zip(segment.initial, segment.entry, strict=True):
            inner[entry.name] = held[initial.name]
        for series in segment.sliced:
            found = held[series.whole.name]
            if found.part == series.dim:
                raise _mixes(f"`{segment.name}` runs over the examples of a batch", segment.span)
            inner[series.part.name] = _without(found, series.dim)
        body = self.graph(segment.body, other.body, inner)
        for entry, left in zip(segment.entry, segment.exit, strict=True):
            if (body[left.name].part, body[left.name].scale) != (inner[entry.name].part, inner[entry.name].scale):
                message = f"iterations of `{segment.name}` leave less or more of `{left.name}` than they were given"
                raise _mixes(message, left.span or segment.span)
        results = {value.name: inner[entry.name] for value, entry in zip(segment.results, segment.entry, strict=True)}
        return results | {series.whole.name: _with(body[series.part.name], series.dim) for series in segment.stacked}


def _fits(wanted: Kind, found: _Held, *, constant: bool) -> bool:
    """Whether an operand is held in the kind that a role along the axis takes. A copy counts as one logical tensor if
    it is constant.
    """
    match found.part:
        case int(dim):
            return isinstance(wanted, Shard) and wanted.dim == dim and wanted.by == PARTITION
        case "sum":
            return isinstance(wanted, Partial)
    return isinstance(wanted, Replicate) or (constant and isinstance(wanted, Invariant))


def _misfit(name: str, found: _Held) -> str:
    if found.part == SUM:
        return f"it is not linear in `{name}`, a sum over the examples of a batch"
    if found.part == WHOLE:
        return f"`{name}` is the same for all examples of a batch, and it takes parts of it"
    return f"`{name}` has the examples of a batch in dimension {found.part}"


def _part(kind: Kind, value: Value) -> int | str | None:
    """The part of a result that a micro-batch has; None where it has the one logical tensor, whose gradient counts
    once.
    """
    match kind:
        case Shard(dim=dim):
            return dim
        case Partial():
            return SUM
        case Replicate():
            return WHOLE
    return WHOLE if value.integer_range is not None or not value.needs_gradient else None


def _without(found: _Held, dim: int) -> _Held:
    """The same once dimension `dim` is removed; slices are along another one."""
    return replace(found, part=found.part - (found.part > dim)) if isinstance(found.part, int) else found


def _with(found: _Held, dim: int) -> _Held:
    """The same once values are stacked along a new dimension `dim`."""
    return replace(found, part=found.part + (found.part >= dim)) if isinstance(found.part, int) else found
