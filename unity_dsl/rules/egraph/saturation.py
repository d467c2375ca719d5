"""Equality saturation: applies proved rules to the e-graphs of a model in rounds, within limits.

Willsey et al., "egg: Fast and Extensible Equality Saturation", POPL 2021; rules of several roots as in Yang et al.,
"Equality Saturation for Tensor Graph Superoptimization", MLSys 2021 (Tensat). Rules that merge siblings would apply to
their own results without end. Here several siblings are merged one after the other in the order of the graph, so that
each set of them is merged in only one way.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...graph.graph import Graph, Model, Node, Segment, Value
from ...graph.plan import AppliedRule
from ...index.library import Library
from ...prove.translation.rule_forms import calls
from ...syntax.ast import Reduce
from ...syntax.canonical_text import syntax_nodes
from ...syntax.diagnostic import InputError
from ...syntax.parse_rules import GraphCall, GraphView
from ..graph_match import Match, Operators, TooMany, left_operands, matches_among
from ..infinities import Infinities, Known, infinities, infinities_of_results
from ..rewrite import all_names
from ..right_side import Made, Refused, RightSide
from ..substitution import Substitution
from .enode import Enode
from .equality_graph import EqualityGraph, equality_graph
from .prospect import Prospect, left_skeleton, skeleton_of

ROUNDS = 4
"""Rounds in which every rule is applied at all its matches."""
LARGEST = 2000
"""Limit of operators in one e-graph."""
SIBLINGS = 4
"""Limit of siblings that rules of several roots merge, one after the other."""


@dataclass(frozen=True)
class Saturated:
    """The e-graphs of a model: first its own, then those of bodies. `limits` says which limits cut the search short.
    `rules` are the rules whose matches were searched for, by name.
    """

    graphs: tuple[EqualityGraph, ...]
    limits: tuple[str, ...]
    rules: Mapping[str, Substitution]


def saturate(
    model: Model,
    rules: Sequence[Substitution | Prospect],
    library: Library,
    kept: frozenset[str] = frozenset(),
    accept: Callable[[str], None] = lambda _: None,
    poll: Callable[[], None] = lambda: None,
    rounds: int = ROUNDS,
    largest: int = LARGEST,
) -> Saturated:
    """The e-graphs of a model after applying rules. With a loss, alternatives are found only for values that have a
    gradient. Values with paths in `kept` are always computed. `accept` is called with the name of a rule when it first
    matches, and `poll` for every match. Raises what these raise.
    """
    known = infinities(model, library)
    names, limits, used = all_names(model), dict[str, None](), dict[str, Substitution]()
    found = []
    for egraph in _egraphs(model, kept):
        infinite, gradients = dict(known[egraph.path]), model.loss is not None
        work = _Saturation(egraph, library, names, infinite, gradients, limits, accept, used, poll)
        work.run(rules, rounds, largest)
        found.append(egraph)
    return Saturated(tuple(found), tuple(limits), used)


def _egraphs(model: Model, kept: frozenset[str]) -> Iterator[EqualityGraph]:
    def of(path: tuple[str, ...], graph: Graph, given: Iterable[Value], left: Iterable[Value]) -> EqualityGraph:
        made = (value for step in graph.steps for value in step.makes)
        named = frozenset(value.name for value in made if ".".join((*path, value.name)) in kept)
        return equality_graph(path, graph, given, left, named)

    def bodies(graph: Graph, path: tuple[str, ...]) -> Iterator[EqualityGraph]:
        for step in graph.steps:
            if isinstance(step, Segment):
                inside = (*path, step.name)
                given = (*step.entry, *step.captured, *(series.part for series in step.sliced))
                yield of(inside, step.body, given, step.leaves)
                yield from bodies(step.body, inside)

    yield of((), model.graph, (), model.returned)
    yield from bodies(model.graph, ())


_Joined = tuple[Value, Value, tuple[AppliedRule, ...]]
"""Two values that are equal, and the rules that prove it."""


@dataclass
class _Saturation:
    """The saturation of one e-graph. `merged` maps the result of a merge to the values of the graph that it merges."""

    egraph: EqualityGraph
    library: Library
    names: set[str]
    infinite: dict[str, Infinities]
    gradients: bool
    limits: dict[str, None]
    accept: Callable[[str], None]
    used: dict[str, Substitution]
    poll: Callable[[], None]
    merged: dict[str, tuple[str, ...]] = field(default_factory=dict)
    seen: set[tuple[object, ...]] = field(default_factory=set)

    def run(self, rules: Sequence[Substitution | Prospect], rounds: int, largest: int) -> None:
        self.order = {value.name: place for place, node in enumerate(self.egraph.nodes) for value in node.results}
        for _ in range(rounds):
            if not self._round(rules, largest):
                return
        self.limits["rules were applied in so many rounds that others might make more"] = None

    def _round(self, rules: Sequence[Substitution | Prospect], largest: int) -> bool:
        """Applies every rule at all its matches. Returns whether that added or joined anything."""
        egraph, nodes = self.egraph, self.egraph.nodes
        operators = Operators.of(nodes)
        known, made, joined = egraph.known(), list[Enode](), list[_Joined]()
        derived = {id(enode.node): enode.applied for enode in egraph.enodes}
        for rule in self._possible(rules, nodes):
            for match in self._matches(rule, operators):
                self.poll()
                if len(egraph.enodes) + len(made) > largest:
                    self.limits[f"a graph has more than {largest} operators with those that rules make"] = None
                    break
                found = self._applied(match, known, derived)
                if found is not None:
                    made += found[0]
                    joined += found[1]
        egraph.enodes += made
        for first, second, applied in joined:
            if egraph.can_join(first, second):
                egraph.join(first, second, applied)
        before = len(nodes)
        egraph.rebuild()
        self._infinities()
        return bool(joined) or len(egraph.enodes) > before

    def _possible(self, rules: Sequence[Substitution | Prospect], nodes: Sequence[Node]) -> Iterator[Substitution]:
        """The rules whose left sides may occur among these operators, prepared for matching."""
        skeleton = skeleton_of(nodes)
        for rule in rules:
            if left_skeleton(rule.rule, rule.library).within(skeleton):
                found = rule if isinstance(rule, Substitution) else rule.prepared
                if found is not None and shares_an_operand(found):
                    self.used[found.rule.name] = found
                    yield found

    def _matches(self, rule: Substitution, operators: Operators) -> Iterator[Match]:
        if self._reorders(rule):
            self.limits["associativity of add and concat is not explored"] = None
            return

        def is_wanted(roots: Sequence[Value], values: Mapping[str, Value], matched: Sequence[Node]) -> bool:
            bound = sorted((name, value.name) for name, value in values.items())
            key = rule.rule.name, *(root.name for root in roots), *bound
            new = key not in self.seen
            self.seen.add(key)
            return new and self._is_wanted(roots, matched)

        try:
            yield from matches_among(rule, operators, self.egraph.path, self.infinite, is_wanted)
        except TooMany:
            if rule.undetermined is None:
                self.limits[f"rule `{rule.rule.name}` fits more places than were looked at"] = None

    def _is_wanted(self, roots: Sequence[Value], matched: Sequence[Node]) -> bool:
        if self.gradients and not all(root.needs_gradient for root in roots):
            return False
        if any(root.name in self.egraph.stored for root in roots):
            return False
        return len(roots) == 1 or self._are_siblings(roots, matched)

    def _reorders(self, rule: Substitution) -> bool:
        """Whether a rule only states that an operator without reductions is associative or commutative."""
        sides = (replace(rule.rule, left=side, right=(), definitions=()) for side in (rule.rule.left, rule.rule.right))
        left, right = (Counter(call.name for call in calls(side)) for side in sides)
        if left != right or len(left) != 1 or rule.rule.definitions:
            return False
        statements = rule.library.operators[next(iter(left))].statements
        return not any(isinstance(term, Reduce) for statement in statements for term in syntax_nodes(statement.value))

    def _are_siblings(self, roots: Sequence[Value], matched: Sequence[Node]) -> bool:
        """Whether the roots read a common value and can be merged in graph order. The last root must be a value of the
        graph that comes after all values of the other roots, which may be merges.
        """
        read = [{value.name for value in _maker(matched, root).arguments} for root in roots]
        if not set.intersection(*read):
            return False
        *_, last = roots
        members = [self.merged.get(root.name, (root.name,)) for root in roots]
        every = [name for one in members for name in one]
        if len(every) > SIBLINGS or last.name in self.merged or not all(name in self.order for name in every):
            return False
        places = [self.order[name] for name in every]
        return places == sorted(set(places))

    def _applied(
        self, match: Match, known: Made, derived: Mapping[int, tuple[AppliedRule, ...]]
    ) -> tuple[list[Enode], list[_Joined]] | None:
        """The new operators of a match, and the values that it makes equal; None if it cannot be applied."""
        self.accept(match.substitution.rule.name)
        local: ChainMap[tuple[object, ...], Value] = ChainMap({}, known)
        right = RightSide(match, local, self.names)
        try:
            results = [
                right.root(expr, root) for root, expr in zip(match.roots, match.substitution.rule.right, strict=True)
            ]
        except (Refused, InputError):
            return None
        pairs = [*zip(match.roots, results, strict=True)]
        if any(root.dtype != found.dtype for root, found in pairs):
            return None
        if all(_is_cyclic(root, found, right.made) for root, found in pairs):
            self.names -= {value.name for node in right.made for value in node.results if value not in match.roots}
            return None
        joined = [(root, found) for root, found in pairs if root.name != found.name]
        if self.gradients and not all(value.needs_gradient for node in right.made for value in node.results):
            return None
        for root, found in joined:
            if not self.egraph.can_join(root, found):
                right.copy(found, root)
        known.update(local.maps[0])
        before = dict.fromkeys(rule for node in match.nodes for rule in derived.get(id(node), ()))
        first = _maker(match.nodes, match.roots[0])
        applied = (*before, match.applied(first.span))
        mixed, tf32 = match.nodes[0].mixed, match.nodes[0].tf32
        made = [Enode(replace(node, mixed=mixed, tf32=tf32), applied) for node in right.made]
        self._note_merge(match, made)
        return made, [(root, found, applied) for root, found in joined]

    def _note_merge(self, match: Match, made: Sequence[Enode]) -> None:
        if len(match.roots) > 1:
            names = {node.instance.name for node in match.nodes}
            members = tuple(name for root in match.roots for name in self.merged.get(root.name, (root.name,)))
            for enode in made:
                for value in enode.node.results:
                    if enode.node.instance.name in names:
                        self.merged[value.name] = members

    def _infinities(self) -> None:
        """Computes the infinities of new values. An operator is processed after the operators that make its
        operands.
        """
        pending = [node for node in self.egraph.nodes if any(value.name not in self.infinite for value in node.results)]
        while pending:
            left = []
            for node in pending:
                if all(value.name in self.infinite for value in node.arguments):
                    known: Known = self.infinite
                    made = infinities_of_results(node.instance, [known[v.name] for v in node.arguments], self.library)
                    for value, one in zip(node.results, made, strict=True):
                        self.infinite.setdefault(value.name, one)
                else:
                    left.append(node)
            if len(left) == len(pending):
                break
            pending = left


def _is_cyclic(root: Value, found: Value, made: Sequence[Node]) -> bool:
    """Whether new operators compute a value from the root that it replaces; extraction could never use them."""
    makers = {value.name: node for node in made for value in node.results}
    pending, seen = [found.name], set[str]()
    while pending:
        node = makers.get(pending.pop())
        for value in () if node is None else node.arguments:
            if value.name == root.name:
                return True
            if value.name not in seen:
                seen.add(value.name)
                pending.append(value.name)
    return False


def _maker(nodes: Sequence[Node], root: Value) -> Node:
    return next(node for node in nodes if any(value.name == root.name for value in node.results))


def shares_an_operand(rule: Substitution) -> bool:
    """Whether all roots of a rule read a common tensor. Without one, the merged operators could be anywhere
    in a graph.
    """
    calls = [side for side in rule.left if isinstance(side, GraphCall | GraphView)]
    return len(calls) < 2 or bool(set.intersection(*({name.name for name in left_operands(side)} for side in calls)))
