"""Samples to measure: which operators, at which sizes, and that the text that is run computes the operator."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from unity_dsl.index.cost.kernels import equation_kernels
from unity_dsl.index.cost.lowering_class import LoweringClass
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.evaluation.evaluate import evaluate
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.machine.measured_operators import Direction
from unity_dsl.profiling.machine_profile import FULL
from unity_dsl.profiling.operator_run import State, operator_function, sample_run
from unity_dsl.profiling.samples import ProductPlan, sample_of, streamed_operators, streamed_samples

LIBRARY = load_library()
CPU = torch.device("cpu")


def test_common_operators_are_measured_over_their_bytes() -> None:
    found = streamed_operators(LIBRARY)
    assert set(found) >= {
        "add",
        "gelu",
        "dropout",
        "softmax",
        "layer_norm",
        "embedding",
        "max_pool2d",
        "full_attention",
    }
    assert not {"linear", "matmul", "conv2d"} & set(found)
    assert len(found) > 60


@pytest.mark.parametrize("name", ["add", "dropout", "softmax", "cross_entropy", "embedding", "cumsum", "batch_norm"])
def test_samples_move_about_as_many_bytes_as_asked_for(name: str) -> None:
    for sample in streamed_samples(LIBRARY.operators[name], [2**20, 2**23], "f32"):
        if sample.direction is Direction.FORWARD:
            assert 0.4 < sample.bytes / 2**20 < 9
            assert sample.elements * 4 < 2**24


@pytest.mark.parametrize("plan", FULL.grids, ids=lambda plan: f"{plan.kind}-{plan.batched}")
def test_the_products_of_a_grid_have_its_sizes(plan: ProductPlan) -> None:
    """The sizes are counted by the equation's own axes."""
    for place, sample in plan.samples(LIBRARY, "f32", Direction.FORWARD):
        instance = sample.instance
        products = [kernel.product for kernel in equation_kernels(instance) if kernel.product is not None]
        (product,) = products
        sizes = [
            np.prod([instance.sizes[axis] for axis in axes], dtype=int)
            for axes in (product.rows, product.columns, product.inner)
        ]
        sides = (plan.rows, plan.columns, plan.inner)
        assert sizes == [side[at] for side, at in zip(sides, place, strict=True)]
        batch = np.prod([instance.sizes[axis] for axis in product.batch], dtype=int)
        assert batch == plan.batch(*sizes)
        assert (batch > 1) == plan.batched


def test_the_text_that_is_run_computes_the_operator() -> None:
    instance = instantiate(LIBRARY.operators["softmax"], [Shape((3, 5))], {})
    zero = torch.tensor(0)
    function = operator_function(instance, LIBRARY, State((zero, zero), torch.float64, CPU))
    x = torch.from_numpy(np.random.default_rng(1).normal(size=(3, 5)))
    (found,) = function(x)
    (expected,) = evaluate(instance, [x.numpy()], LIBRARY)
    assert found.numpy() == pytest.approx(expected)


@pytest.mark.a_day(50)
@pytest.mark.parametrize("direction", [Direction.FORWARD, Direction.BACKWARD])
@pytest.mark.parametrize("name", sorted(streamed_operators(LIBRARY)))
def test_every_sample_runs(name: str, direction: Direction) -> None:
    """Samples of the fewest bytes. Each is called several times, because the operands alternate."""
    for sample in streamed_samples(LIBRARY.operators[name], [1], "f32"):
        if sample.direction is direction:
            call = sample_run(sample, LIBRARY, CPU)
            for _ in range(5):
                call()


@pytest.mark.parametrize("direction", [Direction.FORWARD, Direction.LEFT, Direction.RIGHT])
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("kind", [LoweringClass.CONTRACTION, LoweringClass.WINDOW])
def test_every_product_runs(kind: LoweringClass, batched: bool, direction: Direction) -> None:
    for _, sample in ProductPlan(kind, batched, (2,), (4,), (9,)).samples(LIBRARY, "f32", direction):
        sample_run(sample, LIBRARY, CPU)()


def test_the_work_of_one_cotangent_is_that_of_its_product() -> None:
    """2 m n k for each of the two gradients, without the work of the other one."""
    linear = instantiate(LIBRARY.operators["linear"], [Shape((4, 8)), Shape((16, 8))], {})
    for needs in ((True, False), (False, True)):
        assert sample_of(linear, "f32", Direction.LEFT, needs).done.flops == 2 * 4 * 8 * 16
