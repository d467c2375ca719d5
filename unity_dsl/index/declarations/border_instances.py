"""Instances at the borders between the cases of a declaration, and at and next to the constants that it names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isfinite, prod

import numpy as np

from ...syntax.ast import FunctionDecl, Number, OperatorDecl
from ...syntax.diagnostic import InputError
from ...syntax.rational import Rational, plain_number
from ..equations.instance import Instance
from ..equations.term import walk
from ..instantiation.representative import instance_at
from ..instantiation.view_call import takes_pattern
from .case_borders import Border, borders, equal_names
from .trial_operands import NUMBERS, SIZES, declared_numbers, positions

Functions = Mapping[str, FunctionDecl]

LEAST, MOST = 8, 4_096
"""Constants of a declaration in this range are tried as sizes.

Smaller ones are sizes of other trials; larger ones are tried where a case begins or ends.
"""
NAMED = 64
"""Limit of constants that are tried as sizes and attributes, besides those at which cases change."""
LONGEST = 2**17
"""The largest size at which the range of integer results is tried."""
PAIRS = 48
"""Limit of the number of instances at two borders at once."""
ATTEMPTS = 60
ROOM = 8_000
"""Positions that an instance may have in addition to four for each position of the size that is tried."""
MAX_POSITIONS = 2_000_000
"""Limit of positions in the index space of one equation: a larger instance takes seconds and gigabytes."""


@dataclass(frozen=True)
class Untried:
    """A border at which cases change, but no instance is small enough to be run."""

    border: Border
    positions: int


@dataclass(frozen=True)
class BorderInstance:
    """An instance at a border. `counts` says that the number there may be compared with a count of elements."""

    instance: Instance
    counts: bool = False


def border_instances(
    operator: OperatorDecl, functions: Functions, random: np.random.Generator
) -> Iterator[BorderInstance | Untried]:
    """Two instances at each border, some at two borders at once, and two at each constant.

    Their other sizes and attributes are as small as possible.
    """
    base = _base(operator, random)
    if base is None:
        return
    constants = {*declared_numbers(operator, functions), *_condition_numbers(operator)}

    def build(sizes: Mapping[str, int], attributes: Mapping[str, Rational]) -> Instance:
        return instance_at(operator, sizes, attributes, rank=1)

    found = borders(operator, build, base, constants, functions)
    certain = [border for border in found if border.name in base[1] or border.value not in SIZES]
    named = [border for border in _named(operator, base, constants) if border not in certain][:NAMED]
    draw = _Draw(operator, base, equal_names(operator), random)
    for border in (*certain, *named):
        for usual in (True, False):
            made = draw.at(border, usual=usual)
            if made is not None and positions(made) <= MAX_POSITIONS:
                yield BorderInstance(made, counts=border in named and border.name in base[0])
            elif made is not None and border in certain:
                yield Untried(border, positions(made))
    for first, second in _pairs(certain, random):
        made = draw.at(first, second, usual=True)
        if made is not None and positions(made) <= MAX_POSITIONS // 10:
            yield BorderInstance(made)


def _pairs(found: Sequence[Border], random: np.random.Generator) -> Iterator[tuple[Border, Border]]:
    """Pairs of borders of different names, at most `PAIRS` pairs."""
    every = [pair for pair in combinations(found, 2) if pair[0].name != pair[1].name]
    chosen = random.permutation(len(every))[:PAIRS]
    return (every[place] for place in sorted(chosen.tolist()))


def long_instances(operator: OperatorDecl, random: np.random.Generator) -> Iterator[Instance]:
    """Instances with one size or range of integers up to `LONGEST`, or with all of them equally long."""
    base = _base(operator, random)
    if base is None:
        return
    draw = _Draw(operator, base, equal_names(operator), random)
    powers = [2**power + step for power in range(3, LONGEST.bit_length()) for step in (-1, 0, 1)]
    lengths = [*powers, *(10**power for power in range(2, 6))]
    for name in base[0]:
        for length in lengths:
            made = draw.at(Border(name, length), usual=True)
            if made is not None and positions(made) <= ROOM + 4 * length:
                yield made
    for length in lengths:
        try:
            made = instance_at(operator, dict.fromkeys(base[0], length), base[1], rank=1)
        except (InputError, ArithmeticError):
            continue
        if positions(made) <= MAX_POSITIONS // 10:
            yield made


@dataclass(frozen=True)
class _Draw:
    """Draws an operator's other sizes and attributes, starting with `base`."""

    operator: OperatorDecl
    base: tuple[Mapping[str, int], Mapping[str, Rational]]
    equal: Mapping[str, frozenset[str]]
    random: np.random.Generator

    def at(self, *chosen: Border, usual: bool) -> Instance | None:
        """The first instance that is small relative to the borders, else the smallest one that is found.

        Attributes are those of `base` if `usual`, else others as well.
        """
        least: Instance | None = None
        room = ROOM + 4 * prod(abs(int(border.value)) or 1 for border in chosen if border.name in self.base[0])
        for attempt in range(ATTEMPTS):
            rank = 1 if usual else int(self.random.integers(0, 3))
            try:
                found = instance_at(self.operator, *self.numbers(chosen, attempt, usual=usual), rank)
            except (InputError, ArithmeticError):
                continue
            if positions(found) <= room:
                return found
            least = found if least is None or positions(found) < positions(least) else least
        return least

    def numbers(
        self, chosen: Sequence[Border], attempt: int, *, usual: bool
    ) -> tuple[dict[str, int], dict[str, Rational]]:
        """Sizes and attributes. Those of the borders, and the names equal to them, have the borders' values."""
        sizes, attributes = dict(self.base[0]), dict(self.base[1])
        if attempt:
            is_long = any(border.name in sizes for border in chosen)
            choices = SIZES[: 1 + attempt % 2] if is_long else SIZES[: max(2, len(SIZES) - attempt)]
            sizes = {name: int(self.random.choice(choices)) for name in sizes}
        if not usual and attempt % 2:
            attributes |= {name: plain_number(self.random.choice(NUMBERS).item()) for name in attributes}
        for border in chosen:
            for name in self.equal.get(border.name, frozenset({border.name})):
                if name in sizes and isinstance(border.value, int) and border.value > 0:
                    sizes[name] = border.value
                if name in attributes:
                    attributes[name] = border.value
        return sizes, attributes


