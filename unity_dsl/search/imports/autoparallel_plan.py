"""Plans of autoparallel: DTensor placements of the nodes of a traced graph, forward and backward.

There are two formats: the solution that it saves, `{"mesh_shape", "mesh_dim_names", "placements": {node: placement}}`,
and the structured export, `{"mesh": {"shape", …}, "nodes": [{"name", "op", "phase", "placement", "shape", …}]}`. A
placement has one of `R`, `S(dim)` and `P(reduction)` for each mesh dimension, as in `S(0)R`. Nodes are operators of
ATen, finer than those of a model, so only two kinds of them are used. Parameters (`primals_1` and so on) are the
weights of the model in the order in which they are first read. Products with weights are those of the model in order.
Repeats are written out. Everything else is the cheapest that goes with these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from ...graph.graph import Graph, Model, Node, Segment
from ...graph.layout import Invariant, Kind, Mesh, Partial, Shard
from ...machine.machine import Machine
from ...machine.mesh import build_mesh
from ...syntax.diagnostic import InputError
from ..choices.restriction import Restriction, places
from ..exact_search.bounded_search import optimise
from ..folded_solver.problem_part import everything
from ..layout_pins import apply_pins
from ..model_variants.rewritten_model import Variant
from ..strategies.strategy import Chosen, Space
from .imported_plan import ImportedPlan, positions, unfit
from .json_text import Json

PRODUCTS = re.compile(r"(?:mm|addmm|linear|convolution|embedding)(?:_[0-9]+)?")
FLATTENED = re.compile(r"(?:mm|addmm)(?:_[0-9]+)?")
"""Products whose operand has all dimensions but the last flattened into one."""
PARAMETERS = re.compile(r"primals_([0-9]+)")
_KIND = re.compile(r"(R)|S\(([0-9]{1,2})\)|P(?:\((?:sum|avg)\))?")


@dataclass(frozen=True)
class Placed:
    """A node with its placement, and its shape if the file has it."""

    name: str
    placement: Json
    shape: tuple[int, ...] | None = None

    def kinds(self, axes: int) -> list[Kind]:
        """A kind for each mesh axis. Raises E321."""
        text, found, at = self.placement.text(), list[Kind](), 0
        while at < len(text):
            if (match := _KIND.match(text, at)) is None:
                raise self.placement.refused(f"`{text[at:]}` is no placement: R, S(dim) or P(sum)")
            at = match.end()
            found.append(Invariant() if match[1] else Partial() if match[2] is None else Shard(int(match[2])))
        if len(found) != axes:
            raise self.placement.refused(f"{len(found)} placements, where the mesh has {axes} dimensions")
        return found


@dataclass(frozen=True)
class Target:
    """A weight, or the output of a product with a weight, by its path, with its shape."""

    path: str
    shape: tuple[int, ...]
    what: str


def autoparallel_plan(top: Json) -> ImportedPlan:
    """Reads a plan in either format. Raises E321."""
    listed = top["mesh"]["shape"] if "mesh" in top else top["mesh_shape"]
    degrees = tuple(degree.number(1) for degree in listed.items() if degree.value != 1)
    sizes = [degree.number(1) for degree in listed.items()]
    kept = [axis for axis, size in enumerate(sizes) if size > 1]
    nodes = list(_exported(top["nodes"]) if "nodes" in top else _saved(top["placements"]))

    def mesh(machine: Machine, devices: int) -> tuple[Mesh, ...]:
        if prod(degrees) != devices:
            raise unfit(listed, f"the plan is for {prod(degrees)} devices, and not for {devices}")
        return (build_mesh(machine, devices, degrees or None),)

    def choose(space: Space) -> Chosen:
        return _chosen(space, nodes, kept, len(sizes), top)

    return ImportedPlan("autoparallel", mesh, choose)


def _saved(placements: Json) -> Iterator[Placed]:
    for name, placement in placements.table().items():
        # Newer versions also save what a node's inputs are converted to.
        yield Placed(name, placement.field("output", placement))


def _exported(nodes: Json) -> Iterator[Placed]:
    for node in nodes.items():
        if "placement" not in node or ("phase" in node and node["phase"].text() == "backward"):
            continue
        shape = None
        if "shape" in node and isinstance(node["shape"].value, list):
            shape = tuple(size.number() for size in node["shape"].items())
        yield Placed(node["name"].text(), node["placement"], shape)


def weights_of(model: Model) -> Iterator[Target]:
    """The weights of a model in the order of their first reads, those of repeats once for each iteration."""
    yield from _weights(model.graph, "")


def _weights(graph: Graph, prefix: str) -> Iterator[Target]:
    left = {weight.value.name: weight.value for weight in graph.weights}
    for step in graph.steps:
        for value in step.reads:
            if (weight := left.pop(value.name, None)) is not None:
                yield Target(prefix + weight.name, weight.shape, "weight")
        if isinstance(step, Segment):
            for _ in range(step.count):
                yield from _weights(step.body, f"{prefix}{step.name}.")


def products_of(model: Model) -> Iterator[Target]:
    """The outputs of products with weights in order, those of repeats once for each iteration."""
    for position in positions(model):
        if _multiplies_a_weight(position.node):
            value = position.node.results[0]
            path = position.path.removesuffix(position.node.name) + value.name
            yield Target(path, value.shape, "product")


def _multiplies_a_weight(node: Node) -> bool:
    outputs = {axis for output in node.instance.outputs for axis in output.axes}
    return any(
        value.is_weight and len(operand.dims) > 1 and not set(operand.axes) <= outputs
        for value, operand in zip(node.arguments, node.instance.inputs, strict=True)
    )


def _chosen(space: Space, nodes: Sequence[Placed], kept: Sequence[int], axes: int, top: Json) -> Chosen:
    model, mesh = space.model, space.meshes[0]
    parameters = sorted(
        (int(match[1]), node) for node in nodes if (match := PARAMETERS.fullmatch(node.name)) is not None
    )
    placed = [
        *_paired(list(weights_of(model)), [node for _, node in parameters], top),
        *_paired(list(products_of(model)), [node for node in nodes if PRODUCTS.fullmatch(node.name)], top),
    ]
    restriction, first = Restriction(), dict[str, tuple[Placed, tuple[Kind, ...]]]()
    for target, node in placed:
        kinds = tuple(_own(kind, target, node) for axis, kind in enumerate(node.kinds(axes)) if axis in kept)
        other, before = first.setdefault(target.path, (node, kinds))
        if before != kinds:
            message = f"`{target.path}` is not placed as in the first iteration, by `{other.name}`"
            help = "iterations of a repeat are planned together: write those that differ as another repeat"
            raise unfit(node.placement, message, help)
        if other is not node:
            continue
        try:
            restriction = apply_pins(restriction, {target.path: kinds}, model, mesh, space.library)
        except InputError as error:
            message = (
                f"{target.what} `{target.path}` of the model, `{node.name}` of the plan: {error.diagnostic.message}"
            )
            raise unfit(node.placement, message, error.diagnostic.help) from None
    problem = space.problem(model, mesh, restriction)
    best = optimise(problem.part, everything(problem.part))
    if best.plan is None:
        raise unfit(top, "no layouts of the model's other values go with these placements")
    stored = sum(place.stored for place in places(model) if place.path in restriction.storage)
    note = (
        f"placements of {stored} weights and {len(restriction.produced)} products are the plan's, all else is the "
        "cheapest that goes with these"
    )
    return Chosen(Variant(model), problem, best.plan, best.cost, notes=(note,))


def _paired(targets: Sequence[Target], nodes: Sequence[Placed], top: Json) -> Iterator[tuple[Target, Placed]]:
    """Each target with the node in its place. More nodes may follow: a joint graph goes on with inputs and the backward
    pass.
    """
    if len(nodes) < len(targets):
        what = targets[0].what
        message = (
            f"the plan has {len(nodes)} nodes that may be a {what}, the model {len(targets)} with repeats written out"
        )
        raise unfit(top["nodes"] if "nodes" in top else top["placements"], message)
    for target, node in zip(targets, nodes, strict=False):
        if node.shape is not None and prod(node.shape) != prod(target.shape):
            sizes = (" x ".join(map(str, shape)) for shape in (node.shape, target.shape))
            message = (
                f"`{node.name}` is {next(sizes)}, {target.what} `{target.path}` of the model in its place {next(sizes)}"
            )
            raise unfit(node.placement, message, "nodes are mapped in order")
        yield target, node


def _own(kind: Kind, target: Target, node: Placed) -> Kind:
    """The kind for the model's value: a flattened matrix product has all leading dimensions as one."""
    if not isinstance(kind, Shard) or target.what == "weight":
        return kind
    flat = FLATTENED.fullmatch(node.name) is not None and (node.shape is None or len(node.shape) == 2)
    if flat and len(target.shape) > 2:
        return Shard(len(target.shape) - 1) if kind.dim == 1 else Shard(0)
    return kind
