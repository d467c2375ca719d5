"""Losses."""

from __future__ import annotations

from math import prod

from torch import Tensor

from .operators import WIDE, binary, spread, unary, ungrouped
from .tensor_parts import reduced
from .translation import Entry, Prepared, Translation, Unsupported, filled, handles
from .views import View, whole


@handles("cross_entropy_loss.default")
def _cross_entropy(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, target, weight, reduction, ignored, smoothing = filled(args, (None, None, None, 1, -100, 0.0))
    if weight is not None:
        raise Unsupported("class weights")
    if isinstance(target, Tensor):
        target = walk.origins.get(id(target)) or Prepared("target", target, "torch.asarray", (target,))
    if not isinstance(target, Prepared):
        raise Unsupported("a target that is computed")
    x = walk.view(x)
    if len(x.dims) > 2:
        x = x.permuted((0, *range(2, len(x.dims)), 1))
    classes, kept = x.shape[-1], target.example != ignored
    x = ungrouped(x)
    shape = [-1, *x.shape[1:-1]]
    if bool(kept.all()):
        places = whole(walk.as_input(_in_shape(walk, target, shape), classes))
        if reduction == 0 and not smoothing:
            return _likelihoods(walk, walk.make("log_softmax", x, shape=x.shape), places)
        made = walk.make("cross_entropy", x, places, shape=())
        if smoothing:  # as much of the mean over all classes
            spread_out = reduced(
                walk, "reduce_mean", walk.make("log_softmax", x, shape=x.shape), range(len(x.dims)), keep=False
            )
            made = unary(walk, "scale", made, factor=1 - smoothing)
            made = binary(walk, "sub", made, unary(walk, "scale", spread_out, factor=smoothing))
        if reduction == 0:
            raise Unsupported("label smoothing without a reduction")
        return made if reduction == 1 else unary(walk, "scale", made, factor=walk.count(prod(x.shape[:-1])))
    if smoothing or reduction != 1:
        raise Unsupported("label smoothing, a sum or no reduction, where positions are ignored")
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


def _likelihoods(walk: Translation, logarithms: View, places: View) -> View:
    """At every position the negative logarithm of the probability at a place."""
    shape = (*places.shape, 1)
    made = walk.make("gather", logarithms, places.arranged((*places.dims, ())), shape=shape, dim=len(places.dims))
    return unary(walk, "neg", made.arranged(made.dims[:-1]))


@handles("binary_cross_entropy_with_logits.default")
def _binary_cross_entropy(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, target, weight, positive, reduction = filled(args, (None, None, None, None, 1))
    x, target = walk.view(x), walk.view(target)
    if weight is not None or positive is not None or reduction == 2:
        raise Unsupported("weights, or another reduction")
    if reduction == 0:
        return binary(walk, "sub", unary(walk, "softplus", x), binary(walk, "mul", x, target))
    return walk.make("binary_cross_entropy_with_logits", x, target, shape=())


@handles("mse_loss.default")
def _mse(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    if filled(args, (None, None, 1))[2] != 1:
        raise Unsupported("another reduction")
    return walk.make("mse", *map(walk.view, args[:2]), shape=())


@handles("l1_loss.default", "smooth_l1_loss.default", "huber_loss.default")
def _distance(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    assert walk.node is not None
    x, y, reduction, bound = filled(args, (None, None, 1, 1.0))
    if reduction != 1:
        raise Unsupported("another reduction")
    name = str(walk.node.target).removeprefix("aten.").removesuffix("_loss.default")
    settings = {} if name == "l1" else {"beta" if name == "smooth_l1" else "delta": bound}
    return walk.make(name, *(spread(walk, walk.view(part)) for part in (x, y)), shape=(), **settings)


@handles("binary_cross_entropy.default")
def _plain_binary(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, target, weight, reduction = filled(args, (None, None, None, 1))
    x, target = walk.view(x), walk.view(target)
    if weight is not None or reduction == 2:
        raise Unsupported("weights, or another reduction")
    if reduction == 1:
        return walk.make("binary_cross_entropy", x, target, shape=())
    hit = binary(walk, "mul", target, _logarithm(walk, x))
    rest = binary(walk, "mul", _remainder(walk, target), _logarithm(walk, _remainder(walk, x)))
    return unary(walk, "neg", binary(walk, "add", hit, rest))


def _logarithm(walk: Translation, x: View) -> View:
    """At least -100, as in torch."""
    return unary(walk, "clamp", unary(walk, "log", x), lo=-100, hi=WIDE)


def _remainder(walk: Translation, x: View) -> View:
    return unary(walk, "shift", unary(walk, "neg", x), by=1)


@handles("nll_loss_nd.default", "nll_loss.default", "nll_loss_forward.default")
def _negative(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """Of the logarithms of probabilities."""
    x, target, weight, reduction, ignored = filled(args, (None, None, None, 1, -100))
    if weight is not None or reduction == 2 or not isinstance(target, Prepared):
        raise Unsupported("class weights, a sum or a target that is computed")
    x = walk.view(x)
    if len(x.dims) > 2:
        x = x.permuted((0, *range(2, len(x.dims)), 1))
    if bool((target.example == ignored).any()):
        raise Unsupported("ignored positions")
    x = ungrouped(x)
    given = whole(walk.as_input(_in_shape(walk, target, [-1, *x.shape[1:-1]]), x.shape[-1]))
    return walk.make("nll", x, given, shape=()) if reduction == 1 else _likelihoods(walk, x, given)
