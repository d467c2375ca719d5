"""Text that weights the terms of a loss over several batches: the sums that a batch contributes, and the divisors of
terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..graph.graph import Model
from ..graph.layout import Mesh
from ..graph.loss_divisors import DividedTerm, Unweighted, divided_terms, steps_of_sums
from ..index.equations.instance import Instance
from ..index.lowering.division import Division
from ..index.lowering.operator_lowering import lower_equations
from .comment_words import where
from .conversion_text import Collectives
from .operator_text import Place, lowering_text
from .program_names import Names

_NUMBERS = "torch.float64"


@dataclass(frozen=True)
class LossShares:
    """The text of the loss terms that are divided by sums over a batch.

    `counted` are the statements that compute the sums of a batch. `divisors` are the statements that compute divisors
    from these sums. `numbers` are the indices of terms among the shares, by the names of their values.
    """

    counted: tuple[str, ...]
    divisors: tuple[str, ...]
    numbers: Mapping[str, int]


def loss_shares(model: Model, collectives: Collectives) -> LossShares | None:
    """The text of a model's divided terms; None if there are none, or if one of them cannot be weighted."""
    found = _weighed(model)
    if not found:
        return None
    numbers = {term.value: place for place, term in enumerate(found)}
    return LossShares(tuple(_counted(model, found, collectives)), tuple(_divisors(found, collectives)), numbers)


def is_weighed(model: Model) -> bool:
    """Whether the loss has divided terms, and all of them can be weighted over several batches."""
    return bool(_weighed(model))


def _weighed(model: Model) -> tuple[DividedTerm, ...]:
    """The divided terms of a loss; none if one of them cannot be weighted."""
    terms = divided_terms(model)
    found = tuple(term for term in terms if isinstance(term, DividedTerm))
    return found if len(found) == len(terms) else ()


def unweighted_words(model: Model) -> str | None:
    """Why a step over several batches would be a mean of means; None if it would not."""
    reasons = (f"{where(term.span)}{term.reason}" for term in divided_terms(model) if isinstance(term, Unweighted))
    return next(reasons, None)


def _counted(model: Model, terms: tuple[DividedTerm, ...], collectives: Collectives) -> Iterator[str]:
    names = Names(("self", "batch", "model", "torch", "F", "places"))
    variables: dict[str, str] = {}
    steps = steps_of_sums(model, terms)
    needed = {name for term in terms for one in term.sums for name in one.arguments}
    needed |= {value.name for step in steps for value in step.arguments}
    for given in model.graph.inputs:
        if given.value.name in needed:
            variables[given.value.name] = names.fresh(given.value.name)
            wide = "" if given.value.dtype == "int" else f".to({_NUMBERS})"
            yield f'{variables[given.value.name]} = batch["{given.value.name}"]{wide}'
    for step in steps:
        for value in step.results:
            variables[value.name] = names.fresh(value.name.replace(".", "_"))
        arguments = [variables[value.name] for value in step.arguments]
        yield from _text(
            step.instance, arguments, [variables[value.name] for value in step.results], names, collectives
        )
    made = []
    for term in terms:
        for one in term.sums:
            made.append(names.fresh("counted"))
            yield from _text(one.instance, [variables[name] for name in one.arguments], [made[-1]], names, collectives)
    yield f"return [{', '.join(made)}]"


def _divisors(terms: tuple[DividedTerm, ...], collectives: Collectives) -> Iterator[str]:
    names = Names(("self", "sums", "model", "torch", "F", "places"))
    made, place = [], 0
    for term in terms:
        made.append(names.fresh("divisor"))
        arguments = [f"sums[{place + number}]" for number in range(len(term.sums))]
        yield from _text(term.divisor, arguments, [made[-1]], names, collectives)
        place += len(term.sums)
    yield f"return torch.stack([{', '.join(made)}])"


def _text(
    instance: Instance, arguments: list[str], results: list[str], names: Names, collectives: Collectives
) -> list[str]:
    """The text of an operator at the model's sizes, on one device, in float64."""
    lowering = lower_equations(instance, Division(instance.sizes), collectives.library)
    place = Place(names, Mesh(()), collectives.library, collectives, "self", float_type=_NUMBERS)
    return lowering_text(lowering, instance.name, instance.sizes, arguments, results, place)
