"""Scaled dot-product attention: as an operator of the library where one has its mask, else written out."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod, sqrt

import numpy as np
import torch
from torch import Tensor

from .operators import binary, one_minus
from .remembered_tensors import once_a_tensor
from .translation import Entry, Prepared, Translation, Unsupported, filled, handles, unary
from .views import View, whole

HIDDEN = -1e9
"""The score of a masked key; its exponential is 0 where any other key is kept."""
LEAST = 1e4
"""Scores that a mask lowers by at least this much count as hidden."""


@dataclass(frozen=True)
class Mask:
    """Which keys a query sees, and the `bias` that is added to scores.

    `form` is `full`, `causal` (no later key), `window` (the last `window` causal keys), `table`, where `hidden` marks
    keys that are not seen, or `seen`. The last one has a mask `seen` of [batch, queries, keys] that marks the kept
    keys.
    """

    form: str = "full"
    window: int = 0
    hidden: View | None = None
    seen: View | None = None
    bias: View | None = None


@handles("scaled_dot_product_attention.default")
def _attention(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    q, key, value, mask, dropout, causal = filled(args, (None, None, None, None, 0.0, False))
    mask, dropout = named.get("attn_mask", mask), named.get("dropout_p", dropout)
    causal = named.get("is_causal", causal)
    q, key, value = map(walk.view, (q, key, value))
    if len(q.dims) == 3:
        alone = [view.arranged((view.dims[0], (), *view.dims[1:])) for view in (q, key, value)]
        made = _attended(walk, (alone[0], alone[1], alone[2]), mask, dropout, causal=causal, scale=named.get("scale"))
        return made.arranged((made.dims[0], *made.dims[2:]))
    if len(q.dims) != 4:
        raise Unsupported(f"{len(q.dims)} dimensions")
    return _attended(walk, (q, key, value), mask, dropout, causal=causal, scale=named.get("scale"))


def _attended(
    walk: Translation, given: tuple[View, View, View], mask: Entry, dropout: float, *, causal: bool, scale: float | None
) -> View:
    q, key, value = given
    if not (_shares(key) == _shares(value) and all(view.repeated <= {*view.dims[1]} for view in (key, value))):
        key, value = walk.spread(key), walk.spread(value)
    usual = 1 / sqrt(q.shape[-1])
    factor = (scale or usual) / usual
    q = q if abs(factor - 1) < 1e-6 else unary(walk, "scale", q, factor=factor)
    known = Mask("causal") if causal else mask_of(walk, mask)
    if dropout or known.form == "table" or (known.bias is not None and not _is_each_head(known.bias, q)):
        return _written(walk, (q, key, value), known, dropout)
    key, value = key.without(key.repeated), value.without(value.repeated)
    shape = (*q.shape[:-1], value.shape[-1])
    if known.bias is not None:
        bias = known.bias.arranged(known.bias.dims[1:])
        return walk.make("biased_attention", q, key, value, bias, shape=shape)
    if known.form == "window":
        return walk.make("window_attention", q, key, value, shape=shape, window=known.window)
    if known.seen is not None:
        return walk.make("masked_attention", q, key, value, known.seen, shape=shape)
    return walk.make(f"{known.form}_attention", q, key, value, shape=shape)


def _shares(key: View) -> list[int]:
    """How many adjacent query heads share each key head, as [4]; [-1] where they are not adjacent."""
    own = [axis not in key.repeated for axis in key.dims[1]]
    shared = [axis.size for axis in key.dims[1] if axis in key.repeated]
    return shared if own == sorted(own, reverse=True) else [-1]


def _is_each_head(bias: View, q: View) -> bool:
    """Whether a bias is the same for all examples and has its own values for each head and query."""
    return not bias.dims[0] and bias.shape[1:3] == q.shape[1:3] and not bias.repeated


# ---------------------------------------------------------------------------------------- written out


def _written(walk: Translation, given: tuple[View, View, View], mask: Mask, dropout: float) -> View:
    """Attention as products and a softmax. Query heads that share keys are rows of one product."""
    q, key, value = given
    shared = prod(axis.size for axis in key.repeated)
    key, value = key.without(key.repeated), value.without(value.repeated)
    scaled = walk.make("root_scale", walk.spread(q), shape=q.shape)
    scores = _apart(_product(walk, _together(scaled, shared), key.permuted((0, 1, 3, 2))), shared)
    scores = scores if mask.bias is None else binary(walk, "add", scores, mask.bias)
    if mask.form == "causal":
        scores = walk.make("causal_mask", scores, shape=scores.shape)
    hidden = mask.hidden
    if mask.form == "window":
        hidden = walk.constant(~_in_window(q.shape[2], key.shape[2], mask.window), "hidden", 2)
    if hidden is not None:
        hidden = hidden.without(hidden.repeated)
        scores = walk.make("masked_fill", scores, hidden, shape=scores.shape, value=HIDDEN)
    weights = walk.make("softmax", scores, shape=scores.shape)
    weights = unary(walk, "dropout", weights, p=dropout) if dropout else weights
    return _apart(_product(walk, _together(weights, shared), value), shared)


def _product(walk: Translation, x: View, y: View) -> View:
    return walk.make("matmul", x, y, shape=(*x.shape[:-1], y.shape[-1]))


def _together(view: View, shared: int) -> View:
    """Query heads that share keys as rows of one head: [b, (h g), s, k] as [b, h, (g s), k]."""
    if shared == 1:
        return view
    b, heads, rows, width = view.shape
    apart = view.reshaped((b, heads // shared, shared, rows, width))
    return apart.arranged((*apart.dims[:2], apart.dims[2] + apart.dims[3], apart.dims[4]))


def _apart(view: View, shared: int) -> View:
    """The inverse of `_together`."""
    if shared == 1:
        return view
    b, heads, rows, width = view.shape
    apart = view.reshaped((b, heads, shared, rows // shared, width))
    return apart.arranged((apart.dims[0], apart.dims[1] + apart.dims[2], *apart.dims[3:]))


# ---------------------------------------------------------------------------------------- masks


def mask_of(walk: Translation, mask: Entry) -> Mask:
    """The meaning of a mask of torch's attention: booleans mark the keys that are seen, numbers are added to scores."""
    if mask is None:
        return Mask()
    given = mask.example if isinstance(mask, Prepared) else mask
    if isinstance(given, Tensor) and given.dtype != torch.bool:
        if isinstance(mask, Tensor) and (seen := _seen_of(mask)) is not None:
            return mask_of(walk, seen)
        if isinstance(mask, Prepared) and is_penalty(mask):
            return mask_of(walk, walk.prepare("seen", given > -LEAST, "torch.gt", mask, -LEAST))
    if isinstance(given, Tensor) and given.dtype == torch.bool:
        if isinstance(mask, Tensor) and (known := known_mask(mask)) is not None:
            return known
        hidden_keys = _as_mask(walk, _inverse(walk, mask), "hidden")
        # `masked_attention` has one mask for all heads, with its own values for each example, query and key.
        is_of_all_heads = given.dim() == 4 and given.shape[1] == 1 and 1 not in (given.shape[0], *given.shape[2:])
        if isinstance(mask, Tensor) or not is_of_all_heads:
            return Mask("table", hidden=hidden_keys)
        part = walk.prepare("mask", given.select(1, 0), "torch.select", mask, 1, 0)
        return Mask("seen", seen=whole(walk.as_input(part, 2)), hidden=hidden_keys)
    bias = walk.view(mask)
    if len(bias.dims) < 4:
        bias = bias.arranged([*[()] * (4 - len(bias.dims)), *bias.dims])
    return Mask("full", bias=bias.without(bias.repeated))


