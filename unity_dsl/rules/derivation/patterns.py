"""Oriented rules as patterns: the matching of terms, and the terms that a match produces.

A match is sound by construction. It gives every size, number and device axis of the rule a value at which its inputs
have the shapes of the matched terms. The rule's conditions then follow from the conditions of the rule to be derived.
The two terms are therefore an instance of a proved rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ...prove.normal_form.form import Unsupported
from ...prove.normal_form.guard import compare, guard
from ...prove.normal_form.polynomial import ONE, Poly
from .finiteness import Finiteness
from .real_facts import with_poly
from .rule_terms import RuleTerms
from .size_unification import Sizes, Unbound, substituted, unify
from .terms import GROUP, Head, Kind, Shape, Term, Terms


@dataclass(frozen=True)
class Pattern:
    """A rule read in one direction, with all of its outputs at once: `source` is matched, `target` is produced."""

    rule: RuleTerms
    number: int
    source: tuple[Term, ...]
    target: tuple[Term, ...]

    @property
    def keeps_inputs(self) -> bool:
        """Whether the target reads only inputs that the source reads."""
        return _inputs(self.target) <= _inputs(self.source)

    @property
    def drops_inputs(self) -> bool:
        """Whether the source reads an input that the target does not read."""
        return not _inputs(self.source) <= _inputs(self.target)


def _inputs(terms: Sequence[Term]) -> frozenset[str]:
    return frozenset[str]().union(*(term.inputs for term in terms))


@dataclass(frozen=True)
class _Match:
    """Inputs and device axes by name, and the pairs of attributes that must be equal."""

    inputs: dict[str, Term] = field(default_factory=dict)
    devices: dict[str, str] = field(default_factory=dict)
    equations: tuple[tuple[Poly, Poly], ...] = ()


def matched(
    pattern: Pattern, terms: Sequence[Term], subject: RuleTerms, bank: Terms, finiteness: Finiteness
) -> Iterator[tuple[Term, ...]]:
    """The terms that the pattern produces from `terms`, for every way in which its source matches them."""
    for match in _matches(pattern.source, terms, _Match(), bank):
        try:
            made = _Instance(pattern, match, subject, bank).build()
        except (Unbound, Unsupported):
            continue
        if made is not None and all(finiteness.of(term, subject) for term in match.inputs.values()):
            yield made


def _matches(patterns: Sequence[Term], terms: Sequence[Term], match: _Match, bank: Terms) -> Iterator[_Match]:
    """Every way to match the terms with the patterns, by structure only."""
    if not patterns:
        yield match
        return
    for first in _reads(patterns[0], terms[0], match, bank):
        yield from _matches(patterns[1:], terms[1:], first, bank)


def _reads(pattern: Term, term: Term, match: _Match, bank: Terms) -> Iterator[_Match]:
    if pattern.head is None:
        known = match.inputs.get(pattern.name)
        if known is None:
            yield replace(match, inputs={**match.inputs, pattern.name: term})
        elif known is term:
            yield match
        return
    if term.head is None or pattern.head.kind != term.head.kind:
        return
    found = _with_head(pattern.head, term.head, match)
    if found is None:
        return
    yield from _matches(pattern.children, term.children, found, bank)
    if pattern.head.kind[0] in bank.commutative and len(term.children) == 2:
        yield from _matches(pattern.children, term.children[::-1], found, bank)


def _with_head(pattern: Head, head: Head, match: _Match) -> _Match | None:
    devices = match.devices
    for own, other in zip(pattern.degrees, head.degrees, strict=True):
        if devices.get(own, other) != other:
            return None
        devices = {**devices, own: other}
    equations = match.equations
    for left, right in zip(pattern.values, head.values, strict=True):
        if left.constant is None or left != right:
            if left.constant is not None:
                return None
            equations = (*equations, (left, right))
    return _Match(match.inputs, devices, equations)


@dataclass
class _Instance:
    """A match with the sizes that it determines."""

    pattern: Pattern
    match: _Match
    subject: RuleTerms
    bank: Terms
    sizes: Sizes = field(default_factory=dict)
    groups: dict[str, tuple[Poly, ...]] = field(default_factory=dict)
    ambient: frozenset[str] = frozenset()
    made: dict[Term, Term] = field(default_factory=dict)

    def build(self) -> tuple[Term, ...] | None:
        """The target at the match; None if shapes or conditions do not fit. Raises Unbound and Unsupported."""
        equations = self._shapes()
        if equations is None or not unify((*equations, *self.match.equations), self.sizes):
            return None
        if not self._meets():
            return None
        return tuple(map(self.term, self.pattern.target))

    # ------------------------------------------------------------------------------------------ shapes

    def _shapes(self) -> list[tuple[Poly, Poly]] | None:
        """The equations of sizes that give every input the shape of its term; None if there are none."""
        equations: list[tuple[Poly, Poly]] = [
            (Poly(((((own, 1),), ONE.terms[0][1]),)), Poly(((((other, 1),), ONE.terms[0][1]),)))
            for own, other in self.match.devices.items()
        ]
        ambient: set[frozenset[str]] = set()
        pending = []
        inputs = _input_terms(self.pattern.source)
        for name, term in self.match.inputs.items():
            own, shape = inputs[name].shape, term.shape
            if (own.bound is None) != (shape.bound is None):
                return None
            if own.bound is not None and shape.bound is not None:
                equations.append((own.bound, shape.bound))
            if not all(device in self.match.devices for device in own.devices):
                return None
            mapped = {self.match.devices[device] for device in own.devices}
            if len(mapped) != len(own.devices) or not mapped <= shape.devices:
                return None
            ambient.add(shape.devices - mapped)
            pending.append((own.dims, shape.dims))
        if len(ambient) > 1:
            return None
        self.ambient = next(iter(ambient), frozenset())
        if len(set(self.match.devices.values())) < len(self.match.devices):
            return None
        if not self.ambient.isdisjoint(self.match.devices.values()):
            return None
        # Inputs with at most one group come first: they determine the groups of the others.
        for own_dims, dims in sorted(pending, key=lambda pair: sum(map(_is_group, pair[0]))):
            found = self._dims(own_dims, dims)
            if found is None:
                return None
            equations += found
        return equations

    def _dims(self, own: Sequence[Poly], dims: Sequence[Poly]) -> list[tuple[Poly, Poly]] | None:
        unknown = [dim for dim in own if _is_group(dim) and _group(dim) not in self.groups]
        if len(set(map(_group, unknown))) > 1 or len(unknown) > 1:
            return None
        known = sum(len(self.groups.get(_group(dim), ())) if _is_group(dim) else 1 for dim in own if dim not in unknown)
        room = len(dims) - known
        if room < 0 or (room and not unknown):
            return None
        equations = []
        place = 0
        for dim in own:
            if not _is_group(dim):
                if place >= len(dims) or _is_group(dims[place]):
                    return None
                equations.append((dim, dims[place]))
                place += 1
                continue
            name = _group(dim)
            if name not in self.groups:
                self.groups[name] = tuple(dims[place : place + room])
            if self.groups[name] != tuple(dims[place : place + len(self.groups[name])]):
                return None
            place += len(self.groups[name])
        return equations

    # ------------------------------------------------------------------------------------------ conditions

    def _meets(self) -> bool:
        """Whether sizes are integers of at least 1, and the rule's conditions follow from those of the subject."""
        rule = self.pattern.rule
        for name, size in self.sizes.items():
            if name in rule.reals:
                continue
            if any(symbol in self.subject.reals for symbol in size.symbols()) or not size.is_integral:
                return False
            if not self.subject.entails(compare(">=", size, ONE)):
                return False
        for condition in rule.guards:
            if not self.subject.entails(guard(substituted(condition.poly, self.sizes), condition.relation)):
                return False
        return all(
            self.subject.entails_fact(with_poly(fact, substituted(fact.poly, self.sizes))) for fact in rule.facts
        )

    # ------------------------------------------------------------------------------------------ terms

    def term(self, pattern: Term) -> Term:
        """An instance of a term of the pattern. Raises Unbound."""
        if pattern.head is None:
            found = self.match.inputs.get(pattern.name)
            if found is None:
                raise Unbound
            return found
        if pattern not in self.made:
            children = tuple(map(self.term, pattern.children))
            self.made[pattern] = self.bank.call(self._head(pattern.head), children, self._shape(pattern.shape))
        return self.made[pattern]

    def _head(self, head: Head) -> Head:
        values = tuple(substituted(value, self.sizes) for value in head.values)
        return Head(head.kind, tuple(map(self._device, head.degrees)), values)

    def _device(self, name: str) -> str:
        if name not in self.match.devices:
            raise Unbound
        return self.match.devices[name]

    def _shape(self, shape: Shape) -> Shape:
        dims: list[Poly] = []
        for dim in shape.dims:
            dims += self.groups[_group(dim)] if _is_group(dim) else (substituted(dim, self.sizes),)
        bound = None if shape.bound is None else substituted(shape.bound, self.sizes)
        return Shape(self.ambient.union(map(self._device, shape.devices)), tuple(dims), bound)