def _base(operator: OperatorDecl, random: np.random.Generator) -> tuple[dict[str, int], dict[str, Rational]] | None:
    """Small sizes, and attributes at their defaults if there are any, at which the operator has an instance."""
    groups = takes_pattern(operator)
    if groups is not None and groups[1] is not None:
        return None
    names = [dim.name for tensor in operator.inputs for dim in tensor.dims]
    names += [tensor.integer_range for tensor in operator.inputs if tensor.integer_range is not None]
    said = sorted(int(number) for number in _condition_numbers(operator) if number in range(1, MOST))
    equal = equal_names(operator)
    numbers = (*NUMBERS, *(number + step for number in said for step in (0, 1, -1)))
    for attempt in range(40 * ATTEMPTS):
        sizes = {name: int(random.choice((*SIZES[:4], *said))) for name in names}
        attributes: dict[str, Rational] = {}
        for one in operator.attributes:
            drawn = plain_number(random.choice(numbers).item())
            attributes[one.name] = drawn if one.default is None or attempt % 4 == 3 else plain_number(one.default)
            for name in equal.get(one.name, ()):
                value = attributes[one.name]
                if name in sizes and isinstance(value, int) and value > 0:
                    sizes[name] = value
        try:
            instance_at(operator, sizes, attributes, rank=1)
        except (InputError, ArithmeticError):
            continue
        return sizes, attributes
    return None


def _named(
    operator: OperatorDecl, base: tuple[Mapping[str, int], Mapping[str, Rational]], constants: Iterable[float]
) -> Iterator[Border]:
    """The constants and their neighbours, as attributes and as sizes."""
    finite = sorted({number for number in constants if isfinite(number)}, key=abs)
    beside = [plain(number + step) for number in finite for step in (0.0, 1.0, -1.0)]
    beside += [plain((low + high) / 2) for low, high in zip(sorted(finite), sorted(finite)[1:], strict=False)]
    ranges = {tensor.integer_range for tensor in operator.inputs}
    values = [value for value in dict.fromkeys(beside) if value not in NUMBERS]
    for value in values:
        yield from (Border(name, value) for name in base[1])
        if isinstance(value, int) and LEAST <= abs(value) <= MOST:
            # The greatest integer of a range is one below it.
            yield from (Border(name, abs(value) + (name in ranges)) for name in base[0])


def plain(number: float) -> int | float:
    """A number as an int if it is one."""
    return int(number) if number == int(number) else number


def _condition_numbers(operator: OperatorDecl) -> set[float]:
    nodes = (node for condition in operator.conditions for node in walk(condition))
    return {float(node.value) for node in nodes if isinstance(node, Number) and isfinite(node.value)}
