"""Strategy `galvatron`: one of a small set of hybrid strategies for each layer (Miao et al., Galvatron, VLDB 2023; Wang
et al., Galvatron-BMW, 2024).

The set is a decision tree over powers of two: tensor parallelism over the inner or the outer mesh axes, data
parallelism over the others, with weights whole or in slices (ZeRO-3). One mesh axis never has both. Every repeated
layer has one of these hybrids, and so has the part around the layers. The search starts from the best hybrid for all of
them. Then it changes one layer at a time while that is better, with conversions between layers included. Plans that fit
the memory come first. Equal layers have one hybrid here, and are recomputed if nothing fits otherwise. Pipelines are
not in the space, and a model without repeated layers is one layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from logging import getLogger

from ...graph.graph import Node, Segment, Value
from ...graph.layout import Mesh
from ...graph.layout_typing import Along, Configuration, TypedOperator
from ...machine.machine import Machine
from ...machine.mesh import all_meshes
from ..choices.layout_space import Space as LayoutSpace
from ..choices.operator_options import Options
from ..cost_network.bucket_elimination import Table
from ..exact_search.bounded_search import optimise
from ..model_variants.rewritten_model import Variant
from .kept_storage import KeptAsRead, SlicedAlong
from .operator_sites import Site, allowed_domains
from .recipes import Harmless, allowed_by, batch_configurations
from .strategy import Chosen, Space, no_plan
from .tensor_parallel import tensor_roles

LOG = getLogger(__name__)
MOST_TURNS = 3
"""Most passes over all layers."""


@dataclass(frozen=True)
class Hybrid:
    """A hybrid strategy of a layer: `roles` along the `tensor` mesh axes, by path, and the `batch` along the others.
    `sliced` says whether weights are stored in slices along the latter.
    """

    tensor: tuple[int, ...]
    sliced: bool
    batch: dict[str, Configuration]
    roles: dict[str, Along]


def galvatron(space: Space) -> Chosen:
    """For every repeated layer the cheapest of a few hybrids of tensor, data and sharded data parallelism."""
    layers = [step.name for step in space.model.graph.steps if isinstance(step, Segment)]
    best: _Tried | None = None
    if any(size & (size - 1) for mesh in space.meshes for size in mesh.degrees):
        raise no_plan("galvatron", "its degrees are powers of two")
    for mesh in space.meshes:
        hybrids = list(_hybrids(space, mesh))
        tried = [_try(space, mesh, (hybrid,) * (1 + len(layers)), layers) for hybrid in hybrids]
        now = min(filter(None, tried), key=_Tried.worth, default=None)
        now = None if now is None else _improved(space, mesh, now, hybrids, layers)
        if now is not None and (best is None or now.worth() < best.worth()):
            best = now
    if best is None:
        raise no_plan("galvatron", "no hybrid of its set fits the model and these devices")
    return best.chosen


@dataclass(frozen=True)
class _Tried:
    """A plan with one hybrid around the layers and one for each layer."""

    hybrids: tuple[Hybrid, ...]
    chosen: Chosen
    fits: bool

    def worth(self) -> tuple[bool, float]:
        """The sort key, lower is better: plans that fit the memory first, then by cost."""
        return not self.fits, self.chosen.cost


def _improved(space: Space, mesh: Mesh, start: _Tried, hybrids: Sequence[Hybrid], layers: Sequence[str]) -> _Tried:
    """Local search: changes the hybrid of one layer at a time as long as that is better."""
    best, last = start, -1
    for turn in range(MOST_TURNS * len(start.hybrids)):
        place = turn % len(start.hybrids)
        if place == last:
            break
        LOG.info("galvatron: turn %d", turn)
        for hybrid in hybrids:
            changed = (*best.hybrids[:place], hybrid, *best.hybrids[place + 1 :])
            found = None if changed == best.hybrids else _try(space, mesh, changed, layers)
            if found is not None and found.worth() < best.worth():
                best, last = found, place
        last = place if last == -1 else last
    return best


def _try(space: Space, mesh: Mesh, hybrids: tuple[Hybrid, ...], layers: Sequence[str]) -> _Tried | None:
    around, *inside = hybrids
    found = planned(space, mesh, around, dict(zip(layers, inside, strict=True)))
    return None if found is None else _Tried(hybrids, found, space.fits(space.model, found.graph, mesh))


def galvatron_meshes(machine: Machine, devices: int) -> tuple[Mesh, ...]:
    """The mesh with the most axes, at most three, and with degrees as equal as possible. Raises E302."""
    every = all_meshes(machine, devices)
    return tuple(sorted(every, key=lambda mesh: (-len(mesh.axes), max(mesh.degrees, default=1), mesh.degrees))[:1])


def _hybrids(space: Space, mesh: Mesh) -> Iterator[Hybrid]:
    """The leaves of the decision tree, in order of increasing tensor parallelism over the inner axes, then the outer
    ones.
    """
    count = len(mesh.axes)
    inside = [tuple(range(count - size, count)) for size in range(count + 1)]
    outside = [tuple(range(size)) for size in range(1, count)]
    splits = dict.fromkeys((*inside, *outside))
    for tensor in splits:
        if (found := hybrid(space, mesh, tensor)) is not None:
            yield found
            if len(tensor) < count:
                yield replace(found, sliced=True)


def hybrid(space: Space, mesh: Mesh, tensor: Sequence[int], sliced: bool = False) -> Hybrid | None:
    """Tensor parallelism along some mesh axes and data parallelism along the others; None if their degrees do not
    divide the model so.
    """
    data = [axis for axis in range(len(mesh.axes)) if axis not in tensor]
    batch = batch_configurations(space, Mesh(tuple(mesh.axes[axis] for axis in data)))
    inner = Mesh(tuple(mesh.axes[axis] for axis in tensor))
    roles = tensor_roles(space.model.graph, inner, space.library) if tensor else {}
    return None if batch is None or roles is None else Hybrid(tuple(tensor), sliced, batch, roles)


def planned(space: Space, mesh: Mesh, around: Hybrid, layers: dict[str, Hybrid]) -> Chosen | None:
    """The cheapest plan in which every layer uses its hybrid."""
    held = ByLayer({f"{name}.": _storage(mesh, hybrid) for name, hybrid in layers.items()}, _storage(mesh, around))
    problem = space.problem(space.model, mesh, held=held)
    meshes = {one.tensor: Mesh(tuple(mesh.axes[axis] for axis in one.tensor)) for one in (around, *layers.values())}
    harmless = {tensor: Harmless(inner, space.library) for tensor, inner in meshes.items()}

    def allows(site: Site, typed: TypedOperator) -> bool:
        hybrid = layers.get(site.path.partition(".")[0], around)
        return allowed_by(site, typed, hybrid.batch, hybrid.tensor, hybrid.roles, harmless[hybrid.tensor])

    best = optimise(problem.part, allowed_domains(problem, allows))
    if best.plan is None:
        return None
    told = {name: _told(mesh, hybrid) for name, hybrid in {"around": around, **layers}.items()}
    note = "; ".join(f"{name}: {text}" for name, text in told.items())
    return Chosen(Variant(space.model), problem, best.plan, best.cost, held, (note,))


def _storage(mesh: Mesh, hybrid: Hybrid) -> KeptAsRead:
    data = [axis for axis in range(len(mesh.axes)) if axis not in hybrid.tensor]
    return SlicedAlong(data) if hybrid.sliced else KeptAsRead()


def _told(mesh: Mesh, hybrid: Hybrid) -> str:
    tensor = mesh.degree(hybrid.tensor)
    return f"tensor {tensor}, data {mesh.size // tensor}{' in slices' if hybrid.sliced else ''}"


@dataclass(frozen=True)
class ByLayer:
    """The storage prices of each layer, keyed by the prefix of its paths; `around` applies outside of the layers."""

    layers: dict[str, KeptAsRead]
    around: KeptAsRead

    def of_operator(self, node: Node, prefix: str, options: Options, mesh: Mesh) -> Table:
        """No charge."""
        return self.around.of_operator(node, prefix, options, mesh)

    def of_stored(self, value: Value) -> float:
        """No charge."""
        return 0.0

    def with_copies(self, seconds: Table, value: Value, prefix: str, space: LayoutSpace) -> Table:
        """By the storage of the layer."""
        return self._of(prefix).with_copies(seconds, value, prefix, space)

    def with_gathers(self, seconds: Table, value: Value, prefix: str, space: LayoutSpace) -> Table:
        """By the storage of the layer."""
        return self._of(prefix).with_gathers(seconds, value, prefix, space)

    def _of(self, prefix: str) -> KeptAsRead:
        return next((held for name, held in self.layers.items() if prefix.startswith(name)), self.around)