def _input_terms(terms: Sequence[Term]) -> Mapping[str, Term]:
    found: dict[str, Term] = {}
    pending = list(terms)
    while pending:
        term = pending.pop()
        if term.head is None:
            found[term.name] = term
        pending += term.children
    return found


def _is_group(dim: Poly) -> bool:
    return len(dim.terms) == 1 and _group(dim).endswith(GROUP)


def _group(dim: Poly) -> str:
    """The name of the group that a dimension stands for."""
    ((monomial, _),) = dim.terms
    return str(monomial[0][0]) if len(monomial) == 1 else ""


# ---------------------------------------------------------------------------------------------- index


Signature: TypeAlias = "tuple[Kind, tuple[Kind | None, ...]]"


class PatternIndex:
    """Patterns of one output, indexed by the operators at and below their root: a discrimination tree of two levels."""

    def __init__(self) -> None:
        self.found: dict[Signature, list[Pattern]] = {}

    def add(self, pattern: Pattern, commutative: bool) -> None:
        (root,) = pattern.source
        if root.head is None:
            return
        below = tuple(child.kind for child in root.children)
        for kinds in dict.fromkeys((below, below[::-1]) if commutative else (below,)):
            self.found.setdefault((root.head.kind, kinds), []).append(pattern)

    def of(self, term: Term) -> Iterator[Pattern]:
        """The patterns that may match a term, each once, in the order of their rules."""
        if term.head is None:
            return
        choices: list[tuple[Kind | None, ...]] = [()]
        for child in term.children:
            kinds: tuple[Kind | None, ...] = (None,) if child.kind is None else (None, child.kind)
            choices = [(*chosen, kind) for chosen in choices for kind in kinds]
        seen: dict[int, Pattern] = {}
        for below in choices:
            for pattern in self.found.get((term.head.kind, below), ()):
                seen.setdefault(id(pattern), pattern)
        yield from sorted(seen.values(), key=lambda pattern: pattern.number)
