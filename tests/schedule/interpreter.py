"""Runs schedules on all ranks of a mesh in one process, in NumPy and float64: no launcher, no sockets.

Operators are evaluated by their declarations on whole tensors. These are assembled from local tensors and laid out
again, with random terms of sums. Conversions run their steps between the ranks. A tensor that is in flight cannot be
read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from unity_dsl.graph.collective_steps import Step
from unity_dsl.graph.graph import Value
from unity_dsl.graph.layout import Layout
from unity_dsl.graph.plan import Plan
from unity_dsl.index.evaluation.evaluate import evaluate
from unity_dsl.index.evaluation.uniform import uniform
from unity_dsl.index.library import Library
from unity_dsl.schedule import ir

from ..graph.simulation import Locals, decode, encode, is_there
from ..graph.simulation import run as run_steps

Array = npt.NDArray[Any]


@dataclass
class Ranks:
    """The ranks of a plan: the whole stored tensors by full name, and the random number generator."""

    plan: Plan
    library: Library
    state: dict[str, Array]
    seed: int
    rng: np.random.Generator

    @property
    def sites(self) -> int:
        return max((node.site for node in self.plan.model.graph.nodes()), default=0)

    def spread(self, value: Value, whole: Array, layout: Layout) -> Locals:
        """The local tensors of a whole value."""
        return encode(np.asarray(whole), layout, self.plan.mesh, self.rng, self.library)

    def whole(self, value: Value, held: Locals, layout: Layout) -> Array:
        """The whole value that the local tensors represent."""
        found = decode(held, layout, value.shape, self.plan.mesh, self.library)
        return found.round().astype(np.int64) if value.dtype == "int" else found

    def run(self, function: ir.Function, inputs: Mapping[str, Array]) -> list[Array]:
        """The whole results of the model's function."""
        given = {
            tensor: self.spread(tensor.value, inputs[tensor.value.name], tensor.layout) for tensor in function.inputs
        }
        held = Run(self, function, "", 0, given).results()
        pairs = zip(function.results, held, strict=True)
        return [self.whole(tensor.value, local, tensor.layout) for tensor, local in pairs]


