"""Expressions of element functions in arbitrary precision: a reference that shares nothing with NumPy."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import mpmath

from unity_dsl.syntax.ast import Apply, Expr, FunctionDecl, Name, Number

LARGEST = 2_000

COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def exponential(value: Any) -> Any:
    if abs(value) > LARGEST:
        raise OverflowError
    return mpmath.exp(value)


PRIMITIVES: Mapping[str, Callable[..., Any]] = {
    "np.exp": exponential,
    "np.log": mpmath.log,
    "np.sqrt": mpmath.sqrt,
    "np.tanh": mpmath.tanh,
    "np.sin": mpmath.sin,
    "np.cos": mpmath.cos,
    "np.abs": abs,
    "np.maximum": max,
    "np.minimum": min,
    "np.power": mpmath.power,
    "math.erf": mpmath.erf,
    "np.floor": mpmath.floor,
}
ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "neg": lambda a: -a,
}


def exact(expr: Expr, names: Mapping[str, Any], functions: Mapping[str, FunctionDecl]) -> Any:
    """Evaluates an expression in mpmath's precision. Raises ZeroDivisionError and ValueError where it has no value.

    A complex number is no real value. Raises OverflowError where an exponential is too large to be worked with.
    """
    match expr:
        case Number(value):
            return mpmath.mpf(repr(value))
        case Name(name):
            return names[name]
        case Apply(name, arguments):
            values = [exact(argument, names, functions) for argument in arguments]
            if name in COMPARISONS:
                return mpmath.mpf(COMPARISONS[name](*values))
            if name in ARITHMETIC:
                return ARITHMETIC[name](*values)
            decl = functions[name]
            if decl.definition is not None:
                return exact(decl.definition, dict(zip(decl.parameters, values, strict=True)), functions)
            assert decl.numpy is not None
            return PRIMITIVES[decl.numpy.function](*values)
    raise AssertionError(expr)
