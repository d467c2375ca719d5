"""Every mutant of every proved rule before the prover and the independent checker: `python bench/mutants.py`.

Exits with status 1 when an answer is wrong: a mutant proved that differs or has no meaning somewhere, or a
counterexample that the checker does not confirm.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from measure import write_results

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.prove.cases import library, rules_of  # noqa: E402
from tests.prove.judgement import Judgement, Truth, Word, counts, judge, table  # noqa: E402
from tests.prove.mutation import mutants  # noqa: E402

PER_KIND = 8
"""Twice as many as the tests choose from: more than 4,000 of them are well-formed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--per-kind", type=int, default=PER_KIND, help="mutants of a rule of one kind")
    options = parser.parse_args()

    begun = perf_counter()
    judgements = list(judge_all(options.per_kind))
    seconds = perf_counter() - begun
    rows = counts(judgements)
    wrong = [described(judgement) for judgement in judgements if not judgement.sound]
    missed = [described(j) for j in judgements if j.truth is Truth.DIFFER and j.word is not Word.REFUTED]
    print(*table(rows), sep="\n")
    print(*(f"wrong: {line}" for line in wrong), *(f"not refuted: {line}" for line in missed), sep="\n")
    results = {"all": round(seconds, 1), "mutants": rows, "wrong": wrong, "differ and not refuted": missed}
    write_results("mutants", f"python bench/mutants.py --per-kind {options.per_kind}", results)
    sys.exit(1 if wrong else 0)


def judge_all(per_kind: int) -> Iterator[Judgement]:
    rules = rules_of("proved")
    for number, rule in enumerate(rules, 1):
        own = [judge(mutant, kind, library()) for kind, mutant in mutants(rule, library(), per_kind)]
        print(f"{number}/{len(rules)} {rule.name}: {len(own)}", file=sys.stderr, flush=True)
        yield from own


def described(judgement: Judgement) -> str:
    rule = judgement.rule
    return f"{rule.name}, {judgement.kind}: {judgement.word}, {judgement.truth}: {judgement.detail}"


if __name__ == "__main__":
    main()
