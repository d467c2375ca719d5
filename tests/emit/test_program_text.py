"""model.py: names, provenance, user text that stays text, storage; and the one-device program against NumPy."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fuzz.evaluate import losses
from unity_dsl.emit.program_names import ATTRIBUTES, Names, class_name, comment_text, docstring_text, is_plain_attribute
from unity_dsl.emit.program_text import render_model, render_parallel, write_down
from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.emit.source_lines import WIDTH, broken, returning
from unity_dsl.graph.graph import Model
from unity_dsl.graph.model_graph import build_model
from unity_dsl.graph.plan import Plan
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.evaluation.uniform import uniform
from unity_dsl.index.library import Library
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.span import Source

from .planning import batch_plan, mesh_of

SMALL = """
## Two layers and a head.
block dense(x)
  weight w: f32[d, d] ~ xavier_uniform
  weight c: f32[d] ~ zeros
  return linear(x, w) + c

model small[b = 4, s = 6, d = 8, words = 16]
  input tokens: int<words>[b, s]
  input target: int<words>[b, s]
  weight table: f32[words, d] ~ normal(0.02)
  buffer shape: f32[d] ~ uniform(-1, 1)
  x = embedding(tokens, table) * shape
  repeat 3 as layer
    weight gain: f32[d] ~ ones
    weight bias: f32[d] ~ constant(0.5)
    n = layer_norm(x, gain, bias)
    f = dense(n)
    x = x + dropout(gelu(f); p=0.2)
  logits = linear(x, table)
  loss cross_entropy(logits, target)
  output logits
  output x as hidden
"""

AWKWARD = """
block print(x)
  weight training: f32[d, d] ~ normal(0.3)
  weight float: f32[d] ~ normal(0.3)
  return linear(x, training) + float

model Model[b = 4, d = 8]
  input len: f32[b, d]
  input self: f32[b, d]
  weight forward: f32[d, d] ~ normal(0.3)
  weight step: f32[d, d] ~ normal(0.3)
  weight training: f32[d] ~ normal(0.3)
  weight _parameters: f32[d] ~ normal(0.3)
  buffer device: f32[d] ~ normal(0.3)
  torch = linear(len, forward)
  F = linear(torch, step) + training
  train = print(F * _parameters)
  repeat 2 as tensor
    weight groups: f32[d] ~ normal(0.3)
    weight index: f32[d] ~ normal(0.3)
    match = print(train)
    train = dropout(match + groups; p=0.1) * index
  parallel = train + device
  checked = relu(parallel)
  type = checked + self
  inputs = type * 2
  loss mse(inputs, self)
  output type as items
"""


@pytest.fixture(scope="module")
def library() -> Library:
    return load_library()


def model_of(text: str, library: Library, name: str = "small.udl") -> Model:
    return build_model(parse_model(Source(name, text)), library)


def write(plan: Plan, library: Library, folder: Path) -> Path:
    folder.mkdir()
    (folder / "__init__.py").write_text("from .model import Model as Model\n")
    (folder / "model.py").write_text(render_model(write_down(plan, library)))
    (folder / "parallel.py").write_text(render_parallel(write_down(plan, library)))
    return folder


# ---------------------------------------------------------------------------------------------- text


@pytest.mark.parametrize("degrees", [(), (2,)], ids=["one", "two"])
def test_golden(degrees: tuple[int, ...], library: Library, golden: Callable[[Path, str], None]) -> None:
    plan = batch_plan(model_of(SMALL, library), mesh_of(*degrees), library)
    folder = Path(__file__).parent / "golden" / f"devices_{plan.mesh.size}"
    golden(folder / "model.py.txt", render_model(write_down(plan, library)))
    golden(folder / "parallel.py.txt", render_parallel(write_down(plan, library)))


@pytest.mark.parametrize("degrees", [(), (2,), (2, 2)])
@pytest.mark.parametrize("text", [SMALL, AWKWARD], ids=["small", "awkward"])
def test_text_is_clean(text: str, degrees: tuple[int, ...], library: Library, tmp_path: Path) -> None:
    """The text compiles, ruff's default rules find nothing, no line of the forward is long, and nothing is unused."""
    plan = batch_plan(model_of(text, library), mesh_of(*degrees), library)
    folder = write(plan, library, tmp_path / "program")
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(folder)], check=True)
    lint = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", str(folder)], capture_output=True, text=True
    )
    assert lint.returncode == 0, lint.stdout
    assert max(map(len, (folder / "model.py").read_text().splitlines())) <= 120


def test_the_same_plan_gives_the_same_text(library: Library) -> None:
    plan = batch_plan(model_of(SMALL, library), mesh_of(2, 2), library)
    again = batch_plan(model_of(SMALL, library), mesh_of(2, 2), library)
    assert render_model(write_down(plan, library)) == render_model(write_down(again, library))
    assert render_parallel(write_down(plan, library)) == render_parallel(write_down(again, library))


