"""Binds the names of a declaration at one call: attributes, axes of rest groups, every size.

Ranks are bound first (`b..` of rank n has the axes b0 … b{n-1}), then the sizes of the operands' dimensions, then sizes
that the `where` conditions determine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from ...syntax.ast import Apply, Expr, Name, OperatorDecl, TensorDecl
from ...syntax.diagnostic import InputError, Label, fail, suggest
from ...syntax.span import Span
from ..equations.integer_results import integer_names
from ..equations.term import reads, walk
from ..equations.where_conditions import (
    Environment,
    Unsolvable,
    Value,
    defined_sizes,
    keys,
    mentions_rank,
    propagate_all,
    value_of,
)
from .operand_shape import Shape


@dataclass(frozen=True)
class Site:
    """A call of an operator, as diagnostics refer to it."""

    operator: OperatorDecl
    shapes: tuple[Shape, ...]
    span: Span | None = None

    def fault(self, code: str, message: str, *, label: str = "", help: str = "", at: Span | None = None) -> InputError:
        """A diagnostic at the call (or at `at`) with the declaration and the origin of every shape."""
        decl = self.operator
        notes = [
            Label(shape.origin, f"`{tensor.name}` has shape {shape}")
            for tensor, shape in zip(decl.inputs, self.shapes, strict=False)
            if shape.origin is not None
        ]
        if decl.span is not None:
            notes.append(Label(decl.span, f"`{decl.name}` reads {self.declared}"))
        return fail(code, f"`{decl.name}`: {message}", at or self.span, label=label, help=help, notes=notes)

    @property
    def declared(self) -> str:
        return ", ".join(f"{tensor.name}: {dims_text(tensor)}" for tensor in self.operator.inputs)

    def operands(self) -> Iterator[tuple[TensorDecl, Shape]]:
        return zip(self.operator.inputs, self.shapes, strict=True)


@dataclass(frozen=True)
class Frame:
    """The bindings of the declaration's names. `sizes` has the sizes of axes and of named dimensions."""

    rests: Mapping[str, tuple[str, ...]]
    sizes: Mapping[str, int]
    attributes: Mapping[str, Value]


def dims_text(tensor: TensorDecl) -> str:
    """A declared shape in `.uop` notation: `[b.., i]`."""
    integers = "" if tensor.integer_range is None else f"int<{tensor.integer_range}>"
    names = [" ".join(dim.name + ".." * dim.rest + "~" * dim.broadcast for dim in axes) for axes in tensor.dimensions]
    return f"{integers}[{', '.join(f'({name})' if ' ' in name else name for name in names)}]"


def frame(site: Site, given: Mapping[str, Value], degrees: Mapping[str, int]) -> Frame:
    """The bindings of a call. `given` are its attributes, `degrees` the sizes of device axes, named `@p`.

    Raises E120 (number of operands), E121 (rank), E122 (sizes), E123 (integers), E124 to E126 (attributes), E127
    (conditions).
    """
    decl = site.operator
    if len(site.shapes) != len(decl.inputs):
        raise site.fault("E120", f"takes {len(decl.inputs)} tensors ({site.declared}), {len(site.shapes)} given")
    attributes = attributes_of(site, given)
    known: Environment = {**attributes, **degrees}
    ranks = _ranks(site, attributes, known)
    rests = _rest_axes(decl, ranks)
    sizes = _Sizes(site, rests, dict(degrees))
    # Operands that do not broadcast bind sizes first; the others must fit them.
    for number, (tensor, shape) in sorted(enumerate(site.operands()), key=lambda entry: _broadcasts(entry[1][0])):
        sizes.bind(number, tensor, shape)
    sizes.bind_ranges()
    known |= sizes.found
    for name, axes in rests.items():
        known[f"{name}.."] = prod(sizes.found[axis] for axis in axes)
    solve_conditions(site, known)
    return Frame(rests, integer_sizes(site, known, sizes.found), attributes)


# ---------------------------------------------------------------------------------------------- attributes


