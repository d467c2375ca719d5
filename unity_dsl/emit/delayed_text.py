"""Text of products whose weights are read before, where the backward pass is to compute their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..graph.delayed_gradients import Delayed, WeightProduct, delayed_gradients
from ..graph.graph import Value
from ..graph.layout import Layout
from ..graph.plan import PlannedGraph
from ..graph.precision import arithmetic, operand_types
from .module_text import ModuleText
from .program_names import Names
from .program_state import Program
from .source_lines import statement
from .torch_text import argument_text


class ForwardText(Protocol):
    """The forward method that is written. `delayed` are the products whose weights were read, by operator, each with
    the variable of its weight; `alone` are the operators that no kernel computes with others.
    """

    program: Program
    module: ModuleText
    names: Names
    delayed: dict[str, tuple[WeightProduct, str]]
    alone: set[str]

    def variable(self, value: Value, layout: Layout, dtype: str | None = None) -> str:
        """The variable that holds a value in a layout."""


def find_delays(program: Program, planned: PlannedGraph) -> Delayed:
    """By conversion, the products whose weights are read before it; none if the plan does not say so."""
    if not program.delayed_gradients:
        return {}
    return delayed_gradients(planned, program.collectives.converting, program.mesh, program.library)


def add_delays(text: ForwardText, products: Sequence[WeightProduct], travelling: str) -> None:
    """Reads the weights of products: gradients are computed while the cotangent of the value of that name travels."""
    library = text.program.library
    for found in products:
        step, node = found.step, found.step.node
        if node.name not in text.alone:
            continue
        value, layout = node.arguments[found.weight], step.typed.arguments[found.weight]
        wanted = operand_types(node, arithmetic(node, step.native, library))[found.weight]
        read = text.variable(value, layout, wanted)
        name = text.names.fresh(f"{value.name}_delayed")
        words = f"its gradient while that of {travelling} travels"
        text.module.lines += statement(f"{name} = parallel.delayed({_factor(found, read)})", words)
        text.delayed[node.name] = found, name
        text.program.products.add(found.function)


def _factor(product: WeightProduct, read: str) -> str:
    """The factor of a product that is made of a weight, which a variable holds."""
    return argument_text(product.term.arguments[product.factor], lambda weight: read)
