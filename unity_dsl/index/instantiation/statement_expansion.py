"""Expands the statements of a declaration to terms over an instance's axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ...syntax.ast import Expr, Name, Number, OperatorDecl, Read, Reduce, Size, Statement, TensorDecl, Uniform
from ...syntax.diagnostic import fail
from ..equations.instance import Dim, Operand
from ..equations.rewriting import decide_draws
from ..equations.term import (
    call,
    children,
    dim_index,
    fresh,
    is_rest,
    merged_index,
    rewrite,
    substitute,
    walk,
    with_children,
)
from .call_frame import Frame
from .merged_dimensions import merged_dims

Slot = tuple[str, bool]
"""One entry of a tensor's declared dimensions: its name and whether it is a rest group."""


@dataclass
class Scope:
    """The names that statements of one operator may use.

    `slots` are the declared dimensions of every tensor defined so far, `operands` the tensors at this call; `local`
    maps axes that are no declared dimension to the dimensions they run over.
    """

    operator: OperatorDecl
    frame: Frame
    slots: dict[str, tuple[Slot, ...]]
    operands: dict[str, Operand]
    sizes: dict[str, int]
    local: dict[str, str] = field(default_factory=dict)

    def define(self, statement: Statement, merged: tuple[Dim, ...] | None) -> tuple[Operand, Expr]:
        """The target and the value of a statement, which later statements may read.

        `merged` are the dimensions of the result of a pattern call.
        """
        statement = self._bind_names(statement)
        left = tuple((name.name, is_rest(name)) for name in statement.index)
        axes = tuple(axis for name, rest in left for axis in self._axes(name, rest))
        bound = self._output(statement.target)
        dims = tuple((axis,) for axis in axes) if bound is None else merged_dims(bound, tuple((a,) for a in axes))
        value = decide_draws(self.expand(statement.value))
        integer_range = None if merged is None else self._copied_range(value)
        if bound is not None and bound.integer_range is not None:
            integer_range = self.sizes[bound.integer_range]
        target = Operand(statement.target, dims if merged is None else merged, integer_range)
        self.slots[target.name] = left
        self.operands[target.name] = target
        return target, value

    def _copied_range(self, value: Expr) -> int | None:
        """The integer range of an operand that the value copies. A pattern call applies to integers as to floats."""
        return self.operands[value.tensor].integer_range if isinstance(value, Read) and value.fill is None else None

    def _output(self, name: str) -> TensorDecl | None:
        return next((output for output in self.operator.outputs if output.name == name), None)

    # ------------------------------------------------------------------------------------------ names

    def _bind_names(self, statement: Statement) -> Statement:
        """Renames each index to the dimension that it runs over if that name is unused, else to a new name."""
        value = rewrite(statement.value, self._bind_reduction)
        output = self._output(statement.target)
        declared = [None] * len(statement.index) if output is None else [dim.name for dim in output.dims]
        used = {name.name for name in statement.index} | _names(value)
        renamed: dict[str, str] = {}
        for name, dim in zip(statement.index, declared, strict=True):
            wanted = dim if dim is not None else self._inferred(name.name, value)
            if wanted is not None and wanted != name.name:
                renamed[name.name] = self._axis(name.name, wanted, used | set(renamed.values()))
        left = tuple(replace(name, name=renamed.get(name.name, name.name)) for name in statement.index)
        return replace(statement, index=left, value=_rename(value, renamed))

    def _bind_reduction(self, node: Expr) -> Expr:
        if not isinstance(node, Reduce):
            return node
        used = _names(node.body) | {axis.name for axis in node.axes}
        renamed: dict[str, str] = {}
        for axis in node.axes:
            wanted = self._inferred(axis.name, node.body)
            if wanted is not None:
                renamed[axis.name] = self._axis(axis.name, wanted, used | set(renamed.values()))
        axes = tuple(replace(axis, name=renamed.get(axis.name, axis.name)) for axis in node.axes)
        return replace(node, axes=axes, body=_rename(node.body, renamed))

    def _inferred(self, name: str, value: Expr) -> str | None:
        """The dimension of an index that is not itself a declared dimension: one that is read at the bare index.

        Raises E107.
        """
        if name in self.sizes or name in self.frame.rests:
            return None
        for node in walk(value):
            if isinstance(node, Read):
                for index, (slot, _) in zip(node.index, self.slots[node.tensor], strict=True):
                    if isinstance(index, Name) and index.name == name:
                        return self.local.get(slot, slot)
        raise fail("E107", f"nothing says how far the index `{name}` runs", self.operator.span)

    def _axis(self, name: str, dim: str, used: set[str]) -> str:
        """`dim` if no other index has that name, else a new name with the same size."""
        if dim not in used:
            return dim
        candidate, others = name, used - {name}
        while candidate in others or self.local.get(candidate, dim) != dim or self._is_dim(candidate):
            candidate = fresh(name, {candidate} | others | set(self.local) | set(self.sizes))
        self.local[candidate] = dim
        self.sizes[candidate] = self.sizes[dim]
        return candidate

    def _is_dim(self, name: str) -> bool:
        return name in self.sizes and name not in self.local

    # ------------------------------------------------------------------------------------------ terms

    def expand(self, expr: Expr) -> Expr:
        """The term over the axes of this instance."""
        match expr:
            case Name(name, False) if name in self.frame.attributes:
                return Number(self.frame.attributes[name], span=expr.span)
            case Size(name, True):
                return self._rest_size(expr)
            case Read():
                fill = None if expr.fill is None else self.expand(expr.fill)
                return replace(expr, index=self._read_index(expr), fill=fill)
            case Uniform(index):
                return replace(expr, index=tuple(part for entry in index for part in self._entry(entry)))
            case Reduce(_, axes, body):
                names = tuple(Name(axis) for entry in axes for axis in self._axes(entry.name, is_rest(entry)))
                return replace(expr, axes=names, body=self.expand(body))
            case _:
                parts = children(expr)
                return with_children(expr, tuple(self.expand(part) for part in parts)) if parts else expr

    def _axes(self, name: str, rest: bool) -> tuple[str, ...]:
        return self.frame.rests[name] if rest else (name,)

    def _entry(self, index: Expr) -> tuple[Expr, ...]:
        if is_rest(index):
            return tuple(Name(axis) for axis in self.frame.rests[index.name])
        return (self.expand(index),)

    def _rest_size(self, size: Size) -> Expr:
        product: Expr | None = None
        for axis in self.frame.rests[size.name]:
            product = Size(axis) if product is None else call("*", product, Size(axis))
        return Number(1) if product is None else product

    def _read_index(self, read: Read) -> tuple[Expr, ...]:
        """One expression per dimension; rest groups are read at their own axes."""
        dims: list[Dim] = list(self.operands[read.tensor].dims)
        slots = self.slots[read.tensor]
        if all(rest for _, rest in slots):
            return tuple(dim_index(dim) for dim in dims)
        named = sum(not rest for _, rest in slots)
        axes: list[Dim] = [part for dim in dims for part in ([(axis,) for axis in dim] if len(dim) > 1 else [dim])]
        parts = iter([part for expr in self._aligned(read, slots, axes, len(axes) - named) for part in expr])
        return tuple(_joined(dim, parts) for dim in dims)

    def _aligned(self, read: Read, slots: tuple[Slot, ...], dims: list[Dim], extra: int) -> list[tuple[Expr, ...]]:
        found: list[tuple[Expr, ...]] = []
        groups = [name for name, rest in slots if rest]
        position = 0
        for index, (name, rest) in zip(read.index, slots, strict=True):
            # Only a broadcasting operand can have fewer axes than its group.
            count = (extra if len(groups) == 1 else len(self.frame.rests[name])) if rest else 1
            part = dims[position : position + count]
            found.append(tuple(dim_index(dim) for dim in part) if rest else (self.expand(index),))
            position += count
        return found


def _joined(dim: Dim, parts: Iterator[Expr]) -> Expr:
    """The index of a dimension, from the indices of its axes."""
    if len(dim) < 2:
        return next(parts)
    return merged_index((next(parts), Size(axis)) for axis in dim)


def _rename(expr: Expr, names: Mapping[str, str]) -> Expr:
    return substitute(expr, {old: Name(new) for old, new in names.items()})


def _names(expr: Expr) -> set[str]:
    """Every name that occurs as an index, bound or free."""
    bound = {axis.name for node in walk(expr) if isinstance(node, Reduce) for axis in node.axes}
    return bound | {node.name for node in walk(expr) if isinstance(node, Name)}
