"""What is to be proved of an operator with padded axes."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

from ..index.equations.instance import Instance


@dataclass(frozen=True, eq=False)
class PaddingClaim:
    """An operator, its padded form and the padded axes. `tails` are the constants in the tails of operands, which are
    given, and of results, which are to be proved. The function `front_size` gives the name of an axis's size in the
    model. Claims about operators that differ only in sizes are equal.
    """

    instance: Instance
    padded: Instance
    axes: tuple[str, ...]
    tails: frozenset[tuple[str, str, float]]

    @cached_property
    def _key(self) -> Hashable:
        return self.instance.kind, self.padded.kind, self.axes, self.tails

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PaddingClaim) and self._key == other._key


def front_size(axis: str) -> str:
    """The name in a claim for the size of a padded axis in the model."""
    return f"<{axis}>"
