"""Pins of layouts, `--pin 'layer.*.w=S0,I'`: parsed and resolved to values of the model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import lru_cache

from ..graph.declared_slices import is_cut
from ..graph.graph import Model
from ..graph.halo import is_halo_op, why_not_dealt
from ..graph.layout import PARTITION, At, Invariant, Kind, Layout, Mesh, Partial, Replicate, Shard, nest
from ..graph.layout_typing import Along, Role, TypedOperator, Uniformly, type_operator
from ..graph.placed_operators import Placed
from ..graph.value_names import spoken_name
from ..index.library import Library
from ..syntax.diagnostic import fail, suggest
from .choices.restriction import Place, Restriction, places, storable

Pin = tuple[Kind, ...]
"""A kind per mesh axis, or one for all of them. `place` of a Shard is filled in later."""

_KINDS: dict[str, Kind] = {"I": Invariant(), "R": Replicate(), "P": Partial()}
_COORDINATE = re.compile(r"@(\d{1,6})")
_CUT = re.compile(r"(?:S(?P<dim>\d{1,3})|(?P<by>[A-Za-z_]\w*)\((?P<of>\d{1,3})\))")


def parse_pins(texts: Iterable[str]) -> dict[str, Pin]:
    """Pins by name. Raises E305, also for a name with two layouts."""
    pins: dict[str, Pin] = {}
    for text in texts:
        name, pin = parse_pin(text)
        if pins.setdefault(name, pin) != pin:
            first, second = (",".join(map(str, found)) for found in (pins[name], pin))
            raise fail("E305", f"`{name}` is pinned twice, to {first} and to {second}", help=_ONE_PIN)
    return pins


_ONE_PIN = "give each tensor one pin"


def parse_pin(text: str) -> tuple[str, Pin]:
    """`name=S0,I`: a weight or value (a glob) and its kinds: I, R, P, S<dim> or <parallel op>(<dim>). Raises E305."""
    name, equals, kinds = text.partition("=")
    if not equals or not name.strip() or not kinds.strip():
        hint = "write `name=layout`, as in `w1=S0` or `layer.*.w=S0,I`"
        raise fail("E305", f"cannot read the pin `{text}`", help=hint)
    return name.strip(), tuple(_parse_kind(kind.strip(), text) for kind in kinds.split(","))


def _parse_kind(text: str, pin: str) -> Kind:
    if text in _KINDS:
        return _KINDS[text]
    if (match := _COORDINATE.fullmatch(text)) is not None:
        return At(int(match[1]))
    match = _CUT.fullmatch(text)
    if match is None:
        raise fail(
            "E305",
            f"`{text}` in the pin `{pin}` is no layout",
            help="kinds are I (one logical tensor), R (copies), P (terms of a sum), S0, S1, … (slices of a dimension), "
            "@0, @1, … (on the devices with this coordinate alone) "
            "and name(0) for slices made by a declared parallel op, whose own attributes have their defaults",
        )
    if match["dim"] is not None:
        return Shard(int(match["dim"]))
    return Shard(int(match["of"]), by=match["by"])


def apply_pins(
    restriction: Restriction, pins: Mapping[str, Pin], model: Model, mesh: Mesh, library: Library
) -> Restriction:
    """The restriction with pins on top. Raises E305 to E308 for pins that name nothing or that no plan can keep."""
    storage, produced = dict(restriction.storage), dict(restriction.produced)
    pinned: dict[str, tuple[str, Layout]] = {}
    for name, layout, place in _resolved(pins.items(), model, mesh, library):
        other, earlier = pinned.setdefault(place.path, (name, layout))
        if earlier != layout:
            message = f"`{place.path}` is pinned twice, to {earlier} by `{other}` and to {layout} by `{name}`"
            raise fail("E305", message, place.value.span, help=_ONE_PIN)
        (storage if place.stored else produced)[place.path] = layout
    return Restriction(restriction.configurations, storage, produced)


def excluded_layouts(
    forbidden: Iterable[tuple[str, Pin]], model: Model, mesh: Mesh, library: Library
) -> dict[str, frozenset[Layout]]:
    """The layouts that weights and values may not be stored or produced in, by path. Each is written as a pin; a name
    may have several. Raises E305 to E308 as for pins.
    """
    found: dict[str, frozenset[Layout]] = {}
    for _, layout, place in _resolved(forbidden, model, mesh, library):
        found[place.path] = found.get(place.path, frozenset()) | {layout}
    return found


def _resolved(
    pins: Iterable[tuple[str, Pin]], model: Model, mesh: Mesh, library: Library
) -> Iterator[tuple[str, Layout, Place]]:
    """Every weight and value that a pin names, with its layout. Raises E305 to E308."""
    every = list(places(model))
    for name, pin in pins:
        layout = _layout(name, pin, mesh)
        for place in matching(name, every):
            _check(name, layout, place, mesh, library)
            yield name, layout, place


def _layout(name: str, pin: Pin, mesh: Mesh) -> Layout:
    if len(pin) == 1:
        pin *= len(mesh.axes)
    if len(pin) != len(mesh.axes):
        axes = " x ".join(map(str, mesh.degrees)) or "one device"
        raise fail(
            "E305",
            f"the pin of `{name}` has {len(pin)} kinds, the mesh has {len(mesh.axes)} axes ({axes})",
            help="give one kind per mesh axis, slowest first, or one for all",
        )
    return nest(pin)


def without_unnamed_cuts(library: Library, pins: Mapping[str, Pin]) -> Library:
    """The library without declared ops that no pin names and that only deal positions out in another order.

    With `partition` in the place of such an op, every operator still runs and no conversion costs more. No cheaper plan
    is lost, and there are many times fewer plans.
    """
    return _without_cuts(
        library, frozenset(kind.by for pin in pins.values() for kind in pin if isinstance(kind, Shard))
    )


@lru_cache(maxsize=16)
def _without_cuts(library: Library, pinned: frozenset[str]) -> Library:
    """The same library object for the same names, since prices are cached by library."""
    named = {PARTITION, *pinned}
    kept = {
        name: declaration
        for name, declaration in library.parallels.items()
        if name in named or not is_cut(declaration) or is_halo_op(declaration)
    }
    return library if len(kept) == len(library.parallels) else replace(library, parallels=kept)


def pinned_paths(pins: Mapping[str, Pin], model: Model) -> set[str]:
    """The paths of the weights and values that are pinned."""
    every = list(places(model))
    return {place.path for name in pins for place in matching(name, every)}


def matching(pattern: str, every: Iterable[Place]) -> list[Place]:
    """The weights and values that a pin names. Raises E306 and E308."""
    every = list(every)
    found = [place for place in every if fnmatchcase(place.path, pattern)]
    for place in every:
        if place in found or not place.segments:
            continue
        hits = [fnmatchcase(name, pattern) for name in place.names()]
        if all(hits):
            found.append(place)
        elif any(hits):
            raise fail(
                "E308",
                f"`{pattern}` names some iterations of `{place.path}` and not others",
                help=f"the iterations of a repeat are planned together: pin `{place.path}`",
            )
    found = found or _printed(pattern, every)
    if not found:
        raise fail("E306", f"the model has no weight or value called `{pattern}`", help=_nearest(pattern, every))
    return found


def _nearest(pattern: str, every: Iterable[Place]) -> str:
    """A hint at what may have been meant: a path that ends so, else the closest one."""
    ending = [place.path for place in every if place.path.endswith((f".{pattern}", f"_{pattern}"))]
    if ending:
        return f"did you mean {' or '.join(f'`{path}`' for path in ending[:_SUGGESTED])}?"
    return suggest(pattern, [place.path for place in every])


_SUGGESTED = 3
_CONVERTED = re.compile(r"_(?:[irp]|s\d+|at\d+)+$")
"""The end of the name that the program gives a value in another layout: `x_s0`, `x_rs1`."""


def _printed(pattern: str, every: Iterable[Place]) -> list[Place]:
    """The values that have this name in a program's model.py. It leaves out the repeats around them, writes dots as
    underscores, adds an underscore to names that Python reserves, and ends with a layout. Raises E306 where one name
    stands for several values.
    """
    every = list(every)
    words, spoken = dict.fromkeys((pattern, pattern.rstrip("_"), _CONVERTED.sub("", pattern))), _spoken(every)
    for word in words:
        found = [place for place in every if any(fnmatchcase(name, word) for name in place.printed())]
        found = found or [place for place, names in spoken if any(fnmatchcase(name, word) for name in names)]
        if len(found) > 1 and not set("*?[") & set(word):
            paths = ", ".join(f"`{place.path}`" for place in found)
            raise fail("E306", f"`{pattern}` may be {paths}", help="pin one of them by its path")
        if found:
            return found
    return []


def _spoken(every: Sequence[Place]) -> list[tuple[Place, tuple[str, str]]]:
    """Values without a name of their own, with the names that a program gives them, numbered where several
    are equal.
    """
    operators = {place.node.instance.name for place in every if place.node}
    taken: Counter[tuple[str, ...]] = Counter()
    found = []
    for place in every:
        if place.node is None or (name := spoken_name(place.node, place.value, operators)) == place.value.name:
            continue
        around, name = place.path.removesuffix(place.value.name), name.replace(".", "_")
        taken[around, name] += 1
        name += f"_{taken[around, name]}" if taken[around, name] > 1 else ""
        found.append((place, (name, around + name)))
    return found


def _check(name: str, layout: Layout, place: Place, mesh: Mesh, library: Library) -> None:
    """Raises E307 where no plan can have the pinned layout."""
    rank, shape = len(place.value.shape), place.value.shape
    for kind in layout.kinds:
        if isinstance(kind, Shard) and kind.dim >= rank:
            raise _impossible(name, layout, place, f"it has {rank} dimensions, the first being 0")
        if isinstance(kind, Shard) and kind.by not in library.parallels:
            hint = suggest(kind.by, library.parallels)
            raise _impossible(name, layout, place, f"no parallel op is called `{kind.by}`", hint)
    for axis, coordinate in layout.placement:
        if coordinate >= (degree := mesh.axes[axis].degree):
            raise _impossible(name, layout, place, f"{degree} devices have the coordinates 0 to {degree - 1}")
    for dim in range(rank):
        degree = mesh.degree(layout.nesting(dim))
        if shape[dim] % degree:
            raise _impossible(name, layout, place, f"{degree} devices do not divide dimension {dim} of {shape[dim]}")
    if place.stored:
        if not storable(layout):
            raise _impossible(name, layout, place, "what is stored is I, S<dim> or @k, so that its gradient arrives so")
    elif place.given and layout.where(Invariant) != tuple(range(len(mesh.axes))):
        raise _impossible(name, layout, place, "an input is given whole to every device; pin what is computed from it")
    for dim in range(rank):
        extent = shape[dim]
        for axis in layout.nesting(dim):
            by, degree = layout.cut(axis).by, mesh.axes[axis].degree
            if by != PARTITION and (why := why_not_dealt(library.parallels[by], degree, extent)) is not None:
                raise _impossible(name, layout, place, why)
            extent //= degree


def _impossible(name: str, layout: Layout, place: Place, reason: str, hint: str = "") -> Exception:
    return fail("E307", f"`{name}` cannot be {layout}: {reason}", place.value.span, help=hint)


def why_not_produced(layout: Layout, place: Place, mesh: Mesh, library: Library, possible: list[TypedOperator]) -> str:
    """Why an operator has no configuration with this result, in words."""
    assert place.node is not None
    instance = place.node.instance
    position = place.node.results.index(place.value)
    output = instance.outputs[position]
    roles: list[Role] = []
    for kind in layout.kinds:
        match kind:
            case Shard(dim=dim, by=by):
                roles.append(Along(output.dims[dim][0], by) if output.dims[dim] else Uniformly(Invariant()))
            case Replicate():
                roles.append(Uniformly(kind))
            case At(coordinate=coordinate):
                roles.append(Placed(coordinate))
            case _:
                roles.append(Uniformly(Invariant()))
    typed = type_operator(instance, tuple(roles), mesh, library)
    if isinstance(typed, str):
        return typed
    results = list(dict.fromkeys(str(found.results[position]) for found in possible))
    some = " · ".join(results[:6]) + (" · …" if len(results) > 6 else "")
    if not results:
        return f"no configuration of {instance.name} fits"
    return f"{instance.name} does not produce it here; it can produce {some}"
