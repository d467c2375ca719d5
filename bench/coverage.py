"""Which true rules of published files follow from the shipped rules, and vice versa: `python bench/coverage.py`.

The rules that bench/audit.py found true, under their conditions, are derived from the shipped rules with a certificate
and from those of `--rules FILE`. In the other direction, shipped rules are derived from the true rules of each file,
and of both files together, at any rank of their groups. The bounds of the derivations are those of
unity_dsl/rules/audit/coverage.py. The files are looked for in $UNITY_DSL_DATA, or in ../shared/data beside the
checkout. docs/audit.md is written from the results.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from time import process_time
from typing import Any

from measure import RESULTS, write_results

from unity_dsl.prove.answer import Proved
from unity_dsl.prove.rule_proof import prove_rule
from unity_dsl.prove.translation.rule_forms import calls
from unity_dsl.report.audit_page import USUAL, audit_page, load_audits, load_coverage
from unity_dsl.rules.audit.classification import Finding, Status, true_rules
from unity_dsl.rules.audit.coverage import (
    BOUND,
    BOUND_AT_RANKS,
    Cover,
    Covered,
    RuleLibrary,
    coverage,
    coverage_at_some_rank,
)
from unity_dsl.rules.audit.formats import FORMATS
from unity_dsl.rules.audit.reading import Reading, chosen_reading
from unity_dsl.rules.audit.rule_file import read_rule_file
from unity_dsl.rules.audit.rule_translation import translate
from unity_dsl.rules.certificate import called_names
from unity_dsl.rules.generation.pipeline import known_rules
from unity_dsl.rules.generation.rule_text import rule_text
from unity_dsl.rules.wellformed import load_rules
from unity_dsl.syntax.parse_rules import RuleDecl
from unity_dsl.syntax.read import read_source

ROOT = Path(__file__).parent.parent
FILES = {"audit_taso": "taso_graph_subst.pb", "audit_unity": "unity_graph_subst_3_v2.json"}
EXAMPLES = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", type=Path, action="append", default=[], metavar="FILE", help="more proved rules")
    options = parser.parse_args()
    data = Path(os.environ.get("UNITY_DSL_DATA", ROOT.parent / "shared" / "data"))
    missing = [file for file in FILES.values() if not (data / file).is_file()]
    if missing:
        parser.error(f"{', '.join(missing)} not in {data}: what is known of the coverage stays")
    published: dict[str, Any] = {}
    theirs: dict[str, tuple[RuleDecl, ...]] = {}
    for name, file in FILES.items():
        reading = chosen_reading(FORMATS[read_rule_file(data / file).format], ())
        library, definitions = reading.library(), definitions_of(reading)
        ours = [*known_rules(library, None)]
        ours += (rule for path in options.rules for rule in load_rules(read_source(path), library))
        theirs[file] = tuple(true_rules(recorded(name, data / file, reading)))
        published[file] = told(file, coverage(theirs[file], RuleLibrary.of(ours, library, definitions)))
    # The library of the last reading, Unity's, includes the declarations of TASO's.
    theirs["both"] = tuple(rule for rules in theirs.values() for rule in rules)
    known = {source: RuleLibrary.of(rules, library, definitions) for source, rules in theirs.items()}
    shipped = {source: told(f"shipped, from {source}", coverage_at_some_rank(ours, known[source])) for source in known}
    missed = [rule for rule in ours if rule.name in shipped["both"]["missed"]]
    lacking = {rule.name: sorted(known["both"].lacking(rule)) for rule in missed}
    counts = Counter(name for names in lacking.values() for name in names)
    results = {
        "bound": asdict(BOUND),
        "bound of shipped": asdict(BOUND_AT_RANKS),
        "published": published,
        "shipped": shipped,
        "operators they lack": dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))),
        "examples": examples(rule for rule in missed if not lacking[rule.name]),
        "examples on other operators": examples(rule for rule in missed if lacking[rule.name]),
    }
    write_results("coverage", "python bench/coverage.py", results)
    page = audit_page(load_audits(RESULTS), load_coverage(RESULTS))
    (ROOT / "docs" / "audit.md").write_text(page, encoding="utf-8")


def examples(rules: Iterable[RuleDecl]) -> list[str]:
    """The texts of at most `EXAMPLES` rules: the smallest one for each set of operators."""
    found: dict[frozenset[str], RuleDecl] = {}
    for rule in sorted(rules, key=lambda rule: (len(list(calls(rule))), rule.name)):
        found.setdefault(called_names(rule), rule)
    return [rule_text(rule) for rule in list(found.values())[:EXAMPLES]]


def definitions_of(reading: Reading) -> tuple[RuleDecl, ...]:
    """The definitions of a format's operators, each proved first. Raises SystemExit if a proof fails."""
    library = reading.library()
    definitions = reading.definitions(library)
    for rule in definitions:
        if not isinstance(prove_rule(rule, library), Proved):
            raise SystemExit(f"the definition `{rule.name}` is not proved")
    return definitions


def recorded(name: str, path: Path, reading: Reading) -> Iterator[Finding]:
    """The true rules of a file, as bench/audit.py recorded them."""
    audit = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["seconds"][USUAL]
    told = {rule["name"]: rule for rule in audit["rules"]}
    for rule in read_rule_file(path).rules:
        other = told.get(rule.name, {"status": Status.PROVED, "conditions": []})
        if other["status"] in (Status.PROVED, Status.PROVED_WITH_CONDITIONS):
            text = translate(rule, reading).text
            yield Finding(rule.name, Status(other["status"]), tuple(other["conditions"]), None, text)


def told(what: str, covered: Iterator[Covered]) -> dict[str, Any]:
    """Counts of rules by how they follow, the share that follows, the most steps and the rules used, and the reasons of
    the others.
    """
    begun = process_time()
    found = list(covered)
    seconds = process_time() - begun
    counts = Counter(one.cover for one in found)
    missed = [one for one in found if one.cover is Cover.MISSED]
    told = {
        "rules": len(found),
        "counts": {str(cover): counts[cover] for cover in Cover},
        "share": round(1 - len(missed) / max(len(found), 1), 4),
        "most steps": max((len(one.by) for one in found), default=0),
        "rules used": len({name for one in found for name in one.by}),
        "processor seconds": round(seconds, 1),
        "missed": {one.name: one.reason for one in missed},
    }
    print(f"{what}: {told['counts']}, {told['processor seconds']} s", flush=True)
    return told


if __name__ == "__main__":
    main()
