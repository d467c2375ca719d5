"""Searches for the weakest condition on sizes under which a rule is proved (counterexample-guided inductive synthesis).

Both sides are evaluated at many sizes; a candidate of the grammar (condition_grammar.py) is consistent while no
evaluation under it differs or is ill-shaped. The consistent candidate that covers most agreeing evaluations, the
weakest on them, is proved first; a counterexample of the prover becomes one more evaluation. A result is always proved:
evaluations only order the candidates. All steps are bounded and drawn from fixed seeds, so a rule has the same result
on every run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce as fold
from heapq import nlargest
from itertools import combinations, islice
from operator import or_
from random import Random
from typing import TypeAlias

import numpy as np

from ...index.library import Library
from ...syntax.ast import Apply, Number
from ...syntax.diagnostic import InputError
from ...syntax.parse_rules import RuleDecl
from ..answer import Answer, Proved, Refuted
from ..decision.integer_arithmetic import Arithmetic
from ..normal_form.form import Unsupported
from ..normal_form.guard import compare
from ..normal_form.step_limit import limited
from ..refutation.counterexample import SEEDS, SIZE_RUNS, Shrinking, smaller_sizes
from ..refutation.numeric_run import Difference, IllShaped, Run, witness_sizes
from ..rule_proof import prove_rule
from ..translation.rest_ranks import ranks_of
from ..translation.rule_forms import Ranks, Views, attribute_names, claim_of, used_names, views_at
from ..translation.size_assumptions import Claim
from .condition_grammar import EQUALITY, Array, Atom, atoms

POOL = 1500
"""Size assignments drawn at given ranks; some of them are evaluated."""
WITNESSES = 12
"""Assignments of the pool that are found like the prover's witness."""
FIRST_RUNS, MOST_RUNS = 300, 400
"""Limits of evaluations: before the first candidate, and in all."""
PER_ATOM = 2
"""Evaluations per atom at sizes where it holds and few others do."""
SHARPENING = 6
"""Further evaluations under a candidate before it is proved."""
RANKED = 100
"""Candidates that are ranked by coverage."""
MOST_PROOFS = 8
"""Limit of candidates given to the prover."""
SEARCH_STEPS = 20_000
"""Step limit of all evaluations and proofs."""
MOST_OTHERS = 3
"""Limit of alternative conditions."""

Condition: TypeAlias = "tuple[int, ...]"
"""A conjunction of atoms, by their positions in the grammar."""


@dataclass(frozen=True)
class Undefined:
    """No difference outside the condition, but sizes at which the rule is ill-shaped, for the reason given."""

    sizes: Mapping[str, int]
    reason: str


@dataclass(frozen=True)
class Found:
    """A condition under which a rule is proved, and an example outside it.

    Under each of `others` the rule is proved too, at sizes that no condition before it covers: `m == 1`, and beside it
    `n == 1`. `exact`: no evaluation outside all of them agrees, so that the grammar has nothing weaker.
    """

    conditions: tuple[str, ...]
    rule: RuleDecl
    proved: Proved
    outside: Difference | Undefined
    others: tuple[tuple[str, ...], ...]
    exact: bool


@limited(SEARCH_STEPS)
def find_condition(rule: RuleDecl, library: Library) -> Found | None:
    """The weakest condition of the grammar that is found and proved.

    None where the rule needs none, where no evaluation agrees or none disagrees, and where no candidate is proved.
    Raises InputError for unknown names and for calls that cannot be read.
    """
    if isinstance(prove_rule(rule, library, shrink=False), Proved):
        return None
    try:
        evidence = Evidence.of(rule, claim_of(rule), library)
    except Unsupported:
        return None
    if not all(setting.pool for setting in evidence.settings):
        return None  # no sizes found that satisfy the rule's own conditions
    evidence.gather()
    outside = evidence.outside()
    if outside is None:
        return None
    best = _first_proved(rule, library, evidence, 0)
    if best is None:
        return None
    found = dict([_weakened(rule, library, evidence, 0, *best)])
    while len(found) <= MOST_OTHERS:
        known = evidence.covered_by(list(found)) | evidence.agree & ~evidence.agreeing
        other = _first_proved(rule, library, evidence, known)
        if other is None:
            break
        weaker, proved = _weakened(rule, library, evidence, known, *other)
        found = {one: answer for one, answer in found.items() if not _entails(rule, evidence, one, weaker)}
        found[weaker] = proved
    every = list(found)
    condition, proved = every[0], found[every[0]]
    return Found(
        evidence.texts(condition),
        _restricted(rule, evidence, condition),
        proved,
        outside,
        tuple(map(evidence.texts, every[1:])),
        not evidence.agreeing & ~evidence.covered_by(every),
    )


