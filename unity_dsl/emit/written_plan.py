"""The plan of a compiled program, read from its `plan.json` instead of searched for again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..graph.graph import Model
from ..graph.interleaved_repeats import side_by_side
from ..graph.layout import Mesh
from ..graph.model_graph import build_model
from ..graph.padding import Padding
from ..graph.plan import BatchDivision, Plan
from ..index.declarations.loading import library_of
from ..index.library import Library
from ..machine.conversion_model import ConversionModel
from ..machine.machine import read_machine
from ..rules.replay import replayed
from ..search.accounting.memory_budget import memory_warnings
from ..search.micro_batches.batch_division import divided_model
from ..search.padded_axes import padded_for
from ..syntax.diagnostic import InputError, fail
from ..syntax.parse_model import parse_model
from .json_fields import Garbled
from .plan_file import NAME, PlanFile
from .planned_graph_data import read_graph


def written_plan(record: PlanFile, out: Path) -> tuple[Plan, Library]:
    """The plan of the program in `out`. Its model is built from the texts in `plan.json` by the rules that were
    applied. Layouts and configurations are as recorded, and are typed again. Raises E405 if they do not fit that model.
    """
    if record.world_size != record.devices:
        raise _stale(out, f"its mesh has {record.world_size} devices, and {record.devices} were asked for")
    library = library_of(record.sources.operators)
    try:
        given, division = recorded_model(record, library, record.micro_batches, record.padding)
    except InputError as error:
        if error.diagnostic.code != "E325":
            raise
        raise _stale(out, error.diagnostic.message) from None
    model = replayed(given, record.rules, (*record.sources.rules, *record.sources.fusions), library)
    if model is None:
        raise _stale(out, "its rules do not make a model of the texts it holds")
    mesh, machine = Mesh(record.axes), read_machine(record.sources.machine).holding(record.memory)
    try:
        graph = read_graph(record.graph, model.graph, mesh, library)
    except Garbled as reason:
        raise _stale(out, str(reason)) from None
    if both := record.passes.recomputed & record.passes.offloaded:
        raise _stale(out, f"it recomputes and offloads `{min(both)}`")
    plan = Plan(
        model,
        mesh,
        machine.name,
        record.strategy,
        graph,
        record.cost,
        ConversionModel(mesh, machine.exposing(record.exposed), library, model.gradient_bytes),
        record.notes,
        record.rules,
        record.considered,
        tuple(memory_warnings(record.cost.memory, machine)),
        replace(record.passes, interleaved=()),
        division,
        record.unlimited_seconds,
        exposed=record.exposed,
        simulated=record.simulated,
        ended=record.ended,
    )
    try:
        return (side_by_side(plan, record.passes.interleaved) if record.passes.interleaved else plan), library
    except ValueError as reason:
        raise _stale(out, str(reason)) from None


def recorded_model(
    record: PlanFile, library: Library, micro_batches: int, padding: Padding
) -> tuple[Model, BatchDivision | None]:
    """The padded model of a program before any rule, and its division. With several micro-batches it is the model of
    one.
    """
    file = parse_model(record.sources.model)
    whole = build_model(file, library, record.settings, record.preset, record.precision)
    part, division = divided_model(whole, file, library, record.settings, record.preset, micro_batches)
    return padded_for(part, padding, library, proved=False), division


def _stale(out: Path, reason: str) -> Exception:
    return fail("E405", f"{out / NAME} is stale: {reason}", help="compile the model again")
