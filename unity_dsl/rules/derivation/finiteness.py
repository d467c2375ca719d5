"""Determines which calls have finite values whenever their operands have: only such terms may stand for an input of a
rule.

A rule is proved for inputs of finite elements. `causal_mask(x)` holds infinities and `log(x)` may be undefined, so a
theorem about `x` need not hold for them. `rules/infinities.py` shows less about the values of a model: they are not
infinite, but may be undefined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import isinf

from ...index.equations.term import children
from ...index.library import Library
from ...prove.answer import Proved
from ...prove.decision.signs import Sign
from ...prove.functions.definedness import DOMAINS, TOTAL, native
from ...prove.normal_form.form import Unsupported
from ...prove.normal_form.guard import Guard
from ...prove.normal_form.polynomial import Poly, Quotient, Symbol
from ...prove.rule_proof import prove_rule
from ...syntax.ast import Apply, Expr, Name, Number, OperatorDecl, ParallelDecl, Read, Statement
from ...syntax.canonical_text import canonical_text
from ...syntax.diagnostic import InputError
from ...syntax.parse_rules import GraphCall, GraphExpr, RuleDecl, RuleDim, RuleInput
from ...syntax.rational import rational
from .rule_terms import RuleTerms
from .terms import GROUP, Term
from .text_signs import sign_of, sign_of_number

ARITHMETIC = frozenset({"+", "-", "*", "neg", "==", "!=", "<", "<=", ">", ">="})


@dataclass
class Finiteness:
    """Caches answers by operator and by call. An operator's declaration is examined; if that does not decide, a call is
    proved.

    Maxima and minima of finite elements are finite: no axis is empty.
    """

    library: Library
    operators: dict[tuple[str, tuple[tuple[str, Sign], ...]], bool] = field(default_factory=dict)
    calls: dict[str, bool] = field(default_factory=dict)

    def of(self, term: Term, subject: RuleTerms) -> bool:
        """Whether a term over inputs of finite elements has finite elements at all sizes that the rule allows."""
        return all(self._of_call(call, subject) for call in term.calls)

    def _of_call(self, call: Term, subject: RuleTerms) -> bool:
        assert call.head is not None
        constants = ((name, value.constant) for name, value in zip(call.head.kind[3], call.head.values, strict=False))
        signs = tuple((name, sign_of_number(float(value))) for name, value in constants if value is not None)
        key = call.head.kind[0], signs
        if key not in self.operators:
            self.operators[key] = self._plain(*key)
        return self.operators[key] or self._proved(call, subject)

    # ------------------------------------------------------------------------------------------ by the text

    def _plain(self, name: str, attributes: Sequence[tuple[str, Sign]]) -> bool:
        """Whether a declaration consists of sums, products and functions of its operands, with each function inside its
        domain.
        """
        decl: OperatorDecl | ParallelDecl = self.library.operators.get(name) or self.library.parallels[name]
        modes = (decl.statements, *((decl.evaluation,) if isinstance(decl, OperatorDecl) and decl.evaluation else ()))
        return bool(decl.statements) and all(self._all_finite(statements, dict(attributes)) for statements in modes)

    def _all_finite(self, statements: Sequence[Statement], known: dict[str, Sign]) -> bool:
        for one in statements:
            if not self._is_finite(one.value, known):
                return False
            known[one.target] = sign_of(one.value, known, self.library)
        return True

    def _is_finite(self, expr: Expr, known: Mapping[str, Sign]) -> bool:
        match expr:
            case Number(value):
                return not (isinstance(value, float) and isinf(value))
            case Read(_, _, fill):
                return fill is None or self._is_finite(fill, known)
            case Apply("/", (_, below)) if sign_of(below, known, self.library) is not Sign.POSITIVE:
                return False
            case Apply(function, arguments) if function not in ARITHMETIC | {"/"}:
                if not self._is_inside(function, [sign_of(one, known, self.library) for one in arguments]):
                    return False
        return all(self._is_finite(part, known) for part in children(expr))

    def _is_inside(self, function: str, signs: Sequence[Sign]) -> bool:
        """Whether a function has a finite value at finite arguments of these signs."""
        decl = self.library.functions.get(function)
        if decl is None:
            return function in ("//", "%")
        if decl.definition is not None:
            return self._is_finite(decl.definition, dict(zip(decl.parameters, signs, strict=True)))
        name = native(decl)
        return name in TOTAL or (name in DOMAINS and name != "np.power" and signs[0] >= DOMAINS[name])

    # ------------------------------------------------------------------------------------------ by proof

    def _proved(self, call: Term, subject: RuleTerms) -> bool:
        """Whether 0 times the call is proved to be 0 times a tensor of its shape, which means that the call is finite
        everywhere.
        """
        try:
            rule = _zero_times(call, subject)
        except Unsupported:
            return False
        key = canonical_text(rule)
        if key not in self.calls:
            try:
                self.calls[key] = isinstance(prove_rule(rule, self.library, numbers=False, shrink=False), Proved)
            except InputError:
                self.calls[key] = False
        return self.calls[key]


def _zero_times(call: Term, subject: RuleTerms) -> RuleDecl:
    """`0 * z => 0 * call(…)` for a tensor `z` of the shape of the call. Raises Unsupported for views."""
    head = call.head
    assert head is not None
    name, degrees, result, names, source, _ = head.kind
    if degrees >= 0 or source or result:
        raise Unsupported("a call of another form")
    letters = _Letters({})
    inputs = [
        RuleInput(f"x{place}", letters.dims(child.shape.dims), letters.bound(child.shape.bound))
        for place, child in enumerate(call.children)
    ]
    values = tuple((own, letters.expr(value)) for own, value in zip(names, head.values, strict=True))
    made = GraphCall(name, tuple(Name(one.name) for one in inputs), values)
    conditions = tuple(letters.condition(one) for one in subject.guards)
    z = RuleInput("z", letters.dims(call.shape.dims))
    left, right = _zero(Name("z")), _zero(made)
    return RuleDecl("finite", (*inputs, z), conditions, (), (left,), (right,))


def _zero(tensor: GraphExpr) -> GraphCall:
    return GraphCall("scale", (tensor,), (("factor", Number(0)),))


@dataclass
class _Letters:
    """Sizes as expressions of names in the order of their appearance, so that equal calls give equal rules."""

    names: dict[str, str]

    def dims(self, dims: Sequence[Poly]) -> tuple[RuleDim, ...]:
        return tuple(RuleDim(self.expr(dim), rest=_is_group(dim)) for dim in dims)

    def bound(self, bound: Poly | None) -> Expr | None:
        return None if bound is None else self.expr(bound)

    def condition(self, guard: Guard) -> Apply:
        return Apply(guard.relation.value, (self.expr(guard.poly), Number(0)))

    def expr(self, poly: Poly) -> Expr:
        """A polynomial in sizes as an expression. Raises Unsupported."""
        total: Expr | None = None
        for monomial, coefficient in poly.terms:
            part: Expr | None = None
            for symbol, power in monomial:
                for _ in range(abs(power)):
                    factor = self._symbol(symbol)
                    if power < 0:
                        part = Apply("/", (Number(1) if part is None else part, factor))
                    else:
                        part = factor if part is None else Apply("*", (part, factor))
            value = abs(coefficient)
            if part is None or value != 1:
                number = Number(rational(Fraction(value)))
                part = number if part is None else Apply("*", (number, part))
            if total is None:
                total = part if coefficient > 0 else Apply("neg", (part,))
            else:
                total = Apply("+" if coefficient > 0 else "-", (total, part))
        return Number(0) if total is None else total

    def _symbol(self, symbol: Symbol) -> Expr:
        match symbol:
            case str():
                return Name(self.names.setdefault(symbol, f"s{len(self.names)}"))
            case Quotient(numerator, denominator):
                return Apply("//", (self.expr(numerator), self.expr(denominator)))
        raise Unsupported("a size of another form")


def _is_group(dim: Poly) -> bool:
    return any(isinstance(symbol, str) and symbol.endswith(GROUP) for symbol in dim.symbols())
