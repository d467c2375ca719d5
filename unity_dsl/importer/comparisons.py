"""Handlers of comparisons, as tensors of zeros and ones, and of functions composed of other operators."""

from __future__ import annotations

from math import isinf, log

from torch import Tensor

from .operators import as_floats, binary, one_minus
from .tensor_parts import part_of, reduced
from .translation import Entry, Translation, handles, unary
from .views import View


@handles(*(f"{word}.{kind}" for word in ("gt", "lt", "ge", "le") for kind in ("Scalar", "Tensor")))
def _ordered(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """1 where the order holds, else 0. No gradient passes."""
    assert walk.node is not None
    word = str(walk.node.target).split(".")[1]
    less = word in ("lt", "ge")
    x, bound = (as_floats(walk, entry) for entry in args)
    number = _number(bound)
    view = walk.view(x)
    if number is None:
        view, number = binary(walk, "sub", view, walk.view(bound)), 0.0
    made = _above(walk, unary(walk, "neg", view), -number) if less else _above(walk, view, number)
    return one_minus(walk, made) if word in ("ge", "le") else made


@handles("eq.Scalar", "ne.Scalar", "eq.Tensor", "ne.Tensor")
def _equal(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """Equality of integers by their one-hot encoding, of other numbers by neither being greater."""
    assert walk.node is not None
    x, other = args
    view, number = walk.view(x), _number(other)
    if view.value.bound is not None and number is not None and 0 <= number < view.value.bound:
        spread = walk.make("one_hot", view, shape=(*view.shape, view.value.bound))
        made = part_of(walk, spread, len(spread.dims) - 1, int(number), int(number) + 1)
        made = made.arranged(made.dims[:-1])
    else:
        view, other = (walk.view(as_floats(walk, x)), as_floats(walk, other))
        made = equal(walk, view, walk.view(other)) if number is None else _equal_to(walk, view, number)
    return one_minus(walk, made) if "ne" in str(walk.node.target).split(".")[1] else made


def equal(walk: Translation, x: View, y: View) -> View:
    """1 where two tensors have the same numbers."""
    return _equal_to(walk, binary(walk, "sub", x, y), 0.0)


def _equal_to(walk: Translation, x: View, number: float) -> View:
    """1 where a tensor has this number: where it is neither greater nor less."""
    both = _above(walk, x, number), _above(walk, unary(walk, "neg", x), -number)
    return one_minus(walk, binary(walk, "add", *both))


def _number(entry: Entry) -> float | None:
    """A number, given as such or as a constant of one element."""
    if isinstance(entry, Tensor) and entry.numel() == 1:
        return float(entry)
    return float(entry) if isinstance(entry, int | float) and not isinstance(entry, bool) else None


def _above(walk: Translation, view: View, bound: float) -> View:
    if isinf(bound):  # no number is above inf, all are above -inf
        none = unary(walk, "scale", view, factor=0)
        return none if bound > 0 else one_minus(walk, none)
    return unary(walk, "is_above", view, bound=bound)


@handles("bitwise_not.default", "logical_not.default")
def _inverted(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    return one_minus(walk, walk.view(args[0]))


@handles("logical_and.default", "bitwise_and.Tensor", "__and__.Tensor")
def _both(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    return binary(walk, "mul", *map(walk.view, args[:2]))


@handles("logical_or.default", "bitwise_or.Tensor", "__or__.Tensor")
def _either(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    return binary(walk, "maximum", *map(walk.view, args[:2]))


# ---------------------------------------------------------------------------------------- functions


@handles("sign.default", "sgn.default")
def _sign(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    view = walk.view(args[0])
    return binary(walk, "sub", _above(walk, view, 0), _above(walk, unary(walk, "neg", view), 0))


@handles("log1p.default")
def _log1p(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    return unary(walk, "log", unary(walk, "shift", walk.view(args[0]), by=1))


@handles("expm1.default")
def _expm1(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    return unary(walk, "shift", unary(walk, "exp", walk.view(args[0])), by=-1)


@handles("log2.default", "log10.default")
def _logarithm(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    assert walk.node is not None
    base = 2 if "log2" in str(walk.node.target) else 10
    return unary(walk, "scale", unary(walk, "log", walk.view(args[0])), factor=1 / log(base))


@handles("exp2.default")
def _exp2(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    return unary(walk, "exp", unary(walk, "scale", walk.view(args[0]), factor=log(2)))


@handles("sinh.default", "cosh.default")
def _hyperbolic(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    assert walk.node is not None
    view = walk.view(args[0])
    parts = unary(walk, "exp", view), unary(walk, "exp", unary(walk, "neg", view))
    name = "sub" if "sinh" in str(walk.node.target) else "add"
    return unary(walk, "scale", binary(walk, name, *parts), factor=0.5)


@handles("amin.default")
def _least(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    view = walk.view(args[0])
    dims = args[1] if len(args) > 1 and args[1] not in (None, []) else range(len(view.dims))
    keep = bool(args[2] if len(args) > 2 else named.get("keepdim", False))
    return unary(walk, "neg", reduced(walk, "reduce_max", unary(walk, "neg", view), dims, keep=keep))
