"""Random legal plans of models whose axes are read around or merged, with ops of a user's own that hold them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random

import pytest

from tests.graph.overlapping import HALO, STRIDED, library_with
from unity_dsl.emit.program_check import TOLERANCE, compare
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.graph.layout import Mesh, MeshAxis
from unity_dsl.graph.layout_typing import Along
from unity_dsl.graph.model_graph import build_model
from unity_dsl.graph.plan import Plan, PlannedNode
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.span import Source

from .plans import random_plan
from .test_fuzz_plans import write

SEED = 5
CASES = 10

OPERATORS = """
op conv1d(x: [n, c, l], w: [o, c, r]; stride = 1, pad = 0) -> y: [n, o, q]
  where q == (l + 2 * pad - r) // stride + 1
  y[n, o, q] = sum(c, r) x[n, c, q * stride + r - pad else 0] * w[o, c, r]

op blur(x: [b.., l], w: [l]) -> y: [b.., l]
  y[b.., i] = x[b.., i - 1 else 1] * w[i] + x[b.., i] / 2 + x[b.., i + 2 else 1] / 4

op energy(x: [b.., l]) -> y: [b..]
  y[b..] = sum(l) x[b.., l] * x[b.., l - 1 else 0]
"""

MODEL = """model fuzzed[b = 4, c = 4, l = 16]
  input x: f32[b, c, l]
  input target: f32[b, c]
  weight w1: f32[c, c, 5] ~ normal(0.3)
  weight w2: f32[c, c, 4] ~ normal(0.3)
  weight scale: f32[8] ~ normal(0.3)
  h = tanh(conv1d(x, w1; pad=2)) + x
  g = conv1d(h, w2; stride=2, pad=1)
  rows = g[b, c, l] -> [b, (c l)]
  back = relu(rows)[b, (c=4 l)] -> [b, c, l]
  m = dropout(blur(back, scale); p=0.2) + back
  y = energy(m)
  loss mse(y, target)
"""

LIBRARY = library_with(OPERATORS, HALO, STRIDED)


@cache
def draw(case: int) -> Plan:
    """The first random plan of the case that holds something."""
    model = build_model(parse_model(Source("fuzzed.udl", MODEL)), LIBRARY)
    rng = Random(f"{SEED} {case}")
    degrees = [(2,), (2, 2), (4,)][case % 3]
    mesh = Mesh(tuple(MeshAxis("ab"[i], degree) for i, degree in enumerate(degrees)))
    while True:
        plan = random_plan(model, mesh, LIBRARY, rng)
        if len(set(held(plan))) > 1:
            return plan


def held(plan: Plan) -> Iterator[tuple[str, str]]:
    for step in plan.graph.steps:
        if isinstance(step, PlannedNode):
            for role in step.typed.configuration:
                if isinstance(role, Along) and role.by in ("halo", "strided"):
                    yield step.node.instance.name, role.by


@pytest.mark.parametrize("case", range(CASES))
def test_a_random_plan_equals_its_model(case: int, pool: RankPool, tmp_path: Path) -> None:
    plan = draw(case)
    program = write(plan, LIBRARY, tmp_path / "program")
    reference = write(random_plan(plan.model, Mesh(()), LIBRARY, Random(0)), LIBRARY, tmp_path / "reference")
    errors = compare(program, reference, plan.mesh.size, pool=pool)
    largest = max(errors["loss_rel_err"], errors["grad_rel_err"], errors["param_rel_err"])
    assert largest <= TOLERANCE, f"seed {SEED}, case {case}\n{errors}\n{(program / 'model.py').read_text()}"


def test_the_cases_hold_dimensions_of_every_operator() -> None:
    found = {pair for case in range(CASES) for pair in held(draw(case))}
    assert found >= {("conv1d", "halo"), ("blur", "halo"), ("energy", "halo"), ("rearrange", "strided")}
