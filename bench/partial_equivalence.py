"""Partially equivalent rewrites, each with its boxes, proof and price: `python bench/partial_equivalence.py`.

A box is the region of an output in which both sides agree. `--write` writes the proved rules to rules/partial.rules.
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
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.rule_price import price_sides
from unity_dsl.rules.partial_equivalence.generation import Outcome, distinct, outcomes
from unity_dsl.rules.partial_equivalence.moves import LAYER, candidates, sizes_of_layer
from unity_dsl.syntax.format import format_rules
from unity_dsl.syntax.span import Source

RULES = Path(__file__).parent.parent / "rules" / "partial.rules"
HEAD = """\
# Images laid out anew for one operator on all of them: forms that agree with the original in most positions, and their
# exact correction on the others (PET, OSDI'21). Written by `python bench/partial_equivalence.py --write`.
"""
MACHINES = ("local", "dgx-h100")


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
            "sizes": LAYER,
            "candidates": [described(outcome, library) for outcome in found],
        },
    )
    if options.write:
        texts = (outcome.corrected.rule.text for outcome in kept if outcome.corrected is not None)
        RULES.write_text(format_rules(Source(RULES.name, "\n".join((HEAD, *texts)))))


def status(outcome: Outcome) -> str:
    """The outcome of a candidate in a few words."""
    if outcome.corrected is None:
        return "agrees nowhere" if outcome.reason.startswith("the sides") else "not written"
    if not outcome.proved:
        return "not proved"
    return "equal everywhere" if outcome.corrected.exact else "proved with its correction"


def described(outcome: Outcome, library: Library) -> dict[str, Any]:
    """A candidate with its status, boxes, and the prices of both sides at the sizes `LAYER` on each machine, or the
    reason why there is no rule.
    """
    entry: dict[str, Any] = {"name": outcome.candidate.name, "status": status(outcome)}
    if outcome.corrected is None:
        return entry | {"reason": outcome.reason}
    rule = outcome.corrected.rule.rule(library)
    prices = {}
    for name in MACHINES:
        left, right = price_sides(rule, library, sizes_of_layer(rule), load_machine(name))
        prices[name] = {"left": asdict(left), "right": asdict(right)}
    return entry | {"boxes": list(outcome.boxes), "prices": prices}


if __name__ == "__main__":
    main()
