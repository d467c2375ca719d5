"""Representative instances of a declaration: small or symbolic sizes that stand for all calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, product
from math import prod

import numpy as np

from ...syntax.ast import Apply, Expr, Name, Number, OperatorDecl, Statement, TensorDecl
from ...syntax.diagnostic import InputError
from ...syntax.rational import Rational
from ..equations.instance import Instance
from ..equations.term import call, rewrite, walk
from ..equations.where_conditions import Unsolvable, Value, counts, value_of
from .call_frame import integer_attributes
from .instantiate import Binding, Shape, instantiate
from .view_call import takes_pattern

_SIZES = (101, 97, 89, 83, 79, 73, 71, 67, 61, 59, 53, 47)
"""Distinct sizes, so that axes can be told apart; descending, so that later axes fit into earlier ones."""

_NUMBERS = (3, 7, 19, 31)
_DIMENSIONS = (1, 2, 3, 0)
_RELATED = (24, 12, 6, 4, 2)
_EVEN = (2, 4)
"""Further attribute values, tried if conditions determine sizes."""
_TRIALS = 4000
_SMALL = (1, 2, 3, 4, 6)
_SMALL_TRIALS = 50


@dataclass(frozen=True)
class Representative:
    """An instance, with the declaration's names for its axes and numbers: `b..` for `b0`, `stop` for 7."""

    instance: Instance
    names: Mapping[str, str]
    numbers: Mapping[Rational, str]


def representative(operator: OperatorDecl, rank: int = 1, given: Mapping[str, int] | None = None) -> Representative:
    """The operator at sizes that satisfy its conditions, with `rank` axes per rest group, its attributes as `given`.

    Raises the InputError of the first trial if no trial succeeds.
    """
    error: InputError | None = None
    trials = (islice(_trials(operator, given or {}, *more), _TRIALS) for more in ((), (_EVEN,)))
    for sizes, attributes in chain.from_iterable(trials):
        try:
            instance = instance_at(operator, sizes, attributes, rank)
        except InputError as reason:
            error = error or reason
            continue
        return Representative(instance, _names(operator), _numbers(operator, instance))
    assert error is not None
    raise error


def symbolic_representative(operator: OperatorDecl, given: Mapping[str, int] | None = None) -> Representative:
    """`representative` with a constant symbol, a function of no arguments, for each attribute that may be any real.

    Nothing depends on the value of such an attribute, not even whether it is 0 or 1. An attribute that places or counts
    elements still has a number. Raises as `representative`.
    """
    whole = integer_attributes(operator)
    real = {attribute.name for attribute in operator.attributes} - whole

    def symbol(node: Expr) -> Expr:
        return call(node.name) if isinstance(node, Name) and not node.rest and node.name in real else node

    def statement(made: Statement) -> Statement:
        return replace(made, value=rewrite(made.value, symbol))

    statements, evaluation = map(statement, operator.statements), map(statement, operator.evaluation)
    found = representative(replace(operator, statements=tuple(statements), evaluation=tuple(evaluation)), given=given)
    return replace(found, numbers={value: name for value, name in found.numbers.items() if name in whole})


def small_instances(operator: OperatorDecl, random: np.random.Generator, count: int) -> Iterator[Instance]:
    """Up to `count` small instances that satisfy the operator's conditions, with zero to two axes per rest group."""
    names = _dimensions(operator)
    missing = [attribute.name for attribute in operator.attributes if attribute.default is None]
    for _ in range(_SMALL_TRIALS * count):
        sizes = {name: int(random.choice(_SMALL)) for name in names}
        attributes = {
            name: int(random.integers(0, 3)) if counts_dimensions(operator, name) else int(random.choice(_SMALL))
            for name in missing
        }
        try:
            made = instance_at(operator, sizes, attributes, int(random.integers(0, 3)))
        except InputError:
            continue
        yield made
        count -= 1
        if not count:
            return


def _dimensions(operator: OperatorDecl) -> list[str]:
    """The names that the shapes of inputs bind: dimensions and bounds of integers."""
    names = [dim.name for tensor in operator.inputs for dim in tensor.dims]
    names += [tensor.integer_range for tensor in operator.inputs if tensor.integer_range is not None]
    return list(dict.fromkeys(names))


