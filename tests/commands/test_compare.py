"""`unityc compare`: rows of strategies, strategies without a plan, the picture, and diagnostics of bad input."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from unity_dsl.cli import run
from unity_dsl.commands import compare, compare_picture
from unity_dsl.search.strategies import STRATEGIES
from unity_dsl.syntax.diagnostic import InputError

MODEL = """\
model tiny[b = 8, d = 16, classes = 4]
  input x: f32[b, d]
  input target: int<classes>[b]
  weight v: f32[d, d] ~ normal(0.02)
  weight w: f32[classes, d] ~ normal(0.02)
  logits = linear(relu(linear(x, v)), w)
  loss cross_entropy(logits, target)
  output logits
"""
ONE_OPERATOR = "model one[b = 8]\n  input x: f32[b, 4]\n  y = relu(x)\n  output y\n"
FEW = ("-s", "data_parallel,zero,single")


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.udl").write_text(MODEL)
    (tmp_path / "one.udl").write_text(ONE_OPERATOR)
    return tmp_path


def compared(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    code = run(["compare", *options, "--machine", "dgx-a100"])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def as_json(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    code, out, _ = compared(capsys, *options, "--json")
    assert code == 0
    found: dict[str, Any] = json.loads(out)
    return found


def test_every_strategy_has_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, "model.udl", "-d", "2")
    assert [row["name"] for row in found["strategies"]] == list(STRATEGIES)
    assert (found["machine"], found["devices"], found["global_batch"]) == ("dgx-a100", 2, 8)
    for row in found["strategies"]:
        assert row["iteration_s"] > 0 and row["search_s"] > 0 and row["peak_memory_bytes"] > 0 and row["fits"]
        assert row["comm_bytes"] >= 0 and isinstance(row["rules"], list) and row["refused"] is None
    by_name = {row["name"]: row for row in found["strategies"]}
    assert by_name["data_parallel"]["speedup"] == 1
    for row in by_name.values():
        assert row["speedup"] == pytest.approx(by_name["data_parallel"]["iteration_s"] / row["iteration_s"])
    assert by_name["single"]["comm_bytes"] == 0 < by_name["data_parallel"]["comm_bytes"]


def test_the_table_is_sorted_and_says_why_there_is_no_plan(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = compared(capsys, "model.udl", "-d", "997", "-s", "auto,data_parallel,single")
    assert code == 0 and err == ""
    lines = out.splitlines()
    assert lines[0] == "tiny on 997 devices of dgx-a100, 8 examples a step"
    assert [line.split()[0] for line in lines[1:]] == ["strategy", "auto", "single", "data_parallel:"]
    assert "997 devices do not divide axis" in lines[-1] and "E309" in lines[-1]


def test_no_plan_of_any_strategy_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = compared(capsys, "model.udl", "-d", "997", "-s", "data_parallel,zero")
    assert code == 1 and out.count("no plan") == 2


def test_a_limit_that_nothing_fits(capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, "model.udl", "-d", "2", "--memory", "1kB", *FEW)
    assert not any(row["fits"] for row in found["strategies"])
    _, out, _ = compared(capsys, "model.udl", "-d", "2", "--memory", "1kB", *FEW)
    assert out.count("does not fit") == 3


@pytest.mark.parametrize("devices", ["1", "16", "997"])
def test_one_operator_and_more_devices_than_work(devices: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, "one.udl", "-d", devices)
    planned = [row for row in found["strategies"] if row["refused"] is None]
    assert {"auto", "single"} <= {row["name"] for row in planned}
    assert all(
        "E309" in row["refused"] or "E318" in row["refused"] for row in found["strategies"] if row not in planned
    )


def test_several_models(capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, "model.udl", "one.udl", "-d", "2", *FEW)
    assert [model["model"] for model in found["models"]] == ["tiny", "one"]


@pytest.mark.parametrize("name", ["speedup.svg", "speedup.png"])
def test_a_picture(name: str, capsys: pytest.CaptureFixture[str], workplace: Path) -> None:
    pytest.importorskip("matplotlib")
    assert compared(capsys, "model.udl", "-d", "2", *FEW, "--picture", name)[0] == 0
    drawn = (workplace / name).read_bytes()
    assert drawn.startswith(b"<?xml" if name.endswith("svg") else b"\x89PNG")
    assert sorted(path.name for path in workplace.iterdir()) == sorted(["model.udl", "one.udl", name])


def test_a_picture_needs_its_library(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_picture, "find_spec", lambda name: None)
    code, out, err = compared(capsys, "model.udl", "-d", "2", *FEW, "--picture", "speedup.svg")
    assert code == 2 and out == "" and "error[E319]" in err and "pip install 'unity-dsl[plot]'" in err


def test_a_picture_needs_a_plan_of_data_parallelism(workplace: Path) -> None:
    with pytest.raises(InputError, match="E319"):
        compare_picture.draw([], workplace / "speedup.svg")


def test_what_a_picture_lacks_is_told_before_any_search(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    code, out, err = compared(capsys, "model.udl", "-d", "2", "-s", "single", "--picture", "speedup.svg")
    assert code == 2 and out == "" and "error[E319]" in err and "add data_parallel to --strategies" in err
    code, out, err = compared(capsys, "model.udl", "-d", "2", *FEW, "--picture", "none/speedup.svg")
    assert code == 2 and out == "" and "error[E030]" in err


def test_pictures_have_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = compared(capsys, "model.udl", "-d", "2", *FEW, "--picture", "speedup.doc")
    assert code == 2 and ".svg, .png or .pdf" in err


def test_an_interruption_shows_what_is_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_ = importlib.import_module("unity_dsl.compilation")
    compiled, planned = compile_.compile_model, []

    def interrupted(request: Any) -> Any:
        if request.strategy == "single":
            raise KeyboardInterrupt
        planned.append(request.strategy)
        return compiled(request)

    monkeypatch.setattr(compile_, "compile_model", interrupted)
    code, out, _ = compared(capsys, "model.udl", "-d", "2", *FEW)
    assert code == 130 and planned == ["data_parallel", "zero"]
    assert {line.split()[0] for line in out.splitlines()[2:]} == {"data_parallel", "zero"}


def test_names_of_strategies(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.chosen_strategies("auto, single,auto") == ("auto", "single")
    assert compare.chosen_strategies("random:3") == ("random:3",)
    code, _, err = compared(capsys, "model.udl", "-d", "2", "-s", ",")
    assert code == 2 and "no strategy is named" in err


PLAN = {
    "desc": {
        "partition_descs": [[number, [[[0, 0], 2]]] for number in range(4)],
        "recompute_groups": [],
        "mesh_desc": [1, 2],
    }
}
"""A plan of nnScaler: every operator divides the first dimension of its first input."""


def test_a_plan_of_another_system_has_a_row(capsys: pytest.CaptureFixture[str], workplace: Path) -> None:
    (workplace / "theirs.json").write_text(json.dumps(PLAN))
    found = as_json(capsys, "model.udl", "-d", "2", "-s", "data_parallel", "--plan", "theirs.json")
    theirs, own = found["strategies"]
    assert theirs["name"] == "nnScaler: theirs.json" and theirs["mesh"] == [2] and theirs["fits"]
    assert theirs["iteration_s"] == pytest.approx(own["iteration_s"], rel=1e-9) and theirs["speedup"] == pytest.approx(
        1
    )
    _, out, _ = compared(capsys, "model.udl", "-d", "2", "-s", "data_parallel", "--plan", "theirs.json")
    assert "nnScaler: theirs.json" in out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "theirs.json:1:1: error[E321]: this is no JSON"),
        ("{}", "theirs.json:1:1: error[E321]: this is no plan that Galvatron, nnScaler or autoparallel export"),
        (
            json.dumps(PLAN).replace("[0, 0]", "[0, 9]", 1),
            "theirs.json:1:36: error[E322]: `linear_1` (linear) has no input 0",
        ),
        ('{"tp_sizes_enc": "1", "pp_deg": 2}', "theirs.json:1:33: error[E323]: a pipeline of several stages"),
    ],
)
def test_a_plan_that_does_not_fit_is_shown(
    text: str, said: str, capsys: pytest.CaptureFixture[str], workplace: Path
) -> None:
    (workplace / "theirs.json").write_text(text)
    code, out, err = compared(capsys, "model.udl", "-d", "2", "-s", "data_parallel", "--plan", "theirs.json")
    assert code == 2 and out == "" and said in err and "^" in err


def test_a_plan_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = compared(capsys, "model.udl", "-d", "2", "-s", "data_parallel", "--plan", "theirs.json")
    assert code == 2 and out == "" and "error[E001]: cannot read `theirs.json`" in err
