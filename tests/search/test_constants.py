"""The constants that steer the search are in one file. Other files have only as many numbers as are listed here."""

from __future__ import annotations

import ast
import json
from collections import Counter
from pathlib import Path

from unity_dsl.search import constants

SEARCH = Path(constants.__file__).parent
ROOT = Path(__file__).parents[2]
PLAIN = {0, 1, 2, 0.5}
"""Numbers that are not thresholds: indices, halves, signs."""
APART = ("constants.py", "strategies/", "imports/", "cost_network/", "folded_solver/", "exact_search/")
"""The file itself, algorithms of others with their own numbers, and the exact solver, which limits its tables."""
LISTED = {
    "accounting/kept_iterations.py": 1,
    "accounting/memory_budget.py": 1,
    "accounting/undivided_sizes.py": 1,
    "accounting/unproved_divisions.py": 2,
    "accounting/weighed_plan.py": 1,
    "branches/branch_placings.py": 1,
    "choices/axis_choices.py": 1,
    "choices/extractions.py": 2,
    "choices/layout_space.py": 1,
    "choices/operator_options.py": 1,
    "choices/restriction.py": 1,
    "evaluate.py": 1,
    "expected_exposure.py": 4,
    "gathered_pins.py": 1,
    "incumbent.py": 1,
    "joint/algebra_notes.py": 1,
    "joint/joint_search.py": 2,
    "launch_bound.py": 2,
    "layout_pins.py": 4,
    "layout_problem/algebra_variables.py": 2,
    "layout_problem/model_problem.py": 1,
    "memory_limit/stored_bytes.py": 1,
    "meshes/mesh_search.py": 1,
    "model_variants/layouts_of_a_plan.py": 1,
    "model_variants/rule_applications.py": 1,
    "model_variants/variant_enumeration.py": 3,
    "moves/meshes.py": 3,
    "moves/passes.py": 1,
    "padded_axes.py": 3,
    "plan_notes.py": 5,
    "search_end.py": 2,
    "search_progress.py": 1,
    "unaligned_products.py": 1,
}
"""How many numbers each file has: figures of notes, ties, counts of named items. The list may only get shorter."""


def numbers() -> Counter[str]:
    """How many numbers each file of the search contains, except plain ones."""
    found = Counter[str]()
    for path in sorted(SEARCH.rglob("*.py")):
        file = path.relative_to(SEARCH).as_posix()
        if not file.startswith(APART):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value not in PLAIN:
                    found[file] += 1
    return found


def test_what_steers_the_search_stands_in_one_file() -> None:
    assert dict(numbers()) == LISTED


def test_documents_have_what_doubled_and_halved_constants_change() -> None:
    summary = json.loads((ROOT / "bench" / "results" / "search_constants.json").read_text())["summary"]
    names = {switch.split()[1] for switch in summary}
    assert all(hasattr(constants, name) for name in names)
    ratios = [ratio for row in summary.values() for ratio in row["differ by more than 0.5 %"].values()]
    most = 100 * max(abs(ratio - 1) for ratio in ratios)
    mean = 100 * max(abs(row["geometric mean"] - 1) for row in summary.values())
    told = (
        f"The first {len(names)}, doubled or halved, change a step of 20 cells by {most:.1f} % at most, and all cells"
    )
    text = " ".join((ROOT / "docs" / "search.md").read_text().split())
    assert f"{told} by {mean:.2f} % in the geometric mean" in text
