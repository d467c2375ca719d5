"""Terms of operators over named inputs, hash-consed: equal terms are one object and are compared by identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from ...cached_hash import cached_hash
from ...prove.normal_form.polynomial import Poly

Kind: TypeAlias = "tuple[str, int, int, tuple[str, ...], tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]"
"""Operator, number of degrees, number of the result, names of attributes, and a view's axes by dimension on both sides.

Axes are numbered from the left; a dimension of size 1 has none. The number of degrees is -1 for an operator that is not
a parallel op.
"""

GROUP = ".0"
"""Suffix of the name of the dimension that stands for a group `b..`."""


@dataclass(frozen=True)
class Shape:
    """Device axes, dimensions, and the bound of integers. A group `b..` is one dimension, `b.0`."""

    devices: frozenset[str]
    dims: tuple[Poly, ...]
    bound: Poly | None = None


@cached_hash
@dataclass(frozen=True)
class Head:
    """A call without its operands. `values` has the values of the attributes, then the sizes of split axes
    of a view.
    """

    kind: Kind
    degrees: tuple[str, ...] = ()
    values: tuple[Poly, ...] = ()


@dataclass(frozen=True, eq=False)
class Term:
    """An input, by its name, or a call of terms. `number` counts the terms of a bank in order of creation."""

    number: int
    name: str
    head: Head | None
    children: tuple[Term, ...]
    shape: Shape

    @cached_property
    def calls(self) -> frozenset[Term]:
        """The distinct calls in it, itself included."""
        if self.head is None:
            return frozenset()
        return frozenset((self,)).union(*(child.calls for child in self.children))

    @cached_property
    def inputs(self) -> frozenset[str]:
        """The names of the inputs in it."""
        if self.head is None:
            return frozenset((self.name,))
        return frozenset().union(*(child.inputs for child in self.children))

    @property
    def kind(self) -> Kind | None:
        return None if self.head is None else self.head.kind


@dataclass
class Terms:
    """A bank of terms. Operands of `commutative` operators are sorted if their shapes allow it."""

    commutative: frozenset[str]
    made: dict[object, Term] = field(default_factory=dict)

    def input(self, name: str, shape: Shape) -> Term:
        return self._known((name, shape), name, None, (), shape)

    def call(self, head: Head, children: tuple[Term, ...], shape: Shape) -> Term:
        """The term of a call; `shape` is used only if the term is new."""
        if head.kind[0] in self.commutative and len(children) == 2 and _same_group(*children):
            first, second = children
            children = (first, second) if first.number <= second.number else (second, first)
        return self._known((head, children), "", head, children, shape)

    def _known(self, key: object, name: str, head: Head | None, children: tuple[Term, ...], shape: Shape) -> Term:
        found = self.made.get(key)
        if found is None:
            found = self.made[key] = Term(len(self.made), name, head, children, shape)
        return found

    def replaced(self, term: Term, mapping: Mapping[Term, Term]) -> Term:
        """The term with some of its subterms replaced by others of equal shapes, wherever they occur."""
        if term in mapping:
            return mapping[term]
        if term.head is None or not any(old in term.calls for old in mapping):
            return term
        return self.call(term.head, tuple(self.replaced(child, mapping) for child in term.children), term.shape)


def _same_group(left: Term, right: Term) -> bool:
    """Whether the dimensions of one are the last dimensions of the other: commutativity is proved for such operands."""
    shorter, longer = sorted((left.shape.dims, right.shape.dims), key=len)
    return left.shape.devices == right.shape.devices and longer[len(longer) - len(shorter) :] == shorter