def test_every_line_says_where_it_comes_from(library: Library) -> None:
    plan = batch_plan(model_of(SMALL, library, "/somewhere/private/small.udl"), mesh_of(2), library)
    text = render_model(write_down(plan, library))
    assert "/somewhere" not in text
    assert "# small.udl:17  layer_norm: b0 along a" in text
    assert "# small.udl:14  repeat 3 as layer" in text
    assert "# I -> R" in text and "# P -> I" in text


def test_user_text_stays_text(library: Library) -> None:
    """Names of files, machines, strategies and notes are free text. None may end a comment or a string."""
    bad = 'x"""\n\nimport os\nos.system("true")\r\n\x0c\u2028\u202e\\'
    model = model_of(SMALL, library, f"{bad}.udl")
    plan = batch_plan(model, mesh_of(2), library)
    plan = replace(plan, machine=bad, strategy=bad, notes=(bad, "{{ 7 * 7 }} {% raw %}"))
    clean = batch_plan(model_of(SMALL, library), mesh_of(2), library)
    for render in (render_model, render_parallel):
        found, expected = (_without_strings(ast.parse(render(write_down(p, library)))) for p in (plan, clean))
        assert found == expected
    assert "49" not in render_model(write_down(plan, library)).partition("from __future__")[0].replace(
        "{{ 7 * 7 }}", ""
    )


def _without_strings(tree: ast.Module) -> str:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body[0] = ast.Pass()
    return ast.dump(tree)


def test_comments_and_docstrings_of_any_text() -> None:
    assert comment_text("a\nb\tc\u2028d") == "a b c d"
    assert docstring_text('a"""\\') == "a'''/"
    with pytest.raises(ValueError, match="is no name"):
        Names().fresh("x; import os")


def test_names() -> None:
    names = Names(("taken",))
    given = ("x", "x", "taken", "lambda", "print", "torch", "a.b", "__init__", "match", "_", "_", "__1")
    expected = ["x", "x_2", "taken_2", "lambda_", "print_", "torch_", "a_b", "init___", "match_"]
    expected += ["name_", "name__2", "name1_"]
    assert [names.fresh(name) for name in given] == expected
    assert class_name("encoder.my_layer") == "EncoderMyLayer"
    assert [class_name(name) for name in ("_", "_1", "__.__2")] == ["Body", "Body1", "Body2"]


def test_attributes_are_those_of_modules() -> None:
    from torch import nn

    own = {name for name in (*dir(nn.Module), *nn.Module().__dict__) if not name.startswith("_")}
    assert own <= ATTRIBUTES, own - ATTRIBUTES
    assert not is_plain_attribute("forward") and not is_plain_attribute("_x") and is_plain_attribute("w")


def test_long_statements_are_broken_at_their_brackets() -> None:
    code = f"x = f({', '.join(f'argument_{i}' for i in range(12))})"
    assert broken(code, "    ") == [
        "    x = f(",
        *(f"        argument_{i}," for i in range(12)),
        "    )",
    ]
    nested = f"y = torch.where(condition[:, None], first_operand * {'a' * 30}, other(second_operand, {'b' * 30}))"
    lines = broken(nested)
    assert max(map(len, lines)) <= WIDTH
    assert ast.dump(ast.parse("\n".join(lines))) == ast.dump(ast.parse(nested))
    loop = f"z = g({{key: value for key, value in {'c' * 90}.items()}})"
    assert ast.dump(ast.parse("\n".join(broken(loop)))) == ast.dump(ast.parse(loop))


# ---------------------------------------------------------------------------------------------- behaviour


UNDERSCORES = """
model _[__ = 4]
  input ____: f32[__, 8]
  input target: f32[__, 8]
  weight _: f32[8, 8] ~ normal(0.3)
  buffer __1: f32[8] ~ zeros
  ___ = linear(____, _) + __1
  repeat 2 as _1
    weight __2: f32[8, 8] ~ normal(0.3)
    ___ = tanh(___)
    ___ = linear(___, __2)
  _3 = tanh(___)
  loss mse(_3, target)
  output _3 as _
"""


@pytest.fixture(params=[SMALL, AWKWARD, UNDERSCORES], ids=["small", "awkward", "underscores"])
def program(request: pytest.FixtureRequest, library: Library, tmp_path: Path) -> tuple[Model, Path]:
    model = model_of(request.param, library)
    return model, write(batch_plan(model, mesh_of(), library), library, tmp_path / "program")


def test_one_device_equals_numpy(program: tuple[Model, Path], library: Library) -> None:
    expected, found = losses(program[0], library, program[1])
    assert found == pytest.approx(expected, rel=1e-12)


