"""Reads and writes `plan.json`: the plan, its costs, and the texts it was made from.

It holds the texts themselves, so that an out/ can be checked, or compiled for another number of devices, on a machine
that has none of the sources. The hash covers those texts: a plan whose hash does not match is stale and refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256
from math import prod
from pathlib import Path, PurePath
from typing import Any, Protocol

from ..graph.interleaved_repeats import in_model_order
from ..graph.layout import MeshAxis
from ..graph.passes import Passes
from ..graph.plan import AppliedRule, Cost, Exposure, Memory, Plan
from ..graph.search_trail import Trial
from ..syntax.diagnostic import fail
from ..syntax.read import read_bytes
from ..syntax.span import Source
from .json_fields import Garbled, as_amount, as_count, as_list, as_table, as_text
from .passes_data import read_passes, written_passes
from .planned_graph_data import describe_graph

FORMAT = 3
NAME = "plan.json"

TORCH, TRITON = KERNELS = ("torch", "triton")
"""How operators run on a GPU: as torch operations, or in groups as Triton kernels of kernels.py."""


@dataclass(frozen=True)
class Sources:
    """Every text that a plan depends on: operators in the order in which the library read them, rules as given, and the
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
    """The user's choices besides the texts. `pins` are as written: `w1=S0,I`. `memory` is the bytes that a plan may use
    per device. `micro_batches` is None if memory decides. `forbidden` are names of rules. `recompute`, `offload` and
    `pad` are as written too. `kernels` is one of KERNELS.
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
    def offload(self) -> str: ...
    @property
    def pad(self) -> str: ...
    @property
    def kernels(self) -> str: ...
    @property
    def forbidden(self) -> Sequence[str]: ...


@dataclass(frozen=True)
class PlanFile:
    """The contents of a `plan.json`: the plan, enough to compile it again, and hashes that reveal edited files.

    `precision` is the float type of the model's arithmetic, `micro_batches` their number per step. `rules` are the
    rules applied to obtain the plan's model, `considered` the number of models compared. `graph` describes the planned
    graph on a mesh of these `axes`. All other fields have the meaning that they have in a plan.
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
    offload: str
    pad: str
    kernels: str
    passes: Passes
    forbidden: tuple[str, ...]
    exposed: Exposure
    axes: tuple[MeshAxis, ...]
    graph: Mapping[str, Any]
    files: Mapping[str, str]
    cost: Cost
    rules: tuple[AppliedRule, ...] = ()
    considered: int = 1
    notes: tuple[str, ...] = ()
    simulated: float | None = None
    unlimited_seconds: float | None = None
    ended: str | None = None
    padding: Mapping[str, int] = field(default_factory=dict)
    trail: tuple[Trial, ...] = ()

    @property
    def world_size(self) -> int:
        """The number of ranks of the program that the plan belongs to."""
        return prod(axis.degree for axis in self.axes)


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

    `theorems` are what the plan rests on, each with the hash of what its proof looked at. A theorem also lists the
    facts about element functions that it assumes, if any. `declared` is what the plan assumes because an extern
    operator's declaration says so.
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
            "offload": choices.offload,
            "pad": choices.pad,
            "kernels": choices.kernels,
            "forbidden": list(choices.forbidden),
        },
        "cost": describe_cost(plan.cost),
        "exposed": asdict(plan.exposed),
        "simulated_seconds": plan.simulated,
        **({} if plan.unlimited_seconds is None else {"unlimited_seconds": plan.unlimited_seconds}),
        "notes": list(plan.notes),
        **({} if plan.ended is None else {"ended": plan.ended}),
        "search": [{**asdict(trial), "mesh": list(trial.mesh)} for trial in plan.trail],
        "warnings": [{"code": found.code, "message": found.message} for found in plan.warnings],
        "models_considered": plan.considered,
        **written_passes(plan.passes),
        **({"padding": dict(plan.model.padding)} if plan.model.padding else {}),
        "rules": list(map(_describe_applied, plan.rules)),
        "graph": describe_graph(in_model_order(plan)),
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
    """The number of micro-batches in a step, the batch size of each, the divided inputs and the loss divisor."""
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
    """Seconds of a step and bytes per device, by what they are spent on."""
    return {
        "seconds": cost.seconds,
        "compute": cost.compute,
        "communication": cost.communication,
        "update": cost.update,
        "synchronisation": cost.synchronisation,
        "accumulation": cost.accumulation,
        "memory": {"total": cost.memory.total, **asdict(cost.memory)},
    }


