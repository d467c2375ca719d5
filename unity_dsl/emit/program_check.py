"""Checks that a program equals its model: runs it on ranks beside the single-device reference.

From the same initial weights and data: loss, outputs and every gradient of the first step, losses and parameters over
some SGD steps, the loss in evaluation mode. float64 within 1e-10 is the test of correctness; float32, and the precision
that the program was compiled for, must be as good as the same model on one device.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..graph.graph import Model
from ..graph.model_graph import build_model
from ..graph.padding import Padding
from ..graph.plan import Plan, in_micro_batches
from ..graph.precision import FULL
from ..index.declarations.loading import library_of
from ..index.library import Library
from ..machine.machine import read_machine
from ..machine.mesh import build_mesh
from ..rules.rulebook import accept_rules
from ..rules.shipped_fusions import fusion_texts, fusions_for
from ..rules.shipped_rules import ShippedRules
from ..search.layout_pins import excluded_layouts, parse_pin, parse_pins
from ..search.padded_axes import padded_as_needed, padded_for, padding_again
from ..search.plan_search import meshes_for, search
from ..search.recomputed_segments import parse_recompute
from ..search.strategies import has_algebra
from ..search.strategy_space import accept_used, algebras_for
from ..syntax.diagnostic import InputError, fail
from ..syntax.parse_model import parse_model
from ..syntax.read import read_source
from ..syntax.span import Span
from .output_folder import edited_files, render_program, write_files
from .plan_file import NAME, PlanFile, load_plan_file
from .rank_comparison import DataFault, run_rank
from .rank_pool import RankError, RankPool
from .reference_program import reference_library, render_reference
from .train_files import render_data
from .written_plan import recorded_model

TOLERANCE = 1e-10
TOLERANCE_FLOAT32 = 1e-5
TOLERANCE_MIXED = {"bf16": 2.0**-6, "f16": 2.0**-9, "tf32": 2.0**-9}
"""Four roundings of a number that is nearly the next power of 2."""
STARTS = (4, 32)
"""Of the program on one device in float32 and mixed precision: weights that differ by a rounding. In float32 there are
more where the first ones excuse nothing: a sum that is 0 but for rounding changes the slope of a relu in some alone.
"""
FACTOR = 4.0
"""How much more than the program on one device a program may lose by rounding."""


@dataclass(frozen=True)
class MixedErrors:
    """The largest error in the precision that a program was compiled for, and that of the program on one device."""

    precision: str
    err: float
    single_device_err: float

    @property
    def bound(self) -> float:
        return max(TOLERANCE_MIXED[self.precision], _slack(self.single_device_err))


@dataclass(frozen=True)
class CheckReport:
    """The largest relative errors of the program against the float64 reference on one device.

    The loss's include the outputs' and the evaluation mode's, the gradients' the global norm, the parameters' their
    initialisation and the buffers; a model that is not `trained` has outputs and buffers alone. `mixed` are those of a
    program in mixed precision. `worst` names the tensor of the largest float64 error, `not_finite` one of the reference
    that can't be compared, as it has elements that are infinite or no numbers. `recompiled` says that the program was
    compiled anew for `ranks`, a number that it was not written for; `edited` are files that are not as they were
    written.
    """

    ranks: int
    loss_rel_err: float
    grad_rel_err: float
    param_rel_err: float
    worst: str
    float32_err: float
    float32_single_device_err: float
    trained: bool
    recompiled: bool
    edited: tuple[str, ...]
    mixed: MixedErrors | None = None
    not_finite: str = ""

    @property
    def ok(self) -> bool:
        exact = max(self.loss_rel_err, self.grad_rel_err, self.param_rel_err) <= TOLERANCE
        mixed = self.mixed is None or self.mixed.err <= self.mixed.bound
        return exact and mixed and self.float32_err <= _allowed(self.float32_single_device_err)

    def to_json(self) -> dict[str, Any]:
        """The report as `unityc check --json` prints it: errors that are no finite numbers as null."""
        single = {"err": self.float32_err, "single_device_err": self.float32_single_device_err}
        found = {
            "ok": self.ok,
            "ranks": self.ranks,
            "loss_rel_err": measured(self.loss_rel_err),
            "grad_rel_err": measured(self.grad_rel_err),
            "param_rel_err": measured(self.param_rel_err),
            "worst": self.worst,
            "not_finite": self.not_finite,
            "float32": {name: measured(error) for name, error in single.items()},
        }
        if self.mixed is not None:
            mixed = asdict(self.mixed) | {"bound": self.mixed.bound}
            found[self.mixed.precision] = {
                name: measured(value) if isinstance(value, float) else value for name, value in mixed.items()
            }
        return found


def measured(error: float) -> float | None:
    """An error; None in place of the largest float, which stands for one that is no finite number."""
    return error if error < sys.float_info.max else None


def check(
    out: Path,
    ranks: int | None = None,
    steps: int = 3,
    seed: int = 0,
    *,
    pool: RankPool | None = None,
    data: str = "",
) -> CheckReport:
    """Run the program in `out` on local ranks against its reference, which is compiled from the texts in plan.json.
    Batches are drawn, or those of the function `data`, as train.py takes it.

    With `ranks` other than the program's own, the same texts are compiled for that number and that program is checked.
    Raises E403–E405 for a folder that holds no sound plan, E406 where the program cannot be run to its end.
    """
    record = load_plan_file(out)
    ranks = record.world_size if ranks is None else ranks
    edited = tuple(edited_files(out))
    with tempfile.TemporaryDirectory(prefix="unity-check-") as folder:
        program = out
        if ranks != record.world_size:
            program, edited = Path(folder) / "program", ()
            write_again(record, program, ranks, record.strategy, record.pins)
        reference = Path(folder) / "reference"
        write_reference(record, reference)
        errors = dict(compare(program, reference, ranks, steps, seed, pool, data=data))
        err, mixed = errors.pop("mixed_err", None), None
        if err is not None or _too_large(errors):
            # In float32 the statements may round less than the calls: what counts is the same program on one device.
            single = Path(folder) / "single"
            write_again(record, single, 1, "single", ())
            for starts in STARTS:
                alone = compare(single, reference, 1, steps, seed, pool, starts, data)
                if _too_large(errors):
                    errors["float32_single_device_err"] = alone["float32_err"]
                if err is not None and mixed is None:
                    mixed = MixedErrors(str(record.precision), err, alone["mixed_err"])
                if not _too_large(errors):
                    break
    return CheckReport(**errors, mixed=mixed, ranks=ranks, recompiled=ranks != record.world_size, edited=edited)


def compare(
    program: Path,
    reference: Path,
    ranks: int,
    steps: int = 3,
    seed: int = 0,
    pool: RankPool | None = None,
    starts: int = 1,
    data: str = "",
) -> Mapping[str, Any]:
    """Errors of a program on its ranks against a single-device one, but for float64 from so many starts. Raises E406
    where either cannot be run.
    """
    for path in (program / "model.py", program / "parallel.py"):
        if not path.is_file() and (path.name == "model.py" or path.exists()):
            raise fail("E406", f"{program} has no file {path.name}", help="compile the model again")
    try:
        if pool is not None:
            results = pool.run(run_rank, str(program), str(reference), steps, seed, starts, data, ranks=ranks)
        else:
            with RankPool(ranks) as own:
                results = own.run(run_rank, str(program), str(reference), steps, seed, starts, data, ranks=ranks)
    except RankError as error:
        raise _failure(error, program) from error
    errors: Mapping[str, Any] = results[0]
    return errors


def _failure(error: RankError, program: Path) -> InputError:
    """E406, at the last line of the program in the trace and with its calls from the program on; the whole trace where
    the program is not in it. A fault of the data has none.
    """
    if error.reason.startswith(f"{DataFault.__name__}: "):
        return fail("E406", error.reason.removeprefix(f"{DataFault.__name__}: "), help="it is what --data names")
    message = f"the program fails on rank {error.rank}: {error.reason}"
    frames = re.compile(rf'(?m)^  File "{re.escape(os.path.abspath(program))}{re.escape(os.sep)}(.+)", line (\d+)')
    calls = list(frames.finditer(error.trace))
    if not calls:
        return fail("E406", message, help=error.trace)
    source, line = read_source(program / calls[-1][1]), int(calls[-1][2])
    start = source.line_starts[line - 1] if line <= len(source.line_starts) else len(source.text)
    text = source.text[start:].split("\n", 1)[0]
    span = Span(source, start + len(text) - len(text.lstrip()), start + len(text))
    return fail("E406", message, span, help=error.trace[calls[0].start() :])


def _too_large(errors: Mapping[str, Any]) -> bool:
    """Whether the float32 error is more than that of the reference allows."""
    return bool(errors["float32_err"] > _allowed(errors["float32_single_device_err"]))


def _allowed(single_device_err: float) -> float:
    return max(TOLERANCE_FLOAT32, _slack(single_device_err))


def _slack(single_device_err: float) -> float:
    """What rounding on one device excuses: nothing where that program is wrong by as much as there is."""
    return FACTOR * single_device_err if single_device_err < 1 else 0.0


def write_reference(record: PlanFile, out: Path) -> None:
    """Compile the texts of a plan for one device, by the statements alone and in float32, into a new folder."""
    library = reference_library(library_of(record.sources.operators))
    model = build_model(parse_model(record.sources.model), library, record.settings, record.preset, FULL)
    machine = read_machine(record.sources.machine)
    plan = search(model, build_mesh(machine, 1, None), machine, library, "single", {}, [])
    write_files({**render_reference(plan, library), "data.py": render_data(plan)}, out)


def write_again(record: PlanFile, out: Path, devices: int, strategy: str, pins: tuple[str, ...]) -> None:
    """Compile the texts of a plan for another number of devices or with another strategy, into a new folder."""
    count = 1 if strategy == "single" else None
    plan, library = plan_again(record, devices, None, strategy, pins, micro_batches=count)
    files = render_program(plan, library, record.sources, record)
    write_files({name: text for name, text in files.items() if name != NAME}, out)


def plan_again(
    record: PlanFile,
    devices: int,
    shape: tuple[int, ...] | None,
    strategy: str,
    pins: Sequence[str],
    forbidden: Sequence[str] = (),
    micro_batches: int | None = None,
) -> tuple[Plan, Library]:
    """The stages from the texts of a plan to a plan, on a mesh of that shape or on any, for as many micro-batches or so
    many, at the prices of the plan. Rules are proved again; `single`, the reference, uses none. Layouts that are
    `forbidden` are written as pins, and are of the given mesh. What is padded stays so, for these devices.
    """
    library = library_of(record.sources.operators)
    count = record.micro_batches if micro_batches is None else micro_batches
    model, division = recorded_model(record, library, count, {})
    known = record.padding if devices == record.devices else padding_again(record.padding, model, devices)

    def planned(padding: Padding | None) -> Plan:
        padded = padded_for(model, known if padding is None else padding, library)
        return _planned(record, padded, devices, shape, strategy, pins, forbidden)

    plan = padded_as_needed(planned, record.pad, lambda: model, devices, pins)
    return in_micro_batches(plan, division), library


def _planned(
    record: PlanFile,
    model: Model,
    devices: int,
    shape: tuple[int, ...] | None,
    strategy: str,
    pins: Sequence[str],
    forbidden: Sequence[str],
) -> Plan:
    """The plan of a padded model, of a micro-batch."""
    machine = read_machine(record.sources.machine).holding(record.memory).exposing(record.exposed)
    library = library_of(record.sources.operators)
    meshes = meshes_for(machine, devices, shape, strategy)
    texts = () if strategy == "single" else record.sources.rules
    accepted = (accepted.rule for source in texts for accepted in accept_rules(source, library))
    rules = [rule for rule in accepted if rule.name not in record.forbidden]
    texts = () if strategy == "single" else record.sources.fusions
    shipped, algebra = ShippedRules(texts, library, record.forbidden), has_algebra(strategy)
    fused = () if algebra else fusions_for(model, fusion_texts(texts), library, record.forbidden)
    fusions = list(shipped.fitting(model)) if algebra else [one.rule for one in fused]
    excluded = excluded_layouts(map(parse_pin, forbidden), model, meshes[0], library)
    asked = parse_recompute(record.recompute, model)
    recompute, kept = (None, {}) if asked is None else (asked.paths, asked.kept)
    given = model, meshes, machine, library, strategy, parse_pins(pins), rules
    algebras = algebras_for(model, strategy, shipped, rules)
    plan = search(
        *given,
        fusions=fusions,
        excluded=excluded,
        recompute=recompute,
        kept_iterations=kept,
        algebras=algebras,
    )
    accept_used(plan, fusions if algebra else (), shipped)
    return plan
