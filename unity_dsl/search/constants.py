"""Constants of the search, and how much work each effort allows. bench/search_ablation.py varies them one at a time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """How much work a search does. It ends after `evaluations` simulated steps, or after it has expanded `stale` points
    without a shorter step; one more is allowed where a step has few tasks, and one where points have placed branches.
    `chains` starts are solved again at the exposures of their steps. At most `meshes` neighbours of a mesh are tried.
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
    """The efforts that a search goes through up to this one, the lowest first."""
    names = list(EFFORTS)
    return tuple(EFFORTS[one] for one in names[: names.index(name) + 1])


FEW = 200
"""Number of tasks: where a step has fewer, one more point is expanded, which takes a fraction of a second. Without it,
the plan of xdl_unity on 96 V100 takes 1.4 times as long.
"""
GAIN = 0.001
"""Smallest saving, as a fraction of a simulated step, for which a pass is kept or a point is solved for
another round.
"""
WORTH = 0.005
"""Smallest saving, as a fraction of the incumbent's step, for which an edit is solved. An edit whose optimistic bound
saves less is skipped: that is noise.
"""
SHORTER = 1e-4
"""Smallest saving, as a fraction of the incumbent's step, by which a plan becomes the new incumbent."""
NEAR = 1.05
"""Multiple of the incumbent's step: an edit that takes longer is dropped, and a point that does is not expanded."""
CLOSE = 1.01
"""Multiple of the incumbent's step: no further passes are tried on an edit that takes longer."""
WIDE = 1.3
"""Multiple of the incumbent's step: a start on another mesh that takes longer is not solved again at its exposures.
With 1.05 the plan of candle_uno on 192 V100 takes 1.3 times as long.
"""
ROUNDS = 3
"""Most rounds of solving a point again at the exposures of its simulated step."""
AGREES = 0.03
"""Two exposures are the same for the search if no fraction differs by more."""
LEAST_EXPOSED = 0.02
"""Smallest exposed fraction counted for each kind of work, so that less work always costs less."""
LEAST_OF_DEVICES = 0.3
"""Lower bound on the weight of device time: plans with fewer launches expose more of it."""
VALUES_INTERLEAVED = 0.5
"""Exposed fraction assumed for conversions of values, in a separate start, where repeats may be interleaved."""
ROUNDS_ON_MESH = 2
"""Most rounds of the local search on a neighbouring mesh."""
DEARER = 1.25
"""Most that a plan on a neighbouring mesh or within a restriction may cost, as a multiple of the point's cost at the
exposures of its step. The cost counts in full what a step overlaps. Slices of all weights of resnext50_unity on 8 H100
cost 1.12 times as much, and a step takes 1.7 % less. With 1.01, the step of dlrm_unity on 24 V100 takes 1.6 times as
long.
"""
RESTRICTED_BY_MEMORY = 3.0
"""The same multiple for restrictions where memory is the limit: no step was simulated at the price of memory."""
BRANCHES = 2
"""Number of placements of branches that are tried: those that save the most."""
BRANCHES_SAVE = 0.03
"""Smallest saving of branches by the prices of operators, as a fraction of a step, for which they are tried."""
PARTS = (8, 2)
"""Numbers of parts of a decomposed matmul. The last part, which nothing overlaps, is an eighth of eight; two launch the
fewest kernels.
"""
DOUBLED = 6
"""How many times the size of gradient buckets is doubled at most."""

# ----------------------------------------------------------------------------------------------------------- meshes

LOCAL_ROUNDS = 8
"""Most rounds of a local search. Most searches end before."""
LOCAL_GAIN = 1e-6
"""Smallest saving, as a fraction of the cost, for which a local search goes on from a better plan."""
MANY = 800
"""Number of variables above which a neighbourhood is bounded once, and not searched along each axis where its tables
are too large. Both take seconds there, and so does the search of the whole problem, which finds more.
"""
FINE_COMPARED, FINE_COMPARED_MANY = 12, 4
"""Most fine meshes that one round of a local search compares: those that split the best meshes. The second number is
for models of many variables.
"""
FINE_BEATS_COARSE = 0.9
"""Fraction of the cost of the best coarse plan: where the best fine plan costs less, coarse plans predict fine ones
poorly.
"""
DESCENTS = 4
"""How many times the search then goes on to the neighbours of the best mesh, at most."""
DESCENDED = 1e-3
"""Smallest saving there, as a fraction of the best plan's cost, for which the search goes on once more."""
REGROUPED = 6
"""Most meshes that take over choices of coarse plans whose meshes they do not split. Each costs as much as comparing
one.
"""
COARSE = 2
"""Most axes of the meshes that are searched first."""
EFFORT_COARSE = 24_000
"""Number of configurations of operators up to which all meshes of two axes are searched. If there are more, the meshes
that come first in the order are searched, at least one.
"""
EFFORT_SCOUTED = 200_000
"""Most configurations on the remaining meshes of two axes for which lower bounds are computed."""
SCOUTED = 2
"""How many of these meshes are searched at most."""
EFFORT_WHOLE = 20_000
"""Most configurations of the fine meshes that are searched as a whole. With 5,000, enough for the first mesh alone,
mlp_unity takes 6 % longer on 64 H100, and 3 % on 96 V100.
"""
NEGLIGIBLE = 1e-4
"""Smallest saving, as a fraction of the best plan's cost, for which a large problem is searched. The problem's lower
bound tells how much a plan can save.
"""
CANDIDATES = 4
"""Most candidates among plans of coarse meshes, and again among those of fine ones; both numbers include the best plan.
Each costs little more than the best one. The simulated step chooses among them.
"""
PARALLEL_STEPS_FROM = 200
"""Number of configurations in the neighbourhood of a plan above which several processes simulate faster than one."""
PROMISING = 1.05
"""Multiple of the best plan's cost: a local search ends where its first plan costs more, and no such plan is a
candidate.
"""
PRUNED, PRUNED_MANY = 1.1, 3.0
"""Multiple of the best plan's cost: a coarse mesh is pruned if its plans cost more, and a fine one if it splits only
such meshes. The second number is for models of many variables. Some operators are best there as in plans that cost much
more, so these plans are starts as well.
"""
SEARCHED_TWICE = 5_000
"""Most configurations of a problem that is searched twice. If a search from a good plan proves nothing, the problem is
searched without that plan. If a search below a known cost finds no plan, it is searched without that cutoff, so that a
local search has a start.
"""
LARGE = 20_000
"""Number of configurations above which the tables of a problem are likely to be too large for a proof."""
PARALLEL_FROM, PARALLEL_BOUNDS_FROM = 1_000, 5_000
"""Numbers of configurations above which several processes take less time than one. The first counts those on the
coarser meshes of the meshes that are searched, the second those of meshes that are bounded in advance. The problems of
the latter are built again when they are searched.
"""
NOTHING = 1e-6
"""Fraction of a plan's cost: a plan that costs at most this much more or less is as good."""

