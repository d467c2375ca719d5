"""Axis patterns of views in a model, `x[b, s, (h=heads k)] -> [b, h, s, k]`, at the shape of `x`."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ..index.instantiation.operand_shape import Binding, Factors, shape_text
from ..syntax.ast import Pattern, PatternFactor, View
from ..syntax.diagnostic import InputError, Label, fail, suggest
from ..syntax.span import Span
from .graph import Value
from .model_parameters import Numeric, whole


def bind(view: View, operand: Value, known: Mapping[str, Numeric]) -> Binding:
    """The axes that a pattern names, with their sizes.

    Raises E213 (rank), E214 (sizes that do not divide, disagree or cannot be deduced) or E215 (names).
    """
    if len(view.source.dims) != len(operand.shape):
        message = f"the pattern has {len(view.source.dims)} dimensions, the tensor {shape_text(operand.shape)} has"
        raise _fault("E213", f"{message} {len(operand.shape)}", view.source.span or view.span, operand)
    sizes: dict[str, int] = {}
    source = []
    for dim, (pattern, size) in enumerate(zip(view.source.dims, operand.shape, strict=True)):
        factors = _source_factors(pattern, size, dim, operand, known, view.span)
        for name, _ in factors:
            if name in sizes:
                message = f"axis `{name}` stands twice in the pattern"
                raise fail("E215", message, view.source.span, help="give each dimension a name of its own")
            sizes[name] = next(found for other, found in factors if other == name)
        source.append(factors)
    return Binding(tuple(source), _target(view.target, sizes, known, view.span))


def _source_factors(
    factors: tuple[PatternFactor, ...],
    size: int,
    dim: int,
    operand: Value,
    known: Mapping[str, Numeric],
    span: Span | None,
) -> Factors:
    """The axes of one dimension. At most one factor has no given size: it gets what the others leave. Raises E214."""
    given = [(factor, _given_size(factor, known)) for factor in factors]
    open_factors = [factor for factor, found in given if found is None]
    product = prod(found for _, found in given if found is not None)
    written = " ".join(str(n) if f.name is None else f.name if n is None else f"{f.name}={n}" for f, n in given)
    at = factors[0].span or span
    if len(open_factors) > 1:
        names = " and ".join(f"`{factor.name}`" for factor in open_factors)
        help = f"`({open_factors[0].name}=… {open_factors[1].name})`"
        raise _fault("E214", f"the sizes of {names} in dimension {dim} of size {size} are not known", at, operand, help)
    if (size % product if open_factors else size != product) != 0:
        verb = "does not divide into" if open_factors else "is not"
        raise _fault("E214", f"dimension {dim} of size {size} {verb} ({written})", at, operand)
    sized = [(_name(factor), size // product if found is None else found) for factor, found in given]
    return tuple((name, found) for name, found in sized if name != "1")


def _given_size(factor: PatternFactor, known: Mapping[str, Numeric]) -> int | None:
    return None if factor.size is None else whole(factor.size, known, f"the size of axis `{_name(factor)}`")


def _name(factor: PatternFactor) -> str:
    """An axis written as a number has no name: `3` is called `axis3`, and a `1` is no axis at all."""
    if factor.name is not None:
        return factor.name
    number = whole(factor.size, {}, "the size of an axis") if factor.size is not None else 1
    return "1" if number == 1 else f"axis{number}"


def _target(
    pattern: Pattern, sizes: Mapping[str, int], known: Mapping[str, Numeric], span: Span | None
) -> tuple[Factors, ...]:
    used: set[str] = set()
    target = []
    for factors in pattern.dims:
        dim = []
        for factor in factors:
            name = _name(factor)
            if name == "1":
                continue
            if name not in sizes:
                help = suggest(name, sizes) or "the result has the axes of the operand only; a new one has size 1"
                raise fail("E215", f"axis `{name}` is not one of the operand's", factor.span or span, help=help)
            if name in used:
                raise fail("E215", f"axis `{name}` stands twice in the result", factor.span or span)
            size = _given_size(factor, known)
            if size is not None and size != sizes[name]:
                raise fail("E214", f"axis `{name}` has size {sizes[name]}, not {size}", factor.span or span)
            used.add(name)
            dim.append((name, sizes[name]))
        target.append(tuple(dim))
    return tuple(target)


def lost_axes(binding: Binding) -> tuple[str, ...]:
    """The operand's axes that the result does not have."""
    kept = {name for dim in binding.target for name, _ in dim}
    return tuple(name for dim in binding.source for name, _ in dim if name not in kept)


def _fault(code: str, message: str, span: Span | None, operand: Value, help: str = "") -> InputError:
    notes = () if operand.span is None else (Label(operand.span, f"it has shape {shape_text(operand.shape)}"),)
    return fail(code, message, span, help=help, notes=notes)
