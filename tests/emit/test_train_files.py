"""train.py trains like plain torch, on any number of ranks, stops cleanly, and resumes on any number of ranks."""

from __future__ import annotations

import json
import math
import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.output_folder import write_program
from unity_dsl.emit.plan_file import TORCH, TRITON
from unity_dsl.emit.rank_comparison import load_program

from .started import Started, start

MODEL = """
model tiny[b = 16, h = 32, p = 0]
  input x: f32[b, 64]
  input target: int<10>[b]
  weight w1: f32[h, 64] ~ normal(0.1)
  weight b1: f32[1, h] ~ zeros
  weight w2: f32[10, h] ~ normal(0.1)
  h1 = dropout(relu(linear(x, w1) + b1); p = p)
  logits = linear(h1, w2)
  loss cross_entropy(logits, target)
  output logits
"""


class Programs:
    """Compiles the model once for each number of ranks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "tiny.udl").write_text(MODEL.lstrip())

    def out(self, ranks: int, kernels: str = TORCH, **settings: float) -> Path:
        name = f"out_{ranks}_{kernels}_" + "_".join(f"{key}{value}" for key, value in settings.items()).replace(".", "")
        out = self.folder / name
        if not out.exists():
            request = Request(
                self.folder / "tiny.udl",
                settings=settings,
                devices=ranks,
                strategy="data_parallel",
                kernels=kernels,
                pins=("w1=S0",) if ranks > 1 else (),
            )
            compilation = compile_model(request)
            write_program(compilation.plan, compilation.library, compilation.sources, request, out)
        return out


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return Programs(tmp_path_factory.mktemp("programs"))


# ---------------------------------------------------------------------------------------------- running


def train(out: Path, ranks: int, *arguments: object) -> str:
    """Trains to the end and returns what the first rank printed."""
    processes = start(out, ranks, *arguments)
    texts = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0] * ranks, texts
    return texts[0][0]


def losses(log: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in log.read_text().splitlines()]


# ---------------------------------------------------------------------------------------------- training


RECIPE = (
    *("--steps", 6, "--optimizer", "sgd", "--lr", 0.5, "--momentum", 0.9, "--weight-decay", 0.01, "--clip", 0.4),
    *("--accumulate", 2, "--warmup", 2, "--schedule", "cosine", "--seed", 3, "--dtype", "float64"),
)


ADAMW = ("--optimizer", "adamw", "--lr", 0.05, "--beta1", 0.7, "--beta2", 0.8, "--eps", 0.01)
"""Replaces the optimizer options of RECIPE."""


def expected_losses(out: Path, adamw: bool = False) -> list[float]:
    """The same recipe in plain torch. Biases have no weight decay, whether they have one dimension or two."""
    import torch
    from torch.nn import functional as F

    with load_program(out) as program, modules(out) as (data, _, _):
        model = program.Model(None, dtype=torch.float64)
        model.initialise(3)
        w1, b1, w2 = (dict(model.named_parameters())[name].detach().clone() for name in ("w1", "b1", "w2"))
        batches = [data.synthetic(program.INPUTS, 3, position, "train") for position in range(12)]
    weights = [tensor.requires_grad_() for tensor in (w1, b1, w2)]
    groups = [{"params": [w1, w2], "weight_decay": 0.01}, {"params": [b1], "weight_decay": 0.0}]
    optimizer: torch.optim.Optimizer = torch.optim.SGD(groups, lr=0.5, momentum=0.9)
    if adamw:
        optimizer = torch.optim.AdamW(groups, lr=0.05, betas=(0.7, 0.8), eps=0.01)
    highest = 0.05 if adamw else 0.5
    rates = [highest * part for part in (0.5, 1, *(0.5 * (1 + math.cos(math.pi * k / 4)) for k in range(4)))]
    found = []
    for step in range(6):
        optimizer.zero_grad()
        parts = []
        for batch in batches[2 * step : 2 * step + 2]:
            logits = F.linear(torch.relu(F.linear(batch["x"].double(), w1) + b1), w2)
            parts.append(F.cross_entropy(logits, batch["target"]))
        total = torch.stack(parts).mean()
        total.backward()
        torch.nn.utils.clip_grad_norm_(weights, 0.4)
        for group in optimizer.param_groups:
            group["lr"] = rates[step]
        optimizer.step()
        found.append(total.item())
    return found


@pytest.mark.parametrize(("ranks", "bucket"), [(1, 25), (2, 25), (2, 0)])
def test_training_is_what_torch_alone_would_do(programs: Programs, tmp_path: Path, ranks: int, bucket: int) -> None:
    log = tmp_path / "log"
    train(programs.out(ranks), ranks, *RECIPE, "--log-file", log, "--bucket-mb", bucket)
    assert losses(log) == pytest.approx(expected_losses(programs.out(1)), rel=1e-9)
    last = json.loads(log.read_text().splitlines()[-1])
    told = {"step", "loss", "lr", "grad_norm", "seconds", "samples_per_second", "utilisation"}
    assert set(last) == told and last["step"] == 6


@pytest.mark.parametrize("kernels", [TORCH, TRITON])
def test_adamw_is_what_torch_alone_would_do(programs: Programs, tmp_path: Path, kernels: str) -> None:
    log = tmp_path / "log"
    train(programs.out(1, kernels), 1, *RECIPE, *ADAMW, "--log-file", log)
    assert losses(log) == pytest.approx(expected_losses(programs.out(1), adamw=True), rel=1e-9)


def test_training_with_kernels_goes_on_without_them(programs: Programs, tmp_path: Path) -> None:
    """A checkpoint of the AdamW kernel can be loaded by torch's AdamW, also on more ranks."""
    log, options = tmp_path / "log", (*RECIPE, *ADAMW, "--checkpoint", tmp_path / "saved")
    train(programs.out(1, TRITON), 1, *options, "--steps", 3, "--schedule", "constant")
    train(programs.out(2), 2, *options, "--steps", 6, "--schedule", "constant", "--resume", "--log-file", log)
    whole = tmp_path / "whole"
    train(programs.out(1), 1, *RECIPE, *ADAMW, "--schedule", "constant", "--log-file", whole)
    assert losses(log) == pytest.approx(losses(whole)[3:], rel=1e-9)


