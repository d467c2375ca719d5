"""torch.compile takes a whole training step in one graph, compiles it once, and gives the results of eager mode."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.emit.templates import template

Compile = Callable[..., Path]

MODEL = """
model m[b = 4, s = 3, d = 4, words = 10]
  input tokens: int<words>[b, s]
  input target: int<words>[b, s]
  weight table: f32[words, d] ~ normal(0.5)
  buffer mean: f32[d] ~ zeros
  x = embedding(tokens, table)
  update mean = 0.9 * mean + 0.1 * reduce_mean(x[b, s, d] -> [d])
  repeat 2 as layer
    weight w: f32[d, d] ~ normal(0.5)
    x = x + dropout(relu(linear(x, w)); p=0.3)
  logits = linear(x, table)
  loss cross_entropy(logits, target)
  output logits
"""


def run(rank: int, ranks: int, folder: str, compiled: bool) -> dict[str, Any]:
    """Losses, outputs, gradients and buffers of some steps, and the number of compilations of the step."""
    from torch._dynamo.backends.debugging import aot_eager

    count = 0

    def backend(graph: Any, inputs: Any) -> Any:
        nonlocal count
        count += 1
        return aot_eager(graph, inputs)

    torch._dynamo.reset()
    with load_program(Path(folder)) as module:
        dtype = None if hasattr(module, "COMPUTE_DTYPE") else torch.float64
        model = module.Model(module.build_mesh("cpu") if ranks > 1 else None, dtype=dtype)
        model.initialise(0)
        call = torch.compile(model, backend=backend, fullgraph=True) if compiled else model
        found: dict[str, Any] = {}
        for step in range(3):
            model.step = step
            model.zero_grad()
            loss, outputs = call(**batch(step))
            loss.backward()
            model.synchronise()
            found[f"loss {step}"] = loss.detach()
            found |= {f"{name} {step}": tensor.detach() for name, tensor in outputs.items()}
            found |= {f"gradient of {name} {step}": p.grad.clone() for name, p in model.named_parameters()}
            found |= {f"{name} {step}": tensor.clone() for name, tensor in model.named_buffers()}
        if compiled:
            with pytest.raises((RuntimeError, ValueError), match="input tokens has values outside"):
                call(**batch(0) | {"tokens": torch.full((4, 3), 10)})
    return {**found, "compilations": count}


def batch(step: int) -> dict[str, Tensor]:
    source = torch.Generator().manual_seed(step)
    return {name: torch.randint(10, (4, 3), generator=source) for name in ("tokens", "target")}


@pytest.mark.a_day(3)
@pytest.mark.parametrize(
    ("ranks", "choices"),
    [
        (1, {}),
        (2, {"strategy": "data_parallel"}),
        (2, {"pins": ("table=S0", "layer.w=S1")}),
        (2, {"strategy": "data_parallel", "pins": ("layer.w=S0",)}),  # gathered
        (2, {"strategy": "data_parallel", "pins": ("layer.w=S0",), "precision": "bf16"}),
        (1, {"recompute": "layer"}),
        (2, {"strategy": "data_parallel", "pins": ("layer.w=S0",), "recompute": "layer"}),
    ],
)
def test_a_compiled_step_is_the_step(
    compile_program: Compile, pool: RankPool, ranks: int, choices: dict[str, Any]
) -> None:
    out = str(compile_program(MODEL, devices=ranks, **choices))
    expected, found = (pool.run(run, out, compiled, ranks=ranks) for compiled in (False, True))
    for eager, compiled in zip(expected, found, strict=True):
        assert compiled.pop("compilations") == 1 and eager.pop("compilations") == 0
        torch.testing.assert_close(compiled, eager, rtol=0, atol=0)


def test_inductor_multiplies_no_index_beyond_32_bits() -> None:
    """Indices on a GPU have 32 bits. Products of strides and of the constants of random numbers must fit them."""
    from torch._inductor.utils import run_and_get_code

    names: dict[str, Any] = {"torch": torch, "Tensor": Tensor}
    exec(compile(template("uniform.py.j2").render(division=None), "uniform", "exec"), names)
    seed, step = torch.tensor(3), torch.tensor(5)

    def drawn(x: Tensor) -> Tensor:
        found: Tensor = names["at_least"](0.1, names["places"](x), seed, step, 1)
        return found * torch.softmax(x, -1)  # in one loop over rows and columns, each with its own index

    torch._dynamo.reset()
    x = torch.ones(6, 40, 768)
    found, (code,) = run_and_get_code(torch.compile(drawn, fullgraph=True), x)
    assert torch.equal(found, drawn(x))
    factors = [int(factor) for factor in re.findall(r"\((-?\d+)L?\)\*", code)]
    assert all(abs(factor) < 2**31 for factor in factors), factors
