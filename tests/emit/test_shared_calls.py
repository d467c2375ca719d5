"""Nested concatenations, and all slices of a tensor, become one call each and compute the same as the operators."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import torch

from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.machine.machine import load_machine
from unity_dsl.simulation.step_tasks import step_tasks
from unity_dsl.simulation.task import Phase

from .planning import batch_plan, mesh_of
from .test_program_text import model_of, write

LIBRARY = load_library()
MODEL = """
model m
  input x: f32[4, 6]
  input y: f32[4, 3]
  weight a: f32[4, 6] ~ normal(1)
  weight b: f32[4, 5] ~ normal(1)
  first, second, third = split(a * x; dim=1, parts=3)
  joined = concat(second, y, b, first; dim=1)
  inner = concat(third, y; dim=1)
  twice = concat(inner, relu(inner); dim=1)
  part = slice(twice; dim=1, start=2, stop=7)
  rest = slice(twice; dim=1, start=6, stop=10)
  loss reduce_sum((joined * joined)[b, c] -> []) + reduce_sum((part * part)[b, c] -> []) + reduce_sum(rest[b, c] -> [])
"""


def test_shared_calls(tmp_path: Path) -> None:
    """A value that is read twice is not merged into another call. Overlapping slices are separate calls."""
    plan = batch_plan(model_of(MODEL, LIBRARY), mesh_of(), LIBRARY)
    folder = write(plan, LIBRARY, tmp_path / "program")
    lines = (folder / "model.py").read_text()
    assert lines.count("torch.cat(") == 3 and lines.count("torch.split(") == 1 and lines.count("torch.narrow(") == 2
    with load_program(folder) as module:
        model = module.Model()
        model.initialise(0)
        x, y = torch.randn(4, 6), torch.randn(4, 3)
        loss, _ = model(x, y)
        loss.backward()
        a, b = (tensor.clone().requires_grad_() for tensor in model.global_tensors().values())
        first, second, third = (a * x)[:, :2], (a * x)[:, 2:4], (a * x)[:, 4:]
        joined = torch.hstack([second, y, b, first])
        inner = torch.hstack([third, y])
        twice = torch.hstack([inner, inner.relu()])
        expected = joined.square().sum() + twice[:, 2:7].square().sum() + twice[:, 6:].sum()
        expected.backward()
        torch.testing.assert_close(loss, expected)
        for parameter, wanted in zip(model.parameters(), (a, b), strict=True):
            torch.testing.assert_close(parameter.grad, wanted.grad)


def test_simulated_calls(tmp_path: Path) -> None:
    """The simulated step has as many concatenations, forward and backward, as the program."""
    plan = batch_plan(model_of(MODEL, LIBRARY), mesh_of(), LIBRARY)
    written = (write(plan, LIBRARY, tmp_path / "program") / "model.py").read_text().count("torch.cat(")
    tasks = step_tasks(plan, load_machine("dgx-h100"), LIBRARY).tasks
    names = Counter((task.name, task.phase) for task in tasks)
    assert names["concat", Phase.FORWARD] == names["concat backward", Phase.BACKWARD] == written
