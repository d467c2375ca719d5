"""Is a rule true for all sizes that meet its conditions? Three answers, each with what it rests on.

The contract: equality over the reals, wherever both sides have a value, at all sizes that meet the conditions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product as combinations
from time import perf_counter

from ..index.library import Library
from ..syntax.parse_rules import RuleDecl
from .arithmetic import Arithmetic
from .build import Claim, Graph, Ranks, check_random, check_ranks, claim_of, rest_groups, used_names, views
from .compare import Comparison
from .form import Form, Unsupported, substitute
from .guard import compare
from .inline import Tensor
from .poly import Var, of
from .shape import Factors, Failed, shown
from .witness import Difference, IllShaped, Run, witness_sizes

PROVER = 1
"""The version of the prover's method: proofs by another one count for nothing."""
MAX_RANK = 2
TRIALS = 12
"""Random instances that look for a counterexample where no proof is found."""


@dataclass(frozen=True)
class Obligation:
    """Something that was shown: same_shape, in_bounds, divides, same_layout, inhabited or same_value."""

    name: str
    statement: str


@dataclass(frozen=True)
class Proved:
    """For all sizes that meet the conditions. `questions` is how often z3 was asked."""

    obligations: tuple[Obligation, ...]
    questions: int
    seconds: float


@dataclass(frozen=True)
class Refuted:
    """Both sides were run in NumPy at these sizes, and differ there."""

    counterexample: Difference
    seconds: float


@dataclass(frozen=True)
class NotProved:
    """Neither: the obligation that was not met, and why."""

    obligation: str
    reason: str
    seconds: float


Answer = Proved | Refuted | NotProved


def prove_rule(rule: RuleDecl, library: Library) -> Answer:
    """Whether left equals right. Raises InputError for names that are not there and calls that cannot be read."""
    begun = perf_counter()
    try:
        claim = claim_of(rule)
    except Unsupported as reason:
        return NotProved("same_shape", f"no method for {reason}", perf_counter() - begun)
    shown_at: dict[Obligation, None] = {}
    questions = 0
    for ranks in ranks_of(rule):
        prover = Prover(rule, claim, library, ranks)
        outcome = prover.run()
        if isinstance(outcome, Difference):
            return Refuted(outcome, perf_counter() - begun)
        if isinstance(outcome, Failed):
            return NotProved(outcome.obligation, outcome.message, perf_counter() - begun)
        shown_at |= dict.fromkeys(outcome)
        questions += prover.arithmetic.asked
    return Proved(tuple(shown_at), questions, perf_counter() - begun)


def ranks_of(rule: RuleDecl) -> Iterator[Ranks]:
    groups = rest_groups(rule)
    for ranks in combinations(range(MAX_RANK + 1), repeat=len(groups)):
        yield dict(zip(groups, ranks, strict=True))


