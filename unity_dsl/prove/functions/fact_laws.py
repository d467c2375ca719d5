"""Sorts declared facts into rewrite rules, sign facts, square laws and exponentials.

    f(a + b) == f(a) * f(b), f(a) > 0      f is an exponential: a function of a sum is a product of powers
    f(a + b) == R, R of f and others       addition theorem: rewrites f of a sum, term by term
    f(P, …) == R where C                   rewrite rule f(P, …) -> R
    f(P) * f(P) == R where C               rewrite rule for the square
    f(P) > 0 where C, or >= 0              the sign of f
    f(a) >= f(b) where a >= b, C           f does not decrease where C holds of its arguments

P is a pattern of names, numbers, `-P`, `P * P`, `1 / P` and primitives. A fact is applied where its conditions are
known to hold, so its right side has the same value wherever the left side has one. Definedness of a whole side is a
separate obligation (definedness.py). A fact of any other form is not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, lru_cache

from ...index.equations.term import free_axes, walk
from ...index.gradients.surrogates import surrogate_functions
from ...index.library import LIBRARIES, Library
from ...syntax.ast import Apply, Expr, FactDecl, FunctionDecl, Name, Number

SETS = {"np.maximum": "maximum", "np.minimum": "minimum"}
"""Native functions of the primitives that the prover takes for maxima and minima of sets."""


class Use(StrEnum):
    """The role of a fact in the prover."""

    EXPONENTIAL = "exponential"
    ADDITION = "addition"
    REWRITE = "rewrite"
    SQUARE = "square"
    SIGN = "sign"
    MONOTONE = "monotone"


@dataclass(frozen=True)
class Law:
    """A fact oriented as a rewrite rule: patterns of the function's arguments -> `right`."""

    arguments: tuple[Expr, ...]
    right: Expr
    fact: FactDecl

    @property
    def is_strict(self) -> bool:
        """Whether a sign fact states > 0 rather than >= 0."""
        bound = self.fact.claim.arguments[1]
        return self.fact.claim.function == ">" or (isinstance(bound, Number) and bound.value > 0)

    @property
    def names(self) -> tuple[str, ...]:
        """The names in the arguments of both sides."""
        return free_axes(self.fact.claim)

    @property
    def others(self) -> tuple[Apply, ...]:
        """The conditions of a monotone function other than that its arguments are in order."""
        return tuple(condition for condition in self.fact.conditions if not _orders(condition, *self.names))


Pair = tuple[FunctionDecl, FactDecl]


@dataclass(frozen=True)
class Laws:
    """The laws by name of primitive. An exponential has two facts: its homomorphism law and its positivity.

    `symbols` are functions left uninterpreted although they have a definition.
    """

    functions: Mapping[str, FunctionDecl]
    exponentials: Mapping[str, tuple[FactDecl, FactDecl]]
    additions: Mapping[str, tuple[Law, ...]]
    rewrites: Mapping[str, tuple[Law, ...]]
    squares: Mapping[str, tuple[Law, ...]]
    signs: Mapping[str, tuple[Law, ...]]
    monotone: Mapping[str, tuple[Law, ...]] = field(default_factory=dict)
    symbols: frozenset[str] = frozenset()

    @cached_property
    def opaque(self) -> Laws:
        """The same laws with each function that has a definition left uninterpreted."""
        defined = [name for name, decl in self.functions.items() if decl.definition is not None]
        symbols = _symbols(self.functions, defined)
        return replace(self, functions={**self.functions, **symbols}, symbols=frozenset(symbols))

    @cached_property
    def powers(self) -> frozenset[str]:
        """The atoms of exponentials, which may have negative powers."""
        return frozenset(f"fn {name}" for name in self.exponentials)


@lru_cache(maxsize=LIBRARIES)
def laws_of(library: Library) -> Laws:
    """The laws of all facts of a library that have a use.

    A function with a surrogate gradient is left uninterpreted: equal terms then have equal gradients too, whatever the
    surrogate is.
    """
    functions = {**library.functions, **_symbols(library.functions, surrogate_functions(library))}
    pairs = [(function, fact) for function in functions.values() for fact in function.facts]
    return laws_from(pairs, functions)


def _symbols(functions: Mapping[str, FunctionDecl], names: Iterable[str]) -> dict[str, FunctionDecl]:
    """These functions without definitions, native calls and facts: only their names are known."""
    return {name: replace(functions[name], definition=None, numpy=None, facts=()) for name in names}


