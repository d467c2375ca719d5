"""The loops of an equation, whatever its sizes: axes that are iterated, looked up, scattered to, or accumulated along.

The emitted text and the counted costs (flops, bytes) come from the same loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce

from ...syntax.ast import Apply, Expr, Name, Number, Read, ReductionKind, Select, Size
from .guarded_extrema import guarded_extremum
from .index_inversion import isolate
from .instance import Equation, Instance
from .rewriting import simplify
from .term import affine, call, free_axes, interval, reads, substitute

_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class LookUp:
    """A factor `[axis == term]` or `[count * axis == term]`: the axis has a single position, and no loop runs over it.

    `everywhere` says that this position exists wherever the term is evaluated; else the factor is 0 at some positions.
    With `window`, the position is a sum over positions of several axes, as in `[p + pad == h * stride + r]`.
    """

    axis: str
    factor: Expr
    term: Expr
    count: int
    everywhere: bool
    window: bool = False

    @property
    def position(self) -> Expr:
        return self.term if self.count == 1 else call("//", self.term, Number(self.count))


@dataclass(frozen=True)
class RunningSum:
    """A factor `[over <= kept]`: a sum up to each position of a kept axis, or from it on with `>` and `>=`."""

    factor: Expr
    over: str
    kept: str
    sign: str


@dataclass(frozen=True)
class LoopNest:
    """An equation's loops.

    `factors` are the factors of the summed product, without guards and numbers. A value that is not summed is a single
    factor; the factor of an extremum lacks the guards that set axes. `scale` has the numbers that multiply and divide
    the product. `looked_up` are reduced axes that guards set. `placed` are kept axes at whose positions values are
    added or compared. `over` are the other axes that are summed or reduced. `running` says how one pass can take the
    sum if its two axes are equally long and undivided. `selected` says that guards were conditions,
    `select(v == to[e], x, 0)`: the factors may have any value where these fail.
    """

    equation: Equation
    factors: tuple[Expr, ...]
    scale: tuple[tuple[str, Expr], ...] = ()
    looked_up: tuple[LookUp, ...] = ()
    placed: tuple[LookUp, ...] = ()
    over: tuple[str, ...] = ()
    running: RunningSum | None = None
    selected: bool = False

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes that are iterated over."""
        return tuple(axis for axis in self.equation.space if axis not in self.positions)

    @property
    def positions(self) -> Mapping[str, Expr]:
        """The positions of axes that have a single one, in terms of the iterated axes."""
        at: dict[str, Expr] = {}
        for found in (*self.looked_up, *self.placed):
            position = substitute(found.position, at)
            at = {axis: substitute(term, {found.axis: position}) for axis, term in at.items()}
            at[found.axis] = position
        return at

    @property
    def slides(self) -> bool:
        """Whether products are added at all positions of windows: a transposed convolution."""
        several = sum(any(reads(factor)) for factor in self.factors) > 1
        return several and bool(self.placed) and all(found.window for found in self.placed)

    @property
    def everywhere(self) -> bool:
        """Whether every position that a guard sets exists. `value` is then summed, or added at its place."""
        return all(found.everywhere for found in (*self.looked_up, *self.placed))

    @property
    def unguarded(self) -> bool:
        """Whether `value` is exactly what is summed, and nothing is added at places."""
        return not self.placed and self.everywhere

    @property
    def value(self) -> Expr:
        """The value without guards, at the positions that the guards set."""
        if self.equation.kind is not ReductionKind.SUM:
            return substitute(self.factors[0], self.positions)
        value = self.equation.value
        for found in (*self.looked_up, *self.placed):
            value = without(value, found.factor)
        return substitute(value, self.positions)


def loop_nest(instance: Instance, equation: Equation) -> LoopNest:
    """The loops of one equation of an instance."""
    if equation.kind is not ReductionKind.SUM:
        return _extremum(instance, equation) or LoopNest(equation, (equation.value,), over=equation.over)
    factors, scale = _product(equation.value)
    unfolded = [part for factor in factors for part in _unfolded(factor, equation.space)]
    selected = unfolded != factors
    looked_up, placed, over = _set_axes(instance, equation, unfolded)
    if selected and any(_sets(part, equation.space) and part not in factors for part in unfolded):
        looked_up, placed, over = _set_axes(instance, equation, factors)
        selected = False
    else:
        factors = unfolded
    running = None if placed else _running(factors, over, equation.target.axes)
    return LoopNest(equation, tuple(factors), tuple(scale), looked_up, placed, over, running, selected)


