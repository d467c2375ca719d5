"""The shipped rules that a search may use: those that may fit a model. Each is proved when it is first accepted."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from ..graph.graph import Model
from ..index.library import Library
from ..resources import folder
from ..syntax.parse_rules import RuleDecl
from ..syntax.read import read_source
from ..syntax.span import Source
from .accepted_rule import AcceptedRule
from .shipped_fusions import accept_shipped, fitting_rules

if TYPE_CHECKING:
    from .certificate import Certificate


def shipped_sources() -> tuple[Source, ...]:
    """The texts of all shipped rule files."""
    return tuple(read_source(path) for path in sorted(folder("rules").glob("*.rules")))


@dataclass(frozen=True)
class ShippedRules:
    """The rules of some texts, without those named in `forbidden`. Rules with valid shipped certificates are not proved
    again.
    """

    sources: Sequence[Source]
    library: Library
    forbidden: Collection[str] = ()
    accepted: dict[str, AcceptedRule] = field(default_factory=dict)
    _found: dict[str, tuple[RuleDecl, Source]] = field(default_factory=dict)
    _certificates: dict[Path, Mapping[str, Certificate]] = field(default_factory=dict)

    def fitting(self, model: Model) -> tuple[RuleDecl, ...]:
        """The rules whose left sides use only operators of the model."""
        present = {node.instance.name for node in model.graph.nodes()}
        fitting = [(rule, source) for source in self.sources for rule in fitting_rules(source, present)]
        for rule, source in fitting:
            self._found.setdefault(rule.name, (rule, source))
        return tuple(rule for rule, _ in fitting if rule.name not in self.forbidden)

    def fit(self, model: Model) -> bool:
        """Whether any rule is `fitting`. Rules are parsed only until one is found."""
        present = {node.instance.name for node in model.graph.nodes()}
        every = (rule for source in self.sources for rule in fitting_rules(source, present))
        return any(rule.name not in self.forbidden for rule in every)

    def accept(self, name: str) -> None:
        """Checks that the rule with this name, which was found to fit a model, is proved. Raises E542."""
        if name in self.accepted:
            return
        from .certificate import certificates_path, known_certificates

        rule, source = self._found[name]
        path = certificates_path(folder("rules") / PurePath(source.name).name)
        if path not in self._certificates:
            self._certificates[path] = known_certificates(path)
        self.accepted[name] = accept_shipped(rule, source, self.library, self._certificates[path])

    def of(self, names: Collection[str]) -> tuple[Source, ...]:
        """The texts that contain rules with these names, which were found to fit a model."""
        kept = {id(self._found[name][1]) for name in names if name in self._found}
        return tuple(source for source in self.sources if id(source) in kept)
