"""Checks that a program equals its model: runs it on ranks and compares it with the single-device reference.

Both start from the same weights and data. Compared are the loss, the outputs and every gradient of the first step,
losses and parameters over some SGD steps, and the loss in evaluation mode. The test of correctness is float64 within
1e-10. float32, and the precision that the program was compiled for, must be as good as the same model on one device.
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
"""Four times the largest relative error of a rounding: 2^-8 for bf16, 2^-11 for f16 and tf32."""
STARTS = (4, 32)
"""Numbers of starts of the single-device program in float32 and mixed precision, whose weights differ by a rounding.
The second is used in float32 if the first starts do not explain the error. A sum that is 0 except for rounding changes
the slope of a relu in only some of them.
"""
FACTOR = 4.0
"""How many times the rounding error of the single-device program a program may have."""


@dataclass(frozen=True)
class MixedErrors:
    """The largest error in the precision that a program was compiled for, and that of the single-device program."""

    precision: str
    err: float
    single_device_err: float

    @property
    def bound(self) -> float:
        return max(TOLERANCE_MIXED[self.precision], _slack(self.single_device_err))


@dataclass(frozen=True)
class CheckReport:
    """The largest relative errors of the program against the float64 reference on one device.

    The loss's error includes the outputs and evaluation mode, the gradients' the global norm, the parameters' their
    initialisation and the buffers. A model that is not `trained` has outputs and buffers alone. `mixed` are the errors
    of a program in mixed precision. `worst` names the tensor with the largest float64 error. `not_finite` names a
    tensor of the reference that cannot be compared, because it has infinite or NaN elements. `recompiled` says that the
    program was compiled anew for `ranks`, because it was written for another number. `edited` are files that differ
    from what was written.
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
        """The report as `unityc check --json` prints it: errors that are not finite are null."""
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
    """An error; None for the largest float, which stands for an error that is not finite."""
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
    Batches are random, or come from the function `data`, as in train.py.

    With `ranks` other than the program's own, the same texts are compiled for that number and that program is checked.
    Raises E403–E405 for a folder without a sound plan, E406 if the program cannot be run to its end.
    """
    record = load_plan_file(out)
    ranks = record.world_size if ranks is None else ranks
    edited = tuple(edited_files(out))
    with tempfile.TemporaryDirectory(prefix="unity-check-") as folder:
        program = out
        if ranks != record.world_size:
            program, edited = Path(folder) / "program", ()
            recompile(record, program, ranks, record.strategy, record.pins)
        reference = Path(folder) / "reference"
        write_reference(record, reference)
        errors = dict(compare(program, reference, ranks, steps, seed, pool, data=data))
        err, mixed = errors.pop("mixed_err", None), None
        if err is not None or _too_large(errors):
            # The reference's statements may round less than native calls: compare with the same program on one device.
            single = Path(folder) / "single"
            recompile(record, single, 1, "single", ())
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
    """Errors of a program on its ranks against a single-device reference. Errors other than float64 are the largest
    over `starts` starts. Raises E406 if either cannot be run.
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
    """E406 at the program's last line in the trace, with the calls from the program on. If the program is not in the
    trace, the whole trace is shown. A fault of the data has no trace.
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
    """Whether the float32 error exceeds what the single-device error allows."""
    return bool(errors["float32_err"] > _allowed(errors["float32_single_device_err"]))


def _allowed(single_device_err: float) -> float:
    return max(TOLERANCE_FLOAT32, _slack(single_device_err))


def _slack(single_device_err: float) -> float:
    """The error that rounding on one device explains: none if the single-device error is 1 or more, as that program is
    wrong.
    """
    return FACTOR * single_device_err if single_device_err < 1 else 0.0


def write_reference(record: PlanFile, out: Path) -> None:
    """Compile the texts of a plan for one device into a new folder, by the statements alone (no native calls) and in
    float32.
    """
    library = reference_library(library_of(record.sources.operators))
    model = build_model(parse_model(record.sources.model), library, record.settings, record.preset, FULL)
    machine = read_machine(record.sources.machine)
    plan = search(model, build_mesh(machine, 1, None), machine, library, "single", {}, [])
    write_files({**render_reference(plan, library), "data.py": render_data(plan)}, out)


def recompile(record: PlanFile, out: Path, devices: int, strategy: str, pins: tuple[str, ...]) -> None:
    """Compile the texts of a plan for another number of devices or with another strategy, into a new folder."""
    count = 1 if strategy == "single" else None
    plan, library = replan(record, devices, None, strategy, pins, micro_batches=count)
    files = render_program(plan, library, record.sources, record)
    write_files({name: text for name, text in files.items() if name != NAME}, out)


def replan(
    record: PlanFile,
    devices: int,
    shape: tuple[int, ...] | None,
    strategy: str,
    pins: Sequence[str],
    forbidden: Sequence[str] = (),
    micro_batches: int | None = None,
) -> tuple[Plan, Library]:
    """Plan the texts of a plan again, on a mesh of `shape` or on any mesh. `micro_batches` is by default the plan's
    number. The machine has the memory and the exposed fractions of the plan. Rules are proved again; `single`, the
    reference, uses none. `forbidden` layouts are written as pins, and refer to the given mesh. Padded axes stay padded,
    for this number of devices.
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
    """The plan of a padded model for one micro-batch."""
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
