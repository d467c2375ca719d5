"""The sizes at which every tensor of a rule has elements: a window must not be larger than the dimension it
moves over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from ...index.equations.term import walk
from ...index.library import Library
from ...prove.normal_form.form import Unsupported
from ...prove.normal_form.polynomial import ONE, Poly, Quotient, is_plainly_not_negative
from ...prove.translation.real_attributes import with_reals
from ...prove.translation.rule_forms import calls, claim_of, declaration
from ...prove.translation.rule_results import by_results
from ...syntax.ast import Apply, Expr, Name, Number, OperatorDecl, ParallelDecl
from ...syntax.diagnostic import InputError
from ...syntax.parse_rules import GraphCall, GraphView, RuleDecl
from ...syntax.rule_names import names_in, subgraphs
from ..enumeration.rule_text import poly_expr
from ..rule_shapes import shapes_of


def fitting(rule: RuleDecl, library: Library) -> RuleDecl:
    """The rule with the conditions on sizes that its operators' results need in order to have elements: `where h >= 3`.

    The rule is returned unchanged if no size of a result is a quotient, or if shapes are not determined.
    """
    if not any(_divides(declaration(call, library)) for call in calls(rule)):
        return rule
    try:
        read, read_library = with_reals(by_results(rule, library), library)
        shapes = shapes_of(read, claim_of(read), read_library)
    except (Unsupported, InputError):
        return rule
    if shapes is None:
        return rule
    sizes = (size for made in shapes.made.values() for dim in made.dims for size in dim)
    added = dict.fromkeys(_comparison(slack) for size in sizes for slack in _slacks(size))
    return replace(rule, conditions=(*rule.conditions, *(one for one in added if one not in rule.conditions)))


def with_free_sizes(rule: RuleDecl, library: Library) -> RuleDecl:
    """The rule with a single name for every size of inputs that contains a name used nowhere else: `[h]` for `[h + r -
    1]`.

    The rule then holds at more sizes, or reads better, under the conditions of `fitting`: `where h >= r`.
    """
    counts = Counter(_size_names(rule))
    dims = [dim for tensor in rule.inputs for dim in tensor.dims]
    freed: dict[Expr, Expr] = {}
    for size, count in Counter(dim.size for dim in dims if not isinstance(dim.size, Name)).items():
        own = Counter(name.name for name in names_in(size))
        free = [name for name in own if counts[name] == own[name] * count]
        if free:
            freed[size] = Name(free[0])
    inputs = tuple(
        replace(one, dims=tuple(replace(dim, size=freed.get(dim.size, dim.size)) for dim in one.dims))
        for one in rule.inputs
    )
    return fitting(replace(rule, inputs=inputs), library) if freed else rule


def _size_names(rule: RuleDecl) -> Iterator[str]:
    """The names of sizes wherever they occur in a rule, including axes of views and degrees."""
    sizes: list[Expr] = [dim.size for tensor in rule.inputs for dim in tensor.dims]
    sizes += [tensor.integer_range for tensor in rule.inputs if tensor.integer_range is not None]
    sizes += rule.conditions
    for expr in subgraphs((*rule.left, *rule.right)):
        if isinstance(expr, GraphCall):
            sizes += [value for _, value in expr.attributes]
            yield from expr.degrees or ()
        elif isinstance(expr, GraphView):
            yield from (str(name) for names in (*expr.source, *expr.target) for name in names)
    yield from (name.name for size in sizes for name in names_in(size))


def _divides(decl: OperatorDecl | ParallelDecl) -> bool:
    """Whether a condition of an operator has a quotient of sizes, as operators with strided windows have."""
    nodes = (node for condition in decl.conditions for node in walk(condition))
    return any(isinstance(node, Apply) and node.function == "//" for node in nodes)


def _slacks(size: Poly) -> Iterator[Poly]:
    """The polynomial that must not be negative for a size to be at least 1; none if that holds at all sizes.

    `1 + (h - r) // 2` is at least 1 if `h - r >= 0`. Sizes of other forms have no such polynomial.
    """
    slack = size - ONE
    match slack.terms:
        case ((((Quotient(numerator, divisor), 1),), 1),) if (divisor.constant or 0) > 0:
            slack = numerator
    if all(isinstance(symbol, str) for symbol in slack.symbols()) and not is_plainly_not_negative(slack):
        yield slack


def _comparison(slack: Poly) -> Apply:
    """`h >= r` for `h - r`."""
    return Apply(">=", (_sum(slack, 1), _sum(slack, -1)))


def _sum(poly: Poly, sign: int) -> Expr:
    """The sum of the terms with one sign, written without that sign."""
    parts = Poly(tuple((monomial, abs(value)) for monomial, value in poly.terms if value * sign > 0))
    return poly_expr(parts) if parts.terms else Number(0)
