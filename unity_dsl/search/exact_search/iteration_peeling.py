"""Peels the first and the last iteration off every repeat: those differ from the steady state.

The iterations in between are then bounded tightly by one body and a potential of the carried layouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..cost_network.bucket_elimination import Table
from ..folded_solver.exact_minimum import Solved
from ..folded_solver.problem_part import Domains, Part, Port, Repeat, Tensor


@dataclass(frozen=True)
class _Copy:
    """A written-out iteration: where its variables and repeats begin, and the ports that replace those of the body."""

    variables: int
    repeats: int
    entries: tuple[Port, ...]
    captured: tuple[Port, ...]


@dataclass(frozen=True)
class _Written:
    """A repeat after peeling: the iterations written out and the number of the repeat left between them, if any."""

    copies: tuple[_Copy, ...]
    middle: int | None


@dataclass(frozen=True)
class Peeled:
    """A part with written-out iterations, and the way back to the original.

    `variables[i]` is the (repeat, variable) of the original that variable i stands for. Repeat -1 means outside of
    repeats, variable -1 a layout between iterations. `repeats` has the same form.
    """

    original: Part
    part: Part
    variables: tuple[tuple[int, int], ...]
    repeats: tuple[tuple[int, int], ...]
    written: tuple[_Written, ...]
    results: tuple[tuple[Port, Port], ...]
    """The port of each result of a repeat in the original, and the port that its last iteration leaves."""

    def domains(self, domains: Domains) -> Domains:
        """The same restriction on the peeled part."""
        masks = []
        for (repeat, variable), cost in zip(self.variables, self.part.costs, strict=True):
            if variable < 0:
                masks.append(np.ones(len(cost), dtype=bool))
            else:
                masks.append((domains if repeat < 0 else domains.bodies[repeat]).masks[variable])
        for result, exit_ in self.results:
            left = np.isin(exit_.layouts, result.layouts[domains.masks[result.variable]])
            masks[exit_.variable] = masks[exit_.variable] & left
        bodies = [
            domains.bodies[repeat] if inner < 0 else domains.bodies[repeat].bodies[inner]
            for repeat, inner in self.repeats
        ]
        return Domains(masks, bodies)

    def restored(self, solved: Solved) -> Solved:
        """The plan of the original part that a plan of the peeled one stands for."""
        values = list(solved.values[: len(self.original.costs)])
        repeats = []
        for repeat, written in zip(self.original.repeats, self.written, strict=True):
            iterations = [self._iteration(repeat, copy, solved) for copy in written.copies]
            if written.middle is not None:
                iterations[1:1] = solved.repeats[written.middle]
            repeats.append(tuple(iterations))
            for result, exit_ in zip(repeat.results, repeat.body.exits, strict=True):
                layout = exit_.layouts[iterations[-1].values[exit_.variable]]
                values[result.variable] = int(np.flatnonzero(result.layouts == layout)[0])
        return Solved(tuple(values), tuple(repeats))

    def _iteration(self, repeat: Repeat, copy: _Copy, solved: Solved) -> Solved:
        body = repeat.body
        values = list(solved.values[copy.variables : copy.variables + len(body.costs)])
        for own, given in zip(_border_ports(body), (*copy.entries, *copy.captured), strict=True):
            layout = given.layouts[solved.values[given.variable]]
            values[own.variable] = int(np.flatnonzero(own.layouts == layout)[0])
        return Solved(tuple(values), solved.repeats[copy.repeats : copy.repeats + len(body.repeats)])


def _border_ports(body: Part) -> tuple[Port, ...]:
    return (*body.entries, *body.captured)


def peel(part: Part) -> Peeled:
    """Writes out the first and the last iteration of each repeat of a part (not of repeats within bodies)."""
    writer = _Writer(part)
    written = tuple(writer.write(number, repeat) for number, repeat in enumerate(part.repeats))
    tensors = tuple(writer.outer(tensor) for tensor in part.tensors) + tuple(writer.tensors)
    peeled = Part(tuple(writer.costs), tuple(writer.names), tensors, tuple(writer.repeats))
    results = (result for repeat in part.repeats for result in repeat.results)
    left = tuple((result, writer.results[result.variable]) for result in results)
    return Peeled(part, peeled, tuple(writer.variables), tuple(writer.origins), written, left)


class _Writer:
    def __init__(self, part: Part) -> None:
        self.costs: list[Table] = list(part.costs)
        self.names = list(part.names)
        self.variables = [(-1, variable) for variable in range(len(part.costs))]
        self.tensors: list[Tensor] = []
        self.repeats: list[Repeat] = []
        self.origins: list[tuple[int, int]] = []
        self.results: dict[int, Port] = {}

    def write(self, number: int, repeat: Repeat) -> _Written:
        initial = tuple(map(self._outer_port, repeat.initial))
        captured = tuple(map(self._outer_port, repeat.captured))
        first, exits = self._copy(number, repeat, initial, captured)
        copies, middle = [first], None
        if repeat.count > 2:
            middle = len(self.repeats)
            between = tuple(self._layout_variable(number, repeat, port) for port in repeat.body.entries)
            rest = replace(repeat, count=repeat.count - 2, initial=exits, results=between, captured=captured)
            self.repeats.append(rest)
            self.origins.append((number, -1))
            exits = between
        if repeat.count > 1:
            last, exits = self._copy(number, repeat, exits, captured)
            copies.append(last)
        for result, exit_ in zip(repeat.results, exits, strict=True):
            self.results[result.variable] = exit_
        return _Written(tuple(copies), middle)

    def outer(self, tensor: Tensor) -> Tensor:
        """A tensor of the original part; results of repeats are replaced by what the last iteration produces."""
        return replace(
            tensor, produced=self._outer_port(tensor.produced), reads=tuple(map(self._outer_port, tensor.reads))
        )

    def _outer_port(self, port: Port) -> Port:
        return self.results.get(port.variable, port)

    def _layout_variable(self, number: int, repeat: Repeat, port: Port) -> Port:
        self.costs.append(np.zeros(len(port.layouts)))
        self.names.append(f"{repeat.name} between")
        self.variables.append((number, -1))
        return Port(len(self.costs) - 1, port.layouts, port.count)

    def _copy(
        self, number: int, repeat: Repeat, entries: tuple[Port, ...], captured: tuple[Port, ...]
    ) -> tuple[_Copy, tuple[Port, ...]]:
        body, start = repeat.body, len(self.costs)
        own = _border_ports(body)
        instead = {port.variable: given for port, given in zip(own, (*entries, *captured), strict=True)}

        def moved(port: Port) -> Port:
            return instead.get(port.variable) or Port(port.variable + start, port.layouts, port.count)

        def all_moved(ports: Sequence[Port]) -> tuple[Port, ...]:
            return tuple(map(moved, ports))

        self.costs += body.costs
        self.names += [f"{repeat.name}.{name}" for name in body.names]
        self.variables += [(number, variable) for variable in range(len(body.costs))]
        self.tensors += [
            replace(tensor, produced=moved(tensor.produced), reads=all_moved(tensor.reads)) for tensor in body.tensors
        ]
        copy = _Copy(start, len(self.repeats), entries, captured)
        for inner_number, inner in enumerate(body.repeats):
            ports = all_moved(inner.initial), all_moved(inner.results), all_moved(inner.captured)
            self.repeats.append(replace(inner, initial=ports[0], results=ports[1], captured=ports[2]))
            self.origins.append((number, inner_number))
        return copy, all_moved(body.exits)
