"""Programs of --precision tf32, and the TF32 settings that every program makes in torch."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.plan_file import TRITON
from unity_dsl.emit.program_check import TOLERANCE_MIXED, check
from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.resources import folder

Compile = Callable[..., Path]

MODEL = """
model m[b = 16, d = 12]
  input x: f32[b, d]
  input target: f32[b, d]
  weight up: f32[2 * d, d] ~ normal(0.3)
  weight down: f32[d, 2 * d] ~ normal(0.3)
  loss mse(linear(tanh(linear(x, up)), down), target)
"""


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    products, convolutions = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = products, convolutions


def settings() -> tuple[bool, bool]:
    """torch's TF32 settings for products and for convolutions. By default torch uses TF32 for convolutions."""
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize("precision", [None, "f32", "bf16", "tf32"])
@pytest.mark.parametrize("newer", [False, True])
def test_a_program_says_both_of_products_and_of_convolutions(
    compile_program: Compile, precision: str | None, newer: bool
) -> None:
    """Covers every earlier setting, also by the newer names. Importing a program and building its model set nothing."""
    out, expected = compile_program(MODEL, precision=precision), (precision == "tf32",) * 2
    for before in (True, False):
        if newer:
            torch.backends.cuda.matmul.fp32_precision = "tf32" if before else "ieee"
            torch.backends.cudnn.conv.fp32_precision = "tf32" if before else "ieee"
        else:
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = before
        with load_program(out) as module, warnings.catch_warnings():
            warnings.simplefilter("error")
            module.Model(None)
            if not newer:
                assert settings() == (before, before)
            module.set_tf32()
            assert settings() == expected


@pytest.mark.parametrize("precision", ["f32", "tf32"])
def test_train_sets_up_the_device_with_it(compile_program: Compile, precision: str) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "f32"
    with load_program(compile_program(MODEL, precision=precision)) as module:
        train = __import__(f"{module.__package__}.train", fromlist=["train"])
        assert train.connect("cpu") == (0, "cpu", None)
        sys.modules.pop(train.__name__)
    assert settings() == (precision == "tf32",) * 2


@pytest.mark.a_day(2)
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("example", ["gpt2", "resnext50"])
def test_an_example_is_as_good_as_on_one_device(
    compile_program: Compile, pool: RankPool, example: str, ranks: int
) -> None:
    path = folder("examples") / f"{example}.udl"
    out = compile_program(path, devices=ranks, precision="tf32", preset="small")
    report = check(out, pool=pool, steps=1)
    assert report.ok, report
    assert report.mixed is not None and report.mixed.precision == "tf32"
    assert report.mixed.err > 100 * report.float32_err, "factors are not rounded at all"
    if example == "gpt2":
        assert report.mixed.err < TOLERANCE_MIXED["tf32"]


def test_on_a_cpu_it_computes_what_float32_computes(compile_program: Compile) -> None:
    """The two texts differ only in their TF32 settings and in what they say of themselves."""
    full, rounded = (
        re.sub(r"model\d\.udl", "", (compile_program(MODEL, precision=name) / "model.py").read_text())
        for name in ("f32", "tf32")
    )
    says = "Products and convolutions of float32 may round their factors to TF32 on GPUs.\n"
    assert says in rounded and says not in full
    assert rounded.replace(says, "").replace("TF32 = True", "TF32 = False") == full


def test_operators_that_rules_make_are_in_tf32_too() -> None:
    request = Request(folder("examples") / "mlp.udl", preset="small", precision="tf32", machine="dgx-a100")
    nodes = list(compile_model(request).plan.model.graph.nodes())
    assert any(node.rule is not None for node in nodes) and all(node.tf32 for node in nodes)


COARSE = """

class Coarse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.to(torch.bfloat16).to(x.dtype) if x.dtype == torch.float32 else x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def coarse_linear(x, w, *bias):
    return F.linear(Coarse.apply(x), Coarse.apply(w), *bias)

"""


def test_factors_of_bf16_are_found(compile_program: Compile, pool: RankPool) -> None:
    """In float64 a program with bf16 factors is right.

    It exceeds four times the error of TF32 on one device. In float32, in which a check rounds no factors, it is far
    off.
    """
    out = compile_program(folder("examples") / "mlp.udl", precision="tf32", preset="small")
    assert check(out, pool=pool, steps=1).ok
    text, count = re.subn(r"\bF\.linear\(", "coarse_linear(", (out / "model.py").read_text())
    assert count == 3
    (out / "model.py").write_text(text.replace("\nclass Model(", f"{COARSE}\nclass Model(", 1))
    report = check(out, pool=pool, steps=1)
    assert max(report.loss_rel_err, report.grad_rel_err, report.param_rel_err) < 1e-10
    assert report.mixed is not None and report.mixed.err > 2 * report.mixed.bound
    assert report.float32_err > report.mixed.bound and not report.ok


@pytest.mark.parametrize(("precision", "expected"), [("f32", "ieee"), ("tf32", "tf32"), ("bf16", "ieee")])
def test_products_of_kernels_follow(compile_program: Compile, precision: str, expected: str) -> None:
    path = folder("examples") / "gpt2.udl"
    choices = {"machine": "dgx-h100", "devices": 1, "strategy": "single", "kernels": TRITON}
    text = (compile_program(path, precision=precision, preset="small", **choices) / "kernels.py").read_text()
    assert set(re.findall(r'input_precision="(\w+)"', text)) == {expected}
    assert len(re.findall(r"\btl\.dot\(", text)) == text.count("input_precision=")
