"""bench/gpu.py without a GPU: rehearses every phase at tiny sizes in Triton's interpreter, and writes kernels at full
sizes. It also reports missing packages.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from unity_dsl.resources import folder

BENCH = folder("examples").parent / "bench"
EVERYTHING = bool(os.environ.get("UNITY_EVERYTHING"))


def run(program: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_measured(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"tiny": false, "machine": "h200", "models": {}}')
    for file in ("gpu.py", "gpu_timing.py"):
        shutil.copy(BENCH / file, tmp_path / file)
    found = run(tmp_path / "gpu.py")
    told = "there is no GPU: nothing is measured (--cpu rehearses every phase at tiny sizes)\n"
    assert (found.returncode, found.stdout, found.stderr) == (2, "", told)


def test_every_phase_is_rehearsed(tmp_path: Path) -> None:
    """The folder has everything except torch, Triton, and the packages of a machine that has them."""
    models = () if EVERYTHING else ("--models", "dlrm", "llama3_8b")
    families = () if EVERYTHING else ("--families", "rope", "causal_attention", "embedding_dropout")
    made, out = tmp_path / "carried", tmp_path / "out"
    prepared = run(BENCH / "gpu.py", "--prepare", made, "--tiny", *models, *families)
    assert prepared.returncode == 0, prepared.stderr
    for package in ("z3", "pytoulbar2"):
        (made / "site" / f"{package}.py").write_text("raise ImportError('not on this machine')\n")
    found = run(made / "gpu.py", "--cpu", "--seconds", 3000, "--out", out)
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]
    assert found.stdout.splitlines()[-1] == "nothing failed"
    results = json.loads((out / "gpu.json").read_text())
    assert set(results) >= {"dlrm", "dlrm_compiled", "families", "curves", "profile", "ranks", "programs", "hardware"}
    assert results["llama3_8b"]["check"]["triton"]["correct"]
    assert results["llama3_8b"]["ways"].keys() == {"torch", "triton", "by_hand"}
    assert results["ranks"]["llama3_8b_expert_2"]["error"] < 1e-10
    assert (out / "measured.toml").exists()


def test_families_have_kernels_at_full_sizes(tmp_path: Path) -> None:
    prepared = run(BENCH / "gpu.py", "--prepare", tmp_path, "--models", "dlrm")
    assert prepared.returncode == 0, prepared.stderr
    families = json.loads((tmp_path / "manifest.json").read_text())["families"]
    assert not [record["reason"] for record in families.values() if "reason" in record]
    assert all((tmp_path / f"{name}.py").exists() for name in families)
