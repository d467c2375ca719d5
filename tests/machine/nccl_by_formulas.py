"""Times of collectives by NCCL's own tuning model: an independent reference that uses the standard library alone.

The only sources:
  [P]  notes of June 2026 on NCCL's tuning model
  [T]  NCCL's src/graph/tuning.cc, in 2.28.3 and in a version of 2026. Where they differ, the latter is used.
       Constants are from ncclTunerConstantsDefaults, latencies and bandwidths from ncclTopoTuneModel, corrections from
       ncclTopoGetAlgoTime, overheads from getNetOverhead.

Choices between possible readings are marked [R1] to [R12].
"""

from __future__ import annotations

# Orders as in NCCL's enumerations. They break ties between equal times: the first one stays.
PROTOCOLS: tuple[str, str, str] = ("LL", "LL128", "Simple")
GENERATIONS: tuple[str, str, str, str] = ("volta", "ampere", "hopper", "blackwell")

# [T] ncclTunerConstantsDefaults.baseLatencies, us, (LL, LL128, Simple). [P] "Base latency". Both NVLS: 0 in [T].
BASE: dict[str, tuple[float, float, float]] = {
    "tree": (6.8, 14.0, 8.4),
    "ring": (6.6, 14.0, 8.4),
    "nvls": (0.0, 0.0, 0.0),
    "nvls_tree": (0.0, 0.0, 0.0),
    "pat": (8.0, 8.0, 8.0),
}

# [T] hwLatencies, us, [P] "Latency of a hop". The link in a node is NVLink (given), so PCI is left out.
HOP_NODE: dict[str, tuple[float, float, float]] = {
    "tree": (0.6, 1.25, 4.0),
    "ring": (0.6, 1.9, 3.4),
    "nvls": (0.0, 0.0, 25.0),
    "nvls_tree": (0.0, 0.0, 25.0),
    "pat": (0.0, 0.0, 4.0),
}
HOP_NET: dict[str, tuple[float, float, float]] = {
    "tree": (5.0, 8.5, 14.0),
    "ring": (2.7, 4.0, 14.0),
    "nvls": (0.0, 0.0, 18.0),
    "nvls_tree": (0.0, 0.0, 20.9),
    "pat": (0.0, 0.0, 14.0),
}

# [T] llMaxBws, GB/s. In one node the row is the generation's, between nodes that of the host's processors (row 0 Intel,
# row 1 AMD). The columns are 1, 2 and more nodes. Only these entries can be reached:
LL_MAX_NODE: dict[str, float] = {"volta": 39.0, "ampere": 87.7, "hopper": 141.0, "blackwell": 282.0}
LL_MAX_NET: dict[str, tuple[float, float]] = {"intel": (39.0, 20.4), "amd": (22.5, 19.0)}

# [T] limits per channel, GB/s, for 1, 2 and more nodes. [P] gives Hopper's tree, and one figure of LL128 a generation.
MAX_RING_LL128: dict[str, tuple[float, float, float]] = {
    "volta": (20.0, 20.0, 20.0),
    "ampere": (20.0, 20.0, 20.0),
    "hopper": (36.7, 36.7, 36.7),
    "blackwell": (40.0, 40.0, 40.0),  # 73.4 in 2.28.3
}
MAX_TREE_LL128: dict[str, tuple[float, float, float]] = {
    "volta": (20.0, 20.0, 20.0),
    "ampere": (20.0, 20.0, 20.0),
    "hopper": (36.7, 36.7, 29.0),  # [R1] 29.0 over more than two nodes is [T]'s; [P] says 36.7 without exception
    "blackwell": (55.6, 31.67, 20.0),
}
MAX_TREE: dict[str, tuple[float, float, float]] = {
    "volta": (26.5, 18.5, 10.0),
    "ampere": (24.0, 23.6, 17.8),
    "hopper": (38.7, 41.4, 36.0),
    "blackwell": (70.0, 42.8, 24.0),
}
MAX_NVLS_TREE: dict[str, tuple[float, float, float]] = {  # [R2] [P] is silent
    "volta": (26.5, 18.5, 10.0),
    "ampere": (24.0, 23.6, 17.8),
    "hopper": (0.0, 57.7, 45.5),
    "blackwell": (0.0, 96.0, 80.0),  # 43.1 in 2.28.3
}
# [T] nvlsEfficiency; 0 excludes NVLS (bandwidth 0 means "not available" in ncclTopoGetAlgoTime)
NVLS_EFFICIENCY: dict[str, float] = {"volta": 0.0, "ampere": 0.0, "hopper": 0.85, "blackwell": 0.74}

# [T] getNetOverhead, us, with x86 hosts; [P] the same
POST: dict[str, float] = {"intel": 1.0, "amd": 2.0}

# [T] treeCorrectionFactor: 24 entries, the first for 64 B <= bytes < 128 B; [P] the same
CORRECTION: tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]] = (
    (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1, 1),
    (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1, 1),
    (0.9,) * 7 + (0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9),
)
# [R3] [T] ncclTopoGetAlgoTime corrects trees if `logSize < 23`, though the table has 24 entries (23 in 2.28.3): from
# 512 MiB to 1 GiB nothing is corrected. Only NVLS trees on Blackwell (x86) use all 24. [P] reads as if all 24 held: set
# 24 for that reading.
TREE_CORRECTED: int = 23
NVLS_TREE_CORRECTED: int = 24

