"""Numbers for what choices do along mesh axes: one for each role of operators and kind of values, on any mesh."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import cache
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from ...graph.layout import Cut, Layout

AxisChoices = npt.NDArray[np.intp]
"""Per choice, what it does along every mesh axis. Shape [choices, mesh axes]."""


@cache
def role_number(role: Hashable) -> int:
    """A number for a role, the same in every process."""
    return int.from_bytes(blake2b(repr(role).encode(), digest_size=7).digest())


def axis_choices(choices: Iterable[Sequence[Hashable]]) -> AxisChoices:
    return np.array([[role_number(role) for role in choice] for choice in choices], dtype=np.intp)


def kinds_along(layout: Layout) -> list[Hashable]:
    """The kinds of a layout without the nesting, which differs between axes that cut the same dimension."""
    return [
        (type(kind), *((kind.dim, kind.by, kind.attributes) if isinstance(kind, Cut) else ())) for kind in layout.kinds
    ]
