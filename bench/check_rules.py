"""Evaluates both sides of every shipped rule at random valid shapes: `python bench/check_rules.py`.

The evaluator, which is the one of the tests, is independent of the prover and of the lowering to PyTorch. It reads the
declarations and computes in exact and in interval arithmetic. Sizes are drawn from 1 on, so they include sizes of 1 and
unequal parts. A rule whose sides differ, are undefined somewhere or could not be evaluated is listed, and the exit code
is 1.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from time import process_time

from measure import write_results

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.prove.cases import library  # noqa: E402
from tests.prove.evaluator.truth import Judged, Truth, judge  # noqa: E402
from unity_dsl.prove.translation.rule_results import by_results  # noqa: E402
from unity_dsl.resources import folder  # noqa: E402
from unity_dsl.rules.process_map import process_map  # noqa: E402
from unity_dsl.syntax.parse_rules import RuleDecl, parse_rules  # noqa: E402
from unity_dsl.syntax.read import read_source  # noqa: E402

SEED = 4000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=14)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("files", nargs="*", type=Path, help="else all shipped files")
    options = parser.parse_args()

    paths = options.files or sorted(folder("rules").glob("*.rules"))
    rules = [
        (path.stem, by_results(rule, library())) for path in paths for rule in parse_rules(read_source(path)).rules
    ]
    tasks = [(theme, rule, options.instances) for theme, rule in rules]
    found = list(process_map(tried, tasks, options.processes))
    wrong = {
        rule.name: judged.detail for (_, rule), (judged, _) in zip(rules, found, strict=True) if not is_right(judged)
    }
    results = {
        "rules": len(rules),
        "truths": dict(Counter(judged.truth.name.lower() for judged, _ in found)),
        "by_file": dict(Counter(theme for theme, _ in rules)),
        "instances": sum(judged.instances for judged, _ in found),
        "elements_compared": sum(judged.compared for judged, _ in found),
        "least_instances_of_a_rule": min((judged.instances for judged, _ in found), default=0),
        "cpu_seconds": round(sum(seconds for _, seconds in found), 1),
        "wrong": wrong,
    }
    print(", ".join(f"{name} {value}" for name, value in results.items()))
    if not options.files:
        write_results("check_rules", f"python bench/check_rules.py --instances {options.instances}", results)
    raise SystemExit(bool(wrong))


def tried(task: tuple[str, RuleDecl, int]) -> tuple[Judged, float]:
    """The evaluator's verdict on a rule, and the processor seconds that it took."""
    _, rule, instances = task
    begun = process_time()
    judged = judge(rule, library(), instances, SEED)
    return judged, process_time() - begun


def is_right(judged: Judged) -> bool:
    return judged.truth is Truth.EQUAL and judged.instances > 0


if __name__ == "__main__":
    main()
