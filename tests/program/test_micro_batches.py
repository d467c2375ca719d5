"""Programs that run a batch as micro-batches train like plain torch on whole batches, on any number of ranks.

They also resume a program with another number of micro-batches.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from unity_dsl.emit.plan_file import load_plan_file
from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.resources import folder

from ..emit.started import start
from ..emit.test_train_files import MODEL, RECIPE, expected_losses, losses, train
from .counting import count_collectives

Compile = Callable[..., Path]
MLP = folder("examples") / "mlp.udl"
SLICED = ("w_in=S0", "w_out=S0", "hidden.w=S0")


def test_training_is_what_torch_alone_would_do_on_whole_batches(compile_program: Compile, tmp_path: Path) -> None:
    expected = expected_losses(compile_program(MODEL.lstrip()))
    for ranks, count, bucket in ((1, 4, 25), (2, 4, 25), (2, 2, 0)):
        out = compile_program(
            MODEL.lstrip(),
            devices=ranks,
            strategy="data_parallel",
            pins=("w1=S0",) if ranks > 1 else (),
            micro_batches=count,
        )
        log = tmp_path / f"log_{ranks}_{count}"
        train(out, ranks, *RECIPE, "--log-file", log, "--bucket-mb", bucket)
        assert losses(log) == pytest.approx(expected, rel=1e-9), (ranks, count)


def test_a_run_goes_on_with_other_micro_batches(compile_program: Compile, tmp_path: Path) -> None:
    """Data, dropout and evaluation are by whole batches."""
    whole, four, two = (
        compile_program(MODEL.lstrip(), settings={"p": 0.2}, devices=ranks, strategy="data_parallel", micro_batches=m)
        for ranks, m in ((1, 1), (2, 4), (1, 2))
    )
    recipe = ("--lr", 0.01, "--steps", 8, "--clip", 1, "--seed", 5, "--dtype", "float64")
    saved, parted = tmp_path / "saved", tmp_path / "parted"
    told = train(whole, 1, *recipe, "--log-file", tmp_path / "whole")
    for process in start(four, 2, *recipe, "--log-file", parted, "--checkpoint", saved, "--save-every", 3):
        process.communicate(timeout=120)
    (saved / "latest").write_text("step-00000003\n")
    parted.write_text("".join(parted.read_text().splitlines(keepends=True)[:3]))
    again = train(two, 1, "--log-file", parted, "--checkpoint", saved, "--resume")
    assert losses(parted) == pytest.approx(losses(tmp_path / "whole"), rel=1e-9)
    assert told.splitlines()[-2:] == again.splitlines()[-2:] and "test accuracy" in again


@pytest.mark.a_day(5)
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize(("example", "pins"), [("mlp", SLICED), ("mlp", ()), ("gpt2", ()), ("candle_uno", ())])
def test_examples_equal_their_model(
    compile_program: Compile, pool: RankPool, example: str, pins: tuple[str, ...], ranks: int
) -> None:
    out = compile_program(
        folder("examples") / f"{example}.udl",
        preset="small",
        settings={"b": 16},
        devices=ranks,
        strategy="data_parallel",
        pins=pins,
        micro_batches=4,
    )
    assert load_plan_file(out).micro_batches == 4
    report = check(out, pool=pool)
    assert report.ok and report.trained, report


def test_a_program_in_mixed_precision_equals_its_model(compile_program: Compile, pool: RankPool) -> None:
    out = compile_program(MLP, preset="small", devices=2, precision="bf16", pins=SLICED, micro_batches=2)
    report = check(out, pool=pool)
    assert report.ok and report.mixed is not None and report.mixed.precision == "bf16"


def test_check_finds_a_wrong_divisor(compile_program: Compile, pool: RankPool) -> None:
    out = compile_program(MLP, preset="small", micro_batches=2)
    text = (out / "model.py").read_text()
    (out / "model.py").write_text(text.replace("LOSS_DIVISOR = 2", "LOSS_DIVISOR = 1"))
    report = check(out, pool=pool)
    assert not report.ok and report.edited == ("model.py",)


def test_a_plan_is_recompiled_for_as_many_micro_batches(compile_program: Compile, pool: RankPool) -> None:
    out = compile_program(MLP, preset="small", micro_batches=2)
    report = check(out, ranks=2, pool=pool)
    assert report.ok and report.recompiled


def test_whole_gradients_are_summed_once_and_slices_at_once(compile_program: Compile, pool: RankPool) -> None:
    for pins, name, times in (((), "all_reduce", 1), (SLICED, "reduce_scatter_tensor", 4)):
        found = []
        for count in (1, 4):
            out = compile_program(
                MLP, preset="small", settings={"b": 16}, devices=2, strategy="data_parallel", pins=pins,
                micro_batches=count,
            )  # fmt: skip
            _, backward = pool.run(count_collectives, str(out), 0, ranks=2)[0]
            found.append(backward[name])
        assert found[1] == times * found[0] > 0


def test_gradients_of_an_accumulated_step_are_held_as_parameters_are(compile_program: Compile, pool: RankPool) -> None:
    """Between two micro-batches no whole gradient of a sharded weight is held."""
    out = compile_program(MLP, preset="small", devices=2, strategy="data_parallel", pins=SLICED, micro_batches=4)
    for largest in pool.run(held_between, str(out), ranks=2):
        assert largest == 1.0


def held_between(rank: int, ranks: int, program: str) -> float:
    """The largest number of elements held for gradients between micro-batches, relative to the parameters."""
    with load_program(Path(program)) as module:
        model = module.Model(module.build_mesh("cpu"), bucket_bytes=0)
        model.initialise(0)
        batch = {name: torch.randn(spec.shape) for name, spec in module.BATCH.items()}
        own = sum(parameter.numel() for parameter in model.parameters())
        most = 0.0
        for part in model.micro_batches(batch):
            held = [*model.sync.landed.values(), *(result for result, _ in model.sync.flying)]
            held += [tensor for sums in model.sync.sums.values() for tensor in sums.values()]
            most = max(most, sum(tensor.numel() for tensor in held) / own)
            model(**part)[0].backward()
            while model.sync.flying:
                model.sync._land()
        model.synchronise()
    return most


def test_the_program_says_that_batches_are_whole(compile_program: Compile) -> None:
    out = compile_program(MODEL.lstrip(), micro_batches=4)
    text = (out / "train.py").read_text()
    assert "b = 16; each is run as 4 micro-batches" in text and "each is run as 4 micro-batches" in text
    with load_program(out) as module:
        assert module.MICRO_BATCHES == 4 and module.INPUTS["x"].shape == (4, 64)
        assert module.BATCH["x"].shape == (16, 64) and module.BATCH["target"].integer_range == 10
