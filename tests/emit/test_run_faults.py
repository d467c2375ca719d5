"""Faults of a run, each reported in one line: options, data, the checkpoint folder, losses that are not finite."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.output_folder import write_program
from unity_dsl.emit.rank_comparison import load_program

from .started import Started, start, start_script
from .test_train_files import Programs, losses, modules, train


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return Programs(tmp_path_factory.mktemp("faults"))


# ---------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--lr nan", "--lr must be at least 0, not nan"),
        ("--lr inf", "--lr must be at most"),
        ("--clip -1", "--clip must be at least"),
        ("--clip 0", "--clip must be at least"),
        ("--momentum 1.5", "--momentum must be at most 1"),
        ("--beta2 1", "--beta2 must be at most 0.9999999999999999, not 1.0"),
        ("--eps -1", "--eps must be at least 0"),
        ("--weight-decay nan", "--weight-decay must be at least 0"),
        ("--bucket-mb inf", "--bucket-mb must be at most"),
        ("--steps -1", "--steps must be at least 0"),
        ("--warmup -2", "--warmup must be at least 0"),
        ("--seed -1", "--seed must be at least 0"),
        (f"--seed {'9' * 5000}", "invalid int value"),
        (f"--optimizer {'x' * 5000}", "invalid choice"),
        ("--keep 0 --checkpoint c", "--keep must be at least 1"),
        ("--keep 2", "--keep needs --checkpoint"),
        ("--save-every 2", "--save-every needs --checkpoint"),
        ("--resume", "--resume needs --checkpoint"),
        ("--accumulate 0", "--accumulate must be at least 1"),
        ("--save-every -1", "--save-every must be at least 0"),
        ("--optimizer lion", "invalid choice: 'lion'"),
    ],
)
def test_options_out_of_range(
    programs: Programs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: str, message: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", *options.split()])
    with modules(programs.out(1)) as (_, _, entry), pytest.raises(SystemExit) as caught:
        entry.arguments()
    told = capsys.readouterr().err.splitlines()[-1]
    assert caught.value.code == 2 and message in told and len(told) < 500


# ---------------------------------------------------------------------------------------------- data


def batch(**changed: Any) -> dict[Any, Any]:
    import torch

    found = {"x": torch.zeros(16, 64), "target": torch.zeros(16, dtype=torch.int64)} | changed
    return {name: tensor for name, tensor in found.items() if tensor is not None}


def faulty_batches() -> Mapping[str, tuple[object, str]]:
    import torch

    return {
        "none": (None, "returned None for the train split"),
        "list": ([1, 2], "returned list"),
        "missing": (batch(x=None), "the data has no x"),
        "array": (batch(x=[[0.0]]), "input x is a tensor, the data has list"),
        "shape": (batch(x=torch.zeros(16, 63)), r"input x is \[16, 64\], the data has \[16, 63\]"),
        "scalar": (batch(x=torch.tensor(1.0)), r"the data has \[\]"),
        "short": (batch(x=torch.zeros(4, 64), target=torch.zeros(4).long()), r"the data has \[4, 64\]"),
        "complex": (batch(x=torch.zeros(16, 64, dtype=torch.complex64)), "input x has no torch.complex64"),
        "floats": (batch(target=torch.zeros(16)), "input target has no torch.float32"),
        "negative": (batch(target=torch.full((16,), -1)), r"input target lies in \[0, 10\), the data has -1"),
        "large": (batch(target=torch.full((16,), 10)), "the data has 10"),
    }


@pytest.mark.parametrize("name", faulty_batches())
def test_what_a_data_function_returns(programs: Programs, name: str) -> None:
    given, message = faulty_batches()[name]
    with modules(programs.out(1)) as (data, _, entry):
        with pytest.raises(data.DataError, match=message) as caught:
            data.check(given, entry.INPUTS, "train")
        assert "\n" not in str(caught.value)


def test_only_a_test_batch_may_be_short(programs: Programs) -> None:
    import torch

    with modules(programs.out(1)) as (data, _, entry):
        short = batch(x=torch.zeros(5, 64), target=torch.zeros(5).long())
        data.check(short, entry.INPUTS, "test")
        with pytest.raises(data.DataError, match="input target has 4 rows in a batch of 5"):
            data.check(short | {"target": torch.zeros(4).long()}, entry.INPUTS, "test")
        with pytest.raises(data.DataError, match=r"has \[0, 64\]"):
            data.check({name: tensor[:0] for name, tensor in short.items()}, entry.INPUTS, "test")
        assert data.digest(short) != data.digest(batch()) == data.digest(batch())
        assert data.digest(None) == data.digest({"x": 1})


SCALARS = """
model scalars
  input gate: int<2>[]
  input target: int<3>[]
  weight w: f32[3] ~ normal(0.3)
  weight taken: f32[3] ~ normal(0.3)
  logits = w * 1
  cond gate as part
    logits = logits + taken
  loss cross_entropy(logits, target)
  output logits
