"""Conditions on the real numbers of a rule: as assumptions of the prover, and evaluated at numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from random import Random

from ...index.equations.term import COMPARISONS, walk
from ...index.equations.term_text import condition_text
from ...syntax.ast import Apply, Expr, Name, Number
from ...syntax.rational import exact_number
from ..conditional.assumed_signs import AssumingFunctions, Assumption, Known
from ..decision.signs import Sign
from ..functions.fact_patterns import Values
from ..functions.scalar_functions import Functions
from ..normal_form.form import Element, Family, Form, Unsupported, add, atom, constant, scale
from ..normal_form.polynomial import number
from .size_assumptions import Claim
from .symbolic_sizes import Failed, exactly

ASSUMED = {">": (1, Known.POSITIVE), ">=": (1, Known.NOT_NEGATIVE), "<": (-1, Known.POSITIVE)} | {
    "<=": (-1, Known.NOT_NEGATIVE),
    "!=": (1, Known.NONZERO),
}
"""The sign assumption of a comparison: a factor, and what is known of factor * (left - right)."""


def assuming(functions: Functions, claim: Claim) -> Functions:
    """The element functions under the claim's conditions on real numbers."""
    if not claim.real_conditions:
        return functions
    found = [one for condition in claim.real_conditions for one in _assumptions(condition, functions, claim)]
    return AssumingFunctions(functions, (), found)


def _assumptions(condition: Apply, functions: Functions, claim: Claim) -> Iterator[Assumption]:
    """The sign assumptions of a condition. Its divisors are nonzero; an equation is two inequalities."""
    divisors = [node.arguments[1] for node in walk(condition) if isinstance(node, Apply) and node.function == "/"]
    for divisor in divisors:
        yield Assumption(Family((), (), _form(divisor, functions, claim)), Known.NONZERO)
    left, right = (_form(side, functions, claim) for side in condition.arguments)
    difference = add(left, scale(right, number(-1)))
    signs = [ASSUMED[">="], ASSUMED["<="]] if condition.function == "==" else [ASSUMED[condition.function]]
    for sign, known in signs:
        yield Assumption(Family((), (), scale(difference, number(sign))), known)


def check_needs(needs: Sequence[Apply], functions: Functions, claim: Claim) -> None:
    """Raises Failed if a condition of an operator on real numbers does not follow from those of the rule."""
    for condition in needs:
        left, right = (_form(side, functions, claim) for side in condition.arguments)
        sign, known = ASSUMED[condition.function] if condition.function != "==" else (1, None)
        difference = scale(add(left, scale(right, number(-1))), number(sign))
        least = Sign.POSITIVE if known is Known.POSITIVE else Sign.NOT_NEGATIVE
        if known is None:
            met = not difference
        elif known is Known.NONZERO:
            met = functions.signs.nonzero(difference)
        else:
            met = functions.signs.form(difference) >= least
        if not met:
            raise Failed("defined", f"the right side needs `{condition_text(condition)}`, which does not follow")


def _form(expr: Expr, functions: Functions, claim: Claim) -> Form:
    """An expression of a condition as a form. Real numbers are elements of tensors without dimensions."""
    names: Values = {node.name: _named(node.name, claim) for node in walk(expr) if isinstance(node, Name)}
    return functions.value(expr, names)


def _named(name: str, claim: Claim) -> Form:
    return atom(Element(name, ())) if name in claim.reals else constant(claim.size(Name(name)))


# ---------------------------------------------------------------------------------------------- at numbers


def value_at(expr: Expr, numbers: Mapping[str, Fraction]) -> Fraction:
    """An expression at numbers, exactly. Raises ZeroDivisionError, KeyError for unknown names, and Unsupported."""
    match expr:
        case Number(value):
            return exact_number(value)
        case Name(name):
            return numbers[name]
        case Apply(sign, arguments):
            parts = [value_at(argument, numbers) for argument in arguments]
            match sign:
                case "neg":
                    return -parts[0]
                case "+":
                    return parts[0] + parts[1]
                case "-":
                    return parts[0] - parts[1]
                case "*":
                    return parts[0] * parts[1]
                case "/":
                    return parts[0] / parts[1]
                case "//":
                    return Fraction(parts[0] // parts[1])
                case "%":
                    return parts[0] % parts[1]
    raise Unsupported("a number that is no arithmetic")


def holds_at(condition: Apply, numbers: Mapping[str, Fraction]) -> bool:
    """Whether a condition holds at numbers; where it divides by 0 it does not."""
    assert condition.function in COMPARISONS
    try:
        left, right = (value_at(side, numbers) for side in condition.arguments)
    except ZeroDivisionError:
        return False
    return {
        "==": left == right,
        "!=": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[condition.function]


def numbers_at(claim: Claim, sizes: Mapping[str, int], reals: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """The values of the names in a rule's attributes and conditions, at given sizes and real numbers.

    Raises ZeroDivisionError where a number that equations determine has no value.
    """
    found = {name: Fraction(size) for name, size in sizes.items()}
    found |= {name: exactly(claim.size(Name(name)), sizes) for name in claim.names if name.isidentifier()}
    found = {**found, **reals}
    if claim.reals <= found.keys():
        found |= {name: value_at(expr, found) for name, expr in claim.real_values}
    return found


PLAIN = (0, 1, -1, 2, -2, 3, 0.5, -0.5, -1.5, 0.25, 7, 2.0**-10, 1000, -1000, 10**6, -(10**6))
AROUND = (0, 1, -1, 0.5, -0.5, 2.0**-6, -(2.0**-6))
"""`PLAIN` numbers are drawn as they are; `AROUND` are offsets added to the numbers in conditions."""
ATTEMPTS = 400


def drawn_reals(claim: Claim, names: Sequence[str], sizes: Mapping[str, int], seed: int) -> dict[str, float] | None:
    """Real numbers that meet the conditions at these sizes, None where none are found.

    They are zero, negative, large, fractions, or at or near numbers in the conditions.
    """
    random = Random(f"reals {seed}")
    named = [
        exact_number(node.value) for one in claim.real_conditions for node in walk(one) if isinstance(node, Number)
    ]
    near = [float(number + Fraction(step)) for number in named for step in AROUND]
    for _ in range(ATTEMPTS):
        found = {name: _drawn(random, near) for name in names}
        exactly_found = {name: Fraction(value) for name, value in found.items()}
        if meets(claim, sizes, exactly_found):
            return found
    return None


def _drawn(random: Random, near: Sequence[float]) -> float:
    kind = random.randrange(4)
    if kind == 0 or (kind == 1 and not near):
        return random.randint(-40, 40) / 8
    return float(random.choice(near if kind == 1 else PLAIN))


def meets(claim: Claim, sizes: Mapping[str, int], reals: Mapping[str, Fraction]) -> bool:
    """Whether real numbers meet the conditions at these sizes."""
    if not claim.real_conditions:
        return True
    try:
        numbers = numbers_at(claim, sizes, reals)
    except ZeroDivisionError:
        return False
    return all(holds_at(condition, numbers) for condition in claim.real_conditions)
