"""Words about a plan in names and comments of an emitted program: layouts, roles, places in the model's text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from textwrap import wrap

from ..graph.axis_names import common_name
from ..graph.graph import Node, Segment
from ..graph.layout import At, Invariant, Kind, Layout, Mesh, Partial, Replicate, Shard
from ..graph.layout_typing import Along, Configuration, Linearly, Uniformly
from ..graph.placed_operators import Placed
from ..graph.plan import PlannedGraph, PlannedSegment, Run
from ..syntax.span import Span


def layout_word(layout: Layout) -> str:
    """A layout as the end of a name: `R,S0` is `rs0`, a user's cut is its name and the dimension, `@1` is `at1`."""
    return "".join(map(_kind_word, layout.kinds)) or "i"


def _kind_word(kind: Kind) -> str:
    match kind:
        case At(coordinate=coordinate):
            return f"at{coordinate}"
        case Shard(by="partition") | Invariant() | Replicate() | Partial():
            return str(kind).lower()
    return f"{kind.by}{kind.dim}".lower()


def where(span: Span | None) -> str:
    """`bert.udl:41  `: the file without its folders, and the line."""
    if span is None:
        return ""
    file = span.source.name.replace("\\", "/").rpartition("/")[2]
    return f"{file}:{span.line}  "


def origin(node: Node, roles: str) -> str:
    """`bert.udl:41  linear: b along a, by rule fused`: where an operator comes from, and what mesh axes do for it."""
    by = f", by rule {node.rule}" if node.rule is not None else ""
    return f"{where(node.span)}{node.instance.name}{roles}{by}"


def roles(configuration: Configuration, mesh: Mesh, operands: Sequence[str]) -> str:
    """What each mesh axis does for an operator: `: b along a, copies along b`; empty if all are Invariant."""
    words = []
    for role, same in groupby(range(len(mesh.axes)), lambda axis: configuration[axis]):
        axes = list(same)
        common = common_name(axes, mesh)
        for name in [common] if common else [mesh.axes[axis].name for axis in axes]:
            match role:
                case Along():
                    words.append(f"{role} along {name}")
                case Uniformly(kind=Replicate()):
                    words.append(f"copies along {name}")
                case Placed(coordinate=coordinate):
                    words.append(f"at {coordinate} of {name}")
                case Linearly(operands=positions):
                    words.append(f"terms of {' and '.join(operands[i] for i in positions)} along {name}")
    return f": {', '.join(words)}" if words else ""


def body_words(step: PlannedSegment, run: Run) -> list[str]:
    """The docstring lines of a body: its iterations, and the layouts in which it differs from the body of most
    iterations. For example `bert.udl:41  layer.0; layouts differ from layer.1 to layer.10: x is S0, not I`.
    """
    segment = step.segment
    words = f"{where(segment.span)}{_iterations(step, run)}"
    most = max(step.runs, key=lambda other: other.count)
    found = [] if run.body is most.body else list(_unlike(run.body, most.body))
    if not found:
        return [words]
    more = f", and {len(found) - _TOLD} more" if len(found) > _TOLD else ""
    words += f"; layouts differ from {_iterations(step, most)}: {', '.join(found[:_TOLD])}{more}"
    return wrap(words, 112, break_long_words=False, break_on_hyphens=False)


_TOLD = 4
"""How many of the differing layouts are listed."""


def _iterations(step: PlannedSegment, run: Run) -> str:
    name, last = step.segment.name, run.first + run.count - 1
    if step.segment.predicate is not None:
        return name
    return f"{name}.{run.first}" + (f" to {name}.{last}" if run.count > 1 else "")


def _unlike(body: PlannedGraph, other: PlannedGraph) -> Iterator[str]:
    """`x is S0, not I` for every value that is produced in another layout; then the values that are converted to
    others.
    """
    for name, planned in body.values.items():
        beside = other.values.get(name)
        if beside is not None and planned.produced != beside.produced:
            yield f"{name} is {planned.produced}, not {beside.produced}"
    for name, planned in body.values.items():
        beside = other.values.get(name)
        if beside is not None and planned.produced == beside.produced:
            here, there = ([str(made.layout) for made in one.materialised] for one in (planned, beside))
            if set(here) != set(there):
                yield f"{name} is converted to {_listed(here)}, not to {_listed(there)}"


def _listed(layouts: Sequence[str]) -> str:
    return " and ".join(layouts) or "none"


def loop_words(segment: Segment) -> str:
    """`repeat 3 as layer`: a loop as the model's text has it."""
    if not segment.sliced:
        return f"repeat {segment.count} as {segment.name}"
    parts = (f"{series.part.name} in {series.whole.name} along {series.dim}" for series in segment.sliced)
    return f"scan {', '.join(parts)} as {segment.name}"
