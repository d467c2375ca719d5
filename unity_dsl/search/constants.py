"""The constants that steer the search, and how much it does by effort."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """How much a search does: it ends after so many `evaluations`, simulated steps, or once it has expanded as many
    points as `stale` without a shorter step. So many `chains` of starts are solved again at what their steps expose,
    and so many neighbours of a mesh are tried.
    """

    evaluations: int
    stale: int
    chains: int
    meshes: int


EFFORTS = {
    "low": Effort(evaluations=60, stale=0, chains=1, meshes=0),
    "normal": Effort(evaluations=200, stale=2, chains=2, meshes=6),
    "high": Effort(evaluations=1000, stale=3, chains=4, meshes=20),
}


def efforts_up_to(name: str) -> tuple[Effort, ...]:
    """Those that a search of this effort goes through, the lowest first."""
    names = list(EFFORTS)
    return tuple(EFFORTS[one] for one in names[: names.index(name) + 1])


GAIN = 0.001
"""Of a simulated step: what a pass must save, and what solving again must save for another round."""
WORTH = 0.005
"""Of the incumbent's step: an edit is skipped whose optimistic bound saves less; that is noise."""
SHORTER = 1e-4
"""Of the incumbent's step: what a new incumbent must save."""
FAR = 1.05
"""Times the incumbent's step: a point with the passes of the one before it that takes longer is not kept."""
CLOSE = 1.01
"""Times the incumbent's step: of edits that take longer no further passes are tried."""
BEAM = 1.05
"""Times the incumbent's step: points that take longer are not expanded."""
WIDE = 1.3
"""The same of starts on other meshes than the best one: what they expose may be what their prices did not count."""
ROUNDS = 3
"""Of solving a point again at what its step exposes."""
AGREES = 0.03
"""Exposures that differ by less are the same."""
LEAST_EXPOSED = 0.02
"""What counts of each kind of work at least, so that less of it is better."""
LEAST_OF_DEVICES = 0.3
"""The same of kernels behind launches: plans with fewer launches wait less for them."""
VALUES_IN_TURNS = 0.5
"""What counts of values of repeats that may be interleaved, in a start of its own."""
ROUNDS_ON_MESH = 2
"""Of the local search on a neighbour of a mesh."""
DEARER = 1.01
"""Times the cost of a point, at what its step exposes: what a plan on a neighbour of its mesh may cost."""
RESTRICTED = 1.25
"""The same of a plan within a restriction, of which the cost counts in full what a step hides. Slices of all weights of
resnext50_unity on 8 H100 cost 1.12 times as much, and a step takes 1.7 % less.
"""
RESTRICTED_BY_MEMORY = 3.0
"""The same where memory is the limit, and no step was simulated at the price of memory."""
BRANCHES = 2
"""Ways to place branches that are tried, those that save the most."""
BRANCHES_SAVE = 0.03
"""Of a step: what branches must save by the prices of operators."""
PARTS = (8, 2)
"""Parts in which products are decomposed: of eight the last, which nothing hides, is an eighth; two launch least."""
DOUBLED = 6
"""Times that the size of gradient buckets is doubled at most."""
SUMS_EXPOSED = 0.01
"""Of a step: where less of the sums of gradients is exposed, no other size of buckets is tried."""
