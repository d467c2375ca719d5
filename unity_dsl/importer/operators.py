"""Handlers of torch operators that a functional export leaves: elementwise operators, products, dropout, softmax."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from .random_masks import with_noise
from .translation import Entry, Noise, Prepared, Translation, Unsupported, as_number, filled, handles, unary
from .views import Axis, Dim, Value, View

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
    "reciprocal": "reciprocal",
    "hardswish": "hardswish",
    "hardsigmoid": "hardsigmoid",
    "sin": "sin",
    "cos": "cos",
    "erf": "erf",
    "round": "round",
}
BINARY = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "div": "div",
    "maximum": "maximum",
    "minimum": "minimum",
    "max.other": "maximum",
    "min.other": "minimum",
}


def _elementwise(ours: str, walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    return unary(walk, ours, walk.view(args[0]))


for _theirs, _ours in UNARY.items():
    handles(f"{_theirs}.default")(partial(_elementwise, _ours))


@handles("hardtanh.default", "clamp.default", "clamp.Tensor", "relu6.default", "clamp_min.default")
def _clamped(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    assert walk.node is not None
    word = str(walk.node.target)
    lo, hi = (0.0, 6.0) if "relu6" in word else filled(args[1:], (-1.0, 1.0) if "hardtanh" in word else (None, None))
    bounds = named.get("min", lo), named.get("max", hi)
    lo, hi = (None if bound is None else as_number(bound) for bound in bounds)
    if any(bound is not None and number is None for bound, number in zip(bounds, (lo, hi), strict=True)):
        raise Unsupported("bounds that differ")
    view = walk.view(args[0])
    lo, hi = (-WIDE if lo is None else max(lo, -WIDE)), (WIDE if hi is None else min(hi, WIDE))
    if lo == 0 and hi == WIDE:
        return unary(walk, "relu", view)
    return unary(walk, "clamp", view, lo=lo, hi=hi)


WIDE = 1e30
"""A clamp bound that no element reaches."""


@handles("leaky_relu.default")
def _leaky(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    return unary(walk, "leaky_relu", walk.view(args[0]), slope=filled(args, (None, 0.01))[1])


@handles("elu.default")
def _elu(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    _, alpha, scaled, given = filled(args, (None, 1.0, 1.0, 1.0))
    if scaled != 1 or given != 1:
        raise Unsupported("scales")
    return unary(walk, "elu", walk.view(args[0]), alpha=alpha)


@handles("log_sigmoid.default")
def _log_sigmoid(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    return unary(walk, "neg", unary(walk, "softplus", unary(walk, "neg", walk.view(args[0]))))


@handles("mish.default")
def _mish(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x = walk.view(args[0])
    return binary(walk, "mul", x, unary(walk, "tanh", unary(walk, "softplus", x)))


@handles("selu.default")
def _selu(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    made = unary(walk, "elu", walk.view(args[0]), alpha=1.6732632423543772)
    return unary(walk, "scale", made, factor=1.0507009873554805)


@handles("softsign.default")
def _softsign(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x = walk.view(args[0])
    return binary(walk, "div", x, unary(walk, "shift", unary(walk, "abs", x), by=1))


@handles("prelu.default", "_prelu_kernel.default")
def _prelu(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """PReLU with one slope for each channel, or one for all."""
    x, slope = walk.view(args[0]), walk.view(args[1])
    if len(slope.dims) == 1 and len(x.dims) > 1:
        slope = slope.arranged((slope.dims[0], *[()] * (len(x.dims) - 2)))
    below = binary(walk, "mul", unary(walk, "relu", unary(walk, "neg", x)), slope)
    return binary(walk, "sub", unary(walk, "relu", x), below)


@handles("addcmul.default", "addcdiv.default")
def _added(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    assert walk.node is not None
    x, first, second = map(walk.view, args[:3])
    made = binary(walk, "div" if "addcdiv" in str(walk.node.target) else "mul", first, second)
    return binary(walk, "add", x, unary(walk, "scale", made, factor=named["value"]) if "value" in named else made)


@handles("lerp.Scalar", "lerp.Tensor")
def _between(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, y = map(walk.view, args[:2])
    return binary(walk, "add", x, _two("mul", walk, [binary(walk, "sub", y, x), args[2]], {}))


@handles("gelu.default")
def _gelu(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    return unary(walk, "gelu_tanh" if named.get("approximate") == "tanh" else "gelu", walk.view(args[0]))


@handles("pow.Tensor_Scalar", "pow.Tensor_Tensor")
def _power(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    exponent = as_number(args[1])
    if exponent is None:
        raise Unsupported("an exponent that is no number")
    if exponent == 2:
        return unary(walk, "square", walk.view(args[0]))
    return unary(walk, "power", walk.view(args[0]), exponent=exponent)


# ---------------------------------------------------------------------------------------- two operands


def _two(ours: str, walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    if named.get("alpha", 1) != 1:
        raise Unsupported(f"alpha={named['alpha']}")
    first, second = (as_floats(walk, entry) for entry in args[:2])
    if isinstance(first, Noise) or isinstance(second, Noise):
        return with_noise(walk, ours, first, second)
    for one, other, turned in ((first, second, False), (second, first, True)):
        number = as_number(other, one)
        if number is not None and isinstance(one, View):
            return _with_number(walk, ours, one, number, turned=turned)
    return binary(walk, ours, walk.view(first), walk.view(second))


for _theirs, _ours in BINARY.items():
    _overloads = [_theirs] if "." in _theirs else [f"{_theirs}.{one}" for one in ("Tensor", "default", "Scalar")]
    handles(*_overloads)(partial(_two, _ours))


def as_floats(walk: Translation, entry: Entry) -> Entry:
    """An entry with integers and booleans converted to floats for arithmetic; other entries are returned unchanged."""
    if isinstance(entry, View) and entry.value.bound is not None and entry.value.kind == "made":
        spread = walk.make("one_hot", entry, shape=(*entry.shape, entry.value.bound))
        numbers = torch.arange(entry.value.bound, dtype=torch.float32)[None]
        found = linear(walk, spread, walk.constant(numbers, "numbers"), None)
        return found.arranged(found.dims[:-1])
    told, named = "torch.ops.aten._to_copy.default", (("dtype", torch.float32),)
    if isinstance(entry, Tensor) and not entry.is_floating_point():
        numbers = entry.float()
        if (origin := walk.origins.get(id(entry))) is not None:
            walk.origins[id(numbers)] = Prepared("numbers", numbers, told, (origin,), named)
        return numbers
    if not isinstance(entry, Prepared) or entry.example.is_floating_point():
        return entry
    made = Prepared(entry.name, entry.example.float(), told, (entry,), named)
    return walk.known.setdefault((told, entry, torch.float32), made)


@handles("type_as.default", "_to_copy.default")
def _as_typed(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """Converts to floats, unless torch's result has integers."""
    assert walk.node is not None
    return as_floats(walk, args[0]) if walk.node.meta["val"].is_floating_point() else args[0]


