"""What the variables of a problem stand for, and the error where one has no option left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...graph.graph import Graph, Node, Value
from ..choices.layout_space import ConversionOverlap
from ..choices.operator_options import Options
from ..cost_network.bucket_elimination import Table
from ..folded_solver.problem_part import Layouts, Port


class Impossible(Exception):
    """Something has no choice left. `path` names it, `node` makes it, `options` are its unrestricted choices."""

    def __init__(self, path: str, node: Node | None, options: Options | None) -> None:
        super().__init__(path)
        self.path = path
        self.node = node
        self.options = options


class Crowded(Impossible):
    """The readers of the value at `path` ask for more layouts than it can have at once. An empty path is some unknown
    value.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path, None, None)


@dataclass(frozen=True)
class Stored:
    """A weight or buffer that only one operator reads: its storage layout is part of that operator's choice.

    `best[j]` is the storage layout for the required layout j, `seconds[j]` the cost of storing, converting and
    updating.
    """

    value: Value
    best: Layouts
    seconds: Table


@dataclass
class Meaning:
    """The meaning of a part's variables: those of `nodes` choose among options, others among the `layouts` of a value.

    `kept` are the values with a variable of their own: stored values, and those that cross the border of a body. `free`
    values carry no gradient and are whole on every device, so slices of them cost nothing. `chosen` gives, by value
    whose operator algebra chooses, its variable and the extraction of each of the variable's values. `numbered` gives
    the numbers at both ends of a tensor between two such variables of a group. `overlap` gives, by tensor name, what
    overlaps with its conversions, if anything does.
    """

    graph: Graph
    nodes: dict[str, tuple[int, Options]] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    layouts: dict[int, tuple[Value, Layouts]] = field(default_factory=dict)
    stored: dict[str, Stored] = field(default_factory=dict)
    fixed: dict[str, Options] = field(default_factory=dict)
    chosen: dict[str, tuple[int, Layouts]] = field(default_factory=dict)
    numbered: dict[str, tuple[Layouts, Layouts]] = field(default_factory=dict)
    overlap: Mapping[str, ConversionOverlap] = field(default_factory=dict)
    free: set[str] = field(default_factory=set)
    bodies: list[Meaning] = field(default_factory=list)
    borders: list[Crossings] = field(default_factory=list)


@dataclass
class Crossings:
    """The ports that decide the layouts of a segment's Border; None for values that are whole on every device.

    The layouts are those of the values in the body.
    """

    captured: list[Port | None] = field(default_factory=list)
    sliced: list[Port | None] = field(default_factory=list)
    stacked: list[Port | None] = field(default_factory=list)
    carried: list[Port | None] = field(default_factory=list)