@once_a_tensor
def _seen_of(mask: Tensor) -> Tensor | None:
    """The keys that a numeric mask keeps; None if it adds something to their scores."""
    hidden = mask <= -LEAST
    return ~hidden if bool((hidden | (mask == 0)).all()) else None


@once_a_tensor
def known_mask(mask: Tensor) -> Mask | None:
    """The form of a constant boolean mask (full, causal or window); None for any other mask."""
    if mask.dim() < 2 or bool(mask.all()):
        return Mask() if bool(mask.all()) else None
    table = mask.reshape(-1, *mask.shape[-2:])
    if not bool((table == table[:1]).all()):
        return None
    rows, columns = mask.shape[-2:]
    if torch.equal(table[0], _in_window(rows, columns, columns + rows)):
        return Mask("causal")
    window = int(table[0].sum(-1).max())
    return Mask("window", window) if torch.equal(table[0], _in_window(rows, columns, window)) else None


def _in_window(rows: int, columns: int, window: int) -> Tensor:
    """The mask of keys that each query sees: the last `window` keys up to its own."""
    return torch.ones(rows, columns, dtype=torch.bool).tril().triu(1 - window)


_CHOOSING = (
    "masked_fill.Scalar",
    "where.ScalarOther",
    "where.ScalarSelf",
    "where.self",
    "where.Scalar",
    "masked_fill.Tensor",
)
_SAME = ("expand.default", "unsqueeze.default", "view.default", "_to_copy.default", "slice.Tensor", "clone.default")


