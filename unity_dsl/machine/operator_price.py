"""Prices in seconds of operators, forward and backward, and of the optimizer's step: from measured times of the
machine, else from a roofline plus the launches of the emitted kernels.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ..graph.collective_steps import Step
from ..graph.emitted_kernels import EmittedKernels, emission, emitted_kernels
from ..graph.graph import DTYPE_BYTES
from ..graph.inner_steps import inner_steps
from ..graph.layout import Mesh
from ..graph.local_operator import LocalOperator
from ..graph.precision import FULL, TF32
from ..index.cost.product_flops import product_flops
from ..index.cost.work import Count, Work, backward_work, work
from ..index.equations.instance import Instance, Key
from ..index.library import Library
from .collective_price import price_steps
from .machine import Machine
from .measured_curves import Curve
from .measured_price import MeasuredPrice
from .price import Price

Seconds = npt.NDArray[np.float64]


class Limit(StrEnum):
    """What limits a kernel: arithmetic, memory traffic, or the launch if both take less."""

    ARITHMETIC = "arithmetic"
    MEMORY = "memory"
    LAUNCH = "launch"


def price_operator(
    instance: Instance,
    typed: LocalOperator,
    dtype: str,
    mesh: Mesh,
    machine: Machine,
    needs_gradient: Sequence[bool],
    library: Library,
) -> float:
    """Seconds of an operator on one device, forward and backward: `price_operators` for one configuration."""
    return float(price_operators(instance, [typed], dtype, mesh, machine, needs_gradient, library)[0])


def price_operators(
    instance: Instance,
    typed: Sequence[LocalOperator],
    dtype: str,
    mesh: Mesh,
    machine: Machine,
    needs_gradient: Sequence[bool],
    library: Library,
) -> Seconds:
    """Seconds of an operator under each of its configurations. The price is a roofline of the local forward and
    backward work, plus launches, the traffic of intermediates between kernels, and the collectives inside. A view costs
    nothing. The type `tf32` is for operators whose products round their factors: only these products are at its peak.
    Shape [configurations].
    """
    # Configurations that divide the same axes share one price.
    different: dict[tuple[int, int, bool], tuple[int, LocalOperator]] = {}
    for found in typed:
        different.setdefault((id(found.local_sizes), id(found.inner), found.native), (len(different), found))
    which = [different[id(found.local_sizes), id(found.inner), found.native][0] for found in typed]
    prices = _Prices(instance, dtype, mesh, machine, tuple(needs_gradient), library)
    return prices.of([found for _, found in different.values()])[which]


Alike = tuple[Hashable, tuple[int, ...]]
"""The key of a configuration's price without the collectives inside: its `emission` and its local sizes."""


@lru_cache(maxsize=16384)
def _known(
    identity: Key, dtype: str, machine: Machine, needs: tuple[bool, ...], library: Library
) -> dict[Alike, tuple[float, int]]:
    """A cache of the seconds and extra launches of an operator's configurations, shared by all meshes."""
    return {}


