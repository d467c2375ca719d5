"""Evaluates an instance at given positions of a result only, with bounds on the rounding errors.

Each element of an operand or an intermediate that a position needs is requested once. A position of a matrix product
needs one row and one column, whatever the size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...syntax.ast import Apply, Expr, Name, Number, Read, Select, Size, Uniform
from ..equations.instance import Equation, Instance
from .rounding_bounds import (
    Array,
    Bounded,
    apply_bounded,
    chosen_bounded,
    exact,
    literal,
    reduce_bounded,
    select_bounded,
)
from .uniform import uniform

if TYPE_CHECKING:
    from ..library import Library

Places = npt.NDArray[np.int64]
"""Positions of a tensor, row-major."""
Elements = Callable[[str, Places], Bounded]
"""The elements of an operand at these places."""


@dataclass(frozen=True)
class Sampling:
    """An instance with its operands. `spend` is called with the number of elements before they are computed."""

    instance: Instance
    operands: Elements
    library: Library
    spend: Callable[[int], None]

    def at(self, name: str, places: Places) -> Bounded:
        """The elements of an operand, an intermediate or a result at these places, in one dimension."""
        instance = self.instance
        made = next((one for one in instance.equations if one.target.name == name), None)
        if made is None:
            return self.operands(name, places)
        shape = tuple(instance.sizes[axis] for axis in made.target.axes)
        index = np.unravel_index(places, shape) if shape else ()
        over = tuple(instance.sizes[axis] for axis in made.over)
        count = prod(over)
        self.spend(len(places) * count)
        bound = {axis: part.reshape(-1, 1) for axis, part in zip(made.target.axes, index, strict=True)}
        inner = np.unravel_index(np.arange(count), over) if over else ()
        bound |= {axis: part.reshape(1, -1) for axis, part in zip(made.over, inner, strict=True)}
        with np.errstate(all="ignore"):
            value = self.value(made.value, bound, made)
            value = value.map(lambda part: np.broadcast_to(part, (len(places), count)))
            if made.kind is None:
                return value.map(lambda part: part[:, 0])
            return reduce_bounded(made.kind, value, count)

    def value(self, expr: Expr, bound: Mapping[str, Any], made: Equation) -> Bounded:
        match expr:
            case Number(number):
                return literal(number)
            case Size(name):
                return exact(self.instance.sizes[name])
            case Name(name):
                return exact(bound[name])
            case Apply(function, arguments):
                parts = [self.value(argument, bound, made) for argument in arguments]
                return apply_bounded(function, parts, self.library.functions)
            case Select(condition, then, otherwise):
                return select_bounded(*(self.value(part, bound, made) for part in (condition, then, otherwise)))
            case Read():
                return self.read(expr, bound, made)
            case Uniform(index):
                place: Array = np.zeros((1, 1), dtype=np.int64)
                for part in index:
                    assert isinstance(part, Name)
                    place = place * self.instance.sizes[part.name] + bound[part.name]
                return exact(uniform(place))
        raise TypeError(f"{made.target.name}: {type(expr).__name__} in an equation")

    def read(self, read: Read, bound: Mapping[str, Any], made: Equation) -> Bounded:
        parts = [self.value(part, bound, made) for part in read.index]
        inside: Array = np.asarray(True)
        known: Array = np.asarray(True)
        place: Array = np.zeros((1, 1), dtype=np.int64)
        shape = self.instance.shape(self.instance.operand(read.tensor))
        for part, size in zip(parts, shape, strict=True):
            valid = (part.value >= 0) & (part.value < size)
            inside, known = inside & valid, known & (part.error == 0)
            place = place * size + np.where(valid, part.value, 0).astype(np.int64)
        needed, back = np.unique(place, return_inverse=True)
        found = self.at(read.tensor, needed).map(lambda part: part[back].reshape(place.shape))
        fill = exact(np.nan) if read.fill is None else self.value(read.fill, bound, made)
        found = chosen_bounded(inside, found, fill)
        return Bounded(found.value, np.where(known, found.error, np.inf), known & found.undefined)
