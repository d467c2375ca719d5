"""Lowering classes: of shipped operators, of their gradients, and of loops that none of them has."""

from __future__ import annotations

import pytest

from unity_dsl.index.cost.lowering_class import LoweringClass, lowering_class
from unity_dsl.index.gradients.adjoint import adjoint
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.index.instantiation.representative import representative
from unity_dsl.index.library import Library

from ..declare import declare


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("linear", LoweringClass.CONTRACTION),
        ("matmul", LoweringClass.CONTRACTION),
        ("project", LoweringClass.CONTRACTION),
        ("embedding", LoweringClass.GATHER),
        ("softmax", LoweringClass.ROW_REDUCTION),
        ("layer_norm", LoweringClass.ROW_REDUCTION),
        ("cross_entropy", LoweringClass.ROW_REDUCTION),
        ("mse", LoweringClass.ROW_REDUCTION),
        ("reduce_sum", LoweringClass.ROW_REDUCTION),
        ("reduce_max", LoweringClass.ROW_REDUCTION),
        ("relu", LoweringClass.ELEMENTWISE),
        ("causal_mask", LoweringClass.ELEMENTWISE),
        ("rearrange", LoweringClass.VIEW),
        ("slice", LoweringClass.VIEW),
        ("concat", LoweringClass.VIEW),
    ],
)
def test_class_of_shipped_operators(name: str, kind: LoweringClass, library: Library) -> None:
    assert lowering_class(representative(library.operators[name]).instance) is kind


def test_the_gradient_of_a_look_up_scatters(library: Library) -> None:
    instance = representative(library.operators["embedding"]).instance
    assert lowering_class(adjoint(instance, library, 1)) is LoweringClass.SCATTER


def test_the_gradient_of_a_contraction_is_one(library: Library) -> None:
    instance = representative(library.operators["linear"]).instance
    assert all(lowering_class(adjoint(instance, library, i)) is LoweringClass.CONTRACTION for i in range(2))


@pytest.mark.parametrize(
    ("text", "shapes", "kind"),
    [
        (
            "op f(x: [h], k: [r]) -> y: [p]\n  where p == h - r + 1\n  y[p] = sum(r) x[p + r] * k[r]\n",
            [(7,), (3,)],
            LoweringClass.WINDOW,
        ),
        (
            "op f(x: [b]) -> y: [c]\n  where c == b\n  y[c] = sum(b) [b <= c] * x[b]\n",
            [(5,)],
            LoweringClass.SCAN,
        ),
        (
            "op f(x: [b, i], w: [i]) -> y: [b]\n  y[b] = relu(sum(i) x[b, i] * w[i])\n",
            [(4, 5), (5,)],
            LoweringClass.CONTRACTION,
        ),
        ("op f(x: [i], y: [i]) -> z: []\n  z[] = sum(i) x[i] * y[i]\n", [(5,), (5,)], LoweringClass.ROW_REDUCTION),
    ],
    ids=["window", "running_sum", "epilogue", "inner_product"],
)
def test_class_of_other_loops(text: str, shapes: list[tuple[int, ...]], kind: LoweringClass) -> None:
    library = declare(text)
    instance = instantiate(library.operators["f"], [Shape(shape) for shape in shapes], {})
    assert lowering_class(instance) is kind