def test_stored_tensors_have_the_models_names(program: tuple[Model, Path]) -> None:
    model, folder = program
    with load_program(folder) as module:
        running = module.Model()
        assert {name for name, _ in running.named_parameters()} == {name for name, _ in model.weights()}
        assert set(module.PARAMETERS) == {name for name, _ in running.named_parameters()}
        assert set(module.BUFFERS) == {name for name, _ in running.named_buffers()} != set()
        state = running.state_dict()
        assert set(state) == {*module.PARAMETERS, *module.BUFFERS}
        running.load_state_dict(state)
        running.train()
        running.eval()
        running.step, running.seed, running.accumulating = 3, 4, True
        assert (running.step, running.seed, running.training) == (3, 4, False)


def batch_of(module: Any, dtype: Any) -> dict[str, Any]:
    import torch

    return {
        name: torch.randn(spec.shape, dtype=dtype)
        if spec.integer_range is None
        else torch.randint(spec.integer_range, spec.shape)
        for name, spec in module.INPUTS.items()
    }


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_any_type(dtype: str, program: tuple[Model, Path]) -> None:
    import torch

    with load_program(program[1]) as module:
        kind = getattr(torch, dtype)
        running = module.Model(dtype=kind)
        assert running.dtype == kind and running.device == torch.device("cpu")
        running.initialise(0)
        batch = batch_of(module, kind)
        loss, outputs = running(**batch)
        loss.backward()
        running.synchronise()
        assert loss.dtype == kind and all(tensor.dtype == kind for tensor in outputs.values())
        assert all(parameter.grad.dtype == kind for parameter in running.parameters())
        norm = torch.stack([p.grad.double().square().sum() for p in running.parameters()]).sum().sqrt()
        assert float(running.grad_norm()) == pytest.approx(float(norm), rel=1e-6)
        again, _ = module.Model().double()(**batch_of(module, torch.float64))
        assert again.dtype == torch.float64


def test_initial_values(library: Library, tmp_path: Path) -> None:
    """Initial values depend only on seed and name: two tensors differ, two runs do not."""
    import torch

    folder = write(batch_plan(model_of(SMALL, library), mesh_of(), library), library, tmp_path / "program")
    with load_program(folder) as module:
        first, second, other = (module.Model() for _ in range(3))
        first.initialise(5)
        second.initialise(5)
        other.initialise(6)
        state = first.stored()
        assert all(torch.equal(tensor, second.stored()[name]) for name, tensor in state.items())
        assert not torch.equal(state["table"], other.stored()["table"])
        assert not torch.equal(state["layer.0.f.w"], state["layer.1.f.w"])
        assert torch.equal(state["layer.2.bias"], torch.full((8,), 0.5))
        assert state["table"].std().item() == pytest.approx(0.02, rel=0.2)
        assert state["shape"].abs().max().item() <= 1
        with pytest.raises(KeyError, match=r"layer\.0\.gain"):
            first.load_global({name: tensor for name, tensor in state.items() if name != "layer.0.gain"})
        with pytest.raises(ValueError, match=r"table has shape \[16, 8\], not \[8, 16\]"):
            first.load_global({**state, "table": state["table"].T})


FANS = """
model fans[d = 64]
  input x: f32[4, 16, 8, 8]
  weight one: f32[d, 4, 3, 3] ~ fan_in_uniform(1 / 3)
  weight two: f32[d, 4, 3, 3] ~ fan_in_normal(2)
  weight three: f32[d, 4, 3, 3] ~ fan_out_normal(2)
  k = one + two * three
  loss mse(conv2d(x, k; groups=4), conv2d(x, k; groups=4))
"""


def test_fans_give_the_deviation_of_initial_values(library: Library, tmp_path: Path) -> None:
    """As torch initialises weights of a grouped convolution: by its default, and by He's in both modes."""
    import torch
    from torch import nn

    folder = write(batch_plan(model_of(FANS, library), mesh_of(), library), library, tmp_path / "program")
    torch.manual_seed(0)
    expected = {
        "one": nn.Conv2d(16, 64, 3, groups=4).weight,
        "two": nn.init.kaiming_normal_(torch.empty(64, 4, 3, 3)),
        "three": nn.init.kaiming_normal_(torch.empty(64, 4, 3, 3), mode="fan_out"),
    }
    with load_program(folder) as module:
        running = module.Model()
        running.initialise(0)
        for name, tensor in running.stored().items():
            assert tensor.std().item() == pytest.approx(expected[name].detach().std().item(), rel=0.08)
        assert running.stored()["one"].abs().max().item() == pytest.approx(1 / 6, rel=0.01)


