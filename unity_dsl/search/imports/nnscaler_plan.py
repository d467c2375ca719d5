"""Plans of nnScaler's autodist (`save_plan_path`): for each operator a partition of one of its inputs.

An operator is a number of the traced graph with a list of `((input, dimension), devices)`, outermost first. The pair
(-1, -1) stands for a copy on each device. `mesh_desc` gives the nodes, and the devices of a node. The file has no
names, so its operators are matched with those of the model in the order of execution, with repeats written out. The
remaining devices are data-parallel with whole weights, as in nnScaler's runtime.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...graph.graph import Model
from ...graph.layout import Invariant, Mesh
from ...graph.layout_typing import Along, Role, TypedOperator, Uniformly, type_operator
from ...machine.machine import Machine
from ..exact_search.bounded_search import optimise
from ..model_variants.rewritten_model import Variant
from ..recomputed_segments import NONE
from ..strategies.kept_storage import KeptAsRead
from ..strategies.operator_sites import Site, allowed_domains, sites_of
from ..strategies.recipes import batch_configurations
from ..strategies.strategy import Chosen, Space
from .imported_plan import ImportedPlan, Position, mesh_of_cuts, outside, positions, unfit
from .json_text import Json

WHOLE = Uniformly(Invariant())


@dataclass(frozen=True)
class Split:
    """A part of a partition: the dimension of an input, None for a copy, and over how many devices."""

    at: tuple[int, int] | None
    count: int
    part: Json


@dataclass(frozen=True)
class Partition:
    """The partition of an operator, by its number in the traced graph."""

    number: int
    splits: tuple[Split, ...]
    part: Json

    def alike(self, other: Partition) -> bool:
        return [(one.at, one.count) for one in self.splits] == [(one.at, one.count) for one in other.splits]


def nnscaler_plan(top: Json) -> ImportedPlan:
    """Reads a plan of one stage. Raises E321 for faulty fields, E323 for pipelines."""
    desc = top["desc"]
    if "spmd_descs" in desc:
        stages = desc["spmd_descs"].items()
        if len(stages) != 1:
            raise outside(desc["spmd_descs"], f"a pipeline of {len(stages)} stages", "ask for plans of one stage there")
        desc = stages[0]
    rows, columns = desc["mesh_desc"].pair()
    size = rows.number(1) * columns.number(1)
    partitions = sorted(_partitions(desc, size), key=lambda one: one.number)
    again = {number.number() for group in desc["recompute_groups"].items() for number in group.items()}

    def mesh(machine: Machine, devices: int) -> tuple[Mesh, ...]:
        if devices % size:
            raise unfit(desc["mesh_desc"], f"a plan for {size} devices, or a multiple of them, and not for {devices}")
        cuts = [devices // size]
        for partition in partitions:
            cut = devices // size
            for split in partition.splits:
                cut *= split.count
                cuts.append(cut)
        return mesh_of_cuts(machine, devices, cuts, desc["partition_descs"])

    def recompute(model: Model) -> str:
        of = _by_path(model, partitions, desc)
        named = {path.rpartition(".")[0] for path, partition in of.items() if partition.number in again}
        return ",".join(sorted(name for name in named if name)) or NONE

    return ImportedPlan("nnScaler", mesh, lambda space: _chosen(space, partitions, desc, size), 1, recompute)


def _partitions(desc: Json, size: int) -> Iterator[Partition]:
    for entry in desc["partition_descs"].items():
        number, listed = entry.pair()
        splits = tuple(map(_split, listed.items()))
        over = 1
        for split in splits:
            over *= split.count
        if over != size:
            raise listed.refused(f"a partition over {over} devices, where `mesh_desc` has {size}")
        yield Partition(number.number(), splits, listed)


def _split(part: Json) -> Split:
    at, count = part.pair()
    operand, dim = at.pair()
    if operand.value == dim.value == -1:
        return Split(None, count.number(1), part)
    return Split((operand.number(), dim.number()), count.number(1), part)


def _by_path(model: Model, partitions: Sequence[Partition], desc: Json) -> Mapping[str, Partition]:
    """The partition of every operator, by path. Raises E322 if the operators do not match."""
    every = list(positions(model))
    if len(every) != len(partitions):
        help = "operators are mapped in order: the model has to be written with those that were traced"
        message = f"the plan has {len(partitions)} operators, `{model.name}` {len(every)} with repeats written out"
        raise unfit(desc["partition_descs"], message, help)
    found: dict[str, Partition] = {}
    for position, partition in zip(every, partitions, strict=True):
        first = found.setdefault(position.path, partition)
        if not first.alike(partition):
            help = "iterations of a repeat are planned together: write those that differ as another repeat"
            raise unfit(partition.part, f"{position} is not partitioned as in the first iteration", help)
    return found


def _roles(position: Position, partition: Partition, mesh: Mesh, space: Space) -> Iterator[Role]:
    """The roles of an operator along the axes of its partition's mesh. Raises E322."""
    node, axis = position.node, 0
    for split in partition.splits:
        role: Role = WHOLE
        if split.at is not None:
            operand, dim = split.at
            inputs = node.instance.inputs
            if operand >= len(inputs) or dim >= len(inputs[operand].dims):
                raise unfit(split.part, f"{position} has no input {operand} with a dimension {dim}")
            if not (factors := inputs[operand].dims[dim]):
                raise unfit(split.part, f"dimension {dim} of input {operand} of {position} has the size 1")
            role = Along(factors[0])
        covered = 1
        while covered < split.count:
            covered *= mesh.axes[axis].degree
            axis += 1
            yield role
    _check(position, partition, mesh, space)


