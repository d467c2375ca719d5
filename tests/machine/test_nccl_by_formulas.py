"""NCCL's estimates against a script that was written independently from its formulas: equal within a thousandth."""

from __future__ import annotations

import pytest

from tests.machine.nccl_by_formulas import nccl_seconds
from unity_dsl.graph.collective_steps import StepKind
from unity_dsl.machine.nccl_tuning import Communicator, Tuned, tuned

KINDS = {
    "all_reduce": StepKind.ALL_REDUCE,
    "all_gather": StepKind.ALL_GATHER,
    "reduce_scatter": StepKind.REDUCE_SCATTER,
}
LAYOUTS = ((8, 1), (16, 2), (64, 8), (512, 64), (64, 64))
"""Numbers of ranks and nodes."""
CLUSTERS = (("hopper", "intel"), ("hopper", "amd"), ("ampere", "amd"), ("volta", "intel"))
SIZES = (2**13, 2**16, 2**20, 2**25, 2**30)
RING, CARD = 370e9, 48e9


def seconds(one: Tuned, count: float) -> float:
    """Seconds for `count` bytes, by the piece that contains them."""
    piece = [piece for piece in one.pieces if piece.start <= count][-1]
    return piece.latency + count / piece.bandwidth


@pytest.mark.parametrize(("generation", "host"), CLUSTERS)
@pytest.mark.parametrize("collective", KINDS)
def test_estimates_are_those_of_the_formulas(collective: str, generation: str, host: str) -> None:
    """Five sizes on five layouts, with and without in-switch reduction."""
    for count in SIZES:
        for ranks, nodes in LAYOUTS:
            ring = RING if nodes == 1 else CARD * ranks / nodes
            for channels in (0, 8) if generation == "hopper" and ranks > nodes else (0,):
                nvls = channels * 40e9
                group = Communicator(ranks, nodes, ring, 16, generation, host, nvls=nvls, nvls_channels=channels)
                found = min(seconds(one, count) for one in tuned(KINDS[collective], group))
                wanted, algorithm, protocol = nccl_seconds(
                    collective, count, ranks, nodes, generation=generation, host=host, channels=16, ring=ring,
                    nvls_channels=channels, nvls=nvls,
                )  # fmt: skip
                case = f"{count} bytes, {ranks} ranks on {nodes}, {channels} channels of NVLS: {algorithm} {protocol}"
                assert found == pytest.approx(wanted, rel=1e-3), case
