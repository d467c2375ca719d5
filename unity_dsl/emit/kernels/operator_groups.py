"""Groups of operators of a plan that run as one kernel, and the values that they read and make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ...graph.emitted_kernels import emitted_kernels
from ...graph.graph import Value
from ...graph.layout import Layout, Mesh
from ...graph.local_lowering import division_of
from ...graph.plan import PlannedGraph, PlannedNode, PlannedSegment
from ...graph.precision import operand_types, result_types
from ...index.cost.lowering_class import LoweringClass, lowering_class
from ...index.kernels.fusion import Applied, Fusion, fuse
from ...index.kernels.kernel_steps import kernel_steps
from ...index.kernels.step_schedule import Contraction
from ...index.library import Library
from ...index.lowering.torch_term import Term
from ...machine.contraction_price import KernelStepPrices
from ...machine.machine import Machine
from .contraction_choice import ContractionChoice, ContractionPrice
from .kernel_functions import FusedOperator, fused_operator
from .positions import Local

Candidate = tuple["OperatorGroup", list[PlannedNode]]
"""A group, and the steps between its own that it leaves out."""
LOOK_AHEAD = 12
"""How many steps are looked at for one kernel. Attention is one kernel only together with its last product."""


@dataclass(frozen=True)
class OperatorGroup:
    """Operators, in order, that run as one kernel. A group chosen for its matrix product has a `price`.

    `reads` and `makes` are values with their layouts, in the order of the fused instance's operands. `starts` are terms
    whose sums are the positions at which divided axes begin.
    """

    nodes: tuple[PlannedNode, ...]
    fused: FusedOperator
    local: Local
    starts: Mapping[str, Sequence[Term]]
    reads: tuple[tuple[Value, Layout], ...]
    makes: tuple[tuple[Value, Layout], ...]
    site: int
    price: ContractionPrice | None = None

    @property
    def dtype(self) -> str:
        """The type of all its floats."""
        return self.nodes[0].node.dtype

    @property
    def factor_type(self) -> str:
        """The type of the factors of all its products."""
        return self.nodes[0].node.factor_type

    @property
    def needs(self) -> tuple[bool, ...]:
        """For each value that it reads, whether it makes the gradient."""
        return tuple(number in self.fused.wrt for number in range(len(self.reads)))


@dataclass(frozen=True)
class Grouping:
    """Groups the operators of a graph. `leaving` are the values that are read outside of it. With `detached` no
    gradients are needed. `contractions` chooses the matrix products that are in groups.
    """

    mesh: Mesh
    library: Library
    planned: PlannedGraph
    leaving: Collection[str]
    detached: bool = False
    contractions: ContractionChoice | None = None

    @cached_property
    def readers(self) -> Mapping[str, int]:
        """The number of steps of the graph that read a value."""
        return Counter(name for step in self.planned.steps for name in {value.name for value in _reads(step)})

    def groups(self, steps: Sequence[PlannedNode]) -> Iterator[OperatorGroup | PlannedNode]:
        """The steps, those of one kernel together, in an order in which each comes after what it reads."""
        left = list(steps)
        while left:
            found = self.longest(left)
            if found is None:
                yield left.pop(0)
                continue
            group, before = found
            taken = {id(step) for step in (*group.nodes, *before)}
            yield from self.groups(before)
            yield group
            left = [step for step in left if id(step) not in taken]

    def longest(self, steps: Sequence[PlannedNode]) -> Candidate | None:
        """The group that begins at the first step and has the most operators, or the matrix product that saves most."""
        found = list(self.candidates(steps))
        longest = next((one for one in reversed(found) if not one[0].fused.contracts and self.pays(one[0])), None)
        products = [one for one in found if one[0].fused.contracts]
        if self.contractions is None or not products or (longest and longest[0].fused.keeps_no_product):
            return longest
        return self.cheapest(steps[:LOOK_AHEAD], products, self.contractions) or longest

    def cheapest(
        self, steps: Sequence[PlannedNode], products: Sequence[Candidate], choice: ContractionChoice
    ) -> Candidate | None:
        """The group with a matrix product with which the steps take the least time; None if no group is faster than the
        products apart.
        """
        others = replace(self, contractions=None)
        apart = others.seconds(steps, choice.machine)
        found: dict[tuple[str, ...], tuple[ContractionPrice, Candidate]] = {}
        for group, aside in products:
            if self.pays(group):
                taken = {id(step) for step in group.nodes}
                fused = group_seconds(group, choice.machine)
                left = others.seconds([step for step in steps if id(step) not in taken], choice.machine)
                found[results_of(group.nodes)] = ContractionPrice(fused, apart - left), (group, aside)
        best = choice.best(results_of(steps), {names: price for names, (price, _) in found.items()})
        if best not in found:
            return None
        price, (group, aside) = found[best]
        return replace(group, price=price), aside

    def seconds(self, steps: Sequence[PlannedNode], machine: Machine) -> float:
        """The seconds that steps take in their groups. Operators that kernels do not compute are left out."""
        total = 0.0
        for found in self.groups(steps):
            group = self.alone(found) if isinstance(found, PlannedNode) and not is_view(found) else found
            if isinstance(group, OperatorGroup):
                total += group_seconds(group, machine, vendor=group is not found)
        return total

    def candidates(self, steps: Sequence[PlannedNode]) -> Iterator[Candidate]:
        """The groups that begin at the first step, each with the steps in between that it does not need. A view of
        another value joins the group if only a member reads it.
        """
        members, aside = [steps[0]], list[PlannedNode]()
        for step in (None, *steps[1:LOOK_AHEAD]):
            if step is not None:
                made = {value.name for member in members for value in member.node.results}
                read = {value.name for value in step.node.arguments}
                if not read & made:
                    aside.append(step)
                    continue
                views = [other for other in aside if is_view(other) and self.is_only_for(read, other)]
                aside = [other for other in aside if other not in views]
                members = [*members, *views, step]
            if not _together(members):
                break
            found = self.group(members)
            if found is not None:
                yield found, list(aside)

    def is_only_for(self, read: Collection[str], step: PlannedNode) -> bool:
        """Whether the result of a step is among the values that another step reads, and nothing else reads it."""
        (value,) = step.node.results
        return value.name in read and self.readers[value.name] == 1 and value.name not in self.leaving

    def group(self, nodes: Sequence[PlannedNode]) -> OperatorGroup | None:
        """These operators as a group, if they are one kernel in the forward and run on the same slices; else None."""
        inside = Counter(name for step in nodes for name in {value.name for value in step.node.arguments})
        made = [value.name for step in nodes for value in step.node.results]
        wanted = {
            name for name in made if name in self.leaving or name not in inside or self.readers[name] > inside[name]
        }
        fusion = fuse([_applied(step) for step in nodes], wanted)
        if fusion is None:
            return None
        steps = kernel_steps(fusion.instance) or ()
        left = self.contractions is None and any(isinstance(step.kernel, Contraction) for step in steps)
        return self.fused(nodes, fusion) if len(steps) == 1 and not left else None

    def alone(self, node: PlannedNode) -> OperatorGroup | None:
        """A single operator as kernels, however many; None if it has none."""
        fusion = fuse([_applied(node)], [value.name for value in node.node.results])
        return None if fusion is None or not _is_local(node) else self.fused([node], fusion)

    def pays(self, group: OperatorGroup) -> bool:
        """Whether one kernel replaces several of torch's. A view at the end must be the only result."""
        last = group.nodes[-1]
        if is_view(last) and [value for value, _ in group.makes] != [*last.node.results]:
            return False
        launched = 0
        for step in group.nodes:
            typed = replace(step.typed, native=step.native)
            needs = step.node.gradients
            launched += emitted_kernels(step.node.instance, typed, self.mesh, self.library, needs, 4).forward
        return launched > 1

    def fused(self, nodes: Sequence[PlannedNode], fusion: Fusion) -> OperatorGroup | None:
        """The operators as a group; None if their slices differ, or if they read one value in two layouts: a kernel has
        one tensor for each value.
        """
        parts = self.local(nodes, fusion)
        if parts is None:
            return None
        local, starts = parts
        values: dict[str, tuple[Value, Layout]] = {}
        for step in nodes:
            for value, layout in zip(step.node.arguments, step.typed.arguments, strict=True):
                if values.setdefault(value.name, (value, layout))[1] != layout:
                    return None
            for value, layout in zip(step.node.results, step.typed.results, strict=True):
                values[value.name] = value, layout
        backward = not self.detached and any(values[name][0].needs_gradient for name in fusion.makes)
        needs = [backward and values[name][0].needs_gradient for name in fusion.reads]
        prices = None if self.contractions is None else self.contractions.prices(nodes[0].node.factor_type)
        found = fused_operator(fusion.instance.name, fusion.instance, local, self.library, needs, prices)
        if found is None:
            return None
        reads, makes = (tuple(values[name] for name in names) for names in (fusion.reads, fusion.makes))
        site = next((step.node.site for step in nodes if step.node.site), 0)
        return OperatorGroup(tuple(nodes), found, local, starts, reads, makes, site)

    def local(self, nodes: Sequence[PlannedNode], fusion: Fusion) -> tuple[Local, Mapping[str, Sequence[Term]]] | None:
        """The slices of all operators and where they begin; None if the slices differ."""
        sizes: dict[str, int] = {}
        starts: dict[str, Sequence[Term]] = {}
        divided: dict[str, tuple[int, ...]] = {}
        for step, names in zip(nodes, fusion.axes, strict=True):
            division = division_of(step.node.instance, step.typed, self.mesh, self.library)
            for axis, name in names.items():
                over = tuple(step.typed.divided.get(axis, ()))
                size = step.typed.local_sizes[axis]
                if sizes.setdefault(name, size) != size or divided.setdefault(name, over) != over:
                    return None
                begins = division.start(axis, 1) if over else None
                if begins is not None:
                    starts[name] = begins
        named = {name: f"{name}_start" for name in starts}
        within = frozenset(name for name, over in divided.items() if over)
        return Local(sizes, named, within), {named[name]: terms for name, terms in starts.items()}


