"""Inlines an operator at symbolic sizes: its results as normal forms over the elements of its inputs.

The equations come from an instance at numeric sizes (the witness); their axes do not depend on the numbers. Sizes of
axes are then inferred in symbols from the operands' dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ...index.equations.instance import Equation, Instance, Operand
from ...index.equations.term import COMPARISONS, dim_index, walk
from ...syntax.ast import Apply, Expr, Name, Number, Read, ReductionKind, Select, Size, Uniform
from ..functions.definedness import Domain
from ..functions.scalar_functions import Functions, literal
from ..normal_form.form import (
    Element,
    Form,
    Unsupported,
    add,
    atom,
    constant,
    guarded,
    refresh,
    substitute,
)
from ..normal_form.guard import Guard, compare, within
from ..normal_form.index_values import expanded_indices, index_value
from ..normal_form.polynomial import ONE, Entry, Poly, Var, fresh, number, of, product, quotient
from .mixed_radix import common_indices, digit_choices, digits, divided_index, merged, unrolled
from .symbolic_sizes import Failed, Sizes, shown


@dataclass(frozen=True)
class Tensor:
    """A tensor as a function of its own indices: `value` for floats, `entry` for integers below `bound`.

    `devices` are its device axes by name. `dims` are its dimensions, each a tuple of indices, one per factor of the
    size. `factors` are those of `bound`, if it is known as a product. `domain` are its partial applications, if they
    are recorded.
    """

    devices: tuple[tuple[str, Var], ...]
    dims: tuple[tuple[Var, ...], ...]
    value: Form = ()
    entry: Poly | None = None
    bound: Poly | None = None
    factors: tuple[Poly, ...] = ()
    domain: Domain = ()

    def index(self, devices: Mapping[str, Poly], parts: Sequence[Sequence[Poly]]) -> dict[Var, Poly]:
        """The substitution for its indices when it is read at these positions."""
        found = {var: devices[name] for name, var in self.devices}
        for dim, part in zip(self.dims, parts, strict=True):
            found |= dict(zip(dim, part, strict=True))
        return {var: value for var, value in found.items() if value != of(var)}

    def over(self, other: Tensor) -> tuple[Tensor, Tensor]:
        """(other, this tensor) over common indices. Device axes and sizes must be the same. Raises Unsupported."""
        own = dict(other.devices)
        mapping = {var: of(own[name]) for name, var in self.devices}
        dims = []
        for first, second in zip(other.dims, self.dims, strict=True):
            axes, places = common_indices(first, second)
            dims.append(axes)
            mapping |= places
        mapping = {var: value for var, value in mapping.items() if value != of(var)}
        left, right = (replace(tensor, devices=other.devices, dims=tuple(dims)) for tensor in (other, self))
        return _by_digits(left._at(mapping), right._at(mapping))

    def choices(self, other: Tensor) -> list[dict[Var, Poly]]:
        """The case splits on indices under which this tensor is compared with another."""
        values = [form for tensor in (self, other) for form in (tensor.value, *tensor.applied)]
        return list(digit_choices([var for dim in self.dims for var in dim], *values))

    def chosen(self, choice: Mapping[Var, Poly]) -> Tensor:
        """The tensor under a case: indices replaced by numbers, sums over such indices unrolled."""
        found = self._at(choice) if choice else self
        value = unrolled(found.value)
        changed = choice or value != found.value
        return replace(found, value=expanded_indices(value)) if changed else found

    @property
    def applied(self) -> tuple[Form, ...]:
        """The partial applications of its domain, as forms."""
        return tuple(partial.family.value for partial in self.domain)

    def _at(self, mapping: Mapping[Var, Poly]) -> Tensor:
        return replace(
            self,
            value=substitute(self.value, mapping),
            entry=None if self.entry is None else self.entry.substitute(mapping),
            domain=tuple(partial.substitute(mapping) for partial in self.domain),
        )


def _by_digits(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Two tensors over common indices, with each index that one of them divides replaced by its digits."""
    axes = [var for dim in left.dims for var in dim]
    values = [form for tensor in (left, right) for form in (tensor.value, *tensor.applied)]
    found = divided_index(axes, *values)
    if found is None:
        return left, right
    index, own = found
    dims = tuple(tuple(var for old in dim for var in (own if old == index else (old,))) for dim in left.dims)
    first, second = (replace(tensor, dims=dims)._at({index: merged(own)}) for tensor in (left, right))
    return _by_digits(first, second)