def digest(content: bytes) -> str:
    """SHA-256 of a file, by which an edited one is noticed."""
    return sha256(content).hexdigest()


def load_plan_file(out: Path) -> PlanFile:
    """Read `plan.json` of a compiled folder.

    Raises E403 if there is none, E404 if it is not what `unityc` writes, E405 if it is stale.
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
    except Garbled as error:
        raise fail("E404", f"{path}: {error}", help=_COMPILE_AGAIN) from None
    if document.get("hash") != plan.sources.hash:
        message = f"{path} is stale: its hash is not that of the texts it holds"
        raise fail("E405", message, help=_COMPILE_AGAIN)
    return plan


_COMPILE_AGAIN = "compile the model again"


# ---------------------------------------------------------------------------------------------- writing


def _public_names(sources: Sources) -> list[str]:
    """File names without their folders (which reveal the machine), made unique."""
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
    """A rule, where it was applied, and the facts that its proof assumes, if any."""
    described = {
        "rule": applied.rule,
        "place": applied.place,
        "replaced": list(applied.replaced),
        "line": applied.span.line if applied.span else None,
    }
    return {**described, "assumed": list(applied.assumed)} if applied.assumed else described


# ---------------------------------------------------------------------------------------------- reading


def _read(document: object) -> PlanFile:
    top = as_table(document, "the file")
    request = as_table(top.get("request"), "request")
    sources = as_table(top.get("sources"), "sources")
    settings = as_table(request.get("settings"), "request.settings")
    files = as_table(top.get("files"), "files")
    mesh, memory = request.get("mesh"), request.get("memory")
    preset, precision = request.get("preset"), top.get("precision")
    division = as_table(top.get("micro_batches", {"count": 1}), "micro_batches")
    return PlanFile(
        sources=Sources(
            _source(sources.get("model"), "sources.model"),
            tuple(_source(item, "sources.ops") for item in as_list(sources.get("ops"), "sources.ops")),
            _source(sources.get("machine"), "sources.machine"),
            tuple(_source(item, "sources.rules") for item in as_list(sources.get("rules"), "sources.rules")),
            tuple(_source(item, "sources.fusions") for item in as_list(sources.get("fusions"), "sources.fusions")),
        ),
        settings={name: _setting(value, name) for name, value in settings.items()},
        preset=None if preset is None else as_text(preset, "request.preset"),
        precision=None if precision is None else as_text(precision, "precision"),
        devices=as_count(request.get("devices"), "request.devices"),
        mesh=None if mesh is None else tuple(as_count(n, "request.mesh") for n in as_list(mesh, "request.mesh")),
        strategy=as_text(request.get("strategy"), "request.strategy"),
        pins=_texts(request.get("pins"), "request.pins"),
        memory=None if memory is None else as_count(memory, "request.memory"),
        micro_batches=as_count(division.get("count"), "micro_batches.count"),
        recompute=as_text(request.get("recompute", "none"), "request.recompute"),
        offload=as_text(request.get("offload", "none"), "request.offload"),
        pad=as_text(request.get("pad", "none"), "request.pad"),
        kernels=_kernels(as_text(request.get("kernels", TORCH), "request.kernels")),
        passes=read_passes(top),
        forbidden=_texts(request.get("forbidden"), "request.forbidden"),
        exposed=_exposure(as_table(top.get("exposed", {}), "exposed")),
        axes=tuple(_mesh_axis(as_table(axis, "mesh")) for axis in as_list(top.get("mesh"), "mesh")),
        graph=as_table(top.get("graph"), "graph"),
        files={_file_name(name): as_text(value, f"files.{name}") for name, value in files.items()},
        cost=_cost(as_table(top.get("cost"), "cost")),
        rules=tuple(_applied(as_table(rule, "rules")) for rule in as_list(top.get("rules"), "rules")),
        considered=as_count(top.get("models_considered"), "models_considered"),
        notes=_texts(top.get("notes"), "notes"),
        simulated=_seconds_or_none(top.get("simulated_seconds"), "simulated_seconds"),
        unlimited_seconds=_seconds_or_none(top.get("unlimited_seconds"), "unlimited_seconds"),
        ended=None if top.get("ended") is None else as_text(top["ended"], "ended"),
        trail=tuple(_trial(as_table(trial, "search")) for trial in as_list(top.get("search", []), "search")),
        padding={
            place: as_count(size, "padding") for place, size in as_table(top.get("padding", {}), "padding").items()
        },
    )


def _trial(trial: Mapping[str, Any]) -> Trial:
    return Trial(
        as_count(trial.get("evaluations"), "search.evaluations"),
        as_text(trial.get("move"), "search.move"),
        tuple(as_count(degree, "search.mesh") for degree in as_list(trial.get("mesh"), "search.mesh")),
        as_count(trial.get("micro_batches"), "search.micro_batches"),
        _seconds_or_none(trial.get("seconds"), "search.seconds"),
        trial.get("best") is True,
    )


def _texts(value: object, where: str) -> tuple[str, ...]:
    return tuple(as_text(one, where) for one in as_list(value, where))


def _seconds_or_none(value: object, where: str) -> float | None:
    return None if value is None else as_amount(value, where)


def _mesh_axis(axis: Mapping[str, object]) -> MeshAxis:
    level = axis.get("level")
    return MeshAxis(
        as_text(axis.get("name"), "mesh"), as_count(axis.get("degree"), "mesh"), int(as_amount(level, "mesh"))
    )


def _applied(rule: Mapping[str, object]) -> AppliedRule:
    assumed = _texts(rule.get("assumed", []), "rules.assumed")
    name, place = as_text(rule.get("rule"), "rules.rule"), as_text(rule.get("place"), "rules.place")
    return AppliedRule(name, place, assumed=assumed, replaced=_texts(rule.get("replaced"), "rules.replaced"))


def _cost(parts: Mapping[str, object]) -> Cost:
    held = as_table(parts.get("memory"), "cost.memory")
    counts = [field.name for field in fields(Memory) if field.name != "at"]
    memory = {name: as_amount(held.get(name), f"cost.memory.{name}") for name in counts}
    seconds = [field.name for field in fields(Cost) if field.name != "memory"]
    most = Memory(**memory, at=as_text(held.get("at"), "cost.memory.at"))
    return Cost(**{name: as_amount(parts.get(name), f"cost.{name}") for name in seconds}, memory=most)


def _kernels(word: str) -> str:
    if word not in KERNELS:
        raise ValueError("request.kernels")
    return word


def _exposure(parts: Mapping[str, object]) -> Exposure:
    """The exposed fractions that a plan states. Those that it does not state are 1. Raises Garbled for an unknown name,
    and for a number outside of 0 to 1.
    """
    for name, part in parts.items():
        known = name in Exposure.__dataclass_fields__ and isinstance(part, int | float)
        if not known or not 0 <= float(part) <= 1:  # type: ignore[arg-type]
            raise Garbled(f"exposed.{name} is no part of a step's work")
    return Exposure(**{name: float(part) for name, part in parts.items()})  # type: ignore[arg-type]


def _setting(value: object, where: str) -> str | int | float:
    if not isinstance(value, str | int | float):
        raise Garbled(f"setting {where} is neither a number nor a text")
    return value


def _file_name(name: str) -> str:
    """A file name without a folder: a plan must not touch anything outside of its folder. Raises Garbled for other
    names.
    """
    if PurePath(name).name != name or name in (".", ".."):
        raise Garbled(f"`{name}` is not the name of a file in the folder")
    return name


def _source(value: object, where: str) -> Source:
    table = as_table(value, where)
    return Source(as_text(table.get("name"), f"{where}.name"), as_text(table.get("text"), f"{where}.text"))
