"""Real-valued names of a rule for the independent evaluator: attributes that are neither sizes nor used in indices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from random import Random

from unity_dsl.syntax.ast import Apply, Expr, Name, Number, OperatorDecl, Read, Reduce, Select, Size
from unity_dsl.syntax.parse_rules import GraphCall, GraphExpr, GraphView, RuleDecl

from .operator import Declarations
from .sizes import expressions, names_in, number
from .values import Exact

NUMBERS: Sequence[Exact] = (
    0, 1, -1, 2, -2, 3, Fraction(1, 2), Fraction(-1, 3), Fraction(3, 7), Fraction(-7, 5), Fraction(1, 1000),
    5, 100, -100, 10**6, -(10**9),
)  # fmt: skip


def _named(expr: Expr | None) -> Iterator[str]:
    match expr:
        case Name(name) | Size(name):
            yield name
        case Apply(function, arguments):
            if function == "rank":
                yield "rank"
            for argument in arguments:
                yield from _named(argument)


def _indices(expr: Expr | None) -> Iterator[str]:
    """The names that occur in indices of reads."""
    match expr:
        case Read(_, index, fill):
            for part in index:
                yield from _named(part)
            yield from _indices(fill)
        case Apply(_, arguments):
            for argument in arguments:
                yield from _indices(argument)
        case Reduce(body=body):
            yield from _indices(body)
        case Select(condition, then, otherwise):
            for part in (condition, then, otherwise):
                yield from _indices(part)


def _placing(decl: OperatorDecl) -> set[str]:
    """Names used in indices or integer results, and names that conditions equate or tie to them or to sizes."""
    attributes = {attribute.name for attribute in decl.attributes}
    found: set[str] = set()
    for statement in (*decl.statements, *decl.evaluation):
        found |= set(_indices(statement.value))
        if any(output.integer_range is not None for output in decl.outputs):
            found |= set(_named(statement.value))
    for _ in range(len(decl.conditions) + 1):
        for condition in decl.conditions:
            names = set(_named(condition))
            equation = isinstance(condition, Apply) and condition.function == "=="
            if equation or names & found or not names <= attributes:
                found |= names
    return found


def real_names(rule: RuleDecl, library: Declarations) -> frozenset[str]:
    """The names that stand for any real number."""
    real: set[str] = set()
    sizes = {name for given in rule.inputs for dim in given.dims for name in names_in(dim.size)}
    sizes |= {n for given in rule.inputs if given.integer_range is not None for n in names_in(given.integer_range)}
    for call in expressions(rule):
        if not isinstance(call, GraphCall):
            continue
        sizes |= set(call.degrees or ())
        decl = library.operators.get(call.name) if call.degrees is None else None
        for attribute, value in call.attributes:
            free = decl is not None and not decl.extern and attribute not in _placing(decl)
            (real if free else sizes).update(names_in(value))
    for _ in range(len(rule.conditions)):
        for condition in rule.conditions:
            names = set(names_in(condition))
            if condition.function == "==" and names & sizes and _is_whole(condition):
                sizes |= names
    real -= sizes
    for _ in range(len(rule.conditions)):  # a name only in conditions is real if its condition has a real name
        for condition in rule.conditions:
            names = set(names_in(condition)) - sizes
            real |= names if names & real else set()
    return frozenset(real)


def _is_whole(expr: Expr) -> bool:
    match expr:
        case Number(value):
            return isinstance(value, int)
        case Apply(function, arguments):
            return function != "/" and all(map(_is_whole, arguments))
    return True


def drawn_number(random: Random, special: Sequence[Exact]) -> Exact:
    """A random number, sometimes a `special` one, its negative, or a number near these."""
    if special and random.random() < 0.3:
        return random.choice(special) * random.choice((1, -1)) + random.choice((0, 0, 1, Fraction(1, 9)))
    return random.choice(NUMBERS)


def left_has_meaning(rule: RuleDecl, library: Declarations, numbers: dict[str, Exact]) -> bool:
    """Whether the attributes of the left side meet its operators' conditions on attributes. May raise NoMeaning."""
    for call in _left(rule):
        decl = library.operators.get(call.name) if call.degrees is None else None
        if decl is None:
            continue
        given: dict[str, Exact] = {a.name: a.default for a in decl.attributes if a.default is not None}  # type: ignore[misc]
        given = {name: Fraction(repr(value)) if isinstance(value, float) else value for name, value in given.items()}
        given |= {name: number(value, numbers) for name, value in call.attributes}
        for condition in decl.conditions:
            names = set(_named(condition))
            if names and names <= given.keys() and number(condition, given) != 1:
                return False
    return True


def _left(rule: RuleDecl) -> Iterator[GraphCall]:
    made = dict(rule.definitions)
    pending: list[GraphExpr] = [*rule.left]
    while pending:
        expr = pending.pop()
        match expr:
            case Name(name) if name in made:
                pending.append(made.pop(name))
            case GraphCall(arguments=arguments):
                yield expr
                pending += arguments
            case GraphView(operand=operand):
                pending.append(operand)
