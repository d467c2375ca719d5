"""Restrictions of the search space by strategies and pins: choices that are pinned, and layouts that are excluded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from itertools import product

from ...graph.graph import Graph, Model, Node, Segment, Value
from ...graph.layout import At, Invariant, Layout, Placement, Shard, nest
from ...graph.layout_typing import Configuration


class Keeping(Enum):
    """How all trained weights are stored. `WHOLE`: on every device. `SLICES`: in slices as small as possible.
    `GATHERED`: in such slices, but read whole. `HYBRID`: in slices along the last mesh axis and whole along others
    (hybrid sharding of FSDP). `AS_READ`: as large a part of each weight as its reader reads, if there is only one.
    """

    WHOLE = "whole"
    SLICES = "in slices"
    GATHERED = "in slices and read whole"
    HYBRID = "in slices along the last mesh axis"
    AS_READ = "as they are read"


@dataclass(frozen=True)
class Restriction:
    """Limits what operators and values may have. Keys are paths: names, within a repeat after its name
    (`layer.attn.w`). Anything that is not named is free.

    `configurations` are of operators, `storage` of weights and buffers, `produced` of other values. A value is neither
    stored nor produced in its `excluded` layouts. `placed` gives the coordinates on which a value is made. `keeping`,
    if set, says how all trained weights that are not named are stored.
    """

    configurations: Mapping[str, Configuration] = field(default_factory=dict)
    storage: Mapping[str, Layout] = field(default_factory=dict)
    produced: Mapping[str, Layout] = field(default_factory=dict)
    excluded: Mapping[str, frozenset[Layout]] = field(default_factory=dict)
    placed: Mapping[str, Placement] = field(default_factory=dict)
    keeping: Keeping | None = None


@dataclass(frozen=True)
class Place:
    """A value of a model by its path; `segments` are the repeats around it, outermost first.

    `node` makes the value, if a node does. `stored` marks weights and buffers, `given` marks inputs. `carried` is the
    path under which the body of a repeat finds the value.
    """

    path: str
    value: Value
    segments: tuple[Segment, ...] = ()
    node: Node | None = None
    stored: bool = False
    given: bool = False
    carried: str = ""

    def printed(self) -> Iterator[str]:
        """The names under which the written program shows the value: those of its class, and with `_` for dots."""
        around = self.path.removesuffix(self.value.name)
        for name in (self.value.name, self.value.name.replace(".", "_")):
            yield from (name, around + name)
        if self.carried:
            yield self.carried

    def names(self) -> Iterator[str]:
        """The path for every choice of iterations: `layer.0.w`, `layer.1.w`, …"""
        for around in product(*(segment.paths for segment in self.segments)):
            yield "".join((*around, self.value.name))


def stored_values(graph: Graph) -> Iterator[Value]:
    """The weights and buffers that a graph declares."""
    yield from (weight.value for weight in graph.weights)
    yield from (buffer.value for buffer in graph.buffers)


@lru_cache(maxsize=1 << 16)
def storable(layout: Layout) -> bool:
    """Whether a parameter can be stored in a layout: Invariant, At, or Shard in mesh order. Its gradient then arrives
    in the same layout.
    """
    cut = all(isinstance(k, Invariant | At) or (isinstance(k, Shard) and k.by == "partition") for k in layout.kinds)
    return cut and layout == nest(layout.kinds)


def node_path(prefix: str, node: Node) -> str:
    """The path of an operator; `prefix` ends with a dot or is empty."""
    return prefix + node.name


def places(model: Model) -> Iterator[Place]:
    """Every value of a model, those of repeated bodies once, in order."""
    yield from _places(model.graph, "", ())


def _places(graph: Graph, prefix: str, segments: tuple[Segment, ...]) -> Iterator[Place]:
    for source in graph.inputs:
        yield Place(prefix + source.value.name, source.value, segments, given=True)
    for value in stored_values(graph):
        yield Place(prefix + value.name, value, segments, stored=True)
    for step in graph.steps:
        if isinstance(step, Node):
            for value in step.results:
                yield Place(prefix + value.name, value, segments, step)
            continue
        inner = f"{prefix}{step.name}."
        for series in step.sliced:
            yield Place(inner + series.part.name, series.part, (*segments, step))
        # An entry is no place of its own: it is the initial value at first, then the exit of the previous iteration.
        yield from _places(step.body, inner, (*segments, step))
        carried = {result.name: inner + entry.name for result, entry in zip(step.results, step.entry, strict=True)}
        for value in step.makes:
            yield Place(prefix + value.name, value, segments, carried=carried.get(value.name, ""))
