"""Which gradients of an einsum are copied, against the strides of what torch's autograd returns."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from unity_dsl.index.lowering.einsum_gradients import (
    autograd_orders,
    gradient_is_copied,
    gradients_are_einsums,
    result_order,
)

SIZES = dict(zip("abcdefghios", (2, 3, 4, 5, 6, 7, 3, 2, 4, 5, 3), strict=True))


def operands(spec: str) -> list[Tensor]:
    return [
        torch.zeros([SIZES[letter] for letter in name], requires_grad=True) for name in spec.split("->")[0].split(",")
    ]


def order(name: str, tensor: Tensor) -> str:
    """The letters of a tensor, outermost in memory first."""
    return "".join(letter for _, letter in sorted(zip(tensor.stride(), name, strict=True), reverse=True))


def gradients(spec: str) -> tuple[Tensor, ...]:
    factors = operands(spec)
    result = torch.einsum(spec, *factors)
    return torch.autograd.grad(result, factors, torch.zeros(result.shape))


def drawn_specs(count: int) -> list[str]:
    """Random einsums of two factors with summed letters, each with its letters in any order."""
    source, found = random.Random(0), list[str]()
    while len(found) < count:
        roles = {letter: source.choice("blrs") for letter in source.sample(sorted(SIZES), source.randint(2, 6))}
        groups = [[letter for letter, role in roles.items() if role in name] for name in ("bls", "brs", "blr")]
        left, right, result = ("".join(source.sample(group, len(group))) for group in groups)
        if "s" in roles.values() and left and right:
            found.append(f"{left},{right}->{result}")
    return found


KNOWN = {
    "ebai,eoi->ebao": True,  # the experts of a mixture
    "bai,oi->bao": True,
    "ebai,eio->ebao": False,  # weights that lie as ATen multiplies them
    "eoi,ebai->ebao": False,  # the weight is the first factor
    "ab,b->ab": False,  # elementwise
    "bsdh,dho->bso": False,
    "bsdh,hdo->bso": True,  # summed letters are in the order of the alphabet
    "bsdh,odh->bso": True,
    "ebai,oei->ebao": False,  # neither is in the order of the factor
}


@pytest.mark.parametrize("spec", KNOWN)
def test_copies_of_known_products(spec: str) -> None:
    assert gradients_are_einsums(spec)
    assert gradient_is_copied(spec) == KNOWN[spec]


def test_the_orders_are_torch_s() -> None:
    """Checks the orders of results, of gradients by autograd, and of the second factor's gradient as an einsum of its
    own.
    """
    for spec in [*(spec for spec in KNOWN if spec != "ab,b->ab"), *drawn_specs(200)]:
        (left, right), result = spec.split("->")[0].split(","), spec.split("->")[1]
        with torch.no_grad():
            made = torch.einsum(spec, *operands(spec))
            own = torch.einsum(f"{result},{left}->{right}", made, operands(spec)[0])
        assert order(result, made) == result_order(spec), spec
        first, second = gradients(spec)
        assert (order(left, first), order(right, second)) == autograd_orders(spec), spec
        rows = {*left} & {*result} - {*right}  # letters that this gradient sums
        assert gradient_is_copied(spec) == bool(rows and own.is_contiguous() and not second.is_contiguous()), spec


@pytest.mark.parametrize("spec", ["ab,bc->a", "aab,b->a", "ab,bc,cd->ad", "ab->a", "a,b->ba"])
def test_which_gradients_are_einsums(spec: str) -> None:
    """They are not if a letter is in only one of the three, or twice in one, or if there are not two factors."""
    assert gradients_are_einsums(spec) == (spec == "a,b->ba")
