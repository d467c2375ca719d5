"""The passes that change a plan's schedule, with their settings: what overlaps, what is recomputed or re-gathered."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from .layout_conversion import BUCKET_MIB


@dataclass(frozen=True)
class Passes:
    """`gathered_again` are the paths of weights, `layer.w`, that no device keeps gathered for the backward pass, which
    gathers them anew. `recomputed` are paths of segments, `layer`: an iteration keeps only what enters it, and the
    backward pass recomputes the rest. Of segments that are `offloaded` an iteration keeps what the backward pass
    needs in the host's memory; it is in one of both at most. So many of the last iterations of both as
    `kept_iterations` says are not among them.

    Iterations of repeats of an `interleaved` set are interleaved: the graph has the repeats one behind the other; they
    begin `stagger`ed, as `turns_behind` says. With `delayed_gradients` gradients of weights are computed while
    cotangents travel, where there are such products. With `chunks`, more than 1, products that read what is gathered
    are computed in blocks as these arrive, and those whose results are summed over devices in so many parts, one while
    another is summed. Gradients are summed over devices in buckets of so many `bucket_mib`, each alone where that is 0.
    """

    gathered_again: frozenset[str] = frozenset()
    recomputed: frozenset[str] = frozenset()
    offloaded: frozenset[str] = frozenset()
    kept_iterations: Mapping[str, int] = field(default_factory=dict)
    interleaved: tuple[tuple[str, ...], ...] = ()
    stagger: int = 1
    delayed_gradients: bool = False
    chunks: int = 1
    bucket_mib: int = BUCKET_MIB

    def __hash__(self) -> int:  # mappings have none; what is left out makes hashes equal, and no more
        return hash((self.gathered_again, self.recomputed, self.offloaded, self.chunks, self.bucket_mib, self.stagger))

    def run_again(self, path: str, count: int) -> int:
        """Of the `count` iterations of a segment, so many first ones the backward pass runs again."""
        return first_iterations(path, count, self.recomputed, self.kept_iterations)

    def moved_out(self, path: str, count: int) -> int:
        """Of the `count` iterations of a segment, so many first ones keep what they save in the host's memory."""
        return first_iterations(path, count, self.offloaded, self.kept_iterations)


def first_iterations(path: str, count: int, paths: Collection[str], kept_iterations: Mapping[str, int]) -> int:
    """Of the `count` iterations of a segment that is among these `paths`, so many first ones that are not kept: its
    last ones come first in the backward pass, and what they keep is gone before any of the others is held as a whole.
    """
    return max(count - kept_iterations.get(path, 0), 0) if path in paths else 0
