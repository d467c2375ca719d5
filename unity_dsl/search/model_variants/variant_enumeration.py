"""Enumerates models that rules make of a model, within a bound.

A rule is applied at one place, at all its places, and again to what came out. Only the most promising models are
changed further, by what they would cost on one device, and only so many are made: `complete` says whether that left any
out. Rules are matched within one graph, the model's or the body of a repeat, which stands for all its iterations; a
match over the border of two iterations is not found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...graph.graph import DTYPE_BYTES, Graph, Model, Node, Segment
from ...graph.layout import Mesh
from ...graph.layout_typing import type_operator
from ...graph.local_lowering import local_execution
from ...graph.precision import arithmetic
from ...index.library import Library
from ...machine.machine import Machine
from ...machine.operator_price import price_statements, priced_kernels
from ...rules.graph_identity import Identities, Identity, operation
from ...syntax.parse_rules import RuleDecl
from ..choices.operator_options import float_types, price_node
from .rewritten_model import Variant

LIMIT = 64
"""Models that rules make of one, the given one not counted."""
KEPT = 8
"""Of the models of one round of changes, those that the next round goes on from."""
TRIES = 4
"""Matches that are carried out for every model that is made: most make a model that is there already."""


@dataclass(frozen=True)
class Variants:
    """Those that look best on one device first, the given model left out. `unused` says which rules fit no model."""

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
    """Models that equal this one by proved rules. `estimate` says what a model is worth: less is better."""
    # Only a model with rules has to wait for what applies them, which is most of the prover.
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
    # Models made last are not changed further where the limit is met with them.
    complete = changes.complete and not frontier
    return Variants(tuple(variant for _, variant in sorted(ranked, key=_worth)), complete, changes.unused)


def _worth(entry: tuple[float, Variant]) -> tuple[float, int]:
    """Of equal ones, that with the fewest changes."""
    return entry[0], len(entry[1].rules)


# ---------------------------------------------------------------------------------------------- worth


class SingleDevice:
    """What the operators of a model cost on one device, all of them: what is compared before layouts are chosen.

    Unlike in a plan, what the statements of an operator without a native call build on the way counts as well: one made
    of several operators does not look cheaper than these.
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
        alone, instance, gradients = Mesh(()), node.instance, node.gradients
        typed = type_operator(instance, (), alone, self.library)
        assert not isinstance(typed, str), typed
        seconds = float(price_node(node, [typed], alone, self.machine, self.library)[0])
        if typed.native:
            return seconds
        width = DTYPE_BYTES[arithmetic(node, typed.native, self.library)]
        execution = local_execution(instance, typed, alone, self.library, gradients, width)
        passes = 2 if any(gradients) else 1  # backwards, cotangents of what is built
        return seconds + passes * price_statements(execution, priced_kernels(instance, typed), self.machine)
