"""A plan drawn by chance, of a model drawn from those that rules and fusions make: the strategy `random`."""

from __future__ import annotations

from random import Random

from ..graph.graph import Graph, Model, Segment
from ..graph.layout import Mesh
from ..graph.plan import Plan
from ..machine.conversion_model import ConversionModel
from .accounting.plan_cost import plan_cost
from .cheapest_plan import keeps_pins
from .choices.restriction import Restriction
from .layout_pins import apply_pins
from .layout_problem.variable_meaning import Impossible, Meaning
from .model_variants.rewritten_model import Variant
from .model_variants.variant_enumeration import SingleDevice, variants
from .refusals import explain_refusal
from .search_context import SearchContext
from .search_space import SearchSpace
from .strategies import random

FUSED = 0.5
"""Fraction of the drawn plans whose models have operators fused wherever possible."""


def drawn_plan(model: Model, mesh: Mesh, context: SearchContext, seed: int, space: SearchSpace) -> Plan:
    """A plan drawn by chance, the same for the same seed, of the model or one that rules make and that keeps pins."""
    machine, library, pins, rules, fusions = space.machine, space.library, space.pins, space.rules, space.fusions
    rng = Random(seed)
    found = variants(model, rules, library, SingleDevice(machine, library).seconds).found if rules else ()
    chosen = rng.choice([Variant(model), *(variant for variant in found if keeps_pins(variant.model, pins, model))])
    if fusions and rng.random() < FUSED:
        from ..rules.fusing import fused

        order = rng.sample(fusions, len(fusions))
        made, applied = fused(chosen.model, order, library, lambda _, before, after: keeps_pins(after, pins, before))
        chosen = Variant(made, (*chosen.rules, *applied))
    made = chosen.model
    restriction = apply_pins(Restriction(), pins, made, mesh, library)
    try:
        graph = random(made, mesh, library, rng, context.theorems, restriction)
    except Impossible as reason:
        raise explain_refusal(reason, restriction, made, mesh, library, context.strategy) from None
    conversions = ConversionModel(mesh, machine, library, context.gradient_bytes)
    cost = plan_cost(graph, _all_priced(made.graph), conversions, made.loss)
    note = f"drawn by chance, seed {seed}"
    strategy = context.strategy
    return Plan(made, mesh, machine.name, strategy, graph, cost, conversions, (note,), chosen.rules, 1 + len(found))


def _all_priced(graph: Graph) -> Meaning:
    """A graph in which no value is taken to be free."""
    return Meaning(graph, bodies=[_all_priced(step.body) for step in graph.steps if isinstance(step, Segment)])
