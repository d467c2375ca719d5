"""All graphs of a context, level by level, and the classes of equal graphs. A graph is built only from graphs that
equal no smaller one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256

import numpy as np

from ...index.library import Library
from ...prove.normal_form.polynomial import Poly
from ...syntax.ast import Expr, Number
from .application import Application, Array, Values, applications
from .context import Context
from .dimensions import TensorType
from .fingerprints import DRAWS, Fingerprints, fingerprints, functional, groups, random_operand, sizes_for
from .signature import Signature
from .type_links import TypeLinks


@dataclass(frozen=True)
class Term:
    """A graph: an input by its `number`, or result `number` of an application to terms.

    `operators` is the bit set of its operators, `inputs` that of its inputs. `links` is the state of its types.
    """

    number: int
    type: int
    inputs: int
    operators: int
    links: int
    application: Application | None = None
    operands: tuple[Term, ...] = ()

    @property
    def size(self) -> int:
        """The number of its operators; shared operators count once."""
        return self.operators.bit_count()

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for the results of one operator."""
        return id(self.application), tuple(id(operand) for operand in self.operands)

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


@dataclass
class Counts:
    """Statistics: graphs, evaluated graphs, graphs without finite values, and classes."""

    terms: int = 0
    evaluated: int = 0
    undefined: int = 0
    classes: int = 0


@dataclass
class _Batch:
    """Terms of one type that one application makes."""

    application: Application
    result: int
    operands: list[tuple[Term, ...]]
    operators: list[int]
    prints: Fingerprints
    values: Array | None


_Choice = tuple[Application, list[tuple[Term, ...]], list[int]]
"""An application, the operands of each of its terms, and the bit set of operators of these operands."""


