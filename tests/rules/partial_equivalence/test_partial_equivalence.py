"""Partial equivalences: boxes of agreement against PyTorch, corrections against the prover."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tests.prove.cases import library
from unity_dsl.prove.answer import Proved, Refuted
from unity_dsl.prove.rule_proof import prove_rule
from unity_dsl.prove.translation.symbolic_sizes import valued
from unity_dsl.rules.partial_equivalence.agreement import Agreement
from unity_dsl.rules.partial_equivalence.candidate import Candidate
from unity_dsl.rules.partial_equivalence.correction import Corrected, corrected
from unity_dsl.rules.partial_equivalence.generation import distinct, outcomes
from unity_dsl.rules.partial_equivalence.moves import candidates
from unity_dsl.syntax.format import format_rules
from unity_dsl.syntax.span import Source

CANDIDATES = {candidate.name: candidate for candidate in candidates()}
SHIPPED = (Path(__file__).parents[3] / "rules" / "partial.rules").read_text()
SIZES = {"n": 2, "b": 3, "c": 2, "o": 3, "h": 9, "w": 8, "u": 7, "a": 2, "e": 1, "d": 3}
SEED = 7

Tensor = torch.Tensor


def images(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(SEED + sum(shape)), dtype=torch.float64)


def batch_to_height() -> list[tuple[Tensor, Tensor]]:
    x, k = images(6, 2, 9, 8), images(3, 2, 5, 3)
    tall = x.reshape(2, 3, 2, 9, 8).permute(0, 2, 1, 3, 4).reshape(2, 2, 27, 8)
    y = F.conv2d(tall, k, padding=(2, 1))
    return [(F.conv2d(x, k, padding=(2, 1)), y.reshape(2, 3, 3, 9, 8).permute(0, 2, 1, 3, 4).reshape(6, 3, 9, 8))]


def strided() -> list[tuple[Tensor, Tensor]]:
    x, k = images(6, 2, 18, 16), images(3, 2, 3, 3)
    tall = x.reshape(2, 3, 2, 18, 16).permute(0, 2, 1, 3, 4).reshape(2, 2, 54, 16)
    y = F.conv2d(tall, k, stride=2, padding=1)
    left = F.conv2d(x, k, stride=2, padding=1)
    return [(left, y.reshape(2, 3, 3, 9, 8).permute(0, 2, 1, 3, 4).reshape(6, 3, 9, 8))]


def side_by_side() -> list[tuple[Tensor, Tensor]]:
    x, y, k = images(2, 2, 9, 8), images(2, 2, 7, 8), images(3, 2, 5, 3)
    both = F.conv2d(torch.cat([x, y], 2), k, padding=(2, 1))
    return [
        (F.conv2d(x, k, padding=(2, 1)), both[:, :, :9]),
        (F.conv2d(y, k, padding=(2, 1)), both[:, :, 9:]),
    ]


def dilated() -> list[tuple[Tensor, Tensor]]:
    x, k = images(2, 2, 27, 24), images(3, 2, 5, 3)
    phases = x.reshape(2, 2, 9, 3, 8, 3).permute(0, 1, 3, 2, 5, 4).reshape(2, 2, 27, 24)
    y = F.conv2d(phases, k, padding=(2, 1)).reshape(2, 3, 3, 9, 3, 8).permute(0, 1, 3, 2, 5, 4)
    return [(F.conv2d(x, k, padding=(6, 3), dilation=3), y.reshape(2, 3, 27, 24))]


def pooled() -> list[tuple[Tensor, Tensor]]:
    x = -images(6, 2, 9, 8)
    wide = x.reshape(2, 3, 2, 9, 8).permute(0, 2, 3, 1, 4).reshape(2, 2, 9, 24)
    y = F.max_pool2d(wide, 3, 1, 1).reshape(2, 2, 9, 3, 8).permute(0, 3, 1, 2, 4)
    return [(F.max_pool2d(x, 3, 1, 1), y.reshape(6, 2, 9, 8))]


FAMILIES: dict[str, Callable[[], list[tuple[Tensor, Tensor]]]] = {
    "conv2d_batch_to_height": batch_to_height,
    "strided_conv2d_batch_to_height": strided,
    "conv2d_side_by_side_along_height": side_by_side,
    "dilated_conv2d_height_to_height_and_width_to_width": dilated,
    "max_pool2d_batch_to_width": pooled,
}


@cache
def made(name: str) -> Corrected:
    """The corrected candidate of this name."""
    found = corrected(CANDIDATES[name], library())
    assert found is not None
    return found


def bounds(box: Agreement) -> list[tuple[int, int]]:
    """The bounds of the box at `SIZES`."""
    return [(valued(part.start, SIZES), valued(part.stop, SIZES)) for part in box.intervals]


@pytest.mark.parametrize("name", FAMILIES)
def test_the_box_is_where_both_forms_agree_in_pytorch(name: str) -> None:
    found = made(name)

    for box, (left, right) in zip(found.boxes, FAMILIES[name](), strict=True):
        equal = torch.isclose(left, right)
        box_at = bounds(box)
        assert [size for _, size in zip(box_at, left.shape, strict=True)] == list(left.shape)
        assert equal[tuple(slice(*part) for part in box_at)].all()
        for dim, (start, stop) in enumerate(box_at):
            # The forms differ just outside the box on either side, so no larger box is valid.
            beside = [place for place in (start - 1, stop) if 0 <= place < left.shape[dim]]
            for place in beside:
                slab = [slice(*part) for part in box_at]
                slab[dim] = slice(place, place + 1)
                assert not equal[tuple(slab)].all()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_form_is_proved_with_its_correction_and_refuted_without(name: str) -> None:
    found = made(name)
    assert not found.exact
    assert isinstance(prove_rule(found.rule.rule(library()), library()), Proved)
    assert isinstance(prove_rule(found.candidate.rule(library()), library()), Refuted)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("conv2d_batch_to_height", "slice(fast; dim=2, start=a, stop=h - a)", "a + 1, stop=h - a + 1)"),
        ("strided_conv2d_batch_to_height", "slice(fast; dim=2, start=1, stop=h)", "0, stop=h - 1)"),
        ("conv2d_side_by_side_along_height", "dim=2, start=a, stop=2*a)", "a - 1, stop=2*a - 1)"),
    ],
)
def test_a_correction_of_the_wrong_rows_is_refuted(name: str, right: str, wrong: str) -> None:
    found = made(name)

    place = f"{right[: right.index('start=')]}start={wrong}"
    changed = tuple(line.replace(right, place) for line in found.rule.definitions)
    assert changed != found.rule.definitions
    rule = replace(found.rule, definitions=changed).rule(library())
    assert isinstance(prove_rule(rule, library()), Refuted)


def test_forms_that_agree_everywhere_need_no_correction() -> None:
    found = made("dilated_conv2d_height_to_batch_and_width_to_batch")
    assert found.exact and found.rule.right == found.candidate.right


def test_forms_that_agree_nowhere_are_told() -> None:
    (outcome,) = outcomes([CANDIDATES["max_pool2d_batch_to_height_interleaved"]], library())
    assert outcome.corrected is None and "no box" in outcome.reason
    names = ["conv2d_batch_to_height", "max_pool2d_batch_to_height_interleaved"]
    kept = distinct(outcomes([CANDIDATES[name] for name in names], library()))
    assert [outcome.candidate.name for outcome in kept] == ["conv2d_batch_to_height"]


def test_a_part_of_an_operator_after_another_is_taken_of_both() -> None:
    """The border of relu(convolution) is relu of the convolution's border."""
    candidate = CANDIDATES["conv2d_batch_to_height"]
    both = [replace(candidate, left=(f"relu({left})",)) for left in candidate.left]
    (form,) = (replace(entry, name="relu_of_conv2d", right=(f"relu({candidate.right[0]})",)) for entry in both)
    found = corrected(form, library())
    assert found is not None and str(found.boxes[0]) == "[:, :, a:h - a, :]"
    assert isinstance(prove_rule(found.rule.rule(library()), library()), Proved)


@pytest.mark.parametrize("name", ["conv2d_batch_to_width", "avg_pool2d_side_by_side_along_width"])
def test_the_shipped_text_is_what_is_generated(name: str) -> None:
    found = made(name)

    assert format_rules(Source("partial.rules", found.rule.text)) in SHIPPED


def test_what_has_no_parts_is_told() -> None:
    """A correction takes parts of operators, not of views."""
    candidate = Candidate(
        "view_of_a_convolution",
        "x: [b, c, h], k: [o, c, 3]",
        ("h >= 3",),
        (),
        ("conv1d(x, k; pad=1)[b, o, h] -> [o, b, h]",),
        ("conv1d(x[b, c, h] -> [1, c, (b h)], k; pad=1)[1, o, (b h)] -> [o, b, h]",),
    )
    (outcome,) = outcomes([candidate], library())
    assert outcome.corrected is None and "a part of a view" in outcome.reason
