"""Examples under strategies on ranks: the cases that exist, and the result of checking one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.output_folder import render_program, write_files
from unity_dsl.emit.plan_file import TORCH, Sources
from unity_dsl.emit.program_check import STARTS, CheckReport, MixedErrors, check, compare
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.graph.graph import Model
from unity_dsl.graph.model_graph import build_model
from unity_dsl.graph.plan import Plan, in_micro_batches
from unity_dsl.index.declarations.loading import library_of, library_sources
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import machine_source, read_machine
from unity_dsl.machine.mesh import build_mesh
from unity_dsl.resources import folder
from unity_dsl.search.micro_batches.batch_division import divided_model
from unity_dsl.search.plan_search import search
from unity_dsl.search.recomputed_segments import NONE, parse_recompute
from unity_dsl.search.strategies import RANDOM, STRATEGIES
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.read import read_source
from unity_dsl.syntax.render import render
from unity_dsl.syntax.span import Source

EXAMPLES = tuple(path.stem for path in sorted(folder("examples").glob("*.udl")))
RANKS = (1, 2, 4)
PLANS = 5
REFUSALS = ("E309", "E316", "E317")
"""Errors of a model that cannot run as micro-batches: the reason, and that the devices do not divide a micro-batch."""
NO_PLAN = ("E309", "E318")
"""Errors of a strategy that has no plan of a model on these devices."""
SLOW = str(Path(__file__).parent / "slow.toml")
"""A machine on which dividing even a small preset pays. On a real machine `auto` would not divide such a model."""


@dataclass(frozen=True)
class Case:
    """An example at its small preset under one strategy, on a mesh of the degrees `mesh`, in `micro_batches` parts.

    `recompute`, `kernels` and `precision` are as in a request. With `rules` the case is compiled as by `unityc
    compile`: the strategy uses the shipped rules, and chooses the mesh if none is given.
    """

    example: str
    mesh: tuple[int, ...]
    ranks: int
    strategy: str
    recompute: str = NONE
    micro_batches: int = 1
    kernels: str = TORCH
    rules: bool = False
    precision: str | None = None

    def __str__(self) -> str:
        again = f", {self.recompute} recomputed" if self.recompute != NONE else ""
        several = f" in {self.micro_batches} micro-batches" if self.micro_batches > 1 else ""
        rules = " with rules" if self.rules else ""
        by = self.strategy if self.kernels == TORCH else f"{self.strategy} with kernels"
        mesh = " x ".join(map(str, self.mesh)) or self.ranks
        narrow = f" in {self.precision}" if self.precision is not None else ""
        return f"{self.example} on {mesh} by {by}{rules}{several}{again}{narrow}"

    @property
    def request(self) -> Request:
        """The request that a user would make."""
        return Request(
            folder("examples") / f"{self.example}.udl", preset="small", machine=SLOW, devices=self.ranks,
            mesh=self.mesh or None, strategy=self.strategy, recompute=self.recompute, micro_batches=self.micro_batches,
            kernels=self.kernels, precision=self.precision,
        )  # fmt: skip


def cases(example: str, ranks: Iterable[int] = RANKS, plans: int = PLANS, seed: int = 0) -> Iterator[Case]:
    """`auto`, `data_parallel` and `plans` random plans, on each number of ranks.

    Every other random plan is for a mesh of one axis, the rest are for a mesh of prime axes.
    """
    for count in ranks:
        prime = build_mesh(read_machine(machine_source(SLOW)), count, None).degrees
        for strategy in ("auto", "data_parallel"):
            yield Case(example, prime, count, strategy)
        for number in range(plans):
            drawn = Random(f"{seed} {example} {count} {number}").randrange(10**6)
            mesh = (count,) if number % 2 and count > 1 else prime
            yield Case(example, mesh, count, f"{RANDOM}:{drawn}")


def strategy_cases(example: str, ranks: Iterable[int]) -> Iterator[Case]:
    """Every strategy of the literature, with the rules and meshes that users get."""
    for count in ranks:
        for strategy in STRATEGIES:
            yield Case(example, (), count, strategy, rules=True)


def sample(count: int, seed: int) -> list[Case]:
    """`count` random cases, of as many different examples as possible."""
    rng = Random(seed)
    order = rng.sample(EXAMPLES, len(EXAMPLES))
    examples = [order[number % len(order)] for number in range(count)]
    return [rng.choice(list(cases(example, seed=seed + number))) for number, example in enumerate(examples)]


@dataclass(frozen=True)
class Finding:
    """The result of a case: its report, or `fault` if it could not be compiled or run.

    `refused` says that the compiler rightly gave no program: the model mixes the examples of a batch, or the strategy
    does not divide micro-batches or has no plan. `divided` is a fraction of the operators. `mesh` and `applied` are the
    degrees and the rules of the plan.
    """

    case: Case
    report: CheckReport | None
    fault: str
    divided: float
    seconds: float
    refused: bool = False
    mesh: tuple[int, ...] = ()
    applied: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.report is not None and self.report.ok

    @property
    def error(self) -> float | None:
        """The largest relative error in float64."""
        if self.report is None:
            return None
        return max(self.report.loss_rel_err, self.report.grad_rel_err, self.report.param_rel_err)

    def __str__(self) -> str:
        if self.report is None:
            return f"{self.case}: {self.fault}"
        return f"{self.case}: {self.report}"


class Checker:
    """Checks cases on one pool of ranks and writes to `folder`. Builds each model and each one-device program once."""

    def __init__(self, pool: RankPool, folder: Path) -> None:
        self.pool, self.folder = pool, folder
        self.operators = library_sources()
        self.library: Library = library_of(self.operators)
        self.machine_source = machine_source(SLOW)
        self.machine = read_machine(self.machine_source)
        self._models: dict[tuple[str, str | None], Model] = {}
        self._references: dict[tuple[str, str | None], Path] = {}
        self._alone: dict[tuple[str, str | None, int], Mapping[str, Any]] = {}
        self._written = 0

    def check(self, case: Case, steps: int = 3) -> Finding:
        """Compiles, writes and runs a case. Never raises because a program is wrong."""
        begun = perf_counter()
        report, fault, divided, refused = None, "", 0.0, False
        mesh, applied = case.mesh, tuple[str, ...]()
        try:
            program, plan = self.write(case)
            divided, mesh = divided_part(plan), plan.mesh.degrees
            applied = tuple(dict.fromkeys(used.rule for used in plan.rules))
            report = self.run(case, plan, program, steps)
        except InputError as error:
            fault = render(error.diagnostic)
            refused = error.diagnostic.code in (REFUSALS if case.micro_batches > 1 else NO_PLAN if case.rules else ())
        return Finding(case, report, fault, divided, perf_counter() - begun, refused, mesh, applied)

    def run(self, case: Case, plan: Plan, program: Path, steps: int) -> CheckReport:
        """The errors of a program: with rules as reported by `unityc check`, else against the model's plan `single`."""
        if case.rules:
            return check(program, steps=steps, pool=self.pool)
        errors = dict(compare(program, self.reference(case), case.ranks, steps, pool=self.pool))
        mixed, err = None, errors.pop("mixed_err", None)
        if err is not None:
            mixed = MixedErrors(str(plan.model.precision), err, self.alone(case, steps)["mixed_err"])
        report = CheckReport(**errors, mixed=mixed, ranks=case.ranks, recompiled=False, edited=())
        if report.ok:
            return report
        return replace(report, float32_single_device_err=self.alone(case, steps)["float32_err"])

    def reference(self, case: Case) -> Path:
        """The one-device program of the case's example, in the same precision."""
        key = case.example, case.precision
        if key not in self._references:
            self._references[key], _ = self.write(Case(case.example, (), 1, "single", precision=case.precision))
        return self._references[key]

    def alone(self, case: Case, steps: int) -> Mapping[str, Any]:
        """The largest errors of the one-device program, in float32 and in its own precision."""
        key = case.example, case.precision, steps
        if key not in self._alone:
            reference = self.reference(case)
            self._alone[key] = compare(reference, reference, 1, steps, pool=self.pool, starts=STARTS[0])
        return self._alone[key]

    def write(self, case: Case) -> tuple[Path, Plan]:
        """The program of a case, as `unityc compile` writes it."""
        self._written += 1
        out = self.folder / f"program{self._written}"
        if case.rules:
            made, request = compile_model(case.request), case.request
            plan, library, sources = made.plan, made.library, made.sources
        else:
            plan, library, request = self.plan(case), self.library, replace(case.request, mesh=case.mesh)
            sources = Sources(self.text(case.example), self.operators, self.machine_source)
        files = render_program(plan, library, sources, request)
        write_files({name: strict(text) for name, text in files.items()}, out)
        return out, plan

    def plan(self, case: Case) -> Plan:
        parsed, key = parse_model(self.text(case.example)), (case.example, case.precision)
        if key not in self._models:
            self._models[key] = build_model(parsed, self.library, {}, "small", case.precision)
        whole = self._models[key]
        model, division = divided_model(whole, parsed, self.library, {}, "small", case.micro_batches)
        mesh = build_mesh(self.machine, case.ranks, case.mesh or None)
        again = parse_recompute(case.recompute, model)
        paths, kept = (None, {}) if again is None else (again.paths, again.kept)
        given = model, mesh, self.machine, self.library, case.strategy
        plan = search(*given, recompute=paths, kept_iterations=kept)
        return in_micro_batches(plan, division)

    def text(self, example: str) -> Source:
        return read_source(folder("examples") / f"{example}.udl")


def strict(text: str) -> str:
    """A program file in which a failing kernel ends the run instead of falling back to torch operations."""
    return text.replace("    if isinstance(error, torch.OutOfMemoryError):\n        raise error\n", "    raise error\n")


def divided_part(plan: Plan) -> float:
    """The fraction of the operators that the plan divides."""
    nodes = list(plan.graph.nodes())
    return sum(bool(node.typed.divided) for node in nodes) / max(1, len(nodes))
