"""Plans of autoparallel in both of its formats: placements are applied, and what does not fit is reported."""

from __future__ import annotations

from typing import Any

import pytest

from unity_dsl.commands.summary import stored_layouts
from unity_dsl.graph.plan import Plan
from unity_dsl.syntax.diagnostic import InputError

from .conftest import FOUR, LAYERS, Planned

FSDP = {
    "primals_1": "S(0)S(0)",
    "primals_2": "S(0)S(0)",
    "primals_3": "S(0)S(0)",
    "t": "S(1)S(1)",
    "mm": "S(0)S(0)",
    "relu": "S(0)S(0)",
    "t_1": "S(1)S(1)",
    "mm_1": "S(0)S(0)",
    "tangents_1": "RR",
    "mm_2": "P(sum)P(sum)",
}
"""A typical choice of autoparallel: parameters and batch in slices on every axis."""


def saved(placements: dict[str, Any], mesh: tuple[int, ...] = (2, 2)) -> dict[str, Any]:
    """A solution as autoparallel's `save_solution` writes it."""
    return {"version": 1, "mesh_shape": list(mesh), "mesh_dim_names": None, "placements": placements}


def exported(nodes: list[dict[str, Any]], mesh: tuple[int, ...] = (2, 2)) -> dict[str, Any]:
    """The structured export."""
    summary = {"total": 1.0, "comm": float("inf"), "compute": 0.5, "transition": 0.0}
    return {"mesh": {"shape": list(mesh), "dim_names": ["dp", "tp"][: len(mesh)]}, "nodes": nodes, "summary": summary}


def node(name: str, placement: str, shape: list[int], phase: str = "forward") -> dict[str, Any]:
    return {"name": name, "op": "call", "phase": phase, "placement": placement, "inputs": [], "shape": shape}


def placed(plan: Plan) -> tuple[list[str], list[str]]:
    """The layouts of the weights, and those in which products are made."""
    graph = plan.graph
    weights = [str(graph.values[weight.value.name].produced) for weight in graph.graph.weights]
    nodes = [planned for planned in graph.nodes() if planned.node.instance.name == "linear"]
    return weights, [str(graph.values[planned.node.results[0].name].produced) for planned in nodes]


def test_fsdp(planned: Planned) -> None:
    plan = planned(FOUR, saved(FSDP), 4).plan
    assert plan.mesh.degrees == (2, 2) and plan.strategy == "autoparallel"
    assert placed(plan) == (["S0,S0", "S0,S0"], ["S0,S0", "S0,S0"])
    assert any("placements of 2 weights and 2 products are the plan's" in note for note in plan.notes)


def test_tensor_parallelism(planned: Planned) -> None:
    """Columns, then rows; the second product is a sum."""
    wanted = {**FSDP, "primals_1": "RS(0)", "primals_2": "RS(1)", "mm": "S(0)S(1)", "mm_1": "S(0)P(sum)"}
    assert placed(planned(FOUR, saved(wanted), 4).plan) == (["I,S0", "I,S1"], ["S0,S1", "S0,P"])


def test_newer_files_say_what_inputs_are_converted_to(planned: Planned) -> None:
    wanted = {name: {"output": placement, "inputs": [placement]} for name, placement in FSDP.items()}
    assert placed(planned(FOUR, saved(wanted), 4).plan) == (["S0,S0", "S0,S0"], ["S0,S0", "S0,S0"])


def test_axes_of_one_device_are_no_axes(planned: Planned) -> None:
    wanted = {name: placement[: len(placement) // 2] + "R" for name, placement in FSDP.items()}
    plan = planned(FOUR, saved(wanted, (4, 1)), 4).plan
    assert plan.mesh.degrees == (4,) and placed(plan)[0] == ["S0", "S0"]


EXPORT = [
    node("primals_1", "S(0)", [32, 16]),
    node("primals_2", "S(0)", [16, 32]),
    node("primals_3", "S(0)", [8, 16]),
    node("mm", "S(0)", [8, 32]),
    node("mm_1", "S(0)", [8, 16]),
    node("mm_2", "R", [32, 8], "backward"),
    {"name": "output", "op": "output", "inputs": []},
]


def test_the_structured_export(planned: Planned) -> None:
    plan = planned(FOUR, exported(EXPORT, (4,)), 4).plan
    assert placed(plan) == (["S0", "S0"], ["S0", "S0"])


def test_leading_dimensions_are_one_in_a_matrix_product(planned: Planned) -> None:
    model = FOUR.replace("[b = 8, d = 16]", "[b = 8, s = 4, d = 16]").replace("f32[b, d]", "f32[b, s, d]")
    nodes = [one | ({"shape": [32, one["shape"][1]]} if one["name"].startswith("mm") else {}) for one in EXPORT]
    assert placed(planned(model, exported(nodes, (4,)), 4).plan)[1] == ["S0", "S0"]
    nodes = [one | ({"placement": "S(1)"} if one["name"] == "mm" else {}) for one in nodes]
    assert placed(planned(model, exported(nodes, (4,)), 4).plan)[1] == ["S2", "S0"]


def test_iterations_are_written_out(planned: Planned) -> None:
    """Four layers of two weights, and the head: nine weights and nine products."""
    names = [*(f"primals_{number}" for number in range(1, 11)), "mm", *(f"mm_{number}" for number in range(1, 9))]
    found = planned(LAYERS, saved(dict.fromkeys(names, "S(0)"), (4,)), 4)
    assert stored_layouts(found) == {"head": "S0", "layer.*.v": "S0", "layer.*.w": "S0"}
    other = dict.fromkeys(names, "S(0)") | {"primals_9": "R", "primals_5": "R"}
    with pytest.raises(InputError, match="is not placed as in the first iteration, by `primals_1`"):
        planned(LAYERS, saved(other, (4,)), 4)


@pytest.mark.parametrize(
    ("data", "devices", "code", "said"),
    [
        (saved(FSDP), 8, "E322", "the plan is for 4 devices, and not for 8"),
        (saved({**FSDP, "mm": "S(0)"}), 4, "E321", "1 placements, where the mesh has 2 dimensions"),
        (saved({**FSDP, "mm": "S(0)X"}), 4, "E321", "`X` is no placement"),
        (saved({**FSDP, "mm": 3}), 4, "E321", "this is no text"),
        (saved({"primals_1": "RR"}), 4, "E322", "1 nodes that may be a weight, the model 2"),
        (saved({**FSDP, "primals_1": "P(sum)R"}), 4, "E322", "weight `v` of the model, `primals_1` of the plan"),
        (saved({**FSDP, "primals_1": "S(5)R"}), 4, "E322", "weight `v` of the model, `primals_1` of the plan"),
        (exported([node("primals_1", "R", [5, 5]), *EXPORT[1:]], (4,)), 4, "E322", "`primals_1` is 5 x 5"),
        ({"mesh_shape": 4, "placements": {}}, 4, "E321", "this is no list"),
    ],
)
def test_what_does_not_fit_is_told(data: object, devices: int, code: str, said: str, planned: Planned) -> None:
    with pytest.raises(InputError) as raised:
        planned(FOUR, data, devices)
    found = raised.value.diagnostic
    assert found.code == code and said in found.message, found
    assert found.span is not None and found.span.source.name.endswith("plan.json")
