"""Activation checkpointing: programs against the same programs without it, and the tensors that autograd saves."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import torch

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.graph.model_graph import build_model
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.search.accounting.recomputation import segments
from unity_dsl.search.recomputed_segments import parse_recompute
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.read import read_source

from ..sampling import of_the_day
from .counting import coalesced_gathers

Compile = Callable[..., Path]
EXAMPLES = Path(__file__).parents[2] / "examples"

MODEL = """
model m[b = 4, d = 8]
  input x: f32[b, d]
  input target: f32[b, d]
  weight gain: f32[d] ~ ones
  repeat 3 as layer
    weight up: f32[2 * d, d] ~ normal(0.5)
    weight down: f32[d, 2 * d] ~ normal(0.5)
    buffer seen: f32[d] ~ ones
    h = dropout(linear(x, up); p=0.5)
    y = linear(relu(h), down) * seen * gain
    update seen = seen + 0.1 * seen
    x = x + y
  z = x * gain
  loss mse(z, target)
"""
PINS = ("layer.up=S0", "layer.down=S1", "layer.h=S0")


def run(rank: int, ranks: int, folder: str) -> dict[str, torch.Tensor]:
    """Losses of two forward passes, gradients of both in reverse order, and the buffers after them."""
    with load_program(Path(folder)) as module:
        model = module.Model(module.build_mesh("cpu"), dtype=torch.float64)
        model.initialise(0)
        model.seed = 5
        source = torch.Generator().manual_seed(0)
        losses = []
        for step in range(2):
            model.step = step
            x, target = (torch.randn(4, 8, generator=source, dtype=torch.float64) for _ in range(2))
            losses.append(model(x, target)[0])
        for loss in reversed(losses):
            loss.backward()
        if hasattr(model, "sync"):
            model.synchronise()
        assert (model.seed, model.step) == (5, 1)
        found = {f"loss {number}": loss.detach() for number, loss in enumerate(losses)}
        found |= {name: parameter.grad for name, parameter in model.named_parameters()}
        return found | dict(model.named_buffers())


@pytest.mark.parametrize("ranks", [1, 2])
def test_what_is_run_again_draws_and_reads_the_same(compile_program: Compile, pool: RankPool, ranks: int) -> None:
    """Gradients are bitwise equal, although dropout counters have advanced and buffers were updated in between."""
    choices = {"devices": 2, "strategy": "data_parallel", "pins": PINS[:2]} if ranks > 1 else {}  # the same layouts
    kept, again = (
        pool.run(run, str(compile_program(MODEL, recompute=word, **choices)), ranks=ranks) for word in ("none", "layer")
    )
    for before, after in zip(kept, again, strict=True):
        torch.testing.assert_close(after, before, rtol=0, atol=0)


def saved(rank: int, ranks: int, folder: str) -> list[tuple[int, ...]]:
    """The shapes of tensors that autograd saves, in the order of a training step."""
    found: list[tuple[int, ...]] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tuple(tensor.shape))
        return tensor

    with load_program(Path(folder)) as module:
        model = module.Model()
        model.initialise(0)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            model(torch.ones(4, 8), torch.ones(4, 8))
    return found


def test_an_iteration_keeps_what_enters_it(compile_program: Compile, pool: RankPool) -> None:
    (kept,) = pool.run(saved, str(compile_program(MODEL)), ranks=1)
    (again,) = pool.run(saved, str(compile_program(MODEL, recompute="layer")), ranks=1)
    assert kept.count((4, 16)) >= 6, "two or more of every iteration"
    inside = [shape for shape in again if shape not in ((4, 8), (8,))]
    assert inside == [] and again.count((4, 8)) == 3 + 3, "three that enter; x, z and target at the end"


def order(rank: int, ranks: int, folder: str) -> list[tuple[str, int]]:
    """Runs of gathers and matrix products in the backward pass, each with its length."""
    from torch.utils._python_dispatch import TorchDispatchMode

    names: list[str] = []

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func._schema.name.partition("::")[2]
            if name in ("mm", "all_gather_into_tensor_coalesced"):
                names.append("product" if name == "mm" else "gather")
            return func(*args, **(kwargs or {}))

    with load_program(Path(folder)) as module:
        model = module.Model(module.build_mesh("cpu"), dtype=torch.float64)
        model.initialise(0)
        with coalesced_gathers(module, model):
            x = torch.ones(4, 8, dtype=torch.float64)
            loss, _ = model(x, x)
            with Log():
                loss.backward()
        model.synchronise()
        assert not model.gathered.begun
    return [(name, len(list(same))) for name, same in groupby(names)]


def test_weights_are_regathered_while_the_iteration_behind_computes(compile_program: Compile, pool: RankPool) -> None:
    """As in the forward pass, the weights of the next iteration, which is the previous layer, are prefetched.

    The last product of a layer is not recomputed, because only its input is needed.
    """
    text = MODEL.replace("dropout(linear(x, up); p=0.5)", "linear(x, up)").replace(" * seen * gain", "")
    text = text.replace("    buffer seen: f32[d] ~ ones\n", "").replace("    update seen = seen + 0.1 * seen\n", "")
    out = compile_program(text, devices=2, pins=(*PINS, "layer.y=S0"), recompute="layer")
    found = pool.run(order, str(out), ranks=2)[0]
    # Each layer recomputes one product and has four backward; the first has three, as its x has no gradient.
    assert found == [("gather", 2), ("product", 5), ("gather", 1), ("product", 5 + 4)]


CASES = [
    ("gpt2", "random:3", "all"),
    ("llama3_8b", "random:2", "all"),
    ("lstm_lm", "random:3", "layer,layer.cell.step"),
    ("skipnet", "data_parallel", "layer.skip"),
    ("skipnet", "random:1", "layer,layer.skip"),
    ("resnext50", "data_parallel", "stage_1,stage_3"),
    ("resnext50", "random:1", "stage_1:1,stage_3:2"),
    ("llama3_8b", "zero", "layer:1"),
    ("lstm_lm", "random:3", "layer:1,layer.cell.step:2"),
]


@pytest.mark.parametrize(
    ("example", "strategy", "recompute", "ranks"),
    of_the_day([(*case, ranks) for case in CASES for ranks in (1, 2, 4)], 5),
)
def test_programs_equal_their_models(
    example: str, strategy: str, recompute: str, ranks: int, compile_program: Compile, pool: RankPool
) -> None:
    precision = "bf16" if example == "llama3_8b" else None
    out = compile_program(
        EXAMPLES / f"{example}.udl",
        preset="small",
        devices=ranks,
        strategy=strategy if ranks > 1 else "auto",
        recompute=recompute,
        precision=precision,
    )
    assert (out / "model.py").read_text().count(".recomputed(") >= len(recompute.split(","))
    report = check(out, pool=pool)
    assert report.ok, report


@pytest.mark.parametrize(
    ("recompute", "hint"),
    [
        ("layr", "did you mean `layer`?"),
        ("al", "did you mean `all`?"),
        ("layer,", "there are"),
        *((f"layer:{word}", "`layer:3` or `layer` stands for all of them") for word in ("0", "4", "-1", "two", "")),
    ],
)
def test_unknown_segments_are_refused(recompute: str, hint: str, tmp_path: Path) -> None:
    path = tmp_path / "m.udl"
    path.write_text(MODEL)
    with pytest.raises(InputError) as caught:
        compile_model(Request(path, recompute=recompute))
    diagnostic = caught.value.diagnostic
    assert diagnostic.code == "E315" and hint in str(diagnostic.help)


def test_nothing_is_run_again_without_a_loss(tmp_path: Path) -> None:
    path = tmp_path / "m.udl"
    path.write_text(MODEL.replace("  loss mse(z, target)", "  output z").replace("  input target: f32[b, d]\n", ""))
    with pytest.raises(InputError, match="no backward pass"):
        compile_model(Request(path, recompute="all"))


def test_all_are_those_in_no_other() -> None:
    model = build_model(parse_model(read_source(EXAMPLES / "lstm_lm.udl")), load_library(), {}, "small")
    assert {"layer", "layer.cell.step"} <= dict(segments(model.graph)).keys()
    found = parse_recompute("all", model)
    assert found is not None and found.paths == {"layer"} and not found.kept
