"""The table of every operator and axis with its proof status: `unityc rules configurations`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from ..graph.declared_slices import is_cut
from ..graph.halo import HaloFinder, is_halo_op
from ..graph.layout import Mesh, MeshAxis
from ..graph.layout_typing import Along, Linearly, Role, Typing, Uniformly
from ..index.axes.axis_classes import AxisKind, classify, linear_operands
from ..index.axes.axis_windows import Windowed, windowed
from ..index.declarations.sample_trials import SAMPLES, contradiction
from ..index.equations.instance import Instance
from ..index.instantiation.representative import instance_at, representative
from ..index.library import Library
from ..prove.answer import NotProved, Proved
from ..syntax.ast import OperatorDecl
from ..syntax.diagnostic import InputError
from .sharding_theorems import Claim, Claims, ShardingTheorems

RANKS = (0, 1, 2, 3)
"""Ranks of rest groups. They place no axis or one axis before and after a divided axis; more adjacent axes would be
merged into one.
"""
_LONG = 12
"""Size of a dimension that is read around an axis."""


@dataclass(frozen=True)
class Row:
    """An axis of an operator, or operands in which it is linear. `status` is proved, declared, blocked or not proved.

    `theorems` counts the theorems about the operator, its `eval` clause and its adjoints. `seconds` is the time of
    their proofs, `assumed` are the assumed facts in them.
    """

    operator: str
    subject: str
    kind: str
    status: str
    reason: str = ""
    theorems: int = 0
    seconds: float = 0.0
    assumed: tuple[str, ...] = ()


def table_of(operator: OperatorDecl, theorems: ShardingTheorems, *, again: bool = True) -> Iterator[Row]:
    """The rows of one operator. Each theorem is proved now, or with `again=False` only if it is not stored.

    Raises InputError if no instance of the operator is found.
    """
    library = theorems.library
    found = representative(operator)
    instance = found.instance
    claims = claims_of(instance, library)
    contradicted = contradiction(operator, library, SAMPLES) if operator.extern else None
    for axis, entry in classify(instance, library).items():
        name = found.names.get(axis, axis)
        if entry.kind is AxisKind.DECLARED and contradicted is not None:
            yield Row(operator.name, name, entry.kind, "not proved", f"a sample contradicts it: {contradicted.reason}")
        elif entry.kind is AxisKind.DECLARED:
            yield Row(operator.name, name, entry.kind, "declared", f"assumed; {SAMPLES} samples agree")
        elif entry.kind is AxisKind.BLOCKED:
            yield Row(operator.name, name, entry.kind, "blocked", entry.reason)
            yield from _halo_rows(operator, axis, theorems, again)
        else:
            yield _row(operator.name, name, entry.kind, list(claims.of(Along(axis))), theorems, again)
    for operands in linear_operands(instance):
        names = ", ".join(instance.inputs[i].name for i in operands)
        yield _row(operator.name, names, "linear", list(claims.of(Linearly(operands))), theorems, again)


def _halo_rows(operator: OperatorDecl, axis: str, theorems: ShardingTheorems, again: bool) -> Iterator[Row]:
    """The rows of an axis around which some dimension is read, one for each op that provides the halo."""
    library = theorems.library
    for instance, window in _windowed_instances(operator, axis, library):
        finder = HaloFinder(instance, Mesh(()), library)
        for by, declaration in library.parallels.items():
            if is_cut(declaration) and is_halo_op(declaration) and finder.missing_halo(axis, by, 1) is None:
                claims = list(claims_of(instance, library).of(Along(axis, by)))
                yield _row(operator.name, f"{axis} by {by}", window.entry.kind, claims, theorems, again)
        return


def _windowed_instances(operator: OperatorDecl, axis: str, library: Library) -> Iterator[tuple[Instance, Windowed]]:
    """Instances whose reads around an axis move with it and reach beyond a slice.

    The first operand is long and the others are short, as kernels are. Axes merged with a minor one have one position.
    Attributes are 1 or their defaults. Instances whose reach grows with the operand are left out, since no fixed halo
    covers it.
    """
    sizes = {dim.name: 3 for tensor in operator.inputs for dim in tensor.dims}
    sizes |= {dim.name: _LONG for tensor in operator.inputs[:1] for dim in tensor.dims}
    sizes |= {dim.name: 1 for tensor in operator.inputs for axes in tensor.dimensions for dim in axes[:-1]}
    ranges = [tensor.integer_range for tensor in operator.inputs if tensor.integer_range is not None]
    sizes = dict.fromkeys(ranges, 3) | sizes
    names = [attribute.name for attribute in operator.attributes]
    choices = [(1, 3 if attribute.default is None else attribute.default) for attribute in operator.attributes]
    for values in product(*map(dict.fromkeys, choices)):
        try:
            instance = instance_at(operator, sizes, dict(zip(names, values, strict=True)), 1)
        except InputError:
            continue
        window = windowed(instance, library).get(axis)
        if (
            isinstance(window, Windowed)
            and any(r.low < 0 or r.high >= r.step for r in window.reaches)
            and not _grows(operator, instance, sizes, axis, window, library)
        ):
            yield instance, window


def _grows(
    operator: OperatorDecl, instance: Instance, sizes: Mapping[str, int], axis: str, window: Windowed, library: Library
) -> bool:
    """Whether the reads reach further around the axis when the operand is twice as long."""
    longer = {name: 2 * size if size == _LONG else size for name, size in sizes.items()}
    try:
        found = windowed(instance_at(operator, longer, instance.attributes, 1), library).get(axis)
    except InputError:
        return False
    return not isinstance(found, Windowed) or found.reaches != window.reaches


def _row(
    operator: str, subject: str, kind: str, claims: Sequence[Claim], theorems: ShardingTheorems, again: bool
) -> Row:
    if not again and all(map(theorems.holds, claims)):
        assumed = tuple(dict.fromkeys(fact for claim in claims for fact in theorems.assumed(claim)))
        return Row(operator, subject, kind, "proved", "", len(claims), assumed=assumed)
    answers = [(claim, theorems.answer(claim)) for claim in claims]
    seconds = sum(answer.seconds for _, answer in answers)
    for claim, answer in answers:
        if not isinstance(answer, Proved):
            why = answer.reason if isinstance(answer, NotProved) else "refuted"
            return Row(operator, subject, kind, "not proved", f"{claim.statement}: {why}", len(answers), seconds)
    assumed = tuple(dict.fromkeys(a for _, answer in answers if isinstance(answer, Proved) for a in answer.assumed))
    return Row(operator, subject, kind, "proved", "", len(answers), seconds, assumed)


def statuses(operator: OperatorDecl, theorems: ShardingTheorems) -> dict[str, str]:
    """The status of every axis, and of every set of operands that the operator is linear in: `x`, or `x, y`.

    Empty for an operator without instances.
    """
    try:
        return {row.subject: row.status for row in table_of(operator, theorems, again=False)}
    except InputError:
        return {}


def claims_of(instance: Instance, library: Library) -> Claims:
    """The claims about an operator, with a gradient for every operand of floats."""
    return Claims(instance, [operand.integer_range is None for operand in instance.inputs], library)


def roles_of(instance: Instance, library: Library) -> Iterator[Role]:
    """The roles of a declaration on any mesh that need a theorem. Roles that an extern operator declares need none."""
    if not instance.extern:
        every = [True] * len(instance.inputs)
        # A degree of 1 divides every axis, so no other mesh suggests more roles.
        roles = Typing(instance, Mesh((MeshAxis("a", 1),)), library).roles(0, every, [False] * len(every))
        yield from (role for role in roles if not isinstance(role, Uniformly))


def instances(operators: Iterable[OperatorDecl]) -> Iterator[Instance]:
    """Each operator at the ranks of its rest groups that its theorems distinguish."""
    for operator in operators:
        for rank in RANKS if _has_rest(operator) else RANKS[1:2]:
            try:
                yield representative(operator, rank).instance
            except InputError:
                continue  # no instance at this rank


def _has_rest(operator: OperatorDecl) -> bool:
    return any(dim.rest for tensor in operator.inputs for dim in tensor.dims)
