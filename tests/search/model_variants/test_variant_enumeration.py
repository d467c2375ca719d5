"""Models that rules make: which ones exist, and that the search takes the best of them."""

from __future__ import annotations

from random import Random

import pytest

from tests.prove.cases import rule_of
from unity_dsl.graph.graph import Model
from unity_dsl.graph.layout import Mesh
from unity_dsl.graph.plan import Plan
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.mesh import build_mesh
from unity_dsl.prove.answer import Proved
from unity_dsl.prove.rule_proof import prove_rule
from unity_dsl.search.constants import SEARCHED
from unity_dsl.search.layout_pins import parse_pin
from unity_dsl.search.model_variants.variant_enumeration import SingleDevice, Variants, variants
from unity_dsl.search.plan_search import search

from ..conftest import TWO, Build
from ..random_models import random_machine, random_model

LOW_RANK = rule_of(
    "rule low_rank(x: [b.., i], w: [h, i], v: [o, h])\n  linear(x, matmul(v, w)) => linear(linear(x, w), v)\n"
)
HIGH_RANK = rule_of(
    "rule high_rank(x: [b.., i], w: [h, i], v: [o, h])\n  linear(linear(x, w), v) => linear(x, matmul(v, w))\n"
)
DISTRIBUTE = rule_of(
    "rule distribute(x: [b.., i], w: [o, i], v: [o, i])\n  linear(x, w) + linear(x, v) => linear(x, w + v)\n"
)
FUSE = rule_of(
    "rule fuse(x: [b, i], w: [o, i], v: [q, i])\n"
    "  y = linear(x, concat(w, v; dim=0))\n"
    "  first = slice(y; dim=1, start=0, stop=o)\n"
    "  second = slice(y; dim=1, start=o, stop=o + q)\n"
    "  linear(x, w), linear(x, v) => first, second\n"
)
TWICE = rule_of("rule twice(x: [b..])\n  relu(relu(x)) => relu(x)\n")
AGAIN = rule_of("rule again(x: [b..])\n  relu(x) => relu(relu(x))\n")
TURN = rule_of("rule turn(x: [b..], y: [b..])\n  x + y => y + x\n")
RULES = (LOW_RANK, HIGH_RANK, DISTRIBUTE, FUSE, TWICE)

ADAPTED = """model adapted[b = 64, d = 512, r = 4]
  input x: f32[b, d]
  input t: f32[b, d]
  weight up: f32[d, r] ~ normal(0.1)
  weight down: f32[r, d] ~ normal(0.1)
  delta = matmul(up, down)
  y = linear(x, delta)
  loss mse(y, t)
  output y
"""


def test_the_rules_are_true(library: Library) -> None:
    assert all(isinstance(prove_rule(rule, library), Proved) for rule in (*RULES, AGAIN, TURN))


def models_of(model: Model, library: Library, *rules: object, **bounds: int) -> Variants:
    estimate = SingleDevice(load_machine("local"), library).seconds
    return variants(model, rules, library, estimate, **bounds)  # type: ignore[arg-type]


def planned(model: Model, library: Library, *rules: object, devices: int = 1, **choices: object) -> Plan:
    machine = load_machine("local")
    mesh = build_mesh(machine, devices)
    return search(model, mesh, machine, library, rules=rules, **choices)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------- which models


def test_rules_are_applied_to_what_others_made(library: Library, build: Build) -> None:
    """x w v u can be multiplied in 5 orders of three products, including the given one."""
    model = build(
        "model m[n = 1]\n  input x: f32[2, 3]\n  input t: f32[2, 6]\n  weight w: f32[4, 3] ~ ones\n"
        "  weight v: f32[5, 4] ~ ones\n  weight u: f32[6, 5] ~ ones\n"
        "  loss mse(linear(linear(linear(x, w), v), u), t)\n"
    )
    associate = rule_of(
        "rule associate(x: [a, b], y: [b, c], z: [c, d])\n  matmul(matmul(x, y), z) => matmul(x, matmul(y, z))\n"
    )
    found = models_of(model, library, LOW_RANK, HIGH_RANK, associate)
    assert found.complete and len(found.found) == 4
    assert found.unused == ()


