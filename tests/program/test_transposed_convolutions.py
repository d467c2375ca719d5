"""Programs with transposed convolutions, shipped and user-declared: their calls, plans and sharding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.cases import Drawn, errors_of, write
from tests.fuzz.plans import random_plan
from tests.sampling import SAMPLE
from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.plan_file import TRITON
from unity_dsl.emit.program_check import TOLERANCE, check
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.graph.layout import Mesh, MeshAxis
from unity_dsl.graph.model_graph import build_model
from unity_dsl.graph.precision import arithmetic
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.span import Source

Compile = Callable[..., Path]

OWN = """\
op conv_transpose2d(x: [n, i, h, w], k: [i, o, r, s]; stride = 1, pad = 0) -> y: [n, o, p, q]
  where p == (h - 1) * stride - 2 * pad + r, q == (w - 1) * stride - 2 * pad + s
  y[n, o, p, q] = sum(i, h, w, r, s) [p + pad == h * stride + r] * [q + pad == w * stride + s] * (
      x[n, i, h, w] * k[i, o, r, s]
  )

op upsample(x: [n, c, h, w]; by) -> y: [n, c, (h a), (w b)]
  where a == by, b == by
  y[n, c, h, a, w, b] = x[n, c, h, w]
"""
DECODER = """\
## Two stages of a decoder: one of transposed convolutions, whose names and kernels are filled in.
block up[inputs, outputs](x)
  weight w: f32[{shape}] ~ kaiming_uniform
  return relu({call})

model decoder[b = 8, c = 16, size = 6]
  preset large: b = 128, c = 512, size = 32
  {precision}
  input x: f32[b, c, size, size]
  input target: f32[b, c // 4, 4 * size, 4 * size]
  middle = up[inputs=c, outputs=c // 2](x)
  y = up[inputs=c // 2, outputs=c // 4](middle)
  loss mse(y, target)
"""
TRANSPOSED = "inputs, outputs, 4, 4"
SHIPPED = "conv_transpose2d(x, w; stride=2, pad_h=1, pad_w=1)"
DECLARED = "conv_transpose2d(x, w; stride=2, pad=1)"


def text(call: str, shape: str = TRANSPOSED, precision: str = "") -> str:
    found = DECODER.format(shape=shape, call=call, precision=precision)
    return "".join(line for line in found.splitlines(keepends=True) if line.strip() or line == "\n")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.uop"
    path.write_text(OWN)
    return path


def test_a_user_s_declaration_of_a_shipped_name_is_taken_and_becomes_the_same_call(
    own: Path, compile_program: Compile, pool: RankPool
) -> None:
    programs = [
        compile_program(text(SHIPPED), devices=1),
        compile_program(text(DECLARED), devices=1, operators=[own]),
    ]
    for out in programs:
        written = (out / "model.py").read_text()
        assert written.count("F.conv_transpose2d(") == 2 and "einsum" not in written
    for out in programs:
        report = check(out, pool=pool)
        assert report.ok, report


@pytest.mark.parametrize("declared", [False, True], ids=["shipped", "declared"])
@pytest.mark.parametrize("case", range(SAMPLE * 4, SAMPLE * 4 + 4))
def test_random_plans_equal_the_model(declared: bool, case: int, own: Path, pool: RankPool, tmp_path: Path) -> None:
    """Images, channels, rows and columns are sharded. A sum over sharded rows leaves partial sums on the devices."""
    print(f"UNITY_SAMPLE={SAMPLE}")
    library, source = load_library([own] if declared else []), text(DECLARED if declared else SHIPPED)
    model = build_model(parse_model(Source("decoder.udl", source)), library)
    mesh = Mesh((MeshAxis("a", 2),)) if case % 2 else Mesh((MeshAxis("a", 2), MeshAxis("b", 2)))
    plan = random_plan(model, mesh, library, Random(case))
    found = Drawn(source, model, library, plan)
    program = write(plan, library, tmp_path / "program", TRITON if case % 4 == 3 else "torch")
    largest, errors = errors_of(found, program, write(found.alone, library, tmp_path / "reference"), pool)
    assert largest <= TOLERANCE, f"case {case}\n{errors}"


def test_a_step_takes_as_long_as_with_upsampling_and_a_convolution(own: Path, tmp_path: Path) -> None:
    seconds = []
    convolved = "conv2d(upsample(x; by=2), w; pad_h=1, pad_w=1)"
    for name, source in (("a", text(DECLARED)), ("b", text(convolved, "outputs, inputs, 3, 3"))):
        path = tmp_path / f"{name}.udl"
        path.write_text(source)
        request = Request(model=path, operators=[own], preset="large", machine="dgx-h100", devices=8)
        seconds.append(compile_model(request).plan.cost.compute)
    assert seconds[0] <= 1.3 * seconds[1]


@pytest.mark.parametrize("declared", [False, True], ids=["shipped", "declared"])
def test_in_mixed_precision_it_runs_in_the_narrow_type(
    declared: bool, own: Path, compile_program: Compile, pool: RankPool
) -> None:
    library = load_library([own] if declared else [])
    source = text(DECLARED if declared else SHIPPED, precision="precision bf16")
    model = build_model(parse_model(Source("decoder.udl", source)), library)
    nodes = [node for node in model.graph.nodes() if node.instance.name == "conv_transpose2d"]
    assert {arithmetic(node, not declared, library) for node in nodes} == {"bf16"}
    report = check(compile_program(source, devices=2, operators=[own] if declared else []), pool=pool)
    assert report.ok, report
