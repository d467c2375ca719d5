"""Speed reports of a run, traces, compiled steps, data of which each rank reads its part, and
asynchronous checkpoints.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.output_folder import write_program
from unity_dsl.emit.rank_comparison import load_program

from .started import start
from .test_train_files import MODEL, RECIPE, Programs, losses, modules, train, wait_for


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return Programs(tmp_path_factory.mktemp("loop"))


# ---------------------------------------------------------------------------------------------- speed


@pytest.mark.parametrize("ranks", [1, 2])
def test_speed_and_utilisation(programs: Programs, tmp_path: Path, ranks: int) -> None:
    """Per second of a step: its 32 samples, and its matrix-product flops relative to the peak of
    all `local` devices.
    """
    log = tmp_path / "log"
    options = ("--steps", 7, "--log-every", 3, "--accumulate", 2, "--log-file", log)
    processes = start(programs.out(ranks), ranks, *options)
    shown, *_ = (process.communicate(timeout=120)[1] for process in processes)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 8))
    flops = 2 * 2 * 16 * 32 * (2 * 64 + 3 * 10)  # for two batches; x needs no gradient
    for line in lines:
        assert line["samples_per_second"] == pytest.approx(32 / line["seconds"])
        assert line["utilisation"] == pytest.approx(flops / 30e9 / ranks / line["seconds"], rel=1e-5)
        assert "peak_memory" not in line  # there is no GPU
    assert len({line["seconds"] for line in lines[1:3]}) == 1  # read together
    told = [line.partition("/")[0] for line in shown.splitlines()]
    assert told == ["step 1", "step 3", "step 6", "step 7"]
    assert "samples/s  MFU " in shown and " of local (" in shown and "tokens" not in shown


def test_a_type_of_its_own_has_its_own_peak(programs: Programs, tmp_path: Path) -> None:
    log = tmp_path / "log"
    train(programs.out(1), 1, "--steps", 1, "--dtype", "float64", "--log-file", log)
    (line,) = map(json.loads, log.read_text().splitlines())
    assert line["utilisation"] == pytest.approx(2 * 16 * 32 * (2 * 64 + 3 * 10) / 15e9 / line["seconds"], rel=1e-5)


# ---------------------------------------------------------------------------------------------- traces, compiled steps


def test_every_rank_writes_a_trace(programs: Programs, tmp_path: Path) -> None:
    train(programs.out(2), 2, "--steps", 9, "--profile", tmp_path / "traces")
    for rank in range(2):
        events = json.loads((tmp_path / "traces" / f"rank-{rank}.json").read_text())["traceEvents"]
        steps = sorted(event["name"] for event in events if str(event.get("name")).startswith("ProfilerStep#"))
        assert sorted(set(steps)) == ["ProfilerStep#5", "ProfilerStep#6", "ProfilerStep#7"]
        assert any("addmm" in str(event.get("name")) or "linear" in str(event.get("name")) for event in events)


def test_a_trace_needs_eight_steps(programs: Programs, tmp_path: Path) -> None:
    (process,) = start(programs.out(1), 1, "--steps", 7, "--profile", tmp_path / "traces")
    _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (2, "train.py: rank 0: --profile takes 8 steps, 7 are left\n")


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_compiled_run_is_the_run(programs: Programs, tmp_path: Path, ranks: int) -> None:
    """The step must compile as one graph: a graph break is an error."""
    plain, compiled = tmp_path / "plain", tmp_path / "compiled"
    train(programs.out(ranks), ranks, *RECIPE, "--log-file", plain)
    train(programs.out(ranks), ranks, *RECIPE, "--log-file", compiled, "--compile", "aot_eager")
    assert losses(compiled) == pytest.approx(losses(plain), rel=1e-12)


def test_the_backward_of_a_compiled_step_has_one_cotangent(programs: Programs) -> None:
    """Only the loss has a gradient. For outputs, which a run does not keep, the backward pass would read zeros of their
    size.
    """
    import argparse

    import torch
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import default_partition

    cotangents: list[str] = []

    def forward(graph: Any, inputs: Any) -> Any:
        return make_boxed_func(graph)

    def backward(graph: Any, inputs: Any) -> Any:
        cotangents.extend(node.name for node in graph.graph.nodes if node.name.startswith("tangents"))
        return make_boxed_func(graph)

    backend = aot_autograd(fw_compiler=forward, bw_compiler=backward, partition_fn=default_partition)
    with load_program(programs.out(1)) as module, modules(programs.out(1)) as (data, _, entry):
        model = module.Model(dtype=torch.float64)
        model.initialise(0)
        batch = data.synthetic(module.INPUTS, 0, 0, "train")
        entry.loss_function(model, argparse.Namespace(compile=backend))(**batch).backward()
        compiled = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        model(**batch)[0].backward()
    assert cotangents == ["tangents_1"]
    torch.testing.assert_close(compiled, [p.grad for p in model.parameters()], rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------------------------------------- CUDA graphs

GATED = """
model gated[b = 4, d = 4]
  input x: f32[b, d]
  input gate: int<2>[]
  weight w: f32[d, d] ~ normal(0.5)
  cond gate as skip
    x = linear(x, w)
  loss mse(linear(x, w), x)
