"""Notes of a plan (for its user) on sizes that no mesh axis divides."""

from __future__ import annotations

from collections.abc import Iterator

from ...graph.graph import Model
from ...graph.layout import Mesh
from ...index.axes.axis_classes import AxisKind, classify
from ...index.cost.lowering_class import PRODUCT_CLASSES, lowering_class
from ...index.library import Library
from ...syntax.diagnostic import first_of
from ..choices.restriction import places

_NAMED = 3


UNDIVIDED_SIZE = "no mesh axis"
"""The beginning of a note on sizes that no mesh axis divides."""


def describe_refusals(model: Model, mesh: Mesh, library: Library) -> Iterator[str]:
    """One sentence for each size that no mesh axis divides, if every device would have two positions or more.

    It lists axes of contractions and windows that could be divided, by the values that these operators make.
    """
    least = 2 * mesh.size
    found: dict[int, list[str]] = {}
    for place in places(model):
        if place.node is None or not place.node.instance.equations:
            continue
        instance = place.node.instance
        if lowering_class(instance) in PRODUCT_CLASSES:  # most work is here: axes are divided for these operators
            for axis, entry in classify(instance, library).items():
                size = instance.sizes[axis]
                if entry.kind is not AxisKind.BLOCKED and size >= least > 2 and _whole(size, mesh):
                    found.setdefault(size, []).append(f"`{axis}` of {place.path} ({instance.name})")
    degrees = ", ".join(map(str, sorted(set(mesh.degrees))))
    for size, axes in found.items():
        yield f"{UNDIVIDED_SIZE} ({degrees}) divides {size}, so these stay whole: {first_of(axes, _NAMED)}"


def _whole(size: int, mesh: Mesh) -> bool:
    return all(size % degree for degree in mesh.degrees)
