"""Passes that `--cuda-graphs` records, with an operator recorder in place of a GPU.

The recorder runs each operator again on the tensors that it read, and writes results to the same tensors, like a CUDA
graph.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from unity_dsl.emit.rank_comparison import load_program

from ..emit.test_train_files import modules

Compile = Callable[..., Path]

MODEL = """
model m[b = 4, d = 6, words = 5]
  input x: f32[b, d]
  input target: int<words>[b]
  buffer mean: f32[d] ~ zeros
  update mean = 0.9 * mean + 0.1 * reduce_mean(x[b, d] -> [d])
  repeat 2 as layer
    weight w: f32[d, d] ~ normal(0.5)
    x = x + dropout(relu(linear(x - mean, w)); p=0.3)
  weight out: f32[words, d] ~ normal(0.5)
  loss cross_entropy(linear(x, out), target)
"""
STEPS = 6


class Operators(TorchDispatchMode):
    """Records the operators that run in this mode, each with its inputs and results."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        made = function(*given, **(named or {}))
        self.ran.append((function, given, named or {}, made))
        return made

    def replay(self) -> None:
        for function, given, named, made in self.ran:
            again = function(*given, **named)
            for old, new in zip(tree_leaves(made), tree_leaves(again), strict=True):
                if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class Graph:
    """A stand-in for a CUDA graph."""

    def __init__(self) -> None:
        self.operators = Operators()

    def replay(self) -> None:
        with torch.no_grad():
            self.operators.replay()


@contextmanager
def recording(graph: Graph, pool: object, stream: object, capture_error_mode: str) -> Iterator[None]:
    """Records the operators inside it. A GPU would not execute them, so the following code undoes their effects."""
    with graph.operators:
        yield


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream:
        def wait_stream(self, stream: object) -> None:
            pass

    for name, stand_in in {
        "CUDAGraph": Graph,
        "graph": recording,
        "Stream": Stream,
        "current_stream": Stream,
        "stream": lambda stream: nullcontext(),
        "graph_pool_handle": lambda: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)


class OnDevice:
    """A `torch` module that makes a program read random-number counters from memory, as on a GPU and in a compiled
    step.

    torch itself is unchanged, so functions that compile keep working.
    """

    compiler = SimpleNamespace(is_compiling=lambda: True)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def steps(out: Path, accumulate: int, recorded: bool) -> list[Any]:
    """Losses, gradients and buffers of some SGD steps on different batches."""
    options = argparse.Namespace(compile=None, clip=None, log=None, lr=0.1, accumulate=accumulate)
    options.schedule, options.warmup, options.steps = "constant", 0, STEPS
    found: list[Any] = []
    with load_program(out) as module, modules(out) as (data, _, entry):
        vars(sys.modules[module.Model.__module__])["torch"] = OnDevice()
        model = module.Model(dtype=torch.float64)
        model.initialise(0)
        model.seed = 3
        held = {name: tensor.clone() for name, tensor in model.stored().items()}
        one_pass = partial(entry.train_pass, model, entry.loss_function(model, options), accumulate)
        if recorded:
            one_pass = Recording(entry.Recorded(model, one_pass), model)
        optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)

        def load(position: int) -> dict[str, Tensor]:
            batch = data.synthetic(entry.INPUTS, 0, position, "train")
            assert batch is not None
            return batch

        for step in range(STEPS):
            loss, *_ = entry.train_step(model, one_pass, optimizer, load, step, step * accumulate, options)
            found.append((loss, {name: p.grad.clone() for name, p in model.named_parameters()}))
            found.append({name: tensor.clone() for name, tensor in model.stored().items()})
        assert any((tensor != held[name]).any() for name, tensor in model.stored().items())
    return found


class Recording:
    """Restores buffers and gradients after a recorded pass, because recording on a GPU changes nothing."""

    def __init__(self, recorded: Any, model: torch.nn.Module) -> None:
        self.recorded, self.model = recorded, model
        record = recorded.record

        def restoring(part: int) -> Any:
            held = [*model.buffers(), *(p.grad for p in model.parameters() if p.grad is not None)]
            before = [tensor.clone() for tensor in held]
            graph = record(part)
            with torch.no_grad():
                for tensor, value in zip(held, before, strict=True):
                    tensor.copy_(value)
            return graph

        recorded.record = restoring

    def __call__(self, batch: dict[str, Tensor], part: int) -> Tensor:
        loss: Tensor = self.recorded(batch, part)
        if self.recorded.steps > self.recorded.FIRST_STEPS:
            assert len(self.recorded.graphs) == min(part + 1, 2) or part == 0
        return loss


@pytest.mark.parametrize(("accumulate", "micro_batches"), [(1, 1), (3, 1), (2, 2)])
def test_steps_with_recorded_passes_are_the_steps(
    compile_program: Compile, recorder: None, accumulate: int, micro_batches: int
) -> None:
    """A model that draws random numbers and, without micro-batches, updates a buffer."""
    model = MODEL if micro_batches == 1 else "".join(line for line in MODEL.splitlines(True) if "update" not in line)
    out = compile_program(model, micro_batches=micro_batches)
    expected, found = (steps(out, accumulate, recorded) for recorded in (False, True))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
