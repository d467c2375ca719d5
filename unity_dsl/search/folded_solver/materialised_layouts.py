"""Variables for the sets of layouts in which a tensor is materialised when several readers share conversions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..cost_network.bucket_elimination import Table, TooLarge
from ..cost_network.message_passing import Link, Network
from ..cost_network.shared_conversions import MOST_READERS, materialised_from, price_materialised
from .problem_part import Domains, Layouts, Part, Port, Tensor

MOST_MATERIALISED = 1 << 16
"""Choices of held layouts of one tensor that are enumerated; `TooLarge` is raised if there are more."""


@dataclass(frozen=True)
class LayoutSets:
    """A variable of the network for the layouts in which a tensor exists: `held[s]` are the produced one and two more.

    If fewer are needed, the produced one is repeated.
    """

    tensor: int
    variable: int
    held: Layouts


def layout_sets(tensor: Tensor, produced: Layouts, wanted: Layouts) -> tuple[Layouts, Table]:
    """Every choice of a produced layout and at most two others that are wanted, with the price of making them.

    Raises TooLarge.
    """
    if (count := len(produced) * (1 + len(wanted) * (len(wanted) + 1) // 2)) > MOST_MATERIALISED:
        raise TooLarge(count)
    useful = np.isin(np.arange(len(tensor.prices)), wanted)
    choices = [materialised_from(np.array([root]), useful, useful[None]) for root in produced]
    held = np.concatenate(choices) if choices else np.zeros((0, 3), dtype=np.intp)
    return held, price_materialised(tensor.prices, held, tensor.onward)


def wanted(tensor: Tensor, reads: Sequence[Port]) -> Layouts:
    """Layouts worth holding: those that some reader may ask for."""
    asked = np.unique(np.concatenate([*(read.layouts for read in reads), np.array(tensor.fixed, dtype=np.intp)]))
    return asked if tensor.nothing is None else asked[asked != tensor.nothing]


def with_fixed(tensor: Tensor, held: Layouts, prices: Table) -> Table:
    """Excludes choices that lack a layout that is always asked for, whatever the readers choose."""
    for layout in tensor.fixed:
        prices = np.where((held == layout).any(axis=1), prices, np.inf)
    return prices


def always(tensor: Tensor) -> list[Table]:
    """Costs by layout of readers that are no variables: each always asks for one layout."""
    layouts = np.arange(len(tensor.prices))
    return [np.where(layouts == layout, 0.0, np.inf) for layout in tensor.fixed]


def crowded_tensor(part: Part) -> str:
    """The name of a tensor that cannot be held in all layouts that its readers ask for, or "" if none is found."""
    for tensor in part.tensors:
        count = len(tensor.prices)
        produced, *reads = (possible(part.costs, port, count) for port in (tensor.produced, *tensor.reads))
        # Readers that may ask for the same layouts can ask for the same one.
        readers = {cost.tobytes(): cost for cost in (*reads, *always(tensor))}
        if tensor.shared and len(readers) <= MOST_READERS:
            cost = tensor.cost(np.arange(count))
            if not np.isfinite(cost.least_produced(produced, list(readers.values()))).any():
                return tensor.name
    return next((name for repeat in part.repeats if (name := crowded_tensor(repeat.body))), "")


def possible(costs: Sequence[Table], port: Port, count: int) -> Table:
    """0 for the layouts that a port may have, infinite for others. `costs` are those of all variables, `count` is the
    number of layouts, including `nothing`.
    """
    found = np.full(count, np.inf)
    found[port.layouts[np.isfinite(costs[port.variable])]] = 0.0
    return found


def unary(tensor: Tensor) -> Table:
    """The cost of a tensor by produced layout, if it has at most one reader, which is fixed."""
    return tensor.prices[:, tensor.fixed[0]] if tensor.fixed else np.zeros(len(tensor.prices))


def conversion_link(tensor: Tensor, read: Port, share: float = 1.0) -> Link:
    """A link of the producer and one reader, at a share of the price of the conversion between them."""
    produced, prices = tensor.produced, tensor.prices if share == 1 else tensor.prices * share
    return Link(produced.variable, read.variable, produced.layouts[:, None], read.layouts[:, None], prices)


def add_tensors(part: Part, domains: Domains, network: Network, limits: Mapping[int, Layouts]) -> list[LayoutSets]:
    """Adds every tensor's conversions: a link for one reader, a variable of held layouts where they may be shared.

    `limits` gives, for some tensors, the held layouts that are still possible.
    """
    found = []
    for number, tensor in enumerate(part.tensors):
        if tensor.shared:
            found.append(_add_materialised(number, tensor, domains, network, limits.get(number)))
            continue
        for read in tensor.reads:
            link = conversion_link(tensor, read)
            masks = domains.masks[link.first], domains.masks[link.second]
            network.links.append(link.restricted(*masks))
        if not tensor.reads:
            port = tensor.produced
            network.costs[port.variable] = (
                network.costs[port.variable] + unary(tensor)[port.layouts[domains.masks[port.variable]]]
            )
    return found


def _add_materialised(
    number: int, tensor: Tensor, domains: Domains, network: Network, limit: Layouts | None
) -> LayoutSets:
    produced = domains.inside(tensor.produced)
    reads = [domains.inside(read) for read in tensor.reads]
    if limit is None:
        held, prices = layout_sets(tensor, np.unique(produced.layouts), wanted(tensor, reads))
    else:
        held, prices = limit, price_materialised(tensor.prices, limit, tensor.onward)
    prices = with_fixed(tensor, held, prices)
    held, prices = held[np.isfinite(prices)], prices[np.isfinite(prices)]
    variable = network.add(prices, f"{tensor.name} held")
    same = _same(len(tensor.prices))
    served = same if tensor.nothing is None else _with_nothing(same, tensor.nothing)
    network.links.append(_membership(variable, held[:, :1], produced, same))
    network.links += [_membership(variable, held, read, served) for read in reads]
    return LayoutSets(number, variable, held)


def _membership(variable: int, held: Layouts, port: Port, fits: Table) -> Link:
    """A link that requires the port's layout to fit one of those held."""
    return Link(variable, port.variable, held, port.layouts[:, None], fits).restricted(None, None)


def _with_nothing(same: Table, nothing: int) -> Table:
    """A reader that asks for nothing fits whatever is held."""
    fits = same.copy()
    fits[:, nothing] = 0.0
    return fits


@lru_cache(maxsize=256)
def _same(count: int) -> Table:
    """0 where two of `count` layouts are the same, infinite elsewhere."""
    return np.where(np.eye(count, dtype=bool), 0.0, np.inf)
