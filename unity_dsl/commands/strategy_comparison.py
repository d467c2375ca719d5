"""The plans of several strategies for a model side by side, all timed by one simulator."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ..collector import collector_paused
from .progress import say_progress

if TYPE_CHECKING:
    from ..compilation import Compilation, Request

BASELINE = "data_parallel"
"""The strategy over which speedups are computed."""
REFUSALS = ("E309", "E311", "E318", "E320")
"""The error codes of a strategy that has no plan for a model on these devices."""


@dataclass(frozen=True)
class Row:
    """The plan of a strategy. `search_s` and `iteration_s` are seconds of the search and of a simulated step; `bound_s`
    is the least that the tasks of the step take in any order. Then come the peak memory of a device and what it sends
    in a step, in bytes, and the rules that were applied. `refused` says why there is no plan. `ended` says what ended
    the search before it was through.
    """

    name: str
    search_s: float
    iteration_s: float | None = None
    bound_s: float | None = None
    peak_memory_bytes: float | None = None
    comm_bytes: float | None = None
    fits: bool = False
    rules: tuple[str, ...] = ()
    mesh: tuple[int, ...] = ()
    micro_batches: int = 1
    refused: str | None = None
    ended: str | None = None


@dataclass(frozen=True)
class Comparison:
    """Rows of strategies for a model. `global_batch` is the number of examples per step, the same for all. If the
    comparison was `interrupted`, rows are missing.
    """

    model: str
    machine: str
    devices: int
    global_batch: int
    strategies: tuple[Row, ...]
    interrupted: bool = False

    def speedup(self, row: Row) -> float | None:
        """How many times faster than the baseline; None if either has no plan, or if a step takes no time."""
        base = next((other.iteration_s for other in self.strategies if other.name == BASELINE), None)
        return None if base is None or not row.iteration_s else base / row.iteration_s


def compared(request: Request, names: Sequence[str], plans: Sequence[Path] = ()) -> Comparison:
    """Compares the plans in files of other systems and those of some strategies for a model. After an interruption it
    returns the rows so far. Raises InputError for what no strategy could plan, and for files that hold no plan of this
    model.
    """
    from ..compilation import compile_model
    from ..syntax.diagnostic import InputError

    rows: list[Row] = []
    batch, model = 0, request.model.stem
    wanted = [*((path.name, replace(request, plan=path)) for path in plans)]
    wanted += [(name, replace(request, strategy=name)) for name in names]
    for number, (name, asked) in enumerate(wanted):
        begun = perf_counter()
        try:
            with say_progress(f"{model}: {name}, {number + 1} of {len(wanted)}"), collector_paused():
                gc.collect()  # frees what the previous strategy left: the collector is paused
                found = compile_model(asked)
                name = f"{found.plan.strategy}: {name}" if asked.plan is not None else name
                rows.append(simulated(found, name, perf_counter() - begun))
        except InputError as error:
            if error.diagnostic.code not in REFUSALS:
                raise
            reason = f"{error.diagnostic.message} ({error.diagnostic.code})"
            rows.append(Row(name, perf_counter() - begun, refused=reason))
        except KeyboardInterrupt:
            return Comparison(model, request.machine, request.devices, batch, tuple(rows), interrupted=True)
        else:
            batch, model = global_batch(found), found.plan.model.name
    return Comparison(model, request.machine, request.devices, batch, tuple(rows))


def simulated(found: Compilation, name: str, seconds: float) -> Row:
    """The row of a plan that took `seconds` to find."""
    from ..machine.machine import read_machine
    from ..simulation.lower_bound import lower_bound
    from ..simulation.step_tasks import simulate_step

    plan = found.plan
    timeline = simulate_step(plan, read_machine(found.sources.machine), found.library)
    return Row(
        name,
        seconds,
        timeline.seconds,
        lower_bound(timeline.graph, timeline.hardware).seconds,
        plan.cost.memory.total,
        sum(timeline.sent.values()),
        not plan.warnings,
        tuple(used.rule for used in plan.rules),
        plan.mesh.degrees,
        plan.micro_batches,
        ended=plan.ended,
    )


def global_batch(found: Compilation) -> int:
    """The number of examples in a step; 0 if no input has a first dimension."""
    plan = found.plan
    shapes = [source.value.shape for source in plan.model.graph.inputs if source.value.shape]
    return plan.micro_batches * shapes[0][0] if shapes else 0


def as_data(comparison: Comparison) -> dict[str, Any]:
    """A comparison as plain data, in seconds and bytes."""
    rows = [
        {**asdict(row), "rules": list(row.rules), "mesh": list(row.mesh), "speedup": comparison.speedup(row)}
        for row in comparison.strategies
    ]
    return {**asdict(comparison), "strategies": rows}
