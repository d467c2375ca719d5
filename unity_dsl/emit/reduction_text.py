"""Torch text of reductions: gathers and scatters by guards, einsum, reductions along axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from ..graph.layout import PARTITION
from ..graph.layout_typing import TypedOperator
from ..index.cost.work import determined_by
from ..index.equations.instance import Equation, Instance
from ..index.equations.term import call, free_axes, interval
from ..syntax.ast import Apply, Expr, Name, Number, Read, Size
from ..syntax.rational import plain_number
from .index_space import Bound, Space
from .slice_text import Cut
from .torch_expression import Binding, Piece, Sort, align, number, permute

_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class _Running:
    """A factor `[t <= s]`: a sum over t up to the kept axis s, or with `>` and `>=` from it on."""

    factor: Expr
    over: str
    kept: str
    sign: str


@dataclass
class Sum:
    """The text of one sum. `cuts` tells how an axis is cut; `whole` says that everything is computed in integers."""

    equation: Equation
    instance: Instance
    typed: TypedOperator
    space: Space
    cuts: Callable[[str], Sequence[Cut]]
    whole: bool = False
    scale: list[tuple[str, int | float]] = field(default_factory=list)

    def text(self) -> Piece:
        """Guards set some of its axes: reduced ones are looked up, kept ones added to. The others are summed."""
        equation, space = self.equation, self.space
        factors, self.scale = _product(equation.value, self.instance.sizes)
        over = list(equation.over)
        masks = [mask for axis in equation.over for mask in self.determined(axis, factors, over)]
        placed = self.scattered(factors, over)
        if not placed:
            running = self.running(factors, over)
            if running is not None:
                return self.scaled(self.accumulated(running, factors, masks, over))
            return self.scaled(self.contracted(factors, masks, equation.target.axes, over))
        for axis in placed:
            masks += self.determined(axis, factors, [])
        places = [space.bound[axis].place for axis in placed]
        at = {axis for place in places for axis in place.axes}
        space.order = (
            *(axis for axis in equation.space if axis in at),
            *(axis for axis in equation.space if axis not in at),
        )
        kept = [axis for axis in space.order if axis in at or (axis in equation.target.axes and axis not in placed)]
        total = self.contracted(factors, masks, kept, [axis for axis in over if axis not in at])
        return self.added(self.scaled(total), placed)

    # ------------------------------------------------------------------------------------------ guards

    def determined(self, axis: str, factors: list[Expr], over: list[str]) -> list[Piece]:
        """Set an axis to what a guard says, and take both out of their lists; masks of where there is a position."""
        guard = self.guard(factors, axis)
        if guard is None:
            return []
        factor, term, count = guard
        factors.remove(factor)
        if axis in over:
            over.remove(axis)
        if count == 1:
            return self.bind(axis, term)
        whole = self.space.piece(call("==", call("%", term, Number(count)), Number(0)))
        return [whole, *self.bind(axis, call("//", term, Number(count)))]

    def scattered(self, factors: Sequence[Expr], over: Sequence[str]) -> list[str]:
        """Kept axes that a guard sets from axes which are reduced."""
        found: list[str] = []
        for axis in self.equation.target.axes:
            guard = self.guard(factors, axis)
            if guard is not None and set(free_axes(guard[1])) & set(over) and not set(free_axes(guard[1])) & set(found):
                found.append(axis)
        return found

    def guard(self, factors: Sequence[Expr], axis: str) -> tuple[Expr, Expr, int] | None:
        """A factor `[v == e]` or `[count * v == e]` with e an integer free of v; e, and the count."""
        for factor in factors:
            found = determined_by(factor, axis)
            if found is not None and self._is_integer(found[0]):
                return factor, *found
        return None

    def _is_integer(self, expr: Expr) -> bool:
        match expr:
            case Name() | Size():
                return True
            case Number(value=value):
                return isinstance(value, int)
            case Read(tensor=tensor, fill=None):
                return self.space.variables[tensor][1].integer_range is not None
            case Apply(function=function, arguments=arguments):
                return function in {"+", "-", "*", "//", "%", "neg"} and all(map(self._is_integer, arguments))
        return False

    def bind(self, axis: str, value: Expr) -> list[Piece]:
        """Set an axis to what a guard says; the mask of where that lies in the local slice, if not everywhere."""
        space = self.space
        wanted = space.piece(value)
        size, cuts = self.instance.sizes[axis], self.cuts(axis)
        low, high = self._range(value)
        if not cuts and low >= 0 and high < size:
            space.bound[axis] = Bound(wanted, wanted)
            return []
        place = Piece(space.keep(axis, self._local(axis, wanted, cuts)), wanted.axes, Sort.INT)
        held = self.typed.local_sizes[axis]
        inside = space.keep(f"{axis}_here", f"({place.code} >= 0) & ({place.code} < {held})")
        clamped = space.keep(axis, f"{place.code}.clamp(0, {held - 1})")
        space.bound[axis] = Bound(Piece(clamped, wanted.axes, Sort.INT), wanted)
        return [Piece(inside, wanted.axes, Sort.BOOL)]

    def _local(self, axis: str, wanted: Piece, cuts: Sequence[Cut]) -> str:
        """Where positions of the whole axis lie in the local slice: for those outside it, a number outside it."""
        if all(by == PARTITION for by, _, _, _ in cuts):
            return wanted.within(Binding.SUM) + "".join(f" - {cut[2] // cut[1]} * {cut[3]}" for cut in cuts)
        space, size = self.space, self.instance.sizes[axis]
        held, here = space.position(axis), space.offset(axis)
        empty = f"torch.full(({size},), -1, device={space.device})"
        slots = space.keep(f"{axis}_slots", f"{empty}.index_copy(0, {held.code}, {here.code})")
        known = f"({wanted.code}).clamp(0, {size - 1})"
        return f"torch.where({wanted.within(Binding.SUM)} == {known}, {slots}[{known}], -1)"

    def _range(self, value: Expr) -> tuple[float, float]:
        """Bounds of a guard's term: those of an integer tensor's values, else of an index expression."""
        if isinstance(value, Read):
            _, operand = self.space.variables[value.tensor]
            return (0, operand.integer_range - 1) if operand.integer_range is not None else (-1, float("inf"))
        try:
            return interval(value, self.instance.sizes)
        except ValueError:
            return -1, float("inf")

    # ------------------------------------------------------------------------------------------ sums

    def contracted(
        self, factors: Sequence[Expr], masks: Sequence[Piece], kept: Sequence[str], over: Sequence[str]
    ) -> Piece:
        """The product of the factors, summed over the axes `over`: those that it has not are counted."""
        space = self.space
        pieces = [space.piece(factor) for factor in factors]
        if masks:
            pieces.append(self._product_of(masks))
        pieces = [piece for piece in pieces if piece.value != 1 or piece.sort is not Sort.NUMBER]
        free = [axis for axis in kept if any(axis in piece.axes for piece in pieces)]
        summed = [axis for axis in over if any(axis in piece.axes for piece in pieces)]
        for axis in over:
            if axis not in summed:
                self.scale.append(("*", self.typed.local_sizes[axis]))
        apart = len(pieces) > 1 and summed and not all(set(piece.axes) >= {*free, *summed} for piece in pieces)
        if apart and not self.whole:
            return _einsum([space.tensor(piece) for piece in self._grouped(pieces)], free)
        grouped = self._grouped(pieces)
        total = self._product_of(grouped) if grouped else number(1)
        return reduced(space.tensor(total), "sum", summed) if summed else total

    def _product_of(self, pieces: Sequence[Piece]) -> Piece:
        total = pieces[0]
        for piece in pieces[1:]:
            total = self.space.arithmetic("*", [total, piece])
        return total

    def _grouped(self, pieces: Sequence[Piece]) -> list[Piece]:
        """Pieces over the same axes as one, so that no product of others is made for each."""
        found: dict[tuple[str, ...], Piece] = {}
        for piece in pieces:
            before = found.get(piece.axes)
            found[piece.axes] = piece if before is None else self.space.arithmetic("*", [before, piece])
        return list(found.values())

    def scaled(self, total: Piece) -> Piece:
        """Times the numbers that the product has, and the lengths of axes that it has not."""
        for operator, value in _folded(self.scale):
            total = self.space.arithmetic(operator, [total, number(value)])
        return total

    def added(self, total: Piece, placed: Sequence[str]) -> Piece:
        """The values added up at the places of some kept axes."""
        space, local, target = self.space, self.typed.local_sizes, self.equation.target.axes
        bound = {axis: space.bound[axis].place for axis in placed}
        at = {axis for place in bound.values() for axis in place.axes}
        rest = [axis for axis in target if axis not in placed and axis not in at]
        first = [axis for axis in target if axis not in rest]
        if len(placed) == 1 and len(at) == len(target) and not rest:
            return self._added_along(total, placed[0], bound[placed[0]])
        sources = [axis for axis in space.order if axis in at]
        places = [bound[axis] if axis in bound else space.offset(axis) for axis in first]
        indices = ", ".join(align(place, sources).code for place in places)
        values = align(space.tensor(total), (*sources, *rest), leading=False)
        shape = ", ".join(str(local[axis]) for axis in (*first, *rest))
        zeros = f"torch.zeros({shape}, dtype={space.dtype}, device={space.device})"
        comma = "," if len(first) == 1 else ""
        code = f"{zeros}.index_put(({indices}{comma}), {values.code}, accumulate=True)"
        return permute(Piece(code, (*first, *rest)), target)

    def _added_along(self, total: Piece, axis: str, place: Piece) -> Piece:
        """The same where one axis is set and every other one stays: torch's own call."""
        space, local, target = self.space, self.typed.local_sizes, self.equation.target.axes
        (source,) = set(place.axes) - set(target)
        sources = [source if name == axis else name for name in target]
        index = permute(place, sources)
        values = align(space.tensor(total), sources, leading=True)
        held = values.code if len(total.axes) == len(target) else f"{values.atom}.expand_as({index.code})"
        zeros = f"torch.zeros({', '.join(str(local[name]) for name in target)}, dtype={space.dtype}, "
        code = f"{zeros}device={space.device}).scatter_add({target.index(axis)}, {index.code}, {held})"
        return Piece(code, target)

    # ------------------------------------------------------------------------------------------ running sums

    def running(self, factors: Sequence[Expr], over: Sequence[str]) -> _Running | None:
        """A factor that makes this a running sum, if the others do not depend on where it ends."""
        for factor in factors:
            match factor:
                case Apply(function, (Name(left), Name(right))) if function in _TURNED:
                    sides = [(left, right, function), (right, left, _TURNED[function])]
                    for axis, kept, sign in sides:
                        if axis in over and self._runs(axis, kept, [other for other in factors if other != factor]):
                            return _Running(factor, axis, kept, sign)
        return None

    def _runs(self, axis: str, kept: str, others: Sequence[Expr]) -> bool:
        """Both axes are held whole, and no other factor has both."""
        sizes, local = self.instance.sizes, self.typed.local_sizes
        whole = sizes[axis] == sizes[kept] == local[axis] == local[kept] and kept in self.equation.target.axes
        used = [set(free_axes(other)) for other in others]
        return whole and any(axis in names for names in used) and not any({axis, kept} <= names for names in used)

    def accumulated(
        self, running: _Running, factors: Sequence[Expr], masks: Sequence[Piece], over: Sequence[str]
    ) -> Piece:
        """The running sum of the factors that have the reduced axis, times those that have not."""
        space, axis = self.space, running.over
        inner = [factor for factor in factors if factor != running.factor and running.kept not in free_axes(factor)]
        outer = [factor for factor in factors if factor != running.factor and running.kept in free_axes(factor)]
        space.order = (*(name for name in self.equation.space if name != axis), axis)
        kept = [name for name in space.order if name not in over or name == axis]
        part = self.contracted(inner, masks, kept, [name for name in over if name != axis])
        part = _run(part if self.whole else space.tensor(part), axis, running.sign, self.typed.local_sizes[axis])
        part = Piece(part.code, tuple(running.kept if name == axis else name for name in part.axes), part.sort)
        space.order = self.equation.space
        part = permute(part, [name for name in space.order if name in part.axes])
        for factor in outer:
            part = space.arithmetic("*", [part, space.piece(factor)])
        return part


