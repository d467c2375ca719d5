"""The configurations of an operator around given ones, against those that brute force picks from all."""

from __future__ import annotations

import subprocess
import sys
from random import Random

from unity_dsl.graph.graph import Node
from unity_dsl.graph.layout import Invariant, Mesh, MeshAxis
from unity_dsl.graph.layout_typing import Uniformly
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.rules.sharding_theorems import ShardingTheorems
from unity_dsl.search.choices.axis_choices import axis_choices, role_number
from unity_dsl.search.choices.operator_options import OptionTable
from unity_dsl.search.choices.proved_configurations import Around, ProvedConfigurations

from ..conftest import Build

MESH = Mesh((MeshAxis("a", 2, 1), MeshAxis("b", 4), MeshAxis("c", 2)))
INVARIANT = Uniformly(Invariant())
MODEL = """
model m[n = 16]
  input x: f32[n, 32, 8]
  input target: f32[n, 32, 8]
  weight w: f32[8, 8] ~ normal(0.1)
  h = softmax(linear(x, w))
  y = x[n, s, d] -> [s, n, d]
  loss mse(h, target) + reduce_mean(y[s, n, d] -> [])
"""


def test_what_is_around_some_configurations(library: Library, build: Build) -> None:
    table = OptionTable(MESH, load_machine("dgx-a100"), ProvedConfigurations(library, ShardingTheorems(library)))
    rng, compared = Random(5), 0
    for node in (step for step in build(MODEL).graph.steps if isinstance(step, Node)):
        weights = tuple(value.name == "w" for value in node.arguments)
        every = table.of(node, weights)
        for reach in range(4):
            chosen = [typed.configuration for typed in rng.sample(every.typed, min(2, len(every.typed)))]
            rows = frozenset(map(tuple, axis_choices(chosen).tolist()))
            near = table.near(node, weights, Around(rows, reach))
            wanted = {
                typed.configuration
                for typed in every.typed
                if set(typed.configuration) == {INVARIANT}
                or any(sum(a != b for a, b in zip(typed.configuration, one, strict=True)) <= reach for one in chosen)
            }
            assert {typed.configuration for typed in near.typed} == wanted, (node.name, reach)
            prices = {typed.configuration: seconds for typed, seconds in zip(every.typed, every.seconds, strict=True)}
            assert [prices[typed.configuration] for typed in near.typed] == list(near.seconds), (node.name, reach)
            assert set(near.typed[0].configuration) == {INVARIANT}, (node.name, reach)
            compared += len(wanted) < len(every.typed)
    assert compared >= 6, compared


def test_tables_of_several_prices_share_configurations(library: Library, build: Build) -> None:
    """Two machines that share configurations get those that are found for each alone; the prices differ."""
    proved, nodes = ProvedConfigurations(library, ShardingTheorems(library)), build(MODEL).graph.steps
    machines = [load_machine(name) for name in ("dgx-a100", "summit")]
    for node in (step for step in nodes if isinstance(step, Node)):
        weights = tuple(value.name == "w" for value in node.arguments)
        some = OptionTable(MESH, machines[0], proved).of(node, weights).typed[-1].configuration
        around = Around(frozenset(map(tuple, axis_choices([some]).tolist())))
        seconds = []
        for machine in machines:
            shared = OptionTable(MESH, machine, proved)
            alone = OptionTable(MESH, machine, ProvedConfigurations(library, ShardingTheorems(library)))
            for one, other in zip(
                (shared.of(node, weights), shared.near(node, weights, around)),
                (alone.of(node, weights), alone.near(node, weights, around)),
                strict=True,
            ):
                assert one.typed == other.typed and one.seconds.tolist() == other.seconds.tolist(), node.name
            seconds.append(shared.of(node, weights).seconds.tolist())
        assert shared.of(node, weights).configurations.by_axis is proved.of(node, weights, MESH, {}).by_axis
        assert seconds[0] != seconds[1] or not any(seconds[0]), node.name


def test_an_operator_that_has_none_of_them_has_all(library: Library, build: Build) -> None:
    table = OptionTable(MESH, load_machine("dgx-a100"), ProvedConfigurations(library, ShardingTheorems(library)))
    node = next(step for step in build(MODEL).graph.steps if isinstance(step, Node))
    unknown = Around(frozenset({(role_number("one"), role_number("two"), role_number("three"))}))
    weights = tuple(value.name == "w" for value in node.arguments)
    assert table.near(node, weights, unknown).typed == table.of(node, weights).typed


def test_numbers_of_roles_are_the_same_in_every_process(library: Library, build: Build) -> None:
    """Also if strings have other hashes: processes use these numbers to describe plans to each other."""
    script = (
        "from unity_dsl.graph.layout import Partial, Shard; from unity_dsl.graph.layout_typing import Along, Uniformly;"
        "from unity_dsl.search.choices.axis_choices import role_number;"
        "print([role_number(r) for r in (Along('a', 'partition'), Uniformly(Partial()), (Shard, 1, 'halo', ()))])"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1 and len(set(eval(told.pop()))) == 3


def test_reaches_of_all_axes_are_everything(library: Library, build: Build) -> None:
    table = OptionTable(MESH, load_machine("dgx-a100"), ProvedConfigurations(library, ShardingTheorems(library)))
    for node in (step for step in build(MODEL).graph.steps if isinstance(step, Node)):
        weights = tuple(value.name == "w" for value in node.arguments)
        every = table.of(node, weights)
        around = Around(frozenset({tuple(axis_choices([every.typed[-1].configuration])[0].tolist())}), len(MESH.axes))
        assert table.near(node, weights, around).typed == every.typed
