"""A planned graph as plain data for `plan.json`, and the planned graph that such data describe."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ..graph.graph import Buffer, Graph, Input, Node, Segment, Value, Weight
from ..graph.halo import is_halo_op
from ..graph.layout import At, Cut, Invariant, Kind, Layout, Mesh, Overlap, Partial, Replicate, Shard, Window, nest
from ..graph.layout_typing import Along, Configuration, Linearly, Role, TypedOperator, Uniformly, type_operator
from ..graph.placed_operators import Placed
from ..graph.plan import Border, Materialised, PlannedGraph, PlannedNode, PlannedSegment, PlannedValue, Run
from ..index.library import Library
from .json_fields import Garbled, as_count, as_list, as_table, as_text


def describe_graph(graph: PlannedGraph) -> dict[str, Any]:
    """Layouts and configurations, in the order of the graph's steps."""
    return {
        "values": {name: _describe_value(value) for name, value in graph.values.items()},
        "weights": _describe_weights(graph),
        "steps": [_describe_step(step) for step in graph.steps],
    }


def _describe_weights(graph: PlannedGraph) -> dict[str, str]:
    """The layouts in which weights are stored."""
    return {w.value.name: describe_layout(graph.values[w.value.name].produced) for w in graph.graph.weights}


def describe_layout(layout: Layout) -> str:
    """A layout as text: `S0,I`. If axes cut a dimension in another order than the mesh's, each cut has its place:
    `S0@1,S0@0`.
    """
    if layout == nest(layout.kinds):
        return str(layout)
    return ",".join(f"{kind}@{kind.place}" if isinstance(kind, Cut) else str(kind) for kind in layout.kinds)


def _describe_value(planned: PlannedValue) -> dict[str, Any]:
    description: dict[str, Any] = {
        "shape": list(planned.value.shape),
        "dtype": planned.value.dtype,
        "layout": describe_layout(planned.produced),
    }
    if planned.value.is_cast:
        description["cast_from"] = planned.value.stored_dtype
    if planned.materialised:
        description["materialised"] = [
            {"layout": describe_layout(made.layout), "from": describe_layout(made.source)}
            for made in planned.materialised
        ]
    return description


def _describe_step(step: PlannedNode | PlannedSegment) -> dict[str, Any]:
    if isinstance(step, PlannedSegment):
        runs = [{"first": r.first, "count": r.count, "body": describe_graph(r.body)} for r in step.runs]
        segment = step.segment
        kind = "cond" if segment.predicate is not None else "scan" if segment.sliced else "repeat"
        described: dict[str, Any] = {kind: segment.name, "count": segment.count, "runs": runs}
        if border := _describe_border(step.border):
            described["border"] = border
        return described
    node, typed = step.node, step.typed
    return {
        "node": node.name,
        "operator": node.instance.name,
        "line": node.span.line if node.span else None,
        "rule": node.rule,
        "arguments": [value.name for value in node.arguments],
        "results": [value.name for value in node.results],
        "configuration": [_describe_role(role) for role in typed.configuration],
        "layouts": [describe_layout(layout) for layout in (*typed.arguments, *typed.results)],
        "native": step.native,
    }


def _describe_border(border: Border) -> dict[str, Any]:
    """The layouts of values at a segment's border, in the order of the segment. Fields without layouts are left out."""
    found: dict[str, Any] = {}
    for name in _BORDER:
        if layouts := getattr(border, name):
            found[name] = list(map(describe_layout, layouts))
    if border.predicate is not None:
        found["predicate"] = describe_layout(border.predicate)
    return found


_BORDER = tuple(field.name for field in fields(Border) if field.name != "predicate")


def _describe_role(role: Role) -> str:
    """A role as text: the divided axis of the operator, `I`, `R`, the partial operands, or a coordinate with the
    operands there.
    """
    if isinstance(role, Along):
        return f"along {role.axis}" if role.by == "partition" else f"along {role.axis} by {role.by}"
    if isinstance(role, Linearly):
        return "linearly " + " ".join(map(str, role.operands))
    if isinstance(role, Placed):
        of = f" of {' '.join(map(str, role.there))}" if role.there else ""
        return f"at {role.coordinate}{of}"
    return str(role.kind)


# ---------------------------------------------------------------------------------------------- reading


def read_graph(data: object, graph: Graph, mesh: Mesh, library: Library) -> PlannedGraph:
    """The planned graph that `data` describe, for this graph on this mesh. Raises Garbled if they describe another
    graph.
    """
    return _Reading(mesh, library).graph(data, graph, {}, "graph")


