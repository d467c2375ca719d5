"""Builds the model that extractions of its e-graphs make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from ...graph.dead_code import finish
from ...graph.graph import Graph, Model, Node, Segment
from ...graph.plan import AppliedRule, Plan
from ...index.library import Library
from ...machine.machine import Machine
from ...rules.egraph.enode import Enode
from ...rules.egraph.prospect import Prospect
from ...rules.egraph.saturation import saturate
from ...rules.graph_identity import Identities
from ...rules.replay import applied_in_order
from ...rules.rewrite import ordered
from ...rules.right_side import Refused
from ...rules.shipped_rules import ShippedRules
from ...rules.substitution import Substitution, substitution_of
from ...syntax.diagnostic import InputError
from ...syntax.parse_rules import RuleDecl
from ..choices.extractions import Extractions, Group, extractions
from ..model_variants.rewritten_model import Variant
from ..model_variants.variant_enumeration import SingleDevice
from ..search_end import check_end

Chosen = Mapping[str, tuple[int, ...]]
"""By path prefix of a graph, the number of an extraction for each of its groups."""


@dataclass(frozen=True)
class Algebra:
    """The extractions of a model's graphs, by path prefix. `limits` are notes on what was left out."""

    model: Model
    graphs: Mapping[str, Extractions]
    limits: tuple[str, ...]
    rules: Mapping[str, Substitution] = field(default_factory=dict)

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups of all graphs."""
        return tuple(group for graph in self.graphs.values() for group in graph.groups)

    @property
    def changed(self) -> bool:
        """Whether every extraction differs from the given model."""
        return any(graph.changed for graph in self.graphs.values())

    @property
    def extractions(self) -> int:
        """How many models can be extracted."""
        return prod(group.extractions for group in self.groups)


@dataclass(frozen=True)
class Algebras:
    """Finds what rules make of models, once for each model: the `shipped` rules that may fit it, and others. `chosen`
    gives, by machine, the first plan that a search took among all models that rules make.
    """

    shipped: ShippedRules
    rules: Sequence[RuleDecl] = ()
    found: dict[tuple[int, frozenset[str]], tuple[Model, Algebra]] = field(default_factory=dict)
    chosen: dict[Machine, Plan] = field(default_factory=dict)

    def of(self, model: Model, machine: Machine, kept: frozenset[str] = frozenset()) -> Algebra:
        """The extractions of a model that compute the values `kept`, given by their paths. Raises E542."""
        key = id(model.graph), kept
        if key not in self.found:
            library = self.shipped.library
            given = {rule.name: substitution_of(rule, library) for rule in self.rules}
            usable = [found for found in given.values() if isinstance(found, Substitution)]
            others = [Prospect(rule, library) for rule in self.shipped.fitting(model)]
            unused = (f"rule `{name}` is not used: {why}" for name, why in given.items() if isinstance(why, str))
            algebra = algebra_of(model, [*usable, *others], machine, library, kept, self._accept, check_end)
            self.found[key] = model, replace(algebra, limits=(*algebra.limits, *unused))
        return self.found[key][1]

    def applied(self, model: Model, rules: Sequence[AppliedRule]) -> Model | None:
        """A model after rules that were applied to it at other sizes, in order; None where one does not fit."""
        known = {name: rule for _, algebra in self.found.values() for name, rule in algebra.rules.items()}
        return applied_in_order(model, rules, known)

    def looked_at(self, model: Model) -> Algebra:
        """The algebra of a model that was looked at; otherwise the first one found, if this is the same model at other
        sizes.
        """
        own = (algebra for given, algebra in self.found.values() if given.graph is model.graph)
        return next(own, next(iter(self.found.values()))[1])

    def _accept(self, name: str) -> None:
        if all(name != given.name for given in self.rules):
            self.shipped.accept(name)


def algebra_of(
    model: Model,
    rules: Sequence[Substitution | Prospect],
    machine: Machine,
    library: Library,
    kept: frozenset[str] = frozenset(),
    accept: Callable[[str], None] = lambda _: None,
    poll: Callable[[], None] = lambda: None,
) -> Algebra:
    """The e-graphs of a model after rules, and the extractions that compute the values `kept`, given by their paths. A
    rule is passed to `accept` when it first fits, and `poll` is called repeatedly. Raises what these raise.
    """
    saturated, price = saturate(model, rules, library, kept, accept, poll), SingleDevice(machine, library)
    graphs = {
        "".join(f"{name}." for name in egraph.path): extractions(egraph, price.operator) for egraph in saturated.graphs
    }
    left_out = sum(not group.complete for graph in graphs.values() for group in graph.groups)
    groups = "1 group of values has" if left_out == 1 else f"{left_out} groups of values have"
    told = (f"{groups} more extractions than were looked at",) if left_out else ()
    return Algebra(model, graphs, (*saturated.limits, *told), saturated.rules)


def extracted(algebra: Algebra, chosen: Chosen) -> Variant | None:
    """The model of these extractions, with the rules that make it. If applying the rules one by one gives the same
    model, that one is returned. None if a value would be made of itself or a random operator would be lost.
    """
    model, applied = algebra.model, list[AppliedRule]()
    try:
        graph = _graph(algebra, chosen, model.graph, "", applied)
        made = finish(model.with_returned(graph, model.returned), None if model.loss is None else model.loss.span)
    except (Refused, InputError):
        return None
    rules = tuple(dict.fromkeys(applied))
    rewritten = applied_in_order(model, rules, algebra.rules)
    if rewritten is not None and (identities := Identities()).of(rewritten) == identities.of(made):
        return Variant(rewritten, rules)
    sites = [sorted(node.site for node in one.graph.nodes() if node.site) for one in (model, made)]
    return Variant(made, rules) if sites[0] == sites[1] else None


def _graph(algebra: Algebra, chosen: Chosen, graph: Graph, prefix: str, applied: list[AppliedRule]) -> Graph:
    """The graph that the chosen extractions make. Raises Refused where values would be made of themselves."""
    found = algebra.graphs[prefix]
    nodes = {id(enode.node): enode.node for enode in found.fixed_enodes}
    applied += (rule for enode in found.fixed_enodes for rule in enode.applied)
    for group, number in zip(found.groups, chosen[prefix], strict=True):
        for choice in group.choices:
            if isinstance(enode := choice.enodes[number], Enode):
                nodes[id(enode.node)] = enode.node
                applied += enode.applied
    segments = [
        replace(segment, body=_graph(algebra, chosen, segment.body, f"{prefix}{segment.name}.", applied))
        for segment in graph.segments
    ]
    place = {value.name: number for number, step in enumerate(graph.steps) for value in step.makes}
    steps: list[Node | Segment] = [*nodes.values(), *segments]
    steps.sort(key=lambda step: min((place[value.name] for value in step.makes if value.name in place), default=-1))
    return replace(graph, steps=ordered(steps))
