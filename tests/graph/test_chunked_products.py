"""Which products are decomposed to overlap with the communication of an operand or the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from unity_dsl.compilation import Compilation, Request, compile_model
from unity_dsl.graph.chunked_products import ChunkedProduct, chunked_products, chunks_of_plan, gathers_blocks
from unity_dsl.graph.collective_steps import Step, StepKind
from unity_dsl.graph.layout import Invariant, Layout, Mesh, MeshAxis, Shard
from unity_dsl.graph.plan import PlannedNode

MODEL = """model two[b = 4, s = 8, d = 8, e = 16]
  input x: f32[b, s, d]
  input target: f32[b, s, d]
  weight first: f32[d, d] ~ normal(0.5)
  h = linear(x, first)
  weight a: f32[e, d] ~ normal(0.5)
  weight v: f32[e, d] ~ normal(0.5)
  weight c: f32[d, e] ~ normal(0.5)
  n = tanh(h)
  g = linear(n, a)
  u = sigmoid(linear(n, v)) * g
  z = linear(u, c)
  k = h + z
  loss mse(k, target)
  output {output}
"""
BLOCKS = ("first=I", "h=S0", "n=S0", "a=S0", "v=S0", "g=S2", "u=S2", "z=P", "k=S0")
TERMS = ("first=I", "h=I", "n=I", "a=S0", "v=S0", "g=S2", "u=S2", "z=P", "k=I")


def compiled(folder: Path, output: str = "k", **choices: Any) -> Compilation:
    (folder / "model.udl").write_text(MODEL.format(output=output))
    return compile_model(Request(folder / "model.udl", devices=2, **choices))


def found_in(found: Compilation, count: int) -> dict[str, ChunkedProduct]:
    products = chunks_of_plan(found.plan, found.library, count)
    return {path + one.product.step.node.name: one for path, one in products}


def test_the_product_that_reads_first_and_the_one_that_is_summed(tmp_path: Path) -> None:
    """The gather takes rows of examples in blocks. The sums are therefore sent in parts along the next dimension."""
    found = found_in(compiled(tmp_path, pins=BLOCKS), 4)
    assert set(found) == {"g", "z"}
    assert (found["g"].reads, found["g"].parts, found["g"].value.name) == (0, 2, "n")
    assert (found["z"].reads, found["z"].parts, found["z"].value.name) == (None, 4, "z")
    sizes = found["z"].product.step.typed.local_sizes
    assert sizes[found["z"].axis] == 8 and found["g"].product.step.typed.local_sizes[found["g"].axis] == 4


def test_rows_are_divided_evenly(tmp_path: Path) -> None:
    """`z` is divided along the 2 examples of a device or the 8 positions. Neither divides into 3 parts; the gather has
    2 blocks.
    """
    found = compiled(tmp_path, pins=BLOCKS)
    assert [found_in(found, 2)["z"].axis] != [found_in(found, 4)["z"].axis]
    assert set(found_in(found, 3)) == {"g"}


def test_sums_that_all_devices_keep(tmp_path: Path) -> None:
    found = found_in(compiled(tmp_path, pins=TERMS), 4)
    assert set(found) == {"z"}


def test_what_is_read_as_terms_too_is_not_sent_in_parts(tmp_path: Path) -> None:
    """An output `z` leaves the model as terms, so its product is not decomposed. An output behind the sum is no
    obstacle.
    """
    found = compiled(tmp_path, output="z", pins=TERMS)
    planned = found.plan.graph
    given = found.plan.conversions, found.plan.mesh, found.library, 4
    assert not chunked_products(planned, *given, {"z"}).leaving
    assert set(chunked_products(planned, *given, {"k"}).leaving) == {"z"}


def test_one_device_has_none(tmp_path: Path) -> None:
    (tmp_path / "model.udl").write_text(MODEL.format(output="k"))
    single = compile_model(Request(tmp_path / "model.udl"))
    assert not found_in(single, 2)


@pytest.mark.parametrize(
    ("dim", "shape", "others", "blocks"),
    [
        (0, (4, 8), Invariant(), True),
        (1, (4, 8, 8), Invariant(), False),  # the blocks of an example are not contiguous
        (1, (2, 8, 8), Shard(0), True),  # a device has one example
        (1, (2, 8), Shard(0), False),  # columns, not rows
        (0, (4,), Invariant(), False),
    ],
)
def test_blocks_lie_one_behind_the_other(
    dim: int, shape: tuple[int, ...], others: Invariant | Shard, blocks: bool
) -> None:
    mesh = Mesh((MeshAxis("a", 2), MeshAxis("b", 2)))
    step = Step(StepKind.ALL_GATHER, (1,), dim)
    assert (gathers_blocks([step], Layout((others, Shard(dim))), shape, mesh) is step) == blocks
    assert gathers_blocks([step, step], Layout((others, Shard(dim))), shape, mesh) is None


@pytest.mark.parametrize("seed", range(6))
def test_a_chunk_waits_for_no_other_reader(seed: int, tmp_path: Path) -> None:
    """Under any layouts: the product is the first reader of a gathered operand, and nobody reads the terms of a summed
    result.
    """
    found = compiled(tmp_path, strategy=f"random:{seed}", mesh=(2,))
    graph = found.plan.graph
    for one in found_in(found, 2).values():
        node = one.product.step.node
        readers = [
            (step.node.name, layout)
            for step in graph.steps
            if isinstance(step, PlannedNode)
            for value, layout in zip(step.node.arguments, step.typed.arguments, strict=True)
            if value.name == one.value.name
        ]
        if one.reads is None:
            assert all(layout != graph.values[one.value.name].produced for _, layout in readers)
        else:
            assert next(name for name, layout in readers if layout == one.layout) == node.name
