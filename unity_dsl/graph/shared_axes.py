"""Which axes of a model's operators and tensors are the same axis, from the tensor that has it first to all readers.

Two axes are the same if an operator reads or makes the dimension of a tensor along both. If one side has a merged
dimension, `(h k)`, and the other a single axis, that axis has two parts. The classes are found by union-find.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from ..index.equations.instance import Equation, Instance
from ..index.equations.term import dim_axes, free_axes, reads
from ..syntax.ast import Apply, Expr, Name
from .graph import Buffer, Graph, Input, Model, Node, Segment, Value, Weight


@dataclass(eq=False)
class Axis:
    """An axis in the union-find. `same` is the axis that it was united with, `parts` are its parts, major first.
    `fixed` says in words why its size must not change.
    """

    size: int
    same: Axis | None = None
    parts: tuple[Axis, ...] = ()
    fixed: str = ""

    @property
    def leaves(self) -> tuple[Axis, ...]:
        """The axes that it consists of, major first; none for a size of 1."""
        if self.same is not None:
            return self.same.leaves
        if self.parts:
            return tuple(leaf for part in self.parts for leaf in part.leaves)
        return (self,) if self.size > 1 else ()


Dims = list[tuple[Axis, ...]]
"""The axes of each dimension of a tensor."""


@dataclass
class SharedAxes:
    """The axes of every operator, by its path and the operator's names for them, and of every tensor, by its path.

    `stored` are the paths of inputs, weights and buffers.
    """

    operators: dict[str, dict[str, Axis]] = field(default_factory=dict)
    tensors: dict[str, Dims] = field(default_factory=dict)
    stored: list[str] = field(default_factory=list)

    def at(self, place: str) -> tuple[Axis, ...]:
        """The axes of a dimension that is written `wte:0`."""
        path, _, dim = place.rpartition(":")
        return self.of_dimension(path, int(dim))

    def of_dimension(self, path: str, dim: int) -> tuple[Axis, ...]:
        return tuple(leaf for axis in self.tensors[path][dim] for leaf in axis.leaves)


def shared_axes(model: Model) -> SharedAxes:
    """The classes of axes of a model. A repeat's body counts once: all its iterations have the same sizes."""
    found = SharedAxes()
    known = _Walk(found).graph(model.graph, "", {})
    for path, own in found.operators.items():
        for axis in own.values():
            _fix_behind(axis.leaves, f"`{path}` has it behind another one")
    whole = {path: found.tensors[path] for path in found.stored}
    for name, dims in (whole | {value.name: known[value.name] for value in model.returned}).items():
        for axes in dims:
            _fix_behind([leaf for axis in axes for leaf in axis.leaves], f"`{name}` has it behind another one")
    return found


class _Walk:
    def __init__(self, found: SharedAxes) -> None:
        self.found = found

    def graph(self, graph: Graph, prefix: str, outside: Mapping[str, Dims]) -> dict[str, Dims]:
        known = dict(outside)
        stored: tuple[Input | Weight | Buffer, ...] = (*graph.inputs, *graph.weights, *graph.buffers)
        for given in stored:
            known[given.value.name] = self.tensor(given.value, prefix)
            self.found.stored.append(prefix + given.value.name)
        for step in graph.steps:
            if isinstance(step, Node):
                self.node(step, prefix, known)
            else:
                self.segment(step, prefix, known)
        for update in graph.updates:
            _unite_all(known[update.buffer.name], known[update.value.name])
        return known

    def tensor(self, value: Value, prefix: str) -> Dims:
        dims: Dims = [(Axis(size),) for size in value.shape]
        self.found.tensors[prefix + value.name] = dims
        return dims

    def segment(self, segment: Segment, prefix: str, known: dict[str, Dims]) -> None:
        inside = f"{prefix}{segment.name}."
        entered = {value.name: known[value.name] for value in segment.captured}
        for given, entry in zip(segment.initial, segment.entry, strict=True):
            entered[entry.name] = self.found.tensors[inside + entry.name] = known[given.name]
        for series in segment.sliced:
            whole = known[series.whole.name]
            _fix(whole[series.dim], f"a scan goes over it in `{segment.name}`")
            entered[series.part.name] = self.found.tensors[inside + series.part.name] = _without(whole, series.dim)
        body = self.graph(segment.body, inside, entered)
        for left, entry, result in zip(segment.exit, segment.entry, segment.results, strict=True):
            _unite_all(body[left.name], entered[entry.name])
            known[result.name] = self.found.tensors[prefix + result.name] = body[left.name]
        for series in segment.stacked:
            made = self.tensor(series.whole, prefix)
            _fix(made[series.dim], f"a scan goes over it in `{segment.name}`")
            _unite_all(_without(made, series.dim), body[series.part.name])
            known[series.whole.name] = made

    def node(self, node: Node, prefix: str, known: dict[str, Dims]) -> None:
        instance = node.instance
        axes = {name: Axis(size) for name, size in instance.sizes.items()}
        self.found.operators[prefix + node.name] = axes
        for value, operand in zip(node.arguments, instance.inputs, strict=True):
            _unite_all(known[value.name], [tuple(axes[name] for name in dim) for dim in operand.dims])
        for value, operand in zip(node.results, instance.outputs, strict=True):
            made: Dims = [tuple(axes[name] for name in dim) for dim in operand.dims]
            known[value.name] = self.found.tensors[prefix + value.name] = made
        for equation in (*instance.equations, *instance.evaluation):
            _positions(equation, instance, axes)
        for name in set(axes) - set(instance.declared) if instance.extern else ():
            _fix([axes[name]], f"`{instance.name}` is defined for the whole of it")
        for name in _in_conditions(instance):
            _fix([axes[name]], f"a condition of `{instance.name}` gives its size")


