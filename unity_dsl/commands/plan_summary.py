"""What `unityc` prints about a plan: at most a dozen lines, or with --verbose every layout and note."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ..compilation import Compilation
from ..emit.plan_file import TORCH
from ..emit.theorem_list import list_assumed, list_declared
from ..graph.batch_tokens import batch_tokens
from ..graph.model_flops import seconds_at_peak
from ..graph.padding import padding_words
from ..graph.plan import Advice, Plan, Proof
from ..machine.machine import Machine, read_machine
from ..search.accounting.kept_iterations import recomputed_words, segment_words
from ..search.plan_notes import DUALITY
from ..simulation.timeline import StepTime
from ..syntax.diagnostic import first_of
from ..written_figures import duration, in_units, percent
from .console import show_lines
from .division_words import division_words, overlap_words, rewrite_words
from .summary import batch_text, kernel_notes, memory_text, precision_text, stored_layouts

LINES = 12
_SPEEDS = {"M tokens/s": 1e6, "k tokens/s": 1e3, "tokens/s": 1.0}
_NAMED = 8
"""How many weights of one layout are named; plan.json has them all."""

Line = tuple[str, str]


def show_summary(compilation: Compilation, files: Sequence[Path], kernels: str = TORCH, verbose: bool = False) -> None:
    """Prints a few lines for people; with `verbose` all layouts and notes."""
    plan = compilation.plan
    first = summary_lines(compilation)
    last = [("wrote", f"{files[0].parent}: {', '.join(path.name for path in files)}")]
    notes = [note for note in plan.notes if verbose or isinstance(note, Advice)]
    notes += kernel_notes(files, kernels)
    if plan.model.loss is None:
        notes.append("the model has no loss: it is for inference, and there is no train.py")
    lines = [*_assumed(compilation), *(("note", note) for note in notes)]
    if verbose:
        lines = [*_layouts(compilation), *lines]
    elif (over := len(first) + len(lines) + len(last) - LINES) > 0:
        told = f"{over + 1} more: `--verbose` prints them, {files[-1].name} holds them"
        lines = [*lines[: -over - 1], ("notes", told)]
    show_lines([*first, *lines, *last])


def summary_lines(compilation: Compilation) -> list[Line]:
    """The lines on what is planned, where, how fast and what limits it, on memory, on how it is divided, and how sure
    that is.
    """
    return list(_head(compilation.plan, read_machine(compilation.sources.machine), compilation.spent))


def _head(plan: Plan, machine: Machine, spent: StepTime | None) -> Iterator[Line]:
    cost, count = plan.cost, plan.mesh.size
    devices = "1 device" if count == 1 else f"{count} devices"
    yield "plan", f"{plan.model.name}{precision_text(plan)}, on {devices} of {plan.machine}, by `{plan.strategy}`"
    yield "step" if plan.model.loss is not None else "call", _speed(plan, machine)
    if spent is not None:
        yield "limit", _limit(plan, spent)
    yield "memory", memory_text(cost.memory, machine.memory_bytes)
    if plan.division is not None:
        yield "batch", batch_text(plan)
    if count > 1:
        axes = " × ".join(f"{axis.name}={axis.degree}" for axis in plan.mesh.axes)
        yield "divided", f"{division_words(plan)} [mesh {axes}]"
    if plan.model.padding:
        yield "padding", padding_words(plan.model)
    if count > 1 and plan.model.loss is not None:
        yield "overlap", overlap_words(plan)
    if plan.passes.recomputed:
        yield "recompute", f"activation checkpointing: {recomputed_words(plan)}"
    if plan.passes.offloaded:
        yield "offload", f"activations in host memory: {segment_words(plan, plan.passes.offloaded)}"
    yield "rewrites", rewrite_words(plan)
    if proofs := _proofs(plan):
        yield "search", "; ".join(proofs)


def _proofs(plan: Plan) -> list[str]:
    """How far the plan may be from the best one: within the memory limit, if that decides, else among layouts and
    rules.
    """
    proofs = [note for note in plan.notes if isinstance(note, Proof)]
    if within := [proof.removeprefix(DUALITY) for proof in proofs if proof.startswith(DUALITY)]:
        return [proof.partition(", as the search")[0] for proof in within]
    return [(proof if proof.startswith("not") else proof.partition(":")[0]).replace(*_PLAINLY) for proof in proofs]


_PLAINLY = "the additive cost model", "the sum of costs, overlap not counted"


def _speed(plan: Plan, machine: Machine) -> str:
    """Predicted seconds of a step, tokens per second, and the fraction of the devices' peak."""
    told = [f"{duration(plan.seconds)} predicted"]
    tokens = batch_tokens(plan.model)
    if tokens and plan.seconds:
        told.append(in_units(plan.micro_batches * tokens / plan.seconds, _SPEEDS))
    least = seconds_at_peak(plan.model, machine.peak, plan.mesh.size)
    if plan.seconds and least:
        told.append(f"{percent(100 * plan.micro_batches * least / plan.seconds)} of the devices' peak FLOP/s")
    return ", ".join(told)


def _limit(plan: Plan, spent: StepTime) -> str:
    """What the simulated step is spent on, the largest part first."""
    parts = {
        "compute": spent.compute,
        "optimizer": spent.update,
        "exposed communication": spent.exposed,
        "waiting for launches": spent.idle,
    }
    seconds = sum(parts.values())
    if not seconds:
        return "nothing is computed"
    order = sorted(parts, key=lambda name: -parts[name])
    told = (f"{name} {percent(100 * parts[name] / seconds)}" for name in order if parts[name] >= 0.005 * seconds)
    return (
        f"{', '.join(told)}; all communication {duration(plan.cost.communication)}"
        if plan.mesh.size > 1
        else ", ".join(told)
    )


def _assumed(compilation: Compilation) -> Iterator[Line]:
    plan = compilation.plan
    declared = [f"{entry['operator']} along {entry['axis']}" for entry in list_declared(plan)]
    if declared:
        yield "declared", f"{', '.join(declared)} (assumed, not proved)"
    yield from (("assumes", fact) for fact in list_assumed(plan, compilation.library))


def _layouts(compilation: Compilation) -> Iterator[Line]:
    by_layout: dict[str, list[str]] = {}
    for name, layout in stored_layouts(compilation).items():
        by_layout.setdefault(layout, []).append(name)
    for layout, names in sorted(by_layout.items()):
        if layout:
            yield f"weights {layout}", first_of(names, _NAMED)
