"""The values that every extraction of an e-graph computes: the dominators of an and-or graph."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import reduce
from operator import or_

Makers = Mapping[str, Collection[Collection[str]]]
"""By value, what each of the operators that may make it reads. A value that no operator makes is given."""


def necessary_values(makers: Makers, roots: Iterable[str]) -> set[str]:
    """The values that are in every extraction of the `roots`: one operator for each value, none made of itself.

    A value needs itself and whatever all of its makers need. A maker needs whatever any of its operands needs. Sweeps
    find the greatest solution. Without "and" these are dominators (F. E. Allen, "Control flow analysis", 1970).
    """
    numbers = {name: number for number, name in enumerate(makers)}
    reads = [[[numbers[name] for name in read if name in numbers] for read in every] for every in makers.values()]
    everything = (1 << len(numbers)) - 1
    needs, changed = [everything] * len(numbers), True
    while changed:
        changed = False
        for number, alternatives in enumerate(reads):
            found = everything
            for operands in alternatives:
                found &= reduce(or_, (needs[operand] for operand in operands), 0)
            found |= 1 << number
            changed |= found != needs[number]
            needs[number] = found
    needed = reduce(or_, (needs[numbers[root]] for root in roots), 0)
    return {name for name, number in numbers.items() if needed >> number & 1}
