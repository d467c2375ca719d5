"""Which calls have a finite value wherever their operands have: only such terms may stand for an input of a rule.

A rule is proved for inputs of finite elements. `causal_mask(x)` holds infinities and `log(x)` may have no value, so
what is proved of `x` need not hold of them. `rules/infinities.py` answers less of the values of a model: that they are
not infinite, where they may have no value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import inf, isinf

from ...index.equations.term import children, walk
from ...index.library import Library
from ...prove.answer import Proved
from ...prove.functions.definedness import TOTAL, native
from ...prove.normal_form.form import Unsupported
from ...prove.normal_form.guard import Guard
from ...prove.normal_form.polynomial import Poly, Quotient, Symbol
from ...prove.rule_proof import prove_rule
from ...syntax.ast import Apply, Expr, Name, Number, OperatorDecl, ParallelDecl, Read, Size
from ...syntax.canonical_text import canonical_text
from ...syntax.diagnostic import InputError
from ...syntax.parse_rules import GraphCall, GraphExpr, RuleDecl, RuleDim, RuleInput
from ...syntax.rational import rational
from .rule_terms import RuleTerms
from .terms import GROUP, Term

ARITHMETIC = frozenset({"+", "-", "*", "neg", "==", "!=", "<", "<=", ">", ">="})


@dataclass
class Finiteness:
    """Answers by operator and by call, kept. An operator is read; where its text does not tell, a call is proved.

    The greatest and the least of finite elements are finite: no axis is empty.
    """

    library: Library
    operators: dict[str, bool] = field(default_factory=dict)
    calls: dict[str, bool] = field(default_factory=dict)

    def of(self, term: Term, subject: RuleTerms) -> bool:
        """Whether a term over inputs of finite elements has finite elements at all sizes that the rule allows."""
        return all(self._of_call(call, subject) for call in term.calls)

    def _of_call(self, call: Term, subject: RuleTerms) -> bool:
        assert call.head is not None
        name = call.head.kind[0]
        if name not in self.operators:
            self.operators[name] = self._plain(name)
        return self.operators[name] or self._proved(call, subject)

    # ------------------------------------------------------------------------------------------ by the text

    def _plain(self, name: str) -> bool:
        """Whether a declaration is made of sums, products and total functions of what it reads."""
        decl: OperatorDecl | ParallelDecl = self.library.operators.get(name) or self.library.parallels[name]
        statements = (*decl.statements, *(decl.evaluation if isinstance(decl, OperatorDecl) else ()))
        return bool(statements) and all(self._is_finite(one.value) for one in statements)

    def _is_finite(self, expr: Expr) -> bool:
        match expr:
            case Number(value):
                return not (isinstance(value, float) and isinf(value))
            case Read(_, _, fill):
                return fill is None or self._is_finite(fill)
            case Apply("/", (above, below)):
                return _is_positive(below) and self._is_finite(above)
            case Apply(function) if function not in ARITHMETIC:
                if not self._is_total(function):
                    return False
        return all(map(self._is_finite, children(expr)))

    def _is_total(self, function: str) -> bool:
        decl = self.library.functions.get(function)
        if decl is None:
            return function in ("//", "%")
        return native(decl) in TOTAL if decl.definition is None else self._is_finite(decl.definition)

    # ------------------------------------------------------------------------------------------ by proof

    def _proved(self, call: Term, subject: RuleTerms) -> bool:
        """Whether 0 times the call is proved to be 0 times a tensor of its shape: so it is finite everywhere."""
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


def _is_positive(expr: Expr) -> bool:
    """Whether an expression is a product of sizes and numbers above 0."""
    return all(
        isinstance(node, Size)
        or (isinstance(node, Number) and 0 < node.value < inf)
        or (isinstance(node, Apply) and node.function == "*")
        for node in walk(expr)
    )


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
    """Sizes as expressions of names in the order of their appearance, so that equal calls make equal rules."""

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
