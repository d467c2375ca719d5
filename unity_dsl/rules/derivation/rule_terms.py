"""Reads rules as terms: sides, shapes of all their tensors, and assumptions about sizes and real numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from ...index.equations.term import substitute
from ...index.equations.where_conditions import keys, mentions_rank
from ...index.library import Library
from ...prove.decision.integer_arithmetic import Arithmetic
from ...prove.normal_form.form import Unsupported
from ...prove.normal_form.guard import Guard
from ...prove.normal_form.polynomial import ONE, Poly, number, product
from ...prove.translation.real_attributes import real_names, with_reals
from ...prove.translation.rule_forms import call_pattern, claim_of, declaration, draws
from ...prove.translation.rule_results import by_results
from ...prove.translation.size_assumptions import Claim
from ...prove.translation.symbolic_sizes import Factors, share
from ...syntax.ast import Expr, Name, Number
from ...syntax.diagnostic import InputError
from ...syntax.parse_rules import GraphCall, GraphExpr, GraphView, RuleDecl
from ..rule_shapes import Instances, Shapes, TensorShape, shapes_of
from .real_facts import RealFact, fact_of, follows, real_poly
from .terms import Head, Shape, Term, Terms

Axes: TypeAlias = "tuple[tuple[int, ...], ...]"
"""The axes in each dimension of a view, by number; a dimension of size 1 has none."""


@dataclass(frozen=True)
class RuleTerms:
    """A rule in a bank of terms. `guards` are its conditions on sizes, `facts` those on its real numbers."""

    name: str
    left: tuple[Term, ...]
    right: tuple[Term, ...]
    reals: frozenset[str]
    guards: tuple[Guard, ...]
    facts: tuple[RealFact, ...]
    known: dict[Guard, bool] = field(default_factory=dict, compare=False)

    @cached_property
    def arithmetic(self) -> Arithmetic:
        return Arithmetic(self.guards)

    def entails(self, guard: Guard) -> bool:
        """Whether a condition on sizes follows from the rule's conditions."""
        if guard.verdict is not None:
            return guard.verdict
        if guard not in self.known:
            self.known[guard] = guard in self.guards or (bool(self.guards) and self._certain(guard))
        return self.known[guard]

    def _certain(self, guard: Guard) -> bool:
        try:
            return self.arithmetic.certain(guard)
        except Unsupported:
            return False

    def entails_fact(self, fact: RealFact) -> bool:
        """Whether a condition on real numbers follows, by signs, from the rule's conditions."""
        return follows(fact, self.facts, self.reals)


def read_rule(rule: RuleDecl, library: Library, bank: Terms, instances: Instances | None = None) -> RuleTerms:
    """The rule as terms of a bank. Raises Unsupported if a shape or an attribute is not determined."""
    rule = by_results(rule, library)
    try:
        read, read_library = with_reals(rule, library)
        claim = claim_of(read)
        shapes = shapes_of(read, claim, read_library, instances)
        if shapes is None:
            raise Unsupported("shapes that are not determined")
        return _Reader(rule, read, claim, shapes, library, bank).read()
    except InputError as error:
        raise Unsupported(error.diagnostic.message) from None


