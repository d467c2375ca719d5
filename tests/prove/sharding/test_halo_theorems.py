"""Slices of a dimension held under a user-defined parallel op: proved sufficient if they are, else not proved."""

from __future__ import annotations

import pytest

from tests.graph.overlapping import HALO, STRIDED, WINDOWED, library_with
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.instantiation.instantiate import Binding, Shape, instantiate
from unity_dsl.index.library import Library
from unity_dsl.prove.answer import Answer, NotProved, Proved
from unity_dsl.prove.rule_proof import prove_rule
from unity_dsl.prove.sharding.halo_theorems import prove_halo
from unity_dsl.prove.sharding.theorem_subject import generalise

from ..cases import rule_of

OPERATORS = (
    WINDOWED
    + """
op total(x: [b.., l]) -> y: [b..]
  y[b..] = sum(l) x[b.., l - 1 else 0] * x[b.., l]

op reverse_pairs(x: [l]) -> y: [l]
  y[i] = x[i] + x[|l| - 1 - i]

op deviation(x: [b.., l]) -> y: [b.., l]
  m[b..] = sum(l) x[b.., l] / |l|
  y[b.., i] = x[b.., i] - m[b..] + x[b.., i - 1 else 0]

## Makes a dimension of e + before + after one of e again: what a slice of its own has.
op inner(x: [f.., l, g..]; dim, before, after) -> y: [f.., e, g..]
  where rank(f) == dim, e == l - before - after
  y[f.., j, g..] = x[f.., j + before, g..]

op dot(x: [b..], y: [b..]) -> z: []
  z[] = sum(b..) x[b..] * y[b..]

## The transpose of `halo`: what devices have at a position is summed, what lies outside is dropped.
parallel unhalo[p; dim, before, after](y: [@p, f.., l, g..]) -> x: [f.., d, g..]
  where rank(f) == dim, e == l - before - after, d == p * e + 0
  x[f.., i, g..] = sum(@p, j) [i == @p * |e| + j - before] * y[@p, f.., j, g..]
"""
)

FIXED = """
parallel fixed[p; dim](x: [f.., d, g..]) -> y: [@p, f.., l, g..]
  where rank(f) == dim, d == p * e, l == e + 2
  y[@p, f.., j, g..] = x[f.., @p * |e| + j - 1, g.. else 0]
"""

LIBRARY = library_with(OPERATORS, HALO, STRIDED, FIXED)


def instance(name: str, *shapes: tuple[int, ...], library: Library = LIBRARY, **attributes: int) -> Instance:
    return instantiate(library.operators[name], [Shape(shape) for shape in shapes], attributes)


def holds(made: Instance, axis: str, by: str = "halo", library: Library = LIBRARY) -> Answer:
    return prove_halo(generalise(made, (axis,), numbers=True), axis, by, library)


def conv(width: int, stride: int = 1, pad: int = 0, length: int = 24) -> Instance:
    return instance("conv1d", (2, 3, length), (4, 3, width), stride=stride, pad=pad)


@pytest.mark.parametrize(
    ("width", "stride", "pad"), [(1, 1, 0), (3, 1, 1), (7, 1, 3), (2, 2, 0), (4, 2, 1), (3, 3, 0), (5, 2, 2), (3, 2, 1)]
)
def test_convolutions_divide_along_their_output(width: int, stride: int, pad: int) -> None:
    """Width 5 and stride 2: (24 + 4 - 5) // 2 + 1 = 12 is rounded down, but 2 * 12 is still 24."""
    answer = holds(conv(width, stride, pad), "q")
    assert isinstance(answer, Proved), answer
    assert {met.name for met in answer.obligations} == {"in_bounds", "same_value"}


@pytest.mark.parametrize(
    ("made", "axis"),
    [
        (instance("pool", (2, 24), size=3, stride=2, pad=1), "q"),
        (instance("pool", (2, 24), size=2, stride=2), "q"),
        (instance("blur", (2, 24)), "l"),
        (instance("total", (2, 24)), "l"),
    ],
    ids=["pool", "pool apart", "blur", "total"],
)
def test_maxima_other_fills_and_sums_over_the_axis(made: Instance, axis: str) -> None:
    assert isinstance(holds(made, axis), Proved)


@pytest.mark.parametrize(
    ("made", "axis"),
    [
        (conv(3), "q"),
        (conv(4, pad=1), "q"),
        (conv(5, stride=2), "q"),
        (instance("reverse_pairs", (8,)), "l"),
        (conv(3, pad=1), "c"),
    ],
    ids=["shrinks", "even", "drifts", "reversed", "not around"],
)
def test_what_no_window_makes_up_for_is_not_proved(made: Instance, axis: str) -> None:
    assert isinstance(holds(made, axis), NotProved)


@pytest.mark.parametrize(
    ("change", "proved"),
    [
        (("- 1", "- 1"), True),
        (("l == e + 2", "l == e + 1"), False),
        (("j - 1", "j"), False),
        (("j - 1", "j - 2"), False),
        (("else 0", "else 1"), False),
        (("@p * |e| + j - 1", "j * |p| + @p - 1"), False),
        (("@p * |e| + j - 1", "(|p| - 1 - @p) * |e| + j - 1"), False),
        (("@p * |e| + j - 1", "@p * |e| + |l| - 1 - j - 1"), False),
        (("l == e + 2", "l == e + 4"), True),
    ],
    ids=["right", "narrow", "shifted", "shifted back", "fill", "cyclic", "devices reversed", "reversed", "wide"],
)
def test_an_op_without_attributes_has_to_be_right_as_it_is(change: tuple[str, str], proved: bool) -> None:
    library = library_with(OPERATORS, FIXED.replace(*change))
    answer = holds(conv(3, pad=1), "q", "fixed", library)
    assert isinstance(answer, Proved if proved else NotProved), answer


