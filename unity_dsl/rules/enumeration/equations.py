"""Pairs of equal graphs at their most general types, checked on other operands, without what smaller pairs imply."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import count

import numpy as np

from ...index.library import Library
from .application import Application, Array, Values
from .context import renaming
from .dimensions import Dim, TensorType, letters_of, named, unified
from .fingerprints import random_operand, sizes_for
from .terms import Term

CHECKS = 2
"""Sizes and operands on which a pair is compared again."""
TOLERANCE = 1e-8


@dataclass(frozen=True, eq=False)
class Node:
    """One result of an operator at its types, or an input where there is no application."""

    number: int
    type: TensorType
    application: Application | None = None
    operands: tuple[Node, ...] = ()

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for the results of one operator, given that operands are shared."""
        return id(self.application), tuple(id(operand) for operand in self.operands)


@dataclass(frozen=True)
class Equation:
    """Graphs `left` and `right`, output by output, over inputs of `types`, as the left meets them."""

    types: tuple[TensorType, ...]
    left: tuple[Node, ...]
    right: tuple[Node, ...]


def equation_of(
    left: Sequence[Term], right: Sequence[Term], inputs: Sequence[TensorType], degrees: frozenset[str]
) -> Equation | None:
    """Two sides at the most general types at which both are typed, and typed alike.

    None where there are none, as where they are equal at the types of one context only.
    """
    order = _ordered((*left, *right))
    typing = _Typing(order, inputs, degrees)
    pairs = typing.pairs
    for one, other in zip(left, right, strict=True):
        pairs += zip(typing.types[one].parts, typing.types[other].parts, strict=True)
    for values in unified(pairs, degrees, typing.fresh):
        found = typing.solved(values)
        if found is not None:
            nodes, types = found
            return Equation(types, tuple(nodes[term] for term in left), tuple(nodes[term] for term in right))
    return None


class _Typing:
    """The types of terms as unknowns: a letter for each dimension of an input, and for each size of an operator."""

    def __init__(self, order: Sequence[Term], inputs: Sequence[TensorType], degrees: frozenset[str]) -> None:
        self.order, self.degrees = order, degrees
        self.fresh = (f"_{number}" for number in count())
        self.types: dict[Term, TensorType] = {}
        self.letters: dict[tuple[object, ...], dict[str, Dim]] = {}
        self.pairs: list[tuple[Dim, Dim]] = []
        for term in order:
            self.types[term] = self._input(inputs[term.number]) if term.application is None else self._result(term)

    def _input(self, given: TensorType) -> TensorType:
        dims = tuple(named(next(self.fresh)) for _ in given.dims)
        return TensorType(given.devices, dims, None if given.bound is None else named(next(self.fresh)))

    def _result(self, term: Term) -> TensorType:
        made = term.application
        assert made is not None
        signature = made.signature
        key = term.key
        if key not in self.letters:
            parts = [dim for tensor in signature.operands for dim in tensor.parts]
            names = dict.fromkeys(name for dim in parts for name in letters_of(dim.total) if name not in self.degrees)
            self.letters[key] = {name: named(next(self.fresh)) for name in names}
            for operand, declared in zip(term.operands, signature.operands, strict=True):
                wanted = declared.replaced(self.letters[key])
                self.pairs += zip(self.types[operand].parts, wanted.parts, strict=True)
        result = signature.types[term.number].replaced(self.letters[key])
        return TensorType(tuple(sorted((*result.devices, *made.over))), result.dims, result.bound)

    def solved(self, values: Mapping[str, Dim]) -> tuple[dict[Term, Node], tuple[TensorType, ...]] | None:
        """The terms at these sizes, and the types of the inputs; None where inputs do not decide all sizes."""
        found = {term: kind.replaced(values) for term, kind in self.types.items()}
        inputs = [found[term] for term in self.order if term.application is None]
        known = {*self.degrees, *_letters(inputs)}
        sizes = {key: {name: dim.replaced(values) for name, dim in own.items()} for key, own in self.letters.items()}
        if not known.issuperset(_letters(found.values())):
            return None
        if any(name not in known for own in sizes.values() for dim in own.values() for name in letters_of(dim.total)):
            return None
        names = renaming(inputs, self.degrees)
        nodes: dict[Term, Node] = {}
        made: dict[tuple[object, ...], Application] = {}
        position = 0
        for term in self.order:
            kind = found[term].replaced(names)
            if term.application is None:
                nodes[term] = Node(position, kind)
                position += 1
                continue
            operands = tuple(nodes[operand] for operand in term.operands)
            if term.key not in made:
                own = {name: dim.replaced(names) for name, dim in sizes[term.key].items()}
                own |= {name: named(name) for name in term.application.signature.degrees}
                made[term.key] = self._application(term.application, own, operands)
            nodes[term] = Node(term.number, kind, made[term.key], operands)
        return nodes, tuple(tensor.replaced(names) for tensor in inputs)

    def _application(self, given: Application, letters: dict[str, Dim], operands: tuple[Node, ...]) -> Application:
        results = [result.replaced(letters) for result in given.signature.types]
        types = tuple(TensorType(tuple(sorted((*one.devices, *given.over))), one.dims, one.bound) for one in results)
        bound = tuple(sorted(letters.items()))
        return Application(
            given.signature, bound, given.reals, given.over, tuple(operand.type for operand in operands), types
        )


