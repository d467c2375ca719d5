"""Decides facts over the reals by quantifier-free nonlinear real arithmetic (QF_NRA) with z3.

Definitions are inlined. maximum, minimum and abs become if-then-else, sqrt(x) becomes an s >= 0 with s * s = x.
Divisions and roots add definedness obligations. z3's resource count is limited, not its time.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from ...index.equations.term import COMPARISONS
from ...syntax.ast import Apply, Expr, FactDecl, FunctionDecl, Name, Number, Select
from ...syntax.rational import exact_number
from ..normal_form.form import Unsupported
from .integer_arithmetic import STEPS


def true_over_reals(fact: FactDecl, functions: Mapping[str, FunctionDecl]) -> bool:
    """Whether a fact is proved: where its conditions hold, both sides have a value and compare as stated."""
    import z3

    reals = _Reals(functions)
    try:
        conditions = [reals.comparison(condition, {}) for condition in fact.conditions]
        defined_before = len(reals.obligations)
        claim = reals.comparison(fact.claim, {})
    except Unsupported:
        return False
    if reals.obligations[:defined_before]:
        return False  # conditions that may have no value
    solver = z3.SolverFor("QF_NRA")
    solver.set("rlimit", STEPS)
    solver.add(*conditions, *reals.definitions, z3.Not(z3.And(claim, *reals.obligations)))
    return bool(solver.check() == z3.unsat)


class _Reals:
    """The translation to z3. `obligations` state that values exist, `definitions` constrain the unknowns of roots."""

    def __init__(self, functions: Mapping[str, FunctionDecl]) -> None:
        self.functions = functions
        self.obligations: list[Any] = []
        self.definitions: list[Any] = []

    def comparison(self, expr: Apply, names: Mapping[str, Any]) -> Any:
        left, right = (self.value(part, names) for part in expr.arguments)
        match expr.function:
            case "==":
                return left == right
            case "!=":
                return left != right
            case "<":
                return left < right
            case "<=":
                return left <= right
            case ">":
                return left > right
        return left >= right

    def value(self, expr: Expr, names: Mapping[str, Any]) -> Any:
        import z3

        match expr:
            case Number(value):
                return _literal(exact_number(value))
            case Name(name):
                return names[name] if name in names else z3.Real(name)
            case Apply(sign) if sign in COMPARISONS:
                return z3.If(self.comparison(expr, names), _literal(Fraction(1)), _literal(Fraction(0)))
            case Apply(name, arguments):
                return self._apply(name, [self.value(argument, names) for argument in arguments])
            case Select():
                raise Unsupported("a branch that may have no value")
        raise Unsupported(type(expr).__name__)

    def _apply(self, name: str, values: list[Any]) -> Any:
        match name:
            case "+":
                return values[0] + values[1]
            case "-":
                return values[0] - values[1]
            case "*":
                return values[0] * values[1]
            case "neg":
                return -values[0]
            case "/":
                self.obligations.append(values[1] != 0)
                return values[0] / values[1]
        if name not in self.functions:
            raise Unsupported(name)
        decl = self.functions[name]
        bound = dict(zip(decl.parameters, values, strict=True))
        if decl.definition is not None:
            return self.value(decl.definition, bound)
        if decl.numpy is None or decl.numpy.arguments != tuple(Name(parameter) for parameter in decl.parameters):
            raise Unsupported(name)
        return self._primitive(decl.numpy.function, values)

    def _primitive(self, name: str, values: list[Any]) -> Any:
        import z3

        match name:
            case "np.maximum":
                return z3.If(values[0] >= values[1], values[0], values[1])
            case "np.minimum":
                return z3.If(values[0] <= values[1], values[0], values[1])
            case "np.abs":
                return z3.If(values[0] >= 0, values[0], -values[0])
            case "np.sqrt":
                root = z3.Real(f"root {len(self.definitions)}")
                self.obligations.append(values[0] >= 0)
                self.definitions.append(z3.Implies(values[0] >= 0, z3.And(root >= 0, root * root == values[0])))
                return root
        raise Unsupported(name)


def _literal(value: Fraction) -> Any:
    import z3

    return z3.RealVal(f"{value.numerator}/{value.denominator}")
