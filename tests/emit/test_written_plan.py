"""Plans read from plan.json equal the written plans, and nothing else is accepted as a plan."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.sampling import of_the_day
from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.output_folder import render_program
from unity_dsl.emit.plan_file import NAME, load_plan_file
from unity_dsl.emit.planned_graph_data import describe_layout, read_layout
from unity_dsl.emit.written_plan import written_plan
from unity_dsl.graph.graph import Node
from unity_dsl.graph.layout import Layout, Shard
from unity_dsl.graph.plan import Plan, PlannedGraph, PlannedNode, PlannedSegment
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.machine.machine import read_machine
from unity_dsl.simulation.step_tasks import simulate_step
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.span import Source

from .planning import mesh_of

EXAMPLES = Path(__file__).parents[2] / "examples"
CASES = (
    ("digits", "single", 1),
    ("gpt2", "auto", 8),
    ("candle_uno", "auto", 4),
    ("lstm_lm", "auto", 4),  # scans
    ("bert_large", "zero", 4),
    ("mixtral_8x7b", "galvatron", 8),
    ("resnext50", "tofu", 8),
    ("mlp_unity", "unity", 4),
    ("nasnet_a", "data_parallel", 2),  # conds in the order of their probability
    ("vit_l16", "random:3", 8),
    ("llama3_8b", "tensat", 4),
)
PARTS = (
    "mesh",
    "cost",
    "strategy",
    "machine",
    "passes",
    "division",
    "simulated",
    "exposed",
    "notes",
)


def compiled(out: Path, example: str, strategy: str, devices: int, **asked: Any) -> Plan:
    request = Request(EXAMPLES / f"{example}.udl", preset="small", devices=devices, strategy=strategy, **asked)
    found = compile_model(request)
    text = render_program(found.plan, found.library, found.sources, request)[NAME]
    (out / NAME).write_text(text)
    return found.plan


def read(out: Path) -> Plan:
    return written_plan(load_plan_file(out), out)[0]


def rows(graph: PlannedGraph, path: str = "") -> Iterator[object]:
    """All fields of a planned graph except source positions, because the file shortens the names of texts."""
    for name, value in graph.values.items():
        kind = value.value.dtype, value.value.shape, value.value.needs_gradient, value.value.cast_from
        yield path + name, kind, value.produced, value.materialised
    for step in graph.steps:
        if isinstance(step, PlannedNode):
            yield path + step.node.name, operator(step.node), step.typed
        elif isinstance(step, PlannedSegment):
            yield path + step.segment.name, step.border
            for run in step.runs:
                yield run.first, run.count
                yield from rows(run.body, f"{path}{step.segment.name}.")


def operator(node: Node) -> object:
    names = [value.name for value in (*node.arguments, *node.results)]
    return node.instance.name, node.instance.sizes, node.instance.attributes, names, node.site, node.rule, node.mixed


@pytest.mark.a_day(4)
@pytest.mark.parametrize(("example", "strategy", "devices"), CASES)
def test_what_is_read_is_what_was_written(tmp_path: Path, example: str, strategy: str, devices: int) -> None:
    given = compiled(tmp_path, example, strategy, devices)
    found = read(tmp_path)
    assert list(rows(found.graph)) == list(rows(given.graph))
    assert [getattr(found, part) for part in PARTS] == [getattr(given, part) for part in PARTS]
    assert [(rule.rule, rule.replaced) for rule in found.rules] == [(rule.rule, rule.replaced) for rule in given.rules]


def test_a_plan_in_micro_batches_that_runs_segments_again(tmp_path: Path) -> None:
    given = compiled(tmp_path, "gpt2", "auto", 2, micro_batches=2, recompute="layer:1")
    found = read(tmp_path)
    assert given.division is not None and given.passes.recomputed and given.passes.kept_iterations == {"layer": 1}
    assert list(rows(found.graph)) == list(rows(given.graph))
    assert [getattr(found, part) for part in PARTS] == [getattr(given, part) for part in PARTS]


def test_a_plan_that_was_read_takes_as_long(tmp_path: Path) -> None:
    """On machines of several levels, the axes of the mesh keep their levels."""
    given = compiled(tmp_path, "gpt2", "auto", 16, machine="dgx-a100")
    record = load_plan_file(tmp_path)
    found, library = written_plan(record, tmp_path)
    machine = read_machine(record.sources.machine)
    assert simulate_step(found, machine, library).seconds == given.simulated


def test_nested_cuts_in_any_order_are_read_as_written() -> None:
    library, mesh = load_library(), mesh_of(2, 3, 2)
    layout = Layout((Shard(0, 1), Shard(1), Shard(0, 0)))
    assert describe_layout(layout) == "S0@1,S1@0,S0@0"
    assert read_layout(describe_layout(layout), mesh, library) == layout
    assert read_layout("S0,S1,S0", mesh, library) == Layout((Shard(0, 0), Shard(1), Shard(0, 1)))


def leaves(data: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    entries = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    yield path, data
    for key, value in entries:
        yield from leaves(value, (*path, key))


def changed(document: Any, path: tuple[str | int, ...], value: Any) -> Any:
    found = deepcopy(document)
    place = found
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return found


@pytest.mark.parametrize("seed", of_the_day(range(40), 2))
def test_a_garbled_plan_is_told(tmp_path: Path, seed: int) -> None:
    """A value anywhere in the graph is replaced: the plan is read and can be simulated, or it is refused."""
    random, refused = Random(seed), 0
    compiled(tmp_path, random.choice(["mlp", "gpt2", "lstm_lm", "resnext50"]), f"random:{seed}", 4)
    document = json.loads((tmp_path / NAME).read_text())
    machine = read_machine(Source("", document["sources"]["machine"]["text"]))
    places = [path for path, _ in leaves(document["graph"]) if path]
    values = [value for _, value in leaves(document["graph"])]
    for _ in range(40):
        value = random.choice([*random.sample(values, 8), None, -1, 2.5, "", "S9,I", "P,P", "along q", []])
        (tmp_path / NAME).write_text(json.dumps(changed(document, ("graph", *random.choice(places)), value)))
        try:
            plan, library = written_plan(load_plan_file(tmp_path), tmp_path)
        except InputError as error:
            assert error.diagnostic.code in ("E404", "E405")
            refused += 1
        else:
            assert simulate_step(plan, machine, library).seconds > 0
    assert refused


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (("rules", 0, "rule"), "no_such_rule", "its rules do not make a model of the texts it holds"),
        (("graph", "steps"), [], "graph.steps are not those of the model"),
        (("mesh", 0, "degree"), 2, "its mesh has 2 devices, and 4 were asked for"),
    ],
)
def test_a_plan_of_another_model_is_refused(
    tmp_path: Path, path: tuple[str | int, ...], value: Any, reason: str
) -> None:
    compiled(tmp_path, "mlp", "zero", 4, mesh=(4,))
    document = json.loads((tmp_path / NAME).read_text())
    (tmp_path / NAME).write_text(json.dumps(changed(document, path, value)))
    with pytest.raises(InputError) as caught:
        read(tmp_path)
    assert caught.value.diagnostic.code == "E405" and reason in caught.value.diagnostic.message
