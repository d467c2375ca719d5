"""The forward pass as the emitted program runs it: operators in order, iterations of its bodies, what is run again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

from ..graph.gathered_weights import Steps
from ..graph.graph import Value
from ..graph.interleaved_repeats import in_turns, run_number, stretches, turns_behind
from ..graph.layout import Layout, Placement
from ..graph.placed_order import in_stretches, read_there
from ..graph.plan import PlannedNode, PlannedSegment, without_iterations
from ..graph.reused_operands import updated_in_place
from ..index.lowering.local_tensor import Storage
from .backward_pass import Complete
from .collective_tasks import add_copy
from .coroutines import Coroutine, completed
from .gathered_variables import GatheredVariables
from .gathering_tasks import Gather
from .iteration_turns import EVERY, Turn, turns_of
from .local_tensors import Cotangents, Local, Recorded
from .program_variables import Held
from .series_tasks import stacked, unbound

_Carried = tuple[Value, Layout, Local]
"""A value that crosses the border of a body, and the tensor that does."""


class ForwardPass(GatheredVariables):
    """One run of a forward function: of the model, or of an iteration of a body."""

    def steps(self) -> None:
        """Operators one after the other; what those between two bodies gather comes before them."""
        stretches = [
            (nodes, list(stretch))
            for nodes, stretch in groupby(self.graph.steps, lambda step: isinstance(step, PlannedNode))
        ]
        for number, (nodes, stretch) in enumerate(stretches, 1):
            following = stretches[number][1] if number < len(stretches) else []
            operators = [step for step in stretch if isinstance(step, PlannedNode)]
            bodies = [step for step in stretch if isinstance(step, PlannedSegment)]
            if nodes and not self.path:
                self.gather_in_order(operators, self._entering_gathers(following))
            elif nodes:
                self._gather(operators)
            for placement, same in in_stretches(operators):
                self._placed(same, placement)
            for together in in_turns(bodies, () if self.path else self.program.plan.interleaved):
                after = following if together[-1] is stretch[-1] else []
                self._interleaved(together, after) if len(together) > 1 else self._segment(together[0], after)

    def steps_in_turns(self) -> Coroutine[None]:
        """Operators one after the other; others compute while what one reads is on its way."""
        self._gather(self.graph.steps)
        for step in self.graph.steps:
            assert isinstance(step, PlannedNode), "a body that runs in turns has none of its own"
            arguments = self._arguments(step)
            yield from self.arrived(arguments)
            self.record_leaves()
            self._compute(step, arguments)

    def arrived(self, tensors: Sequence[Local]) -> Coroutine[None]:
        """Waits for these, if they are on their way, when others have computed."""
        if not self.travelling.keys().isdisjoint(tensors):
            yield
            self.arrive(tensors)

    def _gather(self, steps: Steps) -> None:
        for gathers in self.gathers(steps):
            self.gather(gathers)

    def _entering_gathers(self, following: Steps) -> list[Gather]:
        """What the first iteration of the repeat that comes next gathers first, and of those in turns with it."""
        found = list[Gather]()
        for step in self.program.weights.entered(following):
            path, body = f"{step.segment.name}.0.", step.runs[0].body
            found += ForwardPass(self.program, body, path, {}, left=step.segment.leaves).first_gathers
        return found

    def _placed(self, steps: Sequence[PlannedNode], placement: Placement) -> None:
        """Operators on the devices of a placement: all devices make what these are given of all."""
        if placement:
            library = self.program.operators.library
            reads = read_there(steps, placement, lambda value: self.held[value.name].produced, library)
            given = [self.variable(*read) for read in reads]
            if not self.program.is_at(placement):
                self._elsewhere(steps, given)
                return
        for step in steps:
            self._node(step)

    def _elsewhere(self, steps: Sequence[PlannedNode], given: Sequence[Local]) -> None:
        """Zeros, which are views of one, in place of what others compute, and of its gradients."""
        tasks, moving = self.program.tasks, tuple(dict.fromkeys(local for local in given if local.moves))
        zeros = Storage(0)
        tasks.kernel("zeros", self.path + steps[0].node.name, 0.0, 1, into=[zeros])
        made = []
        for step in steps:
            for value, layout in zip(step.node.results, step.typed.results, strict=True):
                made.append(Local(0, Storage(0), value.needs_gradient))
                tasks.stands_for(made[-1].storage, [zeros])
                tasks.hold([made[-1].storage])
                self.name([made[-1].storage])
                self.add(value, made[-1], layout)

        def back(outgoing: Cotangents) -> Cotangents:
            return [Storage(0) for _ in moving]

        self.program.backward.record(Recorded(moving, tuple(local for local in made if local.moves), (), back))

    def _node(self, step: PlannedNode) -> None:
        self._compute(step, self._arguments(step))

    def _arguments(self, step: PlannedNode) -> list[Local]:
        taken_in, _ = self.program.operators.types(step)
        reads = zip(step.node.arguments, step.typed.arguments, taken_in, strict=True)
        return [self.variable(value, layout, wanted) for value, layout, wanted in reads]

    def _compute(self, step: PlannedNode, arguments: Sequence[Local]) -> None:
        node, typed = step.node, step.typed
        _, made_in = self.program.operators.types(step)
        backward = self.program.backward
        last = backward.is_last and any(node.gradients)
        joined, delayed, chunks = node.results[0].name in self.joined, self.later.get(node.name), self.chunks(step)
        results, named, record = self.program.operators.forward(
            step, arguments, self.path + node.name, last=last, joined=joined, delayed=delayed, chunks=chunks
        )
        sends = chunks is not None and chunks.summed is not None
        self.name([*([] if sends else [result.storage for result in results]), *named])
        if record is not None:
            backward.record(self._regathering(record))
        if last:
            raise Complete
        for value, layout, dtype, tensor in zip(node.results, typed.results, made_in, results, strict=True):
            cast = dtype != value.dtype
            self.add(value, self._cast(tensor, value.name, dtype, value.dtype) if cast else tensor, layout)
        if chunks is not None and sends:
            self.send(step, chunks, results[0])

    def _regathering(self, record: Recorded) -> Recorded:
        """The record of an operator without the gathered weights that are not kept: they are gathered again first."""
        gathering, tasks = self.program.gathering, self.program.tasks
        forgotten = gathering.forgotten(record.saved)
        if not forgotten:
            return record
        kept = tuple(storage for storage in record.saved if not gathering.forgotten([storage]))
        tasks.drop(storage for storage in record.saved if storage not in kept)

        def run(outgoing: Cotangents) -> Cotangents:
            again = [gathering.gather_again(block, stored) for block, stored in forgotten]
            found = record.run(outgoing)
            tasks.drop(again)
            return found

        return replace(record, saved=kept, run=run)

    def _segment(self, step: PlannedSegment, after: Steps) -> None:
        """A repeat, scan or cond: its iterations one after the other, of a cond one. While one computes, the weights of
        the next are gathered, at last those in buckets that steps `after` it gather.
        """
        segment, border = step.segment, step.border
        taken = [self.variable(value, layout) for value, layout in border.reads(segment)]
        captured = dict(zip((v.name for v in segment.captured), taken, strict=False))
        slices = [
            unbound(self, series, whole, segment.count)
            for series, whole in zip(segment.sliced, taken[len(segment.captured) :], strict=False)
        ]
        stacks: list[list[Local]] = [[] for _ in segment.stacked]
        carried: list[_Carried] = []
        gathering, program, path = self.program.gathering, self.program, without_iterations(self.path) + segment.name
        run_again = program.plan.run_again(path, segment.count)
        listed = program.listed if not self.path or program.listed.brief else EVERY
        turns = [*turns_of(step, run_again, listed)]
        bodies = [self._body(step, turn, captured) for turn in turns]
        standing: Sequence[Storage] = ()
        for place, turn in enumerate(turns):
            if not self.path:
                program.mark(turn)
            with program.tasks.seeing() as seen:
                entering = self._entering(step, turn.run, carried)
                if len(turns) > 1:
                    self._gather_ahead(bodies[place:], after)
                for series, layout, parts in zip(segment.sliced, border.sliced, slices, strict=True):
                    entering.append((series.part, layout, parts[turn.iteration]))
                first = program.backward.recorded
                again_later = turn.iteration < run_again
                try:
                    with gathering.in_what_is_run_again(again_later), program.standing(turn.stored, turn.gradients):
                        left, made = self._iteration(step, turn.run, bodies[place], entering)
                except Complete:
                    program.tasks.drop(part.storage for stack in stacks for part in stack)
                    raise
                if again_later:
                    again = partial(self._again, step, turn, captured, entering, bodies[max(place - 1, 0) : place + 1])
                    holds = [tensor.storage for tensor in (*(tensor for _, _, tensor in entering), *captured.values())]
                    program.backward.recompute(first, holds, again)
                for stack, tensor in zip(stacks, made, strict=True):
                    stack.append(tensor)
                self._replace(carried, left)
                carried = left
            if place and turns[place - 1].times > 1:
                program.tasks.stand_for(standing, turns[place - 1].times)
            standing = seen
        if not self.path:
            program.mark(None)
        for value, (_, layout, tensor) in zip(segment.results, carried, strict=True):
            self.add(value, tensor, layout)
        for series, layout, parts in zip(segment.stacked, border.stacked, stacks, strict=True):
            self.add(series.whole, stacked(self, series, parts), layout.inserted(series.dim))

    def _gather_ahead(self, bodies: Sequence[ForwardPass], after: Steps) -> None:
        """While the first of these iterations computes, the weights of the next are gathered, or those of what comes
        `after` the last one.
        """
        first, *others = bodies
        self.program.gathering.start(first.first_gathers, ahead=False)
        self.program.gathering.start(others[0].first_gathers if others else self.announce(after))

    def _interleaved(self, steps: Sequence[PlannedSegment], after: Steps) -> None:
        """Repeats whose iterations run in turns: each goes on where it needs what it has begun to send, then the next
        does.
        """
        captured = [
            {value.name: self.variable(value, layout) for value, layout in step.border.reads(step.segment)}
            for step in steps
        ]
        carried: list[list[_Carried]] = [[] for _ in steps]
        bodies = [
            [
                self._body(step, Turn(run_number(step, iteration), iteration), seen, in_turns=True)
                for iteration in range(step.segment.count)
            ]
            for step, seen in zip(steps, captured, strict=True)
        ]
        for iterations in stretches(steps, self.graph):
            taken = [
                self._entering(step, run_number(step, iterations.start), values)
                for step, values in zip(steps, carried, strict=True)
            ]
            given = zip(steps, bodies, carried, taken, strict=True)
            following = [after, *([] for _ in steps[1:])]
            carried = completed(
                [self._through(iterations, *of_one, then) for of_one, then in zip(given, following, strict=True)],
                turns_behind(len(steps), self.program.plan.stagger),
            )
        for step, values in zip(steps, carried, strict=True):
            for value, (_, layout, tensor) in zip(step.segment.results, values, strict=True):
                self.add(value, tensor, layout)

    def _through(
        self,
        iterations: range,
        step: PlannedSegment,
        bodies: Sequence[ForwardPass],
        carried: list[_Carried],
        entering: list[_Carried],
        after: Steps,
    ) -> Coroutine[list[_Carried]]:
        """Iterations of a repeat, the first of which is given what is `entering`. Returns what the last one leaves."""
        for iteration in iterations:
            number = run_number(step, iteration)
            if iteration > iterations.start:
                entering = self._entering(step, number, carried)
            self._gather_ahead(bodies[iteration:], after)
            left, _ = yield from self._iterating(step, number, bodies[iteration], entering)
            self._replace(carried, left)
            carried = left
        return carried

    def _body(
        self,
        step: PlannedSegment,
        turn: Turn,
        captured: Mapping[str, Local],
        stored: Mapping[str, Local] = {},
        *,
        in_turns: bool = False,
    ) -> ForwardPass:
        """The function of an iteration, with what it stores and what it sees of the values around it."""
        segment, run = step.segment, step.runs[turn.run]
        given: dict[str, Held] = {}
        for value, layout in zip(segment.captured, step.border.captured, strict=True):
            outside = self.held[value.name]
            is_stored = outside.stored and outside.uncast is None and layout == outside.produced
            planned = run.body.values.get(value.name)
            sources = {made.layout: made.source for made in planned.materialised} if planned else {}
            given[value.name] = Held(value, layout, {layout: captured[value.name]}, sources, is_stored)
        path = f"{self.path}{segment.name}." + ("" if segment.predicate is not None else f"{turn.iteration}.")
        with self.program.standing(turn.stored, turn.gradients):
            return ForwardPass(self.program, run.body, path, given, stored, left=segment.leaves, in_turns=in_turns)

    def _entering(self, step: PlannedSegment, number: int, carried: Sequence[_Carried]) -> list[_Carried]:
        """What an iteration of a run is given of what the one before left, if there is one."""
        segment, run = step.segment, step.runs[number]
        found: list[_Carried] = []
        for place, value in enumerate(segment.entry):
            conditional = segment.predicate is not None
            layout = step.border.carried[place] if conditional else run.body.values[value.name].produced
            if carried:
                _, known, tensor = carried[place]
                if known != layout:
                    tensor = self._changed(segment.results[place], known, layout, tensor)
            else:
                tensor = self.variable(segment.initial[place], layout, value.dtype)
            found.append((value, layout, tensor))
        return found

    def _iteration(
        self, step: PlannedSegment, number: int, body: ForwardPass, entering: Sequence[_Carried]
    ) -> tuple[list[_Carried], list[Local]]:
        """What an iteration leaves, and the slices that it makes: all are held."""
        ((left, made),) = completed([self._iterating(step, number, body, entering)])
        return left, made

    def _iterating(
        self, step: PlannedSegment, number: int, body: ForwardPass, entering: Sequence[_Carried]
    ) -> Coroutine[tuple[list[_Carried], list[Local]]]:
        """The same, of a body that may run in turns with others."""
        segment, tasks = step.segment, self.program.tasks
        for value, layout, tensor in entering:
            body.add(value, tensor, layout)
        try:
            if body.in_turns:
                yield from body.steps_in_turns()
            else:
                body.steps()
            leaving = zip(segment.exit, step.leaving(number, self.graph), segment.entry, strict=True)
            left = [(value, layout, body.variable(value, layout, entry.dtype)) for value, layout, entry in leaving]
            slices = zip(segment.stacked, step.border.stacked, strict=True)
            made = [body.variable(series.part, layout) for series, layout in slices]
            yield from body.arrived([tensor for _, _, tensor in left])
            tasks.hold(tensor.storage for tensor in (*(tensor for _, _, tensor in left), *made))
            body.update()
        finally:
            body.leave()
        return left, made

    def _again(
        self,
        step: PlannedSegment,
        turn: Turn,
        captured: Mapping[str, Local],
        entering: Sequence[_Carried],
        bodies: Sequence[ForwardPass],
    ) -> None:
        """Runs an iteration once more, the last of `bodies`, and meanwhile gathers the weights of the one before it."""
        *before, first = bodies
        body = self._body(step, turn, captured, first.stored)
        if before:
            self.program.gathering.start(body.first_gathers, ahead=False)
            self.program.gathering.start(before[0].first_gathers)
        with self.program.gathering.in_what_is_run_again():
            self._iteration(step, turn.run, body, entering)

    def _replace(self, carried: Sequence[_Carried], left: Sequence[_Carried]) -> None:
        """Variables hold what an iteration leaves instead of what it was given. Takes over holds."""
        for _, _, tensor in carried:
            self.program.tasks.drop([tensor.storage])
            self.named.remove(tensor.storage)
        self.name(tensor.storage for _, _, tensor in left)

    def _changed(self, value: Value, source: Layout, target: Layout, tensor: Local) -> Local:
        """What one run leaves, in the layout in which the next takes it."""
        held = Held(value, source, {source: tensor}, {})
        before = self.held.get(value.name)
        self.held[value.name] = held
        found = self._converted(held, target)
        if before is not None:
            self.held[value.name] = before
        return found

    def update(self) -> None:
        """Buffers' new values: copies, in place of the old ones, where no operator has changed these."""
        in_place = updated_in_place(self.graph)
        for update in self.graph.graph.updates:
            if update.buffer.name in in_place:
                continue
            tensor = self.variable(update.value, self.graph.values[update.buffer.name].produced)
            place, machine = self.path + update.buffer.name, self.program.prices.machine
            copy = add_copy(self.program.tasks, "update", place, tensor.bytes, machine, [tensor.storage])
            self.program.tasks.settle([copy])
