"""Runs both sides of every shipped rule as programs, on one device and on two: `python bench/apply_rules.py`.

At random sizes, the left side of a rule is a model, and the right side is the result of applying the rule to it. Both
are emitted for one device and, under random plans, for two. Values and gradients in float64 are compared with the left
side evaluated directly from its statements. A configuration (rules/sharding.rules) becomes a plan that shards the
operator in this way. In a law of parallel ops (rules/parallel.rules) each op becomes a change of layout. Laws with ops
that are not changes of layout are listed; tests/emit/test_conversion_text.py and test_exchange_text.py run the code
emitted for those. A rule whose programs differ, or that cannot be run, is listed too, and the exit code is 1. An
interrupted run resumes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from time import process_time
from typing import Any

from measure import COMPILER, RESULTS, ROOT, digest, write_results

sys.path.insert(0, str(ROOT))

from tests.program.layout_laws import NoLayout
from tests.program.rule_programs import NoCase, errors_of
from unity_dsl.emit.program_check import TOLERANCE
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.resources import folder
from unity_dsl.rules.generation.rule_text import rule_text
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.parse_rules import RuleDecl, parse_rules
from unity_dsl.syntax.read import read_source
from unity_dsl.syntax.render import render

NAME = "apply_rules"
REWRITING = ("graph_identity", "graph_match", "infinities", "match_numbers", "match_sizes", "rewrite", "substitution")
MADE_BY = (
    *(path for path in COMPILER if path.name not in ("rules", "unity_dsl")),
    *(ROOT / "unity_dsl" / stage for stage in ("syntax", "index", "graph", "machine", "emit")),
    *(ROOT / "unity_dsl" / "rules" / f"{name}.py" for name in (*REWRITING, "sharding_rules")),
    ROOT / "unity_dsl" / "search" / "strategies" / "random.py",
    *(ROOT / "tests" / "program" / name for name in ("rule_programs.py", "layout_laws.py")),
    ROOT / "tests" / "rules" / "side_models.py",
)
"""The sources that determine a rule's programs. Excluded are the discovery and proof of rules, and the search."""
RANKS = 2

Row = dict[str, Any]


def main() -> int:
    """Runs all rules; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=3, help="at so many draws of sizes")
    parser.add_argument("--again", action="store_true", help="run what was run before too")
    options = parser.parse_args()

    rules = {
        f"{path.stem} {rule.name}": rule
        for path in sorted(folder("rules").glob("*.rules"))
        for rule in parse_rules(read_source(path)).rules
    }
    before = {} if options.again else rows_before()
    made_by, rows = digest(MADE_BY), dict[str, Row]()
    with tempfile.TemporaryDirectory(prefix="apply-rules-") as programs, RankPool(RANKS) as pool:
        for number, (name, rule) in enumerate(rules.items()):
            key = sha256(f"{made_by} {rule_text(rule)} {options.cases}".encode()).hexdigest()[:16]
            row = before.get(name, {})
            if row.get("of") != key or is_wrong(row):
                row = {**run(rule, options.cases, Path(programs) / str(number), pool), "of": key}
                said = row.get("left_out") or row.get("fault") or f"{row['how']}, {row['error']:.1e}"
                print(f"{number + 1}/{len(rules)} {name}: {said}{', WRONG' if is_wrong(row) else ''}", flush=True)
            rows[name] = row
            if number % 10 == 0 or number + 1 == len(rules):
                write_results(
                    NAME, f"python bench/apply_rules.py --cases {options.cases}", summary({**before, **rows}, rules)
                )
    results = summary(rows, rules)
    print(", ".join(f"{name} {value}" for name, value in results.items() if name != "each"))
    return 1 if results["wrong"] else 0


def rows_before() -> Mapping[str, Row]:
    """The rows of the previous run; none if its file is missing or damaged."""
    try:
        return dict(json.loads((RESULTS / f"{NAME}.json").read_text())["seconds"]["each"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def run(rule: RuleDecl, cases: int, programs: Path, pool: RankPool) -> Row:
    """The row of a rule: how its right side was made, the number of programs and their largest error, or why there are
    none.
    """
    before = processor_seconds(pool)
    hows, errors = Counter[str](), list[float]()
    row: Row = {}
    try:
        for number in range(cases):
            case, found = errors_of(rule, number, programs / str(number), pool)
            hows[case.how] += 1
            errors += found.values()
    except NoLayout as reason:
        row["left_out"] = str(reason)
    except NoCase as reason:
        row["fault"] = str(reason)
    except InputError as refused:
        row["fault"] = render(refused.diagnostic)
    if errors:
        row |= {"how": " and ".join(hows), "programs": len(errors), "error": float(f"{max(errors):.1e}")}
    return {**row, "processor_seconds": round(processor_seconds(pool) - before, 1)}


def processor_seconds(pool: RankPool) -> float:
    """Processor seconds of this process and of the ranks."""
    ranks: list[float] = pool.run(rank_seconds, ranks=RANKS)
    return process_time() + sum(ranks)


def rank_seconds(rank: int, ranks: int) -> float:
    """Processor seconds of a rank. The barrier keeps a rank from leaving while others still connect to it."""
    import torch.distributed

    torch.distributed.barrier()
    return process_time()


def is_wrong(row: Row) -> bool:
    """Whether the programs of a rule differ, or are missing without being left out on purpose."""
    return "fault" in row or ("left_out" not in row and row["error"] > TOLERANCE)


def summary(rows: Mapping[str, Row], rules: Mapping[str, RuleDecl]) -> dict[str, Any]:
    """Totals over the rows of these rules, the rules left out, the wrong ones, and the rows themselves."""
    found = {name: rows[name] for name in rules if name in rows}
    ran = [row for row in found.values() if "error" in row]
    return {
        "rules": len(found),
        "right_side": dict(Counter(row["how"] for row in ran)),
        "programs": sum(row["programs"] for row in ran),
        "largest_error": max((row["error"] for row in ran), default=0.0),
        "processor_seconds": round(sum(row["processor_seconds"] for row in found.values()), 1),
        "left_out": {name: row["left_out"] for name, row in found.items() if "left_out" in row},
        "wrong": {name: row for name, row in found.items() if is_wrong(row)},
        "each": found,
    }


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on from here")
