"""Configurations as rules with device axes, and rules read back as configurations.

A configuration says which part of every operand each device has, and how the results are collected. A part is a slice
of a dimension (partition, combine), the whole tensor (replicate, unreplicate), or a term of its sum (reduce). The
corresponding rule is

    op(x, w) => reduce[p](op(partition[p; dim=1](x), partition[p; dim=1](w)))

The operator takes whole operands on the left and encoded operands on the right. Unity's substitutions and the
configurations of the search are therefore theorems of one calculus. The gradients' theorems have no rule of their own
here: equal functions have equal adjoints, and the adjoints of the parallel ops are in rules/parallel.rules.

Two kinds of division are left out, because the computation on a device is not a call of the operator. One is a division
inside an operator (softmax along its own axis). The other needs the position of the slice (the rows of an embedding).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product as combinations

from ..graph.layout_typing import Along, Linearly, Role
from ..index.equations.instance import Dim, Instance
from ..index.instantiation.representative import representative
from ..index.instantiation.view_call import takes_pattern
from ..index.library import Library
from ..syntax.ast import Expr, Name, Number, OperatorDecl
from ..syntax.diagnostic import InputError
from ..syntax.parse_rules import GraphCall, GraphExpr, RuleDecl, parse_rules
from ..syntax.span import Source
from .sharding_table import roles_of
from .sharding_theorems import ShardingTheorems


class Had(StrEnum):
    """A device's part of a tensor, other than a slice: the whole tensor, or a term of a sum over the devices."""

    WHOLE = "whole"
    TERM = "term"


Part = Had | int
"""A device's part of a tensor; a number is the dimension that is sliced."""


@dataclass(frozen=True)
class Encoding:
    """Each device's part of the operands and of the result."""

    operands: tuple[Part, ...]
    result: Part


def encodings(instance: Instance) -> Iterator[Encoding]:
    """Every encoding of an operator's operands and result, correct or not, except the one that divides nothing."""
    tensors = (*instance.inputs, *instance.outputs[:1])
    choices: list[list[Part]] = [[Had.WHOLE, Had.TERM, *range(len(tensor.dims))] for tensor in tensors]
    for *parts, result in combinations(*choices):
        if {*parts, result} != {Had.WHOLE}:
            yield Encoding(tuple(parts), result)


# ---------------------------------------------------------------------------------------------- configurations


def encoding_of(role: Role, instance: Instance) -> Encoding | None:
    """The encoding of a configuration; None if it divides inside a dimension or uses an op other than `partition`."""
    match role:
        case Linearly(operands):
            count = range(len(instance.inputs))
            return Encoding(tuple(Had.TERM if place in operands else Had.WHOLE for place in count), Had.TERM)
        case Along(axis, "partition"):
            tensors = (*instance.inputs, instance.outputs[0])
            places = [[n for n, dim in enumerate(tensor.dims) if axis in dim] for tensor in tensors]
            plain = all(tensor.dims[n][0] == axis for tensor, own in zip(tensors, places, strict=True) for n in own)
            if not plain or any(len(own) > 1 for own in places) or not any(places[:-1]):
                return None
            parts = tuple(own[0] if own else Had.WHOLE for own in places[:-1])
            return Encoding(parts, places[-1][0] if places[-1] else Had.TERM)
    return None


def role_of(encoding: Encoding, instance: Instance) -> Role | None:
    """The configuration that has this encoding; None if there is none."""
    parts = list(zip(instance.inputs, encoding.operands, strict=True))
    axes = [tensor.dims[part][0] for tensor, part in parts if not isinstance(part, Had)]
    terms = tuple(place for place, (_, part) in enumerate(parts) if part is Had.TERM)
    if not axes and not terms:
        return None
    role: Role = Along(axes[0]) if axes else Linearly(terms)
    return role if encoding_of(role, instance) == encoding else None


def configurations(instance: Instance, theorems: ShardingTheorems) -> tuple[Role, ...]:
    """The configurations of an operator that are proved, gradients included."""
    holds = theorems.about(instance, [operand.integer_range is None for operand in instance.inputs])
    return tuple(filter(holds, dict.fromkeys(roles_of(instance, theorems.library))))


# ---------------------------------------------------------------------------------------------- rules


def rule_text(name: str, instance: Instance, encoding: Encoding) -> str:
    """The rule of an encoding. A divided dimension has the size `p * n`."""
    degree = next(letter for letter in "pqtz" if letter not in instance.sizes)
    operands = list(zip(instance.inputs, encoding.operands, strict=True))
    divided = {operand.dims[part][0] for operand, part in operands if not isinstance(part, Had)}
    ranges = {decl.name: decl.integer_range for decl in instance.operator.inputs}
    inputs = []
    for operand, part in operands:
        dims = [_size(dim, divided, degree) for dim in operand.dims]
        bound = ranges.get(operand.name)
        integers = "" if bound is None else f"int<{_size((bound,), divided, degree)}>"
        devices = [f"@{degree}"] if part is Had.TERM else []
        inputs.append(f"{operand.name}: {integers}[{', '.join((*devices, *dims))}]")
    whole = [f"reduce[{degree}]({operand.name})" if part is Had.TERM else operand.name for operand, part in operands]
    encoded = [_encoded(operand.name, part, degree) for operand, part in operands]
    given = _attributes(instance)
    right = _decoded(f"{instance.name}({', '.join(encoded)}{given})", encoding.result, degree)
    return f"rule {name}({', '.join(inputs)})\n  {instance.name}({', '.join(whole)}{given}) => {right}\n"


