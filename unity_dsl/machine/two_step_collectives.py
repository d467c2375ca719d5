"""Hierarchical collectives over groups of several nodes: one step within nodes, and one between them over the network.

A ring over all ranks takes a hop for each rank. In two steps, a gather over N nodes of r ranks takes N - 1 hops between
nodes and r - 1 within them, and every rank's card carries only a part of the nodes' blocks. In return, the steps do not
overlap, and a copy reorders the blocks. Two steps are faster if latency dominates.

Sources: the hierarchical all-reduce of Jia et al. 2018, "Highly Scalable Deep Learning Training System with
Mixed-Precision", and the two-hop all-to-all of ZeRO++ (Wang et al. 2023).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from ..graph.collective_steps import Step, StepKind
from ..graph.layout import Mesh
from .device_group import crossings
from .machine import Machine

TWO_STEP_KINDS = frozenset({StepKind.ALL_GATHER, StepKind.REDUCE_SCATTER, StepKind.ALL_TO_ALL})
"""All-reduce is left out, as NCCL's trees are shorter: they go through a node before they leave it."""


def ways(step: Step, mesh: Mesh, machine: Machine) -> Iterator[Step]:
    """The implementations of a step: in the whole group at once, and in two steps if a group has several ranks on
    several nodes.
    """
    yield step
    if step.kind in TWO_STEP_KINDS:
        between = _between_nodes(step.axes, mesh, machine)
        if between and len(between) < len(step.axes):
            yield replace(step, first=between)


def parts(step: Step) -> tuple[Step, Step]:
    """The two steps of a hierarchical collective, in order. Gathered blocks cross nodes while they are still small, and
    a reduce-scatter sends between nodes only what is left of the sum.
    """
    within = tuple(axis for axis in step.axes if axis not in step.first)
    groups = (within, step.first) if step.kind is StepKind.REDUCE_SCATTER else (step.first, within)
    before, after = (Step(step.kind, axes) for axes in groups)
    return before, after


@lru_cache(maxsize=4096)
def _between_nodes(axes: tuple[int, ...], mesh: Mesh, machine: Machine) -> tuple[int, ...]:
    """The mesh axes, out of `axes`, along which devices are in different nodes."""
    return tuple(
        axis
        for axis in axes
        if any(machine.levels[crossing.level].network for crossing in crossings((axis,), mesh, machine))
    )
