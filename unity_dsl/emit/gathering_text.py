"""Weights that an emitted program gathers together: which they are, and how they are written down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..graph.layout import Layout
from ..graph.plan import PlannedGraph, PlannedNode, PlannedSegment
from .comment_words import layout_word
from .conversion_text import Collectives
from .program_names import path


@dataclass(frozen=True)
class Gather:
    """A weight, stored in slices, that one operator reads gathered."""

    name: str
    stored: Layout
    layout: Layout
    conversion: str

    @property
    def variable(self) -> str:
        """The wanted name of the variable that holds it gathered."""
        return f"{self.name}_{layout_word(self.layout)}"

    @property
    def pair(self) -> str:
        return f"(parallel.{self.conversion}, {path('self', self.name, '_parameters')})"


def find_gathers(
    steps: Iterable[PlannedNode | PlannedSegment],
    planned: PlannedGraph,
    once: Mapping[str, Layout],
    collectives: Collectives,
) -> dict[str, list[Gather]]:
    """The weights that are gathered for operators among these steps of a graph, by what their conversions run over:
    `sync` or `groups`. `once` are all such weights of the graph, with the layouts that are read.
    """
    found: dict[str, list[Gather]] = {}
    for step in steps:
        for value in step.node.arguments if isinstance(step, PlannedNode) else ():
            if (layout := once.get(value.name)) is not None:
                stored = planned.values[value.name].produced
                conversion = collectives.conversion(
                    stored,
                    layout,
                    value.shape,
                    value.bytes,
                    value.stored_bytes,
                    gradient=True,
                    in_buckets=True,
                    deferred=True,
                )
                assert conversion is not None, "slices are gathered"
                over = "sync" if conversion.deferred else "groups"
                found.setdefault(over, []).append(Gather(value.name, stored, layout, conversion.name))
    return found


def pairs(gathers: Sequence[Gather]) -> str:
    """The text of a list of conversions with their weights."""
    return f"[{', '.join(gather.pair for gather in gathers)}]"


def targets(names: Sequence[str]) -> str:
    """The left side of an assignment of several values, in brackets where it may be broken into lines."""
    joined = ", ".join(names)
    return joined if 1 < len(names) < 4 else f"({joined}{',' if len(names) == 1 else ''})"


def conversions(gathers: Sequence[Gather]) -> str:
    """What happens to them, as a comment."""
    return ", ".join(dict.fromkeys(f"{gather.stored} -> {gather.layout}" for gather in gathers))
