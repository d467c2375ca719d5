"""Pairs of equal graphs at their most general types, checked on other operands; pairs that smaller pairs imply are
removed.
"""

from __future__ import annotations

from collections import Counter
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

TOLERANCE = 1e-8


@dataclass(frozen=True, eq=False)
class Node:
    """One result of an operator at its types, or an input if there is no application."""

    number: int
    type: TensorType
    application: Application | None = None
    operands: tuple[Node, ...] = ()

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for the results of one operator, provided that operands are shared."""
        return id(self.application), tuple(id(operand) for operand in self.operands)


@dataclass(frozen=True)
class Equation:
    """Graphs `left` and `right`, one per output, over inputs of `types`, in the order in which the left side reads
    them.
    """

    types: tuple[TensorType, ...]
    left: tuple[Node, ...]
    right: tuple[Node, ...]


@dataclass(frozen=True)
class PairTyping:
    """The most general types at which both sides of a pair are well typed and have equal types.

    `values` are the sizes of the letters of `typing`. `types` are the types of the inputs, in the order in which the
    left side reads them.
    """

    left: tuple[Term, ...]
    right: tuple[Term, ...]
    order: tuple[Term, ...]
    typing: Typing
    values: Mapping[str, Dim]
    types: tuple[TensorType, ...]

    @property
    def inputs(self) -> tuple[TensorType, ...]:
        """The types of the inputs, in the order of their numbers."""
        numbers = [term.number for term in self.order if term.application is None]
        return tuple(kind for _, kind in sorted(zip(numbers, self.types, strict=True), key=lambda pair: pair[0]))

    def equation(self) -> Equation:
        """The two sides at these types."""
        names = renaming(self.types, self.typing.degrees)
        nodes: dict[Term, Node] = {}
        made: dict[tuple[object, ...], Application] = {}
        position = count()
        for term in self.order:
            kind = self.typing.types[term].replaced(self.values).replaced(names)
            if term.application is None:
                nodes[term] = Node(next(position), kind)
                continue
            operands = tuple(nodes[operand] for operand in term.operands)
            if term.key not in made:
                own = {name: dim.replaced(self.values) for name, dim in self.typing.letters[term.key].items()}
                sizes = {name: dim.replaced(names) for name, dim in own.items()}
                sizes |= {name: named(name) for name in term.application.signature.degrees}
                made[term.key] = _application(term.application, sizes, operands)
            nodes[term] = Node(term.number, kind, made[term.key], operands)
        types = tuple(tensor.replaced(names) for tensor in self.types)
        return Equation(types, tuple(nodes[term] for term in self.left), tuple(nodes[term] for term in self.right))


def pair_typing(left: Sequence[Term], right: Sequence[Term], typing: Typing) -> PairTyping | None:
    """The most general types of two sides; None if there are none, or if the inputs do not determine all sizes."""
    order = _ordered((*left, *right))
    pairs = typing.pairs_of(order)
    for one, other in zip(left, right, strict=True):
        pairs += zip(typing.types[one].parts, typing.types[other].parts, strict=True)
    inputs = [typing.types[term] for term in order if term.application is None]
    for values in unified(pairs, typing.degrees, typing.fresh):
        types = tuple(tensor.replaced(values) for tensor in inputs)
        known = {
            *typing.degrees,
            *(name for tensor in types for part in tensor.parts for name in letters_of(part.total)),
        }
        if all(known.issuperset(dim.replaced(values).letters) for dim in typing.sizes_of(order)):
            return PairTyping(tuple(left), tuple(right), tuple(order), typing, values, types)
    return None


class Typing:
    """The types of terms as unknowns: one letter for each dimension of an input and for each size of an operator."""

    def __init__(self, inputs: Sequence[TensorType], degrees: frozenset[str]) -> None:
        self.inputs, self.degrees = inputs, degrees
        self.fresh = (f"_{number}" for number in count())
        self.types: dict[Term, TensorType] = {}
        self.letters: dict[tuple[object, ...], dict[str, Dim]] = {}
        self._pairs: dict[tuple[object, ...], list[tuple[Dim, Dim]]] = {}

    def pairs_of(self, order: Sequence[Term]) -> list[tuple[Dim, Dim]]:
        """The pairs of dimensions that must be equal for these terms to be well typed. Operands come before the terms
        that read them.
        """
        found: dict[tuple[object, ...], list[tuple[Dim, Dim]]] = {}
        for term in order:
            if term not in self.types:
                self.types[term] = self._input(term) if term.application is None else self._result(term)
            if term.application is not None:
                found[term.key] = self._pairs[term.key]
        return [pair for own in found.values() for pair in own]

    def sizes_of(self, order: Sequence[Term]) -> Iterator[Dim]:
        """The sizes of the operators of these terms."""
        for term in order:
            if term.application is not None:
                yield from self.letters[term.key].values()

    def _input(self, term: Term) -> TensorType:
        given = self.inputs[term.number]
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
            self._pairs[key] = [
                pair
                for operand, declared in zip(term.operands, signature.operands, strict=True)
                for pair in zip(self.types[operand].parts, declared.replaced(self.letters[key]).parts, strict=True)
            ]
        result = signature.types[term.number].replaced(self.letters[key])
        return TensorType(tuple(sorted((*result.devices, *made.over))), result.dims, result.bound)


def _application(given: Application, letters: dict[str, Dim], operands: tuple[Node, ...]) -> Application:
    """An application at other types."""
    results = [result.replaced(letters) for result in given.signature.types]
    types = tuple(TensorType(tuple(sorted((*one.devices, *given.over))), one.dims, one.bound) for one in results)
    bound = tuple(sorted(letters.items()))
    return Application(
        given.signature, bound, given.reals, given.over, tuple(operand.type for operand in operands), types
    )


def _ordered(roots: Sequence[Term]) -> list[Term]:
    """The terms reachable from the roots, operands first, inputs in the order of their first reading."""
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


def holds(equation: Equation, library: Library, degrees: frozenset[str], signs: Sequence[int] = (1, -1)) -> bool:
    """Whether both sides agree at other sizes and operands, with real numbers for which `c` takes each of the signs.

    Raises ValueError if no sizes are found.
    """
    return all(_agree(equation, check, sign, library, degrees) for check, sign in enumerate(signs))


def is_instance(equation: Equation, library: Library, degrees: frozenset[str]) -> bool:
    """Whether it follows from a more general equation, in which one input is split into two or a common part becomes an
    input.

    Each side is evaluated for every set of places that read an input, or a common part: these places read another
    tensor instead. If the equation is no instance, the sides agree only for sets of all places of some inputs.
    """
    random = np.random.default_rng([3, len(equation.types)])
    values = Values(library, sizes_for(equation.types, degrees), _numbers(random))
    try:
        own = {
            node: _random(node.type, values, random)[:1]
            for node in _below((*equation.left, *equation.right))
            if node.application is None
        }
        inputs = {
            node: np.concatenate([array, _another(array, node.type, values, random)]) for node, array in own.items()
        }
        if _separates(equation, inputs, values):
            return True
        made: dict[tuple[object, ...], list[Array]] = {}
        for chosen in _shared(equation):
            common = {
                node: np.concatenate(
                    [_value(node, values, dict(own), made, random), _random(node.type, values, random)[:1]]
                )
                for node in chosen
            }
            if _agreements(equation, inputs | common, values, frozenset(chosen))[0] > 1:
                return True
        return False
    except ValueError:
        return False


MAX_PLACES = 8
_Place = tuple[tuple[object, ...], int]
"""The operator that reads a tensor (empty for an output), and the position among its operands."""


def _separates(equation: Equation, inputs: Mapping[Node, Array], values: Values) -> bool:
    """Whether the equation holds with two tensors in place of one of its inputs.

    If each side reads an input exactly once, it is enough to change that input on the left only.
    """
    reads = [Counter(node for node, _ in _reads(side, inputs)) for side in (equation.left, equation.right)]
    repeated = frozenset(node for node in inputs if any(read[node] > 1 for read in reads))
    once = [node for node in inputs if all(read[node] == 1 for read in reads)]
    agreeing, alone = _agreements(equation, inputs, values, repeated, once)
    return agreeing > 1 << len(repeated) or alone > 0


def _agreements(
    equation: Equation, leaves: Mapping[Node, Array], values: Values, varied: frozenset[Node], once: Sequence[Node] = ()
) -> tuple[int, int]:
    """Counts agreements between outputs of the two sides, as a pair of numbers. The first counts pairs of sets of
    places, on the left and on the right, with equal outputs. The second counts leaves of `once` that may be changed on
    the left without changing the output.

    A place in a set reads the second tensor of its leaf, any other place the first. The sets have places of `varied`
    leaves.
    """
    sides: list[Array] = []
    for side in (equation.left, equation.right):
        places = [(node, place) for node, place in _reads(side, leaves) if node in varied]
        if len(places) > MAX_PLACES:
            return 0, 0
        sides.append(_with_twins(side, [place for _, place in places], leaves, values, once))
    weights = np.random.default_rng(5).uniform(0.5, 1.5, sides[0].shape[1])
    left, right = (side @ weights for side in sides)
    scale = float(np.max(np.abs(sides[0]), initial=0.0)) * sides[0].shape[1] + 1e-3
    close = np.abs(left[:, None] - right[None, :]) < TOLERANCE * scale
    sets = [len(side) - len(once) for side in sides]
    return int(close[: sets[0], : sets[1]].sum()), int(close[sets[0] :, 0].sum())


def _reads(side: Sequence[Node], leaves: Mapping[Node, Array]) -> list[tuple[Node, _Place]]:
    """The leaves that a side reads, with the place of each read."""
    found: dict[_Place, Node] = {((), position): root for position, root in enumerate(side) if root in leaves}
    pending, seen = [root for root in side if root not in leaves], set[Node]()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        for position, operand in enumerate(node.operands):
            if operand in leaves:
                found[node.key, position] = operand
            else:
                pending.append(operand)
    return [(node, place) for place, node in found.items()]


def _with_twins(
    side: Sequence[Node], places: Sequence[_Place], leaves: Mapping[Node, Array], values: Values, once: Sequence[Node]
) -> Array:
    """[sets of places, elements]: the outputs when the places of each set read the second tensor of their leaf.

    One more row for each leaf of `once`, for the set of all its places.
    """
    bits = {place: bit for bit, place in enumerate(places)}
    sets = np.arange(1 << len(places))
    rows = {node: len(sets) + row for row, node in enumerate(once)}
    count = len(sets) + len(once)
    made: dict[tuple[object, ...], list[Array]] = {}

    def read(node: Node, place: _Place) -> Array:
        if node in leaves:
            chosen = np.zeros(count, dtype=np.int64)
            if place in bits:
                chosen[: len(sets)] = (sets >> bits[place]) & 1
            if node in rows:
                chosen[rows[node]] = 1
            return np.asarray(leaves[node][chosen])
        if node.key not in made:
            assert node.application is not None
            operands = [read(operand, (node.key, position)) for position, operand in enumerate(node.operands)]
            made[node.key] = values.results(node.application, operands)
        return made[node.key][node.number]

    outputs = [read(root, ((), position)) for position, root in enumerate(side)]
    return np.concatenate([output.reshape((count, -1)) for output in outputs], axis=1)


def _numbers(random: np.random.Generator, sign: int = 1) -> dict[str, float]:
    return {"c": sign * float(random.uniform(0.5, 2)), "d": -sign * float(random.uniform(0.5, 2))}


def _shared(equation: Equation) -> list[tuple[Node, ...]]:
    """The largest subgraphs that both sides contain, without inputs and the roots of both sides; then each common node
    by itself.
    """
    sides = [_below(side) for side in (equation.left, equation.right)]
    roots = {*equation.left} & {*equation.right}
    common = [node for node in sides[0] if node in sides[1] and node.application is not None and node not in roots]
    inner = {node for root in common for node in _below(root.operands)}
    greatest = tuple(node for node in common if node not in inner)
    return [greatest, *((node,) for node in common)] if len(common) > 1 else [greatest] * len(common)


def _below(roots: Sequence[Node]) -> dict[Node, None]:
    found: dict[Node, None] = {}
    pending = list(roots)
    while pending:
        node = pending.pop()
        if node not in found:
            found[node] = None
            pending += node.operands
    return found


def _agree(equation: Equation, check: int, sign: int, library: Library, degrees: frozenset[str]) -> bool:
    """Whether the sides agree on random operands."""
    random = np.random.default_rng([check, len(equation.types)])
    values = Values(library, sizes_for(equation.types, degrees, 3 - check % 2), _numbers(random, sign))
    known: dict[Node, Array] = {}
    made: dict[tuple[object, ...], list[Array]] = {}
    try:
        sides = [
            [_value(node, values, known, made, random) for node in side] for side in (equation.left, equation.right)
        ]
    except ValueError:
        return False
    return all(_close(one, other) for one, other in zip(*sides, strict=True))


def _random(tensor: TensorType, values: Values, random: np.random.Generator) -> Array:
    bound = None if tensor.bound is None else values.size(tensor.bound.total)
    return random_operand(random, values.shape(tensor), bound)


def _another(array: Array, tensor: TensorType, values: Values, random: np.random.Generator) -> Array:
    """A random tensor of a type for one draw. Integers differ from those of `array` everywhere, if the range has two or
    more.
    """
    if tensor.bound is None:
        return _random(tensor, values, random)[:1]
    bound = values.size(tensor.bound.total)
    return np.asarray((array + random.integers(1, max(bound, 2), array.shape)) % bound)


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
    """Ten hexadecimal digits that depend only on the text."""
    return sha256(text.encode()).hexdigest()[:10]


def nodes_of(roots: Sequence[Node]) -> Iterator[Node]:
    """The nodes reachable from the roots, each once."""
    yield from _below(roots)