@dataclass
class Pool:
    """The graphs over a context's inputs. `equal` holds pairs of a term and the first term of its class."""

    context: Context
    library: Library
    signatures: Sequence[Signature]
    numbers: Sequence[Expr]
    values: Values
    types: list[TensorType] = field(default_factory=list)
    terms: dict[int, list[Term]] = field(default_factory=dict)
    arrays: dict[int, list[Array]] = field(default_factory=dict)
    prints: dict[int, list[Array]] = field(default_factory=dict)
    equal: list[tuple[Term, Term]] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    inputs: list[Term] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._type_numbers: dict[object, int] = {}
        self._size_numbers: dict[Poly, int] = {}
        self._sizes: list[tuple[int, ...]] = []
        self._inputs_below: list[int] = []
        self._most_operators: list[int] = []
        self._applications: dict[tuple[int, tuple[TensorType, ...]], tuple[Application, ...]] = {}
        self._weights: dict[int, Array] = {}
        self._bits: dict[tuple[int, tuple[int, ...]], int] = {}
        self._places: dict[Term, int] = {}
        self._by_size: dict[int, dict[int, list[Term]]] = {}
        self._by_operator: dict[int, dict[int, list[Term]]] = {}
        self._fitting_known: dict[tuple[int, int, int, bool], list[Term]] = {}
        self.links = TypeLinks(self.context.inputs, self.context.degrees)
        self.full = (1 << len(self.context.inputs)) - 1

    # ------------------------------------------------------------------------------------------ types

    def type_number(self, tensor: TensorType) -> int:
        """The number of a type, by its sizes. The structure of its dimensions is joined over all tensors of
        the type.
        """
        number = self._type_numbers.setdefault(tensor.sizes, len(self.types))
        if number == len(self.types):
            self.types.append(tensor)
            self._sizes.append(
                tuple(self._size_numbers.setdefault(part.total, len(self._size_numbers)) for part in tensor.parts)
            )
            self.terms[number], self.arrays[number], self.prints[number] = [], [], []
            self._by_size[number], self._by_operator[number] = {}, {}
            self._inputs_below.append(0)
            self._most_operators.append(-1)
        elif tensor != self.types[number]:
            self.types[number] = self.types[number].joined(tensor)
        return number

    def random(self, what: str) -> np.random.Generator:
        """A random generator that depends on the context and on the purpose `what`."""
        seed = sha256(f"{self.context.digest} {what}".encode()).digest()[:8]
        return np.random.default_rng(int.from_bytes(seed, "big"))

    def _weight(self, number: int) -> Array:
        if number not in self._weights:
            shape = self.values.shape(self.types[number])
            self._weights[number] = functional(self.random(f"type {self.types[number].sizes}"), shape)
        return self._weights[number]

    def applied(self, place: int, types: tuple[int, ...]) -> tuple[Application, ...]:
        """All applications of a signature to operands of these types that can be evaluated at the context's sizes."""
        operands = tuple(self.types[number] for number in types)
        key = place, operands
        if key not in self._applications:
            found = applications(self.signatures[place], operands, self.numbers, self.context.degrees)
            self._applications[key] = tuple(made for made in found if self._is_valued(made))
        return self._applications[key]

    def _is_valued(self, application: Application) -> bool:
        try:
            self.values.key(application)
        except ValueError:
            return False
        return True

    # ------------------------------------------------------------------------------------------ levels

    def run(self) -> None:
        """Makes all graphs with up to the context's number of operators, and finds which are equal."""
        for number, tensor in enumerate(self.context.inputs):
            kind = self.type_number(tensor)
            bound = None if tensor.bound is None else self.values.size(tensor.bound.total)
            value = random_operand(self.random(f"input {number}"), self.values.shape(tensor), bound)
            term = Term(number, kind, 1 << number, 0, self.links.input(number))
            self.inputs.append(term)
            self._keep(term, value, fingerprints(value[None], self._weight(kind)))
        for size in range(1, self.context.operators + 1):
            self._level(size, last=size == self.context.operators)

    def _keep(self, term: Term, value: Array, prints: Fingerprints) -> None:
        self._places[term] = len(self.terms[term.type])
        self._inputs_below[term.type] |= term.inputs
        self._most_operators[term.type] = max(self._most_operators[term.type], term.size)
        self.terms[term.type].append(term)
        self._by_size[term.type].setdefault(term.size, []).append(term)
        for bit in _bits(term.operators):
            self._by_operator[term.type].setdefault(bit, []).append(term)
        self.arrays[term.type].append(value)
        self.prints[term.type].append(np.stack([prints.keys[0], prints.scales[0]]))

    def _level(self, size: int, last: bool) -> None:
        """Makes the graphs with `size` operators. Graphs with the same last operator at the same shapes are evaluated
        together.
        """
        self._fitting_known.clear()
        made = [choice for place in range(len(self.signatures)) for choice in self._choices(place, size, last)]
        self.counts.terms += sum(len(operands) for _, operands, _ in made)
        work: dict[tuple[object, ...], list[_Choice]] = {}
        for choice in Matchable(self, made).chosen() if last else made:
            work.setdefault(self.values.key(choice[0]), []).append(choice)
        batches: dict[int, list[_Batch]] = {}
        for choices in work.values():
            for batch in self._evaluated(choices, last):
                number = self.type_number(batch.application.types[batch.result])
                batches.setdefault(number, []).append(batch)
        for number in batches:
            self._classify(number, batches[number], last)

    def _choices(self, place: int, size: int, last: bool) -> Iterator[_Choice]:
        """Operands of a signature that give a graph with `size` operators; at the last level, the graph must read all
        inputs.
        """
        signature = self.signatures[place]
        swaps = commutes(signature, self.library)
        for types in self._operand_types(signature):
            found = list(self._tuples(types, size, last, swaps)) if self._may_suffice(types, size, last) else []
            if not found:
                continue
            for application in self.applied(place, types):
                yield application, [operands for operands, _ in found], [operators for _, operators in found]

    def _operand_types(self, signature: Signature) -> Iterator[tuple[int, ...]]:
        """Types of operands in which dimensions that share a letter in the signature have equal sizes."""
        fitting = [
            [number for number, tensor in enumerate(self.types) if _fits(tensor, declared)]
            for declared in signature.operands
        ]
        letters = _letter_places(signature)
        found: list[tuple[tuple[int, ...], dict[str, int]]] = [((), {})]
        for kinds, places in zip(fitting, letters, strict=True):
            known = [(letter, place) for letter, place in places if letter in found[0][1]] if found else []
            by_sizes: dict[tuple[int, ...], list[tuple[int, dict[str, int]]]] = {}
            for number in kinds:
                own = {letter: self._sizes[number][place] for letter, place in places}
                if all(own[letter] == self._sizes[number][place] for letter, place in places):
                    by_sizes.setdefault(tuple(own[letter] for letter, _ in known), []).append((number, own))
            found = [
                ((*chosen, number), sizes | own)
                for chosen, sizes in found
                for number, own in by_sizes.get(tuple(sizes[letter] for letter, _ in known), ())
            ]
        yield from (chosen for chosen, _ in found)

    def _may_suffice(self, types: tuple[int, ...], size: int, last: bool) -> bool:
        """Whether terms of these types can contain `size - 1` operators together and, at the last level, all inputs."""
        operators = inputs = 0
        for kind in types:
            operators += self._most_operators[kind]
            inputs |= self._inputs_below[kind]
        return operators >= size - 1 and (not last or inputs == self.full)

    def _tuples(
        self, types: tuple[int, ...], size: int, last: bool, swaps: bool
    ) -> Iterator[tuple[tuple[Term, ...], int]]:
        """Operands of these types that contain `size - 1` operators together, with the bit set of these operators."""
        partial: list[tuple[tuple[Term, ...], int, int]] = [((), 0, 0)]
        for position, kind in enumerate(types):
            whole = position == len(types) - 1
            partial = [
                ((*chosen, term), operators | term.operators, inputs | term.inputs)
                for chosen, operators, inputs in partial
                for term in self._fitting(kind, operators, size, whole)
            ]
        ordered = swaps and size > 1 and types[0] == types[1]
        for chosen, operators, inputs in partial:
            if last and inputs != self.full:
                continue
            if not (ordered and self._places[chosen[0]] > self._places[chosen[1]]):
                yield chosen, operators

    def _fitting(self, kind: int, operators: int, size: int, whole: bool) -> list[Term]:
        """Terms of a type whose union with `operators` has fewer than `size` operators; exactly one fewer if `whole` is
        set.
        """
        key = kind, operators, size, whole
        if key not in self._fitting_known:
            new = size - 1 - operators.bit_count()
            by_size, by_operator = self._by_size[kind], self._by_operator[kind]
            apart = by_size.get(new, []) if whole else [term for own in range(new + 1) for term in by_size.get(own, [])]
            sharing = {term: None for bit in _bits(operators) for term in by_operator.get(bit, [])}
            counts = ((term, (term.operators & ~operators).bit_count()) for term in sharing)
            found = [term for term in apart if not term.operators & operators]
            found += [term for term, count in counts if (count == new if whole else count <= new)]
            self._fitting_known[key] = found
        return self._fitting_known[key]

    def _evaluated(self, choices: Sequence[_Choice], last: bool) -> Iterator[_Batch]:
        """The terms of each choice with their fingerprints, and their values unless this is the last level.

        All choices have the same operator at the same set of shapes.
        """
        tuples = [chosen for _, operands, _ in choices for chosen in operands]
        given = []
        for position in range(len(tuples[0])):
            arrays = [self.arrays[chosen[position].type][self._places[chosen[position]]] for chosen in tuples]
            stacked = np.stack(arrays)
            given.append(stacked.reshape((-1, *stacked.shape[2:])))
        try:
            results = self.values.results(choices[0][0], given)
        except ValueError:
            return  # the operator has no meaning at these sizes
        self.counts.evaluated += len(tuples)
        for result, value in enumerate(results):
            value = value.reshape((len(tuples), DRAWS, *value.shape[1:]))
            start = 0
            for application, operands, operators in choices:
                part = value[start : start + len(operands)]
                start += len(operands)
                prints = fingerprints(part, self._weight(self.type_number(application.types[result])))
                yield _Batch(application, result, operands, operators, prints, None if last else part)

    # ------------------------------------------------------------------------------------------ classes

    def _classify(self, number: int, batches: list[_Batch], last: bool) -> None:
        """Finds the terms that equal an earlier term; keeps the others, unless this is the last level."""
        known = self.terms[number]
        sizes = [len(batch.operands) for batch in batches]
        keys = [np.stack([kept[0] for kept in self.prints[number]])] if known else []
        scales = [np.stack([kept[1] for kept in self.prints[number]])] if known else []
        keys += [batch.prints.keys for batch in batches]
        scales += [batch.prints.scales for batch in batches]
        all_prints = Fingerprints(np.concatenate(keys), np.concatenate(scales))
        finite = all_prints.finite
        self.counts.undefined += int((~finite[len(known) :]).sum())
        starts = np.cumsum([len(known), *sizes])
        made: dict[int, Term] = {}

        def term(place: int) -> Term:
            if place < len(known):
                return known[place]
            if place not in made:
                which = int(np.searchsorted(starts, place, side="right")) - 1
                batch, offset = batches[which], place - int(starts[which])
                made[place] = self._term(number, batch, offset)
            return made[place]

        repeated: set[int] = set()
        for group in groups(all_prints):
            first, *others = (int(place) for place in group)
            new = [place for place in others if place >= len(known)]
            repeated.update(new)
            self.counts.classes += 1
            self.equal += [(term(place), term(first)) for place in new]
        if last:
            return
        count = len(known)
        for place in range(count, int(starts[-1])):
            if finite[place] and place not in repeated:
                which = int(np.searchsorted(starts, place, side="right")) - 1
                values, offset = batches[which].values, place - int(starts[which])
                assert values is not None
                prints = Fingerprints(all_prints.keys[place : place + 1], all_prints.scales[place : place + 1])
                self._keep(term(place), values[offset], prints)

    def _term(self, number: int, batch: _Batch, offset: int) -> Term:
        operands = batch.operands[offset]
        key = id(batch.application), tuple(id(operand) for operand in operands)
        bit = self._bits.setdefault(key, len(self._bits))
        inputs = 0
        for operand in operands:
            inputs |= operand.inputs
        states = self.links.applied(batch.application, tuple(operand.links for operand in operands))
        operators = batch.operators[offset] | 1 << bit
        return Term(batch.result, number, inputs, operators, states[batch.result], batch.application, operands)


