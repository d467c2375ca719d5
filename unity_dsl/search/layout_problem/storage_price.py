"""Seconds of storing weights and buffers in a layout, and of reading them in another one."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from ...graph.graph import Value
from ...machine.cast_price import price_stored_casts
from ...machine.collective_price import local_fraction
from ...machine.machine import Machine
from ...machine.operator_price import price_updates
from ..choices.layout_space import ConversionOverlap, Spaces
from ..cost_network.bucket_elimination import Table
from ..folded_solver.problem_part import Layouts
from .held_price import HeldPrice


@dataclass(frozen=True)
class StoragePrice:
    """Prices of stored values by layout. Values with equal shapes and types share a result if all layouts allowed for
    storage are given and `memory` sets no price. With `as_read`, a weight is stored as it is read and not gathered.
    """

    spaces: Spaces
    machine: Machine
    memory: HeldPrice | None
    as_read: bool = False
    _kept: dict[Hashable, Table] = field(default_factory=dict)
    _read: dict[Hashable, tuple[Layouts, Table]] = field(default_factory=dict)

    def keeping(self, value: Value, layouts: Layouts) -> Table:
        """Seconds of the optimizer's step and of the cast for readers, by storage layout."""
        key = self._alike(value, layouts)
        if key is None:
            return self._keeping(value, layouts)
        if key not in self._kept:
            self._kept[key] = self._keeping(value, layouts)
        return self._kept[key]

    def reading(self, value: Value, prefix: str, layouts: Layouts, overlap: ConversionOverlap) -> tuple[Layouts, Table]:
        """For each layout in which its only reader reads a value, the best storage layout and the seconds of storing
        and reading. The gather may be `overlap` in part.
        """
        key = self._alike(value, layouts)
        if key is None:
            return self._reading(value, prefix, layouts, overlap)
        if (key, overlap) not in self._read:
            self._read[key, overlap] = self._reading(value, prefix, layouts, overlap)
        return self._read[key, overlap]

    def _alike(self, value: Value, layouts: Layouts) -> Hashable | None:
        space = self.spaces.of(value)
        known = layouts is space.storable or any(layouts is kept for kept in space.kept.values())
        if self.memory is not None or not known:
            return None
        return id(layouts), value.shape, value.dtype, value.cast_from, value.needs_gradient, value.is_weight

    def _keeping(self, value: Value, layouts: Layouts) -> Table:
        space = self.spaces.of(value)
        held = np.array([local_fraction(space.layouts[i], self.spaces.mesh) for i in layouts])
        shares = np.array([self.spaces.mesh.share(space.layouts[i].placement) for i in layouts])
        counts = held * value.stored_bytes
        seconds = shares * price_stored_casts(value, held, self.machine)
        if self.memory is not None:
            seconds += shares * counts * self.memory.of_stored(value)
        if value.needs_gradient:
            seconds += shares * price_updates(counts, self.machine)
        return seconds

    def _reading(
        self, value: Value, prefix: str, layouts: Layouts, overlap: ConversionOverlap
    ) -> tuple[Layouts, Table]:
        """As `reading`, without the cache. A limit on memory may price a second gather in the backward pass."""
        gathering, space = self.spaces.conversions(value, overlap), self.spaces.of(value)
        if self.memory is not None:
            gathering = self.memory.with_gathers(gathering, value, prefix, space)
        reached = self.keeping(value, layouts)[:, None] + gathering[layouts]
        if self.as_read and value.is_weight and value.needs_gradient:
            reached = np.where(space.held[layouts][:, None] == space.held, reached, np.inf)
        return layouts[reached.argmin(axis=0)], reached.min(axis=0)
