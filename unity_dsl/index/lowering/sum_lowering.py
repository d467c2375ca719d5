"""Lowers reductions to torch: gathers and scatters by guards, einsum, reductions along axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from ...syntax.ast import Expr, Number, Read, Size
from ...syntax.rational import plain_number
from ..equations.loop_nest import LookUp, LoopNest, RunningSum
from ..equations.term import call, free_axes, interval
from .affine_maps import linear
from .division import Cut
from .picked_terms import picked_terms
from .torch_term import Argument, Sort, Term, align, number, permute, torch_call, within, word
from .transposed_convolutions import transposed_convolution
from .value_lowering import Bound, Space


@dataclass
class Sum:
    """The lowering of one sum."""

    nest: LoopNest
    space: Space
    scale: list[tuple[str, int | float]] = field(default_factory=list)

    def lowered(self) -> Term:
        """Lowers the sum.

        Guards turn reduced axes into gathers and kept axes into scatters; the other reduced axes are summed.
        """
        nest, space, target = self.nest, self.space, self.nest.equation.target.axes
        self.scale = [(operator, _amount(value, space.sizes)) for operator, value in nest.scale]
        if (picked := picked_terms(nest, space)) is not None:
            return self.scaled(picked)
        masks = [mask for found in nest.looked_up for mask in self.determined(found)]
        if not nest.placed:
            if nest.running is not None and self._is_whole(nest.running):
                return self.scaled(self.accumulated(nest.running, masks))
            return self.scaled(self.contracted(nest.factors, masks, target, nest.over))
        if nest.slides and not masks and (windows := self.transposed()) is not None:
            return self.scaled(windows)
        masks += [mask for found in nest.placed for mask in self.determined(found)]
        placed = [found.axis for found in nest.placed]
        at = {axis for axis in placed for axis in space.bound[axis].place.axes}
        space.order = (
            *(axis for axis in nest.equation.space if axis in at),
            *(axis for axis in nest.equation.space if axis not in at),
        )
        kept = [axis for axis in space.order if axis in at or (axis in target and axis not in placed)]
        total = self.contracted(nest.factors, masks, kept, [axis for axis in nest.over if axis not in at])
        return self.added(self.scaled(total), placed)

    # ------------------------------------------------------------------------------------------ guards

    def determined(self, found: LookUp) -> list[Term]:
        """Binds an axis to the position that a guard sets. Returns masks that are true where such a position exists."""
        if found.count == 1:
            return self.bind(found.axis, found.position)
        whole = self.space.piece(call("==", call("%", found.term, Number(found.count)), Number(0)))
        return [whole, *self.bind(found.axis, found.position)]

    def bind(self, axis: str, value: Expr) -> list[Term]:
        """Binds an axis to a guard's term.

        Returns the mask of positions inside the local slice, or none if all are inside.
        """
        space = self.space
        wanted = space.piece(value)
        size, cuts = space.sizes[axis], space.division.cuts.get(axis, ())
        low, high = self._range(value)
        if not cuts and low >= 0 and high < size:
            space.bound[axis] = Bound(wanted, wanted)
            return []
        place = space.keep(axis, replace(self._local(axis, wanted, cuts), axes=wanted.axes, sort=Sort.INT))
        held = space.local[axis]
        inside = space.keep(f"{axis}_here", within(place, 0, held))
        clamped = space.keep(axis, place.method("clamp", 0, held - 1))
        space.bound[axis] = Bound(clamped, wanted)
        return [inside]

    def _local(self, axis: str, wanted: Term, cuts: Sequence[Cut]) -> Term:
        """Converts global positions of an axis to local ones.

        Positions outside the local slice get a number outside it.
        """
        space, size = self.space, self.space.sizes[axis]
        start = space.division.start(axis, 1)
        if start is not None:
            for part in start:
                wanted = Term("-", (wanted, part), wanted.axes, Sort.INT)
            return wanted
        held, here = space.position(axis), space.offset(axis)
        empty = torch_call("torch.full", (size,), -1, sort=Sort.INT, device=space.device)
        slots = space.keep(f"{axis}_slots", empty.method("index_copy", 0, held, here))
        known = wanted.method("clamp", 0, size - 1)
        found = Term("==", (wanted, known), wanted.axes, Sort.BOOL)
        return torch_call("torch.where", found, slots.at([known], wanted.axes), -1, axes=wanted.axes, sort=Sort.INT)

    def _range(self, value: Expr) -> tuple[float, float]:
        """Bounds of a guard's term: of an integer tensor's declared range, else of an index expression."""
        if isinstance(value, Read):
            _, operand = self.space.variables[value.tensor]
            return (0, operand.integer_range - 1) if operand.integer_range is not None else (-1, float("inf"))
        try:
            return interval(value, self.space.sizes)
        except ValueError:
            return -1, float("inf")

    # ------------------------------------------------------------------------------------------ sums

    def contracted(
        self, factors: Sequence[Expr], masks: Sequence[Term], kept: Sequence[str], over: Sequence[str]
    ) -> Term:
        """The product of the factors, summed over the axes `over`. Axes that no factor has are counted in `scale`."""
        space = self.space
        pieces = [space.piece(factor) for factor in factors]
        left = any(axis in piece.axes for axis in over for piece in pieces)
        if masks and (self.nest.selected or not left):  # a guard selects: elements that it excludes may be infinite
            value = space.tensor(self._product_of(pieces)) if pieces else number(1)
            pieces = [space.function("torch.where", [self._product_of(masks), value, number(0)])]
        elif masks:
            pieces.append(self._product_of(masks))
        pieces = [piece for piece in pieces if piece.value != 1 or piece.sort is not Sort.NUMBER]
        free = [axis for axis in kept if any(axis in piece.axes for piece in pieces)]
        summed = [axis for axis in over if any(axis in piece.axes for piece in pieces)]
        for axis in over:
            if axis not in summed:
                self.scale.append(("*", self.space.local[axis]))
        apart = len(pieces) > 1 and summed and not all(set(piece.axes) >= {*free, *summed} for piece in pieces)
        if apart and not self.space.whole:
            grouped = self._grouped(pieces)
            parts = [space.tensor(piece) for piece in self._in_two(grouped)]
            return linear(parts, free, space.local, len(parts) < len(grouped)) or _einsum(parts, free)
        grouped = self._grouped(pieces)
        total = self._product_of(grouped) if grouped else number(1)
        return reduced(space.tensor(total), "sum", summed) if summed else total

    def transposed(self) -> Term | None:
        """A transposed convolution, unless an axis of a window is divided over devices.

        None if the sum is no such convolution.
        """
        nest, space = self.nest, self.space
        placed = [found.axis for found in nest.placed]
        slid = {axis for found in nest.placed for axis in free_axes(found.term)}
        if (
            space.library.plain
            or space.whole
            or nest.looked_up
            or any(space.division.cuts.get(axis) for axis in (*placed, *slid))
        ):
            return None
        pieces = [space.piece(factor) for factor in nest.factors]
        parts = [space.tensor(piece) for piece in self._in_two(self._grouped(pieces))]
        free = [axis for axis in nest.equation.target.axes if axis not in placed]
        made = transposed_convolution(parts, nest.placed, free, space.local)
        if made is None:
            return None
        unread = [axis for axis in nest.over if not any(axis in part.axes for part in parts)]
        self.scale += [("*", space.local[axis]) for axis in unread]
        return permute(made, [axis for axis in nest.equation.target.axes if axis in made.axes])

    def _product_of(self, pieces: Sequence[Term]) -> Term:
        total = pieces[0]
        for piece in pieces[1:]:
            total = self.space.arithmetic("*", [total, piece])
        return total

    def _grouped(self, pieces: Sequence[Term]) -> list[Term]:
        """Multiplies terms over the same axes into one, so that no larger product is formed for each."""
        found: dict[tuple[str, ...], Term] = {}
        for piece in pieces:
            before = found.get(piece.axes)
            found[piece.axes] = piece if before is None else self.space.arithmetic("*", [before, piece])
        return list(found.values())

    def _in_two(self, pieces: Sequence[Term]) -> list[Term]:
        """Multiplies a piece into one that has all its axes and more, while more than two pieces are left.

        These products are elementwise, and a matrix product remains. einsum would contract the pieces pair by pair.
        """
        found = list(pieces)
        for piece in pieces:
            around = next((other for other in found if {*other.axes} > {*piece.axes}), None)
            if len(found) > 2 and around is not None:
                found.remove(piece)
                found[found.index(around)] = self.space.arithmetic("*", [around, piece])
        return found

    def scaled(self, total: Term) -> Term:
        """Applies the constant factors of the product and the lengths of the axes that it lacks."""
        for operator, value in _folded(self.scale):
            total = self.space.arithmetic(operator, [total, number(value)])
        return total

    def added(self, total: Term, placed: Sequence[str]) -> Term:
        """The values added up at the positions of some kept axes."""
        space, target = self.space, self.nest.equation.target.axes
        bound = {axis: space.bound[axis].place for axis in placed}
        at = {axis for place in bound.values() for axis in place.axes}
        rest = [axis for axis in target if axis not in placed and axis not in at]
        first = [axis for axis in target if axis not in rest]
        if len(placed) == 1 and len(at) == len(target) and not rest:
            return self._added_along(total, placed[0], bound[placed[0]])
        sources = [axis for axis in space.order if axis in at]
        places = [bound[axis] if axis in bound else space.offset(axis) for axis in first]
        indices = tuple(align(place, sources) for place in places)
        values = align(space.tensor(total), (*sources, *rest), leading=False)
        zeros = self._zeros((*first, *rest))
        added = torch_call(".index_put", zeros, indices, values, axes=zeros.axes, accumulate=True)
        return permute(added, target)

    def _added_along(self, total: Term, axis: str, place: Term) -> Term:
        """As `added`, if one axis is set and all others stay: torch's `scatter_add`."""
        space, target = self.space, self.nest.equation.target.axes
        (source,) = set(place.axes) - set(target)
        sources = [source if name == axis else name for name in target]
        index = permute(place, sources)
        values = align(space.tensor(total), sources, leading=True)
        held = values if len(total.axes) == len(target) else values.method("expand_as", index, axes=index.axes)
        return self._zeros(target).method("scatter_add", target.index(axis), index, held)

    def _zeros(self, axes: Sequence[str]) -> Term:
        space = self.space
        shape = [space.local[axis] for axis in axes]
        return torch_call("torch.zeros", *shape, axes=axes, dtype=space.dtype, device=space.device)

    # ------------------------------------------------------------------------------------------ running sums

    def _is_whole(self, running: RunningSum) -> bool:
        """Whether both axes are undivided and equally long."""
        sizes, local = self.space.sizes, self.space.local
        return sizes[running.over] == sizes[running.kept] == local[running.over] == local[running.kept]

    def accumulated(self, running: RunningSum, masks: Sequence[Term]) -> Term:
        """The running sum of the factors without the kept axis, times the factors that have it."""
        space, axis, over = self.space, running.over, self.nest.over
        factors = [factor for factor in self.nest.factors if factor != running.factor]
        inner = [factor for factor in factors if running.kept not in free_axes(factor)]
        outer = [factor for factor in factors if running.kept in free_axes(factor)]
        space.order = (*(name for name in self.nest.equation.space if name != axis), axis)
        kept = [name for name in space.order if name not in over or name == axis]
        part = self.contracted(inner, masks, kept, [name for name in over if name != axis])
        part = _run(part if self.space.whole else space.tensor(part), axis, running.sign, self.space.local[axis])
        part = replace(part, axes=tuple(running.kept if name == axis else name for name in part.axes))
        space.order = self.nest.equation.space
        part = permute(part, [name for name in space.order if name in part.axes])
        for factor in outer:
            part = space.arithmetic("*", [part, space.piece(factor)])
        return part


