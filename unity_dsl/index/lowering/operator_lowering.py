"""Lowers an operator to torch statements on one device, by its native call or equation by equation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

from ...syntax.ast import (
    Expr,
    Name,
    NativeArgument,
    NativeCall,
    NativeList,
    NativeString,
    Number,
    ReductionKind,
    Size,
    Ties,
)
from ...syntax.rational import Rational
from ..axes.term_scales import ONE
from ..equations.instance import Equation, Instance, Operand
from ..equations.loop_nest import loop_nest
from ..evaluation.native_calls import LITERALS, TRAINING
from ..evaluation.torch_calls import native_size
from ..gradients.independence import gradient_free
from ..library import Library
from .affine_maps import with_biases
from .division import Division, InnerMoments, InnerReduce, InnerReplicate, Window
from .placed_extrema import placed_extremum
from .read_lowering import read_term
from .standardisation import standardisations
from .standardised_lowering import lower_standardised
from .sum_lowering import Sum, reduced
from .torch_term import (
    INTEGER,
    Argument,
    Range,
    Sort,
    Term,
    Variable,
    align,
    merge,
    number,
    permute,
    torch_call,
    word,
)
from .value_lowering import Space, Statement

STATE = Term("state")
"""The object that holds the program's process groups, seed, step and device."""

FLOAT_TYPE = Term("float_type")
"""The float type in which the operator runs."""

Outside = Sequence[tuple[Window, Rational]]
"""Windows, each with the value of positions outside its dimension, where a parallel op leaves 0."""


@dataclass(frozen=True)
class Lowering:
    """Statements in order. Variables 0, 1, … are the operator's inputs; `results` are its outputs.

    `native` says that the statements are the calls of the operator's declaration.
    """

    statements: tuple[Statement, ...]
    results: tuple[Variable, ...]
    native: bool = False


def lower_equations(instance: Instance, division: Division, library: Library) -> Lowering:
    """Lowers the operator by its equations."""
    space = _space(instance, division, library)
    replicated: dict[tuple[str, tuple[int, ...]], Term] = {}
    groups = {group.mean: group for group in standardisations(instance)}
    together = {one.equation: one.axes for one in division.inner if isinstance(one, InnerMoments)}
    values: dict[int, Expr] = {}
    made = set[int]()
    for count, equation in enumerate(instance.equations):
        if count in together:
            group = groups[count]
            made |= {count, group.variance, *group.unread}
            values |= group.values
            if lower_standardised(space, group, together[count]):
                made |= {*group.values}
        if count not in made:
            _Lowered(space, count, replace(equation, value=values.get(count, equation.value)), replicated).bind()
    results = [space.variables[output.name][0].arguments[0] for output in instance.outputs]
    return Lowering(with_biases(space.statements), tuple(r for r in results if isinstance(r, Variable)))


def lower_native(
    instance: Instance,
    division: Division,
    library: Library,
    attributes: Mapping[str, Rational],
    outside: Outside = (),
    factor: Fraction = ONE,
    narrowed: Collection[str] = (),
) -> Lowering:
    """Lowers the operator by the native calls of its declaration, with these attributes.

    The result is multiplied by `factor`. Padded operands are narrowed to the operator's sizes along the axes
    `narrowed`.
    """
    native = instance.operator.torch
    assert native is not None
    space = _space(instance, division, library)
    _narrow(space, narrowed)
    _fill(space, outside)
    named: dict[str, Argument] = {TRAINING: STATE.attribute("training")} if instance.evaluation else {}
    named |= {name: number(value) for name, value in attributes.items()}
    named |= {operand.name: space.variables[operand.name][0] for operand in instance.inputs}

    def call(given: NativeCall) -> Term:
        return _native(given, named, lambda size: native_size(instance, size, division.local_sizes))

    if isinstance(native, NativeCall):
        results = tuple(space.variable() for _ in instance.outputs)
        value = _times(_typed(call(native), instance.outputs[0]), factor)
        space.statements.append(Statement(results, value, instance.outputs[0].name))
        return Lowering(tuple(space.statements), results, native=True)
    outputs = {operand.name: operand for operand in instance.outputs}
    made: dict[str, Variable] = {}
    for name, step in native.steps:
        value = _times(_typed(call(step), outputs[name]), factor) if name in outputs else call(step)
        made[name] = space.variable()
        space.statements.append(Statement((made[name],), value, name, own=True))
        named[name] = Term("name", (made[name],), value.axes, value.sort)
    return Lowering(tuple(space.statements), tuple(made[name] for name in outputs), native=True)


