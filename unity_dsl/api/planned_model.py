"""Compiles a model from Python: the plan as an object that explains itself and writes its program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from functools import cached_property
from html import escape
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypedDict, Unpack

from ..commands.division_words import division_words
from ..commands.plan_explanation import explain_plan, explained
from ..commands.plan_summary import summary_lines
from ..commands.strategy_comparison import compared
from ..commands.what_if import WhatIf, what_if
from ..compilation import Compilation, Request, compile_model
from ..emit.output_folder import write_program
from ..machine.byte_count import describe_bytes
from ..search.search_end import SearchEnd
from ..simulation.trace import render_trace
from ..written_figures import duration

Pins = Mapping[str, str]


class Options(TypedDict, total=False):
    """Further options of `unityc`: see `unityc --help`. `operators` and `rules` are paths."""

    preset: str | None
    precision: str | None
    mesh: tuple[int, ...] | None
    memory: int | None
    micro_batches: int | None
    recompute: str
    offload: str
    pad: str
    kernels: str
    operators: Sequence[Path]
    rules: Sequence[Path]
    shipped_rules: bool
    forbidden: Sequence[str]
    effort: str


class Report(str):
    """A text for people, which a notebook shows as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def compile(
    model: str | Path,
    *,
    machine: str = "local",
    devices: int = 1,
    strategy: str = "auto",
    pins: Pins | None = None,
    settings: Mapping[str, int | float | str] | None = None,
    time_limit: float | None = None,
    **options: Unpack[Options],
) -> PlannedModel:
    """Plan the model of a `.udl` file for this number of devices of a machine, which is a shipped one or a file.

    `pins` are layouts by the names of values and weights, `settings` the model's parameters by name. After `time_limit`
    seconds the search ends with the best plan that it has. Raises InputError as `unityc` prints it.
    """
    request = Request(
        Path(model),
        settings=settings or {},
        machine=machine,
        devices=devices,
        strategy=strategy,
        pins=_written(pins),
        time_limit=time_limit,
        **options,
    )
    return PlannedModel(request, compile_model(request, SearchEnd(time_limit)))


class PlannedModel:
    """A plan of a model: what a step is predicted to take, and the program that `write` writes."""

    def __init__(self, request: Request, compilation: Compilation) -> None:
        self._request = request
        self._compilation = compilation

    # ------------------------------------------------------------------------------------------ figures

    @property
    def name(self) -> str:
        """The name of the model."""
        return self._compilation.plan.model.name

    @property
    def seconds(self) -> float:
        """The seconds of a simulated step."""
        return self._compilation.plan.seconds

    @property
    def memory_bytes(self) -> float:
        """The peak memory of the device that needs the most, in bytes."""
        return self._compilation.plan.cost.memory.total

    @property
    def fits(self) -> bool:
        """Whether the plan fits the memory of the devices."""
        return not self._compilation.plan.warnings

    @property
    def mesh(self) -> dict[str, int]:
        """The mesh axes and their degrees."""
        return {axis.name: axis.degree for axis in self._compilation.plan.mesh.axes}

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user of the plan has to know, including the proofs of the search."""
        return tuple(map(str, self._compilation.plan.notes))

    # ------------------------------------------------------------------------------------------ what it does

    def summary(self) -> Report:
        """The lines that `unityc` prints after a compile."""
        width = max(len(label) for label, _ in self._lines)
        return Report("\n".join(f"{label:<{width}}  {text}" for label, text in self._lines))

    def explain(self, part: str | None = None) -> Report:
        """What a step is spent on, as `unityc explain OUT` prints it, or only one operator or value, if `part` names
        it.
        """
        return self._printed(lambda out: explain_plan(out, part, (), (), False))

    def what_if(self, pins: Pins | None = None, without: Pins | None = None) -> list[WhatIf]:
        """The cost and memory of the best plan with these pins, or without these layouts."""
        with self._folder() as out:
            found = explained(out)
            return what_if(found.record, found.plan, found.machine, _written(pins), _written(without))

    def trace(self, path: str | Path = "trace.json") -> Path:
        """Writes a simulated step in the trace-event format of Perfetto. Returns the path."""
        with self._folder() as out:
            Path(path).write_text(render_trace(explained(out).timeline))
        return Path(path)

    def compare(self, strategies: Sequence[str] = ("auto", "data_parallel", "zero")) -> Report:
        """The plans of strategies side by side, as `unityc compare` prints them."""
        from ..commands.compare import chosen_strategies, table_lines

        names = chosen_strategies(",".join(strategies))
        return Report("\n".join(table_lines(compared(replace(self._request, pins=()), names, ()))))

    def write(self, out: str | Path, *, force: bool = False) -> list[Path]:
        """Writes the program and returns its files. Files that were edited are overwritten only with `force`."""
        return write_program(*self._compilation.parts, self._request, Path(out), force)

    # ------------------------------------------------------------------------------------------ how it is shown

    def __repr__(self) -> str:
        plan = self._compilation.plan
        count = plan.mesh.size
        divided = f", {division_words(plan)}" if count > 1 else ""
        where = f"{count} device{'s' if count > 1 else ''} of {plan.machine}"
        held = describe_bytes(self.memory_bytes)
        return f"<{self.name} on {where}: {duration(self.seconds)} a step, {held} a device{divided}>"

    def _repr_html_(self) -> str:
        rows = (f"<tr><th>{escape(label)}</th><td>{escape(text)}</td></tr>" for label, text in self._lines)
        return f"<table>{''.join(rows)}</table>"

    @cached_property
    def _lines(self) -> list[tuple[str, str]]:
        return summary_lines(self._compilation)

    # ------------------------------------------------------------------------------------------ the program

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        with TemporaryDirectory() as folder:
            self.write(Path(folder) / "out", force=True)
            yield Path(folder) / "out"

    def _printed(self, show: Callable[[Path], None]) -> Report:
        told = StringIO()
        with self._folder() as out, redirect_stdout(told):
            show(out)
        return Report(told.getvalue().rstrip("\n"))


def _written(pins: Pins | None) -> tuple[str, ...]:
    return tuple(f"{name}={layout}" for name, layout in (pins or {}).items())
