"""Pins: parsed, kept by the plan, and refused with a reason if they are infeasible."""

from __future__ import annotations

import pytest

from unity_dsl.graph.declared_slices import is_cut
from unity_dsl.graph.layout import Invariant, Partial, Replicate, Shard
from unity_dsl.graph.plan import PlannedGraph, PlannedSegment
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.search.layout_pins import parse_pin, without_unnamed_cuts
from unity_dsl.search.plan_search import search
from unity_dsl.syntax.diagnostic import Diagnostic, InputError

from ..graph.overlapping import CYCLIC, STRIDED, library_with
from .conftest import FOUR, TWO, Build

LIBRARY = load_library()

MODEL = """
model m[n = 1]
  input x: f32[8, 12]
  input target: f32[8, 12]
  weight w: f32[12, 12] ~ normal(0.1)
  v = linear(x, w)
  repeat 3 as layer
    weight up: f32[6, 12] ~ normal(0.1)
    weight down: f32[12, 6] ~ normal(0.1)
    h = relu(linear(v, up))
    v = softmax(linear(h, down))
  first = slice(v; dim=1, start=0, stop=4)
  last = slice(target; dim=1, start=0, stop=4)
  loss mse(first, last)
"""


def test_kinds() -> None:
    assert parse_pin("w=I") == ("w", (Invariant(),))
    assert parse_pin(" layer.*.w = S0, R,P ") == ("layer.*.w", (Shard(0), Replicate(), Partial()))
    assert parse_pin("x=halo(2)") == ("x", (Shard(2, by="halo"),))


@pytest.mark.parametrize(
    "text", ["w", "=S0", "w=", "w=X", "w=S", "w=S-1", "w=halo(x)", "w=S0,,I", "w=__import__('os')"]
)
def test_what_is_no_pin(text: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_pin(text)
    assert raised.value.diagnostic.code == "E305"


def body_of(graph: PlannedGraph) -> list[PlannedGraph]:
    return [run.body for step in graph.steps if isinstance(step, PlannedSegment) for run in step.runs]


def test_weights_and_values_keep_their_pins(library: Library, build: Build) -> None:
    pins = ["w=S1,S0", "layer.up=S0,I", "layer.*.down=S1,I", "layer.h=S1,I", "v=I", "layer.v_1=I"]
    plan = search(build(MODEL), FOUR, load_machine("dgx-a100"), library, pins=dict(map(parse_pin, pins)))
    assert str(plan.graph.values["w"].produced) == "S1,S0"
    assert str(plan.graph.values["v"].produced) == "I,I"
    for body in body_of(plan.graph):
        produced = {name: str(planned.produced) for name, planned in body.values.items()}
        assert (produced["up"], produced["down"], produced["h"], produced["v_1"]) == ("S0,I", "S1,I", "S1,I", "I,I")


def test_a_pin_costs_no_less(library: Library, build: Build) -> None:
    machine = load_machine("dgx-a100")
    free = search(build(MODEL), TWO, machine, library)
    for pin in ("w=S0", "w=I", "v=S0", "layer.h=S1", "layer.h=I"):
        pinned = search(build(MODEL), TWO, machine, library, pins=dict([parse_pin(pin)]))
        assert pinned.cost.seconds >= free.cost.seconds * (1 - 1e-9)


def refused(pin: str, library: Library, build: Build, text: str = MODEL) -> Diagnostic:
    with pytest.raises(InputError) as raised:
        search(build(text), TWO, load_machine("local"), library, pins=dict([parse_pin(pin)]))
    return raised.value.diagnostic


def test_pins_of_nothing(library: Library, build: Build) -> None:
    found = refused("layer.dwn=S0", library, build)
    assert found.code == "E306"
    assert "layer.down" in found.help
    found = refused("layer.1.down=S0", library, build)
    assert found.code == "E308"
    assert "layer.down" in found.help


@pytest.mark.parametrize(
    ("pin", "reason"),
    [
        ("w=S2", "2 dimensions"),
        ("w=R", "stored"),
        ("w=P", "stored"),
        ("w=stripes(0)", "no parallel op is called `stripes`"),
        ("w=halo(0)", "stored"),
        ("x=S0", "given whole"),
        ("first=S1", "cannot be divided"),
        ("loss=S0", "0 dimensions"),
    ],
)
def test_impossible_pins(pin: str, reason: str, library: Library, build: Build) -> None:
    found = refused(pin, library, build)
    assert found.code == "E307"
    assert reason in found.message
    assert found.span is not None


def test_devices_that_do_not_divide(library: Library, build: Build) -> None:
    odd = MODEL.replace("[8, 12]", "[9, 12]")
    found = refused("v=S0", library, build, odd)
    assert (found.code, "2 devices do not divide dimension 0 of 9" in found.message) == ("E307", True)


def test_the_number_of_kinds(library: Library, build: Build) -> None:
    found = refused("w=S0,I,I", library, build)
    assert found.code == "E305"
    assert "3 kinds" in found.message


def test_pins_that_do_not_fit_together(library: Library, build: Build) -> None:
    text = MODEL.replace("softmax(linear(h, down))", "linear(h, down)")
    pins = dict(map(parse_pin, ["layer.v_1=S0", "v_1=S1"]))
    with pytest.raises(InputError) as raised:
        search(build(text), TWO, load_machine("local"), library, pins=pins)
    assert raised.value.diagnostic.code == "E307"
    assert "v_1" in raised.value.diagnostic.message


def test_ways_to_cut_are_searched_where_a_pin_names_them(build: Build) -> None:
    """Other partitions make no plan cheaper. Ops for neighbourhood reads (halos) are searched in any case."""
    own = library_with(CYCLIC, CYCLIC.replace("cyclic", "cards"), STRIDED)
    halos = {"halo", "strided"}
    for pins, cuts in (
        ({}, set()),
        ({"v": parse_pin("v=S0")[1]}, set()),
        ({"v": parse_pin("v=cards(0)")[1]}, {"cards"}),
    ):
        kept = without_unnamed_cuts(own, pins)
        assert {name for name, found in kept.parallels.items() if is_cut(found)} == {"partition"} | halos | cuts
    assert without_unnamed_cuts(LIBRARY, {}) is LIBRARY
    model, machine = build(MODEL), load_machine("summit")
    for mesh in (TWO, FOUR):
        assert search(model, mesh, machine, own).cost == search(model, mesh, machine, LIBRARY).cost
