"""Sharding theorems by operator, looked up or proved: the only source of configurations.

A configuration gives each mesh axis a role. `Along(axis)` needs one theorem for the operator and one for each adjoint
of an operand that has a gradient. The theorem says that evaluation on slices of the axis, with reductions over the
devices, equals evaluation on one device. `Linearly(operands)` requires that the operator and its adjoints are additive
in the terms. The adjoints with respect to these operands must not depend on the terms, so that each device has the full
gradient. Degrees and sizes are symbols. `Uniformly` divides nothing and needs no theorem.

Theorems are stored under the hash of everything that their proofs depend on. A theorem that is not stored is proved on
demand.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from hashlib import sha256

from ..graph.halo import is_halo_op
from ..graph.layout import PARTITION
from ..graph.layout_typing import Along, Linearly, Role
from ..index.axes.axis_windows import windowed
from ..index.equations.instance import Instance, Kind
from ..index.equations.term import walk
from ..index.equations.term_text import fact_text
from ..index.gradients.adjoint import adjoint
from ..index.library import LIBRARIES, Library
from ..prove.answer import Answer, NotProved, Proved
from ..prove.sharding.theorem_subject import Subject, generalise, subject_of
from ..prove.sharding.window_subject import window_text
from ..syntax.ast import Apply, Expr, FactDecl, OperatorDecl
from .theorem_file import TheoremFile, shipped_theorems


@dataclass(frozen=True)
class Claim:
    """The statement of one theorem about one subject. `same`: the result is equal on all devices, not a term of a sum.

    `haloed`: the op of the role gives each device all elements that it reads in dimensions that are read around the
    divided axis or merge it with other axes.
    """

    operator: OperatorDecl
    statement: str
    instance: Instance
    role: Along | Linearly
    same: bool = False
    haloed: bool = False
    _keys: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def declared(self) -> bool:
        """Whether the claim is assumed because an extern operator declares it."""
        role = self.role
        return isinstance(role, Along) and role.by == PARTITION and role.axis in self.instance.declared

    @cached_property
    def general(self) -> Subject:
        """The subject with symbolic attributes; for a halo, which depends on numeric attributes, the subject
        `at_numbers`.
        """
        if self.haloed:
            return self.at_numbers
        return subject_of(self.instance.kind, self._apart, self.operator)

    @cached_property
    def at_numbers(self) -> Subject:
        """The subject with numeric attributes; a halo also depends on the sizes of this instance."""
        if self.haloed:
            return generalise(self.instance, self._apart, numbers=True)
        return subject_of(self.instance.kind, self._apart, None)

    @property
    def _apart(self) -> tuple[str, ...]:
        return (self.role.axis,) if isinstance(self.role, Along) else ()

    def key(self, subject: Subject, library: Library) -> str:
        """The hash of everything that the proof depends on: the subject, the role, and the functions that occur.

        The proof of a division refers to positions, each on one device. It does not depend on the op that distributes
        them.
        """
        if (known := self._keys.get(subject.text)) is not None:
            return known
        role = self.role
        if isinstance(role, Along):
            role = Along(subject.axes.get(role.axis, role.axis), role.by if self.haloed else PARTITION)
        parts = [subject.text, repr(role), repr(self.same), *_declarations(self.instance.kind, role, library)]
        if self.haloed and isinstance(role, Along):
            parts += ["held", window_text(subject, role.axis, role.by, library)]
        self._keys[subject.text] = sha256("\n\n".join(parts).encode()).hexdigest()
        return self._keys[subject.text]

    def prove(self, subject: Subject, library: Library) -> Answer:
        # Imported here: only a claim that is not stored needs the prover.
        from ..prove.sharding.halo_theorems import prove_halo
        from ..prove.sharding.slice_theorems import prove_division, prove_linearity

        match self.role:
            case Along(axis=axis, by=by) if self.haloed:
                return prove_halo(subject, axis, by, library)
            case Along(axis=axis):
                return prove_division(subject, axis, library)
            case Linearly(operands=operands):
                return prove_linearity(subject, operands, library, same=self.same)


class Claims:
    """The claims that the roles of an operator depend on. `gradients` tells which operands have a gradient."""

    def __init__(self, instance: Instance, gradients: Sequence[bool], library: Library) -> None:
        self.instance = instance
        self.library = library
        self.adjoints = {
            position: adjoint(instance, library, position)
            for position, (operand, needed) in enumerate(zip(instance.inputs, gradients, strict=True))
            if needed and operand.integer_range is None and not instance.whole
        }
        self._known: dict[Role, tuple[Claim, ...]] = {}

    def of(self, role: Role) -> tuple[Claim, ...]:
        """One claim for the operator and one for each adjoint; none for a role that divides nothing."""
        if role not in self._known:
            self._known[role] = tuple(self._of(role))
        return self._known[role]

    def _of(self, role: Role) -> Iterator[Claim]:
        match role:
            case Along() if self.instance.extern:
                yield self._claim(self.instance, f"along {role}", role)
            case Along(by=by) if by != PARTITION and is_halo_op(self.library.parallels[by]):
                yield from self._halo_claims(role)
            case Along():
                yield self._claim(self.instance, f"along {role}", role)
                for position, made in self.adjoints.items():
                    yield self._claim(made, f"along {role}, gradient of {self._name(position)}", role)
            case Linearly(operands=operands):
                where = f"linear in {', '.join(map(self._name, operands))}"
                yield self._claim(self.instance, where, role)
                for position, made in self.adjoints.items():
                    what = f"{where}, gradient of {self._name(position)}"
                    yield self._claim(made, what, role, same=position in operands)

    def _halo_claims(self, role: Along) -> Iterator[Claim]:
        """The claim about the op's halo; also the claims of the division itself if no dimension is read around the
        axis.

        With windows, nothing is reduced inside the operator: it is the composition of the op, of local equations and of
        the op that combines their results. Equal functions have equal adjoints, and the adjoint of the op is its
        transpose.
        """
        if role.axis not in windowed(self.instance, self.library):
            yield from self.of(Along(role.axis))
        statement = f"along {role}, as `{role.by}` holds it"
        yield Claim(self.instance.operator, statement, self.instance, role, haloed=True)

    def _name(self, position: int) -> str:
        return self.instance.inputs[position].name

    def _claim(self, made: Instance, statement: str, role: Along | Linearly, *, same: bool = False) -> Claim:
        return _claim_about(self.instance.operator, made.kind, self.library, statement, role, same)


@lru_cache(maxsize=16384)
def _claim_about(
    operator: OperatorDecl, kind: Kind, library: Library, statement: str, role: Along | Linearly, same: bool
) -> Claim:
    """The claim, shared by all operators that differ only in sizes; no subject's text contains sizes."""
    return Claim(operator, statement, kind.instance, role, same)


