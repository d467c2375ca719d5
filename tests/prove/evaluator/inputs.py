"""Inputs for the independent evaluator: every element a function of the seed and its place, computed where it is read.

Draws are of any sign, of few whole numbers (ties), positive, negative, mostly zero, all equal, large, all but one
small, and at the numbers that the declarations compare with.
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
"""Draws one after the other; every input begins at another place."""

_MASK = (1 << 64) - 1


class Draw(StrEnum):
    """What the elements of an input are like."""

    ANY = "any"
    FEW = "few"
    """Whole numbers from -2 to 2."""
    SPECIAL = "special"
    """At the numbers that the declarations mention, and around them."""
    POSITIVE = "positive"
    NEGATIVE = "negative"
    ZEROS = "zeros"
    """Mostly zero."""
    LARGE = "large"
    SPIKE = "spike"
    """Small but for a few that are large."""
    EQUAL = "equal"
    MIXED = "mixed"


def turn(name: str, seed: int) -> Draw:
    """What the input of that name is like in the draw of that number."""
    return Draw(TURNS[(seed + crc32(name.encode())) % len(TURNS)])


def mixed(*parts: int) -> int:
    """64 bits from these numbers, the same on every run (splitmix64)."""
    state = 0
    for part in parts:
        state = (state ^ part) + 0x9E3779B97F4A7C15 & _MASK
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        state = (state ^ state >> 27) * 0x94D049BB133111EB & _MASK
        state ^= state >> 31
    return state


@dataclass
class Floats:
    """A tensor of floats. `special` are the numbers that the rule's declarations mention."""

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
    """A tensor of integers from 0 to `bound` - 1: by turns any, one, two of them, the last and the first."""

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
