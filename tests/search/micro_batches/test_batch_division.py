"""Which models may run a batch as micro-batches. Their gradients, added up over slices of the batch by a loop of plain
autograd, must be the gradients of the whole batch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest
import torch
from torch import Tensor

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.output_folder import write_program
from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.graph.model_graph import build_model
from unity_dsl.graph.plan import BatchDivision
from unity_dsl.index.declarations.loading import library_of, library_sources
from unity_dsl.resources import folder
from unity_dsl.search.micro_batches.batch_division import divided_model
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.read import read_source
from unity_dsl.syntax.span import Source

DECLARED = {
    "x": "input x: f32[b, d]",
    "target": "input target: f32[b, d]",
    "w": "weight w: f32[d, d] ~ normal(0.5)",
    "gain": "weight gain: f32[d] ~ ones",
    "bias": "weight bias: f32[d] ~ zeros",
    "mean": "buffer mean: f32[d] ~ zeros",
    "variance": "buffer variance: f32[d] ~ ones",
}
LIBRARY = library_of(library_sources(()))

RIGHT = {
    "mean": "y = linear(x, w)\nloss mse(y, target)",
    "sum": "y = relu(linear(x, w))\nz = y * y\nloss reduce_sum(z[b, d] -> [])",
    "half of a mean": "loss 0.5 * mse(linear(x, w), target)",
    "sum of two means": "y = linear(x, w)\nz = y * y\nloss mse(y, target) + 0.1 * reduce_mean(z[b, d] -> [])",
    "mean by a parameter": "y = linear(x, w)\nz = y * y * (1 / b)\nloss reduce_sum(z[b, d] -> [])",
    "divided by the batch, then by a row": "y = linear(x, w) * (1 / b)\nz = y * target\nloss reduce_sum(z[b, d] -> [])",
    "softmax of a row": "y = softmax(linear(x, w)) * target\nloss reduce_mean(y[b, d] -> [])",
    "normalised rows": "loss mse(layer_norm(linear(x, w), gain, bias), target)",
    "transposed": "y = linear(x, w)\nz = y[b, d] -> [d, b]\nu = z * z\nloss reduce_sum(u[d, b] -> [])",
    "decay of weights": "z = w * w\nloss mse(linear(x, w), target) + 0.1 * reduce_sum(z[d, e] -> [])",
    "decay times a mean": "z = w * w\nu = reduce_sum(z[d, e] -> [])\nloss mse(linear(x, w), target) * (1 + u) + u",
    "used twice": "y = linear(linear(x, w), w)\nloss mse(y, target)",
    "repeat": "h = x\nrepeat 3 as l\n  weight v: f32[d, d] ~ normal(0.5)\n  h = h + tanh(linear(h, v))\n"
    "loss mse(h, target)",
}
"""Losses that are sums or means over the examples."""

WRONG = {
    "batch norm": "y, m, v = batch_norm(linear(x, w), gain, bias, mean, variance)\nloss mse(y, target)",
    "softmax over the batch": "y = linear(x, w)\ns = softmax(y[b, d] -> [d, b])\nt = s[d, b] -> [b, d]\n"
    "loss mse(t, target)",
    "square of a mean": "y = linear(x, w)\ns = reduce_mean(y[b, d] -> [])\nloss s * s",
    "root of a sum": "y = linear(x, w)\nz = y * y\nloss sqrt(reduce_sum(z[b, d] -> []))",
    "mean and sum": "y = linear(x, w)\nloss mse(y, target) + reduce_sum(y[b, d] -> [])",
    "decay beside a sum": "y = linear(x, w)\nz = w * w\nloss reduce_sum(y[b, d] -> []) + reduce_sum(z[d, e] -> [])",
    "pairs of examples": "y = linear(x, w)\np = softmax(linear(y, x))\nq = p * p\nloss reduce_sum(q[b, c] -> [])",
    "times the batch": "y = tanh(linear(x, w) * b)\nloss mse(y, target)",
}
"""Losses that are not sums or means over the examples."""


def text_of(body: str) -> str:
    """A model of these statements, with declarations of what they read."""
    words = set(re.findall(r"[a-z_]+", body))
    lines = [line for name, line in DECLARED.items() if name in words]
    return "model m[b = 8, d = 4]\n" + "".join(f"  {line}\n" for line in (*lines, *body.splitlines()))


def divided(text: str, count: int) -> BatchDivision:
    file = parse_model(Source("m.udl", text))
    _, found = divided_model(build_model(file, LIBRARY), file, LIBRARY, {}, None, count)
    assert found is not None
    return found


def gradients(out: Path, weights: Mapping[str, Tensor] | None, batch: Mapping[str, Tensor] | None) -> tuple[dict, ...]:  # type: ignore[type-arg]
    """A program's weights, a batch, and the loss and gradients by plain autograd on one device."""
    with load_program(out) as module:
        model = module.Model(dtype=torch.float64)
        model.initialise(0)
        if weights is not None:
            model.load_global(weights)
        source = torch.Generator().manual_seed(1)
        given = batch or {
            name: torch.randn(spec.shape, generator=source, dtype=torch.float64) for name, spec in module.INPUTS.items()
        }
        loss, _ = model(**given)
        loss.backward()
        found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        return model.global_tensors(), dict(given), {"loss": loss.detach(), **found}


