"""Runs with gradients, weights or test losses that are not finite."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.output_folder import write_program

from .started import start
from .test_train_files import train

LENGTHS = """
model lengths[b = 4, d = 8]
  input x: f32[b, d]
  input target: f32[b]
  weight w: f32[d, d] ~ normal(0.3)
  h = linear(x, w)
  q = h * h
  loss mse(sqrt(reduce_sum(q[b, d] -> [b])), target)
"""
ROWS = """
import torch
from data import synthetic

def batches(inputs, seed, step, split):
    found = synthetic(inputs, seed, step, split)
    if split == "train" and step == 3:
        found["x"][0] = 0  # the gradient of its length is 0 / 0
    return found

def huge(inputs, seed, step, split):
    found = synthetic(inputs, seed, step, split)
    if split == "test" and found is not None:
        found["x"] *= 1e30
    return found
"""


@pytest.fixture(scope="module")
def lengths(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Compiles the program for a number of ranks, in a folder with the data functions."""
    folder = tmp_path_factory.mktemp("lengths")
    (folder / "model.udl").write_text(LENGTHS.lstrip())
    (folder / "rows.py").write_text(ROWS)

    def out(ranks: int) -> Path:
        made = folder / f"out_{ranks}"
        if not made.exists():
            request = Request(folder / "model.udl", devices=ranks, strategy="data_parallel")
            compilation = compile_model(request)
            write_program(compilation.plan, compilation.library, compilation.sources, request, made)
        return made

    return out


@pytest.mark.parametrize(("ranks", "more"), [(1, ()), (2, ("--clip", 1))])
def test_a_gradient_that_is_not_finite_ends_the_run(
    lengths: Callable[[int], Path], tmp_path: Path, ranks: int, more: tuple[object, ...]
) -> None:
    """The loss is finite. The run ends in this step and does not save it; the last checkpoint stays."""
    out = lengths(ranks)
    given = ("--data", "rows:batches", "--checkpoint", tmp_path / "saved", "--log-file", tmp_path / "log", *more)
    for steps in (8, 4):  # the last step of a run is checked like the others
        processes = start(out, ranks, *given, "--steps", steps, "--save-every", 1, "--keep", 1)
        (_, error), *_ = [process.communicate(timeout=60) for process in processes]
        assert [process.returncode for process in processes] == [1] * ranks
        told = "train.py: rank 0: step 4: the norm of all gradients is nan; nothing more is saved, --allow-nan goes on"
        assert error.splitlines()[-1] == told
        assert [path.name for path in (tmp_path / "saved").glob("step-*")] == ["step-00000003"]
        lines = [json.loads(line, parse_constant=pytest.fail) for line in (tmp_path / "log").read_text().splitlines()]
        assert [line["grad_norm"] is None for line in lines] == [False, False, False, True]
        assert all(line["loss"] is not None for line in lines)
        shutil.rmtree(tmp_path / "saved")
        (tmp_path / "log").unlink()


def test_a_test_loss_that_is_not_finite_fails(lengths: Callable[[int], Path], tmp_path: Path) -> None:
    """At the end of training, and in an evaluation alone."""
    out, saved = lengths(1), ("--checkpoint", tmp_path / "saved", "--data", "rows:huge")
    for given in (("--steps", 2), ("--eval-only",)):
        (process,) = start(out, 1, *saved, *given)
        _, error = process.communicate(timeout=60)
        told = "train.py: rank 0: step 2: the test loss is inf; --allow-nan goes on"
        assert (process.returncode, error.splitlines()[-1]) == (1, told)
    train(out, 1, *saved, "--eval-only", "--allow-nan")


def test_weights_that_are_not_finite_are_not_saved(lengths: Callable[[int], Path], tmp_path: Path) -> None:
    """The loss and the gradients of the step that made the weights are finite."""
    given = ("--checkpoint", tmp_path / "saved", "--steps", 1, "--lr", 3e38, "--optimizer", "sgd")
    (process,) = start(lengths(1), 1, *given)
    _, error = process.communicate(timeout=60)
    told = "train.py: rank 0: step 1: weights are not finite; they are not saved, --allow-nan goes on"
    assert (process.returncode, error.splitlines()[-1]) == (1, told)
    assert not any((tmp_path / "saved").glob("step-*"))
