"""One operator at symbolic types: its operands, the graphs of its results, and their types according to the
declaration.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ...index.library import Library
from ...prove.normal_form.form import Unsupported
from ...prove.normal_form.polynomial import Poly, number, of, product
from ...prove.normal_form.polynomial import quotient as floor_quotient
from ...prove.translation.real_attributes import real_names, with_reals
from ...prove.translation.rule_forms import calls, claim_of
from ...syntax.ast import Apply, Expr, Name, Number
from ...syntax.diagnostic import InputError, fail
from ...syntax.parse_rules import GraphExpr, RuleDecl, RuleInput, parse_rules
from ...syntax.span import Source, Span
from ..rule_shapes import TensorShape, shapes_of
from ..wellformed import check_rule
from .dimensions import Dim, TensorType, letter_of, letters_of


@dataclass(frozen=True)
class Signature:
    """`(x: [m, k], w: [n, k]) linear(x, w)`. Several results, such as the parts of a split, are made by one operator.

    `reals` are the names of attributes that may be any real number, `degrees` the names of device axes.
    """

    text: str
    inputs: tuple[RuleInput, ...]
    results: tuple[GraphExpr, ...]
    operands: tuple[TensorType, ...]
    types: tuple[TensorType, ...]
    reals: tuple[str, ...]
    degrees: frozenset[str]
    operators: frozenset[str]


@lru_cache(maxsize=4096)
def read_signature(text: str, library: Library, place: Span | None = None) -> Signature:
    """The signature that a text describes. Raises E509 with the reason, at `place`."""
    operands, graph = _halves(text)
    try:
        source = Source("signature", f"rule signature{operands}\n  {graph} => {graph}\n")
        (read,) = parse_rules(source).rules
        rule = check_rule(read, library)
        shapes = _shapes(rule, library)
    except (InputError, ValueError) as error:
        message = error.diagnostic.message if isinstance(error, InputError) else "not one signature"
        help = 'a signature is written `"(x: [m, k], w: [n, k]) linear(x, w)"`'
        raise fail("E509", f"`{text}`: {message}", place, help=help) from None
    if shapes is None:
        raise fail("E509", f"`{text}`: nothing determines the shape of its results", place)
    degrees = frozenset(degree for call in calls(rule) for degree in call.degrees or ())
    operators = frozenset(call.name for call in calls(rule))
    types = tuple(map(operand_type, rule.inputs))
    order = {letter: None for tensor in types for part in tensor.parts for letter in letters_of(part.total)}
    results = tuple(_result_type(shape, tuple(order), degrees) for shape in shapes)
    return Signature(text, rule.inputs, rule.left, types, results, real_names(rule, library), degrees, operators)


def _shapes(rule: RuleDecl, library: Library) -> list[TensorShape] | None:
    """The shapes of the left side's tensors; None if they are not determined."""
    try:
        read, operators = with_reals(rule, library)
        found = shapes_of(read, claim_of(read), operators)
    except Unsupported:
        return None
    return None if found is None else [found.value(expr) for expr in read.left]


def _halves(text: str) -> tuple[str, str]:
    """The parenthesized operands, and the graph."""
    depth = 0
    for position, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == ")" and depth == 0:
            return text[: position + 1], text[position + 1 :].strip()
    return text, ""


def operand_type(tensor: RuleInput) -> TensorType:
    """The type that a rule's input declares; `a + b` may be sliced at a, `h * k` split into h and k."""
    devices = tuple(sorted(dim.size.name for dim in tensor.dims if dim.device and isinstance(dim.size, Name)))
    dims = tuple(declared_dim(dim.size) for dim in tensor.dims if not dim.device)
    bound = None if tensor.integer_range is None else declared_dim(tensor.integer_range)
    return TensorType(devices, dims, bound)


def declared_dim(size: Expr) -> Dim:
    """A dimension as written, with the places at which it may be split."""
    total = size_of(size)
    match size:
        case Apply("+", (left, _)) if all(letter_of(size_of(part)) for part in _summands(size)):
            first = declared_dim(left)
            return Dim(total, first.cuts | {first.total})
        case Apply("*", (left, _)) if all(letter_of(size_of(part)) for part in _factors(size)):
            first = declared_dim(left)
            return Dim(total, prefixes=first.prefixes | {first.total})
    return Dim(total)


def _summands(size: Expr) -> tuple[Expr, ...]:
    if isinstance(size, Apply) and size.function == "+":
        return (*_summands(size.arguments[0]), *_summands(size.arguments[1]))
    return (size,)


def _factors(size: Expr) -> tuple[Expr, ...]:
    if isinstance(size, Apply) and size.function == "*":
        return (*_factors(size.arguments[0]), *_factors(size.arguments[1]))
    return (size,)


def size_of(size: Expr) -> Poly:
    """A size expression as a polynomial. Raises ValueError for other arithmetic."""
    match size:
        case Number(value) if isinstance(value, int):
            return number(value)
        case Name(name):
            return of(name)
        case Apply("+", (left, right)):
            return size_of(left) + size_of(right)
        case Apply("-", (left, right)):
            return size_of(left) - size_of(right)
        case Apply("*", (left, right)):
            return size_of(left) * size_of(right)
        case Apply("//", (left, right)):
            return floor_quotient(size_of(left), size_of(right))
    raise ValueError("a size of another form")


def _result_type(shape: TensorShape, order: tuple[str, ...], degrees: frozenset[str]) -> TensorType:
    dims = tuple(_result_dim(factors, order, degrees) for factors in shape.dims)
    return TensorType(tuple(sorted(shape.devices)), dims, None if shape.bound is None else Dim(shape.bound))


def _result_dim(factors: tuple[Poly, ...], order: tuple[str, ...], degrees: frozenset[str]) -> Dim:
    """A dimension of a result. Summands are in the order in which the operands name them, factors as in the declaration
    or view.
    """
    total = product(factors)
    if len(total.terms) > 1:
        summands = [(order.index(name), of(name)) for name in letters_of(total) if total.coefficient(name) == 1]
        if len(summands) != len(total.terms):
            return Dim(total)
        sums = [part for _, part in sorted(summands, key=lambda entry: entry[0])]
        cuts = [sum_of(sums[: count + 1]) for count in range(len(sums) - 1)]
        return Dim(total, cuts=frozenset(cuts))
    parts = [part for part in factors if part.constant is None]
    if len(parts) == 1 and (divisors := [name for name in letters_of(total) if name in degrees and of(name) != total]):
        return Dim(total, prefixes=frozenset({of(divisors[0])}))
    return Dim(total, prefixes=frozenset(product(parts[:count]) for count in range(1, len(parts))))


def sum_of(parts: list[Poly]) -> Poly:
    """The sum of sizes."""
    total = number(0)
    for part in parts:
        total = total + part
    return total
