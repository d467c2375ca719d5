"""The result of `pip install`: the wheel, built from the source archive, works alone and away from the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("grammar", "ops", "rules", "codegen", "machines", "examples")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as for a release: the source archive first, the wheel from it."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment with the wheel and nothing else of this project."""
    place = tmp_path_factory.mktemp("environment") / "venv"
    venv.create(place, with_pip=False)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(place),
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        str(wheel),
    ]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return place


def unityc(installed: Path, folder: Path, *arguments: str) -> str:
    """Runs the installed command in a folder. Third-party packages come from this environment, our package must not."""
    environment = {**os.environ, "PYTHONPATH": sysconfig.get_paths()["purelib"]}
    command = [str(installed / "bin" / "unityc"), *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_carries_every_declarative_file(wheel: Path) -> None:
    carried = set(zipfile.ZipFile(wheel).namelist())
    for folder in FOLDERS:
        files = [path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        assert files
        assert {f"unity_dsl/data/{path.relative_to(ROOT).as_posix()}" for path in files} <= carried


def test_the_wheel_carries_the_package_and_nothing_else(wheel: Path) -> None:
    carried = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = [path for path in (ROOT / "unity_dsl").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    package = {path.relative_to(ROOT).as_posix() for path in files}
    assert {name for name in carried if not name.startswith("unity_dsl/data/")} == package


def test_the_wheel_asks_for_what_the_project_declares(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith("METADATA")]
    asked = {
        line.split(":", 1)[1].strip() for line in archive.read(name).decode().splitlines() if "Requires-Dist" in line
    }
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {text.replace(">", "<").split("<")[0].strip() for text in asked if "extra ==" not in text}
    assert names == {text.split(">")[0] for text in declared}
    needed = {"lark", "z3-solver", "jinja2", "numpy", "scipy", "torch", "triton", "click", "protobuf"}
    assert names == needed


def test_the_installed_command_compiles_a_shipped_example_from_another_folder(installed: Path, tmp_path: Path) -> None:
    examples = dict(line.split(maxsplit=1) for line in unityc(installed, tmp_path, "list", "examples").splitlines())
    (digits,) = [path for path in examples if path.endswith("digits.udl")]
    assert Path(digits).is_relative_to(installed), "the example must come from the wheel, not from the checkout"
    unityc(installed, tmp_path, digits, "-o", "out", "--devices", "2", "--machine", "local")
    assert {"model.py", "parallel.py", "train.py", "plan.json"} <= {path.name for path in (tmp_path / "out").iterdir()}


def test_the_installed_command_explains_an_operator(installed: Path, tmp_path: Path) -> None:
    assert "softmax" in unityc(installed, tmp_path, "explain", "softmax")
    assert unityc(installed, tmp_path, "--version").startswith("unityc ")


def test_the_installed_command_imports_a_module_and_checks_its_program(installed: Path, tmp_path: Path) -> None:
    example = (ROOT / "docs" / "notebook" / "my_model.py").read_text()
    (tmp_path / "my_model.py").write_text(example)
    assert "from the module in float64" in unityc(installed, tmp_path, "import", "my_model:tiny", "-o", "imported")
    unityc(installed, tmp_path, "imported/tiny.udl", "-o", "out", "--devices", "2", "--set", "width=16")
    assert "equals its model" in unityc(installed, tmp_path, "check", "out", "--data", "imported.data:batches")
