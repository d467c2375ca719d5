"""Exchanges and permutations, which an emitted program plans when it starts, against the oracle, device by device."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.graph.overlapping import CYCLIC, HALO, STRIDED, library_with
from tests.graph.transfers import transfers
from unity_dsl.emit.conversion_text import Collectives
from unity_dsl.emit.parallel_text import render_collectives
from unity_dsl.graph.collective_steps import Step, StepKind
from unity_dsl.graph.declared_slices import positions_of
from unity_dsl.graph.layout import Invariant, Kind, Layout, Mesh, MeshAxis, Partial, Replicate, Shard, Window, nest
from unity_dsl.graph.layout_conversion import Conversion

from .planning import conversions_on
from .ranks import load_file

ZIGZAG = """
## Of 2p blocks the one with the device's number from the start, then the one with that number from the end.
parallel zigzag[p; dim](x: [f.., d, g..]) -> y: [@p, f.., e, g..]
  where rank(f) == dim, d == p * e
  y[@p, f.., j, g..] = x[f.., @p * (|e| // 2) + j + j * 2 // |e| * (|d| - @p * (|e| // 2 * 2) - |e|), g..]
"""

REVERSED = """
## The last block first, and each from its end.
parallel reversed[p; dim](x: [f.., d, g..]) -> y: [@p, f.., e, g..]
  where rank(f) == dim, d == p * e
  y[@p, f.., j, g..] = x[f.., |d| - 1 - @p * |e| - j, g..]
"""

LIBRARY = library_with(HALO, STRIDED, CYCLIC, ZIGZAG, REVERSED)
NARROW = Window(0, 0, "halo", (("before", 1), ("after", 1)))
WIDE = Window(0, 0, "halo", (("before", 0), ("after", 5)))
PLAIN: tuple[Kind, ...] = (Invariant(), Replicate(), Partial(), Shard(0), Shard(1))
OWN: tuple[Kind, ...] = tuple(Shard(dim, by=by) for dim in (0, 1) for by in ("cyclic", "zigzag", "reversed"))
BLOCKED = Shard(0, by="strided", attributes=(("block", 3),))


@dataclass(frozen=True)
class Here:
    """A device mesh as one device sees it, all in one process. Its groups do not communicate."""

    mesh: Mesh
    rank: int
    axes: tuple[str, ...] = ()
    device_type = "cpu"
    group_name = "none"

    @property
    def mesh_dim_names(self) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.mesh.axes)

    def __getitem__(self, axes: tuple[str, ...]) -> Here:
        return Here(self.mesh, self.rank, axes)

    def _flatten(self, name: str) -> Here:
        return self

    def get_group(self) -> Here:
        return self

    def get_local_rank(self, axis: str) -> int:
        return self.mesh.coordinates(self.rank)[self.mesh_dim_names.index(axis)]

    def size(self) -> int:
        return self.mesh.degree(self.mesh_dim_names.index(axis) for axis in self.axes)


def mesh_of(*degrees: int) -> Mesh:
    return Mesh(tuple(MeshAxis(name, degree) for name, degree in zip("abc", degrees, strict=False)))


def exchange_step(source: Layout, target: Layout) -> Step:
    changed = [axis for axis, (a, b) in enumerate(zip(source.kinds, target.kinds, strict=True)) if a != b]
    return Step(StepKind.EXCHANGE, tuple(changed), source=source, target=target)


def written(steps: Sequence[Step], shape: tuple[int, ...], mesh: Mesh, folder: Path) -> tuple[ModuleType, list[str]]:
    """Writes parallel.py with a function for each step. Returns its module, and the name of each step's plan in the
    groups.
    """
    collectives = Collectives(mesh, LIBRARY, conversions_on(mesh, LIBRARY))
    texts = [collectives.function(Conversion((step,), ()), shape, "step", "") for step in steps]
    path = folder / "parallel.py"
    path.write_text(render_collectives("steps", collectives))
    return load_file(str(path), "planned"), [text.forward[0].needs for text in texts]


def member_rank(member: int, names: Sequence[str], rank: int, mesh: Mesh) -> int:
    """The rank of a member of this rank's group over the axes `names`, the first of which is major."""
    place = list(mesh.coordinates(rank))
    for axis in reversed(["abc".index(name) for name in names]):
        member, place[axis] = divmod(member, mesh.axes[axis].degree)
    return mesh.rank(place)


def planned(plans: list[Any], source: Layout, target: Layout, shape: tuple[int, ...], mesh: Mesh) -> dict[Any, Any]:
    """The moves between devices: positions at the sender as it plans them, and at the receiver as that plans them."""
    sent, taken = {}, {}
    for rank, plan in enumerate(plans):
        here = mesh.coordinates(rank)
        for found, layout, pieces in ((sent, source, plan.sends), (taken, target, plan.takes)):
            sizes = [len(positions_of(layout, dim, extent, mesh, here, LIBRARY)) for dim, extent in enumerate(shape)]
            for member, piece in pieces.items():
                other = member_rank(member, plan.group.axes if plan.group else (), rank, mesh)
                pair = (rank, other) if found is sent else (other, rank)
                index = (*piece, *[slice(None)] * (len(shape) - len(piece)))
                found[pair] = tuple(tuple(np.arange(n)[i].tolist()) for n, i in zip(sizes, index, strict=True))
    assert sent.keys() == taken.keys()
    return {pair: (sent[pair], taken[pair]) for pair in sent}


def check(pairs: Sequence[tuple[Layout, Layout]], shape: tuple[int, ...], mesh: Mesh, folder: Path) -> None:
    pairs = [pair for pair in dict.fromkeys(pairs) if pair[0] != pair[1]]
    module, names = written([exchange_step(*pair) for pair in pairs], shape, mesh, folder)
    devices = [module.Groups(Here(mesh, rank)) for rank in range(mesh.size)]
    for (source, target), name in zip(pairs, names, strict=True):
        found = planned([getattr(groups, name) for groups in devices], source, target, shape, mesh)
        expected = {
            (move.giver, move.taker): (move.taken_from, move.put_at)
            for move in transfers(source, target, shape, mesh, LIBRARY)
        }
        assert found == expected, f"{source} -> {target} on {mesh.degrees}"


def _divides(layout: Layout, shape: tuple[int, ...], mesh: Mesh) -> bool:
    """Whether all devices have equally many positions of each dimension, and all positions are on
    equally many devices.
    """
    ranks = [mesh.coordinates(rank) for rank in range(mesh.size)]
    try:
        held = [[positions_of(layout, dim, n, mesh, here, LIBRARY) for here in ranks] for dim, n in enumerate(shape)]
    except ValueError:
        return False
    equal = all(len(set(map(len, parts))) == 1 for parts in held)
    counts = [
        np.bincount(np.concatenate(parts), minlength=n)
        for parts, n in zip(held, shape, strict=True)
        if not layout.overlaps
    ]
    return equal and all(len(set(count)) == 1 for count in counts)


def sample(kinds: Sequence[Kind], shape: tuple[int, ...], mesh: Mesh, count: int) -> list[tuple[Layout, Layout]]:
    """Random pairs of layouts, and the transposed pairs, which convert the gradient back."""
    random = Random(str(mesh.degrees))

    def drawn() -> Layout:
        while True:
            chosen = random.choices(kinds, k=len(mesh.axes))
            windows = {kind for kind in chosen if isinstance(kind, Window)}
            rows = any(isinstance(kind, Shard) and kind.dim == 0 for kind in chosen)
            layout = nest(chosen)
            if len(windows) + (rows and bool(windows)) <= 1 and _divides(layout, shape, mesh):
                return layout

    pairs = [(drawn(), drawn()) for _ in range(count)]
    return [*pairs, *((target.transpose, source.transpose) for source, target in pairs)]


@pytest.mark.parametrize("degrees", [(4,), (2, 3), (2, 2, 2), (3, 2, 2)])
def test_blocks(degrees: tuple[int, ...], tmp_path: Path) -> None:
    mesh, shape = mesh_of(*degrees), (24, 12)
    check(sample(PLAIN, shape, mesh, 30), shape, mesh, tmp_path)


@pytest.mark.parametrize("degrees", [(4,), (2, 3), (2, 2, 2)])
def test_declared_cuts(degrees: tuple[int, ...], tmp_path: Path) -> None:
    mesh, shape = mesh_of(*degrees), (24, 16 if 3 not in degrees else 12)
    check(sample((*PLAIN, *OWN, BLOCKED), shape, mesh, 30), shape, mesh, tmp_path)


@pytest.mark.parametrize("degrees", [(4,), (2, 3), (2, 2, 2)])
def test_windows(degrees: tuple[int, ...], tmp_path: Path) -> None:
    """Copies and partial sums of elements on several devices, mixed with other ways of sharding."""
    mesh, shape = mesh_of(*degrees), (24, 12)
    check(sample((*PLAIN, NARROW, WIDE, OWN[0]), shape, mesh, 30), shape, mesh, tmp_path)


@pytest.mark.parametrize("degrees", [(2, 2, 4), (4, 2, 2), (6, 2, 3)])
def test_permutations(degrees: tuple[int, ...], tmp_path: Path) -> None:
    """Each device sends all it has to the one device that needs exactly this. Partial sums come from partial sums."""
    mesh, shape = mesh_of(*degrees), (36 if 3 in degrees else 16, 16 if 3 not in degrees else 36)
    random = Random(str(degrees))
    orders = []
    for _ in range(200):
        kinds = random.choices((Invariant(), Partial(), Shard(0), Shard(1)), k=3)
        others = random.sample(kinds, 3)
        orders.append((_turned(nest(kinds), random), _turned(nest(others), random)))
    pairs = [pair for pair in dict.fromkeys(orders) if pair[0] != pair[1] and _same_degrees(*pair, shape, mesh)]
    steps = [Step(StepKind.PERMUTE, exchange_step(*pair).axes, source=pair[0], target=pair[1]) for pair in pairs]
    module, names = written(steps, shape, mesh, tmp_path)
    assert len(pairs) > 8
    devices = [module.Groups(Here(mesh, rank)) for rank in range(mesh.size)]
    for (source, target), name in zip(pairs, names, strict=True):
        giver_of, taker_of = {}, {}
        for rank, groups in enumerate(devices):
            plan = getattr(groups, name)
            assert sum(plan.sends) == sum(plan.takes) == 1
            giver_of[rank] = member_rank(plan.takes.index(1), plan.group.axes, rank, mesh)
            taker_of[rank] = member_rank(plan.sends.index(1), plan.group.axes, rank, mesh)
        assert {giver: taker for taker, giver in giver_of.items()} == taker_of
        for taker, giver in giver_of.items():
            here, there = mesh.coordinates(taker), mesh.coordinates(giver)
            for dim, extent in enumerate(shape):
                wanted = positions_of(target, dim, extent, mesh, here, LIBRARY)
                assert wanted.tolist() == positions_of(source, dim, extent, mesh, there, LIBRARY).tolist()
            if source.where(Partial) == target.where(Partial):
                assert all(here[axis] == there[axis] for axis in source.where(Partial))


def _turned(layout: Layout, random: Random) -> Layout:
    """The layout with its dimensions sharded by their mesh axes in another order."""
    kinds = list(layout.kinds)
    for dim in (0, 1):
        axes = list(layout.nesting(dim))
        random.shuffle(axes)
        for place, axis in enumerate(axes):
            kinds[axis] = Shard(dim, place)
    return Layout(tuple(kinds))


def _same_degrees(source: Layout, target: Layout, shape: tuple[int, ...], mesh: Mesh) -> bool:
    """Whether both layouts have the same sharding degree of each dimension and of partial sums."""
    counts = [
        [*(mesh.degree(layout.nesting(dim)) for dim in range(len(shape))), mesh.degree(layout.where(Partial))]
        for layout in (source, target)
    ]
    return counts[0] == counts[1]


def text_of(degree: int, extent: int, folder: Path) -> str:
    """parallel.py with exchanges and a permutation over three mesh axes of degree `degree`."""
    mesh = mesh_of(degree, degree, degree)
    ends = [
        (nest((Shard(0), Shard(0), Invariant())), nest((Shard(1), Replicate(), Shard(0)))),
        (nest((Shard(0, by="zigzag"), Shard(1), Replicate())), nest((Shard(1), Shard(0), Shard(0, by="cyclic")))),
        (nest((NARROW, Invariant(), Partial())), nest((Invariant(), Shard(0), Shard(1)))),
    ]
    turned = Layout((Shard(0, 1), Shard(0, 0), Invariant()))
    turn = Step(StepKind.PERMUTE, (0, 1), source=ends[0][0], target=turned)
    written([*(exchange_step(*pair) for pair in ends), turn], (extent, extent), mesh, folder)
    return (folder / "parallel.py").read_text()


def test_the_text_does_not_grow_with_devices_or_extents(tmp_path: Path) -> None:
    """Except for numbers, the text is the same on 8 devices and on 4,096."""
    sizes = (2, 64), (16, 8192), (16, 1 << 20)
    texts = {re.sub(r"\d+", "1", text_of(degree, extent, tmp_path)) for degree, extent in sizes}
    assert len(texts) == 1


def test_what_is_no_permutation_is_refused(tmp_path: Path) -> None:
    ends = nest((Shard(0), Invariant())), nest((Invariant(), Shard(0)))
    step = Step(StepKind.PERMUTE, (0, 1), source=ends[0], target=ends[1])
    with pytest.raises(ValueError, match="no permutation of devices"):
        written([step], (12, 12), mesh_of(2, 3), tmp_path)
