"""Names of a plan's mesh axes after what they do for the operators that multiply by weights.

For one operator, an axis does one of these:

- `data`: it divides the activation along the first of the dimensions that the weight does not have;
- `fsdp`: as `data`, and the weight is stored in slices;
- `sequence`: it divides the activation along the second of two such dimensions;
- `tensor`: it cuts the weight;
- `expert`: it cuts both along an axis of both and of the result, in a model with an extern operator that routes;
- `branch`: the devices of one coordinate compute the operator alone.

Operators that an axis does not divide do not matter to its name, nor do look-ups, gains, biases and positions. An axis
that does several of these is `mixed`; one that divides none of these operators is called `devices`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ..index.cost.work import work
from ..index.equations.instance import Operand
from .layout import Mesh, Shard
from .layout_typing import Along, Uniformly
from .placed_operators import Placed
from .plan import PlannedGraph, PlannedNode, PlannedSegment

CLEAR = 0.9
"""The fraction of the multiplications that an axis divides for which its name must be true."""

_SEVERAL = "several things"
_NAMES = {
    "data": ("data",),
    "fsdp": ("data", "fsdp"),
    "sequence": ("sequence",),
    "tensor": ("tensor",),
    "expert": ("data", "fsdp", "expert"),
    "branch": ("branch",),
}
"""What an axis may do under a name; the first name that fits is taken. An expert axis may divide the batch as well."""
MIXED, DEVICES = "mixed", "devices"
"""The names of axes that do several things, and of those that divide no product."""

Stored = Mapping[str, frozenset[int]]
"""By name, the mesh axes along which a weight is stored in slices; also for values computed from weights alone."""


def named_axes(graph: PlannedGraph, mesh: Mesh) -> Mesh:
    """The mesh with its axes named after what they do.

    Two axes that do the same are called `data_outer` and `data_inner`; more are called `data_0`, `data_1`, …, outermost
    first.
    """
    done = [Counter[str]() for _ in mesh.axes]
    routed = any(node.node.instance.extern for node in graph.nodes())
    for axis, what, count in _uses(graph, {}, routed):
        done[axis][what] += count
    names = list(map(_name, done))
    axes = list(mesh.axes)
    for name in (*_NAMES, MIXED, DEVICES):
        same = [axis for axis, found in enumerate(names) if found == name]
        for number, axis in enumerate(same):
            axes[axis] = replace(axes[axis], name=name + _ending(number, len(same)))
    return Mesh(tuple(axes))


def common_name(axes: Sequence[int], mesh: Mesh) -> str | None:
    """The common name of `axes`: `data` for `data_outer` and `data_inner`. None unless they are all axes that do the
    same, in mesh order.
    """
    stems = [axis.name.rpartition("_")[0] for axis in mesh.axes]
    stem = stems[axes[0]]
    same = [axis for axis, found in enumerate(stems) if found == stem]
    return stem if stem in _NAMES and list(axes) == same else None


def _name(done: Counter[str]) -> str:
    enough = CLEAR * done.total()
    fitting = (name for name, those in _NAMES.items() if sum(done[what] for what in those) >= enough)
    return next(fitting, MIXED) if done else DEVICES


def _ending(number: int, count: int) -> str:
    if count == 1:
        return ""
    return ("_outer", "_inner")[number] if count == 2 else f"_{number}"


def _uses(graph: PlannedGraph, outside: Stored, routed: bool) -> Iterator[tuple[int, str, int]]:
    """What mesh axes, by position, do for operators that multiply by a weight, with the number of their operations."""
    stored = dict(outside)
    for weight in graph.graph.weights:
        stored[weight.value.name] = frozenset(graph.values[weight.value.name].produced.where(Shard))
    for step in graph.steps:
        if isinstance(step, PlannedSegment):
            captured = {value.name: stored[value.name] for value in step.segment.captured if value.name in stored}
            for run in step.runs:
                yield from ((axis, what, n * run.count) for axis, what, n in _uses(run.body, captured, routed))
        elif all(value.name in stored for value in step.node.arguments):
            together = frozenset(axis for value in step.node.arguments for axis in stored[value.name])
            stored |= {value.name: together for value in step.node.results}
        else:
            instance = step.node.instance
            count = int(work(instance).flops)
            yield from ((axis, what, count) for axis, what in _operator(step, stored, routed))


def _operator(step: PlannedNode, stored: Stored, routed: bool) -> Iterator[tuple[int, str]]:
    operands = list(zip(step.node.instance.inputs, step.node.arguments, strict=True))
    others = [operand for operand, value in operands if value.name not in stored]
    if all(operand.integer_range is not None for operand in others):
        return
    made = {axis for output in step.node.instance.outputs for axis in output.axes}
    both = made.intersection(axis for operand in others for axis in operand.axes)
    for weight, value in operands:
        if value.name not in stored or made.issuperset(weight.axes):
            continue
        for axis, role in enumerate(step.typed.configuration):
            if isinstance(role, Placed):
                yield axis, "branch"
            elif not isinstance(role, Along):
                yield from () if isinstance(role, Uniformly) else [(axis, _SEVERAL)]
            elif role.axis in weight.axes:
                yield axis, "expert" if routed and role.axis in both else "tensor"
            else:
                yield axis, _divided(role.axis, weight, others, axis in stored[value.name])


def _divided(axis: str, weight: Operand, others: Sequence[Operand], in_slices: bool) -> str:
    """What a mesh axis does if it divides an operator's axis that the weight does not have."""
    for operand in others:
        free = [dim for dim in operand.dims if not {*dim} & {*weight.axes}]
        if free and axis in free[0]:
            return "fsdp" if in_slices else "data"
        if len(free) == 2 and axis in free[1]:
            return "sequence"
    return _SEVERAL
