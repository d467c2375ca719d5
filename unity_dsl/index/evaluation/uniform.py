"""Counter-based random numbers of `uniform[…]`: a function of (seed, step, site, global position).

Emitted programs contain the same arithmetic in int32, whose sums and products wrap. Here all of it is exact in signed
64-bit integers: words are below 2**32 and multipliers below 2**31, hence no product reaches 2**63.

    mix(x)     x ^= x >> 16;  x = x * 0x21f0aaad mod 2**32
               x ^= x >> 15;  x = x * 0x735a2d97 mod 2**32;  x ^= x >> 15
    low, high  the lower and upper 32 bits of the position, row-major over the axes that `uniform` is indexed by
    start      0, then for each word of (seed, step, site, high):  start = mix((start + word + 0x9e3779b9) mod 2**32)
    turn       mix((start + 0x9e3779b9) mod 2**32)
    state      low * 0x9e3779b1 + start mod 2**32
               state ^= state >> 17;  state = state * 0x21f0aaad + turn mod 2**32
               state ^= state >> 15;  state = state * 0x735a2d97 mod 2**32
    result     ((state ^ 2**31) >> 8) * 2**-24, one of 2**24 equally likely numbers in [0, 1), exact in float32

`mix` is the two-round integer hash with the lowest known bias of its form (C. Wellons, "Prospecting for hash
functions", with the constants found by TheIronBorn). The work per position is a bijection, and short: a Weyl sequence,
one round of that hash with a second key, and the product of the next round, whose upper bits are used.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

WORD = 0xFFFFFFFF
GOLDEN = 0x9E3779B9
MULTIPLIERS = (0x21F0AAAD, 0x735A2D97)
WEYL = 0x9E3779B1 - 2**32

Integers = npt.NDArray[np.int64]


def uniform(position: Integers, seed: int = 0, step: int = 0, site: int = 0) -> npt.NDArray[np.float64]:
    """One number in [0, 1) per position (int64, at least 0), in the shape of `position`."""
    position, start = np.asarray(position, dtype=np.int64), np.zeros((), dtype=np.int64)
    for word in (np.int64(seed & WORD), np.int64(step & WORD), np.int64(site & WORD), position >> 32):
        start = _mix((start + word + GOLDEN) & WORD)
    state = ((position & WORD) * WEYL + start) & WORD
    state = ((state ^ (state >> 17)) * MULTIPLIERS[0] + _mix((start + GOLDEN) & WORD)) & WORD
    state = ((state ^ (state >> 15)) * MULTIPLIERS[1]) & WORD
    return ((state ^ (1 << 31)) >> 8).astype(np.float64) * 2.0**-24


def _mix(word: Integers) -> Integers:
    word = word ^ (word >> 16)
    word = (word * MULTIPLIERS[0]) & WORD
    word = word ^ (word >> 15)
    word = (word * MULTIPLIERS[1]) & WORD
    return word ^ (word >> 15)
