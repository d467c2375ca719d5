"""Compiles a model to a plan: the stages in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from math import inf
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from .collector import collector_paused
from .emit.plan_file import TORCH, Sources
from .graph.graph import Model
from .graph.model_graph import build_model
from .graph.padding import Padding
from .graph.plan import Plan
from .index.declarations.loading import library_of, library_sources
from .index.library import Library
from .machine.machine import machine_source, read_machine
from .rules.accepted_rule import AcceptedRule
from .rules.forbidden import check_forbidden
from .rules.sharding_theorems import ShardingTheorems
from .rules.shipped_fusions import fusion_texts, fusions_for, shipped_fusions
from .rules.shipped_rules import ShippedRules, shipped_sources
from .search.constants import efforts_up_to
from .search.evaluate import Evaluator
from .search.expected_exposure import expected_exposure
from .search.first_plan import BOTH_WAYS, STARTING, first_plan, starting_meshes
from .search.improve import Search
from .search.incumbent import found_in_time
from .search.launch_bound import launch_notes
from .search.layout_pins import parse_pins
from .search.memory_limit.stored_bytes import StoredBytes
from .search.micro_batches.batch_division import divided_model
from .search.micro_batches.division_choice import in_cheapest_division
from .search.moves.passes import climbed, inherited
from .search.offloading import parse_offload, with_offload
from .search.padded_axes import padded_as_needed, padded_for, padding_of_part, parse_padding, useful_padding
from .search.pass_notes import pass_notes
from .search.plan_notes import ended_notes, limit_notes
from .search.plan_search import meshes_for
from .search.recomputed_segments import AUTOMATIC, parse_recompute
from .search.search_end import SearchEnd
from .search.search_progress import telling_progress
from .search.search_space import SearchSpace
from .search.solver import Part, Solver
from .search.strategies import AUTO, Strategy, has_algebra
from .search.strategies.data_parallel import batch_size
from .search.strategy_space import accept_used, algebras_for
from .search.unaligned_products import unaligned_notes
from .simulation.timeline import StepTime
from .syntax.diagnostic import InputError, fail
from .syntax.parse_model import parse_model
from .syntax.parse_rules import RuleDecl
from .syntax.read import read_source
from .syntax.span import Source

if TYPE_CHECKING:
    from .search.imports.imported_plan import ImportedPlan


@dataclass(frozen=True)
class Request:
    """A request: what to compile, for which machine, and how to choose the plan.

    `settings` and `preset` choose the model's parameters. `precision` is the float type of its arithmetic, by default
    the one that the model says, or else the types that its tensors are declared with. These are given as text: `pins`
    as `w1=S0,I`, `recompute` and `offload` as `layer,head.step`, and `pad` as `wte:0`. `kernels` says how operators run
    on a GPU. `operators` are folders of the user's own `.uop` files, `rules` files of rules. `memory` is the number of
    bytes that a device may use, by default all that it has. `micro_batches` is their number; None lets memory decide.
    `shipped_rules` says whether the shipped fusions are used. `forbidden` are names of rules that are not used, shipped
    or from these files. The search ends with the best known plan once it has done the work of its `effort`, or after
    `time_limit` seconds. A `plan` is the file of a plan exported by another system. It replaces the choice of
    `strategy`, and also gives the micro-batches and the recomputation.
    """

    model: Path
    settings: Mapping[str, str | int | float] = field(default_factory=dict)
    preset: str | None = None
    precision: str | None = None
    machine: str = "local"
    devices: int = 1
    mesh: tuple[int, ...] | None = None
    strategy: str = "auto"
    pins: Sequence[str] = ()
    memory: int | None = None
    micro_batches: int | None = None
    recompute: str = AUTOMATIC
    offload: str = AUTOMATIC
    pad: str = AUTOMATIC
    kernels: str = TORCH
    operators: Sequence[Path] = ()
    rules: Sequence[Path] = ()
    shipped_rules: bool = True
    forbidden: Sequence[str] = ()
    time_limit: float | None = None
    effort: str = "normal"
    plan: Path | None = None


@dataclass(frozen=True)
class Compilation:
    """A plan, with the texts and the library it came from, as needed to write the program. `rules` are all proved. The
    `model` is that of the texts, before rules and padding.
    """

    plan: Plan
    library: Library
    sources: Sources
    model: Model
    rules: tuple[AcceptedRule, ...] = ()
    spent: StepTime | None = None

    @property
    def parts(self) -> tuple[Plan, Library, Sources]:
        """The inputs for writing the program."""
        return self.plan, self.library, self.sources


@collector_paused()
def compile_model(request: Request, end: SearchEnd | None = None) -> Compilation:
    """Read, build and plan a model. Raises InputError for any fault in the user's input; writes nothing.

    The search ends at the time limit of the request, or when `end` says so. Raises E320 if it has no plan then. Axes
    that the devices do not divide are padded if the request says so. If the request leaves that open, they are padded
    if the strategy or pins need it, or if the step becomes shorter.
    """
    end = end or SearchEnd(request.time_limit)
    chosen = None if end.seconds is None else _padding_within_limit(request, end)
    found = padded_as_needed(
        lambda needed: _compiled(request, end, needed or chosen),
        request.pad,
        lambda: _model_of(request),
        request.devices,
        request.pins,
    )
    return _padded_where_shorter(found, request, end)


SHORTER = 0.995
"""Padding is kept if the step takes less than this fraction of the step without it."""


def _padded_where_shorter(found: Compilation, request: Request, end: SearchEnd) -> Compilation:
    """The compilation, or that of the padded model if its step is shorter, or if only it has no warnings. Padding is
    tried only if devices do not divide the batch and so must divide other axes.
    """
    limited = end.seconds is not None or end.raised or end.interrupted
    if limited or not _may_be_padded(found.model, request):
        return found
    padding = useful_padding(found.model, request.devices, found.library)
    with suppress(InputError):  # pins may not fit the padded model
        began = next((trial.seconds for trial in found.plan.trail), None) or inf
        padded = _compiled(request, end, padding, began) if padding else found
        return padded if _is_better(padded.plan, found.plan) else found
    return found


def _padding_within_limit(request: Request, end: SearchEnd) -> Padding | None:
    """The padding of the model that a time limit leaves time to search; None for the model as it is. Plans of data
    parallelism decide, which take a few seconds: the padded model is searched if its plan fits and is better.
    """
    model = _model_of(request)
    if not _may_be_padded(model, request):
        return None
    end.begun = monotonic() if end.begun is None else end.begun
    padding = useful_padding(model, request.devices, library_of(library_sources(request.operators)))
    plans = list[Plan]()
    for tried in (None, padding) if padding else ():
        with suppress(InputError):  # data parallelism may not fit the model, its pins or its mesh
            plans.append(_compiled(request, SearchEnd(interrupted=True), tried).plan)
    return padding if len(plans) > 1 and not plans[1].warnings and _is_better(plans[1], plans[0]) else None


def _may_be_padded(model: Model, request: Request) -> bool:
    """Whether the search decides about padding: devices do not divide the batch, and nobody asked for a layout."""
    free = request.pad == AUTOMATIC and request.strategy == AUTO and request.plan is None
    return free and batch_size(model) % request.devices != 0


def _is_better(padded: Plan, plan: Plan) -> bool:
    """Whether a padded plan's step is shorter, or only it has no warnings."""
    fits, fitted = not plan.warnings, not padded.warnings
    return fitted > fits or (fitted == fits and padded.seconds < SHORTER * plan.seconds)