def test_a_fill_of_one_is_no_matter_where_nothing_is_read_outside() -> None:
    library = library_with(OPERATORS, HALO.replace("else 0", "else 1"))
    assert isinstance(holds(conv(2, stride=2), "q", library=library), Proved)
    assert isinstance(holds(conv(4, stride=2, pad=1), "q", library=library), NotProved)


# ---------------------------------------------------------------------------------------------- merged dimensions


def merged() -> Instance:
    binding = Binding(((("b", 4),), (("h", 3), ("k", 8))), ((("b", 4),), (("h", 3),), (("k", 8),)))
    return instantiate(LIBRARY.operators["rearrange"], [Shape((4, 24))], {}, binding=binding)


@pytest.mark.parametrize(
    ("change", "proved"),
    [
        (("dim", "dim"), True),
        (("j // block * |p| + @p", "@p * |p| + j // block"), False),
        (("+ j % block", "+ block - 1 - j % block"), False),
        (("|p| + @p", "|p| + |p| - 1 - @p"), False),
    ],
    ids=["right", "contiguous", "reversed", "devices reversed"],
)
def test_a_minor_axis_is_held_in_blocks(change: tuple[str, str], proved: bool) -> None:
    library = library_with(STRIDED.replace(*change))
    answer = holds(merged(), "k", "strided", library)
    assert isinstance(answer, Proved if proved else NotProved), answer


def test_dealing_out_blocks_is_dividing_the_minor_axis() -> None:
    text = (
        "rule law(x: [h, p * e])\n"
        "  merged = x[h, k] -> [(h k)]\n"
        "  slices = partition[p; dim=1](x)\n"
        "  strided[p; dim=0, block=e](merged) => slices[h, k] -> [(h k)]\n"
    )
    assert isinstance(prove_rule(rule_of(text), LIBRARY), Proved)
    assert not isinstance(prove_rule(rule_of(text.replace("block=e", "block=h")), LIBRARY), Proved)


def test_the_major_axis_and_a_halo_are_no_such_thing() -> None:
    assert isinstance(holds(merged(), "h", "strided"), NotProved)
    assert isinstance(holds(merged(), "k", "halo"), NotProved)


# ---------------------------------------------------------------------------------------------- laws
# `p * e + 0` keeps the dimension as one factor: a position beyond the border of a slice is not a pair (slice, place).


@pytest.mark.parametrize(
    "text",
    [
        "rule law(x: [p * e + 0, n])\n"
        "  inner(halo[p; dim=0, before=a, after=b](x); dim=0, before=a, after=b) => partition[p; dim=0](x)\n",
        "rule law(x: [n, p * e])\n  halo[p; dim=1, before=0, after=0](x) => partition[p; dim=1](x)\n",
        "rule law(x: [p * e + 0], y: [@p, e + a + b])\n"
        "  reduce[p](dot(halo[p; dim=0, before=a, after=b](x), y))\n"
        "  => dot(x, unhalo[p; dim=0, before=a, after=b](y))\n",
        "rule law(x: [p * e + 0])\n"
        "  inner(halo[p; dim=0, before=a + c, after=b](x); dim=0, before=a, after=b)\n"
        "  => inner(halo[p; dim=0, before=c, after=b](x); dim=0, before=0, after=b)\n",
    ],
    ids=["inner", "nothing of the neighbours", "transpose", "less of the neighbours"],
)
def test_laws_of_the_halo(text: str) -> None:
    answer = prove_rule(rule_of(text), LIBRARY)
    assert isinstance(answer, Proved), answer


@pytest.mark.parametrize("number", range(1, 8))
def test_a_symbolic_attribute_of_a_parallel_op_is_no_number(number: int) -> None:
    """Shapes are checked with some number for `a`. A law that holds only for that number must not be proved."""
    text = (
        "rule law(x: [p * e + 0], y: [@p, e + a + b])\n"
        f"  halo[p; dim=0, before=a, after=b](x) + y => inner(halo[p; dim=0, before={number}, after=b + a](x); "
        f"dim=0, before=0, after={number}) + y\n"
    )
    assert not isinstance(prove_rule(rule_of(text), LIBRARY), Proved)


@pytest.mark.parametrize(
    "text",
    [
        "rule law(x: [p * e + 0, n])\n"
        "  inner(halo[p; dim=0, before=1, after=2](x); dim=0, before=2, after=1) => partition[p; dim=0](x)\n",
        "rule law(x: [p * e + 0], y: [@p, e + 3])\n"
        "  reduce[p](dot(halo[p; dim=0, before=1, after=2](x), y))\n"
        "  => dot(x, unhalo[p; dim=0, before=2, after=1](y))\n",
    ],
    ids=["inner", "transpose"],
)
def test_wrong_laws_of_the_halo(text: str) -> None:
    assert not isinstance(prove_rule(rule_of(text), LIBRARY), Proved)
