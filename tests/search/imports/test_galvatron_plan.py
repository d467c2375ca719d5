"""Plans of Galvatron: those of its tests and documentation, and the meaning of each number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.output_folder import write_program
from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.graph.plan import Plan
from unity_dsl.syntax.diagnostic import InputError

from .conftest import LAYERS, Planned
from .galvatron_export import config


def stored(plan: Plan) -> dict[str, str]:
    """The layouts of weights; those of `layer` are of its first iteration."""
    (segment,) = (step for step in plan.graph.steps if hasattr(step, "runs"))
    inside = segment.runs[0].body
    found = {weight.value.name: inside.values[weight.value.name].produced for weight in inside.graph.weights}
    found |= {weight.value.name: plan.graph.values[weight.value.name].produced for weight in plan.graph.graph.weights}
    return {name: str(layout) for name, layout in found.items()}


def strategy(tmp_path: Path, name: str, devices: int, mesh: tuple[int, ...], micro_batches: int) -> Plan:
    (tmp_path / "own.udl").write_text(LAYERS)
    given = {"machine": "dgx-a100", "shipped_rules": False, "strategy": name, "mesh": mesh}
    request = Request(tmp_path / "own.udl", devices=devices, micro_batches=micro_batches, recompute="none", **given)  # type: ignore[arg-type]
    return compile_model(request).plan


@pytest.mark.parametrize(("kind", "same"), [("ddp", "data_parallel"), ("zero2", "zero"), ("zero3", "zero")])
def test_data_parallelism_is_that_of_the_strategies(kind: str, same: str, planned: Planned, tmp_path: Path) -> None:
    plan = planned(LAYERS, config(default_dp_type=kind), 4).plan
    own = strategy(tmp_path, same, 4, (4,), 2)
    assert plan.mesh.degrees == (4,) and plan.micro_batches == 2 and plan.strategy == "Galvatron"
    assert stored(plan) == stored(own) and plan.cost.seconds == pytest.approx(own.cost.seconds, rel=1e-9)
    assert set(stored(plan).values()) == ({"I"} if kind == "ddp" else {"S0"})


def test_tensor_parallelism_over_neighbours_and_over_others(planned: Planned) -> None:
    """Columns and rows of a layer by hand: v is divided along its outputs, w along its inputs, and the
    head is whole.
    """
    inner = planned(LAYERS, config(tp_sizes_enc="2,2,2,2", default_dp_type="ddp"), 4).plan
    assert inner.mesh.degrees == (2, 2) and stored(inner) == {"v": "I,S0", "w": "I,S1", "head": "I,I"}
    others = config(tp_sizes_enc="2,2,2,2", tp_consecutive_flags="0,0,0,0", default_dp_type="ddp")
    outer = planned(LAYERS, others, 4).plan
    assert stored(outer) == {"v": "S0,I", "w": "S1,I", "head": "I,I"}
    sliced = planned(LAYERS, config(tp_sizes_enc="2,2,2,2", dp_types_enc="1,1,1,1", default_dp_type="ddp"), 4).plan
    assert all("I" not in stored(sliced)[name] for name in "vw") and stored(sliced)["head"] == "I,I"
    vocabulary = planned(LAYERS, config(vtp=4, default_dp_type="ddp"), 4).plan
    assert stored(vocabulary)["head"] == "S0" and stored(vocabulary)["v"] == "I"


def test_layers_that_run_again(planned: Planned) -> None:
    assert planned(LAYERS, config(), 4).plan.passes.recomputed == frozenset()
    for checkpoint, kept in (("1,1,1,1", {}), ("1,1,1,0", {"layer": 1}), ("1,1,0,1", {"layer": 1})):
        plan = planned(LAYERS, config(checkpoint=checkpoint), 4).plan
        assert plan.passes.recomputed == {"layer"} and plan.passes.kept_iterations == kept
        told = "the plan runs 3 layers of `layer` again, here the first ones" in plan.notes
        assert told == (checkpoint == "1,1,0,1")


@pytest.mark.a_day(1)
@pytest.mark.parametrize("changed", [{}, {"tp_sizes_enc": "2,2,2,2", "checkpoint": "1,1,1,1"}, {"vtp": 2}])
def test_the_program_equals_the_model(
    changed: dict[str, Any], planned: Planned, tmp_path: Path, pool: RankPool
) -> None:
    found = planned(LAYERS, config(**changed), 4)
    request = Request(tmp_path / "model.udl", devices=4, strategy="Galvatron", machine="dgx-a100")
    write_program(found.plan, found.library, found.sources, request, tmp_path / "out")
    report = check(tmp_path / "out", pool=pool)
    assert report.ok, report


GOLDEN = config(
    28,
    pp_deg=2,
    tp_sizes_enc=",".join("4" * 28),
    checkpoint="1,1,1,1,1,1,1,1,1,0,0,0,0,0,1,1,1,1,1,1,0,0,0,0,0,0,0,0",
    global_bsz=64,
    chunks=32,
    pp_division="14,14",
    vtp=2,
)
"""What Galvatron's test of its search expects for a llama of 28 layers on 8 devices."""


@pytest.mark.parametrize(
    ("data", "devices", "code", "said"),
    [
        (GOLDEN, 8, "E323", "a pipeline of several stages"),
        ({**GOLDEN, "pp_deg": 1, "chunks": 1}, 8, "E322", "the plan has 28 layers, the model 4 in repeats: `layer` 4"),
        (config(use_sp="0,1,0,0", tp_sizes_enc="2,2,2,2"), 4, "E323", "divides its sequences"),
        (config(cp_sizes_enc="2,2,2,2"), 4, "E323", "divides its sequences"),
        (config(vtp=2, vsp=1), 4, "E323", "embeddings that divide sequences"),
        (config(tp_sizes_enc="2,2,2,1"), 4, "E322", "is not as the first one of `layer`"),
        (config(tp_sizes_enc="2,2,2,2"), 7, "E322", "tensor parallelism over 2 of 7 devices"),
        (config(global_bsz=64), 4, "E322", "for 64 examples a step, the model's step has 16"),
        (config(), 32, "E322", "is not divided by tensor parallelism over 1 and data parallelism over 32"),
        (config(tp_sizes_enc="2,2,2"), 4, "E321", "4 numbers, where `tp_sizes_enc` has 3"),
        (config(tp_sizes_enc=""), 4, "E321", "no whole number"),
        (config(tp_sizes_enc="0,0,0,0"), 4, "E321", "no whole number of 1 or more"),
        (config(default_dp_type="zero1"), 4, "E321", "`zero1` is none of ddp, zero2, zero3"),
        (config(pp_deg="1"), 4, "E321", "no whole number"),
        ({"tp_sizes_enc": "1,1,1,1"}, 4, "E321", "the field `pp_deg` is missing"),
    ],
)
def test_what_does_not_fit_is_told(data: object, devices: int, code: str, said: str, planned: Planned) -> None:
    with pytest.raises(InputError) as raised:
        planned(LAYERS, data, devices)
    found = raised.value.diagnostic
    assert found.code == code and said in found.message
    assert found.span is not None and found.span.source.name.endswith("plan.json")


def test_the_layer_that_differs_is_shown(planned: Planned) -> None:
    with pytest.raises(InputError) as raised:
        planned(LAYERS, config(tp_sizes_enc="2,2,4,2"), 4)
    span = raised.value.diagnostic.span
    assert span is not None and span.text == "4" and span.source.text[: span.start].endswith('"tp_sizes_enc": "2,2,')