def attributes_of(site: Site, given: Mapping[str, Value]) -> dict[str, Value]:
    """Every attribute's value: the call's if given, else the default. Raises E124 to E126."""
    decl = site.operator
    names = [attribute.name for attribute in decl.attributes]
    for name in given:
        if name not in names:
            known = f"it has {', '.join(f'`{n}`' for n in names)}" if names else "it has none"
            raise site.fault("E124", f"no attribute `{name}`", help=suggest(name, names) or known)
    integers = integer_attributes(decl)
    found: dict[str, Value] = {}
    for attribute in decl.attributes:
        value = given.get(attribute.name, attribute.default)
        if value is None:
            raise site.fault("E125", f"attribute `{attribute.name}` is missing", help=f"`; {attribute.name}=…`")
        if attribute.name in integers and isinstance(value, float) and not value.is_integer():
            raise site.fault("E126", f"attribute `{attribute.name}` must be a whole number, not {value:g}")
        found[attribute.name] = int(value) if attribute.name in integers else value
    return found


@lru_cache(maxsize=1024)
def integer_attributes(decl: OperatorDecl) -> frozenset[str]:
    """Attributes in rank equations, size equations and index expressions, which must be integers."""
    names = {attribute.name for attribute in decl.attributes}
    equations = [c for c in decl.conditions if isinstance(c, Apply) and c.function == "=="]
    statements = (*decl.statements, *decl.evaluation)
    terms: list[Expr] = [*equations, *(e for s in statements for read in reads(s.value) for e in read.index)]
    counted = {node.name for term in terms for node in walk(term) if isinstance(node, Name)} | integer_names(decl)
    return frozenset(names & counted)


# ---------------------------------------------------------------------------------------------- ranks


@lru_cache(maxsize=2048)
def conditions_on(decl: OperatorDecl, *, ranks: bool) -> tuple[Expr, ...]:
    """The conditions on ranks, or those on sizes and attributes alone."""
    return tuple(condition for condition in decl.conditions if mentions_rank(condition) == ranks)


def _ranks(site: Site, attributes: dict[str, Value], known: Environment) -> dict[str, int]:
    decl = site.operator
    _count_from_end(site, attributes, known)
    conditions = conditions_on(decl, ranks=True)
    pending = True
    while pending:
        before = len(known)
        _propagate(site, conditions, known)
        for tensor, shape in site.operands():
            _rank_of_rest(tensor, shape, known)
        pending = len(known) > before
    _broadcast_ranks(site, known)
    groups = dict.fromkeys(dim.name for tensor in decl.inputs for dim in tensor.dims if dim.rest)
    for name in groups:
        if f"rank({name})" not in known:
            help = "name the axes: `x[b, c, d] -> [b, d]`"
            raise site.fault("E121", f"nothing says which axes `{name}..` stands for", help=help)
    ranks = {name: int(known[f"rank({name})"]) for name in groups}
    negative = [name for name, rank in ranks.items() if rank < 0]
    if negative and attributes:
        facts = ", ".join(f"{name} = {value}" for name, value in attributes.items())
        raise site.fault("E126", f"with {facts}, `{negative[0]}..` would have {ranks[negative[0]]} dimensions")
    for tensor, shape in site.operands():
        _check_rank(site, tensor, shape, ranks)
    return ranks


def _count_from_end(site: Site, attributes: dict[str, Value], known: Environment) -> None:
    """In `rank(f) == dim` a negative `dim` counts from the end of the first input with `f..`."""
    for condition in conditions_on(site.operator, ranks=True):
        if not (isinstance(condition, Apply) and condition.function == "=="):
            continue
        for side, other in (condition.arguments, condition.arguments[::-1]):
            if isinstance(side, Name) and side.name in attributes and mentions_rank(other):
                total = _input_rank(site, keys(other))
                value = attributes[side.name]
                if not -total <= value < total:
                    message = f"{side.name} = {value} is not one of the {total} dimensions of {site.shapes[0]}"
                    raise site.fault("E126", message)
                attributes[side.name] = known[side.name] = value % total


def _input_rank(site: Site, wanted: tuple[str, ...]) -> int:
    """The rank, without device axes, of the first input with one of the rest groups `rank(f)`."""
    for tensor, shape in site.operands():
        if any(dim.rest and f"rank({dim.name})" in wanted for dim in tensor.dims):
            return len(shape.dims) - sum(dim.device for dim in tensor.dims)
    raise ValueError(f"{site.operator.name}: no input has {wanted}")


