"""Prepares a proved rule for matching: its names and conditions, or the reason why it cannot be applied to models.

This module and all later steps assume that the rule is proved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache

from ..index.equations.term import substitute
from ..index.library import Library
from ..prove.decision.integer_arithmetic import Arithmetic
from ..prove.normal_form.form import Unsupported
from ..prove.normal_form.polynomial import Poly, product
from ..prove.refutation.numeric_run import witness_sizes
from ..prove.translation.real_attributes import determined_reals, real_names, with_reals
from ..prove.translation.real_conditions import drawn_reals, numbers_at, value_at
from ..prove.translation.rule_forms import (
    Graph,
    Ranks,
    Views,
    attribute_value,
    calls,
    claim_of,
    declaration,
    draws,
    expressions,
    input_dims,
    rest_groups,
    used_names,
    views,
)
from ..prove.translation.rule_results import by_results
from ..prove.translation.size_assumptions import Claim
from ..prove.translation.symbolic_sizes import Failed, exactly, valued
from ..syntax.ast import Expr, Name, OperatorDecl, ParallelDecl
from ..syntax.parse_rules import GraphCall, GraphExpr, GraphView, RuleDecl, RuleInput
from ..syntax.rule_names import names_in
from .match_numbers import Numbers, solve_numbers
from .match_sizes import solve_sizes

Settled = tuple[Ranks, Mapping[str, int], Numbers]
"""Ranks of rest groups, sizes and real numbers of a rule at a match."""


@dataclass(frozen=True, eq=False)
class Substitution:
    """A rule prepared for matching. `definitions` are its local names; those used on the left are part of the pattern.

    `reals` are names that stand for real numbers; equations give the values of those in `determined`. `operands` is the
    rule that reads them as tensors, with its library. `settled` caches the sizes of matches by their shapes and
    operators, since identical layers have the same sizes.
    """

    rule: RuleDecl
    claim: Claim
    library: Library
    reals: frozenset[str] = frozenset()
    determined: Mapping[str, Expr] = field(default_factory=dict)
    operands: tuple[RuleDecl, Library] | None = None
    settled: dict[tuple[object, ...], Settled | None] = field(default_factory=dict)
    _views: dict[tuple[tuple[str, int], ...], Views | None] = field(default_factory=dict)
    _names: dict[tuple[tuple[str, int], ...], tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def inputs(self) -> Mapping[str, RuleInput]:
        return {tensor.name: tensor for tensor in self.rule.inputs}

    @cached_property
    def definitions(self) -> Mapping[str, GraphExpr]:
        return dict(self.rule.definitions)

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """The names of its rest groups."""
        return rest_groups(self.rule)

    @cached_property
    def left(self) -> tuple[GraphExpr, ...]:
        """The left side with local names replaced by their definitions."""
        return tuple(self._resolved(expr) for expr in self.rule.left)

    def _resolved(self, expr: GraphExpr) -> GraphExpr:
        while isinstance(expr, Name) and expr.name in self.definitions:
            expr = self.definitions[expr.name]
        return expr

    @property
    def with_operands(self) -> tuple[RuleDecl, Library]:
        """The rule and library as used in its proof, with real numbers as tensors."""
        return self.operands or (self.rule, self.library)

    def is_real(self, expr: Expr) -> bool:
        """Whether an attribute depends on real numbers."""
        return bool(self.reals) and any(name.name in self.reals for name in names_in(expr))

    @cached_property
    def undetermined(self) -> str | None:
        """Why the left side does not determine all sizes, so that the rule applies to no model; None if it determines
        them.
        """
        bound = {expr.name for expr in _reached(self, self.rule.left) if isinstance(expr, Name)}
        try:
            return _why_undetermined(self, bound)
        except Unsupported as reason:
            return _no_method(reason)

    def names(self, ranks: Ranks) -> tuple[str, ...]:
        """The sizes of the rule that its conditions do not determine."""
        key = tuple(ranks.items())
        if key not in self._names:
            self._names[key] = used_names(self.with_operands[0], self.claim, ranks)
        return self._names[key]

    def views(self, ranks: Ranks) -> Views | None:
        """The axes named by its views, by `id` of the view; None if they are not determined."""
        key = tuple(ranks.items())
        if key not in self._views:
            self._views[key] = self._find_views(ranks)
        return self._views[key]

    def _find_views(self, ranks: Ranks) -> Views | None:
        if not any(isinstance(expr, GraphView) for expr in expressions(self.rule)):
            return {}
        witness = witness_sizes(self.claim, self.names(ranks), 0)
        if witness is None:
            return None
        arithmetic = Arithmetic(self.claim.conditions)
        rule, library = self.with_operands
        graph = Graph(rule, self.claim, library, ranks, witness, arithmetic, shapes=True)
        try:
            graph.sides()
        except (Failed, Unsupported):
            return None
        places = zip(views(self.rule), views(rule), strict=True)
        return {id(own): graph.views[id(view)] for own, view in places if id(view) in graph.views}


@lru_cache(maxsize=1024)
def substitution_of(rule: RuleDecl, library: Library) -> Substitution | str:
    """The rule prepared for matching, or the reason why it applies to no model; cached by rule.

    Raises InputError for unknown operators.
    """
    found = outlined(rule, library)
    return found if isinstance(found, str) else found.undetermined or found


@lru_cache(maxsize=1024)
def outlined(rule: RuleDecl, library: Library) -> Substitution | str:
    """Like `substitution_of`, without the check that the left side determines all sizes, which takes the longest."""
    try:
        found = prepared(rule, library)
        return _why_not(found) or found
    except Unsupported as reason:
        return _no_method(reason)


def _no_method(reason: Unsupported) -> str:
    return f"no method for {reason}"


def prepared(rule: RuleDecl, library: Library) -> Substitution:
    """The rule prepared for matching, whether or not it applies to models. Raises Unsupported and InputError."""
    rule = by_results(rule, library)
    operands = with_reals(rule, library)
    reals, values = frozenset(real_names(rule, library)), determined_reals(rule, library)
    return Substitution(rule, claim_of(operands[0]), library, reals, values, operands)


def _why_not(found: Substitution) -> str | None:
    rule = found.rule
    decls = [declaration(call, found.library) for call in calls(rule)]
    parallel = any(isinstance(decl, ParallelDecl) for decl in decls)
    if parallel or any(dim.device for tensor in rule.inputs for dim in tensor.dims):
        return "it speaks of devices: the search divides every operator by itself"
    if any(draws(decl) for decl in decls):
        return "it has a random operator, whose numbers belong to one place of the model"
    if any(isinstance(decl, OperatorDecl) and decl.evaluation for decl in decls):
        return "it has an operator that computes something else in evaluation, of which its proof says nothing"
    for expr in found.left:
        if isinstance(expr, Name):
            return f"`{expr.name}` alone on the left stands for any tensor"
    bound = {expr.name for expr in _reached(found, rule.left) if isinstance(expr, Name)}
    for expr in _reached(found, rule.right):
        if isinstance(expr, Name) and expr.name in found.inputs and expr.name not in bound:
            return f"its left side does not read `{expr.name}`"
    return None


def _reached(found: Substitution, side: tuple[GraphExpr, ...]) -> Iterator[GraphExpr]:
    """Every expression of a side, definitions of local names included."""
    pending, seen = list(side), set[str]()
    while pending:
        expr = pending.pop()
        yield expr
        match expr:
            case Name(name) if name in found.definitions and name not in seen:
                seen.add(name)
                pending.append(found.definitions[name])
            case GraphCall(arguments=arguments):
                pending += arguments
            case GraphView(operand=operand):
                pending.append(operand)


def _why_undetermined(found: Substitution, bound: set[str]) -> str | None:
    """Why the left side does not determine all sizes, tested on one instance; None if it does."""
    ranks = dict.fromkeys(found.groups, 1)
    names = found.names(ranks)
    witness = witness_sizes(found.claim, names, 0)
    views = found.views(ranks)
    if witness is None or views is None:
        return "the shapes of its tensors cannot be worked out"
    told = [size for size in _sizes_on_the_left(found, ranks, views, bound) if _is_integral(size, witness)]
    known = solve_sizes((size, valued(size, witness)) for size in told) or {}
    missing = [name for name in names if name not in known]
    if missing:
        return f"nothing on its left determines the size `{missing[0]}`"
    return _why_numbers_open(found, witness)


def _why_numbers_open(found: Substitution, witness: Mapping[str, int]) -> str | None:
    """Why the left side's attributes do not determine all real numbers, tested on one draw of them; None if they do."""
    free = sorted(found.claim.reals)
    drawn = drawn_reals(found.claim, free, witness, 0)
    if drawn is None:
        return "no numbers are found that meet its conditions"
    sizes = numbers_at(found.claim, witness, {})
    numbers = {**sizes, **{name: Fraction(value) for name, value in drawn.items()}}
    told = []
    for expr in _reached(found, found.rule.left):
        for _, value in expr.attributes if isinstance(expr, GraphCall) else ():
            if found.is_real(value):
                written = substitute(value, found.determined)
                with suppress(ZeroDivisionError):
                    told.append((written, value_at(written, numbers)))
    known = solve_numbers(told, sizes) or {}
    missing = [name for name in free if name not in known]
    return f"nothing on its left determines the number `{missing[0]}`" if missing else None


def _sizes_on_the_left(found: Substitution, ranks: Ranks, views: Views, bound: set[str]) -> Iterator[Poly]:
    """The polynomials in sizes whose values a match of the left side determines."""
    for tensor in found.rule.inputs:
        if tensor.name in bound:
            yield from (product(factors) for factors in input_dims(tensor, found.claim, ranks))
            if tensor.integer_range is not None:
                yield found.claim.size(tensor.integer_range)
    for expr in _reached(found, found.rule.left):
        if isinstance(expr, GraphCall):
            given = (value for _, value in expr.attributes if not found.is_real(value))
            yield from (attribute_value(value, found.claim) for value in given)
        elif isinstance(expr, GraphView):
            yield from (product(factors) for factors in views[id(expr)].values())


def _is_integral(size: Poly, sizes: Mapping[str, int]) -> bool:
    """Whether a size is an integer at these numbers; a rounded `factor=1 / k`, for example, determines no k."""
    return exactly(size, sizes).denominator == 1
