"""Kernels compiled ahead of time for GPUs that need not be present."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.sampling import of_the_day
from unity_dsl.resources import folder

BENCH = folder("examples").parent / "bench" / "compile_kernels.py"


@pytest.mark.parametrize("example", of_the_day(["gpt2", "dlrm"], 1))
def test_kernels_compile_for_three_targets_and_spill_nothing(example: str) -> None:
    """Runs in a separate process, because Triton compiles nothing after other tests have turned on its interpreter."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(BENCH), "--examples", example, "--preset", "small", "--dry-run"]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stderr
    for target in ("sm_80", "sm_90", "gfx942"):
        (line,) = re.findall(rf"^{target}: (\d+) kernels, (\d+) spilling", run.stdout, re.MULTILINE)
        assert int(line[0]) > 0 and int(line[1]) == 0, run.stdout
