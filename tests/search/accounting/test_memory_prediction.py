"""Predicted memory at the end of a forward pass against a program: its state, and the tensors that autograd saves."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest
import torch

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.output_folder import write_program
from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.graph.layout import Mesh
from unity_dsl.graph.plan import Memory, Plan
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.resources import folder
from unity_dsl.search.accounting.memory_prediction import predict_memory
from unity_dsl.search.layout_pins import parse_pin
from unity_dsl.search.plan_search import search

from ...emit import ranks
from ...emit.fused_kernels import rms_norm
from ..conftest import FOUR, TWO, Build

ONE = Mesh(())
MACHINE = load_machine("dgx-a100")


def held(
    build: Build,
    library: Library,
    text: str,
    mesh: Mesh,
    strategy: str = "data_parallel",
    *pins: str,
    recompute: Collection[str] = (),
) -> Memory:
    pinned = dict(map(parse_pin, pins))
    return kept(search(build(text), mesh, MACHINE, library, strategy, pinned, recompute=recompute), library)


def kept(plan: Plan, library: Library) -> Memory:
    """Memory of a plan at the end of the forward pass."""
    return predict_memory(
        plan.model,
        plan.graph,
        plan.mesh,
        library,
        regathered=plan.passes.regathered,
        recomputed=plan.passes.recomputed,
        kept_iterations=plan.passes.kept_iterations,
    )


MODEL = """
model m[b = 8]
  input x: f32[b, 16]
  input target: f32[b, 16]
  weight w_in: f32[16, 16] ~ normal(0.1)
  x = relu(linear(x, w_in))
  repeat 3 as layer
    weight w: f32[16, 16] ~ normal(0.1)
    x = relu(linear(x, w))
  loss mse(x, target)
"""
WEIGHTS = 4 * 16 * 16 * 4
TENSOR = 8 * 16 * 4


def test_state_is_counted_as_it_is_stored(build: Build, library: Library) -> None:
    """Every parameter has a gradient and two moments, in slices if the parameter is stored in slices."""
    for mesh, pins, part in ((ONE, (), 1), (TWO, (), 1), (TWO, ("w_in=S0", "layer.w=S1"), 2), (FOUR, ("*w*=S0",), 4)):
        found = held(build, library, MODEL, mesh, "data_parallel" if not pins else "auto", *pins)
        assert (found.parameters, found.gradients) == (WEIGHTS / part, WEIGHTS / part), (mesh, pins)
        assert found.optimizer == 2 * WEIGHTS / part and found.buffers == 0


DEEP = """
model m[b = 8, classes = 4]
  input x: f32[b, 16]
  input target: f32[b, 16]
  repeat 5 as layer
    weight up: f32[64, 16] ~ normal(0.1)
    weight down: f32[16, 64] ~ normal(0.1)
    x = x + linear(relu(linear(x, up)), down)
  x = exp(x)
  loss mse(x, target)
