"""Deferred weight gradients: computed after the other operand's gradient, overlapped with communication of a gradient.

The backward pass needs the gradient of a product's weight only at the end of the step, but the gradient of the other
operand at once. While that gradient, or one computed from it, is sent to other devices, the weight gradients of
products before it are computed (delayed wgrad, as in Megatron-LM and in zero-bubble schedules, Qi et al. 2024).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..index.library import Library
from ..index.lowering.einsum_gradients import gradient_is_copied, gradients_are_einsums
from ..index.lowering.operand_reuse import NO_REUSE
from ..index.lowering.operator_lowering import Lowering
from ..index.lowering.torch_term import Argument, Term, Variable
from .collective_steps import BEGUN
from .graph import Value
from .layout import Layout, Mesh
from .layout_conversion import Conversions
from .local_lowering import evaluation_lowering, training_lowering
from .plan import Plan, PlannedGraph, PlannedNode, PlannedSegment


@dataclass(frozen=True)
class WeightProduct:
    """A product by a weight: `torch.einsum` or `F.linear`, a `term` in the lowering of the operator `step`. Its second
    factor depends on operand number `weight` alone, which nothing else in the operator reads.
    """

    step: PlannedNode
    weight: int
    term: Term

    @property
    def function(self) -> str:
        """`einsum` or `linear`."""
        return self.term.operation.rpartition(".")[2]

    @property
    def factor(self) -> int:
        """Which argument of the term is the second factor."""
        return 2 if self.function == "einsum" else 1

    @property
    def spec(self) -> str:
        """The subscripts of an einsum."""
        (spec, *_) = self.term.arguments
        assert isinstance(spec, Term)
        return str(spec.arguments[0]).strip('"')

    @property
    def copied(self) -> bool:
        """Whether an einsum reads the weight as stored and autograd would copy the gradient into the weight's order."""
        factor = self.term.arguments[self.factor]
        as_it_lies = isinstance(factor, Term) and factor.operation == "name"
        return self.function == "einsum" and as_it_lies and gradient_is_copied(self.spec)


DeferredGradients = Mapping[tuple[str, Layout], tuple[WeightProduct, ...]]
"""By value and the layout to which it is converted: the products whose weight gradients are overlapped with the
conversion of the value's gradient, in the order of their computation.
"""


def defers_gradients(plan: Plan, library: Library) -> bool:
    """Whether a plan has weight gradients that can be deferred."""
    graphs = [plan.graph]
    for graph in graphs:
        if deferred_gradients(graph, plan.conversions, plan.mesh, library):
            return True
        graphs += [run.body for step in graph.steps if isinstance(step, PlannedSegment) for run in step.runs]
    return False


