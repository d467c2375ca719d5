"""docs/audit.md: which published rules are true, from the results of bench/audit.py."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from .coverage_section import coverage_section

SYSTEMS = {"audit_taso": "TASO", "audit_unity": "Unity"}
FILES = {"TASO": "`graph_subst.pb`, 133 rules", "Unity": "`graph_subst_3_v2.json`, 640 rules"}
USUAL = "usual"
"""The name of the reading that is used by default."""
NOTES = {
    "TASO": "x7 is external tensor -7 of the file, and so on. Below, g and g2 are the numbers of groups of two "
    "convolutions, p and p2 the outputs per group. Where `p == p2` the two side by side are one grouped convolution, "
    "whatever the numbers of groups are. At all other small shapes, each of which a test tries, the sides differ.",
    "Unity": "x1 is external tensor -1 of the file, and so on. Activations are [r, n, c] and weights [r, o, c], with r "
    "replicas. Partitions and combinations leave values as they are, so the rules below do not show them.",
}
"""What a reader has to know about the rules shown."""
HEAD = """\
<!-- Written by `python bench/audit.py` and `python bench/coverage.py` from their results; do not edit. -->

# Published rules, audited

TASO and Unity publish the substitutions that their searches use. `unityc rules audit FILE` translates each of them into
a rule of ours and proves it for all sizes, or finds out when it is wrong:

```text
unityc rules audit graph_subst.pb
unityc rules audit graph_subst_3_v2.json
```

- *proved*: wherever the source has values the target has the same, at all sizes at which both sides have shapes.
- *proved with conditions*: not always, but under the condition given, which is the weakest one found.
- *refuted*: at some sizes and inputs both sides were computed and differ, and no condition was found.
- *unbound*: the target reads a tensor that the source does not have, so no program can apply the rule.
- *not proved*, *unsupported*: neither a proof nor a counterexample; an operator without a reading.
"""


def load_audits(results: Path) -> dict[str, Mapping[str, Any]]:
    """The audits by system and reading, the default reading first. Raises OSError if a file of results is missing."""
    return {
        system: json.loads((results / f"{name}.json").read_text(encoding="utf-8"))["seconds"]
        for name, system in SYSTEMS.items()
    }


def load_coverage(results: Path) -> Mapping[str, Any]:
    """Which rules follow from which, as bench/coverage.py recorded it. Raises OSError if the file is missing."""
    found: Mapping[str, Any] = json.loads((results / "coverage.json").read_text(encoding="utf-8"))["seconds"]
    return found


def audit_page(audits: Mapping[str, Mapping[str, Any]], coverage: Mapping[str, Any]) -> str:
    """The page as Markdown; `audits` are those of `load_audits`, `coverage` is that of `load_coverage`."""
    parts = [HEAD, _counts_table({system: readings[USUAL] for system, readings in audits.items()})]
    for system, readings in audits.items():
        usual = readings[USUAL]
        parts += [f"## {system}\n\n{FILES[system]}.\n", _reading_table(usual["reading"])]
        parts.append(fill(NOTES[system], 120) + "\n")
        parts += [_wrong(rule) for rule in usual["rules"] if rule["status"] in ("proved_with_conditions", "refuted")]
        parts += _unbound([rule for rule in usual["rules"] if rule["status"] == "unbound"])
        parts += [_other_readings(readings, usual["reading"])]
    parts.append(coverage_section(coverage))
    return "\n".join(parts)


def _counts_table(audits: Mapping[str, Mapping[str, Any]]) -> str:
    statuses = list(next(iter(audits.values()))["counts"])
    lines = [
        f"| file of | {' | '.join(status.replace('_', ' ') for status in statuses)} |",
        f"| -- |{' --: |' * len(statuses)}",
    ]
    for system, audit in audits.items():
        lines.append(f"| {system} | {' | '.join(str(audit['counts'][status]) for status in statuses)} |")
    return "\n".join(lines) + "\n"


def _reading_table(reading: Mapping[str, str]) -> str:
    lines = ["What its operators are taken to mean:\n", "| operator | meaning |", "| -- | -- |"]
    return "\n".join([*lines, *(f"| {kind} | {text} |" for kind, text in reading.items())]) + "\n"


def _wrong(rule: Mapping[str, Any]) -> str:
    conditions = ", ".join(f"`{condition}`" for condition in rule["conditions"])
    verdict = f"Proved where {conditions}; not always:" if conditions else "Refuted:"
    body = [f"### {rule['name']}", "", "```text", rule["text"].rstrip(), "```", "", verdict, "", "```text"]
    return "\n".join([*body, (rule["counterexample"] or rule["reason"]).rstrip(), "```"]) + "\n"


def _unbound(rules: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if rules:
        names = ", ".join(rule["name"].rsplit("_", 1)[-1] for rule in rules)
        head = f"In {len(rules)} rules the target reads a tensor that the source does not have:"
        yield f"### Unbound\n\n{head}\n\n```text\n{fill(names, 120)}\n```\n"


def _other_readings(readings: Mapping[str, Any], usual: Mapping[str, str]) -> str:
    """The counts under every reading, and the meanings of operators that differ from the default."""
    lines = ["### Other readings\n", "| reading | proved | proved with conditions | refuted | not proved |"]
    lines.append("| -- | --: | --: | --: | --: |")
    for name, audit in readings.items():
        counts = [audit["counts"][one] for one in ("proved", "proved_with_conditions", "refuted", "not_proved")]
        label = "as above" if name == USUAL else " ".join(f"`--reading {one}`" for one in name.split())
        lines.append(f"| {label} | {' | '.join(map(str, counts))} |")
    meanings = {
        f"`{kind}`": audit["reading"][kind]
        for name, audit in readings.items()
        for kind in (one.partition("=")[0] for one in name.split() if name != USUAL)
        if audit["reading"][kind] != usual[kind]
    }
    lines += ["", *(f"- {kind}: {text}." for kind, text in meanings.items())]
    return "\n".join(lines) + "\n"
