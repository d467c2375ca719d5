"""Graph attention (Velickovic et al. 2018): its program against a module written by hand, and its plan at the size of a
large graph.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.output_folder import write_program
from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.emit.rank_pool import RankPool

from ..index.segment_cases import SEGMENTS

GRAPH = """
op at_ends(x: [v, h], to: int<v>[e]) -> y: [e, h]
  y[e, h] = sum(v) [v == to[e]] * x[v, h]

op messages(z: [v, h, k], a: [e, h], out_of: int<v>[e], to: int<v>[e]) -> y: [v, h, k]
  g[e, h, k] = sum(v) [v == out_of[e]] * z[v, h, k]
  y[v, h, k] = sum(e) [v == to[e]] * a[e, h] * g[e, h, k]

op head_scores(z: [v, h, k], w: [h, k]) -> y: [v, h]
  y[v, h] = sum(k) z[v, h, k] * w[h, k]
"""
MODEL = """\
block layer[heads, k, i](x, source, ends)
  weight w: f32[heads * k, i] ~ xavier_uniform
  weight left: f32[heads, k] ~ normal(0.1)
  weight right: f32[heads, k] ~ normal(0.1)
  z = linear(x, w)[v, (h=heads k)] -> [v, h, k]
  s = leaky_relu(at_ends(head_scores(z, left), source) + at_ends(head_scores(z, right), ends))
  return messages(z, segment_softmax(s, ends), source, ends)

model gat[v = 170000, e = 1200000, d = 128, heads = 8, k = 32, classes = 40]
  preset small: v = 24, e = 64, d = 8, heads = 2, k = 4, classes = 4
  input x: f32[v, d]
  input source: int<v>[e]
  input ends: int<v>[e]
  input label: int<classes>[v]
  y = layer[heads=heads, k=k, i=d](x, source, ends)
  x1 = elu(y[v, h, k] -> [v, (h k)])
  logits = layer[heads=1, k=classes, i=heads * k](x1, source, ends)[v, h, k] -> [v, (h k)]
  loss cross_entropy(logits, label)
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "graph.uop").write_text(SEGMENTS + GRAPH)
    (tmp_path / "gat.udl").write_text(MODEL)
    return tmp_path / "gat.udl"


def written(model: Path, out: Path, **more: object) -> Path:
    request = Request(model, operators=(model.parent / "ops",), preset="small", **more)  # type: ignore[arg-type]
    made = compile_model(request)
    write_program(made.plan, made.library, made.sources, request, out)
    return out


def attention(x: Tensor, w: Tensor, left: Tensor, right: Tensor, source: Tensor, ends: Tensor) -> Tensor:
    """A graph attention layer in plain torch, edge by edge."""
    heads, k = left.shape
    z = (x @ w.T).view(-1, heads, k)
    s = F.leaky_relu((z * left).sum(-1)[source] + (z * right).sum(-1)[ends])
    rows = []
    for node in range(len(x)):
        edges = (ends == node).nonzero()[:, 0]
        rows.append((s[edges].softmax(0)[..., None] * z[source[edges]]).sum(0))
    return torch.stack(rows)


def test_gradients_are_those_of_a_module_written_by_hand(model: Path, tmp_path: Path) -> None:
    """In float64, with random weights and a random graph, in which some nodes have no edge."""
    torch.manual_seed(3)
    batch = {
        "x": torch.randn(24, 8, dtype=torch.float64),
        "source": torch.randint(24, (64,)),
        "ends": torch.randint(16, (64,)),
        "label": torch.randint(4, (24,)),
    }
    with load_program(written(model, tmp_path / "out")) as module:
        program = module.Model(dtype=torch.float64)
        program.initialise(0)
        loss, _ = program(**batch)
        loss.backward()
        found = {name: parameter.grad for name, parameter in program.named_parameters()}
        weights = {name: p.detach().clone().requires_grad_() for name, p in program.named_parameters()}
    first, second = ([weights[f"{layer}.{name}"] for name in ("w", "left", "right")] for layer in ("y", "layer"))
    hidden = F.elu(attention(batch["x"], *first, batch["source"], batch["ends"]).flatten(1))
    logits = attention(hidden, *second, batch["source"], batch["ends"]).flatten(1)
    expected = F.cross_entropy(logits, batch["label"])
    expected.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-14)
    for name, weight in weights.items():
        torch.testing.assert_close(found[name], weight.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("pins", [(), ("x1=S0",), ("y=S1",), ("y.s=S0",)], ids=str)
def test_the_program_on_ranks_equals_its_model(
    pins: tuple[str, ...], model: Path, tmp_path: Path, pool: RankPool
) -> None:
    """Divided by nodes, heads or edges. The maximum score and the sum of a node are then taken over all devices."""
    assert check(written(model, tmp_path / "out", devices=2, mesh=(2,), pins=pins), pool=pool).ok


def test_a_large_graph_has_no_dense_tensor(model: Path) -> None:
    """170,000 nodes and 1.2 million edges on eight GPUs: a dense tensor over nodes and edges alone would be 1.6 TB."""
    request = Request(model, operators=(model.parent / "ops",), machine="dgx-h100", devices=8)
    plan = compile_model(request).plan
    assert plan.cost.memory.total < 2e9 and plan.seconds < 0.01