def _extremum(instance: Instance, equation: Equation) -> LoopNest | None:
    """The loops of an extremum whose guards set axes: only elements that the guards select count.

    None for any other.
    """
    found = guarded_extremum(equation)
    if found is None:
        return None
    guards = list(found.guards)
    looked_up, placed, over = _set_axes(instance, equation, guards)
    if not looked_up and not placed:
        return None
    return LoopNest(equation, (found.under(guards),), (), looked_up, placed, over)


def _set_axes(
    instance: Instance, equation: Equation, factors: list[Expr]
) -> tuple[tuple[LookUp, ...], tuple[LookUp, ...], tuple[str, ...]]:
    """The reduced axes that factors set, the kept axes that they set, and the reduced axes that are left.

    Removes the factors that set axes from `factors`.
    """
    sums = {factor: axis for factor in factors if (axis := _sum_of_others(instance, factor)) is not None}
    looked_up = []
    for axis in equation.over:
        left = [factor for factor in factors if sums.get(factor, axis) == axis]
        if (found := _look_up(instance, left, axis)) is not None:
            factors.remove(found.factor)
            looked_up.append(found)
    over = tuple(axis for axis in equation.over if all(axis != found.axis for found in looked_up))
    placed: list[LookUp] = []
    for axis in equation.target.axes:
        found = _look_up(instance, factors, axis)
        at = set() if found is None else set(free_axes(found.term))
        if found is not None and at & set(over) and not at & {other.axis for other in placed}:
            placed.append(found)
    factors[:] = [factor for factor in factors if all(factor != found.factor for found in placed)]
    return tuple(looked_up), tuple(placed), over


# ---------------------------------------------------------------------------------------------- guards


def _look_up(instance: Instance, factors: Sequence[Expr], axis: str) -> LookUp | None:
    """The first factor that sets an axis to an integer which does not depend on that axis."""
    for factor in factors:
        window = _sum_of_others(instance, factor) == axis
        found = _isolated(factor, axis) if window else _set_by(factor, axis)
        if found is not None and _is_integer(instance, found[0]):
            return LookUp(axis, factor, *found, _is_position(instance, axis, *found), window)
    return None


def _sum_of_others(instance: Instance, factor: Expr) -> str | None:
    """The axis that a guard equates to a constant plus a sum of multiples of at least two other axes.

    This axis has the most positions of them all.
    """
    if not (isinstance(factor, Apply) and factor.function == "==" and not any(reads(factor))):
        return None
    form = affine(call("-", *factor.arguments), instance.sizes)
    if form is None or len(form.axes) < 3:
        return None
    for sign in (1, -1):
        alone = [axis for axis, count in form.coefficients.items() if count * sign > 0]
        if len(alone) == 1 and form.coefficients[alone[0]] == sign:
            return alone[0]
    return None


def _isolated(factor: Expr, axis: str) -> tuple[Expr, int] | None:
    """The term that an equality makes an axis equal to."""
    assert isinstance(factor, Apply)
    for side, other in (factor.arguments, factor.arguments[::-1]):
        if axis not in free_axes(other) and (term := isolate(side, other, axis)) is not None:
            return simplify(term), 1
    return None


def _is_position(instance: Instance, axis: str, term: Expr, count: int) -> bool:
    """Whether a term is proved to be `count` times a position of an axis wherever it is evaluated."""
    if isinstance(term, Read):
        known = instance.operand(term.tensor).integer_range
        return count == 1 and known is not None and known <= instance.sizes[axis]
    try:
        low, high = interval(term, instance.sizes)
    except ValueError:
        return False
    return count == 1 and low >= 0 and high < instance.sizes[axis]


def _set_by(factor: Expr, axis: str) -> tuple[Expr, int] | None:
    """The term and the count of a factor `[axis == term]` or `[count * axis == term]`; the term is free of the axis."""
    if isinstance(factor, Apply) and factor.function == "==":
        for side, term in (factor.arguments, factor.arguments[::-1]):
            if axis not in free_axes(term):
                match side:
                    case Name(name) if name == axis:
                        return term, 1
                    case Apply("*", (Number(int(count)), Name(name))) if name == axis and count > 0:
                        return term, count
    return None