@dataclass
class Run:
    """One run of a function. `held` maps its tensors to local tensors on each rank; those in `flies` are in flight.
    For open loops it keeps what their bodies are given and what they make.
    """

    ranks: Ranks
    function: ir.Function
    prefix: str
    iteration: int
    held: dict[ir.Tensor, Locals]
    flies: dict[ir.Begin | ir.Compute | ir.Convert, Locals] = field(default_factory=dict)
    captured: dict[ir.Loop, tuple[list[Locals], list[Locals]]] = field(default_factory=dict)
    stacks: dict[ir.Loop, list[list[Locals]]] = field(default_factory=dict)

    def results(self) -> list[Locals]:
        for tensor in self.function.stored:
            whole = self.ranks.state[self.prefix + tensor.value.name]
            self.held[tensor] = self.ranks.spread(tensor.value, whole, tensor.layout)
        for instruction in self.function.instructions:
            self.one(instruction)
        return [self.held[tensor] for tensor in self.function.results]

    def one(self, instruction: ir.Instruction) -> None:
        held = self.held
        match instruction:
            case ir.Compute():
                self.compute(instruction)
            case ir.Cast() | ir.Keep():
                held[instruction.makes] = held[instruction.reads]
            case ir.Convert():
                held[instruction.makes] = self.steps(instruction.conversion.forward, instruction.reads)
            case ir.Begin():
                self.flies[instruction] = self.steps(instruction.conversion.forward, instruction.reads)
            case ir.Arrive():
                held[instruction.makes] = self.flies.pop(instruction.begun)
            case ir.StartGathers():
                self.gather(instruction.gathers)
            case ir.AwaitGathers():
                self.gather(gather for gather in instruction.gathers if gather not in self.flies)
                held.update((gather.makes, self.flies.pop(gather)) for gather in instruction.gathers)
            case ir.Open():
                outside = [held[tensor] for tensor in instruction.captured], [held[one] for one in instruction.sliced]
                self.captured[instruction.loop] = outside
                self.stacks[instruction.loop] = [[] for _ in instruction.loop.step.segment.stacked]
            case ir.Iterate():
                numbers = range(instruction.run.first, instruction.end)
                self.iterate(instruction.loop, numbers, instruction.given, instruction.makes)
                self.gather(instruction.then)
            case ir.Interleave():
                for loop, given, makes in zip(instruction.loops, instruction.given, instruction.makes, strict=True):
                    self.iterate(loop, instruction.iterations, given, makes)
                self.gather(instruction.then)
            case ir.Branch():
                decides = instruction.decides
                if self.ranks.whole(decides.value, held[decides], decides.layout).any():
                    self.iterate(instruction.loop, range(1), instruction.given, instruction.makes)
                else:
                    held.update(zip(instruction.makes, (held[one] for one in instruction.given), strict=True))
            case ir.Close():
                self.close(instruction)
            case ir.Placed():
                self.placed(instruction)
            case ir.Updates():
                self.update(instruction)

    def steps(self, steps: Sequence[Step], tensor: ir.Tensor) -> Locals:
        return run_steps(tuple(steps), self.held[tensor], self.ranks.plan.mesh, tensor.value.shape, self.ranks.library)

    def gather(self, gathers: Any) -> None:
        for gather in gathers:
            self.flies[gather] = self.steps(gather.conversion.forward, gather.reads)

    def compute(self, compute: ir.Compute) -> None:
        step, ranks = compute.step, self.ranks
        given = zip(step.node.arguments, compute.reads, step.typed.arguments, strict=True)
        arguments = [ranks.whole(value, self.held[tensor], layout) for value, tensor, layout in given]
        site = step.node.site + ranks.sites * self.iteration
        made = evaluate(
            step.node.instance,
            arguments,
            ranks.library,
            uniform=lambda _, at: uniform(at, ranks.seed, 0, site),
        )
        results = zip(step.node.results, made, step.typed.results, strict=True)
        local = [ranks.spread(value, whole, layout) for value, whole, layout in results]
        if compute.sends is None:
            self.held.update(zip(compute.makes, local, strict=True))
        else:
            shape = compute.makes[0].value.shape
            self.flies[compute] = run_steps(compute.sends.forward, local[0], ranks.plan.mesh, shape, ranks.library)

    def placed(self, placed: ir.Placed) -> None:
        """Runs operators that are placed on some devices. The other devices get zeros."""
        inside, mesh = (
            Run(self.ranks, self.function, self.prefix, self.iteration, dict(self.held)),
            self.ranks.plan.mesh,
        )
        for instruction in placed.body:
            inside.one(instruction)
        for tensor in placed.makes:
            here = [is_there(tensor.layout, mesh.coordinates(rank)) for rank in range(mesh.size)]
            local = zip(inside.held[tensor], here, strict=True)
            self.held[tensor] = [one if there else np.zeros_like(one) for one, there in local]

    def update(self, update: ir.Updates) -> None:
        for instruction in update.body:
            self.one(instruction)
        for one, tensor in update.copies:
            whole = self.ranks.whole(one.value, self.held[tensor], tensor.layout)
            self.ranks.state[self.prefix + one.buffer.name] = whole

    # ------------------------------------------------------------------------------------------ bodies

    def iterate(self, loop: ir.Loop, numbers: range, given: Sequence[ir.Tensor], makes: Sequence[ir.Tensor]) -> None:
        segment, carried = loop.step.segment, [self.held[tensor] for tensor in given]
        captured, wholes = self.captured[loop]
        for number in numbers:
            body = loop.bodies[loop.number(number)]
            parts = [
                [local.take(number, series.dim) for local in whole]
                for series, whole in zip(segment.sliced, wholes, strict=True)
            ]
            entering = zip((*body.entering, *body.captured), (*carried, *parts, *captured), strict=True)
            prefix, iteration = self.prefix + segment.paths[number], segment.count * self.iteration + number
            left = Run(self.ranks, body, prefix, iteration, dict(entering)).results()
            carried = left[: len(segment.exit)]
            for stack, made in zip(self.stacks[loop], left[len(segment.exit) :], strict=True):
                stack.append(made)
        self.held.update(zip(makes, carried, strict=True))

    def close(self, closed: ir.Close) -> None:
        stacks = zip(closed.loop.step.segment.stacked, closed.makes, self.stacks.pop(closed.loop), strict=False)
        for series, tensor, parts in stacks:
            self.held[tensor] = [np.stack(of_rank, series.dim) for of_rank in zip(*parts, strict=True)]