def test_dropout_is_a_function_of_seed_and_step(library: Library, tmp_path: Path) -> None:
    import torch

    folder = write(batch_plan(model_of(SMALL, library), mesh_of(), library), library, tmp_path / "program")
    with load_program(folder) as module:
        running = module.Model(dtype=torch.float64)
        running.initialise(0)
        batch = batch_of(module, torch.float64)

        def loss(seed: int, step: int) -> float:
            running.seed, running.step = seed, step
            return running(**batch)[0].item()

        assert loss(0, 0) == loss(0, 0) != loss(0, 1) != loss(1, 0)
        running.eval()
        assert loss(0, 0) == loss(5, 7)


def test_emitted_draws_are_those_of_the_definition(library: Library, tmp_path: Path) -> None:
    """Bitwise, in int32 and in 64 bits: words with any sign bit, positions beyond 2**32."""
    import torch

    folder = write(batch_plan(model_of(SMALL, library), mesh_of(), library), library, tmp_path / "program")
    rng = np.random.default_rng(11)
    with load_program(folder) as module:
        for top in (1, 1 << 16, 1 << 33, 1 << 62):
            position = rng.integers(0, top, (64, 65))
            seed, step, site = (int(word) for word in rng.integers(0, (1 << 63, 1 << 33, 1 << 20)))
            expected = uniform(position, seed, step, site)
            kinds = (torch.int64, torch.int32) if top <= 1 << 31 else (torch.int64,)
            for given in (torch.from_numpy(position).to(kind) for kind in kinds):
                found = module.uniform(given, torch.tensor(seed), torch.tensor(step), site)
                np.testing.assert_array_equal(found.numpy(), expected)
                for bound in (2.0**-24, 0.1, 0.5, float(expected[3, 5]) or 0.5, 1 - 2.0**-24):
                    kept = module.at_least(bound, given, torch.tensor(seed), torch.tensor(step), site)
                    np.testing.assert_array_equal(kept.numpy(), expected >= bound, str(bound))


def test_a_dropout_of_probability_zero_draws_nothing(library: Library) -> None:
    text = """
model m[p = 0]
  input x: f32[4, 8]
  weight w: f32[8, 8] ~ normal(0.3)
  y = dropout(linear(x, w); p = p)
  loss mse(y, x)
"""
    for written, drawn in (("p = 0", False), ("p = 0.0", False), ("p = 0.25", True)):
        emitted = write_down(
            batch_plan(model_of(text.replace("p = 0", written, 1), library), mesh_of(), library), library
        )
        assert ("def uniform" in render_model(emitted)) is drawn
        assert ("self.training" in "".join(emitted.module.lines)) is drawn


def test_inputs_are_checked(library: Library, tmp_path: Path) -> None:
    import torch

    folder = write(batch_plan(model_of(SMALL, library), mesh_of(), library), library, tmp_path / "program")
    with load_program(folder) as module:
        running = module.Model()
        running.initialise(0)
        batch = batch_of(module, torch.float32)
        with pytest.raises(ValueError, match=r"input tokens has shape \[4, 6\], not \[2, 6\]"):
            running(**{**batch, "tokens": batch["tokens"][:2]})
        for wrong in (-1, 16):
            with pytest.raises(ValueError, match=r"input target has values outside \[0, 16\)"):
                running(**{**batch, "target": torch.full((4, 6), wrong)})


def test_another_number_of_ranks_is_refused(library: Library, tmp_path: Path) -> None:
    folder = write(batch_plan(model_of(SMALL, library), mesh_of(2), library), library, tmp_path / "program")
    with load_program(folder) as module:
        with pytest.raises(RuntimeError, match="this program runs on 2 ranks, not 1"):
            module.build_mesh("cpu")
        with pytest.raises(RuntimeError, match="this program runs on the mesh"):
            module.Model(None)


def test_a_result_has_no_name_where_its_statement_is_the_last() -> None:
    call, wide = ["y = f(", "    x,", "    1", ")  # f"], f"y = f({'x' * 83})  # f of x"
    assert returning(["y = f(x)  # f"], ["y"]) == ["return f(x)  # f"]
    assert returning(["z = g(x)", *call], ["y"]) == ["z = g(x)", "return f(", *call[1:]]
    assert returning([wide], ["y"]) == ["# f of x", f"return f({'x' * 83})"] and len(wide) == WIDTH
    for lines in (["y = f(x)", "z = g(y)"], ["if a:", "    y = f(x)", "else:", "    y = x"], ["y_1 = f(x)"], []):
        assert returning(lines, ["y"]) == [*lines, "return y"]
    assert returning(["y = f(x)"], ["y.to(z)"]) == ["y = f(x)", "return y.to(z)"]
    assert returning(["z = g(x)", "y = f(x)"], ["y", "z"]) == ["z = g(x)", "y = f(x)", "return y, z"]