def test_a_rule_is_applied_everywhere_at_once(library: Library, build: Build) -> None:
    lines = "\n".join(f"  x{n + 1} = tanh(relu(relu(x{n})))" for n in range(6))
    model = build(f"model m[n = 1]\n  weight x0: f32[2, 3] ~ ones\n{lines}\n  loss mse(x6, x6 + x6 * x6)\n")
    found = models_of(model, library, TWICE, limit=3)
    assert len(found.found) == 3 and not found.complete
    assert len(found.found[0].rules) == 6
    assert {used.place for used in found.found[0].rules} == {f"relu_{2 * n}" for n in range(1, 7)}


def test_a_rule_that_grows_ends_at_the_limit(library: Library, build: Build) -> None:
    model = build("model m[n = 1]\n  weight w: f32[2, 3] ~ ones\n  loss mse(relu(w), w)\n")
    found = models_of(model, library, AGAIN, limit=5)
    assert len(found.found) == 5 and not found.complete
    assert [len(variant.rules) for variant in found.found] == [1, 2, 3, 4, 5]
    assert planned(model, library, AGAIN).rules == ()


def test_as_many_models_are_made_as_documented(library: Library, build: Build) -> None:
    weights = "".join(f"  weight w{n}: f32[{n + 2}, 3] ~ ones\n" for n in range(8))
    loss = " + ".join(f"mse(relu(relu(w{n})), w{n})" for n in range(8))
    found = models_of(build(f"model m[n = 1]\n{weights}  loss {loss}\n"), library, TWICE)
    assert len(found.found) == 64 and not found.complete


def test_the_order_of_operands_is_no_other_model_twice(library: Library, build: Build) -> None:
    model = build("model m[n = 1]\n  weight w: f32[2, 3] ~ ones\n  weight v: f32[2, 3] ~ ones\n  loss mse(w + v, w)\n")
    assert len(models_of(model, library, TURN).found) == 1


# ---------------------------------------------------------------------------------------------- which is taken


@pytest.mark.parametrize("seed", range(10))
def test_the_plan_is_the_cheapest_of_all_models(seed: int, library: Library, build: Build) -> None:
    """Against a search of every model that the enumeration finds, or of the most promising ones if there are many. The
    joint search finds all of these, and others.
    """
    rng = Random(seed)
    model, machine, mesh = build(random_model(rng, 4, (2, 4))), random_machine(rng), rng.choice((TWO, Mesh(())))
    found = variants(model, RULES, library, SingleDevice(machine, library).seconds)
    models = (model, *(variant.model for variant in found.found[:SEARCHED]))
    alone = [search(each, mesh, machine, library).cost.seconds for each in models]
    plan = search(model, mesh, machine, library, rules=RULES)
    assert plan.cost.seconds <= min(alone) * (1 + 1e-8)
    assert bool(plan.rules) == (plan.cost.seconds < alone[0] * (1 - 1e-9))


def test_a_rule_that_pays_is_used(library: Library, build: Build) -> None:
    plan = planned(build(ADAPTED), library, LOW_RANK)
    (used,) = plan.rules
    assert (used.rule, used.place) == ("low_rank", "y")
    assert used.span is not None and used.span.text == "linear(x, delta)"
    assert any(note.startswith("rules applied: `low_rank` at y") for note in plan.notes)
    assert plan.cost.seconds < planned(build(ADAPTED), library).cost.seconds
    assert planned(plan.model, library, HIGH_RANK).rules == ()


