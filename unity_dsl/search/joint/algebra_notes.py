"""Notes of a plan about the rules that made its model: what they did, and which limits they met."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...graph.plan import AppliedRule, Plan, Proof
from ...written_figures import percent
from .extracted_model import Algebra
from .joint_search import JointOptimum

_APPLIED, _NONE, _NO_RULE_FITS = "rules applied", "no rule makes the model cheaper", "no rule fits the model"


def described_anew(notes: Sequence[str], algebra: Algebra, rules: Sequence[AppliedRule]) -> tuple[str, ...]:
    """The notes of a plan, with the note on applied rules replaced by one on these `rules`."""
    told = [note for note in notes if note.startswith((_APPLIED, _NONE, _NO_RULE_FITS))]
    place = notes.index(told[0]) if told else len(notes)
    others = [note for note in notes if note not in told]
    return *others[:place], next(iter(describe_rules(algebra, rules))), *others[place:]


def describe_algebra(algebra: Algebra, found: JointOptimum | None, best: Plan) -> Iterator[str]:
    """Notes on the rules for the reader of a plan."""
    did, *limits = describe_rules(algebra, best.rules)
    yield did
    if found is not None and not found.exact:
        gap = 100 * (1 - found.bound / best.cost.seconds)
        yield Proof(
            f"rewritten models not searched to the end, none of which is more than {percent(gap)} cheaper"
            if found.bound > 0
            else "rewritten models searched in the neighbourhood of the plan before rules alone, without a bound"
        )
    yield from limits


def describe_rules(algebra: Algebra, rules: Sequence[AppliedRule]) -> Iterator[str]:
    """Notes on what rules did, and on the limits that they met. They do not depend on layouts."""
    if not algebra.groups and not algebra.changed:
        yield _NO_RULE_FITS
        yield from algebra.limits
        return
    places: dict[str, list[str]] = {}
    for used in rules:
        places.setdefault(used.rule, []).append(used.place)
    named = (f"`{rule}` {f'{len(at)} times' if len(at) > 1 else f'at {at[0]}'}" for rule, at in places.items())
    did = f"{_APPLIED}: {', '.join(named)}" if rules else _NONE
    many = f"{algebra.extractions} models that rules make were compared with their layouts"
    yield f"{did}; {many}, on the mesh of the plan"
    yield from algebra.limits
