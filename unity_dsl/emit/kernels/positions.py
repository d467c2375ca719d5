"""Positions in tensors as Triton text: sums of multiples of variables such as a kernel's row and column."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from ...index.equations.instance import Dim, Instance, Operand
from ...index.equations.term import affine, dim_axes, free_axes, interval
from ...syntax.ast import Expr, Name, Read, Uniform
from ..torch_text import Binding
from .triton_terms import NoKernelError, Piece, Sort


@dataclass(frozen=True)
class Local:
    """The part of an instance on one device: the lengths of its axes, and the arguments that say where divided ones
    begin.
    """

    sizes: Mapping[str, int]
    starts: Mapping[str, str] = field(default_factory=dict)
    divided: frozenset[str] = frozenset()

    def __hash__(self) -> int:
        return hash((frozenset(self.sizes.items()), frozenset(self.starts.items()), self.divided))


@dataclass(frozen=True)
class Positions:
    """Positions as text of variables, each of which numbers the positions along some axes, major first.

    `term` gives the text of a term. `define` defines a variable, named as wanted, for a text of one of the variables;
    the same text gives the same variable. `numbers` collects the arguments that say where divided axes begin.
    """

    instance: Instance
    local: Local
    variables: Mapping[str, Sequence[str]]
    term: Callable[[Expr], Piece]
    define: Callable[[str, str, str], str]
    numbers: dict[str, None]

    def offset(self, read: Read, operand: Operand) -> tuple[str, list[str]]:
        """The text of an element's offset in a contiguous tensor, and comparisons that hold if the element exists."""
        coefficients: dict[str, int] = {}
        others: list[str] = []
        guards: list[str] = []
        constant = 0
        stride = 1
        for index, dim in reversed(list(zip(read.index, operand.dims, strict=True))):
            extent = prod(self.local.sizes[axis] for axis in dim)
            axes = dim_axes(index, self.instance.sizes)
            if axes is not None and (not self.touches(axes) or axes == dim):
                inner = stride
                for axis in reversed(axes):
                    coefficients[axis] = coefficients.get(axis, 0) + inner
                    inner *= self.local.sizes[axis]
                if read.fill is not None and prod(self.local.sizes[axis] for axis in axes) > extent:
                    guards.append(f"({self.index_text(index)} < {extent})")
            else:
                self.whole(index, dim)
                form = affine(index, self.instance.sizes)
                if form is not None:
                    for axis, coefficient in form.coefficients.items():
                        coefficients[axis] = coefficients.get(axis, 0) + coefficient * stride
                    constant += form.constant * stride
                else:
                    piece = self.term(index)
                    others.append(f"{piece.inside(Binding.PRODUCT)} * {stride}" if stride > 1 else piece.code)
                if read.fill is not None:
                    guards += self.guards(index, extent)
            stride *= extent
        parts = [*others]
        if coefficients or not others:
            linear = self.linear(coefficients)
            if linear != "0" or not others:
                parts.insert(0, linear)
        code = " + ".join(parts)
        if constant:
            code = f"{constant}" if code == "0" else f"{code} {'+' if constant > 0 else '-'} {abs(constant)}"
        return code, guards

    def value(self, axis: str) -> Piece:
        """The position along an axis, as a number."""
        code = self.linear({axis: 1})
        if axis in self.local.divided:
            return Piece(f"{self.start(axis)} + {code}", Sort.INT, Binding.SUM)
        return Piece(code, Sort.INT, Binding.ATOM if code.isidentifier() else Binding.PRODUCT)

    def start(self, axis: str) -> str:
        """The argument that says where a divided axis begins on this device. Raises NoKernelError if its slices are not
        consecutive.
        """
        name = self.local.starts.get(axis)
        if name is None:
            raise NoKernelError(f"`{axis}` is divided into slices that are not consecutive")
        self.numbers[name] = None
        return name

    def of_draw(self, expr: Uniform) -> str:
        """The text of a random number's position among those of all devices, in a micro-batch."""
        axes = [index.name for index in expr.index if isinstance(index, Name)]
        if len(axes) < len(expr.index):
            raise NoKernelError("a random number at other positions than its own")
        sizes = self.instance.sizes
        strides = {axis: prod(sizes[other] for other in axes[place + 1 :]) for place, axis in enumerate(axes)}
        starts = [f"{self.start(axis)} * {strides[axis]}" for axis in axes if axis in self.local.divided]
        return " + ".join([*starts, self.linear(strides)])

    def touches(self, axes: Sequence[str]) -> bool:
        return any(axis in self.local.divided for axis in axes)

    def whole(self, index: Expr, dim: Dim) -> None:
        """Raises NoKernelError if an index that is not the dimension's own involves divided axes."""
        if self.touches([*dim, *free_axes(index)]):
            raise NoKernelError("a divided axis is read at other positions than its own")

    def guards(self, index: Expr, extent: int) -> Iterator[str]:
        try:
            low, high = interval(index, self.instance.sizes)
        except ValueError:
            low, high = -1, extent
        text = self.index_text(index)
        if low < 0:
            yield f"({text} >= 0)"
        if high >= extent:
            yield f"({text} < {extent})"

    def index_text(self, index: Expr) -> str:
        form = affine(index, self.instance.sizes)
        if form is None:
            return self.term(index).inside(Binding.SUM)
        code = self.linear(dict(form.coefficients))
        if form.constant:
            code = f"{code} {'+' if form.constant > 0 else '-'} {abs(form.constant)}"
        return code

    def linear(self, coefficients: Mapping[str, int]) -> str:
        """The text of a sum of positions along axes times `coefficients`. Contiguous axes are one number."""
        parts = []
        for variable, axes in self.variables.items():
            place = 0
            while place < len(axes):
                run = self.run(axes, place, coefficients)
                last = axes[run - 1]
                factor = coefficients.get(last, 0)
                if factor and prod(self.local.sizes[axis] for axis in axes[place:run]) > 1:
                    counted = self.counted(variable, axes, place, run)
                    parts.append(counted if factor == 1 else f"{counted} * {factor}")
                place = run
        known = {axis for axes in self.variables.values() for axis in axes}
        unknown = [axis for axis in coefficients if axis not in known]
        if any(self.local.sizes[axis] > 1 for axis in unknown):
            raise NoKernelError(f"`{unknown[0]}` is no axis of the kernel")
        return " + ".join(parts).replace("+ -", "- ") or "0"

    def run(self, axes: Sequence[str], place: int, coefficients: Mapping[str, int]) -> int:
        """The end of the axes from `place` on that are contiguous: each steps over all of the next."""
        end = place + 1
        while end < len(axes):
            step = coefficients.get(axes[end], 0) * self.local.sizes[axes[end]]
            if not step or coefficients.get(axes[end - 1], 0) != step:
                break
            end += 1
        return end

    def counted(self, variable: str, axes: Sequence[str], place: int, end: int) -> str:
        """The position along contiguous axes, as a variable."""
        inner = prod(self.local.sizes[axis] for axis in axes[end:])
        extent = prod(self.local.sizes[axis] for axis in axes[place:end])
        outer = prod(self.local.sizes[axis] for axis in axes[:place])
        if inner == 1 and outer == 1:
            return variable
        code = variable if inner == 1 else f"{variable} // {inner}"
        code = code if outer == 1 else f"{code} % {extent}"
        return self.define("_".join(["at", *axes[place:end]]), code, variable)
