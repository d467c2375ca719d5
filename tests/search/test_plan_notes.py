"""Notes of a plan on the machine that it was made for, and on what it recomputes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unity_dsl.graph.plan import Memory
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.mesh import build_mesh
from unity_dsl.search.plan_notes import as_limited, limit_notes
from unity_dsl.search.plan_search import search
from unity_dsl.syntax.diagnostic import warn

from .conftest import Build

MODEL = """
model small[n = 1]
  {precision}
  input x: f32[8, 16]
  input target: f32[8, 16]
  weight a: f32[16, 16] ~ normal(0.1)
  loss mse(linear(x, a), target)
"""


@pytest.mark.parametrize(
    ("machine", "precision", "told"),
    [
        ("summit", "bf16", ["arithmetic in bf16 is no faster than in f32 on summit; with --precision f16 it is"]),
        ("summit", "f16", []),
        ("summit", "f32", []),
        ("summit", "tf32", ["arithmetic in tf32 is no faster than in f32 on summit; with --precision f16 it is"]),
        ("dgx-a100", "tf32", []),
        ("dgx-h100", "bf16", []),
        ("local", "bf16", []),
    ],
)
def test_a_type_that_is_no_faster_is_told(
    machine: str, precision: str, told: list[str], library: Library, build: Build
) -> None:
    """V100s have no bf16. For a CPU, it is not known which types are fast."""
    found = load_machine(machine)
    model = build(MODEL.format(precision=f"precision {precision}"))
    plan = search(model, build_mesh(found, 2), found, library)
    assert [note for note in plan.notes if "no faster" in note] == told


def test_of_a_second_plan_is_known_what_the_first_takes_without_a_limit(library: Library, build: Build) -> None:
    """A second plan recomputes what the first plan does, and takes over the first plan's seconds without a limit. If
    the first recomputes nothing, the second keeps its own. Both are compared with the first search's plan without a
    limit.
    """
    found = load_machine("dgx-h100")
    plan = search(build(MODEL.format(precision="")), build_mesh(found, 2), found, library)
    free, other = replace(plan, simulated=1.0), replace(plan, simulated=2.0)
    first = replace(plan.with_passes(recomputed=frozenset({"layer"})), unlimited=free, unlimited_seconds=2.0)
    second = replace(plan, notes=("own",), unlimited=other, unlimited_seconds=3.0)
    both = as_limited(second, first)
    assert both.unlimited is free and both.unlimited_seconds == 2.0 and both.notes == second.notes
    unchanged = as_limited(second, first.with_passes(recomputed=frozenset()))
    assert unchanged.unlimited is free and unchanged.unlimited_seconds == 3.0
    assert as_limited(second, replace(first, unlimited=None)).unlimited is other


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(1.1, "10 % longer"), (2.6, "160 % longer"), (14.2, "1320 % longer"), (1.0, "no longer"), (0.9, "no longer")],
)
def test_what_a_limit_takes_is_told_in_simulated_seconds(
    seconds: float, told: str, library: Library, build: Build
) -> None:
    """Seconds of both plans as simulated, whatever the search counted. Nothing is told without a limit, or if nothing
    fits.
    """
    found = load_machine("dgx-h100")
    plan = search(build(MODEL.format(precision="")), build_mesh(found, 2), found, library)
    free = replace(plan, cost=replace(plan.cost, memory=Memory(parameters=2e9)), simulated=1.0)
    limited = replace(plan, simulated=seconds, unlimited=free)
    assert list(limit_notes(limited, 1e9, lambda plan: plan.seconds)) == [
        "memory is the limit: the cheapest plan of all, on the mesh 2, would hold 2 GB of 1 GB and take 1 s a step, "
        f"and this one takes {told}"
    ]
    assert not list(limit_notes(replace(limited, unlimited=None), 1e9, lambda plan: plan.seconds))
    warned = replace(limited, warnings=(warn("W301", "too large"),))
    assert not list(limit_notes(warned, 1e9, lambda plan: plan.seconds))
