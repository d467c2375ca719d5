"""Every strategy on requests that leave it few choices: a prime number of devices, one device, more devices than work,
sizes that nothing divides, a single operator, no memory. Each gives a program or one clear answer.

Each day tests another sample; `UNITY_SAMPLE` repeats one, `UNITY_EVERYTHING=1` takes all.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from unity_dsl.cli import run
from unity_dsl.search.strategies import STRATEGIES

from ..sampling import SAMPLE, of_the_day

MODELS = {
    "nothing divides": """\
model odd[b = 7, d = 11, h = 13, classes = 17]
  input x: f32[b, d]
  input target: int<classes>[b]
  weight v: f32[h, d] ~ normal(0.02)
  weight w: f32[classes, h] ~ normal(0.02)
  logits = linear(relu(linear(x, v)), w)
  loss cross_entropy(logits, target)
  output logits
""",
    "one operator": "model one[b = 8]\n  input x: f32[b, 4]\n  y = relu(x)\n  output y\n",
    "one product": """\
model product[b = 1, d = 1]
  input x: f32[b, d]
  input target: f32[b, d]
  weight w: f32[d, d] ~ normal(0.02)
  loss mse(linear(x, w), target)
""",
    "one iteration": """\
model once[b = 4, d = 6]
  input x: f32[b, d]
  input target: f32[b, d]
  h = x
  repeat 1 as layer
    weight w: f32[d, d] ~ normal(0.02)
    h = relu(linear(h, w))
  loss mse(h, target)
""",
}
DEVICES = (1, 7, 12, 997)
ANSWERS = ("E309", "E318")
"""Codes for a strategy without a plan: the devices do not divide what it divides, or its algorithm finds nothing."""
CASES = list(product(STRATEGIES, MODELS, DEVICES))
COUNT = 24


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def asked(model: str, *options: str) -> list[str]:
    Path("model.udl").write_text(MODELS[model])
    return ["model.udl", "--machine", "dgx-a100", *options]


def answered(told: str, codes: tuple[str, ...]) -> bool:
    """Whether there is one diagnostic, with one of these codes and a help line, and no internal error."""
    first = told.splitlines()[0] if told else ""
    one = sum("error[" in line for line in told.splitlines()) == 1
    return one and any(f"error[{code}]" in first for code in codes) and "Traceback" not in told and "help: " in told


@pytest.mark.parametrize("number", range(len(of_the_day(CASES, COUNT))))
def test_there_is_a_program_or_an_answer(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    strategy, model, devices = of_the_day(CASES, COUNT)[number]
    code = run([*asked(model, "--devices", str(devices)), "--strategy", strategy])
    told = capsys.readouterr()
    case = f"UNITY_SAMPLE={SAMPLE}: {strategy}, {model}, {devices}: {told.err}"
    if code == 0:
        plan = json.loads(Path("out/plan.json").read_text())
        assert told.err == "" and plan["request"]["devices"] == devices and plan["strategy"] == strategy, case
    else:
        assert code == 2 and not Path("out").exists() and answered(told.err, ANSWERS), case
    if devices == 1 or strategy in ("auto", "single"):
        assert code == 0, case


@pytest.mark.parametrize("number", range(8))
def test_no_memory_is_told(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Every strategy that has a plan reports it, and nothing is written."""
    (strategy,) = of_the_day([(name,) for name in STRATEGIES], 8)[number]
    code = run([*asked("one iteration", "--devices", "2", "--memory", "10B"), "--strategy", strategy])
    told = capsys.readouterr().err
    assert code == 2 and not Path("out").exists(), f"UNITY_SAMPLE={SAMPLE}: {strategy}"
    assert answered(told, ("E313",)), f"UNITY_SAMPLE={SAMPLE}: {strategy}: {told}"


@pytest.mark.a_day(6)
@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize("model", MODELS)
def test_all_strategies_side_by_side(model: str, devices: int, capsys: pytest.CaptureFixture[str]) -> None:
    """`auto` and `single` have a plan; each other strategy has a plan or a reason. None is faster than `auto`."""
    names = "auto,single,data_parallel,zero,expert,flexflow,alpa_intra,autoparallel,tofu,galvatron,automap,nnscaler"
    code = run(["compare", *asked(model, "--devices", str(devices)), "--strategies", names, "--json"])
    told = capsys.readouterr()
    assert code == 0 and told.err == ""
    rows = {row["name"]: row for row in json.loads(told.out)["strategies"]}
    assert list(rows) == names.split(",")
    for row in rows.values():
        assert (row["iteration_s"] is None) == (row["refused"] is not None)
        assert row["refused"] is None or any(f"({code})" in row["refused"] for code in ANSWERS)
    assert rows["auto"]["iteration_s"] is not None and rows["single"]["iteration_s"] is not None
    planned = [row["iteration_s"] for row in rows.values() if row["iteration_s"] is not None]
    assert rows["auto"]["iteration_s"] <= min(planned) * (1 + 1e-6)


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name not in ("taso", "metaflow", "unity")])
@pytest.mark.parametrize("devices", ["0", "-3", "10000000"])
def test_numbers_of_devices_that_are_none(strategy: str, devices: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*asked("one product", "--devices", devices), "--strategy", strategy]) == 2
    assert answered(capsys.readouterr().err, ("E302",))