# [R4] [T] has a factor of .85 for trees if comm->maxTreePattern is NCCL_TOPO_PATTERN_TREE. [T] does not say which
# pattern the topology search finds. [P] has no such factor, so none is used (balanced trees).
TREE_PATTERN: float = 1.0


def _log2(value: int) -> int:
    """floor(log2(value)), as log2i in [T]; -1 for 0, which [T] excludes by `logSize >= 0`."""
    return value.bit_length() - 1


def _index(nodes: int) -> int:
    """[T] index2: column of the tables for 1, 2, more nodes."""
    return nodes - 1 if nodes <= 2 else 2


def _steps(collective: str, count: int) -> int:
    """[T] nsteps over ranks. Over nodes it is nInterSteps (0 in one node, as here)."""
    return 2 * (count - 1) if collective == "all_reduce" else count - 1


def _algorithms(collective: str, ranks: int, nodes: int, nvls_channels: int, nvls: float) -> tuple[str, ...]:
    """Algorithms that NCCL offers for the collective, without CollNet, in NCCL's order."""
    # [T] the conditions at the top of the loops: trees and NVLS trees are for all-reduce, PAT is not
    found = ["tree", "ring"] if collective == "all_reduce" else ["ring"]
    # [T] both NVLS need two channels or more. [R5] One rank a node has no NVLS: the model of [T] would not forbid it.
    if nvls > 0 and nvls_channels >= 2 and ranks // nodes >= 2:
        if nodes == 1:
            found.append("nvls")  # [T] algoEnable: NVLS over nodes needs collnet
        elif collective == "all_reduce":
            found.append("nvls_tree")  # [T] algoEnable: NVLS tree not on one node
    if collective != "all_reduce" and nodes == ranks:
        found.append("pat")  # [T] ncclPatEnable
    return tuple(found)


def _bandwidth(
    collective: str,
    algorithm: str,
    protocol: int,
    ranks: int,
    nodes: int,
    generation: str,
    host: str,
    channels: int,
    ring: float,
    nvls_channels: int,
    nvls: float,
) -> float:
    """Algorithm bandwidth in GB/s: [T] ncclTopoTuneModel, comm->bandwidths. `ring` and `nvls` in GB/s here."""
    column = _index(nodes)
    ll_max = LL_MAX_NODE[generation] if nodes == 1 else LL_MAX_NET[host][column - 1]
    # [T] ratio: n / nsteps for rings and both NVLS, 1/2 for trees; for all-gather and reduce-scatter only rings have
    # one. [P] gives ring and tree only.
    over_steps = ranks / _steps(collective, ranks)

    if algorithm == "ring":
        # [R6] `ring` is what the caller gave, in one node and over nodes. [T] uses the graph's bwIntra up to two nodes,
        # and bwInter from three on.
        bus = ring
        if protocol == 0:
            bus = min(ll_max, bus * 0.5)  # [P] "LL moves half of what it could"
        elif protocol == 1:
            bus = min(bus * 0.92, channels * MAX_RING_LL128[generation][column])
        return bus * over_steps

    if algorithm == "tree":
        # [R7] the tree graph is assumed to have the channels and the bandwidth of the ring graph
        bus = min(ring * 0.92, channels * MAX_TREE[generation][column])
        if protocol == 0:
            bus = min(bus / 3.8, ll_max)  # [T]; [P] names the limit of LL without saying whether trees have it
        elif protocol == 1:
            # 120 / 128 is [T]; [P] rounds it to 0.94
            share = 7.0 / 9.0 if nodes == 1 else 120.0 / 128.0
            bus = min(bus * share, channels * MAX_TREE_LL128[generation][column])
        return bus * TREE_PATTERN * 0.5

    if algorithm in ("nvls", "nvls_tree"):
        # per channel, GB/s
        inner = nvls / nvls_channels * NVLS_EFFICIENCY[generation] * (nvls_channels - 1) / nvls_channels
        per_node = ranks / nodes
        inner *= 2.0 if collective == "all_reduce" else (per_node - 1) / per_node  # the latter in [T] only
        if algorithm == "nvls":
            # [R8] [T] takes the minimum of inner and the graph's bwInter in one node too. The value of bwInter there is
            # not in [T]: it is assumed not to limit ([P]: twice for all-reduce)
            each = inner
        else:
            # [R9] the network carries `ring` in total for any number of channels: ring / nvls_channels each
            outer = ring / nvls_channels * (2.0 if nodes <= 2 else 1.0)
            each = min(inner, outer, MAX_NVLS_TREE[generation][column])
        bus = each * nvls_channels
        return bus * over_steps if collective == "all_reduce" else bus

    return ring * 0.75  # PAT: no ratio, since it is not a ring


