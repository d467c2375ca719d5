"""Terms as text, in the notation of `.uop`, with no more parentheses than needed."""

from __future__ import annotations

from collections.abc import Callable

from ..syntax.ast import Apply, DeviceName, Expr, Name, Number, Read, Reduce, Select, Size, Uniform
from .instance import Equation
from .term import COMPARISONS

_SUM, _PRODUCT, _UNARY, _ATOM = range(4)
_LEVEL = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "//": _PRODUCT, "%": _PRODUCT}

Rename = Callable[[str], str]
"""How an axis is called: `b0` of an instance may be the declaration's `b..`."""


def expression_text(expr: Expr, rename: Rename = str) -> str:
    """The term as it would be written in a declaration."""
    return _text(expr, _SUM, rename)


def equation_text(equation: Equation, rename: Rename = str) -> str:
    """`y[b.., o] = sum(i) x[b.., i] * w[o, i]`."""
    index = ", ".join(_merged([rename(axis) for axis in dim]) for dim in equation.target.dims)
    left = f"{equation.target.name}[{index}] = "
    if equation.kind is None:
        return left + expression_text(equation.value, rename)
    over = ", ".join(rename(axis) for axis in equation.over)
    return f"{left}{equation.kind}({over}) {_text(equation.value, _PRODUCT, rename)}"


def _merged(axes: list[str]) -> str:
    return axes[0] if len(axes) == 1 else f"({' '.join(axes)})" if axes else "1"


def _text(expr: Expr, level: int, rename: Rename) -> str:
    """The term where operands of at least this level may stand bare."""
    own, text = _parts(expr, rename)
    return text if own >= level else f"({text})"


def _parts(expr: Expr, rename: Rename) -> tuple[int, str]:
    match expr:
        case Number(value=value):
            return (_UNARY if value < 0 else _ATOM), f"{value:g}" if isinstance(value, float) else str(value)
        case Name(name=name, rest=rest):
            return _ATOM, rename(name) + ".." * rest
        case DeviceName(name=name):
            return _ATOM, f"@{name}"
        case Size(name=name, rest=rest):
            return _ATOM, f"|{rename(name)}{'..' * rest}|"
        case Read(tensor=tensor, index=index, fill=fill):
            inside = ", ".join(expression_text(part, rename) for part in index)
            otherwise = "" if fill is None else f" else {expression_text(fill, rename)}"
            return _ATOM, f"{tensor}[{inside}{otherwise}]"
        case Uniform(index=index):
            return _ATOM, f"uniform[{', '.join(expression_text(part, rename) for part in index)}]"
        case Select(condition=condition, then=then, otherwise=otherwise_):
            parts = [_comparison(condition, rename), expression_text(then, rename), expression_text(otherwise_, rename)]
            return _ATOM, f"select({', '.join(parts)})"
        case Reduce(kind=kind, axes=axes, body=body):
            over = ", ".join(_text(axis, _SUM, rename) for axis in axes)
            return _SUM, f"{kind}({over}) {_text(body, _PRODUCT, rename)}"
        case Apply(function=function) if function in COMPARISONS:
            return _ATOM, f"[{_comparison(expr, rename)}]"
        case Apply(function="neg", arguments=(argument,)):
            return _UNARY, f"-{_text(argument, _ATOM, rename)}"
        case Apply(function=function, arguments=(left, right)) if function in _LEVEL:
            own = _LEVEL[function]
            return own, f"{_text(left, own, rename)} {function} {_text(right, own + 1, rename)}"
        case Apply(function=function, arguments=arguments):
            return _ATOM, f"{function}({', '.join(expression_text(part, rename) for part in arguments)})"
    raise AssertionError(f"no text for {expr!r}")


def _comparison(expr: Expr, rename: Rename) -> str:
    assert isinstance(expr, Apply)
    left, right = (expression_text(part, rename) for part in expr.arguments)
    return f"{left} {expr.function} {right}"