def laws_from(pairs: Iterable[Pair], functions: Mapping[str, FunctionDecl]) -> Laws:
    """The laws of those among these facts that have a use."""
    found: dict[Use, dict[str, tuple[Law, ...]]] = {use: {} for use in Use}
    for function, fact in pairs:
        use = use_of(function, fact, functions)
        if use is not None:
            name, law = _law(use, fact)
            found[use][name] = (*found[use].get(name, ()), law)
    exponentials = {}
    for name, (law, *_) in found[Use.EXPONENTIAL].items():
        positive = next(filter(_always_positive, found[Use.SIGN].get(name, ())), None)
        if positive is not None:
            exponentials[name] = (law.fact, positive.fact)
    additions, rewrites, squares, signs = (found[use] for use in (Use.ADDITION, Use.REWRITE, Use.SQUARE, Use.SIGN))
    return Laws(functions, exponentials, additions, rewrites, squares, signs, found[Use.MONOTONE])


def _law(use: Use, fact: FactDecl) -> tuple[str, Law]:
    left, right = fact.claim.arguments
    if use is Use.SQUARE and isinstance(left, Apply):
        left = left.arguments[0]
    assert isinstance(left, Apply)
    return left.function, Law(left.arguments, right, fact)


def _always_positive(law: Law) -> bool:
    (argument, *others) = law.arguments
    return law.fact.claim.function == ">" and not law.fact.conditions and isinstance(argument, Name) and not others


def use_of(function: FunctionDecl, fact: FactDecl, functions: Mapping[str, FunctionDecl]) -> Use | None:
    """The role of a fact, None for no use. Facts of functions with definitions are theorems and need none."""
    if function.definition is not None or _is_set(function):
        return None
    left, right = fact.claim.arguments
    if fact.claim.function != "==":
        if _is_monotone(fact, function):
            return Use.MONOTONE
        signed = fact.claim.function in (">", ">=") and isinstance(right, Number) and right.value >= 0
        return Use.SIGN if signed and _is_head(left, function, functions) else None
    if not fact.conditions and _is_exponential(fact, function):
        return Use.EXPONENTIAL
    if not set(free_axes(right)) <= set(free_axes(left)):
        return None
    if not fact.conditions and _is_addition(fact, function):
        return Use.ADDITION
    if _is_head(left, function, functions):
        return None if _is_endless(left, right) else Use.REWRITE
    match left:
        case Apply("*", (first, second)) if first == second and _is_head(first, function, functions):
            return Use.SQUARE
    return None


def _is_endless(left: Expr, right: Expr) -> bool:
    """Whether the right side contains the function again, so that rewriting need not terminate.

    Other loops meet the step limit.
    """
    assert isinstance(left, Apply)
    general = all(isinstance(argument, Name) for argument in left.arguments)
    return general and any(isinstance(node, Apply) and node.function == left.function for node in walk(right))


def _is_exponential(fact: FactDecl, function: FunctionDecl) -> bool:
    match fact.claim.arguments:
        case (Apply(name, (Apply("+", (Name(a), Name(b))),)), right) if name == function.name and a != b:
            return right == Apply("*", (Apply(name, (Name(a),)), Apply(name, (Name(b),))))
    return False


def _is_addition(fact: FactDecl, function: FunctionDecl) -> bool:
    """Whether a fact is f(a + b) == R, with f in R applied to a and to b alone, which terminates."""
    match fact.claim.arguments:
        case (Apply(name, (Apply("+", (Name(a), Name(b))),)), right) if name == function.name and a != b:
            within = [node for node in walk(right) if isinstance(node, Apply) and node.function == name]
            return all(isinstance(argument, Name) for node in within for argument in node.arguments)
    return False


def _is_monotone(fact: FactDecl, function: FunctionDecl) -> bool:
    """Whether a fact is f(a) >= f(b), or >, where a >= b, or >."""
    match fact.claim:
        case Apply(">=" | ">", (Apply(first, (Name(a),)), Apply(second, (Name(b),)))) if first == second and a != b:
            return first == function.name and any(_orders(condition, a, b) for condition in fact.conditions)
    return False


def _orders(condition: Apply, greater: str, less: str) -> bool:
    """Whether a condition is that one name is at least, or greater than, the other."""
    return condition.function in (">=", ">") and condition.arguments == (Name(greater), Name(less))


def _is_set(function: FunctionDecl) -> bool:
    return function.numpy is not None and function.numpy.function in SETS


def _is_head(expr: Expr, function: FunctionDecl, functions: Mapping[str, FunctionDecl]) -> bool:
    """Whether an expression is the function applied to patterns."""
    if not (isinstance(expr, Apply) and expr.function == function.name):
        return False
    return all(_is_pattern(argument, functions) for argument in expr.arguments)


def _is_pattern(expr: Expr, functions: Mapping[str, FunctionDecl]) -> bool:
    match expr:
        case Name() | Number():
            return True
        case Apply("neg", (part,)) | Apply("/", (Number(1), part)):
            return _is_pattern(part, functions) and not isinstance(part, Number)
        case Apply("*", (first, second)):
            return all(_is_pattern(part, functions) and not isinstance(part, Number) for part in (first, second))
        case Apply(name, arguments) if name in functions:
            primitive = functions[name].definition is None and not _is_set(functions[name])
            return primitive and all(_is_pattern(argument, functions) for argument in arguments)
    return False
