"""Native calls: what `torch:` and `numpy:` lines may name, and the check that they name nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..syntax.ast import Name, NativeArgument, NativeCall, NativeList, Number, Size
from ..syntax.diagnostic import fail, suggest

TORCH_CALLS = frozenset(
    {f"F.{name}" for name in ("cross_entropy", "embedding", "gelu", "layer_norm", "linear", "mse_loss", "silu")}
    | {f"torch.{name}" for name in ("abs", "cos", "erf", "exp", "expm1", "floor", "log", "log1p", "neg", "pow")}
    | {f"torch.{name}" for name in ("relu", "rsqrt", "sigmoid", "sign", "sin", "sqrt", "square", "tan", "tanh")}
    | {f"torch.{name}" for name in ("add", "div", "maximum", "minimum", "mul", "sub", "where")}
    | {f"torch.{name}" for name in ("amax", "amin", "logsumexp", "mean", "prod", "softmax", "sum")}
    | {f"torch.{name}" for name in ("bmm", "cat", "flip", "matmul", "narrow", "permute", "reshape", "transpose")}
)
"""Pure functions of tensors and numbers. `F` is torch.nn.functional."""

RESULT_CALLS = frozenset(
    {"torch.exp", "torch.relu", "torch.rsqrt", "torch.sigmoid", "torch.softmax", "torch.sqrt", "torch.tanh"}
)
"""Those that keep their result for the backward pass, and no operand."""

NUMPY_CALLS: Mapping[str, Callable[..., npt.NDArray[Any]]] = {
    "math.erf": np.vectorize(math.erf, otypes=[np.float64]),
    "np.abs": np.abs,
    "np.cos": np.cos,
    "np.exp": np.exp,
    "np.expm1": np.expm1,
    "np.floor": np.floor,
    "np.log": np.log,
    "np.log1p": np.log1p,
    "np.maximum": np.maximum,
    "np.minimum": np.minimum,
    "np.power": np.power,
    "np.reciprocal": np.reciprocal,
    "np.sign": np.sign,
    "np.sin": np.sin,
    "np.sqrt": np.sqrt,
    "np.tan": np.tan,
    "np.tanh": np.tanh,
}


ARITHMETIC_CALLS: Mapping[str, Callable[..., npt.NDArray[Any]]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.true_divide,
    "//": np.floor_divide,
    "%": np.mod,
    "neg": np.negative,
}
COMPARISON_CALLS: Mapping[str, Callable[..., npt.NDArray[Any]]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


def check_native(call: NativeCall, allowed: Collection[str], names: Collection[str], sizes: Collection[str]) -> None:
    """Every function called is on the list, every name is one of `names`, every `|size|` one of `sizes`.

    Raises E109.
    """
    if call.function not in allowed:
        help = suggest(call.function, allowed)
        raise fail("E109", f"`{call.function}` is not on the list of native functions", call.span, help=help)
    for argument in (*call.arguments, *(value for _, value in call.keywords)):
        _check_argument(argument, allowed, names, sizes)


def evaluate_native(call: NativeCall, bound: Mapping[str, Any]) -> Any:
    """A checked `numpy:` line at these values of its names."""
    return NUMPY_CALLS[call.function](*(_argument_value(argument, bound) for argument in call.arguments))


def _argument_value(argument: NativeArgument, bound: Mapping[str, Any]) -> Any:
    match argument:
        case Number(number):
            return number
        case Name(name):
            return bound[name]
        case NativeCall():
            return evaluate_native(argument, bound)
    raise TypeError(f"{type(argument).__name__} in a `numpy:` line")


def _check_argument(
    argument: NativeArgument, allowed: Collection[str], names: Collection[str], sizes: Collection[str]
) -> None:
    match argument:
        case NativeCall():
            check_native(argument, allowed, names, sizes)
        case NativeList(items):
            for item in items:
                _check_argument(item, allowed, names, sizes)
        case Name(name) if name not in names:
            help = suggest(name, names)
            raise fail("E109", f"`{name}` is neither an operand nor an attribute", argument.span, help=help)
        case Size(name) if name not in sizes:
            help = suggest(name, sizes)
            raise fail("E109", f"`{name}` is no dimension of this declaration", argument.span, help=help)
        case Name() | Size() | Number():
            return
