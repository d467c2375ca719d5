"""Operators of torch, as they are left by a functional export, in terms of the library's."""

from __future__ import annotations

from functools import partial
from math import sqrt

import numpy as np
import torch
from torch import Tensor

from .translation import Entry, Prepared, Translation, Unsupported, filled, handles
from .views import Value, View, whole

UNARY = {
    "relu": "relu",
    "silu": "silu",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "exp": "exp",
    "log": "log",
    "neg": "neg",
    "abs": "abs",
    "rsqrt": "rsqrt",
    "sqrt": "sqrt",
    "softplus": "softplus",
    "square": "square",
    "detach": "stop",
}
BINARY = {"add": "add", "sub": "sub", "mul": "mul", "div": "div", "maximum": "maximum", "minimum": "minimum"}


def _unary(walk: Translation, name: str, view: View, **settings: object) -> View:
    """On the value as it is, whose arrangement the result has."""
    result = Value(view.value.shape)
    walk.add(name, (View(view.value, view.base, view.base),), (result,), settings)
    return View(result, view.base, view.dims)


def _elementwise(ours: str, walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    return _unary(walk, ours, walk.view(args[0]))


for _theirs, _ours in UNARY.items():
    handles(f"{_theirs}.default")(partial(_elementwise, _ours))


@handles("gelu.default")
def _gelu(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    return _unary(walk, "gelu_tanh" if named.get("approximate") == "tanh" else "gelu", walk.view(args[0]))


@handles("pow.Tensor_Scalar")
def _power(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    if args[1] == 2:
        return _unary(walk, "square", walk.view(args[0]))
    return _unary(walk, "power", walk.view(args[0]), exponent=args[1])


# ---------------------------------------------------------------------------------------- two operands


def _two(ours: str, walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    if named.get("alpha", 1) != 1:
        raise Unsupported(f"alpha={named['alpha']}")
    first, second = args[:2]
    for one, other, turned in ((first, second, False), (second, first, True)):
        number = _as_number(other)
        if number is not None and isinstance(one, View):
            return _with_number(walk, ours, one, number, turned=turned)
    return binary(walk, ours, walk.view(first), walk.view(second))


for _theirs, _ours in BINARY.items():
    handles(f"{_theirs}.Tensor", f"{_theirs}.default", f"{_theirs}.Scalar")(partial(_two, _ours))


def _as_number(entry: Entry) -> float | None:
    if isinstance(entry, int | float) and not isinstance(entry, bool):
        return entry
    if isinstance(entry, Tensor) and entry.numel() == 1 and entry.is_floating_point():
        return float(entry)
    return None


def _with_number(walk: Translation, name: str, view: View, number: float, *, turned: bool) -> View:
    """A tensor and a number; `turned`: the number comes first."""
    if name == "add" or (name == "sub" and not turned):
        by = number if name == "add" else -number
        return view if by == 0 else _unary(walk, "shift", view, by=by)
    if name == "sub":
        return _unary(walk, "shift", _unary(walk, "neg", view), by=number)
    if name == "mul" or (name == "div" and not turned):
        factor = number if name == "mul" else 1 / number
        return view if factor == 1 else _unary(walk, "scale", view, factor=factor)
    if name == "div":
        inverse = _unary(walk, "power", view, exponent=-1)
        return inverse if number == 1 else _unary(walk, "scale", inverse, factor=number)
    raise Unsupported(f"{name} with a number")


def binary(walk: Translation, name: str, first: View, second: View) -> View:
    """Of two tensors, one of which may be repeated. Two in the same arrangement are read as they are."""
    if arrangement(first) == arrangement(second) and not first.repeated:
        result = Value(first.value.shape)
        views = (View(first.value, first.base, first.base), View(second.value, second.base, second.base))
        walk.add(name, views, (result,), {})
        return View(result, first.base, first.dims)
    first, second = first.without(first.repeated), second.without(second.repeated)
    shape = np.broadcast_shapes(first.shape, second.shape)
    return walk.make(name, first, second, shape=shape)


def arrangement(view: View) -> object:
    """The same for views that differ in nothing but their values."""
    numbers = {axis: number for number, axis in enumerate(axis for dim in view.base for axis in dim)}
    base = tuple(tuple((numbers[axis], axis.size) for axis in dim) for dim in view.base)
    return base, tuple(tuple((numbers.get(axis, -1), axis.size) for axis in dim) for dim in view.dims)


# ---------------------------------------------------------------------------------------- products


@handles("linear.default")
def _linear(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    bias = args[2] if len(args) > 2 else named.get("bias")
    return linear(walk, walk.view(args[0]), walk.view(args[1]), None if bias is None else walk.view(bias))


@handles("addmm.default")
def _addmm(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    bias, x, weight = map(walk.view, args[:3])
    return linear(walk, x, weight.permuted((1, 0)), bias)


@handles("matmul.default", "bmm.default", "mm.default")
def _matmul(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, y = map(walk.view, args[:2])
    if len(y.dims) == 2:
        return linear(walk, x, y.permuted((1, 0)), None)
    if x.shape[:-2] != y.shape[:-2]:
        raise Unsupported(f"leading sizes {x.shape[:-2]} and {y.shape[:-2]}")
    return walk.make("matmul", x, y, shape=(*x.shape[:-1], y.shape[-1]))


def linear(walk: Translation, x: View, weight: View, bias: View | None) -> View:
    """Along the last dimension. Leading ones that are grouped are taken apart, and grouped again in the result."""
    given = ungrouped(x)
    operands = (given, weight) if bias is None else (given, weight, bias)
    made = walk.make("linear" if bias is None else "linear_bias", *operands, shape=(*given.shape[:-1], weight.shape[0]))
    return made.reshaped((*x.shape[:-1], weight.shape[0]))


def ungrouped(view: View) -> View:
    """The view with leading dimensions that are groups of axes taken apart: as in its value, if they are these."""
    if all(len(dim) < 2 for dim in view.dims[:-1]):
        return view
    axes = [axis for dim in view.dims[:-1] for axis in dim]
    own = [axis for dim in view.base[:-1] for axis in dim]
    return view.arranged((*(view.base[:-1] if axes == own else ((axis,) for axis in axes)), view.dims[-1]))


@handles("embedding.default")
def _embedding(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    table, ids = walk.view(args[0]), args[1]
    padding = args[2] if len(args) > 2 else named.get("padding_idx", -1)
    rows = table.shape[0]
    if isinstance(ids, Tensor):
        lead = tuple(ids.shape)
        flat = (ids[:1] if ids.dim() > 1 and bool((ids == ids[:1]).all()) else ids).reshape(-1)
        if padding < 0 and len(flat) and bool((flat == flat[0] + torch.arange(len(flat))).all()):
            found = _rows(walk, table, int(flat[0]), len(flat))
            if len(flat) == ids.numel():
                return found.reshaped((*lead, table.shape[1]))
            return found.arranged([*[()] * (len(lead) - 1), *found.dims]).expanded((*lead, table.shape[1]))
        if padding < 0 and len(flat) and bool((flat == flat[0]).all()):
            row = _rows(walk, table, int(flat[0]), 1)
            return row.arranged([() for _ in lead] + [row.dims[1]]).expanded((*lead, table.shape[1]))
        operand = whole(walk.as_buffer(ids))
        operand.value.bound = rows
    else:
        operand = whole(walk.as_input(ids, rows))
    made = walk.make("embedding", operand, table, shape=(*operand.shape, table.shape[1]))
    if padding < 0:
        return made
    # The gradient of the padding's row is 0.
    kept = walk.prepare("kept", ids.example.ne(padding), "torch.ne", ids, padding)
    mask = whole(walk.as_input(kept, 2))
    mask = mask.arranged((*mask.dims, ()))
    return walk.make("choose", mask, made, _unary(walk, "stop", made), shape=made.shape)


def _rows(walk: Translation, table: View, first: int, count: int) -> View:
    if first == 0 and count == table.shape[0]:
        return table
    return walk.make("slice", table, shape=(count, table.shape[1]), dim=0, start=first, stop=first + count)


@handles("conv2d.default", "conv1d.default")
def _convolution(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, weight, bias, stride, pad, dilation, groups = filled(args, (None, None, None, [1], [0], [1], 1))
    x, weight = walk.view(x), walk.view(weight)
    rank = len(x.dims) - 2
    stride, pad, dilation = (list(one) * rank if len(one) == 1 else list(one) for one in (stride, pad, dilation))
    if len({*stride}) > 1 or len({*dilation}) > 1:
        raise Unsupported(f"stride {stride}, dilation {dilation}")
    sizes = [
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, k, s, p, d in zip(x.shape[2:], weight.shape[2:], stride, pad, dilation, strict=True)
    ]
    pads = {"pad": pad[0]} if rank == 1 else {"pad_h": pad[0], "pad_w": pad[1]}
    settings = {"stride": stride[0], **pads, "dilation": dilation[0], "groups": groups}
    usual = {"stride": 1, "pad": 0, "pad_h": 0, "pad_w": 0, "dilation": 1, "groups": 1}
    settings = {key: value for key, value in settings.items() if value != usual[key]}
    shape = (x.shape[0], weight.shape[0], *sizes)
    made = walk.make(f"conv{rank}d", x, weight, shape=shape, **settings)
    return made if bias is None else _with_channels(walk, made, walk.view(bias))


@handles("conv_transpose2d.input")
def _transposed_convolution(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, weight, bias, stride, pad, more, groups, dilation = filled(
        args, (None, None, None, [1, 1], [0, 0], [0, 0], 1, [1, 1])
    )
    x, weight = walk.view(x), walk.view(weight)
    if len({*stride}) > 1 or len({*dilation}) > 1:
        raise Unsupported(f"stride {stride}, dilation {dilation}")
    sizes = [
        (size - 1) * stride[0] - 2 * p + dilation[0] * (k - 1) + m + 1
        for size, k, p, m in zip(x.shape[2:], weight.shape[2:], pad, more, strict=True)
    ]
    given = {"stride": stride[0], "pad_h": pad[0], "pad_w": pad[1], "output_pad_h": more[0], "output_pad_w": more[1]}
    given |= {"dilation": dilation[0], "groups": groups}
    settings = {key: value for key, value in given.items() if value != (1 if key in _ONES else 0)}
    shape = (x.shape[0], weight.shape[1] * groups, *sizes)
    made = walk.make("conv_transpose2d", x, weight, shape=shape, **settings)
    return made if bias is None else _with_channels(walk, made, walk.view(bias))


_ONES = {"stride", "dilation", "groups"}


def _with_channels(walk: Translation, made: View, bias: View) -> View:
    """What a convolution makes, with a number added to each channel."""
    spread = bias.arranged((bias.dims[0], *[()] * (len(made.dims) - 2)))
    return walk.make("add", made, spread, shape=made.shape)


# ---------------------------------------------------------------------------------------- attention


@handles("scaled_dot_product_attention.default")
def _attention(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    q, key, value, mask, dropout, causal = filled(args, (None, None, None, None, 0.0, False))
    mask, dropout, causal = (
        named.get("attn_mask", mask),
        named.get("dropout_p", dropout),
        named.get("is_causal", causal),
    )
    q, key, value = map(walk.view, (q, key, value))
    if len(q.dims) != 4:
        raise Unsupported(f"{len(q.dims)} dimensions")
    width = q.shape[-1]
    scale = named.get("scale") or 1 / sqrt(width)
    if abs(scale * sqrt(width) - 1) > 1e-6:
        q = _unary(walk, "scale", q, factor=scale * sqrt(width))
    if dropout:
        return _written_attention(walk, (q, key, value), mask, dropout, causal=causal)
    key, value = key.without(key.repeated), value.without(value.repeated)
    shape = (*q.shape[:-1], value.shape[-1])
    name, operands = "causal_attention" if causal else "full_attention", [q, key, value]
    if mask is not None:
        known = _known_mask(mask, q.shape[2], key.shape[2])
        if known is None:
            operands.append(_mask(walk, mask, q.shape[0]))
        name = known or "masked_attention"
    return walk.make(name, *operands, shape=shape)


def _written_attention(
    walk: Translation, given: tuple[View, View, View], mask: Entry, dropout: float, *, causal: bool
) -> View:
    """Attention whose probabilities are dropped, as products and a softmax; queries are scaled already."""
    q, key, value = given
    known = "causal_attention" if causal else "full_attention" if mask is None else None
    known = known or _known_mask(mask, q.shape[2], key.shape[2])
    if known is None or key.repeated or value.repeated:
        raise Unsupported("dropout with a mask, or with keys that heads share")
    scaled = _unary(walk, "scale", q, factor=1 / sqrt(q.shape[-1]))
    scores = walk.make("matmul", scaled, key.permuted((0, 1, 3, 2)), shape=(*q.shape[:-1], key.shape[2]))
    scores = walk.make("causal_mask", scores, shape=scores.shape) if known == "causal_attention" else scores
    kept = _unary(walk, "dropout", walk.make("softmax", scores, shape=scores.shape), p=dropout)
    return walk.make("matmul", kept, value, shape=(*q.shape[:-1], value.shape[-1]))


def _known_mask(mask: Entry, rows: int, columns: int) -> str | None:
    """The operator that a constant mask stands for."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        return None
    if bool(mask.all()):
        return "full_attention"
    past = torch.ones(rows, columns, dtype=torch.bool).tril()
    return "causal_attention" if bool((mask == past).all()) else None


def _mask(walk: Translation, mask: Entry, batch: int) -> View:
    """A mask of booleans, one for all heads, as an operand of two values."""
    given = mask.example if isinstance(mask, Prepared) else mask
    if not isinstance(given, Tensor) or given.dtype != torch.bool or (given.dim() == 4 and given.shape[1] != 1):
        raise Unsupported("a mask that is added, or one of its own for every head")
    if isinstance(mask, Tensor):
        return whole(walk.as_buffer(mask.expand(batch, 1, *mask.shape[-2:])[:, 0].long()))
    part = walk.prepare("mask", given.select(1, 0), "torch.select", mask, 1, 0)
    return whole(walk.as_input(part, 2))


# ---------------------------------------------------------------------------------------- norms, losses


@handles("layer_norm.default")
def _layer_norm(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, sizes, gain, bias, eps = filled(args, (None, None, None, None, 1e-5))
    if len(sizes) != 1:
        raise Unsupported("several dimensions")
    x = walk.view(x)
    if gain is None or bias is None:
        made = _normed(walk, x, eps)
        made = made if gain is None else binary(walk, "mul", made, walk.view(gain))
        return made if bias is None else binary(walk, "add", made, walk.view(bias))
    return walk.make("layer_norm", x, walk.view(gain), walk.view(bias), shape=x.shape, eps=eps)


def _normed(walk: Translation, x: View, eps: float) -> View:
    """Less its mean along the last dimension, and divided by the deviation that is left."""

    def mean(view: View) -> View:
        whole_one = walk.whole_view(view)
        kept = " ".join(map(str, range(len(view.dims) - 1)))
        made = walk.make("reduce_mean", whole_one, shape=view.shape[:-1], kept=kept)
        return made.arranged((*made.dims, ()))

    centred = binary(walk, "sub", x, mean(x))
    variance = _unary(walk, "shift", mean(_unary(walk, "square", centred)), by=eps)
    return binary(walk, "mul", centred, _unary(walk, "rsqrt", variance))


@handles("_native_batch_norm_legit_functional.default")
def _batch_norm(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, gain, bias, mean, variance = map(walk.view, args[:5])
    _, momentum, eps = args[5:8]
    results = Value(x.shape), Value(mean.shape), Value(variance.shape)
    walk.add("batch_norm", (x, gain, bias, mean, variance), results, {"momentum": momentum, "eps": eps})
    made, new_mean, new_variance = map(whole, results)
    return [made, None, None, new_mean, new_variance]


@handles("group_norm.default")
def _group_norm(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, groups, gain, bias, eps = filled(args, (None, None, None, None, 1e-5))
    if gain is None or bias is None:
        raise Unsupported("no gain or no bias")
    x = walk.view(x)
    return walk.make("group_norm", x, walk.view(gain), walk.view(bias), shape=x.shape, groups=groups, eps=eps)


@handles("masked_fill.Scalar")
def _masked_fill(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, mask, value = walk.view(args[0]), args[1], args[2]
    if isinstance(mask, Tensor) and value == float("-inf") and len(x.dims) > 1:
        if _known_mask(~mask, *x.shape[-2:]) == "causal_attention":
            return walk.make("causal_mask", x, shape=x.shape)
    if not isinstance(mask, Prepared):
        raise Unsupported("a mask that is a table")
    given = whole(walk.as_input(mask, 2))
    return walk.make("masked_fill", x, given, shape=x.shape, value=value)


@handles("native_dropout.default")
def _dropout(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    view = walk.view(args[0])
    return [view if args[1] == 0 else _unary(walk, "dropout", view, p=args[1]), None]


@handles("dropout.default")
def _plain_dropout(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    view = walk.view(args[0])
    return view if args[1] == 0 else _unary(walk, "dropout", view, p=args[1])


@handles("softmax.int", "_softmax.default", "log_softmax.int", "_log_softmax.default")
def _softmax(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    assert walk.node is not None
    view, dim = walk.view(args[0]), args[1] % len(walk.view(args[0]).dims)
    order = [*(place for place in range(len(view.dims)) if place != dim), dim]
    turned = view.permuted(order)
    name = "log_softmax" if "log" in str(walk.node.target) else "softmax"
    made = walk.make(name, turned, shape=turned.shape)
    return made.permuted([order.index(place) for place in range(len(order))])


@handles("cross_entropy_loss.default")
def _cross_entropy(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, target, weight, reduction, ignored, smoothing = filled(args, (None, None, None, 1, -100, 0.0))
    if weight is not None or reduction != 1 or smoothing:
        raise Unsupported("class weights, another reduction or label smoothing")
    if not isinstance(target, Prepared):
        raise Unsupported("a target that is computed")
    x = walk.view(x)
    if len(x.dims) > 2:
        x = x.permuted((0, *range(2, len(x.dims)), 1))
    classes, kept = x.shape[-1], target.example != ignored
    x = ungrouped(x)
    shape = [-1, *x.shape[1:-1]]
    if bool(kept.all()):
        given = _in_shape(walk, target, shape)
        return walk.make("cross_entropy", x, whole(walk.as_input(given, classes)), shape=())
    lost = walk.prepare("ignored", ~kept, "torch.eq", target, ignored)
    clean = walk.prepare("target", target.example.masked_fill(~kept, 0), "torch.masked_fill", target, lost, 0)
    counted = walk.prepare("counted", kept, "torch.ne", target, ignored)
    parts = [(_in_shape(walk, clean, shape), classes), (_in_shape(walk, counted, shape), 2)]
    return walk.make("masked_cross_entropy", x, *(whole(walk.as_input(*part)) for part in parts), shape=())


def _in_shape(walk: Translation, entry: Prepared, shape: list[int]) -> Prepared:
    """An integer tensor in the shape in which it is read, whatever shapes it had on the way."""
    while entry.call == "torch.reshape" and isinstance(entry.args[0], Prepared):
        entry = entry.args[0]
    found = entry.example.reshape(shape)
    if found.shape == entry.example.shape:
        return entry
    name = entry.name if entry.call and not entry.call.startswith("torch.ops") else "target"
    return walk.prepare(name, found, "torch.reshape", entry, shape)


@handles("binary_cross_entropy_with_logits.default")
def _binary_cross_entropy(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, target, weight, positive, reduction = filled(args, (None, None, None, None, 1))
    if weight is not None or positive is not None or reduction != 1:
        raise Unsupported("weights, or another reduction")
    return walk.make("binary_cross_entropy_with_logits", walk.view(x), walk.view(target), shape=())


@handles("mse_loss.default")
def _mse(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    if filled(args, (None, None, 1))[2] != 1:
        raise Unsupported("another reduction")
    return walk.make("mse", *map(walk.view, args[:2]), shape=())
