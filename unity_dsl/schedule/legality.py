"""Whether a schedule is legal, by definition and use: tensors exist when they are read, and what is started is waited
for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from . import ir


class IllegalSchedule(Exception):
    """A schedule that no program can run, with the reason."""


def check_schedule(function: ir.Function) -> None:
    """Raises IllegalSchedule if the instructions of a function, or of the bodies that it runs, are
    in no legal order.
    """
    walk = _Walk(function, {*function.inputs, *function.stored, *function.entering, *function.captured})
    walk.block(function.instructions)
    walk.end(function.results)


@dataclass
class _Walk:
    """The state after an instruction: tensors that can be read, conversions in flight, started gathers, the number of
    iterations that open loops have run, and updated buffers.
    """

    function: ir.Function
    made: set[ir.Tensor]
    flying: set[ir.Begin | ir.Compute] = field(default_factory=set)
    sent: set[ir.Tensor] = field(default_factory=set)
    deferred: set[ir.Defer] = field(default_factory=set)
    started: set[ir.Convert] = field(default_factory=set)
    loops: dict[ir.Loop, int] = field(default_factory=dict)
    updated: set[str] = field(default_factory=set)
    opened: set[ir.Loop] = field(default_factory=set)

    def block(self, instructions: Iterable[ir.Instruction]) -> None:
        for instruction in instructions:
            self.one(instruction)

    def one(self, instruction: ir.Instruction) -> None:
        match instruction:
            case ir.Compute():
                self._compute(instruction)
            case ir.Fused():
                self._step(instruction.reads, instruction.makes)
            case ir.Cast() | ir.Keep() | ir.Convert():
                self._step([instruction.reads], [instruction.makes])
            case ir.Begin():
                self._read([instruction.reads])
                self._new([instruction.makes])
                self._demand(instruction not in self.flying, f"{instruction.makes} is sent twice")
                self.flying.add(instruction)
            case ir.Arrive():
                begun, made = instruction.begun, instruction.makes
                self._demand(begun in self.flying, f"{made} arrives, and nothing sent it")
                own = begun.makes is made if isinstance(begun, ir.Begin) else begun.makes[0].value == made.value
                self._demand(own, f"{made} is not what was sent")
                self.flying.remove(begun)
                self.made.add(instruction.makes)
            case ir.Defer():
                self._read([instruction.reads])
                self.deferred.add(instruction)
            case ir.StartGathers():
                self._start(instruction.gathers)
                late = [loop for loop in instruction.entering if loop in self.opened]
                self._demand(not late, "a loop has begun before what its first iteration gathers")
            case ir.AwaitGathers():
                self._await(instruction)
            case ir.Open():
                self._read([*instruction.captured, *instruction.sliced])
                for body in instruction.loop.bodies:
                    check_schedule(body)
                self.loops[instruction.loop] = 0
                self.opened.add(instruction.loop)
            case ir.Iterate():
                self._iterate(instruction.loop, range(instruction.run.first, instruction.end))
                self._step(instruction.given, instruction.makes)
                self._start(instruction.then)
            case ir.Interleave():
                for loop in instruction.loops:
                    self._iterate(loop, instruction.iterations)
                self._step(sum(instruction.given, ()), sum(instruction.makes, ()))
                self._start(instruction.then)
            case ir.Branch():
                self._iterate(instruction.loop, range(1))
                self._step([instruction.decides, *instruction.given], instruction.makes)
            case ir.Close():
                through = self.loops.pop(instruction.loop, None)
                name = instruction.loop.step.segment.name
                self._demand(through == instruction.loop.count, f"{name} ends after {through} iterations")
                self._new(instruction.makes)
                self.made.update(instruction.makes)
            case ir.Placed():
                self._placed(instruction)
            case ir.Updates():
                self.block(instruction.body)
                self._read([tensor for _, tensor in instruction.copies])
                self.updated |= {update.buffer.name for update, _ in instruction.copies}
            case ir.ReturnOutputs():
                self._read(instruction.reads)

    def end(self, results: Sequence[ir.Tensor]) -> None:
        """Checks the state when the function returns."""
        self._read(results)
        self._demand(not self.flying, "something is sent that nothing waits for")
        self._demand(not self.started, "weights are gathered that nothing waits for")
        self._demand(not self.loops, "a loop does not end")
        self._demand(not self.deferred, "a weight is read to defer its gradient, and no operator does")
        awaited = [one.gathers for one in self.function.instructions if isinstance(one, ir.AwaitGathers)]
        own = not self.function.first or self.function.first in awaited
        self._demand(own, "what can be gathered first is not waited for")

    def _compute(self, compute: ir.Compute) -> None:
        name = compute.step.node.name
        if compute.deferred is not None:
            self._demand(compute.deferred in self.deferred, f"{name} defers what was not read")
            self.deferred.remove(compute.deferred)
        self._demand(compute.arrives not in self.flying, f"{name} runs in blocks that are not waited for")
        self._read([*compute.reads, *compute.parts])
        if compute.sent:
            self._new(compute.makes)
            self.flying.add(compute)
            self.sent.update(compute.makes)
        else:
            self._new(compute.makes)
            self.made.update(compute.makes)

    def _placed(self, placed: ir.Placed) -> None:
        self._read(placed.given)
        outside = set(self.made)
        self.block(placed.body)
        self._demand(set(placed.makes) <= self.made, "devices elsewhere have what none here makes")
        self.made = outside | set(placed.makes)

    def _iterate(self, loop: ir.Loop, iterations: range) -> None:
        name = loop.step.segment.name
        self._demand(loop in self.loops, f"{name} is not open")
        self._demand(self.loops[loop] == iterations.start, f"iterations of {name} are left out")
        self.loops[loop] = loop.count if loop.step.segment.predicate is not None else iterations.stop

    def _start(self, gathers: Iterable[ir.Convert]) -> None:
        for gather in gathers:
            self._read([gather.reads])
            self._demand(gather not in self.started, f"{gather.value.name} is gathered twice")
            self.started.add(gather)

    def _await(self, awaited: ir.AwaitGathers) -> None:
        begun = {*awaited.among} <= {*self.started} | {g for g in awaited.among if g.makes in self.made}
        self._demand(begun, f"{awaited.gathers[0].value.name} is waited for before it is gathered")
        self._read([gather.reads for gather in awaited.gathers])
        self._new([gather.makes for gather in awaited.gathers])
        self.started.difference_update(awaited.gathers)
        self.made.update(gather.makes for gather in awaited.gathers)

    def _step(self, reads: Iterable[ir.Tensor], makes: Iterable[ir.Tensor]) -> None:
        self._read(reads)
        self._new(makes)
        self.made.update(makes)

    def _read(self, tensors: Iterable[ir.Tensor]) -> None:
        for tensor in tensors:
            self._demand(tensor not in self.sent, f"{tensor} is read while it is sent")
            self._demand(tensor in self.made, f"{tensor} is read before it is there")
            stale = tensor in self.function.stored and tensor.value.name in self.updated
            self._demand(not stale, f"{tensor} is read behind its update")

    def _new(self, tensors: Iterable[ir.Tensor]) -> None:
        for tensor in tensors:
            self._demand(tensor not in self.made, f"{tensor} is made twice")

    def _demand(self, holds: bool, reason: str) -> None:
        if not holds:
            raise IllegalSchedule(f"{self.function.path or 'model'}: {reason}")
