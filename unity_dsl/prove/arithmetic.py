"""Quantifier-free integer obligations: the only thing that z3 is asked.

Linear arithmetic, with an uninterpreted function for every integer tensor. A product of symbols is an unknown number of
its own, which can only lose proofs. The limit counts z3's own steps, not seconds: the same answer on every run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import lcm
from typing import Any

from .form import Unsupported
from .guard import Guard, Relation, settled, verdict
from .poly import Coordinate, Entry, Poly, Quotient, Symbol, Var, symbol_key

STEPS = 2_000_000
"""z3's `rlimit` for one obligation, a few seconds at most."""


@dataclass
class Arithmetic:
    """What may be assumed of the sizes of a rule, and the questions asked under it."""

    conditions: tuple[Guard, ...] = ()
    asked: int = field(default=0, compare=False)

    def certain(self, condition: Guard, given: Iterable[Guard] = ()) -> bool:
        """Whether a condition holds wherever the given ones do."""
        return self.covered([(condition,)], given)

    def covered(self, cases: Sequence[Sequence[Guard]], given: Iterable[Guard] = ()) -> bool:
        """Whether one of the cases, each a conjunction, holds wherever the given conditions do."""
        given = tuple(given)
        if settled(given) is None:
            return True
        open_cases = [[g for g in case if g not in given and verdict(g) is not True] for case in cases]
        if any(not case for case in open_cases):
            return True
        import z3

        question = _Question()
        refuted = [z3.Not(z3.And([question.condition(g) for g in case])) for case in open_cases]
        return self._impossible(question, [*map(question.condition, given), *refuted])

    def contradictory(self, given: Iterable[Guard]) -> bool:
        return self.covered([], given)

    def balanced(self, parts: Sequence[tuple[Fraction, Sequence[Guard]]], given: Iterable[Guard] = ()) -> bool:
        """Whether the coefficients whose guards hold add up to 0, everywhere."""
        import z3

        question = _Question()
        whole = lcm(*(coefficient.denominator for coefficient, _ in parts))
        total = z3.Sum(
            [
                z3.If(
                    z3.And([question.condition(g) for g in guards]), z3.IntVal(int(coefficient * whole)), z3.IntVal(0)
                )
                for coefficient, guards in parts
            ]
        )
        return self._impossible(question, [*map(question.condition, given), total != 0])

    def _impossible(self, question: _Question, claims: list[Any]) -> bool:
        import z3

        self.asked += 1
        claims += map(question.condition, self.conditions)
        solver = z3.SimpleSolver()
        solver.set("rlimit", STEPS)
        solver.add(*claims)
        solver.add(*question.ranges())
        return bool(solver.check() == z3.unsat)


class _Question:
    """One translation to z3: polynomials and guards, and the ranges of all that occurs in them."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}
        self.facts: list[Any] = []

    def condition(self, condition: Guard) -> Any:
        value = self.poly(condition.poly)
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
            raise Unsupported(f"an index {poly.key} that is no whole number")
        parts = [
            z3.IntVal(int(coefficient)) * self.monomial(monomial) if monomial else z3.IntVal(int(coefficient))
            for monomial, coefficient in poly.terms
        ]
        return z3.Sum(parts) if parts else z3.IntVal(0)

    def monomial(self, monomial: tuple[tuple[Symbol, int], ...]) -> Any:
        if len(monomial) == 1 and monomial[0][1] == 1:
            return self.symbol(monomial[0][0])
        import z3

        if any(power < 0 for _, power in monomial):
            raise Unsupported("a quotient of sizes as an index")
        name = "*".join(f"{symbol_key(symbol)}^{power}" for symbol, power in monomial)
        if name not in self.known:
            self.known[name] = z3.Int(name)
            if all(isinstance(symbol, str) for symbol, _ in monomial):
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
                self.known[name] = z3.Int(name)
                self.facts.append(self.known[name] >= 1)
            case Var(size=size):
                self.known[name] = z3.Int(name)
                self.facts += [self.known[name] >= 0, self.known[name] < self.poly(size)]
            case Entry(tensor, index, bound):
                sorts = [z3.IntSort()] * (len(index) + 1)
                # A name of its own: a tensor may be called like a size.
                entries = f"{tensor}[]"
                value = z3.Function(entries, *sorts)(*map(self.poly, index)) if index else z3.Int(entries)
                self.known[name] = value
                self.facts += [value >= 0, value < self.poly(bound)]
            case Coordinate():
                self.known[name] = z3.Int(name)
            case Quotient(numerator, denominator):
                self.known[name] = self.poly(numerator) / denominator
        return self.known[name]

    def ranges(self) -> list[Any]:
        return self.facts
