"""The benchmarks for GPUs run: at tiny sizes in Triton's interpreter; without a GPU they say so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from unity_dsl.resources import folder

BENCH = folder("examples").parent / "bench"


def run(program: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", ["gpu_kernels", "gpu_models"])
def test_without_a_gpu_nothing_is_measured(name: str) -> None:
    found = run(BENCH / f"{name}.py")
    told = "there is no GPU: nothing is measured (--cpu tries everything at tiny sizes)\n"
    assert (found.returncode, found.stdout, found.stderr) == (2, "", told)


def test_kernels_that_were_prepared_are_measured_elsewhere(tmp_path: Path) -> None:
    """The folder has all that is needed but torch and Triton: no package of ours, or of those that ours needs."""
    folder = tmp_path / "carried"
    assert run(BENCH / "gpu_kernels.py", "--prepare", folder, "--tiny").returncode == 0
    for package in ("unity_dsl", "lark", "jinja2", "z3"):
        (folder / f"{package}.py").write_text("raise ImportError('not on this machine')\n")
    families = ("dropout_residual_layer_norm", "rope", "causal_attention", "embedding_dropout")
    found = run(folder / "gpu_kernels.py", "--cpu", "--repetitions", 1, "--families", *families)
    assert found.returncode == 0, found.stderr
    lines = found.stdout.splitlines()
    rows = [[name, way] for name in families for way in ("forward", "backward")]
    assert [line.split()[:2] for line in lines[:-1]] == rows
    assert '"correct": true' in lines[-1]
