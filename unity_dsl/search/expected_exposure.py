"""What of a step's work is exposed before any plan is known: launches and gathers by experience, sums by the model."""

from __future__ import annotations

from dataclasses import replace

from ..graph.graph import Model
from ..graph.layout import Mesh
from ..graph.model_flops import products_of_matrices, seconds_at_peak
from ..graph.plan import Exposure
from ..machine.group_price import gathering_price
from ..machine.machine import Machine

AHEAD = Exposure(launches=0.2, sums=0.1, gathers=0.05)
"""What a first search counts where the host does not compute; of sums it may be more."""
LONG = 192
"""Times a launch: what a product of matrices and those of its gradients take at least, on average, where plans on all
meshes are searched as if chunks hid what is sent beside them. Of llama3_8b on 64 H100 they are 444, and its step takes
0.7 % less; of bert_large there 87, and on 512 11, where chunks launch more than they hide.
"""
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


def has_long_products(machine: Machine, model: Model, devices: int) -> bool:
    """Whether products of matrices take so long on average, divided among devices, that in chunks they may hide what is
    sent beside them: of plans of other layouts than where nothing is hidden.
    """
    if machine.device == "cpu":
        return False
    reached, seconds, count = _reached(machine), 0.0, 0.0
    for dtype, flops, times in products_of_matrices(model):
        seconds += times * flops / reached[dtype] / devices
        count += times
    return seconds > LONG * machine.launch_seconds * count


def _reached(machine: Machine) -> dict[str, float]:
    """Operations a second of products, by float type."""
    return {dtype: peak * machine.compute_efficiency for dtype, peak in machine.peak.items()}