@lru_cache(maxsize=LIBRARIES)
def _known_claims(library: Library) -> dict[Hashable, Claims]:
    return {}


def claims_about(instance: Instance, gradients: Sequence[bool], library: Library) -> Claims:
    """The claims about an instance, cached for all instances of its kind."""
    known = _known_claims(library)
    key = instance.identity, tuple(gradients)
    if key not in known:
        known[key] = Claims(instance, gradients, library)
    return known[key]


def _declarations(kind: Kind, role: Role, library: Library) -> Iterator[str]:
    """The texts of the element functions in a proof, of the facts about them, and of the op that divides the axis."""
    yield from reached_texts(_applied(kind, library), library)
    if isinstance(role, Along) and role.by != PARTITION:
        span = library.parallels[role.by].span
        yield role.by if span is None else span.text


@lru_cache(maxsize=16384)
def _applied(kind: Kind, library: Library) -> frozenset[str]:
    """The element functions in the equations of an instance, and hence of its subjects."""
    values = [equation.value for equation in (*kind.instance.equations, *kind.instance.evaluation)]
    return frozenset(name for value in values for name in _functions(value, library))


@cache
def reached_texts(names: frozenset[str], library: Library) -> tuple[str, ...]:
    """The texts of these functions, of the functions in their definitions, and of the applicable facts, transitively.

    A fact is applicable if all functions on its left side occur, wherever it is declared.
    """
    found: set[str] = set()
    pending = set(names)
    unused = [fact for function in library.functions.values() for fact in function.facts]
    used: list[FactDecl] = []
    while pending:
        found |= pending
        usable = [fact for fact in unused if _functions(fact.claim.arguments[0], library) <= found]
        unused = [fact for fact in unused if fact not in usable]
        used += usable
        definitions = [library.functions[name].definition for name in pending]
        expressions = [definition for definition in definitions if definition is not None]
        expressions += [part for fact in usable for part in (fact.claim, *fact.conditions)]
        pending = {name for expr in expressions for name in _functions(expr, library)} - found
    spans = [(name, library.functions[name].span) for name in sorted(found)]
    declared = [name if span is None else span.text for name, span in spans]
    return (*declared, *sorted(map(fact_text, used)))