def _with_number(walk: Translation, name: str, view: View, number: float, *, turned: bool) -> View:
    """An operator on a tensor and a number; with `turned`, the number comes first."""
    if name == "add" or (name == "sub" and not turned):
        by = number if name == "add" else -number
        return view if by == 0 else unary(walk, "shift", view, by=by)
    if name == "sub":
        return unary(walk, "shift", unary(walk, "neg", view), by=number)
    if name == "mul" or (name == "div" and not turned):
        factor = number if name == "mul" else 1 / number
        return view if factor == 1 else unary(walk, "scale", view, factor=factor)
    if name == "div":
        inverse = unary(walk, "power", view, exponent=-1)
        return inverse if number == 1 else unary(walk, "scale", inverse, factor=number)
    return unary(walk, "clamp", view, **{"lo": -WIDE, "hi": WIDE, "lo" if name == "maximum" else "hi": number})


def one_minus(walk: Translation, view: View) -> View:
    """1 - x: the negation of a mask of zeros and ones, or the complement of a probability."""
    return unary(walk, "shift", unary(walk, "neg", view), by=1)


def binary(walk: Translation, name: str, first: View, second: View) -> View:
    """An elementwise operator on two tensors, which broadcast. Two views in the same arrangement are read without it,
    and the result gets it.
    """
    if arrangement(first) == arrangement(second) and not first.repeated:
        result = Value(first.value.shape)
        views = (View(first.value, first.base, first.base), View(second.value, second.base, second.base))
        walk.add(name, views, (result,), {})
        return View(result, first.base, first.dims)
    first, second = (_unrepeated(walk, view) for view in (first, second))
    shape = np.broadcast_shapes(first.shape, second.shape)
    for larger, smaller in ((first, second), (second, first)):
        turned = None if larger.is_whole or larger.shape != shape else _on_base(larger, smaller)
        if turned is not None:
            result, own = Value(larger.value.shape), View(larger.value, larger.base, larger.base)
            turned = _without_leading(turned)
            walk.add(name, (own, turned) if larger is first else (turned, own), (result,), {})
            return View(result, larger.base, larger.dims)
    if len(first.dims) >= len(second.dims):
        second = _without_leading(second)
    elif len(second.dims) > len(first.dims):
        first = _without_leading(first)
    return walk.make(name, first, second, shape=shape)


