"""Renders train.py, data.py and checkpoint.py, which need only torch, and optimizer.py."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ..graph.batch_tokens import batch_tokens
from ..graph.layout import Shard
from ..graph.model_flops import model_flops
from ..graph.plan import Plan, PlannedGraph, PlannedSegment, PlannedValue
from ..graph.precision import FULL, TF32, is_mixed, is_scaled
from ..machine.machine import FLOAT_TYPES, Machine
from .loss_shares_text import is_weighed, unweighted_words
from .program_facts import run_words
from .program_names import TORCH_TYPES, docstring_text
from .templates import template

STOPPED = 130
"""Exit code after SIGINT or SIGTERM: the one that shells use for an interrupt."""


def render_train(plan: Plan, machine: Machine, kernels: bool = False, mixing: str = "") -> str:
    """train.py of a plan for a machine. It imports model.py and names nothing of the model but its name. With `kernels`
    its AdamW comes from optimizer.py. `mixing` says why a step over several batches is not a step over one larger
    batch.
    """
    name = plan.model.name
    description = f"Trains {name} on {plan.mesh.size} rank" + ("s." if plan.mesh.size > 1 else ".")
    narrow = TORCH_TYPES[plan.model.precision or FULL]
    count, tokens = plan.micro_batches, batch_tokens(plan.model)
    names = "PARAMETERS, WORLD_SIZE, Model, build_mesh, set_tf32"
    several = ("BATCH as INPUTS", f"LOSS_DIVISOR, {names}")
    return template("train.py.j2").render(
        model=name,
        world=plan.mesh.size,
        run=run_words(plan.mesh.size, machine.node_devices if machine.device == "cuda" else plan.mesh.size),
        stopped=STOPPED,
        description=json.dumps(description),
        kernels=kernels,
        imported=several if plan.division else (f"INPUTS, {names}",),
        division=plan.division,
        batch=plan.parameters[plan.division.parameter] if plan.division else None,
        outputs=bool(plan.model.outputs),
        mixed=is_mixed(plan.model),
        scaled=is_scaled(plan.model),
        bucket_mib=plan.passes.bucket_mib,
        flops={TORCH_TYPES[dtype]: count * flops for dtype, flops in model_flops(plan.model).items()},
        peak=_peaks(plan, machine),
        machine=json.dumps(docstring_text(machine.name)),
        machine_device=machine.device,
        seconds=plan.seconds,
        tokens=tokens and count * tokens,
        samples=_samples(plan),
        branches=_branches(plan),
        unrecorded=_unrecorded(plan),
        shares=is_weighed(plan.model),
        unweighted=_unweighted(plan),
        mixing=json.dumps(f"train.py: a step over several batches is not one over a larger batch: {mixing}")
        if mixing
        else "",
        types=f"float32 and {narrow}" if is_mixed(plan.model) else "float32",
    )


def _peaks(plan: Plan, machine: Machine) -> dict[str, float]:
    """Peak FLOP/s of one device, by torch's name of the type that products multiply."""
    known = {TORCH_TYPES[dtype]: machine.peak[dtype] for dtype in FLOAT_TYPES}
    return known | ({TORCH_TYPES[TF32]: machine.peak[TF32]} if plan.model.precision == TF32 else {})


def _samples(plan: Plan) -> int | None:
    """The number of examples in a batch, if all inputs with dimensions agree on it; else None."""
    rows = {given.value.shape[0] for given in plan.model.graph.inputs if given.value.shape}
    return rows.pop() * plan.micro_batches if len(rows) == 1 else None


def _branches(plan: Plan) -> bool:
    """Whether the model has a cond, which decides by the data what runs."""
    return any(step.segment.predicate is not None for step in _segments(plan.graph))


def _unweighted(plan: Plan) -> str | None:
    """Why several batches per step are refused, as a Python literal: names of files may have any characters."""
    words = unweighted_words(plan.model)
    return None if words is None else json.dumps(f"--accumulate: a step would be a mean of means: {words}")


def _unrecorded(plan: Plan) -> str | None:
    """Why passes are not recorded as CUDA graphs, which run the same kernels at the same addresses every time; else
    None.
    """
    if plan.mesh.size > 1:
        return "this program has collectives, and is not recorded with them"
    return "a cond of this program decides by the data which kernels run" if _branches(plan) else None


def _segments(graph: PlannedGraph) -> Iterator[PlannedSegment]:
    for step in graph.steps:
        if isinstance(step, PlannedSegment):
            yield step
            for run in step.runs:
                yield from _segments(run.body)


def render_optimizer() -> str:
    """optimizer.py: AdamW as one kernel. It is the same for every plan."""
    return template("optimizer.py.j2").render()


def render_data(plan: Plan) -> str:
    """data.py: the data functions that train.py offers. It is the same for every plan."""
    return template("data.py.j2").render()


def render_checkpoint(plan: Plan) -> str:
    """checkpoint.py: saving and loading under the model's own names."""
    gathered = sorted(name for name, value in stored_values(plan.graph) if not _placeable(value))
    return template("checkpoint.py.j2").render(
        gathered=repr(gathered) if gathered else "", scaled=is_scaled(plan.model)
    )


def stored_values(graph: PlannedGraph, prefix: str = "") -> Iterator[tuple[str, PlannedValue]]:
    """Every weight and buffer under its full name, repeated ones once per iteration."""
    for value in (*(weight.value for weight in graph.graph.weights), *(buffer.value for buffer in graph.graph.buffers)):
        yield prefix + value.name, graph.values[value.name]
    for step in graph.steps:
        if isinstance(step, PlannedSegment):
            for run in step.runs:
                for path in step.segment.paths[run.first : run.first + run.count]:
                    yield from stored_values(run.body, prefix + path)


def _placeable(stored: PlannedValue) -> bool:
    """Whether torch's DTensor can express the layout: contiguous slices, several mesh axes on one dimension in mesh
    order, without padding.
    """
    layout = stored.produced
    shards = [kind for kind in layout.kinds if isinstance(kind, Shard)]
    ordered = all(list(layout.nesting(s.dim)) == sorted(layout.nesting(s.dim)) for s in shards)
    ordered = ordered and not stored.value.unpadded
    return ordered and not layout.placement and all(shard.by == "partition" for shard in shards)
