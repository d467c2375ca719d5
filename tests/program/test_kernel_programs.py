"""Programs whose operators run as kernels, in Triton's interpreter, equal their one-device models."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from random import Random
from types import ModuleType

import pytest
import torch

from tests.fuzz.cases import Drawn, draw, errors_of, libraries, write
from tests.fuzz.plans import random_plan
from tests.sampling import SAMPLE, of_the_day
from unity_dsl.emit.plan_file import TRITON
from unity_dsl.emit.program_check import TOLERANCE
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.graph.layout import Mesh, MeshAxis
from unity_dsl.graph.model_graph import build_model
from unity_dsl.index.library import Library
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.span import Source

from .conftest import Compile
from .example_cases import EXAMPLES, Case, Checker

TODAY = of_the_day([(example, ranks) for example in EXAMPLES for ranks in (1, 2)], 2)
FUZZED = [SAMPLE * 10 + number for number in range(10)]
"""Numbers of random cases, which change every day."""


@pytest.fixture(scope="module")
def checker(pool: RankPool, tmp_path_factory: pytest.TempPathFactory) -> Checker:
    return Checker(pool, tmp_path_factory.mktemp("kernels"))


@pytest.fixture(scope="module")
def known() -> tuple[Library, Library]:
    return libraries()


@pytest.mark.parametrize(("example", "ranks"), TODAY)
def test_an_example_equals_its_model(example: str, ranks: int, checker: Checker) -> None:
    print(f"UNITY_SAMPLE={SAMPLE}")
    finding = checker.check(Case(example, (ranks,) if ranks > 1 else (), ranks, "auto", kernels=TRITON), steps=1)
    assert finding.ok, str(finding)


@pytest.mark.a_day(5)
@pytest.mark.parametrize("case", FUZZED)
def test_a_random_plan_equals_its_model(
    case: int, pool: RankPool, known: tuple[Library, Library], tmp_path: Path
) -> None:
    assert_equal(case, pool, known, tmp_path)


def test_a_value_that_is_read_in_two_layouts(pool: RankPool, known: tuple[Library, Library], tmp_path: Path) -> None:
    """A value times itself, read once as partial sums and once whole. A kernel would use one tensor for both."""
    assert_equal(7399502, pool, known, tmp_path)


def assert_equal(case: int, pool: RankPool, known: tuple[Library, Library], tmp_path: Path) -> None:
    found = draw(2, case, (2,), known)
    program = write(found.plan, found.library, tmp_path / "program", TRITON)
    reference = write(found.alone, found.library, tmp_path / "reference")
    largest, errors = errors_of(found, program, reference, pool)
    assert largest <= TOLERANCE, f"seed 2, case {case}\n{found.text}\n{errors}"


GATED = """model gated[b = 6, s = 4, d = 24, inner = 40]
  input x: f32[b, s, d]
  input target: f32[b, s, 1]
  weight up: f32[inner, d] ~ normal(0.3)
  weight gate: f32[inner, d] ~ normal(0.3)
  weight bias: f32[inner] ~ normal(0.3)
  weight down: f32[d, inner] ~ normal(0.3)
  weight head: f32[1, d] ~ normal(0.3)
  gated = silu(linear(x, gate) + bias) * linear(x, up)
  y = x + dropout(linear(gated, down); p=0.2)
  loss mse(linear(y, head), target)
"""
"""Two matrix products that are kernels with the operators after them: `linear(x, gate)` and `linear(gated, down)`."""


@pytest.mark.parametrize("case", range(SAMPLE * 5, SAMPLE * 5 + 5))
def test_products_with_what_is_around_them_equal_their_model(
    case: int, pool: RankPool, known: tuple[Library, Library], tmp_path: Path
) -> None:
    """Random plans divide the batch, rows, columns, sums, or nothing. Most of the plans have such kernels."""
    model = build_model(parse_model(Source("gated.udl", GATED)), known[0])
    plan = random_plan(model, Mesh((MeshAxis("a", 2),)), known[0], Random(case))
    found = Drawn(GATED, model, known[0], plan)
    program = write(plan, known[0], tmp_path / "program", TRITON)
    alone = write(found.alone, known[0], tmp_path / "alone", TRITON)
    assert "for first_inner in range" in (alone / "kernels.py").read_text()
    largest, errors = errors_of(found, program, write(found.alone, known[0], tmp_path / "reference"), pool)
    assert largest <= TOLERANCE, f"case {case}\n{errors}"


RESIDUAL = """model small[b = 2, s = 4, d = 8]
  input x: f32[b, s, d]
  input target: f32[b, s, d]
  weight gain: f32[d] ~ normal(0.3)
  weight bias: f32[d] ~ normal(0.3)
  weight w: f32[d, d] ~ normal(0.3)
  y = layer_norm(x + dropout(linear(x, w); p=0.2), gain, bias)
  loss mse(y, target)
"""


def imported(folder: Path) -> ModuleType:
    for name in [name for name in sys.modules if name.partition(".")[0] == "with_kernels"]:
        del sys.modules[name]
    spec = importlib.util.spec_from_file_location("with_kernels", folder / "__init__.py")
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["with_kernels"] = package
    spec.loader.exec_module(package)
    return package


@pytest.mark.parametrize("fails", ["_forward", "_backward"])
def test_training_goes_on_where_a_kernel_fails(
    fails: str, compile_program: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = imported(compile_program(RESIDUAL, kernels=TRITON))
    kernels = sys.modules["with_kernels.kernels"]
    model = package.Model(None, dtype=torch.float64)
    model.initialise(0)
    inputs = torch.randn(2, 4, 8, dtype=torch.float64), torch.randn(2, 4, 8, dtype=torch.float64)

    def gradients() -> list[torch.Tensor]:
        model.zero_grad()
        loss, _ = model(*inputs)
        loss.backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    expected = gradients()
    (name,) = [name for name in vars(kernels) if name.endswith(fails)]

    class Broken:
        def __getitem__(self, grid: object) -> object:
            raise RuntimeError("no such instruction")

    monkeypatch.setattr(kernels, name, Broken())
    with pytest.warns(
        UserWarning, match=r"DropoutAddLayerNormMse runs without its kernel, which failed: no such instr"
    ):
        found = gradients()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = gradients()
    for made in (found, again):
        for gradient, wanted in zip(made, expected, strict=True):
            torch.testing.assert_close(gradient, wanted, rtol=1e-12, atol=1e-14)


def test_without_triton_operators_run_as_torch(compile_program: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    package = imported(compile_program(RESIDUAL, kernels=TRITON))
    model = package.Model(None)
    model.initialise(0)
    loss, _ = model(torch.randn(2, 4, 8), torch.randn(2, 4, 8))
    loss.backward()
    assert sys.modules["with_kernels.kernels"].triton is None
    assert all(parameter.grad is not None for parameter in model.parameters())
