"""Random expressions for the holes of templates: finite, possibly infinite, possibly undefined ones, and guards.

A hole is a letter in braces, `{E}`. Equal holes get equal expressions; a digit, `{E1}`, marks another one of the kind.
Row expressions depend on an index m as well as on the result's index n.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import Random

HOLE = re.compile(r"\{([A-Za-z])\d?\}")
DEPTH = 2

GRAMMAR: Mapping[str, str] = {
    # finite, and with a value everywhere
    "F": (
        "x[n] | x[n] | y[n] | (-x[n]) | (x[n] + y[n]) | (x[n] * y[n]) | {c} | n | (n - {k}) | relu(x[n]) | "
        "tanh(x[n]) | minimum(x[n], {c}) | x[n - 1 else 0] | (sum(m) w[m]) | (max(m) w[m]) | [{G}] | |n| | "
        "select({G}, {F}, {F1}) | ({F} - {F1}) | ({F} * {F1}) | abs({F}) | cap({F}) | side({F}) | (x[n] / {k})"
    ),
    # positive
    "P": "exp(x[n]) | (1 + x[n] * x[n]) | (abs(x[n]) + {k}) | |n| | {k} | (n + 1) | sigmoid(x[n])",
    # possibly infinite
    "I": (
        "select({G}, {F}, -inf) | select({G}, inf, {F}) | (max(m) select({H}, w[m], -inf)) | x[n - {k} else -inf] | "
        "(min(m) select({H}, w[m], inf)) | (max(m) select({H}, {W}, -inf)) | (x[n] + select({G}, 0, -inf)) | "
        "exp(select({G}, inf, x[n])) | (sum(m) select({H}, w[m], -inf)) | (prod(m) select({H}, w[m], inf))"
    ),
    # possibly without a value
    "U": (
        "log(x[n]) | sqrt(x[n]) | (1 / x[n]) | (y[n] / x[n]) | log(x[n] + {c}) | (1 / (x[n] - y[n])) | "
        "(log({F}) - log({F})) | (0 * log({F})) | sqrt({F}) | (x[n] / (sum(m) select({H}, 1, 0))) | root({F}) | "
        "(0 / (x[n] - {c})) | ({I} - {I}) | log(sum(m) [{H}] * exp(w[m]))"
    ),
    # any of these
    "E": "{F} | {I} | {U} | {I}",
    # guards on the position n and the elements there: many are true, or false, nearly everywhere
    "G": (
        "n < {b} | n != {b} | x[n] < {b} | x[n] > {b} | x[n] > y[n] | x[n] > 0 | x[n] == y[n] | n + n < {b} | "
        "n % {k} == 0 | n // {k} < {b} | |n| < {b} | x[n] * x[n] < {b} | |m| < {b} | x[n] >= -{b} | n > 0 | "
        "{F} > {F1} | (max(m) w[m]) < {b} | n * n < {b} | {U} > {F} | {I} > {F} | i[n] < {k}"
    ),
    # guards on a pair of positions
    "H": (
        "m <= n | m < n | m + {b} > n | n + {b} > m | w[m] < {b} | w[m] > {b} | m < {b} | m != n | m == n | "
        "w[m] > x[n] | w[m] == x[n] | m % {k} == n % {k} | {G} | m != {b} | m + {k} <= n | w[m] > 0 | "
        "j[m] == i[n]"
    ),
    # elements of a row
    "W": ("w[m] | w[m] | w[m] | (w[m] + x[n]) | (w[m] * x[n]) | exp(w[m]) | m | (w[m] - m) | (-w[m]) | w[|m| - 1 - m]"),
    # elements of a row, some infinite or without a value
    "V": (
        "{W} | select({H}, {W}, -inf) | select({H}, {W}, inf) | log(w[m]) | (1 / w[m]) | w[m - {k} else -inf] | "
        "sqrt(w[m])"
    ),
    # numbers
    "c": "0 | 1 | 2 | 3 | 0.5 | (-1) | (-2) | {b} | 0.1 | 1.5",
    # counts
    "k": "1 | 2 | 2 | 3 | 4 | 5",
    # bounds, most of them beyond what small trials reach
    "b": "3 | 50 | 60 | 64 | 70 | 100 | 100 | 1000 | 1024 | 5000",
    # factors and divisors of either sign
    "a": "2 | 3 | (-2) | (-3) | 7 | (-1) | (-7)",
    # whole numbers of either sign
    "Z": "n | (-n) | (n - {b}) | (n - |n|) | ({k} * n - {b}) | (|n| - {b}) | (n * n - {b}) | i[n] | (i[n] - {k})",
}
"""Choices for every kind of hole, separated by ` | `. A choice that is repeated is more likely."""


def filled(template: str, random: Random, known: dict[str, str] | None = None, depth: int = DEPTH) -> str:
    """The template with its holes filled. `known` maps holes to expressions so far and is extended."""
    own = {} if known is None else known

    def fill(match: re.Match[str]) -> str:
        hole = match[0]
        if hole not in own:
            own[hole] = _expression(match[1], random, depth)
        return own[hole]

    return HOLE.sub(fill, template)


def _expression(kind: str, random: Random, depth: int) -> str:
    choices = GRAMMAR[kind].split(" | ")
    if depth <= 0:
        flat = [choice for choice in choices if set(HOLE.findall(choice)) <= set("bckaW")]
        choices = flat or ["x[n]"]
    return filled(random.choice(choices), random, None, depth - 1)