def _broadcast_ranks(site: Site, known: Environment) -> None:
    """Sets the rank of a group that broadcasts in all its operands: the greatest among them."""
    greatest: dict[str, int] = {}
    for tensor, shape in site.operands():
        for dim in tensor.dims:
            if dim.broadcast:
                rank = len(shape.dims) - (len(tensor.dims) - 1)
                greatest[dim.name] = max(rank, greatest.get(dim.name, 0))
    for name, rank in greatest.items():
        known.setdefault(f"rank({name})", rank)


def _rank_of_rest(tensor: TensorDecl, shape: Shape, known: Environment) -> None:
    groups = [dim for dim in tensor.dims if dim.rest]
    unknown = [dim for dim in groups if f"rank({dim.name})" not in known]
    if len(unknown) == 1 and not unknown[0].broadcast:
        fixed = len(tensor.dims) - len(groups)
        others = sum(known[f"rank({dim.name})"] for dim in groups if dim is not unknown[0])
        known[f"rank({unknown[0].name})"] = len(shape.dims) - fixed - others


def _check_rank(site: Site, tensor: TensorDecl, shape: Shape, ranks: Mapping[str, int]) -> None:
    expected = sum(ranks[dim.name] if dim.rest else 1 for dim in tensor.dims)
    fewest = len(tensor.dims) - 1 if _broadcasts(tensor) else expected
    if not fewest <= len(shape.dims) <= expected or any(rank < 0 for rank in ranks.values()):
        message = f"`{tensor.name}: {dims_text(tensor)}` does not fit shape {shape} of rank {len(shape.dims)}"
        others = [f"`{t.name}` has shape {s}" for t, s in site.operands() if t is not tensor]
        raise site.fault("E121", f"{message}{' where ' + ', '.join(others) if others else ''}")


def _rest_axes(decl: OperatorDecl, ranks: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """`b..` of rank 2 is (b0, b1), with underscores inserted if a declared dimension has such a name."""
    declared = {dim.name for tensor in (*decl.inputs, *decl.outputs) for dim in tensor.dims if not dim.rest}
    rests: dict[str, tuple[str, ...]] = {}
    for name, rank in ranks.items():
        stem = name
        while declared & {f"{stem}{position}" for position in range(rank)}:
            stem += "_"
        rests[name] = tuple(f"{stem}{position}" for position in range(rank))
    return rests


# ---------------------------------------------------------------------------------------------- sizes


class _Sizes:
    """Sizes by axis, each with the first operand that has it."""

    def __init__(self, site: Site, rests: Mapping[str, tuple[str, ...]], found: dict[str, int]) -> None:
        self.site = site
        self.rests = rests
        self.found = found
        self.first: dict[str, int] = {}
        self.fixed = set(found)

    def bind(self, number: int, tensor: TensorDecl, shape: Shape) -> None:
        if any(dim < 1 for dim in shape.dims):
            raise self.site.fault("E122", f"`{tensor.name}` has shape {shape}: every size must be at least 1")
        for axis, size, broadcast in zip_axes(tensor, shape, self.rests):
            known = self.found.get(axis)
            if known is None or (broadcast and known == 1 and axis not in self.fixed):
                self.found[axis] = size
                self.first[axis] = number
                if not broadcast:
                    self.fixed.add(axis)
            elif known != size and not (broadcast and size == 1):
                raise self.mismatch(axis, number, size)

    def mismatch(self, axis: str, number: int, size: int) -> InputError:
        decl, shapes, first = self.site.operator, self.site.shapes, self.first.get(axis)
        if first is None:
            return self.site.fault(
                "E122", f"{self.shown(axis)} has size {self.found[axis]}, {shapes[number]} gives {size}"
            )
        left, right = decl.inputs[first], decl.inputs[number]
        message = (
            f"{self.shown(axis)} has size {self.found[axis]} in `{left.name}: {dims_text(left)}` = {shapes[first]}"
            f" but {size} in `{right.name}: {dims_text(right)}` = {shapes[number]}"
        )
        return self.site.fault("E122", message)

    def shown(self, axis: str) -> str:
        """The name of an axis in diagnostics. An axis of a group is shown by its position in the group."""
        for name, axes in self.rests.items():
            if axis in axes:
                return f"dimension {axes.index(axis)} of `{name}..`"
        return f"axis `{axis}`"

    def bind_ranges(self) -> None:
        """Binds `v` of `ids: int<v>[n..]`. The range of a tensor may be smaller than v."""
        for tensor, shape in self.site.operands():
            if (tensor.integer_range is None) != (shape.integer_range is None):
                wanted = "floats" if tensor.integer_range is None else f"int<{tensor.integer_range}>"
                given = "floats" if shape.integer_range is None else f"int<{shape.integer_range}>"
                raise self.site.fault("E123", f"`{tensor.name}` must hold {wanted}, it is given {given}")
            if tensor.integer_range is not None and shape.integer_range is not None:
                bound = self.found.setdefault(tensor.integer_range, shape.integer_range)
                if shape.integer_range > bound:
                    message = f"`{tensor.name}` is int<{shape.integer_range}>, but `{tensor.integer_range}` is {bound}"
                    raise self.site.fault("E123", message, help="its values could lie outside the axis they index")


def zip_axes(tensor: TensorDecl, shape: Shape, rests: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, int, bool]]:
    """Yields (axis, size, broadcasting) per dimension of an operand. Broadcasting groups are right-aligned."""
    axes: list[tuple[str, bool]] = []
    for dim in tensor.dims:
        axes += [(axis, dim.broadcast) for axis in (rests[dim.name] if dim.rest else (dim.name,))]
    missing = len(axes) - len(shape.dims)
    if missing:
        start = next(position for position, (_, broadcast) in enumerate(axes) if broadcast)
        del axes[start : start + missing]
    for (axis, broadcast), size in zip(axes, shape.dims, strict=True):
        yield axis, size, broadcast


