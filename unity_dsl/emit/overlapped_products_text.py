"""Text of products that overlap with communication. A weight with a deferred gradient is read where the backward pass
is to compute that gradient. Blocks of a gathered operand are waited for one by one, and a summed result is sent in
parts.
"""

from __future__ import annotations

from typing import Protocol

from ..graph.deferred_gradients import WeightProduct, weight_product
from ..graph.plan import PlannedNode
from ..index.lowering.padded_columns import padded_weight
from ..index.lowering.torch_term import Term
from ..schedule.ir import Begin, Compute, Defer, Tensor
from .module_text import ModuleText
from .operator_text import ProductCall
from .program_names import Names
from .program_state import Program
from .source_lines import statement
from .torch_text import term_text


class ForwardText(Protocol):
    """The forward method that is being written. `deferred` has the variables of weights with deferred gradients. In
    `plain` text no product has gradients of its own.
    """

    program: Program
    module: ModuleText
    names: Names
    state: str
    plain: bool
    sent: dict[Begin | Compute, str]
    deferred: dict[Defer, str]

    def padded_columns(self, step: PlannedNode) -> tuple[int, int] | None:
        """The columns of a product that is padded, and how many are added."""

    def variable(self, tensor: Tensor) -> str:
        """The variable that holds a tensor."""


def product_call(text: ForwardText, compute: Compute, arguments: list[str]) -> ProductCall | None:
    """The call of an operator that is a product overlapped with communication, or one with gradients of its own; else
    None. A weight with a deferred gradient is put among the arguments.
    """
    program, chunked = text.program, compute.chunked
    own = compute.deferred is not None
    if compute.deferred is not None:
        arguments[compute.deferred.product.weight] = text.deferred[compute.deferred]
    if compute.arrives is not None and chunked is not None:
        program.products.add(chunked.product.function)
        return ProductCall(chunked.product, own, text.sent[compute.arrives])
    if chunked is not None and compute.sends is not None:
        source, shape = compute.step.typed.results[0], chunked.value.shape
        found = program.collectives.between(compute.sends, source, chunked.layout, shape)
        program.products.add(chunked.product.function)
        program.chunked = True
        given = f"parallel.{found.name}", f"{text.state}.groups", str(chunked.parts)
        return ProductCall(chunked.product, own, given=given)
    if compute.deferred is not None:
        return ProductCall(compute.deferred.product, True)
    return None if text.plain else _with_own_gradients(program, compute.step)


def _with_own_gradients(program: Program, step: PlannedNode) -> ProductCall | None:
    """The call of a product for which autograd would copy the gradient of the weight; None for others."""
    product = weight_product(step, program.mesh, program.library)
    if product is None or not product.copied:
        return None
    program.own_gradients = True
    return ProductCall(product, False)


def add_deferred(text: ForwardText, defer: Defer) -> None:
    """Reads the weight of a product whose gradient is deferred, to overlap with the exchange of another gradient."""
    read, found = text.variable(defer.reads), defer.product
    name = text.names.fresh(f"{defer.reads.value.name}_deferred")
    words = f"its gradient is deferred, overlapped with the exchange of the gradient of {defer.travelling.name}"
    padded = None if defer.in_blocks else text.padded_columns(found.step)
    text.module.lines += statement(f"{name} = parallel.defer_wgrad({_factor(found, read, padded)})", words)
    text.deferred[defer] = name
    text.program.products.add(found.function)


def _factor(product: WeightProduct, read: str, padded: tuple[int, int] | None) -> str:
    """The text of a product's factor that is made of a weight, which the variable `read` holds."""
    factor = product.term.arguments[product.factor]
    assert isinstance(factor, Term)
    return term_text(padded_weight(factor, padded[1]) if padded else factor, lambda weight: read)
