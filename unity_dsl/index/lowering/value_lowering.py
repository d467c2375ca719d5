"""Lowers an equation's value to torch: every subterm becomes a tensor over the axes that it depends on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

from ...syntax.ast import (
    Apply,
    Expr,
    FunctionDecl,
    Name,
    NativeArgument,
    NativeCall,
    NativeString,
    Number,
    Read,
    Select,
    Size,
    Uniform,
)
from ...syntax.rational import plain_number
from ..equations.instance import Equation, Instance, Operand
from ..equations.term import ARITHMETIC, COMPARISONS, children, walk
from ..evaluation.native_calls import NUMPY_CALLS
from ..library import Library
from .division import Division, Window, global_positions
from .joined_parts import joined_parts
from .torch_term import ARITHMETIC as NUMBERS
from .torch_term import (
    COMPARE,
    Argument,
    Sort,
    Term,
    Variable,
    align,
    cast,
    infix,
    number,
    reshape,
    torch_call,
    union,
    word,
)

_TENSORS_ONLY = frozenset({"torch.maximum", "torch.minimum"})
_NUMBER_FIRST = frozenset({"torch.pow"})
_OF_POSITIONS = frozenset({Sort.NUMBER, Sort.INT, Sort.POSITION})
"""Sorts of positions and numbers. A term made of these alone does not depend on the program's float type."""


@dataclass(frozen=True)
class Bound:
    """A summed axis that a guard `[v == e]` sets: `value` is e, `place` its position in the local slice, clamped."""

    place: Term
    value: Term


@dataclass(frozen=True)
class Statement:
    """Binds variables to a value, or to the several values of a call.

    `name` is the name hint of the first variable; `others` may name the rest.

    `own` says that the names come from the operator's own statements.
    """

    variables: tuple[Variable, ...]
    value: Term
    name: str
    own: bool = False
    others: tuple[str, ...] = ()


