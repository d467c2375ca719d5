"""`scan` and `cond` in programs: values and gradients against plain torch, and the same under every plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.emit.rank_pool import RankPool

from .counting import count_collectives

Compile = Callable[..., Path]

SCAN = """
block cell(x, h)
  weight w: f32[d, d] ~ normal(0.4)
  return tanh(linear(h, w) + x)

model scanned[b = 4, t = 5, d = 8, p = 0]
  input x: f32[b, t, d]
  input scale: f32[t, b]
  input gate: int<2>[]
  input target: f32[b, t, d]
  weight first: f32[d, d] ~ normal(0.4)
  weight memory: f32[b, d] ~ normal(0.4)
  weight bias: f32[t, d] ~ normal(0.4)
  h = memory
  k = memory * 0
  scan x_t in linear(x, first) along 1, s in scale along 0, b_t in bias along -2 as step
    before = h
    next = cell(x_t, h)
    h = next + linear(b_t, first)
    scan column in h along 1 as inner
      k = k + before * 0.1
      collect column * s as columns along -1
    cond gate as skip
      weight v: f32[d] ~ normal(0.4)
      k = tanh(k) + v
    repeat 2 as twice
      k = dropout(k * 1.1; p=p)
    collect columns + k as y
    collect before as seen along 0
  all = h * k * seen
  loss mse(y, target) + reduce_mean(all[t, b, d] -> [])
  output k
  output seen
"""

COND = """
model skipping[b = 4, d = 8]
  input x: f32[b, d]
  input gate: int<2>[]
  input target: f32[b, d]
  weight first: f32[d, d] ~ normal(0.4)
  weight shared: f32[d, d] ~ normal(0.4)
  h = linear(x, first)
  start = x * 1
  cond gate expect 0.25 as skip
    weight w: f32[d, d] ~ normal(0.4)
    buffer runs: f32[] ~ zeros
    update runs = runs + 1
    h = h + tanh(linear(h, w))
    h = linear(h, shared) + start
    start = h
  repeat 2 as layer
    weight w: f32[d, d] ~ normal(0.4)
    h = tanh(linear(h, w))
    cond gate as inner
      weight v: f32[d, d] ~ normal(0.4)
      h = dropout(linear(h, v); p=0.5)
    cond gate as plain
      h = dropout(h * start)
  loss mse(linear(h, shared) * start, target)
"""


def scanned(state: dict[str, Tensor], x: Tensor, scale: Tensor, gate: Tensor, target: Tensor) -> dict[str, Tensor]:
    """SCAN in plain torch, without dropout."""
    h, k, y, seen = state["memory"], state["memory"] * 0, [], []
    mixed = x @ state["first"].T
    for t in range(x.shape[1]):
        before = h
        h = torch.tanh(h @ state["step.next.w"].T + mixed[:, t]) + state["bias"][t] @ state["first"].T
        k = k + 0.1 * h.shape[1] * before
        if gate:
            k = torch.tanh(k) + state["step.skip.v"]
        k = k * 1.1**2
        y.append(h * scale[t][:, None] + k)
        seen.append(before)
    loss = ((torch.stack(y, 1) - target) ** 2).mean() + (h * k * torch.stack(seen)).mean()
    return {"loss": loss, "k": k, "seen": torch.stack(seen)}


def draw(module: Any, gate: int) -> dict[str, Tensor]:
    source = torch.Generator().manual_seed(5)
    inputs = {
        name: torch.randn(spec.shape, generator=source, dtype=torch.float64) for name, spec in module.INPUTS.items()
    }
    return inputs | {"gate": torch.tensor(gate)}


@pytest.mark.parametrize("gate", [0, 1])
def test_a_scan_computes_what_torch_does(gate: int, compile_program: Compile) -> None:
    with load_program(compile_program(SCAN)) as module:
        model = module.Model(dtype=torch.float64)
        model.initialise(3)
        assert set(model.stored()) == {"first", "memory", "bias", "step.next.w", "step.skip.v"}
        state = {name: tensor.detach().clone().requires_grad_() for name, tensor in model.stored().items()}
        expected = scanned(state, **draw(module, gate))
        expected["loss"].backward()
        loss, outputs = model(**draw(module, gate))
        loss.backward()
        for name, found in {"loss": loss, **outputs}.items():
            torch.testing.assert_close(found, expected[name], rtol=1e-12, atol=1e-12)
        for name, parameter in model.named_parameters():
            if gate == 0 and name == "step.skip.v":
                assert parameter.grad is None and state[name].grad is None
            else:
                torch.testing.assert_close(parameter.grad, state[name].grad, rtol=1e-10, atol=1e-12)


PLANS = [
    (SCAN, 2, "auto", ["step.h_1=S0", "y=S0"]),
    (SCAN, 2, "auto", ["step.h_1=S1", "y=S2", "seen=S2", "step.next.w=S0"]),
    (SCAN, 4, "auto", ["seen=S1,P"]),
    *((SCAN, ranks, f"random:{seed}", []) for seed, ranks in ((1, 2), (2, 4))),
    (COND, 2, "auto", ["h_1=S1", "skip.w=S0"]),
    (COND, 2, "data_parallel", []),
    (COND, 4, "auto", ["h_1=S0,S1", "layer.inner.v=S1,S0"]),
    *((COND, ranks, f"random:{seed}", []) for seed, ranks in ((2, 4),)),
]


@pytest.mark.a_day(4)
@pytest.mark.parametrize("text, ranks, strategy, pins", PLANS)
def test_any_plan_computes_the_same(
    text: str, ranks: int, strategy: str, pins: list[str], compile_program: Compile, pool: RankPool
) -> None:
    """Includes dropout, whose sites are numbered by iteration. The gate is random: three steps take both branches."""
    settings = {"p": 0.3} if text is SCAN else {}
    report = check(compile_program(text, devices=ranks, strategy=strategy, pins=pins, settings=settings), pool=pool)
    assert report.ok, report


WEIGHTS_ONCE = """
model once[b = 8, t = 6, d = 8]
  input x: f32[b, t, d]
  input target: f32[b, t, d]
  weight w: f32[d, d] ~ normal(0.4)
  h = x[b, t, d] -> [t, b, d]
  h = reduce_mean(h[t, b, d] -> [b, d])
  scan x_t in x along 1 as step
    h = tanh(linear(h, w) + x_t)
    collect h as y
  loss mse(y, target)
