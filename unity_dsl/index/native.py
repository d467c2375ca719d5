"""Native calls: what `torch:` and `numpy:` lines may name, and the check that they name nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..syntax.ast import Name, NativeArgument, NativeCall, NativeList, Number, Size
from ..syntax.diagnostic import fail, suggest

_FUNCTIONAL = """
    adaptive_avg_pool2d avg_pool1d avg_pool2d batch_norm binary_cross_entropy binary_cross_entropy_with_logits
    conv1d conv2d cross_entropy elu embedding embedding_bag gelu group_norm hardtanh huber_loss l1_loss
    layer_norm leaky_relu linear log_softmax max_pool1d max_pool2d mse_loss nll_loss one_hot pad rms_norm
    scaled_dot_product_attention silu smooth_l1_loss softplus
"""
_TORCH = """
    abs add amax amin argsort bmm cat clamp cos cumsum div erf exp expm1 flip floor gather log log1p logsumexp
    masked_fill matmul maximum mean minimum mul narrow ne neg permute pow prod relu reshape rsqrt scatter_add select
    sigmoid sign sin softmax sort sqrt square sub sum tan tanh topk transpose unsqueeze where
"""
TORCH_CALLS = frozenset({f"F.{name}" for name in _FUNCTIONAL.split()} | {f"torch.{name}" for name in _TORCH.split()})
"""Pure functions of tensors and numbers. `F` is torch.nn.functional."""

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
ARRAY_CALLS: Mapping[str, Callable[..., npt.NDArray[Any]]] = {
    **NUMPY_CALLS,
    "np.arange": np.arange,
    "np.cumsum": np.cumsum,
    "np.flip": np.flip,
    "np.lexsort": np.lexsort,
    "np.negative": np.negative,
    "np.take": np.take,
}
"""What an extern operator's `numpy:` line may call. np.lexsort sorts along the last axis, equal elements stay in order.
"""

LITERALS: Mapping[str, bool] = {"True": True, "False": False}

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
    """A checked `numpy:` line of an element function at these values of its names."""
    return evaluate_array(call, bound, {})


def native_names(argument: NativeArgument) -> set[str]:
    """The operands and attributes that a native call names."""
    match argument:
        case NativeCall(arguments=positional, keywords=keywords):
            parts: tuple[NativeArgument, ...] = (*positional, *(value for _, value in keywords))
        case NativeList(items):
            parts = items
        case Name(name):
            return {name}
        case _:
            return set()
    return {name for part in parts for name in native_names(part)}


def evaluate_array(call: NativeCall, bound: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
    """A checked `numpy:` line at these values of its names, and these lengths of axes."""

    def value(argument: NativeArgument) -> Any:
        match argument:
            case Number(number):
                return number
            case Name(name):
                return LITERALS[name] if name in LITERALS else bound[name]
            case Size(name):
                return sizes[name]
            case NativeList(items):
                return [value(item) for item in items]
            case NativeCall():
                return evaluate_array(argument, bound, sizes)

    keywords = {key: value(argument) for key, argument in call.keywords}
    return ARRAY_CALLS[call.function](*map(value, call.arguments), **keywords)


def _check_argument(
    argument: NativeArgument, allowed: Collection[str], names: Collection[str], sizes: Collection[str]
) -> None:
    match argument:
        case NativeCall():
            check_native(argument, allowed, names, sizes)
        case NativeList(items):
            for item in items:
                _check_argument(item, allowed, names, sizes)
        case Name(name) if name not in names and name not in LITERALS:
            help = suggest(name, names)
            raise fail("E109", f"`{name}` is neither an operand nor an attribute", argument.span, help=help)
        case Size(name) if name not in sizes:
            help = suggest(name, sizes)
            raise fail("E109", f"`{name}` is no dimension of this declaration", argument.span, help=help)
        case Name() | Size() | Number():
            return
