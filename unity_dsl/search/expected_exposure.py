"""What of a step's work is exposed before any plan is known: launches and gathers by experience, sums by the model."""

from __future__ import annotations

from dataclasses import replace

from ..graph.graph import Model
from ..graph.layout import Mesh
from ..graph.model_flops import seconds_at_peak
from ..graph.plan import Exposure
from ..machine.group_price import gathering_price
from ..machine.machine import Machine

AHEAD = Exposure(launches=0.2, sums=0.1, gathers=0.05)
"""What a first search counts where the host does not compute; of sums it may be more."""
BACKWARD = 2 / 3
"""Of the products of a step: two for the gradients, one forward."""
PRODUCTS = 0.5
"""Assumed: of the time of kernels, what products take. Published runs of large models have utilisations of 29 to 55 %
(docs/prices.md).
"""


def expected_exposure(machine: Machine, model: Model, mesh: Mesh) -> Exposure:
    """Of a model on all devices of a mesh. Where the host computes, everything is exposed.

    Sums of gradients run beside the kernels of the backward pass, so what takes longer than these is exposed: compared
    are its kernels, of whose time the products are a part, divided among all devices, and a reduce-scatter of all
    gradients over them. A model of tables, with much to sum and little to compute, hides almost nothing.
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
    """Operations a second of products, by float type."""
    return {dtype: peak * machine.compute_efficiency for dtype, peak in machine.peak.items()}