def _typed(value: Term, output: Operand) -> Term:
    """A native call's value with the axes and the sort of an output."""
    return replace(value, axes=output.axes, sort=Sort.FLOAT if output.integer_range is None else Sort.INT)


def _times(value: Term, factor: Fraction) -> Term:
    """The value multiplied by a number."""
    for symbol, part in (("*", factor.numerator), ("/", factor.denominator)):
        if part != 1:
            value = Term(symbol, (value, number(part)), value.axes, value.sort)
    return value


def _native(call: NativeCall, named: Mapping[str, Argument], sizes: Callable[[Size], int]) -> Term:
    """A `torch:` line with names replaced by variables and sizes by numbers."""

    def argument(given: NativeArgument) -> Argument:
        match given:
            case Number(value=value):
                return number(value)
            case Name(name=name):
                return word(name) if name in LITERALS else named[name]
            case Size():
                return sizes(given)
            case NativeString(value=value):
                return word(repr(value))
            case NativeList(items=items):
                return list(map(argument, items))
            case NativeCall():
                return _native(given, named, sizes)

    keywords = tuple((key, argument(part)) for key, part in call.keywords)
    parts = tuple(map(argument, call.arguments))
    return Term(call.function, parts, (), _sort_of(call.function, parts), keywords)


def _sort_of(function: str, parts: Sequence[Argument]) -> Sort:
    """The sort of a native call's result: the sort of its first tensor, except for comparisons, `where` and counts."""
    chosen = parts[1:] if function == "torch.where" else parts
    sort = next((part.sort for part in chosen if isinstance(part, Term) and part.sort is not Sort.NUMBER), Sort.FLOAT)
    if function == "torch.ne":
        return Sort.BOOL
    return Sort.INT if function == "torch.sum" and sort is Sort.BOOL else sort


def _space(instance: Instance, division: Division, library: Library) -> Space:
    """The space in which an operator's equations are lowered, with its inputs bound."""
    inputs = [
        Term("name", (Variable(place),), operand.axes, Sort.FLOAT if operand.integer_range is None else Sort.INT)
        for place, operand in enumerate(instance.inputs)
    ]
    floats = [variable for variable in inputs if variable.sort is Sort.FLOAT]
    real = floats[0].attribute("dtype") if floats else FLOAT_TYPE
    device = (inputs[0] if inputs else STATE).attribute("device")
    space = Space(instance, division, library, INTEGER if instance.whole else real, real, device, read_term)
    for variable, operand in zip(inputs, instance.inputs, strict=True):
        space.variables[operand.name] = variable, operand
        space.variable()
    return space


def _narrow(space: Space, axes: Collection[str]) -> None:
    """Narrows operands to the device's local sizes along these axes, which are not divided."""
    for operand in space.instance.inputs:
        held, _ = space.variables[operand.name]
        for place, dim in enumerate(operand.dims):
            if not set(dim).isdisjoint(axes):
                narrow = held.method("narrow", place, 0, prod(space.division.local_sizes[axis] for axis in dim))
                held = space.keep(operand.name, replace(narrow, axes=operand.axes, sort=held.sort))
        space.variables[operand.name] = held, operand