def _restricted(rule: RuleDecl, evidence: Evidence, condition: Condition) -> RuleDecl:
    added = tuple(evidence.atoms[place].comparison for place in condition)
    return replace(rule, conditions=rule.conditions + added)


def _first_proved(rule: RuleDecl, library: Library, evidence: Evidence, known: int) -> tuple[Condition, Proved] | None:
    """The first candidate that is proved, among those that cover an evaluation outside `known`."""
    tried: set[Condition] = set()
    sharpened: set[Condition] = set()
    while len(tried) < MOST_PROOFS:
        condition = next((found for found in evidence.candidates(known) if found not in tried), None)
        if condition is None:
            return None
        if condition not in sharpened:
            sharpened.add(condition)
            if evidence.sharpen(condition):
                continue
        tried.add(condition)
        answer = _proof(_restricted(rule, evidence, condition), library)
        if isinstance(answer, Proved):
            return condition, answer
        if isinstance(answer, Refuted):
            evidence.refute(_restricted(rule, evidence, condition), answer.counterexample)
    return None


def _weakened(
    rule: RuleDecl, library: Library, evidence: Evidence, known: int, condition: Condition, proved: Proved
) -> tuple[Condition, Proved]:
    """Of the conditions that the evaluations do not distinguish, one implied by this one that is proved too."""
    covered = evidence.covered(condition)
    same = [other for other in evidence.candidates(known) if evidence.covered(other) == covered]
    proofs = 0
    for other in dict.fromkeys((*same[:MOST_PROOFS], *evidence.replaced(condition))):
        if proofs == MOST_PROOFS or not _is_weaker(rule, evidence, other, condition):
            continue
        proofs += 1
        answer = _proof(_restricted(rule, evidence, other), library)
        if isinstance(answer, Proved):
            condition, proved = other, answer
    return condition, proved


def _proof(rule: RuleDecl, library: Library) -> Answer | None:
    """The prover's answer; None where the rule is ill-formed under its condition, by a quotient by 0."""
    try:
        return prove_rule(rule, library, shrink=False)
    except InputError:
        return None


def _is_weaker(rule: RuleDecl, evidence: Evidence, weak: Condition, strong: Condition) -> bool:
    return _entails(rule, evidence, strong, weak) and not _entails(rule, evidence, weak, strong)


def _entails(rule: RuleDecl, evidence: Evidence, given: Condition, then: Condition) -> bool:
    """Whether `given` and the rule's own conditions imply `then`, as far as linear arithmetic decides."""
    try:
        claim = claim_of(_restricted(rule, evidence, given))
        return all(_follows(claim, evidence.atoms[place].comparison) for place in then)
    except (Unsupported, InputError):
        return False


def _follows(claim: Claim, comparison: Apply) -> bool:
    left, right = comparison.arguments
    if isinstance(left, Apply) and left.function == "%" and right == Number(0):
        rest = list(claim.factors(left.arguments[0]))
        for factor in claim.factors(left.arguments[1]):
            if factor not in rest:
                return False
            rest.remove(factor)
        return True
    return Arithmetic(claim.conditions).certain(compare(comparison.function, claim.size(left), claim.size(right)))


# ---------------------------------------------------------------------------------------------- numbers


