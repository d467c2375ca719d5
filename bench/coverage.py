"""Which true rules of the published files follow from a library of ours: `python bench/coverage.py`.

The rules that bench/audit.py found true, under their conditions, are derived from the shipped rules and from those of
`--rules FILE`, each within the bound of unity_dsl/rules/derivation. The files are looked for in $UNITY_DSL_DATA, or in
../shared/data beside the checkout.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measure import RESULTS, write_results

from unity_dsl.report.audit_page import USUAL
from unity_dsl.resources import folder
from unity_dsl.rules.audit.classification import Finding, Status, true_rules
from unity_dsl.rules.audit.coverage import Cover, Covered, RuleLibrary, coverage
from unity_dsl.rules.audit.formats import FORMATS
from unity_dsl.rules.audit.reading import Reading, chosen_reading
from unity_dsl.rules.audit.rule_file import read_rule_file
from unity_dsl.rules.audit.rule_translation import translate
from unity_dsl.rules.wellformed import load_rules
from unity_dsl.syntax.read import read_source

ROOT = Path(__file__).parent.parent
FILES = {"audit_taso": "taso_graph_subst.pb", "audit_unity": "unity_graph_subst_3_v2.json"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", type=Path, action="append", default=[], metavar="FILE", help="more proved rules")
    options = parser.parse_args()
    data = Path(os.environ.get("UNITY_DSL_DATA", ROOT.parent / "shared" / "data"))
    sources = [*sorted(folder("rules").glob("*.rules")), *options.rules]
    results = {}
    for name, file in FILES.items():
        if not (data / file).is_file():
            print(f"{file} is not in {data}: its coverage is not counted")
            continue
        rules = read_rule_file(data / file)
        reading = chosen_reading(FORMATS[rules.format], ())
        library = reading.library()
        known = RuleLibrary.of((rule for path in sources for rule in load_rules(read_source(path), library)), library)
        true = tuple(true_rules(recorded(name, data / file, reading)))
        results[file] = summary(list(coverage(true, known)))
        print(f"{file}: {results[file]['counts']}")
    write_results("coverage", "python bench/coverage.py", results)


def recorded(name: str, path: Path, reading: Reading) -> Iterator[Finding]:
    """The true rules of a file, as bench/audit.py recorded them."""
    audit = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["seconds"][USUAL]
    told = {rule["name"]: rule for rule in audit["rules"]}
    for rule in read_rule_file(path).rules:
        other = told.get(rule.name, {"status": Status.PROVED, "conditions": []})
        if other["status"] in (Status.PROVED, Status.PROVED_WITH_CONDITIONS):
            text = translate(rule, reading).text
            yield Finding(rule.name, Status(other["status"]), tuple(other["conditions"]), None, text)


def summary(found: list[Covered]) -> dict[str, Any]:
    """How many rules follow how, the share that does, and of the others the reasons."""
    counts = Counter(one.cover for one in found)
    missed = [one for one in found if one.cover is Cover.MISSED]
    return {
        "counts": {str(cover): counts[cover] for cover in Cover},
        "share": round(1 - len(missed) / max(len(found), 1), 4),
        "missed": {one.name: one.reason for one in missed},
    }


if __name__ == "__main__":
    main()
