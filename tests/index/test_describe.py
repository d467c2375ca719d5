"""What `unityc explain` says of operators: all of it derived, and readable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from unity_dsl.index.describe import describe_function, describe_operator, describe_parallel, representative
from unity_dsl.index.library import Library
from unity_dsl.index.lowering import LoweringClass, lowering_class
from unity_dsl.index.work import backward_work, work

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", ["linear", "softmax", "cross_entropy", "embedding", "concat"])
def test_description(name: str, library: Library, golden: Any) -> None:
    golden(GOLDEN / f"{name}.txt", describe_operator(library.operators[name], library) + "\n")


def test_every_declaration_can_be_described(library: Library) -> None:
    for operator in library.operators.values():
        text = describe_operator(operator, library)
        assert "axis" in text and "lowering" in text
    assert all(describe_parallel(parallel) for parallel in library.parallels.values())
    assert all(describe_function(function) for function in library.functions.values())


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("linear", LoweringClass.CONTRACTION),
        ("matmul", LoweringClass.CONTRACTION),
        ("embedding", LoweringClass.GATHER),
        ("softmax", LoweringClass.ROW_REDUCTION),
        ("cross_entropy", LoweringClass.ROW_REDUCTION),
        ("reduce_sum", LoweringClass.ROW_REDUCTION),
        ("relu", LoweringClass.ELEMENTWISE),
        ("rearrange", LoweringClass.VIEW),
        ("concat", LoweringClass.VIEW),
    ],
)
def test_lowering_class(name: str, kind: LoweringClass, library: Library) -> None:
    assert lowering_class(representative(library.operators[name])) is kind


def test_work_of_a_matrix_product(library: Library) -> None:
    instance = representative(library.operators["linear"])
    b, i, o = (instance.sizes[axis] for axis in ("b0", "i", "o"))
    done = work(instance)
    assert done.flops == 2 * b * i * o
    assert (done.bytes_read, done.bytes_written) == (4 * (b * i + o * i), 4 * b * o)
    assert backward_work(instance, [True, True]).flops == 4 * b * i * o
    assert backward_work(instance, [False, True]).flops == 2 * b * i * o


def test_work_at_local_sizes(library: Library) -> None:
    instance = representative(library.operators["linear"])
    halved = {**instance.sizes, "o": instance.sizes["o"] / 2}
    assert work(instance, halved).flops == work(instance).flops / 2


def test_a_look_up_reads_the_rows_it_needs(library: Library) -> None:
    instance = representative(library.operators["embedding"])
    n, d = instance.sizes["n0"], instance.sizes["d"]
    assert work(instance).bytes_read == 8 * n + 4 * n * d
