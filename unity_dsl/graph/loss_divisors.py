"""Divisors of loss terms that differ from batch to batch: counted positions, sums of weights.

A mean over counted positions is a sum over the examples of a batch, divided by another such sum. The mean over several
batches is not the mean of their means: each term is weighted by its divisor. The divisor is known before a step if
inputs alone determine it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ..index.axes.linearity import linear_operands
from ..index.equations.instance import Equation, Instance, Operand
from ..index.equations.term import reads, rewrite, walk
from ..syntax.ast import Apply, Expr, Read, ReductionKind, Uniform
from ..syntax.span import Span
from .graph import Graph, Model, Node, Segment, computed_from


@dataclass(frozen=True)
class SummedWeights:
    """The summands of a sum over a batch: an operator that computes them from `arguments`, which inputs determine."""

    instance: Instance
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class DividedTerm:
    """A term of the loss, by its value's name. The operator `divisor` computes its divisor from the sums."""

    value: str
    divisor: Instance
    sums: tuple[SummedWeights, ...]
    span: Span | None


@dataclass(frozen=True)
class Unweighted:
    """A term of the loss whose divisor is not known before a step, and why."""

    reason: str
    span: Span | None


def divided_terms(model: Model) -> tuple[DividedTerm | Unweighted, ...]:
    """The terms of a model's loss whose divisor differs from batch to batch."""
    if model.loss is None:
        return ()
    return tuple(_Terms(model.graph).of(model.loss.name))


def steps_of_sums(model: Model, terms: tuple[DividedTerm, ...]) -> tuple[Node, ...]:
    """The operators that compute the arguments of the terms' sums from inputs, in the order of the model."""
    wanted = {name for term in terms for found in term.sums for name in found.arguments}
    values = [value for step in model.graph.steps for value in step.makes if value.name in wanted]
    _, numbers = computed_from(model.graph, values)
    steps = (step for number, step in enumerate(model.graph.steps) if number in numbers)
    return tuple(step for step in steps if isinstance(step, Node))


