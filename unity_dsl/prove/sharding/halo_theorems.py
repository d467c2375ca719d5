"""Proves that an operator on halos of windowed axes, or on blocks of merged ones, equals the operator on one device.

Windows. The axis has p × e positions; a dimension that is read around it with step s has p × s e. Each device gets the
part of this dimension that the declared op produces, and evaluates the operator's equations over its own e positions of
the axis. A read at global position g becomes a read of the local tensor at g - start(@p), where start is the op's index
at local position 0. Obligations: the local position is in bounds for every read that is in bounds globally, and the
results equal those of the operator. Window widths and the op's attributes are numbers of the instance; p, e and all
other sizes are symbols.

Merged dimensions. For a dimension (h k) divided along k, the op gives each device the slices of the axis k.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product as combinations
from math import prod

from ...graph.declared_slices import free_attributes
from ...graph.halo import merged_attributes, window_attributes
from ...graph.layout import Attributes
from ...index.axes.axis_windows import Reach, Windowed, windowed
from ...index.equations.instance import Instance, Operand
from ...index.instantiation.instantiate import Shape, instantiate_parallel
from ...index.library import Library
from ...syntax.ast import Expr, Number, ParallelDecl, Read
from ...syntax.diagnostic import InputError
from ..answer import Answer, Obligation
from ..decision.integer_arithmetic import Arithmetic
from ..equality.form_equality import Comparison
from ..functions.scalar_functions import Functions
from ..normal_form.form import Form, Unsupported, guarded, substitute
from ..normal_form.guard import Guard, within
from ..normal_form.polynomial import Poly, Quotient, Var, number, of, product
from ..translation.operator_forms import Call, Tensor, input_tensor
from ..translation.symbolic_sizes import Factors, Failed, Sizes, factors_of, shown, valued
from .slice_theorems import DEGREE, LOCAL, Division, OnDevice, answer, modes, symbolic_sizes
from .theorem_subject import Subject, generalise
from .window_subject import axes_beside


def prove_halo(subject: Subject, axis: str, by: str, library: Library) -> Answer:
    """Whether the op `by` gives every device all elements that it reads when the axis is divided, for any degree.

    For dimensions read around the axis, results must equal the operator's. For merged ones, the op's parts must equal
    the slices along the axis.
    """
    axis = subject.axes.get(axis, axis)
    theorem = _windows if axis in windowed(subject.instance, library) else _merged
    return answer(library, lambda functions: theorem(subject, axis, by, library, functions))


# ---------------------------------------------------------------------------------------------- windows


def _windows(subject: Subject, axis: str, by: str, library: Library, functions: Functions) -> tuple[Obligation, ...]:
    window = windowed(subject.instance, library).get(axis)
    if not isinstance(window, Windowed):
        raise Unsupported(window or f"the axis `{axis}`, which nothing is read around")
    return tuple(
        replace(obligation, statement=obligation.statement + mode)
        for mode, one in modes(subject)
        for obligation in _WindowDivision(one, axis, window, library.parallels[by], functions).obligations()
    )


class _WindowDivision(Division):
    """The division of one axis, with windows of the dimensions read around it."""

    def __init__(
        self, subject: Subject, axis: str, window: Windowed, declaration: ParallelDecl, functions: Functions
    ) -> None:
        super().__init__(subject, axis, functions)
        self.window = window
        self.declaration = declaration
        self.starts: dict[tuple[str, int], Poly] = {}

    def sizes(self) -> Sizes:
        instance, given = self.instance, {self.axis: self.axis_factors}
        for name in axes_beside(instance, self.window, self.axis):
            given[name] = factors_of(number(instance.sizes[name]))
        for reach in self.window.reaches:
            (own,) = instance.operand(reach.operand).dims[reach.dim]
            if own != self.axis:
                given[own] = self._around(reach)
        sizes = symbolic_sizes(self.subject, self.arithmetic, given)
        self._inhabited(sizes)
        return sizes

    def _around(self, reach: Reach) -> Factors:
        """The size of a dimension read with a step along the axis, as one factor: positions have a single index."""
        return (product(self.axis_factors).scaled(reach.step),)

    def _inhabited(self, sizes: Sizes) -> None:
        """Checks the operator's conditions at the instance's sizes, with all positions on one device. Raises Failed."""
        named = {**self.instance.sizes, DEGREE: 1, LOCAL: self.instance.sizes[self.axis]}
        for condition in self.arithmetic.conditions:
            symbols = (symbol for symbol in condition.poly.symbols() if not isinstance(symbol, Quotient))
            if not all(isinstance(symbol, str) and symbol in named for symbol in symbols):
                raise Unsupported(f"a condition on {shown(condition.poly)}")
            if not _met(condition, valued(condition.poly, named)):
                raise Failed("inhabited", f"{shown(condition.poly)} {condition.relation} 0 does not hold here")

    def input(self, operand: Operand, sizes: Sizes) -> Tensor:
        reach = self.window.reach(operand.name)
        if reach is None:
            return super().input(operand, sizes)
        if operand.integer_range is not None:
            raise Unsupported("windows of integers")
        dims = [tuple(size for axis in dim for size in sizes.dims[axis]) for dim in operand.dims]
        dims[reach.dim] = self._around(reach)
        return input_tensor(operand.name, {}, dims, None)

    def slice(self, operand: Operand, tensor: Tensor, device: Var) -> Tensor:
        """The window of a dimension read around the axis, as the declared op produces it."""
        reach = self.window.reach(operand.name)
        if reach is None:
            return super().slice(operand, tensor, device)
        attributes = window_attributes(self.declaration, self.instance.sizes[self.axis], reach)
        if attributes is None:
            raise Failed("in_bounds", f"`{self.declaration.name}` holds too little of `{operand.name}`")
        numeric = _instance(self.declaration, self.instance.shape(operand), reach.dim, attributes, 1)
        call = _HaloCall(numeric, tensor, {}, self.functions)
        (made,) = call.run()
        ((own,), *dims) = made.dims
        (local,) = dims[reach.dim]
        position = call.global_position(reach.dim).substitute({own: of(device)})
        start = position.substitute({local: number(0)})
        if position != start + of(local):
            raise Unsupported("windows that are not in one piece")
        self.starts[operand.name, reach.dim] = start
        return replace(made, dims=tuple(dims), value=substitute(made.value, {own: of(device)}))

    def on_device(self, operands: dict[str, Tensor], sizes: Sizes, device: Var) -> OnDevice:
        extents = {(reach.operand, reach.dim): self._around(reach)[0] for reach in self.window.reaches}
        return _OnWindows(self, operands, sizes, device, self.starts, extents)


class _OnWindows(OnDevice):
    """The equations on one device: a read of a window at the global position minus the window's start."""

    def __init__(
        self,
        theorem: Division,
        operands: dict[str, Tensor],
        sizes: Sizes,
        device: Var,
        starts: Mapping[tuple[str, int], Poly],
        extents: Mapping[tuple[str, int], Poly],
    ) -> None:
        super().__init__(theorem, operands, sizes, device)
        self.starts = starts
        self.extents = extents

    def _read(self, read: Read) -> Form:
        """A read with fill 0 relies on the window's own fill.

        One with another fill is guarded by its global position.
        """
        outside = self._outside(read)
        if not outside or not (isinstance(read.fill, Number) and read.fill.value == 0):
            return super()._read(read)
        parts, inside = self._place(read)
        guards = tuple(condition for condition in inside if condition not in outside)
        return guarded(guards, self._at(self.tensors[read.tensor], parts, guards))

    def _outside(self, read: Read) -> list[Guard]:
        places = [(dim, self.extents.get((read.tensor, dim))) for dim in range(len(read.index))]
        return [
            condition
            for dim, extent in places
            if extent is not None
            for condition in within(self._as_integer(read.index[dim]), extent)
        ]

    def _factored(
        self, read: Read, place: int, dim: tuple[Var, ...], index: Expr
    ) -> tuple[tuple[Poly, ...], list[Guard]]:
        extent = self.extents.get((read.tensor, place))
        if extent is None:
            return super()._factored(read, place, dim, index)
        position = self._as_integer(index)
        local, (own,) = position - self.starts[read.tensor, place], dim
        for condition in within(local, own.size):
            if not self.sizes.arithmetic.certain(condition):
                where = f"what a device holds of `{read.tensor}`"
                needed = f"{shown(condition.poly)} {condition.relation} 0"
                raise Failed("in_bounds", f"{where} is read where `{needed}` is not known to hold")
        return (local,), list(within(position, extent))