def _is_integer(instance: Instance, expr: Expr) -> bool:
    match expr:
        case Name() | Size():
            return True
        case Number(value=value):
            return isinstance(value, int)
        case Read(tensor=tensor, fill=None):
            return instance.operand(tensor).integer_range is not None
        case Apply(function=function, arguments=arguments):
            known = function in {"+", "-", "*", "//", "%", "neg"}
            return known and all(_is_integer(instance, argument) for argument in arguments)
    return False


def _running(factors: Sequence[Expr], over: Sequence[str], kept: Sequence[str]) -> RunningSum | None:
    """The factor that makes this a running sum, if another factor depends on the reduced axis and none on both axes."""
    for factor in factors:
        match factor:
            case Apply(function, (Name(left), Name(right))) if function in _TURNED:
                used = [set(free_axes(other)) for other in factors if other != factor]
                for axis, end, sign in ((left, right, function), (right, left, _TURNED[function])):
                    apart = any(axis in names for names in used) and not any({axis, end} <= names for names in used)
                    if axis in over and end in kept and apart:
                        return RunningSum(factor, axis, end, sign)
    return None


def _unfolded(factor: Expr, axes: Sequence[str]) -> list[Expr]:
    """Splits a choice between a value and 0 if guards that may set axes are among its conditions or factors.

    Returns these guards, once each, and the value under the remaining conditions.
    """
    conditions, value = [], factor
    while isinstance(value, Select) and value.otherwise == Number(0):
        conditions.append(value.condition)
        value = value.then
    inner, scale = _product(value) if conditions else ([value], [])
    if scale:
        inner = [value]
    guards = list(dict.fromkeys(part for part in (*conditions, *inner) if _sets(part, axes)))
    if not conditions or not guards:
        return [factor]
    asked = [part for part in conditions if part not in guards]
    rest = [part for part in inner if part not in guards]
    if not asked:
        return [*guards, *rest]
    chosen = reduce(partial(call, "*"), rest) if rest else Number(1)
    for condition in reversed(asked):
        chosen = Select(condition, chosen, Number(0))
    return [*guards, chosen]


def joined(left: Expr, right: Expr, over: Sequence[str]) -> Expr:
    """The sum of two terms that are summed over axes.

    A guard that sets such an axis in both terms is applied to their sum.
    """
    value, other, guards = left, right, []
    for axis in over:
        for guard in (part for part in _parts(value) if _set_by(part, axis) is not None and part in _parts(other)):
            value, other = without(value, guard), without(other, guard)
            guards.append(guard)
            break
    total: Expr = call("+", value, other)
    for guard in reversed(guards):
        total = Select(guard, total, Number(0))
    return total


def _parts(value: Expr) -> list[Expr]:
    """The factors of a term, and the guards of factors that choose between a value and 0."""
    factors, _ = _product(value)
    return [part for factor in factors for part in _unfolded(factor, free_axes(factor))]


def _sets(factor: Expr, axes: Sequence[str]) -> bool:
    """Whether a factor has the form of a guard that sets one of these axes."""
    return any(_set_by(factor, axis) is not None for axis in axes)


# ---------------------------------------------------------------------------------------------- products


def _product(value: Expr) -> tuple[list[Expr], list[tuple[str, Expr]]]:
    """The factors of a product that are not constants, and the numbers that multiply and divide it."""
    match value:
        case Number() | Size():
            return [], [("*", value)]
        case Apply("*", (left, right)):
            factors, scale = _product(left)
            others, more = _product(right)
            return factors + others, scale + more
        case Apply("/", (left, right)):
            others, divisors = _product(right)
            if not others:
                factors, scale = _product(left)
                swapped = {"*": "/", "/": "*"}
                return factors, scale + [(swapped[operator], amount) for operator, amount in divisors]
        case Apply("neg", (inner,)):
            factors, scale = _product(inner)
            return factors, [("*", Number(-1)), *scale]
    return [value], []


def without(value: Expr, guard: Expr) -> Expr:
    """The product without one of its factors, or without the condition of a choice."""
    match value:
        case Apply("*", (left, right)) if left == guard:
            return right
        case Apply("*", (left, right)) if right == guard:
            return left
        case Apply("*" | "/" | "neg" as function, arguments):
            return call(function, *(without(part, guard) for part in arguments))
        case Select(condition, then, Number(0) as zero):
            left = without(then, guard)
            return left if condition == guard else Select(condition, left, zero)
    return Number(1) if value == guard else value
