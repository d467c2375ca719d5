"""Applies scalar functions to normal forms: exponentials, quotients, maxima, comparisons, rewriting by facts.

Built in, beside the declared facts (fact_laws.py):

    max and min are sets (extrema.py); 1 / (a b) = (1 / a) (1 / b); a × (1 / a) = 1 where a is known to be nonzero
    f(a + b) = f(a) f(b), f(n t) = f(t) ** n, 1 / f(a) = f(-a) for exponentials f
    a comparison is 1 or 0 where the sign of the difference is known

Facts are applied while a form is built (eager conditional rewriting), where signs.py discharges their conditions; they
hold for real numbers, not for infinities. Termination: the number of applications and their nesting are limited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import inf, isfinite, isinf

from ...index.equations.term import COMPARISONS
from ...syntax.ast import Apply, Expr, FactDecl, FunctionDecl, Name, Number, Select
from ...syntax.rational import Rational, exact_number
from ..decision.extended_reals import BOTTOM, TOP, absorbed, at_infinity, bracketed, infinite_product, is_exact
from ..decision.integer_arithmetic import Arithmetic
from ..decision.signs import Sign, Signs, put_in_set
from ..equality.form_equality import Comparison
from ..normal_form.case_split import split, split_given
from ..normal_form.common_factors import common_coefficient, common_factors, divided, numerators
from ..normal_form.form import (
    ABOVE,
    ZERO,
    Atom,
    Extremum,
    Family,
    Form,
    Function,
    Term,
    Unsupported,
    add,
    atom,
    constant,
    extremum_atom,
    function,
    infinities,
    is_finite,
    refresh,
    scale,
)
from ..normal_form.form_products import distributes, multiply, summed
from ..normal_form.guard import Guard
from ..normal_form.polynomial import ONE, Var, number
from .addition_theorems import expanded_sums
from .definedness import Applications, Partial, has_value, native
from .extrema import Sets
from .fact_laws import SETS, Law, Laws
from .fact_patterns import Values, matches
from .monotone_maxima import monotone_maximum
from .power_products import reduced_products

MAX_POWER = 16
MAX_FACTS = 4_000
MAX_NESTED = 24
MAX_SUMMANDS = 4
"""Addition theorems do not expand longer sums: n summands become 2 ** (n - 1) products."""


class Functions:
    """The element functions of a library as operations on forms. `used` collects the facts applied.

    `elements` are assumed signs of tensors. `symbolic`: a function with a definition was left uninterpreted.
    """

    def __init__(self, laws: Laws, arithmetic: Arithmetic, elements: Mapping[str, Sign] | None = None) -> None:
        self.laws = laws
        self.arithmetic = arithmetic
        self.signs = Signs(arithmetic, self._sign, elements or {})
        self.sets = Sets(self.signs, laws.powers, partial(monotone_maximum, self))
        self.used: dict[int, FactDecl] = {}
        self.applications = Applications()
        self.passed: Mapping[str, list[Partial]] = {}
        self.symbolic = False
        self._left = MAX_FACTS
        self._nested = 0

    # ------------------------------------------------------------------------------------------ expressions

    def value(self, expr: Expr, names: Values) -> Form:
        """The form of an expression of element functions, with names bound to forms. Raises Unsupported."""
        match expr:
            case Number(value):
                return literal(value)
            case Name(name):
                if self.applications.followed:
                    self.applications.met += self.passed.get(name, ())
                return refresh(names[name])
            case Apply(sign, (left, right)) if sign in COMPARISONS:
                with self.applications.apart() as met:
                    sides = self.value(left, names), self.value(right, names)
                return self.step(sign, *sides, met)
            case Apply(name, arguments):
                return self.call(name, [partial(self.value, argument, names) for argument in arguments])
            case Select(condition, then, otherwise):
                decided = self.value(condition, names)
                with self.applications.inside("then", decided):
                    first = self.value(then, names)
                with self.applications.inside("otherwise", decided):
                    return self.select(decided, first, self.value(otherwise, names))
        raise Unsupported(f"{type(expr).__name__} in the definition of a function")

    def call(self, name: str, arguments: Sequence[Callable[[], Form]]) -> Form:
        """Arithmetic or a declared function of lazily evaluated arguments. Raises Unsupported.

        Partial applications of an argument are recorded where the definition mentions its parameter, for example in a
        comparison.
        """
        decl = self.laws.functions.get(name)
        self.symbolic = self.symbolic or name in self.laws.symbols
        if decl is None or decl.definition is None:
            return self.apply(name, [argument() for argument in arguments])
        values, passed = {}, {}
        for parameter, argument in zip(decl.parameters, arguments, strict=True):
            with self.applications.apart() as passed[parameter]:
                values[parameter] = argument()
        with self._passing(passed):
            return self.value(decl.definition, values)

    @contextmanager
    def _passing(self, passed: Mapping[str, list[Partial]]) -> Iterator[None]:
        """Inside, each use of a parameter of a definition records these partial applications of its argument."""
        before, self.passed = self.passed, passed
        try:
            yield
        finally:
            self.passed = before

    def apply(self, name: str, values: list[Form]) -> Form:
        """Arithmetic or an element function of forms. Raises Unsupported."""
        match name:
            case "+":
                return self._sum(*values)
            case "-":
                return self._sum(values[0], scale(values[1], number(-1)))
            case "neg":
                return scale(values[0], number(-1))
            case "*":
                return self.product(*values)
            case "/":
                inverse = self.inverse(values[1])
                self.applications.divide(values[1], self.signs, self.laws.powers)
                return self.product(values[0], inverse)
        if name not in self.laws.functions:
            raise Unsupported(f"`{name}` of numbers that are not whole")
        return self._call(self.laws.functions[name], values)

    def _call(self, decl: FunctionDecl, values: list[Form]) -> Form:
        """An element function: its definition inlined, or a primitive."""
        if decl.definition is not None:
            with self._passing({}):
                return self.value(decl.definition, dict(zip(decl.parameters, values, strict=True)))
        kind = set_of(decl)
        if kind is not None:
            families = [Family((), (), value) for value in values]
            return self.sets.greatest(families) if kind == "maximum" else self.sets.least(families)
        if decl.name in self.laws.exponentials:
            found = split_given(tuple(values), lambda parts, given: self._exponential(decl, parts[0], given))
            self.applications.call(decl, values)
            return found
        found = split(tuple(values), lambda parts: self._primitive(decl.name, parts))
        self.applications.call(decl, values)
        return found

    def reduced(self, kind: str, value: Form, bound: tuple[Var, ...]) -> Form:
        """`max(bound) value` or `min(bound) value`."""
        family = Family(bound, (), value)
        return self.sets.greatest([family]) if kind == "max" else self.sets.least([family])

    def summed(self, value: Form, bound: tuple[Var, ...]) -> Form:
        """`sum(bound) value`."""
        found = summed(value, bound)
        self.applications.sum(found)
        return found

    def step(self, sign: str, left: Form, right: Form, met: Sequence[Partial] = ()) -> Form:
        """A comparison as a form worth 1 or 0; between finite sides a function of the difference.

        `met` are the partial applications of its sides.
        """
        within = self._where_defined(met)
        if sign == "!=":
            return add(constant(ONE), scale(self._compared("==", left, right, within), number(-1)))
        if sign in ("<", "<="):
            return self._compared({"<": ">", "<=": ">="}[sign], right, left, within)
        return self._compared(sign, left, right, within)

    def _where_defined(self, met: Sequence[Partial]) -> tuple[Form, ...]:
        """The partial applications that are not known to have a value, as one set; () where there are none."""
        known = (has_value(part.function, self.signs, self.laws.functions) for part in met)
        open_parts = [part.family for part, has in zip(met, known, strict=True) if not has]
        return (atom(extremum_atom(open_parts)),) if open_parts else ()

    def _compared(self, sign: str, left: Form, right: Form, within: tuple[Form, ...]) -> Form:
        return split((left, right), lambda parts: self._compared_case(sign, *parts, within=within))

    def _compared_case(self, sign: str, left: Form, right: Form, *, within: tuple[Form, ...]) -> Form:
        """`>`, `>=` or `==` without cases: a function of the difference of finite, defined sides, else of both sides.

        Sides that may have no value are not subtracted: at a pole a program may compute an infinity.
        """
        names = {">": "positive", ">=": "not_negative", "==": "zero"}
        if not within and is_finite(left) and is_finite(right):
            return self._decided(names[sign], add(left, scale(right, number(-1))))
        exact = is_exact(left), is_exact(right)
        if not within and all(is_finite(side) or is_exact(side) for side in (left, right)):
            holds = {">": exact[0] > exact[1], ">=": exact[0] >= exact[1], "==": exact[0] == exact[1]}
            return constant(ONE) if holds[sign] else ZERO
        return atom(function(f"compare {sign}", [left, right, *within]))

    def _decided(self, name: str, difference: Form) -> Form:
        above, below = self.signs.form(difference), self.signs.form(scale(difference, number(-1)))
        holds = {"positive": above is Sign.POSITIVE, "not_negative": above is not Sign.UNKNOWN, "zero": not difference}
        fails = {
            "positive": below is not Sign.UNKNOWN,
            "not_negative": below is Sign.POSITIVE,
            "zero": Sign.POSITIVE in (above, below),
        }
        if holds[name]:
            return constant(ONE)
        return ZERO if fails[name] else atom(function(name, [difference]))

    def select(self, condition: Form, then: Form, otherwise: Form) -> Form:
        return split((condition, then, otherwise), lambda parts: atom(function("select", parts)))

    # ------------------------------------------------------------------------------------------ facts

    def _primitive(self, name: str, parts: tuple[Form, ...]) -> Form:
        found = self._rewritten(name, parts)
        found = self._of_sum(name, parts) if found is None else found
        if found is not None:
            return found
        limit = self._limit(self.laws.functions[name], parts)
        return atom(function(f"fn {name}", parts)) if limit is None else limit

    def _limit(self, decl: FunctionDecl, parts: tuple[Form, ...]) -> Form | None:
        """The value of a unary primitive at an infinite argument, if the value is an integer or infinite; else None."""
        value = at_infinity(decl, is_exact(parts[0])) if len(parts) == 1 and is_exact(parts[0]) else None
        plain = value is not None and (isinf(value) or value == int(value))
        return literal(value if isinf(value) else int(value)) if plain and value is not None else None

    def expanded(self, form: Form) -> Form:
        """The form with addition theorems applied again, after a substitution has introduced sums of indices."""
        return expanded_sums(form, self.laws.additions, self._of_sum, self.product)

    def _of_sum(self, name: str, parts: tuple[Form, ...]) -> Form | None:
        """The right side of an addition theorem, sin(a + b) = sin(a) cos(b) + cos(a) sin(b).

        None where none applies.
        """
        laws = self.laws.additions.get(name, ())
        if not laws or not 1 < len(parts[0]) <= MAX_SUMMANDS or not is_finite(parts[0]):
            return None
        law = laws[0]
        ((first, second),) = (argument.arguments for argument in law.arguments if isinstance(argument, Apply))
        assert isinstance(first, Name) and isinstance(second, Name)
        return self._put_in(law, {first.name: parts[0][:1], second.name: parts[0][1:]})

    def _rewritten(self, name: str, parts: tuple[Form, ...]) -> Form | None:
        """The right side of the first rewrite rule that matches an application, else None."""
        if not all(map(is_finite, parts)):
            return None
        return self._by(self.laws.rewrites.get(name, ()), parts)

    def _by(self, laws: tuple[Law, ...], parts: tuple[Form, ...]) -> Form | None:
        for law in laws:
            for names in matches(law.arguments, parts, self.laws, {}):
                if _are_numbers(names) and self._holds(law.fact, names):
                    return self._put_in(law, names)
        return None

    def _put_in(self, law: Law, names: Values) -> Form:
        self._use(law.fact)
        self._left -= 1
        if self._left < 0 or self._nested > MAX_NESTED:
            raise Unsupported("facts of functions that do not come to an end")
        self._nested += 1
        try:
            with self.applications.unfollowed(), self._passing({}):
                return self.value(law.right, names)
        finally:
            self._nested -= 1

    def _use(self, *facts: FactDecl) -> None:
        self.used |= {id(fact): fact for fact in facts}

    def _holds(self, fact: FactDecl, names: Values) -> bool:
        return all(self.meets(condition, names) for condition in fact.conditions)

    def meets(self, condition: Apply, names: Values) -> bool:
        """Whether a comparison of two expressions is known to hold wherever both have a value."""
        with self.applications.unfollowed():
            left, right = (self.value(part, names) for part in condition.arguments)
        difference = add(left, scale(right, number(-1)))
        match condition.function:
            case ">":
                return self.signs.form(difference) is Sign.POSITIVE
            case ">=":
                return self.signs.form(difference) is not Sign.UNKNOWN
            case "<":
                return self.signs.form(scale(difference, number(-1))) is Sign.POSITIVE
            case "<=":
                return self.signs.form(scale(difference, number(-1))) is not Sign.UNKNOWN
            case "!=":
                return self.signs.nonzero(difference)
        return not difference

    def _sign(self, factor: Function) -> Sign:
        """The sign of a function application, by its sign facts."""
        name = factor.name.removeprefix("fn ")
        if name == factor.name:
            return self._built_in_sign(factor)
        if not all(map(is_finite, factor.arguments)):
            return Sign.UNKNOWN
        if factor.name in self.laws.powers:
            self._use(*self.laws.exponentials[name])
            return Sign.POSITIVE
        found = Sign.UNKNOWN
        parts = tuple(map(refresh, factor.arguments))
        for law in self.laws.signs.get(name, ()):
            known = Sign.POSITIVE if law.is_strict else Sign.NOT_NEGATIVE
            if known > found and any(
                _are_numbers(names) and self._holds(law.fact, names)
                for names in matches(law.arguments, parts, self.laws, {})
            ):
                self._use(law.fact)
                found = known
        return found

    def _built_in_sign(self, factor: Function) -> Sign:
        match factor.name:
            case "inv":
                # Where 1 / a has a value, a is nonzero.
                return Sign.POSITIVE if self.signs.form(factor.arguments[0]) is not Sign.UNKNOWN else Sign.UNKNOWN
            case "positive" | "not_negative" | "zero" | "compare >" | "compare >=" | "compare ==":
                return Sign.NOT_NEGATIVE
            case "select":
                return min(self.signs.form(part) for part in factor.arguments[1:])
        return Sign.UNKNOWN

    # ------------------------------------------------------------------------------------------ exponentials

    def _exponential(self, decl: FunctionDecl, form: Form, given: tuple[Guard, ...]) -> Form:
        """f(sum of n t) = product of f(t) ** n, for a finite sum."""
        name = decl.name
        if not is_finite(form):
            limit = self._limit(decl, (form,))
            finite = limit is None and self._stays_finite(decl, form, given)
            return atom(function(f"fn {name}", [form], finite)) if limit is None else limit
        self._use(*self.laws.exponentials[name])
        result = constant(ONE)
        for term in form:
            base, power = _exponent(term)
            known = self._rewritten(name, ((base,),))
            if known is None:
                result = multiply(result, (Term(ONE, factors=((function(f"fn {name}", [(base,)]), power),)),))
                continue
            for _ in range(abs(power)):
                result = self.product(result, known if power > 0 else self.inverse(known))
        return result

    def _stays_finite(self, decl: FunctionDecl, form: Form, given: tuple[Guard, ...]) -> bool:
        """Whether an exponential is finite wherever its argument has a value."""
        signs = infinities(form)
        if all(isfinite(at_infinity(decl, sign) or 0) for sign in signs - ABOVE):
            return 1 not in signs or self._at_most_zero(form, given)
        return False

    def _at_most_zero(self, form: Form, given: tuple[Guard, ...]) -> bool:
        """Whether a form is c a - c max(A) for a member a of A, hence <= 0 wherever it has a value."""
        for position, term in enumerate(form):
            greatest = replace(term, coefficient=-term.coefficient)
            inner = self.signs.set_in(greatest)
            if inner is not None:
                member = Family((), (), form[:position] + form[position + 1 :])
                return Comparison(self.arithmetic).member(put_in_set((greatest,), 0, inner), member, given)
        return False

    # ------------------------------------------------------------------------------------------ sums, products, 1 / x

    def _sum(self, left: Form, right: Form) -> Form:
        total = add(left, right)
        if is_finite(left) and is_finite(right):
            return total
        self.applications.add(left, right)
        return total if len(total) < 2 else split((total,), lambda parts: absorbed(parts[0]))

    def product(self, left: Form, right: Form) -> Form:
        """The product, reduced by square laws and a × (1 / a) = 1."""
        if is_finite(left) and is_finite(right):
            return reduced_products(multiply(left, right), self.signs, self._square)
        self.applications.multiply(left, right, self.signs)
        return split((left, right), lambda parts: self._product_of_infinite(*parts))

    def _product_of_infinite(self, left: Form, right: Form) -> Form:
        """c (A + B) = c A + c B where it applies; otherwise sums become atoms named `sum`."""
        if is_finite(left) and is_finite(right):
            return self.product(left, right)
        known = infinite_product(left, right, self.signs)
        if known is None and not distributes(left, right):
            left, right = bracketed(left), bracketed(right)
        return absorbed(multiply(left, right)) if known is None else known

    def _square(self, factor: Atom) -> Form | None:
        """The square of an atom: max(a, 0)² = a max(a, 0), or a square law, also of 1 / f(x); None without one."""
        if isinstance(factor, Extremum):
            bare = len(factor.families) == 2 and not any(f.bound or f.guards for f in factor.families)
            zero = ZERO in [family.value for family in factor.families]
            values = [refresh(family.value) for family in factor.families if family.value]
            return multiply(values[0], atom(factor)) if bare and zero and values and not factor.infinities else None
        if not isinstance(factor, Function):
            return None
        if factor.name == "inv":
            root = _only(factor.arguments[0])
            square = None if root is None else self._square(root)
            return None if square is None else self.inverse(square)
        laws = self.laws.squares.get(factor.name.removeprefix("fn "), ())
        if not laws or not factor.name.startswith("fn ") or not all(map(is_finite, factor.arguments)):
            return None
        return self._by(laws, tuple(map(refresh, factor.arguments)))

    def inverse(self, form: Form) -> Form:
        """1 / form. Raises Unsupported for 1 / 0."""
        return split((form,), lambda parts: self._inverse(parts[0]))

    def _inverse(self, form: Form) -> Form:
        """1 / form, with the common factors without bound indices inverted separately."""
        if not form:
            raise Unsupported("a division by zero")
        if not is_finite(form):
            return ZERO if is_exact(form) else atom(function("inv", [form]))
        for denominator, numerator in numerators(form) if len(form) > 1 else ():
            if self.signs.nonzero(denominator):
                return self.product(denominator, self.inverse(numerator))
        shared = common_factors(form, self.laws.powers)
        guarded = any(term.guards for term in form)
        coefficient = ONE if guarded else common_coefficient(form)
        inverse = coefficient.inverse()
        rest = divided(form, ONE if inverse is None else coefficient, shared)
        result = constant(ONE if inverse is None else inverse)
        for factor, power in shared.items():
            result = multiply(result, self._inverse_power(factor, power))
        if rest == constant(ONE):
            return result
        return multiply(result, atom(function("inv", [rest])))

    def _inverse_power(self, factor: Atom, power: int) -> Form:
        if isinstance(factor, Function) and factor.name in self.laws.powers:
            return (Term(ONE, factors=((factor, -power),)),)
        if isinstance(factor, Function) and factor.name == "inv" and self.signs.nonzero(factor.arguments[0]):
            result = constant(ONE)
            for _ in range(power):
                result = self.product(result, refresh(factor.arguments[0]))
            return result
        return (Term(ONE, factors=((function("inv", [atom(factor)]), power),)),)


def set_of(decl: FunctionDecl) -> str | None:
    """`maximum` or `minimum` for a primitive that the prover treats as that of a set, else None."""
    return SETS.get(native(decl) or "")


def _only(form: Form) -> Atom | None:
    """The atom that a form consists of, else None."""
    if len(form) != 1:
        return None
    (term,) = form
    plain = term.coefficient == ONE and not term.bound and not term.guards and len(term.factors) == 1
    return term.factors[0][0] if plain and term.factors[0][1] == 1 else None


def _are_numbers(names: Values) -> bool:
    """Whether the names of a fact are bound to finite forms, for which facts are stated."""
    return all(map(is_finite, names.values()))


def _exponent(term: Term) -> tuple[Term, int]:
    """exp(term) as exp(base) ** power: the coefficient's numerator if that is at most `MAX_POWER`, else its sign."""
    if len(term.coefficient.terms) != 1:
        return term, 1
    ((monomial, factor),) = term.coefficient.terms
    power = factor.numerator if abs(factor.numerator) <= MAX_POWER else (1 if factor > 0 else -1)
    base = replace(term.coefficient, terms=((monomial, factor / power),))
    return replace(term, coefficient=base), power


def literal(value: Rational) -> Form:
    """A number as a form; infinity is an atom."""
    if value in (inf, -inf):
        return TOP if value > 0 else BOTTOM
    return constant(number(exact_number(value))) if value else ZERO
