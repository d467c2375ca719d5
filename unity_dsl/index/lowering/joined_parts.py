"""A choice by the position along an axis, as its two parts side by side instead of a mask over both alternatives."""

from __future__ import annotations

from dataclasses import replace

from .torch_term import Sort, Term, torch_call


def joined_parts(condition: Term, then: Term, otherwise: Term, axis: str, size: int) -> Term | None:
    """`then` at the first positions of an axis of that size, `otherwise` at the others; None where the condition is
    another one, or an alternative is not there already as the part that is wanted: what is padded, with or without a
    sign, and the padding is not read.
    """
    match condition:
        case Term("<", (Term(axes=(own,)), Term(sort=Sort.NUMBER, value=int(bound)))):
            if own != axis or not 0 < bound < size or then.axes != otherwise.axes or axis not in then.axes:
                return None
            first, second = _part(then, axis, (0, bound), size), _part(otherwise, axis, (bound, size), size)
            if first is not None and second is not None:
                return torch_call("torch.cat", [first, second], then.axes.index(axis), axes=then.axes)
    return None


def _part(term: Term, axis: str, wanted: tuple[int, int], size: int) -> Term | None:
    """The positions of an axis from the first wanted one up to the last, where these are what was padded."""
    match term:
        case Term("neg", (Term() as inner,)):
            part = _part(inner, axis, wanted, size)
            return replace(term, arguments=(part,)) if part is not None else None
        case Term("F.pad", (Term() as inner, tuple() as sides)):
            place = 2 * (len(term.axes) - 1 - term.axes.index(axis))  # sides are told from the last dimension on
            before, after = sides[place : place + 2] or (0, 0)
            alone = all(side == 0 for number, side in enumerate(sides) if number not in (place, place + 1))
            if alone and isinstance(before, int) and isinstance(after, int) and (before, size - after) == wanted:
                return replace(inner, axes=term.axes)
    return None