def _run(piece: Term, axis: str, sign: str, size: int) -> Term:
    """Sums along a dimension up to each position (`<=`, or exclusively with `<`), or from it on (`>=`, `>`)."""
    dim = piece.axes.index(axis)
    found = piece if "<" in sign else piece.method("flip", dim)
    found = replace(found.method("cumsum", dim), sort=Sort.INT if piece.sort is Sort.BOOL else piece.sort)
    if "=" not in sign:
        sides = [0, 0] * (len(piece.axes) - 1 - dim) + [1, 0]
        found = found.method("narrow", dim, 0, size - 1)
        found = torch_call("F.pad", found, tuple(sides), axes=piece.axes, sort=found.sort)
    return found if "<" in sign else found.method("flip", dim)


def _amount(value: Expr, sizes: Mapping[str, int]) -> int | float:
    """A number, or the length of an axis."""
    match value:
        case Number(value=amount):
            return plain_number(amount)
        case Size(name=name):
            return sizes[name]
    raise TypeError(f"{type(value).__name__} among the numbers of a product")


def _folded(scale: Sequence[tuple[str, int | float]]) -> list[tuple[str, int | float]]:
    """The scale as at most one multiplication and one division."""
    times = prod(amount for operator, amount in scale if operator == "*")
    divisor = prod(amount for operator, amount in scale if operator == "/")
    found: list[tuple[str, int | float]] = [("*", times)] if times != 1 else []
    return [*found, ("/", divisor)] if divisor != 1 else found


