"""Real numbers of a rule at a match: solved exactly from the model's attributes, and inserted into the rule's
attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import isfinite

from ..prove.normal_form.form import Unsupported
from ..prove.translation.real_conditions import value_at
from ..syntax.ast import Apply, Expr, Name
from ..syntax.ast.expressions import LARGEST_INTEGER
from ..syntax.rational import plain_number, rational
from ..syntax.rule_names import names_in

NumberEquation = tuple[Expr, Fraction]
"""An attribute of the rule and its value in the model."""
Numbers = Mapping[str, Fraction]


def solve_numbers(equations: Iterable[NumberEquation], known: Numbers) -> dict[str, Fraction] | None:
    """The known names and those that the equations determine one by one; None if the equations contradict
    each other.
    """
    pending = list(equations)
    found = dict(known)
    progress = True
    try:
        while progress:
            progress = False
            for equation in list(pending):
                expr, value = equation
                unknown = [name.name for name in names_in(expr) if name.name not in found]
                if not unknown and value_at(expr, found) != value:
                    return None
                if len(unknown) == 1:
                    found[unknown[0]] = _isolated(expr, value, unknown[0], found)
                if len(unknown) < 2:
                    pending.remove(equation)
                    progress = True
    except ZeroDivisionError:
        return None
    return found


def _isolated(expr: Expr, value: Fraction, name: str, known: Numbers) -> Fraction:
    """The value of a name that occurs once in an expression, given the value of the expression. Raises
    ZeroDivisionError.
    """
    while not isinstance(expr, Name):
        assert isinstance(expr, Apply)
        first = any(part.name == name for part in names_in(expr.arguments[0]))
        parts = expr.arguments if first else expr.arguments[::-1]
        other = value_at(parts[1], known) if len(parts) > 1 else Fraction(0)
        match expr.function:
            case "neg":
                value = -value
            case "+":
                value = value - other
            case "-":
                value = value + other if first else other - value
            case "*":
                value = value / other
            case "/":
                if first and not other:
                    raise ZeroDivisionError
                value = value * other if first else other / value
            case sign:
                raise Unsupported(f"a number under `{sign}`")
        expr = parts[0]
    return value


def attribute_number(expr: Expr, numbers: Numbers) -> int | float:
    """The value of an attribute at these numbers. Raises Unsupported if it has no value, or overflows or underflows a
    float.
    """
    try:
        value = value_at(expr, numbers)
        found = plain_number(rational(value))
        found = float(found) if abs(found) > LARGEST_INTEGER else found
    except (ZeroDivisionError, OverflowError):
        raise Unsupported("an attribute that no float has") from None
    if not isfinite(found) or (value and not found):
        raise Unsupported("an attribute that no float has")
    return found
