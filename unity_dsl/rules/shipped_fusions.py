"""The rules of `rules/fusion.rules`, which every search uses: those that may fit a model, each proved."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from ..graph.graph import Model
from ..index.library import Library
from ..resources import folder
from ..syntax.ast import Name
from ..syntax.canonical_text import syntax_nodes
from ..syntax.outline import called_before_arrow, outline_rules
from ..syntax.parse_rules import GraphCall, RuleDecl, parse_rule, parse_rules
from ..syntax.span import Source, Span
from .accepted_rule import AcceptedRule

if TYPE_CHECKING:
    from .certificate import Certificate


def shipped_fusions() -> Path:
    """The file of the shipped fusions."""
    return folder("rules") / "fusion.rules"


def fusion_texts(sources: Iterable[Source]) -> tuple[Source, ...]:
    """Of shipped texts that of the fusions, by its file's name."""
    return tuple(source for source in sources if PurePath(source.name).name == shipped_fusions().name)


def fusions_for(
    model: Model, sources: Sequence[Source], library: Library, forbidden: Collection[str] = ()
) -> tuple[AcceptedRule, ...]:
    """The rules of these texts, those with `forbidden` names left out, whose left sides have no operator that the model
    has not.

    The shipped certificates spare their proofs. Raises E542 for one that is not proved.
    """
    present = {node.instance.name for node in model.graph.nodes()}
    fitting = [
        (rule, source) for source in sources for rule in fitting_rules(source, present) if rule.name not in forbidden
    ]
    if not fitting:
        return ()
    # Only a model that a rule may fit has to wait for what reads certificates and proves rules.
    from .certificate import certificates_path, known_certificates

    known = known_certificates(certificates_path(shipped_fusions()))
    return tuple(accept_shipped(rule, source, library, known) for rule, source in fitting)


def accept_shipped(
    rule: RuleDecl, source: Source, library: Library, certificates: Mapping[str, Certificate]
) -> AcceptedRule:
    """A shipped rule, proved now unless it has a certificate that holds: then it is well formed as well. Raises E542
    and as `check_rule`.
    """
    from ..prove.translation.rule_results import by_results
    from .certificate import certified

    expanded = by_results(rule, library)
    if certified(expanded, library, certificates):
        return AcceptedRule(expanded, certificates[rule.name].assumed)
    # Only a rule without a valid certificate has to wait for the prover.
    from .rulebook import accept
    from .wellformed import check_rule

    return accept(check_rule(rule, library), source, library, certificates)


def fitting_rules(source: Source, present: Collection[str]) -> Iterator[RuleDecl]:
    """The rules of a text whose left sides have no operator but these; only what may be one of them is parsed."""
    parts = _outlined(source)
    if parts is None:
        rules: Iterable[RuleDecl] = parse_rules(source).rules
    else:
        rules = (_parsed(part) for part, called in parts if called <= set(present))
    return (rule for rule in rules if operators_of_the_left_side(rule) <= set(present))


@lru_cache(maxsize=64)
def _outlined(source: Source) -> tuple[tuple[Span, frozenset[str]], ...] | None:
    """The parts of a text that are its rules, with what their left sides are seen to call."""
    parts = outline_rules(source)
    return None if parts is None else tuple((part, called_before_arrow(part)) for part in parts.values())


@lru_cache(maxsize=4096)
def _parsed(part: Span) -> RuleDecl:
    return parse_rule(part)


def operators_of_the_left_side(rule: RuleDecl) -> set[str]:
    definitions, pending, found = dict(rule.definitions), [*rule.left], set[str]()
    while pending:
        for node in syntax_nodes(pending.pop()):
            if isinstance(node, GraphCall):
                found.add(node.name)
            elif isinstance(node, Name) and node.name in definitions:
                pending.append(definitions.pop(node.name))
    return found
