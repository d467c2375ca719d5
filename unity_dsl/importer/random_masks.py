"""Random masks that a module draws itself: zeros and ones that multiply rows or elements, as dropout."""

from __future__ import annotations

from dataclasses import replace
from math import isclose, prod

from torch import Tensor

from .translation import Entry, Noise, Prepared, Translation, Unsupported, as_number, handles, unary
from .views import View


@handles("bernoulli.p")
def _bernoulli(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    shape = args[0].shape if isinstance(args[0], View | Tensor) else args[0].example.shape
    return Noise(tuple(shape), args[1])


@handles("bernoulli.default")
def _bernoulli_of(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """A draw by a tensor of probabilities, which must all be equal."""
    given = args[0].example if isinstance(args[0], Prepared) else args[0]
    if not isinstance(given, Tensor) or not bool((given == given.flatten()[0]).all()):
        raise Unsupported("a draw of other probabilities than one")
    kept = given.flatten()[0].numpy()
    return Noise(tuple(given.shape), float(str(kept)))  # 0.8 in float32 is read as 0.8


def with_noise(walk: Translation, name: str, x: Entry, other: Entry) -> Entry:
    """A draw, divided by its probability and multiplied by a factor, as dropout of elements or rows. Row dropout may
    be divided later.
    """
    noise, factor = (x, other) if isinstance(x, Noise) else (other, x)
    if noise.uniform and name == "add" and isinstance(factor, float) and not noise.kept:
        return replace(noise, kept=factor)
    if isinstance(factor, Prepared | Noise) or name not in ("mul", "div"):
        raise Unsupported("random numbers")
    if not isinstance(factor, View):
        number = as_number(factor)
        if number is None or (name == "div" and noise is not x):
            raise Unsupported("random numbers")
        return replace(noise, factor=noise.factor * (number if name == "mul" else 1 / number))
    rows = noise.shape[:1] + (1,) * (len(noise.shape) - 1)
    if noise.factor == 1 and name == "mul":
        factor, noise = _unscaled(walk, factor, noise)
    lead = len(noise.shape) - next((k for k, size in enumerate(noise.shape[::-1]) if size > 1), len(noise.shape))
    parts = factor.shape[:lead] + (1,) * (len(factor.shape) - lead)
    left, is_of_elements = noise.factor * noise.kept, noise.shape == factor.shape
    if name != "mul" or noise.shape not in (factor.shape, rows, parts):
        raise Unsupported("random numbers")
    if is_of_elements and not isclose(left, 1, rel_tol=1e-6):
        raise Unsupported("random numbers that are not divided by their probability")
    if is_of_elements:
        return unary(walk, "dropout", factor, p=1 - noise.kept)
    given = factor
    if lead > 1:  # each channel is a row
        given = walk.reshaped(walk.spread(factor), (prod(factor.shape[:lead]), *factor.shape[lead:]))
    made = walk.make("row_dropout", given, shape=given.shape, p=round(1 - noise.kept, 12))
    made = made if isclose(left, 1, rel_tol=1e-6) else walk.make("scale", made, shape=given.shape, factor=left)
    return made.reshaped(factor.shape) if lead > 1 else made


def _unscaled(walk: Translation, view: View, noise: Noise) -> tuple[View, Noise]:
    """A factor without a division by the probability that precedes the draw; the draw is divided instead. Others are
    unchanged.
    """
    maker = next((s for s in reversed(walk.statements) if view.value in s.results), None)
    if maker is None or maker.operator != "scale" or abs(float(maker.settings["factor"]) * noise.kept - 1) > 1e-6:
        return view, noise
    walk.statements.remove(maker)
    return View(maker.operands[0].value, view.base, view.dims), replace(noise, factor=1 / noise.kept)
