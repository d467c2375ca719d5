"""Values that depend on no input or parameter, like the angles of rotary positions, are computed
once; against torch.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.emit.rank_pool import RankPool

from .conftest import Compile

MODEL = """
model turned[b = 4, s = 8, h = 2, k = 6]
  input x: f32[b, s, h * k]
  input target: f32[b, s, h * k]
  weight w: f32[h * k, h * k] ~ normal(0.5)
  repeat 2 as layer
    weight v: f32[h * k, h * k] ~ normal(0.5)
    x = linear(x, v)
  q = rope(linear(x, w)[b, s, (n=h k)] -> [b, n, s, k])
  r = rope(x[b, s, (n=h k)] -> [b, n, s, k])
  y = (q + r)[b, n, s, k] -> [b, s, (n k)]
  loss mse(y, target)
  output y
"""


def turned(x: Tensor) -> Tensor:
    """Rotary positions of [b, s, 2 * 6], the same for both heads."""
    b, s, _ = x.shape
    first, second = x.view(b, s, 2, 6).transpose(1, 2).chunk(2, -1)
    angles = torch.arange(s, dtype=torch.float64)[:, None] * 10000.0 ** (-torch.arange(0, 6, 2).double() / 6)
    cos, sin = angles.cos(), angles.sin()
    both = torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
    return both.transpose(1, 2).reshape(b, s, 12)


def by_hand(x: Tensor, weights: dict[str, Tensor]) -> Tensor:
    for number in range(2):
        x = x @ weights[f"layer.{number}.v"].T
    return turned(x @ weights["w"].T) + turned(x)


def run(rank: int, ranks: int, folder: str) -> tuple[Tensor, Tensor, dict[str, Tensor], dict[str, Tensor], set[str]]:
    """Loss, output, weights and gradients of a program in float64, and the names of its stored tensors."""
    with load_program(Path(folder)) as module:
        model = module.Model(module.build_mesh("cpu") if ranks > 1 else None, dtype=torch.float64)
        model.initialise(0)
        loss, outputs = model(**batch())
        loss.backward()
        model.synchronise()
        gradients = {name: model.full(name, p.grad) for name, p in model.named_parameters()}
        names = {*dict(model.named_buffers()), *model.state_dict()}
        return loss.detach(), model.gather(outputs)["y"].detach(), model.global_tensors(), gradients, names


def batch() -> dict[str, Tensor]:
    source = torch.Generator().manual_seed(0)
    return {name: torch.randn(4, 8, 12, generator=source, dtype=torch.float64) for name in ("x", "target")}


@pytest.mark.parametrize(
    ("ranks", "pins"),
    [(1, ()), (2, ()), (2, ("q=S2", "r=S2")), (2, ("q=S1", "r=S1"))],
    ids=["one device", "batch", "sequence", "heads"],
)
def test_angles_are_made_once(compile_program: Compile, pool: RankPool, ranks: int, pins: tuple[str, ...]) -> None:
    strategy = "data_parallel" if ranks > 1 and not pins else "auto"
    out = compile_program(MODEL, devices=ranks, strategy=strategy, pins=pins)
    text = (out / "model.py").read_text()
    held = text[text.index("class Constants:") : text.index("class Model(")]
    assert held.count("torch.cos(") == 1 and text.count("torch.cos(") == 1, "both operators read the same angles"
    assert ("model.groups." in held) == ("q=S2" in pins)
    found = pool.run(run, str(out), ranks=ranks)
    weights, (x, target) = found[0][2], batch().values()
    given = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
    y = by_hand(x, given)
    loss = torch.nn.functional.mse_loss(y, target)
    loss.backward()
    for own, output, _, gradients, names in found:
        torch.testing.assert_close(own, loss.detach(), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(output, y.detach(), rtol=1e-12, atol=1e-12)
        assert names == set(given), "no checkpoint has the angles"
        for name, gradient in gradients.items():
            torch.testing.assert_close(gradient, given[name].grad, rtol=1e-11, atol=1e-11)


def test_another_type_or_device_has_constants_of_its_own(compile_program: Compile) -> None:
    with load_program(compile_program(MODEL, devices=1)) as module:
        model = module.Model()
        assert model.constants.rope_cos.dtype == torch.float32
        before = model.constants.rope_cos.double()
        model.double()
        assert model.constants.rope_cos.dtype == torch.float64
        exact = module.Model(dtype=torch.float64).constants.rope_cos
        assert torch.equal(model.constants.rope_cos, exact) and not torch.equal(before, exact)
        with torch.device("meta"):
            empty = module.Model(device="meta")
        assert empty.constants.rope_cos.is_meta
        empty.to_empty(device="cpu")
        assert torch.equal(empty.constants.rope_cos, module.Model().constants.rope_cos)


def test_fewer_positions_outside_training_read_the_first_angles(compile_program: Compile) -> None:
    with load_program(compile_program(MODEL, devices=1)) as module:
        model = module.Model(dtype=torch.float64)
        model.initialise(0)
        model.eval()
        assert module.INPUTS["x"].sizes[1] == "s"
        x = batch()["x"]
        whole, fewer = model(x)[1]["y"], model(x[:, :5])[1]["y"]
        torch.testing.assert_close(fewer, whole[:, :5], rtol=1e-12, atol=1e-12)


PAIRS = """
model pairs[b = 4, n = 5]
  input x: f32[b, n, n]
  weight w: f32[2, n * (n - 1) // 2] ~ normal(0.5)
  loss reduce_mean(linear(lower_triangle(x), w)[b, o] -> [])
"""


def test_the_order_of_a_triangle_is_sorted_once(compile_program: Compile) -> None:
    out = compile_program(PAIRS, devices=1)
    text = (out / "model.py").read_text()
    assert text.count("torch.argsort(") == 1 and "torch.argsort(" in text[: text.index("class Model(")]
    with load_program(out) as module:
        model = module.Model(dtype=torch.float64)
        model.initialise(0)
        x = torch.randn(4, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        rows, columns = torch.tril_indices(5, 5, -1)
        expected = (x[:, rows, columns] @ model.w.T).mean()
        torch.testing.assert_close(model(x)[0], expected, rtol=1e-12, atol=1e-12)
