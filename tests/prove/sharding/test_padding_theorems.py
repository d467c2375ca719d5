"""Padding theorems: every claim about a padded operator of the examples is proved, and false claims are not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sampling import of_the_day
from unity_dsl.graph.model_graph import build_model
from unity_dsl.graph.padded_operators import PaddedOperator
from unity_dsl.graph.padding import paddable, padded
from unity_dsl.graph.padding_claims import PaddingClaim
from unity_dsl.graph.shared_axes import Axis
from unity_dsl.index.declarations.loading import library_of, library_sources
from unity_dsl.index.equations.term import rewrite, walk
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.prove.answer import NotProved, Proved
from unity_dsl.prove.sharding.padding_theorems import prove_padding
from unity_dsl.syntax.ast import Expr, Select, Size
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.read import read_source

EXAMPLES = sorted(Path(__file__, "../../../../examples").resolve().glob("*.udl"))
LIBRARY = library_of(library_sources(()))


def claim_of(name: str, *shapes: tuple[int, ...], axis: str, tails: tuple[float | None, ...]) -> PaddingClaim:
    """The claim about an operator with one padded axis whose operands have these values in the padding (tails)."""
    given = [Shape(shape[1:], -shape[0]) if shape[0] < 0 else Shape(shape) for shape in shapes]
    instance = instantiate(LIBRARY.operators[name], given, {})
    axes = {own: Axis(size) for own, size in instance.sizes.items()}
    operator = PaddedOperator(instance, axes, {axes[axis]: axes[axis].size + 3}, LIBRARY)
    _, _, claim = operator.padded([{} if number is None else {axes[axis]: number} for number in tails])
    assert claim is not None
    return claim


@pytest.mark.parametrize("path", of_the_day(EXAMPLES, 5), ids=lambda path: path.stem)
def test_all_that_examples_claim_is_proved(path: Path) -> None:
    model = build_model(parse_model(read_source(path)), LIBRARY, {}, "small", "f32")
    places = paddable(model)
    every = {place: (axis.size + 1) * axis.unit for place, axis in places.items()}
    for padding in [every, *({place: size} for place, size in every.items())]:
        for claim in padded(model, padding, LIBRARY).claims:
            answer = prove_padding(claim, LIBRARY)
            assert isinstance(answer, Proved), (claim.instance.name, claim.axes, answer)


CLAIMS: dict[str, PaddingClaim] = {
    "a product of two zeros": claim_of("linear", (5, 6), (4, 6), axis="i", tails=(0.0, 0.0)),
    "a masked product": claim_of("linear", (5, 6), (4, 6), axis="i", tails=(None, 0.0)),
    "a masked mean": claim_of("mse", (5, 6), (5, 6), axis="n1", tails=(None, None)),
    "a masked norm": claim_of("layer_norm", (5, 6), (6,), (6,), axis="c", tails=(None, 0.0, 0.0)),
    "a masked softmax": claim_of("softmax", (5, 6), axis="c", tails=(None,)),
    "a lowered softmax": claim_of("softmax", (5, 6), axis="c", tails=(float("-inf"),)),
    "a lowered loss": claim_of("cross_entropy", (5, 6), (-6, 5), axis="c", tails=(float("-inf"), None)),
    "a masked batch": claim_of("cross_entropy", (5, 6), (-6, 5), axis="n0", tails=(None, None)),
    "a draw": claim_of("dropout", (5, 6), axis="b1", tails=(0.0,)),
    "a look-up": claim_of("embedding", (-6, 5), (6, 3), axis="v", tails=(None, 0.0)),
}


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_what_an_operator_claims_is_proved(claim: PaddingClaim) -> None:
    assert isinstance(prove_padding(claim, LIBRARY), Proved)


def without_masks(claim: PaddingClaim) -> Iterator[tuple[str, PaddingClaim]]:
    """Claims with one mask removed or one true size replaced by the padded size, with the changed equation's name."""
    padded = claim.padded
    for number, equation in enumerate(padded.equations):
        for term in walk(equation.value):
            other: Expr | None = None
            if isinstance(term, Select):
                other = term.then
            elif isinstance(term, Size) and term.name.startswith("<") and not _is_bound(term, equation.value):
                other = Size(term.name.strip("<>"))
            if other is not None:
                value = rewrite(equation.value, lambda part, term=term, other=other: other if part == term else part)
                equations = list(padded.equations)
                equations[number] = replace(equation, value=value)
                yield equation.target.name, replace(claim, padded=replace(padded, equations=tuple(equations)))


def _is_bound(size: Size, value: Expr) -> bool:
    """Whether a size occurs in the condition of a mask."""
    masks = [term.condition for term in walk(value) if isinstance(term, Select)]
    return any(size in walk(condition) for condition in masks)


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("a masked product", {"y"}),
        ("a masked mean", {"z"}),
        ("a masked norm", {"mean", "v"}),
        ("a masked softmax", {"z"}),  # any number does for the maximum, which cancels
    ],
)
def test_an_operator_without_a_mask_is_not_proved(name: str, needed: set[str]) -> None:
    missed = set()
    for equation, claim in without_masks(CLAIMS[name]):
        if isinstance(prove_padding(claim, LIBRARY), NotProved):
            missed.add(equation)
    assert missed == needed


def test_what_has_no_value_at_zero_is_not_padded_with_zeros() -> None:
    """The weights would get a gradient of infinity times zero."""
    (zeros, copies) = (claim_of("reciprocal", (5, 6), axis="b1", tails=(number,)) for number in (0.0, None))
    assert isinstance(prove_padding(copies, LIBRARY), Proved)
    assert isinstance(prove_padding(zeros, LIBRARY), NotProved)


@pytest.mark.parametrize(
    ("name", "tails"),
    [
        ("a product of two zeros", {("x", "i", 0.0)}),  # the tail of x gets a gradient, as the weight is not zero
        ("a product of two zeros", set[tuple[str, str, float]]()),
        ("a lowered loss", {("x", "c", 0.0)}),  # exp(0) counts
        ("a lowered softmax", {("x", "c", 0.0), ("y", "c", 0.0)}),
        ("a masked softmax", {("y", "c", 0.0)}),  # the tail is exp of the values there, not zero
    ],
    ids=lambda part: part if isinstance(part, str) else str(sorted(part)),
)
def test_false_tails_are_not_proved(name: str, tails: set[tuple[str, str, float]]) -> None:
    assert isinstance(prove_padding(replace(CLAIMS[name], tails=frozenset(tails)), LIBRARY), NotProved)
