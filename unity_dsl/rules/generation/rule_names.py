"""Descriptive names of rules: the operators, each with the axes that it works on, and the kind of law.

| kind | law |
| -- | -- |
| `f_commutes` | `f(x, y) => f(y, x)` |
| `f_associates` | `f(f(x, y), z) => f(x, f(y, z))` |
| `f_idempotent` | `f(f(x)) => f(x)` |
| `f_composes` | `f(f(x; c); d) => f(x; c * d)` |
| `f_absorbed_by_g` | `f(g(x)) => g(x)` |
| `f_commutes_with_g` | `f(g(x)) => g(f(x))` |
| `g_moves_across_f` | `f(g(x), y) => f(x, g(y))` |
| `f_distributes_over_g` | `f(g(x, y)) => g(f(x), f(y))` |
| `f_factors_out_of_g` | `g(f(x), f(y)) => f(g(x, y))` |
| `f_joined_by_concat` | `f(x), f(y) =>` slices of one `f(concat(x, y))` |
| `f_of_g_undone` | the right side is an input |
| `f_of_g_exchanged`, `f_of_g_regrouped` | the same operators, with another or the same one outermost |
| `f_of_g_into_h`, `f_of_g_as_h` | fewer operators, or different ones |

If `f` has several operands, `in_w` says which one `g` is, by its declared name. Rules with equal names get details:
which operand is meant, which inputs have lower rank, which are read at several places, the rank, the right side. Names
that are still equal get numbers, in the order of the rules' texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence

from ...index.library import Library
from ...syntax.parse_rules import RuleDecl
from .canonical_rule import canonical_rule
from .rule_text import rule_text
from .rule_trees import Tree, tree_of

LONGEST = 64
"""Limit of characters of a name without its details."""
MOST = 4
"""Limit of operators of a side that a name lists."""


def rule_names(rules: Sequence[RuleDecl], taken: Collection[str], library: Library) -> list[str]:
    """Names for distinct rules, none of them `taken`, independent of the order of the rules."""
    canonical = [canonical_rule(rule, library) for rule in rules]
    names = [telling_name(rule, library) for rule in canonical]
    for detail in DETAILS:
        counts = Counter((*names, *taken))
        details = [detail(rule, library) for rule in canonical]
        differ = {
            name for name in counts if len({own for one, own in zip(names, details, strict=True) if one == name}) > 1
        }
        names = [
            f"{name}_{own}" if own and (name in differ or (name in taken and counts[name] > 1)) else name
            for name, own in zip(names, details, strict=True)
        ]
    return list(_numbered(names, canonical, taken))


def _numbered(names: Sequence[str], rules: Sequence[RuleDecl], taken: Collection[str]) -> Iterator[str]:
    """The names; equal names get numbers in the order of the rules' texts."""
    texts = [rule_text(rule) for rule in rules]
    for name, text in zip(names, texts, strict=True):
        same = sorted(other for one, other in zip(names, texts, strict=True) if one == name)
        free = (one for number in range(1, 10**6) if (one := f"{name}_{number}") not in taken)
        yield name if len(same) == 1 and name not in taken else [next(free) for _ in same][same.index(text)]


# ---------------------------------------------------------------------------------------------- kinds of laws


def telling_name(rule: RuleDecl, library: Library) -> str:
    """The name of a canonical rule, without details that distinguish it from others."""
    left, right = ([tree_of(expr, library) for expr in side] for side in (rule.left, rule.right))
    if len(left) > 1:
        return _cut(_joined(left, right) or f"{_paths(left)}_as_{_paths(right)}")
    return _cut(_law(left[0], right[0]))


def _law(left: Tree, right: Tree) -> str:
    if not right.word:
        return f"{_path(left)}_undone"
    if right in left.operands:
        return f"{left.word}_idempotent" if left.word == right.word else f"{left.word}_absorbed_by_{_path(right)}"
    words, others = Counter(left.words), Counter(right.words)
    if len(words) == len(right.words) == 1 and len(left.words) == 2:
        return f"{left.word}_composes"
    if words == others:
        return _same_operators(left, right)
    if left.word == right.word:
        return f"{_path(left)}_{'into' if len(right.words) < len(left.words) else 'as'}_{_path(right)}"
    if not words - others and (others - words).keys() == {left.word} and len(left.words) == 2:
        return f"{left.word}_distributes_over_{right.word}{_operand(left)}"
    if not others - words and (words - others).keys() == {right.word} and len(right.words) == 2:
        return f"{right.word}_factors_out_of_{left.word}{_operand(right)}"
    return f"{_path(left)}_{'into' if len(right.words) < len(left.words) else 'as'}_{_path(right)}"


