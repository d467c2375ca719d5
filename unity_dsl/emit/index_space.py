"""Torch text of an equation's value: every subterm as a tensor over the axes that it depends on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

from ..graph.halo import HaloWindow
from ..index.equations.instance import Operand
from ..index.equations.term import ARITHMETIC, COMPARISONS
from ..index.evaluation.native_calls import LITERALS, NUMPY_CALLS
from ..index.library import Library
from ..syntax.ast import (
    Apply,
    Expr,
    FunctionDecl,
    Name,
    NativeArgument,
    NativeCall,
    NativeList,
    NativeString,
    Number,
    Read,
    Select,
    Size,
    Uniform,
)
from ..syntax.rational import plain_number
from .torch_expression import ARITHMETIC as NUMBERS
from .torch_expression import COMPARE, Binding, Piece, Sort, align, cast, infix, number, union

_TENSORS_ONLY = frozenset({"torch.maximum", "torch.minimum"})
_NUMBER_FIRST = frozenset({"torch.pow"})
_OF_POSITIONS = frozenset({Sort.NUMBER, Sort.INT, Sort.POSITION})
"""What is made of pieces of these sorts is no matter of the program's float type."""


@dataclass(frozen=True)
class Bound:
    """A summed axis that a guard `[v == e]` sets: `place` is where e lies in the local slice, within its bounds."""

    place: Piece
    value: Piece


