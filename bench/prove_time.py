"""Processor milliseconds of a proof, for every rule of tests/cases/proved: `python bench/prove_time.py`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import median, quantiles
from time import process_time

from measure import write_results

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.prove.cases import library, rules_of  # noqa: E402
from unity_dsl.prove.answer import Proved  # noqa: E402
from unity_dsl.prove.rule_proof import prove_rule  # noqa: E402
from unity_dsl.syntax.parse_rules import RuleDecl  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()

    rules = rules_of("proved")
    milliseconds(rules[0])  # loads z3
    times = {rule.name: median(milliseconds(rule) for _ in range(options.repetitions)) for rule in rules}
    slowest = max(times, key=lambda name: times[name])
    results = {
        "rules": len(times),
        "median_ms": round(median(times.values()), 1),
        "p95_ms": round(quantiles(times.values(), n=20)[-1], 1),
        "slowest_ms": round(times[slowest], 1),
        "slowest": slowest,
        "each_ms": {name: round(time, 1) for name, time in times.items()},
    }
    print(", ".join(f"{name} {value}" for name, value in results.items() if name != "each_ms"))
    write_results("prove_time", f"python bench/prove_time.py --repetitions {options.repetitions}", results)


def milliseconds(rule: RuleDecl) -> float:
    """Processor milliseconds of one proof. Raises SystemExit if the rule is not proved."""
    begun = process_time()
    answer = prove_rule(rule, library())
    if not isinstance(answer, Proved):
        raise SystemExit(f"{rule.name} is not proved: {answer}")
    return (process_time() - begun) * 1000


if __name__ == "__main__":
    main()