def _functions(expr: Expr, library: Library) -> set[str]:
    return {node.function for node in walk(expr) if isinstance(node, Apply) and node.function in library.functions}


_answers: dict[str, Answer] = {}
"""Answers of the prover in this process, by key. A key covers everything that an answer depends on."""


class ShardingTheorems:
    """Decides whether roles are proved, by stored theorems or by the prover."""

    def __init__(self, library: Library, stored: TheoremFile | None = None) -> None:
        self.library = library
        self.stored = shipped_theorems() if stored is None else stored

    def about(self, instance: Instance, gradients: Sequence[bool]) -> Callable[[Role], bool]:
        """A predicate on the roles of this operator: whether all theorems that the role depends on are proved."""
        claims = claims_about(instance, gradients, self.library)
        return lambda role: all(map(self.holds, claims.of(role)))

    def why_not(self, instance: Instance, role: Role) -> str | None:
        """The first claim of this role that is not proved, and the reason; None if all are proved."""
        gradients = [operand.integer_range is None for operand in instance.inputs]
        for claim in claims_about(instance, gradients, self.library).of(role):
            if not claim.instance.extern and not self.holds(claim):
                found = self.answer(claim)
                return f"{found.obligation}: {found.reason}" if isinstance(found, NotProved) else None
        return None

    def holds(self, claim: Claim) -> bool:
        """Whether a claim is stored as proved or can be proved now. Claims that an extern operator declares are
        assumed.
        """
        if claim.instance.extern:
            return claim.declared
        if self._stored_key(claim) is not None:
            return True
        return not self._refused(claim) and isinstance(self.answer(claim), Proved)

    def key(self, claim: Claim) -> str:
        """The key of the theorem of a claim that holds: the one for symbolic attributes if that is proved, else for
        numeric attributes.
        """
        key = self._stored_key(claim)
        if key is not None:
            return key
        general = isinstance(self._answered(claim, claim.general), Proved)
        return claim.key(claim.general if general else claim.at_numbers, self.library)

    def assumed(self, claim: Claim) -> tuple[str, ...]:
        """The assumed facts in the theorem of a claim that holds, as stored or proved now."""
        if claim.instance.extern:
            return ()
        if (key := self._stored_key(claim)) is not None:
            return self.stored.theorems[key].assumed
        found = self.answer(claim)
        return found.assumed if isinstance(found, Proved) else ()

    def answer(self, claim: Claim) -> Answer:
        """The prover's answer: for symbolic attributes if that proof succeeds, else for numeric attributes."""
        found = self._answered(claim, claim.general)
        return found if isinstance(found, Proved) else self._answered(claim, claim.at_numbers)

    def _stored_key(self, claim: Claim) -> str | None:
        if (key := claim.key(claim.general, self.library)) in self.stored.theorems:
            return key
        # Numeric attributes are tried second: most theorems are stored for symbolic attributes.
        return key if (key := claim.key(claim.at_numbers, self.library)) in self.stored.theorems else None

    def _refused(self, claim: Claim) -> bool:
        keys = (claim.key(subject, self.library) for subject in (claim.general, claim.at_numbers))
        return bool(self.stored.refused) and all(key in self.stored.refused for key in keys)

    def _answered(self, claim: Claim, subject: Subject) -> Answer:
        key = claim.key(subject, self.library)
        if key not in _answers:
            _answers[key] = claim.prove(subject, self.library)
        return _answers[key]
