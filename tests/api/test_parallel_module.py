"""Modules made parallel, against the original modules: results, gradients, and training on two ranks."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import unity_dsl as u
from unity_dsl.emit.rank_pool import RankPool

from ..importer import modules, replaced

STEPS = 8


def test_a_module_on_one_device_is_the_module() -> None:
    """Loss and logits in the module's form, gradients, and the whole state under the module's names."""
    module, batch = modules.language_model()
    given = copy.deepcopy(module)
    plan, parallel = u.parallelize(module, batch, verify=False)
    assert plan.mesh == {} and isinstance(parallel, u.ParallelModule)
    found, expected = parallel(**batch), given(**batch)
    assert type(found) is type(expected)
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-5)
    loss = next(part for part in found if part.dim() == 0)
    loss.backward()
    next(part for part in expected if part.dim() == 0).backward()
    norm = torch.nn.utils.get_total_norm([weight.grad for weight in given.parameters() if weight.grad is not None])
    torch.testing.assert_close(parallel.grad_norm(), norm, rtol=1e-4, atol=0)
    assert parallel.state_dict().keys() == given.state_dict().keys()


def test_weights_go_both_ways() -> None:
    """This includes tied weights, and buffers that the model does not keep."""
    module, batch = modules.resnet()
    other = copy.deepcopy(module)
    _, parallel = u.parallelize(module, batch, verify=False)
    with torch.no_grad():
        for weight in other.parameters():
            weight.add_(0.1)
    parallel.load_state_dict(other.state_dict())
    for name, tensor in parallel.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name
    parallel.eval()
    torch.testing.assert_close(parallel(**batch)[0], other.eval()(**batch)[0])
    with pytest.raises(KeyError, match="names that are not there: bn1"):
        parallel.load_state_dict({})


def test_a_plan_for_more_ranks_than_there_are_is_one_to_look_at() -> None:
    plan, parallel = u.parallelize(*modules.language_model(), devices=2, strategy="zero", verify=False)
    assert plan.mesh == {"fsdp": 2}
    with pytest.raises(RuntimeError, match="runs on 2 ranks: start as many by torchrun"):
        parallel(**modules.language_model()[1])


def test_other_arguments_than_the_examples_are_refused() -> None:
    module, batch = modules.language_model()
    _, parallel = u.parallelize(module, batch, verify=False)
    with pytest.raises(TypeError, match="other arguments than the examples"):
        parallel(batch["tokens"])


@pytest.mark.parametrize("strategy", ["zero", "random:3"])
def test_training_on_two_ranks_is_that_of_the_module(pool: RankPool, strategy: str) -> None:
    """Compares losses and weights with those of the module on the whole batch, in float32."""
    for found in pool.run(trained, strategy, ranks=2):
        assert max(found["losses"]) < 1e-5 and found["weights"] < 1e-4, found


def trained(rank: int, ranks: int, strategy: str) -> dict[str, Any]:
    """The differences of the losses over some steps, and of the final weights, from those of the module."""
    torch.manual_seed(0)
    module, batch = modules.language_model()
    given = copy.deepcopy(module)
    _, parallel = u.parallelize(module, batch, strategy=strategy, verify=False)
    both: tuple[nn.Module, ...] = (parallel, given)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1, momentum=0.9) for one in both]
    losses = []
    for _ in range(STEPS):
        told = []
        for one, optimizer in zip(both, optimizers, strict=True):
            optimizer.zero_grad()
            loss = next(part for part in one(**batch) if part.dim() == 0)
            loss.backward()
            optimizer.step()
            told.append(float(loss.detach()))
        losses.append(abs(told[0] - told[1]))
    states = parallel.state_dict()
    worst = max(float((states[name] - tensor).abs().max()) for name, tensor in given.state_dict().items())
    return {"losses": losses, "weights": worst}


def test_what_cannot_be_imported_is_told(tmp_path: Path) -> None:
    with pytest.raises(u.InputError, match="E60"):
        u.parallelize(nn.Linear(2, 2), [torch.randn(2, 2)])


def test_a_replaced_module_is_made_parallel() -> None:
    """Its loop depends on values and a block replaces it: loss and gradients equal those of its code."""
    module, batch = replaced.decays()
    given = copy.deepcopy(module)
    _, parallel = u.parallelize(module, batch, verify=False)
    found, expected = parallel(**batch), given(**batch)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    found.backward()
    expected.backward()
    norm = torch.nn.utils.get_total_norm([weight.grad for weight in given.parameters() if weight.grad is not None])
    torch.testing.assert_close(parallel.grad_norm(), norm, rtol=1e-4, atol=0)
