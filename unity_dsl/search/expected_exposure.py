"""The exposed fractions of a step's work before any plan is known: launches and gathers by experience, sums by the
model.
"""

from __future__ import annotations

from dataclasses import replace

from ..graph.graph import Model
from ..graph.layout import Mesh
from ..graph.model_flops import seconds_at_peak
from ..graph.plan import Exposure
from ..machine.group_price import gathering_price
from ..machine.machine import Machine

AHEAD = Exposure(launches=0.2, sums=0.1, gathers=0.05)
"""Exposure in a first search where the host does not compute; that of sums may be higher."""
BACKWARD = 2 / 3
"""Fraction of a step's products that are in the backward pass: two for the gradients, one forward."""
PRODUCTS = 0.5
"""Assumed fraction of kernel time that products take. Published runs of large models have utilisations of 29 to 55 %
(docs/prices.md).
"""


def expected_exposure(machine: Machine, model: Model, mesh: Mesh) -> Exposure:
    """The exposure expected of a model on all devices of a mesh. Everything is exposed where the host computes.

    Sums of gradients overlap with the kernels of the backward pass; the part that takes longer is exposed. The kernels'
    time follows from the products, a fraction of it, divided among all devices. It is compared with a reduce-scatter of
    all gradients over them. A model of tables has much to sum and little to compute, and overlaps almost nothing.
    """
    if machine.device == "cpu":
        return Exposure()
    summed = 0.0
    if mesh.size > 1 and model.loss is not None:
        summed = gathering_price(tuple(range(len(mesh.axes))), mesh, machine).seconds(model.gradient_bytes)
    if not summed:
        return AHEAD
    reached = _reached(machine)
    beside = BACKWARD * seconds_at_peak(model, reached, mesh.size) / PRODUCTS
    return replace(AHEAD, sums=max(AHEAD.sums, 1 - beside / summed))


def _reached(machine: Machine) -> dict[str, float]:
    """Operations per second that products reach, by float type."""
    return {dtype: peak * machine.compute_efficiency for dtype, peak in machine.peak.items()}
