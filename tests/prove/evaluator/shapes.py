"""Resolves a declaration's rest groups, axes and conditions at a call, from the syntax tree alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from unity_dsl.syntax.ast import Apply, Expr, Name, Number, OperatorDecl, ParallelDecl, Size, TensorDecl

from .functions import ARITHMETIC
from .values import Exact, literal

Declaration = OperatorDecl | ParallelDecl
Known = dict[str, Exact]
"""Numbers by name: an axis or attribute `a`, a rank `rank(f)`, the number of positions `f..` of a group."""
Shape = tuple[int, ...]


class NoMeaning(Exception):
    """The rule has no meaning at these sizes. The first argument says why."""


@dataclass(frozen=True)
class Pattern:
    """A view at a call: the names of the axes of every dimension, major first, and the sizes of the axes."""

    source: tuple[tuple[str, ...], ...]
    target: tuple[tuple[str, ...], ...]
    sizes: Mapping[str, int]


@dataclass(frozen=True)
class Layout:
    """How axes make up a tensor's dimensions: places in `axes` for every dimension, none for one that broadcasts."""

    axes: tuple[str, ...]
    dims: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Frame:
    """The values of a declaration's names. The axes of a group `b` are `b.0`, `b.1`, …; a device axis is `@p`."""

    sizes: Mapping[str, int]
    rests: Mapping[str, tuple[str, ...]]
    attributes: Mapping[str, Exact]
    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
    ranges: tuple[int | None, ...]


def frame(
    decl: Declaration,
    shapes: Sequence[Shape],
    ranges: Sequence[int | None],
    given: Mapping[str, Exact],
    degrees: Mapping[str, int],
    pattern: Pattern | None,
) -> Frame:
    """The declaration at these shapes, in which device axes come first. Raises NoMeaning if the call does not fit."""
    if len(shapes) != len(decl.inputs):
        raise NoMeaning(f"{decl.name} takes {len(decl.inputs)} tensors")
    attributes = _attributes(decl, given)
    known: Known = {**attributes, **degrees, **{f"@{name}": size for name, size in degrees.items()}}
    solver = _Solver(decl, shapes, known, pattern)
    solver.ranks()
    rests = {
        group: tuple(f"{group}.{place}" for place in range(solver.rank(group))) for group in _groups(decl, pattern)
    }
    if pattern is None:
        inputs = tuple(solver.bind(tensor, shape, rests) for tensor, shape in _by_broadcast(decl.inputs, shapes))
        inputs = tuple(inputs[place] for place in _back(decl.inputs))
    else:
        inputs = (solver.bind_pattern(pattern, shapes[0], rests),)
    for tensor, bound in zip(decl.inputs, ranges, strict=True):
        solver.bind_range(tensor, bound)
    for group, axes in rests.items():
        known[f"{group}.."] = prod(int(known[axis]) for axis in axes)
    solver.solve()
    solver.check()
    sizes = {name: size for name, size in known.items() if "(" not in name and not name.endswith("..")}
    whole = {name: int(size) for name, size in sizes.items() if name not in attributes and size == int(size)}
    return Frame(
        whole,
        rests,
        {name: known[name] for name in attributes},
        inputs,
        tuple(_output(tensor, rests, pattern) for tensor in decl.outputs),
        tuple(None if tensor.integer_range is None else whole[tensor.integer_range] for tensor in decl.outputs),
    )


def _by_broadcast(tensors: Sequence[TensorDecl], shapes: Sequence[Shape]) -> list[tuple[TensorDecl, Shape]]:
    """Tensors and shapes, the ones without broadcasting first, because they fix the sizes that the others must fit."""
    return [(tensors[place], shapes[place]) for place in _order(tensors)]


def _order(tensors: Sequence[TensorDecl]) -> list[int]:
    return sorted(range(len(tensors)), key=lambda place: any(dim.broadcast for dim in tensors[place].dims))


def _back(tensors: Sequence[TensorDecl]) -> list[int]:
    order = _order(tensors)
    return [order.index(place) for place in range(len(tensors))]


def _attributes(decl: Declaration, given: Mapping[str, Exact]) -> Known:
    unknown = set(given) - {attribute.name for attribute in decl.attributes}
    if unknown:
        raise NoMeaning(f"{decl.name} has no attribute {min(unknown)}")
    found: Known = {}
    for attribute in decl.attributes:
        value = given.get(attribute.name)
        if value is None and attribute.default is None:
            raise NoMeaning(f"{decl.name} lacks {attribute.name}")
        found[attribute.name] = literal(attribute.default) if value is None else value  # type: ignore[arg-type,assignment]
    return found