def _run(piece: Piece, axis: str, sign: str, size: int) -> Piece:
    """The sums of a dimension up to each position (`<=`, and `<` without it) or from it on (`>=`, `>`)."""
    dim = piece.axes.index(axis)
    sort = Sort.INT if piece.sort is Sort.BOOL else piece.sort
    code = piece.atom if "<" in sign else f"{piece.atom}.flip({dim})"
    code = f"{code}.cumsum({dim})"
    if "=" not in sign:
        sides = ", ".join(["0, 0"] * (len(piece.axes) - 1 - dim) + ["1, 0"])
        code = f"F.pad({code}.narrow({dim}, 0, {size - 1}), ({sides}))"
    return Piece(code if "<" in sign else f"{code}.flip({dim})", piece.axes, sort)


def _product(value: Expr, sizes: Mapping[str, int]) -> tuple[list[Expr], list[tuple[str, int | float]]]:
    """The factors of a product that depend on something, and the numbers it is multiplied with and divided by."""
    match value:
        case Number(value=amount):
            return [], [("*", plain_number(amount))]
        case Size(name=name):
            return [], [("*", sizes[name])]
        case Apply("*", (left, right)):
            factors, scale = _product(left, sizes)
            others, more = _product(right, sizes)
            return factors + others, scale + more
        case Apply("/", (left, right)):
            others, divisors = _product(right, sizes)
            if not others:
                factors, scale = _product(left, sizes)
                swapped = {"*": "/", "/": "*"}
                return factors, scale + [(swapped[operator], amount) for operator, amount in divisors]
        case Apply("neg", (inner,)):
            factors, scale = _product(inner, sizes)
            return factors, [("*", -1), *scale]
    return [value], []


