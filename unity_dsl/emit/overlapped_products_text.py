"""Text of products beside which values travel: weights are read before, where the backward pass is to compute their
gradients; blocks of what is gathered are waited for one by one, and what is summed is sent in parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..graph.chunked_products import NONE, Chunked, chunked_products
from ..graph.delayed_gradients import Delayed, WeightProduct, delayed_gradients, weight_product
from ..graph.graph import Value
from ..graph.layout import Layout
from ..graph.plan import PlannedGraph, PlannedNode
from ..graph.precision import arithmetic, operand_types
from ..index.lowering.padded_columns import padded_weight
from ..index.lowering.torch_term import Term
from .interleaved_text import Travelling, arrive, depart
from .module_text import ModuleText
from .operator_text import ProductCall
from .program_names import Names
from .program_state import Program
from .source_lines import statement
from .torch_text import term_text


class ForwardText(Travelling, Protocol):
    """The forward method that is written. `delayed` are the products whose weights were read, by operator, each with
    the variable of its weight; `alone` are the operators that no kernel computes with others. `departed` holds what
    was sent before a variable for it was asked for, by value and layout: by products that are in `chunks`, and in
    blocks for these.
    """

    program: Program
    module: ModuleText
    names: Names
    state: str
    detached: bool
    delays: Delayed
    delayed: dict[str, tuple[WeightProduct, str]]
    chunks: Chunked
    departed: dict[tuple[str, Layout], str]
    alone: set[str]

    def padded(self, step: PlannedNode) -> tuple[int, int] | None:
        """The columns of a product that is padded, and how many more it has then."""

    def variable(self, value: Value, layout: Layout, dtype: str | None = None) -> str:
        """The variable that holds a value in a layout."""


def find_delays(program: Program, planned: PlannedGraph) -> Delayed:
    """By conversion, the products whose weights are read before it; none if the plan does not say so."""
    if not program.delayed_gradients:
        return {}
    return delayed_gradients(planned, program.collectives.converting, program.mesh, program.library)


def find_chunks(program: Program, planned: PlannedGraph, left: set[str]) -> Chunked:
    """The products that run in chunks, if the plan has any."""
    if program.chunks == 1:
        return NONE
    return chunked_products(
        planned, program.collectives.converting, program.mesh, program.library, program.chunks, left
    )


def add_travelling(
    text: ForwardText, key: tuple[str, Layout], name: str, call: str, given: Sequence[str], comment: str
) -> bool:
    """Writes a conversion beside which products run or gradients are computed, for a variable of this `name`. Returns
    whether it is one.
    """
    delayed, sent = text.delays.get(key, ()), text.departed.pop(key, None)
    arriving = text.chunks.arriving.get(key)
    in_blocks = arriving is not None and arriving.product.step.node.name in text.alone
    if not (delayed or sent or in_blocks):
        return False
    if sent:
        text.travelling[name] = sent
    else:
        depart(text, name, call, given, comment, in_blocks=in_blocks)
    if in_blocks:
        text.departed[key] = text.travelling[name]
        text.program.chunked = True
    add_delays(text, delayed, key[0])
    arrive(text, [name], others_first=False)
    return True


def product_call(text: ForwardText, step: PlannedNode, arguments: list[str]) -> ProductCall | None:
    """How an operator is called, if it is a product beside which something travels, or that has gradients of its own.
    Its delayed weight is put among the arguments.
    """
    node, program = step.node, text.program
    delayed, weight = text.delayed.get(node.name, (None, ""))
    if delayed is not None:
        arguments[delayed.weight] = weight
    if text.detached or node.name not in text.alone:
        return None if delayed is None else ProductCall(delayed, True)
    reading, leaving = text.chunks.reading(step), text.chunks.leaving.get(node.name)
    sent = None if reading is None else text.departed.pop((reading.value.name, reading.layout), None)
    if reading is not None and sent is not None:
        program.products.add(reading.product.function)
        return ProductCall(reading.product, delayed is not None, sent)
    if leaving is not None:
        value, source = leaving.value, step.typed.results[0]
        choice = value.shape, value.bytes, value.stored_bytes
        found = program.collectives.conversion(source, leaving.layout, *choice, gradient=True)
        assert found is not None, "a sum over devices is a conversion"
        program.products.add(leaving.product.function)
        program.chunked = True
        given = f"parallel.{found.name}", f"{text.state}.groups", str(leaving.parts)
        return ProductCall(leaving.product, delayed is not None, given=given)
    return _with_own_gradients(program, step) if delayed is None else ProductCall(delayed, True)


def _with_own_gradients(program: Program, step: PlannedNode) -> ProductCall | None:
    """The call of a product of which autograd's gradient of the weight would be copied."""
    product = weight_product(step, program.mesh, program.library)
    if product is None or not product.copied:
        return None
    program.own_gradients = True
    return ProductCall(product, False)


def add_delays(text: ForwardText, products: Sequence[WeightProduct], travelling: str) -> None:
    """Reads the weights of products whose gradients are deferred, overlapped with that of the value of that name."""
    library = text.program.library
    for found in products:
        step, node = found.step, found.step.node
        if node.name not in text.alone:
            continue
        value, layout = node.arguments[found.weight], step.typed.arguments[found.weight]
        wanted = operand_types(node, arithmetic(node, step.native, library))[found.weight]
        read = text.variable(value, layout, wanted)
        name = text.names.fresh(f"{value.name}_delayed")
        words = f"its gradient is deferred, overlapped with the exchange of that of {travelling}"
        text.module.lines += statement(f"{name} = parallel.delayed({_factor(found, read, text.padded(step))})", words)
        text.delayed[node.name] = found, name
        text.program.products.add(found.function)


def _factor(product: WeightProduct, read: str, padded: tuple[int, int] | None) -> str:
    """The factor of a product that is made of a weight, which a variable holds."""
    factor = product.term.arguments[product.factor]
    assert isinstance(factor, Term)
    return term_text(padded_weight(factor, padded[1]) if padded else factor, lambda weight: read)
