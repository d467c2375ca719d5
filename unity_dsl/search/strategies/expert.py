"""Strategy `expert`: the parallelism that is written by hand for each kind of model.

Transformers and perceptrons: tensor parallelism within a node (Shoeybi et al., Megatron-LM, 2019) over a power of two
that divides heads and features. Between its regions the sequence is divided if that costs less (Korthikanti et al.,
2022). Data parallelism uses the remaining devices, with weights whole or in slices, as in FSDP. As in tuning by hand,
the cheapest degree that fits the memory is taken. Convolutional networks: one weird trick (Krizhevsky, 2014), with the
batch divided in convolutions and the outputs in dense layers. Models of tables (Naumov et al., DLRM, 2019): tables
divided over all devices by columns, or else by rows, the rest data parallel. Whole tables on single devices, and
pipelines, are not in the space.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ...graph.graph import Model
from ...graph.layout import Mesh
from ...graph.layout_typing import Along, Configuration, TypedOperator, type_operator
from ...index.library import Library
from ...machine.machine import Machine
from ...machine.mesh import build_mesh
from ..choices.restriction import node_path, places
from ..exact_search.bounded_search import optimise
from ..model_variants.rewritten_model import Variant
from .kept_storage import KeptAsRead, SlicedAlong
from .operator_sites import Site, allowed_domains
from .recipes import Harmless, allowed_by, batch_configurations, tensor_splits
from .strategy import Chosen, Space, no_plan
from .tensor_parallel import tensor_roles

CONVOLUTIONS = {"conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d"}
LOOKUPS = {"embedding", "embedding_bag", "embedding_bag_mean"}
TABLES = 0.5
"""A model is one of tables if it has several, with at least this fraction of its parameters."""


def expert(space: Space) -> Chosen:
    """What is written by hand: Megatron's tensor parallelism, one weird trick, or divided tables."""
    every = [found for recipe in _recipes(space) if (found := _planned(space, recipe)) is not None]
    if not every:
        raise no_plan("expert", "no recipe for models of this kind fits this number of devices")
    fitting = [found for found in every if space.fits(space.model, found.graph, found.mesh)]
    return min(fitting, key=lambda found: found.cost) if fitting else every[-1]


def expert_meshes(machine: Machine, devices: int) -> tuple[Mesh, ...]:
    """The mesh of one axis, and those of two axes whose inner one is a power of two within a node. Raises E302."""
    whole = build_mesh(machine, devices, (devices,) if devices > 1 else ())
    sizes = [2**power for power in range(1, machine.node_devices.bit_length())]
    inner = [size for size in sizes if devices % size == 0 and size < devices]
    return (whole, *(build_mesh(machine, devices, (devices // size, size)) for size in inner))


@dataclass(frozen=True)
class Recipe:
    """A hand-written plan: configurations of data parallelism (`batch`) along some mesh axes, and `roles` along the
    `others`, both by path. Operators without a role divide no axis there that they sum over. If `sliced`, weights are
    stored in slices along the mesh axes of data parallelism.
    """

    name: str
    mesh: Mesh
    batch: dict[str, Configuration]
    others: tuple[int, ...] = ()
    roles: dict[str, Along] = field(default_factory=dict)
    sliced: bool = False


def _recipes(space: Space) -> Iterator[Recipe]:
    """The recipes that experts try; the one with the smallest memory footprint last."""
    names = {node.instance.name for node in space.model.graph.nodes()}
    if names & CONVOLUTIONS or _has_tables(space.model):
        mesh = space.meshes[0]
        batch = batch_configurations(space, mesh)
        if names & CONVOLUTIONS:
            roles = tensor_roles(space.model.graph, mesh, space.library, rows=False, without=CONVOLUTIONS) or {}
            name = "one weird trick"
        else:
            roles = _divided_tables(space.model, mesh, space.library)
            name = "tables divided over all devices"
        if batch is not None:
            count = len(mesh.axes)
            yield Recipe(name, mesh, {**batch, **{path: (role,) * count for path, role in roles.items()}})
        return
    for mesh, others in tensor_splits(space):
        inner = Mesh(tuple(mesh.axes[axis] for axis in others))
        batch = batch_configurations(space, Mesh(tuple(axis for n, axis in enumerate(mesh.axes) if n not in others)))
        if batch is None:
            continue
        along = tensor_roles(space.model.graph, inner, space.library) if others else {}
        if along is None:
            continue
        told = f"tensor parallelism of {inner.size}, data parallelism of {mesh.size // inner.size}"
        yield Recipe(told, mesh, batch, others, along)
        yield Recipe(f"{told}, weights in slices of the latter", mesh, batch, others, along, sliced=True)


def _has_tables(model: Model) -> bool:
    tables = {
        value.name: value.elements
        for node in model.graph.nodes()
        if node.instance.name in LOOKUPS
        for value in node.arguments
        if value.is_weight
    }
    every = sum(weight.value.elements for _, weight in model.weights())
    return len(tables) > 1 and sum(tables.values()) >= TABLES * every


def _divided_tables(model: Model, mesh: Mesh, library: Library) -> dict[str, Along]:
    """Roles that divide tables by columns, or else by rows."""
    roles = {}
    for place in places(model):
        if (node := place.node) is None or node.instance.name not in LOOKUPS:
            continue
        rows, columns = (dim[0] for dim in node.instance.inputs[1].dims)
        for axis in (columns, rows):
            if not isinstance(type_operator(node.instance, (Along(axis),) * len(mesh.axes), mesh, library), str):
                roles[node_path(place.path.removesuffix(place.value.name), node)] = Along(axis)
                break
    return roles


# ---------------------------------------------------------------------------------------------- plans


def _planned(space: Space, recipe: Recipe) -> Chosen | None:
    """The cheapest plan of a recipe, which leaves few choices open; None if there is no plan."""
    mesh, data = recipe.mesh, [axis for axis in range(len(recipe.mesh.axes)) if axis not in recipe.others]
    held = SlicedAlong(data) if recipe.sliced else KeptAsRead()
    problem = space.problem(space.model, mesh, held=held)
    harmless = Harmless(Mesh(tuple(mesh.axes[axis] for axis in recipe.others)), space.library)

    def allows(site: Site, typed: TypedOperator) -> bool:
        return allowed_by(site, typed, recipe.batch, recipe.others, recipe.roles, harmless)

    best = optimise(problem.part, allowed_domains(problem, allows))
    if best.plan is None:
        return None
    return Chosen(Variant(space.model), problem, best.plan, best.cost, held, (recipe.name,))
