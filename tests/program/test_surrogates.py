"""Programs of models with declared gradients against torch modules written by hand, in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from unity_dsl.emit.plan_file import TRITON
from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.emit.rank_pool import RankPool

Compile = Callable[..., Path]
Tensors = Mapping[str, Tensor]

OPERATORS = """\
op distances(x: [b, h], w: [c, h]) -> y: [b, c]
  y[b, c] = sum(h) (x[b, h] - w[c, h]) * (x[b, h] - w[c, h])

extern op least(x: [b.., c]) -> i: int<c>[b..]
  axes: b..
  torch: torch.select(torch.argsort(x, dim=-1, stable=True), -1, 0)
  numpy: np.take(np.lexsort([x]), 0, -1)

fn lower(x)
  surrogate x: 1
  torch: torch.floor(x)
  numpy: np.floor(x)

## Rounded to eighths.
op eighths(x: [b..]) -> y: [b..]
  y[b..] = lower(x[b..] * 8 + 0.5) / 8

## A spike where x is positive, with the slope of an arc tangent.
fn spike(x) = [x > 0]
  surrogate x: 1 / (1 + x * x)

## A product whose factors get each other's gradient.
fn crossed(x, y) = x * y
  surrogate x: x
  surrogate y: y

op spikes(x: [b..]) -> y: [b..]
  y[b..] = spike(x[b..])

op crossed(x: [b.., c], y: [c]) -> z: [b.., c]
  z[b.., c] = crossed(tanh(x[b.., c]), y[c]) + x[b.., c]
"""

VQ = """\
## Rows through their nearest codes: reconstruction, codebook and commitment losses.
model vq[b = 8, d = 6, codes = 5, h = 4]
  input x: f32[b, d]
  weight encoder: f32[h, d] ~ normal(0.7)
  weight decoder: f32[d, h] ~ normal(0.7)
  weight table: f32[codes, h] ~ normal(0.7)
  z = linear(x, encoder)
  q = embedding(least(distances(z, table)), table)
  y = linear(z + stop(q - z), decoder)
  loss mse(y, x) + mse(q, stop(z)) + 0.25 * mse(z, stop(q))
"""

SIAMESE = """\
## Both views predict the projection of the other, which no gradient comes to; a slow copy predicts as well.
model siamese[b = 8, d = 6, h = 4]
  input x: f32[b, d]
  input y: f32[b, d]
  weight w: f32[h, d] ~ normal(0.7)
  weight head: f32[h, h] ~ normal(0.7)
  buffer slow: f32[h, d] ~ normal(0.5)
  update slow = slow * 0.9 + w * 0.1
  p = tanh(linear(x, w))
  q = tanh(linear(y, w))
  t = tanh(linear(y, slow))
  loss mse(linear(p, head), stop(q)) + mse(linear(q, head), stop(p)) + mse(linear(p, head), stop(t))
"""

REVERSED = """\
## A classifier of domains from whose features it cannot tell them.
model adversarial[b = 8, d = 6, h = 4]
  input x: f32[b, d]
  input y: f32[b, d]
  input domain: int<2>[b]
  weight w: f32[h, d] ~ normal(0.7)
  weight label: f32[d, h] ~ normal(0.7)
  weight told: f32[2, h] ~ normal(0.7)
  features = tanh(linear(x, w))
  told_apart = cross_entropy(linear(reverse_gradient(features; scale=0.3), told), domain)
  loss mse(linear(features, label), y) + told_apart
"""

ONE_HOT = """\
## Straight-through one-hot choices, rounded weights, spikes, and gradients of a user's own.
model choices[b = 8, d = 6, h = 4]
  input x: f32[b, d]
  input y: f32[b, d]
  weight w: f32[h, d] ~ normal(0.7)
  weight u: f32[h, d] ~ normal(0.7)
  weight gain: f32[h] ~ normal(0.7)
  weight out: f32[d, h] ~ normal(0.7)
  scores = softmax(linear(x, w))
  chosen = straight_through(one_hot(least(-scores)), scores)
  seen = crossed(spikes(linear(x, eighths(u))), gain)
  loss mse(linear(chosen + seen, out), y)
