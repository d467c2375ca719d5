"""What the strategies leave of the search space, and what they refuse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Never

import pytest

from unity_dsl.cli import run
from unity_dsl.graph.layout import Invariant, Layout, Partial, invariant
from unity_dsl.graph.plan import PlannedGraph, PlannedSegment
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.mesh import build_mesh
from unity_dsl.rules.sharding_theorems import ShardingTheorems
from unity_dsl.search.choices.restriction import storable
from unity_dsl.search.layout_pins import parse_pin
from unity_dsl.search.plan_search import search
from unity_dsl.search.strategies import STRATEGIES
from unity_dsl.search.strategies.data_parallel import data_parallel
from unity_dsl.syntax.diagnostic import InputError

from .conftest import FOUR, TWO, Build

MODEL = """
model m[n = 1]
  input tokens: int<16>[8, 4]
  input target: int<16>[8, 4]
  weight table: f32[16, 12] ~ normal(0.1)
  weight position: f32[4, 12] ~ normal(0.1)
  v = embedding(tokens, table) + position
  repeat 3 as layer
    weight w: f32[12, 12] ~ normal(0.1)
    h = v[b, s, (h=3 k)] -> [b, h, s, k]
    v = v + relu(linear(h[b, h, s, k] -> [(b s), (h k)], w))[(b=8 s), d] -> [b, s, d]
  logits = linear(v, table)
  loss cross_entropy(logits, target)
  output logits
"""


def stored(graph: PlannedGraph) -> Iterator[Layout]:
    for weight in graph.graph.weights:
        yield graph.values[weight.value.name].produced
    for step in graph.steps:
        if isinstance(step, PlannedSegment):
            for run in step.runs:
                yield from stored(run.body)


def test_single_divides_nothing(library: Library, build: Build) -> None:
    plan = search(build(MODEL), FOUR, load_machine("dgx-a100"), library, "single")
    assert all(layout == invariant(FOUR) for layout in stored(plan.graph))
    for planned in plan.graph.nodes():
        assert set(planned.typed.results) == {invariant(FOUR)}
    assert plan.cost.communication == 0


def test_data_parallel_divides_the_batch(library: Library, build: Build) -> None:
    plan = search(build(MODEL), FOUR, load_machine("dgx-a100"), library, "data_parallel")
    assert all(layout == invariant(FOUR) for layout in stored(plan.graph))
    for planned in plan.graph.nodes():
        for value, layout in zip(planned.node.results, planned.typed.results, strict=True):
            if value.shape:
                batch = 0
                assert layout.nesting(batch) == (0, 1), f"{planned.node.name} {layout}"
    assert plan.cost.communication > 0


def test_data_parallel_follows_the_batch_where_it_goes(library: Library, build: Build) -> None:
    text = """
model m[n = 1]
  input x: f32[8, 6]
  input target: f32[6, 8]
  weight w: f32[6, 6] ~ normal(0.1)
  v = linear(x, w)[b, d] -> [d, b]
  loss mse(v, target)