def _on_base(view: View, other: View) -> View | None:
    """Rearranges `other` from the dimensions of a view to those of the view's value. None where it would be repeated
    along a part of a dimension.
    """
    parts: dict[Axis, Dim] = {}
    for dim, own in zip(view.dims, [()] * (len(view.dims) - len(other.dims)) + list(other.dims), strict=True):
        if [axis.size for axis in dim] == [axis.size for axis in own]:
            parts |= {axis: (part,) for axis, part in zip(dim, own, strict=True)}
        elif len(dim) == 1 or not own:
            parts |= dict.fromkeys(dim, own)
        else:
            return None
    found = [[parts[axis] for axis in dim] for dim in view.base]
    if any(any(dim) and not all(dim) for dim in found):
        return None
    return other.arranged([tuple(axis for part in dim for axis in part) for dim in found])


def _without_leading(view: View) -> View:
    """The view without the leading dimensions of one element, which broadcasting adds anyway."""
    first = next((place for place, dim in enumerate(view.dims) if dim), len(view.dims))
    return view.arranged(view.dims[first:])


def _unrepeated(walk: Translation, view: View) -> View:
    """The view with one element along repeated dimensions. A view with a partly repeated dimension is materialised
    instead.
    """
    parts = [dim for dim in view.dims if set(dim) & view.repeated and not set(dim) <= view.repeated]
    return walk.spread(view) if parts else view.without(view.repeated)


def arrangement(view: View) -> object:
    """A key that is equal for views whose axes have equal sizes and are arranged equally, whatever their values."""
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
    if len(bias.dims) > 1 or named:
        return _added_product(walk, args, named)
    return linear(walk, x, weight.permuted((1, 0)), bias)


