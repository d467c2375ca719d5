"""Buffers updated in training: their values, and when the model reads old or new ones, on any number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.emit.rank_pool import RankPool

Compile = Callable[..., Path]

AVERAGES = """
block counted(x)
  buffer total: f32[d] ~ zeros
  update total = total + reduce_sum(x[b, d] -> [d])
  return x

model averages[b = 8, d = 4, n = 3]
  input x: f32[b, d]
  input target: f32[b, d]
  weight w: f32[d, d] ~ normal(0.5)
  buffer mean: f32[d] ~ ones
  buffer before: f32[d] ~ zeros
  buffer average: f32[d, d] ~ zeros
  buffer unchanged: f32[d] ~ ones
  y = linear(x, w)
  z = counted(y)
  repeat n as layer
    weight u: f32[d, d] ~ normal(0.5)
    buffer m: f32[d] ~ ones
    y = tanh(linear(y, u)) * m + before
    update m = m * 0.9 + reduce_mean(y[b, d] -> [d]) * 0.1
  update average = average * 0.5 + w * 0.5
  update before = mean
  update mean = mean * 0.9 + reduce_mean(y[b, d] -> [d]) * 0.1
  update unchanged = unchanged
  loss mse(y * mean * unchanged, target)
  output mean
"""


@contextmanager
def loaded(folder: Path) -> Iterator[tuple[ModuleType, Any]]:
    """The program's module and its one-device model in float64, from seed 3."""
    with load_program(folder) as module:
        model = module.Model(dtype=torch.float64)
        model.initialise(3)
        yield module, model


def batches(module: ModuleType, count: int) -> list[dict[str, Tensor]]:
    source = torch.Generator().manual_seed(5)
    return [
        {name: torch.randn(spec.shape, generator=source, dtype=torch.float64) for name, spec in module.INPUTS.items()}
        for _ in range(count)
    ]


def by_hand(state: dict[str, Tensor], x: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The model's loss and its buffers after the step, in plain torch."""
    y = x @ state["w"].T
    after = {"z.total": state["z.total"] + y.sum(0)}
    for layer in range(3):
        m = state[f"layer.{layer}.m"]
        y = torch.tanh(y @ state[f"layer.{layer}.u"].T) * m + state["before"]
        after[f"layer.{layer}.m"] = m * 0.9 + y.mean(0) * 0.1
    after["average"] = state["average"] / 2 + state["w"] / 2
    after["before"] = state["mean"]
    after["mean"] = state["mean"] * 0.9 + y.mean(0) * 0.1
    after["unchanged"] = state["unchanged"]
    loss = ((y * state["mean"] * state["unchanged"] - target) ** 2).mean()
    return loss, {name: tensor.detach() for name, tensor in after.items()}


def test_all_reads_see_the_old_buffers_and_no_gradient_flows_into_updates(compile_program: Compile) -> None:
    with loaded(compile_program(AVERAGES, strategy="single", devices=1)) as (module, model):
        for batch in batches(module, 3):
            state = {name: tensor.detach().clone().requires_grad_() for name, tensor in model.stored().items()}
            expected, buffers = by_hand(state, **batch)
            expected.backward()
            model.zero_grad()
            loss, outputs = model(**batch)
            loss.backward()
            torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(outputs["mean"], state["mean"])
            for name, parameter in model.named_parameters():
                torch.testing.assert_close(parameter.grad, state[name].grad, rtol=1e-10, atol=1e-12)
            assert {name for name, _ in model.named_buffers()} == set(buffers)
            for name, buffer in model.named_buffers():
                assert not buffer.requires_grad
                torch.testing.assert_close(buffer, buffers[name], rtol=1e-12, atol=1e-12)


def test_nothing_is_updated_in_evaluation_mode(compile_program: Compile) -> None:
    with loaded(compile_program(AVERAGES, strategy="single", devices=1)) as (module, model):
        model.eval()
        before = {name: buffer.clone() for name, buffer in model.named_buffers()}
        model(**batches(module, 1)[0])
        for name, buffer in model.named_buffers():
            assert torch.equal(buffer, before[name])


def test_no_two_buffers_share_memory_after_an_update(compile_program: Compile) -> None:
    with loaded(compile_program(AVERAGES, strategy="single", devices=1)) as (module, model):
        model(**batches(module, 1)[0])
        places = [tensor.untyped_storage().data_ptr() for tensor in model.stored().values()]
        assert len(set(places)) == len(places)


@pytest.mark.parametrize(
    "pins",
    [
        [],
        ["y=S0", "mean=S0", "before=S0", "average=S1", "z.total=S0"],
        ["w=S0", "mean=I", "before=S0", "average=S0", "layer.*.m=S0"],
    ],
    ids=",".join,
)
@pytest.mark.parametrize("ranks", [2, 4])
def test_updates_are_the_same_on_any_layout(
    ranks: int, pins: list[str], compile_program: Compile, pool: RankPool
) -> None:
    report = check(compile_program(AVERAGES, devices=ranks, pins=pins), pool=pool)
    assert report.ok, report


ONLY_STATE = """
model state[b = 4, d = 4]
  input x: f32[b, d]
  weight w: f32[d, d] ~ normal(0.5)
  buffer steps: f32[] ~ zeros
  repeat 2 as copy
    buffer slow: f32[d, d] ~ zeros
    update slow = slow * 0.9 + w * 0.1
  update steps = steps + 1
  loss mse(linear(x, w), x)
"""


def test_a_repeat_may_do_nothing_but_update(compile_program: Compile, pool: RankPool) -> None:
    out = compile_program(ONLY_STATE, devices=2, pins=["copy.*.slow=S0"])
    assert check(out, pool=pool).ok
    with loaded(compile_program(ONLY_STATE, devices=1)) as (module, model):
        w = model.w.detach().clone()
        for batch in batches(module, 2):
            model(**batch)
        assert model.steps == 2
        torch.testing.assert_close(model.copy[1].slow, w * 0.19)


SKIPPED = """
model skipped[b = 4, d = 4]
  input x: f32[b, d]
  input open: int<2>[]
  weight w: f32[d, d] ~ normal(0.5)
  y = linear(x, w)
  cond open as gate
    buffer mean: f32[d] ~ zeros
    y = y + mean
    update mean = mean * 0.5 + reduce_mean(y[b, d] -> [d])
  cond open as count
    buffer times: f32[] ~ zeros
    update times = times + 1
  loss mse(y, x)
"""


def test_a_cond_updates_when_it_is_executed(compile_program: Compile, pool: RankPool) -> None:
    assert check(compile_program(SKIPPED, devices=2, pins=["gate.mean=S0"]), pool=pool).ok
    with loaded(compile_program(SKIPPED, devices=1)) as (_, model):
        x = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        for wanted in (0, 1, 1, 0):
            before = model.gate.mean.clone()
            model(x=x, open=torch.tensor(wanted))
            y = x @ model.w.detach().T + before
            expected = before / 2 + y.mean(0) if wanted else before
            torch.testing.assert_close(model.gate.mean, expected)
        assert model.count.times == 2
