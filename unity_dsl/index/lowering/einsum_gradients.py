"""Gradients of an einsum of two factors, by its letters alone: which are einsums, and in which order they are made.

ATen multiplies matrices, one for each position of the letters that all three have: of the first factor's letters by the
summed ones, and of these by the second factor's. Summed letters are in the order of the alphabet, all others in that of
the result. The factors change places where all letters of the result that the second one alone has come before those
of the first. What is returned is a view of what bmm makes, and so are the gradients that autograd finds.
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
    """Whether an einsum is of two factors, and the gradient of each an einsum of the result's and the other one.

    Every letter is in two of the three, in each once.
    """
    names = _names(spec)
    letters = "".join(names)
    once = all(len(set(name)) == len(name) for name in names)
    return len(names) == 3 and once and all(letters.count(letter) > 1 for letter in letters)


def result_order(spec: str) -> str:
    """The letters of the result of such an einsum, outermost first, as it lies in memory."""
    made = _matrices(spec)
    return made.batch + made.rows + made.columns


def autograd_orders(spec: str) -> tuple[str, str]:
    """The letters of both factors, outermost first, as autograd's gradients of them lie in memory: those of bmm's."""
    made = _matrices(spec)
    first, second = made.batch + made.rows + made.inner, made.batch + made.inner + made.columns
    return (second, first) if made.swapped else (first, second)


def gradient_is_copied(spec: str) -> bool:
    """Whether autograd's gradient of the second factor is a view in another order, and that by its own einsum is not.

    ATen multiplies elementwise where nothing is summed, in either.
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
