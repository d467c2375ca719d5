"""Terms of the calculus: traversal, substitution, affine forms, intervals, merged dimensions.

Inside an instance every `Name` is an axis (device axes are named `@p`), every `Size` is the length of one axis, and a
value holds no `Reduce`. The functions below also work on declarations, where a name may be an attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import is_
from typing import TypeGuard

from ...syntax.ast import Apply, DeviceName, Expr, Name, Number, Read, Reduce, Select, Size, Uniform

COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})
ARITHMETIC = frozenset({"+", "-", "*", "/", "//", "%", "neg"})


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct subterms, in the order of the text. Axes bound by a reduction are not subterms."""
    match expr:
        case Apply(_, arguments):
            return arguments
        case Read(_, index, fill):
            return index if fill is None else (*index, fill)
        case Select(condition, then, otherwise):
            return (condition, then, otherwise)
        case Reduce(_, _, body):
            return (body,)
        case Uniform(index):
            return index
        case _:
            return ()


def with_children(expr: Expr, parts: tuple[Expr, ...]) -> Expr:
    """The node with other subterms, in the order of `children`."""
    match expr:
        case Apply():
            return Apply(expr.function, parts, span=expr.span)
        case Read(_, index, fill):
            size = len(index)
            return Read(expr.tensor, parts[:size], None if fill is None else parts[size], span=expr.span)
        case Select():
            condition, then, otherwise = parts
            return replace(expr, condition=condition, then=then, otherwise=otherwise)
        case Reduce():
            (body,) = parts
            return replace(expr, body=body)
        case Uniform():
            return replace(expr, index=parts)
        case _:
            return expr


def walk(expr: Expr) -> Iterator[Expr]:
    """The term and every subterm, parents first, in the order of the text."""
    left = [expr]
    while left:
        node = left.pop()
        yield node
        left += reversed(children(node))


