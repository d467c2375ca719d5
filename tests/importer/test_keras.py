"""Keras models and the models imported from them, against Keras itself in float64."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

import unity_dsl as u
from unity_dsl.cli import run
from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.output_folder import write_program
from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.importer.keras_models import torch_for_keras
from unity_dsl.importer.model_import import import_module

FACTORY = f"{__package__}.keras_factories:"
RATE = 0.5
keras: Any
factories: Any


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """Imports Keras only when a test needs it. This takes seconds, which a process that only collects tests need not
    spend.
    """
    global keras, factories
    with torch_for_keras():
        keras = pytest.importorskip("keras", reason="the package keras is not installed")
    if keras.backend.backend() != "torch":
        pytest.skip("Keras runs on another backend than torch")
    factories = importlib.import_module(f"{__package__}.keras_factories")


@pytest.fixture(autouse=True)
def numbered_anew(loaded: None) -> None:
    keras.utils.clear_session()


class Unrounded(TorchFunctionMode):
    """Keeps float64 where Keras converts to float32, in means and in quotients with a Python number."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = {key: torch.float64 if part is torch.float32 else part for key, part in (kwargs or {}).items()}
        return func(*(torch.float64 if part is torch.float32 else part for part in args), **named)


@pytest.fixture
def in_double() -> Iterator[None]:
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")


WHAT_THEY_SAY = {
    "perceptron": ("repeat 3 as layers  #", "dropout(", "cross_entropy(dense_3, y)"),
    "images": ("batch_norm(", "/ (64 * b))", "nll("),
    "transformer": ("repeat 2 as layers  #", "causal_attention(", "rms_norm(", "input x: int<16>[b, 6]"),
    "reader": ("repeat 2 as blocks  #", "dropout(", "masked_fill("),
    "sequence": ("lstm_layer_unbiased[d=4]", "gru_layer[d=4]", "row_dropout("),
    "several": ("buffer frozen_kernel:", "input x_first: f32[b, 4]", "input sample_weight: f32[b]"),
    "huber": ("is_above(",),
    "mixed": ("weight head_weight:", "weight body_inner_kernel:", "batch_norm("),
}


@pytest.mark.parametrize("name", ["perceptron", "images", "transformer"])
def test_a_step_of_training_is_that_of_keras(name: str, tmp_path: Path, in_double: None) -> None:
    """Loss, gradients and running statistics, by Keras's paths, equal those of Keras alone in float64. Checks the text
    too.
    """
    found = import_module(FACTORY + name, name, verified=False, sizes=False)
    text, weights = found.files[f"{name}.udl"], json.loads(found.files["weights.json"])
    assert all(words in text for words in WHAT_THEY_SAY[name])
    keras.utils.clear_session()
    model, examples = factories.perceptron(0.0) if name == "perceptron" else getattr(factories, name)()
    x, y = (torch.from_numpy(part) for part in (examples.values() if isinstance(examples, dict) else examples))
    assert sorted(weights.values()) == sorted(variable.path for variable in model.weights), "each once, and no seeds"
    path = tmp_path / f"{name}.udl"
    path.write_text(text.replace("; p=0.2)", "; p=0)"))
    request = Request(path, strategy="single")
    compilation = compile_model(request)
    write_program(compilation.plan, compilation.library, compilation.sources, request, tmp_path / "out", True)
    inputs = found.prepare(dict(zip(found.captured.inputs, (x, y), strict=True)))
    with load_program(tmp_path / "out") as program:
        made = program.Model(None, dtype=torch.float64)
        states = {variable.path: variable.value.detach().clone() for variable in model.weights}
        made.load_global({key: states[state] for key, state in weights.items()})
        made.train()
        loss, _ = made(**{key: part.double() if part.is_floating_point() else part for key, part in inputs.items()})
        loss.backward()
    with Unrounded():
        expected = model.compute_loss(x=x, y=y, y_pred=model(x, training=True))
        expected.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-13, atol=0)
    theirs = {variable.path: variable.value for variable in model.weights}
    for key, weight in made.named_parameters():
        torch.testing.assert_close(weight.grad, theirs[weights[key]].grad, rtol=1e-10, atol=1e-11)
    for key, buffer in made.named_buffers():
        if key in weights:
            torch.testing.assert_close(buffer, theirs[weights[key]].detach(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["reader", "sequence", "several", "huber", "mixed"])
def test_a_model_equals_its_keras_model(name: str) -> None:
    """Loss and gradients in float64, as the command compares them, and the text."""
    found = import_module(FACTORY + name, name, sizes=False)
    assert found.verified is not None and found.verified.loss < 1e-12 and found.verified.gradient < 1e-10
    assert [words for words in WHAT_THEY_SAY[name] if words not in found.files[f"{name}.udl"]] == []


def test_its_program_on_two_ranks_equals_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Running statistics are over the whole batch, whose size differs from that of the examples."""
    out, program = tmp_path / "imported", str(tmp_path / "program")
    assert run(["import", f"{FACTORY}images", "-o", str(out)]) == 0
    assert "from the module in float64" in capsys.readouterr().out
    options = ["--devices", "2", "--strategy", "data_parallel", "--set", "b=8"]
    assert run([str(out / "images.udl"), "-o", program, *options]) == 0
    assert run(["check", program]) == 0


def test_a_keras_model_is_made_parallel() -> None:
    """It trains as in Keras, and its state has Keras's paths."""
    model, examples = factories.images()
    plan, parallel = u.parallelize(model, examples, verify=False)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=RATE)
    model.compile(optimizer=keras.optimizers.SGD(RATE), loss=model.loss)
    batch = {key: torch.from_numpy(part) for key, part in examples.items()}
    for _ in range(3):
        loss, outputs = parallel(**batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.reset_metrics()
        assert abs(float(loss.detach()) - float(model.train_on_batch(*examples.values()))) < 1e-5
    assert plan.mesh == {} and outputs.shape == (4, 4)
    states = parallel.state_dict()
    for variable in model.weights:
        torch.testing.assert_close(states[variable.path], variable.value.detach(), rtol=1e-4, atol=1e-5)


BAD = {
    "without_a_loss": "E604",
    "without_labels": "lack `y`",
    "other_names": "not tokens",
    "torch_inside": "a module of torch inside, `torch_module_wrapper`",
}


@pytest.mark.parametrize(("name", "told"), BAD.items())
def test_bad_factories_are_told(name: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", FACTORY + name, "-o", str(tmp_path / "out")]) == 2
    assert told in capsys.readouterr().err and not (tmp_path / "out").exists()


@pytest.mark.parametrize("fault", ["backend", "package"])
def test_what_the_environment_lacks_is_told(fault: str, tmp_path: Path) -> None:
    """Another backend is selected, with Keras installed or not, or there is no Keras at all."""
    (tmp_path / "mine.py").write_text("import keras\n\n\ndef factory():\n    return None\n")
    environment = {**os.environ, "KERAS_BACKEND": "numpy" if fault == "backend" else ""}
    if fault == "package":
        (tmp_path / "keras.py").write_text("raise ModuleNotFoundError('no keras', name='keras')\n")
    command = [sys.executable, "-m", "unity_dsl", "import", "mine:factory", "-o", "out"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and not (tmp_path / "out").exists()
    assert {"backend": "set KERAS_BACKEND=torch", "package": "unity-dsl[keras]"}[fault] in done.stderr
