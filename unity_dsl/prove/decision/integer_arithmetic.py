"""Decides quantifier-free integer questions about indices and sizes with z3, within a resource limit.

The fragment is linear integer arithmetic (Presburger) with an uninterpreted function for each integer tensor. A
nonlinear monomial is an unknown of its own, which is incomplete but sound; monotonicity of multiplication by a size is
instantiated for the monomials that occur (incremental linearization, Cimatti et al., TACAS 2017). A floor quotient by a
product of sizes is defined by Euclidean division. The limit is on z3's resource count (rlimit), not on time: answers
are the same on every run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations, islice
from math import lcm
from typing import Any, TypeAlias

from ..normal_form.form import Unsupported
from ..normal_form.guard import Guard, Relation, guard, in_blocks, settled
from ..normal_form.polynomial import (
    ONE,
    Coordinate,
    Entry,
    Monomial,
    Poly,
    Quotient,
    Symbol,
    Var,
    divided_monomial,
    is_plainly_not_negative,
    of,
    product,
    symbol_key,
)
from ..normal_form.step_limit import spend, steps_left

STEPS = 2_000_000
"""z3's `rlimit` for one query, a few seconds at most."""
MAX_PRODUCTS = 12
"""No monotonicity axioms for a query with more products."""
MAX_MULTIPLES = 24
"""Limit of pairs of a comparison and a size with axioms for their product."""
MAX_STEPS = 8
"""Limit of the multiples n s for which a product gets axioms (`_steps`)."""

SOLVER_STEPS = 1_000
"""Units of z3's `rlimit` that count as one step of a proof."""
ASKING = 20
"""Steps counted for each query, in addition to those of its rlimit."""

Case: TypeAlias = "tuple[Guard, ...]"
"""A conjunction of guards."""


@dataclass(frozen=True)
class Question:
    """A validity query: do the given conditions, and those of the rule, imply the claim?

    The claim is that one of the `cases` holds or, where there are `counts`, that the coefficients whose conditions hold
    add up to 0. `text` is the negated claim in SMT-LIB 2: the answer `unsat` says that the claim is valid.
    """

    obligation: str
    given: Case
    cases: tuple[Case, ...]
    counts: tuple[tuple[Fraction, Case], ...]
    answer: str
    text: str


