"""E-graphs over computation graphs, in which several operators may make one value.

A class of equal values (an e-class) is one Value, with the name that the graph gives it if there is one. An e-node is a
Node over such values. Equal operators on equal values are identified (hash consing) and make equal values (congruence).
Willsey et al., "egg: Fast and Extensible Equality Saturation", POPL 2021.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ...graph.graph import Graph, Node, Segment, Value
from ...graph.plan import AppliedRule
from ..right_side import Made, made_by, made_key
from .enode import Enode


@dataclass
class EqualityGraph:
    """The e-graph of one graph: the model's graph or the body of a segment, identified by its path.

    `stored` are the values that no operator of the graph makes. `leaving` are the values that are read by something
    other than its operators. Both keep their names. The values `kept` must be read by some operator. `joined` are the
    rules by which another value represents a value of the graph.
    """

    path: tuple[str, ...]
    graph: Graph
    stored: frozenset[str]
    leaving: frozenset[str]
    kept: frozenset[str] = frozenset()
    enodes: list[Enode] = field(default_factory=list)
    parents: dict[str, Value] = field(default_factory=dict)
    joined: dict[str, tuple[AppliedRule, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.enodes += [Enode(step) for step in self.graph.steps if isinstance(step, Node)]
        self.own = {value.name for enode in self.enodes for value in enode.node.results}

    @property
    def nodes(self) -> list[Node]:
        return [enode.node for enode in self.enodes]

    def known(self) -> Made:
        """Values by the operators that make them."""
        return made_by(self.nodes)

    def find(self, value: Value) -> Value:
        """The value that represents the class of a value."""
        while value.name in self.parents:
            value = self.parents[value.name]
        return value

    def makers(self) -> Mapping[str, list[Enode]]:
        """The operators that make each class, the graph's own first."""
        found: dict[str, list[Enode]] = {}
        for enode in self.enodes:
            for value in enode.node.results:
                found.setdefault(value.name, []).append(enode)
        return found

    def can_join(self, first: Value, second: Value) -> bool:
        """Whether one value can represent both: at most one of them must keep its name, and their types are equal."""
        kept = sum(self._keeps_name(self.find(value).name) for value in (first, second))
        return kept < 2 and first.dtype == second.dtype and first.needs_gradient == second.needs_gradient

    def _keeps_name(self, name: str) -> bool:
        return name in self.stored or name in self.leaving

    def join(self, first: Value, second: Value, applied: tuple[AppliedRule, ...] = ()) -> None:
        """Joins two classes, as rules prove. The representative is the value that must keep its name, else one of the
        graph.
        """
        one, other = self.find(first), self.find(second)
        if one.name == other.name:
            return
        if self._rank(other.name) < self._rank(one.name):
            one, other = other, one
        self.parents[other.name] = one
        if other.name in self.own:
            self.joined[other.name] = applied

    def _rank(self, name: str) -> int:
        return 0 if self._keeps_name(name) else 1 if name in self.own else 2

    def rebuild(self) -> None:
        """Restores congruence: operators read the representatives of their operands, and equal operators are merged.
        Two equal operators of the original graph are not merged.
        """
        settled = False
        while not settled:
            settled = True
            kept: dict[tuple[object, ...], Enode] = {}
            for number, enode in enumerate(map(self._canonical, self.enodes)):
                node = enode.node
                key = ("random", node.site) if node.site else made_key(node.instance, node.arguments, 0)
                before = kept.setdefault(key, enode)
                made = [*zip(node.results, before.node.results, strict=True)]
                if all(one.name == other.name for one, other in made):
                    continue
                if (enode.applied or before.applied) and all(self.can_join(*values) for values in made):
                    for values in made:
                        self.join(*values, enode.applied or before.applied)
                    settled = False
                else:
                    kept[(*key, number)] = enode
            self.enodes = [enode for enode in kept.values() if self._is_useful(enode.node)]

    def _canonical(self, enode: Enode) -> Enode:
        """The operator over the representatives of classes, with the rules added that joined values of the graph."""
        node = enode.node
        gone = [value.name for value in (*node.arguments, *node.results) if value.name in self.parents]
        if not gone:
            return enode
        arguments, results = (tuple(map(self.find, values)) for values in (node.arguments, node.results))
        rules = (rule for name in gone for rule in self.joined.get(name, ()))
        return Enode(
            replace(node, arguments=arguments, results=results), tuple(dict.fromkeys((*enode.applied, *rules)))
        )

    def _is_useful(self, node: Node) -> bool:
        """Whether it makes a value that is not stored and that it does not read itself."""
        read = {value.name for value in node.arguments}
        return any(value.name not in self.stored and value.name not in read for value in node.results)


def equality_graph(
    path: tuple[str, ...],
    graph: Graph,
    outside: Iterable[Value],
    leaving: Iterable[Value],
    kept: frozenset[str] = frozenset(),
) -> EqualityGraph:
    """The e-graph of a graph before rules are applied. `leaving` are values that are read outside it, `kept` names of
    other values that must stay.
    """
    stored = {value.name for value in outside}
    stored |= {item.value.name for items in (graph.inputs, graph.weights, graph.buffers) for item in items}
    left = {value.name for value in leaving} | {update.value.name for update in graph.updates}
    for step in graph.steps:
        if isinstance(step, Segment):
            stored |= {value.name for value in step.makes}
            left |= {value.name for value in step.reads}
    return EqualityGraph(path, graph, frozenset(stored), frozenset(left) | kept, kept - left)
