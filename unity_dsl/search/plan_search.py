"""One solution with options by name, for programs and tests that do without the loop of the search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from ..graph.axis_names import named_axes
from ..graph.graph import Model
from ..graph.layout import Mesh
from ..graph.plan import Plan
from ..index.library import Library
from ..machine.machine import Machine
from ..machine.mesh import all_meshes, build_mesh
from ..rules.sharding_theorems import ShardingTheorems
from ..syntax.parse_rules import RuleDecl
from .layout_pins import Pin
from .search_space import SearchSpace, Solving
from .solve import solve
from .strategies import AUTO, STRATEGIES


def meshes_for(machine: Machine, devices: int, shape: tuple[int, ...] | None, strategy: str) -> tuple[Mesh, ...]:
    """The meshes that a plan may be on: that of a given shape, if there is one. Otherwise these are all meshes for
    `auto`, those that its authors allow for another strategy, or else that of the prime factors. Raises E302 and E303.
    """
    if shape is None and strategy == AUTO:
        return all_meshes(machine, devices)
    chooses = STRATEGIES[strategy].meshes if shape is None and strategy in STRATEGIES else None
    if chooses is not None:
        return chooses(machine, devices)
    return (build_mesh(machine, devices, shape),)


def search(
    model: Model,
    meshes: Mesh | Sequence[Mesh],
    machine: Machine,
    library: Library,
    strategy: str = AUTO,
    pins: Mapping[str, Pin] = {},
    rules: Sequence[RuleDecl] = (),
    **options: Any,
) -> Plan:
    """The plan of `solve`, its mesh axes named by what they do. Options are fields of SearchSpace and of Solving; by
    default operators have the configurations with a certificate and those that the prover proves now.
    """
    how = Solving(**{one.name: options.pop(one.name) for one in fields(Solving) if one.name in options})
    proving = options.pop("theorems", None) or ShardingTheorems(library)
    space = SearchSpace(machine, library, proving, strategy, pins, rules, **options)
    found = solve(model, (meshes,) if isinstance(meshes, Mesh) else meshes, space, how).plan
    return replace(found, mesh=named_axes(found.graph, found.mesh))