"""


@pytest.mark.parametrize(
    "pins, forward, backward",
    [
        ([], {}, {"all_reduce": 1}),
        (["w=S0"], {"all_gather_into_tensor": 1}, {"reduce_scatter_tensor": 1}),
    ],
)
def test_a_weight_is_converted_once_for_all_iterations(
    pins: list[str], forward: dict[str, int], backward: dict[str, int], compile_program: Compile, pool: RankPool
) -> None:
    out = compile_program(WEIGHTS_ONCE, devices=2, strategy="data_parallel", pins=pins)
    there, back = pool.run(count_collectives, str(out), 0, ranks=2)[0]
    assert (there, back) == (Counter(forward), Counter(backward))


def run_gated(rank: int, ranks: int, program: str, gate: int) -> tuple[Counter[str], dict[str, float | None]]:
    """Counts calls of the skippable module's operators on a rank, and returns the norms of its gradients."""
    with load_program(Path(program)) as module:
        model = module.Model(module.build_mesh("cpu"), dtype=torch.float64)
        model.initialise(0)
        calls: Counter[str] = Counter()
        for name, part in model.named_modules():
            part.register_forward_hook(lambda *_, name=name: calls.update([name]))
        loss, _ = model(**draw(module, gate))
        loss.backward()
        model.synchronise()
        gradients = {
            name: None if parameter.grad is None else float(parameter.grad.norm())
            for name, parameter in model.named_parameters()
        }
        return calls, {**gradients, "runs": float(model.skip.runs)}


@pytest.mark.parametrize("pins", [["h_1=S0", "skip.w=S0"], ["h_1=S1", "skip.w=S1"]])
def test_what_is_skipped_is_executed_on_no_rank(pins: list[str], compile_program: Compile, pool: RankPool) -> None:
    """A skipped body runs no module, gathers no weight, gives no weight a gradient, and updates no buffer."""
    out = str(compile_program(COND, devices=2, pins=pins))
    for gate in (0, 1):
        for calls, found in pool.run(run_gated, out, gate, ranks=2):
            assert calls["skip"] == gate and calls["layer.0.inner"] == gate
            assert found["runs"] == gate
            inside = [found[name] for name in ("skip.w", "layer.0.inner.v", "layer.1.inner.v")]
            assert all((norm is None) == (gate == 0) for norm in inside)
            assert found["first"] is not None and found["shared"] is not None


WEIGHTLESS = """
model weightless[b = 8, d = 16]
  input x: f32[b, d]
  input target: f32[b, d]
  weight w: f32[d, d] ~ normal(0.3)
  y = x
  repeat 3 as layer
    y = relu(y)
  z = linear(y, w)
  repeat 2 as outer
    repeat 3 as inner
      z = tanh(z)
  loss mse(z, target)
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_loops_without_weights(compile_program: Compile, pool: RankPool, ranks: int) -> None:
    """On one device each tensor of these loops has only one layout, and so has an input."""
    report = check(compile_program(WEIGHTLESS, devices=ranks), pool=pool)
    assert report.ok, report