def both_ways(text: str, count: int, tmp_path: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Loss and gradients of the batch, and those of its slices, added up by a loop over programs without
    micro-batches.
    """
    (tmp_path / "m.udl").write_text(text)
    size = int(text.partition("b = ")[2].partition(",")[0])
    outs = []
    for rows in (size, size // count):
        request = Request(tmp_path / "m.udl", settings={"b": rows})
        compiled = compile_model(request)
        outs.append(tmp_path / f"out{rows}")
        write_program(compiled.plan, compiled.library, compiled.sources, request, outs[-1])
    weights, batch, expected = gradients(outs[0], None, None)
    total: dict[str, Tensor] = {}
    for number in range(count):
        part = {name: tensor.chunk(count)[number] for name, tensor in batch.items()}
        for name, tensor in gradients(outs[1], weights, part)[2].items():
            total[name] = total[name] + tensor if name in total else tensor
    return expected, total


def differs(expected: Mapping[str, Tensor], found: Mapping[str, Tensor], divisor: float) -> float:
    """The largest difference, relative to the largest element."""
    assert expected.keys() == found.keys()
    scale = max(float(tensor.abs().max()) for tensor in expected.values())
    return max(float((found[name] / divisor - expected[name]).abs().max()) for name in expected) / scale


@pytest.mark.parametrize("name", RIGHT)
def test_gradients_of_slices_add_up_to_those_of_the_batch(name: str, tmp_path: Path) -> None:
    text = text_of(RIGHT[name])
    division = divided(text, 4)
    assert (division.parameter, division.count, division.inputs) == ("b", 4, ("x", "target")[: len(division.inputs)])
    expected, found = both_ways(text, 4, tmp_path)
    assert differs(expected, found, division.divisor) < 1e-12


@pytest.mark.parametrize("name", WRONG)
def test_other_models_are_refused_where_their_gradients_do_not_add_up(name: str, tmp_path: Path) -> None:
    text = text_of(WRONG[name])
    with pytest.raises(InputError) as caught:
        divided(text, 4)
    told = caught.value.diagnostic
    assert told.code == "E316" and told.help and told.span is not None and told.span.text in WRONG[name]
    expected, found = both_ways(text, 4, tmp_path)
    assert min(differs(expected, found, divisor) for divisor in (1, 4)) > 1e-6


def test_draws_have_the_examples_first() -> None:
    """The random numbers of a micro-batch are those of a range of positions."""
    drawn = "y = linear(x, w)\nz = {}\nu = z * z\nloss reduce_sum(u{} -> [])"
    divided(text_of(drawn.format("dropout(y; p=0.5)", "[b, d]")), 4)
    with pytest.raises(InputError) as caught:
        divided(text_of(drawn.format("dropout(y[b, d] -> [d, b]; p=0.5)", "[d, b]")), 4)
    told = caught.value.diagnostic
    assert told.code == "E316" and "the examples do not come first" in told.label


STEPS = (
    "{y} = linear({x}, w)",
    "{y} = tanh({x})",
    "{y} = {x} * (1 / b)",
    "{y} = {x} * 2",
    "{y} = {x} + {z}",
    "{y} = {x} * {z}",
    "{y} = softmax({x})",
    "{y} = layer_norm({x}, gain, bias)",
    "{y} = {x} + gain",
    "s{y} = softmax({x}[b, d] -> [d, b])\n{y} = s{y}[d, b] -> [b, d]",
    "{y} = {x} * reduce_mean({z}[b, d] -> [])",
)
ENDS = (
    "loss mse({x}, target)",
    "p = {x} * {z}\nloss reduce_sum(p[b, d] -> [])",
    "loss reduce_mean({x}[b, d] -> []) + reduce_mean({z}[b, d] -> [])",
    "loss reduce_mean({x}[b, d] -> []) + reduce_sum({z}[b, d] -> [])",
    "loss reduce_mean({x}[b, d] -> []) * reduce_mean({z}[b, d] -> [])",
    "loss (3 / b) * reduce_sum({x}[b, d] -> [])",
)


def random_text(seed: int) -> str:
    rng = Random(seed)
    made = ["x", "h0"]
    lines = ["h0 = linear(x, w)"]
    for number in range(1, rng.randint(2, 5)):
        form = rng.choice(STEPS)
        lines += form.format(y=f"h{number}", x=made[-1], z=rng.choice(made)).splitlines()
        made.append(f"h{number}")
    lines.append("x0 = " + " + ".join(made[1:]))
    made.append("x0")
    lines.append(rng.choice(ENDS).format(x=made[-1], z=rng.choice(made)))
    return text_of("\n".join(lines))


def test_random_models_that_are_accepted_are_right(tmp_path: Path) -> None:
    accepted = 0
    for seed in range(40):
        text = random_text(seed)
        try:
            division = divided(text, 2)
        except InputError as error:
            assert error.diagnostic.code == "E316", text
            continue
        accepted += 1
        place = tmp_path / str(seed)
        place.mkdir()
        expected, found = both_ways(text, 2, place)
        assert differs(expected, found, division.divisor) < 1e-10, f"seed {seed}\n{text}"
    assert 8 <= accepted <= 32


MIXING = {
    "bert_large": "masked_cross_entropy",
    "inception_v3": "batch_norm",
    "lstm_lm": "c_kept",
    "mixtral_8x7b": "expert_balance",
    "nasnet_a": "batch_norm",
    "resnext50": "batch_norm",
    "skipnet": "top_k",
}
"""Examples whose loss is not a sum over examples, and what the diagnostic names."""


@pytest.mark.parametrize("path", sorted(folder("examples").glob("*.udl")), ids=lambda path: path.stem)
def test_examples_of_the_literature(path: Path) -> None:
    file = parse_model(read_source(path))
    whole = build_model(file, LIBRARY, preset="small")
    if path.stem in MIXING:
        with pytest.raises(InputError) as caught:
            divided_model(whole, file, LIBRARY, {}, "small", 2)
        told = caught.value.diagnostic
        assert told.code == "E316" and MIXING[path.stem] in told.message and told.span is not None
        return
    part, division = divided_model(whole, file, LIBRARY, {}, "small", 2)
    assert division is not None and division.divisor == 2
    assert division.parameters["b"] == 2 * part.parameters["b"]
    assert set(division.inputs) == {given.value.name for given in part.graph.inputs}


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("f32[d, b]", "`b` and `d`"),
        ("f32[8, d]", "the first dimension of input `target`"),
    ],
)
def test_which_dimension_is_the_batch(kind: str, told: str) -> None:
    text = text_of("y = linear(x, w)\nz = linear(target, w[d, e] -> [e, d])\nloss mse(y, y) + mse(z, z)")
    with pytest.raises(InputError) as caught:
        divided(text.replace("input target: f32[b, d]", f"input target: {kind}").replace("d = 4", "d = 8"), 2)
    assert caught.value.diagnostic.code == "E317" and told in caught.value.diagnostic.message


def test_a_model_without_a_batch_or_a_loss() -> None:
    for text, told in (
        ("model m[d = 4]\n  weight w: f32[d] ~ ones\n  z = w * w\n  loss reduce_sum(z[d] -> [])\n", "no input"),
        (text_of("y = linear(x, w)\noutput y"), "no loss"),
    ):
        with pytest.raises(InputError) as caught:
            divided(text, 2)
        assert caught.value.diagnostic.code == "E317" and told in caught.value.diagnostic.message


def test_the_number_divides_the_batch() -> None:
    with pytest.raises(InputError) as caught:
        divided(text_of(RIGHT["mean"]), 3)
    assert caught.value.diagnostic.code == "E317" and "`b = 8`" in caught.value.diagnostic.message
