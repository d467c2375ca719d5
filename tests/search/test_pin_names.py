"""Names that pins may use, what the plan reports about pins, and the pins that docs/layouts.md shows."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import pytest

from unity_dsl.compilation import Compilation, Request, compile_model
from unity_dsl.emit.program_text import write_down
from unity_dsl.graph.model_graph import build_model
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.search.choices.restriction import places
from unity_dsl.search.layout_pins import matching
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.span import Source

TRANSFORMER = re.search(
    r"```udl attention.udl\n(?P<model>.*?)```.*?```sh\nunityc attention.udl(?P<options>.*?)```",
    (Path(__file__).parents[2] / "docs" / "layouts.md").read_text(),
    re.DOTALL,
)


def transformer(tmp_path: Path, *pins: str, strategy: str = "auto") -> Compilation:
    assert TRANSFORMER is not None
    path = tmp_path / "attention.udl"
    path.write_text(TRANSFORMER["model"])
    return compile_model(Request(path, devices=2, pins=pins, strategy=strategy))


def gathered(compilation: Compilation) -> list[str]:
    return [note for note in compilation.plan.notes if note.startswith("pin ")]


def test_the_documented_pins_of_a_layer_make_megatron_of_it(tmp_path: Path) -> None:
    """Two sums a layer in the forward pass, and nothing that is divided is gathered."""
    assert TRANSFORMER is not None
    pins = re.findall(r"--pin '([^']*)'", TRANSFORMER["options"])
    assert len(pins) == 8
    found = transformer(tmp_path, *pins)
    assert not gathered(found)
    model = write_down(found.plan, found.library)
    layers = [module for module in model.program.modules if module.name.endswith("Layer")]
    for layer in layers:  # the first may leave the sum of its input's gradient to buckets of weight gradients
        said = [line.partition("# ")[2] for line in layer.lines if "parallel." in line]
        converted = [conversion for conversion in said if "->" in conversion]
        assert converted.count("P -> I") == 2 and set(converted) <= {"P -> I", "I -> R", "R -> I"}
    assert sorted(converted) == ["I -> R", "I -> R", "P -> I", "P -> I"], "the last layer"


def test_a_pin_whose_slices_are_gathered_says_so(tmp_path: Path) -> None:
    found = gathered(transformer(tmp_path, "layer.attention.query=S0", strategy="data_parallel"))
    assert found == [
        "pin `layer.attention.query`: every operator gathers the slices of `layer.attention.query` before it reads "
        "them; to divide the work, pin what is made of them: layer.attention.linear_1"
    ]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("attention_linear", "layer.attention.linear_1"),
        ("layer.attention_linear", "layer.attention.linear_1"),
        ("attention_linear_s2", "layer.attention.linear_1"),
        ("attention_linear_1", "layer.attention.linear_1"),
        ("layer.attention_linear_1", "layer.attention.linear_1"),
        ("attention_linear_1_s2", "layer.attention.linear_1"),
        ("attention.query", "layer.attention.query"),
        ("norm_2", "layer.norm_2"),
        ("layer.x", "x_1"),
    ],
)
def test_names_that_model_py_prints_are_those_of_values(tmp_path: Path, name: str, path: str) -> None:
    every = list(places(transformer(tmp_path, strategy="single").plan.model))
    assert [place.path for place in matching(name, every)] == [path]


def test_an_unknown_name_is_told_which_paths_end_so(tmp_path: Path) -> None:
    every = list(places(transformer(tmp_path, strategy="single").plan.model))
    with pytest.raises(InputError) as error:
        matching("hidden", every)
    assert error.value.diagnostic.help == "did you mean `layer.mlp.hidden`?"


def test_a_printed_name_of_several_values_is_refused(tmp_path: Path) -> None:
    text = """
    model two[b = 4, d = 4]
      input x: f32[b, d]
      repeat 2 as one
        weight w: f32[d, d] ~ ones
        x = linear(relu(x), w)
      repeat 2 as two
        weight w: f32[d, d] ~ ones
        x = linear(relu(x), w)
      loss mse(x, x * 0)
    """
    every = list(places(build_model(parse_model(Source("two.udl", dedent(text))), load_library())))
    with pytest.raises(InputError, match=r"`relu_1` may be `one.relu_1`, `two.relu_1`"):
        matching("relu_1", every)


def test_only_a_search_is_called_optimal(tmp_path: Path) -> None:
    for strategy, said in (("auto", True), ("single", False), ("data_parallel", False)):
        assert any("optimal" in note for note in transformer(tmp_path, strategy=strategy).plan.notes) is said
    notes = transformer(tmp_path, "layer.mlp.up=S0").plan.notes
    assert notes[0].startswith("proved optimal") and ", among plans that keep the pins" in notes[0]
