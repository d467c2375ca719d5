"""Strategies by name, one file for each from the literature: its restriction of the space, and its algorithm. `random`
draws a plan instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ...syntax.diagnostic import fail, suggest
from .alpa_intra import alpa_intra
from .auto import auto
from .automap import automap
from .autoparallel import autoparallel, two_axes
from .data_parallel import data_parallel
from .expert import expert, expert_meshes
from .flexflow import flexflow
from .galvatron import galvatron, galvatron_meshes
from .metaflow import metaflow
from .nnscaler import nnscaler
from .random import random
from .single import single
from .strategy import Algorithm, Meshes, Restrict, Strategy
from .taso import taso, taso_then_flexflow
from .tensat import tensat
from .tofu import tofu
from .unity import unity
from .zero import zero

__all__ = [
    "AUTO",
    "RANDOM",
    "STRATEGIES",
    "Strategy",
    "check_strategy",
    "_first_line",
    "has_algebra",
    "random",
    "seed_of",
]

AUTO = "auto"
"""The strategy that searches the whole space. The plans of the other strategies are not claimed to be the cheapest."""

RANDOM = "random"
"""The name of the strategy that draws its plan: `random`, or `random:7` with a seed."""


def _first_line(of: Callable[..., Any]) -> str:
    """The first line of a function's docstring."""
    return (of.__doc__ or "").strip().split("\n", 1)[0]


def _restricting(restrict: Restrict) -> Strategy:
    return Strategy(_first_line(restrict), restrict)


def _choosing(algorithm: Algorithm, meshes: Meshes | None = None, *, algebra: bool = False) -> Strategy:
    return Strategy(_first_line(algorithm), algorithm=algorithm, meshes=meshes, algebra=algebra)


STRATEGIES: dict[str, Strategy] = {
    AUTO: _restricting(auto),
    "data_parallel": _restricting(data_parallel),
    "single": _restricting(single),
    "zero": _restricting(zero),
    "expert": _choosing(expert, expert_meshes),
    "flexflow": _choosing(flexflow),
    "alpa_intra": _choosing(alpa_intra, two_axes),
    "autoparallel": _choosing(autoparallel, two_axes),
    "taso": _choosing(taso, algebra=True),
    "taso_then_flexflow": _choosing(taso_then_flexflow, algebra=True),
    "metaflow": _choosing(metaflow, algebra=True),
    "tensat": _choosing(tensat, algebra=True),
    "unity": _choosing(unity, algebra=True),
    "tofu": _choosing(tofu),
    "galvatron": _choosing(galvatron, galvatron_meshes),
    "automap": _choosing(automap, two_axes),
    "nnscaler": _choosing(nnscaler, expert_meshes),
}

_SEED = re.compile(r"[0-9]{1,18}")


def seed_of(strategy: str) -> int | None:
    """The seed of `random:7`, 0 where none is given; None for any other strategy."""
    name, colon, digits = strategy.partition(":")
    if name != RANDOM or (colon and not _SEED.fullmatch(digits)):
        return None
    return int(digits) if colon else 0


def has_algebra(strategy: str) -> bool:
    """Whether a strategy chooses among all proved rules itself."""
    return strategy in STRATEGIES and STRATEGIES[strategy].algebra


def check_strategy(name: str) -> None:
    """Raises E310 for a name that is no strategy."""
    if name in STRATEGIES or seed_of(name) is not None:
        return
    hint = suggest(name, (*STRATEGIES, RANDOM))
    hint = hint or f"`unityc list strategies` names them; `{RANDOM}:7` draws by the seed 7 (at most 18 digits)"
    raise fail("E310", f"there is no strategy called `{name}`", help=hint)
