"""Gradients of an einsum of two factors, from its letters alone: which are einsums, and in which memory order.

ATen multiplies batches of matrices; the batch has the letters that all three tensors have. The first matrix has the
first factor's letters by the summed ones, the second has the summed ones by the second factor's letters. Summed letters
are in alphabetical order, all others in the order of the result. ATen swaps the factors if all letters that the result
shares with the second factor alone come before those that it shares with the first alone. The einsum returns a view of
bmm's result, and autograd's gradients are such views too.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class _Matrices:
    """The letters of the matrices that an einsum of two factors multiplies."""

    batch: str
    rows: str
    inner: str
    columns: str
    swapped: bool


def gradients_are_einsums(spec: str) -> bool:
    """Whether an einsum has two factors, whose gradients are einsums of the result's gradient and the other factor.

    Every letter is in at least two of the three tensors, and once in each.
    """
    names = _names(spec)
    letters = "".join(names)
    once = all(len(set(name)) == len(name) for name in names)
    return len(names) == 3 and once and all(letters.count(letter) > 1 for letter in letters)


def result_order(spec: str) -> str:
    """The letters of the result of such an einsum in memory, outermost first."""
    made = _matrices(spec)
    return made.batch + made.rows + made.columns


def autograd_orders(spec: str) -> tuple[str, str]:
    """The letters of both factors' gradients in memory, outermost first, as autograd makes them by bmm."""
    made = _matrices(spec)
    first, second = made.batch + made.rows + made.inner, made.batch + made.inner + made.columns
    return (second, first) if made.swapped else (first, second)


def gradient_is_copied(spec: str) -> bool:
    """Whether autograd's gradient of the second factor is a view in another order, but the one by its own einsum is
    not.

    ATen multiplies elementwise if nothing is summed, in the einsum or in its gradient.
    """
    left, right, result = _names(spec)
    inner, rows = {*left} & {*right} - {*result}, {*left} & {*result} - {*right}
    return bool(inner and rows) and autograd_orders(spec)[1] != right == result_order(f"{result},{left}->{right}")


def _matrices(spec: str) -> _Matrices:
    left, right, result = _names(spec)
    batch, first, second = (
        "".join(letter for letter in result if (letter in left, letter in right) == held)
        for held in ((True, True), (True, False), (False, True))
    )
    inner = "".join(sorted({*left} & {*right} - {*result}))
    swapped = bool(first and second) and result.index(second[-1]) < result.index(first[0])
    return _Matrices(batch, second, inner, first, True) if swapped else _Matrices(batch, first, inner, second, False)


def _names(spec: str) -> list[str]:
    """The letters of the factors, and of the result."""
    factors, _, result = spec.partition("->")
    return [*factors.split(","), result]
