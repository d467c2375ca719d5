"""Groups of operators of a plan that run as one kernel, and the values that these read and make."""

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
from ...index.kernels.product_kernels import product_kernels
from ...index.kernels.row_kernels import row_kernels
from ...index.library import Library
from ...index.lowering.torch_term import Term
from .kernel_functions import FusedOperator, fused_operator
from .positions import Local

LOOK_AHEAD = 12
"""So many steps are looked at for those of one kernel: attention is one kernel with its last product only."""


@dataclass(frozen=True)
class OperatorGroup:
    """Operators, in order, that run as one.

    `reads` and `makes` are values with their layouts, in the order of the fused instance's operands; `starts` are terms
    that add up to where divided axes begin.
    """

    nodes: tuple[PlannedNode, ...]
    fused: FusedOperator
    local: Local
    starts: Mapping[str, Sequence[Term]]
    reads: tuple[tuple[Value, Layout], ...]
    makes: tuple[tuple[Value, Layout], ...]
    site: int

    @property
    def dtype(self) -> str:
        """The type of all its floats."""
        return self.nodes[0].node.dtype

    @property
    def needs(self) -> tuple[bool, ...]:
        """Of which of the values that it reads it makes the cotangent."""
        return tuple(number in self.fused.wrt for number in range(len(self.reads)))


@dataclass(frozen=True)
class Grouping:
    """How the operators of a graph are grouped. `leaving` are the values that are read from outside of it; with
    `detached` no gradient is asked for.
    """

    mesh: Mesh
    library: Library
    planned: PlannedGraph
    leaving: Collection[str]
    detached: bool = False

    @cached_property
    def readers(self) -> Mapping[str, int]:
        """How many steps of the graph read a value."""
        return Counter(name for step in self.planned.steps for name in {value.name for value in _reads(step)})

    def groups(self, steps: Sequence[PlannedNode]) -> Iterator[OperatorGroup | PlannedNode]:
        """The steps in an order in which each comes after what it reads, those in one kernel together."""
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

    def longest(self, steps: Sequence[PlannedNode]) -> tuple[OperatorGroup, list[PlannedNode]] | None:
        """The group from the first step on of most operators, and the steps between that it does not need. A view of
        something else joins with what alone reads it.
        """
        best: tuple[OperatorGroup, list[PlannedNode]] | None = None
        members, aside = [steps[0]], list[PlannedNode]()
        for step in (None, *steps[1:LOOK_AHEAD]):
            if step is not None:
                made = {value.name for member in members for value in member.node.results}
                read = {value.name for value in step.node.arguments}
                if not read & made:
                    aside.append(step)
                    continue
                views = [other for other in aside if _is_view(other) and self.is_only_for(read, other)]
                aside = [other for other in aside if other not in views]
                members = [*members, *views, step]
            if not _together(members):
                break
            found = self.group(members)
            if found is not None and self.pays(found):
                best = found, list(aside)
        return best

    def is_only_for(self, read: Collection[str], step: PlannedNode) -> bool:
        """Whether what a step makes is among what another one reads, and nothing else reads it."""
        (value,) = step.node.results
        return value.name in read and self.readers[value.name] == 1 and value.name not in self.leaving

    def group(self, nodes: Sequence[PlannedNode]) -> OperatorGroup | None:
        """These operators as one, if they are one kernel forwards and run on the same slices."""
        inside = Counter(name for step in nodes for name in {value.name for value in step.node.arguments})
        made = [value.name for step in nodes for value in step.node.results]
        wanted = {
            name for name in made if name in self.leaving or name not in inside or self.readers[name] > inside[name]
        }
        fusion = fuse([_applied(step) for step in nodes], wanted)
        return None if fusion is None else self.fused(nodes, fusion)

    def pays(self, group: OperatorGroup) -> bool:
        """Whether one kernel stands for several of torch's. A view at the end must be all that is made."""
        last = group.nodes[-1]
        if _is_view(last) and [value for value, _ in group.makes] != [*last.node.results]:
            return False
        launched = 0
        for step in group.nodes:
            typed = replace(step.typed, native=step.native)
            needs = step.node.gradients
            launched += emitted_kernels(step.node.instance, typed, self.mesh, self.library, needs, 4).forward
        return launched > 1

    def fused(self, nodes: Sequence[PlannedNode], fusion: Fusion) -> OperatorGroup | None:
        parts = self.local(nodes, fusion)
        kernels = row_kernels(fusion.instance) or product_kernels(fusion.instance) or ()
        if parts is None or len(kernels) != 1:
            return None
        local, starts = parts
        values: dict[str, tuple[Value, Layout]] = {}
        for step in nodes:
            for value, layout in zip(step.node.arguments, step.typed.arguments, strict=True):
                values.setdefault(value.name, (value, layout))
            for value, layout in zip(step.node.results, step.typed.results, strict=True):
                values[value.name] = value, layout
        backward = not self.detached and any(values[name][0].needs_gradient for name in fusion.makes)
        needs = [backward and values[name][0].needs_gradient for name in fusion.reads]
        found = fused_operator(fusion.instance.name, fusion.instance, local, self.library, needs)
        if found is None:
            return None
        reads, makes = (tuple(values[name] for name in names) for names in (fusion.reads, fusion.makes))
        site = next((step.node.site for step in nodes if step.node.site), 0)
        return OperatorGroup(tuple(nodes), found, local, starts, reads, makes, site)

    def local(self, nodes: Sequence[PlannedNode], fusion: Fusion) -> tuple[Local, Mapping[str, Sequence[Term]]] | None:
        """The slices of all operators, if they are the same, and where these begin."""
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


def _together(nodes: Sequence[PlannedNode]) -> bool:
    """Whether operators could be one: slices of one float type, each from those before, at most one random."""
    if sum(step.node.site > 0 for step in nodes) > 1 or len({step.node.dtype for step in nodes}) > 1:
        return False
    return all(map(_is_local, nodes)) and _hand_on(nodes)


def _is_view(step: PlannedNode) -> bool:
    return lowering_class(step.node.instance) is LoweringClass.VIEW


def _is_local(step: PlannedNode) -> bool:
    """Whether an operator runs on slices alone, with floats of one type."""
    node, typed = step.node, step.typed
    if node.instance.extern or typed.inner or typed.windows:
        return False
    types = {*operand_types(node, node.dtype), *(value.dtype for value in node.results)} - {"int"}
    return types == {node.dtype} and result_types(node, node.dtype) == tuple(value.dtype for value in node.results)


def _hand_on(nodes: Sequence[PlannedNode]) -> bool:
    """Whether each operator but the first reads what one before it makes, in the layout in which that is."""
    made: dict[str, Layout] = {}
    for number, step in enumerate(nodes):
        inner = 0
        for value, layout in zip(step.node.arguments, step.typed.arguments, strict=True):
            if value.name in made:
                if made[value.name] != layout:
                    return False
                inner += 1
        if number and not inner and not _is_view(step):
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
