"""Handlers of losses."""

from __future__ import annotations

from math import prod

from torch import Tensor

from .operators import WIDE, binary, one_minus, ungrouped
from .tensor_parts import reduced
from .translation import Entry, Prepared, Translation, Unsupported, filled, handles, unary
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
        if smoothing:  # this share is the mean over all classes
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
    clean, _ = _without_ignored(walk, target, ignored)
    counted = walk.prepare("counted", kept, "torch.ne", target, ignored)
    parts = [(_in_shape(walk, clean, shape), classes), (_in_shape(walk, counted, shape), 2)]
    return walk.make("masked_cross_entropy", x, *(whole(walk.as_input(*part)) for part in parts), shape=())


def _without_ignored(walk: Translation, target: Prepared, ignored: int) -> tuple[Prepared, Prepared]:
    """The target with 0 at ignored positions, and the mask of these positions."""
    lost = walk.prepare("ignored", target.example == ignored, "torch.eq", target, ignored)
    clean = target.example.masked_fill(lost.example, 0)
    return walk.prepare("target", clean, "torch.masked_fill", target, lost, 0), lost


def _in_shape(walk: Translation, entry: Prepared, shape: list[int]) -> Prepared:
    """An integer tensor in the shape in which it is read, without the reshapes in between."""
    while entry.call == "torch.reshape" and isinstance(entry.args[0], Prepared):
        entry = entry.args[0]
    found = entry.example.reshape(shape)
    if found.shape == entry.example.shape:
        return entry
    name = entry.name if entry.call and not entry.call.startswith("torch.ops") else "target"
    return walk.prepare(name, found, "torch.reshape", entry, shape)


def _likelihoods(walk: Translation, logarithms: View, places: View) -> View:
    """The negative log-likelihood of the target at every position."""
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
    return walk.make(name, *(walk.spread(walk.view(part)) for part in (x, y)), shape=(), **settings)


@handles("binary_cross_entropy.default")
def _plain_binary(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, target, weight, reduction = filled(args, (None, None, None, 1))
    x, target = walk.view(x), walk.view(target)
    if weight is not None or reduction == 2:
        raise Unsupported("weights, or another reduction")
    if reduction == 1:
        return walk.make("binary_cross_entropy", x, target, shape=())
    hit = binary(walk, "mul", target, _logarithm(walk, x))
    rest = binary(walk, "mul", one_minus(walk, target), _logarithm(walk, one_minus(walk, x)))
    return unary(walk, "neg", binary(walk, "add", hit, rest))


def _logarithm(walk: Translation, x: View) -> View:
    """The logarithm, at least -100 as in torch."""
    return unary(walk, "clamp", unary(walk, "log", x), lo=-100, hi=WIDE)


@handles("nll_loss_nd.default", "nll_loss.default", "nll_loss_forward.default", "nll_loss2d_forward.default")
def _negative(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """Negative log-likelihood of log-probabilities."""
    assert walk.node is not None
    x, target, weight, reduction, ignored = filled(args, (None, None, None, 1, -100))
    if not isinstance(target, Prepared):
        raise Unsupported("a target that is computed")
    x = walk.view(x)
    if len(x.dims) > 2:
        x = x.permuted((0, *range(2, len(x.dims)), 1))
    x, kept = ungrouped(x), target.example != ignored
    if weight is None and reduction < 2 and bool(kept.all()):
        given = whole(walk.as_input(_in_shape(walk, target, [-1, *x.shape[1:-1]]), x.shape[-1]))
        made = walk.make("nll", x, given, shape=()) if reduction == 1 else _likelihoods(walk, x, given)
    else:
        made = _of_each(walk, x, target, weight, reduction, ignored)
    return [made, None] if "forward" in str(walk.node.target) else made


def _of_each(walk: Translation, x: View, target: Prepared, weight: Entry, reduction: int, ignored: int) -> View:
    """The negative log-likelihood of each target, times the weight of its class; their mean divides by the sum of
    weights.
    """
    clean, lost = _without_ignored(walk, target, ignored)
    shape = [-1, *x.shape[1:-1]]
    chosen = whole(walk.as_input(_in_shape(walk, clean, shape), x.shape[-1]))
    hidden = whole(walk.as_input(_in_shape(walk, lost, shape), 2))
    spread = walk.make("one_hot", chosen, shape=x.shape)
    if weight is not None:
        spread = binary(walk, "mul", spread, walk.view(weight))
    last = [len(x.dims) - 1]

    def counted(view: View) -> View:
        found = reduced(walk, "reduce_sum", view, last, keep=False)
        return walk.make("masked_fill", found, hidden, shape=found.shape, value=0)

    each = counted(unary(walk, "neg", binary(walk, "mul", x, spread)))
    if reduction == 0:
        return each
    total = reduced(walk, "reduce_sum", each, range(len(each.dims)), keep=False)
    if reduction == 2:
        return total
    return binary(walk, "div", total, reduced(walk, "reduce_sum", counted(spread), range(len(each.dims)), keep=False))


@handles("kl_div.default")
def _divergence(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """KL divergence of log-probabilities from a target, which must be positive."""
    x, target, reduction = filled(args, (None, None, 1))
    x, y = walk.view(x), walk.view(target)
    log_target = named.get("log_target", False)
    logarithm, y = (y, unary(walk, "exp", y)) if log_target else (unary(walk, "log", y), y)
    made = binary(walk, "mul", y, binary(walk, "sub", logarithm, x))
    if reduction == 0:
        return made
    return reduced(walk, "reduce_mean" if reduction == 1 else "reduce_sum", made, range(len(made.dims)), keep=False)