@dataclass(frozen=True)
class _Prices:
    """Prices of one operator's configurations."""

    instance: Instance
    dtype: str
    mesh: Mesh
    machine: Machine
    needs: tuple[bool, ...]
    library: Library

    def of(self, typed: Sequence[LocalOperator]) -> Seconds:
        """Seconds of each configuration. Device times are cached for one exposure and scaled to another; exposed
        launches and the collectives inside are added.
        """
        machine = self.machine
        full = machine.origin if machine.launches_apart else machine
        alike = [(emission(self.instance, found), tuple(found.local_sizes.values())) for found in typed]
        known = _known(self.instance.identity, self.dtype, full, self.needs, self.library)
        new: dict[Alike, LocalOperator] = {}
        for key, found in zip(alike, typed, strict=True):
            if key not in known:
                new.setdefault(key, found)
        if new:
            known.update(zip(new, replace(self, machine=full).local(list(new.values())), strict=True))
        seconds, launches = np.array([known[key] for key in alike]).T
        exposed = machine.exposure.devices / full.exposure.devices
        return np.asarray(exposed * seconds + launches * machine.exposed_launch + self.inner(typed))

    def local(self, typed: Sequence[LocalOperator]) -> list[tuple[float, int]]:
        """Seconds without the collectives inside, and the launches that these do not include."""
        kernels = [self.kernels(found) for found in typed]
        seconds, launches = np.empty(len(typed)), np.empty(len(typed), dtype=int)
        for alike in dict.fromkeys(zip(kernels, (found.native for found in typed), strict=True)):
            rows = [row for row, found in enumerate(typed) if (kernels[row], found.native) == alike]
            axes = self.instance.sizes
            sizes = {axis: np.array([typed[row].local_sizes[axis] for row in rows], dtype=float) for axis in axes}
            seconds[rows], launches[rows] = self.seconds(*alike, sizes)
        return list(zip(seconds.tolist(), launches.tolist(), strict=True))

    def inner(self, typed: Sequence[LocalOperator]) -> Seconds:
        """Seconds of the collectives inside."""
        seconds = np.zeros(len(typed))
        for row, found in enumerate(typed):
            if found.inner:
                seconds[row] = price_inner(self.instance, found, self.dtype, self.mesh, self.machine, any(self.needs))
        return seconds

    def kernels(self, typed: LocalOperator) -> EmittedKernels:
        return emitted_kernels(self.instance, typed, self.mesh, self.library, self.needs, DTYPE_BYTES[self.dtype])

    def seconds(self, kernels: EmittedKernels, native: bool, sizes: Mapping[str, Seconds]) -> tuple[Seconds, int]:
        """Seconds of configurations with these kernels, by measured times or else by the datasheet, and the launches
        not included in them.
        """
        measured = self.measured(kernels, native, sizes)
        launches = kernels.forward + (kernels.backward if any(self.needs) else 0)
        if measured is None:
            return self.by_datasheet(kernels, sizes), launches
        return measured, launches if self.machine.launches_apart else 0

    def measured(self, kernels: EmittedKernels, native: bool, sizes: Mapping[str, Seconds]) -> Seconds | None:
        if not self.machine.measured.curves and not self.machine.measured.grids:
            return None
        price = self.by_measurements(kernels, native, sizes)
        forward = price.forward()
        backward = price.backward(self.needs) if any(self.needs) else np.zeros(())
        return None if forward is None or backward is None else forward + backward

    def by_measurements(self, kernels: EmittedKernels, native: bool, sizes: Mapping[str, Seconds]) -> MeasuredPrice:
        apart, passes = self.machine.launches_apart, kernels.passes_at(sizes)
        runs = kernels.forward > 0, kernels.backward > 0
        least = 0.0 if apart else self.machine.exposed_launch
        streams = Curve((1.0,), (float(self.machine.traffic_seconds(1.0)),)) if apart else None
        known, absorbed = self.machine.measured, kernels.absorbed
        return MeasuredPrice(self.instance, native, runs, passes, sizes, self.dtype, known, least, absorbed, streams)

    def by_datasheet(self, kernels: EmittedKernels, sizes: Mapping[str, Seconds]) -> Seconds:
        width, between = DTYPE_BYTES[self.dtype], kernels.traffic(sizes)
        products = _narrow_flops(self.instance, self.dtype, self.needs, sizes)
        passes = [(kernels.forward, work(self.instance, sizes, width), products[0], between[0])]
        if any(self.needs):
            done = backward_work(self.instance, self.needs, sizes, width)
            passes.append((kernels.backward, done, products[1], between[1]))
        seconds: Seconds = np.zeros(())
        for launches, done, narrow, traffic in passes:
            if launches:
                arithmetic = _arithmetic(done, narrow, self.dtype, self.machine)
                seconds = seconds + np.maximum(arithmetic, _traffic(done, self.machine))
                seconds = seconds + self.machine.traffic_seconds(traffic)
        return seconds


def is_padded(
    instance: Instance, typed: LocalOperator, dtype: str, mesh: Mesh, machine: Machine, library: Library
) -> bool:
    """Whether an operator is priced as a product whose columns are padded."""
    prices = _Prices(instance, dtype, mesh, machine, (False,) * len(instance.inputs), library)
    sizes = {axis: np.array(float(size)) for axis, size in typed.local_sizes.items()}
    return bool(prices.by_measurements(prices.kernels(typed), typed.native, sizes).padded)