@dataclass
class Space:
    """What the text of an operator's equations may refer to.

    `local` are the sizes on one device, `variables` the program's names of operands, `order` the equation's axes.
    `position` gives the global positions of an axis's local slice, `offset` the local ones, `start` the text of the
    first, times a stride, where the slice is one block (else none). `dtype` and `device` are texts, `compared` is the
    type of what is compared, `random` makes the text of `uniform[…]` from that of the global positions, `read` that of
    an element. `windows` are operands' dimensions, by name and number, that are read around a divided axis. `sorts` are
    those of intermediate tensors that are not of the program's float type. `whole` tells that everything is a whole
    number and `dtype` an integer type.
    """

    sizes: Mapping[str, int]
    local: Mapping[str, int]
    library: Library
    dtype: str
    compared: str
    device: str
    keep: Callable[[str, str], str]
    position: Callable[[str], Piece]
    offset: Callable[[str], Piece]
    start: Callable[[str, int], str]
    random: Callable[[str], str]
    read: Callable[[Space, Read], Piece]
    variables: dict[str, tuple[str, Operand]] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    bound: dict[str, Bound] = field(default_factory=dict)
    detached: bool = False
    windows: Mapping[tuple[str, int], HaloWindow] = field(default_factory=dict)
    sorts: dict[str, Sort] = field(default_factory=dict)
    whole: bool = False

    # ------------------------------------------------------------------------------------------ terms

    def piece(self, expr: Expr) -> Piece:
        """The text of a term. A comparison is a tensor of bool, which counts as 1 or 0."""
        match expr:
            case Number(value=value):
                return number(value)
            case Size(name=name):
                return number(self.sizes[name])
            case Name(name=name):
                return self.bound[name].value if name in self.bound else self.position(name)
            case Apply(function=function, arguments=arguments) if function in COMPARISONS:
                return self.comparison(function, arguments)
            case Apply(function=function, arguments=arguments):
                return self.apply(function, [self.piece(argument) for argument in arguments])
            case Select():
                return self.select(*map(self.piece, (expr.condition, expr.then, expr.otherwise)))
            case Uniform(index=index):
                return self.uniform(index)
            case Read():
                return self.read(self, expr)
        raise TypeError(f"{type(expr).__name__} in an equation")

    def comparison(self, function: str, arguments: Sequence[Expr]) -> Piece:
        """What is compared may be floats where everything else is integers."""
        outside, self.dtype = self.dtype, self.compared
        pieces = [self.piece(argument) for argument in arguments]
        self.dtype = outside
        return self.apply(function, pieces)

    def apply(self, function: str, arguments: Sequence[Piece]) -> Piece:
        if function in ARITHMETIC:
            return self.arithmetic(function, arguments)
        if function in COMPARISONS:
            left, right = arguments
            if left.sort is Sort.NUMBER and right.sort is Sort.NUMBER:
                return number(int(COMPARE[function](_value(left), _value(right))))
            return infix(function, Binding.COMPARISON, left, right, Sort.BOOL, self.order)
        return self.call(self.library.functions[function], arguments)

    def float(self, piece: Piece) -> Piece:
        """The piece as floats of the program's type; numbers stay as they are."""
        return cast(piece, self.dtype)

    def exact(self, piece: Piece) -> Piece:
        """A piece made of positions alone as floats that tell them apart; numbers stay as they are."""
        if piece.sort in (Sort.NUMBER, Sort.POSITION):
            return piece
        return replace(cast(piece, self._wide), sort=Sort.POSITION)

    @cached_property
    def _wide(self) -> str:
        return self.keep("wide", f"torch.promote_types({self.dtype}, torch.float32)")

    def tensor(self, piece: Piece, sort: Sort = Sort.FLOAT) -> Piece:
        """The piece as a tensor of floats; a number becomes one without dimensions."""
        if piece.sort is Sort.NUMBER:
            dtype = self._wide if sort is Sort.POSITION else self.dtype
            return Piece(f"torch.full((), {piece.code}, dtype={dtype}, device={self.device})", (), sort)
        return self.exact(piece) if sort is Sort.POSITION else self.float(piece)

    # ------------------------------------------------------------------------------------------ arithmetic

    def arithmetic(self, function: str, arguments: Sequence[Piece]) -> Piece:
        if all(argument.sort is Sort.NUMBER for argument in arguments):
            return number(NUMBERS[function](*map(_value, arguments)))
        if function == "neg":
            (inner,) = arguments
            inner = inner if inner.sort in _OF_POSITIONS else self.float(inner)
            return Piece(f"-{inner.within(Binding.SIGN)}", inner.axes, inner.sort, Binding.SIGN)
        left, right = arguments
        sorts = {left.sort, right.sort}
        binding = Binding.SUM if function in "+-" else Binding.PRODUCT
        if function == "*" and sorts == {Sort.BOOL}:
            return infix("&", Binding.AND, left, right, Sort.BOOL, self.order)
        if function == "*" and sorts == {Sort.BOOL, Sort.FLOAT}:
            return infix("*", binding, left, right, Sort.FLOAT, self.order)
        if function == "*" and sorts == {Sort.BOOL, Sort.POSITION}:
            return infix("*", binding, left, right, Sort.POSITION, self.order)
        counted = [piece for piece in arguments if function != "*" or piece.sort is not Sort.BOOL]
        if function != "/" and all(map(_is_whole, counted)):
            return infix(function, binding, left, right, Sort.INT, self.order)
        if sorts <= _OF_POSITIONS and not self.whole:
            return infix(function, binding, self.exact(left), self.exact(right), Sort.POSITION, self.order)
        return infix(function, binding, self.float(left), self.float(right), Sort.FLOAT, self.order)

    def select(self, condition: Piece, then: Piece, otherwise: Piece) -> Piece:
        if condition.sort is Sort.NUMBER:
            return then if condition.value else otherwise
        if then.sort is Sort.NUMBER and otherwise.sort is Sort.NUMBER:
            then = self.tensor(then)
        return self.function("torch.where", [condition, self.float(then), self.float(otherwise)])

    def function(self, name: str, arguments: Sequence[Piece]) -> Piece:
        """A call of an elementwise function, its tensors broadcast against each other."""
        axes = union(arguments, self.order)
        return Piece(f"{name}({', '.join(align(argument, axes).code for argument in arguments)})", axes)

    def uniform(self, index: Sequence[Expr]) -> Piece:
        """Global row-major positions over the axes that the draw is indexed by."""
        names = [axis.name for axis in index if isinstance(axis, Name)]
        divided = [name for name in names if self.local[name] != self.sizes[name]]
        stride = prod(self.sizes[name] for name in names[1:])
        start = self.start(names[0], stride) if divided == names[:1] != [] else ""
        if not divided or start:
            shape = [self.local[name] for name in names]
            alike = next((text for text, operand in self.variables.values() if self._lies_over(operand, names)), None)
            if alike is not None and len(shape) > 1:
                inner = f"torch.arange({alike}.numel(), device={self.device}).reshape({alike}.shape)"
            else:
                inner = f"torch.arange({prod(shape)}, device={self.device})"
                inner = inner if len(shape) == 1 else f"{inner}.reshape({', '.join(map(str, shape)) or '()'})"
            offset = f" + {start}" if start else ""
            places = Piece(inner + offset, tuple(names), Sort.INT, Binding.SUM if start else Binding.ATOM)
        else:
            places = number(0)
            for name in names:
                scaled = self.arithmetic("*", [places, number(self.sizes[name])])
                here = self.position(name)
                places = here if places.value == 0 else self.arithmetic("+", [scaled, here])
        return Piece(self.random(places.code), places.axes, Sort.RANDOM)

    def _lies_over(self, operand: Operand, names: Sequence[str]) -> bool:
        """Whether a tensor has these axes alone, a dimension each, in this order."""
        halos = any((operand.name, dim) in self.windows for dim in range(len(operand.dims)))
        return list(operand.dims) == [(name,) for name in names] and not halos

    # ------------------------------------------------------------------------------------------ functions

    def call(self, decl: FunctionDecl, arguments: Sequence[Piece]) -> Piece:
        """An element function: its `torch:` line, else its definition written out."""
        if all(argument.sort is Sort.NUMBER for argument in arguments):
            return number(float(constant(decl, [_value(argument) for argument in arguments], self.library)))
        of_positions = not self.whole and all(argument.sort in _OF_POSITIONS for argument in arguments)
        sort = Sort.POSITION if of_positions else Sort.FLOAT
        floats = map(self.exact if sort is Sort.POSITION else self.float, arguments)
        bound = dict(zip(decl.parameters, floats, strict=True))
        if decl.torch is not None:
            return self.native(decl.torch, bound, sort)
        if decl.definition is None:
            raise ValueError(f"function {decl.name} has neither a definition nor a `torch:` line")
        for name, piece in bound.items():
            if piece.sort is not Sort.NUMBER and not piece.code.isidentifier():
                bound[name] = Piece(self.keep(name, piece.code), piece.axes, piece.sort)
        return self.define(decl.definition, bound)

    def define(self, expr: Expr, bound: Mapping[str, Piece]) -> Piece:
        match expr:
            case Number(value=value):
                return number(value)
            case Name(name=name):
                return bound[name]
            case Apply(function=function, arguments=arguments):
                return self.apply(function, [self.define(argument, bound) for argument in arguments])
            case Select():
                return self.select(*(self.define(part, bound) for part in (expr.condition, expr.then, expr.otherwise)))
        raise TypeError(f"{type(expr).__name__} in the definition of a function")

    def native(self, call: NativeCall, bound: Mapping[str, Piece], sort: Sort) -> Piece:
        axes = union(bound.values(), self.order)
        aligned = {name: align(piece, axes) for name, piece in bound.items()}

        def argument(given: NativeArgument, place: int, function: str) -> str:
            match given:
                case Number(value=value):
                    piece = number(value)
                case Name(name=name):
                    piece = aligned[name]
                case NativeString(value=value):
                    return repr(value)
                case NativeCall():
                    return text(given)
                case _:
                    raise TypeError(f"{type(given).__name__} in the `torch:` line of a function")
            first = place == 0 and function not in _NUMBER_FIRST
            return self.tensor(piece, sort).code if first or function in _TENSORS_ONLY else piece.code

        def text(given: NativeCall) -> str:
            parts = [argument(part, place, given.function) for place, part in enumerate(given.arguments)]
            parts += [f"{key}={argument(part, 1, given.function)}" for key, part in given.keywords]
            return f"{given.function}({', '.join(parts)})"

        return Piece(text(call), axes, sort)