def _fill(space: Space, outside: Outside) -> None:
    """Fills windows with these numbers outside of their dimension."""
    instance = space.instance
    for window, value in outside:
        held, operand = space.variables[window.operand]
        axes = operand.dims[window.dim]
        extent = instance.shape(operand)[window.dim]
        places = torch_call("torch.arange", window.length, axes=axes, sort=Sort.INT, device=space.device)
        for part in space.division.start(window.axis, extent // instance.sizes[window.axis]) or ():
            places = Term("+", (places, part), axes, Sort.INT)
        if window.start:
            places = Term("-" if window.start < 0 else "+", (places, abs(window.start)), axes, Sort.INT)
        place = space.keep(axes[0], places)
        ends = [Term(symbol, (place, end), axes, Sort.BOOL) for symbol, end in (("<", 0), (">=", extent))]
        mask = Term("|", tuple(ends), axes, Sort.BOOL)
        if missing := [None] * (len(operand.dims) - window.dim - 1):
            mask = mask.at([Range(), *missing], axes)
        filled = held.method("masked_fill", mask, number(value))
        space.variables[window.operand] = space.keep(window.operand, filled), operand


@dataclass
class _Lowered:
    """Lowers equation number `count` of an operator. `replicated` has the copies of tensors made so far."""

    space: Space
    count: int
    equation: Equation
    replicated: dict[tuple[str, tuple[int, ...]], Term]

    def bind(self) -> None:
        """Lowers the equation and binds its target to a variable."""
        equation, space, target = self.equation, self.space, self.equation.target
        instance = space.instance
        space.enter(equation)
        space.detached = target.name in gradient_free(instance) and not space.whole
        outside = dict(space.variables)
        for found in space.division.inner:
            if isinstance(found, InnerReplicate) and found.equation == self.count:
                self.replicate(found)
        term = self.value()
        kept = not space.whole and target.integer_range is None and target not in instance.outputs
        if kept and term.sort in (Sort.INT, Sort.POSITION):
            term = space.exact(term)
            space.sorts[target.name] = Sort.POSITION
        shaped = self.shaped(term)
        if self.inner is not None and self.inner.kind is ReductionKind.SUM:
            shaped = Term("reduce", (shaped, self.inner.axes), shaped.axes, shaped.sort)
        space.variables = {**outside, target.name: (space.keep(target.name, shaped, own=True), target)}

    @property
    def inner(self) -> InnerReduce | None:
        """The reduction of the equation's result over mesh axes, if there is one."""
        found = (f for f in self.space.division.inner if isinstance(f, InnerReduce) and f.equation == self.count)
        return next(found, None)

    def value(self) -> Term:
        if self.equation.kind is ReductionKind.SUM:
            return Sum(loop_nest(self.space.instance, self.equation), self.space).lowered()
        if self.equation.kind is None:
            return self.space.piece(self.equation.value)
        return self.reduce(self.equation.kind)

    def replicate(self, inner: InnerReplicate) -> None:
        """Reads a tensor through its conversion to Replicate. Equations share the converted tensor."""
        variable, operand = self.space.variables[inner.operand]
        key = (inner.operand, inner.axes)
        if key not in self.replicated:
            copy = Term("replicate", (variable, inner.axes), variable.axes, variable.sort)
            self.replicated[key] = self.space.keep(inner.operand, copy)
        self.space.variables[inner.operand] = self.replicated[key], operand

    def shaped(self, term: Term) -> Term:
        """An equation's value in the target's local shape."""
        space, target = self.space, self.equation.target
        groups = [[space.local[axis] for axis in dim] for dim in target.dims]
        if term.sort is Sort.NUMBER:
            shape = tuple(map(prod, groups))
            return torch_call("torch.full", shape, term, axes=target.axes, dtype=space.dtype, device=space.device)
        keeps = (target.integer_range is not None and not space.whole) or target.name in space.sorts
        term = term if keeps else space.float(term)
        if any(axis not in term.axes for axis in target.axes):
            sizes = [space.local[axis] for axis in target.axes]
            term = align(term, target.axes, leading=True).method("expand", *sizes, axes=target.axes)
        term = permute(term, target.axes)
        if any(len(dim) != 1 for dim in target.dims):
            term = replace(merge(term, groups), axes=target.axes)
        return term

    def reduce(self, kind: ReductionKind) -> Term:
        """Lowers max, min and prod. If the axis is divided, the reduction also runs over a group of devices."""
        space, equation, inner = self.space, self.equation, self.inner
        nest = loop_nest(space.instance, equation)
        if nest.looked_up or nest.placed:
            return placed_extremum(nest, space, inner)
        term = space.tensor(space.piece(equation.value))
        missing = [axis for axis in equation.over if axis not in term.axes]
        if missing and kind is ReductionKind.PROD:
            count = prod(space.local[axis] for axis in missing)
            term = space.function("torch.pow", [term, number(count)])
        over = [axis for axis in equation.over if axis in term.axes]
        if inner is not None:
            kept = tuple(axis for axis in term.axes if axis not in over)
            dims = tuple(term.axes.index(axis) for axis in over)
            return Term("reduce_over", (term, dims, inner.axes, kind.value, space.detached), kept)
        if over and equation.ties is Ties.FIRST:
            return _first(term, kind.value, over)
        return reduced(term, kind.value, over) if over else term


def _first(term: Term, kind: str, over: Sequence[str]) -> Term:
    """The extremum over axes, in their order. Its gradient goes to the first element that attains it."""
    kept = tuple(axis for axis in term.axes if axis not in over)
    term = permute(term, (*kept, *over))
    flat = term if len(over) == 1 else term.method("flatten", -len(over))
    return replace(flat.method(kind, -1).attribute("values"), axes=kept, sort=term.sort)
