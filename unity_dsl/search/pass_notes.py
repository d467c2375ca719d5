"""Notes on the passes that a plan was given: what each does, and what the step would take without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ..graph.chunked_products import chunks_of_plan
from ..graph.interleaved_repeats import in_model_order, start_delays
from ..graph.layout_conversion import BUCKET_MIB
from ..graph.plan import Plan, PlannedGraph, PlannedNode
from ..index.library import Library


def pass_notes(plan: Plan, library: Library, seconds: Callable[[Plan], float]) -> Iterator[str]:
    """A note on each pass that overlaps work, and on branches; `seconds` gives the simulated step of a plan."""
    for told, without in _passes(plan, library):
        yield f"{told} ({seconds(plan) / seconds(without):.3f} x step time)"
    yield from _branches(plan)


def _passes(plan: Plan, library: Library) -> Iterator[tuple[str, Plan]]:
    """The words for each pass, and the plan without it."""
    passes = plan.passes
    if passes.deferred_gradients:
        yield "weight gradients are deferred to overlap communication", plan.with_passes(deferred_gradients=False)
    if passes.interleaved:
        named = "; ".join(", ".join(f"`{name}`" for name in names) for names in passes.interleaved)
        without = replace(plan.with_passes(interleaved=(), skew=1), graph=in_model_order(plan))
        yield f"interleaved execution of {named}: one computes while another communicates", without
    if passes.skew > 1:
        behind = (", ".join(map(str, start_delays(len(names), passes.skew))) for names in passes.interleaved)
        yield f"skewed start of these repeats, by {'; '.join(behind)} iterations", plan.with_passes(skew=1)
    if passes.chunks > 1:
        yield f"decomposed matmul: {chunked_words(plan, library)}", plan.with_passes(chunks=1)
    if words := bucket_words(plan):
        yield f"{words}, instead of {BUCKET_MIB} MiB", plan.with_passes(bucket_mib=BUCKET_MIB)


def bucket_words(plan: Plan) -> str:
    """How gradients are summed, if the size of buckets is not the usual one; else empty."""
    if plan.passes.bucket_mib == BUCKET_MIB:
        return ""
    if plan.passes.bucket_mib == 0:
        return "no bucketing of gradients"
    return f"gradient buckets of {plan.passes.bucket_mib} MiB"


def chunked_words(plan: Plan, library: Library) -> str:
    """Which matmuls of a plan are decomposed, and how; empty if none is."""
    reading, sent = dict[str, None](), dict[str, None]()
    for path, found in chunks_of_plan(plan, library, plan.passes.chunks) if plan.passes.chunks > 1 else ():
        (sent if found.reads is None else reading)[f"`{path}{found.product.step.node.name}`"] = None
    told = [
        *([f"{', '.join(reading)}: blocks of what is gathered are multiplied as they arrive"] if reading else []),
        *([f"{', '.join(sent)}: a part of {plan.passes.chunks} is summed while the next is computed"] if sent else []),
    ]
    return "; ".join(told)


def _branches(plan: Plan) -> Iterator[str]:
    """Which values are made on which coordinate of a mesh axis."""
    made: dict[int, dict[int, list[str]]] = {}
    for name, axis, coordinate in _placed(plan.graph):
        made.setdefault(axis, {}).setdefault(coordinate, []).append(name)
    for axis, groups in made.items():
        told = ", ".join(f"{_some(names)} on {number}" for number, names in sorted(groups.items()))
        yield f"branches run on {plan.mesh.degrees[axis]} disjoint groups of devices: {told}"


def _placed(graph: PlannedGraph) -> Iterator[tuple[str, int, int]]:
    """The values that are made on one coordinate of a mesh axis, without those in repeats."""
    for step in graph.steps:
        if isinstance(step, PlannedNode):
            for axis, coordinate in step.placement:
                yield step.node.results[0].name, axis, coordinate


def _some(names: Sequence[str]) -> str:
    """The first and the last of the names."""
    return f"`{names[0]}`" if len(names) == 1 else f"`{names[0]}` to `{names[-1]}`"
