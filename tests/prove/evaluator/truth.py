"""Tests whether a rule is true at sampled sizes and inputs, small and large, with exact numbers or intervals.

A rule is true, by the contract of docs/proofs.md, if the right side equals the left side wherever the left has a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from functools import partial
from itertools import product
from math import isfinite, prod
from random import Random

from unity_dsl.syntax.ast import Apply, Expr, Number, Read, Reduce, Select
from unity_dsl.syntax.parse_rules import GraphCall, RuleDecl, RuleInput

from .inputs import Floats, Integers, turn
from .operator import Declarations, Untried
from .reals import drawn_number, left_has_meaning, real_names
from .rule import Elements, Instance, Place, Tensor, aligned
from .shapes import NoMeaning
from .sizes import Sizes, completed, drawn, expressions
from .values import UNKNOWN, Exact, Value, agree, certainly_differ, literal, number_text

FAR = (33, 64, 65, 97, 130)
"""Large sizes that are tried, one or two at a time, in addition to those near numbers in the declarations."""
POSITIONS = 5
"""Elements of a result that are compared at an instance; all elements of a result that has no more."""
MISSES = 3
"""Attempts that may find no sizes that meet the conditions; after so many the search stops."""


class Truth(StrEnum):
    """The outcome of the trials. `differs` and `ill-shaped` are certain; `equal` holds only for what was tried."""

    EQUAL = "equal"
    DIFFERS = "differs"
    ILL_SHAPED = "ill-shaped"
    UNTRIED = "untried"
    """No sizes were found that meet the conditions, or no element of the left side could be compared."""


@dataclass(frozen=True)
class Found:
    """A difference of the sides. If `inputs` is `shapes`, the shapes differ and the values are element counts."""

    sizes: Mapping[str, int]
    output: int
    position: Place
    left: Value
    right: Value
    inputs: str = ""

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} = {size}" for name, size in self.sizes.items())
        values = f"{number_text(self.left)} on the left, {number_text(self.right)} on the right"
        return f"output {self.output}{list(self.position)}: {values}, at {sizes}; {self.inputs}"


@dataclass(frozen=True)
class Judged:
    """The outcome, its evidence, and how many elements agreed at how many instances."""

    truth: Truth
    detail: str = ""
    compared: int = 0
    instances: int = 0
    found: Found | None = None


@dataclass(frozen=True)
class Mentioned:
    """Numbers in a rule and its declarations. `whole` adds sums of two integers of at least 2 and omits 0 and 1."""

    whole: tuple[int, ...]
    all: tuple[Exact, ...] = field(default=())


def judge(rule: RuleDecl, library: Declarations, instances: int = 14, seed: int = 0) -> Judged:
    """Tests the rule at up to `instances` random instances and stops at the first that decides."""
    numbers = mentioned(rule, library)
    far = tuple(sorted({*FAR, *(c + step for c in numbers.whole if 5 <= c <= 3000 for step in (-1, 0, 1, 2, 7))}))
    reals = {name: partial(drawn_number, special=numbers.all) for name in sorted(real_names(rule, library))}
    accepts = partial(left_has_meaning, rule, library)
    compared, tried, without, untried = 0, 0, 0, ""
    for attempt in range(seed, seed + instances):
        sizes = drawn(rule, attempt, far, wanted=attempt % 2 == 1, reals=reals, accepts=accepts)
        if sizes is None:
            without += 1
            if without == MISSES:
                break
            continue
        try:
            found, agreed = _at(rule, library, sizes, attempt, numbers)
        except Untried as reason:
            untried = str(reason)
            continue
        except NoMeaning as reason:
            return Judged(Truth.ILL_SHAPED, f"{reason} at {dict(sizes.numbers)}", compared, tried)
        if found is not None:
            return Judged(Truth.DIFFERS, str(found), compared, tried, found)
        compared, tried = compared + agreed, tried + (agreed > 0)
    if compared:
        return Judged(Truth.EQUAL, "", compared, tried)
    return Judged(Truth.UNTRIED, untried or "no sizes meet the conditions")


def _at(rule: RuleDecl, library: Declarations, sizes: Sizes, seed: int, numbers: Mentioned) -> tuple[Found | None, int]:
    def source(given: RuleInput, bound: int | None) -> Elements:
        if bound is not None:
            return Integers(given.name, seed, bound)
        return Floats(given.name, seed, turn(given.name, seed), numbers.all)

    instance = Instance(rule, library, sizes, source, evaluation=seed % 3 == 2, seed=seed)
    found, compared = difference(instance, seed, numbers.whole)
    return found, compared


def difference(instance: Instance, seed: int, whole: Sequence[int]) -> tuple[Found | None, int]:
    """The first difference of the sides, and how many elements agreed. Raises NoMeaning and Untried."""
    sizes = instance.sizes.numbers
    compared = 0
    for output, (left, right) in enumerate(zip(instance.left, instance.right, strict=True)):
        if set(left.names) != set(right.names):
            raise NoMeaning("other device axes")
        if left.shape != right.shape:
            return Found(sizes, output, (), prod(left.shape), prod(right.shape), "shapes"), 0
        if (left.integer_range is None) != (right.integer_range is None):
            raise NoMeaning("integers on one side only")
        for place in positions(left, seed, whole):
            try:
                first = left.at(place)
                second = right.at(aligned(place, left, right))
            except Untried:
                if compared:
                    return None, compared
                raise
            if certainly_differ(first, second):
                return Found(sizes, output, place, first, second, f"seed {seed}"), compared
            compared += agree(first, second)
    return None, compared


def positions(tensor: Tensor, seed: int, whole: Sequence[int]) -> Iterator[Place]:
    """All places of a small result; for a larger one, a sample of corners, places near `whole` numbers, random ones."""
    extents = tensor.extents
    if prod(extents) <= POSITIONS:
        yield from product(*map(range, extents))
        return
    random = Random(seed)
    for number in range(POSITIONS):
        yield tuple(_position(extent, number, random, whole) for extent in extents)


def _position(extent: int, turn: int, random: Random, whole: Sequence[int]) -> int:
    if turn < 2 and random.random() < 0.8:
        return (extent - 1, 0)[turn]
    near = [number + step for number in whole for step in (-1, 0, 1) if 0 <= number + step < extent]
    if near and random.random() < 0.5:
        return random.choice(near)
    return random.randrange(extent)


# ---------------------------------------------------------------------------------------------- counterexamples


def confirms(
    rule: RuleDecl,
    library: Declarations,
    sizes: Mapping[str, Exact],
    inputs: Mapping[str, Mapping[Place, float]],
    *,
    evaluation: bool,
    output: int,
    position: Place,
    shapes: bool = False,
) -> bool | None:
    """Whether the sides certainly differ at these sizes, inputs and position; None if a value is UNKNOWN.

    With `shapes` it answers whether their shapes differ.

    Raises NoMeaning and Untried.
    """

    def source(given: RuleInput, bound: int | None) -> Elements:
        known = inputs[given.name]
        return lambda place: _exactly(known[place])

    reals = real_names(rule, library)
    extents = {name: tuple(part + 1 for part in max(values, default=())) for name, values in inputs.items()}
    at = completed(rule, sizes, extents, reals)
    instance = Instance(rule, library, at, source, evaluation=evaluation, budget=2_000_000)
    left, right = instance.left[output], instance.right[output]
    if shapes or left.shape != right.shape:
        return left.shape != right.shape
    first, second = left.at(position), right.at(aligned(position, left, right))
    return None if first is UNKNOWN or second is UNKNOWN else certainly_differ(first, second)


def _exactly(value: float) -> Value:
    if not isfinite(value):
        return value if value == value else None
    found = Fraction(value)
    return int(found) if found.denominator == 1 else found


# ---------------------------------------------------------------------------------------------- numbers


def mentioned(rule: RuleDecl, library: Declarations) -> Mentioned:
    """The numbers in a rule's dimensions, conditions and attributes, and in the declarations that it calls."""
    found: dict[Exact, None] = {}
    functions: set[str] = set()

    def gather(expr: Expr | None) -> None:
        match expr:
            case Number(value):
                exact = literal(value)
                if isinstance(exact, int | Fraction):
                    found[abs(exact)] = None
            case Apply(function, arguments):
                for argument in arguments:
                    gather(argument)
                if function in library.functions and function not in functions:
                    functions.add(function)
                    gather(library.functions[function].definition)
            case Select():
                for part in (expr.condition, expr.then, expr.otherwise):
                    gather(part)
            case Reduce(body=body):
                gather(body)
            case Read():
                for part in (*expr.index, expr.fill):
                    gather(part)

    for given in rule.inputs:
        for dim in given.dims:
            gather(dim.size)
    for condition in rule.conditions:
        gather(condition)
    for call in expressions(rule):
        if isinstance(call, GraphCall):
            for _, value in call.attributes:
                gather(value)
            decl = (library.operators if call.degrees is None else library.parallels).get(call.name)
            for statement in decl.statements if decl is not None else ():
                gather(statement.value)
    numbers = tuple(found)
    whole = [int(n) for n in numbers if n == int(n)]
    sums = {a + b for a in whole for b in whole if a >= b >= 2}
    return Mentioned(tuple(sorted({*whole, *sums} - {0, 1}))[:40], numbers)
