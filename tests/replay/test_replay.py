"""Recorded plans give the same tasks, memory and program files as before, byte for byte.

Inspect an intended change first: `python -m tests.replay.recorded_plans --write DIR` writes the texts of the checkout,
to compare with those of another checkout. Then `pytest tests/replay --update-golden` saves their digests.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from .recorded_plans import CELLS, PLANS, Cell, digests, listed_texts, mechanisms

GOLDEN = Path(__file__).parent / "digests.json"
MECHANISMS = {
    *("recomputed", "regathered", "kept_iterations", "interleaved", "skew", "chunks", "deferred_gradients"),
    *("bucket_mib", "rules", "micro_batches", "kernels", "placement"),
}


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_a_plan_is_listed_and_emitted_as_before(cell: Cell, request: pytest.FixtureRequest) -> None:
    found = digests(listed_texts(cell))
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(json.dumps(golden | {cell.name: found}, indent=1, sort_keys=True) + "\n")
        return
    assert found == golden[cell.name]


def test_every_mechanism_is_used_twice() -> None:
    used = Counter(name for cell in CELLS for name in mechanisms(json.loads((PLANS / f"{cell.name}.json").read_text())))
    assert not {name for name in MECHANISMS if used[name] < 2}, used