def _met(condition: Guard, value: int) -> bool:
    return {"==": value == 0, "!=": value != 0, ">=": value >= 0}[condition.relation.value]


# ---------------------------------------------------------------------------------------------- a declared op


class _HaloCall(Call):
    """A declared op applied to a tensor with symbolic sizes. `attributes` are symbolic; all others are numbers."""

    def __init__(self, made: Instance, tensor: Tensor, attributes: Mapping[str, Poly], functions: Functions) -> None:
        (device,) = made.outputs[0].dims[0]
        sizes = Sizes(functions.arithmetic, {device: (of(DEGREE),)})
        sizes.attributes |= {key: number(int(value)) for key, value in made.attributes.items()}
        sizes.attributes |= attributes
        sizes.bind_operands(made, [[tuple(var.size for var in own) for own in tensor.dims]])
        sizes.solve(made.operator)
        super().__init__(made, {made.inputs[0].name: tensor}, sizes, (), functions)

    def global_position(self, dim: int) -> Poly:
        """The global position at which the op reads along a dimension, after `run`."""
        (equation,) = self.instance.equations
        assert isinstance(equation.value, Read)
        return self._as_integer(equation.value.index[dim])


def _instance(
    declaration: ParallelDecl, shape: Sequence[int], dim: int, attributes: Attributes, degree: int
) -> Instance:
    """The instance of an op that divides one dimension, at numbers. Raises Unsupported where there is none."""
    free = free_attributes(declaration)
    given = {a.name: dim for a in declaration.attributes if a.default is None and a.name not in free}
    (name,) = declaration.degrees
    try:
        return instantiate_parallel(declaration, [Shape(tuple(shape))], {name: degree}, {**given, **dict(attributes)})
    except InputError as error:
        raise Unsupported(f"`{declaration.name}`: {error.diagnostic.message}") from None


