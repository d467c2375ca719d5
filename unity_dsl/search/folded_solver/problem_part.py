"""The optimisation problem of one graph: variables, tensors read in layouts, repeated bodies.

Layouts are numbers here, per value; `layout_problem` knows what they stand for. A variable is a node's configuration, a
tensor's storage or, at the border of a body, the layout of a carried value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ..cost_network.bucket_elimination import Table
from ..cost_network.message_passing import Mask
from ..cost_network.shared_conversions import SharedCost

Layouts = npt.NDArray[np.intp]
"""A layout number per value of a variable."""


@dataclass(frozen=True)
class Port:
    """A layout that a variable decides, because it produces or asks for it. The tensor may have `count` layouts."""

    variable: int
    layouts: Layouts
    count: int


@dataclass(frozen=True)
class Tensor:
    """A tensor that is produced in one layout and read in others.

    `prices[i, j]` is the price of converting the produced layout i, never more than by way of another layout. `between`
    is the price of converting a layout that was itself made, if it differs. `fixed` are layouts that some reader always
    asks for. A reader may ask for `nothing`. The same number stands for a tensor that is not produced, from which every
    layout has an infinite price. `common` gives, for some ends (the produced one first), a number below `numbers` for
    each value. These ends have the same number, which other tensors enforce.
    """

    name: str
    produced: Port
    reads: tuple[Port, ...]
    prices: Table
    fixed: tuple[int, ...] = ()
    nothing: int | None = None
    common: tuple[Layouts | None, ...] = ()
    numbers: int = 1
    between: Table | None = None

    @property
    def onward(self) -> Table:
        """The price of converting a layout that was itself made."""
        return self.prices if self.between is None else self.between

    def closed(self, layouts: Layouts) -> Layouts:
        """The layouts in order, with `nothing` added if there is such a number."""
        return np.unique(layouts if self.nothing is None else np.append(layouts, self.nothing))

    def cost(self, layouts: Layouts, share: float = 1.0) -> SharedCost:
        """The cost of the tensor, at a share of the prices, between layouts that are `closed`."""
        pairs = np.ix_(layouts, layouts)
        nothing = None if self.nothing is None else int(np.searchsorted(layouts, self.nothing))
        between = None if self.between is None else share * self.between[pairs]
        return SharedCost(share * self.prices[pairs], nothing=nothing, between=between)

    @property
    def shared(self) -> bool:
        """Whether conversions may be shared: the price then depends on more than one reader's layout."""
        return len(self.reads) + len(self.fixed) > 1


@dataclass(frozen=True)
class Repeat:
    """A body executed `count` times. `results` are variables of the outer part whose values are layouts.

    `captured` decide the layouts of values that cross the border in one layout in every iteration, inwards or outwards.
    """

    name: str
    count: int
    body: Part
    initial: tuple[Port, ...]
    results: tuple[Port, ...]
    captured: tuple[Port, ...]


@dataclass(frozen=True)
class Part:
    """The problem of one graph. `entries`, `exits` and `captured` are the ports of a body, as in its Repeat; a whole
    model has none.
    """

    costs: tuple[Table, ...]
    names: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    repeats: tuple[Repeat, ...] = ()
    entries: tuple[Port, ...] = ()
    exits: tuple[Port, ...] = ()
    captured: tuple[Port, ...] = ()

    def scaled(self, factor: float) -> Part:
        """The part at a fraction of its price, for a body that is executed that often."""
        if factor == 1:
            return self
        return replace(
            self,
            costs=tuple(cost * factor for cost in self.costs),
            tensors=tuple(
                replace(
                    tensor,
                    prices=tensor.prices * factor,
                    between=None if tensor.between is None else tensor.between * factor,
                )
                for tensor in self.tensors
            ),
            repeats=tuple(replace(repeat, body=repeat.body.scaled(factor)) for repeat in self.repeats),
        )


@dataclass
class Domains:
    """The values that are left for each variable, in a part and in its repeated bodies."""

    masks: list[Mask]
    bodies: list[Domains] = field(default_factory=list)

    def intersected(self, other: Domains) -> Domains:
        masks = [a & b for a, b in zip(self.masks, other.masks, strict=True)]
        return Domains(masks, [a.intersected(b) for a, b in zip(self.bodies, other.bodies, strict=True)])

    @property
    def empty(self) -> bool:
        """Whether some variable has no value left."""
        return not all(mask.any() for mask in self.masks) or any(body.empty for body in self.bodies)

    @property
    def count(self) -> int:
        return sum(int(np.count_nonzero(mask)) for mask in self.masks) + sum(body.count for body in self.bodies)

    @property
    def open(self) -> int:
        """How many variables have a choice."""
        return sum(int(np.count_nonzero(mask) > 1) for mask in self.masks) + sum(body.open for body in self.bodies)

    @property
    def variables(self) -> int:
        """How many variables there are."""
        return len(self.masks) + sum(body.variables for body in self.bodies)

    def agreed(self, part: Part) -> Domains:
        """The domains without values that do not fit across the border of a body. A carried layout must leave an
        iteration, or be there before, as the next one or the end finds it. A captured value has one layout.
        """
        masks, bodies = list(self.masks), []
        for repeat, inner in zip(part.repeats, self.bodies, strict=True):
            body, inside = repeat.body, list(inner.masks)
            for own, given in zip(body.captured, repeat.captured, strict=True):
                both = np.intersect1d(left(inside, own), left(masks, given))
                _keep(inside, own, both)
                _keep(masks, given, both)
            rows = zip(repeat.initial, repeat.results, body.entries, body.exits, strict=True)
            for first, result, entry, exit_ in rows:
                _keep(inside, entry, np.union1d(left(masks, first), left(inside, exit_)))
                _keep(inside, exit_, np.union1d(left(masks, result), left(inside, entry)))
                _keep(masks, result, left(inside, exit_))
            bodies.append(Domains(inside, inner.bodies).agreed(body))
        return Domains(masks, bodies)

    def inside(self, port: Port) -> Port:
        """The port, on what is left of its variable."""
        return Port(port.variable, port.layouts[self.masks[port.variable]], port.count)


def left(masks: Sequence[Mask], port: Port) -> Layouts:
    """The layouts at a port for which its variable has a value left."""
    return port.layouts[masks[port.variable]]


def _keep(masks: list[Mask], port: Port, layouts: Layouts) -> None:
    masks[port.variable] = masks[port.variable] & np.isin(port.layouts, layouts)


def everything(part: Part) -> Domains:
    """The domains before anything is excluded."""
    masks = [np.isfinite(cost) for cost in part.costs]
    return Domains(masks, [everything(repeat.body) for repeat in part.repeats])


@dataclass
class Limits:
    """The choices of held layouts that are left, for some shared tensors of a part. `bodies` are the limits of its
    bodies.
    """

    materialised: dict[int, Layouts]
    bodies: list[Limits]

    @property
    def empty(self) -> bool:
        """Whether some tensor has no choice left."""
        return not all(map(len, self.materialised.values())) or any(body.empty for body in self.bodies)


def no_limits(part: Part) -> Limits:
    """Every choice is left."""
    return Limits({}, [no_limits(repeat.body) for repeat in part.repeats])
