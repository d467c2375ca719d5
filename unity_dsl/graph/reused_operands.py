"""Which operators of a plan may write their result into the memory of an operand, and which update a buffer in place.

A result takes the memory of an operand that nothing else reads, neither the program nor the backward pass. A buffer is
updated in place, without a copy, if the operator that makes its new value is the only one to read the old value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from ..index.equations.instance import Key
from ..index.evaluation.native_calls import changed_in_place
from ..index.library import Library
from ..index.lowering.execution import Execution
from ..index.lowering.operand_reuse import OVER, Reuse, copied_operand, makes_its_own
from ..index.lowering.operator_lowering import Lowering
from ..index.lowering.torch_term import Term, Variable
from ..syntax.ast import NativeCall
from .graph import Model, Value
from .layout import Mesh
from .layout_typing import Configuration, TypedOperator
from .local_executions import execution_of
from .local_lowering import differs_in_evaluation, training_lowering
from .plan import PlannedGraph, PlannedNode, PlannedSegment
from .precision import arithmetic, operand_types, result_types


def with_reused_operands(
    graph: PlannedGraph, model: Model, mesh: Mesh, library: Library, recomputed: Collection[str]
) -> PlannedGraph:
    """The plan of a model with the memory that its operators reuse, in bodies too. `recomputed` are segment paths."""
    left = {value.name for value in model.returned}
    return _Marking(mesh, library, recomputed).marked(graph, left, "", again=False)


def updated_in_place(graph: PlannedGraph) -> frozenset[str]:
    """The buffers of a graph that operators change in place."""
    return frozenset(
        step.node.arguments[operand].name
        for step in graph.steps
        if isinstance(step, PlannedNode)
        for _, operand in step.typed.reuse.states
    )


@dataclass(frozen=True)
class _Marking:
    mesh: Mesh
    library: Library
    recomputed: Collection[str]

    def marked(self, graph: PlannedGraph, left: Collection[str], prefix: str, *, again: bool) -> PlannedGraph:
        """The graph with its reuses. `left` names the values that are read after the graph. A graph that is run `again`
        has to find its buffers unchanged, so it does not update them in place.
        """
        found = _Reading(graph, left, self.mesh, self.library)
        steps: list[PlannedNode | PlannedSegment] = []
        for step in graph.steps:
            if isinstance(step, PlannedSegment):
                steps.append(self.segment(step, prefix, again))
                continue
            states = () if again else tuple(found.states(step))
            reuse = Reuse(states, None if states else found.over(step))
            typed = step.typed if reuse == step.typed.reuse else replace(step.typed, reuse=reuse)
            steps.append(step if typed is step.typed else replace(step, typed=typed))
        return replace(graph, steps=tuple(steps))

    def segment(self, planned: PlannedSegment, prefix: str, again: bool) -> PlannedSegment:
        segment, path = planned.segment, prefix + planned.segment.name
        left = {value.name for value in segment.leaves}
        again = again or path in self.recomputed
        runs = [replace(run, body=self.marked(run.body, left, f"{path}.", again=again)) for run in planned.runs]
        return replace(planned, runs=tuple(runs))


class _Reading:
    """How often values of a graph are read, and what makes them."""

    def __init__(self, graph: PlannedGraph, left: Collection[str], mesh: Mesh, library: Library) -> None:
        self.graph, self.mesh, self.library = graph, mesh, library
        self.reads = Counter(value.name for step in graph.graph.steps for value in step.reads)
        self.reads.update(update.value.name for update in graph.graph.updates)
        self.reads.update(left)
        self.becoming: dict[str, list[str]] = {}  # by value, the buffers that it is the new value of
        for update in graph.graph.updates:
            self.becoming.setdefault(update.value.name, []).append(update.buffer.name)
        self.makers: Mapping[str, tuple[PlannedNode, int]] = {
            value.name: (step, number)
            for step in graph.steps
            if isinstance(step, PlannedNode)
            for number, value in enumerate(step.node.results)
        }

    def states(self, step: PlannedNode) -> Iterator[tuple[int, int]]:
        """The results of a native call that are new values of buffers which it may change in place."""
        node, changed = step.node, changed_in_place(step.node.instance.operator.torch)
        if not changed or not step.native:
            return
        for number, (value, output) in enumerate(zip(node.results, node.instance.outputs, strict=True)):
            buffers = self.becoming.get(value.name, [])
            if output.name in changed and len(buffers) == 1 and self.reads[value.name] == 1:
                lowering = self.lowering(step)
                operand = copied_operand(lowering, number) if lowering.native else None
                if operand is not None and node.arguments[operand].name == buffers[0]:
                    if self.reads[buffers[0]] == 1 and self.is_same(step, operand, number):
                        yield number, operand

    def over(self, step: PlannedNode) -> int | None:
        """The operand into whose memory an operator writes its only result, in training and outside; None if none."""
        declared = step.node.instance.operator.torch
        if not isinstance(declared, NativeCall) or declared.function not in OVER or step.node.instance.evaluation:
            return None
        made = self.lowering(step).statements
        if len(made) == 1 and not made[0].value.keywords:
            arguments = made[0].value.arguments
            for place in OVER.get(made[0].value.operation, ()):
                match arguments[place]:
                    case Term("name", (Variable(operand),)) if self.is_same(step, operand, 0):
                        if self.is_free(step.node.arguments[operand]):
                            return operand
        return None

    def is_same(self, step: PlannedNode, operand: int, result: int) -> bool:
        """Whether an operand is read as it was made and matches the result in shape, type and layout."""
        node, typed = step.node, step.typed
        given, made = node.arguments[operand], node.results[result]
        dtype = arithmetic(node, step.native, self.library)
        types = {given.dtype, made.dtype, operand_types(node, dtype)[operand], result_types(node, dtype)[result]}
        planned = self.graph.values.get(given.name)
        return (
            planned is not None
            and not planned.materialised
            and planned.produced == typed.arguments[operand] == typed.results[result]
            and not (typed.results[result].placement or typed.windows or given.is_cast)
            and given.shape == made.shape
            and given.needs_gradient == made.needs_gradient
            and len(types) == 1
        )

    def is_free(self, value: Value) -> bool:
        """Whether a value has a storage of its own that one operator and no backward pass reads."""
        maker, number = self.makers.get(value.name, (None, 0))
        if maker is None or self.reads[value.name] != 1 or maker.placement:
            return False
        node, typed = maker.node, replace(maker.typed, native=maker.native)
        dtype = arithmetic(node, maker.native, self.library)
        if result_types(node, dtype)[number] != value.dtype:
            return False
        if differs_in_evaluation(node.instance, typed, self.library):
            return False
        run = execution_of(maker, (None,) * len(node.arguments), self.mesh, self.library)
        return is_its_own(self.lowering(maker), run, number)

    def lowering(self, step: PlannedNode) -> Lowering:
        typed = replace(step.typed, native=step.native)
        identity = step.node.instance.identity
        return _lowering(_Case(identity, step.native, typed.configuration, self.mesh, self.library, typed))


@dataclass(frozen=True)
class _Case:
    """What the lowering of an operator depends on; `typed` follows from the rest."""

    identity: Key
    native: bool
    configuration: Configuration
    mesh: Mesh
    library: Library
    typed: TypedOperator = field(compare=False)


@lru_cache(maxsize=4096)
def _lowering(case: _Case) -> Lowering:
    return training_lowering(case.identity.instance, case.typed, case.mesh, case.library)


def is_its_own(lowering: Lowering, run: Execution, number: int) -> bool:
    """Whether a result of an operator has a storage of its own that the operator's backward pass does not read."""
    variable, storage = lowering.results[number], run.outputs[number].storage
    made = next((found.value for found in lowering.statements if variable in found.variables), None)
    alone = sum(tensor.storage is storage for tensor in run.outputs) == 1
    return made is not None and makes_its_own(made) and alone and storage in run.built and storage not in run.saved
