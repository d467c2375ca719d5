"""Recognises rotary positions as `rope` in the forms in which modules write them: halves, or pairs of neighbours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import atan2, prod
from typing import Any, cast

import torch
from torch import Tensor

from .operators import arrangement
from .statements import Statement
from .views import Unarranged, Value, View, whole

TABLE_ERROR = 1e-3
"""Allowed absolute error of float32 tables of rotary positions: at position 8,192 they are 5e-4 off."""
Made = Callable[[View, str], Statement | None]
"""The statement that makes a view's value, if it has that operator."""


@dataclass(frozen=True)
class Turned:
    """The `rope` that replaces a statement. If its result is arranged otherwise, `shown` is the statement's result as
    a view of it.
    """

    statement: Statement
    shown: View | None = None


@dataclass(frozen=True)
class _Tables:
    """The base of rotary positions, and which dimensions of their operand are the positions and the features."""

    base: str
    positions: int
    features: int


def rotary(statement: Statement, made: Made) -> Turned | None:
    """The `rope` that a sum or a concatenation computes; None if it computes none. It recognises

    - x * cos + turned(x) * sin, where `turned` has the second half of features, negated, before the first half, or does
      the same with the neighbours of each pair;
    - a * cos - b * sin joined to b * cos + a * sin, where a and b are halves, or the firsts and seconds of pairs, like
      real and imaginary parts of complex numbers.
    """
    if statement.operator == "add":
        return _of_halves(statement, made) or _of_turned_pairs(statement, made)
    return _of_products(statement, made) if statement.operator == "concat" else None


def _of_halves(statement: Statement, made: Made) -> Turned | None:
    for added, (x, cosine), (other, sine) in _sums(statement, made):
        halved = _halved(other, x, made)
        base = _base_of_views(cosine, sine) if halved is not None else None
        if halved is not None and base is not None:
            rope = replace(statement, operator="rope", operands=(halved,), settings={"base": base})
            return Turned(rope) if arrangement(halved) == arrangement(x) else _in_other_order(rope, x, added)
    return None


def _sums(statement: Statement, made: Made) -> Iterator[tuple[View, tuple[View, View], tuple[View, View]]]:
    """The second product of a sum of two products, with the factors of both, in every order."""
    for plain, added in both(statement.operands):
        first, second = made(plain, "mul"), made(added, "mul")
        if first is not None and second is not None:
            yield from ((added, *factors) for factors in product(both(first.operands), both(second.operands)))


def _in_other_order(rope: Statement, x: View, added: View) -> Turned | None:
    """A `rope` in the order of its operand's dimensions, for a sum in another order: that of `x`, with `added` as its
    second product.
    """
    (halved,) = rope.operands
    (base, dims), (other, wanted) = (cast(Any, arrangement(view)) for view in (halved, x))
    order = [dims.index(dim) for dim in wanted if dims.count(dim) == 1]
    if base != other or len(order) != len(dims):
        return None
    if arrangement(added) != arrangement(whole(added.value).permuted(order)):
        return None
    value = Value(halved.shape)
    return Turned(replace(rope, results=(value,)), whole(value).permuted(order))


def _halved(view: View, x: View, made: Made) -> View | None:
    """x, if a view is x with its second half, negated, before its first half. The dimensions of the returned x, except
    the last, may be in any order.
    """
    concat = made(view, "concat")
    parts = _negated_before(concat, made) if concat is not None else None
    if parts is None or x.shape[-1] % 2:
        return None
    first, half = parts[0].operands[0], x.shape[-1] // 2
    same = first.value is x.value and all(int(part.settings["dim"]) == len(x.dims) - 1 for part in parts)
    return first if same and _ends(parts) == [(half, 2 * half), (0, half)] else None


def _negated_before(concat: Statement, made: Made) -> tuple[Statement, Statement] | None:
    """The two slices of one view that a concatenation joins, if it negates its first operand."""
    negated = made(concat.operands[0], "neg")
    later = negated and made(negated.operands[0], "slice")
    earlier = made(concat.operands[1], "slice")
    if later is None or earlier is None:
        return None
    one, two = later.operands[0], earlier.operands[0]
    return (later, earlier) if one.value is two.value and arrangement(one) == arrangement(two) else None