@dataclass
class Setting:
    """A rule at given ranks with a pool of size assignments; `holding` is a truth value per atom and assignment."""

    ranks: Ranks
    names: tuple[str, ...]
    views: Views
    pool: list[dict[str, int]]
    holding: Array
    pending: list[int] = field(default_factory=list)


@dataclass
class Evidence:
    """The evaluations of a rule.

    A set of evaluations is a bit set: `agree`, and `against`, which differ or are ill-shaped.

    `holds` are the evaluations at which each atom holds, `zero` those at which each name is 0, `large` those without a
    size of 1.
    """

    rule: RuleDecl
    claim: Claim
    library: Library
    atoms: tuple[Atom, ...]
    attributes: frozenset[str]
    settings: tuple[Setting, ...]
    holds: list[int]
    zero: dict[str, int]
    runs: int = 0
    large: int = 0
    agree: int = 0
    against: int = 0
    differences: list[Difference] = field(default_factory=list)
    undefined: list[Undefined] = field(default_factory=list)
    ranked: tuple[int, int, list[Condition]] = (-1, 0, [])

    @classmethod
    def of(cls, rule: RuleDecl, claim: Claim, library: Library) -> Evidence:
        """The evidence before any evaluation."""
        all_ranks = list(ranks_of(rule, library))
        attributes = attribute_names(rule, claim, all_ranks[0])
        names = [name for name in used_names(rule, claim, all_ranks[0]) if name.isidentifier()]
        determined = [name for name in claim.names if name.isidentifier()]
        grammar = atoms(names, attributes, determined)
        settings = tuple(_setting(rule, claim, library, ranks, grammar, attributes) for ranks in all_ranks)
        return cls(rule, claim, library, grammar, attributes, settings, [0] * len(grammar), dict.fromkeys(names, 0))

    # ------------------------------------------------------------------------------------------ runs

    def gather(self) -> None:
        """Evaluates, for each atom, where few others hold; and where few hold at all."""
        chosen = [_chosen(setting, self.atoms) for setting in self.settings]
        for turn in range(max(map(len, chosen), default=0)):
            for setting, places in zip(self.settings, chosen, strict=True):
                if turn < len(places) and self.runs < FIRST_RUNS:
                    self._run(setting, places[turn])

    def sharpen(self, condition: Condition) -> bool:
        """Evaluates further sizes under a condition; returns whether one contradicts it."""
        before = self.against
        for setting in self.settings:
            inside = np.all(setting.holding[list(condition)], axis=0)
            zeros = {name for place in condition for name in self.atoms[place].zeros}
            fit = [
                place
                for place in setting.pending
                if inside[place] and all(setting.pool[place][name] or name in zeros for name in self.attributes)
            ]
            for place in fit[:SHARPENING]:
                if self.runs < MOST_RUNS:
                    self._run(setting, place)
        return self.against != before

    def _run(self, setting: Setting, place: int) -> None:
        setting.pending.remove(place)
        sizes = setting.pool[place]
        run = Run(self.rule, self.claim, self.library, setting.ranks, setting.views, sizes)
        try:
            found = next((difference for seed in SEEDS if (difference := run.difference(seed)) is not None), None)
        except Unsupported:
            return
        except (IllShaped, ZeroDivisionError) as reason:
            self.undefined.append(Undefined(sizes, str(reason)))
            self._record(sizes, setting.holding[:, place], agrees=False)
            return
        if found is not None:
            self.differences.append(found)
        self._record(sizes, setting.holding[:, place], agrees=found is None)

    def refute(self, restricted: RuleDecl, found: Difference) -> None:
        """Adds a counterexample of the restricted rule, which is one of the rule itself."""
        sizes = claim_of(restricted).written(found.sizes)
        if not sizes.keys() >= self.zero.keys():
            return  # a name that occurs in conditions only and has no value
        self._record(sizes, _holding(self.atoms, [sizes])[:, 0], agrees=False)

    def _record(self, sizes: Mapping[str, int], holding: Array, *, agrees: bool) -> None:
        bit = 1 << self.runs
        self.runs += 1
        for place in np.flatnonzero(holding).tolist():
            self.holds[place] |= bit
        for name in self.zero:
            if sizes[name] == 0:
                self.zero[name] |= bit
        if all(sizes[name] >= 2 for name in self.zero if name not in self.attributes):
            self.large |= bit
        if agrees:
            self.agree |= bit
        else:
            self.against |= bit

    # ------------------------------------------------------------------------------------------ candidates

    def _inside(self, condition: Condition) -> int:
        """The evaluations that meet a condition, without those at which an attribute is 0 that it does not set to 0."""
        found = (1 << self.runs) - 1
        zeros: set[str] = set()
        for place in condition:
            found &= self.holds[place]
            zeros |= self.atoms[place].zeros
        for name, runs in self.zero.items():
            if name not in zeros:
                found &= ~runs
        return found

    def covered(self, condition: Condition) -> int:
        """The agreeing evaluations that meet a condition."""
        return self._inside(condition) & self.agree

    def covered_by(self, conditions: Sequence[Condition]) -> int:
        """The agreeing evaluations that meet one of the conditions."""
        return fold(or_, map(self.covered, conditions))

    @property
    def agreeing(self) -> int:
        """The agreeing evaluations at sizes >= 1."""
        return self.covered(())

    def texts(self, condition: Condition) -> tuple[str, ...]:
        return tuple(self.atoms[place].text for place in condition)

    def candidates(self, known: int = 0) -> list[Condition]:
        """The supported and consistent conditions, the `RANKED` weakest on the evaluations, weakest first.

        Evaluations at sizes >= 2 rank first, so that `k == l` precedes `l == 1` where tensors broadcast; those with a 0
        rank last; those in `known` do not count. Of atoms with equal evaluations the first represents the others in
        conjunctions.
        """
        if self.ranked[:2] == (self.runs, known):
            return self.ranked[2]
        wanted, positive = self.agree & ~known, self._inside(())
        found: dict[Condition, int] = {}
        open_places: dict[tuple[int, frozenset[str]], int] = {}
        for place, atom in enumerate(self.atoms):
            inside = self._inside((place,))
            if not inside & self.against:
                found[(place,)] = inside & wanted
            if self.holds[place] & self.against and self.holds[place] & wanted:
                open_places.setdefault((self.holds[place], atom.zeros), place)
        for (first, zeros), (second, others) in combinations(open_places, 2):
            pair = (open_places[first, zeros], open_places[second, others])
            inside = self._inside(pair) if zeros or others else first & second & positive
            if inside & wanted and not inside & self.against:
                found[pair] = inside & wanted
        kinds = (self.large & positive, positive, wanted)
        support = {
            condition: tuple((runs & kind).bit_count() for kind in kinds) for condition, runs in found.items() if runs
        }
        least = nlargest(RANKED, support.values())[-1:]
        best = [condition for condition, counts in support.items() if [counts] >= least]
        best.sort(key=lambda condition: ([-count for count in support[condition]], self._length(condition)))
        self.ranked = (self.runs, known, best[:RANKED])
        return self.ranked[2]

    def replaced(self, condition: Condition) -> Iterator[Condition]:
        """The condition with one comparison replaced by another one with the same evaluations."""
        for place in condition if len(condition) > 1 else ():
            for other, atom in enumerate(self.atoms):
                if self.holds[other] == self.holds[place] and atom.zeros == self.atoms[place].zeros and other != place:
                    yield tuple(sorted({*condition, other} - {place}))

    def _length(self, condition: Condition) -> tuple[int, int, Condition]:
        return len(condition), sum(self.atoms[place].kind for place in condition), condition

    def outside(self) -> Difference | Undefined | None:
        """A small difference at sizes >= 1, values before shapes; else sizes at which the rule is ill-shaped.

        Else None.
        """
        differing = [found for found in self.differences if all(found.sizes.values())]
        if differing:
            found = min(differing, key=lambda found: (found.shapes is not None, sum(found.sizes.values())))
            setting = next(setting for setting in self.settings if setting.ranks == found.ranks)
            return Shrinking(self.rule, self.claim, self.library, setting.ranks, setting.views).smallest(found)
        ill = [found for found in self.undefined if all(found.sizes.values())]
        return self._smaller(min(ill, key=lambda found: sum(found.sizes.values()))) if ill else None

    def _smaller(self, found: Undefined) -> Undefined:
        """Smaller sizes at which the rule is ill-shaped, too."""
        setting = next(setting for setting in self.settings if set(setting.names) == set(found.sizes))
        for sizes in islice(filter(self.claim.holds, smaller_sizes(found.sizes)), SIZE_RUNS):
            try:
                Run(self.rule, self.claim, self.library, setting.ranks, setting.views, sizes).difference(0)
            except Unsupported:
                continue
            except (IllShaped, ZeroDivisionError) as reason:
                return Undefined(sizes, str(reason))
        return found