def _model_of(request: Request) -> Model:
    file, library = parse_model(read_source(request.model)), library_of(library_sources(request.operators))
    return build_model(file, library, request.settings, request.preset, request.precision)


def _compiled(request: Request, end: SearchEnd, padding: Padding | None, known: float = inf) -> Compilation:
    """The compilation with this padding, None for that of the request. If a search without padding came first, `known`
    is the step time that it began with.
    """
    begun = monotonic()
    imported = _imported_plan(request.plan)
    if imported is not None:
        request = replace(request, strategy=imported.system, micro_batches=imported.micro_batches)
    sources = Sources(
        read_source(request.model),
        library_sources(request.operators),
        machine_source(request.machine),
        tuple(map(read_source, request.rules)),
        shipped_texts(request.strategy) if request.shipped_rules else (),
    )
    check_forbidden(request.forbidden, sources.rules)
    machine = read_machine(sources.machine).holding(request.memory)
    meshes = meshes_for(machine, request.devices, request.mesh, request.strategy)
    if imported is not None:
        meshes = imported.mesh(machine, request.devices)
    library = library_of(sources.operators)
    rules = proved_rules(request.rules, sources.rules, library)
    file = parse_model(sources.model)
    given = build_model(file, library, request.settings, request.preset, request.precision)
    if padding is None:
        padding = parse_padding(request.pad, given, request.devices)
    model = padded_for(given, padding, library)
    shipped = ShippedRules(sources.fusions, library, request.forbidden)
    algebra = has_algebra(request.strategy)
    fused = () if algebra or request.strategy == "single" else fusion_texts(sources.fusions)
    fusions = fusions_for(model, fused, library, request.forbidden)
    pins = parse_pins(request.pins)
    applied = [accepted.rule for accepted in rules if accepted.rule.name not in request.forbidden]
    fusing = list(shipped.fitting(model)) if algebra else [accepted.rule for accepted in fusions]

    theorems = ShardingTheorems(library)
    algebras = algebras_for(model, request.strategy, shipped, applied)

    @cache
    def part_of(count: int) -> Part:
        part, division = model, None
        if count > 1:
            part, division = divided_model(given, file, library, request.settings, request.preset, count)
            part = padded_for(part, padding_of_part(padding, given, part, request.devices), library)
        asked = parse_recompute(request.recompute if imported is None else imported.recompute(part), part)
        return Part(part, division, *with_offload(asked, parse_offload(request.offload, part, machine)))

    expected, weights = expected_exposure(machine, model, meshes[0]), StoredBytes.of(model, pins.values())
    efforts = efforts_up_to(request.effort)
    evaluator = Evaluator(machine, library, efforts[-1].evaluations if request.strategy == AUTO else inf)

    space = SearchSpace(
        machine,
        library,
        theorems,
        request.strategy,
        pins,
        applied,
        fusing,
        algebras,
        None if imported is None else imported.strategy,
        offloads=request.strategy == AUTO and imported is None and request.recompute == request.offload == AUTOMATIC,
    )
    solver = Solver(space, meshes, part_of)
    found = Search(solver, evaluator, efforts, known=known)
    incumbent = found.incumbent

    @cache
    def usual() -> Sequence[RuleDecl]:
        """The fusions that other strategies use as well."""
        texts = fusion_texts(sources.fusions)
        return [accepted.rule for accepted in fusions_for(model, texts, library, request.forbidden)]

    def start(count: int, by: Strategy = STARTING) -> Plan:
        every = starting_meshes(part_of(count).model, meshes, machine)
        return solver.by_strategy(by, count, every, expected, usual())

    def improve(first: Plan | None) -> Plan:
        if first is not None and end.seconds is not None:  # without a limit the search finds plans as good as these
            apart = Evaluator(machine, library)  # keeps the trail equal to that of a search without a limit
            for by in BOTH_WAYS:
                plan = climbed(start(first.micro_batches, by), apart)
                incumbent.offer(replace(plan, simulated=apart.seconds(plan)))
        if request.strategy != AUTO:
            return found.first(expected, found.started(request.micro_batches or 1))
        decides = request.micro_batches is None
        begin = in_cheapest_division(found, weights) if decides else found.started(request.micro_batches or 1)

        def data_parallel_in(count: int) -> Plan | None:
            if first is None or first.micro_batches == count:
                return first
            with suppress(InputError):
                return start(count)
            return None

        return found.shortest(expected, begin, data_parallel_in)

    with telling_progress():
        first = first_plan(start, request.micro_batches, machine.memory_bytes) if request.strategy == AUTO else None
        if first is not None:
            incumbent.offer(replace(first, simulated=evaluator.seconds(first)), "data parallelism")
            end.reserve = monotonic() - begun
        plan = found_in_time(partial(improve, first), incumbent, end)
    evaluator.most = inf
    plan = found.finished(plan)
    within = limit_notes(plan, machine.memory_bytes, lambda free: evaluator.seconds(inherited(free, plan)))
    timeline = evaluator.timeline(plan)
    slow = (*unaligned_notes(plan, machine, library), *launch_notes(plan, timeline, machine, library))
    did = pass_notes(plan, library, evaluator.seconds)
    plan = replace(plan, notes=(*ended_notes(plan), *plan.notes, *did, *within, *slow))
    accept_used(plan, fusing if algebra else (), shipped)
    used = {*(rule.rule for rule in plan.rules), *(accepted.rule.name for accepted in fusions)}
    if used:
        shipped.fitting(model)  # finds which texts the used rules are in
    sources = sources if algebra else replace(sources, fusions=shipped.of(used))
    accepted = (*rules, *fusions, *shipped.accepted.values())
    return Compilation(_with_assumed_facts(plan, accepted), library, sources, given, rules, timeline.spent())