def _trials(
    operator: OperatorDecl, fixed: Mapping[str, int], more: Sequence[int] = ()
) -> Iterator[tuple[Mapping[str, int], Mapping[str, int]]]:
    """Sizes and attributes to try. With `more` attribute values, sizes are the ones that conditions determine."""
    axes = {dim.name for tensor in operator.inputs for dim in tensor.dims}
    every = {attribute.name for attribute in operator.attributes}
    counted = {name: axis for name, axis in counts(operator.conditions, every) if axis in axes}
    missing = [a.name for a in operator.attributes if a.default is None or a.name in counted]
    names = [name for name in _dimensions(operator) if name not in counted.values()]
    ranks = {name for name in missing if counts_dimensions(operator, name)}
    numbers = [(_NUMBERS[place % len(_NUMBERS)], 1, *more) for place in range(len(missing))]
    choices = [_DIMENSIONS if name in ranks else found for name, found in zip(missing, numbers, strict=True)]
    every_given = [{**dict(zip(missing, values, strict=True)), **fixed} for values in product(*choices)]
    given = [attributes for attributes in every_given if _may_hold(operator, attributes)]
    different = dict(zip(names, (_SIZES * (len(names) // len(_SIZES) + 1)), strict=False))
    related = (dict(zip(names, sizes, strict=True)) for sizes in product(_RELATED, repeat=len(names)))
    for sizes in chain([different], related if given else ()):
        for attributes in given or every_given[:1]:
            found = sizes | {size: attributes[name] for name, size in counted.items()}
            yield (_determined(operator, found, attributes) if more else found), attributes


def _determined(operator: OperatorDecl, sizes: Mapping[str, int], attributes: Mapping[str, int]) -> dict[str, int]:
    """The sizes, except that a size which a condition equates with known values has that value: 32 by `u == 32`."""
    known: dict[str, Value] = {one.name: one.default for one in operator.attributes if one.default is not None}
    known |= attributes
    equations = [c for c in operator.conditions if isinstance(c, Apply) and c.function == "=="]
    sides = [pair for left, right in (c.arguments for c in equations) for pair in ((left, right), (right, left))]
    alone = {name.name: other for name, other in sides if isinstance(name, Name)}
    for name in sorted(sizes, key=lambda name: name in alone):
        for _ in sides:
            found = {one: _value(other, known) for one, other in alone.items() if one not in known}
            known |= {one: value for one, value in found.items() if value is not None}
        known.setdefault(name, sizes[name])
    return {name: value if isinstance(value := known[name], int) and value > 0 else sizes[name] for name in sizes}


def _value(expr: Expr, known: Mapping[str, Value]) -> Value | None:
    """The value of an expression; None if it is unknown or does not exist."""
    try:
        return value_of(expr, known)
    except Unsolvable:
        return None


def _may_hold(operator: OperatorDecl, attributes: Mapping[str, int]) -> bool:
    """Whether the conditions can hold at some sizes, as far as the attributes decide."""
    known = {one.name: one.default for one in operator.attributes if one.default is not None} | dict(attributes)
    try:
        return all(value_of(condition, known) is not False for condition in operator.conditions)
    except Unsolvable:
        return False


def counts_dimensions(operator: OperatorDecl, attribute: str) -> bool:
    """Whether a condition such as `rank(f) == dim` determines the attribute."""
    for condition in operator.conditions:
        nodes = list(walk(condition))
        if Name(attribute) in nodes and any(isinstance(n, Apply) and n.function == "rank" for n in nodes):
            return True
    return False


def instance_at(
    operator: OperatorDecl, sizes: Mapping[str, int], attributes: Mapping[str, Rational], rank: int
) -> Instance:
    """The operator at these sizes of its declared dimensions, with `rank` axes per rest group."""
    groups = takes_pattern(operator)
    if groups is not None and groups[1] is not None:
        # The pattern of the call selects the axes of the result.
        source = tuple(((f"{name}0", sizes[name]),) for name in groups if name is not None)
        shape = Shape(tuple(size for ((_, size),) in source))
        return instantiate(operator, [shape], attributes, binding=Binding(source, source[:1]))
    shapes = [Shape(_dims(tensor, sizes, rank), _range(tensor, sizes)) for tensor in operator.inputs]
    return instantiate(operator, shapes, attributes)


def _dims(tensor: TensorDecl, sizes: Mapping[str, int], rank: int) -> tuple[int, ...]:
    """The shape, with a size one smaller for each further axis of a rest group."""
    dims: list[int] = []
    for axes in tensor.dimensions:
        count = rank if axes[0].rest else 1
        dims += [max(1, prod(sizes[dim.name] for dim in axes) - number) for number in range(count)]
    return tuple(dims)


def _range(tensor: TensorDecl, sizes: Mapping[str, int]) -> int | None:
    return None if tensor.integer_range is None else sizes[tensor.integer_range]


def _names(operator: OperatorDecl) -> dict[str, str]:
    tensors: Sequence[TensorDecl] = (*operator.inputs, *operator.outputs)
    return {f"{dim.name}0": f"{dim.name}.." for tensor in tensors for dim in tensor.dims if dim.rest}


def _numbers(operator: OperatorDecl, instance: Instance) -> dict[Rational, str]:
    """The attributes by value, without -1, 0, 1, 2 and numbers that the declaration's text contains."""
    written = {n.value for s in operator.statements for n in walk(s.value) if isinstance(n, Number)}
    names: dict[Rational, str] = {}
    for name, value in instance.attributes.items():
        if value not in written and value not in (-1, 0, 1, 2) and value not in names:
            names[value] = name
    return names