"""


def test_cuda_graphs_need_a_gpu(programs: Programs) -> None:
    (process,) = start(programs.out(1), 1, "--cuda-graphs", "--device", "cpu")
    _, error = process.communicate(timeout=60)
    told = "train.py: rank 0: --cuda-graphs needs a GPU, and this run is on the CPU\n"
    assert (process.returncode, error) == (2, told)


@pytest.mark.parametrize(
    ("choices", "reason"),
    [
        ({"devices": 2, "strategy": "data_parallel"}, "this program has collectives"),
        ({"model": GATED}, "a cond of this program decides by the data"),
    ],
)
def test_programs_of_which_no_graphs_are_made(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    choices: dict[str, Any],
    reason: str,
) -> None:
    source = tmp_path / "model.udl"
    source.write_text(choices.pop("model", MODEL).lstrip())
    request = Request(source, **choices)
    compilation = compile_model(request)
    write_program(compilation.plan, compilation.library, compilation.sources, request, tmp_path / "out")
    monkeypatch.setattr(sys, "argv", ["train.py", "--cuda-graphs"])
    with modules(tmp_path / "out") as (_, _, entry), pytest.raises(SystemExit) as caught:
        entry.arguments()
    assert caught.value.code == 2 and f"--cuda-graphs: {reason}" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------- each rank its part

HOOK = """
import os
from pathlib import Path
import torch
from data import synthetic

def asked(inputs, seed, step, split, rows=None):
    with open(Path(__file__).parent / f"asked_{os.environ['RANK']}", "a") as file:
        print(split, step, None if rows is None else rows.tolist(), file=file)
    return synthetic(inputs, seed, step, split, rows)

def wrong(inputs, seed, step, split, rows=None):
    found = synthetic(inputs, seed, step, split, rows)
    return {name: tensor.flip(0) if rows is not None else tensor for name, tensor in found.items()}
"""


def test_each_rank_reads_its_own_rows(programs: Programs, tmp_path: Path) -> None:
    """Except for the first batch, with which ranks compare their data. The losses are those of whole batches."""
    (programs.folder / "rows.py").write_text(HOOK)
    train(programs.out(2), 2, *RECIPE, "--data", "rows:asked", "--log-file", tmp_path / "log")
    train(programs.out(1), 1, *RECIPE, "--log-file", tmp_path / "one")
    assert losses(tmp_path / "log") == pytest.approx(losses(tmp_path / "one"), rel=1e-9)
    for rank in range(2):
        own = list(range(8 * rank, 8 * rank + 8))
        lines = (programs.folder / f"asked_{rank}").read_text().splitlines()
        read = [line for line in lines if line.startswith("train")]
        assert read == ["train 0 None", f"train 0 {own}", *(f"train {step} {own}" for step in range(12))]


def test_rows_that_are_not_those_of_the_batch_are_told(programs: Programs) -> None:
    (programs.folder / "rows.py").write_text(HOOK)
    for process in start(programs.out(2), 2, "--data", "rows:wrong", "--steps", 3):
        _, error = process.communicate(timeout=60)
        assert process.returncode == 2 and "other rows of x if asked for some of them" in error


PARTED = """
model parted[b = 8, s = 4, d = 4, words = 9]
  input tokens: int<words>[b, s]
  input target: int<words>[b, s]
  weight table: f32[words, d] ~ normal(0.5)
  weight w: f32[words, d] ~ normal(0.5)
  logits = linear(embedding(tokens, table), w)
  loss cross_entropy(logits, target)
  output logits
