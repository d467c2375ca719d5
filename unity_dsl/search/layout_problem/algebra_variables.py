"""Variables of values whose operators algebra chooses, and costs of tensors that are not always made or read.

The values of such a variable are the configurations of all operators that may make the tensor, for each extraction of
its group, and one value for each extraction without the tensor. An extraction that does not read a tensor asks for
`nothing`, a number after those of the layouts. All operators of a group have the same extraction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ...graph.graph import Node, Value
from ...rules.egraph.enode import Enode
from ..choices.extractions import Choice, Extractions
from ..choices.layout_space import Spaces
from ..choices.operator_options import Options
from ..cost_network.bucket_elimination import Table
from ..folded_solver.problem_part import Layouts, Port, Tensor

TIE = 1e-11
"""Seconds added for each rule that makes an operator: of extractions of equal price, the one with fewest rules wins."""

Priced = tuple[Options, Table]
"""Options of an operator, and what each costs."""


@dataclass(frozen=True)
class ChoiceRows:
    """The values of a variable: their seconds, the extraction that each belongs to, the layouts `asked` of other
    values, and the layout `made`.
    """

    seconds: Table
    extractions: Layouts
    asked: tuple[tuple[Value, Layouts], ...]
    made: Layouts


@dataclass(frozen=True)
class _Row:
    """The operator of an extraction, with its options if any are left. An extraction without the value has neither."""

    enode: Enode | None
    options: Options | None
    seconds: Table


@dataclass(frozen=True)
class AlgebraVariables:
    """The variables of one graph whose operators algebra chooses. `owned` gives, by variable, its group and the
    extraction of each of its values. `numbered` gives, by tensor between two operators of a group, the numbers that are
    made and those that are asked for.
    """

    algebra: Extractions
    spaces: Spaces
    owned: dict[int, tuple[int, Layouts]] = field(default_factory=dict)
    numbered: dict[str, tuple[Layouts, Layouts]] = field(default_factory=dict)

    def copies(self, value: Value) -> int:
        """How often the layouts of a value are numbered, each time followed by `nothing`. A value that links two
        operators of a group is numbered once for each extraction. A value that is always made and read has 0: layouts
        without `nothing`.
        """
        if value.name in self.algebra.linked:
            return len(self.algebra.choices[value.name].enodes)
        return int(value.name in self.algebra.partly_used)

    def rows(self, choice: Choice, priced: Callable[[Node], Priced]) -> ChoiceRows:
        """The values of a choice's variable."""
        found: dict[int, Priced] = {}
        rows = []
        for enode in choice.enodes:
            if enode is None:
                rows.append(_Row(None, None, np.zeros(1)))
                continue
            if id(enode) not in found:
                found[id(enode)] = priced(enode.node)
            options, seconds = found[id(enode)]
            rows.append(_Row(enode, options if len(options) else None, seconds + TIE * len(enode.applied)))
        return ChoiceRows(
            np.concatenate([row.seconds for row in rows]),
            np.concatenate([np.full(len(row.seconds), number) for number, row in enumerate(rows)]),
            tuple((value, self._asked(rows, value, occurrence)) for value, occurrence in choice.reads),
            np.concatenate([self._made(row, number, choice.value) for number, row in enumerate(rows)]),
        )

    def _asked(self, rows: Sequence[_Row], value: Value, occurrence: int) -> Layouts:
        """For each row, the layout that is asked for where the operator reads the value after `occurrence` earlier
        reads.
        """
        found = []
        for number, row in enumerate(rows):
            read = () if row.enode is None else enumerate(row.enode.node.arguments)
            places = [place for place, argument in read if argument.name == value.name]
            if row.options is None or occurrence >= len(places):
                found.append(np.full(len(row.seconds), self._nothing(value, number), dtype=np.intp))
            else:
                asked = row.options.arguments[places[occurrence]]
                found.append(self._first(value, number) + self.spaces.of(value).of_column(asked))
        return np.concatenate(found)

    def _made(self, row: _Row, number: int, value: Value) -> Layouts:
        if row.enode is None or row.options is None:
            return np.full(len(row.seconds), self._nothing(value, number), dtype=np.intp)
        place = [result.name for result in row.enode.node.results].index(value.name)
        return self._first(value, number) + self.spaces.of(value).of_column(row.options.results[place])

    def _first(self, value: Value, extraction: int) -> int:
        """The number of a value's first layout. Extractions have separate ranges if the value is numbered once for
        each.
        """
        return extraction * (len(self.spaces.of(value).layouts) + 1) if self.copies(value) > 1 else 0

    def _nothing(self, value: Value, extraction: int) -> int:
        """The number for not asking for a value, or not making it."""
        return self._first(value, extraction) + len(self.spaces.of(value).layouts)

    def tensor(self, tensor: Tensor, value: Value) -> Tensor:
        """The tensor of a value, extended by the costs of not making it and not reading it."""
        copies, nothing = self.copies(value), len(self.spaces.of(value).layouts)
        if not copies:
            return self._grouped(tensor)
        prices = _with_nothing(tensor.prices)
        if copies == 1:
            between = None if tensor.between is None else _with_nothing(tensor.between)
            return self._grouped(replace(tensor, prices=prices, nothing=nothing, between=between))
        (read,) = tensor.reads
        rows, columns = np.unique(tensor.produced.layouts), np.unique(read.layouts)
        self.numbered[tensor.name] = rows, columns
        (made, of), (asked, by) = (np.divmod(numbers, nothing + 1) for numbers in (rows, columns))
        table = np.where(made[:, None] == asked, prices[of[:, None], by], np.inf)
        ends = ((tensor.produced, rows), (read, columns))
        produced, read = (Port(p.variable, np.searchsorted(n, p.layouts), len(n)) for p, n in ends)
        return replace(tensor, produced=produced, reads=(read,), prices=table)

    def _grouped(self, tensor: Tensor) -> Tensor:
        common, numbers = self.common((tensor.produced, *tensor.reads))
        return replace(tensor, common=common, numbers=numbers)

    def common(self, ends: Sequence[Port]) -> tuple[tuple[Layouts | None, ...], int]:
        """For each end of a tensor, the extraction of each of its values, if several ends are in one group; and the
        number of extractions. None stands for an end outside of that group.
        """
        owned = [self.owned.get(end.variable) for end in ends]
        groups = Counter(found[0] for found in owned if found is not None)
        if len(ends) < 3 or not groups or groups.most_common(1)[0][1] < 2:
            return (), 1
        group, _ = groups.most_common(1)[0]
        common = tuple(found[1] if found is not None and found[0] == group else None for found in owned)
        return common, self.algebra.groups[group].extractions

    def agreements(self, chosen: Mapping[str, tuple[int, Layouts]], prefix: str) -> Iterator[Tensor]:
        """Links that make operators of a group have one extraction, where no tensor between two of them does. `chosen`
        gives, by value, its variable and the extraction of each of the variable's values.
        """
        for first, second in self.algebra.agreeing:
            count = len(self.algebra.choices[first].enodes)
            produced, read = (Port(*chosen[name], count) for name in (first, second))
            same = np.where(np.eye(count, dtype=bool), 0.0, np.inf)
            yield Tensor(f"{prefix}{first} with {second}", produced, (read,), same)


def _with_nothing(prices: Table) -> Table:
    """Prices of conversions with one more number, `nothing`: asking for it is free, and no layout is made of it."""
    found = np.full((len(prices) + 1, len(prices) + 1), np.inf)
    found[:-1, :-1], found[:, -1] = prices, 0.0
    return found
