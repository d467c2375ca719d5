"""The section of docs/audit.md on coverage, from the results of bench/coverage.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import fill
from typing import Any

TITLES = {"taso_graph_subst.pb": "TASO", "unity_graph_subst_3_v2.json": "Unity", "both": "both"}
SEARCH = (
    "Does each true rule of the files follow from the rules that ship, and do these follow from the files? "
    "`bench/coverage.py` looks for derivations as [rules.md](rules.md#what-counts-as-derived) describes them: "
    "chains of instances of proved rules. Here all outputs of a rule are derived at once, and at most {expansions} "
    "terms are expanded. Terms have at most {operators} operators more than the larger side of the rule. A rule is "
    "*trivial* if both sides are one term, up to the order of operands that commute. It is *included* if it is an "
    "instance of one rule, and *derived* if it is a chain of several."
)
DEFINITIONS = (
    "Unity's `tile_twice` is the concatenation of a tensor with itself, `add_halves` the sum of two slices, and "
    "`linear_of_first` the product of one expert, of slices of size 1. These definitions are proved, and replace the "
    "operators before anything is derived. Partitions and combinations leave values as they are."
)
CONVERSE = (
    "These shipped rules were derived from the true rules of a file, or of both, with at most {expansions} expanded "
    "terms. The rules of the files have fixed ranks: a shipped rule for any rank counts if it follows at one rank of "
    "up to four dimensions. Products are `matmul` in TASO's file and those of the first replicas in Unity's. So rules "
    "on `linear` do not follow from either, and rules of any degree do not follow from those of degree 2."
)
OPERATORS = "Neither file has a true rule with these operators. Behind each is the number of shipped rules with it:"
EXAMPLES = {
    "examples": "Shipped rules that do not follow from both files, though these have all of their operators:",
    "examples on other operators": "And on operators that they do not have:",
}


def coverage_section(results: Mapping[str, Any]) -> str:
    """The section as Markdown; `results` are those of `load_coverage`."""
    published, shipped = results["published"], results["shipped"]
    parts = ["## Coverage\n", _filled(SEARCH.format(**results["bound"])), _filled(DEFINITIONS)]
    parts += [_table("true rules of", published), *_missed(published)]
    parts += [
        "### The other way\n",
        _filled(CONVERSE.format(**results["bound of shipped"])),
        _table("shipped rules from", shipped),
    ]
    lacking = ", ".join(f"{name} {count}" for name, count in results["operators they lack"].items())
    parts += [_filled(OPERATORS), f"```text\n{_filled(lacking)}```\n"] if lacking else []
    for name, head in EXAMPLES.items():
        if results[name]:
            parts += [head + "\n", "```text\n" + "\n".join(results[name]) + "```\n"]
    return "\n".join(parts)


def _filled(text: str) -> str:
    return fill(text, 120, break_long_words=False, break_on_hyphens=False) + "\n"


def _table(head: str, rows: Mapping[str, Any]) -> str:
    kinds = ("trivial", "included", "derived", "missed")
    lines = [f"| {head} | rules | {' | '.join(kinds)} | share | most steps |", "| -- |" + " --: |" * 7]
    for name, row in rows.items():
        counts = " | ".join(str(row["counts"][kind]) for kind in kinds)
        share = f"{100 * row['share']:.1f} %"
        lines.append(f"| {TITLES[name]} | {row['rules']} | {counts} | {share} | {row['most steps']} |")
    return "\n".join(lines) + "\n"


def _missed(rows: Mapping[str, Any]) -> Iterator[str]:
    """The rules that do not follow, by reason."""
    for name, row in rows.items():
        reasons: dict[str, list[str]] = {}
        for rule, reason in row["missed"].items():
            reasons.setdefault(reason, []).append(f"`{rule}`")
        for reason, rules in reasons.items():
            yield _filled(f"Missed of {TITLES[name]}, {reason}: {', '.join(rules)}.")
