"""Lists the theorems that a plan rests on."""

from __future__ import annotations

from ..graph.layout_typing import Along, Role
from ..graph.plan import Plan
from ..index.library import Library
from ..rules.padding_theorems import claim_key, statement
from ..rules.sharding_theorems import ShardingTheorems, claims_about


def list_declared(plan: Plan) -> list[dict[str, str]]:
    """What the plan assumes because a declaration says so, in program order, each once."""
    found: dict[str, dict[str, str]] = {}
    for planned in plan.graph.nodes():
        instance = planned.node.instance
        for role in dict.fromkeys(planned.typed.configuration):
            if isinstance(role, Along) and role.axis in instance.declared:
                axis = instance.declared[role.axis]
                statement = f"{instance.name} along {axis}"
                found.setdefault(statement, {"operator": instance.name, "axis": axis})
    return list(found.values())


def list_theorems(plan: Plan, library: Library) -> list[dict[str, str | list[str]]]:
    """The statement of each theorem, the hash of what its proof looked at, and the facts that it assumes, if any.

    They are in program order, each once.
    """
    theorems = ShardingTheorems(library)
    found: dict[str, dict[str, str | list[str]]] = {}
    for padded in plan.model.claims:
        found.setdefault(claim_key(padded), {"theorem": statement(padded), "proof": claim_key(padded)})
    told: set[tuple[int, Role]] = set()
    for planned in plan.graph.nodes():
        node = planned.node
        claims = claims_about(node.instance, node.gradients, library)
        for role in dict.fromkeys(planned.typed.configuration):
            if (id(claims), role) in told:
                continue
            told.add((id(claims), role))
            for claim in claims.of(role):
                if claim.declared:
                    continue
                key = theorems.key(claim)
                entry: dict[str, str | list[str]] = {
                    "theorem": f"{claim.operator.name} {claim.statement}",
                    "proof": key,
                }
                if assumed := theorems.assumed(claim):
                    entry["assumed"] = list(assumed)
                found.setdefault(key, entry)
    return list(found.values())


def list_assumed(plan: Plan, library: Library) -> list[str]:
    """The unproved facts about element functions that the plan rests on, each once.

    The facts of the theorems of its configurations come first, then those of the rules that it applies.
    """
    facts = [fact for entry in list_theorems(plan, library) for fact in entry.get("assumed", ())]
    facts += [fact for applied in plan.rules for fact in applied.assumed]
    return list(dict.fromkeys(facts))
