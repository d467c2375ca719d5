"""Operators at padded sizes: which reductions need masks, and which constants their results have in the tails.

An operator without a reduction along a padded axis keeps its equations. A sum along it is masked,
`select(i < n, x[i], 0)`, unless its term is 0 in the tail and has no gradient there. A product with two zero factors
satisfies both. Other reductions are masked with their neutral element, and `|i|` is replaced by the size in the model.
Unknown values in a tail are assumed to be finite.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf, prod

import numpy as np

from ..index.equations.instance import Equation, Instance, Operand
from ..index.equations.term import COMPARISONS, call, dim_axes, free_axes, rewrite, with_children
from ..index.evaluation.evaluate import applied, defined
from ..index.evaluation.native_calls import changed_in_place
from ..index.library import Library
from ..syntax.ast import Apply, Expr, Name, Number, Read, ReductionKind, Select, Size
from .padding_claims import PaddingClaim, front_size
from .shared_axes import Axis

MASKED = "_without_padding"
"""Suffix of the names of operators with masks."""
NEUTRAL = {ReductionKind.SUM: 0, ReductionKind.PROD: 1, ReductionKind.MAX: -inf, ReductionKind.MIN: inf}

Tails = Mapping[Axis, float]
"""The axes along whose tails a tensor is known to be constant, with the constant: 0 or minus infinity."""


class PaddedOperator:
    """An operator at padded sizes. `true` are the sizes of its padded axes in the model, `tails` the constants that its
    operands and the results of its equations have in the tails of its axes.
    """

    def __init__(
        self, instance: Instance, axes: Mapping[str, Axis], sizes: Mapping[Axis, int], library: Library
    ) -> None:
        self.instance, self.library, self.padding = instance, library, sizes
        self.leaves = {name: axis.leaves for name, axis in axes.items()}
        padded = {name for name, leaves in self.leaves.items() if not sizes.keys().isdisjoint(leaves)}
        self.true = {name: instance.sizes[name] for name in self.leaves if name in padded}
        self.sizes = {
            name: prod(sizes.get(leaf, leaf.size) for leaf in self.leaves[name]) if name in padded else size
            for name, size in instance.sizes.items()
        }
        self.tails: dict[tuple[str, str], float] = {}
        self.left_out: set[str] = set()

    def lowered(self, given: Sequence[Tails]) -> Iterator[tuple[int, str]]:
        """The operands, by position, each with its last axis, whose mask minus infinity in that tail makes needless."""
        self.rewritten(given)
        for name in [name for name in self.true if name in self.left_out]:
            for place, operand in enumerate(self.instance.inputs):
                if operand.integer_range is None and operand.dims[-1:] == ((name,),):
                    low = {**given[place], **dict.fromkeys(self.of(name), -inf)}
                    self.rewritten([low if number == place else one for number, one in enumerate(given)])
                    if name not in self.left_out:
                        yield place, name
                        break

    def padded(self, given: Sequence[Tails]) -> tuple[Instance, list[Tails], PaddingClaim | None]:
        """The operator for operands with the `given` tails, the tails of its results, and the claim to be proved about
        them. The claim is None without a padded axis and for extern operators.
        """
        symbolic = self.rewritten(given)
        equations, evaluation = (tuple(map(self.numbered, equations)) for equations in symbolic)
        made = replace(self.instance, sizes=self.sizes)
        if equations != self.instance.equations or evaluation != self.instance.evaluation:
            made = self.without_padding(replace(made, equations=equations, evaluation=evaluation))
        elif made.draws:
            made = replace(made, unpadded=self.instance)
        tails = [self.everywhere(output) for output in self.instance.outputs]
        return made, tails, self.claim(*symbolic) if self.true and not self.instance.extern else None

    def rewritten(self, given: Sequence[Tails]) -> tuple[tuple[Equation, ...], tuple[Equation, ...]]:
        """The equations in training and in evaluation, with symbols for sizes of the model. Sets `tails` and
        `left_out`.
        """
        operands = {
            (operand.name, name): number
            for operand, tails in zip(self.instance.inputs, given, strict=True)
            for name in operand.axes
            if name in self.true and (number := _one(tails.get(leaf) for leaf in self.of(name))) is not None
        }
        self.left_out, self.tails = set(), dict(operands)
        evaluation = tuple(map(self.equation, self.instance.evaluation))
        evaluated, self.tails = self.tails, dict(operands)
        equations = tuple(map(self.equation, self.instance.equations))
        if evaluation:
            self.tails = {place: one for place, one in self.tails.items() if evaluated.get(place) == one}
        return equations, evaluation

    def numbered(self, equation: Equation) -> Equation:
        """An equation with the sizes of the model in place of their symbols."""
        numbers = {front_size(name): size for name, size in self.true.items()}

        def number(part: Expr) -> Expr:
            return Number(numbers[part.name]) if isinstance(part, Size) and part.name in numbers else part

        value = rewrite(equation.value, number)
        return equation if value == equation.value else replace(equation, value=value)

    def claim(self, equations: tuple[Equation, ...], evaluation: tuple[Equation, ...]) -> PaddingClaim:
        """The claim to be proved about the operator with these equations and `tails`."""
        sizes = self.sizes | {front_size(name): size for name, size in self.true.items()}
        made = replace(self.instance, sizes=sizes, equations=equations, evaluation=evaluation)
        operands = {operand.name for operand in (*self.instance.inputs, *self.instance.outputs)}
        tails = {(name, axis, number) for (name, axis), number in self.tails.items() if name in operands}
        return PaddingClaim(self.instance, made, tuple(self.true), frozenset(tails))

    def without_padding(self, made: Instance) -> Instance:
        """The masked operator under its own name. It keeps its native call if that can run without the padding."""
        attributes = {**made.attributes, **{f"true_{name}": size for name, size in self.true.items()}}
        left_out = {name: self.true[name] for name in self.left_out}
        results = {axis for output in made.outputs for axis in output.axes}
        operator = replace(made.operator, name=f"{made.name}{MASKED}", numpy=None)
        native = made.native and not made.evaluation and not changed_in_place(operator.torch)
        if not native or not results.isdisjoint(left_out):
            unpadded = self.instance if made.draws else None
            return replace(made, operator=replace(operator, torch=None), attributes=attributes, unpadded=unpadded)
        unpadded = replace(self.instance, sizes=self.sizes | left_out)
        return replace(made, operator=operator, attributes=attributes, unpadded=unpadded)

    def of(self, name: str) -> frozenset[Axis]:
        """The padded axes that an axis of the operator consists of."""
        return frozenset(self.padding.keys() & set(self.leaves[name]))

    def everywhere(self, output: Operand) -> Tails:
        """The tails of a result that agree in all of its dimensions that have the axis."""
        own = [name for name in output.axes if name in self.true]
        leaves = {leaf for name in own for leaf in self.of(name)}
        numbers = {
            leaf: _one(self.tails.get((output.name, name)) for name in own if leaf in self.of(name)) for leaf in leaves
        }
        return {leaf: number for leaf, number in numbers.items() if number is not None}

    # ------------------------------------------------------------------------------------------ equations

    def equation(self, equation: Equation) -> Equation:
        value = self.sized(equation.value)
        summed = equation.kind in (None, ReductionKind.SUM)
        for axis in equation.target.axes if summed else ():
            if axis in self.true and (number := self.tail(equation.value, axis)) is not None:
                self.tails[equation.target.name, axis] = number
        for axis in equation.over:
            if axis in self.true and not self.counts_nothing(equation, axis):
                assert equation.kind is not None
                self.left_out.add(axis)
                value = self.masked(value, axis, equation.kind)
        return equation if value == equation.value else replace(equation, value=value)

    def sized(self, value: Expr) -> Expr:
        """The value with the sizes of the model, except where a size is a stride of a merged dimension."""
        match value:
            case Size(name=name) if name in self.true:
                self.left_out.add(name)
                return Size(front_size(name))
            case Apply() | Select():
                return with_children(value, tuple(map(self.sized, _parts(value))))
        return value

    def masked(self, value: Expr, axis: str, kind: ReductionKind) -> Expr:
        """The value with the neutral element in the tail of a reduced axis. In a sum only one factor is masked."""
        inside = call("<", Name(axis), Size(front_size(axis)))
        if kind is ReductionKind.SUM:
            match value:
                case Apply("/", (above, below)) if axis not in free_axes(below):
                    return call("/", self.masked(above, axis, kind), below)
            factors = list(_factors(value))
            for number, factor in enumerate(factors):
                if isinstance(factor, Read) and axis in free_axes(factor) and len(factors) > 1:
                    factors[number] = Select(inside, factor, Number(0))
                    return _product(factors)
        return Select(inside, value, Number(NEUTRAL[kind]))

    def counts_nothing(self, equation: Equation, axis: str) -> bool:
        """Whether the tail of an axis contributes nothing to a reduction and gets no gradient from it."""
        number = self.tail(equation.value, axis)
        if equation.kind is ReductionKind.SUM:
            return number == 0 and self.flat(equation.value, axis)
        extremum = equation.kind in (ReductionKind.MAX, ReductionKind.MIN)
        return extremum and equation.kind is not None and number == NEUTRAL[equation.kind]

    def tail(self, value: Expr, axis: str) -> float | None:
        """The constant that a term is in the tail of an axis; None if that is not known."""
        match value:
            case Number():
                return float(value.value)
            case Read(tensor=tensor, fill=fill):
                if fill is not None and fill != Number(0):
                    return None
                return _one({self.tails.get((tensor, own)) for own in self.places(value, axis)} or [None])
            case Apply("*", arguments):
                numbers = [self.tail(one, axis) for one in arguments]
                if any(_is_guard(one) and number == 0 for one, number in zip(arguments, numbers, strict=True)):
                    return 0.0  # a guard selects: nothing is multiplied
                return 0.0 if 0 in numbers and not {inf, -inf} & set(numbers) else None
            case Apply("+" | "-" as function, (first, second)):
                numbers = [self.tail(first, axis), self.tail(second, axis)]
                if numbers[0] == -inf and numbers[1] in (None, 0):
                    return -inf  # an unknown value is assumed to be finite, as it is before the tail
                if function == "+" and numbers[1] == -inf and numbers[0] in (None, 0):
                    return -inf
                return 0.0 if numbers == [0, 0] else None
            case Apply("neg", (one,)):
                return 0.0 if self.tail(one, axis) == 0 else None
            case Apply("/", (above, below)):
                return 0.0 if axis not in free_axes(below) and self.tail(above, axis) == 0 else None
            case Apply("==", (Name(name=name), Read(tensor=tensor))) if name == axis:
                values = self.instance.operand(tensor).integer_range
                return 0.0 if values is not None and values <= self.true[axis] else None
            case Apply(function, arguments) if function in self.library.functions:
                return self.applied(function, [self.tail(one, axis) for one in arguments])
            case Select(_, then, otherwise):
                return _one([self.tail(then, axis), self.tail(otherwise, axis)])
        return None

    def flat(self, value: Expr, axis: str) -> bool:
        """Whether a term that is 0 in the tail of an axis has no gradient there."""
        match value:
            case Number() | Size() | Name():
                return True
            case Apply("*", arguments):
                zeros = [one for one in arguments if self.tail(one, axis) == 0]
                return len(zeros) > 1 or any(self.flat(one, axis) for one in zeros)
            case Apply("+" | "-" | "neg", arguments):
                return all(self.flat(one, axis) for one in arguments)
            case Apply("/", (above, _)):
                return self.tail(above, axis) == 0 and self.flat(above, axis)
            case Apply(function, _) if function in COMPARISONS:
                return True
            case Apply(function, arguments) if function in self.library.functions:
                return self.has_no_slope(function, [self.tail(one, axis) for one in arguments])
        return False

    def places(self, read: Read, axis: str) -> list[str]:
        """The axes of the operand that a read indexes by exactly this axis."""
        dims = self.instance.operand(read.tensor).dims
        return [
            own
            for part, dim in zip(read.index, dims, strict=True)
            for index, own in zip(dim_axes(part, self.instance.sizes) or (), dim, strict=False)
            if index == axis
        ]

    def applied(self, function: str, arguments: Sequence[float | None]) -> float | None:
        """An element function at constants; None if one is unknown or the result is neither 0 nor minus infinity."""
        if None in arguments:
            return None
        with np.errstate(all="ignore"):
            found = float(applied(function, [np.float64(one) for one in arguments], self.library.functions))
        return found if found in (0.0, -inf) else None

    def has_no_slope(self, function: str, arguments: Sequence[float | None]) -> bool:
        """Whether all derivatives of an element function are 0 at these constants; False if one is unknown."""
        if None in arguments:
            return False
        declared = self.library.functions[function]
        bound = dict(zip(declared.parameters, map(np.float64, arguments), strict=True))
        with np.errstate(all="ignore"):
            return all(defined(slope, bound, self.library.functions) == 0 for _, slope in declared.derivatives)


def _one(numbers: Iterable[float | None]) -> float | None:
    """The common value of all; None if they differ or one is unknown."""
    found = set(numbers)
    return found.pop() if len(found) == 1 else None


def _is_guard(value: Expr) -> bool:
    return isinstance(value, Apply) and value.function in COMPARISONS


def _parts(value: Apply | Select) -> tuple[Expr, ...]:
    return value.arguments if isinstance(value, Apply) else (value.condition, value.then, value.otherwise)


def _factors(value: Expr) -> Iterator[Expr]:
    match value:
        case Apply("*", arguments):
            for argument in arguments:
                yield from _factors(argument)
        case _:
            yield value


def _product(factors: Sequence[Expr]) -> Expr:
    product = factors[0]
    for factor in factors[1:]:
        product = call("*", product, factor)
    return product
