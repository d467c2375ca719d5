"""Which axes are padded for a number of devices: on request, as pins and strategies need, or for a shorter step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.graph.test_shared_axes import ATTENTION, model_of
from unity_dsl.compilation import Request, compile_model
from unity_dsl.graph.model_graph import build_model
from unity_dsl.graph.padding import PaddableAxis
from unity_dsl.graph.plan import Plan
from unity_dsl.index.declarations.loading import library_of, library_sources
from unity_dsl.search.layout_pins import parse_pins
from unity_dsl.search.padded_axes import needed_paddings, padded_size, padding_again, parse_padding, useful_padding
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.read import read_source

EXAMPLES = Path(__file__).parents[2] / "examples"
LIBRARY = library_of(library_sources(()))


@pytest.mark.parametrize(
    ("size", "unit", "devices", "padded"),
    [
        (50257, 1, 8, 50304),  # slices of a multiple of 8 numbers
        (50257, 1, 64, 50688),
        (50257, 1, 512, 50688),
        (64, 1, 6, 66),
        (64, 1, 512, 64),  # no more devices can divide it
        (7, 1, 4, 8),
        (3, 1, 8, 4),
        (3, 4, 2, 16),  # heads of 4 features
        (11, 1, 4, 12),
    ],
)
def test_sizes(size: int, unit: int, devices: int, padded: int) -> None:
    assert padded_size(PaddableAxis("x:0", size, unit), devices) == padded


def test_what_is_asked_for() -> None:
    model = model_of(ATTENTION)
    assert parse_padding("table:0,tokens:0=9", model, 4) == {"table:0": 8, "tokens:0": 9}
    assert parse_padding("tokens:0", model, 3) == {}, "3 devices divide 6"
    assert parse_padding("auto", model, 4) == parse_padding("none", model, 4) == {}
    assert parse_padding("all", model, 4) == {"tokens:0": 8, "tokens:1": 8, "table:0": 8}
    assert padding_again({"tokens:0": 8, "table:0": 8}, model, 5) == {"tokens:0": 10, "table:0": 10}


@pytest.mark.parametrize(
    ("asked", "message", "help"),
    [
        ("tabel:0", "the model stores no dimension `tabel:0`", "did you mean `table:0`?"),
        ("table", "the model stores no dimension `table`", "did you mean `table:"),
        ("table:5", "the model stores no dimension `table:5`", "did you mean `table:"),
        ("target:0", "`target:0` is padded as `tokens:0`", "--pad tokens:0"),
        ("fused:0", "`fused:0` keeps its size: `slice` reads other positions than its own along it", None),
        ("table:0=6", "the padded size in `table:0=6` must be at least 7", None),
        ("table:0=many", "the padded size in `table:0=many` must be at least 7", None),
        ("table:0=8,table:0=9", "`table:0` is given twice in `table:0=8,table:0=9`", None),
        (
            f"table:0={10**20}",
            f"with the padded size in `table:0={10**20}` a tensor has more elements than any memory holds",
            None,
        ),
    ],
)
def test_what_cannot_be_padded_is_told(asked: str, message: str, help: str | None) -> None:
    with pytest.raises(InputError) as caught:
        parse_padding(asked, model_of(ATTENTION), 4)
    found = caught.value.diagnostic
    assert (found.code, found.message) == ("E325", message)
    assert help is None or help in found.help


def test_pins_and_strategies_pad_what_they_need() -> None:
    model = model_of(ATTENTION)
    found = list(needed_paddings(model, 4, parse_pins(["table=S0"])))
    assert found == [{"table:0": 8}, {"tokens:0": 8}, {"table:0": 8, "tokens:0": 8}, parse_padding("all", model, 4)]


def test_a_vocabulary_is_tried_where_the_batch_is_too_small() -> None:
    gpt2 = build_model(parse_model(read_source(EXAMPLES / "gpt2.udl")), LIBRARY)
    assert useful_padding(gpt2, 512, LIBRARY) == {"wte:0": 50688}
    assert useful_padding(gpt2, 24, LIBRARY) == {"tokens:0": 72, "wte:0": 50304}
    llama = build_model(parse_model(read_source(EXAMPLES / "llama3_8b.udl")), LIBRARY)
    assert useful_padding(llama, 512, LIBRARY) == {}, "a node divides its vocabulary"


def test_a_batch_is_padded_where_the_step_is_shorter() -> None:
    wanted = Request(EXAMPLES / "gpt2.udl", machine="dgx-h100", devices=6, settings={"layers": 2}, pad="auto")
    plan = compile_model(wanted).plan
    assert plan.model.padding == {"tokens:0": 66, "wte:0": 50304}
    without = compile_model(Request(**{**vars(wanted), "pad": "none"})).plan
    assert plan.seconds < 0.8 * without.seconds and not without.model.padding


def test_a_batch_is_padded_within_a_time_limit_too() -> None:
    """The step of a search that ends at once is at most that of data parallelism, which pads the batch. If no plan of
    the padded model fits, or its step is longer, the model as it is gets the time.
    """
    request = Request(EXAMPLES / "mlp.udl", {"b": 1001}, machine="dgx-h100", devices=8)
    plain = compile_model(replace(request, strategy="data_parallel")).plan
    limited = compile_model(replace(request, time_limit=1e-6)).plan
    assert limited.ended and limited.seconds <= plain.seconds
    assert padding_of(limited) == padding_of(plain) == 1008
    small = compile_model(replace(request, settings={"b": 3, "d": 16}, time_limit=1e-6)).plan
    assert small.ended and padding_of(small) == 3


def padding_of(plan: Plan) -> int:
    """The batch that a plan's program computes."""
    return plan.model.graph.inputs[0].value.shape[0]
