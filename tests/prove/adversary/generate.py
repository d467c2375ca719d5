"""Random rules that may be true, each with two operators as its sides, drawn from the templates of a kind.

Sides are inserted into a context, swapped, or changed in one place, so that near misses of laws are drawn as well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from .graphs import GRAPHS, graph_rule
from .holes import HOLE, filled
from .schemes import CONTEXTS, SCHEMES, Pair

TENSORS = {"x": "[n]", "y": "[n]", "w": "[m]", "t": "[v]", "i": "int<v>[n]", "j": "int<v>[m]"}
SIZES: Sequence[tuple[dict[str, str], str]] = (
    *(({}, ""),) * 12,
    ({"n": "n + 20"}, ""),
    ({"m": "m + 70"}, ""),
    ({"n": "3"}, ""),
    ({"m": "n"}, ""),
    ({"m": "m + n"}, ""),
    ({"n": "2 * n"}, ""),
    ({}, "n <= 40"),
    ({}, "n >= 70"),
    ({}, "m <= n"),
    ({}, "m >= 100"),
    ({}, "m + 1 < n"),
)
"""The operators' sizes in terms of the rule's, and its conditions. Both decide which far positions exist."""
NESTED, CHANGED, SWAPPED, IN_CONTEXT = 0.2, 0.25, 0.3, 0.4
"""Probabilities that a pair fills a hole of another, a side is changed in one place, sides swap, a context is added."""

KINDS = (*SCHEMES, *GRAPHS)


@dataclass(frozen=True)
class Case:
    """The texts of a rule and of the declarations made for it."""

    kind: str
    name: str
    declarations: str
    rule: str

    def __str__(self) -> str:
        return f"{self.declarations}\n{self.rule}"


def drawn_case(kind: str, number: int, seed: int) -> Case:
    """The rule of that kind and number. It depends only on these and the seed."""
    random = Random(f"{seed} {kind} {number}")
    name = f"{kind}_{number}"
    if kind in GRAPHS:
        return Case(kind, name, "", graph_rule(kind, name, random))
    left, right = drawn_sides(kind, random)
    return _case(kind, name, left, right, random)


def drawn_sides(kind: str, random: Random) -> tuple[str, str]:
    """Two expressions for the element at position n of the result."""
    left, right = random.choice(SCHEMES[kind])
    known: dict[str, str] = {}
    if random.random() < NESTED:
        left, right = _nested(left, right, random.choice(SCHEMES[random.choice(list(SCHEMES))]), random)
    if random.random() < IN_CONTEXT:
        context = random.choice(CONTEXTS.split(" | "))
        left, right = context.replace("{_}", left), context.replace("{_}", right)
    left, right = filled(left, random, known), filled(right, random, known)
    if random.random() < SWAPPED:
        left, right = right, left
    if random.random() < CHANGED:
        right = changed(right, random)
    return left, right


def _nested(left: str, right: str, inner: Pair, random: Random) -> tuple[str, str]:
    """Replaces a hole that both sides have by the sides of another pair. Without such a hole nothing changes."""
    holes = [match[0] for match in HOLE.finditer(left) if match[1] in "FEIUP" and match[0] in right]
    if not holes:
        return left, right
    hole = random.choice(holes)
    return left.replace(hole, f"({inner[0]})"), right.replace(hole, f"({inner[1]})")


RELATIONS = ("<", "<=", ">", ">=", "==", "!=")
_TOKEN = re.compile(
    r"(?<=[ \[(])"
    r"(?:<=|>=|==|!=|<|>|//|%|\d+(?:\.\d+)?|[+*-]|max(?=\()|min(?=\()|sum(?=\()|-inf|x(?=\[n\]))"
    r"(?=[ \[\]),(])"
)
OTHERS = {
    "//": ("%",),
    "%": ("//",),
    "+": ("-",),
    "-": ("+",),
    "*": ("+",),
    "max": ("min", "sum"),
    "min": ("max",),
    "sum": ("max",),
    "-inf": ("inf", "0"),
    "x": ("y",),
}


def changed(text: str, random: Random) -> str:
    """The expression with one sign, number or name replaced."""
    places = list(_TOKEN.finditer(text))
    if not places:
        return text
    place = random.choice(places)
    return text[: place.start()] + _other(place[0], random) + text[place.end() :]


def _other(token: str, random: Random) -> str:
    if token in RELATIONS:
        return random.choice([other for other in RELATIONS if other != token])
    if token[0].isdigit():
        return random.choice([str(int(token) + 1), str(max(int(token) - 1, 0))]) if token.isdigit() else "0.25"
    return random.choice(OTHERS[token])


def _case(kind: str, name: str, left: str, right: str, random: Random) -> Case:
    text = f"{left} {right}"
    used = [tensor for tensor in TENSORS if tensor == "x" or re.search(rf"\b{tensor}\[", text)]
    if re.search(r"\|m\||\(m\)", text) and "w" not in used:
        used.insert(1, "w")
    if re.search(r"\|v\||\(v\)", text) and not {"i", "j", "t"} & set(used):
        used.append("t")
    inputs = ", ".join(f"{tensor}: {TENSORS[tensor]}" for tensor in used)
    declarations = "".join(
        f"op {name}_{side}({inputs}) -> z: [n]\n  z[n] = {value}\n\n" for side, value in (("l", left), ("r", right))
    )
    own, where = random.choice(SIZES)
    if "m" in (*own, *own.values(), *where.split()) and not {"w", "j"} & set(used):
        own, where = {}, ""
    given = ", ".join(f"{tensor}: {_sized(TENSORS[tensor], own)}" for tensor in used)
    condition = f"\n  where {where}" if where else ""
    operands = ", ".join(used)
    rule = f"rule {name}({given}){condition}\n  {name}_l({operands}) => {name}_r({operands})\n"
    return Case(kind, name, declarations, rule)


def _sized(dims: str, own: dict[str, str]) -> str:
    return re.sub(r"(?<=\[)[nm](?=\])", lambda match: own.get(match[0], match[0]), dims)
