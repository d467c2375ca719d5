"""Conversions between layouts: the steps forward and backward, and what chooses them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import gcd
from typing import Protocol

from .collective_steps import BEGUN, SUMS, Step, StepKind
from .layout import Invariant, Kind, Layout, Mesh, Overlap, Partial, Shard, Window

BUCKET_MIB = 25
"""Of gradients that are summed over devices by one collective, unless a plan says otherwise."""


@dataclass(frozen=True)
class Conversion:
    """Steps that turn one layout's local tensors into another's, and those that take the cotangent back.

    The cotangent of a value in layout L has layout Lᵀ, so the steps backward are those of the conversion from the
    target's transpose to the source's: a path of its own.
    """

    forward: tuple[Step, ...]
    backward: tuple[Step, ...]

    @property
    def ends_in_sum(self) -> bool:
        """Whether the last step back is a sum over devices: that of a parameter's gradient is done in buckets."""
        return bool(self.backward) and self.backward[-1].kind in SUMS

    @property
    def travels(self) -> bool:
        """Whether others can compute while the value is on its way, or its cotangent."""
        return any(steps and steps[-1].kind in BEGUN for steps in (self.forward, self.backward))

    @property
    def ends_in_whole_sum(self) -> bool:
        """Whether a device keeps all of what that step sums: several gradients may be added up before it."""
        return bool(self.backward) and self.backward[-1].kind is StepKind.ALL_REDUCE


class Conversions(Protocol):
    """What chooses the steps between two layouts."""

    def conversion(
        self,
        source: Layout,
        target: Layout,
        shape: tuple[int, ...],
        count: float,
        back: float | None = None,
        *,
        in_buckets: bool = False,
        ahead: bool = False,
    ) -> Conversion:
        """The cheapest steps both ways, of a tensor of that shape which is `count` bytes large; its cotangent is `back`
        bytes, if that is another number. Where sums are `in_buckets`, those of the way back are of many tensors. An
        all-gather that comes first may be begun `ahead`, which hides most of it.
        """


def divisors(shape: Sequence[int], mesh: Mesh) -> tuple[int, ...]:
    """Per dimension what it has in common with the number of devices: all that conversions need to know of a shape."""
    return tuple(gcd(extent, mesh.size) for extent in shape)


def divides(layout: Layout, shape: Sequence[int], mesh: Mesh) -> bool:
    """Whether every dimension can be cut as the layout says. `shape` may be given by its `divisors`."""
    return all(extent % mesh.degree(layout.nesting(dim)) == 0 for dim, extent in enumerate(shape))


@lru_cache(maxsize=1 << 16)
def beside(layout: Layout, entering: bool) -> tuple[Layout, ...]:
    """Layouts by way of which one with declared cuts is entered or left by a single exchange.

    Every dimension that is cut so is, there, cut into blocks by the same mesh axes, or not cut: copies, from which a
    device's slice is taken, or terms, as which it is put into zeros. Where slices overlap, copies cannot be made and
    terms cannot be taken at once.
    """
    found = []
    dims = layout.declared_dims
    for chosen in product(("blocks", "copies", "terms"), repeat=len(dims)):
        kinds = list(layout.kinds)
        for dim, form in zip(dims, chosen, strict=True):
            for axis in layout.nesting(dim):
                kind = layout.cut(axis)
                if form == "blocks":
                    kinds[axis] = Shard(dim, kind.place)
                elif _reaches(kind, form, entering):
                    kinds[axis] = Invariant() if form == "copies" else Partial()
                else:
                    break
            else:
                continue
            break
        else:
            found.append(Layout(tuple(kinds)))
    return tuple(found)


def _reaches(kind: Kind, form: str, entering: bool) -> bool:
    """Windows are cut out of copies, overlapping terms put into terms; disjoint slices convert to either, both ways."""
    match kind:
        case Window():
            return form == "copies" and entering
        case Overlap():
            return form == "terms" and not entering
    return True