def priced_kernels(
    instance: Instance, typed: LocalOperator, dtype: str, mesh: Mesh, library: Library, needs: Sequence[bool]
) -> tuple[int, int]:
    """The kernels that `price_operators` counts, forward and backward."""
    found = emitted_kernels(instance, typed, mesh, library, needs, DTYPE_BYTES[dtype])
    return found.forward, found.backward


def _narrow_flops(
    instance: Instance, dtype: str, needs: Sequence[bool], sizes: Mapping[str, Count]
) -> tuple[Count, Count]:
    """Operations, forward and backward, that run at the peak of TF32."""
    return product_flops(instance, needs, sizes) if dtype == TF32 else (0, 0)


def _arithmetic(done: Work, narrow: Count, dtype: str, machine: Machine) -> Count:
    """Seconds of arithmetic; `narrow` of its operations round their factors to TF32."""
    if dtype != TF32:
        return done.flops / (machine.peak[dtype] * machine.compute_efficiency)
    narrow = np.minimum(narrow, done.flops)
    at_peak = narrow / machine.peak[TF32] + (done.flops - narrow) / machine.peak[FULL]
    return at_peak / machine.compute_efficiency


def _traffic(done: Work, machine: Machine) -> Count:
    """Seconds of memory traffic."""
    return machine.traffic_seconds(done.bytes_read + done.bytes_written)


def limits_of_operator(
    instance: Instance,
    typed: LocalOperator,
    dtype: str,
    mesh: Mesh,
    machine: Machine,
    needs_gradient: Sequence[bool],
    library: Library,
) -> tuple[Limit, Limit]:
    """What limits an operator on one device, forward and backward, by the roofline."""
    width, sizes = DTYPE_BYTES[dtype], typed.local_sizes
    kernels = emitted_kernels(instance, typed, mesh, library, needs_gradient, width)
    between = kernels.traffic({axis: np.float64(size) for axis, size in sizes.items()})
    works = work(instance, sizes, width), backward_work(instance, needs_gradient, sizes, width)
    narrow = _narrow_flops(instance, dtype, needs_gradient, sizes)
    forward, backward = (_arithmetic(*pair, dtype, machine) for pair in zip(works, narrow, strict=True))
    return (
        _limit(forward, _traffic(works[0], machine), float(between[0]), kernels.forward, machine),
        _limit(backward, _traffic(works[1], machine), float(between[1]), kernels.backward, machine),
    )


def _limit(arithmetic: float, traffic: float, between: float, launches: int, machine: Machine) -> Limit:
    """The limit, from the seconds of arithmetic and traffic, and the bytes of intermediates `between` kernels."""
    copied = machine.traffic_seconds(between)
    if max(arithmetic, traffic) + copied < max(launches, 1) * machine.launch_seconds:
        return Limit.LAUNCH
    return Limit.ARITHMETIC if arithmetic > traffic + copied else Limit.MEMORY


def price_inner(
    instance: Instance, typed: LocalOperator, dtype: str, mesh: Mesh, machine: Machine, gradient: bool
) -> float:
    """Seconds of the collectives inside an operator, forward and, with a `gradient`, backward."""
    forward, backward = inner_steps(instance, typed, DTYPE_BYTES[dtype])
    steps = [*forward, *(backward if gradient else ())]
    return sum(_inner_price(step, mesh, machine).seconds(count) for step, count in steps)


@lru_cache(maxsize=4096)
def _inner_price(step: Step, mesh: Mesh, machine: Machine) -> Price:
    return price_steps((step,), mesh, machine, 1.0)


def price_updates(counts: Seconds, machine: Machine) -> Seconds:
    """Seconds of the optimizer's step over these local bytes of a parameter."""
    if machine.measured.update is not None:
        return machine.measured.update.at(counts)
    return machine.traffic_seconds(UPDATE_PASSES * counts)


def price_update(count: float, machine: Machine) -> float:
    """`price_updates` of one number of bytes."""
    return float(price_updates(np.asarray(count), machine))


def price_accumulation(count: float, machine: Machine) -> float:
    """Seconds of the kernel that adds a gradient of `count` local bytes to another one, in place."""
    return machine.exposed_launch + machine.traffic_seconds(ACCUMULATION_PASSES * count)


UPDATE_PASSES = 7
ACCUMULATION_PASSES = 3
"""Two gradients are read, and one is written."""
MOMENTS = 2
"""Tensors that AdamW holds for each parameter besides its gradient."""
