"""Configurations as rules with device axes, and rules read back as configurations.

A configuration says what each device has of every operand and how the results are collected: a slice of a dimension
(partition, combine), all of it (replicate, unreplicate), or a term of its sum (reduce). As a rule it is

    op(x, w) => reduce[p](op(partition[p; dim=1](x), partition[p; dim=1](w)))

an operator on operands had whole on the left, on encoded ones on the right. So the rules of Unity's substitutions and
the configurations of the search are theorems of one calculus. The gradients' theorems have no rule of their own here:
equal functions have equal adjoints, and the adjoints of the parallel ops are in rules/parallel.rules.

Left out are divisions inside an operator (softmax along its own axis) and those at whose slices it has to know their
place (the rows of an embedding): what a device computes is then no call of the operator.
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
    """What a device has of a tensor other than a slice: all of it, or a term of a sum over the devices."""

    WHOLE = "whole"
    TERM = "term"


Part = Had | int
"""What a device has of a tensor; a number is the dimension of which it has a slice."""


@dataclass(frozen=True)
class Encoding:
    """What each device has of the operands, and of the result."""

    operands: tuple[Part, ...]
    result: Part


def encodings(instance: Instance) -> Iterator[Encoding]:
    """Every encoding of an operator's operands and result, right or wrong, but the one that divides nothing."""
    tensors = (*instance.inputs, *instance.outputs[:1])
    choices: list[list[Part]] = [[Had.WHOLE, Had.TERM, *range(len(tensor.dims))] for tensor in tensors]
    for *parts, result in combinations(*choices):
        if {*parts, result} != {Had.WHOLE}:
            yield Encoding(tuple(parts), result)


# ---------------------------------------------------------------------------------------------- configurations


def encoding_of(role: Role, instance: Instance) -> Encoding | None:
    """The encoding of a configuration; None where it divides inside of a dimension or at an op of one's own."""
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
    """The configuration that has an encoding, None where no configuration has."""
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
    """The rule of an encoding. A dimension that is divided has the size `p * n`."""
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
    """A dimension as the product of its axes, those that are divided with the degree."""
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
    """The operator and the encoding that a rule states of it; None for a rule of another form."""
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
    """What devices have of an operand: `had` on the left of a rule, `made` on the right."""
    if isinstance(made, Name):
        summed = isinstance(had, GraphCall) and had.name == "reduce" and had.arguments == (made,)
        return Had.TERM if summed else None
    if not isinstance(made, GraphCall) or made.arguments != (had,):
        return None
    return _part_of(made, {"partition": None, "replicate": Had.WHOLE})


def _part_of(call: GraphCall, ops: dict[str, Had | None]) -> Part | None:
    """What a parallel op makes of a tensor or takes it from; None as the value of an op that has a dimension."""
    if call.name not in ops or call.degrees is None:
        return None
    attributes: dict[str, Expr] = dict(call.attributes)
    dim = attributes.get("dim")
    return int(dim.value) if ops[call.name] is None and isinstance(dim, Number) else ops[call.name]


# ---------------------------------------------------------------------------------------------- the library


def configuration_rules(operators: Sequence[OperatorDecl], library: Library) -> Iterator[tuple[str, str]]:
    """Name and text of the claim that each proved configuration makes, rests of one axis each.

    Not all of them hold: what a configuration does inside of an operator no call of it says. Left out are operators of
    several results, extern ones, and those that reduce the axes which a pattern leaves out.
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
