"""Terms of a rule with the shapes of their values: every reading translates an operator graph into them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...prove.normal_form.polynomial import ZERO, Poly, number
from .file_rules import FileOperator
from .size_equations import Sizes


class NoReading(Exception):
    """The reading does not define an operator, or not with these parameters. The first argument says which."""


@dataclass(frozen=True)
class Dim:
    """A dimension. `parts` are the parts of the concatenation that made it, in order; a split returns them."""

    size: Poly
    parts: tuple[Dim, ...] = ()


@dataclass(frozen=True, eq=False)
class Input:
    """An external tensor."""

    name: str


@dataclass(frozen=True, eq=False)
class Call:
    """A call of an operator. Attributes are sizes, whose variables may have received values since."""

    name: str
    operands: tuple[Term, ...]
    attributes: tuple[tuple[str, Poly], ...] = ()


Term = Input | Call


@dataclass(frozen=True)
class Typed:
    """A term and the dimensions of its value."""

    term: Term
    dims: tuple[Dim, ...]

    def with_dim(self, axis: int, dim: Dim) -> tuple[Dim, ...]:
        return (*self.dims[:axis], dim, *self.dims[axis + 1 :])


@dataclass
class Typing:
    """The sizes of one rule, and the reading's choice for each operator."""

    choices: Mapping[str, str]
    sizes: Sizes = field(default_factory=Sizes)

    def equal(self, left: Dim, right: Dim) -> Dim:
        """The dimension that both must equal. It keeps its parts if both are made of equal parts. Raises
        Contradiction.
        """
        self.sizes.equal(left.size, right.size)
        return left if self._same_parts(left, right) else Dim(left.size)

    def _same_parts(self, left: Dim, right: Dim) -> bool:
        """Whether both are concatenations of parts of equal sizes, recursively."""
        compared: set[tuple[int, int]] = (
            set()
        )  # parts may be shared, so that there are exponentially many paths to them
        pending = [(left, right)]
        while pending:
            one, other = pending.pop()
            if one is other or (id(one), id(other)) in compared:
                continue
            compared.add((id(one), id(other)))
            if len(one.parts) != len(other.parts) or self.sizes.value(one.size - other.size).terms:
                return False
            pending += zip(one.parts, other.parts, strict=True)
        return True

    def all_equal(self, left: Sequence[Dim], right: Sequence[Dim]) -> tuple[Dim, ...]:
        """Equates dimensions one by one. Raises Contradiction, and NoReading if the ranks differ."""
        if len(left) != len(right):
            raise NoReading(f"operands of ranks {len(left)} and {len(right)}")
        return tuple(map(self.equal, left, right))

    # ------------------------------------------------------------------------------ operators of all readings

    def elementwise(self, name: str, operands: Sequence[Typed]) -> Typed:
        """An element-wise call on operands of one shape, without broadcasting."""
        dims = operands[0].dims
        for operand in operands[1:]:
            dims = self.all_equal(dims, operand.dims)
        return Typed(Call(name, tuple(operand.term for operand in operands)), dims)

    def activated(self, value: Typed, made: FileOperator) -> Typed:
        """The value with the operator's activation applied to it: 0 none, 1 sigmoid, 2 relu, 3 tanh."""
        kind = made.parameters.get("activation", 0)
        if not 0 <= kind <= 3:
            raise NoReading(f"activation {kind} of `{made.kind}`")
        return value if kind == 0 else self.elementwise(("", "sigmoid", "relu", "tanh")[kind], [value])

    def concat(self, made: FileOperator, operands: Sequence[Typed]) -> Typed:
        """The concatenation of the operands along the parameter `axis`."""
        if len(operands) != made.parameters.get("inputs", len(operands)) or len(operands) < 2:
            raise NoReading(f"`concat` of {len(operands)} operands")
        axis = axis_of(made, operands[0])
        joined = operands[0]
        for operand in operands[1:]:
            dims = list(self.all_equal(joined.with_dim(axis, Dim(ZERO)), operand.with_dim(axis, Dim(ZERO))))
            first, second = joined.dims[axis], operand.dims[axis]
            dims[axis] = Dim(first.size + second.size)
            joined = Typed(Call("concat", (joined.term, operand.term), (("dim", number(axis)),)), tuple(dims))
        parts = tuple(operand.dims[axis] for operand in operands)
        return Typed(joined.term, joined.with_dim(axis, Dim(joined.dims[axis].size, parts)))

    def split(self, made: FileOperator, operand: Typed) -> tuple[Typed, ...]:
        """Slices along the parameter `axis`: the parts that were concatenated, or equal parts with the
        choice `halves`.
        """
        axis, count = axis_of(made, operand), made.parameters.get("outputs", 0)
        parts = operand.dims[axis].parts
        if self.choices["split"] == "halves":
            part = Dim(self.sizes.fresh("e"))
            self.sizes.equal(operand.dims[axis].size, part.size.scaled(count))
            parts = (part,) * count
        if not count or len(parts) != count:
            raise NoReading(f"`split` into {count} along an axis that no `concat` made of so many")
        slices, start = [], ZERO
        for part in parts:
            limits = (("dim", number(axis)), ("start", start), ("stop", start + part.size))
            slices.append(Typed(Call("slice", (operand.term,), limits), operand.with_dim(axis, part)))
            start = start + part.size
        return tuple(slices)


def axis_of(made: FileOperator, operand: Typed) -> int:
    """The parameter `axis`. Raises NoReading if it is missing or is not an axis of the operand, or if
    `rank` differs.
    """
    axis, rank = made.parameters.get("axis"), len(operand.dims)
    if axis is None or not 0 <= axis < rank or made.parameters.get("rank", rank) != rank:
        raise NoReading(f"`{made.kind}` along axis {axis} of a tensor of rank {rank}")
    return axis


def calls_of(term: Term) -> Iterator[Call]:
    """Every call of a term once, each after its operands."""
    seen: set[int] = set()
    pending: list[tuple[Term, bool]] = [(term, False)]
    while pending:
        one, done = pending.pop()
        if isinstance(one, Input):
            continue
        if done:
            yield one
        elif id(one) not in seen:
            seen.add(id(one))
            pending += [(one, True), *((operand, False) for operand in one.operands)]
