"""Restricts the layouts in which values cross the borders of bodies, for given configurations of operators: to the
layouts that one of the operators makes or reads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..cost_network.message_passing import Mask
from ..folded_solver.problem_part import Domains, Layouts, Part, Port, left


def narrowed(part: Part, domains: Domains) -> Domains:
    """The domains without other layouts at the borders of repeated bodies; they may be empty."""
    masks = [mask.copy() for mask in domains.masks]
    bodies = [Domains([mask.copy() for mask in body.masks], body.bodies) for body in domains.bodies]
    for repeat, body in zip(part.repeats, bodies, strict=True):
        for own, given in zip(repeat.body.captured, repeat.captured, strict=True):
            inside = _touching(repeat.body, body.masks, own, body.bodies)
            outside = _touching(part, masks, given, ())
            both = np.union1d(inside, outside)
            if len(both):
                _keep(body.masks, own, both)
                _keep(masks, given, both)
    inner = [narrowed(repeat.body, body) for repeat, body in zip(part.repeats, bodies, strict=True)]
    return Domains(masks, inner)


def _touching(part: Part, masks: Sequence[Mask], port: Port, bodies: Sequence[Domains]) -> Layouts:
    """The layouts in which other variables make or read the tensor at a port. For a tensor that a body reads on, these
    are the layouts of the readers inside.
    """
    found: list[Layouts] = []
    for tensor in part.tensors:
        ports = (tensor.produced, *tensor.reads)
        if all(other.variable != port.variable for other in ports):
            continue
        for other in ports:
            if other.variable != port.variable:
                found.append(_beyond(part, masks, other, bodies))
    return np.unique(np.concatenate(found)) if found else np.zeros(0, dtype=np.intp)


def _beyond(part: Part, masks: Sequence[Mask], port: Port, bodies: Sequence[Domains]) -> Layouts:
    """The layouts at a port, or those inside a body if the port only passes a tensor into it."""
    for repeat, body in zip(part.repeats, bodies, strict=False):
        for own, given in zip(repeat.body.captured, repeat.captured, strict=True):
            if given.variable == port.variable:
                return _touching(repeat.body, body.masks, own, body.bodies)
    return left(masks, port)


def _keep(masks: list[Mask], port: Port, layouts: Layouts) -> None:
    masks[port.variable] = masks[port.variable] & np.isin(port.layouts, layouts)
