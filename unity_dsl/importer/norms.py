"""Handlers of norms and other statistics of a tensor along its dimensions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

import torch

from .operators import binary
from .selections import extremes
from .tensor_parts import reduced
from .translation import Entry, Translation, Unsupported, filled, handles, unary
from .views import Value, View, whole


@handles("layer_norm.default")
def _layer_norm(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, sizes, gain, bias, eps = filled(args, (None, None, None, None, 1e-5))
    x = walk.view(x)
    gain, bias = (None if part is None else walk.view(part) for part in (gain, bias))
    given, shape = x, x.shape
    if len(sizes) > 1:  # as one dimension
        x = walk.reshaped(walk.spread(x), (*shape[: -len(sizes)], prod(sizes)))
        gain, bias = (None if part is None else walk.reshaped(part, (prod(sizes),)) for part in (gain, bias))
    if gain is not None and bias is not None:
        made = walk.make("layer_norm", x, gain, bias, shape=x.shape, eps=eps)
    else:
        made = _normed(walk, x, eps)
        made = made if gain is None else binary(walk, "mul", made, gain)
        made = made if bias is None else binary(walk, "add", made, bias)
    return made if given.shape == made.shape else made.reshaped(shape)


def _normed(walk: Translation, x: View, eps: float) -> View:
    """x minus its mean along the last dimension, divided by its standard deviation."""
    last = (len(x.dims) - 1,)
    centred = binary(walk, "sub", x, reduced(walk, "reduce_mean", x, last, keep=True))
    squares = reduced(walk, "reduce_mean", unary(walk, "square", centred), last, keep=True)
    return binary(walk, "mul", centred, unary(walk, "rsqrt", unary(walk, "shift", squares, by=eps)))


@handles("rms_norm.default")
def _rms_norm(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, sizes, gain, eps = filled(args, (None, None, None, None))
    if len(sizes) != 1:
        raise Unsupported("several dimensions")
    x, eps = walk.view(x), torch.finfo(torch.float32).eps if eps is None else eps
    if gain is not None:
        return walk.make("rms_norm", walk.spread(x), walk.view(gain), shape=x.shape, eps=eps)
    squares = reduced(walk, "reduce_mean", unary(walk, "square", x), (len(x.dims) - 1,), keep=True)
    return binary(walk, "mul", x, unary(walk, "rsqrt", unary(walk, "shift", squares, by=eps)))


@handles("_native_batch_norm_legit_functional.default")
def _batch_norm(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, gain, bias, mean, variance, _, momentum, eps = args
    made, new_mean, new_variance = _batch_normed(walk, (x, gain, bias, mean, variance), momentum, eps)
    return [made, None, None, new_mean, new_variance]


def _batch_normed(walk: Translation, given: Sequence[Entry], momentum: float, eps: float) -> list[View]:
    x, mean, variance = walk.view(given[0]), walk.view(given[3]), walk.view(given[4])
    results = Value(x.shape), Value(mean.shape), Value(variance.shape)
    operands = (x, *_affine(walk, x, given[1], given[2]), mean, variance)
    walk.add("batch_norm", operands, results, {"momentum": momentum, "eps": eps})
    return [whole(result) for result in results]


@handles("_native_batch_norm_legit_no_training.default")
def _fixed_batch_norm(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """Batch norm of a module in evaluation mode, by running statistics that do not change."""
    x, gain, bias, mean, variance, _, eps = args
    view = walk.view(x)

    def of_channels(entry: Entry) -> View:
        part = walk.view(entry)
        return part.arranged((*part.dims, *[()] * (len(view.dims) - 2)))

    deviation = unary(walk, "rsqrt", unary(walk, "shift", walk.view(variance), by=eps))
    made = binary(walk, "mul", binary(walk, "sub", view, of_channels(mean)), of_channels(deviation))
    made = made if gain is None else binary(walk, "mul", made, of_channels(gain))
    return [made if bias is None else binary(walk, "add", made, of_channels(bias)), None, None]


@handles("unity_dsl.biased_batch_norm.default")
def _biased_batch_norm(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """Batch norm with a biased running variance. The unbiased one of the operator is n / (n - 1) times as large for n
    elements of a channel.
    """
    *given, momentum, eps = args
    made, new_mean, unbiased = _batch_normed(walk, given, momentum, eps)
    variance, count = walk.view(given[4]), walk.count(prod(made.shape) // made.shape[1])
    parts = [
        walk.make("scale", unbiased, shape=variance.shape, factor=f"1 - 1 / ({count})"),
        walk.make("scale", variance, shape=variance.shape, factor=f"{1 - momentum:.12g} / ({count})"),
    ]
    return [made, new_mean, walk.make("add", *parts, shape=variance.shape)]


@handles("group_norm.default")
def _group_norm(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, groups, gain, bias, eps = filled(args, (None, None, None, None, 1e-5))
    return _in_groups(walk, walk.view(x), groups, (gain, bias), eps)


@handles("instance_norm.default")
def _instance_norm(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, gain, bias, mean, _, own, _, eps = filled(args, (None, None, None, None, None, True, 0.1, 1e-5))
    if not own or mean is not None:
        raise Unsupported("running statistics")
    return _in_groups(walk, walk.view(x), walk.view(x).shape[1], (gain, bias), eps)


def _in_groups(walk: Translation, x: View, groups: int, affine: tuple[Entry, Entry], eps: float) -> View:
    """A norm over groups of channels."""
    return walk.make("group_norm", walk.spread(x), *_affine(walk, x, *affine), shape=x.shape, groups=groups, eps=eps)


def _affine(walk: Translation, x: View, gain: Entry, bias: Entry) -> list[View]:
    """The gain and the bias of each channel. Missing ones become full tensors of ones and zeros, because torch's norms
    read an expanded weight as if it had all its elements.
    """
    found = []
    for name, part in (("ones", gain), ("zeros", bias)):
        made = walk.prepare(name, getattr(torch, name)(x.shape[1]), f"torch.{name}", [x.shape[1]])
        value = walk.as_input(made) if part is None else None
        if value is not None:
            value.constant = made.example
        found.append(walk.view(part) if value is None else whole(value))
    return found


# ---------------------------------------------------------------------------------------- statistics


@handles("var.correction", "std.correction", "var.dim", "std.dim", "var.default", "std.default")
def _variance(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    assert walk.node is not None
    of_dims = not str(walk.node.target).endswith("default")
    x, dims = walk.view(args[0]), _every(walk.view(args[0]), args[1] if of_dims and len(args) > 1 else None)
    unbiased = args[1 + of_dims] if len(args) > 1 + of_dims else True
    count, correction = prod(x.shape[dim] for dim in dims), named.get("correction", int(unbiased))
    centred = binary(walk, "sub", x, reduced(walk, "reduce_mean", x, dims, keep=True))
    keep = bool(named.get("keepdim", args[3] if len(args) > 3 else False))
    made = reduced(walk, "reduce_sum", unary(walk, "square", centred), dims, keep=keep)
    made = unary(walk, "scale", made, factor=1 / (count - correction))
    return unary(walk, "sqrt", made) if "std" in str(walk.node.target) else made


@handles("linalg_vector_norm.default", "norm.ScalarOpt_dim", "norm.Scalar")
def _length(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, order, dims, keep = filled(args, (None, 2, None, False))
    x = walk.view(x)
    dims = _every(x, dims)
    if order == 1:
        return reduced(walk, "reduce_sum", unary(walk, "abs", x), dims, keep=keep)
    if order != 2:
        raise Unsupported(f"order {order}")
    return unary(walk, "sqrt", reduced(walk, "reduce_sum", unary(walk, "square", x), dims, keep=keep))


@handles("logsumexp.default")
def _log_sum(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, dims, keep = filled(args, (None, None, False))
    x = walk.view(x)
    dims = _every(x, dims)
    most = unary(walk, "stop", reduced(walk, "reduce_max", x, dims, keep=True))
    sums = reduced(walk, "reduce_sum", unary(walk, "exp", binary(walk, "sub", x, most)), dims, keep=True)
    made = binary(walk, "add", unary(walk, "log", sums), most)
    return made if keep else made.without_dims(dims)


def _every(x: View, dims: Iterable[int] | int | None) -> list[int]:
    given = range(len(x.dims)) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
    return [dim % len(x.dims) for dim in given]


@handles("max.dim", "min.dim")
def _greatest(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """The extreme values along a dimension, and their indices if something reads these."""
    assert walk.node is not None
    x, dim, keep = filled(args, (None, None, False))
    x, is_least = walk.view(x), "min" in str(walk.node.target)
    if any(user.args[1] == 1 and user.users for user in walk.node.users):
        found = extremes(walk, x, 1, dim, largest=not is_least)
        return [view if keep else view.without_dims([dim]) for view in found]
    turned = unary(walk, "neg", x) if is_least else x
    made = reduced(walk, "reduce_max", turned, [dim], keep=keep)
    return [unary(walk, "neg", made) if is_least else made, None]


@handles("cosine_similarity.default")
def _cosine(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, y, dim, eps = filled(args, (None, None, 1, 1e-8))
    x, y = walk.view(x), walk.view(y)
    dims = [dim % max(len(x.dims), len(y.dims))]
    lengths = [reduced(walk, "reduce_sum", unary(walk, "square", part), dims, keep=False) for part in (x, y)]
    shared = reduced(walk, "reduce_sum", binary(walk, "mul", x, y), dims, keep=False)
    both = binary(walk, "mul", *(unary(walk, "sqrt", length) for length in lengths))
    return binary(walk, "div", shared, unary(walk, "clamp", both, lo=eps, hi=1e30))
