"""Strategy `nnscaler`: the programme of nnScaler's autodist (Lin et al., OSDI 2024) for one stage.

Tensor parallelism uses at most 8 adjacent devices. In it every operator is partitioned along one of its dimensions,
sums included, or replicated. Data parallelism uses the rest, with weights whole or in slices. The authors' dynamic
programme visits the operators in topological order, and its state is the partitions of those whose results are still
needed. Its exact minimum is found here by variable elimination. Instead of their Pareto lists, the cheapest plan of all
degrees and storages that fits the memory is taken. Pipeline stages are not in the space.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...graph.layout import Invariant, Mesh
from ...graph.layout_typing import Along, Configuration, TypedOperator, Uniformly
from ..exact_search.bounded_search import optimise
from ..model_variants.rewritten_model import Variant
from .kept_storage import KeptAsRead, SlicedAlong
from .operator_sites import Allows, Site, allowed_domains
from .recipes import batch_configurations, tensor_splits
from .strategy import Chosen, Space, cheapest_fitting, no_plan

MOST = 8
"""Most devices of tensor parallelism."""


def nnscaler(space: Space) -> Chosen:
    """The best partition of every operator over at most 8 devices, data parallelism over the rest."""
    every = list(_plans(space))
    if not every:
        raise no_plan("nnscaler", "no degree of tensor parallelism leaves devices that divide the batch")
    return cheapest_fitting(space, every)


def _plans(space: Space) -> Iterator[Chosen]:
    for mesh, tensor in tensor_splits(space):
        data = [axis for axis in range(len(mesh.axes)) if axis not in tensor]
        batch = batch_configurations(space, Mesh(tuple(mesh.axes[axis] for axis in data)))
        if batch is None or mesh.degree(tensor) > MOST:
            continue
        for held in (KeptAsRead(), SlicedAlong(data)) if data else (KeptAsRead(),):
            problem = space.problem(space.model, mesh, held=held)
            best = optimise(problem.part, allowed_domains(problem, _partitions(batch, tensor)))
            if best.plan is not None:
                degree = mesh.degree(tensor)
                note = f"partitions over {degree} devices, data parallelism over {mesh.size // degree}"
                yield Chosen(Variant(space.model), problem, best.plan, best.cost, held, (note,))


def _partitions(batch: Mapping[str, Configuration], tensor: Sequence[int]) -> Allows:
    """Allows at most one partition of an operator along the `tensor` mesh axes, and the batch along the others."""
    whole = Uniformly(Invariant())

    def allows(site: Site, typed: TypedOperator) -> bool:
        along = tuple(role for axis, role in enumerate(typed.configuration) if axis not in tensor)
        roles = [typed.configuration[axis] for axis in tensor]
        divides = all(role == whole or isinstance(role, Along) for role in roles)
        return divides and batch.get(site.path, along) == along

    return allows
