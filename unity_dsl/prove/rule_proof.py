"""Proves or refutes a rule for all sizes that meet its conditions, by discharging obligations in order.

The relation shown is refinement, as in Alive: wherever the left side has a value, the right side has the same, over the
extended reals and at all sizes that meet the conditions. Where the left side has no value, the right side may have any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product as combinations
from math import prod
from time import perf_counter

from ..index.library import Library
from ..syntax.ast import FactDecl, OperatorDecl
from ..syntax.parse_rules import RuleDecl
from .answer import Answer, NotProved, Obligation, Proved, Refuted
from .conditional.conditional_equality import ConditionalEquality
from .decision.integer_arithmetic import Arithmetic, Question
from .functions.definedness import partial_name
from .functions.domain_inclusion import uncovered
from .functions.fact_minimisation import with_assumed_facts
from .normal_form.form import Unsupported
from .normal_form.guard import compare
from .normal_form.polynomial import ONE
from .normal_form.step_limit import OutOfSteps, limited, steps_left
from .refutation.counterexample import Shrinking, outside_training
from .refutation.numeric_run import (
    LARGE,
    SPARSE,
    Difference,
    IllShaped,
    Run,
    TooLarge,
    long_sizes,
    small_sizes,
    witness_sizes,
)
from .refutation.sampled_run import SampledRun
from .translation.operator_forms import Tensor
from .translation.real_attributes import with_reals
from .translation.real_conditions import check_needs, drawn_reals
from .translation.rest_ranks import check_ranks, ranks_of
from .translation.rule_forms import (
    Graph,
    Ranks,
    Views,
    attribute_value,
    calls,
    check_random,
    claim_of,
    declaration,
    used_names,
    views,
)
from .translation.rule_results import by_results
from .translation.size_assumptions import Claim, names_multiples
from .translation.symbolic_sizes import Failed, shown

WITNESSES = (0, 2, SPARSE, SPARSE + 1, LARGE)
"""Seeds of inputs at which a proved rule is evaluated: generic, small integers, zeros, negative, large."""
ALL_STEPS, PROOF_STEPS, RUN_STEPS = 50_000, 40_000, 10_000
"""Step limits: for a rule at all its ranks, for the proof at one rank, for the NumPy evaluations at one rank."""
MAX_WITNESS = 200_000
"""Limit of the product of the witness sizes (pairwise different if possible). Beyond it minimal sizes are used."""
TRIALS = (*range(12), *range(SPARSE, SPARSE + 4), *range(LARGE, LARGE + 6))
"""Seeds of the random instances searched for a counterexample where no proof is found."""


@dataclass(frozen=True)
class Derivation:
    """A proof, possibly partial, at given ranks of the rule's rest groups.

    `outputs` are the normal forms of both sides over the same indices; `questions` are all queries to z3, in order.
    """

    ranks: Ranks
    witness: Mapping[str, int]
    inputs: Mapping[str, Tensor]
    outputs: tuple[tuple[Tensor, Tensor], ...]
    obligations: tuple[Obligation, ...]
    questions: tuple[Question, ...]


def prove_rule(rule: RuleDecl, library: Library, *, shrink: bool = True, numbers: bool = True) -> Answer:
    """Proves or refutes that the left side refines to the right one.

    `shrink` makes the counterexample and the set of assumed facts small.

    Without `numbers` neither side is evaluated at numbers, so nothing is refuted.

    Raises InputError for unknown names and for calls that cannot be read.
    """
    return _with_fewest_facts(rule, library, None, shrink=shrink, numbers=numbers)


def follow_rule(rule: RuleDecl, library: Library) -> tuple[Answer, tuple[Derivation, ...]]:
    """The answer of `prove_rule`, with one derivation for each choice of ranks."""
    derivations: list[Derivation] = []
    answer = _with_fewest_facts(rule, library, derivations, shrink=True, numbers=True)
    return answer, tuple(derivations)


def _with_fewest_facts(
    rule: RuleDecl, library: Library, derivations: list[Derivation] | None, *, shrink: bool, numbers: bool
) -> Answer:
    """Runs `_prove`; with `shrink`, repeats it without numeric evaluation to find which assumed facts it needs.

    `derivations` receives the derivations of the answer.
    """

    def again(restricted: Library) -> Answer:
        record: list[Derivation] | None = None if derivations is None else []
        answer = _prove(rule, restricted, record, shrink=False, numbers=False)
        if derivations is not None and record is not None and isinstance(answer, Proved):
            derivations[:] = record
        return answer

    with limited(ALL_STEPS):
        found = _prove(rule, library, derivations, shrink=shrink, numbers=numbers)
        steps = ALL_STEPS - (steps_left() or 0)
    return with_assumed_facts(found, library, again if shrink else None, steps)


def _prove(
    rule: RuleDecl, library: Library, derivations: list[Derivation] | None, *, shrink: bool, numbers: bool
) -> Answer:
    """The answer with sizes split into factors by the conditions or, if that is NotProved, with undivided sizes."""
    begun = perf_counter()
    rule = by_results(rule, library)
    answer: Answer
    try:
        rule, library = with_reals(rule, library)
        answer = _prove_claim(rule, library, claim_of(rule), derivations, shrink=shrink, numbers=numbers)
    except Unsupported as reason:
        answer = NotProved("same_shape", f"no method for {reason}", 0.0)
    if isinstance(answer, NotProved) and names_multiples(rule):
        followed: list[Derivation] | None = None if derivations is None else []
        with suppress(Unsupported):
            claim = claim_of(rule, undivided=True)
            whole = _prove_claim(rule, library, claim, followed, shrink=shrink, numbers=numbers)
            if not isinstance(whole, NotProved):
                answer = whole
                if derivations is not None and followed is not None:
                    derivations[:] = followed
    return replace(answer, seconds=perf_counter() - begun)


def _prove_claim(
    rule: RuleDecl,
    library: Library,
    claim: Claim,
    derivations: list[Derivation] | None,
    *,
    shrink: bool,
    numbers: bool,
) -> Answer:
    """The answer for one claim about the sizes, at all ranks and in all modes.

    Raises Unsupported for constructs that the prover has no method for.
    """
    begun = perf_counter()
    shown_at: dict[Obligation, None] = {}
    facts: dict[int, FactDecl] = {}
    questions = 0
    unmet: Failed | None = None
    for (evaluation, declared), ranks in combinations(modes(rule, library), ranks_of(rule, library)):
        prover = Prover(rule, claim, declared, ranks, recorded=derivations is not None, numbers=numbers)
        outcome = prover.run()
        if derivations is not None:
            derivations.append(prover.derivation(outcome if isinstance(outcome, tuple) else ()))
        if isinstance(outcome, Difference):
            found = prover.smallest(outcome) if shrink else outcome
            return Refuted(replace(found, evaluation=evaluation), perf_counter() - begun)
        if isinstance(outcome, Failed):
            unmet = unmet or outcome  # at another rank there may be a counterexample
            continue
        shown_at |= dict.fromkeys(outcome)
        questions += prover.arithmetic.asked
        facts |= prover.facts
    if unmet is not None:
        return NotProved(unmet.obligation, unmet.message, perf_counter() - begun)
    return Proved(tuple(shown_at), questions, perf_counter() - begun, tuple(facts.values()))


def modes(rule: RuleDecl, library: Library) -> Iterator[tuple[bool, Library]]:
    """(False, the library in training) and, if a called operator has an `eval` clause, (True, that in evaluation)."""
    yield False, library
    called = [declaration(call, library) for call in calls(rule)]
    if any(isinstance(decl, OperatorDecl) and decl.evaluation for decl in called):
        yield True, outside_training(library)


class Prover:
    """The proof of a rule at given ranks of its rest groups."""

    def __init__(
        self,
        rule: RuleDecl,
        claim: Claim,
        library: Library,
        ranks: Ranks,
        *,
        recorded: bool = False,
        numbers: bool = True,
    ) -> None:
        self.rule = rule
        self.numbers = numbers
        self.claim = claim
        self.library = library
        self.ranks = ranks
        self.names = used_names(rule, claim, ranks)
        self.arithmetic = Arithmetic(claim.conditions, record=[] if recorded else None)
        self.facts: dict[int, FactDecl] = {}
        self.witness: Mapping[str, int] = {}
        self.inputs: Mapping[str, Tensor] = {}
        self.outputs: list[tuple[Tensor, Tensor]] = []
        self.told = 0
        self.views: Views = {}

    def run(self) -> tuple[Obligation, ...] | Difference | Failed:
        """The obligations discharged, a counterexample, or the obligation that could not be discharged."""
        sizes = self._witness()
        if sizes is None:
            return Failed("inhabited", "no sizes of 2 and more are found that meet the conditions")
        reals = drawn_reals(self.claim, sorted(self.claim.reals), sizes, 0)
        if reals is None:
            return Failed("inhabited", "no numbers are found that meet the conditions")
        try:
            graph = Graph(self.rule, self.claim, self.library, self.ranks, sizes, self.arithmetic)
        except OutOfSteps as reason:
            return Failed("same_value", f"given up after {reason}")
        self.views = graph.views
        self.witness, self.inputs = sizes, {tensor.name: graph.tensors[tensor.name] for tensor in self.rule.inputs}
        self.facts = graph.functions.used
        try:
            check_ranks(self.rule, self.library)
            check_random(self.rule, self.library)
            with limited(PROOF_STEPS):
                left, right = graph.sides()
                check_needs(self.rule.real_needs, graph.functions, self.claim)
                obligations = (
                    *self.obligations(graph, left, right),
                    *(Obligation("divides", text) for text in graph.divisions),
                )
        except Failed as failed:
            # Values are compared at a common index, which tensors of different layouts do not have.
            comparable = failed.obligation in ("same_value", "same_shape", "defined")
            return (self._counterexample(graph) if comparable else None) or failed
        except OutOfSteps as reason:
            return self._counterexample(graph) or Failed("same_value", f"given up after {reason}")
        except Unsupported as reason:
            return self._counterexample(graph) or Failed("same_value", f"no method for {reason}")
        # The proof is complete without this run, which guards against faults of the prover itself.
        try:
            seeds = WITNESSES if self.numbers else ()
            found = next(filter(None, (self.difference(graph, sizes, seed) for seed in seeds)), None)
        except (IllShaped, Unsupported) as reason:
            return Failed("inhabited", f"the witness {_sizes_text(sizes)} cannot be run: {reason}")
        return found if found is not None else (*obligations, Obligation("inhabited", _sizes_text({**sizes, **reals})))

    def _witness(self) -> Mapping[str, int] | None:
        """Sizes that meet the conditions. Attributes computed from sizes are at least 1 there, if that is possible."""
        given = (attribute_value(expr, self.claim) for call in calls(self.rule) for _, expr in call.attributes)
        positive = (compare(">=", value, ONE) for value in given if value.constant is None and value.is_integral)
        narrowed = replace(self.claim, conditions=(*self.claim.conditions, *dict.fromkeys(positive)))
        found = witness_sizes(narrowed, self.names, 0) or witness_sizes(self.claim, self.names, 0)
        if found is not None and prod(found.values()) > MAX_WITNESS:
            return small_sizes(narrowed, self.names) or found
        return found

    def derivation(self, obligations: tuple[Obligation, ...]) -> Derivation:
        """The derivation that `run` has recorded."""
        questions = tuple(self.arithmetic.record or ())
        return Derivation(self.ranks, self.witness, self.inputs, tuple(self.outputs), obligations, questions)

    def _asked(self, *names: str) -> tuple[Question, ...]:
        """The z3 queries recorded since the last call that belong to the obligations with these names."""
        if self.arithmetic.record is None:
            return ()
        since, self.told = self.arithmetic.record[self.told :], len(self.arithmetic.record)
        return tuple(question for question in since if question.obligation in names)

    def obligations(self, graph: Graph, left: list[Tensor], right: list[Tensor]) -> tuple[Obligation, ...]:
        before = self._asked("in_bounds", "same_shape")
        met = [
            Obligation(name, statement, tuple(question for question in before if question.obligation == name))
            for name, statement in (
                ("in_bounds", "every read without a fill lies inside its tensor"),
                ("same_shape", "the operands of every operator have the sizes that it asks for"),
            )
        ]
        for number, (first, second) in enumerate(zip(left, right, strict=True)):
            first, second = self._same_shape(first, second)
            dims = ", ".join(" * ".join(shown(var.size) for var in dim) or "1" for dim in first.dims)
            axes = ", ".join(f"@{name}" for name, _ in first.devices) or "none"
            met.append(Obligation("same_layout", f"output {number}: device axes {axes}"))
            met.append(Obligation("same_shape", f"output {number} has shape [{dims}]", self._asked("same_shape")))
            self.outputs.append((first, second))
            choices = first.choices(second)
            for choice in choices:
                self._same_value(number, graph, first.chosen(choice), second.chosen(choice))
            terms = f"output {number}: {len(first.value)} terms"
            met.append(Obligation("same_value", terms, self._asked("same_value")))
            for choice in choices:
                self._defined(number, graph, first.chosen(choice), second.chosen(choice))
            applied = f"output {number}: {len(second.domain)} quotients and partial functions on the right"
            met.append(Obligation("defined", applied, self._asked("same_value")))
        return tuple(met)

    def _same_shape(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        """Both sides over the same indices. Raises Failed where their shapes differ."""
        if {name for name, _ in left.devices} != {name for name, _ in right.devices}:
            raise Failed("same_layout", "the two sides have other device axes")
        shapes = [[tuple(var.size for var in dim) for dim in tensor.dims] for tensor in (left, right)]
        if len(shapes[0]) != len(shapes[1]) or not all(map(self.arithmetic.equal_sizes, *shapes)):
            texts = [", ".join(" * ".join(map(shown, dim)) or "1" for dim in shape) for shape in shapes]
            raise Failed("same_shape", f"[{texts[0]}] on the left, [{texts[1]}] on the right")
        if (left.bound is None) != (right.bound is None):
            raise Failed("same_shape", "integers on one side only")
        return right.over(left)

    def _same_value(self, output: int, graph: Graph, left: Tensor, right: Tensor) -> None:
        if left.entry is not None and right.entry is not None:
            if not self.arithmetic.certain(compare("==", left.entry, right.entry), obligation="same_value"):
                raise Failed("same_value", f"output {output}: the integers are not known to be equal")
            return
        if not ConditionalEquality(left.domain, graph.functions).equal(left.value, right.value):
            raise Failed("same_value", f"output {output}: the coefficients are not known to agree")

    def _defined(self, output: int, graph: Graph, left: Tensor, right: Tensor) -> None:
        """Shows that each partial application of the right side has a value wherever the left side has one.

        Raises Failed.
        """
        conditional = ConditionalEquality(left.domain, graph.functions)
        partial = uncovered(right.domain, left.domain, graph.functions, conditional.has_value)
        if partial is not None:
            what = partial_name(partial.function)
            raise Failed("defined", f"output {output}: {what} is not known to have a value where the left side has")

    # ------------------------------------------------------------------------------------------ numbers

    def difference(self, graph: Graph, sizes: Mapping[str, int], seed: int) -> Difference | None:
        """The first difference of the sides at these sizes.

        Raises IllShaped and Unsupported where they cannot be evaluated.
        """
        question = (self.rule, self.claim, self.library, self.ranks, graph.views, sizes)
        try:
            return Run(*question).difference(seed)
        except TooLarge:
            return SampledRun(*question).difference(seed)

    @limited(RUN_STEPS)
    def smallest(self, found: Difference) -> Difference:
        """The counterexample shrunk: small sizes, simple inputs."""
        return Shrinking(self.rule, self.claim, self.library, self.ranks, self.views).smallest(found)

    @limited(RUN_STEPS)
    def _counterexample(self, graph: Graph) -> Difference | None:
        """A difference on random instances, small sizes first, sizes of 1 included; None where none is found."""
        if not self.numbers or not all(id(view) in graph.views for view in views(self.rule)):
            return None  # how the axes of a view divide its dimensions is not known
        for sizes, seed in self._trials():
            try:
                found = self.difference(graph, sizes, seed)
            except (IllShaped, Unsupported):
                continue
            if found is not None:
                return found
        return None

    def _trials(self) -> Iterator[tuple[Mapping[str, int], int]]:
        """Pairs of sizes and an input seed: small sizes first, one long size last.

        If the product of the usual sizes exceeds `MAX_WITNESS`, minimal sizes come before all others.
        """
        usual = witness_sizes(self.claim, self.names, 0)
        if usual is not None and prod(usual.values()) > MAX_WITNESS:
            smallest = small_sizes(self.claim, self.names) or usual
            yield from ((smallest, seed) for seed in WITNESSES)
        for turn, seed in enumerate(TRIALS):
            sizes = witness_sizes(self.claim, self.names, seed, least=2 if turn < len(TRIALS) // 2 else 1)
            if sizes is not None:
                yield sizes, seed
        for sizes in long_sizes(self.claim, self.names):
            yield sizes, 0


def _sizes_text(sizes: Mapping[str, float]) -> str:
    return ", ".join(f"{name} = {size:g}" for name, size in sizes.items())