@handles("matmul.default", "bmm.default", "mm.default")
def _matmul(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    return product(walk, *map(walk.view, args[:2]))


@handles("baddbmm.default")
def _added_product(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    added, made = walk.view(args[0]), product(walk, *map(walk.view, args[1:3]))
    alpha, beta = named.get("alpha", 1), named.get("beta", 1)
    made = made if alpha == 1 else unary(walk, "scale", made, factor=alpha)
    return binary(walk, "add", added if beta == 1 else unary(walk, "scale", added, factor=beta), made)


@handles("rsub.Scalar")
def _subtracted(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    if (args[2] if len(args) > 2 else 1) != 1:
        raise Unsupported("alpha")
    return _with_number(walk, "sub", walk.view(args[0]), args[1], turned=True)


@handles("einsum.default")
def _einsum(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """An einsum of two tensors, in each of which every letter occurs once, as a batched matrix product over the shared
    letters.
    """
    equation, operands = args[0].replace(" ", ""), [walk.view(part) for part in args[1]]
    given, arrow, result = equation.partition("->")
    words = given.split(",")
    if not arrow or len(words) != 2 or "." in equation or any(len({*word}) < len(word) for word in words):
        raise Unsupported(f"equation {equation}")
    (x, y), (left, right) = operands, words
    lead = [letter for letter in left if letter in right and letter in result]
    inner = [letter for letter in left if letter in right and letter not in result]
    rows, columns = ([one for one in word if one not in other] for word, other in ((left, right), (right, left)))
    if any(letter not in result for letter in (*rows, *columns)):
        raise Unsupported(f"equation {equation}")
    sizes = {
        letter: size
        for word, view in zip(words, operands, strict=True)
        for letter, size in zip(word, view.shape, strict=True)
    }

    def merged(view: View, word: str, *parts: list[str]) -> View:
        turned = view.permuted([word.index(letter) for letter in (*lead, *(one for part in parts for one in part))])
        dims, first = list(turned.dims[: len(lead)]), len(lead)
        for part in parts:
            dims.append(tuple(axis for dim in turned.dims[first : first + len(part)] for axis in dim))
            first += len(part)
        return turned.arranged(dims)

    made = product(walk, merged(x, left, rows, inner), merged(y, right, inner, columns))
    order = [*lead, *rows, *columns]
    return made.reshaped([sizes[letter] for letter in order]).permuted([order.index(letter) for letter in result])


def product(walk: Translation, x: View, y: View) -> View:
    """A matrix product along the last two dimensions. Leading dimensions may be repeated in one factor or in both."""
    if len(y.dims) == 1:
        made = product(walk, x, y.arranged((*y.dims, ())))
        return made.arranged(made.dims[:-1])
    if len(x.dims) == 1:
        made = product(walk, x.arranged(((), *x.dims)), y)
        return made.arranged((*made.dims[:-2], made.dims[-1]))
    if len(y.dims) == 2:
        return linear(walk, x, y.permuted((1, 0)), None)
    if len(x.dims) == 2:
        order = [*range(len(y.dims) - 2), len(y.dims) - 1, len(y.dims) - 2]
        return linear(walk, y.permuted(order), x, None).permuted(order)
    shape = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    x, y = (view.expanded((*shape, *view.shape[-2:])) for view in (x, y))
    leading = [[axis for dim in view.dims[:-2] for axis in dim if axis in view.repeated] for view in (x, y)]
    if leading[1] and not leading[0] and all(part <= y.repeated for part in map(frozenset, y.dims[:-2])):
        last = y.arranged(y.dims[-2:])
        return linear(walk, x, last.permuted((1, 0)), None)
    x, y = (walk.spread(view) for view in (x, y))
    return walk.make("matmul", x, y, shape=(*shape, x.shape[-2], y.shape[-1]))


def linear(walk: Translation, x: View, weight: View, bias: View | None) -> View:
    """A linear map along the last dimension. Grouped leading dimensions are split before it, and grouped again in the
    result.
    """
    given = ungrouped(walk.spread(x))
    operands = (given, weight) if bias is None else (given, weight, bias)
    made = walk.make("linear" if bias is None else "linear_bias", *operands, shape=(*given.shape[:-1], weight.shape[0]))
    return made.reshaped((*x.shape[:-1], weight.shape[0]))


def ungrouped(view: View) -> View:
    """The view with each grouped leading dimension split into its axes. It keeps the dimensions of its value if these
    have the same axes.
    """
    if all(len(dim) < 2 for dim in view.dims[:-1]):
        return view
    axes = [axis for dim in view.dims[:-1] for axis in dim]
    own = [axis for dim in view.base[:-1] for axis in dim]
    return view.arranged((*(view.base[:-1] if axes == own else ((axis,) for axis in axes)), view.dims[-1]))


# ---------------------------------------------------------------------------------------- dropout, softmax


@handles("native_dropout.default")
def _dropout(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    return [_dropped(walk, *filled(args, (None, 0.5, True))), None]


@handles("rand.default", "rand_like.default")
def _uniform(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    shape = args[0] if isinstance(args[0], list) else args[0].shape
    return Noise(tuple(shape), 0.0, uniform=True)


@handles("floor.default")
def _floor(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """Floor. On a uniform random number plus a probability, it gives a mask that is 1 with this probability."""
    if not isinstance(args[0], Noise):
        return unary(walk, "floor", walk.view(args[0]))
    if not args[0].kept:
        raise Unsupported("a whole part of random numbers")
    return replace(args[0], uniform=False)


@handles("dropout.default")
def _plain_dropout(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    return _dropped(walk, *filled(args, (None, 0.5, True)))


def _dropped(walk: Translation, entry: Entry, p: float, training: bool) -> View:
    """Dropout that draws for every element separately, including the repeated elements of a view."""
    view = walk.view(entry)
    return unary(walk, "dropout", walk.spread(view), p=p) if p and training else view


@handles("softmax.int", "_softmax.default", "log_softmax.int", "_log_softmax.default")
def _softmax(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    assert walk.node is not None
    view, dim = walk.view(args[0]), args[1] % len(walk.view(args[0]).dims)
    order = [*(place for place in range(len(view.dims)) if place != dim), dim]
    turned = view.permuted(order)
    given = ungrouped(walk.spread(turned))
    name = "log_softmax" if "log" in str(walk.node.target) else "softmax"
    made = walk.make(name, given, shape=given.shape).reshaped(turned.shape)
    return made.permuted([order.index(place) for place in range(len(order))])
