"""A step over several batches, and an evaluation, equal those of one large batch, whatever the loss counts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.graph.loss_divisors import divided_terms
from unity_dsl.graph.model_graph import build_model
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.resources import folder
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.read import read_source

from ..emit.started import start
from ..emit.test_train_files import train

Compile = Callable[..., Path]
OPERATORS = """
## Mean of the squared errors by the squares of float weights, at least 0.5 of these in the denominator.
op weighted_mse(x: [n, d], y: [n, d], w: [n]) -> z: []
  s[] = sum(n) w[n] * w[n]
  z[] = (sum(n, d) w[n] * w[n] * (x[n, d] - y[n, d]) * (x[n, d] - y[n, d])) / maximum(s[], 0.5)

## Squares, divided by what the weights of the model make of the examples.
op normalised(x: [n, d]) -> z: []
  s[] = sum(n, d) abs(x[n, d])
  z[] = (sum(n, d) x[n, d] * x[n, d]) / s[]
"""
MODEL = """
model counted[b = 4, s = 3, d = 8, v = 10]
  input tokens: int<v>[b, s]
{inputs}  weight table: f32[v, d] ~ normal(0.5)
  weight head: f32[v, d] ~ normal(0.5)
  logits = linear(embedding(tokens, table), head)
  first = slice(logits; dim=1, start=0, stop=1)
  one = first[a, 1, c] -> [a, c]
{loss}  output logits
"""
MASKED = "  input target: int<v>[b, s]\n  input mask: int<2>[b, s]\n"
LOSSES = {
    "masked": (MASKED, "  loss masked_cross_entropy(logits, target, mask)\n"),
    "two terms": (
        MASKED + "  input order: int<v>[b]\n",
        "  loss masked_cross_entropy(logits, target, mask) + cross_entropy(one, order) * 0.5\n",
    ),
    "two divisors": (
        MASKED + "  input w: f32[b]\n",
        "  e = weighted_mse(one, tanh(one), w)\n  loss masked_cross_entropy(logits, target, mask) + e\n",
    ),
    "by weights": ("", "  loss normalised(one)\n"),
    "pairs": ("", "  loss reduce_mean(square(softmax(linear(one, one)))[a, e] -> [])\n"),
    "by operators": (
        "  input w: f32[b]\n",
        "  c = reduce_mean(square(one)[a, e] -> [a])\n"
        "  total = reduce_sum((c * w)[a] -> [])\n  weights = reduce_sum(square(w)[a] -> [])\n  loss total / weights\n",
    ),
}
DATA = '''
import torch

def batches(inputs, seed, step, split):
    """Rows by their number, so that batches of any size make up the same data; of four in turn few are counted."""
    size = inputs["tokens"].shape[0]
    if split == "test" and (step + 1) * size > 16:
        return None
    rows = [row(inputs, number + 1000 * (split == "test")) for number in range(step * size, (step + 1) * size)]
    return {name: torch.stack([one[name] for one in rows]) for name in inputs}

def row(inputs, number):
    source, few = torch.Generator().manual_seed(number), number // 4 % 2
    found = {}
    for name, spec in inputs.items():
        shape = spec.shape[1:]
        if name == "mask":
            found[name] = torch.full(shape, int(not few or number % 4 == 0))
        elif spec.integer_range is not None:
            found[name] = torch.randint(spec.integer_range, shape, generator=source)
        else:
            found[name] = torch.rand(shape, generator=source) * (0.1 if few else 1.0)
    return found
'''


def compiled(compile_program: Compile, place: Path, loss: str, **choices: Any) -> Path:
    (place / "terms.uop").write_text(OPERATORS)
    inputs, text = LOSSES[loss]
    path = place / "counted.udl"
    path.write_text(MODEL.lstrip().format(inputs=inputs, loss=text))
    (place / "uneven.py").write_text(DATA)
    return compile_program(path, operators=[place], **choices)


@dataclass(frozen=True)
class Run:
    """Weights after some steps, loss and gradient norm of each step, and the printed line of the test split."""

    weights: Mapping[str, torch.Tensor]
    steps: Sequence[tuple[float, float]]
    tested: str


def trained(out: Path, ranks: int, place: Path, accumulate: int, reader: Path | None = None) -> Run:
    """A training run. The program `reader`, else `out`, reads its weights on one device."""
    recipe = ("--steps", 3, "--optimizer", "sgd", "--momentum", 0.5, "--lr", 0.5, "--clip", 10, "--dtype", "float64")
    kept, log = place / f"kept{accumulate}{ranks}", place / f"log{accumulate}{ranks}"
    data = ("--data", "uneven:batches", "--accumulate", accumulate, "--checkpoint", kept, "--log-file", log)
    told = train(out, ranks, *recipe, *data)
    with load_program(reader or out) as module:
        model = module.Model(dtype=torch.float64)
        model.load_weights(next(kept.glob("step-*")))
        weights = {name: tensor.clone() for name, tensor in model.global_tensors().items()}
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return Run(weights, [(line["loss"], line["grad_norm"]) for line in lines], told[told.index("test loss") :])


def compare(found: Run, expected: Run) -> None:
    for name, tensor in expected.weights.items():
        torch.testing.assert_close(found.weights[name], tensor, rtol=1e-10, atol=1e-10, msg=name)
    np.testing.assert_allclose(found.steps, expected.steps, rtol=1e-10)
    assert found.tested == expected.tested


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss not in ("by weights", "pairs")])
def test_accumulated_batches_are_one_batch(compile_program: Compile, tmp_path: Path, loss: str) -> None:
    parts = compiled(compile_program, tmp_path, loss, devices=1)
    whole = compiled(compile_program, tmp_path, loss, devices=1, settings={"b": 16})
    compare(trained(parts, 1, tmp_path, 4), trained(whole, 1, tmp_path, 1))


def test_ranks_weigh_by_the_whole_batch(compile_program: Compile, tmp_path: Path) -> None:
    """Each of two ranks reads its own rows, and would count other divisors than the other rank."""
    parts = compiled(compile_program, tmp_path, "two divisors", devices=2, strategy="data_parallel")
    whole = compiled(compile_program, tmp_path, "two divisors", devices=1, settings={"b": 8})
    compare(trained(parts, 2, tmp_path, 2, whole), trained(whole, 1, tmp_path, 1))


def test_accuracy_counts_positions_that_the_loss_counts(compile_program: Compile, tmp_path: Path) -> None:
    out = compiled(compile_program, tmp_path, "masked", devices=1)
    run = trained(out, 1, tmp_path, 1)
    scope: dict[str, Any] = {}
    exec(DATA, scope)
    with load_program(out) as module:
        batches = [scope["batches"](module.INPUTS, 0, step, "test") for step in range(4)]
    hits = []
    for batch in batches:
        logits = run.weights["table"][batch["tokens"]] @ run.weights["head"].T
        hits.append((logits.argmax(-1) == batch["target"])[batch["mask"] == 1])
    assert f"test accuracy {float(torch.cat(hits).double().mean()):.4f}" in run.tested


def test_a_loss_that_mixes_examples_is_told_where_batches_are_accumulated(
    compile_program: Compile, tmp_path: Path
) -> None:
    """Each batch has its own pairs of examples. E316 refuses such micro-batches; accumulation prints a warning."""
    out = compiled(compile_program, tmp_path, "pairs", devices=1)
    for count in (1, 2):
        (process,) = start(out, 1, "--accumulate", count, "--steps", 1)
        _, error = process.communicate(timeout=60)
        told = "a step over several batches is not one over a larger batch: counted.udl:" in error
        assert process.returncode == 0 and told is (count == 2) and ("`linear` does not treat" in error) is told


def test_a_divisor_that_weights_determine_is_refused(compile_program: Compile, tmp_path: Path) -> None:
    out = compiled(compile_program, tmp_path, "by weights", devices=1)
    (process,) = start(out, 1, "--accumulate", 2, "--steps", 1)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 2
    assert (
        "a step would be a mean of means" in error
        and "counted.udl:" in error
        and "`normalised` divides by `s`" in error
    )
    train(out, 1, "--steps", 1)


@pytest.mark.parametrize("example", ["gpt2", "mixtral_8x7b", "resnext50", "dlrm", "lstm_lm"])
def test_means_over_all_positions_need_no_shares(example: str) -> None:
    library = load_library()
    model = build_model(parse_model(read_source(folder("examples") / f"{example}.udl")), library, {}, "small")
    assert divided_terms(model) == ()