class Prover:
    """A rule at given ranks of its rest groups."""

    def __init__(self, rule: RuleDecl, claim: Claim, library: Library, ranks: Ranks) -> None:
        self.rule = rule
        self.claim = claim
        self.library = library
        self.ranks = ranks
        self.names = used_names(rule, claim, ranks)
        self.arithmetic = Arithmetic(claim.conditions)

    def run(self) -> tuple[Obligation, ...] | Difference | Failed:
        """The obligations met, a counterexample, or the obligation that is not met."""
        sizes = witness_sizes(self.claim, self.names, 0)
        if sizes is None:
            return Failed("inhabited", "no sizes of 2 and more are found that meet the conditions")
        graph = Graph(self.rule, self.claim, self.library, self.ranks, sizes, self.arithmetic)
        try:
            check_ranks(self.rule, self.library)
            check_random(self.rule, self.library)
            left, right = graph.sides()
            obligations = (*self.obligations(left, right), *(Obligation("divides", text) for text in graph.divisions))
        except Failed as failed:
            # Without a common layout there is no common index at which two values could be compared.
            comparable = failed.obligation in ("same_value", "same_shape")
            return (self._counterexample(graph) if comparable else None) or failed
        except Unsupported as reason:
            return self._counterexample(graph) or Failed("same_value", f"no method for {reason}")
        # The witness also guards the prover itself: a proof that the numbers contradict is never given out.
        try:
            found = self.difference(graph, sizes, 0)
        except (IllShaped, Unsupported) as reason:
            return Failed("inhabited", f"the witness {_sizes_text(sizes)} cannot be run: {reason}")
        return found if found is not None else (*obligations, Obligation("inhabited", _sizes_text(sizes)))

    def obligations(self, left: list[Tensor], right: list[Tensor]) -> tuple[Obligation, ...]:
        met = [Obligation("in_bounds", "every read without a fill lies inside its tensor")]
        for number, (first, second) in enumerate(zip(left, right, strict=True)):
            mapping = self._same_shape(first, second)
            dims = ", ".join(" * ".join(shown(var.size) for var in dim) or "1" for dim in first.dims)
            axes = ", ".join(f"@{name}" for name, _ in first.devices) or "none"
            met.append(Obligation("same_layout", f"output {number}: device axes {axes}"))
            met.append(Obligation("same_shape", f"output {number} has shape [{dims}]"))
            self._same_value(number, first, second, mapping)
            met.append(Obligation("same_value", f"output {number}: {len(first.value)} terms"))
        return tuple(met)

    def _same_shape(self, left: Tensor, right: Tensor) -> dict[Var, Var]:
        """The indices of the right side as those of the left. Raises Failed."""
        if {name for name, _ in left.devices} != {name for name, _ in right.devices}:
            raise Failed("same_layout", "the two sides have other device axes")
        shapes = [[tuple(var.size for var in dim) for dim in tensor.dims] for tensor in (left, right)]
        if shapes[0] != shapes[1] and not self._equal_shapes(*shapes):
            texts = [", ".join(" * ".join(map(shown, dim)) or "1" for dim in shape) for shape in shapes]
            raise Failed("same_shape", f"[{texts[0]}] on the left, [{texts[1]}] on the right")
        if (left.bound is None) != (right.bound is None):
            raise Failed("same_shape", "integers on one side only")
        own = dict(left.devices)
        mapping = {var: own[name] for name, var in right.devices}
        for first, second in zip(left.dims, right.dims, strict=True):
            mapping |= dict(zip(second, first, strict=True))
        return mapping

    def _equal_shapes(self, left: list[Factors], right: list[Factors]) -> bool:
        return [len(dim) for dim in left] == [len(dim) for dim in right] and all(
            self.arithmetic.certain(compare("==", a, b))
            for first, second in zip(left, right, strict=True)
            for a, b in zip(first, second, strict=True)
        )

    def _same_value(self, output: int, left: Tensor, right: Tensor, mapping: Mapping[Var, Var]) -> None:
        renaming = {old: of(new) for old, new in mapping.items()}
        if left.entry is not None and right.entry is not None:
            if not self.arithmetic.certain(compare("==", left.entry, right.entry.substitute(renaming))):
                raise Failed("same_value", f"output {output}: the integers are not known to be equal")
            return
        other: Form = substitute(right.value, renaming)
        if not Comparison(self.arithmetic).equal(left.value, other):
            raise Failed("same_value", f"output {output}: the coefficients are not known to agree")

    # ------------------------------------------------------------------------------------------ numbers

    def difference(self, graph: Graph, sizes: Mapping[str, int], seed: int) -> Difference | None:
        """Where the sides differ at these sizes. Raises IllShaped and Unsupported where they have no value there."""
        return Run(self.rule, self.claim, self.library, self.ranks, graph.views, sizes).difference(seed)

    def _counterexample(self, graph: Graph) -> Difference | None:
        """A difference on random instances, small sizes first; sizes of 1 among them."""
        if not all(id(view) in graph.views for view in views(self.rule)):
            return None  # how the axes of a view divide its dimensions is not known
        for seed in range(TRIALS):
            sizes = witness_sizes(self.claim, self.names, seed, least=2 if seed < TRIALS // 2 else 1)
            try:
                found = None if sizes is None else self.difference(graph, sizes, seed)
            except (IllShaped, Unsupported):
                continue
            if found is not None:
                return found
        return None


def _sizes_text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())