def _ends(parts: tuple[Statement, Statement]) -> list[tuple[int, int]]:
    return [(int(part.settings["start"]), int(part.settings["stop"])) for part in parts]


def _of_turned_pairs(statement: Statement, made: Made) -> Turned | None:
    for _, (x, cosine), (other, sine) in _sums(statement, made):
        concat = made(other, "concat")
        parts = _negated_before(concat, made) if concat is not None and x.shape[-1] % 2 == 0 else None
        tables = _tables(cosine, sine, len(x.dims), of_pairs=True) if parts is not None else None
        if concat is None or parts is None or tables is None or _ends(parts) != [(1, 2), (0, 1)]:
            continue
        pairs = parts[0].operands[0]
        try:
            apart = [view.reshaped((*view.shape[:-1], view.shape[-1] // 2, 2)) for view in (x, other)]
        except Unarranged:
            continue
        both_alike = arrangement(apart[0]) == arrangement(pairs) and apart[1].is_whole
        if x.value is pairs.value and both_alike and int(concat.settings["dim"]) == len(x.dims):
            return _turned(statement, pairs, tables, in_pairs=True, leaves_pairs=True)
    return None


def _of_products(statement: Statement, made: Made) -> Turned | None:
    one, two = statement.operands
    less, more = made(one, "sub"), made(two, "add")
    if less is None or more is None:
        return None
    for a, cosine in _parts(less.operands[0], made):
        for b, sine in _parts(less.operands[1], made):
            given, last = a.operands[0], len(a.operands[0].dims) - 1
            size = given.shape[-1] // 2
            alike = given.value is b.operands[0].value and arrangement(given) == arrangement(b.operands[0])
            along = all(int(part.settings["dim"]) == last for part in (a, b))
            if not alike or not along or _ends((a, b)) != [(0, size), (size, 2 * size)]:
                continue
            added = {_of(part, table) for operand in more.operands for part, table in _parts(operand, made)}
            in_pairs, joins = size == 1, _joins(statement, last)
            if {_of(b, cosine), _of(a, sine)} != added or joins is None or not (joins or in_pairs):
                continue
            tables = _tables(cosine, sine, last + (not in_pairs), of_pairs=False, behind=in_pairs)
            if tables is not None:
                return _turned(statement, given, tables, in_pairs=in_pairs, leaves_pairs=in_pairs and joins)
    return None


def _joins(statement: Statement, last: int) -> bool | None:
    """Whether a concatenation joins values along their last dimension, of this number. False if it drops this
    dimension, of one element, and joins along the one before; None if neither.
    """
    dim = int(statement.settings["dim"])
    if dim == last and all(operand.is_whole for operand in statement.operands):
        return True
    plain = [arrangement(whole(operand.value).without_dims([-1])) for operand in statement.operands]
    is_before = dim == last - 1 and [arrangement(operand) for operand in statement.operands] == plain
    return False if is_before and all(operand.value.shape[-1] == 1 for operand in statement.operands) else None


def _parts(view: View, made: Made) -> Iterator[tuple[Statement, View]]:
    """A slice and the constant that it is multiplied by."""
    product = made(view, "mul") if view.is_whole else None
    for part, table in both(product.operands) if product is not None else ():
        sliced = made(part, "slice") if part.is_whole else None
        if sliced is not None and table.value.constant is not None:
            yield sliced, table


def _of(part: Statement, table: View) -> object:
    return part.settings["start"], part.operands[0].value, table.value, arrangement(table)


def _turned(statement: Statement, given: View, tables: _Tables, *, in_pairs: bool, leaves_pairs: bool) -> Turned:
    """The `rope` of a view whose last dimensions are features, or features and pairs; the firsts of pairs are its
    first half. With `leaves_pairs`, its result is shown in pairs.
    """
    dims = list(given.dims)
    last = dims[-1] + dims[-2] if in_pairs else dims[-1]
    others = [place for place in range(tables.features) if place != tables.positions]
    operand = given.arranged([*(dims[place] for place in others), dims[tables.positions], last])
    value = Value(operand.shape)
    rope = replace(statement, operator="rope", operands=(operand,), results=(value,), settings={"base": tables.base})
    shown = whole(value)
    order = [*others, tables.positions]
    ordered = [order.index(place) for place in range(len(order))]
    if leaves_pairs:
        apart = shown.reshaped((*operand.shape[:-1], 2, operand.shape[-1] // 2))
        shown = apart.permuted([*ordered, len(order) + 1, len(order)])
    else:
        shown = shown.permuted([*ordered, len(order)])
    return Turned(rope, shown.reshaped(statement.results[0].shape))


def _tables(cosine: View, sine: View, dims: int, *, of_pairs: bool, behind: bool = False) -> _Tables | None:
    """The tables of an operand with this number of dimensions, the last of which are features; with `behind`, one more
    follows. In tables `of_pairs`, each angle occurs twice, for both neighbours.
    """
    rank = dims + behind
    found = [_laid_out(view, rank) for view in (cosine, sine)]
    if found[0] is None or found[1] is None or found[0][1] != found[1][1]:
        return None
    places = found[0][1]
    if len(places) != 2 or places[1] != dims - 1:
        return None
    tables = [one[0] for one in found if one is not None]
    if of_pairs:
        if any(table.shape[-1] % 2 or not torch.equal(table[:, 0::2], table[:, 1::2]) for table in tables):
            return None
        tables = [table[:, 0::2] for table in tables]
    base = _base(*(torch.cat([table, table], -1) for table in tables))
    return None if base is None else _Tables(base, places[0], places[1])


def _laid_out(view: View, rank: int) -> tuple[Tensor, tuple[int, ...]] | None:
    """A constant in the order of its view's dimensions, without those along which it does not change. The other result
    is the positions of its dimensions among the last of `rank` dimensions.
    """
    constant, repeated = view.value.constant, view.repeated
    places = [place for place, dim in enumerate(view.dims) if any(axis not in repeated for axis in dim)]
    axes = [axis for dim in view.base for axis in dim]
    kept = [dim[0] for place in places for dim in [view.dims[place]] if len(dim) == 1]
    if constant is None or len(kept) != len(places) or {*kept} != {*axes} or len(view.dims) > rank:
        return None
    sizes = [axis.size for axis in axes]
    if constant.numel() != prod(sizes):
        return None
    ordered = constant.reshape(sizes).permute([axes.index(axis) for axis in kept])
    return ordered, tuple(place + rank - len(view.dims) for place in places)


def _base_of_views(cosine: View, sine: View) -> str | None:
    """The base of rotary positions that have these tables of [positions, features]; None if there is none."""
    tables = [view.value.constant for view in (cosine, sine)]
    if any(table is None or table.dim() < 2 or table.numel() != table.shape[-1] * table.shape[-2] for table in tables):
        return None
    return _base(*(table.reshape(table.shape[-2:]) for table in tables if table is not None))


def _base(cosine: Tensor, sine: Tensor) -> str | None:
    """The base of rotary positions with these cosines and sines, [positions, features], whose halves are equal."""
    cos, sin = cosine.double(), sine.double()
    positions, width = cos.shape
    if cos.shape != sin.shape or positions < 2 or width < 2 or width % 2:
        return None
    angle = atan2(float(sin[1, width // 2 - 1]), float(cos[1, width // 2 - 1]))
    if angle <= 0:
        return None
    # The angle is the last frequency. A single frequency is 1 for any base.
    base = round(angle ** (-width / (width - 2)), 3) if width > 2 else 10000.0
    base = float(round(base)) if abs(base - round(base)) < 1e-2 * base else base
    powers = base ** (-2 * torch.arange(width // 2, dtype=torch.float64) / width)
    angles = torch.outer(torch.arange(positions, dtype=torch.float64), powers).repeat(1, 2)
    close = torch.allclose(cos, angles.cos(), 0, TABLE_ERROR) and torch.allclose(sin, angles.sin(), 0, TABLE_ERROR)
    return f"{base:.12g}" if close else None


def both(operands: tuple[View, ...]) -> Iterator[tuple[View, View]]:
    """Two operands, in both orders."""
    yield operands[0], operands[1]
    yield operands[1], operands[0]