"""


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_parts_of_inputs_are_those_of_the_whole_batch(tmp_path: Path, micro_batches: int) -> None:
    """Along two mesh axes, and for each micro-batch. The losses are those of one device."""
    (tmp_path / "parted.udl").write_text(PARTED)
    found = []
    for ranks, mesh, count in ((1, None, 1), (4, (2, 2), micro_batches)):
        choices: dict[str, Any] = {"mesh": mesh, "micro_batches": count, "strategy": "data_parallel"}
        request = Request(tmp_path / "parted.udl", devices=ranks, **choices)
        compiled = compile_model(request)
        out = tmp_path / f"out_{ranks}"
        write_program(compiled.plan, compiled.library, compiled.sources, request, out)
        log = tmp_path / f"log_{ranks}"
        train(out, ranks, *RECIPE, "--log-file", log)
        found.append(losses(log))
    assert "PARTS: dict" in (tmp_path / "out_4" / "model.py").read_text()
    assert found[1] == pytest.approx(found[0], rel=1e-9)
    line = json.loads((tmp_path / "log_4").read_text().splitlines()[-1])
    assert line["tokens_per_second"] == pytest.approx(2 * 32 / line["seconds"])


# ---------------------------------------------------------------------------------------------- checkpoints


def test_training_goes_on_while_a_checkpoint_is_written(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the values at its start, and becomes visible only when it is complete."""
    import torch

    with modules(programs.out(1)) as (_, checkpoint, entry):
        model = entry.Model(None)
        model.initialise(0)
        expected = model.w1.detach().clone()
        optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
        checkpoint.prepare(optimizer, "sgd")
        begun, goes_on, save = threading.Event(), threading.Event(), checkpoint.dcp.save

        def held(*given: Any, **named: Any) -> Any:
            begun.set()
            assert goes_on.wait(60)
            return save(*given, **named)

        monkeypatch.setattr(checkpoint.dcp, "save", held)
        saver = checkpoint.Saver(tmp_path, None)
        saver.begin(model, optimizer, {"step": 1, "position": 1, "seed": 0, "options": {}})
        assert begun.wait(60) and saver.written() is None
        assert not list(tmp_path.glob("step-*")) and not (tmp_path / "latest").exists()
        with torch.no_grad():
            model.w1.fill_(7.0)
        goes_on.set()
        folder = saver.finish()
        assert folder == tmp_path / "step-00000001" and saver.written() is None
        monkeypatch.undo()
        checkpoint.load(folder, model, None, optimizer)
        assert torch.equal(model.w1, expected)


def test_a_checkpoint_that_cannot_be_written_is_told_when_it_is_waited_for(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    with modules(programs.out(1)) as (_, checkpoint, entry):
        model = entry.Model(None)
        optimizer = torch.optim.SGD(model.parameters())

        def full(*given: Any, **named: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(checkpoint.dcp, "save", full)
        saver = checkpoint.Saver(tmp_path, None)
        saver.begin(model, optimizer, {"step": 1})
        with pytest.raises(checkpoint.CheckpointError, match=r"cannot write .*step-00000001: .*No space left"):
            saver.finish()
        assert not list(tmp_path.glob("step-*"))


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_killed_run_leaves_whole_checkpoints_alone(programs: Programs, tmp_path: Path, ranks: int) -> None:
    """Killed while it writes a checkpoint in every step. Every named checkpoint is complete, and the run resumes."""
    saved = tmp_path / "saved"
    options = ("--checkpoint", saved, "--save-every", 1, "--steps", 10**6)
    processes = start(programs.out(ranks), ranks, *options)
    wait_for(lambda: len(list(saved.glob("step-*"))) > 3, processes)
    for process in processes:
        process.send_signal(signal.SIGKILL)
    for process in processes:
        process.process.join(60)
    with modules(programs.out(ranks)) as (_, checkpoint, _):
        for folder in saved.glob("step-*"):
            checkpoint.verify(folder, None)
        step = checkpoint.read_progress(checkpoint.find(saved))["step"]
    told = train(programs.out(ranks), ranks, "--checkpoint", saved, "--resume", "--steps", step + 1)
    assert told.splitlines()[0] == f"resumed {saved}/step-{step:08d}: {step} of {step + 1} steps are done"
    assert not list(saved.glob(".*.part"))


SCALAR = """
model scalar[b = 4, d = 4]
  input x: f32[b, d]
  input target: f32[b, d]
  weight w: f32[d, d] ~ normal(0.3)
  weight scale: f32[] ~ ones
  loss mse(linear(x, w) * scale, target)
"""


def test_a_parameter_without_dimensions_is_copied_too(tmp_path: Path) -> None:
    """On two ranks, while later steps change the parameter."""
    (tmp_path / "scalar.udl").write_text(SCALAR)
    request = Request(tmp_path / "scalar.udl", devices=2, strategy="data_parallel")
    compiled = compile_model(request)
    write_program(compiled.plan, compiled.library, compiled.sources, request, tmp_path / "out")
    recipe = ("--lr", 0.1, "--optimizer", "sgd", "--dtype", "float64")
    whole, parted, saved = (tmp_path / name for name in ("whole", "parted", "saved"))
    train(tmp_path / "out", 2, *recipe, "--steps", 6, "--log-file", whole, "--checkpoint", saved, "--save-every", 3)
    (saved / "latest").write_text("step-00000003\n")
    train(tmp_path / "out", 2, "--log-file", parted, "--checkpoint", saved, "--resume")
    assert losses(parted) == pytest.approx(losses(whole)[3:], rel=1e-12)
