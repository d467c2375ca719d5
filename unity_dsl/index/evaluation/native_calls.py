"""The allowlist of native functions, keywords and strings in `torch:` and `numpy:` lines, and the check against it.

In the `torch:` line of an operator with an `eval` clause, the name `training` says whether it runs in training. A line
that does not use it is for training alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...syntax.ast import Name, NativeArgument, NativeCall, NativeList, NativeSteps, NativeString, Number, Size
from ...syntax.diagnostic import fail, suggest
from ...syntax.rational import plain_number

_FUNCTIONAL = """
    adaptive_avg_pool2d avg_pool1d avg_pool2d batch_norm binary_cross_entropy binary_cross_entropy_with_logits
    conv1d conv2d conv_transpose1d conv_transpose2d cross_entropy elu embedding embedding_bag gelu group_norm hardtanh
    huber_loss l1_loss layer_norm leaky_relu linear log_softmax max_pool1d max_pool2d mse_loss nll_loss one_hot pad
    rms_norm scaled_dot_product_attention silu smooth_l1_loss softplus
"""
_TORCH = """
    abs acos acosh add amax amin argsort asin asinh atan atanh bmm cat ceil clamp clone cos cosh cumsum detach div erf
    exp exp2 expm1 flip floor gather log log10 log1p log2 logsumexp masked_fill matmul maximum mean minimum mul narrow
    ne neg permute pow prod relu reshape roll round rsqrt scatter_add select sigmoid sign sin sinh softmax sort sqrt
    square sub sum tan tanh topk transpose trunc unsqueeze where zeros_like
"""
TORCH_CALLS = frozenset({f"F.{name}" for name in _FUNCTIONAL.split()} | {f"torch.{name}" for name in _TORCH.split()})
"""Functions of tensors and numbers, pure except for those in `IN_PLACE`. `F` is torch.nn.functional."""
IN_PLACE: Mapping[str, tuple[int, ...]] = {"F.batch_norm": (1, 2)}
"""The positions of the arguments that a function changes in place, which must be copies."""

STRINGS: Mapping[str, tuple[str, ...]] = {
    "approximate": ("none", "tanh"),
    "mode": ("circular", "constant", "max", "mean", "reflect", "replicate", "sum"),
    "padding": ("same", "valid"),
    "reduction": ("mean", "none", "sum"),
    "rounding_mode": ("floor", "trunc"),
}
"""The strings that native calls may be given, by keyword. Trying a call shows which of them its function takes."""
REFUSED_KEYWORDS = frozenset({"out", "inplace", "generator", "where"})
"""Keywords with which a function would change an operand, or depend on more than its operands."""

RESULT_CALLS = frozenset(
    {"torch.exp", "torch.relu", "torch.rsqrt", "torch.sigmoid", "torch.softmax", "torch.sqrt", "torch.tanh"}
)
"""Functions that save their result for the backward pass, and no operand."""

NUMPY_CALLS: Mapping[str, Callable[..., npt.NDArray[Any]]] = {
    "math.erf": np.vectorize(math.erf, otypes=[np.float64]),
    "np.abs": np.abs,
    "np.arccos": np.arccos,
    "np.arccosh": np.arccosh,
    "np.arcsin": np.arcsin,
    "np.arcsinh": np.arcsinh,
    "np.arctan": np.arctan,
    "np.arctanh": np.arctanh,
    "np.ceil": np.ceil,
    "np.cos": np.cos,
    "np.cosh": np.cosh,
    "np.exp": np.exp,
    "np.exp2": np.exp2,
    "np.expm1": np.expm1,
    "np.floor": np.floor,
    "np.log": np.log,
    "np.log10": np.log10,
    "np.log1p": np.log1p,
    "np.log2": np.log2,
    "np.maximum": np.maximum,
    "np.minimum": np.minimum,
    "np.power": np.power,
    "np.reciprocal": np.reciprocal,
    "np.sign": np.sign,
    "np.sin": np.sin,
    "np.sinh": np.sinh,
    "np.sqrt": np.sqrt,
    "np.tan": np.tan,
    "np.tanh": np.tanh,
    "np.trunc": np.trunc,
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
"""The calls allowed in an extern operator's `numpy:` line.

np.lexsort sorts along the last axis; equal elements stay in order.
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


def check_steps(steps: NativeSteps, names: Collection[str], sizes: Collection[str], outputs: Collection[str]) -> None:
    """Checks each call of a `torch:` block with `check_native`. The block must bind every output.

    Raises E105 and E109.
    """
    known = list(names)
    copies: list[str] = []
    for name, call in steps.steps:
        if name in known or name in sizes:
            raise fail("E105", f"`{name}` has a meaning already", call.span, help="bind the call to another name")
        check_native(call, TORCH_CALLS, known, sizes, copies)
        known.append(name)
        if call.function == "torch.clone":
            copies.append(name)
    for output in outputs:
        if output not in known:
            raise fail("E109", f"no line of `torch:` gives `{output}`", steps.span, help=f"write `{output} = …`")