@dataclass
class Arithmetic:
    """The conditions assumed of a rule's sizes, and the queries made under them. A list `record` collects these."""

    conditions: tuple[Guard, ...] = ()
    asked: int = field(default=0, compare=False)
    record: list[Question] | None = field(default=None, compare=False)

    def certain(self, condition: Guard, given: Iterable[Guard] = (), obligation: str = "in_bounds") -> bool:
        """Whether the given conditions imply a condition."""
        return self.covered([(condition,)], given, obligation)

    def covered(
        self, cases: Sequence[Sequence[Guard]], given: Iterable[Guard] = (), obligation: str = "same_value"
    ) -> bool:
        """Whether the given conditions imply the disjunction of the cases, each a conjunction."""
        given = tuple(given)
        if settled(given) is None:
            return True
        open_cases = [[g for g in case if g not in given and g.verdict is not True] for case in cases]
        if any(not case for case in open_cases):
            return True
        import z3

        question = _Translation()
        refuted = [z3.Not(z3.And([question.condition(g) for g in case])) for case in open_cases]
        told = Question(obligation, given, tuple(map(tuple, open_cases)), (), "", "")
        return self._impossible(question, [*map(question.condition, given), *refuted], told)

    def equal_sizes(self, left: Sequence[Poly], right: Sequence[Poly]) -> bool:
        """Whether two products of sizes are known to be equal: factor by factor, or as products."""
        if tuple(left) == tuple(right) or product(left) == product(right):
            return True
        if len(left) == len(right):
            pairs = (guard(a - b, Relation.EQUAL) for a, b in zip(left, right, strict=True) if a != b)
            if all(self.certain(pair, obligation="same_shape") for pair in pairs):
                return True
        return self.certain(guard(product(left) - product(right), Relation.EQUAL), obligation="same_shape")

    def contradictory(self, given: Iterable[Guard]) -> bool:
        return self.covered([], given)

    def balanced(self, parts: Sequence[tuple[Fraction, Sequence[Guard]]], given: Iterable[Guard] = ()) -> bool:
        """Whether the given conditions imply that the coefficients whose guards hold add up to 0."""
        import z3

        given = tuple(given)
        question = _Translation()
        whole = lcm(*(coefficient.denominator for coefficient, _ in parts))
        total = z3.Sum(
            [
                z3.If(
                    z3.And([question.condition(g) for g in guards]), z3.IntVal(int(coefficient * whole)), z3.IntVal(0)
                )
                for coefficient, guards in parts
            ]
        )
        told = Question("same_value", given, (), tuple((n, tuple(guards)) for n, guards in parts), "", "")
        return self._impossible(question, [*map(question.condition, given), z3.Not(total == 0)], told)

    def _impossible(self, question: _Translation, claims: list[Any], told: Question) -> bool:
        import z3

        spend(ASKING + len(claims))
        self.asked += 1
        claims += map(question.condition, self.conditions)
        solver = z3.SimpleSolver()
        # z3 would answer `unknown` to an interrupt and drop it. With `ctrl_c` off, Python raises it after this query.
        left = steps_left()
        solver.set("rlimit", STEPS if left is None else min(STEPS, (left + 1) * SOLVER_STEPS), "ctrl_c", False)
        claims += question.multiples()
        claims += question.ranges()
        solver.add(*claims)
        before = _resources(solver)
        answer = solver.check()
        spend(max(0, _resources(solver) - before) // SOLVER_STEPS)
        if self.record is not None:
            self.record.append(replace(told, answer=str(answer), text=_stated(claims, question.logic)))
        return bool(answer == z3.unsat)


def _resources(solver: Any) -> int:
    """The resource units that z3 has counted up to now (`rlimit count`)."""
    statistics = solver.statistics()
    return next((int(value) for name, value in statistics if name == "rlimit count"), 0)


def _stated(claims: list[Any], logic: str) -> str:
    """Claims as SMT-LIB 2, printed before z3's solver simplifies them."""
    import z3

    # In a fresh context: z3 shares and names subterms depending on the other terms of a context.
    context = z3.Context()
    first, *rest = [claim.translate(context) for claim in claims or [z3.BoolVal(True)]]
    array = (z3.Ast * len(rest))(*(claim.as_ast() for claim in rest))
    text = z3.Z3_benchmark_to_smtlib_string(context.ref(), "", logic, "unknown", "", len(rest), array, first.as_ast())
    parts: dict[str, str] = {}
    text = re.sub(r"[$?]x\d+", lambda match: parts.setdefault(match[0], f"part.{len(parts) + 1}"), str(text))
    lines = text.strip().splitlines()
    return "\n".join(line for line in lines if not line.startswith(("; ", "(set-info"))) + "\n"


class _Translation:
    """The translation of one query to z3: polynomials, guards, and the ranges of the symbols that occur.

    Names carry their sort, `size.m`, `index.1`, `place.1`, `entry.ids`, so that user names neither clash with SMT-LIB
    keywords nor with each other. Indices are numbered from 1 in each query, so that its text is the same on every run.
    """

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}
        self.facts: list[Any] = []
        self.products: dict[Monomial, None] = {}
        self.compared: dict[Poly, None] = {}
        self.numbered = {"index": 0, "place": 0, "product": 0, "quotient": 0}
        self.has_functions = False
        self.has_division = False

    @property
    def logic(self) -> str:
        """The SMT-LIB logic of the query. Division by a constant needs a nonlinear one."""
        return f"QF_{'UF' if self.has_functions else ''}{'NIA' if self.has_division else 'LIA'}"

    def number_of(self, kind: str) -> str:
        self.numbered[kind] += 1
        return f"{kind}.{self.numbered[kind]}"

    def condition(self, condition: Guard) -> Any:
        poly = in_blocks(condition.poly) if condition.relation is Relation.NOT_NEGATIVE else condition.poly
        value = self.poly(poly)
        self.compared[poly] = None
        match condition.relation:
            case Relation.EQUAL:
                return value == 0
            case Relation.UNEQUAL:
                return value != 0
            case Relation.NOT_NEGATIVE:
                return value >= 0

    def poly(self, poly: Poly) -> Any:
        import z3

        whole = lcm(*(coefficient.denominator for _, coefficient in poly.terms))
        if whole != 1:
            raise Unsupported("an index that need not be a whole number")
        parts = [self.product(monomial, int(coefficient)) for monomial, coefficient in poly.terms]
        return parts[0] if len(parts) == 1 else z3.Sum(parts) if parts else z3.IntVal(0)

    def product(self, monomial: tuple[tuple[Symbol, int], ...], coefficient: int) -> Any:
        import z3

        if not monomial:
            return z3.IntVal(coefficient)
        return self.monomial(monomial) if coefficient == 1 else z3.IntVal(coefficient) * self.monomial(monomial)

    def monomial(self, monomial: tuple[tuple[Symbol, int], ...]) -> Any:
        if len(monomial) == 1 and monomial[0][1] == 1:
            return self.symbol(monomial[0][0])
        import z3

        if any(power < 0 for _, power in monomial):
            raise Unsupported("a quotient of sizes as an index")
        name = "*".join(f"{symbol_key(symbol)}^{power}" for symbol, power in monomial)
        if name not in self.known:
            self.products[monomial] = None
            plain = all(isinstance(symbol, str) for symbol, _ in monomial)
            self.known[name] = z3.Int(f"product.{_written(monomial)}" if plain else self.number_of("product"))
            if plain:
                self.facts.append(self.known[name] >= 1)
                self.facts += [self.known[name] >= self.symbol(symbol) for symbol, _ in monomial]
            elif not any(isinstance(symbol, Quotient | Coordinate) for symbol, _ in monomial):
                self.facts.append(self.known[name] >= 0)
        return self.known[name]

    def symbol(self, symbol: Symbol) -> Any:
        import z3

        name = symbol_key(symbol)
        if name in self.known:
            return self.known[name]
        match symbol:
            case str():
                self.known[name] = z3.Int(f"size.{name}")
                self.facts.append(self.known[name] >= 1)
            case Var(size=size):
                self.known[name] = z3.Int(self.number_of("index"))
                self.facts += [self.known[name] >= 0, self.known[name] < self.poly(size)]
            case Entry(tensor, index, bound):
                sorts = [z3.IntSort()] * (len(index) + 1)
                value = z3.Function(f"entry.{tensor}", *sorts)(*map(self.poly, index))
                self.has_functions |= bool(index)
                self.known[name] = value
                self.facts += [value >= 0, value < self.poly(bound)]
            case Coordinate():
                self.known[name] = z3.Int(self.number_of("place"))
            case Quotient(numerator, denominator) if denominator.constant is not None:
                self.has_division = True
                self.known[name] = self.poly(numerator) / z3.IntVal(int(denominator.constant))
            case Quotient(numerator, denominator):
                # Euclidean division: the quotient is the integer that leaves a remainder in range. For a divisor below
                # 1 there is none, and the floor is something else, so nothing is stated about it.
                self.known[name] = z3.Int(self.number_of("quotient"))
                rest = self.poly(numerator) - self.poly(denominator * of(symbol))
                remainder = z3.And(rest >= 0, rest < self.poly(denominator))
                positive = is_plainly_not_negative(denominator - ONE)
                self.facts.append(remainder if positive else z3.Implies(self.poly(denominator) >= 1, remainder))
        return self.known[name]

    def ranges(self) -> list[Any]:
        """Axioms for the symbols that occur: their ranges, and monotonicity of their products."""
        products = tuple(self.products)
        lemmas = [lemma for monomial in products for lemma in self._steps(monomial)]
        if len(products) <= MAX_PRODUCTS:
            lemmas += [lemma for pair in combinations(products, 2) for lemma in self._monotone(*pair)]
        return [*self.facts, *lemmas]

    def _steps(self, monomial: Monomial) -> Iterator[Any]:
        """Axioms for a product s a with a size s >= 1: a = n gives s a = n s, a > n gives s a >= (n + 1) s."""
        import z3

        size = tuple(factor for factor in monomial if isinstance(factor[0], str))
        rest = tuple(factor for factor in monomial if not isinstance(factor[0], str))
        if not size or not rest or not (self._is_known(size) and self._is_known(rest)):
            return
        value, scale, multiple = self.monomial(monomial), self.monomial(size), self.monomial(rest)
        ((symbol, power), *others) = rest
        extent = symbol.size.constant if isinstance(symbol, Var) and power == 1 and not others else None
        yield z3.Implies(multiple <= -1, value <= -scale)
        for count in range(min(int(extent), MAX_STEPS) if extent is not None else 2):
            yield z3.Implies(multiple == count, value == count * scale)
            yield z3.Implies(multiple > count, value >= (count + 1) * scale)

    def _monotone(self, first: Monomial, second: Monomial) -> Iterator[Any]:
        """Monotonicity of two products s a and s b with the same size s >= 1: a > b implies s a >= s b + s, etc."""
        import z3

        others = dict(second)
        size = tuple((symbol, min(n, others.get(symbol, 0))) for symbol, n in first if isinstance(symbol, str))
        size = tuple(factor for factor in size if factor[1] > 0)
        left, right = (divided_monomial(monomial, size) for monomial in (first, second))
        if not size or not all(self._is_known(part) for part in (size, left, right)):
            return
        value, other, scale = self.monomial(first), self.monomial(second), self.monomial(size)
        above = self.monomial(left) if left else z3.IntVal(1)
        below = self.monomial(right) if right else z3.IntVal(1)
        yield z3.Implies(above == below, value == other)
        yield z3.Implies(above > below, value >= other + scale)
        yield z3.Implies(above < below, value + scale <= other)

    def multiples(self) -> Iterator[Any]:
        """Axioms that s C has the sign of C, for compared polynomials C and sizes s >= 1 whose products all occur."""
        import z3

        sizes = sorted({symbol for monomial in self.products for symbol, _ in monomial if isinstance(symbol, str)})
        pairs = ((poly, of(size)) for poly in tuple(self.compared) if len(poly.terms) > 1 for size in sizes)
        known = ((poly, size) for poly, size in pairs if all(map(self._is_known, (m for m, _ in (poly * size).terms))))
        for poly, size in islice(known, MAX_MULTIPLES):
            value, scaled = self.poly(poly), self.poly(poly * size)
            yield z3.Implies(value >= 0, scaled >= 0)
            yield z3.Implies(value <= 0, scaled <= 0)
            yield z3.Implies(value > 0, scaled >= self.poly(size))
            yield z3.Implies(value < 0, scaled <= -self.poly(size))

    def _is_known(self, monomial: Monomial) -> bool:
        """Whether a monomial is a symbol, or a product that occurs in the query anyway."""
        return monomial in self.products or (sum(abs(power) for _, power in monomial) <= 1)


def _written(monomial: tuple[tuple[Symbol, int], ...]) -> str:
    return "*".join(f"{symbol_key(symbol)}{'' if power == 1 else f'^{power}'}" for symbol, power in monomial)
