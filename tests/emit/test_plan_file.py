"""plan.json: written plans can be read back, and nothing else is accepted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest

from unity_dsl.emit.plan_file import NAME, Sources, digest, load_plan_file, render_plan_file
from unity_dsl.graph.graph import Graph, Model, Value
from unity_dsl.graph.layout import Mesh, MeshAxis
from unity_dsl.graph.passes import Passes
from unity_dsl.graph.plan import Cost, Memory, Plan, PlannedGraph
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.span import Source

from .planning import conversions_on, mesh_of

SOURCES = Sources(
    Source("/home/someone/models/tiny.udl", "model tiny[b = 4]\n"),
    (Source("/opt/lib/ops/linear.uop", "op one\n"), Source("mine/linear.uop", "op two\n")),
    Source("/opt/lib/machines/local.toml", 'name = "local"\n'),
    (Source("/home/someone/laws.rules", "# one\n"), Source("more/laws.rules", "# two\n")),
)


@dataclass(frozen=True)
class Asked:
    settings: dict[str, str | int | float]
    preset: str | None = "small"
    devices: int = 4
    mesh: tuple[int, ...] | None = (2, 2)
    strategy: str = "auto"
    pins: tuple[str, ...] = ("w=S0,I",)
    memory: int | None = 40_000_000_000
    micro_batches: int | None = None
    recompute: str = "layer,head.step"
    offload: str = "none"
    pad: str = "none"
    kernels: str = "triton"
    forbidden: tuple[str, ...] = ("linear_with_bias",)


def text_of_plan(sources: Sources = SOURCES, files: dict[str, str] | None = None) -> str:
    loss = Value("loss", ())
    model = Model("tiny", Graph((), (), (), ()), loss, (), {"b": 4})
    mesh = Mesh((MeshAxis("a", 2), MeshAxis("b", 2)))
    graph = PlannedGraph(model.graph, {}, ())
    conversions = conversions_on(mesh, load_library())
    plan = Plan(
        model,
        mesh,
        "local",
        "auto",
        graph,
        Cost(1.0, 2.0, 0.5, Memory(100.0)),
        conversions,
        ("a note",),
        passes=PASSES,
    )
    return render_plan_file(
        plan, sources, Asked({"d": 8, "rate": "0.1"}), files or {"model.py": "x = 1\n"}, [], [], "0.1.0"
    )


PASSES = Passes(
    recomputed=frozenset({"layer"}),
    offloaded=frozenset({"decoder"}),
    kept_iterations={"layer": 2, "decoder": 1},
    interleaved=(("left", "right"),),
    skew=2,
    deferred_gradients=True,
    chunks=4,
    bucket_mib=0,
    regathered=frozenset({"layer.w"}),
)


def test_every_setting_of_a_pass_is_tried() -> None:
    usual = Passes()
    assert not [one.name for one in fields(Passes) if getattr(PASSES, one.name) == getattr(usual, one.name)]


def code_of(action: Callable[[], object]) -> str:
    with pytest.raises(InputError) as caught:
        action()
    return caught.value.diagnostic.code


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(text_of_plan())
    plan = load_plan_file(tmp_path)
    assert plan.world_size == 4 and plan.axes == mesh_of(2, 2).axes and plan.mesh == (2, 2)
    assert plan.settings == {"d": 8, "rate": "0.1"} and plan.preset == "small" and plan.pins == ("w=S0,I",)
    assert plan.forbidden == ("linear_with_bias",) and plan.memory == 40_000_000_000
    assert plan.recompute == "layer,head.step" and plan.passes == PASSES and plan.kernels == "triton"
    assert plan.cost == Cost(1.0, 2.0, 0.5, Memory(100.0)) and plan.notes == ("a note",)
    assert plan.sources.hash == SOURCES.hash
    assert [source.text for source in plan.sources.operators] == ["op one\n", "op two\n"]
    assert [source.text for source in plan.sources.rules] == ["# one\n", "# two\n"]
    assert plan.files == {"model.py": digest(b"x = 1\n")}


def test_no_path_of_this_machine_is_written() -> None:
    text = text_of_plan()
    assert "/home" not in text and "/opt" not in text
    for kind in ("ops", "rules"):
        names = [source["name"] for source in json.loads(text)["sources"][kind]]
        assert len(set(names)) == 2


def test_the_hash_covers_every_text() -> None:
    changed = [
        replace(SOURCES, model=Source("tiny.udl", "model tiny[b = 5]\n")),
        replace(SOURCES, operators=SOURCES.operators[:1]),
        replace(SOURCES, operators=SOURCES.operators[::-1]),
        replace(SOURCES, rules=SOURCES.rules[:1]),
        replace(SOURCES, rules=SOURCES.rules[::-1]),
        replace(SOURCES, operators=SOURCES.operators + SOURCES.rules, rules=()),
        replace(SOURCES, machine=Source("m", "")),
        replace(SOURCES, model=Source("tiny.udl", ""), machine=Source("m", SOURCES.model.text + SOURCES.machine.text)),
    ]
    assert len({SOURCES.hash, *(sources.hash for sources in changed)}) == 1 + len(changed)


def test_a_folder_without_a_plan_is_refused(tmp_path: Path) -> None:
    assert code_of(lambda: load_plan_file(tmp_path)) == "E403"
    assert code_of(lambda: load_plan_file(tmp_path / "missing")) == "E403"


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", "[" * 100_000, '{"format": 3}', '{"format": "x"}'])
def test_what_is_no_plan_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text)
    assert code_of(lambda: load_plan_file(tmp_path)) == "E404"


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"\x80\x04\xff\x00")
    assert code_of(lambda: load_plan_file(tmp_path)) == "E404"


def damaged(change: Callable[[dict[str, Any]], object]) -> str:
    document = json.loads(text_of_plan())
    change(document)
    return json.dumps(document)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.pop("request"),
        lambda d: d["request"].update(devices=0),
        lambda d: d["request"].update(devices=True),
        lambda d: d["request"].update(pins="w=S0"),
        lambda d: d["request"].update(settings={"d": [1]}),
        lambda d: d["mesh"].append(2),
        lambda d: d["sources"].update(ops={}),
        lambda d: d["sources"].update(rules=[3]),
        lambda d: d["sources"]["machine"].pop("text"),
        lambda d: d["sources"]["model"].update(text="\ud800"),
        lambda d: d.update(files={"../../elsewhere": "0"}),
        lambda d: d.update(files={"/etc/passwd": "0"}),
    ],
)
def test_a_damaged_plan_is_refused(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    (tmp_path / NAME).write_text(damaged(change))
    assert code_of(lambda: load_plan_file(tmp_path)) == "E404"


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["sources"]["model"].update(text="model other[b = 4]\n"),
        lambda d: d["sources"].update(rules=[]),
        lambda d: d.update(hash="0" * 64),
        lambda d: d.pop("hash"),
        lambda d: d.update(format=99),
    ],
)
def test_a_stale_plan_is_refused(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    (tmp_path / NAME).write_text(damaged(change))
    assert code_of(lambda: load_plan_file(tmp_path)) == "E405"
