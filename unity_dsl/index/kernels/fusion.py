"""Fuses several operators, each reading the results of those before it, into one instance."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ...syntax.ast import Expr, Name, Number, OperatorDecl, Read, Size
from ..equations.instance import Dim, Equation, Instance, Operand
from ..equations.rewriting import simplify
from ..equations.term import fresh, rewrite, substitute


@dataclass(frozen=True)
class Applied:
    """An operator with the names of the values that it reads and makes."""

    instance: Instance
    arguments: tuple[str, ...]
    results: tuple[str, ...]


@dataclass(frozen=True)
class Fusion:
    """Operators fused into one instance. `reads` and `makes` are the values of its inputs and outputs, in order.

    `axes` maps the axes of each operator to their names in the instance.
    """

    instance: Instance
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    axes: tuple[Mapping[str, str], ...]


def fuse(parts: Sequence[Applied], wanted: Collection[str]) -> Fusion | None:
    """The operators as one, with the `wanted` results as outputs; None for an extern operator.

    None also if an operator reads a dimension of another's result over axes other than those of the result.
    """
    fused = _Fused()
    for part in parts:
        part = replace(part, instance=_without_single_groups(part.instance))
        if part.instance.extern or not fused.add(part):
            return None
    makes = tuple(name for part in parts for name in part.results if name in wanted)
    name = "_".join(dict.fromkeys(part.instance.name for part in parts))
    instance = Instance(
        OperatorDecl(name, (), (), (), (), ()),
        tuple(fused.inputs.values()),
        tuple(fused.made[made] for made in makes),
        fused.sizes,
        {},
        tuple(fused.equations),
        native=False,
    )
    return Fusion(instance, tuple(fused.inputs), makes, tuple(fused.axes))


def _without_single_groups(instance: Instance) -> Instance:
    """The operator without axes of length 1 that are part of a merged dimension.

    A convolution with a single group of channels then has one axis per dimension.
    """
    dims = [dim for operand in (*instance.inputs, *instance.outputs) for dim in operand.dims]
    single = {axis for dim in dims if len(dim) > 1 for axis in dim if instance.sizes[axis] == 1}
    single -= {dim[-1] for dim in dims if dim and {*dim} <= single}  # every dimension keeps an axis
    if not single or instance.extern:
        return instance
    zeros: dict[str, Expr] = {axis: Number(0) for axis in single}

    def at_first(node: Expr) -> Expr:
        return Number(1) if isinstance(node, Size) and node.name in single else node

    def shorter(operand: Operand) -> Operand:
        return replace(operand, dims=tuple(tuple(axis for axis in dim if axis not in single) for dim in operand.dims))

    equations = tuple(
        replace(
            equation,
            target=shorter(equation.target),
            value=simplify(rewrite(substitute(equation.value, zeros), at_first)),
            over=tuple(axis for axis in equation.over if axis not in single),
        )
        for equation in instance.equations
    )
    inputs, outputs = tuple(map(shorter, instance.inputs)), tuple(map(shorter, instance.outputs))
    sizes = {axis: size for axis, size in instance.sizes.items() if axis not in single}
    return replace(instance, inputs=inputs, outputs=outputs, sizes=sizes, equations=equations)


class _Fused:
    """Operators under fusion: every tensor and every axis has a unique name.

    Names come from the declarations, so that the same operators at the same sizes give equal instances anywhere.
    """

    def __init__(self) -> None:
        self.inputs: dict[str, Operand] = {}
        self.made: dict[str, Operand] = {}
        self.sizes: dict[str, int] = {}
        self.equations: list[Equation] = []
        self.axes: list[dict[str, str]] = []
        self.names: set[str] = set()

    def add(self, part: Applied) -> bool:
        instance = part.instance
        axes = self.unified(part)
        if axes is None:
            return False
        for axis in instance.sizes:
            if axis not in axes:
                axes[axis] = self.axis(axis, instance.sizes[axis], set(axes.values()))
        self.sizes |= {axes[axis]: size for axis, size in instance.sizes.items()}
        self.axes.append(axes)
        tensors: dict[str, str] = {}
        for operand, value in zip(instance.inputs, part.arguments, strict=True):
            known = self.made.get(value) or self.inputs.get(value)
            if known is None:
                name = self.name(operand.name)
                known = self.inputs[value] = Operand(name, _renamed(operand.dims, axes), operand.integer_range)
            tensors[operand.name] = known.name
        values = {output.name: value for output, value in zip(instance.outputs, part.results, strict=True)}
        for equation in instance.equations:
            target = equation.target
            result, name = values.get(target.name), self.name(target.name)
            made = Operand(name, _renamed(target.dims, axes), target.integer_range)
            over = tuple(axes[axis] for axis in equation.over)
            self.equations.append(
                replace(equation, target=made, value=_rewritten(equation.value, axes, tensors), over=over)
            )
            tensors[target.name] = made.name
            if result is not None:
                self.made[result] = made
        return True

    def unified(self, part: Applied) -> dict[str, str] | None:
        """The axes of operands as axes of the values that they read; None if two axes would become one, or one two."""
        axes: dict[str, str] = {}
        for operand, value in zip(part.instance.inputs, part.arguments, strict=True):
            known = self.made.get(value) or self.inputs.get(value)
            if known is None:
                continue
            if value in self.made and operand.integer_range != known.integer_range:
                return None
            for own, other in zip(operand.dims, known.dims, strict=True):
                if len(own) != len(other):
                    return None
                for axis, name in zip(own, other, strict=True):
                    if axes.setdefault(axis, name) != name or self.sizes[name] != part.instance.sizes[axis]:
                        return None
        return axes if len(set(axes.values())) == len(axes) else None

    def axis(self, wanted: str, size: int, taken: set[str]) -> str:
        """A name for an axis: its own, unless an axis of another length or of the same operator has it."""
        name = wanted
        while name in taken or self.sizes.get(name, size) != size:
            name = fresh(wanted, {*taken, *self.sizes})
        return name

    def name(self, wanted: str) -> str:
        name = fresh(wanted, self.names)
        self.names.add(name)
        return name


def _renamed(dims: tuple[Dim, ...], axes: Mapping[str, str]) -> tuple[Dim, ...]:
    return tuple(tuple(axes[axis] for axis in dim) for dim in dims)


def _rewritten(value: Expr, axes: Mapping[str, str], tensors: Mapping[str, str]) -> Expr:
    """The value with other names. Equations contain no reductions, so every name belongs to the operator."""

    def change(node: Expr) -> Expr:
        match node:
            case Name(name=name) if name in axes:
                return replace(node, name=axes[name])
            case Size(name=name) if name in axes:
                return replace(node, name=axes[name])
            case Read(tensor=tensor):
                return replace(node, tensor=tensors[tensor])
        return node

    return rewrite(value, change)