def _groups(decl: Declaration, pattern: Pattern | None) -> dict[str, None]:
    return dict.fromkeys(dim.name for tensor in decl.inputs for dim in tensor.dims if dim.rest)


def axis_of(dim_name: str, device: bool) -> str:
    return f"@{dim_name}" if device else dim_name


def tensor_axes(tensor: TensorDecl, rests: Mapping[str, tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The axes of every declared dimension. A rest group expands to one dimension for each of its axes."""
    found: list[tuple[str, ...]] = []
    for dims in tensor.dimensions:
        if len(dims) == 1 and dims[0].rest:
            found += [(axis,) for axis in rests[dims[0].name]]
        else:
            found.append(
                tuple(
                    axis for dim in dims for axis in (rests[dim.name] if dim.rest else (axis_of(dim.name, dim.device),))
                )
            )
    return found


def _output(tensor: TensorDecl, rests: Mapping[str, tuple[str, ...]], pattern: Pattern | None) -> Layout:
    if pattern is not None:
        axes = rests[tensor.dims[0].name]
        names = [name for dim in pattern.target for name in dim]
        return Layout(axes, tuple(tuple(names.index(name) for name in dim) for dim in pattern.target))
    return _layout(tensor_axes(tensor, rests))


def _layout(dims: Sequence[tuple[str, ...]]) -> Layout:
    axes = tuple(axis for dim in dims for axis in dim)
    places = iter(range(len(axes)))
    return Layout(axes, tuple(tuple(next(places) for _ in dim) for dim in dims))


class _Solver:
    """Solves conditions that have one unknown, repeatedly, until a pass determines nothing new."""

    def __init__(self, decl: Declaration, shapes: Sequence[Shape], known: Known, pattern: Pattern | None) -> None:
        self.decl = decl
        self.shapes = shapes
        self.known = known
        self.pattern = pattern
        self.merged: list[tuple[tuple[str, ...], int]] = []
        self.loose: set[str] = set()

    # ------------------------------------------------------------------------------------------ ranks

    def rank(self, group: str) -> int:
        found = self.known.get(f"rank({group})")
        if found is None:
            raise NoMeaning(f"nothing says which axes {group}.. stands for")
        if found != int(found) or found < 0:
            raise NoMeaning(f"{group}.. of rank {found}")
        return int(found)

    def ranks(self) -> None:
        if self.pattern is not None:
            self._pattern_ranks(self.pattern)
            return
        self._count_from_end()
        about_ranks = [condition for condition in self.decl.conditions if _has_rank(condition)]
        before = -1
        while before != len(self.known):
            before = len(self.known)
            for condition in about_ranks:
                self.propagate(condition)
            for tensor, shape in zip(self.decl.inputs, self.shapes, strict=True):
                self._rank_of(tensor, shape)
        for tensor, shape in zip(self.decl.inputs, self.shapes, strict=True):
            self._broadcast_rank(tensor, shape)
        for tensor, shape in zip(self.decl.inputs, self.shapes, strict=True):
            self._check_rank(tensor, shape)

    def _pattern_ranks(self, pattern: Pattern) -> None:
        groups = list(_groups(self.decl, None))
        (tensor,) = self.decl.inputs
        kept = self.decl.outputs[0].dims[0].name if self.decl.outputs[0].dims else None
        plain = len(groups) == len(tensor.dims) and 1 <= len(groups) <= 2 and kept in groups
        if not plain or len(self.decl.outputs[0].dims) != 1:
            raise NoMeaning(f"{self.decl.name} takes no pattern")
        left = [name for dim in pattern.source for name in dim]
        right = [name for dim in pattern.target for name in dim]
        if len(set(left)) < len(left) or len(set(right)) < len(right) or not set(right) <= set(left):
            raise NoMeaning("a pattern that does not fit")
        if len(groups) == 1 and len(right) < len(left):
            raise NoMeaning("a pattern that leaves out what is not reduced")
        for group in groups:
            self.known[f"rank({group})"] = len(right) if group == kept else len(left) - len(right)

    def _count_from_end(self) -> None:
        """In `rank(f) == dim` a negative `dim` counts from the end of the first input that has `f..`."""
        names = {attribute.name for attribute in self.decl.attributes}
        for condition in self.decl.conditions:
            if not (isinstance(condition, Apply) and condition.function == "=="):
                continue
            for side, other in (condition.arguments, condition.arguments[::-1]):
                if isinstance(side, Name) and side.name in names and _has_rank(other):
                    groups = set(_ranked(other))
                    rank = next(
                        len(shape) - sum(dim.device for dim in tensor.dims)
                        for tensor, shape in zip(self.decl.inputs, self.shapes, strict=True)
                        if any(dim.rest and dim.name in groups for dim in tensor.dims)
                    )
                    value = self.known[side.name]
                    if not -rank <= value < rank:
                        raise NoMeaning(f"{side.name} = {value} is not one of {rank} dimensions")
                    self.known[side.name] = value % rank

    def _rank_of(self, tensor: TensorDecl, shape: Shape) -> None:
        groups = [dim for dim in tensor.dims if dim.rest]
        unknown = [dim for dim in groups if f"rank({dim.name})" not in self.known]
        if len(unknown) == 1 and not unknown[0].broadcast:
            others = sum(int(self.known[f"rank({dim.name})"]) for dim in groups if dim is not unknown[0])
            joined = sum(dim.joined for dim in tensor.dims)
            self.known[f"rank({unknown[0].name})"] = len(shape) - (len(tensor.dims) - joined - len(groups)) - others

    def _broadcast_rank(self, tensor: TensorDecl, shape: Shape) -> None:
        """Sets a broadcast group's rank to the greatest among the operands, if nothing else determines it."""
        for dim in tensor.dims:
            key = f"rank({dim.name})"
            if dim.broadcast and (key not in self.known or key in self.loose):
                self.loose.add(key)
                self.known[key] = max(len(shape) - (len(tensor.dims) - 1), self.known.get(key, 0))

    def _check_rank(self, tensor: TensorDecl, shape: Shape) -> None:
        joined = sum(dim.joined for dim in tensor.dims)
        most = sum(self.rank(dim.name) if dim.rest else 1 for dim in tensor.dims) - joined
        fewest = most - sum(self.rank(dim.name) for dim in tensor.dims if dim.broadcast)
        if not fewest <= len(shape) <= most:
            raise NoMeaning(f"{tensor.name} of {self.decl.name} has rank {len(shape)}")

    # ------------------------------------------------------------------------------------------ sizes

    def bind(self, tensor: TensorDecl, shape: Shape, rests: Mapping[str, tuple[str, ...]]) -> Layout:
        dims = tensor_axes(tensor, rests)
        start = next((place for place, dim in enumerate(tensor.dims) if dim.broadcast), None)
        missing = len(dims) - len(shape)
        layout: list[tuple[int, ...]] = []
        axes = [axis for dim in dims for axis in dim]
        place = 0
        left_out = range(0) if start is None else range(start, start + missing)
        given = iter(shape)
        broadcasting = {axis for dim in tensor.dims if dim.broadcast for axis in rests[dim.name]}
        for number, dim in enumerate(dims):
            places = tuple(range(place, place + len(dim)))
            place += len(dim)
            if number in left_out:
                continue
            size = next(given)
            if len(dim) == 1:
                layout.append(places if self._size(dim[0], size, dim[0] in broadcasting) else ())
            else:
                self.merged.append((dim, size))
                layout.append(places)
        return Layout(tuple(axes), tuple(layout))

    def _size(self, axis: str, size: int, broadcasts: bool) -> bool:
        """Whether the operand is indexed by the axis; False if it broadcasts. Raises NoMeaning for a size mismatch."""
        known = self.known.get(axis)
        if known is None or (broadcasts and axis in self.loose and known == 1):
            self.known[axis] = size
            if broadcasts:
                self.loose.add(axis)
            return True
        if broadcasts and size == 1 and known != 1:
            return False
        if known != size:
            raise NoMeaning(f"{self.decl.name}: {axis} is {known} and {size}")
        return True

    def bind_pattern(self, pattern: Pattern, shape: Shape, rests: Mapping[str, tuple[str, ...]]) -> Layout:
        kept = self.decl.outputs[0].dims[0].name
        right = [name for dim in pattern.target for name in dim]
        left_out = [name for dim in pattern.source for name in dim if name not in right]
        axis: dict[str, str] = dict(zip(right, rests[kept], strict=True))
        for group, axes in rests.items():
            if group != kept:
                axis |= dict(zip(left_out, axes, strict=True))
        for name, own in axis.items():
            self.known[own] = pattern.sizes[name]
        for dim, size in zip(pattern.source, shape, strict=True):
            if prod(pattern.sizes[name] for name in dim) != size:
                raise NoMeaning("a pattern of other sizes")
        order = tuple(own for part in self.decl.inputs[0].dims for own in rests[part.name])
        dims = tuple(tuple(order.index(axis[name]) for name in dim) for dim in pattern.source)
        return Layout(order, dims)

    def bind_range(self, tensor: TensorDecl, bound: int | None) -> None:
        if (tensor.integer_range is None) != (bound is None):
            if self.pattern is not None and tensor.integer_range is None:
                return
            raise NoMeaning(f"{tensor.name} of {self.decl.name}: integers or floats")
        if tensor.integer_range is not None and bound is not None:
            if bound > self.known.setdefault(tensor.integer_range, bound):
                raise NoMeaning(f"{tensor.name} of {self.decl.name}: integers below {bound}")

    # ------------------------------------------------------------------------------------------ conditions

    def solve(self) -> None:
        before = -1
        while before != len(self.known):
            before = len(self.known)
            for condition in self.decl.conditions:
                self.propagate(condition)
            for axes, size in self.merged:
                unknown = [axis for axis in axes if axis not in self.known]
                if len(unknown) == 1:
                    others = prod(int(self.known[axis]) for axis in axes if axis in self.known)
                    if others < 1 or size % others:
                        raise NoMeaning(f"{self.decl.name}: {others} does not divide {size}")
                    self.known[unknown[0]] = size // others

    def check(self) -> None:
        for condition in self.decl.conditions:
            value = self.value(condition)
            if value is None:
                raise NoMeaning(f"{self.decl.name}: a condition is about what nothing determines")
            if isinstance(condition, Apply) and value != 1:
                raise NoMeaning(f"{self.decl.name}: a condition does not hold")
        for axes, size in self.merged:
            if any(axis not in self.known for axis in axes) or prod(int(self.known[axis]) for axis in axes) != size:
                raise NoMeaning(f"{self.decl.name}: a dimension of {size} of other axes")
        attributes = {attribute.name for attribute in self.decl.attributes}
        for name, value in self.known.items():
            if name not in attributes and not name.startswith("rank(") and (value != int(value) or value < 1):
                raise NoMeaning(f"{self.decl.name}: {name} of size {value}")

    def propagate(self, condition: Expr) -> None:
        if not (isinstance(condition, Apply) and condition.function == "=="):
            return
        for side, other in (condition.arguments, condition.arguments[::-1]):
            value = self.value(other)
            if value is not None and self.value(side) is None:
                self._undo(side, value)
                return

    def _undo(self, expr: Expr, value: Exact) -> None:
        """Solves `expr == value` for the one unknown of the expression by inverting the arithmetic around it."""
        key = _key(expr)
        if key is not None:
            self.known[key] = value
            return
        if not isinstance(expr, Apply):
            return
        if expr.function == "neg":
            self._undo(expr.arguments[0], -value)
            return
        if expr.function not in ("+", "-", "*"):
            return
        left, right = expr.arguments
        first, second = self.value(left), self.value(right)
        if (first is None) == (second is None):
            return
        unknown, given = (left, second) if first is None else (right, first)
        assert given is not None
        if expr.function == "+":
            self._undo(unknown, value - given)
        elif expr.function == "-":
            self._undo(unknown, value + given if unknown is left else given - value)
        elif given == 0 or value % given:
            raise NoMeaning(f"{self.decl.name}: no whole number solves a condition")
        else:
            self._undo(unknown, value // given)

    def value(self, expr: Expr) -> Exact | None:
        if isinstance(expr, Number):
            return literal(expr.value)  # type: ignore[return-value]
        key = _key(expr)
        if key is not None:
            return self.known.get(key)
        if not isinstance(expr, Apply):
            return None
        parts = [self.value(argument) for argument in expr.arguments]
        if any(part is None for part in parts):
            return None
        found = ARITHMETIC[expr.function](*parts)
        if found is None:
            raise NoMeaning(f"{self.decl.name}: a condition divides by zero")
        return found  # type: ignore[return-value]


def _key(expr: Expr) -> str | None:
    match expr:
        case Name(name, rest) | Size(name, rest):
            return f"{name}.." if rest else name
        case Apply("rank", (Name(name),)):
            return f"rank({name})"
    return None


def _has_rank(expr: Expr) -> bool:
    return next(_ranked(expr), None) is not None


def _ranked(expr: Expr) -> Iterator[str]:
    match expr:
        case Apply("rank", (Name(name),)):
            yield name
        case Apply(_, arguments):
            for argument in arguments:
                yield from _ranked(argument)
