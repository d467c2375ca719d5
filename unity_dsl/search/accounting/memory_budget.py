"""The memory that a plan may use on each device, and its peak memory: that of the simulated step's tasks.

Counted are weights and buffers as they are stored, the moments of AdamW, gradients while they exist, activations, and
what operators and collectives hold while they run. Not counted is what the allocator cannot use. Bodies whose execution
depends on data are taken to be executed, all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import ceil

from ...graph.plan import BatchDivision, Memory, Plan, PlannedGraph
from ...index.library import Library
from ...machine.byte_count import describe_bytes
from ...machine.machine import Machine
from ...simulation.step_memory import most_held
from ...syntax.diagnostic import Diagnostic, warn
from .memory_prediction import predict_memory, stored_memory

SURELY = 1.02
"""Factor on the bytes of a device. A plan that keeps more at the end of the forward pass surely does not fit. This
check is faster than finding peak memory. The margin is for the lifetimes of a few small tensors.
"""


@dataclass(frozen=True)
class Budget:
    """The memory that plans may use on each device of a machine. With a `division`, a step runs its batch in
    micro-batches, and plans are those of one micro-batch. `known` has the plans that were counted before.
    """

    machine: Machine
    library: Library
    division: BatchDivision | None = None
    known: dict[object, tuple[PlannedGraph, Memory]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def bytes(self) -> float:
        return self.machine.memory_bytes

    def fits(self, plan: Plan) -> bool:
        """Whether the memory of a plan that was counted is within the budget."""
        return plan.cost.memory.total <= self.bytes

    def held(self, plan: Plan) -> Memory:
        """The peak memory of a plan on a device."""
        key = id(plan.graph), plan.mesh.degrees, plan.passes
        if key not in self.known:
            self.known[key] = plan.graph, self._held(plan)
        return self.known[key][1]

    def held_if_kept(self, plan: Plan) -> Memory:
        """The same if the plan recomputed nothing in the backward pass."""
        return self.held(plan.with_passes(recomputed=frozenset(), kept_iterations={}))

    def _held(self, plan: Plan) -> Memory:
        most, place = most_held(replace(plan, division=self.division), self.machine, self.library)
        stored = stored_memory(plan.graph, plan.mesh, place)
        optimizer = 0.0 if plan.model.loss is None else stored.optimizer
        others = stored.parameters + stored.buffers + optimizer + most.gradients
        return Memory(
            stored.parameters, stored.buffers, most.gradients, optimizer, max(0.0, most.bytes - others), most.at
        )

    def is_beyond(self, plan: Plan) -> bool:
        """Whether a plan surely does not fit, by what it keeps when the backward pass begins."""
        found = predict_memory(
            plan.model,
            plan.graph,
            plan.mesh,
            self.library,
            regathered=plan.passes.regathered,
            recomputed=plan.passes.recomputed,
            kept_iterations=plan.passes.kept_iterations,
        )
        gradients = found.gradients if self.division is None else 0.0
        return found.total - gradients > SURELY * self.bytes


def memory_warnings(memory: Memory, machine: Machine) -> Iterator[Diagnostic]:
    """W301 if a device has less memory than the plan needs."""
    if memory.total <= machine.memory_bytes:
        return
    parts = {
        "parameters": memory.parameters + memory.buffers,
        "their gradients": memory.gradients,
        "the optimizer": memory.optimizer,
        "activations": memory.activations,
    }
    shares = ", ".join(f"{name} {describe_bytes(count)}" for name, count in parts.items())
    at = f", in {memory.at}" if memory.at else ""
    yield warn(
        "W301",
        f"every device would hold {describe_bytes(memory.total)}, and there are {describe_bytes(machine.memory_bytes)}",
        label=shares + at,
        help=_remedy(memory, machine.memory_bytes),
    )


def _remedy(memory: Memory, limit: float) -> str:
    """Advice to make a plan fit: smaller activations, if there is room for everything else."""
    room = limit - (memory.total - memory.activations)
    if room <= 0:
        return (
            "parameters, gradients and the optimizer do not fit by themselves: more devices hold smaller slices of "
            "them, and a dtype of two bytes takes half"
        )
    part = f"1/{ceil(memory.activations / room)}"
    how = " (`--micro-batches` accumulates gradients)" if memory.gradients or memory.optimizer else ""
    return f"activations would fit with {part} of the batch{how}, or on more devices"
