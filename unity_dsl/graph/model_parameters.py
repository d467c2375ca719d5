"""Parameters of a model (`b = 64`) at the chosen preset and settings, and arithmetic on them.

Precedence of a parameter's value: an explicit setting, then the preset, then the default. Parameters are evaluated in
the order of the text, so a default may use the parameters before it, at the values these were given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite, prod

from ..syntax.ast import Apply, Expr, ModelDecl, Name, Number, Parameter, Preset
from ..syntax.ast.expressions import LARGEST_INTEGER
from ..syntax.diagnostic import Label, fail, suggest
from ..syntax.rational import plain_number
from ..syntax.span import Span

Numeric = int | float
Setting = str | int | float

LARGEST = LARGEST_INTEGER
"""Sizes and element counts are 64-bit in every program that is emitted."""
MOST_ELEMENTS = LARGEST // 8
"""Most elements of a tensor: so many doubles have as many bytes as 64 bits count."""


# ---------------------------------------------------------------------------------------------- arithmetic


def _quotient(left: Numeric, right: Numeric) -> Numeric:
    """The quotient, as an integer if it is exact, so that `d / heads` may be a size."""
    if isinstance(left, int) and isinstance(right, int) and left % right == 0:
        return left // right
    return left / right


_BINARY: Mapping[str, Callable[[Numeric, Numeric], Numeric]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": _quotient,
    "//": lambda left, right: left // right,
    "%": lambda left, right: left % right,
}


def fold(expr: Expr, known: Mapping[str, Numeric]) -> Numeric:
    """The value of an expression over parameters. Raises E203 (unknown name) or what `calculate` raises."""
    match expr:
        case Number(value=value):
            return _checked(plain_number(value), expr.span)
        case Name(name=name, rest=False):
            if name not in known:
                help = suggest(name, known) or "only parameters may be used here"
                raise fail("E203", f"`{name}` is not a parameter", expr.span, help=help)
            return known[name]
        case Apply(function="neg", arguments=(operand,)):
            return -fold(operand, known)
        case Apply(function=function, arguments=(left, right)) if function in _BINARY:
            return calculate(function, fold(left, known), fold(right, known), expr.span)
    raise TypeError(f"the grammar has no {type(expr).__name__} among quantities")


def calculate(function: str, left: Numeric, right: Numeric, span: Span | None) -> Numeric:
    """Arithmetic on two numbers. Raises E204 (division by zero, a number beyond 64 bits)."""
    if function in ("/", "//", "%") and right == 0:
        raise fail("E204", f"division by zero: {left:g} {function} 0", span)
    return _checked(_BINARY[function](left, right), span)


def _checked(value: Numeric, span: Span | None) -> Numeric:
    if not isfinite(value) or (isinstance(value, int) and abs(value) > LARGEST):
        raise fail("E204", "the number does not fit 64 bits", span)
    return value


def whole(expr: Expr, known: Mapping[str, Numeric], what: str) -> int:
    """A size or a count. Raises E205 unless it is whole and at least 1."""
    value = fold(expr, known)
    if value != int(value):
        exact = isinstance(expr, Apply) and expr.function == "/"
        label = "the division is not exact" if exact else ""
        help = "`//` rounds down" if exact else ""
        raise fail("E205", f"{what} must be whole, not {_text(expr, value)}", expr.span, label=label, help=help)
    if not 1 <= value <= LARGEST:
        raise fail("E205", f"{what} must be at least 1, not {_text(expr, value)}", expr.span)
    return int(value)


def _text(expr: Expr, value: Numeric) -> str:
    """`3.5`, or `d / 2 = 3.5` where the expression is more than the number."""
    number = str(value)
    written = "" if isinstance(expr, Number) or expr.span is None else expr.span.text
    return f"{written} = {number}" if written and written != number else number


def shape_of(dims: Sequence[Expr], known: Mapping[str, Numeric], name: str, span: Span | None) -> tuple[int, ...]:
    """The sizes of a declared tensor. Raises E205 (sizes) or E225 (too many elements)."""
    shape = tuple(whole(dim, known, f"dimension {position} of `{name}`") for position, dim in enumerate(dims))
    if prod(shape) > MOST_ELEMENTS:
        raise fail("E225", f"`{name}` has {prod(shape)} elements, which no memory holds", span)
    return shape


# ---------------------------------------------------------------------------------------------- parameters


def model_parameters(model: ModelDecl, settings: Mapping[str, Setting], preset: str | None) -> dict[str, Numeric]:
    """Every parameter of a model with its value.

    Raises E200 (unknown parameter), E201 (unknown preset), E202 (no value, or one that is not a number), E206 (a preset
    declared twice) and what `fold` raises.
    """
    _check_presets(model)
    names = [parameter.name for parameter in model.parameters]
    for name in settings:
        if name not in names:
            raise fail("E200", f"model `{model.name}` has no parameter `{name}`", help=_known(name, names))
    given: dict[str, Expr | Numeric] = {}
    if preset is not None:
        given |= _find_preset(model, preset).values
    given |= {name: _setting(name, value) for name, value in settings.items()}
    return evaluate(model.parameters, given, {}, f"model `{model.name}`", model.span)


def evaluate(
    parameters: Sequence[Parameter],
    given: Mapping[str, Expr | Numeric],
    outer: Mapping[str, Numeric],
    owner: str,
    span: Span | None,
) -> dict[str, Numeric]:
    """The values of parameters in order: the given one, or else the default. Expressions see `outer` and earlier ones.

    Raises E202 for a parameter that has neither, at `span`.
    """
    found: dict[str, Numeric] = {}
    for parameter in parameters:
        value = given.get(parameter.name, parameter.default)
        if value is None:
            help = f"give it: `{parameter.name}=…`"
            raise fail("E202", f"parameter `{parameter.name}` of {owner} has no value", span, help=help)
        found[parameter.name] = value if isinstance(value, int | float) else fold(value, {**outer, **found})
    return found


def _check_presets(model: ModelDecl) -> None:
    """Checks every preset, also those that are not chosen. Raises E200 and E206."""
    names = [parameter.name for parameter in model.parameters]
    first: dict[str, Preset] = {}
    for preset in model.presets:
        if preset.name in first:
            here = first[preset.name].span
            notes = () if here is None else (Label(here, "first declared here"),)
            raise fail("E206", f"preset `{preset.name}` is declared twice", preset.span, notes=notes)
        first[preset.name] = preset
        for name, value in preset.values:
            if name not in names:
                message = f"preset `{preset.name}` sets `{name}`, which is not a parameter"
                raise fail("E200", message, value.span or preset.span, help=_known(name, names))


def _find_preset(model: ModelDecl, name: str) -> Preset:
    names = [preset.name for preset in model.presets]
    if name not in names:
        raise fail("E201", f"model `{model.name}` has no preset `{name}`", model.span, help=_known(name, names))
    return model.presets[names.index(name)]


def _setting(name: str, value: Setting) -> Numeric:
    if isinstance(value, int | float):
        return _checked(value, None)
    for kind in (int, float):
        try:
            return _checked(kind(value), None)
        except ValueError:
            continue
    raise fail("E202", f"parameter `{name}` must be a number, not `{value}`")


def _known(name: str, names: Sequence[str]) -> str:
    listed = f"there are {', '.join(f'`{n}`' for n in names)}" if names else "there is none"
    return suggest(name, names) or listed
