"""safetensors files: a program starts from a module's weights and exports its own for the module to load."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.emit.started import start
from unity_dsl.cli import run
from unity_dsl.importer.prepared_inputs import prepare_of

from . import modules

safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
FACTORY = f"{modules.__name__}:language_model"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An imported model, its programs for one and two ranks, and files of a module's weights. The files hold one of two
    tied weights, as libraries write them.
    """
    path = tmp_path_factory.mktemp("weights")
    assert run(["import", FACTORY, "-o", str(path / "lm"), "--no-sizes"]) == 0
    for ranks, strategy in ((1, "single"), (2, "random:3")):
        model = str(path / "lm" / "language_model.udl")
        out = ["-o", str(path / f"on_{ranks}"), "--devices", str(ranks), "--strategy", strategy]
        assert run([model, *out, "--precision", "f32"]) == 0
    states = other_module().state_dict()
    del states["wte.weight"]
    (path / "given").mkdir()
    half = len(states) // 2
    for number, names in enumerate((list(states)[:half], list(states)[half:])):
        parts = {name: states[name].clone() for name in names}
        safetensors.save_file(parts | {f"more_{number}": torch.zeros(2)}, path / "given" / f"part-{number}.safetensors")
    return path


def other_module() -> torch.nn.Module:
    torch.manual_seed(5)
    return modules.LanguageModel()


def trained(folder: Path, ranks: int, *arguments: object) -> tuple[list[int | None], str, str]:
    data = ("--data", "lm.data:batches", "--names", folder / "lm" / "weights.json")
    processes = start(folder / f"on_{ranks}", ranks, *data, *arguments)
    texts = [process.communicate(timeout=120) for process in processes]
    return [process.returncode for process in processes], texts[0][0], texts[0][1]


def test_weights_come_from_files_and_go_to_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training on two ranks in between equals that of the module in torch. A run on one rank starts from the exported
    weights.
    """
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{Path.cwd()}")
    recipe = ("--steps", 3, "--optimizer", "sgd", "--lr", 0.3, "--seed", 2)
    codes, out, err = trained(folder, 2, "--init", folder / "given", "--export", folder / "trained", *recipe)
    assert codes == [0, 0], err
    assert "not used: more_0, more_1" in out and f"exported the weights to {folder / 'trained'}" in out
    names: dict[str, object] = {}
    exec((folder / "lm" / "data.py").read_text(), names)
    draw = names["random_batch"]
    module = other_module()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.3, momentum=0.9)
    for step in range(3):
        loss, _ = module(**draw(2, 2000 + step))  # type: ignore[operator]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found = {}
    for file in (folder / "trained").glob("*.safetensors"):
        found |= safetensors.load_file(file)
    expected = module.state_dict()
    assert set(found) == set(expected)
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=2e-5)
    codes, out, err = trained(folder, 1, "--init", folder / "trained", "--steps", 0)
    assert codes == [0] and "begun with the weights" in out, err
    with torch.no_grad():
        losses = [float(module(**draw(2, 1_000_000 + step))[0]) for step in range(4)]  # type: ignore[operator]
    assert float(out.split("test loss ")[1].split()[0]) == pytest.approx(sum(losses) / 4, abs=2e-4)


def test_names_are_asked_for_where_files_have_others(folder: Path) -> None:
    (process,) = start(folder / "on_1", 1, "--init", folder / "given", "--steps", 0)
    assert "--names tells what tensors are called there" in process.communicate(timeout=60)[1]


def test_every_name_of_a_tied_weight_is_told(folder: Path) -> None:
    names = json.loads((folder / "lm" / "weights.json").read_text())
    assert sorted(names["lm_head_weight"]) == ["lm_head.weight", "wte.weight"]
    assert names["blocks.2.attn_c_attn_bias_k"] == {
        "of": "blocks.2.attn.c_attn.bias",
        "dim": 0,
        "start": 32,
        "stop": 64,
    }
    others = [name for key, name in names.items() if key != "lm_head_weight" and "c_attn" not in key]
    assert all(isinstance(name, str) for name in others)
    assert prepare_of((folder / "lm" / "data.py").read_text(), {})


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (("--init", "nowhere"), "no checkpoint"),
        (("--init", "lacking"), "no wpe.weight"),
        (("--init", "larger"), "shape"),
        (("--init", "broken"), "cannot read"),
        (("--init", "given", "--resume", "--checkpoint", "saved"), "--init begins a run"),
        (("--init", "given", "--export", "given"), "export to another folder"),
        (("--init", "given", "--names", "given/part-0.safetensors"), "no table of names"),
    ],
)
def test_faults_of_files_are_told_in_one_line(
    folder: Path, fault: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{Path.cwd()}")
    states = other_module().state_dict()
    states["wte.weight"] = states["wte.weight"].clone()
    for name, parts in (
        ("lacking", {key: tensor for key, tensor in states.items() if key != "wpe.weight"}),
        ("larger", states | {"wpe.weight": torch.zeros(17, 32)}),
    ):
        (folder / name).mkdir(exist_ok=True)
        safetensors.save_file(parts, folder / name / "model.safetensors")
    (folder / "broken").mkdir(exist_ok=True)
    (folder / "broken" / "model.safetensors").write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{}")
    words = [str(folder / word) if not word.startswith("--") else word for word in fault]
    codes, _, err = trained(folder, 1, *words, "--steps", 1)
    assert codes == [2] and told in err and "Traceback" not in err, err
