"""Both sides of a rule as programs, on one device and on two, compared with the left side by its statements alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from random import Random

from tests.fuzz.cases import write
from tests.fuzz.plans import random_plan
from tests.prove.cases import library
from tests.rules.side_models import SizedRule, build
from unity_dsl.emit.output_folder import write_files
from unity_dsl.emit.program_check import compare
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.emit.reference_program import reference_library, render_reference
from unity_dsl.graph.graph import Model
from unity_dsl.graph.layout import Kind, Mesh, MeshAxis, Shard, nest
from unity_dsl.graph.plan import Plan
from unity_dsl.prove.translation.rule_forms import expressions
from unity_dsl.rules.graph_match import matches
from unity_dsl.rules.rewrite import rewrite
from unity_dsl.rules.sharding_rules import Encoding, encoding_in, role_of
from unity_dsl.rules.substitution import Substitution, prepared, substitution_of
from unity_dsl.search.choices.restriction import Restriction
from unity_dsl.syntax.ast import Number
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.parse_rules import GraphCall, RuleDecl

from .layout_laws import DEGREE, laid_out

ONE, TWO = Mesh(()), Mesh((MeshAxis("a", 2),))
SIZES = ((2, 4), (1, 2, 3, 4, 6), (1, 2, 3, 5))
"""Pools from which sizes are drawn: sizes that two devices divide, mixed ones, and mostly sizes that they do not."""
MORE_SIZES = (1, 2, 3, 4, 5, 6, 8)
"""The pool for later attempts, in case the rule's conditions exclude the sizes of the first pool."""
MAX_RANK = 2
MAX_ELEMENTS = 4096
DRAWS, PLANS = 600, 400
"""Attempts to draw sizes that a rule allows, and to draw a plan whose operator is divided as a rule says."""
INITIAL = ("normal(1)", "uniform(0.5, 1.5)")
"""Initial values of weights: positive numbers if a side has no value at others."""


class NoCase(Exception):
    """No program can be made of the rule. The message says why."""


@dataclass(frozen=True)
class RuleCase:
    """A rule at sizes, and a model for either side. `how` says where the right model comes from:

    `applied`: the rule rewrote the left side. `written`: the rule applies to no model, and its right side is built from
    its text. `divided`: it is the left side, whose operator is divided over the devices as `encoding` says. `laid out`:
    the rule is about parallel ops, whose results are `pins`.
    """

    name: str
    number: int
    sized: SizedRule
    left: Model
    right: Model
    how: str
    encoding: Encoding | None = None
    pins: Mapping[str, Kind] = field(default_factory=dict)

    def programs(self) -> Iterator[tuple[str, Plan]]:
        """Plans of either side for one device, and random plans for two."""
        rng = Random(f"{self.name} {self.number} plans")
        pinned = Restriction(produced={name: nest([kind]) for name, kind in self.pins.items()})
        yield "left on 1", random_plan(self.left, ONE, library(), rng)
        if self.encoding is not None:
            yield "right on 2", divided_plan(self.left, self.encoding, rng)
            return
        yield "right on 1", random_plan(self.right, ONE, library(), rng)
        yield "left on 2", random_plan(self.left, TWO, library(), rng, pinned)
        yield "right on 2", random_plan(self.right, TWO, library(), rng, pinned)


def rule_case(rule: RuleDecl, number: int, initial: str = INITIAL[0]) -> RuleCase:
    """Case `number` of a rule, whose weights start as `initial`.

    Raises NoCase, NoLayout, and InputError if the right side has no meaning at sizes at which the left side has one.
    """
    rng = Random(f"{rule.name} {number}")
    if has_device_axes(rule):
        return divided_case(rule, number, initial, rng)
    sized, left = drawn_left(prepared(rule, library()), rng, SIZES[number % len(SIZES)], initial, {})
    usable = substitution_of(rule, library())
    if isinstance(usable, Substitution):
        return RuleCase(rule.name, number, sized, left, applied_to(left, usable), "applied")
    return RuleCase(rule.name, number, sized, left, build(sized.right), "written")


def drawn_left(
    found: Substitution, rng: Random, sizes: Sequence[int], initial: str, fixed: Mapping[str, int]
) -> tuple[SizedRule, Model]:
    """Random sizes that the rule allows, and its left side, which has a meaning at them. Raises NoCase."""
    for attempt in range(DRAWS):
        ranks = {group: rng.randint(0, MAX_RANK) for group in found.groups}
        pool = sizes if attempt < DRAWS // 3 else MORE_SIZES
        drawn = {name: fixed.get(name) or rng.choice(pool) for name in found.names(ranks)}
        if not found.claim.holds(drawn):
            continue
        sized = SizedRule(found, ranks, drawn, initial)
        if any(prod(sized.shape(given)) > MAX_ELEMENTS for given in found.rule.inputs):
            continue
        with suppress(InputError):
            return sized, build(sized.left)
    raise NoCase("no sizes are found that it allows")


