"""The rules of tests/cases, and rules near them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from unity_dsl.index.library import Library, load_library
from unity_dsl.syntax.ast import Name, Number
from unity_dsl.syntax.parse_rules import GraphCall, GraphExpr, GraphView, RuleDecl, parse_rules
from unity_dsl.syntax.read import read_source
from unity_dsl.syntax.span import Source

CASES = Path(__file__).parent.parent / "cases"


@cache
def library() -> Library:
    """The shipped declarations and those of tests/cases/extra.uop."""
    return load_library([CASES / "extra.uop"])


@cache
def rules_of(folder: str) -> tuple[RuleDecl, ...]:
    """Every rule of a folder of tests/cases."""
    paths = sorted((CASES / folder).glob("*.rules"))
    return tuple(rule for path in paths for rule in parse_rules(read_source(path)).rules)


def rule_of(text: str) -> RuleDecl:
    """A rule from its text, `rule name(…)` and the indented lines below it."""
    (rule,) = parse_rules(Source("test.rules", text)).rules
    return rule


def mutants(rule: RuleDecl) -> Iterator[RuleDecl]:
    """The rule with one place of its right side changed."""
    for position, side in enumerate(rule.right):
        for changed in _changed(side):
            yield replace(rule, right=(*rule.right[:position], changed, *rule.right[position + 1 :]))


def _changed(expr: GraphExpr) -> Iterator[GraphExpr]:
    """One place changed: inputs swapped, operator dropped or doubled, attribute moved by one, view turned."""
    match expr:
        case GraphView(operand, source, target):
            if len(target) > 1:
                yield replace(expr, target=(target[1], target[0], *target[2:]))
            for dim, factors in enumerate(source):
                if len(factors) > 1:
                    yield replace(expr, source=(*source[:dim], factors[::-1], *source[dim + 1 :]))
            yield from (replace(expr, operand=changed) for changed in _changed(operand))
        case GraphCall(arguments=arguments, attributes=attributes):
            if len(arguments) > 1:
                yield replace(expr, arguments=(arguments[1], arguments[0], *arguments[2:]))
                yield replace(expr, arguments=(arguments[0],) * 2 + arguments[2:])
            if not isinstance(arguments[0], GraphView | Number):
                yield arguments[0]
                yield GraphCall("relu", (expr,))
            for place, (name, value) in enumerate(attributes):
                for step in (-1, 1):
                    if isinstance(value, Number):
                        moved = (name, Number(value.value + step))
                        yield replace(expr, attributes=(*attributes[:place], moved, *attributes[place + 1 :]))
            for place, argument in enumerate(arguments):
                for changed in _changed(argument):
                    yield replace(expr, arguments=(*arguments[:place], changed, *arguments[place + 1 :]))
        case Name():
            yield GraphCall("relu", (expr,))
            yield GraphCall("negative", (expr,))
