"""A plan names what it rests on: a theorem for every division, each of them kept or proved."""

from __future__ import annotations

from unity_dsl.emit.theorem_list import list_theorems
from unity_dsl.graph.layout import Mesh, MeshAxis
from unity_dsl.graph.model_graph import build_model
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.machine.machine import load_machine
from unity_dsl.rules.theorem_file import shipped_theorems
from unity_dsl.search.plan_search import search
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.span import Source

LIBRARY = load_library()
MODEL = """model m[b = 4096]
  input x: f32[b, 512]
  weight w: f32[512, 512] ~ normal(0.02)
  h = relu(linear(x, w))
  loss mse(h, x)
"""


def listed(devices: int) -> list[dict[str, str]]:
    model = build_model(parse_model(Source("m.udl", MODEL)), LIBRARY, {}, None)
    mesh = Mesh((MeshAxis("a", devices),)) if devices > 1 else Mesh(())
    return list_theorems(search(model, mesh, load_machine("dgx-a100"), LIBRARY), LIBRARY)


def test_every_division_is_listed_with_its_proof() -> None:
    found = listed(2)
    names = [entry["theorem"] for entry in found]
    divided = {name.split(" along ")[0] for name in names if " along " in name}
    assert {"linear", "relu", "mse"} <= divided
    assert any(name.startswith("linear along") and name.endswith("gradient of w") for name in names)
    assert len(names) == len({entry["proof"] for entry in found})
    assert all(entry["proof"] in shipped_theorems().theorems for entry in found)


def test_one_device_needs_no_theorem() -> None:
    assert listed(1) == []
