"""Resumed runs: their step, options and messages; evaluation alone, and the weights of a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unity_dsl.emit.rank_comparison import load_program

from .started import start
from .test_train_files import Programs, losses, train

COSINE = ("--lr", 0.01, "--schedule", "cosine", "--warmup", 2, "--clip", 1, "--weight-decay", 0.1, "--seed", 5)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return Programs(tmp_path_factory.mktemp("resumed"))


def rates(log: Path) -> list[float]:
    return [json.loads(line)["lr"] for line in log.read_text().splitlines()]


def test_a_resumed_run_keeps_its_options(programs: Programs, tmp_path: Path) -> None:
    """A cosine run that was cut short follows its curve when resumed without options."""
    whole, parted, saved = tmp_path / "whole", tmp_path / "parted", tmp_path / "saved"
    told = train(
        programs.out(1), 1, *COSINE, "--steps", 6, "--log-file", whole, "--checkpoint", saved, "--save-every", 3
    )
    assert [line for line in told.splitlines() if line.startswith("saved")] == [
        f"saved {saved}/step-0000000{step}" for step in (3, 6)
    ]
    (saved / "latest").write_text("step-00000003\n")
    told = train(programs.out(1), 1, "--log-file", parted, "--checkpoint", saved, "--resume")
    assert told.splitlines()[0] == f"resumed {saved}/step-00000003: 3 of 6 steps are done"
    assert losses(parted) == pytest.approx(losses(whole)[3:], rel=1e-6)
    assert rates(parted) == pytest.approx(rates(whole)[3:], rel=1e-12)


def test_options_that_change_in_a_resumed_run_are_told(programs: Programs, tmp_path: Path) -> None:
    log, saved = tmp_path / "log", tmp_path / "saved"
    train(programs.out(1), 1, *COSINE, "--steps", 2, "--checkpoint", saved)
    again = ("--lr", 0.02, "--warmup", 2, "--steps", 4, "--seed", 1, "--log-file", log)
    told = train(programs.out(1), 1, *again, "--checkpoint", saved, "--resume").splitlines()
    assert told[1:5] == [
        "--steps is 4, and was 2",
        "--lr is 0.02, and was 0.01",
        "the cosine schedule is now that of 4 steps",
        "--seed 1 is not used: the seed of a run stays what it was, 5",
    ]
    assert rates(log) == pytest.approx([0.02, 0.01])
    told = train(programs.out(1), 1, "--checkpoint", saved, "--resume").splitlines()
    assert told[1] == "nothing is left to train; --steps N goes on"


@pytest.mark.parametrize("how", ["--resume", "--eval-only"])
def test_where_nothing_was_saved_there_is_nothing_to_resume(programs: Programs, tmp_path: Path, how: str) -> None:
    (process,) = start(programs.out(1), 1, "--checkpoint", tmp_path, how)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 2
    assert error == f"train.py: rank 0: {tmp_path} has no checkpoint: there is no {tmp_path}/latest\n"


def test_a_data_function_of_the_users_is_named_again(programs: Programs, tmp_path: Path) -> None:
    """A module is not imported merely because a checkpoint names it."""
    saved = tmp_path / "saved"
    (programs.folder / "own.py").write_text(
        "def batches(*key):\n    from data import synthetic\n    return synthetic(*key)\n"
    )
    train(programs.out(1), 1, "--data", "own:batches", "--steps", 1, "--checkpoint", saved)
    (process,) = start(programs.out(1), 1, "--checkpoint", saved, "--resume", "--steps", 2)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 2 and "was trained on --data own:batches: give it again" in error
    train(programs.out(1), 1, "--checkpoint", saved, "--resume", "--steps", 2, "--data", "own:batches")


def test_evaluation_alone_is_that_at_the_end_of_training(programs: Programs, tmp_path: Path) -> None:
    """On one and on two ranks. Nothing is written."""
    saved = tmp_path / "saved"
    trained = train(programs.out(2), 2, *COSINE, "--steps", 3, "--checkpoint", saved).splitlines()[-2:]
    before = sorted(path.name for path in saved.iterdir())
    for ranks in (1, 2):
        told = train(programs.out(ranks), ranks, "--checkpoint", saved, "--eval-only").splitlines()
        assert told == [f"evaluating {saved}/step-00000003", *trained]
    assert sorted(path.name for path in saved.iterdir()) == before


def test_weights_of_a_checkpoint_are_loaded_on_any_number_of_ranks(programs: Programs, tmp_path: Path) -> None:
    """One rank loads what two ranks saved. Whole tensors are copied from one module to another."""
    import torch

    saved = tmp_path / "saved"
    train(programs.out(2), 2, *COSINE, "--steps", 2, "--checkpoint", saved)
    with load_program(programs.out(1)) as program:
        model, other = program.Model(), program.Model()
        model.initialise(5)
        start_tensors = model.global_tensors()
        model.load_weights(saved)
        loaded = model.global_tensors()
        assert loaded.keys() == {"w1", "b1", "w2"}
        with pytest.raises(Exception, match="has no checkpoint: there is no"):
            model.load_weights(tmp_path)
        assert all((loaded[name] != start_tensors[name]).any() for name in loaded)
        other.load_global(loaded)
        model.load_weights(saved / "step-00000002")
        assert all(torch.equal(tensor, other.stored()[name]) for name, tensor in model.stored().items())
