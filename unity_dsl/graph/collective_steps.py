"""The collectives that conversions consist of: all-gather, all-reduce, reduce-scatter, all-to-all, slices."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..cached_hash import cached_hash
from .layout import Layout


class StepKind(StrEnum):
    SLICE = "slice"
    MASK = "mask"
    PAD = "pad"
    ALL_GATHER = "all_gather"
    ALL_REDUCE = "all_reduce"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    PERMUTE = "permute"
    EXCHANGE = "exchange"


LOCAL_STEPS = frozenset({StepKind.SLICE, StepKind.MASK, StepKind.PAD})
SUMS = frozenset({StepKind.ALL_REDUCE, StepKind.REDUCE_SCATTER})
BEGUN = frozenset({*SUMS, StepKind.ALL_GATHER, StepKind.ALL_TO_ALL})
"""Collectives that a program can start, and wait for later, as the last step of a conversion."""


@cached_hash
@dataclass(frozen=True)
class Step:
    """One local or collective operation on local tensors, over the group spanned by mesh axes (major first).

    | kind           | effect on the local tensor                                                        |
    |----------------|-----------------------------------------------------------------------------------|
    | slice          | keep this device's block of `dim`                                                 |
    | mask           | keep the value on the group's device `member`, zeros on the others                |
    | pad            | put the block into zeros of the group's whole extent along `dim`                  |
    | all_gather     | concatenate the group's blocks along `dim`                                        |
    | all_reduce     | sum over the group                                                                |
    | reduce_scatter | sum over the group, keep this device's block of `dim`                             |
    | all_to_all     | cut `to_dim` into blocks, send them out, concatenate what arrives along `dim`     |
    | permute        | give the whole local tensor to one device and take another's: of `target`'s slices     |
    | exchange       | any other index map: the transfers of slices from `source` to `target`            |

    A gather, a reduce-scatter or an all-to-all may run in two steps: over the groups along the axes `first`, and over
    those along the other axes. A reduce-scatter takes the axes `first` last, the others take them first.
    """

    kind: StepKind
    axes: tuple[int, ...]
    dim: int = 0
    to_dim: int = 0
    member: int = 0
    source: Layout | None = None
    target: Layout | None = None
    first: tuple[int, ...] = ()
