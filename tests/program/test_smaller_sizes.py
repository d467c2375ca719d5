"""Programs called, outside training, with fewer rows or positions than they were compiled for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.resources import folder

Compile = Callable[..., Path]


def example(name: str) -> Path:
    return folder("examples") / f"{name}.udl"


def batch(module: Any) -> dict[str, Tensor]:
    source = torch.Generator().manual_seed(7)
    return {
        name: torch.randn(spec.shape, generator=source, dtype=torch.float64)
        if spec.integer_range is None
        else torch.randint(spec.integer_range, spec.shape, generator=source)
        for name, spec in module.INPUTS.items()
    }


def called(folder: Path, weights: dict[str, Tensor] | None, inputs: dict[str, Tensor] | None) -> tuple[Any, ...]:
    """A program's weights and inputs, and its results for the given weights and inputs, or for its own."""
    with load_program(folder) as module:
        model = module.Model(dtype=torch.float64)
        model.initialise(0)
        if weights is not None:
            model.load_global(weights)
        model.eval()
        given = batch(module) if inputs is None else inputs
        with torch.no_grad():
            loss, outputs = model(**given)
        return model.global_tensors(), given, loss, outputs


@pytest.mark.parametrize(
    ("name", "smaller"),
    [
        ("llama3_8b", {"b": 1, "s": 3}),
        ("gpt2", {"b": 3}),
        ("bert_large", {"b": 1}),
        ("resnext50", {"b": 1, "image": 28}),
    ],
)
def test_fewer_are_what_would_have_been_compiled_for_as_many(
    compile_program: Compile, name: str, smaller: dict[str, int]
) -> None:
    whole = compile_program(example(name), preset="small", devices=1)
    fewer = compile_program(example(name), preset="small", devices=1, settings=smaller)
    weights, inputs, loss, outputs = called(fewer, None, None)
    _, _, found, same = called(whole, weights, inputs)
    torch.testing.assert_close(found, loss, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(same, outputs, rtol=1e-12, atol=1e-12)


MODEL = """
model rows[b = 8, s = 4, d = 6, c = 5]
  input x: f32[b, s, d]
  input mask: f32[b, s]
  input target: int<c>[b]
  weight w: f32[c, d] ~ normal(0.5)
  weighted = x * (mask[b, s] -> [b, s, 1])
  logits = linear(reduce_mean(weighted[b, s, d] -> [b, d]), w)
  loss cross_entropy(logits, target) {}
  output logits
"""


def test_sizes_of_one_call_agree(compile_program: Compile) -> None:
    with load_program(compile_program(MODEL.format(""), devices=1)) as module:
        # The mean over s divides by the number of positions, so s is fixed.
        assert [spec.sizes for spec in module.INPUTS.values()] == [("b", None, None), ("b", None), ("b",)]
        model = module.Model(dtype=torch.float64)
        model.initialise(0)
        given = batch(module)
        few = {name: tensor[:3] for name, tensor in given.items()}
        with pytest.raises(ValueError, match=r"input x has shape \[8, 4, 6\], not \[3, 4, 6\]"):
            model(**few)
        model.eval()
        # Not bitwise equal: matrix products sum in another order for another number of rows.
        torch.testing.assert_close(model(**few)[1]["logits"], model(**given)[1]["logits"][:3], rtol=1e-12, atol=1e-14)
        for name, rows in (("target", 2), ("mask", 1), ("mask", 8)):
            with pytest.raises(ValueError, match=f"input {name} has shape"):
                model(**{**few, name: given[name][:rows]})
        with pytest.raises(ValueError, match="input x has shape"):
            model(torch.randn(9, 4, 6), torch.randn(9, 4))


def test_rows_of_what_is_stored_stay(compile_program: Compile) -> None:
    """A recurrent network starts from a buffer with one row per example, so its number of rows is fixed."""
    with load_program(compile_program(example("lstm_lm"), preset="small", devices=1)) as module:
        assert not any(hasattr(spec, "sizes") for spec in module.INPUTS.values())


def test_a_size_that_is_a_number_of_the_model_stays(compile_program: Compile) -> None:
    with load_program(compile_program(MODEL.format("+ reduce_sum(logits[b, c] -> []) / b"), devices=1)) as module:
        assert not any(hasattr(spec, "sizes") for spec in module.INPUTS.values())


def rows_on_ranks(rank: int, ranks: int, folder: str, rows: int) -> Tensor:
    with load_program(Path(folder)) as module:
        model = module.Model(module.build_mesh("cpu") if ranks > 1 else None, dtype=torch.float64)
        model.initialise(0)
        model.eval()
        inputs = {name: tensor[:rows] for name, tensor in batch(module).items() if name != "target"}
        logits: Tensor = model(**inputs)[1]["logits"].detach()
        return logits


def test_where_devices_divide_something_else_rows_may_be_fewer(compile_program: Compile, pool: RankPool) -> None:
    expected = rows_on_ranks(0, 1, str(compile_program(MODEL.format(""), devices=1)), 8)
    columns = compile_program(MODEL.format(""), devices=2, strategy="single", pins=("w=S1",))
    for found in pool.run(rows_on_ranks, str(columns), 3, ranks=2):
        torch.testing.assert_close(found, expected[:3], rtol=1e-12, atol=1e-12)


def test_where_devices_divide_the_rows_they_stay(compile_program: Compile) -> None:
    text = (compile_program(MODEL.format(""), devices=2, strategy="data_parallel") / "model.py").read_text()
    assert "sizes" not in text
