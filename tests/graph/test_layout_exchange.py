"""Transfers between overlapping layouts, checked against the meaning of layouts element by element."""

from __future__ import annotations

from itertools import permutations, product
from random import Random

import numpy as np
import pytest

from unity_dsl.graph.declared_slices import cut_at, cut_indices, positions_of
from unity_dsl.graph.layout import Invariant, Kind, Layout, Mesh, MeshAxis, Overlap, Partial, Replicate, Shard, Window
from unity_dsl.graph.layout import nest as nested
from unity_dsl.graph.layout_exchange import Received

from .overlapping import CYCLIC, HALO, STRIDED, library_with
from .transfers import transfers

LIBRARY = library_with(HALO, STRIDED, CYCLIC)
NARROW = Window(0, 0, "halo", (("before", 1), ("after", 1)))
WIDE = Window(0, 0, "halo", (("before", 0), ("after", 5)))
"""Wider than a slice of four positions: it reaches over two neighbours."""
SHAPE = (12, 4)
Locals = list[np.ndarray]


def mesh_of(*degrees: int) -> Mesh:
    return Mesh(tuple(MeshAxis(name, degree) for name, degree in zip("abc", degrees, strict=False)))


def held(layout: Layout, mesh: Mesh, rank: int) -> list[np.ndarray]:
    here = mesh.coordinates(rank)
    return [positions_of(layout, dim, extent, mesh, here, LIBRARY) for dim, extent in enumerate(SHAPE)]


def classes(layout: Layout, mesh: Mesh) -> list[list[int]]:
    """Groups of devices whose local tensors add up to one whole: they differ only along axes of terms."""
    terms = layout.where(Partial, Overlap)
    found: dict[tuple[int, ...], list[int]] = {}
    for rank in range(mesh.size):
        key = tuple(c for axis, c in enumerate(mesh.coordinates(rank)) if axis not in terms)
        found.setdefault(key, []).append(rank)
    return list(found.values())