def rewrite(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Applies `change` to every node bottom-up."""
    parts = children(expr)
    if not parts:
        return change(expr)
    changed = tuple([rewrite(part, change) for part in parts])
    return change(expr if all(map(is_, changed, parts)) else with_children(expr, changed))


def substitute(expr: Expr, mapping: Mapping[str, Expr]) -> Expr:
    """Capture-avoiding substitution of terms for free axes."""
    if not mapping:
        return expr
    if isinstance(expr, Name):
        return mapping.get(expr.name, expr)
    if isinstance(expr, Reduce):
        return _substitute_under(expr, mapping)
    parts = children(expr)
    return with_children(expr, tuple(substitute(part, mapping) for part in parts)) if parts else expr


def _substitute_under(expr: Reduce, mapping: Mapping[str, Expr]) -> Reduce:
    bound = {axis_name(axis) for axis in expr.axes}
    inner = {name: term for name, term in mapping.items() if name not in bound}
    incoming = {axis for term in inner.values() for axis in free_axes(term)}
    axes = list(expr.axes)
    for position, axis in enumerate(expr.axes):
        if isinstance(axis, Name) and axis.name in incoming:
            renamed = replace(axis, name=fresh(axis.name, incoming | bound | set(free_axes(expr.body))))
            axes[position] = inner[axis.name] = renamed
    return replace(expr, axes=tuple(axes), body=substitute(expr.body, inner))


def fresh(name: str, taken: Iterable[str]) -> str:
    """`name`, or the first of `name_1`, `name_2`, … that is not taken."""
    taken = set(taken)
    candidate, number = name, 0
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    return candidate


def axis_name(axis: Name | DeviceName) -> str:
    """The name of an axis within an instance: that of a device axis begins with `@`."""
    return f"@{axis.name}" if isinstance(axis, DeviceName) else axis.name


def is_rest(expr: object) -> TypeGuard[Name]:
    """Whether an index is a rest group, `b..`."""
    return isinstance(expr, Name) and expr.rest


def reads(expr: Expr) -> Iterator[Read]:
    """Every tensor read, in the order of the text."""
    return (node for node in walk(expr) if isinstance(node, Read))


def free_axes(expr: Expr) -> tuple[str, ...]:
    """The names that occur and are not bound by a reduction inside, in order of first appearance."""
    found: dict[str, None] = {}
    _collect_free(expr, frozenset(), found)
    return tuple(found)


def _collect_free(expr: Expr, bound: frozenset[str], found: dict[str, None]) -> None:
    if isinstance(expr, Name | DeviceName):
        if axis_name(expr) not in bound:
            found[axis_name(expr)] = None
    elif isinstance(expr, Reduce):
        bound |= {axis_name(axis) for axis in expr.axes}
    for child in children(expr):
        _collect_free(child, bound, found)


# ---------------------------------------------------------------------------------------------- index expressions


def call(function: str, *arguments: Expr) -> Apply:
    return Apply(function, arguments)


def merged_index(parts: Iterable[tuple[Expr, Expr]]) -> Expr:
    """The position in a merged dimension, from (index, size) per factor, major first: `(h * |k|) + k`; 0 for none."""
    position: Expr | None = None
    for index, size in parts:
        position = index if position is None else call("+", call("*", position, size), index)
    return Number(0) if position is None else position


def dim_index(dim: Iterable[str]) -> Expr:
    """The index expression that reads a dimension at its own axes."""
    return merged_index((Name(axis), Size(axis)) for axis in dim)


@dataclass(frozen=True)
class Affine:
    """`constant + sum of coefficient * axis` at concrete sizes. Axes are in order of first appearance, none with 0."""

    coefficients: Mapping[str, int]
    constant: int = 0

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(self.coefficients)

    def __add__(self, other: Affine) -> Affine:
        total = dict(self.coefficients)
        for axis, coefficient in other.coefficients.items():
            total[axis] = total.get(axis, 0) + coefficient
        return Affine({a: c for a, c in total.items() if c}, self.constant + other.constant)

    def scaled(self, factor: int) -> Affine:
        return Affine({a: c * factor for a, c in self.coefficients.items() if factor}, self.constant * factor)


def affine(expr: Expr, sizes: Mapping[str, int]) -> Affine | None:
    """The affine form of an index expression; None if it has none (products of axes, most uses of `//` and `%`)."""
    match expr:
        case Number(value) if isinstance(value, int):
            return Affine({}, value)
        case Size(name):
            return Affine({}, sizes[name])
        case Name(name):
            return Affine({name: 1})
        case Apply("+" | "-" | "*" | "neg" as function, arguments):
            forms = [affine(argument, sizes) for argument in arguments]
            known = [form for form in forms if form is not None]
            return _affine_arithmetic(function, known) if len(known) == len(forms) else None
        case Apply("//" | "%"):
            try:
                low, high = interval(expr, sizes)
            except ValueError:
                return None
            return Affine({}, low) if low == high else None
        case _:
            return None


def _affine_arithmetic(function: str, forms: list[Affine]) -> Affine | None:
    if function == "neg":
        return forms[0].scaled(-1)
    left, right = forms
    if function == "+":
        return left + right
    if function == "-":
        return left + right.scaled(-1)
    if not left.coefficients:
        return right.scaled(left.constant)
    return left.scaled(right.constant) if not right.coefficients else None


def dim_axes(index: Expr, sizes: Mapping[str, int]) -> tuple[str, ...] | None:
    """The axes of a bare or merged index, major first; None for any other index.

    `i` gives (i,), `h * |k| + k` gives (h, k), the literal 0 gives (). The inverse of `dim_index`.
    """
    if isinstance(index, Name):
        return (index.name,)
    form = affine(index, sizes)
    if form is None or form.constant != 0:
        return None
    # A stable sort: an axis of size 1 shares its coefficient with its neighbour and keeps its place.
    ordered = sorted(form.coefficients.items(), key=lambda entry: -entry[1])
    stride = 1
    for axis, coefficient in reversed(ordered):
        if coefficient != stride:
            return None
        stride *= sizes[axis]
    return tuple(axis for axis, _ in ordered)


def merged_axes(index: Expr, sizes: Mapping[str, int]) -> tuple[str, ...] | None:
    """`dim_axes` if it does not depend on sizes: `p * 2 + r` is a merged index for a size of 2 only, and gives None."""
    axes = dim_axes(index, sizes)
    if axes is None:
        return None
    return axes if axes == dim_axes(index, {axis: size + 1 for axis, size in sizes.items()}) else None


# ---------------------------------------------------------------------------------------------- intervals

Interval = tuple[int, int]
"""A lower and an upper bound of all values; each is attained or conservative."""


def interval(expr: Expr, sizes: Mapping[str, int]) -> Interval:
    """Bounds of an integer index expression over all positions of its axes (interval analysis). Raises ValueError."""
    match expr:
        case Number(value) if isinstance(value, int):
            return value, value
        case Size(name):
            return sizes[name], sizes[name]
        case Name(name):
            return 0, sizes[name] - 1
        case Apply("//" | "%" as function, (numerator, denominator)):
            low, high = interval(numerator, sizes)
            by, same = interval(denominator, sizes)
            if by != same or by <= 0:
                raise ValueError(f"`{function}` by something between {by} and {same}")
            if function == "//" or low // by == high // by:
                offset = 0 if function == "//" else low // by * by
                return (low // by, high // by) if function == "//" else (low - offset, high - offset)
            return 0, by - 1
        case Apply("+" | "-" | "*" | "neg"):
            return _affine_interval(expr, sizes)
        case _:
            raise ValueError(f"not an index expression: {expr!r}")


def _affine_interval(expr: Apply, sizes: Mapping[str, int]) -> Interval:
    # The affine form first: in `i - i` or `h * |k| + k` every axis then counts once, and the bounds are exact.
    form = affine(expr, sizes)
    if form is not None:
        steps = [(c, c * (sizes[axis] - 1)) for axis, c in form.coefficients.items()]
        low = form.constant + sum(reach for _, reach in steps if reach < 0)
        return low, form.constant + sum(reach for _, reach in steps if reach > 0)
    bounds = [interval(argument, sizes) for argument in expr.arguments]
    if expr.function == "neg":
        return -bounds[0][1], -bounds[0][0]
    (low, high), (other_low, other_high) = bounds
    if expr.function == "+":
        return low + other_low, high + other_high
    if expr.function == "-":
        return low - other_high, high - other_low
    corners = [a * b for a in (low, high) for b in (other_low, other_high)]
    return min(corners), max(corners)