"""


def test_what_is_run_again_keeps_what_enters_it_and_one_iteration(build: Build, library: Library) -> None:
    """In every layer, relu's result is four tensors, in the memory of its operand. Doubling the operand adds four more,
    which only a variable holds while a layer is recomputed. exp's result and the target are freed by then.
    """
    for mesh, part in ((ONE, 1), (TWO, 2), (FOUR, 4)):
        for text, inside in ((DEEP, 4), (DEEP.replace("relu(", "relu(2 * "), 4 + 4)):
            before = held(build, library, text, mesh).activations
            again = held(build, library, text, mesh, recompute=["layer"]).activations
            end = TENSOR // part + TENSOR  # exp's result, and the target whole: its slice is a view of it
            assert before == TENSOR + (4 + 5 * 4) * TENSOR // part + end  # the slice of the first x is a view too
            once = TENSOR + (4 + inside) * TENSOR // part  # the first x, an input, is whole at the entry
            assert again == max(once, TENSOR + 4 * TENSOR // part + end), (
                "a layer again, or the end of the forward pass"
            )


def test_iterations_that_are_kept_are_gone_when_others_run_again(build: Build, library: Library) -> None:
    """At the end of the forward pass, DEEP holds four tensors of each layer that is kept, exp's result and the target.
    While another layer is recomputed, it holds that whole layer but not the latter two. The operand of the first kept
    layer counts in both.
    """
    for mesh, part in ((ONE, 1), (TWO, 2)):
        for text, inside in ((DEEP, 4), (DEEP.replace("relu(", "relu(2 * "), 8)):
            for number in range(5):
                plan = search(
                    build(text),
                    mesh,
                    MACHINE,
                    library,
                    "data_parallel",
                    recompute=["layer"],
                    kept_iterations={"layer": number},
                )
                end = TENSOR + (4 + 4 * number + 1) * TENSOR // part + TENSOR
                again = TENSOR + (4 - number + bool(number) + inside) * TENSOR // part
                assert kept(plan, library).activations == max(end, again), (mesh, number)


def test_activations_are_what_the_backward_pass_reads(build: Build, library: Library) -> None:
    """The result of every relu, which the next layer or the loss also reads, in slices of the batch. The input and the
    target are whole, because their slices are views of them.
    """
    for mesh, part in ((ONE, 1), (TWO, 2), (FOUR, 4)):
        assert held(build, library, MODEL, mesh).activations == 4 * TENSOR / part + 2 * TENSOR


def test_what_leads_to_no_weight_is_not_kept(build: Build, library: Library) -> None:
    text = MODEL.replace("x = relu(linear(x, w_in))", "x = relu(exp(x) * 2)").replace("  weight w_in", "  # ")
    assert held(build, library, text, ONE).activations == 5 * TENSOR


def test_a_tensor_in_two_layouts_is_kept_in_both(build: Build, library: Library) -> None:
    """h in slices for one product, whole for the other. A long product makes its slices, and two large products read
    them, which are divided in different ways.
    """
    text = """
model m[b = 8192]
  input x: f32[b, 4096]
  input y: f32[b, 4096]
  weight u: f32[16, 4096] ~ normal(0.1)
  weight v: f32[4096, 16] ~ normal(0.1)
  weight w: f32[4096, 16] ~ normal(0.1)
  h = linear(x, u)
  p = linear(h, v)
  q = linear(h, w)
  loss mse(p, y) + mse(q, y)
"""
    pins = ("h=S0", "p=S0", "q=S1", "u=I", "v=I", "w=S0")
    large, small = 8192 * 4096 * 4, 8192 * 16 * 4
    assert held(build, library, text, ONE).activations == 4 * large + small  # x, y, p, q; h
    assert held(build, library, text, TWO, "auto", *pins).activations == 3 * large + 3 / 2 * small  # halves of p, q


EXAMPLES = [
    "bert_large", "bert_unity", "candle_uno", "digits", "dlrm", "gpt2", "llama3_8b", "lstm_lm", "mixtral_8x7b", "mlp",
    "resnext50_unity", "vit_l16",
]  # fmt: skip


def program(example: str, path: Path, devices: int, strategy: str, precision: str = "f32") -> Memory:
    """Writes the program of an example, and returns its predicted memory."""
    file = folder("examples") / f"{example}.udl"
    request = Request(file, preset="small", precision=precision, devices=devices, strategy=strategy)
    made = compile_model(request)
    write_program(made.plan, made.library, made.sources, request, path)
    return kept(made.plan, made.library)


@pytest.mark.parametrize(
    ("example", "precision"),
    [*((name, "f32") for name in EXAMPLES), *((name, "bf16") for name in ("dlrm", "llama3_8b", "mlp"))],
)
def test_activations_are_those_that_autograd_keeps(
    example: str, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every storage that torch saves, counted once, to the byte, without parameters. In bf16 a CPU saves less for
    `F.layer_norm` and for native attention than a GPU. Examples with one of them are compared in float32.
    """
    monkeypatch.setattr(torch.nn.functional, "rms_norm", rms_norm)
    memory = program(example, tmp_path / "out", 1, "auto", precision)
    assert memory.activations == ranks.activations(0, 1, str(tmp_path / "out"))
    with load_program(tmp_path / "out") as module:
        assert memory.parameters == sum(tensor.nbytes for tensor in module.Model(None).parameters())


@pytest.mark.parametrize("example", ["bert_unity", "digits", "dlrm", "gpt2", "lstm_lm"])
def test_activations_of_a_divided_batch(example: str, pool: RankPool, tmp_path: Path) -> None:
    """A saved slice keeps the whole tensor of which it is a view."""
    memory = program(example, tmp_path / "out", 2, "data_parallel")
    assert pool.run(ranks.activations, str(tmp_path / "out"), ranks=2) == [memory.activations] * 2
