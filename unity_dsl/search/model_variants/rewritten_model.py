"""A model together with the rules that made it."""

from __future__ import annotations

from dataclasses import dataclass

from ...graph.graph import Model
from ...graph.plan import AppliedRule


@dataclass(frozen=True)
class Variant:
    """A model and the rules that made it, in the order in which they were applied."""

    model: Model
    rules: tuple[AppliedRule, ...] = ()