"""


@pytest.mark.parametrize("split", ["train", "test"])
def test_inputs_without_dimensions_are_batches_too(tmp_path: Path, split: str) -> None:
    """Both splits, also if no input has rows. The accuracy is that of the test split's four batches."""
    import torch

    (tmp_path / "scalars.udl").write_text(SCALARS)
    compilation = compile_model(request := Request(tmp_path / "scalars.udl"))
    write_program(compilation.plan, compilation.library, compilation.sources, request, tmp_path / "out")
    with modules(tmp_path / "out") as (data, _, entry):
        given = {"gate": torch.tensor(1), "target": torch.tensor(2)}
        data.check(given, entry.INPUTS, split)
        with pytest.raises(data.DataError, match=r"input gate is \[\], the data has \[1\]"):
            data.check(given | {"gate": torch.ones(1).long()}, entry.INPUTS, split)
        with pytest.raises(data.DataError, match=r"input gate lies in \[0, 2\), the data has 2"):
            data.check(given | {"gate": torch.tensor(2)}, entry.INPUTS, split)
        model = entry.Model(None)
        model.initialise(0)
        batches = [data.synthetic(entry.INPUTS, 0, step, "test") for step in range(data.SYNTHETIC_TEST_BATCHES)]
        with torch.no_grad():
            found = [(model(**part), part["target"]) for part in map(dict, batches)]
        model.eval()
        loss, accuracy = entry.evaluate(model, data.synthetic, 0)
    assert loss == pytest.approx(sum(one.item() for (one, _), _ in found) / 4)
    assert accuracy == sum(int(outputs["logits"].argmax() == target) for (_, outputs), target in found) / 4


HOOK = """
import os
from data import synthetic

def broken(inputs, seed, step, split):
    found = synthetic(inputs, seed, step, split)
    if split == "train" and step == 2:
        found["x"] *= float("nan")
    return found

def own(inputs, seed, step, split):
    return synthetic(inputs, seed + int(os.environ["RANK"]), step, split)
"""


def test_a_loss_that_is_not_finite_ends_the_run(programs: Programs, tmp_path: Path) -> None:
    """The resulting weights are not saved. With --allow-nan the run continues."""
    (programs.folder / "hook.py").write_text(HOOK)
    options = ("--data", "hook:broken", "--steps", 4, "--log-file", tmp_path / "log")
    (process,) = start(programs.out(1), 1, *options, "--checkpoint", tmp_path / "saved", "--save-every", 1)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    last = "train.py: rank 0: step 3: the loss is nan; nothing more is saved, --allow-nan goes on"
    assert error.splitlines()[-1] == last and "Traceback" not in error
    assert (tmp_path / "saved" / "latest").read_text() == "step-00000002\n"
    assert [loss is None for loss in losses(tmp_path / "log")] == [False, False, True]  # JSON has no NaN
    train(programs.out(1), 1, *options, "--allow-nan")
    assert len(losses(tmp_path / "log")) == 3 + 4


def test_ranks_that_are_given_different_data_notice_in_the_first_step(programs: Programs) -> None:
    (programs.folder / "hook.py").write_text(HOOK)
    processes = start(programs.out(2), 2, "--data", "hook:own", "--steps", 3)
    for rank, process in enumerate(processes):
        _, error = process.communicate(timeout=60)
        message = "ranks 0 and 1 have different data: every rank gets the same global batch"
        assert (process.returncode, error) == (2, f"train.py: rank {rank}: {message}\n")