def applied_to(left: Model, rule: Substitution) -> Model:
    """The result of applying the rule to its own whole left side. Raises NoCase if the rule does not match it."""
    for match in matches(rule, left):
        if match.roots == left.outputs:
            made = rewrite(left, match)
            if isinstance(made, str):
                raise NoCase(f"it is not applied to its left side: {made}")
            return made
    raise NoCase("it does not match its left side")


# ---------------------------------------------------------------------------------------------- rules with device axes


def divided_case(rule: RuleDecl, number: int, initial: str, rng: Random) -> RuleCase:
    """The case of a rule with device axes. Raises NoLayout.

    The rule of a configuration gives a plan for its left side, any other rule gives layout conversions.
    """
    stated = encoding_in(rule)
    changed, pins = laid_out(rule) if stated is None else (undivided(rule), {})
    sized, left = drawn_left(prepared(changed, library()), rng, SIZES[0], initial, {DEGREE: TWO.size})
    if stated is not None:
        return RuleCase(rule.name, number, sized, left, left, "divided", encoding=stated[1])
    right = build(sized.right)
    return RuleCase(rule.name, number, sized, left, right, "laid out", pins=counted(pins, left, right))


def counted(pins: Mapping[str, Kind], *models: Model) -> Mapping[str, Kind]:
    """The pins of tensors in these models, with dimensions counted from the first."""
    made = [value for model in models for node in model.graph.nodes() for value in node.results]
    ranks = {value.name: len(value.shape) for value in made}
    return {
        name: replace(kind, dim=kind.dim % ranks[name]) if isinstance(kind, Shard) else kind
        for name, kind in pins.items()
        if name in ranks
    }


def has_device_axes(rule: RuleDecl) -> bool:
    """Whether the rule calls parallel ops."""
    return any(isinstance(expr, GraphCall) and expr.degrees is not None for expr in expressions(rule))


def undivided(rule: RuleDecl) -> RuleDecl:
    """The left side of a configuration as both sides, with whole operands."""
    inputs = tuple(replace(given, dims=tuple(dim for dim in given.dims if not dim.device)) for given in rule.inputs)
    (call,) = rule.left
    assert isinstance(call, GraphCall)
    # Partial sums are computed: no plan stores a weight as terms of a sum.
    operands = tuple(
        GraphCall("shift", part.arguments, (("by", Number(0)),)) if isinstance(part, GraphCall) else part
        for part in call.arguments
    )
    side = (replace(call, arguments=operands),)
    return replace(rule, inputs=inputs, left=side, right=side)


def divided_plan(model: Model, encoding: Encoding, rng: Random) -> Plan:
    """A plan for two devices that divides the operator of the result as the encoding says. Raises NoCase."""
    for _ in range(PLANS):
        plan = random_plan(model, TWO, library(), rng)
        (divided,) = (planned for planned in plan.graph.nodes() if model.outputs[0] in planned.node.results)
        if divided.typed.configuration == (role_of(encoding, divided.node.instance),):
            return plan
    raise NoCase(f"none of {PLANS} plans divides it so")


# ---------------------------------------------------------------------------------------------- running


def errors_of(rule: RuleDecl, number: int, folder: Path, pool: RankPool) -> tuple[RuleCase, dict[str, float]]:
    """A case, and the largest relative error in float64 of each of its programs: of loss, gradients and parameters.

    Weights are positive if the left side has no value at others. Raises NoCase, NoLayout and InputError.
    """
    for initial in INITIAL:
        case = rule_case(rule, number, initial)
        errors = dict(program_errors(case, folder / initial[0], pool))
        if errors["left on 1"] < sys.float_info.max:
            break
    return case, errors


def program_errors(case: RuleCase, folder: Path, pool: RankPool) -> Iterator[tuple[str, float]]:
    """The largest relative error of each program of a case; the largest float where a program has no value."""
    reference = write_reference(case, folder / "reference")
    for name, plan in case.programs():
        program = write(plan, library(), folder / name)
        found = compare(program, reference, plan.mesh.size, steps=1, pool=pool)
        yield name, max(found["loss_rel_err"], found["grad_rel_err"], found["param_rel_err"])


def write_reference(case: RuleCase, folder: Path) -> Path:
    """Writes the left side by its statements alone, for one device."""
    plain = reference_library(library())
    model = build(case.sized.left, plain)
    write_files(render_reference(random_plan(model, ONE, plain, Random(0)), plain), folder)
    return folder