def check_native(
    call: NativeCall,
    allowed: Collection[str],
    names: Collection[str],
    sizes: Collection[str],
    copies: Collection[str] = (),
) -> None:
    """Checks that functions are on the list, names among `names`, and `|size|` among `sizes`.

    Tensors changed in place must be among `copies`. Raises E109.
    """
    if call.function not in allowed:
        help = suggest(call.function, allowed)
        raise fail("E109", f"`{call.function}` is not on the list of native functions", call.span, help=help)
    for place in IN_PLACE.get(call.function, ()):
        changed = call.arguments[place] if place < len(call.arguments) else None
        if not isinstance(changed, Name) or changed.name not in copies:
            message = f"`{call.function}` changes its argument {place + 1} in place"
            help = "give it a copy: `copy = torch.clone(x)` on a line above, in a `torch:` block"
            raise fail("E109", message, call.span if changed is None else changed.span or call.span, help=help)
    for argument in call.arguments:
        _check_argument(argument, allowed, names, sizes)
    for keyword, argument in call.keywords:
        if keyword in REFUSED_KEYWORDS:
            help = "a native call computes a new tensor from its operands, all of it, and changes none"
            raise fail(
                "E109", f"`{keyword}` cannot be given to `{call.function}`", argument.span or call.span, help=help
            )
        if isinstance(argument, NativeString):
            _check_string(argument, STRINGS.get(keyword, ()))
        else:
            _check_argument(argument, allowed, names, sizes)


def _check_string(argument: NativeString, allowed: Collection[str]) -> None:
    """Checks that a string argument is on the list. Raises E109."""
    if argument.value not in allowed:
        help = suggest(argument.value, allowed) or ", ".join(f'`"{value}"`' for value in allowed)
        message = f'`"{argument.value}"` is not on the list of strings'
        raise fail("E109", message, argument.span, help=help or "no string can be given here")


def evaluate_native(call: NativeCall, bound: Mapping[str, Any]) -> Any:
    """Evaluates a checked `numpy:` line of an element function at these values of its names."""
    return evaluate_array(call, bound, {})


def native_names(argument: NativeArgument | NativeSteps) -> set[str]:
    """The operands, attributes and earlier results that a native lowering names."""
    match argument:
        case NativeSteps(steps):
            return {name for _, call in steps for name in native_names(call)}
        case NativeCall(arguments=positional, keywords=keywords):
            parts: tuple[NativeArgument, ...] = (*positional, *(value for _, value in keywords))
        case NativeList(items):
            parts = items
        case Name(name):
            return {name}
        case _:
            return set()
    return {name for part in parts for name in native_names(part)}


def native_functions(argument: NativeArgument | NativeSteps) -> set[str]:
    """The functions that a native lowering calls, including inner calls."""
    match argument:
        case NativeSteps(steps):
            return set().union(*(native_functions(call) for _, call in steps))
        case NativeCall(function=function, arguments=arguments, keywords=keywords):
            parts = (*arguments, *(value for _, value in keywords))
            return {function}.union(*map(native_functions, parts))
        case NativeList(items):
            return set().union(*map(native_functions, items))
    return set()


def evaluate_array(call: NativeCall, bound: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
    """Evaluates a checked `numpy:` line at these values of its names, and these lengths of axes."""

    def value(argument: NativeArgument) -> Any:
        match argument:
            case Number(number):
                return plain_number(number)
            case Name(name):
                return LITERALS[name] if name in LITERALS else bound[name]
            case Size(name):
                return sizes[name]
            case NativeString(text):
                return text
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
        case NativeString():
            _check_string(argument, sorted({value for values in STRINGS.values() for value in values}))
        case Name(name) if name not in names and name not in LITERALS:
            help = suggest(name, names)
            raise fail("E109", f"`{name}` is neither an operand nor an attribute", argument.span, help=help)
        case Size(name) if name not in sizes:
            help = suggest(name, sizes)
            raise fail("E109", f"`{name}` is no dimension of this declaration", argument.span, help=help)
        case Name() | Size() | Number():
            return


TRAINING = "training"


def asks_for_training(native: NativeCall | NativeSteps) -> bool:
    """Whether a native lowering uses the name `training`."""
    return TRAINING in native_names(native)


def changed_in_place(native: NativeCall | NativeSteps | None) -> frozenset[str]:
    """The names that later calls of a native lowering change in place. No gradient flows through them."""
    if not isinstance(native, NativeSteps):
        return frozenset()
    changed = (call.arguments[place] for _, call in native.steps for place in IN_PLACE.get(call.function, ()))
    return frozenset(argument.name for argument in changed if isinstance(argument, Name))
