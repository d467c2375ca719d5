"""Instantiates a declaration at operand shapes: equations at concrete sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from ...syntax.ast import (
    Apply,
    DeviceName,
    DimDecl,
    Expr,
    Name,
    OperatorDecl,
    ParallelDecl,
    Read,
    Reduce,
    Size,
    Statement,
    TensorDecl,
)
from ...syntax.ast.expressions import LARGEST_INTEGER
from ...syntax.span import Span
from ..equations.instance import Dim, Equation, Instance, Operand
from ..equations.reduction_splitting import ReductionSplitter
from ..equations.term import axis_name, interval, reads, rewrite, walk
from ..equations.where_conditions import Value
from .call_frame import Frame, Site, frame, zip_axes
from .merged_dimensions import merged_dims, unmerge
from .operand_shape import Binding, Shape
from .statement_expansion import Scope, Slot
from .view_call import dims_of, pattern_frame

__all__ = ["Binding", "Shape", "instantiate", "instantiate_parallel", "parallel_operator"]


def instantiate(
    operator: OperatorDecl,
    shapes: Sequence[Shape],
    attributes: Mapping[str, Value],
    *,
    binding: Binding | None = None,
    span: Span | None = None,
) -> Instance:
    """The operator at these shapes. Equal calls give the same instance.

    `binding` has the axes of the call's pattern, and `span` is the place of the call. Raises E120 to E131: shapes,
    attributes, conditions or the pattern do not fit, or a read is out of bounds.
    """
    sizes = tuple((shape.dims, shape.integer_range) for shape in shapes)
    values = tuple((name, type(value), value) for name, value in attributes.items())
    return _instantiated(_Call(id(operator), sizes, values, binding, Site(operator, tuple(shapes), span)))


@dataclass(frozen=True)
class _Call:
    """What an instance depends on: operator, shapes and ranges of operands, attributes, and the axes of a pattern."""

    operator: int
    shapes: tuple[tuple[tuple[int, ...], int | None], ...]
    attributes: tuple[tuple[str, type, Value], ...]
    binding: Binding | None
    site: Site = field(compare=False)


@lru_cache(maxsize=16384)
def _instantiated(call: _Call) -> Instance:
    site, binding = call.site, call.binding
    attributes = {name: value for name, _, value in call.attributes}
    if binding is None:
        site = unmerge(site, attributes)
        return _build(site, frame(site, attributes, {}), None)
    if len(site.shapes) != len(site.operator.inputs):
        raise site.fault("E120", f"takes {len(site.operator.inputs)} tensors, {len(site.shapes)} given")
    return _build(site, pattern_frame(site, attributes, binding), binding)


def instantiate_parallel(
    parallel: ParallelDecl,
    shapes: Sequence[Shape],
    degrees: Mapping[str, int],
    attributes: Mapping[str, Value],
    *,
    span: Span | None = None,
) -> Instance:
    """A parallel op as an instance. Device axes become ordinary axes, named `@p`, leading where they are declared.

    Shapes include device dimensions: `combine` of 2 slices of [3, 4] takes the shape [2, 3, 4]. `degrees` are by name,
    `p`. Raises as `instantiate`, and E125 for a missing degree.
    """
    operator = parallel_operator(parallel)
    site = Site(operator, tuple(shapes), span)
    for name in parallel.degrees:
        if name not in degrees:
            raise site.fault("E125", f"its degree `{name}` is missing")
    return _build(site, frame(site, attributes, {f"@{name}": degrees[name] for name in parallel.degrees}), None)


def parallel_operator(parallel: ParallelDecl) -> OperatorDecl:
    """The parallel op as an operator over all devices: `@p` becomes an ordinary axis named `@p`.

    Its degree, `|p|` in terms and `p` in conditions, becomes the size of this axis.
    """

    def plain(node: Expr) -> Expr:
        match node:
            case DeviceName():
                return Name(axis_name(node), span=node.span)
            case Size(name) if name in parallel.degrees:
                return Size(f"@{name}", span=node.span)
            case Reduce(_, axes, _):
                return replace(node, axes=tuple(Name(axis_name(axis), _rest(axis), span=axis.span) for axis in axes))
            case _:
                return node

    def dim(decl: DimDecl) -> DimDecl:
        return replace(decl, name=f"@{decl.name}") if decl.device else decl

    def tensor(decl: TensorDecl) -> TensorDecl:
        return replace(decl, dims=tuple(map(dim, decl.dims)))

    def sized(node: Expr) -> Expr:
        match node:
            case Name(name) if name in parallel.degrees:
                return Size(f"@{name}", span=node.span)
        return plain(node)

    def statement(made: Statement) -> Statement:
        index = tuple(Name(axis_name(axis), _rest(axis), span=axis.span) for axis in made.index)
        return replace(made, index=index, value=rewrite(made.value, plain))

    return OperatorDecl(
        parallel.name,
        tuple(map(tensor, parallel.inputs)),
        parallel.attributes,
        tuple(map(tensor, parallel.outputs)),
        tuple(rewrite(condition, sized) for condition in parallel.conditions),
        tuple(map(statement, parallel.statements)),
        doc=parallel.doc,
        span=parallel.span,
    )


def _rest(axis: Name | DeviceName) -> bool:
    return isinstance(axis, Name) and axis.rest


# ---------------------------------------------------------------------------------------------- building


def _build(site: Site, names: Frame, binding: Binding | None) -> Instance:
    operator = site.operator
    inputs = tuple(_inputs(site, names, binding))
    if operator.extern:
        outputs, declared = _extern_outputs(operator, names), _declared_axes(operator, names)
        return Instance(operator, inputs, outputs, names.sizes, names.attributes, (), declared=declared)
    sizes = dict(names.sizes)
    local: dict[str, str] = {}
    merged = None if binding is None else dims_of(binding.target)
    equations = _equations(site, names, inputs, operator.statements, sizes, local, merged)
    evaluation = _equations(site, names, inputs, operator.evaluation, sizes, local, merged)
    if [(e.target, e.value) for e in evaluation] == [(e.target, e.value) for e in equations]:
        evaluation = ()
    targets = {equation.target.name: equation.target for equation in equations}
    instance = Instance(
        operator,
        inputs,
        tuple(targets[output.name] for output in operator.outputs),
        sizes,
        names.attributes,
        equations,
        evaluation,
        native=binding is None,
    )
    for part in (equations, evaluation):
        operands = {operand.name: operand for operand in (*inputs, *(equation.target for equation in part))}
        for equation in part:
            _check_bounds(site, instance, equation, operands)
    return instance


def _extern_outputs(operator: OperatorDecl, names: Frame) -> tuple[Operand, ...]:
    """The results of an extern call, each with its axes and the bound of its integers."""
    return tuple(_result(output, names) for output in operator.outputs)


def _result(output: TensorDecl, names: Frame) -> Operand:
    axes = (axis for dim in output.dims for axis in (names.rests[dim.name] if dim.rest else (dim.name,)))
    assert output.integer_range is not None
    return Operand(output.name, tuple((axis,) for axis in axes), names.sizes[output.integer_range])


def _declared_axes(operator: OperatorDecl, names: Frame) -> dict[str, str]:
    """The axes along which a call may be divided, with their names in the declaration."""
    return {
        axis: declared.name
        for declared in operator.declared
        for axis in (names.rests[declared.name] if declared.rest else (declared.name,))
    }


def _inputs(site: Site, names: Frame, binding: Binding | None) -> Iterator[Operand]:
    if binding is not None:
        (tensor,), (shape,) = site.operator.inputs, site.shapes
        yield Operand(tensor.name, dims_of(binding.source), shape.integer_range)
        return
    for tensor, shape in site.operands():
        dims: list[Dim] = []
        for axis, size, broadcast in zip_axes(tensor, shape, names.rests):
            dims.append(() if broadcast and size == 1 != names.sizes[axis] else (axis,))
        yield Operand(tensor.name, merged_dims(tensor, tuple(dims)), shape.integer_range)


def _equations(
    site: Site,
    names: Frame,
    inputs: tuple[Operand, ...],
    statements: tuple[Statement, ...],
    sizes: dict[str, int],
    local: dict[str, str],
    merged: tuple[Dim, ...] | None,
) -> tuple[Equation, ...]:
    """The statements, split into equations. Extends `sizes` and `local` by axes that are no declared dimension."""
    slots: dict[str, tuple[Slot, ...]] = {
        tensor.name: tuple((dim.name, dim.rest) for dim in tensor.dims) for tensor in site.operator.inputs
    }
    scope = Scope(site.operator, names, slots, {operand.name: operand for operand in inputs}, sizes, local)
    outputs = {output.name for output in site.operator.outputs}
    splitter = ReductionSplitter({*slots, *outputs, *(statement.target for statement in statements)})
    for statement in statements:
        target, value = scope.define(statement, merged if statement.target in outputs else None)
        splitter.add(target, value, statement.span)
    return tuple(splitter.equations)


def _check_bounds(site: Site, instance: Instance, equation: Equation, operands: Mapping[str, Operand]) -> None:
    """Checks that reads without a fill are in bounds at all positions of the equation's axes (interval analysis).

    Also checks that divisors are nonzero, and that integers fit 64 bits.
    """
    for node in walk(equation.value):
        if isinstance(node, Apply) and node.function in ("+", "-", "*", "neg", "//", "%"):
            _check_arithmetic(site, instance, node)
    for read in reads(equation.value):
        for index, dim in zip(read.index, operands[read.tensor].dims, strict=True):
            _check_parts(site, instance, read, index, dim)
        shape = instance.shape(operands[read.tensor])
        for position, (index, size) in enumerate(zip(read.index, shape, strict=True)):
            try:
                low, high = interval(index, instance.sizes)
            except ValueError as reason:
                raise site.fault(
                    "E131", f"the index of `{read.tensor}` has no bounds: {reason}", at=index.span or read.span
                ) from None
            if read.fill is None and (low < 0 or high >= size):
                text = f"`{index.span.text}`" if index.span is not None else f"of dimension {position}"
                message = f"`{read.tensor}` is read outside its {size} positions: the index {text} runs {low}..{high}"
                help = f"write `{read.tensor}[… else 0]` if values outside are wanted"
                raise site.fault("E128", message, help=help, at=index.span or read.span)


def _check_arithmetic(site: Site, instance: Instance, node: Apply) -> None:
    """Raises E131 for arithmetic of indices and sizes that divides by zero or leaves 64 bits."""
    if any(isinstance(part, Size) and part.name not in instance.sizes for part in walk(node)):
        return  # a size that is no axis here: a coefficient that is symbolic for the prover
    try:
        low, high = interval(node.arguments[1] if node.function in ("//", "%") else node, instance.sizes)
    except (ValueError, KeyError):
        return  # other terms too: reads and symbolic attributes have no bounds
    text = node.span.text if node.span is not None else node.function
    if node.function in ("//", "%") and low <= 0 <= high:
        raise site.fault("E131", f"`{text}` divides by a number between {low} and {high}", at=node.span)
    if low < -LARGEST_INTEGER or high > LARGEST_INTEGER:
        raise site.fault("E131", f"`{text}` does not fit 64 bits: it is between {low} and {high}", at=node.span)


def _check_parts(site: Site, instance: Instance, read: Read, index: Expr, dim: Dim) -> None:
    """Checks a merged dimension axis by axis. A fill does not help: outside of one axis lie elements of another."""
    for axis in reversed(dim[1:]):
        match index:
            case Apply("+", (Apply("*", (major, Size(name))), minor)) if name == axis:
                _check_part(site, instance, read, minor, axis)
                index = major
            case _:
                return
    if len(dim) > 1:
        _check_part(site, instance, read, index, dim[0])


def _check_part(site: Site, instance: Instance, read: Read, index: Expr, axis: str) -> None:
    try:
        low, high = interval(index, instance.sizes)
    except ValueError as reason:
        message = f"the index of `{axis}` in `{read.tensor}` has no bounds: {reason}"
        raise site.fault("E131", message, at=index.span or read.span) from None
    if low < 0 or high >= instance.sizes[axis]:
        message = f"`{read.tensor}` is read outside the {instance.sizes[axis]} positions of `{axis}`: {low}..{high}"
        help = "an axis that shares its dimension has no outside"
        raise site.fault("E128", message, help=help, at=index.span or read.span)
