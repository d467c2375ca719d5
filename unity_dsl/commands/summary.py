"""The chosen plan, as plain data and as parts of sentences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..compilation import Compilation
from ..emit.passes_data import describe_passes
from ..emit.plan_file import TORCH, describe_cost
from ..emit.theorem_list import list_assumed, list_declared
from ..graph.graph import Buffer, Weight
from ..graph.model_flops import model_flops
from ..graph.plan import Memory, Plan, PlannedGraph, PlannedSegment
from ..machine.byte_count import describe_bytes
from ..written_figures import duration, in_units

KERNELS_FILE = "kernels.py"


def summarise(compilation: Compilation, files: Sequence[Path], kernels: str = TORCH) -> dict[str, Any]:
    """The chosen plan as plain data: seconds, bytes per device, and the layout of every weight and buffer. `kernels` is
    the kind of kernels that was asked for.
    """
    plan = compilation.plan
    return {
        "model": plan.model.name,
        "parameters": plan.parameters,
        "precision": plan.model.precision,
        "machine": plan.machine,
        "devices": plan.mesh.size,
        "mesh": {axis.name: axis.degree for axis in plan.mesh.axes},
        "strategy": plan.strategy,
        "micro_batches": plan.micro_batches,
        "cost": describe_cost(plan.cost),
        "layouts": stored_layouts(compilation),
        "rules": [{"rule": used.rule, "place": used.place} for used in plan.rules],
        "declared": list_declared(plan),
        "assumed": list_assumed(plan, compilation.library),
        **describe_passes(plan.passes),
        "notes": [*plan.notes, *kernel_notes(files, kernels)],
        "warnings": [{"code": found.code, "message": found.message} for found in plan.warnings],
        "files": [str(path) for path in files],
    }


def stored_layouts(compilation: Compilation) -> dict[str, str]:
    """The layout in which each weight and buffer is stored; `layer.*.w` if all iterations of a repeat agree."""
    return _stored(compilation.plan.graph)


def _stored(graph: PlannedGraph) -> dict[str, str]:
    stored: tuple[Weight | Buffer, ...] = (*graph.graph.weights, *graph.graph.buffers)
    found = {item.value.name: str(graph.values[item.value.name].produced) for item in stored}
    for step in graph.steps:
        if isinstance(step, PlannedSegment):
            runs = [(part, _stored(part.body)) for part in step.runs]
            if step.segment.predicate is not None:
                found |= {f"{step.segment.name}.{name}": layout for name, layout in runs[0][1].items()}
                continue
            for name in runs[0][1]:
                if len({layouts[name] for _, layouts in runs}) == 1:
                    found[f"{step.segment.name}.*.{name}"] = runs[0][1][name]
                    continue
                for part, layouts in runs:
                    last = part.first + part.count - 1
                    place = f"{part.first}" if part.count == 1 else f"{part.first}-{last}"
                    found[f"{step.segment.name}.{place}.{name}"] = layouts[name]
    return found


def kernel_notes(files: Sequence[Path], kernels: str) -> list[str]:
    """A note if kernels were asked for and the program has none."""
    if kernels == TORCH or any(path.name == KERNELS_FILE for path in files):
        return []
    return [f"no operators run as one kernel: none that follow each other can be fused, so there is no {KERNELS_FILE}"]


def batch_text(plan: Plan) -> str:
    """The number of micro-batches in a step, and their size."""
    name, size = next(iter(plan.part_of_batch.items()))
    return f"{plan.micro_batches} micro-batches of {name} = {size} a step of {name} = {plan.parameters[name]}"


def memory_text(memory: Memory, limit: float | None = None) -> str:
    """The peak memory of a device, its limit, what it is made of, and when it occurs."""
    parts = {
        "parameters": memory.parameters,
        "buffers": memory.buffers,
        "gradients": memory.gradients,
        "optimizer": memory.optimizer,
        "activations": memory.activations,
    }
    listed = ", ".join(f"{name} {describe_bytes(count)}" for name, count in parts.items() if count)
    at = f"; the peak is in {memory.at}" if memory.at else ""
    of = "" if limit is None else f" of {describe_bytes(limit)}"
    return f"{describe_bytes(memory.total)}{of} a device: {listed}{at}"


def describe_flops(plan: Plan) -> str:
    """The operations of a step that count for its utilisation (model FLOPs)."""
    return operations(plan.micro_batches * sum(model_flops(plan.model).values()))


def operations(flops: float) -> str:
    """Three significant digits in PFLOP, TFLOP, …"""
    return in_units(flops, {"PFLOP": 1e15, "TFLOP": 1e12, "GFLOP": 1e9, "MFLOP": 1e6})


def relative(seconds: float, of: float) -> str:
    """How much longer than `of`: `+2.50%`. If `of` is zero it is the difference itself."""
    return f"{seconds / of - 1:+.2%}" if of else f"+{duration(seconds)}"


def precision_text(plan: Plan) -> str:
    """The precision, after a comma; empty for a model that has none."""
    return f", {plan.model.precision}" if plan.model.precision is not None else ""