def test_where_torch_s_kernel_counts_steps(programs: Programs) -> None:
    """torch's fused kernel reads a parameter's step count on the parameter's device. Other step
    counts are on the CPU.
    """
    import torch

    with modules(programs.out(1)) as (_, checkpoint, _):
        for fused, device in ((True, "meta"), (None, "cpu")):
            parameter = torch.nn.Parameter(torch.zeros(3, device="meta"))
            optimizer = torch.optim.AdamW([parameter])
            optimizer.param_groups[0]["fused"] = fused
            checkpoint.prepare(optimizer, "adamw")
            assert optimizer.state[parameter]["step"].device.type == device


def test_training_goes_on_with_another_number_of_ranks(programs: Programs, tmp_path: Path) -> None:
    """Data, dropout, learning rate and optimizer state continue: the losses are those of an uninterrupted run."""
    recipe = ("--lr", 0.01, "--schedule", "linear", "--steps", 8, "--clip", 1, "--seed", 5)
    whole, parted, saved = tmp_path / "whole", tmp_path / "parted", tmp_path / "saved"
    train(programs.out(1, p=0.2), 1, *recipe, "--log-file", whole)
    stopped = start(
        programs.out(2, p=0.2), 2, *recipe, "--log-file", tmp_path / "l", "--checkpoint", saved, "--save-every", 3
    )
    for process in stopped:
        process.communicate(timeout=120)
    (saved / "latest").write_text("step-00000003\n")
    parted.write_text("".join((tmp_path / "l").read_text().splitlines(keepends=True)[:3]))
    # The seed is the checkpoint's, despite the second run's option.
    train(programs.out(1, p=0.2), 1, *recipe, "--seed", 1, "--log-file", parted, "--checkpoint", saved, "--resume")
    assert losses(parted) == pytest.approx(losses(whole), abs=1e-5)
    assert len(losses(whole)) == 8 and sorted(os.listdir(saved)) == [
        ".lock",
        "latest",
        *(f"step-0000000{n}" for n in (3, 6, 8)),
    ]


@pytest.mark.parametrize(("ranks", "told", "number"), [(1, 0, signal.SIGINT), (2, 1, signal.SIGTERM)])
def test_a_signal_ends_every_rank_with_a_checkpoint(
    programs: Programs, tmp_path: Path, ranks: int, told: int, number: signal.Signals
) -> None:
    log = tmp_path / "log"
    processes = start(
        programs.out(ranks), ranks, "--steps", 10**6, "--checkpoint", tmp_path / "saved", "--log-file", log
    )
    wait_for(lambda: log.exists() and len(log.read_text().splitlines()) > 2, processes)
    processes[told].send_signal(number)
    texts = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [130] * ranks, texts
    assert not any("Traceback" in text for pair in texts for text in pair)
    last = json.loads(log.read_text().splitlines()[-1])["step"]
    assert (tmp_path / "saved" / "latest").read_text() == f"step-{last:08d}\n"
    assert f"stopped after step {last}" in texts[0][0]


def wait_for(condition: Callable[[], bool], processes: list[Started]) -> None:
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit and all(process.poll() is None for process in processes)
        time.sleep(0.05)


