"""Writes rules as text in the layout of `unityc fmt`; parsing the text gives the same rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ...index.equations.term_text import condition_text, expression_text
from ...syntax.ast import Name, Number
from ...syntax.format import format_rules
from ...syntax.parse_rules import INFIX, GraphCall, GraphExpr, GraphView, RuleDecl, RuleDim, RuleInput
from ...syntax.span import Source

WIDTH = 118
SIGNS = {operator: sign for sign, operator in INFIX.items()}
_SUM, _PRODUCT, _VALUE, _COMPOUND = range(4)
LOCAL = "r"
"""The letter of local names, numbered."""


def rules_text(rules: Iterable[RuleDecl], header: str = "") -> str:
    """A file of rules, with a comment at its start."""
    comment = "".join(f"# {line}\n" for line in header.splitlines())
    text = "\n".join(filter(None, (comment, "\n".join(map(rule_text, rules)))))
    return format_rules(Source("generated.rules", text))


def rule_text(rule: RuleDecl) -> str:
    """A rule: its head, conditions, local names, and its sides, on one line if they fit."""
    shared = named(rule)
    where = ", ".join(map(condition_text, shared.conditions))
    head = f"rule {shared.name}({', '.join(map(input_text, shared.inputs))})"
    lines = [f"## {line}" for line in shared.doc.splitlines()]
    lines += [f"{head} where {where}"] if where and len(head) + len(where) < WIDTH - 8 else [head]
    lines += [f"  where {where}"] if where and lines[-1] == head else []
    lines += [f"  {line}" for line in _definitions(shared)]
    left, right = (", ".join(map(graph_text, side)) for side in (shared.left, shared.right))
    whole = f"  {left} => {right}"
    return "\n".join([*lines, *([whole] if len(whole) <= WIDTH else [f"  {left}", f"  => {right}"])]) + "\n"


def sides_text(rule: RuleDecl) -> str:
    """Both sides on one line, with local names replaced by their definitions."""
    made = dict(rule.definitions)

    def written(expr: GraphExpr) -> GraphExpr:
        match expr:
            case Name(name) if name in made:
                return written(made[name])
            case GraphCall(arguments=arguments):
                return replace(expr, arguments=tuple(map(written, arguments)))
            case GraphView(operand):
                return replace(expr, operand=written(operand))
        return expr

    left, right = (", ".join(graph_text(written(expr)) for expr in side) for side in (rule.left, rule.right))
    return f"{left} => {right}"


def _definitions(rule: RuleDecl) -> Iterator[str]:
    """`r1 = …` for each local name; the results of one call are on one line."""
    waiting: list[str] = []
    for name, value in rule.definitions:
        waiting.append(name)
        if not isinstance(value, GraphCall) or len(waiting) == value.results:
            yield f"{', '.join(waiting)} = {graph_text(value)}"
            waiting = []


def input_text(tensor: RuleInput) -> str:
    integers = "" if tensor.integer_range is None else f"int<{expression_text(tensor.integer_range)}>"
    return f"{tensor.name}: {integers}[{', '.join(map(_dim_text, tensor.dims))}]"


def _dim_text(dim: RuleDim) -> str:
    text = expression_text(dim.size)
    return f"{text}.." if dim.rest else f"@{text}" if dim.device else text


def graph_text(expr: GraphExpr) -> str:
    """A graph, with sums and products in infix notation."""
    return _text(expr, _SUM)


def _text(expr: GraphExpr, level: int) -> str:
    text, own = _plain(expr)
    return f"({text})" if own < level else text


def _plain(expr: GraphExpr) -> tuple[str, int]:
    match expr:
        case Name(name):
            return name, _COMPOUND
        case Number():
            return expression_text(expr), _VALUE
        case GraphView(operand, source, target):
            # A view applies to the single value on its left; inside a larger expression it has parentheses.
            return f"{_text(operand, _COMPOUND)}[{_pattern(source)}] -> [{_pattern(target)}]", _SUM
        case GraphCall(name, (left, right), ()) if name in SIGNS:
            own = _SUM if name in ("add", "sub") else _PRODUCT
            return f"{_operand(left, own)} {SIGNS[name]} {_operand(right, own + 1)}", own
        case GraphCall():
            return _call(expr), _COMPOUND
    raise TypeError(f"{expr} is no graph")


def _operand(expr: GraphExpr, level: int) -> str:
    return f"({graph_text(expr)})" if isinstance(expr, GraphView) else _text(expr, level)


def _call(call: GraphCall) -> str:
    settings = ", ".join(f"{name}={expression_text(value)}" for name, value in call.attributes)
    operands = ", ".join(map(graph_text, call.arguments))
    if call.degrees is None:
        return f"{call.name}({operands}{f'; {settings}' if settings else ''})"
    return f"{call.name}[{', '.join(call.degrees)}{f'; {settings}' if settings else ''}]({operands})"


def _pattern(side: tuple[tuple[str | int, ...], ...]) -> str:
    return ", ".join(str(names[0]) if len(names) == 1 else f"({' '.join(map(str, names))})" for names in side)


# ---------------------------------------------------------------------------------------------- local names


def named(rule: RuleDecl) -> RuleDecl:
    """The rule with local names for expressions that a side of several tensors reads more than once, and for calls with
    several results.
    """
    if rule.definitions:
        return rule
    several = {
        replace(expr, result=0): expr
        for side in (rule.left, rule.right)
        for one in side
        for expr in calls_in(one)
        if isinstance(expr, GraphCall) and expr.results > 1
    }
    repeated = _repeated(rule) if len(rule.left) > 1 else []
    wanted = sorted({*several, *(expr for expr in repeated if getattr(expr, "results", 1) == 1)}, key=_depth)
    taken = {tensor.name for tensor in rule.inputs}
    names: dict[GraphExpr, str] = {}
    definitions: list[tuple[str, GraphExpr]] = []
    for expr in wanted:
        value = _with_names(expr, names)
        for old, new in zip(_results(expr), _results(value), strict=True):
            name = next(made for number in range(1, 100) if (made := f"{LOCAL}{number}") not in taken)
            taken.add(name)
            definitions.append((name, new))
            names[old] = name
    left, right = (tuple(_with_names(expr, names) for expr in side) for side in (rule.left, rule.right))
    return replace(rule, definitions=tuple(definitions), left=left, right=right)


def _results(expr: GraphExpr) -> list[GraphExpr]:
    """The list of a call's results; a view gives itself."""
    return [replace(expr, result=place) for place in range(expr.results)] if isinstance(expr, GraphCall) else [expr]