def is_penalty(mask: Prepared) -> bool:
    """Whether a prepared tensor has only zeros and scores of masked keys for any batch."""
    name = mask.call.removeprefix("torch.ops.aten.")
    first = mask.args[0] if mask.args else None
    if name in _SAME and isinstance(first, Prepared):
        return is_penalty(first)
    if name in _CHOOSING:
        return bool(((mask.example == 0) | (mask.example <= -LEAST)).all())
    if name in ("mul.Tensor", "mul.Scalar"):
        factors = [part for part in mask.args if isinstance(part, int | float)]
        others = [part for part in mask.args if isinstance(part, Prepared)]
        wide = bool(factors) and factors[0] <= -LEAST
        return wide and len(others) == 1 and bool(((others[0].example == 0) | (others[0].example == 1)).all())
    return False


@handles("isnan.default")
def _not_a_number(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """All false, because values are finite. Exporters write this to guard a softmax whose scores may all be hidden."""
    shape = list(walk.view(args[0]).shape)
    found = torch.zeros(shape, dtype=torch.bool)
    walk.origins[id(found)] = Prepared("nowhere", found, "torch.zeros", (shape,), (("dtype", torch.bool),))
    return found


@handles("masked_fill.Scalar", "masked_fill.Tensor", "where.ScalarOther", "where.ScalarSelf", "where.self")
def _filled(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """Chooses elements of two tensors, or of a tensor and a number, by a mask."""
    assert walk.node is not None
    if "masked_fill" in str(walk.node.target):
        kept, mask, other = args
        condition = _inverse(walk, mask)
    else:
        condition, kept, other = args
    other, kept = (_as_filling(part) for part in (other, kept))
    if isinstance(kept, int | float):
        condition, kept, other = _inverse(walk, condition), other, kept
    x = walk.view(kept)
    if isinstance(condition, View):  # zeros and ones that the model computes
        return _mixed(walk, condition, x, other)
    if isinstance(condition, Tensor):
        shape = np.broadcast_shapes(tuple(condition.shape), x.shape)
        if bool(condition.all()):
            return x.expanded(shape)
        if isinstance(other, View) and other.shape == shape and not bool(condition.any()):
            return other
    if isinstance(other, int | float):
        if other <= -LEAST and isinstance(condition, Tensor) and len(x.dims) > 1:
            form = known_mask(condition)
            if form is not None and form.form == "causal" and condition.shape[-2:] == torch.Size(x.shape[-2:]):
                return walk.make("causal_mask", x, shape=x.shape)
        hidden = _as_mask(walk, _inverse(walk, condition), "hidden")
        shape = np.broadcast_shapes(x.shape, hidden.shape)
        operands = (part.without(part.repeated) for part in (x, hidden))
        return walk.make("masked_fill", *operands, shape=shape, value=other)
    views = (_as_mask(walk, condition, "mask"), x, walk.view(other))
    shape = np.broadcast_shapes(*(view.shape for view in views))
    return walk.make("choose", *(view.without(view.repeated) for view in views), shape=shape)


def _as_filling(part: Entry) -> Entry:
    """A fill value of at least HIDDEN, because modules hide scores by the least value of a type. A tensor of several
    elements is returned unchanged.
    """
    number = float(part) if isinstance(part, Tensor) and part.numel() == 1 else part
    return max(number, HIDDEN) if isinstance(number, int | float) else number


def _as_mask(walk: Translation, mask: Entry, name: str) -> View:
    return walk.constant(mask, name, 2) if isinstance(mask, Tensor) else whole(walk.as_input(mask, 2))


def _inverse(walk: Translation, mask: Entry) -> Entry:
    if isinstance(mask, Tensor):
        other = ~mask
        walk.origins[id(other)] = Prepared("inverse", other, "torch.logical_not", (mask,))
        return other
    if isinstance(mask, View):
        return one_minus(walk, mask)
    if not isinstance(mask, Prepared):
        raise Unsupported("a mask that is no tensor")
    if mask.call in ("torch.ops.aten.bitwise_not.default", "torch.ops.aten.logical_not.default"):
        return mask.args[0]
    return walk.prepare("inverse", ~mask.example, "torch.logical_not", mask)


def _mixed(walk: Translation, condition: View, x: View, other: Entry) -> View:
    """x where a mask of zeros and ones is 1, another tensor or number elsewhere."""
    kept = binary(walk, "mul", x, condition)
    if isinstance(other, int | float) and other == 0:
        return kept
    left = _inverse(walk, condition)
    if isinstance(other, int | float):
        return binary(walk, "add", kept, unary(walk, "scale", left, factor=other))
    return binary(walk, "add", kept, binary(walk, "mul", walk.view(other), left))