@dataclass(frozen=True)
class _Reading:
    mesh: Mesh
    library: Library

    def graph(self, data: object, graph: Graph, given: Mapping[str, Value], where: str) -> PlannedGraph:
        """Reads the plan of one graph. `given` are values from outside; `where` names the place in error messages."""
        described = as_table(data, where)
        values, planned = {**given, **_own_values(graph)}, {}
        for name, value in as_table(described.get("values"), f"{where}.values").items():
            if name not in values:
                raise Garbled(f"{where}.values.{name} is no value of the model")
            planned[name] = self.value(
                as_table(value, f"{where}.values.{name}"), values[name], f"{where}.values.{name}"
            )
        found = as_list(described.get("steps"), f"{where}.steps")
        if len(found) != len(graph.steps):
            raise Garbled(f"{where}.steps are not those of the model")
        steps: list[PlannedNode | PlannedSegment] = []
        for number, (data, step) in enumerate(zip(found, graph.steps, strict=True)):
            place = f"{where}.steps[{number}]"
            one = as_table(data, place)
            made = self.node(one, step, place) if isinstance(step, Node) else self.segment(one, step, values, place)
            steps.append(made)
        read = PlannedGraph(graph, planned, tuple(steps))
        self.check(read, where)
        if described.get("weights") != _describe_weights(read):
            raise Garbled(f"{where}.weights are not as {where}.values says")
        return read

    def value(self, data: Mapping[str, object], value: Value, where: str) -> PlannedValue:
        if data.get("shape") != list(value.shape):
            raise Garbled(f"{where} has another shape in the model")
        made = []
        for entry in as_list(data.get("materialised", []), where):
            one = as_table(entry, where)
            made.append(
                Materialised(self.layout(one.get("layout"), value, where), self.layout(one.get("from"), value, where))
            )
        return PlannedValue(value, self.layout(data.get("layout"), value, where), tuple(made))

    def node(self, data: Mapping[str, object], node: Node, where: str) -> PlannedNode:
        names = [value.name for value in node.arguments], [value.name for value in node.results]
        written = data.get("operator"), data.get("arguments"), data.get("results")
        if written != (node.instance.name, *names):
            raise Garbled(f"{where} is not `{node.name}`, as in the model")
        words = as_list(data.get("configuration"), where)
        if len(words) != len(self.mesh.axes):
            raise Garbled(f"{where}.configuration is of another mesh")
        configuration = tuple(_read_role(as_text(word, where), where) for word in words)
        typed = self.typed(node, configuration, where)
        if [describe_layout(layout) for layout in (*typed.arguments, *typed.results)] != data.get("layouts"):
            raise Garbled(f"{where}.layouts are not those of its configuration")
        return PlannedNode(node, typed)

    def typed(self, node: Node, configuration: Configuration, where: str) -> TypedOperator:
        axes = set(node.instance.sizes)
        for role in configuration:
            if isinstance(role, Along) and (role.axis not in axes or role.by not in self.library.parallels):
                raise Garbled(f"{where}.configuration divides nothing of {node.instance.name}")
            if isinstance(role, Linearly) and not set(role.operands) < set(range(len(node.arguments) + 1)):
                raise Garbled(f"{where}.configuration names no operands of {node.instance.name}")
        found = type_operator(node.instance, configuration, self.mesh, self.library)
        if isinstance(found, str):
            raise Garbled(f"{where}: {found}")
        return found

    def segment(
        self, data: Mapping[str, object], segment: Segment, values: Mapping[str, Value], where: str
    ) -> PlannedSegment:
        if segment.name not in (data.get("repeat"), data.get("scan"), data.get("cond")):
            raise Garbled(f"{where} is not `{segment.name}`, as in the model")
        parts = (series.part for series in segment.sliced)
        given = {**values, **{value.name: value for value in (*segment.captured, *segment.entry, *parts)}}
        runs = []
        for number, entry in enumerate(as_list(data.get("runs"), f"{where}.runs")):
            place = f"{where}.runs[{number}]"
            one = as_table(entry, place)
            body = self.graph(one.get("body"), segment.body, given, f"{place}.body")
            runs.append(Run(_number(one.get("first"), place), as_count(one.get("count"), place), body))
        starts = [sum(run.count for run in runs[:number]) for number in range(len(runs) + 1)]
        times = 1 if segment.predicate is not None else segment.count
        if starts != [*(run.first for run in runs), times]:
            raise Garbled(f"{where}.runs are not the {times} iterations")
        return PlannedSegment(
            segment, tuple(runs), self.border(as_table(data.get("border", {}), where), segment, where)
        )

    def border(self, data: Mapping[str, object], segment: Segment, where: str) -> Border:
        crossing: dict[str, Sequence[Value]] = {
            "captured": segment.captured,
            "sliced": [series.part for series in segment.sliced],
            "stacked": [series.part for series in segment.stacked],
            "carried": segment.results if segment.predicate is not None else (),
        }
        layouts = {}
        for name, values in crossing.items():
            written = as_list(data.get(name, []), f"{where}.border.{name}")
            if len(written) != len(values):
                raise Garbled(f"{where}.border.{name} has not a layout for each value")
            layouts[name] = tuple(self.layout(one, value, where) for one, value in zip(written, values, strict=True))
        decides = segment.predicate
        predicate = None if decides is None else self.layout(data.get("predicate"), decides, where)
        return Border(**layouts, predicate=predicate)

    def layout(self, written: object, value: Value, where: str) -> Layout:
        layout = read_layout(as_text(written, where), self.mesh, self.library)
        dims = {kind.dim for kind in layout.kinds if isinstance(kind, Cut)}
        for dim in dims:
            axes = layout.nesting(dim)
            places = [layout.cut(axis).place for axis in axes]
            if dim >= len(value.shape) or value.shape[dim] % self.mesh.degree(axes) or places != list(range(len(axes))):
                raise Garbled(f"{where}: the layout `{written}` does not fit the shape of `{value.name}`")
        return layout

    def check(self, graph: PlannedGraph, where: str) -> None:
        """Raises Garbled unless every layout that is read exists, and every one that is made has a source and is made
        once.
        """
        held: dict[str, set[Layout]] = {}
        for name, planned in graph.values.items():
            held[name] = {planned.produced}
            for made in planned.materialised:
                if made.source not in held[name]:
                    raise Garbled(f"{where}.values.{name}: nothing makes {made.source}")
                if made.layout in held[name]:
                    raise Garbled(f"{where}.values.{name}: {made.layout} is made twice")
                held[name].add(made.layout)
        for value, layout in _reads(graph):
            if layout not in held.get(value.name, ()):
                raise Garbled(f"{where}.values.{value.name} is not held as {layout}, in which it is read")


