"""The reference of a check uses no native call of the program, so a wrong native call is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.declared import as_they_stand
from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.output_folder import write_program
from unity_dsl.emit.program_check import CheckReport, check, compare, load_plan_file, recompile, write_reference
from unity_dsl.emit.rank_pool import RankPool

MODEL = """
model one[b = 6, d = 8]
  input x: f32[b, d]
  input y: f32[b, d]
  weight w: f32[d, d] ~ normal(0.5)
  z = linear(own(linear(x, w)), w)
  loss mse(z, y)
  output z
"""
PICKED = MODEL.replace("own(linear(x, w))", "gather(linear(x, w), own(x); dim=1)")
RIGHT = "op own(x: [b..]) -> y: [b..]\n  y[b..] = relu(x[b..])\n  torch: torch.relu(x)\n"
CUBE = "\nop own(x: [b..]) -> y: [b..]\n  y[b..] = cube(x[b..])\n"
EXTERN = """extern op own(x: [b.., c]) -> i: int<c>[b.., c]
  axes: b..
  torch: torch.argsort(x, dim=-1, {order}stable=True)
  numpy: np.lexsort([x])
"""
WRONG = {
    "native call of an operator": RIGHT.replace("torch.relu(x)", "torch.abs(x)"),
    "gradient of a native call": RIGHT.replace("torch.relu(x)", "torch.relu(torch.detach(x))"),
    "native call of a primitive": "fn cube(x)\n  derivative x: cos(x)\n  torch: torch.cos(x)\n  numpy: np.sin(x)\n"
    + CUBE,
    "native call of a function": "fn cube(x) = x * x * x\n  derivative x: 3 * x * x\n  torch: torch.square(x)\n" + CUBE,
    "derivative": "fn cube(x) = x * x * x\n  derivative x: 2 * x * x\n" + CUBE,
}


@pytest.fixture
def report(tmp_path: Path, pool: RankPool) -> Callable[..., CheckReport]:
    """Checks a model with an operator `own` that nobody has tried."""

    def found(operator: str, model: str = MODEL, devices: int = 1) -> CheckReport:
        (tmp_path / "one.udl").write_text(model.lstrip())
        (tmp_path / "own.uop").write_text(operator)
        request = Request(tmp_path / "one.udl", devices=devices, operators=[tmp_path / "own.uop"])
        with as_they_stand():
            compilation = compile_model(request)
            write_program(compilation.plan, compilation.library, compilation.sources, request, tmp_path / "out")
            return check(tmp_path / "out", pool=pool)

    return found


@pytest.mark.parametrize("devices", [1, 2])
def test_a_right_operator_passes(report: Callable[..., CheckReport], devices: int) -> None:
    assert report(RIGHT, devices=devices).ok


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_line_that_was_not_tried_fails(report: Callable[..., CheckReport], what: str) -> None:
    assert not report(WRONG[what]).ok


def test_an_extern_operator_is_compared_with_its_numpy_line(report: Callable[..., CheckReport]) -> None:
    assert report(EXTERN.format(order=""), PICKED).ok
    assert not report(EXTERN.format(order="descending=True, "), PICKED).ok


def test_the_reference_names_no_native_call(tmp_path: Path) -> None:
    (tmp_path / "one.udl").write_text(MODEL.replace("own(", "gelu(").lstrip())
    request = Request(tmp_path / "one.udl")
    compilation = compile_model(request)
    write_program(compilation.plan, compilation.library, compilation.sources, request, tmp_path / "out")
    write_reference(load_plan_file(tmp_path / "out"), tmp_path / "reference")
    text = (tmp_path / "reference" / "model.py").read_text()
    assert "declared.fn_erf(" in text
    assert not any(f"F.{name}(" in text for name in ("gelu", "linear", "mse_loss"))
    assert "F.gelu(" in (tmp_path / "out" / "model.py").read_text()


@pytest.mark.parametrize("example", ["bert_large", "mixtral_8x7b", "resnext50"])
def test_statements_and_native_calls_of_examples_agree(example: str, tmp_path: Path, pool: RankPool) -> None:
    request = Request(Path("examples") / f"{example}.udl", preset="small", strategy="single")
    compilation = compile_model(request)
    write_program(compilation.plan, compilation.library, compilation.sources, request, tmp_path / "out")
    record = load_plan_file(tmp_path / "out")
    recompile(record, tmp_path / "single", 1, "single", ())
    write_reference(record, tmp_path / "reference")
    errors = compare(tmp_path / "single", tmp_path / "reference", 1, pool=pool)
    assert 0 < max(errors["loss_rel_err"], errors["grad_rel_err"], errors["param_rel_err"]) < 1e-11
