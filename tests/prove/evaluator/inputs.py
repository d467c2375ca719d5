"""Inputs for the independent evaluator: every element is a function of the seed and its place, computed when read.

Kinds of draws: any sign, a few integers (for ties), positive, negative, mostly zero, all equal, large, small with a
few large elements, near the numbers in the declarations, and mixtures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from zlib import crc32

from .values import Exact

TURNS = (
    "any", "few", "special", "mixed", "zeros", "special", "large", "few", "mixed", "positive", "spike", "special",
    "negative", "equal", "mixed", "any", "large",
)  # fmt: skip
"""The kinds of draws for consecutive seeds; every input starts at an offset that depends on its name."""

_MASK = (1 << 64) - 1


class Draw(StrEnum):
    """The kind of values that the elements of an input have."""

    ANY = "any"
    FEW = "few"
    """Whole numbers from -2 to 2."""
    SPECIAL = "special"
    """Equal to numbers in the declarations, or near them."""
    POSITIVE = "positive"
    NEGATIVE = "negative"
    ZEROS = "zeros"
    """Mostly zero."""
    LARGE = "large"
    SPIKE = "spike"
    """Small except for a few large ones."""
    EQUAL = "equal"
    MIXED = "mixed"


def turn(name: str, seed: int) -> Draw:
    """The kind of draw of the input with that name at that seed."""
    return Draw(TURNS[(seed + crc32(name.encode())) % len(TURNS)])


def mixed(*parts: int) -> int:
    """A 64-bit hash of these numbers, the same on every run (splitmix64)."""
    state = 0
    for part in parts:
        state = (state ^ part) + 0x9E3779B97F4A7C15 & _MASK
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        state = (state ^ state >> 27) * 0x94D049BB133111EB & _MASK
        state ^= state >> 31
    return state


@dataclass
class Floats:
    """A tensor of floats. `special` are the numbers in the rule and its declarations."""

    name: str
    seed: int
    draw: Draw
    special: Sequence[Exact]
    known: dict[tuple[int, ...], Exact] = field(default_factory=dict)

    def __call__(self, place: tuple[int, ...]) -> Exact:
        found = self.known.get(place)
        if found is None:
            found = self._drawn(self.draw, mixed(self.seed, crc32(self.name.encode()), *place))
            self.known[place] = found
        return found

    def _drawn(self, draw: Draw, bits: int) -> Exact:
        low, high = bits & 0xFFFF, bits >> 16
        match draw:
            case Draw.ANY:
                return Fraction(low % 121 - 60, (7, 11, 13, 17, 19)[high % 5])
            case Draw.FEW:
                return low % 5 - 2
            case Draw.SPECIAL:
                return self._special(low, high)
            case Draw.POSITIVE:
                return Fraction(low % 400 + 1, 97)
            case Draw.NEGATIVE:
                return -Fraction(low % 400 + 1, 97)
            case Draw.ZEROS:
                return (0, 0, 0, 1, -1)[low % 5]
            case Draw.LARGE:
                return (1 - low % 2 * 2) * 10 ** (3 + high % 15) + low % 7
            case Draw.SPIKE:
                return 10 ** (3 + high % 4) if low % 7 == 0 else low % 5 - 2
            case Draw.EQUAL:
                return self._drawn(Draw.MIXED, mixed(self.seed, crc32(self.name.encode())))
        return self._drawn((Draw.ANY, Draw.FEW, Draw.SPECIAL, Draw.FEW, Draw.LARGE)[low % 5], mixed(bits))

    def _special(self, low: int, high: int) -> Exact:
        if not self.special:
            return low % 5 - 2
        number = self.special[high % len(self.special)]
        step = (0, 0, 1, -1, Fraction(1, 2), Fraction(-1, 1000), Fraction(1, 1000), 10**6)[low % 8]
        return (number if low & 8 else -number) + step


@dataclass(frozen=True)
class Integers:
    """A tensor of integers from 0 to `bound` - 1: by seed any, all equal, two values, or only 0 and `bound` - 1."""

    name: str
    seed: int
    bound: int

    def __call__(self, place: tuple[int, ...]) -> int:
        own = mixed(self.seed, crc32(self.name.encode()))
        bits = mixed(own, *place)
        match self.seed % 4:
            case 0:
                return bits % self.bound
            case 1:
                return own % self.bound
            case 2:
                return (own if bits & 1 else own >> 20) % self.bound
        return 0 if bits & 1 else self.bound - 1
