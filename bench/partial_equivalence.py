"""Partially equal forms, each with its boxes, proof and price: `python bench/partial_equivalence.py`.

`--write` writes the proved ones to rules/partial.rules.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from time import process_time
from typing import Any

from measure import write_results

from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.library import Library
from unity_dsl.rules.partial_equivalence.costs import costs
from unity_dsl.rules.partial_equivalence.generation import Outcome, distinct, outcomes
from unity_dsl.rules.partial_equivalence.moves import candidates
from unity_dsl.syntax.format import format_rules
from unity_dsl.syntax.span import Source

RULES = Path(__file__).parent.parent / "rules" / "partial.rules"
HEAD = """\
# Images laid out anew for one operator on all of them: forms that agree with the original in most positions, and their
# exact correction on the others (PET, OSDI'21). Written by `python bench/partial_equivalence.py --write`.
"""
SIZES = {"n": 1, "b": 32, "c": 64, "o": 64, "h": 56, "w": 56, "u": 56, "v": 56, "m": 1, "a": 1, "e": 1, "d": 2}
"""A layer of a ResNet: 64 channels, 56 by 56 positions, 32 images; two images of 56 by 56; a dilation of 2."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write rules/partial.rules")
    options = parser.parse_args()
    library = load_library()
    begun = process_time()
    found = list(outcomes(candidates(), library))
    seconds = process_time() - begun
    kept = list(distinct(found))
    write_results(
        "partial_equivalence",
        "python bench/partial_equivalence.py",
        {
            "counts": dict(Counter(map(status, found))),
            "rules": len(kept),
            "cpu_seconds": round(seconds, 1),
            "sizes": SIZES,
            "candidates": [described(outcome, library) for outcome in found],
        },
    )
    if options.write:
        texts = (outcome.corrected.rule.text for outcome in kept if outcome.corrected is not None)
        RULES.write_text(format_rules(Source(RULES.name, "\n".join((HEAD, *texts)))))


def status(outcome: Outcome) -> str:
    """What became of a candidate, in a word or two."""
    if outcome.corrected is None:
        return "agrees nowhere" if outcome.reason.startswith("the sides") else "not written"
    if not outcome.proved:
        return "not proved"
    return "equal everywhere" if outcome.corrected.exact else "proved with its correction"


def described(outcome: Outcome, library: Library) -> dict[str, Any]:
    """A candidate with what was found: boxes, and the costs of both sides at `SIZES`."""
    entry: dict[str, Any] = {"name": outcome.candidate.name, "status": status(outcome)}
    if outcome.corrected is None:
        return entry | {"reason": outcome.reason}
    left, right = costs(outcome.corrected.rule.rule(library), library, SIZES)
    return entry | {"boxes": list(outcome.boxes), "left": asdict(left), "right": asdict(right)}


if __name__ == "__main__":
    main()