def _reads(graph: PlannedGraph) -> Iterator[tuple[Value, Layout]]:
    """The values that a graph's own steps read, with their layouts. Steps of bodies are not included."""
    for step in graph.steps:
        if isinstance(step, PlannedNode):
            yield from zip(step.node.arguments, step.typed.arguments, strict=True)
        else:
            yield from step.border.reads(step.segment)


def _own_values(graph: Graph) -> dict[str, Value]:
    stored: tuple[Input | Weight | Buffer, ...] = (*graph.inputs, *graph.weights, *graph.buffers)
    made = (value for step in graph.steps for value in step.makes)
    return {value.name: value for value in (*(one.value for one in stored), *made)}


def _number(value: object, where: str) -> int:
    return 0 if value == 0 else as_count(value, where)


def read_layout(written: str, mesh: Mesh, library: Library) -> Layout:
    """The layout that a text describes. Raises Garbled."""
    words = written.split(",") if written else []
    if len(words) != len(mesh.axes):
        raise Garbled(f"the layout `{written}` is of another mesh")
    kinds = [_read_kind(word, library) for word in words]
    return Layout(tuple(kinds)) if any("@" in word[1:] for word in words) else nest(kinds)


_KINDS: dict[str, Kind] = {"I": Invariant(), "R": Replicate(), "P": Partial()}
_COORDINATE = re.compile(r"@(\d+)")
_CUT = re.compile(
    r"(?:S(?P<dim>\d+)|(?P<sum>sum )?(?P<by>\w+)\((?P<of>\d+)(?P<attributes>(?:; \w+=-?\d+)*)\))(?:@(?P<place>\d+))?"
)


def _read_kind(word: str, library: Library) -> Kind:
    if word in _KINDS:
        return _KINDS[word]
    if (found := _COORDINATE.fullmatch(word)) is not None:
        return At(int(found[1]))
    found = _CUT.fullmatch(word)
    if found is None:
        raise Garbled(f"`{word}` is no kind of layout")
    place = int(found["place"] or 0)
    if found["dim"] is not None:
        return Shard(int(found["dim"]), place)
    if found["by"] not in library.parallels:
        raise Garbled(f"no parallel op is called `{found['by']}`")
    attributes = tuple((name, int(number)) for name, number in re.findall(r"(\w+)=(-?\d+)", found["attributes"]))
    dim, by = int(found["of"]), found["by"]
    if found["sum"]:
        return Overlap(dim, place, by, attributes)
    return (Window if is_halo_op(library.parallels[by]) else Shard)(dim, place, by, attributes)


_PLACED = re.compile(r"at (\d+)(?: of)?((?: \d+)*)")
_ROLE = re.compile(r"along (?P<axis>\S+)(?: by (?P<by>\w+))?|linearly(?P<operands>(?: \d+)+)")


def _read_role(word: str, where: str) -> Role:
    kind = _KINDS.get(word)
    if isinstance(kind, Invariant | Replicate):
        return Uniformly(kind)
    if (placed := _PLACED.fullmatch(word)) is not None:
        return Placed(int(placed[1]), tuple(map(int, placed[2].split())))
    found = _ROLE.fullmatch(word)
    if found is None:
        raise Garbled(f"{where}: `{word}` is no role of an operator")
    if found["axis"] is not None:
        return Along(found["axis"]) if found["by"] is None else Along(found["axis"], found["by"])
    return Linearly(tuple(map(int, found["operands"].split())))
