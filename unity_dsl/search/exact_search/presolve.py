"""Presolve: first and last iterations written out, then variables with few neighbours eliminated."""

from __future__ import annotations

from dataclasses import dataclass

from ..folded_solver.exact_minimum import Solved
from ..folded_solver.problem_part import Domains, Part
from .iteration_peeling import Peeled, peel
from .variable_contraction import Contracted, contract


@dataclass(frozen=True)
class Simplified:
    """The part and its domains, after peeling and after contracting. In this order: what a repeat leaves costs nothing
    itself, and contracting may charge it.
    """

    peeled: Peeled
    contracted: Contracted

    @property
    def part(self) -> Part:
        return self.contracted.part

    @property
    def domains(self) -> Domains:
        return self.contracted.domains

    def restored(self, plan: Solved) -> Solved:
        """The plan of the part before, of the same cost."""
        return self.peeled.restored(self.contracted.restored(plan))


def simplify(part: Part, domains: Domains) -> Simplified:
    peeled = peel(part)
    unpacked = peeled.domains(domains).agreed(peeled.part)
    return Simplified(peeled, contract(peeled.part, unpacked))