def _repeated(rule: RuleDecl) -> list[GraphExpr]:
    """Calls and views that are read at several places, not counting reads inside another repeated expression."""
    counts: dict[GraphExpr, int] = {}
    for expr in (*rule.left, *rule.right):
        for inner in calls_in(expr):
            counts[inner] = counts.get(inner, 0) + 1
    return _maximal(sorted((expr for expr, count in counts.items() if count > 1), key=_depth), rule)


def calls_in(expr: GraphExpr) -> Iterator[GraphCall | GraphView]:
    """Every call and view in an expression, itself first."""
    if isinstance(expr, GraphCall | GraphView):
        yield expr
        for inner in expr.arguments if isinstance(expr, GraphCall) else (expr.operand,):
            yield from calls_in(inner)


def _depth(expr: GraphExpr) -> int:
    return sum(1 for _ in calls_in(expr))


def _maximal(repeated: list[GraphExpr], rule: RuleDecl) -> list[GraphExpr]:
    """The repeated expressions that are read at several places, not counting reads inside another kept one."""
    kept: list[GraphExpr] = []
    for expr in reversed(repeated):
        names = dict.fromkeys(kept, "")
        places = [*rule.left, *rule.right, *kept]
        if sum(_places(one, expr, names) for one in places) > 1:
            kept.append(expr)
    return kept[::-1]


def _places(expr: GraphExpr, wanted: GraphExpr, names: dict[GraphExpr, str]) -> int:
    """How often an expression occurs in another one, outside of expressions that have names."""
    if expr == wanted:
        return 1
    inner = expr.arguments if isinstance(expr, GraphCall) else (expr.operand,) if isinstance(expr, GraphView) else ()
    return sum(0 if one in names else _places(one, wanted, names) for one in inner)


def _with_names(expr: GraphExpr, names: dict[GraphExpr, str]) -> GraphExpr:
    if expr in names:
        return Name(names[expr])
    match expr:
        case GraphCall(arguments=arguments):
            return replace(expr, arguments=tuple(_with_names(one, names) for one in arguments))
        case GraphView(operand):
            return replace(expr, operand=_with_names(operand, names))
    return expr
