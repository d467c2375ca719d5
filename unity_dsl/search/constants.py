"""The constants that steer the search, and how much it does by effort: bench/search_ablation.py changes each alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """How much a search does: it ends after so many `evaluations`, simulated steps, or once it has expanded as many
    points as `stale` without a shorter step, one more where branches of some are placed. So many `chains` of starts are
    solved again at what their steps expose, and so many neighbours of a mesh are tried.
    """

    evaluations: int
    stale: int
    chains: int
    meshes: int


EFFORTS = {
    "low": Effort(evaluations=60, stale=0, chains=1, meshes=0),
    "normal": Effort(evaluations=400, stale=1, chains=2, meshes=6),
    "high": Effort(evaluations=1000, stale=2, chains=4, meshes=20),
}


def efforts_up_to(name: str) -> tuple[Effort, ...]:
    """Those that a search of this effort goes through, the lowest first."""
    names = list(EFFORTS)
    return tuple(EFFORTS[one] for one in names[: names.index(name) + 1])


FEW = 200
"""Tasks of a step: where there are fewer, one more point is expanded, which takes a fraction of a second. Without it,
that of xdl_unity on 96 V100 takes 1.4 times as long.
"""
GAIN = 0.001
"""Of a simulated step: what a pass must save, and what solving again must save for another round."""
WORTH = 0.005
"""Of the incumbent's step: an edit is skipped whose optimistic bound saves less; that is noise."""
SHORTER = 1e-4
"""Of the incumbent's step: what a new incumbent must save."""
NEAR = 1.05
"""Times the incumbent's step: an edit that takes longer is not kept, and a point is not expanded."""
CLOSE = 1.01
"""Times the incumbent's step: of edits that take longer no further passes are tried."""
WIDE = 1.3
"""Times the incumbent's step: starts on other meshes that take longer are not solved again at what they expose. With
1.05 the plan of candle_uno on 192 V100 takes 1.3 times as long.
"""
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
DEARER = 1.25
"""Times the cost of a point, at what its step exposes: what a plan on a neighbour of its mesh or within a restriction
may cost, of which the cost counts in full what a step hides. Slices of all weights of resnext50_unity on 8 H100 cost
1.12 times as much, and a step takes 1.7 % less. With 1.01, that of dlrm_unity on 24 V100 takes 1.6 times as long.
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

# ----------------------------------------------------------------------------------------------------------- meshes

LOCAL_ROUNDS = 8
"""Of a local search: it mostly ends before."""
LOCAL_GAIN = 1e-6
"""Of the cost: by so much a plan must be better for the search to go on from it."""
MANY = 800
"""Variables of a problem of which a neighbourhood is bounded once, and is not searched along each axis where its tables
are too large: both take seconds there, as the search of the whole problem does, which finds more.
"""
FINE_COMPARED, FINE_COMPARED_MANY = 12, 4
"""Fine meshes that are compared by one round of a local search: those that split the best ones; of models of many
variables fewer.
"""
MISLED = 0.9
"""Of the cost of the best coarse plan: where the best fine one is below, coarse plans tell little of fine ones."""
DESCENTS = 4
"""How often the search goes on then to the meshes beside the best one, at most."""
DESCENDED = 1e-3
"""Of the best plan's cost: by so much a cheaper plan must have been found there for the search to go on."""
REGROUPED = 6
"""Meshes to which coarse plans are taken that they do not split: each costs as much as to compare one."""
COARSE = 2
"""Axes of the meshes that are searched first."""
EFFORT_COARSE = 24_000
"""Configurations of operators on the meshes of two axes of which all are searched. Where there are more, those that
come first in the order are searched, one in any case.
"""
EFFORT_SCOUTED = 200_000
"""Configurations on further meshes of two axes that are bounded."""
SCOUTED = 2
"""Of these, how many at most are searched."""
EFFORT_WHOLE = 20_000
"""Configurations of fine meshes that are searched as a whole. With 5,000, of the first mesh alone, mlp_unity takes 6 %
longer on 64 H100, and 3 % on 96 V100.
"""
NEGLIGIBLE = 1e-4
"""Of the best plan's cost: a large problem is not searched for plans that save less, which its bound tells."""
CANDIDATES = 4
"""Plans of coarse meshes, and of fine ones, with the best one, each at most so much dearer than that, of which one is
chosen by its simulated step.
"""
SIMULATED = 200
"""Configurations in the neighbourhood of a plan whose step is simulated, of which several processes take less time."""
PROMISING = 1.05
"""Of the best plan's cost: a local search ends where its first plan costs more, and no such plan is a candidate."""
HOPELESS, HOPELESS_MANY = 1.1, 3.0
"""Of the best plan's cost: a coarse mesh is left out whose plans cost more, and a fine one that splits only such. Of
models of many variables some operators are best as in plans that are much dearer: these are starts as well.
"""
SMALL = 5_000
"""Configurations of a problem that is searched from nothing besides, where a search from a good plan proves nothing;
and as if no cost were known, where one below a known cost finds no plan: a local search then has one to begin with.
"""
LARGE = 20_000
"""Configurations of a problem of which tables are likely to be too large for a proof."""
SHARED, SHARED_AGAIN = 1_000, 5_000
"""Configurations on the coarser meshes of those that are searched, of which several processes take less time than one;
and of meshes that are bounded in advance, whose problems are built once more where they are searched.
"""
NOTHING = 1e-6
"""Of a plan's cost: one that costs so much less or more is as good."""

