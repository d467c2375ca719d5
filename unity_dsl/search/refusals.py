"""Why a model has no plan with what is asked for: which pin, or the strategy, rules out all choices, and where."""

from __future__ import annotations

from ..graph.graph import Model, Node
from ..graph.layout import Mesh
from ..graph.layout_typing import Along, type_operator
from ..index.library import Library
from ..rules.sharding_theorems import ShardingTheorems
from ..syntax.diagnostic import InputError, fail
from .choices.restriction import Place, Restriction, places
from .layout_pins import why_not_produced
from .layout_problem.variable_meaning import Crowded, Impossible


def _why_undivided(node: Node, mesh: Mesh, library: Library) -> str:
    """Why an operator is not divided along the leading axis of an operand, where it is not."""
    leading = dict.fromkeys(operand.dims[0][0] for operand in node.instance.inputs if operand.dims and operand.dims[0])
    for axis in leading:
        typed = type_operator(node.instance, (Along(axis),) * len(mesh.axes), mesh, library)
        reason = typed if isinstance(typed, str) else ShardingTheorems(library).why_not(node.instance, Along(axis))
        if reason is not None:
            return f"`{node.instance.name}` is not divided along `{axis}`: {reason}"
    return ""


def explain_refusal(
    reason: Impossible, restriction: Restriction, model: Model, mesh: Mesh, library: Library, strategy: str
) -> InputError:
    """Which pin, or the strategy, rules out all choices of an operator or a value, and why."""
    if isinstance(reason, Crowded):
        found = next((place for place in places(model) if place.path == reason.path), None)
        value = f"`{reason.path}`" if reason.path else "a value"
        text = f"as pinned, the readers of {value} ask for more than three layouts at once"
        return fail("E311", text, found.value.span if found is not None else None)
    if forbidden := restriction.excluded.get(reason.path):
        found = next((place for place in places(model) if place.path == reason.path), None)
        text = f"`{reason.path}` has no layout here but {' and '.join(sorted(map(str, forbidden)))}"
        return fail("E307", text, found.value.span if found is not None else None)
    if (kept := restriction.storage.get(reason.path)) is not None and kept.placement:
        found = next((place for place in places(model) if place.path == reason.path), None)
        text = f"`{reason.path}` cannot be {kept}: not all that reads it is computed by these devices alone"
        return fail("E307", text, found.value.span if found is not None else None)
    makers: list[Place] = [
        place
        for place in places(model)
        if place.path in restriction.produced and (place.path == reason.path or (place.node is reason.node is not None))
    ]
    if not makers:
        span = reason.node.span if reason.node is not None else None
        help = "" if reason.node is None else _why_undivided(reason.node, mesh, library)
        return fail("E309", f"`{strategy}` leaves no configuration of `{reason.path}`", span, help=help)
    place = makers[0]
    layout = restriction.produced[place.path]
    possible = list(reason.options.typed) if reason.options is not None else []
    why = "nothing before it leaves it so"
    if place.node is not None:
        why = why_not_produced(layout, place, mesh, library, possible)
    return fail("E307", f"`{place.path}` cannot be {layout}: {why}", place.value.span)
