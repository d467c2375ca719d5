"""Triton text of terms: element functions, comparisons and index arithmetic, by the kinds of their operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from ...index.equations.term import COMPARISONS, interval, substitute
from ...index.evaluation.native_calls import NUMPY_CALLS
from ...index.library import Library
from ...syntax.ast import Apply, Expr, Name, Number, Read, Select, Size, Uniform
from ...syntax.rational import plain_number
from ..torch_text import Binding
from .triton_calls import triton_call


class NoKernelError(ValueError):
    """An equation has no Triton text here; the program uses its torch text."""


class Sort(Enum):
    NUMBER = auto()
    INT = auto()
    BOOL = auto()
    FLOAT = auto()


@dataclass(frozen=True)
class Piece:
    """The text of a term, its kind, and how tightly its outermost operator binds."""

    code: str
    sort: Sort
    binding: Binding = Binding.ATOM

    def inside(self, binding: Binding) -> str:
        """The text as an operand of an operator that binds this tightly."""
        return self.code if self.binding >= binding else f"({self.code})"


_INFIX = {"+": Binding.SUM, "-": Binding.SUM, "*": Binding.PRODUCT, "/": Binding.PRODUCT}
_WHOLE = frozenset({"//", "%"})


@dataclass(frozen=True)
class TermText:
    """Writes terms of an instance. `leaf` gives the text of an axis, of a read or of a random number. `sizes` are the
    lengths of axes on all devices together. `needed` collects the functions of the emitted file that are called.
    """

    library: Library
    sizes: Mapping[str, int]
    leaf: Callable[[Name | Read | Uniform], Piece]
    needed: set[str]

    def piece(self, expr: Expr) -> Piece:
        """The text of a term. Raises NoKernelError if it has none."""
        number = self.constant(expr)
        if number is not None:
            return number_piece(number)
        match expr:
            case Name() | Read() | Uniform():
                return self.leaf(expr)
            case Select(condition, then, otherwise):
                parts = [self.condition(condition), self.piece(then), self.piece(otherwise)]
                if parts[1].sort is parts[2].sort is Sort.NUMBER:
                    parts[1:] = map(self.float_literal, parts[1:])
                sort = Sort.FLOAT if Sort.FLOAT in (parts[1].sort, parts[2].sort) else parts[1].sort
                return Piece(f"tl.where({', '.join(part.code for part in parts)})", sort)
            case Apply(function, arguments):
                return self.applied(function, arguments, expr)
        raise NoKernelError(f"a {type(expr).__name__} has no Triton text")

    def condition(self, expr: Expr) -> Piece:
        found = self.piece(expr)
        if found.sort is Sort.BOOL:
            return found
        return Piece(f"{found.inside(Binding.SUM)} != 0", Sort.BOOL, Binding.COMPARISON)

    def applied(self, function: str, arguments: tuple[Expr, ...], whole: Expr) -> Piece:
        if function in COMPARISONS:
            left, right = map(self.piece, arguments)
            code = f"{left.inside(Binding.SUM)} {function} {right.inside(Binding.SUM)}"
            return Piece(code, Sort.BOOL, Binding.COMPARISON)
        if function == "neg":
            (found,) = map(self.piece, arguments)
            return Piece(f"-{found.inside(Binding.SIGN)}", found.sort, Binding.SIGN)
        if function in _WHOLE:
            return self.whole(function, arguments, whole)
        if function in _INFIX:
            return self.infix(function, *map(self.piece, arguments))
        return self.called(function, arguments)

    def infix(self, function: str, left: Piece, right: Piece) -> Piece:
        binding = _INFIX[function]
        sorts = {left.sort, right.sort}
        if function == "/":
            left, right = (self.as_float(piece) if Sort.FLOAT not in sorts else piece for piece in (left, right))
        elif sorts == {Sort.BOOL}:
            left = left if function == "*" else self.whole_number(left)
        elif Sort.NUMBER in sorts and Sort.FLOAT not in sorts:
            # Next to integers a literal would be a float32, whatever the type in which the kernel computes.
            exact = all(piece.code.lstrip("-").isdigit() for piece in (left, right) if piece.sort is Sort.NUMBER)
            if Sort.BOOL in sorts or not exact:
                left, right = self.as_float(left), self.as_float(right)
        code = f"{left.inside(binding)} {function} {right.inside(Binding(binding + 1))}"
        floats = function == "/" or Sort.FLOAT in (left.sort, right.sort)
        both = left.sort is right.sort is Sort.BOOL
        return Piece(code, Sort.FLOAT if floats else Sort.BOOL if both else Sort.INT, binding)

    def whole(self, function: str, arguments: tuple[Expr, ...], whole: Expr) -> Piece:
        """Quotients and remainders. Triton truncates them towards zero, so NoKernelError is raised for negative
        numbers.
        """
        try:
            if interval(arguments[0], self.sizes)[0] < 0 or interval(whole, self.sizes)[0] < 0:
                raise NoKernelError(f"`{function}` of a negative number")
        except ValueError as error:
            raise NoKernelError(str(error)) from error
        left, right = map(self.piece, arguments)
        code = f"{left.inside(Binding.PRODUCT)} {function} {right.inside(Binding.SIGN)}"
        return Piece(code, Sort.INT, Binding.PRODUCT)

    def called(self, function: str, arguments: tuple[Expr, ...]) -> Piece:
        declared = self.library.functions[function]
        call = triton_call(declared.torch)
        if call is None:
            if declared.definition is None:
                raise NoKernelError(f"`{function}` has no Triton text")
            return self.piece(substitute(declared.definition, dict(zip(declared.parameters, arguments, strict=True))))
        if call.needs:
            self.needed.add(call.needs)
        pieces = [self.piece(argument) for argument in arguments]
        texts = [piece.code if piece.sort is Sort.NUMBER else self.as_float(piece).code for piece in pieces]
        if pieces[0].sort is Sort.NUMBER and len(pieces) > 1:
            # A function of two operands takes the type of the first, which must therefore be a tensor.
            texts[0] = self.float_literal(pieces[0]).code
        return Piece(call.text.format(*texts), Sort.FLOAT)

    def as_float(self, piece: Piece) -> Piece:
        if piece.sort in (Sort.FLOAT, Sort.NUMBER):
            return piece
        return Piece(f"{piece.inside(Binding.ATOM)}.to(T)", Sort.FLOAT)

    def float_literal(self, piece: Piece) -> Piece:
        """A literal as a tensor: Triton takes a plain one for a float32, whatever the kernel computes in."""
        return Piece(f"tl.full([], {piece.code}, T)", Sort.FLOAT)

    def whole_number(self, piece: Piece) -> Piece:
        if piece.sort is Sort.BOOL:
            return Piece(f"{piece.inside(Binding.ATOM)}.to(tl.int32)", Sort.INT)
        return piece

    def constant(self, expr: Expr) -> int | float | None:
        """The value of a term that depends on no position; None for other terms."""
        match expr:
            case Number(value=value):
                return plain_number(value)
            case Size(name=name):
                return self.sizes[name]
            case Apply(function, arguments):
                numbers = [self.constant(argument) for argument in arguments]
                known = [number for number in numbers if number is not None]
                return self.folded(function, known) if len(known) == len(numbers) else None
        return None

    def folded(self, function: str, numbers: list[int | float]) -> int | float | None:
        if function in _ARITHMETIC:
            return _ARITHMETIC[function](*numbers)
        if function not in self.library.functions:
            return None
        declared = self.library.functions[function]
        if declared.numpy is not None and declared.numpy.function in NUMPY_CALLS:
            return float(NUMPY_CALLS[declared.numpy.function](*numbers))
        if declared.definition is None:
            return None
        given: dict[str, Expr] = {
            name: Number(number) for name, number in zip(declared.parameters, numbers, strict=True)
        }
        return self.constant(substitute(declared.definition, given))


_ARITHMETIC: Mapping[str, Callable[..., int | float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "neg": lambda a: -a,
}


def number_piece(number: int | float) -> Piece:
    """A literal. Infinities are written as Python needs them."""
    if number in (float("inf"), float("-inf")):
        return Piece(f'float("{number}")', Sort.NUMBER)
    return Piece(repr(number), Sort.NUMBER, Binding.SIGN if number < 0 else Binding.ATOM)
