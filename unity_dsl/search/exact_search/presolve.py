"""Presolve: writes out first and last iterations, then eliminates variables with few neighbours."""

from __future__ import annotations

from dataclasses import dataclass

from ..folded_solver.exact_minimum import Solved
from ..folded_solver.problem_part import Domains, Part
from .iteration_peeling import Peeled, peel
from .variable_contraction import Contracted, contract


@dataclass(frozen=True)
class Simplified:
    """The part and its domains, after peeling and then contracting. The order matters: the result of a repeat has no
    cost of its own, and contracting may give it one.
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
        """The plan of the original part, of the same cost."""
        return self.peeled.restored(self.contracted.restored(plan))


def simplify(part: Part, domains: Domains) -> Simplified:
    peeled = peel(part)
    unpacked = peeled.domains(domains).agreed(peeled.part)
    return Simplified(peeled, contract(peeled.part, unpacked))
