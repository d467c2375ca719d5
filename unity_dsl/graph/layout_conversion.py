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
"""Default size of a bucket of gradients that one collective sums over devices, in MiB."""


@dataclass(frozen=True)
class Conversion:
    """Steps that turn one layout's local tensors into another's, and the steps that take the gradient back.

    The gradient of a value in layout L has layout Lᵀ. The backward steps therefore convert the target's transpose into
    the source's, on a path of their own.
    """

    forward: tuple[Step, ...]
    backward: tuple[Step, ...]

    @property
    def ends_in_sum(self) -> bool:
        """Whether the last backward step is a sum over devices. A parameter's gradient is summed in buckets there."""
        return bool(self.backward) and self.backward[-1].kind in SUMS

    @property
    def travels(self) -> bool:
        """Whether the conversion of the value, or that of its gradient, can be overlapped with computation."""
        return any(steps and steps[-1].kind in BEGUN for steps in (self.forward, self.backward))

    @property
    def ends_in_whole_sum(self) -> bool:
        """Whether that sum is an all-reduce: several gradients may then be accumulated before it."""
        return bool(self.backward) and self.backward[-1].kind is StepKind.ALL_REDUCE


class Conversions(Protocol):
    """Chooses the steps between two layouts."""

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
        """The cheapest steps in both directions for a tensor of this shape and `count` bytes; its gradient has `back`
        bytes, if that is another number. With `in_buckets`, backward sums are shared by many tensors. With `ahead`, an
        all-gather that comes first is prefetched, which overlaps most of it.
        """


def divisors(shape: Sequence[int], mesh: Mesh) -> tuple[int, ...]:
    """For each dimension, its gcd with the number of devices: all that conversions need to know of a shape."""
    return tuple(gcd(extent, mesh.size) for extent in shape)


def divides(layout: Layout, shape: Sequence[int], mesh: Mesh) -> bool:
    """Whether every dimension can be cut as the layout says. `shape` may be given by its `divisors`."""
    return all(extent % mesh.degree(layout.nesting(dim)) == 0 for dim, extent in enumerate(shape))


@lru_cache(maxsize=1 << 16)
def beside(layout: Layout, entering: bool) -> tuple[Layout, ...]:
    """The layouts from which one exchange enters a layout with declared cuts, or into which one exchange leaves it.

    They cut each dimension with a declared cut into blocks, by the same mesh axes, or not at all. An uncut dimension
    has copies, from which a device takes its slice, or terms, into whose zeros it puts its slice. Slices that overlap
    cannot become copies or come from terms in one exchange.
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
    """Whether one exchange connects slices and a form: a Window enters from copies, an Overlap leaves into terms, and
    disjoint slices do both in both directions.
    """
    match kind:
        case Window():
            return form == "copies" and entering
        case Overlap():
            return form == "terms" and not entering
    return True