class Call:
    """An operator applied to operands by name, mapped over the device axes `devices`.

    `alone`: no other operator reads the results, so that integer results need no bound.
    """

    alone = False

    def __init__(
        self,
        instance: Instance,
        operands: Mapping[str, Tensor],
        sizes: Sizes,
        devices: tuple[tuple[str, Var], ...],
        functions: Functions,
    ) -> None:
        self.instance = instance
        self.tensors = dict(operands)
        self.sizes = sizes
        self.devices = devices
        self.functions = functions
        self.axes: dict[str, tuple[Var, ...]] = {}

    def run(self) -> list[Tensor]:
        """The outputs. Raises Failed (in_bounds) and Unsupported."""
        if self.instance.extern:
            raise Unsupported(f"`{self.instance.name}`, which is an extern operator")
        for equation in self.instance.equations:
            self.tensors[equation.target.name] = self.define(equation)
        return [self.tensors[output.name] for output in self.instance.outputs]

    def shapes(self) -> list[Tensor]:
        """The outputs without their elements. Raises Unsupported."""
        for equation in self.instance.equations:
            self.tensors[equation.target.name] = self._shape(equation)
        if self.instance.extern:
            return [self.without_elements(output) for output in self.instance.outputs]
        return [self.tensors[output.name] for output in self.instance.outputs]

    def _shape(self, equation: Equation) -> Tensor:
        """The result of an equation without its elements. A single read of integers keeps their bound."""
        value = equation.value
        return self.without_elements(
            equation.target, self.tensors[value.tensor].bound if isinstance(value, Read) else None
        )

    def without_elements(self, target: Operand, bound: Poly | None = None) -> Tensor:
        """A tensor with the shape of a result. Without `bound`, an integer result has its declared bound."""
        dims = tuple(tuple(var for axis in dim for var in self.axis(axis)) for dim in target.dims)
        if bound is None and target.integer_range is not None:
            bound = self.bound(target)
        return Tensor(self.devices, dims, bound=bound)

    def define(self, equation: Equation) -> Tensor:
        """The result of an equation, given those of earlier ones."""
        shape = self._shape(equation)
        over = tuple(var for axis in equation.over for var in self.axis(axis))
        if equation.target.integer_range is not None or shape.bound is not None:
            entry = None if over else self.integer(equation.value)
            if entry is not None and shape.bound is not None:
                return replace(shape, entry=entry)
            if not self.alone:
                raise Unsupported(f"`{self.instance.name}`: an integer result that is computed")
        value = self.form(equation.value)
        match equation.kind:
            case ReductionKind.SUM:
                value = self.summed(value, over)
            case ReductionKind.MAX | ReductionKind.MIN:
                value = self.functions.reduced(equation.kind.value, value, over)
            case ReductionKind.PROD:
                raise Unsupported(f"`{self.instance.name}`: a product over an axis")
        return Tensor(self.devices, shape.dims, value, domain=self.functions.applications.collected(over))

    def summed(self, value: Form, over: tuple[Var, ...]) -> Form:
        """The sum of a term over indices of the equation."""
        return self.functions.summed(value, over)

    def bound(self, target: Operand) -> Poly | None:
        """The exclusive upper bound of an integer output, None for a float one."""
        decl = next(output for output in self.instance.operator.outputs if output.name == target.name)
        return None if decl.integer_range is None else self.sizes.size(Name(decl.integer_range))

    def axis(self, axis: str) -> tuple[Var, ...]:
        """The indices of an axis, one per factor."""
        if axis not in self.axes:
            factors = self.sizes.dims.get(axis)
            if factors is None:
                factors = self._inferred(axis)
                self.sizes.dims[axis] = factors
            self.axes[axis] = tuple(fresh(size) for size in factors)
        return self.axes[axis]

    def _inferred(self, axis: str) -> tuple[Poly, ...]:
        """The factors of an axis that is no declared dimension: those of the dimensions read at the bare axis.

        Raises Unsupported where these differ or there are none.
        """
        found = {
            tuple(var.size for var in self.tensors[node.tensor].dims[dim])
            for equation in self.instance.equations
            for node in walk(equation.value)
            if isinstance(node, Read) and node.tensor in self.tensors
            for dim, index in enumerate(node.index)
            if index == Name(axis)
        }
        if len(found) != 1:
            raise Unsupported(f"`{self.instance.name}`: how far the index `{axis}` runs")
        return found.pop()

    # ------------------------------------------------------------------------------------------ values

    def form(self, expr: Expr) -> Form:
        match expr:
            case Number(value):
                return literal(value)
            case Size(name):
                return constant(self.length(name))
            case Name(name):
                return index_value(self.position(name))
            case Read():
                return self._read(expr)
            case Uniform(index):
                return self._uniform(index)
            case Select(condition, then, otherwise):
                return self._select(condition, then, otherwise)
            case Apply(function, _) if function in COMPARISONS:
                return self._iverson(expr)
            case Apply("//" | "%"):
                return index_value(self._as_integer(expr))
            case Apply(function, arguments):
                return self.functions.call(function, [partial(self.form, argument) for argument in arguments])
        raise Unsupported(f"`{self.instance.name}`: {type(expr).__name__}")

    def length(self, name: str) -> Poly:
        """The number of positions of an axis."""
        if name in self.sizes.dims or name in self.sizes.attributes:
            value = self.sizes.size(Size(name))
            assert value is not None
            return value
        if name in self.axes:
            return product(var.size for var in self.axes[name])
        raise Unsupported(f"`{self.instance.name}`: the size `{name}`")

    def _iverson(self, expr: Apply) -> Form:
        condition = self.guard(expr)
        if condition is not None:
            return guarded([condition])
        with self.functions.applications.apart() as met:
            left, right = (self.form(argument) for argument in expr.arguments)
        return self.functions.step(expr.function, left, right, met)

    def _select(self, condition: Expr, then: Expr, otherwise: Expr) -> Form:
        known = self.guard(condition)
        if known is not None:
            with self.functions.applications.guarded(known):
                first = guarded([known], self.form(then))
            with self.functions.applications.guarded(known.negated()):
                return add(first, guarded([known.negated()], self.form(otherwise)))
        decided = self.form(condition)
        with self.functions.applications.inside("then", decided):
            first = self.form(then)
        with self.functions.applications.inside("otherwise", decided):
            return self.functions.select(decided, first, self.form(otherwise))

    def _uniform(self, index: tuple[Expr, ...]) -> Form:
        """Random numbers as a function of the row-major position, hence of the sizes of all axes but the first."""
        axes = [var for part in index if isinstance(part, Name) for var in self.places(part.name)]
        strides = ",".join(var.size.key for var in axes[1:])
        return atom(Element(f"uniform<{strides}>", tuple(of(var) for var in axes)))

    # ------------------------------------------------------------------------------------------ reads

    def _read(self, read: Read) -> Form:
        tensor = self.tensors[read.tensor]
        if tensor.entry is not None and read.fill is None:
            return index_value(self._as_integer(read))
        if tensor.entry is not None:
            raise Unsupported(f"`{self.instance.name}`: an integer read with a fill")
        parts, inside = self._place(read)
        value = self._at(tensor, parts, inside if read.fill is not None else ())
        if read.fill is None:
            return value
        with self.functions.applications.total("a fill"):
            fill = self.form(read.fill)
        before, found = (), [guarded(inside, value)]
        taken: tuple[Guard, ...] = before
        for condition in inside:
            found.append(guarded((*taken, condition.negated()), refresh(fill)))
            taken = (*taken, condition)
        return add(*found)

    def _at(self, tensor: Tensor, parts: Sequence[Sequence[Poly]], inside: tuple[Guard, ...]) -> Form:
        mapping = tensor.index({name: of(var) for name, var in self.devices}, parts)
        self.functions.applications.read(tensor.domain, mapping, inside)
        return self.functions.expanded(refresh(substitute(tensor.value, mapping)))

    def _place(self, read: Read) -> tuple[list[tuple[Poly, ...]], tuple[Guard, ...]]:
        """The index of a read per dimension and factor, and the guards of its bounds. Raises Failed (in_bounds)."""
        tensor = self.tensors[read.tensor]
        parts: list[tuple[Poly, ...]] = []
        inside: list[Guard] = []
        for place, (dim, index) in enumerate(zip(tensor.dims, read.index, strict=True)):
            part, conditions = self._factored(read, place, dim, index)
            parts.append(part)
            inside += conditions
        if read.fill is None:
            for condition in inside:
                if not self.sizes.arithmetic.certain(condition):
                    where = f"`{read.tensor}` of `{self.instance.name}` is read where"
                    named = {var: axis for axis, own in self.axes.items() if len(own) == 1 for var in own}
                    needed = f"{shown(condition.poly, named)} {condition.relation} 0"
                    raise Failed("in_bounds", f"{where} `{needed}` is not known to hold")
        return parts, tuple(inside)

    def _bare(self, read: Read, dim: int, index: Expr) -> tuple[Var, ...] | None:
        """The indices of a read along a dimension at a bare axis, or at the axes that it merges; None otherwise."""
        own = self.instance.operand(read.tensor).dims[dim]
        if isinstance(index, Name):
            return self.axes[index.name]
        return tuple(var for axis in own for var in self.axes[axis]) if own and index == dim_index(own) else None

    def _factored(
        self, read: Read, place: int, dim: tuple[Var, ...], index: Expr
    ) -> tuple[tuple[Poly, ...], list[Guard]]:
        sizes = tuple(var.size for var in dim)
        axes = self._bare(read, place, index)
        if axes is not None and product(var.size for var in axes) == product(sizes):
            return digits(axes, sizes), []  # a position along axes of the dimension's size is in bounds
        position = self._as_integer(index)
        if not sizes:
            return (), [compare("==", position, number(0))]
        major, exact = position, True
        minor: list[Poly] = []
        for size in reversed(sizes[1:]):
            major, rest, known = self._divided(major, size)
            minor.insert(0, rest)
            exact = exact and known
        bounds = within(major, sizes[0]) if exact else within(position, product(sizes))
        return (major, *minor), list(bounds)

    def _divided(self, value: Poly, size: Poly) -> tuple[Poly, Poly, bool]:
        """(quotient, remainder, exact). Exact: the polynomial division leaves a remainder known to be in 0 … size - 1.

        Otherwise the quotient is a floor quotient. Raises Unsupported for a size that is no polynomial in sizes, or may
        be below 1.
        """
        if not size.is_of_sizes or not self.sizes.arithmetic.certain(compare(">=", size, ONE)):
            raise Unsupported(f"`{self.instance.name}`: a position in a dimension with a factor {shown(size)}")
        exact, rest = value.divided(size)
        if all(self.sizes.arithmetic.certain(condition) for condition in within(rest, size)):
            return exact, rest, True
        whole = quotient(value, size)
        return whole, value - size * whole, False

    # ------------------------------------------------------------------------------------------ integers

    def guard(self, expr: Expr) -> Guard | None:
        """An integer comparison as a guard, else None."""
        if not (isinstance(expr, Apply) and expr.function in COMPARISONS):
            return None
        left, right = (self.integer(argument) for argument in expr.arguments)
        return None if left is None or right is None else compare(expr.function, left, right)

    def _as_integer(self, expr: Expr) -> Poly:
        value = self.integer(expr)
        if value is None:
            raise Unsupported(f"`{self.instance.name}`: an index that is no whole number")
        return value

    def position(self, axis: str) -> Poly:
        """The value of an axis's index."""
        return merged(self.places(axis))

    def places(self, axis: str) -> tuple[Var, ...]:
        """The indices that make up the position along an axis, major first."""
        return self.axes[axis]

    def integer(self, expr: Expr) -> Poly | None:
        """An expression of axes, sizes, integers and integer tensors as a polynomial; None for any other."""
        match expr:
            case Number(value):
                return number(value) if isinstance(value, int) else None
            case Size(name):
                length = self.length(name)
                return length if length.is_integral else None
            case Name(name):
                return self.position(name)
            case Read(tensor=name, fill=None):
                tensor = self.tensors[name]
                if tensor.entry is None:
                    return None
                parts, _ = self._place(expr)
                devices = {name: of(var) for name, var in self.devices}
                return tensor.entry.substitute(tensor.index(devices, parts))
            case Apply("+" | "-" | "*" | "neg" as function, arguments):
                values = [self.integer(argument) for argument in arguments]
                known = [value for value in values if value is not None]
                return _integer_arithmetic(function, known) if len(known) == len(values) else None
            case Apply("//" | "%" as function, (left, right)):
                return self._integer_quotient(function, self.integer(left), self.integer(right))
        return None

    def _integer_quotient(self, function: str, value: Poly | None, size: Poly | None) -> Poly | None:
        if value is None or size is None:
            return None
        if size == ONE:
            return value if function == "//" else number(0)
        whole, rest, _ = self._divided(value, size)
        return whole if function == "//" else rest


def _integer_arithmetic(function: str, parts: list[Poly]) -> Poly:
    if function == "neg":
        return -parts[0]
    left, right = parts
    return left * right if function == "*" else (left + right if function == "+" else left - right)


def input_tensor(name: str, devices: Mapping[str, Poly], dims: Sequence[Sequence[Poly]], bound: Poly | None) -> Tensor:
    """An input with unknown elements. The coordinate of a device axis with one device is 0."""
    own = tuple((device, fresh(size)) for device, size in devices.items())
    axes = tuple(tuple(fresh(size) for size in dim) for dim in dims)
    places = (number(0) if var.size == ONE else of(var) for _, var in own)
    index = (*places, *(of(var) for dim in axes for var in dim))
    if bound is not None:
        return Tensor(own, axes, entry=of(Entry(name, index, bound)), bound=bound)
    return Tensor(own, axes, atom(Element(name, index)))