def test_another_number_of_ranks_is_refused(programs: Programs) -> None:
    (process,) = start(programs.out(2), 1)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 2 and "runs on 2 ranks, not 1" in error and "Traceback" not in error


def test_a_fault_is_told_in_one_line(programs: Programs) -> None:
    (process,) = start(programs.out(1), 1, "--data", "nowhere")
    _, error = process.communicate(timeout=60)
    assert process.returncode == 2
    assert error == "train.py: rank 0: --data nowhere: give synthetic, digits or package.module:function\n"


def test_a_data_function_that_is_not_there(programs: Programs) -> None:
    with modules(programs.out(1)) as (data, _, _):
        for name in ("os:nothing", "no_such_module:batches", "os:"):
            with pytest.raises(data.DataError, match=name):
                data.data_function(name)


def test_digits_are_learnt_from_a_data_function_of_the_users_too(programs: Programs, tmp_path: Path) -> None:
    hook = programs.folder / "mine.py"
    hook.write_text("def batches(*key):\n    from data import digits\n    return digits(*key)\n")
    told = train(programs.out(1), 1, "--data", "mine:batches", "--steps", 300, "--lr", 0.01)
    assert float(told.rsplit("test accuracy", 1)[1]) > 0.9


# ---------------------------------------------------------------------------------------------- data


@contextmanager
def modules(out: Path) -> Iterator[tuple[ModuleType, ModuleType, ModuleType]]:
    """data.py, checkpoint.py and train.py of a program, imported as parts of its package."""
    from importlib import import_module

    with load_program(out) as program:
        package = program.__name__.rpartition(".")[0]
        yield tuple(import_module(f"{package}.{name}") for name in ("data", "checkpoint", "train"))  # type: ignore[misc]


class Spec:
    def __init__(self, shape: tuple[int, ...], integer_range: int | None = None) -> None:
        self.shape, self.integer_range = shape, integer_range


def digits_inputs(rows: int) -> Mapping[str, Spec]:
    return {"pixels": Spec((rows, 8, 8)), "label": Spec((rows,), 10)}


def test_synthetic_data_depends_on_seed_and_step_alone(programs: Programs) -> None:
    with modules(programs.out(1)) as (data, _, _):
        inputs = {"x": Spec((3, 2)), "ids": Spec((500,), 7)}
        first = data.synthetic(inputs, 0, 4, "train")
        assert all((first[name] == data.synthetic(inputs, 0, 4, "train")[name]).all() for name in inputs)
        for other in ((1, 4, "train"), (0, 5, "train"), (0, 3, "test")):
            assert (first["x"] != data.synthetic(inputs, *other)["x"]).all()
        assert set(first["ids"].tolist()) == set(range(7))
        assert data.synthetic(inputs, 0, data.SYNTHETIC_TEST_BATCHES, "test") is None


def test_digits_are_passed_through_whole_and_never_leak(programs: Programs) -> None:
    import torch

    with modules(programs.out(1)) as (data, _, _):
        images, _, train_set, test_set = data._digits(0)
        assert not set(train_set.tolist()) & set(test_set.tolist())
        assert len(train_set) + len(test_set) == len(images) == 1797
        rows = 100
        places = torch.cat([data._positions(0, step * rows, rows, len(train_set)) for step in range(30)])
        for start in range(0, len(places) - len(train_set), len(train_set)):
            assert sorted(places[start : start + len(train_set)].tolist()) == list(range(len(train_set)))
        sizes = []
        while (batch := data.digits(digits_inputs(rows), 0, len(sizes), "test")) is not None:
            assert batch["pixels"].shape == (len(batch["label"]), 8, 8)
            sizes.append(len(batch["label"]))
        assert sum(sizes) == len(test_set) and sizes == [100, 100, 100, 59]
        with pytest.raises(data.DataError):
            data.digits({"x": Spec((4, 63)), "y": Spec((4,), 10)}, 0, 0, "train")


def test_accuracy_counts_every_row_once(programs: Programs) -> None:
    """The last, short batch is padded with copies. A model that is right only on the first rows
    shows if copies count.
    """
    import torch

    class Right(torch.nn.Module):
        device, dtype = torch.device("cpu"), torch.float32

        def forward(self, x: Any, target: Any) -> Any:
            right = torch.nn.functional.one_hot(target, 10).float()
            right[x[:, 0] == 0] = 0.0
            return torch.tensor(1.0), {"logits": right}

    def batches(inputs: Any, seed: int, step: int, split: str) -> Any:
        rows = (16, 5)[step] if step < 2 else None
        if rows is None:
            return None
        x = torch.zeros(rows, 64)
        x[: (16, 1)[step]] = 1.0
        return {"x": x, "target": torch.full((rows,), 9)}

    with modules(programs.out(1)) as (_, _, entry):
        loss, accuracy = entry.evaluate(Right(), batches, 0)
    assert loss == 1.0 and accuracy == 17 / 21