@dataclass
class Space:
    """What the lowering of an operator's equations may refer to, and the statements so far.

    `variables` are its operands, `order` the equation's axes. `dtype` and `device` are terms, `compared` is the type in
    which comparisons are evaluated, and `read` lowers the read of an element. `sorts` has the intermediate tensors that
    do not have the program's float type. `detached` says that no gradient flows.
    """

    instance: Instance
    division: Division
    library: Library
    dtype: Term
    compared: Term
    device: Term
    read: Callable[[Space, Read], Term]
    statements: list[Statement] = field(default_factory=list)
    variables: dict[str, tuple[Term, Operand]] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    bound: dict[str, Bound] = field(default_factory=dict)
    detached: bool = False
    sorts: dict[str, Sort] = field(default_factory=dict)
    count: int = 0
    _positions: dict[tuple[str, bool], Term] = field(default_factory=dict)
    _shared: dict[Expr, Term | None] = field(default_factory=dict)

    @property
    def sizes(self) -> Mapping[str, int]:
        return self.instance.sizes

    @property
    def local(self) -> Mapping[str, int]:
        return self.division.local_sizes

    @property
    def whole(self) -> bool:
        """Whether everything is a whole number, and `dtype` an integer type."""
        return self.instance.whole

    @cached_property
    def windows(self) -> Mapping[tuple[str, int], Window]:
        """The windows (halos), by operand and dimension, that are read around a divided axis."""
        return {(window.operand, window.dim): window for window in self.division.windows}

    # ------------------------------------------------------------------------------------------ statements

    def variable(self) -> Variable:
        self.count += 1
        return Variable(self.count - 1)

    def keep(self, name: str, value: Term, *, own: bool = False) -> Term:
        """Binds a value to a new variable."""
        variable = self.variable()
        self.statements.append(Statement((variable,), value, name, own))
        return Term("name", (variable,), value.axes, value.sort)

    def position(self, axis: str, *, held: bool = False) -> Term:
        """The positions of an axis's local slice: relative to the slice (`held`), or global along the axis."""
        cuts = self.division.cuts.get(axis, ())
        held = held or not cuts
        if (axis, held) not in self._positions:
            if held:
                places = torch_call("torch.arange", self.extent(axis), device=self.device)
            else:
                places = global_positions(replace(self.position(axis, held=True), axes=()), cuts)
            self._positions[axis, held] = self.keep(axis, replace(places, axes=(axis,), sort=Sort.INT))
        return self._positions[axis, held]

    def offset(self, axis: str) -> Term:
        return self.position(axis, held=True)

    def extent(self, axis: str) -> Term:
        """The local size of an axis: `.size` of an operand's dimension that is this axis alone, else the number."""
        for name, (variable, operand) in self.variables.items():
            for dim, axes in enumerate(operand.dims):
                if axes == (axis,) and (name, dim) not in self.windows:
                    return Term(".size", (variable, dim), (), Sort.INT)
        return number(self.local[axis])

    # ------------------------------------------------------------------------------------------ terms

    def enter(self, equation: Equation) -> None:
        """Starts an equation. Subterms that occur several times in its value are computed once."""
        self.order = equation.space
        self.bound = {}
        self._shared = {} if self.whole else dict.fromkeys(_repeated(equation.value))

    def piece(self, expr: Expr) -> Term:
        """A term in torch. A comparison is a tensor of bool, which counts as 1 or 0."""
        if expr not in self._shared or self.bound:
            return self._piece(expr)
        known = self._shared[expr]
        if known is None:
            made = self._piece(expr)
            known = made if made.is_name or made.sort is Sort.NUMBER else self.keep("part", made, own=True)
            self._shared[expr] = known
        return known

    def _piece(self, expr: Expr) -> Term:
        match expr:
            case Number(value=value):
                return number(value)
            case Size(name=name):
                return number(self.sizes[name])
            case Name(name=name):
                return self.bound[name].value if name in self.bound else self.position(name)
            case Apply(function=function, arguments=arguments) if function in COMPARISONS:
                return self.comparison(function, arguments)
            case Apply(function="*", arguments=arguments) if not self.whole:
                return self.apply("*", [self.kept(argument) or self.piece(argument) for argument in arguments])
            case Apply(function=function, arguments=arguments):
                return self.apply(function, [self.piece(argument) for argument in arguments])
            case Select():
                return self.select(*map(self.piece, (expr.condition, expr.then, expr.otherwise)))
            case Uniform(index=index):
                return self.uniform(index)
            case Read():
                return self.read(self, expr)
        raise TypeError(f"{type(expr).__name__} in an equation")

    def comparison(self, function: str, arguments: Sequence[Expr]) -> Term:
        """Lowers a comparison. Its operands may be floats where everything else is an integer."""
        outside, self.dtype = self.dtype, self.compared
        pieces = [self.piece(argument) for argument in arguments]
        self.dtype = outside
        return self.apply(function, pieces)

    def apply(self, function: str, arguments: Sequence[Term]) -> Term:
        if function in ARITHMETIC:
            return self.arithmetic(function, arguments)
        if function in COMPARISONS:
            left, right = arguments
            if left.sort is Sort.NUMBER and right.sort is Sort.NUMBER:
                return number(int(COMPARE[function](_value(left), _value(right))))
            return infix(function, left, right, Sort.BOOL, self.order)
        return self.call(self.library.functions[function], arguments)

    def float(self, piece: Term) -> Term:
        """The piece as floats of the program's type; numbers stay as they are."""
        return cast(piece, self.dtype)

    def exact(self, piece: Term) -> Term:
        """A piece made of positions alone, as floats that can represent them. Python numbers stay as they are."""
        if piece.sort in (Sort.NUMBER, Sort.POSITION):
            return piece
        return replace(cast(piece, self.wide), sort=Sort.POSITION)

    @cached_property
    def wide(self) -> Term:
        """The wider of the program's float type and float32."""
        return self.keep("wide", torch_call("torch.promote_types", self.dtype, word("torch.float32")))

    def tensor(self, piece: Term, sort: Sort = Sort.FLOAT) -> Term:
        """The piece as a tensor of floats; a number becomes one without dimensions."""
        if piece.sort is Sort.NUMBER:
            dtype = self.wide if sort is Sort.POSITION else self.dtype
            return torch_call("torch.full", (), piece, sort=sort, dtype=dtype, device=self.device)
        return self.exact(piece) if sort is Sort.POSITION else self.float(piece)

    # ------------------------------------------------------------------------------------------ arithmetic

    def arithmetic(self, function: str, arguments: Sequence[Term]) -> Term:
        if all(argument.sort is Sort.NUMBER for argument in arguments):
            return number(NUMBERS[function](*map(_value, arguments)))
        if function == "neg":
            (inner,) = arguments
            inner = inner if inner.sort in _OF_POSITIONS else self.float(inner)
            return Term("neg", (inner,), inner.axes, inner.sort)
        left, right = arguments
        sorts = {left.sort, right.sort}
        if function == "*" and sorts == {Sort.BOOL}:
            return infix("&", left, right, Sort.BOOL, self.order)
        if function == "*" and sorts == {Sort.BOOL, Sort.FLOAT}:
            if left.axes != right.axes:  # multiplying by bool is slow: convert the mask if it is smaller
                left, right = self.float(left), self.float(right)
            return infix("*", left, right, Sort.FLOAT, self.order)
        if function == "*" and sorts == {Sort.BOOL, Sort.POSITION}:
            return infix("*", left, right, Sort.POSITION, self.order)
        counted = [piece for piece in arguments if function != "*" or piece.sort is not Sort.BOOL]
        if function != "/" and all(map(_is_whole, counted)):
            return infix(function, left, right, Sort.INT, self.order)
        if sorts <= _OF_POSITIONS and not self.whole:
            return infix(function, self.exact(left), self.exact(right), Sort.POSITION, self.order)
        return infix(function, self.float(left), self.float(right), Sort.FLOAT, self.order)

    def select(self, condition: Term, then: Term, otherwise: Term) -> Term:
        if condition.sort is Sort.NUMBER:
            return then if condition.value else otherwise
        if then.sort is Sort.NUMBER and otherwise.sort is Sort.NUMBER:
            then = self.tensor(then)
        for axis in condition.axes:
            if not self.division.cuts.get(axis):
                joined = joined_parts(condition, self.float(then), self.float(otherwise), axis, self.local[axis])
                if joined is not None:
                    return joined
        return self.function("torch.where", [condition, self.float(then), self.float(otherwise)])

    def function(self, name: str, arguments: Sequence[Term]) -> Term:
        """A call of an elementwise function, its tensors broadcast against each other."""
        axes = union(arguments, self.order)
        return torch_call(name, *(align(argument, axes) for argument in arguments), axes=axes)

    def uniform(self, index: Sequence[Expr]) -> Term:
        """A random draw at every position."""
        places, count = self.drawn_at(index)
        return self.keep("draw", Term("uniform", (places, count), places.axes, Sort.RANDOM), own=True)

    def kept(self, factor: Expr) -> Term | None:
        """A factor `[draw >= number]` as floats, as multiplying by bool is slow. None for any other factor."""
        match factor:
            case Apply(function=">=", arguments=(Uniform(index=index), bound)):
                least = self.piece(bound)
                if least.sort is Sort.NUMBER and 0 < _value(least) <= 1 - 2.0**-24:
                    places, count = self.drawn_at(index)
                    drawn = Term("at_least", (places, count, least), places.axes, Sort.COUNTER)
                    return self.keep("kept", self.float(drawn), own=True)
        return None

    def drawn_at(self, index: Sequence[Expr]) -> tuple[Term, int]:
        """Global row-major positions of a draw's axes, and their number, both without padding.

        Positions in padding repeat those of other elements.
        """
        names, own = [axis.name for axis in index if isinstance(axis, Name)], self.instance.own_sizes
        count, every = (prod(sizes[name] for name in names) for sizes in (own, self.sizes))
        divided = [name for name in names if self.local[name] != self.sizes[name]]
        stride = prod(own[name] for name in names[1:])
        start = self.division.start(names[0], stride) if divided == names[:1] != [] else None
        if (not divided or start) and stride == prod(self.sizes[name] for name in names[1:]):
            places = self.counted(names, Sort.COUNTER if every < 2**31 else Sort.INT)
            for part in start or ():
                places = Term("+", (places, part), places.axes, places.sort)
            return places, count
        places = number(0)
        for name in names:
            scaled = self.arithmetic("*", [places, number(own[name])])
            here = self.position(name)
            places = here if places.value == 0 else self.arithmetic("+", [scaled, here])
        if every < 2**31:
            places = Term(".to", (places, word("torch.int32")), places.axes, Sort.COUNTER)
        return places, count

    def counted(self, axes: Sequence[str], sort: Sort) -> Term:
        """The row-major positions in a local slice."""
        shape = [self.local[name] for name in axes]
        alike = next((text for text, operand in self.variables.values() if self._lies_over(operand, axes)), None)
        if alike is not None and len(shape) > 1 and sort is Sort.COUNTER:
            return Term("places", (alike,), tuple(axes), sort)
        extent = Term(".numel", (alike,)) if alike is not None and len(shape) > 1 else prod(shape)
        narrow = {"dtype": word("torch.int32")} if sort is Sort.COUNTER else {}
        places = torch_call("torch.arange", extent, axes=axes, sort=sort, **narrow, device=self.device)
        if len(shape) == 1:
            return places
        return reshape(places, [alike.attribute("shape")] if alike is not None else shape, axes)

    def _lies_over(self, operand: Operand, names: Sequence[str]) -> bool:
        """Whether a tensor's dimensions are exactly these axes, one each, in this order and without halos."""
        halos = any((operand.name, dim) in self.windows for dim in range(len(operand.dims)))
        return list(operand.dims) == [(name,) for name in names] and not halos

    # ------------------------------------------------------------------------------------------ functions

    def call(self, decl: FunctionDecl, arguments: Sequence[Term]) -> Term:
        """Applies an element function: its `torch:` line, else its definition written out."""
        if all(argument.sort is Sort.NUMBER for argument in arguments):
            return number(float(constant(decl, [_value(argument) for argument in arguments], self.library)))
        of_positions = not self.whole and all(argument.sort in _OF_POSITIONS for argument in arguments)
        sort = Sort.POSITION if of_positions else Sort.FLOAT
        floats = map(self.exact if sort is Sort.POSITION else self.float, arguments)
        bound = dict(zip(decl.parameters, floats, strict=True))
        if decl.surrogates and sort is Sort.FLOAT and not self.detached:
            return self.steered(decl, bound)
        return self.computed(decl, bound, sort)

    def computed(self, decl: FunctionDecl, bound: dict[str, Term], sort: Sort) -> Term:
        if decl.torch is not None:
            return self.native(decl.torch, bound, sort)
        if decl.definition is None:
            raise ValueError(f"function {decl.name} has neither a definition nor a `torch:` line")
        return self.define(decl.definition, self.named(bound))

    def named(self, bound: Mapping[str, Term]) -> dict[str, Term]:
        """The arguments, each bound to a variable unless it is a number or a variable already."""
        plain = {name: piece.sort is Sort.NUMBER or piece.is_name for name, piece in bound.items()}
        return {name: piece if plain[name] else self.keep(name, piece) for name, piece in bound.items()}

    def steered(self, decl: FunctionDecl, bound: Mapping[str, Term]) -> Term:
        """A function with declared gradients: its value is detached, and surrogate terms add these gradients."""
        bound = self.named(bound)
        apart = {name: piece if piece.sort is Sort.NUMBER else piece.method("detach") for name, piece in bound.items()}
        apart = self.named(apart)
        axes = union(bound.values(), self.order)
        value = self.tensor(self.computed(decl, apart, Sort.FLOAT))
        for name, derivative in decl.derivatives:
            slope = self.define(derivative, apart)
            if bound[name].sort is not Sort.NUMBER and slope.value != 0:
                parts = (align(value, axes), align(bound[name], axes), align(self.float(slope), axes))
                value = Term("surrogate", parts, axes)
        return value

    def define(self, expr: Expr, bound: Mapping[str, Term]) -> Term:
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

    def native(self, call: NativeCall, bound: Mapping[str, Term], sort: Sort) -> Term:
        axes = union(bound.values(), self.order)
        aligned = {name: align(piece, axes) for name, piece in bound.items()}

        def argument(given: NativeArgument, place: int, function: str) -> Argument:
            match given:
                case Number(value=value):
                    piece = number(value)
                case Name(name=name):
                    piece = aligned[name]
                case NativeString(value=value):
                    return word(repr(value))
                case NativeCall():
                    return lowered(given)
                case _:
                    raise TypeError(f"{type(given).__name__} in the `torch:` line of a function")
            first = place == 0 and function not in _NUMBER_FIRST
            return self.tensor(piece, sort) if first or function in _TENSORS_ONLY else piece

        def lowered(given: NativeCall) -> Term:
            parts = [argument(part, place, given.function) for place, part in enumerate(given.arguments)]
            keywords = {key: argument(part, 1, given.function) for key, part in given.keywords}
            return torch_call(given.function, *parts, axes=axes, sort=sort, **keywords)

        return lowered(call)


# ---------------------------------------------------------------------------------------------- terms


def _repeated(value: Expr) -> Iterator[Expr]:
    """Arithmetic subterms on elements that occur several times in a term.

    A subterm of such a subterm is yielded only if it occurs elsewhere too.
    """
    seen: set[Expr] = set()
    pending = [value]
    while pending:
        expr = pending.pop()
        computed = isinstance(expr, Apply | Select) and any(isinstance(node, Read | Uniform) for node in walk(expr))
        if not computed:
            continue
        if expr in seen:
            yield expr
            continue
        seen.add(expr)
        pending += children(expr)


# ---------------------------------------------------------------------------------------------- numbers


def _is_whole(piece: Term) -> bool:
    return piece.sort is Sort.INT or (piece.sort is Sort.NUMBER and isinstance(piece.value, int))


def _value(piece: Term) -> int | float:
    assert piece.value is not None
    return piece.value


def constant(decl: FunctionDecl, arguments: Sequence[int | float], library: Library) -> int | float:
    """Evaluates an element function of numbers, for instance the square root of a size."""
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
