"""Shipped rules as programs: each side, on one device and on two, equals the left side by its statements.

Tests a sample that changes every day; `python bench/apply_rules.py` runs all rules.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.prove.cases import rule_of
from tests.sampling import SAMPLE, of_the_day
from unity_dsl.emit.program_check import TOLERANCE
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.resources import folder
from unity_dsl.syntax.parse_rules import RuleDecl, parse_rules
from unity_dsl.syntax.read import read_source

from .layout_laws import NoLayout
from .rule_programs import SIZES, errors_of, rule_case

SHIPPED = [rule for path in sorted(folder("rules").glob("*.rules")) for rule in parse_rules(read_source(path)).rules]
NO_LAYOUTS = ("own_slice_after_pad", "halo_of_no_neighbours")
"""Laws about ops that convert no layouts. tests/emit/test_conversion_text.py and test_exchange_text.py run them."""
ANY_TENSORS = ("relu_absorbed_by_reduce_of_relu", "linear_of_combine_axis1_of_linear_as_matmul_of_combine_first")
"""Laws about arbitrary tensors on the devices: not slices, copies or partial sums of one tensor."""
TODAY = of_the_day([(rule, number) for rule in SHIPPED for number in range(len(SIZES))], 12)


@pytest.mark.parametrize(("rule", "number"), TODAY, ids=lambda part: getattr(part, "name", part))
def test_both_sides_are_equal_as_programs(rule: RuleDecl, number: int, tmp_path: Path, pool: RankPool) -> None:
    try:
        case, errors = errors_of(rule, number, tmp_path, pool)
    except NoLayout:
        assert rule.name in (*NO_LAYOUTS, *ANY_TENSORS)
        return
    assert len(errors) == (2 if case.how == "divided" else 4)
    assert max(errors.values()) <= TOLERANCE, f"UNITY_SAMPLE={SAMPLE} {dict(case.sized.sizes)}: {errors}"


FALSE = """
rule double(x: [m, n])
  x * x => x + x
"""
FALSE_IN_PART = """
rule rows(x: [m + n, k])
  first = slice(x; dim=0, start=0, stop=m)
  second = slice(x; dim=0, start=m, stop=m + n)
  first * 1, second * 1 => first, scale(second; factor=1.001)
"""


@pytest.mark.parametrize("text", [FALSE, FALSE_IN_PART])
def test_a_false_rule_is_found(text: str, tmp_path: Path, pool: RankPool) -> None:
    case, errors = errors_of(rule_of(text), 0, tmp_path, pool)
    assert case.how == "applied"
    assert max(errors["left on 1"], errors["left on 2"]) <= TOLERANCE
    assert min(errors["right on 1"], errors["right on 2"]) > 1e-4


UNREAD = """
rule first(x: [m, a, r], y: [m, b, r])
  slice(concat(x, y; dim=1); dim=1, start=0, stop=a) => x
"""
BARE = """
rule bare(x: [b..])
  x => scale(scale(x; factor=2); factor=0.5)
"""
ROOTS = """
rule roots(x: [b.., c])
  sqrt(x) * sqrt(x) => x
"""


@pytest.mark.parametrize(("text", "how"), [(UNREAD, "applied"), (BARE, "written")])
def test_how_a_right_side_is_made(text: str, how: str, tmp_path: Path, pool: RankPool) -> None:
    case, errors = errors_of(rule_of(text), 1, tmp_path, pool)
    assert case.how == how and max(errors.values()) <= TOLERANCE


def test_weights_are_positive_where_others_have_no_value(tmp_path: Path, pool: RankPool) -> None:
    case, errors = errors_of(rule_of(ROOTS), 0, tmp_path, pool)
    assert case.sized.initial == "uniform(0.5, 1.5)" and max(errors.values()) <= TOLERANCE


def test_a_configuration_is_the_plan_that_it_states() -> None:
    rule = next(rule for rule in SHIPPED if rule.name == "linear_along_i")
    case = rule_case(rule, 0)
    ((_, plan),) = [(name, plan) for name, plan in case.programs() if name == "right on 2"]
    (divided,) = (planned for planned in plan.graph.nodes() if planned.node.instance.name == "linear")
    assert [str(role) for role in divided.typed.configuration] == ["i"]


def test_a_parallel_op_is_a_change_of_layout() -> None:
    rule = next(rule for rule in SHIPPED if rule.name == "reduce_after_pad")
    case = rule_case(rule, 0)
    plans = dict(case.programs())
    chains = [
        [str(planned.produced) for name, planned in plans[side].graph.values.items() if name in case.pins]
        for side in ("left on 2", "right on 2")
    ]
    assert chains == [["S1", "S1", "P", "P", "I"], ["S1", "S1", "I"]]