class Matchable:
    """Selects graphs of the last level that may be a side of an equation at the context's types and at no more general
    types.

    The other side is another graph of the same type. In an equation of two outputs, the sides are two such pairs.
    """

    def __init__(self, pool: Pool, choices: Sequence[_Choice]) -> None:
        self.pool, self.links, self.choices = pool, pool.links, choices
        self.types = {id(made): tuple(map(pool.type_number, made.types)) for made, _, _ in choices}
        self.partners = {kind: Counter(term.links for term in terms) for kind, terms in pool.terms.items()}
        self.narrow = {
            kind: {term.links for term in terms if term.inputs != pool.full} for kind, terms in pool.terms.items()
        }
        self.earlier = {self.links.join(term.links, first.links) for term, first in pool.equal if is_wider(term, first)}
        self._alone: dict[tuple[int, int], bool] = {}
        self._beside: dict[tuple[int, int], set[int]] = {}

    def chosen(self) -> Iterator[_Choice]:
        """The choices, restricted to operands that make such a graph."""
        states = [[self._states(made, operands) for operands in chosen] for made, chosen, _ in self.choices]
        for (made, _, _), own in zip(self.choices, states, strict=True):
            for results in own:
                for kind, state in zip(self.types[id(made)], results, strict=True):
                    self.partners[kind][state] += 1
        for (made, chosen, operators), own in zip(self.choices, states, strict=True):
            kinds = self.types[id(made)]
            places = [place for place, results in enumerate(own) if self._may_match(kinds, results)]
            if places:
                yield made, [chosen[place] for place in places], [operators[place] for place in places]

    def _states(self, application: Application, operands: tuple[Term, ...]) -> tuple[int, ...]:
        return self.links.applied(application, tuple(operand.links for operand in operands))

    def _may_match(self, kinds: tuple[int, ...], states: tuple[int, ...]) -> bool:
        found = list(zip(kinds, states, strict=True))
        if any(self._matches_one(*one) for one in found):
            return True
        for place, one in enumerate(found):
            others = self.earlier.union(*(self._joins(*other) for other in found[:place]))
            if any(self.links.union(mine, other) == self.links.whole for mine in self._joins(*one) for other in others):
                return True
        return False

    def _matches_one(self, kind: int, state: int) -> bool:
        """Whether a graph and another graph of its type together link all dimensions that have equal sizes in the
        context.
        """
        if (kind, state) not in self._alone:
            self._alone[kind, state] = any(
                (count > 1 or other != state) and self.links.join(state, other) == self.links.whole
                for other, count in self.partners[kind].items()
            )
        return self._alone[kind, state]

    def _joins(self, kind: int, state: int) -> set[int]:
        """The links that a graph has together with each graph of its type that does not read all inputs."""
        if (kind, state) not in self._beside:
            self._beside[kind, state] = {self.links.join(state, other) for other in self.narrow[kind]}
        return self._beside[kind, state]