"""
    found = data_parallel(build(text), TWO, library)
    plan = search(build(text), TWO, load_machine("local"), library, "data_parallel")
    assert str(plan.graph.values["v"].produced) == "S1"
    assert "v" in {name.split(".")[-1] for name in found.configurations} or found.configurations


def test_data_parallel_needs_a_batch_that_divides(library: Library, build: Build) -> None:
    with pytest.raises(InputError) as raised:
        search(build(MODEL.replace("8", "7")), TWO, load_machine("local"), library, "data_parallel")
    assert raised.value.diagnostic.code == "E309"
    assert "7" in raised.value.diagnostic.message


@pytest.mark.a_day(2)
@pytest.mark.parametrize("name", ["local", "dgx-a100"])
@pytest.mark.parametrize("devices", [1, 2, 4])
def test_auto_is_the_cheapest(devices: int, name: str, library: Library, build: Build) -> None:
    machine = load_machine(name)
    mesh = build_mesh(machine, devices)
    costs = {s: search(build(MODEL), mesh, machine, library, s).cost.seconds for s in STRATEGIES}
    assert costs["auto"] <= min(costs.values()) * (1 + 1e-9)


def test_no_plan_of_another_strategy_is_a_candidate_of_auto(
    library: Library, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: object) -> Never:
        raise AssertionError("another strategy is asked")

    for name in STRATEGIES.keys() - {"auto"}:
        other = STRATEGIES[name]
        algorithm = asked if other.algorithm is not None else None
        monkeypatch.setitem(STRATEGIES, name, replace(other, restrict=asked, algorithm=algorithm))
    machine = load_machine("dgx-a100")
    with pytest.raises(AssertionError, match="another strategy is asked"):
        search(build(MODEL), build_mesh(machine, 2), machine, library, "zero")
    assert search(build(MODEL), build_mesh(machine, 2), machine, library, "auto").cost.seconds > 0


def test_one_device_has_no_mesh(library: Library, build: Build) -> None:
    machine = load_machine("local")
    plan = search(build(MODEL), build_mesh(machine, 1), machine, library)
    assert plan.mesh.axes == ()
    assert plan.cost.communication == 0
    assert not any(planned.materialised for planned in plan.graph.values.values())


@pytest.mark.parametrize("strategy", ["auto", "single"])
def test_a_model_without_choices_has_a_plan_on_many_axes(strategy: str, library: Library, build: Build) -> None:
    machine = load_machine("dgx-a100")
    model = build("model one[b = 8]\n  input x: f32[b, 4]\n  y = relu(x)\n  output y\n")
    plan = search(model, build_mesh(machine, 16), machine, library, strategy)
    assert len(plan.mesh.axes) == 3 and plan.cost.communication == 0


def test_unknown_strategies(library: Library, build: Build) -> None:
    with pytest.raises(InputError) as raised:
        search(build(MODEL), TWO, load_machine("local"), library, "data_paralel")
    assert raised.value.diagnostic.code == "E310"
    assert "data_parallel" in raised.value.diagnostic.help


def test_many_mesh_axes_are_joined(library: Library, build: Build) -> None:
    """32 devices have five prime axes. The plan has three, and reports this. A pin of all axes is joined with them."""
    machine = load_machine("dgx-a100")
    mesh = build_mesh(machine, 32)
    kinds = (Invariant(),) * 5
    plan = search(build(MODEL), mesh, machine, library, pins={"position": kinds})
    assert len(plan.mesh.axes) == 3
    assert plan.mesh.size == 32
    assert any("2 x 2 x 2 x 2 x 2" in note for note in plan.notes)
    assert [axis.level for axis in plan.mesh.axes] == sorted((axis.level for axis in plan.mesh.axes), reverse=True)
    assert plan.graph.values["position"].produced == invariant(plan.mesh)


# ---------------------------------------------------------------------------------------------- plans drawn by chance


def test_a_seed_draws_the_same_plan_again(library: Library, build: Build) -> None:
    machine = load_machine("dgx-a100")
    plans = [search(build(MODEL), FOUR, machine, library, name) for name in ("random", "random:0", "random:1")]
    assert plans[0].graph == plans[1].graph != plans[2].graph
    assert plans[0].cost == plans[1].cost and plans[0].cost.seconds > 0


def test_drawn_plans_use_what_the_search_may_use(library: Library, build: Build) -> None:
    """They use proved configurations and storage that is allowed for parameters, and they differ between seeds."""
    theorems = ShardingTheorems(library)
    layouts = set()
    for seed in range(6):
        plan = search(build(MODEL), FOUR, load_machine("dgx-a100"), library, f"random:{seed}")
        layouts.update(stored(plan.graph))
        for planned in plan.graph.nodes():
            proved = theorems.about(planned.node.instance, [v.needs_gradient for v in planned.node.arguments])
            assert all(proved(role) for role in planned.typed.configuration)
    assert len(layouts) > 5 and all(map(storable, layouts))


def test_drawn_plans_keep_pins(library: Library, build: Build) -> None:
    pins = dict(map(parse_pin, ("table=S0,I", "logits=S0,S1", "layer.w=S1,S0", "v*=S0,I")))
    for seed in range(4):
        plan = search(build(MODEL), FOUR, load_machine("dgx-a100"), library, f"random:{seed}", pins)
        found = {name: str(value.produced) for name, value in plan.graph.values.items()}
        assert (found["table"], found["logits"]) == ("S0,I", "S0,S1")
    with pytest.raises(InputError) as caught:
        search(build(MODEL), FOUR, load_machine("dgx-a100"), library, "random:3", {"v": (Partial(),)})
    assert caught.value.diagnostic.code == "E307"


@pytest.mark.parametrize("name", ["random:", "random:x", "random:-1", "randomly", "auto:1"])
def test_a_seed_is_a_whole_number(name: str, library: Library, build: Build) -> None:
    with pytest.raises(InputError) as caught:
        search(build(MODEL), FOUR, load_machine("dgx-a100"), library, name)
    assert caught.value.diagnostic.code == "E310"


def test_a_refusal_of_data_parallel_says_what_is_not_proved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For a user's operator without a check of congruence, whose proof by normal forms is given up, the plan is refused
    with the open obligation.
    """
    monkeypatch.setattr("unity_dsl.prove.sharding.slice_theorems.STEPS", 5)
    monkeypatch.setattr("unity_dsl.prove.sharding.slice_theorems._congruent", lambda *_: ((), "not tried"))
    (tmp_path / "twist.uop").write_text("op twist(x: [b, i]) -> y: [b, i]\n  y[b, i] = tanh(x[b, i]) * sin(x[b, i])\n")
    (tmp_path / "m.udl").write_text(
        "model m[b = 8, d = 6]\n  input x: f32[b, d]\n  input t: f32[b, d]\n  weight w: f32[d, d] ~ normal(0.1)\n"
        "  y = twist(linear(x, w))\n  loss mse(y, t)\n"
    )
    arguments = ["--devices", "2", "--strategy", "data_parallel", "--ops", str(tmp_path), "-o", str(tmp_path / "out")]
    assert run([str(tmp_path / "m.udl"), *arguments]) == 2
    told = capsys.readouterr().err
    assert "is not divided along `b`: same_value: given up after the 5 steps" in told