def deferred_gradients(
    planned: PlannedGraph, conversions: Conversions, mesh: Mesh, library: Library
) -> DeferredGradients:
    """The products of a graph whose weight gradients are deferred, without its bodies.

    In backward order, all products not placed yet are spread over the conversions up to the next product, the first
    ones to the first conversion. No weight gradient is deferred until after a body.
    """
    if any(step.placement for step in planned.steps if isinstance(step, PlannedNode)):
        return {}
    found: dict[tuple[str, Layout], tuple[WeightProduct, ...]] = {}
    pending: list[WeightProduct] = []
    sent: list[tuple[str, Layout]] = []

    def spread() -> None:
        for number, key in enumerate(sent):
            count = -(-len(pending) // (len(sent) - number))
            if count:
                found[key] = tuple(reversed(pending[:count]))
                del pending[:count]
        sent.clear()

    events = list(_forward_order(planned, conversions))
    if not any(isinstance(event, tuple) for event in events):
        return {}
    weights = {weight.value.name for weight in planned.graph.weights}
    for event in reversed(events):
        if isinstance(event, tuple):
            sent.append(event)
        elif isinstance(event, PlannedSegment):
            spread()
            pending.clear()
        elif any(value.name in weights for value in event.node.arguments):
            product = weight_product(event, mesh, library)
            if product is not None and event.node.arguments[product.weight].name in weights:
                spread()
                pending.append(product)
    spread()
    return found


def _forward_order(
    planned: PlannedGraph, conversions: Conversions
) -> Iterator[PlannedNode | PlannedSegment | tuple[str, Layout]]:
    """The steps, each operator after the conversions for it whose gradients are communicated. A body's are left out."""
    made: set[tuple[str, Layout]] = set()

    def converted(value: Value, layout: Layout) -> Iterator[tuple[str, Layout]]:
        known = planned.values.get(value.name)
        if known is None or layout == known.produced or (value.name, layout) in made:
            return
        made.add((value.name, layout))
        source = next((found.source for found in known.materialised if found.layout == layout), known.produced)
        yield from converted(value, source)
        if value.needs_gradient and not value.is_weight:
            back = conversions.conversion(source, layout, value.shape, value.bytes, value.stored_bytes).backward
            if back and back[-1].kind in BEGUN:
                yield value.name, layout

    for step in planned.steps:
        if isinstance(step, PlannedNode):
            for value, layout in zip(step.node.arguments, step.typed.arguments, strict=True):
                yield from converted(value, layout)
        else:
            for value, layout in _entering(step):
                list(converted(value, layout))
        yield step


def _entering(step: PlannedSegment) -> Iterator[tuple[Value, Layout]]:
    """The values that a body takes, with the layouts in which it takes them."""
    yield from step.border.reads(step.segment)
    if step.segment.predicate is None:
        for value, entry in zip(step.segment.initial, step.segment.entry, strict=True):
            yield value, step.runs[0].body.values[entry.name].produced


# ---------------------------------------------------------------------------------------------- of one operator


def weight_product(step: PlannedNode, mesh: Mesh, library: Library) -> WeightProduct | None:
    """The product of an operand and a weight, both with gradients, that an operator computes. The operator may process
    the product's result further. None if there is no such product.
    """
    node, typed = step.node, step.typed
    if len(node.results) != 1 or typed.inner or typed.reuse != NO_REUSE or sum(node.gradients) < 2:
        return None
    numbers = [place for place, value in enumerate(node.arguments) if value.is_weight and node.gradients[place]]
    if not numbers or evaluation_lowering(node.instance, typed, mesh, library) is not None:
        return None
    lowering = training_lowering(node.instance, typed, mesh, library)
    return next(filter(None, (_product(lowering, number, step) for number in numbers)), None)


def _product(lowering: Lowering, weight: int, step: PlannedNode) -> WeightProduct | None:
    """The product whose second factor depends on operand `weight` alone, if nothing else reads that operand."""
    terms = [term for statement in lowering.statements for term in _within(statement.value)]
    read = [term for term in terms if term == Term("name", (Variable(weight),), term.axes, term.sort)]
    products = [term for term in terms if term.operation in ("F.linear", "torch.einsum")]
    if len(read) != 1 or len(products) != 1:
        return None
    (term,) = products
    found = WeightProduct(step, weight, term)
    if (
        term.keywords
        or len(term.arguments) <= found.factor
        or (found.function == "einsum" and not gradients_are_einsums(found.spec))
    ):
        return None
    first, second = term.arguments[found.factor - 1], term.arguments[found.factor]
    moving = {place for place, needed in enumerate(step.node.gradients) if needed}
    known = {number for term in _within(second) for number in _variables(term)}
    given = {number for term in _within(first) for number in _variables(term)}
    bias = term.operation == "F.linear" and isinstance(first, Term) and len(first.axes) < 2
    return found if known == {weight} and given & moving and not bias else None


def _within(argument: Argument) -> Iterator[Term]:
    """The term and all terms in it."""
    match argument:
        case Term():
            yield argument
            parts: Sequence[Argument] = (*argument.arguments, *(value for _, value in argument.keywords))
        case tuple() | list():
            parts = argument
        case _:
            return
    for part in parts:
        yield from _within(part)


def _variables(term: Term) -> Iterator[int]:
    yield from (argument.number for argument in term.arguments if isinstance(argument, Variable))
