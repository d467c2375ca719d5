"""The forward pass of a schedule: the tasks of its instructions, of loop iterations and of recomputation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

from ..graph.interleaved_repeats import start_delays
from ..index.lowering.local_tensor import Storage
from ..schedule import ir
from .backward_pass import Complete
from .collective_tasks import add_copy
from .conversion_tasks import Variables
from .coroutines import Coroutine, completed
from .listed_iterations import EVERY, ListedIteration, listed_iterations
from .local_tensors import Cotangents, Local, Recorded
from .series_tasks import stacked, unbound


@dataclass
class _Iterating:
    """An open loop: what its bodies capture, and the slices that they read and make, by iteration. `iterations` are the
    listed iterations, `bodies` their bodies, and `left` is what the last one left.
    """

    captured: Sequence[Local]
    slices: Sequence[Sequence[Local]]
    stacks: Sequence[list[Local]]
    iterations: Sequence[ListedIteration]
    bodies: Sequence[ForwardPass]
    left: Sequence[Local] = ()

    def place(self, iteration: int) -> int:
        """The position among the listed iterations of the first one that is not before `iteration`."""
        return sum(current.iteration < iteration for current in self.iterations)


class ForwardPass(Variables):
    """One call of a function: of the model, or of an iteration of a body."""

    def run(self) -> list[Local]:
        """Runs all instructions. Returns the results, which are held."""
        (results,) = completed([self.run_in_turns()])
        return results

    def run_in_turns(self) -> Coroutine[list[Local]]:
        """Like `run`, but as a coroutine: other loops compute while an operand is in flight."""
        self.loops: dict[ir.Loop, _Iterating] = {}
        try:
            for instruction in self.function.instructions:
                if isinstance(instruction, ir.Arrive) and instruction.yields:
                    yield
                self._instruction(instruction)
            results = [self.local[tensor] for tensor in self.function.results]
            self.program.tasks.hold(tensor.storage for tensor in results)
        finally:
            self.leave()
        return results

    def _instruction(self, instruction: ir.Instruction) -> None:
        match instruction:
            case ir.Compute():
                self._compute(instruction)
            case ir.Convert():
                self.convert(instruction)
            case ir.Cast():
                self.cast(instruction)
            case ir.Begin():
                self.begin(instruction)
            case ir.Arrive():
                self.arrive(instruction)
            case ir.Defer():
                self.defer(instruction)
            case ir.AwaitGathers():
                self.await_gathers(instruction)
            case ir.StartGathers():
                self._start_gathers(instruction)
            case ir.Open():
                self._open(instruction)
            case ir.Iterate():
                self._iterate(instruction)
            case ir.Branch():
                self._branch(instruction)
            case ir.Interleave():
                self._interleave(instruction)
            case ir.Close():
                self._close(instruction)
            case ir.Placed():
                self._placed(instruction)
            case ir.Updates():
                self._update(instruction)
            case ir.Keep():
                self.local[instruction.makes] = self.local[instruction.reads]

    def _add(self, tensors: Iterable[ir.Tensor], local: Iterable[Local]) -> None:
        self.local.update(zip(tensors, local, strict=True))

    # ------------------------------------------------------------------------------------------ operators

    def _compute(self, compute: ir.Compute) -> None:
        step, node, backward, operators = compute.step, compute.step.node, self.program.backward, self.program.operators
        arguments = [self.local[tensor] for tensor in compute.reads]
        if self.function.interleaved:
            self.record_leaves()
        _, made_in = operators.types(step)
        last = backward.is_last and any(node.gradients)
        deferred = None if compute.deferred is None else self.deferred[compute.deferred]
        chunks = self.chunks(compute)
        results, named, record = operators.forward(
            step, arguments, self.path + node.name, last=last, joined=compute.joined, deferred=deferred, chunks=chunks
        )
        self.name([*([] if compute.sent else [result.storage for result in results]), *named])
        if record is not None:
            backward.record(self.program.host.packed(self._regathering(record), self.path + node.name))
        if last:
            raise Complete
        for made, dtype, local in zip(compute.makes, made_in, results, strict=True):
            self.local[made] = self.in_type(local, made.value.name, dtype, made.dtype)
        if compute.sent and chunks is not None:
            self.send(compute, chunks, results[0])

    def _regathering(self, record: Recorded) -> Recorded:
        """The record of an operator without gathered weights that are not kept: its backward pass
        re-gathers them first.
        """
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

    def _placed(self, placed: ir.Placed) -> None:
        """Operators on the devices of a placement. On other devices, views of one zero tensor replace their results.
        Gradients there are zeros as well.
        """
        if self.program.is_at(placed.placement):
            for instruction in placed.body:
                self._instruction(instruction)
            return
        tasks, given = self.program.tasks, [self.local[tensor] for tensor in placed.given]
        moving, zeros = tuple(dict.fromkeys(local for local in given if local.moves)), Storage(0)
        tasks.kernel("zeros", self.path + placed.steps[0].node.name, 0.0, 1, into=[zeros])
        for tensor in placed.makes:
            local = self.local[tensor] = Local(0, Storage(0), tensor.value.needs_gradient)
            tasks.alias_result(local.storage, [zeros])
            tasks.hold([local.storage])
            self.name([local.storage])

        def back(outgoing: Cotangents) -> Cotangents:
            return [Storage(0) for _ in moving]

        made = tuple(local for local in (self.local[tensor] for tensor in placed.makes) if local.moves)
        self.program.backward.record(Recorded(moving, made, (), back))

    def _update(self, update: ir.Updates) -> None:
        """Copies new values into buffers, in place of the old ones."""
        for instruction in update.body:
            self._instruction(instruction)
        for one, tensor in update.copies:
            local, place = self.local[tensor], self.path + one.buffer.name
            machine = self.program.prices.machine
            copy = add_copy(self.program.tasks, "update", place, local.bytes, machine, [local.storage])
            self.program.tasks.settle([copy])

    # ------------------------------------------------------------------------------------------ gathers

    def _start_gathers(self, start: ir.StartGathers) -> None:
        gathering = self.program.gathering
        gathering.start(self.gathers_of(start.gathers), ahead=False)
        entering = []
        for loop in start.entering:
            path = f"{loop.step.segment.name}.0."
            entering += ForwardPass(self.program, loop.bodies[0], path).first_gathers
        gathering.start(entering, ahead=False)

    def _gather_ahead(self, bodies: Sequence[ForwardPass], then: Sequence[ir.Convert]) -> None:
        """Prefetches the weights of the second of these iterations while the first one computes. The last iteration
        prefetches the weights of `then`, which follow the loop.
        """
        first, *others = bodies
        self.program.gathering.start(first.first_gathers, ahead=False)
        self.program.gathering.start(others[0].first_gathers if others else self.gathers_of(then))

    # ------------------------------------------------------------------------------------------ bodies

    def _open(self, opened: ir.Open) -> None:
        loop, segment, program = opened.loop, opened.loop.step.segment, self.program
        captured = [self.local[tensor] for tensor in opened.captured]
        slices = [
            unbound(self, series, self.local[whole], segment.count)
            for series, whole in zip(segment.sliced, opened.sliced, strict=True)
        ]
        listed = program.listed if not self.path or program.listed.brief else EVERY
        if loop.bodies[0].interleaved:
            iterations = [ListedIteration(loop.number(iteration), iteration) for iteration in range(segment.count)]
        else:
            iterations = [*listed_iterations(loop.step, max(loop.again, loop.offloaded), listed)]
        bodies = [self._body(loop, current, captured) for current in iterations]
        self.loops[loop] = _Iterating(captured, slices, [[] for _ in segment.stacked], iterations, bodies)

    def _body(
        self, loop: ir.Loop, current: ListedIteration, captured: Sequence[Local], stored: Mapping[str, Local] = {}
    ) -> ForwardPass:
        """The function of an iteration, with its stored tensors and the values that it captures."""
        segment, function = loop.step.segment, loop.bodies[current.run]
        path = f"{self.path}{segment.name}." + ("" if segment.predicate is not None else f"{current.iteration}.")
        given = dict(zip(function.captured, captured, strict=True))
        with self.program.standing(current.stored, current.gradients):
            return ForwardPass(self.program, function, path, given, stored)

    def _branch(self, branch: ir.Branch) -> None:
        loop = self.loops[branch.loop]
        self._turn(branch.loop, 0, [self.local[tensor] for tensor in branch.given])
        self._add(branch.makes, loop.left)

    def _iterate(self, iterate: ir.Iterate) -> None:
        """Runs iterations one after the other. The weights of the next one are prefetched while one computes."""
        loop, program = self.loops[iterate.loop], self.program
        entering, standing = [self.local[tensor] for tensor in iterate.given], list[Storage]()
        first, end = loop.place(iterate.run.first), loop.place(iterate.end)
        for place in range(first, end):
            if not self.path:
                program.mark(loop.iterations[place])
            with program.tasks.seeing() as seen:
                if len(loop.iterations) > 1:
                    self._gather_ahead(loop.bodies[place:], iterate.then)
                self._turn(iterate.loop, place, entering if place == first else loop.left)
            if place > first and loop.iterations[place - 1].times > 1:
                program.tasks.count_times(standing, loop.iterations[place - 1].times)
            standing = seen
        if not self.path:
            program.mark(None)
        self._add(iterate.makes, loop.left)

    def _turn(self, key: ir.Loop, place: int, carried: Sequence[Local]) -> None:
        """Runs one iteration. Its results replace those of the iteration before."""
        loop, program, gathering = self.loops[key], self.program, self.program.gathering
        current, body, captured = loop.iterations[place], loop.bodies[place], loop.captured
        entering = [*carried, *(parts[current.iteration] for parts in loop.slices)]
        first, again_later = program.backward.recorded, current.iteration < key.again
        stays = [tensor.storage for tensor in (*entering, *captured, *body.stored.values())]
        moved_out = program.host.keeping(stays) if current.iteration < key.offloaded else nullcontext()
        try:
            with (
                gathering.in_what_is_run_again(again_later),
                program.standing(current.stored, current.gradients),
                moved_out,
            ):
                left, made = self._iteration(key, body, entering)
        except Complete:
            program.tasks.drop(part.storage for stack in loop.stacks for part in stack)
            raise
        if again_later:
            again = partial(self._again, key, current, captured, entering, loop.bodies[max(place - 1, 0) : place + 1])
            program.backward.recompute(first, [tensor.storage for tensor in (*entering, *captured)], again)
        for stack, tensor in zip(loop.stacks, made, strict=True):
            stack.append(tensor)
        self._replace(loop, left)

    def _iteration(
        self, loop: ir.Loop, body: ForwardPass, entering: Sequence[Local]
    ) -> tuple[list[Local], list[Local]]:
        """The values that an iteration leaves, and the slices that it makes. All are held."""
        body.local.update(zip(body.function.entering, entering, strict=True))
        results, carried = body.run(), len(loop.step.segment.exit)
        return results[:carried], results[carried:]

    def _again(
        self,
        loop: ir.Loop,
        current: ListedIteration,
        captured: Sequence[Local],
        entering: Sequence[Local],
        bodies: Sequence[ForwardPass],
    ) -> None:
        """Recomputes an iteration, the last of `bodies`, and prefetches the weights of the iteration before it."""
        *before, first = bodies
        body = self._body(loop, current, captured, first.stored)
        if before:
            self.program.gathering.start(body.first_gathers, ahead=False)
            self.program.gathering.start(before[0].first_gathers)
        with self.program.gathering.in_what_is_run_again():
            self._iteration(loop, body, entering)

    def _replace(self, loop: _Iterating, left: Sequence[Local]) -> None:
        """Variables hold the values that an iteration leaves instead of those of the iteration before. Takes over
        holds.
        """
        for tensor in loop.left:
            self.program.tasks.drop([tensor.storage])
            self.named.remove(tensor.storage)
        self.name(tensor.storage for tensor in left)
        loop.left = left

    def _interleave(self, found: ir.Interleave) -> None:
        """Interleaved iterations: each loop runs until it needs what it has started to send, then the next one runs."""
        following = [found.then, *(() for _ in found.loops[1:])]
        given = zip(found.loops, found.given, following, strict=True)
        left = completed(
            [self._through(loop, found.iterations, entering, then) for loop, entering, then in given],
            start_delays(len(found.loops), self.program.plan.passes.skew),
        )
        for makes, local in zip(found.makes, left, strict=True):
            self._add(makes, local)

    def _through(
        self, key: ir.Loop, iterations: range, given: Sequence[ir.Tensor], then: Sequence[ir.Convert]
    ) -> Coroutine[Sequence[Local]]:
        """Runs iterations of a repeat. Returns what the last one leaves."""
        loop, entering = self.loops[key], [self.local[tensor] for tensor in given]
        for iteration in iterations:
            self._gather_ahead(loop.bodies[iteration:], then)
            body = loop.bodies[iteration]
            body.local.update(zip(body.function.entering, entering, strict=True))
            left = yield from body.run_in_turns()
            self._replace(loop, left)
            entering = left
        return loop.left

    def _close(self, closed: ir.Close) -> None:
        loop, segment = self.loops.pop(closed.loop), closed.loop.step.segment
        if closed.loop.offloaded:
            self.program.host.finish()
        for series, tensor, parts in zip(segment.stacked, closed.makes, loop.stacks, strict=True):
            self.local[tensor] = stacked(self, series, parts)
