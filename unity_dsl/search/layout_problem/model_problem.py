"""Builds the optimisation problem of a model: variables, their options and prices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ...graph.graph import Graph, Model, Node, Segment, Series, Value
from ...graph.interleaved_repeats import interleavable_repeats
from ...machine.collective_price import local_fraction
from ...machine.machine import Machine
from ..choices.extractions import Choice, Extractions
from ..choices.layout_space import NO_OVERLAP, Spaces
from ..choices.operator_options import Options
from ..choices.proved_configurations import Around
from ..choices.restriction import Keeping, Restriction, node_path, stored_values
from ..cost_network.bucket_elimination import Table
from ..folded_solver.problem_part import Layouts, Part, Port, Repeat, Tensor
from ..search_end import check_end
from .algebra_variables import AlgebraVariables
from .gather_exposure import gather_exposure, interleaved_values
from .held_price import HeldPrice
from .loop_price import price_captured, price_sliced, price_stacked
from .problem_context import Context, Prices
from .product_exposure import values_beside_products
from .storage_price import StoragePrice
from .variable_meaning import Crossings, Impossible, Meaning, Stored

_COSTLY = 20
"""An operator on whole values without gradient is divided only if it takes longer than this many launches. Otherwise
every device computes all of it, and its slices are free.
"""


@dataclass(frozen=True)
class Problem:
    part: Part
    meaning: Meaning
    spaces: Spaces
    prices: Prices


def build_problem(
    model: Model,
    prices: Prices,
    restriction: Restriction,
    near: Mapping[str, Around] = {},
    memory: HeldPrice | None = None,
    algebra: Mapping[str, Extractions] = {},
) -> Problem:
    """Builds the problem of a whole model. An operator whose path is in `near` has only the options around those given
    there. `memory` prices the bytes that a choice holds. `algebra` gives, by path prefix of a graph, the extractions to
    choose from. Raises Impossible where a restriction leaves no option.
    """
    spaces = Spaces(prices.conversions, prices.between)
    storing = StoragePrice(spaces, prices.machine, memory, restriction.keeping is Keeping.AS_READ)
    context = Context(prices, spaces, restriction, near, memory, storing, algebra)
    context.register(model.graph, "", frozenset())
    builder = _Builder(context, model.graph, "", frozenset(), frozenset(), frozenset())
    part = builder.build(model.whole)
    return Problem(part, builder.meaning, context.spaces, prices)


@dataclass(frozen=True)
class _Ends:
    """Values that cross the border of a body and are not whole on every device. `initial` are the ports of the first
    carried ones. Values are `given` to every iteration, or `left` by every iteration, in one layout.
    """

    entries: Sequence[Value] = ()
    exits: Sequence[Value] = ()
    initial: Sequence[Port] = ()
    given: Sequence[Value] = ()
    left: Sequence[Value] = ()


class _Builder:
    """Builds a part, which is executed `iterations` times in a loop, interleaved with others if `beside`. `weights` are
    names of stored values outside, `whole` of values without gradient. `closed` results must be whole on every device.
    """

    def __init__(
        self,
        context: Context,
        graph: Graph,
        prefix: str,
        weights: frozenset[str],
        whole: frozenset[str],
        closed: frozenset[str],
        iterations: int = 1,
        beside: bool = False,
    ) -> None:
        self.context = context
        self.graph = graph
        self.prefix = prefix
        self.weights = weights | {value.name for value in stored_values(graph)}
        self.closed = closed
        given = context.algebra.get(prefix)
        self.algebra = None if given is None else AlgebraVariables(given, context.spaces)
        exposure = context.prices.machine.exposure
        overlap = gather_exposure(graph, iterations, exposure.gathers)
        if beside:
            overlap = {**interleaved_values(graph, exposure.values), **overlap}
        self.meaning = Meaning(graph, free=set(whole), overlap=overlap)
        hides = exposure.values < 1 and not prefix
        self.interleaved = interleavable_repeats(graph) if hides else frozenset[str]()
        self.costs: list[Table] = []
        self.names: list[str] = []
        self.values: dict[str, Value] = {}
        self.produced: dict[str, Port] = {}
        self.reads: dict[str, list[Port]] = {}
        self.repeats: list[Repeat] = []

    # -------------------------------------------------------------------------------------------- variables

    def variable(self, cost: Table, name: str) -> int:
        self.costs.append(np.asarray(cost, dtype=float))
        self.names.append(self.prefix + name)
        return len(self.costs) - 1

    def choose(self, value: Value, layouts: Layouts, cost: Table | None = None) -> Port:
        """Adds a variable whose values are layouts of a tensor."""
        variable = self.variable(np.zeros(len(layouts)) if cost is None else cost, value.name)
        port = self._port(variable, value, layouts)
        self.values[value.name], self.produced[value.name] = value, port
        self.meaning.kept[value.name] = variable
        self.meaning.layouts[variable] = value, layouts
        return port

    # ------------------------------------------------------------------------------------------------ steps

    def build(
        self,
        whole: Sequence[Value] = (),
        ends: _Ends = _Ends(),
    ) -> Part:
        """Builds the part. The values in `whole` must be whole on every device at its end."""
        for value in (*ends.entries, *ends.given):
            self.choose(value, self._pinned(value, np.arange(len(self.context.spaces.of(value).layouts))))
        for source in self.graph.inputs:
            self.meaning.free.add(source.value.name)
        self._add_stored()
        for step in self.graph.steps:
            check_end()
            if isinstance(step, Segment):
                self._add_segment(step)
            elif self.algebra is None:
                self._add_node(step)
            else:
                self._add_made(step, self.algebra)
        if self.algebra is not None:
            for choice in self.algebra.algebra.choices.values():
                check_end()
                self._add_choice(choice, self.algebra)
        self._add_updates()
        for entry, exit_, initial in zip(ends.entries, ends.exits, ends.initial, strict=True):
            possible = np.union1d(initial.layouts, self.produced[exit_.name].layouts)
            self._limit_entry(self.produced[entry.name], possible)
        left = [self._leave(value) for value in ends.left if value.name not in self.meaning.free]
        self._hide_beside_products({value.name for value in (*whole, *ends.exits, *ends.left)})
        tensors = [self._tensor(name, name in {value.name for value in whole}) for name in self.produced]
        if self.algebra is not None:
            tensors += self.algebra.agreements(self.meaning.chosen, self.prefix)
            self.meaning.numbered |= self.algebra.numbered
        return Part(
            tuple(self.costs),
            tuple(self.names),
            tuple(tensors),
            tuple(self.repeats),
            tuple(self.produced[value.name] for value in ends.entries),
            tuple(self.produced[value.name] for value in ends.exits),
            (*(self.produced[value.name] for value in ends.given), *left),
        )

    def _hide_beside_products(self, left: Collection[str]) -> None:
        """Adds what decomposed matmuls overlap, except for values that have an entry or are `left` by the graph."""
        options = partial(self.context.options, prefix=self.prefix, weights=self.weights)
        found = values_beside_products(self.graph, left, self.context.prices, options)
        self.meaning.overlap = {**found, **self.meaning.overlap}

    def _leave(self, value: Value) -> Port:
        """A variable for the layout in which a value leaves a body in every iteration."""
        layouts = np.arange(len(self.context.spaces.of(value).layouts))
        return self._take(value, layouts, "leaves")

    def _limit_entry(self, port: Port, possible: Layouts) -> None:
        """Limits a carried entry to layouts in which the first iteration can enter or another one can exit."""
        self.costs[port.variable] = np.where(np.isin(port.layouts, possible), 0.0, np.inf)

    def _add_stored(self) -> None:
        """A weight with one reader is part of the reader's choice. Any other, or one that is updated, is a variable."""
        readers = Counter(_reads(self.graph) if self.algebra is None else self.algebra.algebra.reads)
        nodes = _nodes(self.graph) if self.algebra is None else self.algebra.algebra.nodes
        partly_used = frozenset[str]() if self.algebra is None else self.algebra.algebra.partly_used
        of_nodes = {value.name for node in nodes for value in node.arguments} - partly_used
        updated = {update.buffer.name for update in self.graph.updates}
        for value in stored_values(self.graph):
            layouts = self.context.storage(self.prefix + value.name, value)
            if readers[value.name] != 1 or value.name not in of_nodes or value.name in updated:
                self.choose(value, layouts, self.context.storing.keeping(value, layouts))
                continue
            overlap = self.meaning.overlap.get(value.name, NO_OVERLAP)
            reading = self.context.storing.reading(value, self.prefix, layouts, overlap)
            self.meaning.stored[value.name] = Stored(value, *reading)

    def _add_node(self, node: Node) -> None:
        path = node_path(self.prefix, node)
        every = self.context.options(node, self.prefix, self.weights)
        options = self._allowed(path, node, every)
        if not len(options):
            raise Impossible(path, node, every)
        whole = all(value.name in self.meaning.free for value in node.arguments)
        if whole and self._left_whole(node, options):
            self.meaning.free.update(value.name for value in node.results)
            self.meaning.fixed[node.name] = options.chosen(options.configurations.invariant)
            return
        variable = self.variable(self._seconds(node, options), node.name)
        self.meaning.nodes[node.name] = variable, options
        for position, value in enumerate(node.arguments):
            if value.name not in self.meaning.free and value.name not in self.meaning.stored:
                asked = self.context.spaces.of(value).of_column(options.arguments[position])
                self.reads.setdefault(value.name, []).append(self._port(variable, value, asked))
        for position, value in enumerate(node.results):
            made = self.context.spaces.of(value).of_column(options.results[position])
            self.values[value.name] = value
            self.produced[value.name] = self._port(variable, value, made)

    def _seconds(self, node: Node, options: Options) -> Table:
        """The cost of each configuration of an operator, with the storage of the weights that it alone reads."""
        seconds = options.seconds.copy()
        if self.context.memory is not None:
            seconds += self.context.memory.of_operator(node, self.prefix, options, self.context.prices.mesh)
        for position, value in enumerate(node.arguments):
            if (stored := self.meaning.stored.get(value.name)) is not None:
                seconds += stored.seconds[self.context.spaces.of(value).of_column(options.arguments[position])]
        return seconds

    def _add_made(self, step: Node, variables: AlgebraVariables) -> None:
        """Adds what the e-graph makes in place of a step's results: by a chosen operator, a fixed one or not at all."""
        algebra = variables.algebra
        for name in (value.name for value in step.results):
            if name in algebra.choices:
                self._add_choice(algebra.choices[name], variables)
            elif name in algebra.fixed and name not in self.produced and name not in self.meaning.free:
                self._add_node(algebra.fixed[name].node)

    def _add_choice(self, choice: Choice, variables: AlgebraVariables) -> None:
        value = choice.value
        if value.name in self.produced:
            return
        rows = variables.rows(choice, self._priced)
        if not len(rows.seconds):
            raise Impossible(self.prefix + value.name, None, None)
        variable = self.variable(rows.seconds, value.name)
        self.meaning.chosen[value.name] = variable, rows.extractions
        variables.owned[variable] = variables.algebra.group_of[value.name], rows.extractions
        for read, asked in rows.asked:
            if read.name not in self.meaning.free and read.name not in self.meaning.stored:
                self.reads.setdefault(read.name, []).append(self._port(variable, read, asked))
        self.values[value.name], self.produced[value.name] = value, self._port(variable, value, rows.made)

    def _priced(self, node: Node) -> tuple[Options, Table]:
        """The options that the restriction leaves for an operator of the e-graph, and the cost of each."""
        path = node_path(self.prefix, node)
        every = self.context.options(node, self.prefix, self.weights)
        options = self._allowed(path, node, every)
        return options, self._seconds(node, options) if len(options) else np.zeros(0)

    def _add_updates(self) -> None:
        """Reads the new value of each buffer in the layout in which the buffer is stored."""
        for update in self.graph.updates:
            if update.value.name not in self.meaning.free:
                kept = self.produced[update.buffer.name]
                layouts = self.context.spaces.of(update.buffer).layouts
                asked = self.context.spaces.of(update.value).numbers(layouts[number] for number in kept.layouts)
                self.reads.setdefault(update.value.name, []).append(self._port(kept.variable, update.value, asked))

    def _allowed(self, path: str, node: Node, every: Options) -> Options:
        """The options that the restriction leaves."""
        restriction = self.context.restriction
        wanted = restriction.configurations.get(path)
        if wanted is not None:
            every = every.chosen([typed.configuration == wanted for typed in every.typed])
        for number, value in enumerate(node.results):
            if (pin := restriction.produced.get(self.prefix + value.name)) is not None:
                every = every.chosen([typed.results[number] == pin for typed in every.typed])
            if excluded := restriction.excluded.get(self.prefix + value.name):
                every = every.chosen([typed.results[number] not in excluded for typed in every.typed])
        return self._reading_whole(node, every) if restriction.keeping is Keeping.GATHERED else every

    def _reading_whole(self, node: Node, every: Options) -> Options:
        """The options in which an operator reads its trained weights whole, or all options if there are none."""
        mask = np.ones(len(every), dtype=bool)
        for position, value in enumerate(node.arguments):
            if value.name in self.weights and value.needs_gradient:
                space = self.context.spaces.of(value)
                mask &= space.held[space.of_column(every.arguments[position])] == 1
        return every.chosen(mask) if mask.any() else every

    def _left_whole(self, node: Node, options: Options) -> bool:
        """Whether every device computes all of an operator without gradients: it is cheap, or a result must be so."""
        seconds = options.seconds[options.configurations.invariant].tolist()
        machine = self.context.prices.machine
        cheap = bool(seconds) and seconds[0] <= _COSTLY * machine.launch_seconds * machine.exposure.devices
        return cheap or (bool(seconds) and any(value.name in self.closed for value in node.results))

    def _add_segment(self, segment: Segment) -> None:
        self._add_loop(segment) if segment.predicate is None else self._add_cond(segment, segment.predicate)

    def _add_loop(self, segment: Segment) -> None:
        """Adds a repeat or a scan. Values from outside are converted there, once for all iterations."""
        free, crossings = self.meaning.free, Crossings()
        carried = range(len(segment.entry))
        whole = {i for i in carried if segment.initial[i].name in free and not segment.entry[i].needs_gradient}
        inside = {value.name for value in segment.captured if value.name in free}
        pinned, prefix = self.context.restriction.produced, f"{self.prefix}{segment.name}."
        parts = {series.part.name for series in segment.sliced if series.whole.name in free}
        inside |= {name for name in parts if prefix + name not in pinned}
        while True:
            open_ = [i for i in carried if i not in whole]
            body = self._body(segment, inside | {segment.entry[i].name for i in whole}, whole)
            ends = _Ends(
                [segment.entry[i] for i in open_],
                [segment.exit[i] for i in open_],
                [self._initial(segment.initial[i]) for i in open_],
                [v for v in (*segment.captured, *(s.part for s in segment.sliced)) if v.name not in inside],
                [series.part for series in segment.stacked],
            )
            part = body.build(ends=ends)
            divided = {i for i in whole if segment.exit[i].name not in body.meaning.free}
            if not divided:
                break
            whole -= divided
        results = []
        for i in carried:
            if i in whole:
                free.add(segment.results[i].name)
                continue
            left = np.unique(part.exits[open_.index(i)].layouts)
            results.append(self.choose(segment.results[i], self._pinned(segment.results[i], left)))
        for value in segment.captured:
            crossings.captured.append(None if value.name in inside else self._captured(segment, value))
        for series in segment.sliced:
            crossings.sliced.append(None if series.part.name in inside else self._sliced(series))
        for series in segment.stacked:
            if series.part.name in body.meaning.free:
                free.add(series.whole.name)
                crossings.stacked.append(None)
            else:
                crossings.stacked.append(self._stacked(series))
        crossing = (*crossings.captured, *crossings.sliced, *crossings.stacked)
        ports = tuple(port for port in crossing if port is not None)
        repeat = Repeat(segment.name, segment.count, part, tuple(ends.initial), tuple(results), ports)
        self._keep(repeat, body, crossings)

    def _add_cond(self, segment: Segment, predicate: Value) -> None:
        """Adds a body that is executed or skipped. A value that it replaces has one layout before and after it either
        way. Other values from outside are converted inside, only if the body is executed.
        """
        free, crossings = self.meaning.free, Crossings()
        if predicate.name not in free:
            self._read(predicate, np.array([self.context.spaces.of(predicate).invariant], dtype=np.intp))
        inside = {value.name for value in segment.captured if value.name in free}
        pairs = list(zip(segment.initial, segment.entry, strict=True))
        inside |= {entry.name for initial, entry in pairs if initial.name in free}
        body = self._body(segment, inside, ())
        given = [value for value in (*segment.captured, *segment.entry) if value.name not in inside]
        part = body.build(ends=_Ends((), (), (), given, segment.exit))
        for value in segment.captured:
            crossings.captured.append(None if value.name in inside else self.produced[value.name])
        taken, left = [], []
        rows = zip(segment.initial, segment.entry, segment.exit, segment.results, strict=True)
        for initial, entry, exit_, result in rows:
            if entry.name in inside and exit_.name in body.meaning.free:
                free.add(result.name)
                crossings.carried.append(None)
                continue
            every = np.arange(len(self.context.spaces.of(result).layouts))
            port = self.choose(result, self._pinned(result, every))
            crossings.carried.append(port)
            if initial.name not in free:
                self.reads.setdefault(initial.name, []).append(port)
                taken.append(port)
            if exit_.name not in body.meaning.free:
                left.append(port)
        captured = (port for port in crossings.captured if port is not None)
        repeat = Repeat(segment.name, 1, part.scaled(segment.probability), (), (), (*captured, *taken, *left))
        self._keep(repeat, body, crossings)

    def _keep(self, repeat: Repeat, body: _Builder, crossings: Crossings) -> None:
        self.repeats.append(repeat)
        self.meaning.bodies.append(body.meaning)
        self.meaning.borders.append(crossings)

    def _body(self, segment: Segment, whole: Iterable[str], kept: Iterable[int]) -> _Builder:
        closed = frozenset(segment.exit[i].name for i in kept)
        prefix = f"{self.prefix}{segment.name}."
        beside = segment.name in self.interleaved
        return _Builder(
            self.context, segment.body, prefix, self.weights, frozenset(whole), closed, segment.iterations, beside
        )

    def _read(self, value: Value, layouts: Layouts, cost: Table | None = None) -> Port:
        """A variable for the layout in which something other than an operator reads a value."""
        return self._take(value, layouts, "taken", cost)

    def _take(self, value: Value, layouts: Layouts, how: str, cost: Table | None = None) -> Port:
        seconds = np.zeros(len(layouts)) if cost is None else cost
        port = self._port(self.variable(seconds, f"{value.name} {how}"), value, layouts)
        self.reads.setdefault(value.name, []).append(port)
        self.meaning.layouts[port.variable] = value, layouts
        return port

    def _captured(self, segment: Segment, value: Value) -> Port:
        layouts = np.arange(len(self.context.spaces.of(value).layouts))
        return self._read(value, layouts, self._of_held(value, layouts, partial(price_captured, segment)))

    def _sliced(self, series: Series) -> Port:
        """The port of a scan's slices: their layout is that of the whole tensor, whose dimension `dim` is not cut."""
        parts, wholes = self._along(series)
        port = self._read(series.whole, wholes, self._of_held(series.whole, wholes, price_sliced))
        return self._port(port.variable, series.part, parts)

    def _stacked(self, series: Series) -> Port:
        parts, wholes = self._along(series)
        wanted = np.isin(wholes, self._pinned(series.whole, wholes))
        layouts = wholes[wanted]
        port = self.choose(series.whole, layouts, self._of_held(series.whole, layouts, price_stacked))
        return self._port(port.variable, series.part, parts[wanted])

    def _of_held(self, value: Value, layouts: Layouts, price: Callable[[Value, float, Machine], float]) -> Table:
        """A price that depends on the fraction of a value that a device holds, by layout."""
        return np.array([price(value, held, self.context.prices.machine) for held in self._held(value, layouts)])

    def _held(self, value: Value, layouts: Layouts) -> Iterator[float]:
        mesh, every = self.context.prices.mesh, self.context.spaces.of(value).layouts
        yield from (local_fraction(every[number], mesh) for number in layouts)

    def _along(self, series: Series) -> tuple[Layouts, Layouts]:
        """Layouts of slices, and the layouts of the whole tensor that they are cut from or make."""
        parts, whole = self.context.spaces.of(series.part), self.context.spaces.of(series.whole)
        pairs = [
            (number, whole.number(lifted))
            for number, layout in enumerate(parts.layouts)
            if not layout.overlaps and whole.has(lifted := layout.inserted(series.dim))
        ]
        found = np.array(pairs, dtype=np.intp)
        return found[:, 0], found[:, 1]

    def _initial(self, value: Value) -> Port:
        """The port of the value with which the first iteration enters. A value that is whole is Invariant there."""
        if value.name not in self.meaning.free:
            return self.produced[value.name]
        space = self.context.spaces.of(value)
        layouts = np.array([space.invariant], dtype=np.intp)
        return Port(self.variable(np.zeros(1), f"{value.name} whole"), layouts, len(space.layouts))

    def _pinned(self, value: Value, layouts: Layouts) -> Layouts:
        path = self.prefix + value.name
        wanted = self.context.restriction.produced.get(path)
        if wanted is None:
            return self.context.without_excluded(path, value, layouts)
        left = np.intersect1d(layouts, self.context.spaces.of(value).numbers([wanted]))
        if not len(left):
            raise Impossible(path, None, None)
        return left

    # ---------------------------------------------------------------------------------------------- tensors

    def _tensor(self, name: str, whole: bool) -> Tensor:
        check_end()
        value = self.values[name]
        reads, fixed = tuple(self.reads.get(name, ())), (self.context.spaces.of(value).invariant,) if whole else ()
        conversions = self.context.conversions(value, self.prefix, self.meaning.overlap.get(name, NO_OVERLAP))
        tensor = Tensor(self.prefix + name, self.produced[name], reads, conversions, fixed)
        if tensor.shared:
            tensor = replace(tensor, between=self.context.between(value, self.prefix))
        return tensor if self.algebra is None else self.algebra.tensor(tensor, value)

    def _port(self, variable: int, value: Value, layouts: Layouts) -> Port:
        copies = 0 if self.algebra is None else self.algebra.copies(value)
        count = len(self.context.spaces.of(value).layouts)
        return Port(variable, layouts, copies * (count + 1) if copies else count)


def _nodes(graph: Graph) -> Iterator[Node]:
    return (step for step in graph.steps if isinstance(step, Node))


def _reads(graph: Graph) -> Iterator[str]:
    """Names of the values that steps and updates read, once for each read."""
    for step in graph.steps:
        yield from (value.name for value in step.reads)
    yield from (update.value.name for update in graph.updates)
