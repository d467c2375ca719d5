"""`check` accepts programs that equal their models, and finds every program that does not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from unity_dsl.commands.check_report import show_report
from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.output_folder import write_program
from unity_dsl.emit.plan_file import load_plan_file
from unity_dsl.emit.program_check import TOLERANCE, CheckReport, MixedErrors, check
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.syntax.diagnostic import InputError

MODEL = """
model pair[b = 8, d = 4, h = 8]
  input x: f32[b, d]
  input y: f32[b, d]
  weight w1: f32[h, d] ~ normal(0.5)
  weight b1: f32[h] ~ zeros
  weight w2: f32[d, h] ~ normal(0.5)
  a = tanh(linear(x, w1) + b1)
  z = linear(dropout(a; p = 0.25), w2)
  loss mse(z, y)
  output z
"""


@pytest.fixture
def compiled(tmp_path: Path) -> Callable[..., Path]:
    def compile_for(devices: int, *pins: str, strategy: str = "auto") -> Path:
        (tmp_path / "pair.udl").write_text(MODEL.lstrip())
        request = Request(tmp_path / "pair.udl", devices=devices, strategy=strategy, pins=pins)
        compilation = compile_model(request)
        write_program(compilation.plan, compilation.library, compilation.sources, request, tmp_path / "out")
        return tmp_path / "out"

    return compile_for


def largest(report: CheckReport) -> float:
    return max(report.loss_rel_err, report.grad_rel_err, report.param_rel_err)


@pytest.mark.parametrize(
    ("devices", "pins", "strategy"),
    [
        (1, (), "auto"),
        (2, (), "data_parallel"),
        (2, ("w1=S0", "w2=S1"), "auto"),
        (4, (), "auto"),
        (4, ("w1=S0,S1",), "data_parallel"),
    ],
)
def test_a_right_program_passes(
    compiled: Callable[..., Path], pool: RankPool, devices: int, pins: tuple[str, ...], strategy: str
) -> None:
    report = check(compiled(devices, *pins, strategy=strategy), pool=pool)
    assert report.ok and largest(report) <= TOLERANCE and not report.recompiled and not report.edited
    assert report.ranks == devices
    assert 0 < report.float32_err < 1e-5 and 0 < report.float32_single_device_err < 1e-5


def test_the_report_is_json_of_the_agreed_form(compiled: Callable[..., Path], pool: RankPool) -> None:
    found = json.loads(json.dumps(check(compiled(2), pool=pool).to_json()))
    assert list(found) == [
        "ok",
        "ranks",
        "loss_rel_err",
        "grad_rel_err",
        "param_rel_err",
        "worst",
        "not_finite",
        "float32",
    ]
    assert list(found["float32"]) == ["err", "single_device_err"]
    assert found["ok"] is True and isinstance(found["worst"], str)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_another_number_of_ranks_is_compiled_from_the_plan_alone(
    compiled: Callable[..., Path], pool: RankPool, ranks: int
) -> None:
    out = compiled(2)
    (out.parent / "pair.udl").unlink()
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    report = check(out, ranks, pool=pool)
    assert report.ok and report.ranks == ranks and report.recompiled is (ranks != 2)
    assert before == {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}


def test_a_check_without_a_pool_brings_its_own_ranks(compiled: Callable[..., Path]) -> None:
    assert check(compiled(2, strategy="data_parallel"), steps=1).ok


def edit(out: Path, pattern: str, replacement: str) -> None:
    for name in ("model.py", "parallel.py"):
        path = out / name
        text, count = re.subn(pattern, replacement, path.read_text())
        if count:
            path.write_text(text)
            return
    raise AssertionError(f"nothing in the program matches {pattern}")


def test_a_wrong_forward_is_found(compiled: Callable[..., Path], pool: RankPool) -> None:
    out = compiled(2, strategy="data_parallel")
    edit(out, r"\.tanh_\(", ".sin_(")
    report = check(out, pool=pool)
    assert not report.ok and largest(report) > 1e-3 and report.edited == ("model.py",)


def test_a_wrong_gradient_is_found(compiled: Callable[..., Path], pool: RankPool) -> None:
    """The loss is right and the gradients of all weights are scaled, so only a comparison of gradients finds it."""
    out = compiled(2, strategy="data_parallel")
    path = out / "model.py"
    path.write_text(path.read_text() + _DOUBLE_GRADIENTS)
    report = check(out, pool=pool)
    assert not report.ok and report.grad_rel_err > 0.5 and "gradient" in report.worst


_DOUBLE_GRADIENTS = """

class Wrong(Model):
    def synchronise(self):
        super().synchronise()
        for parameter in self.parameters():
            parameter.grad = 2 * parameter.grad


Model = Wrong
"""


NO_GRADIENTS = """
model even[b = 6, d = 9, h = 21]
  input x: f32[b, d]
  weight w1: f32[h, d] ~ normal(0.3)
  weight w2: f32[d, h] ~ normal(0.3)
  y = softmax(linear(relu(linear(x, w1)), w2))
  loss reduce_sum(y[a, c] -> [])
