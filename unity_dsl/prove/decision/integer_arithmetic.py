"""Decides quantifier-free integer questions about indices and sizes with z3, within a step limit.

Linear arithmetic, with an uninterpreted function for every integer tensor. A product of symbols is an unknown number of
its own, which can only lose proofs. The limit counts z3's own steps, not seconds: the same answer on every run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import lcm
from typing import Any, TypeAlias

from ..normal_form.form import Unsupported
from ..normal_form.guard import Guard, Relation, settled, verdict
from ..normal_form.polynomial import Coordinate, Entry, Poly, Quotient, Symbol, Var, symbol_key

STEPS = 2_000_000
"""z3's `rlimit` for one obligation, a few seconds at most."""

Case: TypeAlias = "tuple[Guard, ...]"
"""Conditions that hold together."""


@dataclass(frozen=True)
class Question:
    """What z3 was asked: whether a claim holds wherever the given conditions do, and those of the rule.

    The claim is that one of the `cases` holds or, where there are `counts`, that the numbers whose conditions hold add
    up to 0. `text` is SMT-LIB 2 that states the opposite: the answer `unsat` says that the claim holds.
    """

    obligation: str
    given: Case
    cases: tuple[Case, ...]
    counts: tuple[tuple[Fraction, Case], ...]
    answer: str
    text: str


@dataclass
class Arithmetic:
    """What may be assumed of the sizes of a rule, and the questions asked under it; `record` keeps them where it is."""

    conditions: tuple[Guard, ...] = ()
    asked: int = field(default=0, compare=False)
    record: list[Question] | None = field(default=None, compare=False)

    def certain(self, condition: Guard, given: Iterable[Guard] = (), obligation: str = "in_bounds") -> bool:
        """Whether a condition holds wherever the given ones do."""
        return self.covered([(condition,)], given, obligation)

    def covered(
        self, cases: Sequence[Sequence[Guard]], given: Iterable[Guard] = (), obligation: str = "same_value"
    ) -> bool:
        """Whether one of the cases, each a conjunction, holds wherever the given conditions do."""
        given = tuple(given)
        if settled(given) is None:
            return True
        open_cases = [[g for g in case if g not in given and verdict(g) is not True] for case in cases]
        if any(not case for case in open_cases):
            return True
        import z3

        question = _Translation()
        refuted = [z3.Not(z3.And([question.condition(g) for g in case])) for case in open_cases]
        told = Question(obligation, given, tuple(map(tuple, open_cases)), (), "", "")
        return self._impossible(question, [*map(question.condition, given), *refuted], told)

    def contradictory(self, given: Iterable[Guard]) -> bool:
        return self.covered([], given)

    def balanced(self, parts: Sequence[tuple[Fraction, Sequence[Guard]]], given: Iterable[Guard] = ()) -> bool:
        """Whether the coefficients whose guards hold add up to 0, everywhere."""
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

        self.asked += 1
        claims += map(question.condition, self.conditions)
        solver = z3.SimpleSolver()
        # An interruption is Python's to raise, after this question: z3 would answer `unknown` and forget it.
        solver.set("rlimit", STEPS, "ctrl_c", False)
        claims += question.ranges()
        solver.add(*claims)
        answer = solver.check()
        if self.record is not None:
            self.record.append(replace(told, answer=str(answer), text=_stated(claims, question.logic)))
        return bool(answer == z3.unsat)


def _stated(claims: list[Any], logic: str) -> str:
    """Claims as SMT-LIB 2, as they are: a solver would show what its own simplification has made of them."""
    import z3

    # In a context of their own: what else is alive has a part in how z3 shares and names the parts of a formula.
    context = z3.Context()
    first, *rest = [claim.translate(context) for claim in claims or [z3.BoolVal(True)]]
    array = (z3.Ast * len(rest))(*(claim.as_ast() for claim in rest))
    text = z3.Z3_benchmark_to_smtlib_string(context.ref(), "", logic, "unknown", "", len(rest), array, first.as_ast())
    parts: dict[str, str] = {}
    text = re.sub(r"[$?]x\d+", lambda match: parts.setdefault(match[0], f"part.{len(parts) + 1}"), str(text))
    lines = text.strip().splitlines()
    return "\n".join(line for line in lines if not line.startswith(("; ", "(set-info"))) + "\n"


class _Translation:
    """One translation to z3: polynomials and guards, and the ranges of all that occurs in them.

    Names say what they name, `size.m`, `index.1`, `place.1`, `entry.ids`: nothing that a user may write is a word of
    SMT-LIB, and a size and an integer tensor of one name stay two things. Indices are numbered from 1 in each question,
    so its text is the same on every run.
    """

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}
        self.facts: list[Any] = []
        self.numbered = {"index": 0, "place": 0, "product": 0}
        self.has_functions = False
        self.has_division = False

    @property
    def logic(self) -> str:
        """The SMT-LIB logic that the question is in. Division by a number is part of the nonlinear ones only."""
        return f"QF_{'UF' if self.has_functions else ''}{'NIA' if self.has_division else 'LIA'}"

    def number_of(self, kind: str) -> str:
        self.numbered[kind] += 1
        return f"{kind}.{self.numbered[kind]}"

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
            case Quotient(numerator, denominator):
                self.has_division = True
                self.known[name] = self.poly(numerator) / denominator
        return self.known[name]

    def ranges(self) -> list[Any]:
        return self.facts


def _written(monomial: tuple[tuple[Symbol, int], ...]) -> str:
    return "*".join(f"{symbol_key(symbol)}{'' if power == 1 else f'^{power}'}" for symbol, power in monomial)
