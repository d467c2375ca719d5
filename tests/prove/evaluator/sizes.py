"""Sizes of a rule for the independent evaluator: integers of at least 1 that meet the rule's conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice, product
from math import prod
from random import Random
from typing import Any

from unity_dsl.syntax.ast import Apply, Expr, Name, Number
from unity_dsl.syntax.parse_rules import GraphCall, GraphExpr, GraphView, RuleDecl, RuleInput

from .functions import ARITHMETIC
from .shapes import NoMeaning
from .values import Exact, literal

TRIED = 64
"""`completed` searches sizes below this bound if no single condition determines them."""

Factor = tuple[str, int]
"""A factor of a dimension: its name and its size."""
Dim = tuple[Factor, ...]


def number(expr: Expr, sizes: Mapping[str, Exact]) -> Exact:
    """The value of a size or attribute at these sizes.

    Raises NoMeaning for a division by zero or an integer division of fractions, KeyError for unknown names.
    """
    match expr:
        case Number(value):
            return literal(value)  # type: ignore[return-value]
        case Name(name):
            return sizes[name]
        case Apply(function, arguments):
            parts = [number(argument, sizes) for argument in arguments]
            if function in ("//", "%") and any(part != int(part) for part in parts):
                raise NoMeaning("whole numbers are divided")
            value = ARITHMETIC[function](*parts)
            if value is None:
                raise NoMeaning("a division by zero")
            return value  # type: ignore[return-value]
    raise TypeError(type(expr).__name__)


def whole(expr: Expr, sizes: Mapping[str, Exact]) -> int:
    value = number(expr, sizes)
    if value != int(value) or value < 1:
        raise NoMeaning(f"a size of {value}")
    return int(value)


def expressions(rule: RuleDecl) -> Iterator[GraphExpr]:
    """Every tensor expression of a rule."""
    pending: list[GraphExpr] = [*(expr for _, expr in rule.definitions), *rule.left, *rule.right]
    while pending:
        expr = pending.pop()
        yield expr
        if isinstance(expr, GraphCall):
            pending += expr.arguments
        elif isinstance(expr, GraphView):
            pending.append(expr.operand)


def names_in(expr: Expr) -> Iterator[str]:
    match expr:
        case Name(name):
            yield name
        case Apply(_, arguments):
            for argument in arguments:
                yield from names_in(argument)


def rest_groups(rule: RuleDecl) -> tuple[str, ...]:
    found = [name for given in rule.inputs for dim in given.dims if dim.rest for name in names_in(dim.size)]
    return tuple(dict.fromkeys(found))


def size_names(rule: RuleDecl) -> tuple[str, ...]:
    """Every name of the rule that stands for a size or an attribute, without rest groups."""
    found = [name for given in rule.inputs for dim in given.dims if not dim.rest for name in names_in(dim.size)]
    found += [
        name for given in rule.inputs if given.integer_range is not None for name in names_in(given.integer_range)
    ]
    found += [name for condition in rule.conditions for name in names_in(condition)]
    for expr in expressions(rule):
        if isinstance(expr, GraphCall):
            found += expr.degrees or ()
            found += [name for _, value in expr.attributes for name in names_in(value)]
    return tuple(dict.fromkeys(found))


def aliases(rule: RuleDecl) -> dict[str, Expr]:
    """Definitions of names by conditions such as `m == p * e`. A name used in an earlier definition gets none."""
    found: dict[str, Expr] = {}
    for condition in rule.conditions:
        left, right = condition.arguments
        if condition.function == "==" and isinstance(left, Name) and left.name not in found:
            mentioned = {name for other in found.values() for name in names_in(other)} | set(names_in(right))
            if left.name not in mentioned and mentioned.isdisjoint({left.name}):
                found[left.name] = right
    return found


@dataclass(frozen=True)
class Sizes:
    """Numbers for the names of a rule and ranks for its rest groups. Names that are not sizes may be any rational."""

    rule: RuleDecl
    numbers: Mapping[str, Any]
    ranks: Mapping[str, int]

    def dims(self, given: RuleInput) -> list[Dim]:
        """The dimensions of an input, without device axes."""
        found: list[Dim] = []
        for dim in given.dims:
            if dim.rest:
                (group,) = names_in(dim.size)
                found += [((name, self.numbers[name]),) for name in group_names(group, self.ranks)]
            elif not dim.device:
                found.append(self.factors(dim.size))
        return found

    def factors(self, expr: Expr) -> Dim:
        """The factors of a size; none for 1. Raises NoMeaning if a factor is not an integer of at least 1."""
        known = aliases(self.rule)
        match expr:
            case Name(name) if name in known:
                return self.factors(known[name])
            case Apply("*", (left, right)):
                return self.factors(left) + self.factors(right)
            case Number(1):
                return ()
        return ((str(expr) if not isinstance(expr, Name) else expr.name, whole(expr, self.numbers)),)

    def degree(self, name: str) -> Factor:
        """A device axis as a factor: its name and size."""
        factors = self.factors(Name(name))
        return factors[0] if len(factors) == 1 else (f"@{name}", prod(size for _, size in factors))


def group_names(group: str, ranks: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(f"{group}.{position}" for position in range(ranks[group]))


def completed(
    rule: RuleDecl,
    given: Mapping[str, Exact],
    shapes: Mapping[str, tuple[int, ...]],
    reals: frozenset[str] = frozenset(),
) -> Sizes:
    """Completes partly given sizes; conditions and the shapes of inputs determine the others.

    Raises NoMeaning if the search finds no sizes that meet both. Shapes have device axes first.
    """
    ranks = {group: next(n for n in count() if f"{group}.{n}" not in given) for group in rest_groups(rule)}
    numbers = {name: size for name, size in given.items() if name.isidentifier() or "." in name}
    _determine(rule, numbers, reals)
    missing = [name for name in size_names(rule) if name not in numbers]
    for values in islice(product(range(1, TRIED), repeat=len(missing)), TRIED**2):
        sizes = Sizes(rule, {**numbers, **dict(zip(missing, values, strict=True))}, ranks)
        try:
            _check(sizes)
            if all(_shape(sizes, tensor) == shapes[tensor.name] for tensor in rule.inputs):
                return sizes
        except NoMeaning:
            continue
    raise NoMeaning(f"no sizes for {', '.join(missing) or dict(given)}")


def _shape(sizes: Sizes, given: RuleInput) -> tuple[int, ...]:
    devices = (sizes.degree(dim.size.name)[1] for dim in given.dims if dim.device and isinstance(dim.size, Name))
    return (*devices, *(prod(size for _, size in dim) for dim in sizes.dims(given)))


def _determine(rule: RuleDecl, numbers: dict[str, Exact], reals: frozenset[str]) -> None:
    for _ in rule.conditions:
        for name, expr in aliases(rule).items():
            if name not in numbers and all(part in numbers for part in names_in(expr)):
                numbers[name] = number(expr, numbers) if name in reals else whole(expr, numbers)


def _check(sizes: Sizes) -> None:
    for condition in sizes.rule.conditions:
        if number(condition, sizes.numbers) != 1:
            raise NoMeaning("a condition does not hold")
    for given in sizes.rule.inputs:
        sizes.dims(given)
        if given.integer_range is not None:
            whole(given.integer_range, sizes.numbers)


def drawn(
    rule: RuleDecl,
    seed: int,
    far: Sequence[int] = (),
    *,
    wanted: bool = False,
    max_rank: int = 3,
    reals: Mapping[str, Callable[[Random], Exact]] | None = None,
    accepts: Callable[[dict[str, Exact]], bool] = lambda _: True,
) -> Sizes | None:
    """Random sizes that meet the conditions, or None if none are found. Only odd seeds allow sizes of 1.

    The sizes are pairwise different if possible, or small at every second pair of seeds. One or two random sizes come
    from `far`: in the first attempts if `wanted`, else in the last ones. `reals` draw the names that are not sizes.
    `accepts` says whether the left side has a meaning, and may raise NoMeaning.
    """
    random = Random(f"{rule.name} {seed}")
    reals = reals or {}
    groups = rest_groups(rule)
    free = [name for name in size_names(rule) if name not in aliases(rule) and name not in reals]
    for attempt in range(200):
        ranks = {group: random.randint(0, max_rank) for group in groups}
        names = [*free, *(name for group in groups for name in group_names(group, ranks))]
        turn = attempt if seed % 4 < 2 else attempt + 40
        sized = zip(names, _numbers(random, len(names), 1 + (seed % 2 == 0), turn), strict=True)
        numbers: dict[str, Exact] = dict(sized)
        if far and names and (attempt < 60 if wanted else attempt > 150):
            numbers |= {random.choice(names): random.choice(far) for _ in range(1 + (random.random() < 0.3))}
        numbers |= {name: draw(random) for name, draw in reals.items() if name not in aliases(rule)}
        try:
            _determine(rule, numbers, frozenset(reals))
            sizes = Sizes(rule, numbers, ranks)
            _check(sizes)
            if accepts(numbers):
                return sizes
        except NoMeaning:
            continue
    return None


def _numbers(random: Random, how_many: int, lowest: int, turn: int) -> Sequence[int]:
    if turn < 40 and how_many <= 8:
        return random.sample(range(lowest, lowest + max(how_many, 2)), how_many)
    top = lowest + (1 if turn < 55 else 2 if turn < 100 else 12)
    return [random.randint(lowest, top) for _ in range(how_many)]
