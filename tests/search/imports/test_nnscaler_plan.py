"""Plans of nnScaler: those of its tests, and the meaning of each partition."""

from __future__ import annotations

from typing import Any

import pytest

from unity_dsl.graph.plan import Plan
from unity_dsl.syntax.diagnostic import InputError

from .conftest import FOUR, LAYERS, Planned

Part = tuple[int, int]
COPY: Part = (-1, -1)


def config(*partitions: list[tuple[Part, int]], mesh: tuple[int, int] = (1, 4), stages: int = 1) -> dict[str, Any]:
    """A plan as autodist saves it. Numbers of operators begin at 2, as in nnScaler's tests."""
    descs = [[number, [[list(at), count] for at, count in parts]] for number, parts in enumerate(partitions, 2)]
    stage = {"partition_descs": descs, "recompute_groups": [], "mesh_desc": list(mesh), "analysis": {}}
    desc = {"spmd_descs": [stage] * stages, "recompute_groups": [], "mesh_desc": list(mesh)}
    return {"desc": desc, "e2e_time": 0.0, "stage_mems": [0.0], "stage_all_times": [0.0], "stage_comp_times": [0.0]}


PUBLISHED = config([(COPY, 4)], [((0, 0), 4)], [((0, 0), 4)], [((0, 0), 4)])
"""The plan of nnScaler's test of replicated and partitioned operators in one stage."""


def configurations(plan: Plan) -> list[list[str]]:
    return [[str(getattr(role, "axis", "whole")) for role in node.typed.configuration] for node in plan.graph.nodes()]


def layouts(plan: Plan) -> list[tuple[str, ...]]:
    return [tuple(map(str, (*node.typed.arguments, *node.typed.results))) for node in plan.graph.nodes()]


def test_the_published_plan(planned: Planned) -> None:
    plan = planned(FOUR, PUBLISHED, 4).plan
    assert plan.mesh.degrees == (4,) and plan.strategy == "nnScaler"
    first, *others = layouts(plan)
    assert set(first) == {"I"} and all("S0" in one for one in others)


def test_columns_rows_and_sums(planned: Planned) -> None:
    """By hand: linear(x, v) by outputs, relu likewise, linear(h, w) by its inputs, which gives a sum."""
    plan = planned(FOUR, config([((1, 0), 4)], [((0, 1), 4)], [((1, 1), 4)], [((0, 0), 4)]), 4).plan
    assert layouts(plan)[:3] == [("R", "S0", "S1"), ("S1", "S1"), ("S1", "S1", "P")]


def test_several_dimensions_and_data_parallelism(planned: Planned) -> None:
    """A partition over 2 x 2 of 8 devices, the outermost first; the batch over the first two groups."""
    both = [((0, 0), 2), ((1, 0), 2)]
    plan = planned(FOUR, config(both, [((0, 0), 2), ((0, 1), 2)], [((0, 0), 4)], [((0, 0), 4)]), 8).plan
    assert plan.mesh.degrees == (2, 2, 2)
    assert layouts(plan)[0] == ("S0,S0,R", "R,R,S0", "S0,S0,S1")
    assert configurations(plan)[2] == [configurations(plan)[2][0]] * 3


def test_iterations_are_written_out(planned: Planned) -> None:
    """18 operators: four of each of four layers, and two after them."""
    layer = [[((1, 0), 2)], [((0, 1), 2)], [((1, 1), 2)], [((0, 0), 2)]]
    end = [[((0, 0), 2)], [((0, 0), 2)]]
    plan = planned(LAYERS, config(*layer * 4, *end, mesh=(1, 2)), 2).plan
    assert plan.mesh.degrees == (2,)
    other = [*layer * 3, [((0, 0), 2)], *layer[1:], *end]
    with pytest.raises(InputError, match="is not partitioned as in the first iteration") as raised:
        planned(LAYERS, config(*other, mesh=(1, 2)), 2)
    assert "in iteration 3" in raised.value.diagnostic.message


def test_operators_that_run_again(planned: Planned) -> None:
    layer = [[((0, 0), 2)]] * 4
    data = config(*layer * 4, [((0, 0), 2)], [((0, 0), 2)], mesh=(1, 2))
    data["desc"]["spmd_descs"][0]["recompute_groups"] = [[2, 3, 4, 5], [6, 7, 8, 9]]
    assert planned(LAYERS, data, 2).plan.passes.recomputed == {"layer"}


@pytest.mark.parametrize(
    ("data", "devices", "code", "said"),
    [
        (config(*[[((0, 0), 4)]] * 4, stages=2), 8, "E323", "a pipeline of 2 stages"),
        (config(*[[((0, 0), 4)]] * 5), 4, "E322", "the plan has 5 operators, `four` 4"),
        (PUBLISHED, 6, "E322", "a plan for 4 devices, or a multiple of them, and not for 6"),
        (PUBLISHED, 64, "E322", "16 devices of data parallelism do not divide the batch"),
        (config([((0, 5), 4)], *[[((0, 0), 4)]] * 3), 4, "E322", "has no input 0 with a dimension 5"),
        (config([((7, 0), 4)], *[[((0, 0), 4)]] * 3), 4, "E322", "has no input 7"),
        (config(*[[((0, 0), 16)]] * 4, mesh=(2, 8)), 16, "E322", "cannot be partitioned so"),
        (config([((0, 0), 2)], *[[((0, 0), 4)]] * 3), 4, "E321", "a partition over 2 devices"),
        ({"desc": {}}, 4, "E321", "the field `mesh_desc` is missing"),
        ({"desc": {"mesh_desc": [1, 4], "partition_descs": [[2]]}}, 4, "E321", "no list of two"),
    ],
)
def test_what_does_not_fit_is_told(data: object, devices: int, code: str, said: str, planned: Planned) -> None:
    with pytest.raises(InputError) as raised:
        planned(FOUR, data, devices)
    found = raised.value.diagnostic
    assert found.code == code and said in found.message, found
    assert found.span is not None and found.span.source.name.endswith("plan.json")


def test_fused_operators_do_what_those_did_that_they_stand_for(planned: Planned) -> None:
    """A product and its bias stay divided along the batch, though along the outputs they would cost less."""
    model = FOUR.replace("b = 8, d = 16", "b = 64, d = 2048").replace("linear(x, v)", "linear(x, v) + bias")
    model = model.replace("  weight w:", "  weight bias: f32[2 * d] ~ zeros\n  weight w:")
    plan = planned(model, config(*[[((0, 0), 4)]] * 5), 4, shipped_rules=True).plan
    assert [used.rule for used in plan.rules] == ["linear_with_bias"]
    assert layouts(plan)[0] == ("S0", "R", "R", "S0")
    stored = {str(plan.graph.values[weight.value.name].produced) for weight in plan.graph.graph.weights}
    assert stored == {"I"}