def _latency(collective: str, algorithm: str, protocol: int, ranks: int, nodes: int, host: str) -> float:
    """Latency in us: [T] ncclTopoTuneModel, comm->latencies. [R10] latencyInter of the graphs (the card's own) is taken
    as 0.
    """
    base = BASE[algorithm][protocol]
    in_node = HOP_NODE[algorithm][protocol]
    # [R11] [P] says "With one rank a node the hop is the tree's" next to trees. In [T] (ppn == 1) this holds for every
    # algorithm, including LL and LL128 of the ring
    between = HOP_NET["tree" if ranks == nodes else algorithm][protocol]

    if algorithm == "ring":
        post = 0.0
        if nodes > 1:
            post = POST[host] * (3.0 if protocol == 2 else 1.0)
        inter = _steps(collective, nodes)
        return base + (_steps(collective, ranks) - inter) * max(in_node, post) + inter * between
    if algorithm == "tree":
        return base + 2 * ((ranks // nodes - 1) * in_node + _log2(nodes) * between)
    if algorithm == "nvls":
        return in_node  # [T] assigns, it does not add to the base
    if algorithm == "nvls_tree":
        return base + in_node + 2 * _log2(nodes) * between
    # PAT: a logarithm and 2.8 us per rank, [T] and [P]. The base is added ([T] `+=`), which [P] does not say
    return base + _log2(nodes) * (between / 3.5) + ranks * 2.8


def nccl_times(
    collective: str,
    count: float,
    ranks: int,
    nodes: int,
    *,
    generation: str = "hopper",
    host: str = "intel",
    channels: int = 16,
    ring: float = 370e9,
    nvls_channels: int = 0,
    nvls: float = 0.0,
) -> dict[tuple[str, str], float]:
    """Seconds of every (algorithm, protocol) pair, in NCCL's order: [T] ncclTopoGetAlgoTime, numPipeOps = 1."""
    if collective not in ("all_reduce", "all_gather", "reduce_scatter"):
        raise ValueError(f"no such collective: {collective}")
    if generation not in GENERATIONS or host not in POST:
        raise ValueError(f"no such generation or host: {generation}, {host}")
    if nodes < 1 or ranks < 2 or ranks % nodes or count < 0 or channels < 1 or ring <= 0:
        raise ValueError(f"no time: {ranks} ranks, {nodes} nodes, {count} bytes, {channels} channels, {ring} B/s")
    size = int(count)  # size_t in [T]
    power = _log2(size >> 6)
    times: dict[tuple[str, str], float] = {}
    for algorithm in _algorithms(collective, ranks, nodes, nvls_channels, nvls):
        for protocol, name in enumerate(PROTOCOLS):
            if algorithm in ("nvls", "nvls_tree", "pat") and protocol != 2:
                continue  # [T] Simple only; [P] gives three figures for PAT, of which two are never used
            gb = _bandwidth(
                collective,
                algorithm,
                protocol,
                ranks,
                nodes,
                generation,
                host,
                channels,
                ring / 1e9,
                nvls_channels,
                nvls / 1e9,
            )
            if gb <= 0:
                continue
            us = _latency(collective, algorithm, protocol, ranks, nodes, host)
            if algorithm == "tree" and 0 <= power < TREE_CORRECTED:
                gb *= CORRECTION[protocol][power]
            if algorithm == "nvls_tree" and generation == "blackwell" and 0 <= power < NVLS_TREE_CORRECTED:
                gb *= CORRECTION[protocol][power]  # [T] 2026 only, x86 hosts
            if algorithm == "ring" and protocol == 2 and nodes > 1 and collective == "all_reduce":
                # [R12] comm->nChannels is taken as `channels`. The division is an integer division, and the factor
                # applies to the whole latency, including the base.
                if size // (channels * ranks) >= 64:
                    us *= 1.9 if generation == "volta" else 1.4
            times[(algorithm, name)] = us * 1e-6 + count / (gb * 1e9)
    return times


def nccl_seconds(
    collective: str,
    count: float,
    ranks: int,
    nodes: int,
    *,
    generation: str = "hopper",
    host: str = "intel",
    channels: int = 16,
    ring: float = 370e9,
    nvls_channels: int = 0,
    nvls: float = 0.0,
) -> tuple[float, str, str]:
    """The least time in seconds, and the names of the algorithm and the protocol that take it.

    count: bytes of the whole tensor for all_gather and reduce_scatter, bytes that a rank holds for all_reduce.
    ring: channels times the bandwidth of one, B/s: of the node's links where nodes == 1, of the network otherwise.
    nvls: the same for NVLS in a node with nvls_channels channels; 0 where there is none.
    One rank alone takes no time: (0.0, "none", "none").
    """
    if ranks == 1 and nodes == 1:
        return 0.0, "none", "none"
    times = nccl_times(
        collective,
        count,
        ranks,
        nodes,
        generation=generation,
        host=host,
        channels=channels,
        ring=ring,
        nvls_channels=nvls_channels,
        nvls=nvls,
    )
    best = min(times, key=lambda pair: times[pair])  # the first of equals, as in NCCL's loop with `<`
    return times[best], best[0], best[1]
