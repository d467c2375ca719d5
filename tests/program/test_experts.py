"""Mixture of experts on ranks: under every layout the same tokens are dropped, and the gradients are the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unity_dsl.cli import run
from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_pool import RankPool

from ..examples.agreement import EXAMPLES, run_reference
from ..examples.reference_mixtral_8x7b import Mixtral

Compile = Callable[..., Path]

MODEL = """model mixture[b = 4, s = 8, d = 8, f = 12, experts = 4, capacity = 3, vocabulary = 16]
  input tokens: int<vocabulary>[b, s]
  input target: int<vocabulary>[b, s]
  weight table: f32[vocabulary, d] ~ normal(1)
  weight router: f32[experts, d] ~ normal(0.5)
  weight gate: f32[experts, f, d] ~ normal(0.3)
  weight up: f32[experts, f, d] ~ normal(0.3)
  weight down: f32[experts, d, f] ~ normal(0.3)
  weight head: f32[vocabulary, d] ~ normal(0.3)
  x = embedding(tokens, table)
  scores = linear(x, router)
  chosen = top_k(scores; count=2)
  weights = softmax(gather(scores, chosen; dim=-1))
  places = expert_places(chosen)
  given = dispatch(x, chosen, places; capacity=capacity)
  h = sigmoid(expert_linear(given, gate)) * expert_linear(given, up)
  made = expert_linear(h, down)
  y = combine_experts(made, chosen, places, weights)
  balance = expert_balance(softmax(scores), chosen)
  loss cross_entropy(linear(x + y, head), target) + balance * 0.02
"""
"""A group has 16 choices for 12 places: every group drops some, whatever the weights."""

EXPERTS = ("gate=S0", "up=S0", "down=S0")
TWO = [
    # Tokens and experts over the same axis: all-to-all before and after the experts.
    (("x=S0", "chosen=S0", "given=S1", *EXPERTS, "made=S0", "y=S0"), {"dispatch": "g", "combine_experts": "g"}),
    (("given=S0", *EXPERTS, "made=S0"), {"dispatch": "e", "expert_linear": "e"}),
    (("x=S1", "chosen=S1", "weights=S1", "y=S1"), {"top_k": "b1", "combine_experts": "s", "gather": "f1"}),
    (("x=S2", "given=S3", "made=S3", "y=S2"), {"dispatch": "d", "combine_experts": "d"}),
    (("gate=S1", "up=S1", "down=S2", "h=S3"), {"expert_linear": "o"}),
    (("chosen=S0", "places=S0"), {"expert_places": "g"}),
]
FOUR = [
    (("x=S0,S0", "given=S1,S1", "gate=S0,S0", "up=S0,S0", "made=S0,S0"), {"dispatch": "g", "expert_linear": "e"}),
    (("x=S0,I", "given=S1,S0", "gate=S0,S0", "made=S0,S0", "y=S0,S1"), {"dispatch": "g", "combine_experts": "g"}),
    (("x=S0,S2", "given=S1,S3", "h=S0,S3", "y=S0,S2"), {"dispatch": "d", "combine_experts": "d"}),
]


def plan(out: Path) -> dict[str, Any]:
    found = json.loads((out / "plan.json").read_text())
    assert isinstance(found, dict)
    return found


def divided(out: Path) -> set[tuple[str, str]]:
    """Operators with the axes along which at least one call is divided."""
    words = [(step["operator"], word) for step in plan(out)["graph"]["steps"] for word in step["configuration"]]
    return {(operator, found[1]) for operator, word in words if (found := re.match(r"along (\w+)$", word))}


@pytest.mark.a_day(4)
@pytest.mark.parametrize("pins, axes, ranks", [(*case, 2) for case in TWO] + [(*case, 4) for case in FOUR])
def test_the_program_equals_its_model(
    pins: tuple[str, ...], axes: dict[str, str], ranks: int, compile_program: Compile, pool: RankPool
) -> None:
    out = compile_program(MODEL, devices=ranks, pins=pins)
    assert set(axes.items()) <= divided(out)
    report = check(out, pool=pool)
    assert report.ok, report


def test_tokens_are_sent_to_the_experts_and_back(compile_program: Compile) -> None:
    """No gather of all tokens and no sum of all results: one all-to-all each way forwards, and one each backwards."""
    out = compile_program(MODEL, devices=2, pins=TWO[0][0])
    model, parallel = (out / "model.py").read_text(), (out / "parallel.py").read_text()
    assert "given_s0 = parallel.all_to_all_1_0_expert(given" in model and "parallel.all_to_all_0_1_expert(made" in model
    assert "functional.all_to_all_single(" in parallel


def test_what_is_dispatched_is_moved_and_not_multiplied(compile_program: Compile) -> None:
    text = (compile_program(MODEL) / "model.py").read_text()
    assert re.search(r"given = torch\.zeros\(4, 4, 3, 8, .*\)\.index_put\(", text)
    assert re.search(r'y = torch\.einsum\(\s*"gskd,gsk->gsd", made\[chosen, g.*\], weights \* ', text)


def test_what_is_declared_is_listed_and_not_proved(compile_program: Compile, tmp_path: Path, capsys: Any) -> None:
    out = compile_program(MODEL, devices=2, pins=TWO[0][0])
    assert plan(out)["declared"] == [{"operator": "top_k", "axis": "b"}]
    assert not any(found["theorem"].startswith("top_k") for found in plan(out)["theorems"])
    assert plan(compile_program(MODEL))["declared"] == []
    (tmp_path / "mixture.udl").write_text(MODEL)
    pins = [word for pin in TWO[0][0] for word in ("--pin", pin)]
    assert run([str(tmp_path / "mixture.udl"), "-o", str(tmp_path / "out"), "-d", "2", *pins]) == 0
    assert re.search(r"declared +top_k along b \(assumed, not proved\)", capsys.readouterr().out)


def test_the_small_example_drops_tokens_and_with_room_for_all_it_drops_none() -> None:
    """The comparison of examples/mixtral_8x7b.udl with its module therefore covers dropped tokens."""
    from unity_dsl.index.declarations.loading import load_library

    expected = run_reference("mixtral_8x7b", load_library())
    sizes = {key: int(value) for key, value in expected.model.parameters.items()}
    assert sizes["capacity"] == 5
    dropped = []
    for capacity in (sizes["capacity"], 2 * sizes["s"]):
        module = EXAMPLES["mixtral_8x7b"].module({**sizes, "capacity": capacity}).double()
        assert isinstance(module, Mixtral)
        random = np.random.default_rng(0)
        for parameter in module.parameters():
            parameter.data.copy_(parameter.new_tensor(random.standard_normal(parameter.shape)))
        module(**expected.inputs)
        dropped.append(sum(layer.moe.dropped for layer in module.layers))
    assert dropped[0] > 0 and dropped[1] == 0