def _letters(tensors: Sequence[TensorType] | object) -> set[str]:
    return {name for tensor in tensors for part in tensor.parts for name in letters_of(part.total)}  # type: ignore


def _ordered(roots: Sequence[Term]) -> list[Term]:
    """The terms below the roots, operands first, inputs as they are met."""
    found: dict[Term, None] = {}

    def visit(term: Term) -> None:
        if term not in found:
            for operand in term.operands:
                visit(operand)
            found[term] = None

    for root in roots:
        visit(root)
    return list(found)


# ---------------------------------------------------------------------------------------------- checks


def holds(equation: Equation, library: Library, degrees: frozenset[str]) -> bool:
    """Whether both sides agree at other sizes, numbers and operands."""
    return all(_agree(equation, check, library, degrees, ()) for check in range(CHECKS))


def is_instance(equation: Equation, library: Library, degrees: frozenset[str]) -> bool:
    """Whether it follows from a smaller equation: with what both sides have in common taken for an input."""
    common = _shared(equation)
    if not common:
        return False
    choices: list[tuple[Node, ...]] = [common] if len(common) == 1 else [common, *((node,) for node in common)]
    return any(_agree(equation, 0, library, degrees, chosen) for chosen in choices)


def _shared(equation: Equation) -> tuple[Node, ...]:
    """The greatest graphs that both sides contain, inputs and the sides themselves left out."""
    sides = [_below(side) for side in (equation.left, equation.right)]
    roots = {*equation.left, *equation.right}
    common = [node for node in sides[0] if node in sides[1] and node.application is not None and node not in roots]
    inner = {operand for node in common for operand in _below(node.operands)}
    return tuple(node for node in common if node not in inner)


def _below(roots: Sequence[Node]) -> dict[Node, None]:
    found: dict[Node, None] = {}
    pending = list(roots)
    while pending:
        node = pending.pop()
        if node not in found:
            found[node] = None
            pending += node.operands
    return found


def _agree(equation: Equation, check: int, library: Library, degrees: frozenset[str], opaque: Sequence[Node]) -> bool:
    """Whether the sides agree on random operands; the values of `opaque` nodes are random too."""
    random = np.random.default_rng([check, len(equation.types), len(opaque)])
    sizes = sizes_for(equation.types, degrees, 3 - check % 2)
    numbers = {"c": float(random.uniform(0.5, 2)), "d": -float(random.uniform(0.5, 2))}
    values = Values(library, sizes, numbers)
    known: dict[Node, Array] = {}
    made: dict[tuple[object, ...], list[Array]] = {}
    try:
        for node in opaque:
            known[node] = _random(node.type, values, random)
        sides = [
            [_value(node, values, known, made, random) for node in side] for side in (equation.left, equation.right)
        ]
    except ValueError:
        return False
    return all(_close(one, other) for one, other in zip(*sides, strict=True))


def _random(tensor: TensorType, values: Values, random: np.random.Generator) -> Array:
    bound = None if tensor.bound is None else values.size(tensor.bound.total)
    return random_operand(random, values.shape(tensor), bound)


def _value(
    node: Node,
    values: Values,
    known: dict[Node, Array],
    made: dict[tuple[object, ...], list[Array]],
    random: np.random.Generator,
) -> Array:
    if node in known:
        return known[node]
    if node.application is None:
        known[node] = _random(node.type, values, random)
        return known[node]
    if node.key not in made:
        operands = [_value(operand, values, known, made, random) for operand in node.operands]
        made[node.key] = values.results(node.application, operands)
    known[node] = made[node.key][node.number]
    return known[node]


def _close(one: Array, other: Array) -> bool:
    if one.shape != other.shape or not (np.isfinite(one).all() and np.isfinite(other).all()):
        return False
    scale = max(1e-3, float(np.max(np.abs(one), initial=0.0)))
    return bool(np.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE * scale))


def stable_hash(text: str) -> str:
    """Ten hexadecimal digits that depend on the text alone."""
    return sha256(text.encode()).hexdigest()[:10]


def nodes_of(roots: Sequence[Node]) -> Iterator[Node]:
    """The nodes below the roots, each once."""
    yield from _below(roots)
