"""Positions in a dimension as digits of its factors (mixed radix), and conversion between factorisations.

A dimension of size p * e may be factored as (p, e) by one operator and unfactored for the next: position i is then (i
// e, i % e). Where one factorisation refines the other, the conversion needs no division.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import reduce as fold

from ..normal_form.form import Form, Term, Unsupported, add, is_finite, positions, substitute
from ..normal_form.polynomial import Poly, Quotient, Symbol, Var, fresh, number, of, product, quotient
from .symbolic_sizes import common_refinement, share, shown

MAX_CHOICES = 16


def merged(axes: tuple[Var, ...]) -> Poly:
    """The position in a dimension from the digits of its factors, major first."""
    return fold(lambda position, var: position * var.size + of(var), axes, number(0))


def digits(axes: tuple[Var, ...], sizes: tuple[Poly, ...]) -> tuple[Poly, ...]:
    """The indices of a dimension in terms of those of another factorisation of it.

    Raises Unsupported for a block whose size is not made of sizes by sums and products, such as a quotient.
    """
    found: list[Poly] = []
    left = list(axes)
    for size in reversed(sizes):
        run: list[Var] = []
        while left and product(var.size for var in run) != size:
            run.insert(0, left.pop())
        if product(var.size for var in run) != size:
            return blocks(merged(axes), sizes)
        found.insert(0, merged(tuple(run)))
    return tuple(found)


def blocks(position: Poly, sizes: tuple[Poly, ...]) -> tuple[Poly, ...]:
    """The digits of a position by Euclidean division. Raises Unsupported as `digits` does."""
    if not sizes:
        return ()
    found: list[Poly] = []
    for size in reversed(sizes[1:]):
        if not size.is_of_sizes:
            raise Unsupported(f"a position in a dimension with a factor {shown(size)}")
        whole = quotient(position, size)
        found.insert(0, position - size * whole)
        position = whole
    return (position, *found)


def divided_index(axes: Iterable[Var], *forms: Form) -> tuple[Var, tuple[Var, Var]] | None:
    """An index i that occurs in a quotient (i + c) // d where d divides its size, with digits for (i // d, i % d).

    None if there is no such index. A position in terms of these digits needs no division by d.
    """
    divisions = [q for form in forms for poly in positions(form) for q in poly.symbols() if isinstance(q, Quotient)]
    for var in axes:
        for found in divisions:
            block = found.denominator
            if found.numerator.coefficient(var) == 1 and block.is_of_sizes and block != var.size:
                whole = share(block, var.size)
                if whole is not None:
                    return var, (fresh(whole), fresh(block))
    return None


def digit_choices(indices: Iterable[Var], *forms: Form) -> Iterator[dict[Var, Poly]]:
    """Case split on indices of small range that multiply a size: in `t * c + i` with t < 2, t = 0 or t = 1.

    At most `MAX_CHOICES` cases; further indices are left symbolic.
    """
    multiplied = {symbol for form in forms for symbol in _multiplied(form)}
    found: list[dict[Var, Poly]] = [{}]
    for var in indices:
        if var in multiplied and var.size.constant is not None:
            values = range(int(var.size.constant))
            if len(found) * len(values) > MAX_CHOICES:
                break
            found = [{**choice, var: number(value)} for choice in found for value in values]
    yield from found


def unrolled(form: Form) -> Form:
    """The form with each sum over an index of small range that multiplies a size unrolled."""
    return add(*(part for term in form for part in _unrolled(term)))


def _unrolled(term: Term) -> Iterator[Form]:
    multiplied = _multiplied((term,)) if term.bound and is_finite((term,)) else set()
    few = [var for var in term.bound if var in multiplied and var.size.constant is not None]
    bound = tuple(var for var in term.bound if var not in few)
    for choice in digit_choices(few, (term,)) if few else ():
        kept = tuple(var for var in few if var not in choice)
        yield substitute((replace(term, bound=bound + kept),), choice)
    if not few:
        yield (term,)


def _multiplied(form: Form) -> set[Symbol]:
    """The symbols that occur in nonlinear monomials of indices and guards."""
    monomials = (monomial for poly in positions(form) for monomial, _ in poly.terms if len(monomial) > 1)
    return {symbol for monomial in monomials for symbol, _ in monomial}


def common_indices(left: tuple[Var, ...], right: tuple[Var, ...]) -> tuple[tuple[Var, ...], dict[Var, Poly]]:
    """Common indices of a dimension that two tensors factor differently, and the substitutions for their own.

    The sizes are known to have equal products. Raises Unsupported.
    """
    sizes = [tuple(var.size for var in axes) for axes in (left, right)]
    if sizes[0] != sizes[1] and product(sizes[0]) == product(sizes[1]):
        finer = common_refinement(*sizes)
        axes = left if finer is None or finer == sizes[0] else tuple(map(fresh, finer))
        places = (
            {var: of(var) for var in left} if axes is left else dict(zip(left, digits(axes, sizes[0]), strict=True))
        )
        return axes, places | dict(zip(right, digits(axes, sizes[1]), strict=True))
    if len(left) == len(right):
        return left, dict(zip(right, map(of, left), strict=True))
    return left, dict(zip(right, blocks(merged(left), sizes[1]), strict=True))