@dataclass
class _Reader:
    """Reads a rule. `other` is the same rule with its real numbers as operands, `shapes` are the shapes of `other`."""

    rule: RuleDecl
    other: RuleDecl
    claim: Claim
    shapes: Shapes
    library: Library
    bank: Terms
    made: dict[int, Term] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reals = frozenset(real_names(self.rule, self.library))
        self.values = dict(self.other.real_values)
        self.definitions = dict(self.rule.definitions)
        self.other_definitions = dict(self.other.definitions)

    def read(self) -> RuleTerms:
        left = tuple(map(self.term, self.rule.left, self.other.left))
        right = tuple(map(self.term, self.rule.right, self.other.right))
        facts = tuple(fact_of(one, self.values, self.claim, self.reals) for one in self.other.real_conditions)
        return RuleTerms(self.rule.name, left, right, self.reals, self.claim.conditions, facts)

    def term(self, expr: GraphExpr, other: GraphExpr) -> Term:
        """The term of an expression; `other` is the same expression with real numbers as operands."""
        match expr, other:
            case Name(name), _ if name in self.definitions:
                return self.term(self.definitions[name], self.other_definitions[name])
            case Name(name), _:
                return self.bank.input(name, _shape(self.shapes.tensors[name]))
            case ((GraphView() | GraphCall()), (GraphView() | GraphCall())):
                if id(expr) not in self.made:
                    self.made[id(expr)] = self._call(expr, other)
                return self.made[id(expr)]
        raise Unsupported("a number for a tensor")

    def _call(self, expr: GraphCall | GraphView, other: GraphCall | GraphView) -> Term:
        shape = _shape(self.shapes.value(other))
        call = GraphCall("rearrange", (expr,)) if isinstance(expr, GraphView) else expr
        view = expr if isinstance(expr, GraphView) else self._pattern_of(expr)
        if view is None:
            assert isinstance(other, GraphCall)
            children = tuple(self.term(own, part) for own, part in zip(call.arguments, other.arguments, strict=False))
            return self.bank.call(self._head(call, children, (), (), ()), children, shape)
        same = other if isinstance(other, GraphView) else other.arguments[0]
        assert isinstance(same, GraphView)
        source, target, sizes = self._pattern(view, self.shapes.value(same.operand))
        operand = (self.term(view.operand, same.operand),)
        return self.bank.call(self._head(call, operand, source, target, sizes), operand, shape)

    def _pattern_of(self, call: GraphCall) -> GraphView | None:
        """The view that names a call's axes. None if all axes are one group: the view is then an ordinary operand."""
        decl = declaration(call, self.library)
        found = call_pattern(call, decl)
        return None if call.name != "rearrange" and len(decl.inputs[0].dims) == 1 else found

    def _head(
        self, call: GraphCall, children: tuple[Term, ...], source: Axes, target: Axes, sizes: tuple[Poly, ...]
    ) -> Head:
        """The head of a call. An attribute that is the number of the last dimension is written as -1."""
        decl = declaration(call, self.library)
        if draws(decl):
            raise Unsupported("a random operator: every call draws numbers of its own")
        given: dict[str, Expr | None] = {
            one.name: None if one.default is None else Number(one.default) for one in decl.attributes
        }
        given |= dict(call.attributes)
        names = tuple(sorted(given))
        counting = {key for condition in decl.conditions if mentions_rank(condition) for key in keys(condition)}
        last = number(len(children[0].shape.dims) - 1) if children else None
        values = tuple(
            number(-1) if name in counting and value == last else value
            for name, value in ((name, self._value(given[name])) for name in names)
        )
        degrees = -1 if call.degrees is None else len(call.degrees)
        kind = (call.name, degrees, call.result, names, source, target)
        return Head(kind, call.degrees or (), values + sizes)

    def _value(self, expr: Expr | None) -> Poly:
        """An attribute as a polynomial. Raises Unsupported, also if it divides by a real number."""
        if expr is None:
            raise Unsupported("an attribute that is missing")
        return real_poly(substitute(expr, self.values), self.claim, self.reals)

    def _pattern(self, view: GraphView, shape: TensorShape) -> tuple[Axes, Axes, tuple[Poly, ...]]:
        """The axes of a view by number, and the sizes of axes that share a dimension with others."""
        numbers: dict[str, int] = {}
        sizes: list[Poly] = []
        if len(view.source) != len(shape.dims):
            raise Unsupported("a view of another rank")
        for names, factors in zip(view.source, shape.dims, strict=True):
            named = [name for name in names if isinstance(name, str)]
            if any(name != 1 for name in names if not isinstance(name, str)):
                raise Unsupported("a number in a view other than 1")
            for name in named:
                numbers[name] = len(numbers)
            if len(named) > 1:
                sizes += self._shares(named, factors)

        def numbered(side: tuple[tuple[str | int, ...], ...]) -> Axes:
            return tuple(tuple(numbers[name] for name in names if isinstance(name, str)) for names in side)

        return numbered(view.source), numbered(view.target), tuple(sizes)

    def _shares(self, names: list[str], factors: Factors) -> list[Poly]:
        """The sizes of the axes that share a dimension: its factors in order, else the named sizes and one computed
        from the others.
        """
        if len(names) == len(factors):
            return list(factors)
        symbols = {
            symbol
            for tensor in self.shapes.tensors.values()
            for dim in tensor.dims
            for part in dim
            for symbol in part.symbols()
        }
        known = {
            name: product(self.claim.factors(Name(name)))
            for name in names
            if name in symbols or name in self.claim.names
        }
        unknown = [name for name in names if name not in known]
        rest = share(product(known.values()), product(factors))
        if len(unknown) > 1 or rest is None or (not unknown and rest != ONE):
            raise Unsupported("a view whose axes are not determined")
        return [known.get(name, rest) for name in names]


def _shape(shape: TensorShape) -> Shape:
    return Shape(frozenset(shape.devices), tuple(map(product, shape.dims)), shape.bound)
