"""Bounded search in both directions for a chain of rewrites from one side of a rule to the other.

A step replaces an instance of one side of a rule by the other side. Left to right at a root is always allowed. Right to
left, and inside a term, is allowed only if both directions are proved: both sides are then defined at the same places.
No step may read a tensor that the term before it does not have. A rule that merges two products is therefore not
derived from a rule that splits them. The search is best-first, fewest operators first, alternating between both sides
(bidirectional heuristic search, Pohl 1971), within `Bound`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from ...index.library import Library
from ...prove.answer import Proved
from ...prove.normal_form.form import Unsupported
from ...prove.rule_proof import prove_rule
from ...syntax.parse_rules import RuleDecl
from ..rule_shapes import Instances
from .finiteness import Finiteness
from .patterns import Pattern, PatternIndex, matched
from .reversal import reverse_of
from .rule_terms import RuleTerms, read_rule
from .terms import Term, Terms
from .unfolding import Unfolding


@dataclass(frozen=True)
class Bound:
    """Limits: terms expanded from both sides together, operators beyond those of the larger side, and successors per
    expansion.

    `together` derives all outputs at once: a step may read everything that any of the outputs before it reads.
    `goal_weight` is the extra weight, in the order of terms, of an operator that the goal side does not have.
    """

    expansions: int = 24
    operators: int = 1
    successors: int = 400
    together: bool = False
    goal_weight: int = 0


DEFAULT = Bound()

Outputs = tuple[Term, ...]


@dataclass(frozen=True)
class Step:
    """A rewrite by a rule, from left to right if `forward`, else from right to left; `number` is the one that `add`
    returned.
    """

    rule: str
    forward: bool
    number: int


@dataclass
class Derivability:
    """The rules that may be used, in the order of their addition. Operators in `commutative` need no rule for
    commutativity.
    """

    library: Library
    commutative: frozenset[str]
    unfolding: Unfolding | None = None
    single: PatternIndex = field(default_factory=PatternIndex)
    joint: list[Pattern] = field(default_factory=list)
    both: set[int] = field(default_factory=set)
    count: int = 0
    finiteness: Finiteness = field(init=False)
    instances: Instances = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.finiteness = Finiteness(self.library)

    def add(self, rule: RuleDecl) -> int:
        """Adds a proved rule to those that may be used, and returns its number.

        A rule that cannot be read as terms gets a number but is never used.
        """
        number = self.count
        self.count += 1
        try:
            terms = self.read(rule, Terms(self.commutative))
        except Unsupported:
            return number
        if self._holds_both_ways(rule, terms):
            self.both.add(number)
        for source, target in ((terms.left, terms.right), (terms.right, terms.left)):
            pattern = Pattern(terms, number, source, target)
            if len(source) > 1:
                self.joint.append(pattern)
            else:
                self.single.add(pattern, (source[0].kind or ("",))[0] in self.commutative)
        return number

    def read(self, rule: RuleDecl, bank: Terms) -> RuleTerms:
        """The rule as terms of a bank, with defined operators unfolded. Raises Unsupported as `read_rule` does."""
        terms = read_rule(rule, self.library, bank, self.instances)
        return terms if self.unfolding is None else self.unfolding.unfolded(terms, bank)

    def _holds_both_ways(self, rule: RuleDecl, terms: RuleTerms) -> bool:
        """Whether both sides are defined at the same places: everywhere, or because the reverse is proved as well."""
        if all(self.finiteness.of(term, terms) for term in (*terms.left, *terms.right)):
            return True
        return isinstance(prove_rule(reverse_of(rule), self.library, shrink=False, numbers=False), Proved)

    def derive(self, rule: RuleDecl, bound: Bound = DEFAULT, without: Collection[int] = ()) -> tuple[Step, ...] | None:
        """The steps that derive a rule, output by output or all outputs at once; None if no derivation is found.

        `without` are numbers of rules that must not be used.
        """
        bank = Terms(self.commutative)
        try:
            subject = self.read(rule, bank)
        except Unsupported:
            return None
        search = _Search(self, subject, bank, bound, frozenset(without))
        if bound.together:
            return search.connect(subject.left, subject.right)
        steps: list[Step] = []
        for left, right in zip(subject.left, subject.right, strict=True):
            found = search.connect((left,), (right,))
            if found is None:
                break
            steps += found
        else:
            return tuple(steps)
        if len(subject.left) > 1 and self.joint:
            return search.connect(subject.left, subject.right)
        return None


@dataclass
class _Frontier:
    """The terms reached from one side, each with its predecessor and the step between them.

    `goal` are the calls of the other side, `weight` is the bound's `goal_weight`.
    """

    ahead: bool
    goal: frozenset[Term]
    weight: int
    parents: dict[Outputs, tuple[Outputs, Step] | None] = field(default_factory=dict)
    queue: list[tuple[int, int, Outputs]] = field(default_factory=list)
    made: int = 0

    def push(self, outputs: Outputs, parent: tuple[Outputs, Step] | None) -> None:
        self.parents[outputs] = parent
        self.made += 1
        calls = _calls(outputs)
        heappush(self.queue, (len(calls) + self.weight * len(calls - self.goal), self.made, outputs))

    def path(self, outputs: Outputs) -> list[Step]:
        """The steps from the frontier's own side to a term, the last step first."""
        steps = []
        parent = self.parents[outputs]
        while parent is not None:
            outputs, step = parent
            steps.append(step)
            parent = self.parents[outputs]
        return steps


