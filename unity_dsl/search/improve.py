"""The search: starts, then edits of the best points, most promising first, within a budget of evaluations.

A point is solved at prices that weight each kind of work by its exposed fraction. Its simulated step gives new
fractions; the point is solved again at these prices, until its step no longer falls. Then edits change one thing:
storage, iterations, branches, fusions or the mesh. Each edit has a lower bound on its step; an edit that cannot beat
the incumbent is not solved.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import inf

from ..graph.axis_names import named_axes
from ..graph.interleaved_repeats import interleavable_repeats
from ..graph.layout import Mesh
from ..graph.layout_conversion import BUCKET_MIB
from ..graph.plan import Exposure, Plan
from ..graph.search_trail import Trial
from ..rules.process_map import shared_map
from .accounting.unproved_divisions import with_undivided
from .constants import CLOSE, EFFORTS, FEW, GAIN, NEAR, ROUNDS, SHORTER, VALUES_INTERLEAVED, WIDE, WORTH, Effort
from .evaluate import BudgetSpent, Evaluations, Evaluator
from .incumbent import Incumbent
from .meshes.mesh_search import processes_for
from .moves.edit import Edit
from .moves.edits import edits
from .moves.exposures import agree, halfway, measured, worst_exposure
from .moves.passes import climbed, inherited
from .offloading import offloaded_where_shorter
from .point import Point
from .search_end import SearchEnded, check_end, why_ended
from .search_progress import tell_stage
from .solver import Solver

Started = tuple[Point, list[Point]]
"""The point that a start leads to, and points of nearly the same cost on other meshes."""
Start = Callable[[Exposure, str], Started]
"""Solves a start at an exposure, in as many micro-batches as memory requires, and tries it under the name of a move."""
First = Callable[[int], Plan | None]
"""A plan that is known without a search for a number of micro-batches, if there is one."""


@dataclass(frozen=True)
class Looked:
    """The evaluation of a point before it is kept. `keys` identify the point. `rejected` has the mesh, the
    micro-batches and the seconds of a rejected point; the seconds are None where it does not fit. The `point` of one
    that is `kept` is known only in the process that solved it.
    """

    keys: frozenset[object] = frozenset()
    rejected: tuple[tuple[int, ...], int, float | None] | None = None
    kept: bool = False
    point: Point | None = None


@dataclass
class Search:
    """The state of a search: its points, the incumbent and the trail. The efforts run one after the other, so that a
    higher effort only extends the trail. `division_notes` tell how the number of micro-batches was chosen, if it was.
    If the search of another model began with a step of `known` seconds, this search stops after an effort that leads
    nowhere near that.
    """

    solver: Solver
    evaluator: Evaluator
    efforts: Sequence[Effort] = (EFFORTS["low"], EFFORTS["normal"])
    incumbent: Incumbent = field(default_factory=Incumbent)
    effort: Effort = EFFORTS["low"]
    best: Point | None = None
    points: list[Point] = field(default_factory=list)
    trail: list[Trial] = field(default_factory=list)
    seen: set[object] = field(default_factory=set)
    expanded: set[object] = field(default_factory=set)
    division_notes: tuple[str, ...] = ()
    known: float = inf

    def shortest(self, expected: Exposure, start: Start, first: First = lambda count: None) -> Plan:
        """The plan of the shortest step that is found until nothing improves or all evaluations are spent. The `first`
        plan in the start's number of micro-batches is a start as well, if there is one. Raises SearchEnded where the
        search ends before there is a plan.
        """
        try:
            self._search(expected, start, first)
        except BudgetSpent:
            pass
        except SearchEnded:
            if self.best is None:
                raise
        return self._found()

    def _search(self, expected: Exposure, start: Start, first: First) -> None:
        starts: list[Point | None] = [*self._starts(expected, start)]
        if self.best is not None and (plan := first(self.best.plan.micro_batches)) is not None:
            other = self.solver.point_of(plan, expected, self.best.plan)
            starts.append(self.tried(other, "data parallelism", self.best.plan))
        firsts = dict[Mesh, Point]()
        for point in sorted((one for one in starts if one is not None and one.fits), key=self.seconds):
            firsts.setdefault(point.plan.mesh, point)
        for effort in self.efforts:
            self.effort = effort
            for point in [*firsts.values()][: effort.chains]:
                if self.seconds(point) <= WIDE * self.below:
                    self._settle(point)
            self._improve()
            if self.below > NEAR * self.known:
                return

    def first(self, expected: Exposure, start: Start) -> Plan:
        """The plan of a strategy that has no choice, with the best passes found for it."""
        start(expected, "start")
        return self._found()

    def started(self, count: int) -> Start:
        """A start in `count` micro-batches."""

        def start(exposure: Exposure, move: str) -> Started:
            point, others = self.solver.start(count, exposure)
            return self.tried(point, move) or point, others

        return start

    def _found(self) -> Plan:
        assert self.best is not None, "any plan is the best at first"
        ended = why_ended() or self.best.plan.ended
        return replace(self.best.told, simulated=self.seconds(self.best), ended=ended)

    def finished(self, plan: Plan) -> Plan:
        """The final plan with its memory, its mesh axes named by what they do, its notes and the trail."""
        evaluator = self.evaluator
        notes = with_undivided(plan.notes, plan.model, plan, evaluator.machine, evaluator.library)
        notes = (*notes, *(note for note in self.division_notes if note not in notes))
        mesh, trail = named_axes(plan.graph, plan.mesh), tuple(self.trail)
        return replace(evaluator.counted(plan), mesh=mesh, trail=trail, notes=notes)

    # ------------------------------------------------------------------------------------------------ evaluation

    def seconds(self, point: Point) -> float:
        """Seconds of the point's simulated step."""
        return self.evaluator.seconds(point.plan)

    @property
    def below(self) -> float:
        """Seconds of the incumbent's step; infinite while no plan fits the memory."""
        return inf if self.best is None or not self.best.fits else self.seconds(self.best)

    def _below(self, point: Point) -> float:
        """The cutoff for a point: `below`, unless the incumbent has placed branches and the point has none. Then it is
        the shortest step of a point without placed branches, since branches can be placed afterwards.
        """
        if point.restricted.placed or self.best is None or not self.best.restricted.placed:
            return self.below
        return min((self.seconds(one) for one in self.points if one.fits and not one.restricted.placed), default=inf)

    def tried(self, point: Point | None, move: str, like: Plan | None = None, close: float = CLOSE) -> Point | None:
        """Evaluates a point with the best passes found for it and keeps it. A better one becomes the incumbent. None
        where it is rejected or was tried before. An edit has the passes of the plan `like`; others are tried if its
        step takes at most `close` times that of the incumbent.
        """
        return self._taken(self._look(point, like), move, inf if like is None else close)

    def _look(self, point: Point | None, like: Plan | None) -> Looked:
        """Evaluates a point before it is kept. Only the evaluator changes."""
        if point is None or (not point.fits and self.best is not None and self.best.fits):
            return Looked()
        below, bare = self._below(point), self.seconds(point)
        content = self.evaluator.content(point.plan)
        keys = frozenset({content, (f"{bare:.9g}", point.plan.micro_batches)})  # or the same on a mesh with other axes
        if bare == inf or not self.seen.isdisjoint(keys):
            return Looked(keys)
        fits = not point.fits or self.evaluator.fits(point.plan)
        if like is not None and fits:
            point = self._inheriting(point, like)
        timeline = self.evaluator.timeline(point.plan)
        seconds, most = self.seconds(point), inf if like is None else NEAR * below
        if not fits or timeline.seconds - timeline.exposed() >= below or seconds > most:
            return Looked(keys, (point.plan.mesh.degrees, point.plan.micro_batches, seconds if fits else None))
        return Looked(keys, kept=True, point=point)

    def _taken(self, looked: Looked, move: str, close: float) -> Point | None:
        """Keeps an evaluated point, with further passes if it may be the best. None if it is rejected or was tried
        before.
        """
        new = self.seen.isdisjoint(looked.keys)
        self.seen |= looked.keys
        if new and looked.rejected is not None:
            self.trail.append(Trial(self.evaluator.count, move, *looked.rejected))
        if not new or looked.point is None:
            return None
        point, below = looked.point, self._below(looked.point)
        self.best, first = self.best or point, self.best is None
        if self.seconds(point) <= close * below:
            point = replace(point, plan=climbed(self._offloaded(point.plan), self.evaluator, below))
        best, plan = self._leads(point, first=first), point.plan
        where = plan.mesh.degrees, plan.micro_batches
        self.trail.append(Trial(self.evaluator.count, move, *where, self.seconds(point), best))
        self.points.append(point)
        return point

    def _edited(self, point: Point, every: Sequence[Edit]) -> None:
        """Tries edits of a point. Several processes evaluate them where problems are large; the result is the same."""

        def look(number: int) -> tuple[Looked, Evaluations]:
            check_end()
            tell_stage(f"{every[number].kind}: {every[number].told}")
            known = self.evaluator.known()
            looked = self._look(every[number].solved(), point.plan)
            return (looked if own == os.getpid() else replace(looked, point=None)), self.evaluator.since(known)

        own, known = os.getpid(), point.context.found_of(point.plan.model, point.plan.mesh)
        processes = 1 if known is None else processes_for(known.problem)
        found = shared_map(look, range(len(every)), processes, check_end)
        for _, evaluations in found:
            self.evaluator.learn(evaluations)
        for edit, (looked, _) in zip(every, found, strict=True):
            if looked.kept and looked.point is None and self.seen.isdisjoint(looked.keys):
                solved = edit.solved()
                assert solved is not None, "another process has solved it"
                looked = replace(looked, point=self._inheriting(solved, point.plan))
            self._taken(looked, edit.kind, CLOSE)

    def amended(self, point: Point, told: Point) -> Point:
        """Replaces a point that was tried by `told`, the same point with more known of its plan."""
        self.points = [told if one is point else one for one in self.points]
        if self.best is point:
            self.best = told
        return told

    def _leads(self, point: Point, *, first: bool) -> bool:
        """Makes a point the incumbent if it is better, and says so: points that fit the memory come first, then shorter
        steps.
        """
        seconds, best = self.seconds(point), self.best
        assert best is not None, "the first point is the best at first"
        if not first and (best.fits, -self.seconds(best) * (1 - SHORTER)) >= (point.fits, -seconds):
            return False
        self.best = point
        self.incumbent.offer(replace(point.told, simulated=seconds))
        return True

    def _inheriting(self, point: Point, like: Plan) -> Point:
        """The point with the passes of the plan `like`, if they make its step shorter and it still fits."""
        other = inherited(point.plan, like)
        if like.passes.offloaded:
            other = self._offloaded(other)
        if other.passes == point.plan.passes or self.evaluator.seconds(other) >= self.seconds(point):
            return point
        return replace(point, plan=other) if self.evaluator.fits(other) else point

    def _offloaded(self, plan: Plan) -> Plan:
        """The plan, or one that offloads what it recomputes, if its step is shorter."""
        if not self.solver.space.offloads:
            return plan
        return offloaded_where_shorter(plan, self.evaluator.budget(plan), self.evaluator.seconds)

    # ------------------------------------------------------------------------------------------------ starts

    def _starts(self, expected: Exposure, start: Start) -> list[Point]:
        """Points solved at the expected exposure, and at the exposure that interleaving would lead to."""
        found = self._from(expected, "start", start)
        plan = found[0].plan
        if plan.warnings or plan.mesh.size == 1:
            return found
        if interleavable_repeats(plan.model.graph):
            found += self._from(replace(expected, values=VALUES_INTERLEAVED), "start interleaved", start)
        return found

    def _from(self, exposure: Exposure, move: str, start: Start) -> list[Point]:
        """The cheapest point at an exposure, and points on other meshes whose steps may be shorter."""
        tell_stage(move)
        first, others = start(exposure, move)
        plan = first.plan
        if plan.warnings:
            return [first]
        if plan.unlimited is not None or not plan.rules:
            found = [self.tried(other, f"{move}, other mesh", plan) for other in others]
            return [first, *(point for point in found if point is not None)]
        # Models made by rules are known on the mesh of the first point alone, so the model as written is compared.
        written = {other.plan.mesh: self._inheriting(other, plan) for other in others}
        same = written.pop(plan.mesh, None)
        if same is None:
            return [first]
        most, found = (1 - WORTH) * self.seconds(same), [self.tried(same, f"{move}, model as written", plan)]
        for other in written.values():
            if self.seconds(other) < most:
                again = self.solver.again(other, exposure, algebra=True)
                found.append(self.tried(again, f"{move}, other mesh", plan))
        return [first, *(point for point in found if point is not None)]

    # ------------------------------------------------------------------------------------------------ the loop

    def _improve(self) -> None:
        """Expands the points with the shortest steps until this finds no much shorter step."""
        stale = 0
        self.expanded.clear()
        while stale < self._patience() and (point := self._next()) is not None:
            before = self.below, self._below(point)
            self.expanded.add(self.evaluator.content(point.plan))
            self._expand(point)
            after = self.below, self._below(point)
            shorter = any(now < (1 - WORTH) * then for now, then in zip(after, before, strict=True))
            stale = 0 if shorter else stale + (not point.restricted.placed)

    def _patience(self) -> int:
        """How many points may be expanded without a shorter step before the search stops. One more is allowed where a
        step has few tasks, and one where branches of some points are placed: their savings depend on the layouts more
        than on the step before.
        """
        if not self.effort.stale or self.best is None:
            return 0
        placed = any(point.restricted.placed for point in self.points)
        few = len(self.evaluator.timeline(self.best.plan).graph.tasks) < FEW
        return self.effort.stale + placed + few

    def _next(self) -> Point | None:
        """The point with the shortest step that fits, is near the incumbent and is not expanded."""
        left = (point for point in self.points if self.evaluator.content(point.plan) not in self.expanded)
        near = (point for point in left if point.fits and self.seconds(point) <= NEAR * self._below(point))
        return min(near, key=self.seconds, default=None)

    def _expand(self, point: Point) -> None:
        """Solves a point at the exposures of its step, and edits it unless that already makes a much shorter step."""
        check_end()
        enough, timeline = (1 - WORTH) * self._below(point), self.evaluator.timeline(point.plan)
        self._settle(point)
        if self._below(point) < enough:
            return
        every = edits(point, timeline, self.solver, self.effort)
        for _, alike in groupby(every, key=lambda edit: edit.kind):
            self._edited(point, [edit for edit in alike if edit.bound < (1 - WORTH) * self._below(point)])
            if self._below(point) < enough:
                return

    def _settle(self, point: Point) -> None:
        """Solves a point at the exposures of its step until its step no longer falls: a fixed point of exposures."""
        previous: Exposure | None = None
        for number in range(ROUNDS):
            key = "settled", self.evaluator.content(point.plan)
            if key in self.seen:
                return
            self.seen.add(key)
            found, shortest = measured(point, self.evaluator.timeline(point.plan), self.solver), point
            for move, exposure in self._exposures(point, found, first=number == 0):
                price = exposure if previous is None else halfway(exposure, previous)
                check_end()
                if not agree(price, point.exposure):
                    tell_stage("the same at what the simulated step exposes")
                    new = self.tried(self.solver.again(point, price), move, point.plan, NEAR)
                    if new is not None and self.seconds(new) < (1 - GAIN) * self.seconds(shortest):
                        shortest = new
                        break
            previous = found
            if shortest is point:
                return
            point = shortest

    def _exposures(self, point: Point, found: Exposure, *, first: bool) -> Iterator[tuple[str, Exposure]]:
        """The exposures found in a point's step. The first time, also those with buckets of the usual size; where the
        point has these already, its price with the one kind changed that makes the most difference.
        """
        usual = point.plan.with_passes(bucket_mib=BUCKET_MIB)
        yield "exposures", found
        if first and usual.passes != point.plan.passes:
            other = replace(point, plan=usual)
            yield "exposures in usual buckets", measured(other, self.evaluator.timeline(usual), self.solver)
        elif first:
            yield worst_exposure(found, point.exposure, self.evaluator.timeline(point.plan))
