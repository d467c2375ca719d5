"""NCCL's estimates against figures computed by hand, in microseconds and GB/s."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unity_dsl.graph.collective_steps import StepKind
from unity_dsl.machine.nccl_tuning import (
    TREE_FACTORS,
    Algorithm,
    Communicator,
    Protocol,
    Tuned,
    nvls_of,
    tuned,
)

GATHER, SUM = StepKind.ALL_GATHER, StepKind.ALL_REDUCE
LL, LL128, SIMPLE = Protocol
NODE = Communicator(8, 1, 370e9, 16, nvls=320e9, nvls_channels=8)
CLUSTER = Communicator(512, 64, 384e9, 16, nvls=320e9, nvls_channels=8)
SPREAD = Communicator(64, 64, 48e9, 16)


def of(kind: StepKind, group: Communicator, algorithm: Algorithm, protocol: Protocol = SIMPLE) -> Tuned:
    (found,) = [one for one in tuned(kind, group) if (one.algorithm, one.protocol) == (algorithm, protocol)]
    return found


def told(kind: StepKind, group: Communicator, algorithm: Algorithm, protocol: Protocol = SIMPLE) -> tuple[float, float]:
    """Latency in microseconds and bandwidth in GB/s of the first piece."""
    piece = of(kind, group, algorithm, protocol).pieces[0]
    return piece.latency * 1e6, piece.bandwidth / 1e9


def test_what_there_is_for_each_collective() -> None:
    def names(kind: StepKind, group: Communicator) -> list[str]:
        return [one.name for one in tuned(kind, group)]

    rings, trees = ["ring LL", "ring LL128", "ring Simple"], ["tree LL", "tree LL128", "tree Simple"]
    assert names(GATHER, NODE) == names(StepKind.REDUCE_SCATTER, NODE) == [*rings, "NVLS Simple"]
    assert names(SUM, NODE) == [*rings, *trees, "NVLS Simple"]
    assert names(GATHER, CLUSTER) == rings
    assert names(SUM, CLUSTER) == [*rings, *trees, "NVLS tree Simple"]
    assert names(GATHER, SPREAD) == [*rings, "PAT Simple"]
    assert names(SUM, SPREAD) == [*rings, *trees]
    old = Communicator(8, 1, 20e9, 2, "volta", link="pci")
    assert names(GATHER, old) == ["ring LL", "ring Simple"]


@pytest.mark.parametrize(
    ("kind", "group", "protocol", "latency", "bandwidth"),
    [
        # Seven hops of NVLink; half of 370 GB/s, at most 141.
        (GATHER, NODE, LL, 6.6 + 7 * 0.6, 141 * 8 / 7),
        (GATHER, NODE, LL128, 14 + 7 * 1.9, 0.92 * 370 * 8 / 7),
        (GATHER, NODE, SIMPLE, 8.4 + 7 * 3.4, 370 * 8 / 7),
        (SUM, NODE, SIMPLE, 8.4 + 14 * 3.4, 370 * 8 / 14),
        # 448 hops in nodes, each at least the time to post a message to a card, and 63 between nodes.
        (GATHER, CLUSTER, LL, 6.6 + 448 * 1.0 + 63 * 2.7, 20.4 * 512 / 511),
        (GATHER, CLUSTER, LL128, 14 + 448 * 1.9 + 63 * 4.0, 0.92 * 384 * 512 / 511),
        (GATHER, CLUSTER, SIMPLE, 8.4 + 448 * 3.4 + 63 * 14, 384 * 512 / 511),
        (SUM, CLUSTER, LL, 6.6 + 896 * 1.0 + 126 * 2.7, 20.4 * 512 / 1022),
        # With one rank a node, hops are those of trees.
        (GATHER, SPREAD, LL, 6.6 + 63 * 5.0, 20.4 * 64 / 63),
        (GATHER, SPREAD, LL128, 14 + 63 * 8.5, 0.92 * 48 * 64 / 63),
        # AMD hosts take 2 us to post a message, 6 us with Simple. Over two nodes LL has at most 22.5 GB/s.
        (GATHER, Communicator(16, 2, 192e9, 16, "ampere", "amd"), LL, 6.6 + 14 * 2 + 2.7, 22.5 * 16 / 15),
        (GATHER, Communicator(16, 2, 192e9, 16, "ampere", "amd"), SIMPLE, 8.4 + 14 * 6 + 14, 192 * 16 / 15),
        # Before Hopper, LL128 has at most 20 GB/s a channel.
        (GATHER, Communicator(8, 1, 240e9, 8, "ampere"), LL128, 14 + 7 * 1.9, 8 * 20 * 8 / 7),
        (GATHER, Communicator(6, 1, 32e9, 4, "volta", link="pci"), LL, 6.6 + 5 * 1.0, 16 * 6 / 5),
    ],
)
def test_rings(kind: StepKind, group: Communicator, protocol: Protocol, latency: float, bandwidth: float) -> None:
    assert told(kind, group, Algorithm.RING, protocol) == pytest.approx((latency, bandwidth))


def test_the_plateau_of_a_ring() -> None:
    """Starts at 64 bytes a channel and rank: 524,288 bytes for 512 ranks. There is none in a node, in a gather, or with
    LL.
    """
    first, second = of(SUM, CLUSTER, Algorithm.RING).pieces
    assert second.start == 64 * 16 * 512
    assert first.latency * 1e6 == pytest.approx(8.4 + 896 * 3.4 + 126 * 14)
    assert second.latency == pytest.approx(1.4 * first.latency)
    _, volta = of(SUM, Communicator(12, 2, 23e9, 4, "volta"), Algorithm.RING).pieces
    assert volta.latency * 1e6 == pytest.approx(1.9 * (8.4 + 20 * 3.4 + 2 * 14))
    others = [of(SUM, NODE, Algorithm.RING), of(GATHER, CLUSTER, Algorithm.RING), of(SUM, CLUSTER, Algorithm.RING, LL)]
    assert [len(other.pieces) for other in others] == [1, 1, 1]


@pytest.mark.parametrize(
    ("group", "protocol", "latency", "bandwidth"),
    [
        # 0.92 of 370 GB/s are less than 16 channels of 38.7.
        (NODE, LL, 6.8 + 14 * 0.6, 0.92 * 370 / 3.8 / 2),
        (NODE, LL128, 14 + 14 * 1.25, 0.92 * 370 * 7 / 9 / 2),
        (NODE, SIMPLE, 8.4 + 14 * 4.0, 0.92 * 370 / 2),
        # Six hops up and six down between 64 nodes; LL at most 20.4 GB/s.
        (CLUSTER, LL, 6.8 + 14 * 0.6 + 12 * 5.0, 20.4 / 2),
        (CLUSTER, LL128, 14 + 14 * 1.25 + 12 * 8.5, 0.92 * 384 * 120 / 128 / 2),
        (CLUSTER, SIMPLE, 8.4 + 14 * 4.0 + 12 * 14, 0.92 * 384 / 2),
        # At most 36 GB/s on each of four channels. log2 of 5 nodes is rounded down.
        (Communicator(40, 5, 384e9, 4), SIMPLE, 8.4 + 14 * 4.0 + 4 * 14, 4 * 36 / 2),
        (Communicator(16, 2, 384e9, 4), SIMPLE, 8.4 + 14 * 4.0 + 2 * 14, 4 * 41.4 / 2),
        (Communicator(18, 3, 23e9, 1, "volta"), SIMPLE, 8.4 + 10 * 4.0 + 2 * 14, 10 / 2),
    ],
)
def test_trees(group: Communicator, protocol: Protocol, latency: float, bandwidth: float) -> None:
    assert told(SUM, group, Algorithm.TREE, protocol) == pytest.approx((latency, bandwidth))


def test_trees_are_corrected_by_powers_of_two() -> None:
    """Factors: 1 below 64 B and from 1 GiB on. LL: 0.6 from 64 KiB and 0.4 from 256 KiB on. Simple: 0.9
    from 64 B on.
    """
    for protocol in Protocol:
        found = of(SUM, CLUSTER, Algorithm.TREE, protocol)
        whole = found.pieces[0]
        assert [piece.start for piece in found.pieces] == [0, *(64 * 2**i for i in range(25))]
        assert {piece.latency for piece in found.pieces} == {whole.latency}
        factors = [piece.bandwidth / whole.bandwidth for piece in found.pieces]
        assert factors == pytest.approx([1.0, *TREE_FACTORS[protocol], 1.0])
        assert len(TREE_FACTORS[protocol]) == 24
    by_start = {
        protocol: {piece.start: piece.bandwidth for piece in of(SUM, CLUSTER, Algorithm.TREE, protocol).pieces}
        for protocol in Protocol
    }
    assert by_start[LL][2**16] / by_start[LL][0] == pytest.approx(0.6)
    assert by_start[LL][2**18] / by_start[LL][0] == pytest.approx(0.4)
    assert by_start[LL128][2**22] / by_start[LL128][0] == pytest.approx(0.8)
    assert by_start[SIMPLE][2**6] / by_start[SIMPLE][0] == pytest.approx(0.9)
    assert by_start[SIMPLE][2**17] / by_start[SIMPLE][0] == pytest.approx(0.5)


def test_switches_that_reduce() -> None:
    """Eight channels of 40 GB/s times 0.85 times 7/8, twice in an all-reduce: the measured 476 GB/s."""
    assert told(SUM, NODE, Algorithm.NVLS) == pytest.approx((25, 320 * 0.85 * 7 / 8 * 2 * 8 / 14))
    assert told(SUM, NODE, Algorithm.NVLS)[1] * 14 / 8 == pytest.approx(476)
    assert told(GATHER, NODE, Algorithm.NVLS) == pytest.approx((25, 320 * 0.85 * 7 / 8 * 7 / 8))
    # Between 64 nodes: 12 hops, and 45.5 GB/s a channel, which is less than the cards reach. Over two nodes: 57.7.
    assert told(SUM, CLUSTER, Algorithm.NVLS_TREE) == pytest.approx((25 + 12 * 20.9, 8 * 45.5 * 512 / 1022))
    pair = Communicator(16, 2, 384e9, 16, nvls=320e9, nvls_channels=8)
    assert told(SUM, pair, Algorithm.NVLS_TREE) == pytest.approx((25 + 2 * 20.9, 8 * 57.7 * 16 / 30))
    # The other limits: the cards, twice their rate over two nodes, and the switches.
    for group, bus in ((replace(CLUSTER, bandwidth=192e9), 192), (replace(pair, bandwidth=192e9), 2 * 192)):
        ratio = group.ranks / (2 * (group.ranks - 1))
        assert told(SUM, group, Algorithm.NVLS_TREE)[1] == pytest.approx(bus * ratio)
    slow = replace(pair, nvls=160e9)
    assert told(SUM, slow, Algorithm.NVLS_TREE)[1] == pytest.approx(238 * 16 / 30)


def test_channels_of_switches() -> None:
    """A GPU carries the traffic of its own channel twice: 370 GB/s are shared by nine for eight GPUs, and by five for
    four.
    """
    assert [nvls_of(ranks, 370e9) for ranks in (2, 4, 8)] == [0, 4 * 60e9, 8 * 40e9]


def test_parallel_aggregated_trees() -> None:
    """One rank on each of 64 nodes: 6 hops of 14 us divided by 3.5, 2.8 us a rank, and three quarters of a card's
    bandwidth.
    """
    assert told(GATHER, SPREAD, Algorithm.PAT) == pytest.approx((8 + 6 * 14 / 3.5 + 64 * 2.8, 0.75 * 48))
