"""Equations as rules, with inputs and sizes named in the order in which the left side reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from ...index.equations.term import substitute, walk
from ...prove.normal_form.polynomial import Poly, Quotient
from ...prove.translation.real_attributes import Values as RealValues
from ...syntax.ast import Apply, Expr, Name, Number
from ...syntax.canonical_text import canonical_text
from ...syntax.parse_rules import GraphCall, GraphExpr, GraphView, RuleDecl, RuleDim, RuleInput
from .context import renaming
from .dimensions import Dim, TensorType, letter_of
from .equations import Node, nodes_of, stable_hash

INPUTS = ("x", "y", "z", "w", "v", "u", "t", "s")


def rule_of(
    types: Sequence[TensorType], left: Sequence[Node], right: Sequence[Node], conditions: tuple[Apply, ...] = ()
) -> RuleDecl | None:
    """The rule `left => right`. None if the left side has no operator or does not bind everything that the right side
    needs, or if a view cannot name its axes.
    """
    if all(node.application is None for node in left):
        return None
    order = list(_inputs_of(left))
    if any(node not in order for node in _inputs_of(right)) or not _reals(right) <= _bound_reals(left):
        return None
    names = renaming([types[node.number] for node in order], frozenset(_degrees((*left, *right))))
    tensors = {node: Name(INPUTS[place]) for place, node in enumerate(order)}
    inputs = tuple(_declared(tensors[node].name, types[node.number].replaced(names)) for node in order)
    try:
        sides = [tuple(_graph(node, tensors, names) for node in side) for side in (left, right)]
    except _Unnamed:
        return None
    text = canonical_text((inputs, *sides))
    return RuleDecl(f"rule_{stable_hash(text)}", inputs, conditions, (), sides[0], sides[1])


class _Unnamed(Exception):
    """A view whose axes cannot be named."""


def _inputs_of(roots: Sequence[Node]) -> Iterator[Node]:
    """Inputs in the order in which the text reads them."""
    seen: set[Node] = set()

    def visit(node: Node) -> Iterator[Node]:
        if node in seen:
            return
        seen.add(node)
        if node.application is None:
            yield node
        for operand in node.operands:
            yield from visit(operand)

    for root in roots:
        yield from visit(root)


def _degrees(roots: Sequence[Node]) -> Iterator[str]:
    for node in nodes_of(roots):
        yield from node.type.devices
        if node.application is not None:
            yield from node.application.signature.degrees


def _reals(roots: Sequence[Node]) -> set[str]:
    """The real numbers that a side reads."""
    return {
        name for value in _real_values(roots) for node in walk(value) if isinstance(node, Name) for name in [node.name]
    }


def _bound_reals(roots: Sequence[Node]) -> set[str]:
    """The real numbers that a match of a side determines: those that are an attribute by themselves."""
    return {value.name for value in _real_values(roots) if isinstance(value, Name)}


def _real_values(roots: Sequence[Node]) -> Iterator[Expr]:
    for node in nodes_of(roots):
        if node.application is not None:
            yield from (value for _, value in node.application.reals)


# ---------------------------------------------------------------------------------------------- text


def _declared(name: str, tensor: TensorType) -> RuleInput:
    dims = [RuleDim(Name(device), device=True) for device in tensor.devices]
    dims += [RuleDim(size_expr(dim)) for dim in tensor.dims]
    return RuleInput(name, tuple(dims), None if tensor.bound is None else size_expr(tensor.bound))


def size_expr(dim: Dim) -> Expr:
    """A size as an expression, with its parts in the order in which it is split."""
    if dim.cuts:
        bounds = sorted(dim.cuts, key=lambda cut: (len(cut.terms), cut.key))
        parts = [bounds[0], *(b - a for a, b in zip(bounds, [*bounds[1:], dim.total], strict=True))]
        if all(_is_positive(part) for part in parts):
            return _joined("+", [poly_expr(part) for part in parts])
    if dim.prefixes:
        first = min(dim.prefixes, key=lambda part: (len(part.terms[0][0]), part.key))
        rest = dim.total.exactly_divided(first)
        others = [part.exactly_divided(first) for part in dim.prefixes if part != first]
        if rest is not None:
            inner = Dim(rest, prefixes=frozenset(part for part in others if part is not None))
            return Apply("*", (poly_expr(first), size_expr(inner)))
    return poly_expr(dim.total)


def _is_positive(size: Poly) -> bool:
    return bool(size.terms) and all(coefficient > 0 for _, coefficient in size.terms)


def poly_expr(size: Poly) -> Expr:
    """A polynomial as an expression, positive terms first."""
    if not size.terms:
        return Number(0)
    ordered = sorted(size.terms, key=lambda term: (term[1] < 0, not term[0]))
    made: Expr | None = None
    for monomial, coefficient in ordered:
        part = _monomial(monomial, abs(coefficient))
        if made is None:
            made = part if coefficient > 0 else Apply("neg", (part,))
        else:
            made = Apply("+" if coefficient > 0 else "-", (made, part))
    assert made is not None
    return made


def _monomial(monomial: Sequence[tuple[object, int]], coefficient: Fraction) -> Expr:
    factors: list[Expr] = []
    if coefficient != 1 or not monomial:
        factors.append(Number(int(coefficient)))
    for symbol, power in monomial:
        base: Expr
        if isinstance(symbol, Quotient):
            base = Apply("//", (poly_expr(symbol.numerator), poly_expr(symbol.denominator)))
        else:
            base = Name(str(symbol))
        factors += [base] * power
    return _joined("*", factors)


def _joined(function: str, parts: Sequence[Expr]) -> Expr:
    made = parts[0]
    for part in parts[1:]:
        made = Apply(function, (made, part))
    return made


def _graph(node: Node, tensors: Mapping[Node, Name], names: Mapping[str, Dim]) -> GraphExpr:
    """The graph as an expression, built from the texts of the signatures."""
    if node.application is None:
        return tensors[node]
    made = node.application
    sizes = {name: dim.replaced(names) for name, dim in made.letters}
    operands = [_graph(operand, tensors, names) for operand in node.operands]
    inputs = {tensor.name: operand for tensor, operand in zip(made.signature.inputs, operands, strict=True)}
    values: RealValues = {name: poly_expr(dim.total) for name, dim in sizes.items()} | dict(made.reals)
    return _filled(made.signature.results[node.number], inputs, sizes, values)


def _filled(
    expr: GraphExpr, inputs: Mapping[str, GraphExpr], sizes: Mapping[str, Dim], values: RealValues
) -> GraphExpr:
    match expr:
        case Name(name):
            return inputs[name]
        case GraphView(operand, source, target):
            return _view(_filled(operand, inputs, sizes, values), source, target, sizes)
        case GraphCall():
            arguments = tuple(_filled(part, inputs, sizes, values) for part in expr.arguments)
            attributes = tuple((name, substitute(value, values)) for name, value in expr.attributes)
            return GraphCall(expr.name, arguments, attributes, expr.degrees, expr.result, expr.results)
    raise TypeError("a number is no tensor")


Pattern = tuple[tuple[str | int, ...], ...]


def _view(operand: GraphExpr, source: Pattern, target: Pattern, sizes: Mapping[str, Dim]) -> GraphView:
    """The view with axes named after their sizes; an axis without a name of its own gets a new one.

    Raises _Unnamed if more than one axis of a dimension has no name.
    """
    taken: set[str] = set()
    chosen: dict[str, str] = {}
    spare = (f"{letter}{number}" for number in range(9) for letter in "ij")
    for dim in source:
        unnamed = 0
        for axis in dim:
            if not isinstance(axis, str):
                continue
            size = sizes.get(axis)
            name = None if size is None else letter_of(size.total)
            if name is None or name in taken:
                name = next(spare)
                unnamed += 1
            taken.add(name)
            chosen[axis] = name
        if len(dim) > 1 and unnamed > 1:
            raise _Unnamed
    renamed = [tuple(tuple(chosen.get(str(axis), axis) for axis in dim) for dim in side) for side in (source, target)]
    return GraphView(operand, renamed[0], renamed[1])
