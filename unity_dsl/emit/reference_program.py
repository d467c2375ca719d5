"""Writes the program that a check compares with: a model on one device by its statements, without native calls.

Operators are computed by their equations, element functions by their definitions, primitives and extern operators by
their `numpy:` lines. Derivatives of element functions are the declared ones. So no `torch:` line is on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256

from ..graph.plan import Plan
from ..index.evaluation.native_calls import LITERALS, native_names
from ..index.library import Library
from ..syntax.ast import (
    Apply,
    Expr,
    FunctionDecl,
    Name,
    NativeArgument,
    NativeCall,
    NativeList,
    NativeString,
    Number,
    OperatorDecl,
    Select,
    Size,
)
from .program_text import render_model, write_down
from .templates import template

MODULE = "declared"
"""The name, in model.py, of the module of element functions and extern operators."""
_OPERATIONS = {
    "+": "np.add",
    "-": "np.subtract",
    "*": "np.multiply",
    "/": "np.true_divide",
    "//": "np.floor_divide",
    "%": "np.mod",
    "neg": "np.negative",
}
_COMPARISONS = {
    "==": "np.equal",
    "!=": "np.not_equal",
    "<": "np.less",
    "<=": "np.less_equal",
    ">": "np.greater",
    ">=": "np.greater_equal",
}


def reference_library(library: Library) -> Library:
    """The declarations without native calls; functions and extern operators call what `render_declared` writes."""
    operators = {name: _operator(library.operators[name]) for name in library.operators}
    functions = {
        name: replace(
            function, torch=NativeCall(f"{MODULE}.fn_{name}", tuple(map(Name, function.parameters))), surrogates=()
        )
        for name, function in library.functions.items()
    }
    return Library(operators, library.parallels, functions, plain=True)


def render_reference(plan: Plan, library: Library) -> dict[str, str]:
    """The files of the program of a plan that was made with the declarations of `reference_library`."""
    declared = render_declared(library)
    module = f"{MODULE}_{sha256(declared.encode()).hexdigest()[:16]}"
    return {
        "__init__.py": "from .model import Model as Model\n",
        "model.py": render_model(write_down(plan, library), imports=[f"{module} as {MODULE}"]),
        f"{module}.py": declared,
    }


def render_declared(library: Library) -> str:
    """Element functions and extern operators in NumPy, callable with tensors."""
    externs = [operator for operator in library.operators.values() if operator.extern]
    return template("declared.py.j2").render(
        functions=[_function_lines(function, library) for function in library.functions.values()],
        externs=[_extern_lines(operator) for operator in externs],
    )


def _operator(operator: OperatorDecl) -> OperatorDecl:
    if not operator.extern:
        return replace(operator, torch=None)
    return replace(operator, torch=NativeCall(f"{MODULE}.op_{operator.name}", tuple(_extern_arguments(operator))))


def _extern_arguments(operator: OperatorDecl) -> Iterator[Name | Size]:
    """The operands, attributes and sizes that the `numpy:` line names."""
    assert operator.numpy is not None
    yield from (Name(name) for name in sorted(native_names(operator.numpy) - LITERALS.keys()))
    yield from sorted(dict.fromkeys(_sizes(operator.numpy)), key=lambda size: size.name)


def _sizes(argument: NativeArgument) -> Iterator[Size]:
    match argument:
        case Size():
            yield argument
        case NativeList(items):
            for item in items:
                yield from _sizes(item)
        case NativeCall(arguments=arguments, keywords=keywords):
            for part in (*arguments, *(value for _, value in keywords)):
                yield from _sizes(part)


# ---------------------------------------------------------------------------------------------- NumPy text


def _function_lines(function: FunctionDecl, library: Library) -> dict[str, object]:
    """The text of a function's value and of its derivative with respect to every parameter."""
    derivatives = dict(function.derivatives)
    value = function.definition
    if value is not None:
        text = _term(value, library)
    else:
        assert function.numpy is not None
        text = _call(function.numpy)
    slopes = [_term(derivatives[parameter], library) for parameter in function.parameters]
    parameters = ", ".join(f"v_{parameter}" for parameter in function.parameters)
    return {"name": function.name, "parameters": parameters, "value": text, "slopes": slopes}


def _extern_lines(operator: OperatorDecl) -> dict[str, str]:
    assert operator.numpy is not None
    parameters = ", ".join(map(_argument, _extern_arguments(operator)))
    return {"name": operator.name, "parameters": parameters, "value": _call(operator.numpy)}


def _term(expr: Expr, library: Library) -> str:
    match expr:
        case Number(value):
            return f"float({str(value)!r})"
        case Name(name):
            return f"v_{name}"
        case Select(condition, then, otherwise):
            parts = [_term(part, library) for part in (condition, then, otherwise)]
            return f"np.where({parts[0]} != 0, {parts[1]}, {parts[2]})"
        case Apply(function, arguments):
            text = ", ".join(_term(argument, library) for argument in arguments)
            if function in _COMPARISONS:
                return f"np.multiply(1.0, {_COMPARISONS[function]}({text}))"
            return f"{_OPERATIONS.get(function, f'_{function}')}({text})"
    raise TypeError(f"{type(expr).__name__} in the definition of a function")


def _call(call: NativeCall) -> str:
    parts = [_argument(argument) for argument in call.arguments]
    parts += [f"{key}={_argument(argument)}" for key, argument in call.keywords]
    return f"{'erf' if call.function == 'math.erf' else call.function}({', '.join(parts)})"


def _argument(argument: NativeArgument) -> str:
    match argument:
        case Number(value):
            return f"float({str(value)!r})" if isinstance(value, float) else str(value)
        case Name(name):
            return name if name in LITERALS else f"v_{name}"
        case Size(name):
            return f"s_{name}"
        case NativeString(text):
            return repr(text)
        case NativeList(items):
            return f"[{', '.join(map(_argument, items))}]"
        case NativeCall():
            return _call(argument)
