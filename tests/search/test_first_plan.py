"""The plan that a search starts from. It fits if data parallelism can, computes what the model does, and is never
faster than the plan that the search returns.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from unity_dsl.cli import run
from unity_dsl.compilation import Request, compile_model
from unity_dsl.graph.plan import Cost, Memory, Plan
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.mesh import all_meshes, build_mesh
from unity_dsl.search.first_plan import STARTING, first_plan, starting_meshes
from unity_dsl.search.plan_search import search

from .conftest import Build
from .test_search_end import Counted

MODEL = """
model small[b = 4]
  input x: f32[b, 64]
  input target: f32[b, 64]
  weight v: f32[64, 64] ~ normal(0.1)
  weight w: f32[64, 64] ~ normal(0.1)
  h = linear(relu(linear(x, v)), w)
  loss mse(h, target)
"""


@pytest.mark.parametrize(("devices", "degrees"), [(2, (2,)), (4, (4,)), (8, (2, 4)), (6, (3, 2)), (7, (7,))])
def test_as_many_devices_as_divide_the_batch(
    devices: int, degrees: tuple[int, ...], library: Library, build: Build
) -> None:
    model, machine = build(MODEL), load_machine("dgx-a100")
    (mesh,) = starting_meshes(model, all_meshes(machine, devices), machine)
    assert mesh.degrees == degrees
    plan = search(model, (mesh,), machine, library, imported=STARTING)
    over = max(count for count in (1, 2, 4) if devices % count == 0)
    assert plan.notes[-1] == f"data parallelism over {over} devices, weights whole"
    given = build_mesh(machine, 8, (2, 2, 2))
    assert starting_meshes(model, (given,), machine) == (given,)


@pytest.mark.parametrize("size", [2, 3])
def test_the_program_of_a_first_plan_equals_its_model(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On four devices. For a batch of 2, two of them divide it; for a batch of 3, all devices compute the same."""
    monkeypatch.chdir(tmp_path)
    Path("small.udl").write_text(MODEL.replace("b = 4", f"b = {size}"))
    assert run(["small.udl", "-d", "4", "--time-limit", "0.000001"]) == 0
    assert json.loads(Path("out/plan.json").read_text())["ended"] == "its time limit of 1e-06 s"
    assert run(["check", "out"]) == 0
    assert "equals its model" in capsys.readouterr().out


def test_weights_are_in_slices_where_they_do_not_fit_whole(library: Library, build: Build) -> None:
    """With 0.8 of the memory that whole weights need, the first plan has weights in slices, and fits."""
    model, machine = build(MODEL), load_machine("dgx-a100")
    meshes = all_meshes(machine, 4)[:1]
    whole = search(model, meshes, machine, library, imported=STARTING)
    small = machine.holding(int(0.8 * whole.cost.memory.total))
    plan = search(model, meshes, small, library, imported=STARTING)
    assert plan.notes[-1].endswith("weights in slices") and not plan.warnings
    assert plan.cost.memory.total < whole.cost.memory.total


@pytest.mark.parametrize(("activations", "count"), [(30.0, 2), (80.0, 8), (160.0, 16)])
def test_as_few_micro_batches_as_may_fit(activations: float, count: int, library: Library, build: Build) -> None:
    """Of 60 or 65 bytes, 50 are stored. Each micro-batch may use the rest for its activations."""
    model, machine = build(MODEL), load_machine("dgx-a100")
    whole = search(model, all_meshes(machine, 4)[:1], machine.holding(1000), library, imported=STARTING)
    assert whole.warnings
    asked = []

    def plan_of(number: int) -> Plan:
        asked.append(number)
        memory = Memory(parameters=50.0, activations=activations / number)
        return replace(whole, cost=Cost(memory=memory), warnings=whole.warnings if number == 1 else ())

    first_plan(plan_of, None, 65.0 if activations == 30 else 60.0)
    assert asked == [1, count]


@pytest.mark.parametrize("devices", [2, 8])
def test_a_search_never_returns_a_worse_plan(devices: int, tmp_path: Path) -> None:
    """Wherever the search is ended."""
    path = tmp_path / "small.udl"
    path.write_text(MODEL.replace("b = 4", "b = 64"))
    request = Request(path, machine="dgx-a100", devices=devices)

    whole = Counted()
    best = compile_model(request, whole).plan
    first = compile_model(request, Counted(most=0)).plan
    assert first.ended == "a count" and best.seconds <= first.seconds
    for tenth in range(1, 10):
        plan = compile_model(request, Counted(most=whole.asked * tenth // 10)).plan
        assert plan.ended == "a count" and best.seconds * (1 - 1e-9) <= plan.seconds <= first.seconds


def test_a_first_plan_recomputes_what_was_asked_for(tmp_path: Path) -> None:
    """`layer:1` recomputes the first iteration. The other iterations keep what they computed."""
    path = tmp_path / "layers.udl"
    path.write_text(
        """
model layers[b = 8]
  input x: f32[b, 16]
  input target: f32[b, 16]
  repeat 4 as layer
    weight w: f32[16, 16] ~ normal(0.1)
    x = relu(linear(x, w))
  loss mse(x, target)
""".lstrip()
    )
    plan = compile_model(Request(path, devices=2, recompute="layer:1", time_limit=1e-6)).plan
    assert plan.ended and plan.passes.recomputed == {"layer"} and plan.passes.kept_iterations == {"layer": 3}
