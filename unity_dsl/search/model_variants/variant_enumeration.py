"""Enumerates models that rules make of a model, within a limit.

A rule is applied at one place, at all its places, and again to the results. Only the most promising models, by their
cost on one device, are changed further, and the number of models is limited. `complete` says that this left none out.
Rules are matched within one graph: the model's, or the body of a repeat, which stands for all its iterations. A match
across the border of two iterations is not found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...graph.graph import Graph, Model, Node, Segment
from ...graph.layout import Mesh
from ...graph.layout_typing import type_operator
from ...index.library import Library
from ...machine.machine import Machine
from ...rules.graph_identity import Identities, Identity, operation
from ...syntax.parse_rules import RuleDecl
from ..choices.operator_options import float_types, price_node
from .rewritten_model import Variant

LIMIT = 64
"""Models that rules make of one model, not counting the given one."""
KEPT = 8
"""Models of one round of changes from which the next round continues."""
TRIES = 4
"""Matches that are carried out for every model that is made: most of them give a known model."""


@dataclass(frozen=True)
class Variants:
    """The models found, those with the best estimate first, without the given model. `unused` says which rules cannot
    be used.
    """

    found: tuple[Variant, ...]
    complete: bool
    unused: tuple[str, ...]


def variants(
    model: Model,
    rules: Sequence[RuleDecl],
    library: Library,
    estimate: Callable[[Model], float],
    limit: int = LIMIT,
    kept: int = KEPT,
) -> Variants:
    """Models that equal this one by proved rules. `estimate` gives the cost of a model: less is better."""
    # Imported here, as it loads most of the prover, which only a model with rules needs.
    from .rule_applications import Changes

    changes = Changes(rules, library, TRIES * limit)
    identities = Identities()
    known: dict[Identity, None] = {identities.of(model): None}
    ranked: list[tuple[float, Variant]] = []
    frontier = [Variant(model)]
    while frontier and len(known) <= limit:
        made_now: list[tuple[float, Variant]] = []
        for variant in (new for old in frontier for new in changes.of(old)):
            identity = identities.of(variant.model)
            if identity in known:
                continue
            if len(known) > limit:
                changes.complete = False
                break
            known[identity] = None
            made_now.append((estimate(variant.model), variant))
        ranked += made_now
        best = sorted(made_now, key=_worth)
        frontier = [variant for _, variant in best[:kept]]
        changes.complete &= len(best) <= kept
    # If the models made last reach the limit, they are not changed further.
    complete = changes.complete and not frontier
    return Variants(tuple(variant for _, variant in sorted(ranked, key=_worth)), complete, changes.unused)


def _worth(entry: tuple[float, Variant]) -> tuple[float, int]:
    """Sorts by the estimate, and equal ones by the number of changes."""
    return entry[0], len(entry[1].rules)


# ---------------------------------------------------------------------------------------------- worth


class SingleDevice:
    """The cost of all operators of a model on one device, which is compared before layouts are chosen.

    In contrast to the price of a plan, it includes what the statements of an operator without a native call build on
    the way. An operator made of several therefore does not look cheaper than these.
    """

    def __init__(self, machine: Machine, library: Library) -> None:
        self.machine = machine
        self.library = library
        self._found: dict[tuple[object, ...], float] = {}

    def seconds(self, model: Model) -> float:
        return self._graph(model.graph)

    def _graph(self, graph: Graph) -> float:
        return sum(
            step.count * step.probability * self._graph(step.body) if isinstance(step, Segment) else self.operator(step)
            for step in graph.steps
        )

    def operator(self, node: Node) -> float:
        """Seconds of one operator, forward and backward."""
        key = operation(node.instance), node.gradients, float_types(node)
        if key not in self._found:
            self._found[key] = self._priced(node)
        return self._found[key]

    def _priced(self, node: Node) -> float:
        alone = Mesh(())
        typed = type_operator(node.instance, (), alone, self.library)
        assert not isinstance(typed, str), typed
        return float(price_node(node, [typed], alone, self.machine, self.library)[0])
