"""How declared parallel ops slice a dimension: which positions each device has, in which order.

A cut is an encoder: an element on a device is a copy of the tensor's element at the declared index, or 0 where that
lies outside the tensor. Only the declared index map says whether slices overlap, and by how much.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..index.equations.where_conditions import Environment, mentions_rank, solve_numbers
from ..index.library import Library
from ..syntax.ast import Apply, DeviceName, Expr, Name, Number, ParallelDecl, Read, Size
from .layout import Attributes, Layout, Mesh, Overlap, Window
from .layout_codes import Numbers

Indices = np.ndarray
"""Global positions along one dimension, in local order; -1 stands for a filled position outside the tensor."""


def is_cut(declaration: ParallelDecl) -> bool:
    """Whether a parallel op cuts one dimension of its input into slices along its device axis."""
    return why_no_cut(declaration) is None


@lru_cache(maxsize=256)
def why_no_cut(declaration: ParallelDecl) -> str | None:
    """Why a parallel op does not cut the dimension whose number it is given, in words; None if it does.

    A cut has the form `name[p; dim](x: [f.., d, g..]) -> y: [@p, f.., e, g..]` where `rank(f) == dim`.
    """
    if len(declaration.inputs) != 1 or len(declaration.outputs) != 1 or len(declaration.statements) != 1:
        return f"`{declaration.name}` does not make one tensor of one"
    outer, inner = declaration.outputs[0].dims, declaration.inputs[0].dims
    if not outer or not outer[0].device or any(dim.device for dim in (*outer[1:], *inner)):
        return f"`{declaration.name}` does not put one device axis first: `[@p, f.., e, g..]`"
    if [dim.rest for dim in inner] != [True, False, True] or [dim.rest for dim in outer[1:]] != [True, False, True]:
        return f"`{declaration.name}` does not cut one dimension among others: `[f.., d, g..]`"
    major, _, minor = inner
    if [outer[1].name, outer[3].name] != [major.name, minor.name]:
        return f"`{declaration.name}` changes the order of the other dimensions"
    if not any(_numbers_dimension(condition, major.name, declaration) for condition in declaration.conditions):
        return f"`{declaration.name}` is not given the number of the dimension: `where rank({major.name}) == dim`"
    if not isinstance(declaration.statements[0].value, Read):
        return f"`{declaration.name}` does not give the devices elements of its input as they are"
    return None


def _numbers_dimension(condition: Expr, group: str, declaration: ParallelDecl) -> bool:
    """Whether a condition is `rank(group) == attribute`, for an attribute without a default."""
    if not isinstance(condition, Apply) or condition.function != "==":
        return False
    free = {attribute.name for attribute in declaration.attributes if attribute.default is None}
    for rank, number in (condition.arguments, condition.arguments[::-1]):
        match rank, number:
            case Apply("rank", (Name(name=name),)), Name(name=attribute) if name == group and attribute in free:
                return True
    return False


def cut_dimension(declaration: ParallelDecl) -> int:
    """The dimension of the input that is cut: the one declared between the rest groups."""
    return next(i for i, dim in enumerate(declaration.inputs[0].dims) if not dim.rest)


def free_attributes(declaration: ParallelDecl) -> tuple[str, ...]:
    """The attributes that a cut must be given: those without a default, except the dimension's number."""
    counted = {name for condition in declaration.conditions if mentions_rank(condition) for name in _names(condition)}
    return tuple(a.name for a in declaration.attributes if a.default is None and a.name not in counted)


def cut_index(declaration: ParallelDecl) -> tuple[Expr, str]:
    """The global index that each device of a cut reads, as a term, and the name of the local index in it."""
    position, statement = cut_dimension(declaration), declaration.statements[0]
    assert isinstance(statement.value, Read)
    return statement.value.index[position], statement.index[position + 1].name


@dataclass(frozen=True)
class Cut:
    """A cut at concrete sizes: the global index as a term in the names of the device's and the local index.

    Each device has `length` positions; `filled` says that those outside the dimension are 0.
    """

    index: Expr
    device: str
    local: str
    length: int
    sizes: Mapping[str, int]
    filled: bool

    def at(self, device: np.ndarray, local: np.ndarray) -> np.ndarray:
        """The global positions of local ones; they may lie outside the dimension."""
        return _value(self.index, {self.device: device, self.local: local}, self.sizes)

    @property
    def strides(self) -> tuple[int, int] | None:
        """The factors of the device's and the local index, if the position is the sum of their multiples, else None."""
        return _strides(self.index, self.device, self.local, self.sizes)

    def positions(self, degree: int) -> np.ndarray | None:
        """The positions of every device, also outside the dimension; None if the index divides by 0.

        Shape of the result: [degree, length].
        """
        try:
            with np.errstate(divide="raise"):
                found = self.at(np.arange(degree)[:, None], np.arange(self.length)[None, :])
        except FloatingPointError:
            return None
        return np.broadcast_to(found, (degree, self.length))