def _same_operators(left: Tree, right: Tree) -> str:
    """The name of a law with the same operators on both sides."""
    several = len(left.words) > 2
    if left.word != right.word:
        if several:
            return f"{_path(left)}_exchanged"
        return f"{left.word}_commutes_with_{right.word}{_operand(left) or _operand(right)}"
    if several:
        return f"{_path(left)}_regrouped"
    if len(left.words) == 1:
        return f"{left.word}_commutes"
    inner = left.words[1]
    return f"{left.word}_associates" if inner == left.word else f"{inner}_moves_across_{left.word}"


def _joined(left: Sequence[Tree], right: Sequence[Tree]) -> str:
    """The name of a law that computes one operator once, on concatenated operands, instead of several times."""
    bases = {part for tree in right for part in tree.operands}
    if len(bases) != 1 or not all(tree.word.startswith("slice") for tree in right):
        return ""
    (base,) = bases
    concats = dict.fromkeys(word for word in base.words if word.startswith("concat"))
    own = dict.fromkeys(word for tree in left for word in tree.words)
    return f"{'_of_'.join(own)}_joined_by_{'_and_'.join(concats)}" if own and concats else ""


def _operand(tree: Tree) -> str:
    """`_in_w`: the operands, out of several, that are not inputs."""
    if len(tree.operands) < 2:
        return ""
    names = [name for name, part in zip(tree.names, tree.operands, strict=False) if part.word]
    return f"_in_{'_and_'.join(names)}" if 0 < len(names) < len(tree.operands) else ""


def _path(tree: Tree) -> str:
    return "_of_".join(tree.words[:MOST]) or "input"


def _paths(side: Sequence[Tree]) -> str:
    return "_and_".join(dict.fromkeys(map(_path, side)))


def _cut(name: str) -> str:
    """The name cut to at most LONGEST characters, in whole words."""
    words = name.split("_")
    while len("_".join(words)) > LONGEST:
        words.pop()
    while words[-1] in ("of", "and", "into", "as", "in"):
        words.pop()
    return "_".join(words)


# ---------------------------------------------------------------------------------------------- what tells more


def _places(rule: RuleDecl, library: Library) -> str:
    """`in_w`: the operands of the outermost operator that are not inputs."""
    return "_and_".join(filter(None, (_operand(tree_of(expr, library)).removeprefix("_") for expr in rule.left)))


def _lower_ranks(rule: RuleDecl, library: Library) -> str:
    """`broadcast_y`: the inputs of lower rank than the highest one."""
    ranks = {tensor.name: len(tensor.dims) for tensor in rule.inputs}
    lower = [name for name, rank in ranks.items() if rank < max(ranks.values())]
    return f"broadcast_{'_'.join(lower)}" if lower else ""


def _repeated(rule: RuleDecl, library: Library) -> str:
    """`same_x`: the inputs that the left side reads at several places."""
    counts = Counter(name for expr in rule.left for name in tree_of(expr, library).inputs)
    several = [name for name, count in counts.items() if count > 1]
    return f"same_{'_'.join(several)}" if several else ""


def _rank(rule: RuleDecl, library: Library) -> str:
    """`of_rank_3`: the highest rank of inputs without a group."""
    ranks = {len(tensor.dims) for tensor in rule.inputs if not any(dim.rest for dim in tensor.dims)}
    return f"of_rank_{max(ranks)}" if ranks else ""


def _right_side(rule: RuleDecl, library: Library) -> str:
    return f"to_{_cut(_paths([tree_of(expr, library) for expr in rule.right]))}"


DETAILS: Sequence[Callable[[RuleDecl, Library], str]] = (_places, _lower_ranks, _repeated, _rank, _right_side)