class _Terms:
    """Follows a loss through operators that are linear in what they read."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.makers = {value.name: step for step in graph.steps for value in step.makes}
        self.inputs = {given.value.name for given in graph.inputs}
        self.values = {value.name: value for step in graph.steps for value in step.makes}
        self.values |= {given.value.name: given.value for given in graph.inputs}
        self.seen: set[str] = set()

    def of(self, name: str) -> Iterator[DividedTerm | Unweighted]:
        step = self.makers.get(name)
        if step is None or name in self.seen:
            return
        self.seen.add(name)
        if isinstance(step, Segment):
            yield from self.inside(step)
            return
        found = self.divided(step, name)
        if found is not None:
            yield found
            return
        operands = max(linear_operands(step.instance), key=len, default=())
        for number in operands:
            yield from self.of(step.arguments[number].name)

    def inside(self, segment: Segment) -> Iterator[Unweighted]:
        """The first operator of a body that divides by a sum over a batch, if any. Its divisor is not followed."""
        for node in segment.body.nodes():
            for output in node.instance.outputs:
                if any(self.sums_over_batch(node, divisor) for divisor in _divisors(node.instance, output.name)):
                    reason = f"`{node.instance.name}` in `{segment.name}` divides by a sum over a batch"
                    yield Unweighted(reason, node.span)
                    return

    def divided(self, node: Node, name: str) -> DividedTerm | Unweighted | None:
        """The term that an operator's result is, if the operator divides by a sum over the examples of a batch."""
        number = next(place for place, value in enumerate(node.results) if value.name == name)
        instance, output = node.instance, node.instance.outputs[number].name
        found = [divisor for divisor in _divisors(instance, output) if self.sums_over_batch(node, divisor)]
        if not found:
            return None
        if len(found) > 1:
            return Unweighted(f"`{instance.name}` divides by several sums over a batch", node.span)
        (divisor,) = found
        equations = {equation.target.name: equation for equation in instance.equations}
        sums: list[SummedWeights] = []
        operands: list[Operand] = []
        renamed: dict[Read, Read] = {}
        for read in dict.fromkeys(reads(divisor)):
            summed = self.summed(node, equations, read)
            if summed is None:
                reason = f"`{instance.name}` divides by `{read.tensor}`, which is no sum that inputs alone determine"
                return Unweighted(reason, node.span)
            operand = Operand(f"s{len(sums)}", ())
            renamed[read] = replace(read, tensor=operand.name, index=())
            operands.append(operand)
            sums.append(summed)
        made = Operand("divisor", ())
        value = rewrite(divisor, lambda part: renamed.get(part, part) if isinstance(part, Read) else part)
        operator = _derived(instance, f"{instance.name}_divisor", operands, made, (Equation(made, value),))
        return DividedTerm(name, operator, tuple(sums), node.span)

    def summed(self, node: Node, equations: Mapping[str, Equation], read: Read) -> SummedWeights | None:
        """What a divisor reads, as a sum that inputs determine; None if it is none. A statement of the operator makes
        the sum, or another operator.
        """
        equation = equations.get(read.tensor)
        if equation is None:
            value = node.arguments[[operand.name for operand in node.instance.inputs].index(read.tensor)]
            maker = self.makers.get(value.name)
            if not isinstance(maker, Node) or len(maker.results) != 1:
                return None
            node, equations = maker, {equation.target.name: equation for equation in maker.instance.equations}
            equation = equations[maker.instance.outputs[0].name]
        if equation.kind is not ReductionKind.SUM or equation.target.dims:
            return None
        weights = Operand("weights", tuple((axis,) for axis in equation.over))
        last = Equation(weights, equation.value)
        needed = [*_needed(equations, equation.value), last]
        names = {found.tensor for one in needed for found in reads(one.value)}
        given = [
            (operand, value)
            for operand, value in zip(node.instance.inputs, node.arguments, strict=True)
            if operand.name in names
        ]
        if not all(self.known(value.name) for _, value in given) or _draws(needed):
            return None
        name = f"{node.instance.name}_weights"
        instance = _derived(node.instance, name, [operand for operand, _ in given], weights, tuple(needed))
        return SummedWeights(instance, tuple(value.name for _, value in given))

    def sums_over_batch(self, node: Node, divisor: Expr) -> bool:
        """Whether a divisor is a sum over examples: by a statement, or as a scalar that is computed from inputs."""
        equations = {equation.target.name: equation for equation in node.instance.equations}
        batch = {operand.dims[0][0] for operand in node.instance.inputs if operand.dims and operand.dims[0]}
        if any(batch & set(equation.over) for equation in _needed(equations, divisor)):
            return True
        scalars = {
            operand.name: value
            for operand, value in zip(node.instance.inputs, node.arguments, strict=True)
            if not operand.dims and value.name in self.makers
        }
        return any(self.reads_input(scalars[read.tensor].name) for read in reads(divisor) if read.tensor in scalars)

    def reads_input(self, name: str) -> bool:
        names, _ = computed_from(self.graph, [self.values[name]])
        return not self.inputs.isdisjoint(names)

    def known(self, name: str) -> bool:
        """Whether a value is computed from inputs alone, by operators that are not extern and draw no numbers."""
        if name not in self.values:
            return False
        names, numbers = computed_from(self.graph, [self.values[name]])
        weights = {weight.value.name for weight in self.graph.weights}
        buffers = {buffer.value.name for buffer in self.graph.buffers}
        return names.isdisjoint(weights | buffers) and all(_is_text(self.graph.steps[number]) for number in numbers)


def _is_text(step: Node | Segment) -> bool:
    """Whether a step is an operator that is defined by statements and draws no random numbers."""
    return isinstance(step, Node) and not step.instance.extern and not step.instance.draws


def _divisors(instance: Instance, output: str) -> Iterator[Expr]:
    """The divisors on the way to an output, except numbers and sizes."""
    equations = {equation.target.name: equation for equation in instance.equations}
    if output not in equations:
        return
    for equation in (*_needed(equations, equations[output].value), equations[output]):
        for part in walk(equation.value):
            if isinstance(part, Apply) and part.function == "/" and any(reads(part.arguments[1])):
                yield part.arguments[1]


def _needed(equations: Mapping[str, Equation], value: Expr) -> list[Equation]:
    """The equations on which a term depends, in their order."""
    names: set[str] = set()
    left = [read.tensor for read in reads(value)]
    while left:
        name = left.pop()
        if name in equations and name not in names:
            names.add(name)
            left += [read.tensor for read in reads(equations[name].value)]
    return [equation for name, equation in equations.items() if name in names]


def _draws(equations: list[Equation]) -> bool:
    return any(isinstance(part, Uniform) for equation in equations for part in walk(equation.value))


def _derived(
    instance: Instance, name: str, inputs: list[Operand], output: Operand, equations: tuple[Equation, ...]
) -> Instance:
    """A part of an operator as an operator of its own, without a native call."""
    axes = {axis for equation in equations for axis in equation.space}
    operator = replace(instance.operator, name=name, torch=None, numpy=None)
    return replace(
        instance,
        operator=operator,
        inputs=tuple(inputs),
        outputs=(output,),
        sizes={axis: size for axis, size in instance.sizes.items() if axis in axes},
        equations=equations,
        evaluation=(),
        native=False,
        declared={},
    )
