"""Proves every theorem of rules/configurations.json again, in two processes: `python bench/check_theorems.py`.

The exit code is 1 if the file differs from what the prover proves for the shipped operators and the examples.
"""

from __future__ import annotations

import sys
from time import perf_counter

from unity_dsl.index.declarations.loading import load_library
from unity_dsl.resources import folder
from unity_dsl.rules.sharding_theorems import ShardingTheorems
from unity_dsl.rules.shipped_theorems import asked_claims, keep, shipped_instances
from unity_dsl.rules.theorem_file import NAME, TheoremFile


def main() -> int:
    begun = perf_counter()
    library = load_library()
    asked = asked_claims(shipped_instances(library), library)
    found = keep(asked, ShardingTheorems(library, TheoremFile({})), processes=2)
    same = found.to_text() == (folder("rules") / NAME).read_text(encoding="utf-8")
    said = "as the file has them" if same else "which is not what the file has"
    seconds = perf_counter() - begun
    print(f"{len(found.theorems)} theorems, {len(found.refused)} keys refused, {said}; {seconds:.0f} s")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