# ---------------------------------------------------------------------------------------------- merged dimensions

_WITNESS = 2, 5
"""Numbers of devices, and of positions of the axis on each, at which the op's attributes are searched for."""


def _merged(subject: Subject, axis: str, by: str, library: Library, functions: Functions) -> tuple[Obligation, ...]:
    instance = subject.instance
    sizes = symbolic_sizes(subject, functions.arithmetic, {axis: (of(DEGREE), of(LOCAL))})
    met = []
    for operand in (*instance.inputs, *instance.outputs):
        for place, dim in enumerate(operand.dims):
            if axis in dim[1:]:
                if not _holds_slices(instance, operand, place, axis, library.parallels[by], sizes, functions):
                    raise Failed(
                        "same_layout", f"`{by}` is not known to hold slices of `{operand.name}` along `{axis}`"
                    )
                met.append(Obligation("same_layout", f"`{by}` holds the slices of `{operand.name}` along `{axis}`"))
    if not met:
        raise Unsupported(f"the axis `{axis}`, which is merged with no major one")
    return tuple(met)


def _holds_slices(
    instance: Instance,
    operand: Operand,
    place: int,
    axis: str,
    declaration: ParallelDecl,
    sizes: Sizes,
    functions: Functions,
) -> bool:
    """Whether some symbolic values of the op's attributes give each device its slice of the dimension."""
    dim = operand.dims[place]
    before, after = dim[: dim.index(axis)], dim[dim.index(axis) + 1 :]
    degree, local = _WITNESS
    major, minor = (prod(instance.sizes[name] for name in part) for part in (before, after))
    found = merged_attributes(declaration, degree, major, degree * local, minor)
    if found is None:
        return False
    shape = list(instance.shape(operand))
    shape[place] = major * degree * local * minor
    numeric = _instance(declaration, shape, place, found, degree)
    made = generalise(numeric, [axis for own in (*numeric.inputs, *numeric.outputs) for axis in own.axes])
    block = product([of(LOCAL), *(size for name in after for size in sizes.dims[name])])
    guesses = [[(name, guess) for guess in _guesses(name, value, made, local * minor, block)] for name, value in found]
    dims = [tuple(size for name in own for size in sizes.dims[name]) for own in operand.dims]
    tensor = input_tensor(operand.name, {}, dims, None)
    own = tensor.dims[place][sum(len(sizes.dims[name]) for name in before)]
    for choice in combinations(*guesses):
        try:
            call = _HaloCall(made.instance, tensor, dict(choice), functions)
            (result,) = call.run()
        except (Failed, Unsupported):
            continue
        if _is_slice(result, tensor, own, sizes.arithmetic):
            return True
    return False


def _guesses(name: str, value: int, made: Subject, local: int, block: Poly) -> Iterator[Poly]:
    """Candidate symbolic values for a number found at the witness."""
    if name in made.integers and value == local:
        yield block
    yield number(value)


def _is_slice(result: Tensor, tensor: Tensor, own: Var, arithmetic: Arithmetic) -> bool:
    """Whether a result is the slice of a tensor at index `own`, as its first dimension."""
    ((device,), *dims) = result.dims
    others = [var for dim in tensor.dims for var in dim if var != own]
    sliced = [var for dim in dims for var in dim]
    if [var.size for var in sliced] != [var.size for var in others]:
        return False
    renaming = {device: of(own), **{old: of(new) for old, new in zip(sliced, others, strict=True)}}
    return Comparison(arithmetic).equal(tensor.value, substitute(result.value, renaming))
