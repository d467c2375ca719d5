"""Programs as users run them: torchrun, the train.py of examples, and a killed run that resumes elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.emit.started import start
from tests.emit.test_train_files import losses, modules, train, wait_for
from tests.sampling import SAMPLE
from unity_dsl.resources import folder

from .example_cases import sample
from .test_loops import COND

COUNT = 6
Compile = Callable[..., Path]


def compiled(number: int, compile_program: Compile) -> Path:
    """Compiles one example of the day: a different one for every number, as long as there are enough."""
    example = sample(COUNT, SAMPLE)[number].example
    print(f"UNITY_SAMPLE={SAMPLE}: {example}")
    return compile_program(folder("examples") / f"{example}.udl", devices=2, preset="small", strategy="data_parallel")


@pytest.mark.parametrize("number", range(COUNT))
def test_examples_are_trained(number: int, compile_program: Compile, tmp_path: Path) -> None:
    train(compiled(number, compile_program), 2, "--steps", 3, "--log-file", tmp_path / "log")
    assert len(losses(tmp_path / "log")) == 3


def test_torchrun(compile_program: Compile, tmp_path: Path) -> None:
    out = compiled(0, compile_program)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(out / "train.py"), "--steps", "3", "--log-file", str(tmp_path / "log"), "--device", "cpu"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert len(losses(tmp_path / "log")) == 3


def resumed_and_whole(
    model: str | Path, compile_program: Compile, folder: Path, **choices: object
) -> tuple[list[float], list[float]]:
    """Losses of six steps: three on two ranks and three on one from their checkpoint; and all six on one rank."""
    recipe = ("--steps", 6, "--lr", 0.01, "--schedule", "linear", "--seed", 0, "--dtype", "float64")
    whole, parted, resumed, saved = (folder / name for name in ("whole", "parted", "resumed", "saved"))
    one, two = (compile_program(model, devices=n, strategy="data_parallel", **choices) for n in (1, 2))
    train(one, 1, *recipe, "--log-file", whole)
    train(two, 2, *recipe, "--log-file", parted, "--checkpoint", saved, "--save-every", 3)
    (saved / "latest").write_text("step-00000003\n")
    train(one, 1, *recipe, "--log-file", resumed, "--checkpoint", saved, "--resume")
    assert len(set(losses(whole))) == 6 and len(losses(resumed)) == 3
    return [*losses(parted)[:3], *losses(resumed)], losses(whole)


@pytest.mark.parametrize("name", ["lstm_lm", "skipnet"])
def test_loops_and_skipped_blocks_go_on_from_a_checkpoint(name: str, compile_program: Compile, tmp_path: Path) -> None:
    """Buffers that a scan keeps from batch to batch continue from the checkpoint."""
    found, expected = resumed_and_whole(folder("examples") / f"{name}.udl", compile_program, tmp_path, preset="small")
    assert found == pytest.approx(expected, rel=1e-9)


def test_the_optimizer_goes_on_for_weights_that_some_steps_skip(compile_program: Compile, tmp_path: Path) -> None:
    """Adam counts the steps of each weight separately. The gates of the batches are random."""
    with modules(compile_program(COND)) as (data, _, entry):
        gates = [int(data.synthetic(entry.INPUTS, 0, step, "train")["gate"]) for step in range(6)]
    assert 0 in gates[:3] and 1 in gates[:3] and 1 in gates[3:]
    found, expected = resumed_and_whole(COND, compile_program, tmp_path)
    assert found == pytest.approx(expected, rel=1e-9)


def test_a_killed_run_goes_on_with_another_number_of_ranks(compile_program: Compile, tmp_path: Path) -> None:
    """Digits on two ranks, killed after 50 steps, resumed on four: the losses of an uninterrupted run on one device."""
    digits = folder("examples") / "digits.udl"
    recipe = ("--data", "digits", "--steps", 75, "--lr", 0.002, "--schedule", "cosine", "--seed", 7)
    whole, killed, resumed, saved = (tmp_path / name for name in ("whole", "killed", "resumed", "saved"))
    train(compile_program(digits, devices=1), 1, *recipe, "--log-file", whole)
    two = compile_program(digits, devices=2)
    running = start(two, 2, *recipe, "--log-file", killed, "--checkpoint", saved, "--save-every", 25)
    wait_for(lambda: (saved / "latest").exists() and "50" in (saved / "latest").read_text(), running)
    for process in running:
        process.kill()
        process.communicate()
    # The run is killed a little after step 50, or even at the end. It resumes from step 50 in any case.
    (saved / "latest").write_text("step-00000050\n")
    four = compile_program(digits, devices=4, strategy="data_parallel")
    train(four, 4, *recipe, "--log-file", resumed, "--checkpoint", saved, "--resume")
    expected = losses(whole)
    assert len(expected) == 75
    assert losses(killed)[:50] == pytest.approx(expected[:50], abs=1e-5)
    assert len(losses(resumed)) == 25
    assert losses(resumed) == pytest.approx(expected[50:], abs=1e-5)