def _check(position: Position, partition: Partition, mesh: Mesh, space: Space) -> None:
    """Raises E322 if the typing rule refuses the operator with its partition alone."""
    for split in partition.splits:
        if split.at is not None:
            operand, dim = split.at
            role = Along(position.node.instance.inputs[operand].dims[dim][0])
            typed = type_operator(position.node.instance, (role,) * len(mesh.axes), mesh, space.library)
            if isinstance(typed, str):
                raise unfit(split.part, f"{position} cannot be partitioned so: {typed}")


def _chosen(space: Space, partitions: Sequence[Partition], desc: Json, size: int) -> Chosen:
    mesh = space.meshes[0]
    count = next(number for number in range(len(mesh.axes) + 1) if mesh.degree(range(number)) == mesh.size // size)
    data, tensor = range(count), range(count, len(mesh.axes))
    inner = Mesh(tuple(mesh.axes[axis] for axis in tensor))
    batch = batch_configurations(space, Mesh(tuple(mesh.axes[axis] for axis in data)))
    if batch is None:
        raise unfit(desc["mesh_desc"], f"{mesh.size // size} devices of data parallelism do not divide the batch")
    of = _by_path(space.model, partitions, desc)
    first = {position.path: position for position in reversed(list(positions(space.model)))}
    wanted = {path: tuple(_roles(first[path], one, inner, space)) for path, one in of.items()}
    held = KeptAsRead()
    problem = space.problem(space.model, mesh, held=held)

    def allows(site: Site, typed: TypedOperator) -> bool:
        along = tuple(typed.configuration[axis] for axis in data)
        return typed.configuration[count:] == wanted[site.path] and batch.get(site.path, along) == along

    for site in sites_of(problem):
        if not any(allows(site, typed) for typed in site.options.typed):
            message = (
                f"{first[site.path]} has no such partition, beside {mesh.size // size} devices that divide the batch"
            )
            raise unfit(of[site.path].part, message)
    best = optimise(problem.part, allowed_domains(problem, allows))
    if best.plan is None:
        raise unfit(desc["partition_descs"], "no layouts of the model's values go with these partitions")
    note = f"partitions over {size} devices, data parallelism over {mesh.size // size}"
    return Chosen(Variant(space.model), problem, best.plan, best.cost, held, (note,))
