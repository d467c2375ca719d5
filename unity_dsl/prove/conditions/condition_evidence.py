"""Runs of a rule at many sizes and real numbers, and the conditions that none of them contradicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce as fold
from heapq import nlargest
from itertools import combinations, islice
from operator import or_
from random import Random
from typing import TypeAlias

import numpy as np

from ...index.library import Library
from ...syntax.parse_rules import RuleDecl
from ..normal_form.form import Unsupported
from ..refutation.counterexample import SEEDS, SIZE_RUNS, SIZES_LOOKED_AT, Shrinking, least_sizes, smaller_sizes
from ..refutation.numeric_run import Difference, IllShaped, Numbers, Run, TooLarge, witness_sizes
from ..translation.real_attributes import with_reals
from ..translation.real_conditions import drawn_reals, meets
from ..translation.rest_ranks import ranks_of
from ..translation.rule_forms import Ranks, Views, attribute_names, claim_of, used_names, views_at
from ..translation.size_assumptions import Claim
from .condition_grammar import EQUALITY, Array, Atom, atoms

POOL = 1500
"""Size assignments drawn at given ranks; some of them are evaluated."""
WITNESSES = 12
"""Further assignments of the pool, found like the prover's witness."""
FIRST_RUNS, MOST_RUNS = 300, 400
"""Limits of evaluations: before the first candidate, and in all."""
PER_ATOM = 2
"""Evaluations per atom, at sizes where it holds and few other atoms do."""
SHARPENING = 6
"""Further evaluations under a candidate, at each choice of ranks, before it is given to the prover."""
REALS = (0, 1, -1, 2, -2, 0.5, -0.5, 3, 1.5)
"""Real numbers that are drawn."""
RANKED = 100
"""Candidates that are ranked by coverage."""

Condition: TypeAlias = "tuple[int, ...]"
"""A conjunction of atoms, by their positions in the grammar."""
Values: TypeAlias = "dict[str, float]"
"""Numbers for the names of a rule: sizes and real numbers."""


@dataclass(frozen=True)
class Undefined:
    """Sizes outside the condition at which the rule is ill-shaped, and the reason. Used if no run differs there."""

    sizes: Mapping[str, float]
    reason: str


@dataclass
class Setting:
    """A rule at given ranks, and a pool of numbers to run it at; `holding` says where in the pool each atom holds."""

    ranks: Ranks
    names: tuple[str, ...]
    views: Views
    pool: list[Values]
    holding: Array
    pending: list[int] = field(default_factory=list)