def _positions(equation: Equation, instance: Instance, axes: Mapping[str, Axis]) -> None:
    """Unites axes that are read at the same positions. Axes read at other positions than their own keep their size."""
    for read in reads(equation.value):
        for index, dim in zip(read.index, instance.operand(read.tensor).dims, strict=True):
            found = dim_axes(index, instance.sizes)
            if found is not None and _extent(found, instance) == _extent(dim, instance):
                _unite([axes[name] for name in found], [axes[name] for name in dim])
                continue
            moved = [axes[name] for name in (*free_axes(index), *dim) if name in axes]
            _fix(moved, f"`{instance.name}` reads other positions than its own along it")


def _extent(names: Iterable[str], instance: Instance) -> int:
    return prod(instance.sizes[name] for name in names)


def _in_conditions(instance: Instance) -> list[str]:
    """The axes whose size a condition of the declaration determines."""
    return [name for condition in instance.operator.conditions for name in _sizes(condition) if name in instance.sizes]


def _sizes(expr: Expr) -> Iterable[str]:
    match expr:
        case Apply("rank", _):
            return
        case Name(name=name):
            yield name
        case Apply(_, arguments):
            for argument in arguments:
                yield from _sizes(argument)


# ---------------------------------------------------------------------------------------------- union-find


def _without(dims: Dims, dim: int) -> Dims:
    return dims[:dim] + dims[dim + 1 :]


def _fix_behind(leaves: Sequence[Axis], reason: str) -> None:
    """Fixes the sizes of all axes but the first in a dimension: their padding would not lie at its end."""
    _fix(leaves[1:], reason)


def _fix(axes: Iterable[Axis], reason: str) -> None:
    for axis in axes:
        for leaf in axis.leaves:
            leaf.fixed = leaf.fixed or reason


def _unite_all(first: Dims, second: Dims) -> None:
    for one, other in zip(first, second, strict=True):
        _unite(one, other)


def _unite(first: Sequence[Axis], second: Sequence[Axis]) -> None:
    """Unites two factorisations of a dimension, part by part from the minor end, where the larger part is split."""
    one = [leaf for axis in first for leaf in axis.leaves]
    other = [leaf for axis in second for leaf in axis.leaves]
    while one and other:
        a, b = one.pop(), other.pop()
        if a is b:
            continue
        if a.size == b.size:
            b.same, a.fixed = a, a.fixed or b.fixed
        elif max(a.size, b.size) % min(a.size, b.size) == 0:
            large, small, rest = (a, b, one) if a.size > b.size else (b, a, other)
            major = Axis(large.size // small.size, fixed=large.fixed)
            small.fixed = small.fixed or large.fixed
            large.parts = (major, small)
            rest.append(major)
        else:
            _fix((a, b, *one, *other), "it is regrouped with others that have no part in common")
            return
    _fix((*one, *other), "dimensions of other sizes are taken for it")