def _size(dim: Dim, divided: Container[str], degree: str) -> str:
    """A dimension as the product of its axes; divided axes are multiplied by the degree."""
    return " * ".join(f"{degree} * {axis}" if axis in divided else axis for axis in dim) or "1"


def _encoded(name: str, part: Part, degree: str) -> str:
    if part is Had.TERM:
        return name
    return f"replicate[{degree}]({name})" if part is Had.WHOLE else f"partition[{degree}; dim={part}]({name})"


def _decoded(text: str, part: Part, degree: str) -> str:
    if part is Had.WHOLE:
        return f"unreplicate[{degree}]({text})"
    return f"reduce[{degree}]({text})" if part is Had.TERM else f"combine[{degree}; dim={part}]({text})"


def _attributes(instance: Instance) -> str:
    """The attributes of a call that have no default."""
    needed = [attribute.name for attribute in instance.operator.attributes if attribute.default is None]
    return "".join(f"{'; ' if not n else ', '}{name}={instance.attributes[name]}" for n, name in enumerate(needed))


def rule_of(name: str, instance: Instance, encoding: Encoding) -> RuleDecl:
    """The rule of an encoding. Raises InputError."""
    (rule,) = parse_rules(Source(f"{name}.rules", rule_text(name, instance, encoding))).rules
    return rule


def encoding_in(rule: RuleDecl) -> tuple[str, Encoding] | None:
    """The operator and the encoding that a rule states for it; None for a rule of another form."""
    (left, *others), (right, *further) = rule.left, rule.right
    if others or further or not isinstance(right, GraphCall) or len(right.arguments) != 1:
        return None
    result, inner = _part_of(right, {"combine": None, "reduce": Had.TERM, "unreplicate": Had.WHOLE}), right.arguments[0]
    if result is None or not isinstance(inner, GraphCall) or not isinstance(left, GraphCall) or left.name != inner.name:
        return None
    if left.attributes != inner.attributes or len(left.arguments) != len(inner.arguments):
        return None
    parts = [_operand_part(had, made) for had, made in zip(left.arguments, inner.arguments, strict=True)]
    known = tuple(part for part in parts if part is not None)
    return (left.name, Encoding(known, result)) if len(known) == len(parts) else None


def _operand_part(had: GraphExpr, made: GraphExpr) -> Part | None:
    """A device's part of an operand that is `had` on the left of a rule and `made` on the right."""
    if isinstance(made, Name):
        summed = isinstance(had, GraphCall) and had.name == "reduce" and had.arguments == (made,)
        return Had.TERM if summed else None
    if not isinstance(made, GraphCall) or made.arguments != (had,):
        return None
    return _part_of(made, {"partition": None, "replicate": Had.WHOLE})


def _part_of(call: GraphCall, ops: dict[str, Had | None]) -> Part | None:
    """The part that a parallel op makes of a tensor or takes it from. In `ops`, None marks an op with an attribute
    `dim`.
    """
    if call.name not in ops or call.degrees is None:
        return None
    attributes: dict[str, Expr] = dict(call.attributes)
    dim = attributes.get("dim")
    return int(dim.value) if ops[call.name] is None and isinstance(dim, Number) else ops[call.name]


# ---------------------------------------------------------------------------------------------- the library


def configuration_rules(operators: Sequence[OperatorDecl], library: Library) -> Iterator[tuple[str, str]]:
    """Name and text of the claim that each proved configuration makes, with rest groups of one axis each.

    Not all of these rules hold: a call of the operator cannot express what a configuration does inside the operator.
    Operators with several results, extern operators, and operators that reduce the axes left out of a pattern are
    skipped.
    """
    theorems = ShardingTheorems(library)
    for operator in operators:
        reduced = (takes_pattern(operator) or ("", None))[1]
        if reduced is not None or operator.extern or len(operator.outputs) > 1:
            continue
        try:
            instance = representative(operator, 1).instance
        except InputError:
            continue
        for role in configurations(instance, theorems):
            encoding = encoding_of(role, instance)
            if encoding is not None:
                name = f"{operator.name}_{_said(role, instance)}"
                yield name, rule_text(name, instance, encoding)


def _said(role: Role, instance: Instance) -> str:
    if isinstance(role, Linearly):
        return f"of_terms_of_{'_and_'.join(instance.inputs[place].name for place in role.operands)}"
    return f"along_{role.axis}" if isinstance(role, Along) else "whole"