def native_text(call: NativeCall, named: Mapping[str, str], sizes: Callable[[Size], int]) -> str:
    """A `torch:` line with names replaced by texts and sizes by numbers."""

    def argument(given: NativeArgument) -> str:
        match given:
            case Number(value=value):
                return number(value).code
            case Name(name=name):
                return name if name in LITERALS else named[name]
            case Size():
                return str(sizes(given))
            case NativeString(value=value):
                return repr(value)
            case NativeList(items=items):
                return f"[{', '.join(map(argument, items))}]"
            case NativeCall():
                return native_text(given, named, sizes)

    parts = [argument(part) for part in call.arguments]
    parts += [f"{key}={argument(part)}" for key, part in call.keywords]
    return f"{call.function}({', '.join(parts)})"


# ---------------------------------------------------------------------------------------------- numbers


def _is_whole(piece: Piece) -> bool:
    return piece.sort is Sort.INT or (piece.sort is Sort.NUMBER and isinstance(piece.value, int))


def _value(piece: Piece) -> int | float:
    assert piece.value is not None
    return piece.value


def constant(decl: FunctionDecl, arguments: Sequence[int | float], library: Library) -> int | float:
    """An element function of numbers, for instance the square root of a size."""
    bound = dict(zip(decl.parameters, arguments, strict=True))
    if decl.definition is not None:
        return _constant(decl.definition, bound, library)
    if decl.numpy is None:
        raise ValueError(f"function {decl.name} has neither a definition nor a `numpy:` line")
    return _numpy(decl.numpy, bound)


def _constant(expr: Expr, bound: Mapping[str, int | float], library: Library) -> int | float:
    match expr:
        case Number(value=value):
            return plain_number(value)
        case Name(name=name):
            return bound[name]
        case Select(condition=condition, then=then, otherwise=otherwise):
            return _constant(then if _constant(condition, bound, library) else otherwise, bound, library)
        case Apply(function=function, arguments=arguments):
            values = [_constant(argument, bound, library) for argument in arguments]
            if function in NUMBERS:
                return NUMBERS[function](*values)
            if function in COMPARE:
                return int(COMPARE[function](*values))
            return constant(library.functions[function], values, library)
    raise TypeError(f"{type(expr).__name__} in the definition of a function")


def _numpy(call: NativeCall, bound: Mapping[str, int | float]) -> float:
    values = []
    for argument in call.arguments:
        match argument:
            case Number(value=value):
                values.append(plain_number(value))
            case Name(name=name):
                values.append(bound[name])
            case NativeCall():
                values.append(_numpy(argument, bound))
    return float(NUMPY_CALLS[call.function](*map(float, values)))
