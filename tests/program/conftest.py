"""A fixture that compiles a model text into a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.output_folder import write_program

Compile = Callable[..., Path]


@pytest.fixture
def compile_program(tmp_path: Path) -> Compile:
    """`compile_program(text_or_path, devices=2, pins=[…])` compiles and writes a program, each call
    into a new folder.
    """
    count = 0

    def compile_into(model: str | Path, **choices: Any) -> Path:
        nonlocal count
        count += 1
        path = model
        if isinstance(model, str):
            path = tmp_path / f"model{count}.udl"
            path.write_text(model)
        request = Request(model=Path(path), **choices)
        compiled = compile_model(request)
        out = tmp_path / f"out{count}"
        write_program(compiled.plan, compiled.library, compiled.sources, request, out)
        return out

    return compile_into
