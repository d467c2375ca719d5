"""The optimum of a part: plans on few values first, then a proof that the values left out cannot do better.

Exact: a value is excluded only where a lower bound says that every plan with it costs more than a plan already known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .bound import Bound, Limits, bound_part, limit_holdings, unlimited
from .elimination import TooLarge
from .exact import Solved, Solver
from .part import Domains, Part

_SWEEPS = 6
_ROUNDS = 8


@dataclass(frozen=True)
class Optimum:
    """The best plan found, its cost, and whether it is proved to be the best of the whole domain."""

    plan: Solved
    cost: float
    exact: bool


def optimise(part: Part, domains: Domains, coarse: Sequence[Domains]) -> Optimum:
    """The plan of least cost. `coarse` are small domains that are tried first, each a part of `domains`."""
    best: Optimum | None = None
    raise NotImplementedError
