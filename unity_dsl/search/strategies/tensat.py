"""Strategy `tensat`: equality saturation and extraction for one device, then data parallelism (Yang et al., 2021).

All proved rules are applied at once to e-graphs, in rounds and within limits (4 rounds and 2,000 operators of a graph,
where the authors had 15 and 50,000), including rules with several roots. The extraction with the least total cost of
operators on one device is taken, with shared operators counted once, as in the authors' integer linear programme. Here
it is found for each group of mutually dependent values, by trying the extractions of the group.
"""

from __future__ import annotations

from ..choices.extractions import Group
from ..model_variants.rewritten_model import Variant
from ..model_variants.variant_enumeration import SingleDevice
from .strategy import Chosen, Space
from .taso import in_data_parallel, told


def tensat(space: Space) -> Chosen:
    """The extraction of an e-graph that costs least on one device, then data parallel."""
    # Imported here because applying rules imports most of the prover, which other strategies do not need.
    from ...rules.substitution import Substitution, substitution_of
    from ..joint.extracted_model import algebra_of, extracted

    alone, found = SingleDevice(space.machine, space.library), (substitution_of(r, space.library) for r in space.rules)
    rules = [rule for rule in found if isinstance(rule, Substitution)]
    algebra = algebra_of(space.model, rules, space.machine, space.library)
    chosen = {
        prefix: tuple(_cheapest(group, alone) for group in graph.groups) for prefix, graph in algebra.graphs.items()
    }
    variant = extracted(algebra, chosen) or Variant(space.model)
    note = told(variant, alone.seconds(space.model), alone.seconds(variant.model), not algebra.limits)
    return in_data_parallel(space, variant, note, "tensat")


def _cheapest(group: Group, alone: SingleDevice) -> int:
    """The cheapest extraction of a group on one device; an operator with several results counts once."""

    def seconds(number: int) -> float:
        made = {id(enode): enode for choice in group.choices if (enode := choice.enodes[number]) is not None}
        return sum(alone.operator(enode.node) for enode in made.values())

    return min(range(group.extractions), key=seconds)
