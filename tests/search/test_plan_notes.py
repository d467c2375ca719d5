"""What a plan tells of the machine that it was made for, and of what it recomputes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.mesh import build_mesh
from unity_dsl.search.plan_notes import as_recomputed
from unity_dsl.search.plan_search import search

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
        ("dgx-h100", "bf16", []),
        ("local", "bf16", []),
    ],
)
def test_a_type_that_is_no_faster_is_told(
    machine: str, precision: str, told: list[str], library: Library, build: Build
) -> None:
    """V100s have no bf16; on a CPU what is fast is not known."""
    found = load_machine(machine)
    model = build(MODEL.format(precision=f"precision {precision}"))
    plan = search(model, build_mesh(found, 2), found, library)
    assert [note for note in plan.notes if "no faster" in note] == told


def test_what_is_recomputed_is_told_as_it_was_chosen(library: Library, build: Build) -> None:
    """A second plan that was told what to recompute does not know what the limit costs; one that recomputes nothing,
    as the first, does.
    """
    found = load_machine("dgx-h100")
    plan = search(build(MODEL.format(precision="")), build_mesh(found, 2), found, library)
    told = "memory is the limit: the cheapest plan of all would hold 2 GB of 1 GB, and this one takes 10 % longer"
    first = replace(plan, notes=(told, "other"), unlimited_seconds=2.0, recomputed=frozenset({"layer"}))
    second = replace(plan, notes=("own", told.replace("10", "3")), unlimited_seconds=3.0)
    both = as_recomputed(second, first)
    assert both.notes == ("own", told) and both.unlimited_seconds == 2.0
    assert as_recomputed(second, replace(first, recomputed=frozenset())) == second