"""
"""The sum of a softmax is 1, so all gradients are zero but for rounding."""


def test_gradients_that_are_rounding_alone_are_equal(tmp_path: Path, pool: RankPool) -> None:
    (tmp_path / "even.udl").write_text(NO_GRADIENTS.lstrip())
    request = Request(tmp_path / "even.udl", devices=2, strategy="data_parallel")
    found = compile_model(request)
    write_program(found.plan, found.library, found.sources, request, tmp_path / "out")
    report = check(tmp_path / "out", pool=pool)
    assert report.ok and largest(report) <= TOLERANCE
    path = tmp_path / "out" / "model.py"
    path.write_text(path.read_text() + _DOUBLE_GRADIENTS.replace("2 * parameter.grad", "parameter.grad + 1e-13"))
    report = check(tmp_path / "out", pool=pool)
    assert not report.ok and report.grad_rel_err > TOLERANCE


@pytest.mark.parametrize(("wrong", "reason"), [(".no_such_function(", "no_such_function"), (" tanh_(", "SyntaxError")])
def test_a_program_that_raises_is_told_at_its_line(
    wrong: str, reason: str, compiled: Callable[..., Path], pool: RankPool
) -> None:
    """The report lists the calls in the program, and none of the calls that ran it."""
    out = compiled(2, strategy="data_parallel")
    edit(out, r"\.tanh_\(", wrong)
    with pytest.raises(InputError) as caught:
        check(out, pool=pool)
    told = caught.value.diagnostic
    assert told.code == "E406" and reason in told.message
    assert told.span is not None and wrong in told.span.text and told.span.source.name == str(out / "model.py")
    assert f'"{out / "model.py"}", line {told.span.line}' in told.help and "rank_pool" not in told.help


@pytest.mark.parametrize(
    ("function", "tensor"), [("log(0 * y - 1)", "loss of step 1"), ("sqrt(0 * y)", "gradient of w")]
)
def test_a_model_that_is_not_finite_is_told(
    function: str, tensor: str, tmp_path: Path, pool: RankPool, capsys: pytest.CaptureFixture[str]
) -> None:
    """A square root has a value at 0, but no derivative."""
    lines = (
        "model m[b = 4, d = 4]", "input x: f32[b, d]", "weight w: f32[d, d] ~ normal(0.1)", "y = linear(x, w)",
        f"loss mse({function}, x)",
    )  # fmt: skip
    (tmp_path / "m.udl").write_text("\n  ".join(lines) + "\n")
    request = Request(tmp_path / "m.udl")
    made = compile_model(request)
    write_program(made.plan, made.library, made.sources, request, tmp_path / "out")
    report = check(tmp_path / "out", pool=pool)
    assert not report.ok and report.not_finite == tensor
    show_report(report, load_plan_file(tmp_path / "out"))
    told = capsys.readouterr().out
    verdict = f"the program on 1 rank can't be compared: the model on one device is not finite in {tensor}"
    assert told.splitlines()[-1].split(maxsplit=1) == ["verdict", verdict]
    assert "gradients not finite" in told and "e+308" not in told and "equal" not in told
    found = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert found["not_finite"] == tensor and found["grad_rel_err"] is None and not found["ok"]


def test_a_folder_that_is_no_program(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        check(tmp_path)
    assert caught.value.diagnostic.code == "E403"


@pytest.mark.parametrize(
    ("alone", "bound"), [(1e-3, 2.0**-6), (0.01, 0.04), (0.5, 2.0), (1, 2.0**-6), (float("inf"), 2.0**-6)]
)
def test_a_program_that_is_wrong_on_one_device_excuses_nothing(alone: float, bound: float) -> None:
    """A one-device error below 100 % raises the bound to four times itself. A larger error does not."""
    assert MixedErrors("bf16", 0.0, alone).bound == bound


@pytest.mark.parametrize(
    ("errors", "least"),
    [
        ({"loss_rel_err": 1e-10}, 0.0),
        ({"grad_rel_err": 1e-10}, 0.0),
        ({"param_rel_err": 1e-10}, 0.0),
        ({"float32_err": 1e-5}, 0.0),
        ({"float32_err": 4 * 3e-4, "float32_single_device_err": 3e-4}, 1e-5),
        ({"bf16": 2.0**-6}, 0.0),
        ({"f16": 2.0**-9}, 0.0),
        ({"tf32": 2.0**-9}, 0.0),
        ({"bf16": 4 * 0.01, "single_device_err": 0.01}, 2.0**-6),
    ],
)
def test_an_error_at_its_bound_passes_and_a_larger_one_does_not(errors: dict[str, float], least: float) -> None:
    (name, bound), *others = errors.items()
    assert bound > least

    def passes(error: float) -> bool:
        fields = ("loss_rel_err", "grad_rel_err", "param_rel_err", "float32_err", "float32_single_device_err")
        found: dict[str, Any] = dict.fromkeys(fields, 0.0)
        mixed = None
        if name in ("bf16", "f16", "tf32"):
            mixed = MixedErrors(name, error, dict(others).get("single_device_err", 0.0))
        else:
            found |= {**dict(others), name: error}
        return CheckReport(1, worst="w", trained=True, recompiled=False, edited=(), mixed=mixed, **found).ok

    assert passes(bound) and not passes(bound * (1 + 1e-9))


def short_batches(inputs: Any, seed: int, step: int, split: str) -> dict[str, Any]:
    return {name: torch.zeros(7, 4) for name in inputs}


def lacking_batches(inputs: Any, seed: int, step: int, split: str) -> dict[str, Any]:
    return {"x": torch.zeros(8, 4)}


def raising_batches(inputs: Any, seed: int, step: int, split: str) -> dict[str, Any]:
    return {"x": inputs["nothing"]}


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (short_batches, "input x is [8, 4], the data has [7, 4]"),
        (lacking_batches, "the data has no y"),
        (raising_batches, "the data function raised KeyError: 'nothing'"),
    ],
)
def test_data_that_do_not_fit_are_told_in_one_line(
    function: Callable[..., object], told: str, compiled: Callable[..., Path]
) -> None:
    with pytest.raises(InputError) as error:
        check(compiled(1), steps=1, data=f"{__name__}:{function.__name__}")
    diagnostic = error.value.diagnostic
    assert (diagnostic.code, diagnostic.message, diagnostic.help) == ("E406", told, "it is what --data names")
