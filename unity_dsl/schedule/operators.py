"""Operators of a function in order: alone, in one kernel, in a shared call, or only on some devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..graph.layout import Placement
from ..graph.placed_order import read_there
from ..graph.plan import PlannedNode
from ..graph.precision import emitted_arithmetic, operand_types
from .ir import (
    Begin,
    Compute,
    Fused,
    Group,
    Placed,
    Tensor,
)
from .values import Values, new_tensors


def add_operators(function: Values, steps: Sequence[PlannedNode]) -> None:
    groups = function.building.groups
    grouped = list(steps if groups is None else groups(steps, function.planned, function.leaving, function.detached))
    function.alone |= {step.node.name for step in grouped if isinstance(step, PlannedNode)}
    for step in grouped:
        _operator(function, step) if isinstance(step, PlannedNode) else _fused(function, step)


def _fused(function: Values, group: Group) -> None:
    dtype = group.dtype
    reads = [function.tensor(value, layout, None if value.dtype == "int" else dtype) for value, layout in group.reads]
    function.arrive(reads, yields=True)
    makes = new_tensors(*zip(*group.makes, strict=True))
    function.instructions.append(Fused(group, tuple(reads), makes))
    for tensor in makes:
        function.add(tensor)


def _operator(function: Values, step: PlannedNode) -> None:
    node, name, library = step.node, step.node.results[0].name, function.building.library
    dtype = emitted_arithmetic(node, step.native, library)
    if _shares_call(function, step):
        return
    wanted = zip(node.arguments, step.typed.arguments, operand_types(node, dtype), strict=True)
    reads = tuple(function.tensor(*read) for read in wanted)
    function.arrive(reads, yields=True)
    compute = Compute(
        step, reads, new_tensors(step.node.results, step.typed.results), deferred=function.deferred.get(node.name)
    )
    if not function.detached and node.name in function.alone:
        compute = _chunked(function, compute)
    function.instructions.append(compute)
    for tensor in compute.makes:
        function.add(tensor)
    if compute.sent and compute.chunked is not None:
        function.departed[name, compute.chunked.layout] = compute


def _chunked(function: Values, compute: Compute) -> Compute:
    """An operator as it runs in blocks; unchanged if it does not."""
    step = compute.step
    if (reading := function.chunks.reading(step)) is not None:
        begun = function.departed.pop((reading.value.name, reading.layout), None)
        if isinstance(begun, Begin):
            return replace(compute, chunked=reading, arrives=begun)
    if (leaving := function.chunks.leaving.get(step.node.name)) is None:
        return compute
    sends = function.conversion(leaving.value, step.typed.results[0], leaving.layout)
    return replace(compute, chunked=leaving, sends=sends)


def _shares_call(function: Values, step: PlannedNode) -> bool:
    """Whether an operator shares a call with others: with the last concatenation, or with the first slice."""
    node, name, shared = step.node, step.node.results[0].name, function.building.shared(function.planned)
    if function.building.groups is not None:
        return False
    if name in function.slices:
        made = function.slices.pop(name)
        source = function.tensor(node.arguments[0], step.typed.arguments[0])
        function.instructions.append(Compute(step, (source,), (made,), sliced=True))
        function.add(made)
        return True
    if (dim := shared.joined_along(step)) is not None:
        parts: list[Tensor] = []
        reads: list[Tensor] = []
        for value, layout in zip(node.arguments, step.typed.arguments, strict=True):
            joined = function.joined.pop(value.name, ())
            reads.append(function.held[value.name].tensors[layout] if joined else function.tensor(value, layout))
            parts += joined or reads[-1:]
        makes, later = (
            new_tensors(step.node.results, step.typed.results),
            name not in function.leaving and shared.joined_later(step),
        )
        if not later:
            function.arrive(parts, yields=True)
        longer = not later and len(parts) > len(reads)
        compute = Compute(step, tuple(reads), makes, joined=later, parts=tuple(parts) if longer else (), along=dim)
        if later or longer:
            function.instructions.append(compute)
            function.add(makes[0])
        if later:
            function.joined[name] = tuple(parts)
        return later or longer
    if (found := shared.slices(step)) is None:
        return False
    dim, slices = found
    source = function.tensor(node.arguments[0], step.typed.arguments[0])
    function.arrive([source], yields=True)
    made_of = [(other, new_tensors(other.node.results, other.typed.results)[0]) for other in slices]
    function.slices = {other.node.results[0].name: made for other, made in made_of}
    own = function.slices.pop(name)
    function.instructions.append(Compute(step, (source,), (own,), slices=tuple(made_of), along=dim))
    function.add(own)
    return True


def add_placed(function: Values, steps: Sequence[PlannedNode], placement: Placement) -> None:
    """Adds operators that only the devices of a placement run. All devices make the operands that come from outside."""
    made = [value.name for step in steps for value in step.node.results]
    reads = read_there(steps, placement, lambda value: function.held[value.name].produced, function.building.library)
    given = tuple(dict.fromkeys(function.tensor(*read) for read in reads))
    around = [held for held in function.held.values() if held.produced.placement == placement]
    known = [(held, dict(held.tensors), dict(held.casts)) for held in around]
    before, function.instructions = function.instructions, []
    for step in steps:
        _operator(function, step)
    body, function.instructions = tuple(function.instructions), before
    for held, tensors, casts in known:  # conversions made there exist only there
        held.tensors, held.casts = tensors, casts
    within = {step.node.name for step in steps}
    others = [step for step in function.planned.graph.steps if step.name not in within]
    later = function.leaving.union(value.name for step in others for value in step.reads)
    for name in made:
        function.held[name].casts.clear()
    makes = tuple(tensor for name in made if name in later for tensor in function.held[name].tensors.values())
    function.instructions.append(Placed(placement, tuple(steps), given, body, makes))
