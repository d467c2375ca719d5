"""Everything derived from a declaration, as text: `unityc explain linear`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction

from ...syntax.ast import DimDecl, FunctionDecl, NativeCall, NativeSteps, OperatorDecl, ParallelDecl, TensorDecl
from ...syntax.diagnostic import InputError
from ...syntax.rational import Rational
from ...syntax.span import Span
from ..axes.axis_classes import AxisClass, classify, gradient_free, linear_operands
from ..equations.instance import Instance
from ..equations.term_text import condition_text, equation_text
from ..gradients.adjoint import adjoint
from ..gradients.derivative import dependents
from ..instantiation.call_frame import dims_text, integer_attributes
from ..instantiation.representative import Representative, counts_dimensions, symbolic_representative
from ..library import Library
from .lowering_class import lowering_class
from .work import Axes, Extent, Polynomial, backward_tallies, forward_tally, total

_MARGIN = 10
_OTHERS = (37, 5, 3, 1)
"""Other values of an attribute to try; the first one that fits is used."""


def describe_operator(operator: OperatorDecl, library: Library, statuses: Mapping[str, str] | None = None) -> str:
    """The declaration, then everything derived from it."""
    return "\n".join([*_declaration(operator.doc, operator.span), "", derived(operator, library, statuses)])


def derived(operator: OperatorDecl, library: Library, statuses: Mapping[str, str] | None = None) -> str:
    """Shapes, axes, gradients, work and lowering.

    `statuses` say whether the properties of axes, and the linearity in sets of operands, are proved.
    """
    known = statuses or {}
    sections = list(_titled("shape", _shapes(operator)))
    try:
        found = symbolic_representative(operator)
    except InputError as error:
        # No instance was found; the conditions are in the declaration above.
        sections += _titled("derived", [f"no sizes were found that meet its conditions: {error.diagnostic.message}"])
        return "\n".join(sections)
    instance = found.instance
    sections += _titled("axis", _axes(found, library, known))
    sections += _titled("linear", _linear(instance, known))
    sections += _numeric(found, library)
    sections += _titled("at", _placing(operator, found, library))
    sections += _titled("lowering", [lowering_class(instance)])
    sections += _titled("torch", _native(operator))
    return "\n".join(sections)


def _numeric(found: Representative, library: Library) -> Iterator[str]:
    """The lines that may change with attributes that place or count elements."""
    yield from _titled("gradient", [*_gradients(found, library), *_free(found.instance)])
    yield from _titled("flops", _flops(found))
    yield from _titled("bytes", _bytes(found))


def _placing(operator: OperatorDecl, found: Representative, library: Library) -> Iterator[str]:
    """The attributes on whose values the gradient, flops or bytes above depend: another value gives another text."""
    whole = integer_attributes(operator)
    values = {name: value for name, value in found.instance.attributes.items() if name in whole}
    text = list(_numeric(found, library)) if values else []
    shown = []
    for name, value in values.items():
        if counts_dimensions(operator, name):
            continue
        changed = _at_another(operator, name, value)
        if changed is None or list(_numeric(changed, library)) != text:
            shown.append(f"{name} = {value}")
    if shown:
        yield f"{', '.join(shown)}: gradient, flops and bytes of other values differ"


def _at_another(operator: OperatorDecl, attribute: str, value: Rational) -> Representative | None:
    """The operator at another value of an attribute; None if no value that is tried meets the conditions."""
    for other in _OTHERS:
        if other != value:
            with suppress(InputError):
                return symbolic_representative(operator, {attribute: other})
    return None


def describe_parallel(parallel: ParallelDecl) -> str:
    """The declaration: a parallel op is its index map."""
    return "\n".join(_declaration(parallel.doc, parallel.span))


def describe_function(function: FunctionDecl) -> str:
    """The declaration of an element function."""
    return "\n".join(_declaration(function.doc, function.span))


def _declaration(doc: str, span: Span | None) -> Iterator[str]:
    if doc:
        yield from doc.splitlines()
        yield ""
    if span is not None:
        yield from span.text.rstrip().splitlines()


def _titled(title: str, lines: Iterable[str]) -> Iterator[str]:
    """Lines in a column, the first with a title in the margin."""
    for number, line in enumerate(lines):
        yield f"{'' if number else title:<{_MARGIN}}{line}"


# ---------------------------------------------------------------------------------------------- shapes and axes


def _shapes(operator: OperatorDecl) -> Iterator[str]:
    for output in operator.outputs:
        yield f"{output.name}: {dims_text(output)}"
    for name in dict.fromkeys(dim.name for tensor in operator.inputs for dim in tensor.dims if not dim.broadcast):
        holders = [tensor for tensor in operator.inputs if any(dim.name == name for dim in tensor.dims)]
        if len(holders) > 1:
            yield "needs " + " == ".join(f"{tensor.name}.{_dim_of(tensor, name)}" for tensor in holders)
    for condition in operator.conditions:
        yield f"needs {condition_text(condition)}"
    if any(dim.broadcast for tensor in operator.inputs for dim in tensor.dims):
        yield "dimensions of size 1, or missing on the left, are repeated"


def _dim(dim: DimDecl) -> str:
    return f"{dim.name}.." if dim.rest else dim.name


def _dim_of(tensor: TensorDecl, name: str) -> str:
    return next(_dim(dim) for dim in tensor.dims if dim.name == name)


def _axes(found: Representative, library: Library, statuses: Mapping[str, str]) -> Iterator[str]:
    classes = list(classify(found.instance, library).values())
    names = [found.names.get(c.axis, c.axis) for c in classes]
    width = max(map(len, names), default=0)
    for name, axis in zip(names, classes, strict=True):
        status = statuses.get(name, "")
        told = f"{status}: " if status not in ("", axis.kind) else ""
        yield f"{name:<{width}}  {axis.kind:<7}  {told}{'; '.join(_remarks(axis, found.names))}"


def _remarks(axis: AxisClass, names: Mapping[str, str]) -> Iterator[str]:
    reason = axis.reason
    for name, shown in names.items():
        reason = reason.replace(f"`{name}`", f"`{shown}`")
    yield reason
    if axis.positional:
        yield "its index is used as a value: a slice adds its offset"
    if axis.sized:
        yield "its size is used as a value: always the global one"


def _linear(instance: Instance, statuses: Mapping[str, str]) -> Iterator[str]:
    """Sets of operands that may be partial sums."""
    for chosen in linear_operands(instance):
        names = ", ".join(instance.inputs[i].name for i in chosen)
        told = f": {statuses[names]}" if names in statuses else ""
        yield f"in {names}{' jointly' if len(chosen) > 1 else ''}{told}"


# ---------------------------------------------------------------------------------------------- gradients


def _gradients(found: Representative, library: Library) -> Iterator[str]:
    instance = found.instance
    written = set(instance.equations)
    for position, operand in enumerate(instance.inputs):
        if operand.integer_range is None and not instance.whole:
            made = adjoint(instance, library, position)
            names = {**found.names, **_cotangents(instance, [e.target.name for e in made.equations])}
            for equation in made.equations:
                if equation not in written:
                    yield equation_text(equation, names, found.numbers)
            written.update(made.equations)


def _cotangents(instance: Instance, made: Sequence[str]) -> dict[str, str]:
    """Shows `d_y` as dy, unless another name is dy."""
    names = [f"d_{output.name}" for output in instance.outputs] + [name for name in made if name.startswith("d_")]
    own = {operand.name for operand in instance.inputs} | {equation.target.name for equation in instance.equations}
    return {name: f"d{name[2:]}" for name in names if f"d{name[2:]}" not in own and name not in own}


def _free(instance: Instance) -> Iterator[str]:
    if instance.whole:
        yield "none: the result holds integers"
        return
    floats = frozenset(operand.name for operand in instance.inputs if operand.integer_range is None)
    varying = dependents(instance, floats)
    for name in sorted(gradient_free(instance)):
        reason = "the results do not depend on it" if name in varying else "no float input moves it"
        yield f"{name} carries none: {reason}"


# ---------------------------------------------------------------------------------------------- work and lowering


def _flops(found: Representative) -> Iterator[str]:
    instance = found.instance
    yield f"forward   {_polynomial(forward_tally(instance).undivided, found)}"
    if any(operand.integer_range is None for operand in instance.inputs) and not instance.whole:
        backward = [tally.undivided for tally, _ in backward_tallies(instance, [True] * len(instance.inputs))]
        yield f"backward  {_polynomial(total(backward), found)}"


def _bytes(found: Representative) -> Iterator[str]:
    tally = forward_tally(found.instance)
    yield f"read      {' + '.join(_extent(extent, found) for extent in tally.read) or '0'}"
    yield f"written   {' + '.join(_extent(extent, found) for extent in tally.written)}"
    yield "at 4 bytes per float, 8 per integer"


def _extent(extent: Extent, found: Representative) -> str:
    width = 4 if extent.real else 8
    whole = _product(width, extent.whole, found)
    if extent.reached is None:
        return whole
    reached = " + ".join(_product(width * count, axes, found) for axes, count in extent.reached.terms)
    return f"min({whole}, {reached})"


def _polynomial(polynomial: Polynomial, found: Representative) -> str:
    order = list(dict.fromkeys((*found.instance.axes, *(axis for axes, _ in polynomial.terms for axis in axes))))
    terms = [(tuple(sorted(axes, key=order.index)), count) for axes, count in polynomial.terms]
    terms.sort(key=lambda term: (-len(term[0]), [order.index(axis) for axis in term[0]]))
    return " + ".join(_product(count, axes, found) for axes, count in terms) or "0"


def _product(count: int | Fraction, axes: Axes, found: Representative) -> str:
    sizes = [f"|{found.names.get(axis, axis)}|" for axis in axes]
    return " * ".join(sizes if count == 1 and sizes else [str(count), *sizes])


def _native(operator: OperatorDecl) -> Iterator[str]:
    for line in (operator.numpy,):
        if line is not None and line.span is not None:
            yield f"{line.span.text}  (the reference)"
    match operator.torch:
        case NativeSteps(steps=steps):
            yield from (f"{name} = {call.span.text}" for name, call in steps if call.span is not None)
        case NativeCall(span=span) if span is not None:
            yield span.text
        case _:
            yield "from its statements"
