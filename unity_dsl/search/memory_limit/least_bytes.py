"""A lower bound on the peak memory of a device in a training step of a model, in whatever layouts, before any search.

Bytes are counted at one moment: as the operator runs that holds the most besides, or as its gradient does. They are the
weights with what training keeps of them, cut as finely as any mesh cuts them; what operators before it keep for the
backward pass, and what this one holds, divided evenly over all devices. No layout divides a tensor further, and every
conversion adds to it. Numbers of micro-batches and ways to recompute for which the bound exceeds the memory need not be
searched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ...graph.graph import Graph, Model, Node
from ...graph.layout import Mesh
from ...graph.layout_typing import TypedOperator, type_operator
from ...graph.plan import Cost, Plan
from ...index.library import Library
from ..accounting.memory_budget import Budget
from ..accounting.recomputation import added
from ..accounting.weighed_plan import recomputing
from ..choices.restriction import node_path
from .held_bytes import HeldBytes, Moment, busiest
from .stored_bytes import HELD_TRAINED, StoredBytes


@dataclass(frozen=True)
class LeastBytes:
    """Lower bounds on what each of so many `devices` holds, for models of which training keeps the `stored` weights.
    `accumulates` says that gradients of other micro-batches are there all the while. Counts `known` of graphs, by what
    is recomputed, are reused.
    """

    stored: StoredBytes
    devices: int
    library: Library
    accumulates: bool
    known: dict[tuple[int, frozenset[str]], tuple[Graph, list[float]]] = field(default_factory=dict, repr=False)

    def of(self, model: Model, recomputed: Collection[str] = ()) -> float:
        """Least bytes on a device during the step of a model that recomputes these segments, or some of their
        iterations only.
        """
        weights = self.stored.least_on_any(self.devices)
        if model.loss is None:
            return 0.0
        kept = HELD_TRAINED if self.accumulates else HELD_TRAINED - 1
        every = [self._counted(model.graph, paths) for paths in {frozenset[str](), frozenset(recomputed)}]
        others: float = sum(min(ways) for ways in zip(*every, strict=True))
        return max(weights, weights * kept / HELD_TRAINED + others / self.devices)

    def of_plans(self, model: Model, cheapest: Plan, segments: Collection[str]) -> float:
        """The same for all plans that a search within the memory looks at: of a model, and of what rules made of it in
        its `cheapest` plan. Any of the `segments` may be recomputed, besides those that this plan recomputes.
        """
        graphs = {id(one.graph): one for one in (model, cheapest.model)}
        return min(self.of(one, (*cheapest.passes.recomputed, *segments)) for one in graphs.values())

    def lengthened(self, cheapest: Plan, segments: Collection[str], budget: Budget) -> Plan:
        """The cheapest plan without a limit, with the seconds that it has to recompute at least to fit. If there is
        room for a part of what is otherwise kept, only the rest is recomputed.
        """
        whole, again = self.of(cheapest.model), self.of(cheapest.model, segments)
        part = (whole - budget.bytes) / (whole - again) if whole > again else 0.0
        if part <= 0:
            return cheapest
        longer = recomputing(cheapest, segments, budget.machine, self.library).cost.seconds - cheapest.cost.seconds
        return replace(cheapest, cost=added(cheapest.cost, Cost(compute=longer), min(1.0, part)))

    def _counted(self, graph: Graph, recomputed: frozenset[str]) -> list[float]:
        """The least that each operator up to the busy one holds, undivided."""
        key = id(graph), recomputed
        if key not in self.known:
            busy = busiest(graph, self.library)
            nodes = (step for step in graph.steps if isinstance(step, Node) and step.name == busy)
            moment = Moment(self.accumulates, f"{busy}") if any(map(_makes_less, nodes)) else None
            held = HeldBytes(graph, self.library, recomputed=recomputed, moment=moment)
            self.known[key] = graph, list(_of_graph(graph, "", 1, held))
        return self.known[key][1]


def _of_graph(graph: Graph, prefix: str, times: int, held: HeldBytes) -> Iterator[float]:
    """The bytes of each operator of a graph, up to the busy one, on one device. Bodies whose execution depends on the
    data count as nothing, since they may not be executed.
    """
    for step in graph.steps:
        if not isinstance(step, Node):
            count = step.count if step.predicate is None else 0
            yield from _of_graph(step.body, f"{prefix}{step.name}.", times * count, held)
            continue
        yield times * min(_of_node(step, prefix, typed, held) for typed in _ways(step, held.library))
        if node_path(prefix, step) == held.busy:
            return


def _of_node(node: Node, prefix: str, typed: TypedOperator, held: HeldBytes) -> float:
    """Bytes of one operator. The results of a busy one do not count: what a later operator keeps of them is gone as its
    gradient runs.
    """
    found = float(held.of_operator(node, prefix, [typed], Mesh(()))[0])
    if node_path(prefix, node) == held.busy:
        found -= sum(value.bytes for value in node.results if prefix + value.name in held.kept.made)
    return found


def _makes_less(node: Node) -> bool:
    """Whether gradients of operands are tensors of their own: each is larger than all results, so none is that of a
    result.
    """
    made = sum(value.elements for value in node.results)
    return all(value.elements > made for value, needed in zip(node.arguments, node.gradients, strict=True) if needed)


def _ways(node: Node, library: Library) -> Sequence[TypedOperator]:
    """An operator on one device, by its native call, if it has one, and by its statements."""
    typed = type_operator(node.instance, (), Mesh(()), library)
    assert not isinstance(typed, str), typed
    return [typed, replace(typed, native=False)] if typed.native else [typed]
