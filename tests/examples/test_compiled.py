"""Every example, compiled for one device, agrees with a module of torch.nn in loss, outputs and every gradient."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.sampling import of_the_day
from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.output_folder import write_program
from unity_dsl.emit.rank_comparison import load_program

from .agreement import EXAMPLES, error, noise_floor, path_of, run_reference

TOLERANCE = 1e-10
LARGE = ("inception_v3", "inception_v3_unity", "nasnet_a")
"""Examples of hundreds of operators: one of them a day."""
TODAY = [name for name in EXAMPLES if name not in LARGE or name in of_the_day(LARGE, 1)]


@pytest.mark.parametrize("name", TODAY)
def test_the_compiled_program_agrees_in_loss_outputs_and_every_gradient(name: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    request = Request(model=path_of(name), settings=EXAMPLES[name].settings, preset="small")
    compiled = compile_model(request)
    write_program(compiled.plan, compiled.library, compiled.sources, request, out)
    expected = run_reference(name, compiled.library)

    with load_program(out) as program:
        model = program.Model(None, dtype=torch.float64)
        model.load_global(expected.stored)
        loss, outputs = model(**expected.inputs)
        loss.backward()
        model.synchronise()
        gradients = {
            key: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            for key, parameter in model.named_parameters()
        }
        buffers = dict(model.named_buffers())

    assert abs(loss.item() - expected.loss) <= TOLERANCE * abs(expected.loss)
    assert set(outputs) == set(expected.outputs)
    for key, tensor in expected.outputs.items():
        assert error(outputs[key].detach(), tensor) <= TOLERANCE, key
    assert set(buffers) == set(expected.buffers)
    for key, tensor in (expected.buffers | expected.updated).items():
        assert error(buffers[key], tensor, 1e-3) <= TOLERANCE, key
    assert set(gradients) == set(expected.gradients)
    floor = noise_floor(expected.gradients)
    for key, tensor in expected.gradients.items():
        assert error(gradients[key], tensor, floor) <= TOLERANCE, key
