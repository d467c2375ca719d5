"""Random numbers of kernels equal those of the torch text, with counters passed as numbers or in memory."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from unity_dsl.emit.templates import template

KERNEL = """from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

{triton}

{functions}

@kernel(do_not_specialize=["seed", "step", "site", "first_position"])
def draw(result_ptr, seed, step, site, first_position, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    position = place.to(tl.int64) if WIDE else place
    tl.store(result_ptr + place, uniform_numbers(position, first_position, seed, step, site, tl.float32))


{by_torch}
"""
COMPILED = """
import sys
sys.path.insert(0, sys.argv[1])
import drawn
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

for word, first in (("i32", "i32"), ("*i64", "i32"), ("*i64", "*i64"), ("i64", "i64")):
    signature = {"result_ptr": "*fp32", "seed": word, "step": word, "site": "i32", "first_position": first}
    signature |= {"WIDE": "constexpr", "BLOCK": "constexpr"}
    source = ASTSource(drawn.draw, signature, {"WIDE": False, "BLOCK": 128})
    print(len(triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]) > 0)
"""
SEED, STEP, SITE = 2**40 + 5, 7, 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("random")
    texts = {
        "triton": template("triton_or_none.py.j2").render(),
        "functions": template("element_functions.triton.j2").render(functions={"uniform_numbers"}),
        "by_torch": template("uniform.py.j2").render(division=None),
    }
    (folder / "drawn.py").write_text(KERNEL.format(**texts))
    return folder


@pytest.fixture(scope="module")
def drawn(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("drawn", folder / "drawn.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("first", [0, 2**31 - 64, 2**31, 2**32 - 64, 2**32, 2**35 + 1])
@pytest.mark.parametrize("wide", [False, True])
def test_numbers_are_those_of_torch(drawn: Any, first: int, wide: bool) -> None:
    """Also for positions that exceed 31 or 32 bits."""
    positions = torch.arange(128) + first
    wanted = drawn.uniform(positions, torch.tensor(SEED), torch.tensor(STEP), SITE)
    for words in ((SEED, STEP, SITE, first), (torch.tensor(SEED), torch.tensor(STEP), SITE, torch.tensor(first))):
        found = torch.empty(128)
        drawn.draw[(1,)](found, *words, WIDE=wide, BLOCK=128)
        torch.testing.assert_close(found.double(), wanted, rtol=0, atol=0)


def test_counters_in_memory_compile(folder: Path) -> None:
    """Runs in a separate process, because Triton compiles nothing after other tests have turned on its interpreter."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", COMPILED, str(folder)]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert run.stdout == "True\n" * 4, run.stderr
