"""The rules of `rules/fusion.rules` that may fit a model, each proved. Every search uses them."""

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
    """The path of the file of shipped fusions."""
    return folder("rules") / "fusion.rules"


def fusion_texts(sources: Iterable[Source]) -> tuple[Source, ...]:
    """The texts of the fusions among shipped texts, found by file name."""
    return tuple(source for source in sources if PurePath(source.name).name == shipped_fusions().name)


def fusions_for(
    model: Model, sources: Sequence[Source], library: Library, forbidden: Collection[str] = ()
) -> tuple[AcceptedRule, ...]:
    """The rules of these texts whose left sides use only operators of the model, without the rules named in
    `forbidden`.

    Rules with valid shipped certificates are not proved again. Raises E542 for a rule that is not proved.
    """
    present = {node.instance.name for node in model.graph.nodes()}
    fitting = [
        (rule, source) for source in sources for rule in fitting_rules(source, present) if rule.name not in forbidden
    ]
    if not fitting:
        return ()
    # Imported here: this code reads certificates and proves rules, which only a model that a rule may fit needs.
    from .certificate import certificates_path, known_certificates

    known = known_certificates(certificates_path(shipped_fusions()))
    return tuple(accept_shipped(rule, source, library, known) for rule, source in fitting)


def accept_shipped(
    rule: RuleDecl, source: Source, library: Library, certificates: Mapping[str, Certificate]
) -> AcceptedRule:
    """A shipped rule, proved now unless it has a valid certificate, which implies that it is well formed too. Raises
    E542, and InputError as `check_rule` does.
    """
    from ..prove.translation.rule_results import by_results
    from .certificate import certified

    expanded = by_results(rule, library)
    if certified(expanded, library, certificates):
        return AcceptedRule(expanded, certificates[rule.name].assumed)
    # Imported here: only a rule without a valid certificate needs the prover.
    from .rulebook import accept
    from .wellformed import check_rule

    return accept(check_rule(rule, library), source, library, certificates)


def fitting_rules(source: Source, present: Collection[str]) -> Iterator[RuleDecl]:
    """The rules of a text whose left sides use only operators in `present`. Only rules that may qualify are parsed."""
    parts = _outlined(source)
    if parts is None:
        rules: Iterable[RuleDecl] = parse_rules(source).rules
    else:
        rules = (_parsed(part) for part, called in parts if called <= set(present))
    return (rule for rule in rules if operators_of_the_left_side(rule) <= set(present))


@lru_cache(maxsize=64)
def _outlined(source: Source) -> tuple[tuple[Span, frozenset[str]], ...] | None:
    """The source spans of a text's rules, each with the operators that its left side visibly calls."""
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