# ---------------------------------------------------------------------------------------------- checkpoints run nothing


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, ("touch trapped",))


def test_a_checkpoint_cannot_run_code(programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata

    monkeypatch.chdir(tmp_path)
    with modules(programs.out(1)) as (_, checkpoint, entry):
        model = entry.Model(None)
        optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
        checkpoint.prepare(optimizer, "sgd")
        progress = {"step": 1, "position": 1, "seed": 0, "optimizer": "sgd", "options": {"lr": 0.1}}
        folder = checkpoint.save(tmp_path, model, None, optimizer, progress)
        assert checkpoint.read_progress(folder) == progress
        checkpoint.compare(folder, progress, {"optimizer": "sgd"})
        with pytest.raises(checkpoint.CheckpointError, match="other optimizer: sgd, here adamw"):
            checkpoint.compare(folder, progress, {"optimizer": "adamw"})
        checkpoint.load(folder, model, None, optimizer)
        index = folder / ".metadata"
        metadata = pickle.loads(index.read_bytes())
        key = next(iter(metadata.state_dict_metadata))

        def refused(content: object) -> None:
            index.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content))
            files = [path for path in folder.iterdir() if path.name != checkpoint.MANIFEST]
            sums = {path.name: checkpoint._sum(path) for path in files}  # an attacker also writes the manifest
            (folder / checkpoint.MANIFEST).write_text(json.dumps(sums))
            with pytest.raises(checkpoint.CheckpointError) as caught:
                checkpoint.load(folder, model, None, optimizer)
            assert "damaged" not in str(caught.value)

        refused(Trap())
        refused(Metadata({"x": Trap()}))  # type: ignore[dict-item]
        refused({"x": 1})
        refused(b"")
        refused(b"garbage")
        changed = {**metadata.state_dict_metadata, key: BytesStorageMetadata()}
        refused(Metadata(changed, storage_data=metadata.storage_data))
        places = {place: type(info)("../../" + info.relative_path, *list(vars(info).values())[1:])
                  for place, info in metadata.storage_data.items()}  # fmt: skip
        refused(Metadata(metadata.state_dict_metadata, storage_data=places))
        refused(Metadata({name: found for name, found in metadata.state_dict_metadata.items() if name != key}))
    assert not (tmp_path / "trapped").exists()


AVERAGES = """
model averages[b = 4, d = 8]
  input x: f32[b, d]
  input target: f32[b, d]
  weight w: f32[d, d] ~ normal(0.3)
  weight gain: f32[d] ~ ones
  weight bias: f32[d] ~ zeros
  buffer mean: f32[d] ~ zeros
  buffer variance: f32[d] ~ ones
  buffer batches: f32[] ~ zeros
  y, new_mean, new_variance = batch_norm(linear(x, w), gain, bias, mean, variance; momentum=0.2)
  update mean = new_mean
  update variance = new_variance
  update batches = batches + 1
  loss mse(y * (1 + reduce_mean(mean[d] -> [])), target)
  output batches
"""


def test_buffers_go_on_from_a_checkpoint(tmp_path: Path) -> None:
    """The loss reads a running mean: a resumed run has the losses of an uninterrupted one. Each accumulated batch
    updates.
    """
    (tmp_path / "averages.udl").write_text(AVERAGES)
    request = Request(tmp_path / "averages.udl", devices=1)
    compilation = compile_model(request)
    out = tmp_path / "out"
    write_program(compilation.plan, compilation.library, compilation.sources, request, out)
    recipe = ("--lr", 0.05, "--optimizer", "sgd", "--seed", 2, "--dtype", "float64", "--accumulate", 2)
    whole, parted, saved = tmp_path / "whole", tmp_path / "parted", tmp_path / "saved"
    train(out, 1, *recipe, "--steps", 4, "--log-file", whole)
    train(out, 1, *recipe, "--steps", 2, "--log-file", parted, "--checkpoint", saved)
    train(out, 1, *recipe, "--steps", 4, "--log-file", parted, "--checkpoint", saved, "--resume")
    assert losses(parted) == pytest.approx(losses(whole), rel=1e-12)
    with load_program(out) as program:
        model = program.Model(dtype=torch_double())
        restore(saved / "step-00000004", model)
        assert model.batches.item() == 8


def torch_double() -> Any:
    import torch

    return torch.float64


def restore(folder: Path, model: Any) -> None:
    """Loads a checkpoint's buffers with torch's own reader."""
    import torch.distributed.checkpoint as dcp

    tensors = {f"buffers.{name}": buffer for name, buffer in model.named_buffers()}
    dcp.load(tensors, storage_reader=dcp.FileSystemReader(folder), no_dist=True)