def group_seconds(group: OperatorGroup, machine: Machine, vendor: bool = False) -> float:
    """The seconds that a group takes, forward and backward. With `vendor` its products are those of the vendor's
    library.
    """
    return KernelStepPrices(machine, group.factor_type).seconds(group.fused.steps, group.local.sizes, vendor)


def results_of(nodes: Sequence[PlannedNode]) -> tuple[str, ...]:
    """The names of the values that operators make."""
    return tuple(value.name for step in nodes for value in step.node.results)


def _together(nodes: Sequence[PlannedNode]) -> bool:
    """Whether operators could be one kernel: local, of one float type, each reading from earlier ones, at most one
    random.
    """
    if sum(step.node.site > 0 for step in nodes) > 1 or len({step.node.dtype for step in nodes}) > 1:
        return False
    return all(map(_is_local, nodes)) and _hand_on(nodes)


def is_view(step: PlannedNode) -> bool:
    return lowering_class(step.node.instance) is LoweringClass.VIEW


def _is_local(step: PlannedNode) -> bool:
    """Whether an operator runs on local slices alone, with floats of the type of its operands. Draws with padding are
    excluded: they are counted without padding, which a kernel does not know.
    """
    node, typed = step.node, step.typed
    if node.instance.extern or typed.inner or typed.windows:
        return False
    if not any(value.dtype != "int" for value in node.arguments) or (node.instance.draws and node.instance.unpadded):
        return False
    types = {*operand_types(node, node.dtype), *(value.dtype for value in node.results)} - {"int"}
    return types == {node.dtype} and result_types(node, node.dtype) == tuple(value.dtype for value in node.results)


def _hand_on(nodes: Sequence[PlannedNode]) -> bool:
    """Whether each operator but the first, unless it is a view, reads what an earlier one makes. The layouts must
    agree.
    """
    made: dict[str, Layout] = {}
    for number, step in enumerate(nodes):
        inner = 0
        for value, layout in zip(step.node.arguments, step.typed.arguments, strict=True):
            if value.name in made:
                if made[value.name] != layout:
                    return False
                inner += 1
        if number and not inner and not is_view(step):
            return False
        made |= {value.name: layout for value, layout in zip(step.node.results, step.typed.results, strict=True)}
    return True


def _applied(step: PlannedNode) -> Applied:
    node = step.node
    return Applied(
        node.instance,
        tuple(value.name for value in node.arguments),
        tuple(value.name for value in node.results),
    )


def _reads(step: PlannedNode | PlannedSegment) -> tuple[Value, ...]:
    return step.node.arguments if isinstance(step, PlannedNode) else step.segment.reads
