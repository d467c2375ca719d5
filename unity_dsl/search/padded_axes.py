"""Which axes of a model are padded for a number of devices, and to what sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from math import inf, prod
from typing import TypeVar

from ..graph.graph import Model
from ..graph.layout import Shard
from ..graph.model_parameters import MOST_ELEMENTS
from ..graph.padding import PaddableAxis, Padding, is_masked, paddable, padded
from ..graph.shared_axes import shared_axes
from ..index.library import Library
from ..rules.padding_theorems import why_not_proved
from ..syntax.diagnostic import InputError, fail, suggest
from .constants import LITTLE_PADDED, PADDED_NODE
from .layout_pins import Pin, parse_pins

Made = TypeVar("Made")

AUTOMATIC, NONE, ALL = "auto", "none", "all"

UNDIVIDED = ("E307", "E309")
"""Diagnostics of pins and strategies that may be due to an axis that devices do not divide."""


def parse_padding(text: str, model: Model, devices: int) -> Padding:
    """The padding that `wte:0,tokens:0=8` asks for; without a size, to a multiple of the devices. Raises E325 where the
    model has no such axis, its size is fixed, the padded size does not fit it, or an axis is given twice.
    """
    if text in (AUTOMATIC, NONE):
        return {}
    known = paddable(model)
    if text == ALL:
        return _where_longer(known.values(), devices)
    found = {}
    elements = max((prod(value.shape) for value in model.whole), default=1)
    places = set[str]()
    for part in filter(None, map(str.strip, text.split(","))):
        place, given, size = part.partition("=")
        axis = _axis(place, model, known)
        if place in places:
            raise fail("E325", f"`{place}` is given twice in `{text}`")
        places.add(place)
        wanted = padded_size(axis, devices)
        if given:
            wanted = int(size) if size.isdigit() else 0
            if wanted < axis.extent or wanted % axis.unit:
                of = f" and a multiple of {axis.unit}" if axis.unit > 1 else ""
                raise fail("E325", f"the padded size in `{part}` must be at least {axis.extent}{of}")
            if elements * wanted > MOST_ELEMENTS * axis.extent:
                raise fail("E325", f"with the padded size in `{part}` a tensor has more elements than any memory holds")
        if wanted > axis.extent:
            found[place] = wanted
    return found


def _axis(place: str, model: Model, known: Mapping[str, PaddableAxis]) -> PaddableAxis:
    """The axis of a dimension that can be padded. Raises E325 where there is none."""
    if place in known:
        return known[place]
    path, _, dim = place.rpartition(":")
    shared = shared_axes(model)
    if path not in shared.stored or not dim.isdigit() or int(dim) >= len(shared.tensors[path]):
        raise fail("E325", f"the model stores no dimension `{place}`", help=suggest(place, known) or _listed(known))
    axes = shared.at(place)
    for other in known:
        if axes and shared.at(other)[:1] == axes[:1]:
            raise fail("E325", f"`{place}` is padded as `{other}`", help=f"--pad {other}")
    reason = axes[0].fixed if axes else "it has one position"
    raise fail("E325", f"`{place}` keeps its size: {reason}", help=_listed(known))


def _listed(known: Mapping[str, PaddableAxis]) -> str:
    places = ", ".join(list(known)[:8])
    return f"axes that can be padded: {places}" if known else "no axis of this model can be padded"


def padded_size(axis: PaddableAxis, devices: int) -> int:
    """The least size of an axis's dimension that the devices divide, or most of them where the axis has fewer
    positions. Slices are aligned where that adds little.
    """
    degree = max(count for count in range(1, devices + 1) if devices % count == 0 and count < 2 * axis.size)
    found = _multiple(axis.size, degree)
    for wanted in (2, 4, 8):
        aligned = _multiple(axis.size, degree * wanted)
        if axis.unit == 1 and aligned - axis.size <= LITTLE_PADDED * axis.size:
            found = aligned
    return found * axis.unit


def _multiple(size: int, degree: int) -> int:
    return -(-size // degree) * degree


def _where_longer(axes: Iterable[PaddableAxis], devices: int, most: float = inf) -> Padding:
    """The padding of axes that the devices do not divide, each by at most the fraction `most` of its size."""
    sizes = {axis: padded_size(axis, devices) for axis in axes if axis.size % devices}
    return {axis.place: size for axis, size in sizes.items() if 0 < size - axis.extent <= most * axis.extent}


def useful_padding(model: Model, devices: int, library: Library) -> Padding:
    """Padding that may shorten a step: that of the batch, where devices do not divide it, and of axes such as
    vocabularies that need little padding and no masks.
    """
    found = dict(batch_padding(model, devices))
    undivided = [axis for axis in paddable(model).values() if not _is_divided(axis, devices)]
    for place, size in _where_longer(undivided, devices, LITTLE_PADDED).items():
        alone = padded(model, {place: size}, library)
        if not any(map(is_masked, alone.graph.nodes())) and not why_not_proved(alone, library):
            found[place] = size
    return found


def _is_divided(axis: PaddableAxis, devices: int) -> bool:
    """Whether an axis is divided by all devices, or by a divisor of their number that is at least a node."""
    return any(devices % count == axis.size % count == 0 for count in range(min(devices, PADDED_NODE), devices + 1))


def batch_padding(model: Model, devices: int) -> Padding:
    """The padding of the batch, where the devices do not divide it."""
    first = next((source.value.name for source in model.graph.inputs if source.value.shape), "")
    return _where_longer([axis for place, axis in paddable(model).items() if place == f"{first}:0"], devices)


def padded_as_needed(
    make: Callable[[Padding | None], Made], asked: str, model: Callable[[], Model], devices: int, pins: Sequence[str]
) -> Made:
    """The result of `make` without more padding than is `asked` for. If that is left open, padding is added where pins
    or a strategy need it. Raises InputError as `make`.
    """
    try:
        return make(None)
    except InputError as error:
        if error.diagnostic.code not in UNDIVIDED or asked != AUTOMATIC:
            raise
        for padding in needed_paddings(model(), devices, parse_pins(pins)):
            with suppress(InputError):
                return make(padding)
        raise


def pinned_padding(model: Model, devices: int, pins: Mapping[str, Pin]) -> Padding:
    """The padding of axes that pins divide and devices do not."""
    shared = shared_axes(model)
    cut = {
        shared.of_dimension(path, kind.dim)[:1]
        for pattern, pin in pins.items()
        for path, dims in shared.tensors.items()
        for kind in pin
        if isinstance(kind, Shard) and kind.dim < len(dims) and fnmatchcase(path, pattern)
    }
    return _where_longer((axis for place, axis in paddable(model).items() if shared.at(place)[:1] in cut), devices)


def needed_paddings(model: Model, devices: int, pins: Mapping[str, Pin]) -> Iterator[Padding]:
    """The paddings that are tried where pins or a strategy need one: of the axes of the pins, of the batch, of both, of
    all.
    """
    cut, batch = pinned_padding(model, devices, pins), batch_padding(model, devices)
    tried: list[Padding] = [{}]
    for padding in (cut, batch, {**cut, **batch}, parse_padding(ALL, model, devices)):
        if padding not in tried:
            tried.append(padding)
            yield padding


def padding_again(padding: Padding, model: Model, devices: int) -> Padding:
    """The padding of the same dimensions for another number of devices."""
    known = paddable(model)
    return _where_longer([known[place] for place in padding if place in known], devices)


def padding_of_part(padding: Padding, whole: Model, part: Model, devices: int) -> Padding:
    """The padding of a micro-batch: that of the batch, computed anew for axes that differ."""
    before, after = paddable(whole), paddable(part)
    same = {place: size for place, size in padding.items() if place in after and after[place] == before[place]}
    others = (after[place] for place in padding if place in after and place not in same)
    return {**_where_longer(others, devices), **same}


def padded_for(model: Model, padding: Padding, library: Library, proved: bool = True) -> Model:
    """The padded model. Raises E325 where one of its axes keeps its size, or the padded model must be `proved` equal
    and is not.
    """
    try:
        found = padded(model, padding, library)
    except (KeyError, ValueError) as reason:
        raise fail("E325", f"the model cannot be padded: {reason}") from None
    if proved and (why := why_not_proved(found, library)):
        raise fail("E325", why, help="--pad none")
    return found
