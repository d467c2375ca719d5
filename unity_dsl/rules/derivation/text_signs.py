"""Signs of the expressions of a declaration, from its text: a square is not negative, nor is a sum of squares.

The prover's signs (prove/decision/signs.py) are signs of normal forms. There, `d * d` with `d = x - mean` is expanded
and no longer visible as a square.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import inf

from ...index.library import Library
from ...prove.decision.signs import Sign
from ...prove.functions.definedness import native
from ...syntax.ast import Apply, Expr, Name, Number, Read, Reduce, ReductionKind, Size


def sign_of(expr: Expr, known: Mapping[str, Sign], library: Library) -> Sign:
    """The sign of an expression wherever it is defined; `known` has the signs of tensors, parameters and attributes.

    Sums and extrema over axes have at least one term, since no axis is empty.
    """

    def sign(part: Expr) -> Sign:
        return sign_of(part, known, library)

    match expr:
        case Number(value):
            return sign_of_number(value)
        case Size():
            return Sign.POSITIVE
        case Name(name) | Read(name, _, None):
            return known.get(name, Sign.UNKNOWN)
        case Reduce(ReductionKind.SUM | ReductionKind.MAX, _, body):
            return sign(body)
        case Apply("*", (left, right)):
            return max(min(sign(left), sign(right)), Sign.NOT_NEGATIVE if left == right else Sign.UNKNOWN)
        case Apply("/", (above, below)) if sign(below) is Sign.POSITIVE:
            return sign(above)
        case Apply("+", (left, right)) if Sign.UNKNOWN not in (sign(left), sign(right)):
            return max(sign(left), sign(right))
        case Apply(function, (argument,)) if function in library.functions:
            decl = library.functions[function]
            if decl.definition is not None:
                return sign_of(decl.definition, {decl.parameters[0]: sign(argument)}, library)
            return {"np.exp": Sign.POSITIVE, "np.sqrt": sign(argument)}.get(native(decl) or "", Sign.UNKNOWN)
    return Sign.UNKNOWN


def sign_of_number(value: float | Fraction) -> Sign:
    """The sign of a number; UNKNOWN for a negative or infinite one."""
    if 0 < value < inf:
        return Sign.POSITIVE
    return Sign.NOT_NEGATIVE if value == 0 else Sign.UNKNOWN