# ---------------------------------------------------------------------------------------------- the limit of memory

FIRST_PRICE = 0.1
"""Of a step's seconds: what all of the memory costs at the first multiplier."""
PRICE_STEP = 8.0
"""How many times dearer memory gets where no plan is known that fits."""
MOST_SCOUTS, MOST_TRIES = 5, 2
"""Multipliers that are tried on coarse meshes, and then on the best one of all meshes."""
NEARLY_FITS = 1.15
"""Times the limit: what the plan of the dearest memory holds at most where one of cheaper memory may fit all the same.
Bytes are counted choice by choice in the search, and exactly of plans.
"""
COUNTED_FITS = 1.05
"""Times the limit: what a plan that fits holds at most, counted choice by choice."""
FAR_TOO_LARGE = 2.0
"""Times the limit: where a plan holds more, it takes a price much higher than what a byte is worth until one fits."""
PAID = 0.3
"""Of what a byte of room is worth on average: what is paid for one less at least, once what it is worth was paid. Where
an iteration more has no room, less is worth paying: of mixtral_8x7b on 64 H100 a plan of 0.36 % less was found so.
"""
HOPELESS_LIMITED = 16.0
"""Times the seconds of the cheapest plan of all: what no plan is expected to take that is worth running."""
SAME_PRICE = 0.15
"""Multipliers that differ by less, of the larger one, are taken for the same."""
ENOUGH = 0.005
"""Of a plan's seconds: a gap for which no other multiplier is tried."""
FAR_COARSE = 1.5
"""Times the seconds of the cheapest plan of all: where what fits on coarse meshes takes more, fine ones are searched at
once. Plans of 1.8 and 3.9 times were found, of llama3_8b on V100, where those of fine meshes take 0.8 times.
"""
ROOM_COMPARED = 2
"""Plans besides the cheapest that fits of which is looked at what they take with all room used."""
EXPECTED = 1.06
"""Times the seconds of the best one: where more is expected of another, by what its room is worth, it is left out. Of
others steps are simulated, as costs may be so far from these.
"""

# ---------------------------------------------------------------------------------------------------- micro-batches

DIVIDED = 1.5
"""Times the cost of the whole batch: where micro-batches cost more on its meshes, all are searched. 16 of 3 examples of
gpt2_xl cost 5.9 times as much on a mesh of 6 V100, and 1.2 times on 3 x 2.
"""
NEAR_FREE = 0.01
"""Of a step's seconds: where a plan takes so little longer than the cheapest of all, no others are tried."""
CLOSE_DIVISION = 1.05
"""Times the shortest step: where a plan costs more, its step is not simulated. Of more micro-batches a step is
simulated to take longer than it costs, as more is exposed: of llama3_8b 1.01 times with 1 or 4, 1.07 times with 8.
"""

# --------------------------------------------------------------------------------------- rules and layouts together

JOINT_ATTEMPTS = 3
"""Parts of a domain that are eliminated, in a compilation."""
JOINT_NEAR = 500
"""Values of a domain in the neighbourhood of a plan that is searched besides that of its own layouts."""
JOINT_WHOLE = 5_000
"""Values of a problem that is searched as a whole in a compilation; of more, what is near a plan."""
JOINT_ALONE = 1_000
"""Values of a problem that is bounded by another process while this one searches near plans, if there are more."""
JOINT_BRANCHES = 3
"""Searches of parts of the space, in which the extraction of a group in a repeat is fixed."""

# ---------------------------------------------------------------------------------------------------------- padding

PADDED_NODE = 8
"""Devices that usually share the fast links of a node, as tensor-parallel ones do."""
LITTLE_PADDED = 0.01
"""Of an axis, the padding that is tried without being asked for."""

# ------------------------------------------------------------------------------------------ plans of changed models

EQUAL = 1e-6
"""Of a plan's cost: of those that cost no more, that on the mesh of the fewest axes is taken: it is less to read."""
SEARCHED = 8
"""Of the models that rules make, those whose layouts are searched: the best on one device."""
