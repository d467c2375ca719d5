"""Names that tell what a rule says: the operators of its left side from the outermost on, and the kind of law.

| kind | left and right side |
| -- | -- |
| `f_of_g_undone` | the right side is an input |
| `f_of_g_exchanged` | the same operators, another one outermost |
| `f_of_g_regrouped` | the same operators, the same one outermost |
| `f_of_g_distributed` | the right side has more of an operator of the left one, and no others |
| `f_of_g_into_h` | fewer operators on the right |
| `f_of_g_as_h` | any other |

Of several rules that would have one name each has a piece of the hash of its canonical text behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from ...index.library import Library
from ...syntax.ast import Name
from ...syntax.parse_rules import GraphCall, GraphExpr, GraphView, RuleDecl
from ...syntax.rule_names import subgraphs
from .canonical_rule import canonical_rule, rule_digest

LONGEST = 60
"""Letters of a name without its hash."""
HASH = 6
MOST = 4
"""Operators of a side that a name tells."""


def rule_names(rules: Sequence[RuleDecl], taken: Collection[str], library: Library) -> list[str]:
    """Names for rules, none of them `taken`, independent of the order of the rules."""
    plain = [telling_name(canonical_rule(rule, library)) for rule in rules]
    counts = Counter(plain)
    return [
        name if counts[name] == 1 and name not in taken else f"{name}_{rule_digest(rule, library)[:HASH]}"
        for name, rule in zip(plain, rules, strict=True)
    ]


def telling_name(rule: RuleDecl) -> str:
    """The name of a canonical rule, without a hash."""
    left, right = ([word for side in sides for word in _words(side)] for sides in (rule.left, rule.right))
    path = _path(rule.left)
    if not right:
        return _cut(f"{path}_undone")
    more = Counter(right) - Counter(left)
    if not more and Counter(left) == Counter(right):
        return _cut(f"{path}_{'regrouped' if _roots(rule.left) == _roots(rule.right) else 'exchanged'}")
    if more.keys() <= set(left) and not Counter(left) - Counter(right):
        return _cut(f"{path}_distributed")
    kind = "into" if len(right) < len(left) else "as"
    return _cut(f"{path}_{kind}_{_path(rule.right)}")


def _cut(name: str) -> str:
    """The name, at most LONGEST letters of whole words."""
    words = name.split("_")
    while len("_".join(words)) > LONGEST:
        words.pop()
    while words[-1] in ("of", "and", "into", "as"):
        words.pop()
    return "_".join(words)


def _path(side: Sequence[GraphExpr]) -> str:
    """`linear_of_concat`: the operators of a side, outermost first; those of several results joined by `and`."""
    outputs = list(dict.fromkeys("_of_".join(list(_words(expr))[:MOST]) or "input" for expr in side))
    return "_and_".join(outputs)


def _words(expr: GraphExpr) -> Iterator[str]:
    """The operators of a graph, outermost first, operands from left to right."""
    for inner in subgraphs([expr]):
        if isinstance(inner, GraphCall):
            yield inner.name
        elif isinstance(inner, GraphView) and not _names_axes(inner, expr):
            yield _view_word(inner)


def _names_axes(view: GraphView, expr: GraphExpr) -> bool:
    """Whether a view names the axes that a reduction leaves out, and moves nothing."""
    left_out = {name for names in view.source for name in names} - {name for names in view.target for name in names}
    return bool(left_out) and any(
        isinstance(one, GraphCall) and any(part is view for part in one.arguments) for one in subgraphs([expr])
    )


def _view_word(view: GraphView) -> str:
    split = any(len(names) > 1 for names in view.source)
    merged = any(len(names) > 1 for names in view.target)
    if split == merged:
        return "reshape" if split else "transpose"
    return "split" if split else "merge"


def _roots(side: Sequence[GraphExpr]) -> tuple[str, ...]:
    return tuple(next(_words(expr), "") if not isinstance(expr, Name) else "" for expr in side)