def _einsum(pieces: Sequence[Term], free: Sequence[str]) -> Term:
    """A contraction by einsum. Each axis gets a letter: the first letter of its name if that is free."""
    letters: dict[str, str] = {}
    for piece in pieces:
        for axis in piece.axes:
            if axis not in letters:
                candidates = (*axis.lower(), *"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
                letters[axis] = next(c for c in candidates if c.isascii() and c.isalpha() and c not in letters.values())
    terms = ",".join("".join(letters[axis] for axis in piece.axes) for piece in pieces)
    result = "".join(letters[axis] for axis in free)
    return torch_call("torch.einsum", word(f'"{terms}->{result}"'), *pieces, axes=free)


def reduced(piece: Term, kind: str, over: Sequence[str]) -> Term:
    """Reduces local dimensions by sum, prod, max or min."""
    kept = tuple(axis for axis in piece.axes if axis not in over)
    dims = [piece.axes.index(axis) for axis in over]
    if kind == "prod":
        for dim in sorted(dims, reverse=True):
            piece = piece.method("prod", dim, axes=[*piece.axes[:dim], *piece.axes[dim + 1 :]])
        return piece
    if not kept:
        given: list[Argument] = []
    elif dims == [len(piece.axes) - 1]:
        given = [-1]
    else:
        given = [dims[0] if len(dims) == 1 else tuple(dims)]
    return piece.method({"sum": "sum", "max": "amax", "min": "amin"}[kind], *given, axes=kept)