def put_together(locals_: Locals, layout: Layout, mesh: Mesh, ranks: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """The sum of the local tensors of these devices, and which elements they hold."""
    total, known = np.zeros(SHAPE), np.zeros(SHAPE, dtype=bool)
    for rank in ranks:
        rows, columns = held(layout, mesh, rank)
        for i, j in product(range(len(rows)), range(len(columns))):
            if rows[i] >= 0 and columns[j] >= 0:
                total[rows[i], columns[j]] += locals_[rank][i, j]
                known[rows[i], columns[j]] = True
    return total, known


def encoded(tensor: np.ndarray, layout: Layout, mesh: Mesh, rng: np.random.Generator) -> Locals:
    """Local tensors that represent a tensor. Terms are random numbers with the right sum; copies of a
    term are equal.
    """
    copies = layout.where(Invariant, Replicate)
    made: dict[tuple[int, ...], np.ndarray] = {}
    locals_: Locals = []
    for rank in range(mesh.size):
        key = tuple(c for axis, c in enumerate(mesh.coordinates(rank)) if axis not in copies)
        shape = tuple(map(len, held(layout, mesh, rank)))
        locals_.append(made.setdefault(key, rng.integers(-9, 9, shape).astype(float)).copy())
    for ranks in classes(layout, mesh):
        missing, left = tensor - put_together(locals_, layout, mesh, ranks)[0], np.ones(SHAPE, dtype=bool)
        for rank in ranks:
            rows, columns = held(layout, mesh, rank)
            for i, j in product(range(len(rows)), range(len(columns))):
                if rows[i] < 0 or columns[j] < 0:
                    locals_[rank][i, j] = 0.0
                elif left[rows[i], columns[j]]:
                    locals_[rank][i, j] += missing[rows[i], columns[j]]
                    left[rows[i], columns[j]] = False
    return locals_


def moved(source: Layout, target: Layout, locals_: Locals, mesh: Mesh) -> Locals:
    found = [np.zeros(tuple(map(len, held(target, mesh, rank)))) for rank in range(mesh.size)]
    for transfer in transfers(source, target, SHAPE, mesh, LIBRARY):
        found[transfer.taker][np.ix_(*transfer.put_at)] += locals_[transfer.giver][np.ix_(*transfer.taken_from)]
    return found


def check(source: Layout, target: Layout, mesh: Mesh) -> None:
    rng = np.random.default_rng(3)
    tensor = rng.integers(-9, 9, SHAPE).astype(float)
    made = moved(source, target, encoded(tensor, source, mesh, rng), mesh)
    for ranks in classes(target, mesh):
        total, known = put_together(made, target, mesh, ranks)
        np.testing.assert_array_equal(total[known], tensor[known], f"{source} -> {target}")
        assert known.all() or target.where(Shard, Window)
    for rank in range(mesh.size):
        rows, columns = held(target, mesh, rank)
        assert not made[rank][rows < 0].any() and not made[rank][:, columns < 0].any(), "zeros outside"


def layouts(mesh: Mesh) -> list[Layout]:
    kinds: list[Kind] = [Invariant(), Replicate(), Partial(), Shard(0), Shard(1), Shard(0, by="cyclic"), NARROW, WIDE]
    kinds.append(Shard(0, by="strided", attributes=(("block", 3),)))
    found = []
    for chosen in product(kinds, repeat=len(mesh.axes)):
        ways = {(type(kind), kind.by, kind.attributes) for kind in chosen if isinstance(kind, Shard | Window)}
        rows = {way for kind, way in zip(chosen, chosen, strict=True) if isinstance(way, Window)}
        others = [kind for kind in chosen if isinstance(kind, Shard) and kind.dim == 0]
        if len(rows) <= 1 and not (rows and others) and len(ways) <= 2:
            found.append(nested(chosen))
    return [layout for layout in found if _possible(layout, mesh)]


def _possible(layout: Layout, mesh: Mesh) -> bool:
    try:
        shapes = [tuple(map(len, held(layout, mesh, rank))) for rank in range(mesh.size)]
    except ValueError:
        return False
    positions = [np.concatenate([held(layout, mesh, rank)[0] for rank in range(mesh.size)])]
    return len(set(shapes)) == 1 and set(range(SHAPE[0])) <= set(positions[0].tolist())


@pytest.mark.parametrize("degrees", [(2,), (3,), (4,)])
def test_every_conversion_along_one_axis(degrees: tuple[int, ...]) -> None:
    mesh = mesh_of(*degrees)
    for source, target in product(layouts(mesh), repeat=2):
        check(source, target, mesh)
        check(target.transpose, source.transpose, mesh)


def test_conversions_along_two_axes() -> None:
    """A sample of the pairs with an overlapping layout. One device axis of the op spans one mesh axis or both."""
    mesh = mesh_of(2, 2)
    every = [layout for layout in layouts(mesh) if not any("cyclic" in str(kind) for kind in layout.kinds)]
    wide = [layout for layout in every if layout.overlaps]
    assert any(len(layout.where(Window)) == 2 for layout in wide)
    pairs = [*product(wide, every), *product(every, wide)]
    for source, target in Random(1).sample(pairs, 400):
        check(source, target, mesh)
        check(target.transpose, source.transpose, mesh)


@pytest.mark.parametrize("degrees", [(4,), (2, 2)])
def test_what_a_conversion_receives_is_what_its_transfers_carry(degrees: tuple[int, ...]) -> None:
    mesh = mesh_of(*degrees)
    received = Received(mesh, LIBRARY)
    every = [layout for layout in layouts(mesh) if layout.overlaps or not any(layout.where(Partial, Replicate))]
    pairs = [pair for pair in product(every, repeat=2) if any(layout.overlaps for layout in pair)]
    for source, target in Random(2).sample(pairs, min(len(pairs), 60)):
        for there, back in ((source, target), (target.transpose, source.transpose)):
            count = [0] * mesh.size
            for transfer in transfers(there, back, SHAPE, mesh, LIBRARY):
                count[transfer.taker] += transfer.elements * (transfer.giver != transfer.taker)
            assert received.fraction(there, back, SHAPE) * 48 == pytest.approx(max(count)), f"{there} -> {back}"


@pytest.mark.parametrize("degrees", [(4,), (2, 3), (2, 2, 3)])
def test_contiguous_slices_are_counted_by_blocks(degrees: tuple[int, ...]) -> None:
    """Slices nested in any order, against the transfers of single positions. A dimension too long to list its positions
    gives the same fraction.
    """
    mesh, rng = mesh_of(*degrees), Random(3)
    received = Received(mesh, LIBRARY)
    every = [
        Layout(tuple(Shard(0, cut.index(axis)) if axis in cut else Replicate() for axis in range(len(degrees))))
        for count in range(len(degrees) + 1)
        for cut in permutations(range(len(degrees)), count)
    ]
    for source, target in rng.sample([*product(every, repeat=2)], min(len(every) ** 2, 60)):
        for length in (mesh.size, 3 * mesh.size):
            count = [0] * mesh.size
            for transfer in transfers(source, target, (length,), mesh, LIBRARY):
                count[transfer.taker] += transfer.elements * (transfer.giver != transfer.taker)
            fraction = received.fraction(source, target, (length,))
            assert fraction * length == pytest.approx(max(count)), f"{source} -> {target} of {length}"
            assert received.fraction(source, target, (mesh.size << 40,)) == pytest.approx(fraction)


def test_from_slices_to_a_halo_only_the_rims_travel() -> None:
    mesh = mesh_of(4)
    fraction = Received(mesh, LIBRARY).fraction(Layout((Shard(0),)), Layout((NARROW,)), SHAPE)
    assert fraction * 12 == pytest.approx(2)
    back = Received(mesh, LIBRARY).fraction(Layout((NARROW,)).transpose, Layout((Shard(0),)), SHAPE)
    assert back * 12 == pytest.approx(2)


def test_a_halo_is_its_declared_index_map() -> None:
    declaration = LIBRARY.parallels["halo"]
    found = cut_indices(declaration, 3, 12, (("before", 1), ("after", 2)))
    assert found is not None and found.tolist() == [
        [-1, 0, 1, 2, 3, 4, 5],
        [3, 4, 5, 6, 7, 8, 9],
        [7, 8, 9, 10, 11, -1, -1],
    ]
    assert cut_at(declaration, 5, 12, (("before", 1), ("after", 2))) is None, "5 devices do not divide 12"
    assert cut_at(declaration, 3, 12) is None, "nothing says how much of the neighbours"


def test_a_fill_that_is_not_zero_is_no_encoder() -> None:
    ones = library_with(HALO.replace("else 0", "else 1")).parallels["halo"]
    assert cut_indices(ones, 3, 12, (("before", 1), ("after", 0))) is None
    assert cut_indices(ones, 3, 12, (("before", 0), ("after", 0))) is not None, "nothing lies outside"


def test_a_condition_on_sizes_limits_a_cut() -> None:
    text = HALO.replace("l == e + before + after", "l == e + before + after, before <= e")
    declaration = library_with(text).parallels["halo"]
    assert cut_at(declaration, 3, 12, (("before", 4), ("after", 0))) is not None
    assert cut_at(declaration, 3, 12, (("before", 5), ("after", 0))) is None