@lru_cache(maxsize=16384)
def cut_at(declaration: ParallelDecl, degree: int, extent: int, attributes: Attributes = ()) -> Cut | None:
    """A declared cut of one dimension, or None where the sizes do not fit."""
    position = cut_dimension(declaration)
    statement = declaration.statements[0]
    assert isinstance(statement.value, Read)
    known: Environment = {declaration.inputs[0].dims[position].name: extent, declaration.degrees[0]: degree}
    known |= {name.name: int(name.default) for name in declaration.attributes if name.default is not None}
    known |= dict(attributes)
    held = declaration.outputs[0].dims[position + 1].name
    conditions = [condition for condition in declaration.conditions if not mentions_rank(condition)]
    if not solve_numbers(conditions, known) or known.get(held, 0) < 1:
        return None
    sizes = {name: int(size) for name, size in known.items()}
    index, local = cut_index(declaration)
    fill = statement.value.fill
    filled = isinstance(fill, Number) and fill.value == 0
    return Cut(index, statement.index[0].name, local, sizes[held], sizes, filled)


@dataclass(frozen=True)
class Span:
    """Start and end of the first device's slice, as linear forms: the constant, then a factor per attribute."""

    start: tuple[int, ...]
    end: tuple[int, ...]

    def at(self, values: Numbers) -> tuple[Numbers, Numbers]:
        """Start and end, for rows of values of the attributes."""
        start, end = (form[0] + values @ np.array(form[1:], dtype=np.int64) for form in (self.start, self.end))
        return start, end


@lru_cache(maxsize=4096)
def linear_span(declaration: ParallelDecl, extent: int) -> Span | None:
    """The span of a cut over one device as a function of its free attributes; None if it is not seen to be linear."""
    position, names = cut_dimension(declaration), free_attributes(declaration)
    statement = declaration.statements[0]
    assert isinstance(statement.value, Read)
    known = {declaration.inputs[0].dims[position].name, declaration.degrees[0], statement.index[position + 1].name}
    known |= {attribute.name for attribute in declaration.attributes if attribute.default is not None}
    equations = [c for c in declaration.conditions if isinstance(c, Apply) and c.function == "=="]
    if any(
        _order(side, known) > 1 for equation in equations if not mentions_rank(equation) for side in equation.arguments
    ):
        return None
    if _order(statement.value.index[position], known) > 1:
        return None
    units = [tuple((name, int(name == unit)) for name in names) for unit in ("", *names)]
    found = [cut_at(declaration, 1, extent, attributes) for attributes in units]
    cuts = [cut for cut in found if cut is not None]
    if len(cuts) < len(found):
        return None
    starts = [int(cut.at(np.asarray(0), np.asarray(0))) for cut in cuts]
    return Span(_form(starts), _form([start + cut.length for start, cut in zip(starts, cuts, strict=True)]))


def _form(values: Sequence[int]) -> tuple[int, ...]:
    """The linear form that has the first of these values at 0 and the others at the unit vectors."""
    return values[0], *(value - values[0] for value in values[1:])


@lru_cache(maxsize=16384)
def cut_indices(declaration: ParallelDecl, degree: int, extent: int, attributes: Attributes = ()) -> Indices | None:
    """Global index of every (device, local position) of one dimension, or None where the sizes do not fit.

    Shape of the result: [degree, local extent].
    """
    cut = cut_at(declaration, degree, extent, attributes)
    if cut is None:
        return None
    found = cut.positions(degree)
    if found is None:
        return None
    inside = (found >= 0) & (found < extent)
    if not inside.all() and not cut.filled:
        return None
    return np.where(inside, found, -1)


