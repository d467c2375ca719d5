"""The passes that change a plan's schedule, with their settings: what overlaps, what is recomputed or re-gathered."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from .layout_conversion import BUCKET_MIB


@dataclass(frozen=True)
class Passes:
    """The settings of the passes.

    `regathered` are the paths of weights, `layer.w`, that are re-gathered for the backward pass. `recomputed` are
    the paths of segments, `layer`, with activation checkpointing: an iteration saves only what enters it, and the
    backward pass recomputes the rest. Iterations of `offloaded` segments save what the backward pass needs in the
    host's memory. A segment is in one of the two sets at most. `kept_iterations` are the numbers of last iterations,
    by path, to which neither applies.

    The repeats of an `interleaved` set are interleaved; the graph has them next to each other. `skew` gives their
    skewed start (`start_delays`). With `deferred_gradients`, weight gradients are deferred to overlap communication of
    gradients, if there are such products. With `chunks` above 1, matmuls are decomposed: a product of a gathered
    operand into blocks that are computed as they arrive, a product whose result is summed over devices into `chunks`
    parts, one computed while another is summed. Gradients are summed over devices in buckets of `bucket_mib` MiB; 0
    means no bucketing.
    """

    regathered: frozenset[str] = frozenset()
    recomputed: frozenset[str] = frozenset()
    offloaded: frozenset[str] = frozenset()
    kept_iterations: Mapping[str, int] = field(default_factory=dict)
    interleaved: tuple[tuple[str, ...], ...] = ()
    skew: int = 1
    deferred_gradients: bool = False
    chunks: int = 1
    bucket_mib: int = BUCKET_MIB

    def __hash__(self) -> int:  # mappings have no hash; leaving out fields only makes some hashes equal
        return hash((self.regathered, self.recomputed, self.offloaded, self.chunks, self.bucket_mib, self.skew))

    def run_again(self, path: str, count: int) -> int:
        """How many of the `count` iterations of a segment, from the first, the backward pass recomputes."""
        return first_iterations(path, count, self.recomputed, self.kept_iterations)

    def moved_out(self, path: str, count: int) -> int:
        """How many of the `count` iterations of a segment, from the first, save activations in the host's memory."""
        return first_iterations(path, count, self.offloaded, self.kept_iterations)


def first_iterations(path: str, count: int, paths: Collection[str], kept_iterations: Mapping[str, int]) -> int:
    """How many of the `count` iterations of a segment, from the first, are not kept; 0 if it is not among `paths`. The
    last ones are kept, because they come first in the backward pass: their memory is freed before any other iteration
    is held as a whole.
    """
    return max(count - kept_iterations.get(path, 0), 0) if path in paths else 0