def _imported_plan(path: Path | None) -> ImportedPlan | None:
    """The plan in a file, if one is given. The formats of other systems are imported only then."""
    if path is None:
        return None
    from .search.imports.plan_reading import read_plan

    return read_plan(path)


def shipped_texts(strategy: str) -> tuple[Source, ...]:
    """The shipped rules that a strategy may use: all of them for `auto` and others with algebra, else the fusions."""
    every = strategy == AUTO or has_algebra(strategy)
    return shipped_sources() if every else (read_source(shipped_fusions()),)


def _with_assumed_facts(plan: Plan, rules: Sequence[AcceptedRule]) -> Plan:
    """The plan, with the unproved assumptions of the proofs of its applied rules."""
    assumed = {accepted.rule.name: accepted.assumed for accepted in rules}
    return replace(plan, rules=tuple(replace(applied, assumed=assumed[applied.rule]) for applied in plan.rules))


def proved_rules(paths: Sequence[Path], sources: Sequence[Source], library: Library) -> tuple[AcceptedRule, ...]:
    """The proved rules of these files. Certificates in files beside them may replace a new proof.

    Raises E542 for a rule that is not proved, E024 for two of one name.
    """
    if not paths:
        return ()
    from .rules.certificate import certificates_path, known_certificates
    from .rules.rulebook import accept_rules

    rules: dict[str, AcceptedRule] = {}
    for path, source in zip(paths, sources, strict=True):
        for accepted in accept_rules(source, library, known_certificates(certificates_path(path))):
            rule = accepted.rule
            if rule.name in rules:
                raise fail("E024", f"the rule `{rule.name}` is given twice", rule.span)
            rules[rule.name] = accepted
    return tuple(rules.values())
