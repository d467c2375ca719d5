"""Prices of collectives over a group of mesh axes: by NCCL's cost model if the machine names it, else by the levels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

from ..graph.collective_steps import StepKind
from ..graph.layout import Mesh
from . import level_price, nccl_price
from .device_group import Crossing, crossings
from .machine import Machine
from .price import Price

Group = tuple[int, ...]
"""Mesh axes along which devices form groups."""


class _Library(Protocol):
    """A module that prices the collectives of a group of `size` devices that crosses `levels`."""

    def collective_price(self, kind: StepKind, levels: tuple[Crossing, ...], size: int, machine: Machine) -> Price: ...

    def sends_price(
        self, levels: tuple[Crossing, ...], peers: Sequence[int], parts: Sequence[float], size: int, machine: Machine
    ) -> Price: ...

    def message_seconds(
        self, farthest: Crossing, levels: tuple[Crossing, ...], size: int, machine: Machine
    ) -> float: ...


def _library(machine: Machine) -> _Library:
    return level_price if machine.collectives.nccl is None else nccl_price


@lru_cache(maxsize=4096)
def gathering_price(axes: Group, mesh: Mesh, machine: Machine) -> Price:
    """The price of an all-gather or a reduce-scatter, in bytes of the whole tensor."""
    levels = crossings(axes, mesh, machine)
    return _library(machine).collective_price(StepKind.ALL_GATHER, levels, mesh.degree(axes), machine)


@lru_cache(maxsize=4096)
def all_reduce_price(axes: Group, mesh: Mesh, machine: Machine) -> Price:
    """The price of an all-reduce, in bytes of the summed tensor."""
    levels = crossings(axes, mesh, machine)
    return _library(machine).collective_price(StepKind.ALL_REDUCE, levels, mesh.degree(axes), machine)


@lru_cache(maxsize=4096)
def all_to_all_price(axes: Group, mesh: Mesh, machine: Machine) -> Price:
    """The price of an all-to-all, in bytes that one device holds."""
    levels, size = crossings(axes, mesh, machine), mesh.degree(axes)
    peers = [level.peers for level in levels]
    return _library(machine).sends_price(levels, peers, [count / size for count in peers], size, machine)


@lru_cache(maxsize=4096)
def permutation_price(axes: Group, mesh: Mesh, machine: Machine) -> Price:
    """The price, in received bytes, if every device sends to one other: a single hop, with the bytes on the slowest
    level.
    """
    levels = crossings(axes, mesh, machine)
    farthest, slowest = _farthest(levels), min(levels, key=lambda level: level.rate)
    peers, parts = [int(level is farthest) for level in levels], [float(level is slowest) for level in levels]
    return _library(machine).sends_price(levels, peers, parts, mesh.degree(axes), machine)


@lru_cache(maxsize=4096)
def partner_seconds(axes: Group, mesh: Mesh, machine: Machine) -> float:
    """Seconds that each partner after the first adds to transfers between devices of a group."""
    levels = crossings(axes, mesh, machine)
    return _library(machine).message_seconds(_farthest(levels), levels, mesh.degree(axes), machine)


def _farthest(levels: Sequence[Crossing]) -> Crossing:
    return max(levels, key=lambda level: level.latency)
