"""Einsums of weights with a custom backward pass, against the same programs with torch's einsum."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.emit.rank_pool import RankPool

from ..examples.agreement import path_of
from .operations import find_gradients

Compile = Callable[..., Path]

MIXTRAL = path_of("mixtral_8x7b")
EXPERTS = """model experts[e = 4, b = 4, s = 2, i = 8, o = 6]
  input x: f32[e, b, s, i]
  input target: f32[e, b, s, i]
  weight scale: f32[i] ~ normal(1)
  weight up: f32[e, o, i] ~ normal(0.5)
  weight down: f32[e, i, o] ~ normal(0.5)
  y = expert_linear(tanh(expert_linear(x * scale, up)), down)
  loss mse(y, target)
"""


def with_einsum(program: Path) -> Path:
    """A copy of the program with torch.einsum instead."""
    out = Path(copytree(program, program.parent / f"{program.name}_einsum"))
    text = (out / "model.py").read_text()
    assert "Einsum.apply(" in text
    (out / "model.py").write_text(text.replace("Einsum.apply(", "torch.einsum("))
    return out


@contextmanager
def loaded(program: Path, dtype: torch.dtype | None) -> Iterator[tuple[ModuleType, nn.Module]]:
    with load_program(program) as module:
        model = module.Model(dtype=dtype)
        model.initialise(0)
        yield module, model


def step(program: Path, dtype: torch.dtype | None, compiled: bool = False) -> tuple[dict[str, Tensor], set[str]]:
    """The loss and gradients, and the names of parameters to which autograd hands non-contiguous gradients."""
    strided = set()
    torch._dynamo.reset()
    with loaded(program, dtype) as (module, model):
        for name, parameter in model.named_parameters():
            parameter.register_hook(lambda g, name=name: None if g.is_contiguous() else strided.add(name))
        source = torch.Generator().manual_seed(1)
        inputs = {
            name: torch.randn(spec.shape, generator=source, dtype=model.dtype)
            if spec.integer_range is None
            else torch.randint(spec.integer_range, spec.shape, generator=source)
            for name, spec in module.INPUTS.items()
        }
        call = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
        loss, _ = call(**inputs)
        loss.backward()
        return {"loss": loss.detach(), **{name: p.grad for name, p in model.named_parameters()}}, strided


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_of_experts_are_torch_s_and_contiguous(compiled: bool, compile_program: Compile) -> None:
    out = compile_program(MIXTRAL, preset="small", devices=1)
    found, strided = step(out, torch.float64, compiled)
    expected, copied = step(with_einsum(out), torch.float64)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    experts = {f"layer.{number}.moe.{name}" for number in range(2) for name in ("gate", "up", "down")}
    assert not strided & experts and copied >= experts


def test_casts_of_weights_are_read_so_too(compile_program: Compile) -> None:
    """In bfloat16 with float32 weights: the same numbers as torch's einsum, except for the order of summation."""
    out = compile_program(MIXTRAL, preset="small", devices=1)
    found, strided = step(out, None)
    expected, copied = step(with_einsum(out), None)
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-3)
    assert not strided and copied


def test_gradients_that_nobody_wants_are_not_computed(compile_program: Compile) -> None:
    """Frozen weights get no gradient. If only one operand needs a gradient, only the other one is saved."""
    with loaded(compile_program(EXPERTS, devices=1), torch.float64) as (module, _):
        function, spec = module.Einsum.apply, "ebai,eoi->ebao"
        x, w = torch.randn(2, 3, 1, 4, requires_grad=True), torch.randn(2, 5, 4, requires_grad=True)
        for moving, kept in (((x, w.detach()), w), ((x.detach(), w), x), ((x, w), None)):
            result = function(spec, *moving)
            held = [tensor for tensor in result.grad_fn.saved_tensors if tensor is not None]
            assert len(held) == (2 if kept is None else 1)
            assert kept is None or torch.equal(held[0], kept)
            wanted = [tensor for tensor in moving if tensor.requires_grad]
            cotangent = torch.randn(result.shape)
            made = torch.autograd.grad(result, wanted, cotangent)
            torch.testing.assert_close(made, torch.autograd.grad(torch.einsum(spec, *moving), wanted, cotangent))
        assert not function(spec, x.detach(), w.detach()).requires_grad


@pytest.mark.parametrize(
    ("ranks", "choices"),
    [
        (1, {}),
        (2, {"strategy": "data_parallel"}),
        (2, {"strategy": "data_parallel", "pins": ("up=S0", "down=S0", "y=S0")}),  # sharded by experts
        (2, {"pins": ("up=S0", "down=S0", "y=S0")}),  # weight gradients are deferred too
        (2, {"pins": ("up=S1", "down=S2")}),
        (2, {"strategy": "data_parallel", "pins": ("up=S0", "down=S1")}),  # all-gathered
    ],
)
def test_divided_weights(ranks: int, choices: dict[str, object], compile_program: Compile, pool: RankPool) -> None:
    out = compile_program(EXPERTS, devices=ranks, **choices)
    text = (out / "model.py").read_text()
    assert text.count("Einsum.apply(") + text.count("parallel.einsum(") == 2
    report = check(out, steps=2, pool=pool)
    assert report.ok, report


def test_a_compiled_step_of_two_ranks(compile_program: Compile, pool: RankPool) -> None:
    out = str(compile_program(EXPERTS, devices=2, strategy="data_parallel", pins=("up=S0", "down=S0", "y=S0")))
    assert "Einsum.apply(" in (Path(out) / "model.py").read_text()
    eager, compiled = (pool.run(find_gradients, out, compiled, ranks=2) for compiled in (False, True))
    torch.testing.assert_close(compiled, eager)


def test_products_of_activations_stay_torch_s(compile_program: Compile) -> None:
    """Products without weights stay torch.einsum, and the unused class is not emitted."""
    given = re.sub(r"weight (up|down): (\S+, \S+, \S+) ~ .*", r"input \1: \2", EXPERTS)
    text = (compile_program(given, devices=1) / "model.py").read_text()
    assert text.count("torch.einsum(") == 2 and "Einsum" not in text
