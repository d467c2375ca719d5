"""Satisfiability of linear inequalities between products of atoms over the reals: z3's simplex, QF_LRA.

Each product of atoms is an unknown of its own (linear relaxation), so that unsatisfiability here holds for all values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from ..normal_form.form import Form, canonical
from ..normal_form.polynomial import ONE, Monomial
from .integer_arithmetic import STEPS


def contradictory(positive: Sequence[Form], not_negative: Sequence[Form]) -> bool:
    """Whether no values make all `positive` forms > 0 and all `not_negative` forms >= 0."""
    import z3

    known: dict[tuple[str, Monomial], Any] = {}
    solver = z3.SolverFor("QF_LRA")
    solver.set("rlimit", STEPS, "ctrl_c", False)
    solver.add(*(_value(form, known) > 0 for form in positive), *(_value(form, known) >= 0 for form in not_negative))
    return bool(solver.check() == z3.unsat)


def _value(form: Form, known: dict[tuple[str, Monomial], Any]) -> Any:
    import z3

    parts = [z3.RealVal(0)]
    for term in canonical([form])[0]:
        product = replace(term, coefficient=ONE).key
        plain = not (term.factors or term.bound or term.guards)
        for monomial, factor in term.coefficient.terms:
            name = (product, monomial)
            if name not in known:
                known[name] = z3.RealVal(1) if plain and not monomial else z3.Real(f"product.{len(known)}")
            parts.append(_literal(factor) * known[name])
    return z3.Sum(parts)


def _literal(value: Fraction) -> Any:
    import z3

    return z3.RealVal(f"{value.numerator}/{value.denominator}")