def bijective(declaration: ParallelDecl, degree: int, extent: int, attributes: Attributes = ()) -> bool:
    """Whether the slices are disjoint and cover the dimension. Then the op may cut any mapped or summed axis."""
    cut = cut_at(declaration, degree, extent, attributes)
    if cut is None:
        return False
    if degree * cut.length == extent and cut.strides in ((cut.length, 1), (1, degree)):
        return True  # device and local index are the two digits of a position; long dimensions are not listed
    found = cut_indices(declaration, degree, extent, attributes)
    return found is not None and np.array_equal(np.sort(found, axis=None), np.arange(extent))


def positions_of(
    layout: Layout, dim: int, extent: int, mesh: Mesh, coordinates: tuple[int, ...], library: Library
) -> Indices:
    """Global index of every local position along a dimension, on the device at `coordinates`."""
    axes = layout.nesting(dim)
    if axes and isinstance(layout.kinds[axes[0]], Window | Overlap):
        return _window_indices(layout, axes, extent, mesh, coordinates, library)
    held = np.arange(extent)
    for axis in axes:
        kind = layout.cut(axis)
        chosen = _table(kind.by, mesh.axes[axis].degree, len(held), kind.attributes, library)[coordinates[axis]]
        held = np.where(chosen >= 0, held[chosen], -1)
    return held


def _window_indices(
    layout: Layout, axes: tuple[int, ...], extent: int, mesh: Mesh, coordinates: tuple[int, ...], library: Library
) -> Indices:
    """Positions of a device's overlapping slice. All mesh axes of the dimension are one device axis of the op."""
    kinds = [layout.cut(axis) for axis in axes]
    first = kinds[0]
    if len({(type(kind), kind.by, kind.attributes) for kind in kinds}) > 1:
        raise ValueError(f"a dimension is cut in two ways that overlap: {layout}")
    device = 0
    for axis in axes:
        device = device * mesh.axes[axis].degree + coordinates[axis]
    table = _table(first.by, mesh.degree(axes), extent, first.attributes, library)
    return np.asarray(table[device])


def _table(by: str, degree: int, extent: int, attributes: Attributes, library: Library) -> Indices:
    found = cut_indices(library.parallels[by], degree, extent, attributes)
    if found is None:
        raise ValueError(f"{by} cannot cut {extent} positions over {degree} devices")
    return found


# ------------------------------------------------------------------------------------------- sizes of a declaration


def _names(expr: Expr) -> set[str]:
    match expr:
        case Name(name=name) | Size(name=name):
            return {name}
        case Apply(arguments=arguments):
            return {name for argument in arguments for name in _names(argument)}
    return set()


def _order(expr: Expr, known: Collection[str]) -> int:
    """The polynomial degree of the first device's index in the names that are not known; 2 stands for any higher."""
    match expr:
        case Name(name=name) | Size(name=name):
            return int(name not in known)
        case Apply("+" | "-" | "neg", arguments):
            return max(_order(argument, known) for argument in arguments)
        case Apply("*", arguments):
            return min(2, sum(_order(argument, known) for argument in arguments))
        case Apply(_, arguments):
            return 2 * any(_order(argument, known) for argument in arguments)
    return 0


def _strides(expr: Expr, device: str, local: str, sizes: Mapping[str, int]) -> tuple[int, int] | None:
    """The factors of the device's and the local index, if the term is the sum of their multiples; None if it is not."""
    match expr:
        case DeviceName():
            return 1, 0
        case Name(name=name) if name == local:
            return 0, 1
        case Apply("+", (left, right)):
            first, second = (_strides(part, device, local, sizes) for part in (left, right))
            return None if first is None or second is None else (first[0] + second[0], first[1] + second[1])
        case Apply("*", (Size(name=name), index)) | Apply("*", (index, Size(name=name))):
            found = _strides(index, device, local, sizes)
            return None if found is None else (found[0] * sizes[name], found[1] * sizes[name])
    return None


def _value(expr: Expr, grid: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> np.ndarray:
    match expr:
        case Number(value=value):
            return np.asarray(int(value))
        case DeviceName(name=name):
            return grid[name]
        case Name(name=name):
            return grid[name] if name in grid else np.asarray(sizes[name])
        case Size(name=name):
            return np.asarray(sizes[name])
        case Apply(function=function, arguments=arguments):
            values = [_value(argument, grid, sizes) for argument in arguments]
            return np.asarray(_ARITHMETIC[function](*values))
    raise ValueError(f"`{expr}` is not index arithmetic")


_ARITHMETIC = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "//": np.floor_divide,
    "%": np.mod,
    "neg": np.negative,
}