@dataclass
class Evidence:
    """The evaluations of a rule.

    Sets of runs are bit masks: `holds` are the runs at which each atom holds, `zero` those at which each name is 0,
    `large` those at which all sizes of tensors are at least 2. `rule` reads its real numbers as inputs.
    """

    rule: RuleDecl
    claim: Claim
    library: Library
    declared: Library
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
    def of(cls, rule: RuleDecl, library: Library) -> Evidence:
        """The evidence before any run. Raises Unsupported, and InputError for unknown names."""
        declared = library
        rule, library = with_reals(rule, library)
        claim = claim_of(rule)
        all_ranks = list(ranks_of(rule, library))
        attributes = attribute_names(rule, claim, all_ranks[0])
        names = [name for name in used_names(rule, claim, all_ranks[0]) if name.isidentifier()]
        determined = [name for name in claim.names if name.isidentifier()]
        grammar = atoms(names, attributes, determined, sorted(claim.reals))
        settings = tuple(_setting(rule, claim, library, ranks, grammar, attributes) for ranks in all_ranks)
        zero = dict.fromkeys(names, 0)
        return cls(rule, claim, library, declared, grammar, attributes, settings, [0] * len(grammar), zero)

    # ------------------------------------------------------------------------------------------ runs

    def gather(self) -> None:
        """Runs the rule where few atoms hold and, for each atom, where few others hold."""
        chosen = [_chosen(setting, self.atoms) for setting in self.settings]
        for turn in range(max(map(len, chosen), default=0)):
            for setting, places in zip(self.settings, chosen, strict=True):
                if turn < len(places) and self.runs < FIRST_RUNS:
                    self._run(setting, places[turn])

    def sharpen(self, condition: Condition) -> bool:
        """Runs the rule at further sizes that meet a condition; returns whether a run contradicts the condition."""
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
        values = setting.pool[place]
        sizes = {name: int(values[name]) for name in setting.names}
        reals = {name: Numbers((), np.array(values[name])) for name in self.claim.reals}
        run = Run(self.rule, self.claim, self.library, setting.ranks, setting.views, sizes)
        try:
            tried = (run.difference_at(dict(run.inputs(seed)) | reals) for seed in SEEDS)
            found = next((difference for difference in tried if difference is not None), None)
        except (Unsupported, TooLarge):
            return
        except (IllShaped, ZeroDivisionError) as reason:
            self.undefined.append(Undefined(sizes, str(reason)))
            self._record(values, setting.holding[:, place], agrees=False)
            return
        if found is not None:
            self.differences.append(found)
        self._record(values, setting.holding[:, place], agrees=found is None)

    def refute(self, restricted: RuleDecl, found: Difference) -> None:
        """Adds a counterexample of the restricted rule, which is one of the rule itself."""
        claim = claim_of(with_reals(restricted, self.declared)[0])
        sizes = claim.written(found.sizes)
        values: Values = {**sizes, **{name: float(value) for name, value in found.reals.items()}}
        if not values.keys() >= self.zero.keys() | self.claim.reals:
            return  # a name that occurs in conditions only and has no value
        self._record(values, _holding(self.atoms, [values])[:, 0], agrees=False)

    def _record(self, values: Mapping[str, float], holding: Array, *, agrees: bool) -> None:
        bit = 1 << self.runs
        self.runs += 1
        for place in np.flatnonzero(holding).tolist():
            self.holds[place] |= bit
        for name in self.zero:
            if values[name] == 0:
                self.zero[name] |= bit
        if all(values[name] >= 2 for name in self.zero if name not in self.attributes):
            self.large |= bit
        if agrees:
            self.agree |= bit
        else:
            self.against |= bit

    # ------------------------------------------------------------------------------------------ candidates

    def _inside(self, condition: Condition) -> int:
        """The runs that meet a condition, without those where an attribute is 0 that it does not set to 0."""
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
        """The `RANKED` consistent conditions that most agreeing runs support, weakest first.

        Support at sizes >= 2 counts first, so that `k == l` precedes `l == 1` where tensors broadcast. Runs with a 0
        count last, and runs in `known` not at all. In conjunctions one atom represents all that hold at the same runs.
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
        """The condition with one comparison replaced by another one that holds at the same runs."""
        for place in condition if len(condition) > 1 else ():
            for other, atom in enumerate(self.atoms):
                if self.holds[other] == self.holds[place] and atom.zeros == self.atoms[place].zeros and other != place:
                    yield tuple(sorted({*condition, other} - {place}))

    def _length(self, condition: Condition) -> tuple[int, int, Condition]:
        return len(condition), sum(self.atoms[place].kind for place in condition), condition

    def outside(self) -> Difference | Undefined | None:
        """A small difference at sizes >= 1, values before shapes; else ill-shaped sizes >= 1; else None."""
        differing = [found for found in self.differences if all(found.sizes.values())]
        if differing:
            found = min(differing, key=lambda found: (found.shapes is not None, sum(found.sizes.values())))
            setting = next(setting for setting in self.settings if setting.ranks == found.ranks)
            return Shrinking(self.rule, self.claim, self.library, setting.ranks, setting.views).smallest(found)
        ill = [found for found in self.undefined if all(found.sizes.values())]
        return self._smaller(min(ill, key=lambda found: sum(found.sizes.values()))) if ill else None

    def _smaller(self, found: Undefined) -> Undefined:
        """Smaller sizes at which the rule is ill-shaped too, else `found`."""
        setting = next(setting for setting in self.settings if set(setting.names) == found.sizes.keys())
        whole = {name: int(size) for name, size in found.sizes.items()}
        least = islice(smaller_sizes(whole, least_sizes(self.claim, whole)), SIZES_LOOKED_AT)
        for sizes in islice(filter(self.claim.holds, least), SIZE_RUNS):
            try:
                Run(self.rule, self.claim, self.library, setting.ranks, setting.views, sizes).difference(0)
            except (Unsupported, TooLarge):
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
    small = {name: int(pool[0][name]) for name in names} if pool else None
    witness = witness_sizes(claim, names, 0) or small
    views = {} if witness is None else views_at(rule, claim, library, ranks, witness)
    written = [_written(claim, names, values) for values in pool] if claim.names else pool
    return Setting(ranks, names, views, pool, _holding(grammar, written), list(range(len(pool))))


def _written(claim: Claim, names: Sequence[str], values: Values) -> Values:
    sizes = claim.written({name: int(values[name]) for name in names})
    return {**sizes, **{name: values[name] for name in claim.reals}}


def _holding(grammar: Sequence[Atom], pool: Sequence[Mapping[str, float]]) -> Array:
    """Where each atom holds: one row per atom, one column per entry of the pool."""
    if not pool:
        return np.zeros((len(grammar), 0), dtype=bool)
    values = {name: np.array([one[name] for one in pool]) for name in pool[0]}
    return np.array([atom.holds(values) for atom in grammar], dtype=bool).reshape(len(grammar), len(pool))


def _pool(claim: Claim, names: Sequence[str], attributes: frozenset[str]) -> Iterator[Values]:
    """Numbers that meet the rule's own conditions, small ones first, each once. Attributes may be 0."""
    random = Random(0)
    top = 6 if len(names) <= 5 else 4
    reals = sorted(claim.reals)
    drawn: dict[tuple[float, ...], None] = {}
    for _ in range(POOL):
        least = 1 + random.randrange(2)
        highest = random.randint(least, top)
        values: list[float] = [random.randint(0 if name in attributes else least, highest) for name in names]
        drawn[(*values, *(random.choice(REALS) for _ in reals))] = None
    for seed in range(WITNESSES):  # for conditions that random sizes rarely meet
        witness = witness_sizes(claim, names, seed, least=1 + seed % 2)
        numbers = None if witness is None else drawn_reals(claim, reals, witness, seed)
        if witness is not None and numbers is not None:
            drawn[(*witness.values(), *numbers.values())] = None
    for drawing in sorted(drawn, key=lambda drawing: (sum(map(abs, drawing)), drawing)):
        sizes = {name: int(size) for name, size in zip(names, drawing, strict=False)}
        numbers = dict(zip(reals, drawing[len(names) :], strict=True))
        exact = {name: Fraction(value) for name, value in numbers.items()}
        if claim.holds(sizes) and meets(claim, sizes, exact):
            yield {**sizes, **numbers}


def _chosen(setting: Setting, grammar: Sequence[Atom]) -> list[int]:
    """Positions in the pool: where few atoms hold, and where one atom or two equalities hold but few others."""
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