def solve_conditions(site: Site, known: Environment) -> None:
    """Extends `known` by the `where` conditions, and checks them. Raises E127."""
    _propagate(site, site.operator.conditions, known)
    for condition in site.operator.conditions:
        try:
            holds = value_of(condition, known)
        except Unsolvable as reason:
            raise _refused(site, condition, known, str(reason)) from None
        if holds is not True:
            raise _refused(site, condition, known, "does not hold")


def _propagate(site: Site, conditions: tuple[Expr, ...], known: Environment) -> None:
    """Extends `known` to a fixpoint. Raises E127."""

    def refuse(condition: Expr, reason: Unsolvable) -> None:
        raise _refused(site, condition, known, str(reason)) from None

    propagate_all(conditions, known, refuse)


def _refused(site: Site, condition: Expr, known: Environment, reason: str) -> InputError:
    text = f"`{condition.span.text}`" if condition.span is not None else "a condition"
    facts = ", ".join(f"{key.removeprefix('@')} = {known[key]}" for key in keys(condition) if key in known)
    return site.fault("E127", f"needs {text}, which {reason}: {facts}")


def integer_sizes(site: Site, known: Environment, bound: Mapping[str, int]) -> dict[str, int]:
    """The sizes of operands, of results and of axes that conditions define.

    Raises E127 unless they are integers >= 1.
    """
    sizes = dict(bound)
    named = [dim.name for tensor in site.operator.outputs for dim in tensor.dims if not dim.rest]
    named += [tensor.integer_range for tensor in site.operator.outputs if tensor.integer_range is not None]
    attributes = {attribute.name for attribute in site.operator.attributes}
    for name in dict.fromkeys((*named, *defined_sizes(site.operator.conditions))):
        if name in attributes:
            continue
        value = known.get(name)
        if value is None:
            raise site.fault("E127", f"nothing determines the size `{name}`")
        if value != int(value) or value < 1:
            raise site.fault("E127", f"the size `{name}` would be {value:g}")
        sizes[name] = int(value)
    return sizes


def _broadcasts(tensor: TensorDecl) -> bool:
    return any(dim.broadcast for dim in tensor.dims)
