"""Splits statements at their inner reductions, so that an equation has at most one, outermost.

Laws used: a constant factor moves into a sum, nested reductions of one kind are one reduction over all their axes, and
equal reductions are the same tensor.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...syntax.ast import Apply, Expr, Name, Number, Read, Reduce, ReductionKind, Size, Ties
from ...syntax.span import Span
from .instance import Equation, Operand
from .term import axis_name, call, free_axes, rewrite, walk

_Key = tuple[ReductionKind, Ties, tuple[str, ...], Expr]


class ReductionSplitter:
    """Collects the equations of an operator's statements, in order. Intermediates get names outside `taken`."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.equations: list[Equation] = []
        self._taken = set(taken)
        self._known: dict[_Key, Operand] = {}

    def add(self, target: Operand, value: Expr, span: Span | None) -> None:
        """Appends a statement, preceded by its inner reductions. Names in `value` are axes of the instance."""
        value = rewrite(value, _normalise)
        reduction = value if isinstance(value, Reduce) else None
        # `y[c] = sum(c) …` shadows c: the sum becomes an equation of its own, over an axis of its own.
        if reduction is None or set(_over(reduction)) & set(target.axes):
            self.equations.append(Equation(target, self._extract(value, target, span), span=span))
            return
        body = self._extract(reduction.body, target, span)
        over = _over(reduction)
        self.equations.append(Equation(target, body, reduction.kind, over, reduction.ties, span))
        if all(len(dim) == 1 for dim in target.dims) and set(target.axes) == _free(body, over):
            self._known.setdefault((reduction.kind, reduction.ties, over, body), target)

    def _extract(self, value: Expr, target: Operand, span: Span | None) -> Expr:
        """The value with each inner reduction replaced by a read of a new intermediate."""

        def replaced(node: Expr) -> Expr:
            if not isinstance(node, Reduce):
                return node
            source = self._intermediate(node, target, node.span or span)
            return Read(source.name, tuple(Name(axis) for axis in source.axes), span=node.span)

        return rewrite(value, replaced)

    def _intermediate(self, reduction: Reduce, target: Operand, span: Span | None) -> Operand:
        over = _over(reduction)
        key = (reduction.kind, reduction.ties, over, reduction.body)
        if key not in self._known:
            free = _free(reduction.body, over)
            axes = [axis for axis in target.axes if axis in free]
            axes += [axis for axis in free_axes(reduction.body) if axis in free and axis not in axes]
            made = Operand(self._name(target.name), tuple((axis,) for axis in axes))
            self.equations.append(Equation(made, reduction.body, reduction.kind, over, reduction.ties, span))
            self._known[key] = made
        return self._known[key]

    def _name(self, target: str) -> str:
        number = 1
        while f"{target}_{number}" in self._taken:
            number += 1
        self._taken.add(f"{target}_{number}")
        return f"{target}_{number}"


def _over(reduction: Reduce) -> tuple[str, ...]:
    return tuple(axis_name(axis) for axis in reduction.axes)


def _free(body: Expr, over: tuple[str, ...]) -> set[str]:
    return set(free_axes(body)) - set(over)


def _normalise(node: Expr) -> Expr:
    """One rewriting step at a normal-form node: drops empty reductions, merges nested ones, moves constants inside."""
    match node:
        case Reduce(_, (), body):
            return body
        case Reduce(kind, axes, Reduce(inner, others, body, same), ties) if (kind, ties) == (inner, same):
            return node if set(axes) & set(others) else Reduce(kind, axes + others, body, ties, span=node.span)
        case Apply("neg", (Reduce(ReductionKind.SUM) as total,)):
            return _inside(total, call("neg", total.body))
        case Apply("*" | "/" as function, (Reduce(ReductionKind.SUM) as total, factor)) if is_constant(factor):
            return _inside(total, call(function, total.body, factor))
        case Apply("*", (factor, Reduce(ReductionKind.SUM) as total)) if is_constant(factor):
            return _inside(total, call("*", factor, total.body))
        case _:
            return node


def _inside(total: Reduce, body: Expr) -> Expr:
    return Reduce(total.kind, total.axes, body, span=total.span)


def is_constant(expr: Expr) -> bool:
    """Whether a term depends on nothing but sizes and numbers."""
    return all(isinstance(node, Number | Size | Apply) for node in walk(expr))