# ---------------------------------------------------------------------------------------------- the limit of memory

FIRST_PRICE = 0.1
"""Price of all the memory at the first multiplier, as a fraction of a step's seconds."""
PRICE_STEP = 8.0
"""Factor by which the price of memory rises while no plan is known that fits."""
MOST_SCOUTS, MOST_TRIES = 5, 2
"""Most multipliers that are tried on coarse meshes, and then on the best of all meshes."""
NEARLY_FITS = 1.15
"""Multiple of the limit: where the plan at the highest price of memory holds no more, one at a lower price may fit. The
search counts bytes choice by choice, but exactly for finished plans.
"""
COUNTED_FITS = 1.05
"""Multiple of the limit: the most that a plan that fits holds, counted choice by choice."""
FAR_TOO_LARGE = 2.0
"""Multiple of the limit: where a plan holds more, plans fit only at a price far above memory's average shadow price."""
LEAST_PRICE = 0.3
"""Smallest multiplier, as a fraction of memory's average shadow price, once that price itself was tried. Less is worth
paying where one more iteration has no room: a plan of mixtral_8x7b on 64 H100 that takes 0.36 % less was found so.
"""
PRUNED_LIMITED = 16.0
"""Multiple of the seconds of the cheapest plan without a limit: no plan worth running is expected to take more."""
SAME_PRICE = 0.15
"""Multipliers that differ by a smaller fraction of the larger one are the same."""
ENOUGH = 0.005
"""Gap, as a fraction of a plan's seconds, up to which no other multiplier is tried."""
FAR_COARSE = 1.5
"""Multiple of the seconds of the cheapest plan without a limit: where the plan that fits on coarse meshes takes more,
fine meshes are searched at once. For llama3_8b on V100, coarse plans took 1.8 and 3.9 times as long, where those of
fine meshes take 0.8 times.
"""
ROOM_COMPARED = 2
"""Number of plans, besides the cheapest that fits, whose seconds with all room used are computed."""
PREDICTED_WITHIN = 1.06
"""Multiple of the best plan's seconds: a candidate is skipped if it is predicted to take more, by the shadow price of
its free room. The steps of the others are simulated, as their costs may be this far from simulated times.
"""

# ---------------------------------------------------------------------------------------------------- micro-batches

DIVIDED = 1.5
"""Multiple of the whole batch's cost: where micro-batches cost more on its meshes, all meshes are searched. For
gpt2_xl, 16 micro-batches of 3 examples cost 5.9 times as much on a mesh of 6 V100, and 1.2 times on 3 x 2.
"""
NEAR_FREE = 0.01
"""Fraction of a step's seconds: no other number of micro-batches is tried if a plan takes at most this much longer than
the cheapest of all.
"""
CLOSE_DIVISION = 1.05
"""Multiple of the shortest step, or of its plan's cost if that is more: a plan that costs more is not simulated. A step
of more micro-batches exposes more: that of llama3_8b takes 1.01 times its cost with 1 or 4, and 1.07 times with 8.
"""

# --------------------------------------------------------------------------------------- rules and layouts together

JOINT_ATTEMPTS = 3
"""Most parts of a domain that are eliminated in a compilation."""
JOINT_NEAR = 500
"""Most values of the domains in the neighbourhood of a plan that are searched besides that of its own layouts."""
JOINT_WHOLE = 5_000
"""Most values of a problem that a compilation searches as a whole. A larger one is searched only near a plan."""
JOINT_ALONE = 1_000
"""Number of values of a problem above which another process bounds it while this one searches near plans."""
JOINT_BRANCHES = 3
"""Most searches of parts of the space, in which the extraction of a group in a repeat is fixed."""

# ---------------------------------------------------------------------------------------------------------- padding

PADDED_NODE = 8
"""Devices that usually share the fast links of a node, as tensor-parallel ones do."""
LITTLE_PADDED = 0.01
"""Most padding that is tried without being asked for, as a fraction of the axis."""

# ------------------------------------------------------------------------------------------ plans of changed models

EQUAL = 1e-6
"""Fraction of the best plan's cost: among plans that cost at most this much more, the one on the mesh of the fewest
axes is taken, as it is easier to read.
"""
SEARCHED = 8
"""Number of models made by rules whose layouts are searched: the best on one device."""
