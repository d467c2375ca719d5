"""What the docstring of model.py says about its plan."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from ..graph.plan import Plan
from ..graph.precision import TF32
from ..machine.byte_count import describe_bytes
from .program_names import docstring_text


def program_facts(plan: Plan) -> Iterator[str]:
    """Its lines."""
    cost, mesh = plan.cost, plan.mesh
    if mesh.size == 1:
        yield "On one device."
    else:
        axes = ", ".join(f"{axis.name} = {axis.degree}" for axis in mesh.axes)
        yield f"On {mesh.size} devices, mesh {axes}; strategy {docstring_text(plan.strategy)}."
    what = "a step" if plan.model.loss is not None else "a call; without a loss it is for inference"
    for name, size in plan.part_of_batch.items():
        yield f"A step runs {plan.micro_batches} micro-batches, each of {docstring_text(name)} = {size}."
    yield (
        f"Predicted: {plan.seconds * 1e3:.3g} ms {what} (the search counts compute {cost.compute * 1e3:.3g}, "
        f"communication {cost.communication * 1e3:.3g},"
    )
    yield f"update {cost.update * 1e3:.3g}), {describe_bytes(cost.memory.total)} a device."
    if plan.model.precision == TF32:
        yield "Products and convolutions of float32 may round their factors to TF32 on GPUs."
    if plan.model.loss is not None:
        yield "Run: python train.py" if mesh.size == 1 else f"Run: torchrun --nproc-per-node {mesh.size} train.py"
    for note in plan.notes:
        yield from wrap(docstring_text(note), 118, break_long_words=False, break_on_hyphens=False)
    yield ""
    yield "Comments name the line of the model, the operator, and along which mesh axis which of its axes is divided."
