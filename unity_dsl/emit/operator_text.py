"""Torch text of one operator on local tensors: its native call, or its equations one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Protocol

from ..graph.halo import HaloWindow
from ..graph.layout import PARTITION, Mesh
from ..graph.layout_typing import InnerReduce, InnerReplicate, TypedOperator, type_operator
from ..graph.local_native_call import local_call
from ..index.axes.axis_classes import gradient_free
from ..index.equations.instance import Equation, Instance, Operand
from ..index.evaluation.native_calls import TRAINING, asks_for_training
from ..index.evaluation.torch_calls import native_size
from ..index.library import Library
from ..syntax.ast import NativeCall, NativeSteps, ReductionKind, Ties
from ..syntax.rational import Rational
from .index_space import Space, native_text
from .program_names import Names
from .read_text import read_piece
from .reduction_text import Sum, reduced
from .slice_text import Cut, global_positions
from .torch_expression import INTEGER, Piece, Sort, align, merge, number, permute


class Collectives(Protocol):
    """Names of what the operator needs of parallel.py; asking for one has it written there."""

    def replicate(self, axes: tuple[int, ...]) -> str:
        """Invariant to Replicate: free forwards, an all-reduce backwards."""

    def reduce(self, axes: tuple[int, ...]) -> str:
        """Partial to Invariant: an all-reduce forwards, free backwards."""

    def reduce_over(self, kind: ReductionKind, free: bool) -> str:
        """A reduction that is no sum, over local dimensions and a group; `free` of gradient or not."""

    def group(self, axes: tuple[int, ...]) -> str:
        """The attribute of the groups' object that spans these mesh axes, major first."""


@dataclass
class Place:
    """Where in the program an operator's text stands.

    `state` is what holds groups, seed, step, dtype and device (`self` or `model`), `site` the text of the random site.
    `random` records that `uniform` is called.
    """

    names: Names
    mesh: Mesh
    library: Library
    collectives: Collectives
    state: str
    site: str = "0"
    random: bool = False


def operator_text(
    instance: Instance, typed: TypedOperator, arguments: Sequence[str], results: Sequence[str], place: Place
) -> list[str]:
    """Statements that bind `results` to the operator's outputs on this device, `arguments` being its local inputs."""
    native = instance.operator.torch
    if (found := local_call(instance, typed, place.library)) is not None:
        assert native is not None
        training, held = [], arguments
        if found.outside:
            windows = _Equations(instance, typed, arguments, results, place)
            training, held = windows.text, windows.filled(found.outside)
        training += _native(native, instance, typed, found.attributes, held, results, place)
        if asks_for_training(native):
            return training
    elif instance.extern:
        raise ValueError(f"{instance.name} is its native call, which does not stand for it here")
    else:
        training = _Equations(instance, typed, arguments, results, place).lines(instance.equations)
    if not instance.evaluation:
        return training
    evaluated = replace(instance, equations=instance.evaluation, evaluation=())
    evaluation = _Equations(evaluated, _typed_again(evaluated, typed, place), arguments, results, place)
    return [
        f"if {place.state}.training:",
        *(f"    {line}" for line in training),
        "else:",
        *(f"    {line}" for line in evaluation.lines(evaluated.equations)),
    ]


def _native(
    native: NativeCall | NativeSteps,
    instance: Instance,
    typed: TypedOperator,
    attributes: Mapping[str, Rational],
    arguments: Sequence[str],
    results: Sequence[str],
    place: Place,
) -> list[str]:
    """The declaration's own calls."""
    named = {TRAINING: f"{place.state}.training"} if instance.evaluation else {}
    named |= {name: number(value).code for name, value in attributes.items()}
    named |= {operand.name: text for operand, text in zip(instance.inputs, arguments, strict=True)}

    def text(call: NativeCall) -> str:
        return native_text(call, named, lambda size: native_size(instance, size, typed.local_sizes))

    if isinstance(native, NativeCall):
        return [f"{', '.join(results)} = {text(native)}"]
    made = {output.name: name for output, name in zip(instance.outputs, results, strict=True)}
    lines = []
    for name, call in native.steps:
        variable = made.get(name) or place.names.fresh(f"{results[0]}_{name}")
        lines.append(f"{variable} = {text(call)}")
        named[name] = variable
    return lines


def _typed_again(instance: Instance, typed: TypedOperator, place: Place) -> TypedOperator:
    """The operator outside training under the same configuration; its results must be laid out as in training."""
    found = type_operator(instance, typed.configuration, place.mesh, place.library)
    if isinstance(found, str):
        raise ValueError(f"{instance.name} outside training: {found}")
    if found.results != typed.results or found.arguments != typed.arguments:
        raise ValueError(f"{instance.name} outside training has other layouts than in training")
    return replace(found, native=False)