def _folded(scale: Sequence[tuple[str, int | float]]) -> list[tuple[str, int | float]]:
    """At most one multiplication and one division."""
    times = prod(amount for operator, amount in scale if operator == "*")
    divisor = prod(amount for operator, amount in scale if operator == "/")
    found: list[tuple[str, int | float]] = [("*", times)] if times != 1 else []
    return [*found, ("/", divisor)] if divisor != 1 else found


def _einsum(pieces: Sequence[Piece], free: Sequence[str]) -> Piece:
    """A contraction; each axis has a letter, its first one where that is free."""
    letters: dict[str, str] = {}
    for piece in pieces:
        for axis in piece.axes:
            if axis not in letters:
                candidates = (*axis.lower(), *"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
                letters[axis] = next(c for c in candidates if c.isascii() and c.isalpha() and c not in letters.values())
    terms = ",".join("".join(letters[axis] for axis in piece.axes) for piece in pieces)
    result = "".join(letters[axis] for axis in free)
    return Piece(f'torch.einsum("{terms}->{result}", {", ".join(piece.code for piece in pieces)})', tuple(free))


def reduced(piece: Piece, kind: str, over: Sequence[str]) -> Piece:
    """A reduction of local dimensions: sum, prod, max or min."""
    kept = tuple(axis for axis in piece.axes if axis not in over)
    dims = [piece.axes.index(axis) for axis in over]
    if kind == "prod":
        code = piece.atom + "".join(f".prod({dim})" for dim in sorted(dims, reverse=True))
        return Piece(code, kept, piece.sort)
    method = {"sum": "sum", "max": "amax", "min": "amin"}[kind]
    if not kept:
        text = ""
    elif dims == [len(piece.axes) - 1]:
        text = "-1"
    else:
        text = str(dims[0]) if len(dims) == 1 else f"({', '.join(map(str, dims))})"
    return Piece(f"{piece.atom}.{method}({text})", kept, piece.sort)
