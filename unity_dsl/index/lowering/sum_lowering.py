"""Reductions in torch: gathers and scatters by guards, einsum, reductions along axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from ...syntax.ast import Apply, Expr, Name, Number, Read, Size
from ...syntax.rational import plain_number
from ..cost.work import determined_by
from ..equations.instance import Equation
from ..equations.term import call, free_axes, interval
from .division import Cut
from .torch_term import Argument, Sort, Term, align, number, permute, torch_call, within, word
from .value_lowering import Bound, Space

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
    """The lowering of one sum."""

    equation: Equation
    space: Space
    scale: list[tuple[str, int | float]] = field(default_factory=list)

    def lowered(self) -> Term:
        """Guards set some of its axes: reduced ones are looked up, kept ones added to. The others are summed."""
        equation, space = self.equation, self.space
        factors, self.scale = _product(equation.value, self.space.sizes)
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

    def determined(self, axis: str, factors: list[Expr], over: list[str]) -> list[Term]:
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

    def bind(self, axis: str, value: Expr) -> list[Term]:
        """Set an axis to what a guard says; the mask of where that lies in the local slice, if not everywhere."""
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
        """Where positions of the whole axis lie in the local slice: for those outside it, a number outside it."""
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
        """Bounds of a guard's term: those of an integer tensor's values, else of an index expression."""
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
                self.scale.append(("*", self.space.local[axis]))
        apart = len(pieces) > 1 and summed and not all(set(piece.axes) >= {*free, *summed} for piece in pieces)
        if apart and not self.space.whole:
            return _einsum([space.tensor(piece) for piece in self._grouped(pieces)], free)
        grouped = self._grouped(pieces)
        total = self._product_of(grouped) if grouped else number(1)
        return reduced(space.tensor(total), "sum", summed) if summed else total

    def _product_of(self, pieces: Sequence[Term]) -> Term:
        total = pieces[0]
        for piece in pieces[1:]:
            total = self.space.arithmetic("*", [total, piece])
        return total

    def _grouped(self, pieces: Sequence[Term]) -> list[Term]:
        """Terms over the same axes as one, so that no product of others is made for each."""
        found: dict[tuple[str, ...], Term] = {}
        for piece in pieces:
            before = found.get(piece.axes)
            found[piece.axes] = piece if before is None else self.space.arithmetic("*", [before, piece])
        return list(found.values())

    def scaled(self, total: Term) -> Term:
        """Times the numbers that the product has, and the lengths of axes that it has not."""
        for operator, value in _folded(self.scale):
            total = self.space.arithmetic(operator, [total, number(value)])
        return total

    def added(self, total: Term, placed: Sequence[str]) -> Term:
        """The values added up at the places of some kept axes."""
        space, target = self.space, self.equation.target.axes
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
        """The same where one axis is set and every other one stays: torch's own call."""
        space, target = self.space, self.equation.target.axes
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
        sizes, local = self.space.sizes, self.space.local
        whole = sizes[axis] == sizes[kept] == local[axis] == local[kept] and kept in self.equation.target.axes
        used = [set(free_axes(other)) for other in others]
        return whole and any(axis in names for names in used) and not any({axis, kept} <= names for names in used)

    def accumulated(
        self, running: _Running, factors: Sequence[Expr], masks: Sequence[Term], over: Sequence[str]
    ) -> Term:
        """The running sum of the factors that have the reduced axis, times those that have not."""
        space, axis = self.space, running.over
        inner = [factor for factor in factors if factor != running.factor and running.kept not in free_axes(factor)]
        outer = [factor for factor in factors if factor != running.factor and running.kept in free_axes(factor)]
        space.order = (*(name for name in self.equation.space if name != axis), axis)
        kept = [name for name in space.order if name not in over or name == axis]
        part = self.contracted(inner, masks, kept, [name for name in over if name != axis])
        part = _run(part if self.space.whole else space.tensor(part), axis, running.sign, self.space.local[axis])
        part = replace(part, axes=tuple(running.kept if name == axis else name for name in part.axes))
        space.order = self.equation.space
        part = permute(part, [name for name in space.order if name in part.axes])
        for factor in outer:
            part = space.arithmetic("*", [part, space.piece(factor)])
        return part


def _run(piece: Term, axis: str, sign: str, size: int) -> Term:
    """The sums of a dimension up to each position (`<=`, and `<` without it) or from it on (`>=`, `>`)."""
    dim = piece.axes.index(axis)
    found = piece if "<" in sign else piece.method("flip", dim)
    found = replace(found.method("cumsum", dim), sort=Sort.INT if piece.sort is Sort.BOOL else piece.sort)
    if "=" not in sign:
        sides = [0, 0] * (len(piece.axes) - 1 - dim) + [1, 0]
        found = found.method("narrow", dim, 0, size - 1)
        found = torch_call("F.pad", found, tuple(sides), axes=piece.axes, sort=found.sort)
    return found if "<" in sign else found.method("flip", dim)


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


def _einsum(pieces: Sequence[Term], free: Sequence[str]) -> Term:
    """A contraction; each axis has a letter, its first one where that is free."""
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
    """A reduction of local dimensions: sum, prod, max or min."""
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
