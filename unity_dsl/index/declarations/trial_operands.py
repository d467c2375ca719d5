"""Shapes, attributes and numbers for testing a declaration, derived from its own constants.

Constants of the declaration, of the functions it uses and of its native calls mark where cases change. Operands take
values at each of them, just inside, just outside and far out, and also ties, 0 and numbers of all magnitudes. The
operands are the same on every run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import isfinite, prod, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from ...syntax.ast import (
    Apply,
    Expr,
    FunctionDecl,
    NativeArgument,
    NativeCall,
    NativeList,
    NativeSteps,
    Number,
    OperatorDecl,
    TensorDecl,
)
from ...syntax.diagnostic import InputError
from ...syntax.rational import plain_number
from ..equations.instance import Instance, Operand
from ..equations.term import walk
from ..equations.where_conditions import counts
from ..evaluation.native_calls import ARITHMETIC_CALLS
from ..instantiation.instantiate import Shape, instantiate

Array = npt.NDArray[Any]
Functions = Mapping[str, FunctionDecl]

SIZES = (1, 2, 3, 4, 5, 7)
LONG = (41, 97)
"""Sizes of one axis of every third instance: enough elements for most of the special numbers."""
NUMBERS = (1, 2, 3, 0, -1, -2, 0.5, -1.5)
"""Values of attributes, besides their defaults and the constants of the declaration."""
MAX_RANK = 3
MAX_POSITIONS = 8_000
"""Limit of positions in the index space of one equation."""
ATTEMPTS = 80
"""Draws per instance; most random sizes and attributes do not meet the conditions."""

ORDINARY = (0.0, 1.0, 2.0, 3.0, 0.5, 6.0, 10.0, 20.0, 40.0)
NEAR = (0.0, 1e-6, -1e-6, 1e-2, -1e-2)
"""Distances from a special number, relative to it unless it is 0."""
MODES = ("normal", "grid", "special", "rare", "tied", "unit", "wide", "positive")
ENDS = ("least", "greatest")
"""Modes of operands of one sign, and of integers at one end of their range, which makes counts as large as possible."""
SMALL = "small"
"""The mode in which all operands are small."""
SCALES = (1e-3, 1e-6, 1e-10, 1e-4, 1e-8, 1e-14)
"""Magnitudes of small operands, besides those at which small constants of the declaration matter."""


# ---------------------------------------------------------------------------------------------- numbers


def declared_numbers(declaration: OperatorDecl | FunctionDecl, functions: Functions) -> frozenset[float]:
    """The finite constants of a declaration, of its native calls and of the functions it uses.

    Constant terms are folded.
    """
    found: set[float] = set()
    seen: set[str] = set()
    pending: list[OperatorDecl | FunctionDecl] = [declaration]
    while pending:
        one = pending.pop()
        if isinstance(one, OperatorDecl):
            terms: list[Expr] = [statement.value for statement in (*one.statements, *one.evaluation)]
            found |= {plain_number(a.default) for a in one.attributes if a.default is not None}
        else:
            terms = [expr for _, expr in one.derivatives] + ([one.definition] if one.definition is not None else [])
        for native in (one.torch, one.numpy):
            found |= set(native_numbers(native)) if native is not None else set()
        for node in (node for term in terms for node in walk(term)):
            value = _constant(node)
            found |= {value} if value is not None else set()
            if isinstance(node, Apply) and node.function in functions and node.function not in seen:
                seen.add(node.function)
                pending.append(functions[node.function])
    return frozenset(float(number) for number in found if isfinite(number))


def native_numbers(native: NativeCall | NativeSteps) -> Iterator[int | float]:
    """The numbers in a native call."""
    pending: list[NativeArgument] = [call for _, call in native.steps] if isinstance(native, NativeSteps) else [native]
    while pending:
        match pending.pop():
            case Number(value):
                yield plain_number(value)
            case NativeList(items):
                pending += items
            case NativeCall(arguments=arguments, keywords=keywords):
                pending += [*arguments, *(argument for _, argument in keywords)]


def _constant(expr: Expr) -> float | None:
    """The value of a term of numbers alone; None for any other."""
    if isinstance(expr, Number):
        return float(expr.value)
    if not isinstance(expr, Apply) or expr.function not in ARITHMETIC_CALLS:
        return None
    parts = [_constant(argument) for argument in expr.arguments]
    if any(part is None for part in parts):
        return None
    with np.errstate(all="ignore"):
        return float(ARITHMETIC_CALLS[expr.function](*map(np.float64, parts)))


def marks(constants: Iterable[float]) -> list[float]:
    """The distinct magnitudes of these numbers except 0, ascending, at most 12."""
    return sorted({abs(number) for number in constants} - {0.0})[:12]


def special_numbers(constants: Iterable[float]) -> Array:
    """The given and ordinary numbers with both signs, neighbours, quotients and roots of them, and large ones."""
    given = marks(constants)
    centres = {*ORDINARY, *given}
    centres |= {1 / number for number in given} | {number / 2 for number in given} | {2 * number for number in given}
    centres |= {sqrt(number) for number in given} | {number * number for number in given}
    if len(given) <= 6:
        centres |= {a / b for a in given for b in given} | {a + b for a in given for b in given}
        centres |= {a - b for a in given for b in given}
    found = [0.0]
    for centre in sorted(number for number in centres if number < 1e30):
        found += [centre * (1 + step) if centre else step for step in NEAR]
    random = np.random.default_rng(0)
    found += list(10.0 ** random.uniform(-3, 3, 24)) + list(random.uniform(0, 50, 24))
    found += [1e3, 1e4, 1e6] + [10 * number for number in given if number < 1e30]
    return np.array([sign * number for number in found for sign in (1.0, -1.0)])


# ---------------------------------------------------------------------------------------------- instances


def trial_instances(operator: OperatorDecl, random: np.random.Generator, count: int) -> Iterator[Instance]:
    """Up to `count` instances at sizes and attributes that satisfy its conditions, zero to three axes per rest group.

    Sizes are 1, small and unequal, sometimes one long. Broadcasting operands have dimensions of size 1 or fewer
    dimensions. Attributes have their defaults or other numbers.
    """
    sizes = _size_choices(operator)
    numbers = {attribute.name: _number_choices(operator) for attribute in operator.attributes}
    counted = {name: axis for name, axis in counts(operator.conditions, numbers) if axis in sizes}
    made = 0
    for attempt in range(ATTEMPTS * count):
        drawn = {name: int(random.choice(choices)) for name, choices in sizes.items()}
        if attempt % 3 == 2 and drawn:
            drawn[str(random.choice(list(drawn)))] = int(random.choice(LONG))
        attributes = {}
        for declared in operator.attributes:
            default = declared.default is not None and random.random() < 0.5
            value = declared.default if default else _plain(random.choice(numbers[declared.name]))
            assert value is not None
            attributes[declared.name] = value
            if declared.name in counted and isinstance(value, int) and value > 0:
                drawn[counted[declared.name]] = value
        try:
            instance = instantiate(operator, _shapes(operator, drawn, random), attributes)
        except InputError:
            continue
        if positions(instance) > MAX_POSITIONS:
            continue
        yield instance
        made += 1
        if made == count:
            return


def positions(instance: Instance) -> int:
    """The number of positions of its largest index space or of its largest operand, whichever is larger."""
    spaces = [prod(instance.sizes[axis] for axis in equation.space) for equation in instance.equations]
    return max([prod(instance.shape(operand)) for operand in (*instance.inputs, *instance.outputs)] + spaces)


def _size_choices(operator: OperatorDecl) -> dict[str, tuple[int, ...]]:
    """The sizes to draw from, by dimension, including numbers in conditions."""
    names = [dim.name for tensor in operator.inputs for dim in tensor.dims if not dim.rest]
    names += [tensor.integer_range for tensor in operator.inputs if tensor.integer_range is not None]
    said = {
        abs(int(node.value)) * factor
        for condition in operator.conditions
        for node in walk(condition)
        if isinstance(node, Number) and isfinite(node.value)
        for factor in (1, 2)
    }
    return dict.fromkeys(names, (*SIZES, *sorted(number for number in said if 7 < number <= 256)))


def _number_choices(operator: OperatorDecl) -> tuple[int | float, ...]:
    said = {plain_number(node.value) for c in operator.conditions for node in walk(c) if isinstance(node, Number)}
    for native in (operator.torch, operator.numpy):
        said |= set(native_numbers(native)) if native is not None else set()
    said |= {plain_number(a.default) for a in operator.attributes if a.default is not None}
    return (*NUMBERS, *sorted(number for number in said - {*NUMBERS} if isfinite(number)))


def _plain(number: Any) -> int | float:
    """A drawn number as a Python number, int if it is integral."""
    return int(number) if float(number).is_integer() else float(number)


def _shapes(operator: OperatorDecl, sizes: Mapping[str, int], random: np.random.Generator) -> list[Shape]:
    rests = {dim.name: bool(dim.rest) for tensor in operator.inputs for dim in tensor.dims}
    rank = int(random.integers(0, MAX_RANK + 1))
    groups = {
        name: [int(random.choice(SIZES)) for _ in range(rank if random.random() < 0.7 else int(random.integers(0, 3)))]
        for name, rest in rests.items()
        if rest
    }
    for name, group in groups.items():
        if group and random.random() < 0.3:
            group[int(random.integers(len(group)))] = int(random.choice(LONG))
        groups[name] = group
    return [_shape(tensor, sizes, groups, random) for tensor in operator.inputs]


def _shape(
    tensor: TensorDecl, sizes: Mapping[str, int], groups: Mapping[str, list[int]], random: np.random.Generator
) -> Shape:
    dims: list[int] = []
    for axes in tensor.dimensions:
        if not axes[0].rest:
            dims.append(prod(sizes[dim.name] for dim in axes))
        elif axes[0].broadcast and random.random() < 0.5:
            group = groups[axes[0].name]
            dims += [1 if random.random() < 0.4 else size for size in group[int(random.integers(len(group) + 1)) :]]
        else:
            dims += groups[axes[0].name]
    return Shape(tuple(dims), None if tensor.integer_range is None else sizes[tensor.integer_range])


# ---------------------------------------------------------------------------------------------- values


def trial_values(
    instance: Instance, mode: str, constants: Iterable[float], random: np.random.Generator
) -> dict[str, Array]:
    """Values of the inputs, by name. Operands of equal shape share some values, so that ties occur between them."""
    numbers = [value for value in instance.attributes.values() if isfinite(value)]
    said = [*constants, *map(float, numbers)]
    few = np.array([sign * number for number in (0.0, *marks(said)) for sign in (1.0, -1.0)])
    special = special_numbers(said)
    # a third of the values are exactly special numbers
    special = np.concatenate((special, np.resize(few, len(special) // 2)))
    found: dict[str, Array] = {}
    for operand in instance.inputs:
        value = _draw(operand, instance.shape(operand), mode, special, random)
        for earlier in found.values():
            if mode in ("special", "tied", "grid") and earlier.shape == value.shape and earlier.dtype == value.dtype:
                value = np.where(random.random(value.shape) < 0.25, earlier, value)
                break
        if operand.integer_range is not None:
            value = np.minimum(value, operand.integer_range - 1)
        found[operand.name] = value
    return found


def _draw(operand: Operand, shape: tuple[int, ...], mode: str, special: Array, random: np.random.Generator) -> Array:
    if operand.integer_range is not None:
        return _draw_integers(operand.integer_range, shape, mode, special, random)
    normal = random.standard_normal(shape)
    match mode:
        case "grid":
            return random.integers(-8, 9, shape) / 4
        case "special":
            return random.choice(special, shape)
        case "rare":
            return np.where(random.random(shape) < 0.15, random.choice(special, shape), normal)
        case "tied":
            return random.choice(random.choice((-2.0, -1.0, 0.0, 0.0, 1.0, 3.0), 2), shape)
        case "unit":
            return random.uniform(0, 1, shape)
        case "wide":
            return 10 * normal
        case _ if mode in ENDS:
            return (-1.0 if mode == "least" else 1.0) * np.abs(random.choice(special[special != 0], shape))
        case "positive":
            return np.abs(random.choice(special, shape)) if random.random() < 0.5 else np.exp(normal)
    return normal


def _draw_integers(bound: int, shape: tuple[int, ...], mode: str, special: Array, random: np.random.Generator) -> Array:
    """Integers below a bound: any, one of its ends alone, or its ends and integers near the special numbers."""
    if mode in ENDS:
        return np.full(shape, 0 if mode == "least" else bound - 1)
    if mode == "tied" and random.random() < 0.5:
        return np.full(shape, bound - 1)
    if mode in ("special", "rare", "wide"):
        beside = [number + step for number in special if abs(number) < bound for step in (-1, 0, 1)]
        chosen = np.array([0, bound - 1, *(int(number) for number in beside if 0 <= number < bound)])
        return np.where(random.random(shape) < 0.5, random.choice(chosen, shape), random.integers(0, bound, shape))
    return random.integers(0, bound, shape)


def scales(constants: Iterable[float]) -> tuple[float, ...]:
    """Magnitudes of small operands: ordinary ones, small constants, and their roots, for squares of operands."""
    given = sorted({abs(number) for number in constants if 1e-60 < abs(number) < 1e-3})[:3]
    return (*SCALES, *given, *map(sqrt, given))


def small_values(instance: Instance, scale: float, random: np.random.Generator) -> dict[str, Array]:
    """Values of which all floats, or the floats of one input, have this magnitude. They are float32 numbers."""
    floats = [operand.name for operand in instance.inputs if operand.integer_range is None]
    one = floats[int(random.integers(len(floats)))] if floats and random.random() < 0.5 else None
    found: dict[str, Array] = {}
    for operand in instance.inputs:
        value = _draw(operand, instance.shape(operand), "normal", np.zeros(1), random)
        if operand.integer_range is None:
            size = scale if one is None or operand.name == one else 1.0
            value = (value * size).astype(np.float32).astype(np.float64)
        found[operand.name] = value
    return found


def cotangents(instance: Instance, free: Iterable[str], random: np.random.Generator) -> dict[str, Array]:
    """Integers for the results that carry a gradient, and 0 for results in `free`. Products are then exact."""
    return {
        output.name: np.zeros(instance.shape(output))
        if output.name in free
        else random.integers(-3, 4, instance.shape(output)).astype(np.float64)
        for output in instance.outputs
    }


def parameters_of(function: FunctionDecl, functions: Functions) -> dict[str, Array]:
    """Points of an element function. For several parameters they combine special numbers, some of them tied."""
    special = special_numbers(declared_numbers(function, functions))
    random = np.random.default_rng(0)
    if len(function.parameters) == 1:
        dense = random.uniform(-60, 60, 600)
        return {function.parameters[0]: np.concatenate((special, dense, random.standard_normal(400)))}
    count = 6 * len(special)
    drawn = {}
    shared = random.choice(special, count)
    for name in function.parameters:
        own = random.choice(special, count)
        tied = random.choice((-1.0, 1.0), count) * shared
        value = np.where(random.random(count) < 0.25, tied, own)
        drawn[name] = np.concatenate((value, np.exp(random.standard_normal(400)), random.standard_normal(400)))
    return drawn
