"""AdamW as one kernel, in Triton's interpreter, against torch's AdamW."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from unity_dsl.emit.train_files import render_optimizer

from .kernels.guarded_memory import GuardedMemory
from .kernels.kernel_runs import imported

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}
SHAPES = [(1,), (7, 11), (3, 5, 13), (64,), (131,)]
"""Within a block of a program's part and beyond it, ragged and not, and primes."""
OPTIONS = {"lr": 0.05, "betas": (0.7, 0.8), "eps": 0.01}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The module, with parts of parameters so short that there are several."""
    made = imported(render_optimizer(), Path(tmp_path_factory.mktemp("optimizer")))
    made.CHUNK, made.BLOCK = 64, 16
    return made


class Trained:
    """Parameters of a type, and an optimizer of them: the kernel's if there is a `module`, else torch's."""

    def __init__(self, module: ModuleType | None, dtype: torch.dtype) -> None:
        random = np.random.default_rng(0)
        self.memory = GuardedMemory()
        self.parameters = [self.held(torch.from_numpy(random.standard_normal(shape)).to(dtype)) for shape in SHAPES]
        for parameter in self.parameters:
            parameter.requires_grad_()
        matrices = [parameter for parameter in self.parameters if parameter.dim() > 1]
        others = [parameter for parameter in self.parameters if parameter.dim() == 1]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        made = torch.optim.AdamW if module is None else module.AdamW
        self.optimizer = made(groups, **OPTIONS)

    def held(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.memory.copy(tensor)

    def step(self, number: int, factor: float | None = None, without: Sequence[int] = ()) -> None:
        """A step with the same gradients for all types. For torch's optimizer they are multiplied by `factor` first."""
        random = np.random.default_rng([1, number])
        for place, parameter in enumerate(self.parameters):
            gradient = torch.from_numpy(random.standard_normal(parameter.shape)).to(parameter.dtype)
            parameter.grad = None if place in without else self.held(gradient)
        if factor is not None and isinstance(self.optimizer, torch.optim.AdamW):
            if hasattr(self.optimizer, "factor"):
                self.optimizer.factor = torch.tensor(factor, dtype=torch.float64)
            else:
                torch._foreach_mul_([p.grad for p in self.parameters if p.grad is not None], factor)
        self.optimizer.step()


def largest_error(found: Trained, wanted: Trained) -> float:
    """The largest error of parameters and optimizer state, relative to the largest element of each tensor."""
    errors = []
    for one, two in zip(found.parameters, wanted.parameters, strict=True):
        states = found.optimizer.state[one], wanted.optimizer.state[two]
        assert states[0].keys() == states[1].keys()
        pairs = [(one, two), *((states[0][name], states[1][name]) for name in states[0])]
        errors += [((a.double() - b.double()).abs().max() / b.double().abs().max()).item() for a, b in pairs]
    return max(error if error == error else float("inf") for error in errors)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_steps_are_those_of_torch(written: ModuleType, dtype: torch.dtype) -> None:
    found, wanted = Trained(written, dtype), Trained(None, torch.float64)
    if dtype == torch.bfloat16:  # every bfloat16 step rounds: compares one step from the same numbers
        for exact, parameter in zip(wanted.parameters, found.parameters, strict=True):
            exact.data.copy_(parameter.data)
    for number in range(1 if dtype == torch.bfloat16 else 4):
        for one in (found, wanted):
            one.step(number, 0.3 if number % 2 else None)
    assert not found.optimizer.failed and found.optimizer.tables
    assert largest_error(found, wanted) <= TOLERANCE[dtype]
    assert found.memory.intact()


def test_what_has_no_gradient_stays_as_it_is_and_counts_its_own_steps(written: ModuleType) -> None:
    found, wanted = Trained(written, torch.float64), Trained(None, torch.float64)
    for number, without in enumerate([(1, 3), (), (0,), ()]):
        for one in (found, wanted):
            one.step(number, 0.5, without)
    assert largest_error(found, wanted) <= 1e-12


def test_state_is_exchanged_with_torch(written: ModuleType) -> None:
    found, wanted = Trained(written, torch.float64), Trained(None, torch.float64)
    for one in (found, wanted):
        one.step(0)
    states = found.optimizer.state_dict()["state"], wanted.optimizer.state_dict()["state"]
    found.optimizer.load_state_dict({**found.optimizer.state_dict(), "state": states[1]})
    wanted.optimizer.load_state_dict({**wanted.optimizer.state_dict(), "state": states[0]})
    for one in (found, wanted):
        one.step(1)
    assert largest_error(found, wanted) <= 1e-12


def test_a_kernel_that_fails_gives_way_to_torch(written: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one warning. The failed step is repeated in torch, clipped as intended."""

    class Failing:
        def __getitem__(self, grid: tuple[int, ...]) -> None:
            raise RuntimeError("no such instruction\nmore of it")

    found, wanted = Trained(written, torch.float64), Trained(None, torch.float64)
    for one in (found, wanted):
        one.step(0)
    monkeypatch.setattr(written, "adamw_kernel", Failing())
    with pytest.warns(UserWarning, match="AdamW runs without its kernel, which failed: no such instruction$") as told:
        for number in (1, 2):
            found.step(number, 0.5)
            wanted.step(number, 0.5)
    assert len(told) == 1 and found.optimizer.failed
    assert largest_error(found, wanted) <= 1e-12


def test_parameters_whose_elements_do_not_follow_each_other_are_torch_s(written: ModuleType) -> None:
    random = np.random.default_rng(0)
    value, gradient = (torch.from_numpy(random.standard_normal((5, 3))).t() for _ in range(2))
    steps = []
    for kind in (written.AdamW, torch.optim.AdamW):
        parameter = torch.nn.Parameter(value.clone(memory_format=torch.preserve_format))
        assert not parameter.is_contiguous()
        parameter.grad = gradient.clone()
        kind([{"params": [parameter], "weight_decay": 0.1}], **OPTIONS).step()
        steps.append(parameter.detach())
    assert torch.equal(*steps)
