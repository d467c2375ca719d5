"""Exchanges and permutations that the emitted program plans at its start, against the oracle, device by device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.graph.overlapping import CYCLIC, HALO, STRIDED, library_with
from unity_dsl.emit.conversion_text import Collectives
from unity_dsl.emit.program_text import render_collectives
from unity_dsl.graph.collective_steps import Step, StepKind
from unity_dsl.graph.declared_slices import positions_of
from unity_dsl.graph.layout import Invariant, Kind, Layout, Mesh, MeshAxis, Partial, Replicate, Shard, Window, nest
from unity_dsl.graph.layout_conversion import Conversion
from unity_dsl.graph.layout_exchange import transfers

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
    """A device mesh as one of its devices sees it, all in one process: its groups communicate nothing."""

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
    """parallel.py with a function for each step, and the attribute of the groups that each step plans."""
    collectives = Collectives(mesh, LIBRARY)
    texts = [collectives.function(Conversion((step,), ()), shape, "step", "") for step in steps]
    path = folder / "parallel.py"
    path.write_text(render_collectives("steps", collectives))
    return load_file(str(path), "planned"), [text.forward[0].needs for text in texts]


def planned(plans: list[Any], source: Layout, target: Layout, shape: tuple[int, ...], mesh: Mesh) -> dict[Any, Any]:
    """What goes from whom to whom: the giver's positions, as it says, and the taker's, as that says."""
    sent, taken = {}, {}
    for rank, plan in enumerate(plans):
        here = mesh.coordinates(rank)
        names = plan.group.axes if plan.group else ()
        axes = ["abc".index(name) for name in names]
        for found, layout, pieces in ((sent, source, plan.sends), (taken, target, plan.takes)):
            sizes = [len(positions_of(layout, dim, extent, mesh, here, LIBRARY)) for dim, extent in enumerate(shape)]
            for member, piece in pieces.items():
                place = list(here)
                number = member
                for axis in reversed(axes):
                    number, place[axis] = divmod(number, mesh.axes[axis].degree)
                other = mesh.rank(place)
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


@cache
def layouts(mesh: Mesh, shape: tuple[int, ...], kinds: tuple[Kind, ...]) -> tuple[Layout, ...]:
    """Every layout of these kinds in mesh order that the shape allows, windows by themselves on their dimension."""
    found = []
    for chosen in product(kinds, repeat=len(mesh.axes)):
        windows = {kind for kind in chosen if isinstance(kind, Window)}
        rows = [kind for kind in chosen if isinstance(kind, Shard) and kind.dim == 0]
        layout = nest(chosen)
        if len(windows) + bool(rows) <= 1 + (not windows) and _divides(layout, shape, mesh):
            found.append(layout)
    return tuple(found)


def _divides(layout: Layout, shape: tuple[int, ...], mesh: Mesh) -> bool:
    """Whether devices have equally many positions of each dimension, and each position equally many devices."""
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


def sample(found: Sequence[Layout], count: int, seed: int, need: type[Kind] | None = None) -> list[Any]:
    random = Random(seed)
    pairs = [(random.choice(found), random.choice(found)) for _ in range(count)]
    return [*pairs, *((target.transpose, source.transpose) for source, target in pairs)]


@pytest.mark.parametrize("degrees", [(4,), (2, 3), (2, 2, 2), (3, 2, 2)])
def test_blocks(degrees: tuple[int, ...], tmp_path: Path) -> None:
    mesh, shape = mesh_of(*degrees), (24, 12)
    check(sample(layouts(mesh, shape, PLAIN), 150, 1), shape, mesh, tmp_path)


@pytest.mark.parametrize("degrees", [(2,), (4,), (2, 2), (3, 2), (2, 2, 2)])
def test_declared_cuts(degrees: tuple[int, ...], tmp_path: Path) -> None:
    mesh, shape = mesh_of(*degrees), (24, 16 if 3 not in degrees else 12)
    check(sample(layouts(mesh, shape, (*PLAIN, *OWN, BLOCKED)), 100, 2), shape, mesh, tmp_path)


@pytest.mark.parametrize("degrees", [(2,), (4,), (2, 2), (3, 2), (2, 2, 2)])
def test_windows(degrees: tuple[int, ...], tmp_path: Path) -> None:
    mesh, shape = mesh_of(*degrees), (24, 12)
    check(sample(layouts(mesh, shape, (*PLAIN, NARROW, WIDE, OWN[0])), 150, 3), shape, mesh, tmp_path)
