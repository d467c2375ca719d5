"""Audits the published rule files of TASO and Unity: `python bench/audit.py`.

Each file is audited under the usual reading of its operators and under alternative readings. For each reading the
counts are recorded, and the rules that are not proved, with their counterexamples. docs/audit.md is written from the
results. The files are looked for in $UNITY_DSL_DATA, or in ../shared/data beside the checkout. An interrupted run keeps
the audits that it finished.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

from measure import RESULTS, processor_seconds, write_results

from unity_dsl.report.audit_page import USUAL, audit_page, load_audits, load_coverage
from unity_dsl.rules.audit.classification import Finding, Status, findings
from unity_dsl.rules.audit.formats import FORMATS
from unity_dsl.rules.audit.reading import chosen_reading
from unity_dsl.rules.audit.rule_file import read_rule_file

ROOT = Path(__file__).parent.parent
FILES = {
    "audit_taso": ("taso_graph_subst.pb", ("", "conv2d=grouped", "split=halves")),
    "audit_unity": (
        "unity_graph_subst_3_v2.json",
        ("", "split=halves", "replicate=repeat", "reduce=neighbours", "replicate=repeat reduce=neighbours"),
    ),
}
"""The published files, and the readings under which each is audited."""
PROCESSES = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=FILES, help="one of the two files")
    parser.add_argument("--usual", action="store_true", help="the usual reading only")
    options = parser.parse_args()
    folder = Path(os.environ.get("UNITY_DSL_DATA", ROOT.parent / "shared" / "data"))
    for name, (file, readings) in FILES.items():
        if not (folder / file).is_file():
            print(f"{file} is not in {folder}: what is known of it stays")
            continue
        for reading in readings if options.only in (None, name) else ():
            if not reading or not options.usual:
                audit = audited(folder / file, reading.split())
                print(f"{file}, {reading or 'usual'}: {audit['counts']}, {audit['processor_seconds']} s", flush=True)
                kept = {**known(name), reading or USUAL: audit}
                order = [one or USUAL for one in readings]
                write_results(name, f"unityc rules audit {file}", {one: kept[one] for one in order if one in kept})
    page = audit_page(load_audits(RESULTS), load_coverage(RESULTS))
    (ROOT / "docs" / "audit.md").write_text(page, encoding="utf-8")


def known(name: str) -> dict[str, Any]:
    """The audits of a file by reading, from the last results."""
    path = RESULTS / f"{name}.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))["seconds"]) if path.exists() else {}


def audited(path: Path, readings: list[str]) -> dict[str, Any]:
    """The audit of a file under one reading: answers, wall-clock seconds, and processor seconds of all processes."""
    begun, before = time.perf_counter(), processor_seconds()
    file = read_rule_file(path)
    reading = chosen_reading(FORMATS[file.format], readings)
    found = list(findings(file, reading, PROCESSES))
    counts = Counter(finding.status for finding in found)
    return {
        "seconds": round(time.perf_counter() - begun, 2),
        "processor_seconds": round(processor_seconds() - before, 2),
        "processes": PROCESSES,
        "counts": {str(status): counts[status] for status in Status},
        "reading": reading.texts,
        "rules": [told(finding) for finding in found if finding.status is not Status.PROVED],
    }


def told(finding: Finding) -> dict[str, object]:
    return {**finding.summary(), "text": finding.text, "counterexample": finding.counterexample}


if __name__ == "__main__":
    main()
