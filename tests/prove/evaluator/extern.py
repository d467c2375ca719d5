"""Extern operators for the independent evaluator: an arbitrary function of the operands, chosen by the seed.

A proof about an extern operator holds for every function that maps equal operands to equal results. Trials therefore
use functions that depend on all elements, on a few of them, and on none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product
from math import prod
from zlib import crc32

from unity_dsl.index.library import Library
from unity_dsl.syntax.parse_rules import GraphCall, RuleDecl

from .inputs import mixed
from .shapes import Declaration, Frame, Layout, NoMeaning
from .sizes import expressions
from .values import UNKNOWN, Exact, Value, is_exact

Place = tuple[int, ...]


def draws_numbers(rule: RuleDecl, library: Library) -> bool:
    """Whether a rule calls an operator with random numbers."""
    called = (library.operators.get(expr.name) for expr in expressions(rule) if isinstance(expr, GraphCall))
    return any("Uniform(" in repr(decl.statements) for decl in called if decl is not None)


def calls_extern(rule: RuleDecl, library: Library) -> bool:
    """Whether a rule calls an extern operator."""
    called = (library.operators.get(expr.name) for expr in expressions(rule) if isinstance(expr, GraphCall))
    return any(decl is not None and decl.extern for decl in called)


class ExternFunction:
    """One call: maps each place to an integer below the result's bound that depends on the operands' elements.

    The result is UNKNOWN if an element is not exact, because two intervals may be the same number.
    """

    def __init__(
        self, decl: Declaration, frame: Frame, inputs: Sequence[Callable[[Place], Value]], result: int, seed: int
    ) -> None:
        bound = frame.ranges[result]
        if bound is None:
            raise NoMeaning(f"{decl.name} is extern and returns no integers")
        self.bound = bound
        self.operands = [*zip(inputs, frame.inputs, strict=True)]
        self.frame = frame
        self.seed = seed
        self.name = crc32(f"{decl.name} {result} {sorted(frame.attributes.items())}".encode())
        self.key: int | None = None

    def __call__(self, place: Place) -> Value:
        if self.key is None:
            elements = [element(at) for element, layout in self.operands for at in self._places(layout)]
            if not all(map(is_exact, elements)):
                return UNKNOWN
            self.key = mixed(self.seed, self.name, *self._seen([one for one in elements if is_exact(one)]))
        return mixed(self.key, *place) % self.bound

    def _places(self, layout: Layout) -> product[Place]:
        sizes = [prod(self.frame.sizes[layout.axes[axis]] for axis in dim) for dim in layout.dims]
        return product(*map(range, sizes))

    def _seen(self, elements: Sequence[Exact]) -> list[int]:
        """The numbers on which the function depends, by seed: all, the first or last element's, or none."""
        numbers = [part for one in map(Fraction, elements) for part in (one.numerator, one.denominator)]
        return (numbers, numbers[:2], numbers[-2:], [], numbers)[self.seed % 5]
