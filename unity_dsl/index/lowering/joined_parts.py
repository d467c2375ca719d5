"""Lowers a choice by the position along an axis to a concatenation of its two parts, without a mask over both."""

from __future__ import annotations

from dataclasses import replace

from .torch_term import Sort, Term, torch_call


def joined_parts(condition: Term, then: Term, otherwise: Term, axis: str, size: int) -> Term | None:
    """`then` at the first positions of an axis of length `size` and `otherwise` at the others, as a concatenation.

    None if the condition has another form. None also unless both alternatives are padded tensors, possibly negated,
    whose unpadded parts are the selected positions.
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
    """The wanted positions of an axis, if they are exactly the unpadded part of a padded term; else None."""
    match term:
        case Term("neg", (Term() as inner,)):
            part = _part(inner, axis, wanted, size)
            return replace(term, arguments=(part,)) if part is not None else None
        case Term("F.pad", (Term() as inner, tuple() as sides)):
            place = 2 * (len(term.axes) - 1 - term.axes.index(axis))  # F.pad lists sides from the last dimension on
            before, after = sides[place : place + 2] or (0, 0)
            alone = all(side == 0 for number, side in enumerate(sides) if number not in (place, place + 1))
            if alone and isinstance(before, int) and isinstance(after, int) and (before, size - after) == wanted:
                return replace(inner, axes=term.axes)
    return None
