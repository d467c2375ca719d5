"""What follows from a declaration, in words: `unityc explain linear`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from ..syntax.ast import FunctionDecl, OperatorDecl, ParallelDecl
from ..syntax.diagnostic import InputError
from .adjoint import adjoint
from .classify import classify, gradient_free, linear_operands
from .instance import Instance
from .instantiate import Binding, Shape, instantiate
from .library import Library
from .lowering import lowering_class
from .pattern import takes_pattern
from .text import Rename, equation_text
from .work import operations_of

_SIZES = (5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
"""Sizes of a representative instance: different, so that no two axes are confused."""


def describe_operator(operator: OperatorDecl, library: Library) -> str:
    """Declaration, axes with what may be done with them, gradient, work, lowering."""
    instance = representative(operator)
    rename = _names(operator)
    sections = [
        *_declaration(operator.doc, operator.span),
        "",
        *_axes(instance, library, rename),
        *_linear(instance),
        *_detached(instance),
        *_gradients(instance, library, rename),
        f"flops     {_flops(instance, rename)}",
        f"lowering  {lowering_class(instance)}",
        f"torch     {_native(operator)}",
    ]
    return "\n".join(sections)


def describe_parallel(parallel: ParallelDecl) -> str:
    """The declaration: an index map is all there is to a parallel op."""
    return "\n".join(_declaration(parallel.doc, parallel.span))


def describe_function(function: FunctionDecl) -> str:
    """The declaration of an element function."""
    return "\n".join(_declaration(function.doc, function.span))


def representative(operator: OperatorDecl) -> Instance:
    """The operator with one axis for each rest group, at sizes that its conditions admit."""
    groups = takes_pattern(operator)
    names = dict.fromkeys(dim.name for tensor in operator.inputs for dim in tensor.dims)
    sizes = dict(zip(names, _SIZES, strict=False))
    if groups is not None and groups[1] is not None:
        source = tuple(((f"{name}0", sizes[name]),) for name in groups if name is not None)
        return instantiate(
            operator,
            [Shape(tuple(size for ((_, size),) in source))],
            {},
            binding=Binding(source, source[:1]),
        )
    shapes = [
        Shape(
            tuple(sizes[dim.name] for dim in tensor.dims),
            None if tensor.integer_range is None else sizes.get(tensor.integer_range, 2),
        )
        for tensor in operator.inputs
    ]
    missing = [attribute.name for attribute in operator.attributes if attribute.default is None]
    for values in product((1, 2, 3), repeat=len(missing)):
        try:
            return instantiate(operator, shapes, dict(zip(missing, values, strict=True)))
        except InputError as error:
            last = error
    raise last


def _names(operator: OperatorDecl) -> Rename:
    rests = {f"{d.name}0": f"{d.name}.." for t in (*operator.inputs, *operator.outputs) for d in t.dims if d.rest}
    return lambda axis: rests.get(axis, axis)


def _declaration(doc: str, span: object) -> Iterator[str]:
    if doc:
        yield from doc.splitlines()
        yield ""
    text = getattr(span, "text", "")
    yield from text.rstrip().splitlines()


def _axes(instance: Instance, library: Library, rename: Rename) -> Iterator[str]:
    for name, found in classify(instance, library).items():
        reason = found.reason.replace(f"`{name}`", f"`{rename(name)}`")
        if found.positional:
            reason += "; its index is a value, to which a slice adds its offset"
        yield f"axis {rename(name):<4} {found.kind:<8} {reason}"


def _linear(instance: Instance) -> Iterator[str]:
    sets = [", ".join(instance.inputs[i].name for i in chosen) for chosen in linear_operands(instance)]
    if sets:
        yield f"linear    jointly in {'; in '.join(sets)}: sums of terms pass through"


def _detached(instance: Instance) -> Iterator[str]:
    if found := sorted(gradient_free(instance)):
        yield f"detached  {', '.join(found)}: the results do not depend on it"


def _gradients(instance: Instance, library: Library, rename: Rename) -> Iterator[str]:
    forward = {equation.target.name for equation in instance.equations}
    for position, operand in enumerate(instance.inputs):
        if operand.integer_range is None:
            equations = adjoint(instance, library, position).equations
            for equation in equations:
                if equation.target.name not in forward:
                    yield f"gradient  {equation_text(equation, rename)}"


def _flops(instance: Instance, rename: Rename) -> str:
    terms: dict[tuple[str, ...], int] = {}
    for equation in instance.equations:
        if count := operations_of(equation):
            terms[equation.space] = terms.get(equation.space, 0) + count
    texts = [" * ".join([str(count), *(f"|{rename(axis)}|" for axis in space)]) for space, count in terms.items()]
    return " + ".join(texts) or "0"


def _native(operator: OperatorDecl) -> str:
    if operator.torch is None or operator.torch.span is None:
        return "from the equations"
    return operator.torch.span.text
