"""Random legal plans, and what they contain."""

from __future__ import annotations

from collections import Counter
from random import Random

from unity_dsl.graph.graph import Model
from unity_dsl.graph.layout import Mesh
from unity_dsl.graph.layout_conversion import Conversions
from unity_dsl.graph.plan import Cost, Plan, PlannedGraph, PlannedSegment
from unity_dsl.index.library import Library
from unity_dsl.machine.conversion_model import ConversionModel
from unity_dsl.machine.machine import load_machine
from unity_dsl.rules.sharding_theorems import ShardingTheorems
from unity_dsl.search.choices.restriction import Restriction
from unity_dsl.search.strategies.random import random, role_names


def random_plan(
    model: Model, mesh: Mesh, library: Library, rng: Random, restriction: Restriction | None = None
) -> Plan:
    """A plan drawn from all legal ones, rare roles as often as common ones.

    Raises Impossible if a restriction leaves none.
    """
    graph = random(model, mesh, library, rng, ShardingTheorems(library), restriction or Restriction())
    return Plan(model, mesh, "fuzz", "random", graph, Cost(), ConversionModel(mesh, load_machine("local"), library))


def features(plan: Plan) -> Counter[str]:
    """How often each role and each kind of collective occurs in a plan, backward collectives included."""
    return _features(plan.graph, plan.conversions)


def _features(graph: PlannedGraph, conversions: Conversions) -> Counter[str]:
    found: Counter[str] = Counter()
    for planned in graph.values.values():
        for made in planned.materialised:
            value = planned.value
            conversion = conversions.conversion(made.source, made.layout, value.shape, value.bytes)
            found.update(f"forward {step.kind}" for step in conversion.forward)
            found.update(f"backward {step.kind}" for step in conversion.backward if value.needs_gradient)
    for step in graph.steps:
        if isinstance(step, PlannedSegment):
            found["runs"] += len(step.runs)
            for run in step.runs:
                found += _features(run.body, conversions)
        else:
            found.update(set(role_names(step.typed)))
            found[f"operator {step.node.instance.name}"] += 1
    return found
