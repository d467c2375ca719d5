"""The facts about a plan in the docstring of model.py."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from ..graph.padding import padding_words
from ..graph.plan import Advice, Plan, Proof
from ..graph.precision import TF32
from ..machine.byte_count import describe_bytes
from ..written_figures import duration
from .program_names import docstring_text

NODE = 8
"""More devices than this span several nodes, whatever the machine."""


def run_words(devices: int, node: int) -> str:
    """The command, before the file to run, that starts one process per device on nodes of `node` devices."""
    if devices == 1:
        return "python"
    if devices <= node:
        return f"torchrun --nproc-per-node {devices}"
    nodes = -(-devices // node)
    return f"torchrun --nnodes {nodes} --nproc-per-node {node} --rdzv-backend c10d --rdzv-endpoint FIRST_NODE:29500"


def program_facts(plan: Plan) -> Iterator[str]:
    """The lines of the facts."""
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
        f"Predicted: {duration(plan.seconds)} {what} (the search counts {duration(cost.compute)} of compute, "
        f"{duration(cost.communication)}"
    )
    yield f"of communication, {duration(cost.update)} of the optimizer), {describe_bytes(cost.memory.total)} a device."
    if plan.model.padding:
        yield from wrap(f"Padded, so that devices divide them: {docstring_text(padding_words(plan.model))}.", 118)
    if plan.model.precision == TF32:
        yield "Products and convolutions of float32 may round their factors to TF32 on GPUs."
    if plan.model.loss is not None:
        yield f"Run: {run_words(mesh.size, mesh.size)} train.py" if mesh.size <= NODE else "Run: as train.py says."
    for note in (note for note in plan.notes if isinstance(note, Advice | Proof)):
        yield from wrap(docstring_text(note), 118, break_long_words=False, break_on_hyphens=False)
    yield ""
    yield "Comments name the line of the model, the operator, and along which mesh axis which of its axes is divided."
