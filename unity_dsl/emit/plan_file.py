"""Reads and writes `plan.json`: the plan, its costs, and the texts it was made from.

It holds the texts themselves, so that an out/ can be checked, or compiled for another number of devices, on a machine
that has none of the sources. The hash covers those texts: a plan whose hash does not match is stale and refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Any, Protocol

from ..graph.layout_typing import Along, Configuration, Linearly, Role
from ..graph.plan import AppliedRule, Cost, Exposure, Plan, PlannedGraph, PlannedNode, PlannedSegment, PlannedValue
from ..syntax.diagnostic import fail
from ..syntax.read import read_bytes
from ..syntax.span import Source

FORMAT = 1
NAME = "plan.json"

TORCH, TRITON = KERNELS = ("torch", "triton")
"""As what operators run on a GPU: as operations of torch, or in groups as kernels of kernels.py."""


@dataclass(frozen=True)
class Sources:
    """Every text that a plan depends on, operators in the order in which the library read them, rules as given, and the
    shipped rules that fuse operators.
    """

    model: Source
    operators: tuple[Source, ...]
    machine: Source
    rules: tuple[Source, ...] = ()
    fusions: tuple[Source, ...] = ()

    @property
    def hash(self) -> str:
        """SHA-256 over all texts, each with its role and length, so that no text can be moved into another."""
        digest = sha256(f"unity-dsl plan {FORMAT}".encode())
        texts = [("model", self.model), *(("ops", source) for source in self.operators), ("machine", self.machine)]
        texts += [("rules", source) for source in self.rules]
        texts += [("fusions", source) for source in self.fusions]
        for role, source in texts:
            content = source.text.encode()
            digest.update(f"\n{role} {len(content)}\n".encode())
            digest.update(content)
        return digest.hexdigest()


class Choices(Protocol):
    """What the user asked for, beside the texts. `pins` are as written: `w1=S0,I`; `memory` are bytes on a device;
    `micro_batches` None where memory decides; `forbidden` are names of rules; `recompute` is as written too;
    `kernels` is one of KERNELS.
    """

    @property
    def settings(self) -> Mapping[str, str | int | float]: ...
    @property
    def preset(self) -> str | None: ...
    @property
    def devices(self) -> int: ...
    @property
    def mesh(self) -> tuple[int, ...] | None: ...
    @property
    def strategy(self) -> str: ...
    @property
    def pins(self) -> Sequence[str]: ...
    @property
    def memory(self) -> int | None: ...
    @property
    def micro_batches(self) -> int | None: ...
    @property
    def recompute(self) -> str: ...
    @property
    def kernels(self) -> str: ...
    @property
    def forbidden(self) -> Sequence[str]: ...


@dataclass(frozen=True)
class PlanFile:
    """What can be read back from a `plan.json`: enough to compile again, and to notice edited files.

    `precision` is the float type of the model's arithmetic, `micro_batches` their number in a step. `graph` is the
    description of the planned graph; `recomputed` are the paths of segments that its backward pass runs again. The
    search took so much of a step's work to be `exposed`, and was `ended` by something before it was through, or not.
    """

    sources: Sources
    settings: Mapping[str, str | int | float]
    preset: str | None
    precision: str | None
    devices: int
    mesh: tuple[int, ...] | None
    strategy: str
    pins: tuple[str, ...]
    memory: int | None
    micro_batches: int
    recompute: str
    kernels: str
    recomputed: tuple[str, ...]
    forbidden: tuple[str, ...]
    exposed: Exposure
    degrees: tuple[int, ...]
    graph: Mapping[str, Any]
    files: Mapping[str, str]
    ended: str | None = None

    @property
    def world_size(self) -> int:
        """Number of ranks that the program beside the plan runs on."""
        size = 1
        for degree in self.degrees:
            size *= degree
        return size


def render_plan_file(
    plan: Plan,
    sources: Sources,
    choices: Choices,
    files: Mapping[str, str],
    theorems: Sequence[Mapping[str, str | list[str]]],
    declared: Sequence[Mapping[str, str]],
    version: str,
) -> str:
    """The text of `plan.json`. `files` are the other files of the program, by name, with their texts.

    `theorems` are what the plan rests on, each with the hash of what its proof looked at and, where there are any, the
    facts of element functions that it assumes; `declared` is what
    it assumes because an extern operator's declaration says so.
    """
    names = iter(_public_names(sources))
    document = {
        "format": FORMAT,
        "unity_dsl": version,
        "hash": sources.hash,
        "model": plan.model.name,
        "parameters": dict(plan.parameters),
        "precision": plan.model.precision,
        "micro_batches": describe_division(plan),
        "machine": plan.machine,
        "mesh": [asdict(axis) for axis in plan.mesh.axes],
        "strategy": plan.strategy,
        "request": {
            "settings": dict(choices.settings),
            "preset": choices.preset,
            "devices": choices.devices,
            "mesh": None if choices.mesh is None else list(choices.mesh),
            "strategy": choices.strategy,
            "pins": list(choices.pins),
            "memory": choices.memory,
            "micro_batches": choices.micro_batches,
            "recompute": choices.recompute,
            "kernels": choices.kernels,
            "forbidden": list(choices.forbidden),
        },
        "cost": describe_cost(plan.cost),
        "exposed": asdict(plan.exposed),
        "simulated_seconds": plan.simulated,
        "notes": list(plan.notes),
        **({} if plan.ended is None else {"ended": plan.ended}),
        "warnings": [{"code": found.code, "message": found.message} for found in plan.warnings],
        "models_considered": plan.considered,
        "recomputed": sorted(plan.recomputed),
        "rules": list(map(_describe_applied, plan.rules)),
        "graph": _describe_graph(plan.graph),
        "theorems": list(theorems),
        "declared": list(declared),
        "files": {name: digest(text.encode()) for name, text in sorted(files.items())},
        "sources": {
            "model": {"name": next(names), "text": sources.model.text},
            "ops": [{"name": next(names), "text": source.text} for source in sources.operators],
            "machine": {"name": next(names), "text": sources.machine.text},
            "rules": [{"name": next(names), "text": source.text} for source in sources.rules],
            "fusions": [{"name": next(names), "text": source.text} for source in sources.fusions],
        },
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def describe_division(plan: Plan) -> dict[str, Any]:
    """How many micro-batches a step runs, and of what size the batch is in each."""
    if plan.division is None:
        return {"count": 1}
    batch = plan.division
    return {
        "count": batch.count,
        "batch": batch.parameter,
        "size": plan.model.parameters[batch.parameter],
        "inputs": list(batch.inputs),
        "loss_divisor": batch.divisor,
    }


def describe_cost(cost: Cost) -> dict[str, Any]:
    """Seconds of a step and bytes on each device, by what they are spent on."""
    return {
        "seconds": cost.seconds,
        "compute": cost.compute,
        "communication": cost.communication,
        "update": cost.update,
        "memory": {"total": cost.memory.total, **asdict(cost.memory)},
    }


def digest(content: bytes) -> str:
    """SHA-256 of a file, by which an edited one is noticed."""
    return sha256(content).hexdigest()


def load_plan_file(out: Path) -> PlanFile:
    """Read `plan.json` of a compiled folder.

    Raises E403 where there is none, E404 where it is not what `unityc` writes, E405 where it is stale.
    """
    path = out / NAME
    try:
        text = read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise fail("E404", f"{path} is not text: {error.reason}", help=_COMPILE_AGAIN) from None
    except OSError as error:
        reason = error.strerror or "unreadable"
        raise fail("E403", f"no plan in {out}: {reason}", help="give the folder that `unityc MODEL -o` wrote") from None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise fail("E404", f"{path} is not JSON", help=_COMPILE_AGAIN) from None
    found = document.get("format") if isinstance(document, dict) else None
    if isinstance(found, int) and found != FORMAT:
        message = f"{path} has format {found}, this version reads format {FORMAT}"
        raise fail("E405", message, help=_COMPILE_AGAIN)
    try:
        plan = _read(document)
    except _Garbled as error:
        raise fail("E404", f"{path}: {error}", help=_COMPILE_AGAIN) from None
    if document.get("hash") != plan.sources.hash:
        message = f"{path} is stale: its hash is not that of the texts it holds"
        raise fail("E405", message, help=_COMPILE_AGAIN)
    return plan


def is_plan_of(record: PlanFile, plan: Plan) -> bool:
    """Whether a plan is the one that was written: its mesh, layouts, conversions, native calls, segments run again."""
    degrees = tuple(axis.degree for axis in plan.mesh.axes)
    if degrees != record.degrees or plan.recomputed != frozenset(record.recomputed):
        return False
    return bool(json.loads(json.dumps(_describe_graph(plan.graph))) == record.graph)


_COMPILE_AGAIN = "compile the model again"


# ---------------------------------------------------------------------------------------------- writing


def _public_names(sources: Sources) -> list[str]:
    """File names without their folders (which tell about the machine), made different from each other."""
    used: set[str] = set()
    names = []
    for source in (sources.model, *sources.operators, sources.machine, *sources.rules, *sources.fusions):
        path = PurePath(source.name)
        name, count = path.name or "text", 2
        while name in used:
            name = f"{path.stem}-{count}{path.suffix}"
            count += 1
        used.add(name)
        names.append(name)
    return names


def _describe_applied(applied: AppliedRule) -> dict[str, Any]:
    """A rule, where it was applied, and, where there are any, the facts that its proof assumes."""
    described = {
        "rule": applied.rule,
        "place": applied.place,
        "line": applied.span.line if applied.span else None,
    }
    return {**described, "assumed": list(applied.assumed)} if applied.assumed else described


def _describe_graph(graph: PlannedGraph) -> dict[str, Any]:
    return {
        "values": {name: _describe_value(value) for name, value in graph.values.items()},
        "weights": {w.value.name: str(graph.values[w.value.name].produced) for w in graph.graph.weights},
        "steps": [_describe_step(step) for step in graph.steps],
    }


def _describe_value(planned: PlannedValue) -> dict[str, Any]:
    description: dict[str, Any] = {
        "shape": list(planned.value.shape),
        "dtype": planned.value.dtype,
        "layout": str(planned.produced),
    }
    if planned.value.is_cast:
        description["cast_from"] = planned.value.stored_dtype
    if planned.materialised:
        description["materialised"] = [{"layout": str(m.layout), "from": str(m.source)} for m in planned.materialised]
    return description


def _describe_step(step: PlannedNode | PlannedSegment) -> dict[str, Any]:
    if isinstance(step, PlannedSegment):
        runs = [{"first": r.first, "count": r.count, "body": _describe_graph(r.body)} for r in step.runs]
        segment = step.segment
        kind = "cond" if segment.predicate is not None else "scan" if segment.sliced else "repeat"
        described: dict[str, Any] = {kind: segment.name, "count": segment.count, "runs": runs}
        border = [*step.border.reads(segment), *step.border.leaves(segment)]
        if border:
            described["border"] = [[value.name, str(layout)] for value, layout in border]
        return described
    node, typed = step.node, step.typed
    return {
        "node": node.name,
        "operator": node.instance.name,
        "line": node.span.line if node.span else None,
        "rule": node.rule,
        "arguments": [value.name for value in node.arguments],
        "results": [value.name for value in node.results],
        "configuration": describe_configuration(typed.configuration),
        "layouts": [str(layout) for layout in (*typed.arguments, *typed.results)],
        "native": step.native,
    }


def describe_configuration(configuration: Configuration) -> list[str]:
    """One word per mesh axis: the divided axis of the operator, `I`, `R`, or which operands are partial."""
    return [_describe_role(role) for role in configuration]


def _describe_role(role: Role) -> str:
    if isinstance(role, Along):
        return f"along {role.axis}" if role.by == "partition" else f"along {role.axis} by {role.by}"
    if isinstance(role, Linearly):
        return "linearly " + " ".join(map(str, role.operands))
    return str(role.kind)


# ---------------------------------------------------------------------------------------------- reading


class _Garbled(Exception):
    """A `plan.json` that lacks what it must have, said in words."""


def _read(document: object) -> PlanFile:
    top = _table(document, "the file")
    request = _table(top.get("request"), "request")
    sources = _table(top.get("sources"), "sources")
    settings = _table(request.get("settings"), "request.settings")
    files = _table(top.get("files"), "files")
    mesh, memory = request.get("mesh"), request.get("memory")
    preset, precision = request.get("preset"), top.get("precision")
    division = _table(top.get("micro_batches", {"count": 1}), "micro_batches")
    return PlanFile(
        sources=Sources(
            _source(sources.get("model"), "sources.model"),
            tuple(_source(item, "sources.ops") for item in _list(sources.get("ops"), "sources.ops")),
            _source(sources.get("machine"), "sources.machine"),
            # Plans that were written before there were any have no such lists.
            tuple(_source(item, "sources.rules") for item in _list(sources.get("rules", []), "sources.rules")),
            tuple(_source(item, "sources.fusions") for item in _list(sources.get("fusions", []), "sources.fusions")),
        ),
        settings={name: _setting(value, name) for name, value in settings.items()},
        preset=None if preset is None else _text(preset, "request.preset"),
        precision=None if precision is None else _text(precision, "precision"),
        devices=_count(request.get("devices"), "request.devices"),
        mesh=None if mesh is None else tuple(_count(n, "request.mesh") for n in _list(mesh, "request.mesh")),
        strategy=_text(request.get("strategy"), "request.strategy"),
        pins=tuple(_text(pin, "request.pins") for pin in _list(request.get("pins"), "request.pins")),
        memory=None if memory is None else _count(memory, "request.memory"),
        micro_batches=_count(division.get("count"), "micro_batches.count"),
        recompute=_text(request.get("recompute", "none"), "request.recompute"),
        kernels=_kernels(_text(request.get("kernels", TORCH), "request.kernels")),
        recomputed=tuple(_text(path, "recomputed") for path in _list(top.get("recomputed", []), "recomputed")),
        forbidden=tuple(
            _text(rule, "request.forbidden") for rule in _list(request.get("forbidden", []), "request.forbidden")
        ),
        exposed=_exposure(_table(top.get("exposed", {}), "exposed")),
        degrees=tuple(_count(_table(a, "mesh").get("degree"), "mesh") for a in _list(top.get("mesh"), "mesh")),
        graph=_table(top.get("graph"), "graph"),
        files={_file_name(name): _text(value, f"files.{name}") for name, value in files.items()},
        ended=None if top.get("ended") is None else _text(top["ended"], "ended"),
    )


def _kernels(word: str) -> str:
    if word not in KERNELS:
        raise ValueError("request.kernels")
    return word


def _exposure(parts: Mapping[str, object]) -> Exposure:
    """Of a plan that says nothing, everything is exposed."""
    for name, part in parts.items():
        known = name in Exposure.__dataclass_fields__ and isinstance(part, int | float)
        if not known or not 0 <= float(part) <= 1:  # type: ignore[arg-type]
            raise _Garbled(f"exposed.{name} is no part of a step's work")
    return Exposure(**{name: float(part) for name, part in parts.items()})  # type: ignore[arg-type]


def _table(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Garbled(f"{where} is not a table")
    return value


def _list(value: object, where: str) -> Iterable[object]:
    if not isinstance(value, list):
        raise _Garbled(f"{where} is not a list")
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or any("\ud800" <= char <= "\udfff" for char in value):
        raise _Garbled(f"{where} is not a text")
    return value


def _count(value: object, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _Garbled(f"{where} is not a positive number")
    return value


def _setting(value: object, where: str) -> str | int | float:
    if not isinstance(value, str | int | float):
        raise _Garbled(f"setting {where} is neither a number nor a text")
    return value


def _file_name(name: str) -> str:
    """Names are of files in the folder itself: a plan must not make us touch anything outside it."""
    if PurePath(name).name != name or name in (".", ".."):
        raise _Garbled(f"`{name}` is not the name of a file in the folder")
    return name


def _source(value: object, where: str) -> Source:
    table = _table(value, where)
    return Source(_text(table.get("name"), f"{where}.name"), _text(table.get("text"), f"{where}.text"))