class _Equations:
    """The equations of one operator as statements, in order."""

    def __init__(
        self,
        instance: Instance,
        typed: TypedOperator,
        arguments: Sequence[str],
        results: Sequence[str],
        place: Place,
    ) -> None:
        self.instance = instance
        self.typed = typed
        self.place = place
        self.text: list[str] = []
        self.results = dict(zip((output.name for output in instance.outputs), results, strict=True))
        self.stem = results[0]
        self.free = gradient_free(instance)
        self.positions: dict[tuple[str, bool], Piece] = {}
        self.replicated: dict[tuple[str, tuple[int, ...]], str] = {}
        floats = [t for o, t in zip(instance.inputs, arguments, strict=True) if o.integer_range is None]
        state = place.state
        self.whole = instance.whole
        real = f"{floats[0]}.dtype" if floats else f"{state}.dtype"
        self.space = Space(
            instance.sizes,
            typed.local_sizes,
            place.library,
            dtype=INTEGER if self.whole else real,
            compared=real,
            device=f"{arguments[0]}.device" if arguments else f"{state}.device",
            keep=self.keep,
            position=lambda axis: self.position(axis, held=False),
            offset=lambda axis: self.position(axis, held=True),
            start=self.start,
            random=self.random,
            read=read_piece,
            whole=self.whole,
        )
        self.space.windows = {(window.operand, window.dim): window for window in typed.windows}
        for operand, text in zip(instance.inputs, arguments, strict=True):
            self.space.variables[operand.name] = text, operand

    def filled(self, outside: Sequence[tuple[HaloWindow, Rational]]) -> list[str]:
        """The operands, windows holding these numbers outside of their dimension, where an op leaves 0."""
        found = {operand.name: self.space.variables[operand.name][0] for operand in self.instance.inputs}
        for window, value in outside:
            operand = self.instance.operand(window.operand)
            extent = self.instance.shape(operand)[window.dim]
            step = extent // self.instance.sizes[window.axis]
            shift = f" {'-' if window.start < 0 else '+'} {abs(window.start)}" if window.start else ""
            begins = f"{self.start(window.axis, step)}{shift}"
            positions = f"torch.arange({window.length}, device={self.space.device}) + {begins}"
            place = self.keep(operand.dims[window.dim][0], positions)
            missing = ", None" * (len(operand.dims) - window.dim - 1)
            mask = f"({place} < 0) | ({place} >= {extent})"
            mask = f"({mask})[:{missing}]" if missing else mask
            text = f"{found[window.operand]}.masked_fill({mask}, {number(value).code})"
            found[window.operand] = self.keep(window.operand, text)
        return [found[operand.name] for operand in self.instance.inputs]

    def lines(self, equations: Sequence[Equation]) -> list[str]:
        for count, equation in enumerate(equations):
            self.equation(count, equation)
        return self.text

    # ------------------------------------------------------------------------------------------ small things

    def keep(self, name: str, code: str) -> str:
        """Bind a text to a variable of its own."""
        variable = self.place.names.fresh(name)
        self.text.append(f"{variable} = {code}")
        return variable

    def position(self, axis: str, *, held: bool) -> Piece:
        """The positions of an axis's local slice: in the slice itself (`held`), or in the whole axis."""
        divided = self.typed.divided.get(axis, ())
        held = held or not divided
        if (axis, held) not in self.positions:
            if held:
                code = f"torch.arange({self.extent(axis)}, device={self.space.device})"
            else:
                inner = self.position(axis, held=True)
                code = global_positions(inner.code, self._cuts(axis), self.place.library)
            self.positions[axis, held] = Piece(self.keep(axis, code), (axis,), Sort.INT)
        return self.positions[axis, held]

    def extent(self, axis: str) -> str:
        """The local size of an axis: that of an operand's dimension where one is the axis alone, else the number."""
        for name, (text, operand) in self.space.variables.items():
            for dim, axes in enumerate(operand.dims):
                if axes == (axis,) and (name, dim) not in self.space.windows:
                    return f"{text}.size({dim})"
        return str(self.typed.local_sizes[axis])

    def _cuts(self, axis: str) -> list[Cut]:
        """How an axis is cut, major first: declared op, degree, extent that it cuts, text of this device's index."""
        extent = self.instance.sizes[axis]
        cuts = []
        for mesh_axis in self.typed.divided.get(axis, ()):
            degree = self.place.mesh.axes[mesh_axis].degree
            index = f"{self.place.state}.groups.{self.place.collectives.group((mesh_axis,))}.index"
            cuts.append((self.typed.cuts[mesh_axis], degree, extent, index))
            extent //= degree
        return cuts

    def start(self, axis: str, stride: int) -> str:
        """Where an axis's local slice begins, times `stride`; nothing where the slice is not one block."""
        cuts = self._cuts(axis)
        if any(by != PARTITION for by, _, _, _ in cuts):
            return ""
        return " + ".join(f"{extent // degree * stride} * {index}" for _, degree, extent, index in cuts)

    def random(self, positions: str) -> str:
        self.place.random = True
        state = self.place.state
        return self.keep(f"{self.stem}_draw", f"uniform({positions}, {state}.seed, {state}.step, {self.place.site})")

    # ------------------------------------------------------------------------------------------ one equation

    def equation(self, count: int, equation: Equation) -> None:
        target, space = equation.target, self.space
        space.order = equation.space
        space.bound = {}
        space.detached = target.name in self.free and not self.whole
        outside = dict(space.variables)
        for found in self.typed.inner:
            if isinstance(found, InnerReplicate) and found.equation == count:
                self.replicate(found)
        inner = next((f for f in self.typed.inner if isinstance(f, InnerReduce) and f.equation == count), None)
        variable = self.results.get(target.name) or self.place.names.fresh(f"{self.stem}_{target.name}")
        if equation.kind is ReductionKind.SUM:
            piece = Sum(equation, self.instance, self.typed, space, self._cuts, self.whole).text()
        elif equation.kind is None:
            piece = space.piece(equation.value)
        else:
            piece = self.reduce(equation, inner)
        kept = not self.whole and target.integer_range is None and target.name not in self.results
        if kept and piece.sort in (Sort.INT, Sort.POSITION):
            piece = space.exact(piece)
            space.sorts[target.name] = Sort.POSITION
        shaped = self.shaped(piece, target)
        if inner is not None and inner.kind is ReductionKind.SUM:
            name = self.place.collectives.reduce(inner.axes)
            shaped = f"parallel.{name}({shaped}, {self.place.state}.groups)"
        self.text.append(f"{variable} = {shaped}")
        space.variables = {**outside, target.name: (variable, target)}

    def replicate(self, inner: InnerReplicate) -> None:
        """Read a tensor through its conversion to Replicate, which equations share."""
        name, operand = self.space.variables[inner.operand]
        key = (inner.operand, inner.axes)
        if key not in self.replicated:
            function = self.place.collectives.replicate(inner.axes)
            wanted = name if name.isidentifier() else inner.operand
            self.replicated[key] = self.keep(f"{wanted}_r", f"parallel.{function}({name}, {self.place.state}.groups)")
        self.space.variables[inner.operand] = self.replicated[key], operand

    def shaped(self, piece: Piece, target: Operand) -> str:
        """The text of an equation's value in the target's local shape."""
        local, space = self.typed.local_sizes, self.space
        sizes = [local[axis] for axis in target.axes]
        groups = [[local[axis] for axis in dim] for dim in target.dims]
        shape = list(map(prod, groups))
        if piece.sort is Sort.NUMBER:
            size = "".join(f"{extent}, " for extent in shape)
            return f"torch.full(({size}), {piece.code}, dtype={space.dtype}, device={space.device})"
        keeps = (target.integer_range is not None and not self.whole) or target.name in space.sorts
        piece = piece if keeps else space.float(piece)
        own = [axis for axis in target.axes if axis in piece.axes]
        if len(own) < len(target.axes):
            piece = align(piece, target.axes, leading=True)
            piece = Piece(f"{piece.atom}.expand({', '.join(map(str, sizes))})", target.axes, piece.sort)
        piece = permute(piece, target.axes)
        if any(len(dim) != 1 for dim in target.dims):
            piece = merge(piece, groups)
        return piece.code

    # ------------------------------------------------------------------------------------------ reductions

    def reduce(self, equation: Equation, inner: InnerReduce | None) -> Piece:
        """max, min and prod, over a group as well where the axis is divided."""
        assert equation.kind is not None
        space = self.space
        piece = space.tensor(space.piece(equation.value))
        missing = [axis for axis in equation.over if axis not in piece.axes]
        if missing and equation.kind is ReductionKind.PROD:
            count = prod(self.typed.local_sizes[axis] for axis in missing)
            piece = space.function("torch.pow", [piece, number(count)])
        over = [axis for axis in equation.over if axis in piece.axes]
        if inner is None and equation.ties is Ties.FIRST:
            return _first(piece, equation.kind.value, over) if over else piece
        if inner is None:
            return reduced(piece, equation.kind.value, over) if over else piece
        collectives, kept = self.place.collectives, tuple(axis for axis in piece.axes if axis not in over)
        group = f"{self.place.state}.groups.{collectives.group(inner.axes)}"
        function = collectives.reduce_over(equation.kind, space.detached)
        dims = ", ".join(str(piece.axes.index(axis)) for axis in over)
        return Piece(f"parallel.{function}({piece.code}, ({dims}{',' if len(over) == 1 else ''}), {group})", kept)


def _first(piece: Piece, kind: str, over: Sequence[str]) -> Piece:
    """The extremum over axes, in their order, with the gradient to the first element that has it."""
    kept = tuple(axis for axis in piece.axes if axis not in over)
    piece = permute(piece, (*kept, *over))
    flat = piece.atom if len(over) == 1 else f"{piece.atom}.flatten({-len(over)})"
    return Piece(f"{flat}.{kind}(-1).values", kept, piece.sort)
