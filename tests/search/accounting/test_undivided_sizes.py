"""Notes on sizes that leave an axis undivided (25 heads, 197 positions), and refusals of pins on such axes."""

from __future__ import annotations

from pathlib import Path

import pytest

from unity_dsl.compilation import Request, compile_model
from unity_dsl.graph.graph import Model
from unity_dsl.graph.layout import Mesh, MeshAxis
from unity_dsl.graph.model_graph import build_model
from unity_dsl.index.library import Library
from unity_dsl.resources import folder
from unity_dsl.search.accounting.undivided_sizes import describe_refusals
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.read import read_source

EIGHT = Mesh(tuple(MeshAxis(name, 2) for name in "abc"))
FIVE = Mesh((MeshAxis("a", 5),))


def example(name: str, library: Library) -> Model:
    return build_model(parse_model(read_source(path(name))), library)


def path(name: str) -> Path:
    return folder("examples") / f"{name}.udl"


def test_25_heads_are_divided_by_no_power_of_two(library: Library) -> None:
    found = list(describe_refusals(example("gpt2_xl", library), EIGHT, library))
    (heads,) = (sentence for sentence in found if "divides 25" in sentence)
    assert heads.startswith("no mesh axis (2) divides 25, so these stay whole: ")
    assert "layer.attn.project_1 (project)" in heads and "layer.attn.scores (matmul)" in heads
    assert not any("divides 25," in s for s in describe_refusals(example("gpt2_xl", library), FIVE, library))


def test_197_positions_are_divided_by_no_power_of_two(library: Library) -> None:
    found = list(describe_refusals(example("vit_l16", library), EIGHT, library))
    (positions,) = found
    assert "divides 197" in positions and "layer.attn.query.linear_1 (linear)" in positions and "more" in positions


def test_sizes_that_nobody_would_divide_are_left_out(library: Library) -> None:
    """Three channels of an image on two devices."""
    model = build_model(parse_model(read_source(path("resnext50"))), library, preset="small")
    assert not list(describe_refusals(model, Mesh((MeshAxis("a", 2),)), library))


def test_where_every_size_is_divided_nothing_is_said(library: Library) -> None:
    assert not list(describe_refusals(example("llama3_8b", library), EIGHT, library))
    assert not list(describe_refusals(example("gpt2_xl", library), Mesh(()), library))


@pytest.mark.parametrize(
    ("name", "size", "pin", "dimension"), [("gpt2_xl", 5, "layer.attn.scores", 1), ("vit_l16", 17, "layer.ln_1", 1)]
)
def test_the_plan_says_it_and_a_pin_is_refused(name: str, size: int, pin: str, dimension: int) -> None:
    plan = compile_model(Request(path(name), preset="small", devices=2)).plan
    assert any(f"no mesh axis (2) divides {size}," in note for note in plan.notes)
    with pytest.raises(InputError) as raised:
        compile_model(Request(path(name), preset="small", devices=2, pins=(f"{pin}=S{dimension}",), pad="none"))
    diagnostic = raised.value.diagnostic
    assert diagnostic.code == "E307"
    assert f"2 devices do not divide dimension {dimension} of {size}" in diagnostic.message
