"""kernels.py as a module: without Triton its functions are torch's, next to helper functions of the kernels."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.output_folder import render_program
from unity_dsl.emit.plan_file import TRITON
from unity_dsl.resources import folder


@pytest.mark.parametrize("example", ["gpt2", "candle_uno", "dlrm"])
def test_every_name_is_defined_once(example: str) -> None:
    """A helper with the name of a torch function would replace it. The helper of dropout's numbers once did."""
    model = folder("examples") / f"{example}.udl"
    request = Request(model, preset="small", machine="dgx-h100", devices=1, strategy="single", kernels=TRITON)
    found = compile_model(request)
    module = ast.parse(render_program(found.plan, found.library, found.sources, request)["kernels.py"])
    names = [node.name for node in module.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    assert names
    assert [name for name, times in Counter(names).items() if times > 1] == []
