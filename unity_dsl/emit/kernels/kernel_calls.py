"""The functions of kernels.py as a program calls them, each with its own torch operations, numbers and slices."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ...graph.layout import Mesh
from ...graph.plan import PlannedGraph, PlannedNode
from ...graph.precision import emitted_arithmetic, operand_types, result_types
from ...index.library import Library
from ...index.lowering.torch_term import Term
from ..comment_words import where
from ..operator_text import Collectives, Place, mesh_axes, operator_text
from ..program_names import Names, float_type
from ..torch_text import term_text
from .contraction_choice import ContractionChoice, price_comment
from .kernel_file import KernelOperator, kernel_file_text
from .kernel_functions import fused_operator, variable
from .operator_groups import Grouping, OperatorGroup

STATE = "model"


@dataclass
class KernelCalls:
    """The operators of a program that have kernels. Equal ones share a function. `contractions` chooses the matrix
    products that have kernels.
    """

    mesh: Mesh
    library: Library
    collectives: Collectives
    mixed: bool
    micro_batches: bool
    contractions: ContractionChoice | None = None
    known: dict[object, KernelOperator] = field(default_factory=dict)
    names: Names = field(default_factory=lambda: Names(("add_parts", "by_row", "by_torch", "counters", STATE)))

    def groups(
        self, nodes: Sequence[PlannedNode], planned: PlannedGraph, leaving: Collection[str], detached: bool
    ) -> Iterator[PlannedNode | OperatorGroup]:
        """The steps of a graph, with those that run as one kernel grouped; see `Grouping`."""
        grouping = Grouping(self.mesh, self.library, planned, leaving, detached, self.contractions)
        return grouping.groups(nodes)

    def file_text(self, model: str, tf32: bool) -> str:
        """The text of kernels.py for a model of this name. With `tf32` its products may round their factors to TF32."""
        return kernel_file_text(model, self.known.values(), self.micro_batches, tf32)

    def function(self, group: OperatorGroup) -> KernelOperator:
        """The function that computes a group."""
        fused, local = group.fused, group.local
        torch, random = self.torch_lines(group)
        starts = tuple(f"{number} = {self.start(group.starts[number])}" for number in fused.numbers)
        key = (fused.instance.identity, fused.shapes, fused.wrt, local.divided, torch, starts)
        if key not in self.known:
            name = self.names.fresh(fused.name)
            prices = None if self.contractions is None else self.contractions.prices(group.factor_type)
            made = fused_operator(name, fused.instance, local, self.library, group.needs, prices)
            assert made is not None
            evaluated = any(step.node.instance.evaluation for step in group.nodes)
            title = "; ".join(f"{where(step.node.span)}{step.node.instance.name}{by(step)}" for step in group.nodes)
            priced = () if group.price is None else (price_comment(group.price),)
            self.known[key] = KernelOperator(made, torch, starts, random, evaluated, title, priced)
        return self.known[key]

    def start(self, terms: Sequence[Term]) -> str:
        """The text of the position at which a divided axis begins on this device."""

        def index(term: Term) -> str:
            assert term.operation == "index"
            return f"{STATE}.groups.{self.collectives.group(mesh_axes(term.arguments))}.index"

        return " + ".join(term_text(term, index) for term in terms)

    def place(self, names: Names, dtype: str) -> Place:
        text = float_type(STATE, dtype, self.mixed)
        return Place(names, self.mesh, self.library, self.collectives, STATE, "site", text, self.micro_batches)

    def torch_lines(self, group: OperatorGroup) -> tuple[tuple[str, ...], bool]:
        """The group as operations of torch, and whether they draw random numbers."""
        names = Names((STATE, "site"))
        variables = {}
        for (value, _), operand in zip(group.reads, group.fused.instance.inputs, strict=True):
            variables[value.name] = variable(operand.name)
            names.fresh(variables[value.name])
        lines: list[str] = []
        random = False
        for step in group.nodes:
            place = self.place(names, emitted_arithmetic(step.node, step.native, self.library))
            lines += self.operator_lines(step, variables, place)
            random = random or place.random
        results = [variables[value.name] for value, _ in group.makes]
        return (*lines, f"return {', '.join(results)}"), random

    def operator_lines(self, step: PlannedNode, variables: dict[str, str], place: Place) -> list[str]:
        """The lines of one operator, in the type in which its statements accumulate."""
        node, typed = step.node, replace(step.typed, native=step.native)
        dtype = emitted_arithmetic(node, typed.native, self.library)
        lines: list[str] = []
        arguments = []
        for value, own in zip(node.arguments, operand_types(node, dtype), strict=True):
            given = variables[value.name]
            if own not in ("int", node.dtype):
                wide = place.names.fresh(f"{given}_{own}")
                lines.append(f"{wide} = {given}.to({place.float_type})")
                given = wide
            arguments.append(given)
        made, casts = [], []
        outputs = zip(node.results, node.instance.outputs, result_types(node, dtype), strict=True)
        for value, output, own in outputs:
            name = variables[value.name] = place.names.fresh(output.name)
            if own != value.dtype:
                wide = place.names.fresh(f"{name}_{own}")
                casts.append(f"{name} = {wide}.to({STATE}.compute_dtype)")
                name = wide
            made.append(name)
        return [*lines, *operator_text(node.instance, typed, arguments, made, place), *casts]


def by(step: PlannedNode) -> str:
    """The rule that introduced an operator, as words; empty if none did."""
    return f" by rule {step.node.rule}" if step.node.rule is not None else ""