"""


@dataclass(frozen=True)
class Case:
    text: str
    loss: Callable[[Tensors, Tensors], Tensor]


def vq(t: Tensors, given: Tensors) -> Tensor:
    x = given["x"]
    z = F.linear(x, t["encoder"])
    q = t["table"][torch.cdist(z, t["table"]).argmin(-1)]
    y = F.linear(z + (q - z).detach(), t["decoder"])
    return F.mse_loss(y, x) + F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())


def siamese(t: Tensors, given: Tensors) -> Tensor:
    p, q = (torch.tanh(F.linear(given[name], t["w"])) for name in "xy")
    slow = torch.tanh(F.linear(given["y"], t["slow"]))
    predicted = [F.linear(part, t["head"]) for part in (p, q, p)]
    return sum(
        (F.mse_loss(*pair) for pair in zip(predicted, (q.detach(), p.detach(), slow.detach()), strict=True)),
        start=torch.zeros((), dtype=torch.float64),
    )


class Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        return -0.3 * gradient


def adversarial(t: Tensors, given: Tensors) -> Tensor:
    features = torch.tanh(F.linear(given["x"], t["w"]))
    told = F.cross_entropy(F.linear(Reversal.apply(features), t["told"]), given["domain"])  # type: ignore[no-untyped-call]
    return F.mse_loss(F.linear(features, t["label"]), given["y"]) + told


def choices(t: Tensors, given: Tensors) -> Tensor:
    scores = torch.softmax(F.linear(given["x"], t["w"]), -1)
    hot = F.one_hot(scores.argmax(-1), scores.shape[-1]).to(scores.dtype)
    chosen = (hot - scores).detach() + scores
    rounded = ((t["u"] * 8 + 0.5).floor() / 8 - t["u"]).detach() + t["u"]
    potential = F.linear(given["x"], rounded)
    spikes = (potential > 0).double() + torch.atan(potential) - torch.atan(potential).detach()
    bent, gain = torch.tanh(spikes), t["gain"].expand_as(spikes)
    crossed = (bent * gain).detach() + (bent**2 - (bent**2).detach()) / 2 + (gain**2 - (gain**2).detach()) / 2
    return F.mse_loss(F.linear(chosen + crossed + spikes, t["out"]), given["y"])


CASES = {
    "vq": Case(VQ, vq),
    "siamese": Case(SIAMESE, siamese),
    "reversed": Case(REVERSED, adversarial),
    "one_hot": Case(ONE_HOT, choices),
}


@pytest.fixture
def operators(tmp_path: Path) -> Path:
    path = tmp_path / "own.uop"
    path.write_text(OPERATORS)
    return path


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kernels", ["torch", TRITON])
def test_gradients_are_those_of_a_module_by_hand(
    name: str, kernels: str, operators: Path, compile_program: Compile
) -> None:
    case = CASES[name]
    out = compile_program(case.text, devices=1, operators=[operators], kernels=kernels)
    with load_program(out) as module:
        model = module.Model(dtype=torch.float64)
        model.initialise(3)
        source = torch.Generator().manual_seed(5)
        given = {
            key: torch.randint(2, spec.shape, generator=source)
            if "int" in spec.dtype
            else torch.randn(spec.shape, generator=source, dtype=torch.float64)
            for key, spec in module.INPUTS.items()
        }
        weights = {key: tensor.detach().clone().requires_grad_() for key, tensor in model.stored().items()}
        expected = case.loss(weights, given)
        expected.backward()  # type: ignore[no-untyped-call]
        loss, _ = model(**given)
        loss.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    for key, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, weights[key].grad, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("ranks", "strategy"), [(2, "data_parallel"), (4, "zero"), (2, "auto"), (2, "random")])
def test_gradients_are_the_same_on_any_number_of_ranks(
    name: str, ranks: int, strategy: str, operators: Path, compile_program: Compile, pool: RankPool
) -> None:
    out = compile_program(CASES[name].text, devices=ranks, strategy=strategy, operators=[operators])
    report = check(out, pool=pool)
    assert report.ok, report
