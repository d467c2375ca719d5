"""The shipped rules that a search may use: those that may fit a model, each proved when it first does."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING

from ..graph.graph import Model
from ..index.library import Library
from ..resources import folder
from ..syntax.parse_rules import RuleDecl, parse_rules
from ..syntax.read import read_source
from ..syntax.span import Source
from .shipped_fusions import operators_of_the_left_side

if TYPE_CHECKING:
    from .rulebook import AcceptedRule


def shipped_sources() -> tuple[Source, ...]:
    """The texts of all shipped files of rules."""
    return tuple(read_source(path) for path in sorted(folder("rules").glob("*.rules")))


@dataclass(frozen=True)
class ShippedRules:
    """The rules of some texts, without those with `forbidden` names. The certificates of shipped files spare proofs."""

    sources: Sequence[Source]
    library: Library
    forbidden: Collection[str] = ()
    accepted: dict[str, AcceptedRule] = field(default_factory=dict)

    @cached_property
    def _declared(self) -> tuple[tuple[RuleDecl, Source], ...]:
        return tuple((rule, source) for source in self.sources for rule in parse_rules(source).rules)

    def fitting(self, model: Model) -> tuple[RuleDecl, ...]:
        """The rules whose left sides have no operator that the model has not."""
        present = {node.instance.name for node in model.graph.nodes()}
        allowed = (rule for rule, _ in self._declared if rule.name not in self.forbidden)
        return tuple(rule for rule in allowed if operators_of_the_left_side(rule) <= present)

    def accept(self, name: str) -> None:
        """Checks that the rule of these with that name is proved. Raises E542."""
        if name in self.accepted:
            return
        from .certificate import certificates_path, known_certificates
        from .rulebook import accept
        from .wellformed import check_rule

        rule, source = next(declared for declared in self._declared if declared[0].name == name)
        known = known_certificates(certificates_path(folder("rules") / PurePath(source.name).name))
        self.accepted[name] = accept(check_rule(rule, self.library), source, self.library, known)

    def of(self, names: Collection[str]) -> tuple[Source, ...]:
        """The texts with rules of these names."""
        kept = {id(source) for rule, source in self._declared if rule.name in names}
        return tuple(source for source in self.sources if id(source) in kept)
