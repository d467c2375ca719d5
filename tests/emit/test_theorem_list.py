"""A plan lists the theorems it relies on: one for every division, each stored or proved."""

from __future__ import annotations

from unity_dsl.emit.theorem_list import list_theorems
from unity_dsl.graph.layout import Mesh, MeshAxis
from unity_dsl.graph.layout_typing import Along, Linearly
from unity_dsl.graph.model_graph import build_model
from unity_dsl.index.declarations.loading import library_of, library_sources, load_library
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.equations.term_text import fact_text
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.machine.machine import load_machine
from unity_dsl.rules.sharding_theorems import ShardingTheorems, claims_about
from unity_dsl.rules.theorem_file import shipped_theorems
from unity_dsl.search.plan_search import search
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.span import Source

LIBRARY = load_library()
MODEL = """model m[b = 65536]
  input x: f32[b, 512]
  weight w: f32[512, 512] ~ normal(0.02)
  h = relu(linear(x, w))
  loss mse(h, x)
"""


def listed(devices: int) -> list[dict[str, str | list[str]]]:
    model = build_model(parse_model(Source("m.udl", MODEL)), LIBRARY, {}, None)
    mesh = Mesh((MeshAxis("a", devices),)) if devices > 1 else Mesh(())
    return list_theorems(search(model, mesh, load_machine("dgx-a100"), LIBRARY), LIBRARY)


def test_every_division_is_listed_with_its_proof() -> None:
    found = listed(2)
    names = [str(entry["theorem"]) for entry in found]
    divided = {name.split(" along ")[0] for name in names if " along " in name}
    assert {"linear", "relu", "mse"} <= divided
    assert any(name.startswith("linear along") and name.endswith("gradient of w") for name in names)
    assert len(names) == len({str(entry["proof"]) for entry in found})
    assert all(entry["proof"] in shipped_theorems().theorems for entry in found)


def test_one_device_needs_no_theorem() -> None:
    assert listed(1) == []


def own(body: str) -> tuple[ShardingTheorems, Instance]:
    """Theorems about an operator that uses a user's exponential and logarithm, with unproved facts."""
    function = "fn own(x)\n  derivative x: own(x)\n  fact own(a + b) == own(a) * own(b)\n  fact own(a) > 0\n"
    function += "  torch: torch.exp(x)\n  numpy: np.exp(x)\n"
    inverse = "fn back(x)\n  derivative x: 1 / x\n  fact back(own(a)) == a\n  torch: torch.log(x)\n  numpy: np.log(x)\n"
    operator = f"op mine(x: [b.., c]) -> y: [b.., c]\n{body}"
    library = library_of([*library_sources(), Source("own.uop", f"{function}\n{inverse}\n{operator}")])
    return ShardingTheorems(library), instantiate(library.operators["mine"], [Shape((8, 6))], {})


def test_facts_that_theorems_assume_are_listed_with_them() -> None:
    """One stated fact makes the composition with the inverse linear, and another gives it a value."""
    theorems, instance = own("  y[b.., c] = back(own(x[b.., c]))\n")
    (claim, *_) = claims_about(instance, [True], theorems.library).of(Linearly((0,)))
    assert theorems.holds(claim) and set(theorems.assumed(claim)) == {"back(own(a)) == a", "own(a) > 0"}


def test_a_softmax_of_parts_needs_no_fact_of_its_exponential() -> None:
    softmax = """\
  m[b..] = max(c) x[b.., c]
  e[b.., c] = own(x[b.., c] - m[b..])
  s[b..] = sum(c) e[b.., c]
  y[b.., c] = e[b.., c] / s[b..]
"""
    theorems, instance = own(softmax)
    (claim, *_) = claims_about(instance, [True], theorems.library).of(Along("c"))
    assert theorems.holds(claim) and theorems.assumed(claim) == ()


def test_shipped_theorems_assume_facts_of_shipped_functions_alone() -> None:
    stated = {fact_text(fact) for function in LIBRARY.functions.values() for fact in function.facts}
    assumed = {fact for theorem in shipped_theorems().theorems.values() for fact in theorem.assumed}
    assert "exp(a) > 0" in assumed and assumed <= stated