def ended_by_torchrun(processes: list[Started]) -> list[str]:
    """The standard errors of ranks if all are ended when the first exits, as torchrun does. It must
    exit with code 2.
    """
    limit = time.monotonic() + 60
    while all(process.poll() is None for process in processes):
        assert time.monotonic() < limit
        time.sleep(0.02)
    assert [process.poll() for process in processes if process.poll() is not None] == [2]
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    return [process.communicate(timeout=60)[1] for process in processes]


@pytest.mark.parametrize(
    ("ranks", "options", "told"),
    [
        (3, (), "this program runs on 2 ranks, not 3: torchrun"),
        (2, ("--lr", "nan"), "--lr must be at least 0, not nan"),
        (2, ("--data", "nowhere"), "train.py: rank 0: --data nowhere"),
        (2, ("--checkpoint", "tiny.udl"), "train.py: rank 0: cannot write "),
    ],
)
def test_what_ends_all_ranks_is_said_once(programs: Programs, ranks: int, options: tuple[str, ...], told: str) -> None:
    first, *others = ended_by_torchrun(start(programs.out(2), ranks, *options))
    assert told in first and others == [""] * (ranks - 1)


def test_what_ends_a_rank_is_said_by_itself_where_the_first_one_stays(programs: Programs, tmp_path: Path) -> None:
    """Only rank 1 is started, so rank 0 cannot report the error."""
    script = [str(programs.out(2) / "train.py"), "--device", "cpu"]
    environment = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    process = start_script([*script, "--data", "nowhere"], environment, programs.folder, tmp_path)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 2 and error.startswith("train.py: rank 1: --data nowhere")


# ---------------------------------------------------------------------------------------------- folders and files


@pytest.mark.parametrize("option", ["--checkpoint", "--log-file"])
def test_a_path_that_cannot_be_written_is_told_before_the_first_step(programs: Programs, option: str) -> None:
    for path in (programs.folder / "tiny.udl" / "x", programs.folder / "tiny.udl" if option == "--checkpoint" else "/"):
        (process,) = start(programs.out(1), 1, option, path)
        told, error = process.communicate(timeout=60)
        assert process.returncode == 2 and error.startswith("train.py: rank 0: cannot write "), error
        assert error.count("\n") == 1 and told == ""


Step = Callable[[int], Path]


@pytest.fixture
def saved(programs: Programs, tmp_path: Path) -> Any:
    """checkpoint.py, a model with its optimizer, and a function that saves a step of them."""
    import torch

    with modules(programs.out(1)) as (_, checkpoint, _):
        with load_program(programs.out(1)) as program:
            model = program.Model(None)
            model.initialise(0)
        optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
        checkpoint.prepare(optimizer, "sgd")

        def save(step: int, keep: int | None = None) -> Path:
            progress = {"step": step, "position": step, "seed": 0, "options": {}}
            return Path(checkpoint.save(tmp_path / "saved", model, None, optimizer, progress, keep))

        yield checkpoint, model, save