def is_wider(term: Term, other: Term) -> bool:
    """Whether a term reads every input that another term reads, and more."""
    return other.inputs & ~term.inputs == 0 != term.inputs ^ other.inputs


def _bits(mask: int) -> Iterator[int]:
    """The elements of a bit set, each as a mask."""
    while mask:
        yield mask & -mask
        mask &= mask - 1


def _fits(tensor: TensorType, declared: TensorType) -> bool:
    same = len(tensor.dims) == len(declared.dims) and (tensor.bound is None) == (declared.bound is None)
    return same and set(declared.devices) <= set(tensor.devices)


@lru_cache(maxsize=4096)
def commutes(signature: Signature, library: Library) -> bool:
    """Whether an operator's two operands, of equal declared types, may be swapped; tested on random operands."""
    if len(signature.operands) != 2 or signature.operands[0] != signature.operands[1]:
        return False
    values = Values(library, sizes_for(signature.operands, signature.degrees), {})
    random = np.random.default_rng(0)
    pair = [random_operand(random, values.shape(tensor), None) for tensor in signature.operands]
    (application, *_) = applications(signature, signature.operands, (Number(3),), signature.degrees)
    try:
        one, other = (values.results(application, given) for given in (pair, pair[::-1]))
    except ValueError:
        return False
    return all(np.allclose(a, b) for a, b in zip(one, other, strict=True))


@lru_cache(maxsize=4096)
def _letter_places(signature: Signature) -> tuple[tuple[tuple[str, int], ...], ...]:
    """The dimensions of each operand that are single letters shared with other operands."""
    own = [
        [(part.letter, place) for place, part in enumerate(tensor.parts) if part.letter is not None]
        for tensor in signature.operands
    ]
    counts = Counter(letter for letters in own for letter, _ in letters)
    return tuple(tuple(pair for pair in letters if counts[pair[0]] > 1) for letters in own)