def test_of_equal_models_the_given_one_is_taken(library: Library, build: Build) -> None:
    model = build("model m[n = 1]\n  weight w: f32[2, 3] ~ ones\n  weight v: f32[2, 3] ~ ones\n  loss mse(w + v, w)\n")
    plan = planned(model, library, TURN)
    assert plan.rules == () and plan.model == model and plan.considered == 1


PROJECTED = """model projected[s = 16, d = 64, e = 4]
  input x: f32[s, d]
  weight q: f32[e, d] ~ normal(0.1)
  weight k: f32[e, d] ~ normal(0.1)
  a = linear(x, q)
  b = linear(x, k)
  loss mse(a, b)
"""


def test_algebra_and_layouts_are_chosen_together(library: Library, build: Build) -> None:
    """One sum over the devices in place of two outweighs the copies. On one device there is no such gain."""
    model = build(PROJECTED)
    pins = dict(map(parse_pin, ["q=S1", "k=S1"]))
    assert planned(model, library, FUSE).rules == ()
    plan = planned(model, library, FUSE, devices=2, pins=pins)
    assert [used.rule for used in plan.rules] == ["fuse"]
    assert plan.cost.communication < planned(model, library, devices=2, pins=pins).cost.communication


# ---------------------------------------------------------------------------------------------- pins and strategies


@pytest.mark.parametrize(
    ("pin", "kept"), [("delta=I", True), ("del*=I", True), ("y=S0", False), ("up=I", False), ("*=I", True)]
)
def test_a_model_without_a_pinned_value_is_not_considered(pin: str, kept: bool, library: Library, build: Build) -> None:
    if pin == "*=I":
        text = ADAPTED.replace(
            "  delta = matmul(up, down)\n  y = linear(x, delta)", "  y = linear(x, matmul(up, down))"
        )
    else:
        text = ADAPTED
    plan = planned(build(text), library, LOW_RANK, devices=2, pins=dict([parse_pin(pin)]))
    assert (plan.rules == ()) == kept


def test_strategies(library: Library, build: Build) -> None:
    model = build(ADAPTED)
    assert planned(model, library, LOW_RANK, strategy="single").rules == ()
    assert planned(model, library, LOW_RANK, strategy="single").considered == 1
    assert planned(model, library, LOW_RANK, strategy="data_parallel", devices=2).rules


# ---------------------------------------------------------------------------------------------- what is told


def test_the_plan_says_what_was_not_looked_at(library: Library, build: Build) -> None:
    text = ADAPTED.replace(
        "  delta =", "  repeat 2 as layer\n    weight w: f32[d, d] ~ ones\n    x = relu(linear(x, w))\n  delta ="
    )
    devices = rule_of("rule devices(x: [p * e, n])\n  combine[p; dim=0](partition[p; dim=0](x)) => x\n")
    notes = "\n".join(planned(build(text), library, AGAIN, devices, strategy="data_parallel", devices=2).notes)
    assert "rules make more models than were looked at" in notes
    assert f"layouts were searched for the {SEARCHED} of them" in notes
    assert "within iterations of repeats" in notes
    assert "rule `devices` is not used: it speaks of devices" in notes
    unused = "rule `devices` is not used: it speaks of devices"
    assert any(note.startswith(unused) for note in planned(build(text), library, AGAIN, devices).notes)
    assert "no rule fits the model" in planned(build(PROJECTED), library, TWICE).notes
    assert not any("rule" in note for note in planned(build(PROJECTED), library).notes)


def test_matches_without_end_are_left_out(library: Library, build: Build) -> None:
    inputs = ", ".join(f"x{n}: [m, k]" for n in range(8))
    left = ", ".join(f"relu(x{n})" for n in range(8))
    rule = rule_of(f"rule r({inputs})\n  {left} => {left}\n")
    lines = "\n".join(f"  x{n + 1} = relu(x{n})" for n in range(20))
    model = build(f"model m[n = 1]\n  weight x0: f32[2, 3] ~ ones\n{lines}\n  loss mse(x20, x0)\n")
    assert not models_of(model, library, rule).complete
