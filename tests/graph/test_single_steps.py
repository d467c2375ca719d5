"""Single conversion steps keep the value, and state what devices receive."""

from __future__ import annotations

from itertools import permutations, product
from math import prod

import numpy as np
import pytest

from unity_dsl.graph.collective_steps import StepKind
from unity_dsl.graph.layout import Invariant, Kind, Layout, Mesh, MeshAxis, Partial, Replicate, Shard, nest
from unity_dsl.graph.layout_codes import all_layouts, encode, layouts_in_order
from unity_dsl.graph.layout_conversion import divides, divisors
from unity_dsl.graph.single_steps import STEP_KINDS, received_fraction, single_steps

from .simulation import LIBRARY, decode, run
from .simulation import encode as hold
from .transfers import transfers

FOUR = Mesh((MeshAxis("a", 2), MeshAxis("b", 2)))
SIX = Mesh((MeshAxis("a", 2, 1), MeshAxis("b", 3)))
EIGHT = Mesh((MeshAxis("a", 2, 1), MeshAxis("b", 2), MeshAxis("c", 2)))


def every_nesting(shape: tuple[int, ...], mesh: Mesh) -> set[Layout]:
    """Every combination of kinds and nesting order of mesh axes that divides the shape."""
    kinds: list[Kind] = [Invariant(), Replicate(), Partial(), *map(Shard, range(len(shape)))]
    found = set()
    axes = range(len(mesh.axes))
    for chosen, order in product(product(kinds, repeat=len(mesh.axes)), permutations(axes)):
        nested = nest([chosen[axis] for axis in order])
        layout = Layout(tuple(nested.kinds[order.index(axis)] for axis in axes))
        if divides(layout, shape, mesh):
            found.add(layout)
    return found


@pytest.mark.parametrize(
    ("mesh", "shape"), [(FOUR, (4, 2)), (SIX, (6, 4)), (EIGHT, (8, 4)), (EIGHT, ()), (Mesh(()), (3,))]
)
def test_every_layout_is_there_and_those_in_mesh_order(mesh: Mesh, shape: tuple[int, ...]) -> None:
    extents = divisors(shape, mesh)
    dims = tuple(dim for dim, extent in enumerate(extents) if extent > 1)
    codes, count = all_layouts(tuple(extents[dim] for dim in dims), mesh)
    layouts = codes.layouts(dims)
    assert set(layouts) == every_nesting(extents, mesh)
    assert len(set(layouts)) == len(layouts)
    assert layouts_in_order(extents, mesh) == tuple(layouts[:count])
    for number, layout in enumerate(layouts):
        assert (nest(layout.kinds) == layout) == (number < count)


def test_codes_are_those_of_their_layouts() -> None:
    codes, _ = all_layouts((8, 4), EIGHT)
    layouts = codes.layouts((1, 3))
    again = encode(layouts, (1, 3))
    assert np.array_equal(again.kind, codes.kind)
    assert np.array_equal(again.place, codes.place)
    assert len(np.unique(codes.keys(2))) == len(codes)
    transposed = codes.transpose.layouts((1, 3))
    assert transposed == [layout.transpose for layout in layouts]
    assert codes.in_mesh_order.tolist() == [nest(layout.kinds) == layout for layout in layouts]


def pairs(mesh: Mesh, dims: int) -> list[tuple[Layout, Layout, int, int]]:
    layouts = single_steps((mesh.size,) * dims, mesh).layouts.layouts(tuple(range(dims)))
    return [(a, b, i, j) for (i, a), (j, b) in product(enumerate(layouts), repeat=2)]


@pytest.mark.parametrize(("mesh", "dims", "every"), [(FOUR, 2, 1), (SIX, 2, 1), (EIGHT, 2, 7)])
def test_every_step_keeps_the_value(mesh: Mesh, dims: int, every: int) -> None:
    rng = np.random.default_rng(0)
    found, shape = single_steps((mesh.size,) * dims, mesh), (24, 48)[:dims]
    kinds = set()
    for source, target, i, j in pairs(mesh, dims)[::every]:
        step = found.step(i, j, tuple(range(dims)))
        if step is not None:
            kinds.add(step.kind)
            value = rng.integers(-9, 9, shape).astype(float)
            held = run((step,), hold(value, source, mesh, rng), mesh, shape)
            assert np.array_equal(decode(held, target, shape, mesh), value), (source, target, step)
    assert kinds == set(StepKind)


@pytest.mark.parametrize(("mesh", "every"), [(FOUR, 1), (SIX, 1), (EIGHT, 11)])
def test_what_is_received_is_what_transfers_bring(mesh: Mesh, every: int) -> None:
    found, shape = single_steps((mesh.size,) * 2, mesh), (24, 48)
    for source, target, i, j in pairs(mesh, 2)[::every]:
        kind = int(found.kind[i, j])
        if kind < 0 or STEP_KINDS[kind] not in (StepKind.PERMUTE, StepKind.EXCHANGE):
            continue
        received = [0] * mesh.size
        givers: list[set[int]] = [set() for _ in range(mesh.size)]
        for transfer in transfers(source, target, shape, mesh, LIBRARY):
            received[transfer.taker] += transfer.elements * (transfer.giver != transfer.taker)
            givers[transfer.taker].add(transfer.giver)
        assert found.received[i, j] == pytest.approx(max(received) / prod(shape), rel=1e-12), (source, target)
        assert received_fraction(source, target, mesh, (0, 1)) == found.received[i, j]
        if STEP_KINDS[kind] is StepKind.PERMUTE:
            assert all(len(of_one) == 1 for of_one in givers), (source, target)


def test_named_collectives_are_recognised_over_groups() -> None:
    found = single_steps((EIGHT.size,) * 2, EIGHT)
    number = {layout: i for i, layout in enumerate(found.layouts.layouts((0, 1)))}

    def step(source: tuple[Kind, ...], target: tuple[Kind, ...]) -> object:
        found_step = found.step(number[nest(source)], number[nest(target)], (0, 1))
        return None if found_step is None else (found_step.kind, found_step.axes, found_step.dim, found_step.to_dim)

    whole, terms, first, second = Invariant(), Partial(), Shard(0), Shard(1)
    assert step((first,) * 3, (whole,) * 3) == (StepKind.ALL_GATHER, (0, 1, 2), 0, 0)
    assert step((first,) * 3, (second,) * 3) == (StepKind.ALL_TO_ALL, (0, 1, 2), 0, 1)
    assert step((terms, terms, first), (whole, whole, first)) == (StepKind.ALL_REDUCE, (0, 1), 0, 0)
    assert step((second, terms, terms), (second, first, first)) == (StepKind.REDUCE_SCATTER, (1, 2), 0, 0)
    assert step((whole, first, whole), (whole, whole, first)) == (StepKind.PERMUTE, (1, 2), 0, 0)
    assert step((first, second, whole), (whole, whole, whole)) == (StepKind.EXCHANGE, (0, 1), 0, 0)
    assert step((terms, first, whole), (first, whole, whole)) is None