def refused(checkpoint: ModuleType, action: Callable[[], object]) -> str:
    with pytest.raises(checkpoint.CheckpointError) as caught:
        action()
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_damaged_checkpoints(saved: Any) -> None:
    """Truncated, swapped or missing files are reported in one line, and the model stays unchanged."""
    checkpoint, model, save = saved
    first = save(1)
    with_change = next(iter(model.parameters()))
    with_change.data += 1.0
    second = save(2)
    part = next(second.glob("__0_*"))
    whole = part.read_bytes()
    before = with_change.clone()

    def damaged(content: bytes) -> str:
        part.write_bytes(content)
        return refused(checkpoint, lambda: checkpoint.load_weights(second, model))

    assert f"{part.name} is not what was written ({len(whole) // 2} bytes of {len(whole)})" in damaged(
        whole[: len(whole) // 2]
    )
    assert f"{part.name} is not what was written" in damaged(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert f"{part.name} is not what was written" in damaged((first / part.name).read_bytes())
    part.unlink()
    assert f"cannot read {part.name}" in refused(checkpoint, lambda: checkpoint.load_weights(second, model))
    part.write_bytes(whole)
    for name in (".metadata", "progress.json"):
        content = (second / name).read_bytes()
        (second / name).write_bytes((first / name).read_bytes() + b" ")
        assert f"{name} is not what was written" in refused(checkpoint, lambda: checkpoint.load_weights(second, model))
        (second / name).write_bytes(content)
    manifest = (second / "manifest.json").read_text()
    for content in (manifest[:40], "[]", "{}", json.dumps({"../x": 1}), '{".metadata": 1, "progress.json": 2}'):
        (second / "manifest.json").write_text(content)
        refused(checkpoint, lambda: checkpoint.load_weights(second, model))
    assert (with_change == before).all()
    (second / "manifest.json").write_text(manifest)
    checkpoint.load_weights(second, model)


def test_latest_is_gone_or_names_nothing(saved: Any) -> None:
    checkpoint, _, save = saved
    folder = save(9).parent
    save(10)
    assert checkpoint.find(folder).name == "step-00000010"
    (folder / "latest").write_text("step-00000009\n")
    assert checkpoint.find(folder).name == "step-00000009"
    (folder / "latest").write_text("step-00000123\n")
    assert checkpoint.find(folder).name == "step-00000010"
    (folder / "latest").unlink()
    assert checkpoint.find(folder).name == "step-00000010"
    (folder / "latest").write_text("../elsewhere")
    assert "names no checkpoint" in refused(checkpoint, lambda: checkpoint.find(folder))
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert "has no checkpoint" in refused(checkpoint, lambda: checkpoint.find(folder))


def test_a_checkpoint_under_the_name_of_another_step(saved: Any) -> None:
    checkpoint, _, save = saved
    other = save(3).rename(save(2).parent / "step-00000004")
    assert refused(checkpoint, lambda: checkpoint.read_progress(other)) == f"{other} holds step 3"
    best = other.rename(other.parent / "best")
    assert checkpoint.read_progress(best)["step"] == 3


def test_two_runs_do_not_write_into_one_folder(saved: Any) -> None:
    checkpoint, _, save = saved
    folder = save(1).parent
    refusal = refused(checkpoint, lambda: checkpoint.claim(folder / "latest", None, False))
    assert refusal == f"cannot write {folder / 'latest'}: File exists"
    (folder / ".step-00000007-dead.part").mkdir()
    (folder / ".step-00000007-dead.latest.part").write_text("step-00000007\n")
    run = checkpoint.claim(folder, None, True)
    assert not list(folder.glob("*.part"))
    again = refused(checkpoint, lambda: checkpoint.claim(folder, None, True))
    assert f"another run writes to {folder}: process " in again and run in again
    other = folder.parent / "other"
    shutil.copytree(folder, other)
    earlier = refused(checkpoint, lambda: checkpoint.claim(other, None, False))
    assert earlier == f"{other} holds step-00000001 of an earlier run: --resume goes on with it"


def test_only_the_last_checkpoints_are_kept(saved: Any) -> None:
    checkpoint, _, save = saved
    for step in (1, 2, 3, 10):
        folder = save(step, 2).parent
    assert sorted(path.name for path in folder.iterdir()) == ["latest", "step-00000003", "step-00000010"]
    save(4, 2)  # the run returns to an earlier step, and later checkpoints stay
    assert sorted(path.name for path in folder.glob("step-*")) == ["step-00000003", "step-00000004", "step-00000010"]
    assert checkpoint.find(folder).name == "step-00000004"
    again = save(4, 2)
    checkpoint.verify(again, None)
    assert not list(folder.glob(".*.part"))


def test_a_run_keeps_the_last_checkpoints(programs: Programs, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    train(programs.out(1), 1, "--steps", 5, "--checkpoint", saved, "--save-every", 1, "--keep", 2)
    assert sorted(path.name for path in saved.glob("*")) == [".lock", "latest", "step-00000004", "step-00000005"]