def _reads(outputs: Outputs) -> frozenset[str]:
    return frozenset[str]().union(*(term.inputs for term in outputs))


def _calls(outputs: Outputs) -> frozenset[Term]:
    return frozenset[Term]().union(*(term.calls for term in outputs))


@dataclass
class _Search:
    rules: Derivability
    subject: RuleTerms
    bank: Terms
    bound: Bound
    without: frozenset[int]
    known: dict[tuple[Term, bool, bool], tuple[tuple[Term, Step], ...]] = field(default_factory=dict)

    def connect(self, left: Outputs, right: Outputs) -> tuple[Step, ...] | None:
        """The steps from `left` to `right`; None if no chain is found within the bound."""
        if left == right:
            return ()
        weight = self.bound.goal_weight
        sides = (_Frontier(True, _calls(right), weight), _Frontier(False, _calls(left), weight))
        for side, outputs in zip(sides, (left, right), strict=True):
            side.push(outputs, None)
        most = max(len(_calls(left)), len(_calls(right))) + self.bound.operators
        for number in range(self.bound.expansions):
            if not sides[0].queue and not sides[1].queue:
                return None
            own, other = sides if number % 2 == 0 else sides[::-1]
            if not own.queue:
                own, other = other, own
            _, _, outputs = heappop(own.queue)
            for count, (made, step) in enumerate(self._successors(outputs, own.ahead)):
                if count >= self.bound.successors:
                    break
                if made in own.parents or not (own.ahead or _reads(outputs) <= _reads(made)):
                    continue
                if made in other.parents:
                    own.parents[made] = (outputs, step)
                    return (*sides[0].path(made)[::-1], *sides[1].path(made))
                if len(_calls(made)) <= most:
                    own.push(made, (outputs, step))
        return None

    def _successors(self, outputs: Outputs, ahead: bool) -> Iterator[tuple[Outputs, Step]]:
        """The terms one step after these (`ahead`), or one step before them."""
        roots = set(outputs)
        for place in sorted(_calls(outputs), key=lambda term: term.number):
            for made, step in self._rewrites(place, ahead, inside=False) if place in roots else ():
                yield tuple(made if term is place else term for term in outputs), step
            for made, step in self._rewrites(place, ahead, inside=True):
                yield tuple(self.bank.replaced(term, {place: made}) for term in outputs), step
        if len(outputs) > 1:
            yield from self._joint(outputs, ahead)

    def _rewrites(self, term: Term, ahead: bool, *, inside: bool) -> tuple[tuple[Term, Step], ...]:
        """The results of one step on a term: with `inside`, by rules that hold both ways, else by rules that hold in
        one direction.
        """
        key = (term, ahead, inside)
        if key not in self.known:
            found: dict[Term, Step] = {}
            for pattern in self.rules.single.of(term):
                if self._usable(pattern, ahead, inside):
                    for (made,) in matched(pattern, (term,), self.subject, self.bank, self.rules.finiteness):
                        if made is not term:
                            found.setdefault(made, self._step(pattern, ahead))
            self.known[key] = tuple(found.items())
        return self.known[key]

    def _usable(self, pattern: Pattern, ahead: bool, inside: bool) -> bool:
        """Whether a pattern may be used as a step that reads no new input. Backwards, the step leads from target to
        source.
        """
        if pattern.number in self.without:
            return False
        both = pattern.number in self.rules.both
        if both != inside or not (both or self._is_forward(pattern, ahead)):
            return False
        return pattern.keeps_inputs and (ahead or self.bound.together or not pattern.drops_inputs)

    def _is_forward(self, pattern: Pattern, ahead: bool) -> bool:
        """Whether the step, read in the direction of the chain, applies the rule from left to right."""
        return (pattern.source is pattern.rule.left) == ahead

    def _step(self, pattern: Pattern, ahead: bool) -> Step:
        return Step(pattern.rule.name, self._is_forward(pattern, ahead), pattern.number)

    def _joint(self, outputs: Outputs, ahead: bool) -> Iterator[tuple[Outputs, Step]]:
        """Steps by rules of several outputs, matched with outputs of the term in any order."""
        for pattern in self.rules.joint:
            both = pattern.number in self.rules.both
            if pattern.number in self.without or not (both or self._is_forward(pattern, ahead)):
                continue
            if not pattern.keeps_inputs or not (ahead or self.bound.together or not pattern.drops_inputs):
                continue
            for chosen in _choices(pattern.source, outputs):
                for made in matched(pattern, chosen, self.subject, self.bank, self.rules.finiteness):
                    mapping = dict(zip(chosen, made, strict=True))
                    yield tuple(mapping.get(term, term) for term in outputs), self._step(pattern, ahead)


def _choices(patterns: Sequence[Term], outputs: Outputs) -> Iterator[Outputs]:
    """Choices of distinct outputs, one per pattern, that have the operators of the patterns at their roots."""
    if not patterns:
        yield ()
        return
    for place, term in enumerate(outputs):
        if patterns[0].head is None or patterns[0].kind == term.kind:
            rest = outputs[:place] + outputs[place + 1 :]
            yield from ((term, *others) for others in _choices(patterns[1:], rest))
