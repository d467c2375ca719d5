"""State shared by the parts of a model's problem: prices on a mesh, numbers of layouts, restrictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from ...graph.graph import Graph, Node, Segment, Value
from ...graph.layout import At, Mesh, Placement, nest
from ...graph.placed_operators import Placed
from ...graph.typed_configurations import Theorems
from ...index.library import Library
from ...machine.conversion_model import ConversionModel
from ...machine.machine import Machine
from ..choices.extractions import Extractions
from ..choices.layout_space import ConversionOverlap, ConversionTable, Spaces
from ..choices.operator_options import Options, OptionTable
from ..choices.proved_configurations import Around, proved_of
from ..choices.restriction import Restriction, node_path, storable, stored_values
from ..cost_network.bucket_elimination import Table
from ..folded_solver.problem_part import Layouts
from ..search_end import check_end
from .held_price import HeldPrice
from .storage_price import StoragePrice
from .variable_meaning import Impossible


@dataclass(frozen=True)
class Prices:
    """Prices of operators and conversions on a mesh of a machine, computed once for all models that are compared."""

    mesh: Mesh
    machine: Machine
    options: OptionTable
    conversions: ConversionModel
    between: ConversionTable = field(default_factory=dict)


def prices_on(
    mesh: Mesh,
    machine: Machine,
    library: Library,
    theorems: Theorems,
    gradient_bytes: float = inf,
) -> Prices:
    """Prices of models with `gradient_bytes` bytes of gradients. Each price is computed when it is first needed."""
    options = OptionTable(mesh, machine, proved_of(library, theorems))
    return Prices(mesh, machine, options, ConversionModel(mesh, machine, library, gradient_bytes))


@dataclass(frozen=True)
class Context:
    """Prices, layouts and restrictions for all graphs of a model. By path, `entering` are the devices of a value that
    enters a body on one coordinate, and `owners` are the devices of a weight that no other device reads.
    """

    prices: Prices
    spaces: Spaces
    restriction: Restriction
    near: Mapping[str, Around]
    memory: HeldPrice | None
    storing: StoragePrice
    algebra: Mapping[str, Extractions] = field(default_factory=dict)
    entering: dict[str, Placement] = field(default_factory=dict)
    owners: dict[str, Placement] = field(default_factory=dict)

    def register(self, graph: Graph, prefix: str, weights: frozenset[str]) -> None:
        """Assigns a number to every layout that an operator reads or makes."""
        weights |= {value.name for value in stored_values(graph)}
        extractions = self.algebra.get(prefix)
        steps: Sequence[Node | Segment] = graph.steps if extractions is None else (*extractions.nodes, *graph.segments)
        self._own(graph, steps, prefix)
        for step in steps:
            check_end()
            if isinstance(step, Segment):
                self._enter(step, prefix)
                self.register(step.body, f"{prefix}{step.name}.", weights)
                for series in (*step.sliced, *step.stacked):
                    parts = self.spaces.of(series.part).layouts
                    self.spaces.of(series.whole).add(part.inserted(series.dim) for part in parts if not part.overlaps)
                continue
            options = self.options(step, prefix, weights)
            columns = (*options.arguments, *options.results)
            for value, column in zip((*step.arguments, *step.results), columns, strict=True):
                self.spaces.of(value).of_column(column)

    def options(self, node: Node, prefix: str, weights: frozenset[str]) -> Options:
        """The configurations that an operator may have. `weights` are the names of stored values. A pinned operator is
        not limited to the options in `near`.
        """
        stored = tuple(value.name in weights for value in node.arguments)
        path, options = node_path(prefix, node), self.prices.options
        pinned = path in self.restriction.configurations or any(
            prefix + value.name in self.restriction.produced for value in node.results
        )
        if placed := self._placed(node, prefix):
            return options.of(node, stored, placed)
        around = None if pinned else self.near.get(path)
        return options.of(node, stored) if around is None else options.near(node, stored, around)

    def _placed(self, node: Node, prefix: str) -> dict[int, Placed]:
        """The mesh axes along which an operator's results pin it to one coordinate. Operands that are pinned to the
        same coordinate are there. All devices have copies of the other operands.
        """
        pins = [self._pinned_to(prefix + value.name) for value in node.results]
        reads = [self._pinned_to(prefix + value.name) for value in node.arguments]
        found = {}
        for axis, coordinate in (place for pin in pins for place in pin):
            there = tuple(number for number, place in enumerate(reads) if (axis, coordinate) in place)
            found[axis] = Placed(coordinate, there)
        return found

    def _pinned_to(self, path: str) -> Placement:
        pin = self.restriction.produced.get(path)
        if pin is not None:
            return pin.placement
        return self.restriction.placed.get(path) or self.entering.get(path) or self.owners.get(path, ())

    def _own(self, graph: Graph, steps: Sequence[Node | Segment], prefix: str) -> None:
        """Allows a weight that only the devices of one placement read to be stored on these devices only."""
        readers: dict[str, set[Placement]] = {}
        for step in steps:
            pins = [self._pinned_to(prefix + value.name) for value in step.results] if isinstance(step, Node) else [()]
            for value in step.reads:
                readers.setdefault(value.name, set()).update(pins)
        for value in (weight.value for weight in graph.weights):
            found = readers.get(value.name, set())
            if len(found) == 1 and value.shape and (owner := next(iter(found))):
                self.owners[prefix + value.name] = owner
                axes, space = dict(owner), self.spaces.of(value)
                kept = [layout for layout in space.layouts if storable(layout) and not layout.placement]
                kinds = ([At(axes[a]) if a in axes else kind for a, kind in enumerate(one.kinds)] for one in kept)
                space.add(nest(found) for found in kinds)

    def _enter(self, segment: Segment, prefix: str) -> None:
        """Records what enters a body on one coordinate: captured values, and carried ones that an iteration leaves
        there.
        """
        inner = f"{prefix}{segment.name}."
        for value in segment.captured:
            self.entering[inner + value.name] = self._pinned_to(prefix + value.name)
        for entry, exit_ in zip(segment.entry, segment.exit, strict=True):
            self.entering[inner + entry.name] = self._pinned_to(inner + exit_.name)

    def storage(self, path: str, value: Value) -> Layouts:
        """Layouts in which a weight or buffer may be stored. Raises Impossible where the restriction leaves none."""
        space = self.spaces.of(value)
        wanted, owner = self.restriction.storage.get(path), self.owners.get(path, ())
        if wanted is not None:
            if wanted.placement not in ((), owner):
                raise Impossible(path, None, None)
            found = np.array([space.number(wanted)], dtype=np.intp)
        elif self.restriction.keeping is not None and value.is_weight and value.needs_gradient:
            found = space.kept[self.restriction.keeping]
        elif owner:
            every = (number for number, layout in enumerate(space.layouts) if storable(layout))
            found = np.array([n for n in every if space.layouts[n].placement in ((), owner)], dtype=np.intp)
        else:
            found = space.storable
        return self.without_excluded(path, value, found)

    def without_excluded(self, path: str, value: Value, layouts: Layouts) -> Layouts:
        """The given layouts without those that the restriction excludes. Raises Impossible if none is left."""
        excluded = self.restriction.excluded.get(path)
        if excluded is None:
            return layouts
        every = self.spaces.of(value).layouts
        left = np.array([number for number in layouts if every[number] not in excluded], dtype=np.intp)
        if not len(left):
            raise Impossible(path, None, None)
        return left

    def conversions(self, value: Value, prefix: str, overlap: ConversionOverlap) -> Table:
        """Seconds of converting a value from its produced layout, and its gradient back, for every pair of layouts.
        `overlap` says what overlaps with other work.
        """
        return self._with_memory(self.spaces.conversions(value, overlap), value, prefix)

    def between(self, value: Value, prefix: str) -> Table | None:
        """The same for converting a converted copy; None where the price does not differ."""
        seconds = self.spaces.between(value)
        return None if seconds is None else self._with_memory(seconds, value, prefix)

    def _with_memory(self, seconds: Table, value: Value, prefix: str) -> Table:
        return (
            seconds if self.memory is None else self.memory.with_copies(seconds, value, prefix, self.spaces.of(value))
        )
