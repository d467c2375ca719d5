"""How a plan divides a model, in words: `FSDP over 8; attn and ff tensor-parallel over 2`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from ..graph.axis_names import DEVICES, MIXED
from ..graph.layout import Shard
from ..graph.plan import Plan, PlannedGraph, PlannedSegment

_WORDS = {
    "data": "data-parallel",
    "fsdp": "FSDP",
    "sequence": "sequence-parallel",
    "tensor": "tensor-parallel",
    "expert": "expert-parallel",
    "branch": "branches apart",
    MIXED: "each operator in its own layout",
    DEVICES: "no matrix product divided",
}
"""The usual terms for what axes are named after."""
_CUT = ("tensor", "expert")
"""Axes along which weights are cut. The parts of the model with such weights are named."""
_NAMED = 5


def division_words(plan: Plan) -> str:
    """What the mesh axes do. Axes that do the same are listed together."""
    parts: dict[str, list[int]] = {}
    for number, name in enumerate(axis.name for axis in plan.mesh.axes):
        parts.setdefault(name.partition("_")[0], []).append(number)
    return "; ".join(_words(stem, axes, plan) for stem, axes in parts.items())


def _words(stem: str, axes: Sequence[int], plan: Plan) -> str:
    degrees = [plan.mesh.axes[axis].degree for axis in axes]
    over = f"over {prod(degrees)}"
    cut = list(dict.fromkeys(_cut(plan.graph, set(axes), ""))) if stem in (*_CUT, "data") else []
    named = f"{', '.join(cut[:_NAMED])}{f' and {len(cut) - _NAMED} more' if len(cut) > _NAMED else ''}"
    where = f"{': ' if stem in _CUT else ' with slices of '}{named}" if cut else ""
    return f"{_WORDS[stem]} {over}{where}"


def _cut(graph: PlannedGraph, axes: set[int], prefix: str) -> Iterator[str]:
    """The blocks, or weights outside of blocks, that are stored in slices along mesh axes. Names leave out repeats."""
    for weight in graph.graph.weights:
        if axes & {*graph.values[weight.value.name].produced.where(Shard)}:
            yield prefix + weight.value.name.rpartition(".")[0] or weight.value.name
    for step in graph.steps:
        if isinstance(step, PlannedSegment):
            for run in step.runs:
                yield from _cut(run.body, axes, prefix)


def overlap_words(plan: Plan) -> str:
    """How the program overlaps communication and computation, apart from gradient buckets of the usual size."""
    told = {
        f"interleaved execution of {len(plan.passes.interleaved)} sets of repeats": len(plan.passes.interleaved) > 1,
        "interleaved execution": len(plan.passes.interleaved) == 1,
        "deferred weight gradients": plan.passes.deferred_gradients,
        f"decomposed matmul in {plan.passes.chunks} chunks": plan.passes.chunks > 1,
        f"gradient buckets of {plan.passes.bucket_mib} MiB": plan.passes.bucket_mib > 0,
        "no gradient buckets": plan.passes.bucket_mib == 0,
    }
    return ", ".join(words for words, holds in told.items() if holds)


def rewrite_words(plan: Plan) -> str:
    """The rules that were applied, each with its count, or that none was."""
    counts: dict[str, int] = {}
    for used in plan.rules:
        counts[used.rule] = counts.get(used.rule, 0) + 1
    if not counts:
        return "none" + (f" of {plan.considered - 1} candidate models is faster" if plan.considered > 1 else "")
    return ", ".join(f"{rule} ({count}×)" if count > 1 else rule for rule, count in _most_used(counts))


def _most_used(counts: Mapping[str, int]) -> Sequence[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