def _setting(
    rule: RuleDecl,
    claim: Claim,
    library: Library,
    ranks: Ranks,
    grammar: Sequence[Atom],
    attributes: frozenset[str],
) -> Setting:
    names = used_names(rule, claim, ranks)
    pool = list(_pool(claim, names, attributes))
    witness = witness_sizes(claim, names, 0) or (pool[0] if pool else None)
    views = {} if witness is None else views_at(rule, claim, library, ranks, witness)
    written = list(map(claim.written, pool)) if claim.names else pool
    return Setting(ranks, names, views, pool, _holding(grammar, written), list(range(len(pool))))


def _holding(grammar: Sequence[Atom], pool: Sequence[Mapping[str, int]]) -> Array:
    """The truth values of the grammar's atoms (rows) at the assignments of a pool (columns)."""
    if not pool:
        return np.zeros((len(grammar), 0), dtype=bool)
    values = {name: np.array([sizes[name] for sizes in pool], dtype=np.int64) for name in pool[0]}
    return np.array([atom.holds(values) for atom in grammar], dtype=bool).reshape(len(grammar), len(pool))


def _pool(claim: Claim, names: Sequence[str], attributes: frozenset[str]) -> Iterator[dict[str, int]]:
    """Size assignments that meet the rule's own conditions, small ones first, deduplicated. Attributes may be 0."""
    random = Random(0)
    top = 6 if len(names) <= 5 else 4
    drawn: dict[tuple[int, ...], None] = {}
    for _ in range(POOL):
        least = 1 + random.randrange(2)
        highest = random.randint(least, top)
        values = (random.randint(0 if name in attributes else least, highest) for name in names)
        drawn[tuple(values)] = None
    for seed in range(WITNESSES):  # for conditions that random sizes rarely meet
        witness = witness_sizes(claim, names, seed, least=1 + seed % 2)
        if witness is not None:
            drawn[tuple(witness.values())] = None
    for drawing in sorted(drawn, key=lambda drawing: (sum(drawing), drawing)):
        sizes = dict(zip(names, drawing, strict=True))
        if claim.holds(sizes):
            yield sizes


def _chosen(setting: Setting, grammar: Sequence[Atom]) -> list[int]:
    """Positions in the pool: where few atoms hold; for each atom, and each two equalities, where few others hold."""
    order = np.argsort(setting.holding.sum(axis=0), kind="stable")
    taken: dict[int, None] = dict.fromkeys(order[: 4 * PER_ATOM].tolist())
    for turn in range(PER_ATOM):
        for row in setting.holding:
            places = order[row[order]]
            if turn < len(places):
                taken[int(places[turn])] = None
    equalities = [setting.holding[place] for place, atom in enumerate(grammar) if atom.kind == EQUALITY]
    for first, second in combinations(equalities, 2):
        places = order[(first & second)[order]]
        if len(places):
            taken[int(places[0])] = None
    return list(taken)
