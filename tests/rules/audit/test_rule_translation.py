"""Translation of the rules of audited files into `.rules` texts."""

from __future__ import annotations

import copy

import pytest

from tests.rules.audit import unity, wire
from tests.rules.audit.readings import read, reading_of
from unity_dsl.rules.audit.rule_translation import translate
from unity_dsl.rules.audit.size_equations import Contradiction
from unity_dsl.rules.audit.typed_terms import NoReading


def text(data: bytes | str, *choices: str) -> str:
    file = read(data)
    (rule,) = file.rules
    return translate(rule, reading_of(file, *choices)).text


def test_a_split_has_the_sizes_of_the_concat_that_it_undoes() -> None:
    assert text(wire.split_of_product()) == (
        "rule rule_0(x1: [m, k], x4: [k, k2], x5: [k, k3])\n"
        "  y1 = matmul(x1, concat(x4, x5; dim=1))\n"
        "  matmul(x1, x4), matmul(x1, x5)\n"
        "  => slice(y1; dim=1, start=0, stop=k2), slice(y1; dim=1, start=k2, stop=k2 + k3)\n"
    )


def test_a_split_in_halves_is_half_of_what_it_splits() -> None:
    """The parts have the sizes of the results that they replace only if these are equal."""
    made = text(wire.split_of_product(), "split=halves")
    assert "where k2 + k3 == 2 * e, k3 == k2\n" in made
    assert "slice(y1; dim=1, start=0, stop=e), slice(y1; dim=1, start=e, stop=2 * e)" in made


def test_groups_are_read_off_the_shapes_where_one_is_not_enough() -> None:
    made = text(wire.grouped())
    assert made.startswith(
        "rule rule_0(x7: [n, g * i, h, w], x8: [n, g2 * i, h, w], x10: [g * p, i, 3, 3], x11: [g2 * p2, i"
    )
    assert made.endswith("conv2d(concat(x7, x8; dim=1), concat(x10, x11; dim=0); groups=g + g2, pad_h=1, pad_w=1)\n")


def test_a_convolution_whose_shapes_allow_it_is_in_one_group() -> None:
    conv = ("conv2d", [(-7, 0), (-10, 0)], wire.CONV)
    alone = wire.rule([conv], [conv], [(0, 0, 0, 0)])
    assert "groups" not in text(alone) and "groups=g" in text(alone, "conv2d=grouped")


def test_partitions_move_values_and_linear_reads_the_first_replica() -> None:
    assert text(unity.text(unity.DATA_PARALLEL)) == (
        "rule data_parallel(x1: [r, n, c], x4: [r2, o, c])\n"
        "  linear_of_first(x1, tile_twice(x4; dim=0))\n"
        "  => linear_of_first(x1, x4)\n"
    )


@pytest.mark.parametrize(
    ("choices", "operator"),
    [((), "add_halves"), (("reduce=neighbours",), "add_neighbours")],
    ids=["halves", "neighbours"],
)
def test_a_reading_says_what_a_reduction_adds(choices: tuple[str, ...], operator: str) -> None:
    assert f"=> {operator}(concat(x1, x2; dim=0); dim=0)\n" in text(unity.text(unity.SUM_OF_REPLICAS), *choices)


def test_ranks_come_from_what_reads_a_tensor() -> None:
    """External tensor -4 is a matrix by default, but takes the rank of a concat that reads it."""
    relu = ("relu", [(0, 0)], {})
    images = wire.rule(
        [("concat", [(-4, 0), (-5, 0)], wire.concat(1, 4)), relu],
        [("relu", [(-4, 0)], {}), ("relu", [(-5, 0)], {}), ("concat", [(0, 0), (1, 0)], wire.concat(1, 4))],
        [(1, 0, 2, 0)],
    )
    matrices = wire.rule([("relu", [(-4, 0)], {})], [("relu", [(-4, 0)], {})], [(0, 0, 0, 0)])
    assert "x4: [n, c, h, w], x5: [n, c2, h, w]" in text(images) and "x4: [m, k])" in text(matrices)


def test_no_sizes_fit_an_operator_whose_operands_differ() -> None:
    tensor = copy.deepcopy(unity.SUM_OF_REPLICAS)
    tensor["dstOp"] = [
        unity.operator(("OP_CONCAT", [unity.X, unity.Y], unity.joined(1))),
        unity.operator(("OP_EW_ADD", [(0, 0), unity.X], {})),
    ]
    with pytest.raises(Contradiction):
        text(unity.text(tensor))


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (("dropout", [(-1, 0)], {}), "there is no reading of `dropout`"),
        (("relu", [(-1, 0), (-2, 0)], {}), "`relu` of 2 operands"),
        (("relu", [(-20, 0)], {}), "the generator has no external tensor -20 with axes"),
        (("concat", [(-1, 0), (-2, 0)], {1: 3, 11: 0, 10: 2}), "`concat` of 2 operands"),
        (("concat", [(-1, 0), (-2, 0)], {1: 2, 11: 2, 10: 2}), "`concat` along axis 2 of a tensor of rank 2"),
        (("concat", [(-1, 0), (-2, 0)], {1: 2, 11: 0, 10: 3}), "a tensor of rank 3"),
        (("matmul", [(-1, 0), (-4, 0)], {9: 7}), "activation 7 of `matmul`"),
        (("conv2d", [(-7, 0), (-10, 0)], {**wire.CONV, 6: 2}), "`conv2d` at a stride or with a padding"),
        (("conv2d", [(-7, 0), (-10, 0)], {**wire.CONV, 4: 2}), "`conv2d` with a kernel of 2 by 3"),
        (("split", [(-1, 0)], {2: 1, 11: 0}), "`split` into 1 along an axis that no `concat` made of so many"),
    ],
)
def test_what_has_no_reading_is_told(operator: wire.Op, message: str) -> None:
    with pytest.raises(NoReading) as caught:
        text(wire.rule([operator], [operator], [(0, 0, 0, 0)]))
    assert str(caught.value).startswith(message)


def test_a_name_that_is_none_becomes_the_place() -> None:
    for name in ("a rule", "where", "", "1"):
        rule = {**unity.SUM_OF_REPLICAS, "name": name or " "}
        assert text(unity.text(rule)).startswith("rule rule_0_(")
