"""Schedules that were built are legal. Edits that no program could run are refused, each with its reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, is_dataclass, replace
from random import Random
from typing import cast, get_args

import pytest

from tests.emit.planning import mesh_of
from tests.fuzz.plans import random_plan
from tests.program.test_chunked_products import LAYERS
from tests.program.test_interleaved_repeats import CHAINS
from tests.program.test_updates import AVERAGES
from unity_dsl.graph.graph import Value
from unity_dsl.graph.interleaved_repeats import independent_repeats, side_by_side
from unity_dsl.graph.layout import Layout
from unity_dsl.graph.model_graph import build_model
from unity_dsl.graph.plan import PlannedNode
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.schedule import ir
from unity_dsl.schedule.build import build_schedule
from unity_dsl.schedule.ir import (
    Arrive,
    AwaitGathers,
    Begin,
    Branch,
    Close,
    Compute,
    Convert,
    Function,
    Fused,
    Group,
    Instruction,
    Interleave,
    Iterate,
    Keep,
    Loop,
    Open,
    Placed,
    ReturnOutputs,
    StartGathers,
    Tensor,
    Updates,
)
from unity_dsl.schedule.legality import IllegalSchedule, check_schedule
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.span import Source

Instructions = list[Instruction]
Edit = Callable[[Instructions], Instructions | None]
LIBRARY = load_library()
DEGREES = ((2,), (2, 2), (4,))


def schedules() -> Iterator[Function]:
    """Schedules of plans drawn by number, with passes, and the bodies in them."""
    for number in range(48):
        text, rng = (LAYERS, CHAINS, AVERAGES)[number % 3], Random(number)
        model = build_model(parse_model(Source("text.udl", text)), LIBRARY)
        plan = random_plan(model, mesh_of(*DEGREES[number % 2]), LIBRARY, rng)
        if sets := independent_repeats(plan):
            plan = side_by_side(plan, sets)
        function = build_schedule(plan.with_passes(deferred_gradients=True, chunks=2), LIBRARY, apart=number % 4 == 3)
        yield function
        yield from (body for one in function.instructions if isinstance(one, Open) for body in one.loop.bodies)


def without(kind: type[Instruction], condition: Callable[[object], bool] = lambda one: True) -> Edit:
    def edit(given: Instructions) -> Instructions | None:
        place = next((n for n, one in enumerate(given) if isinstance(one, kind) and condition(one)), None)
        return None if place is None else given[:place] + given[place + 1 :]

    return edit


def twice(kind: type[Instruction], condition: Callable[[object], bool] = lambda one: True) -> Edit:
    def edit(given: Instructions) -> Instructions | None:
        place = next((n for n, one in enumerate(given) if isinstance(one, kind) and condition(one)), None)
        return None if place is None else [*given[: place + 1], given[place], *given[place + 1 :]]

    return edit


def first(kind: type[Instruction], condition: Callable[[object], bool] = lambda one: True) -> Edit:
    """Moves the last instruction of a kind before all others."""

    def edit(given: Instructions) -> Instructions | None:
        places = [n for n, one in enumerate(given) if isinstance(one, kind) and n and condition(one)]
        return [given[places[-1]], *given[: places[-1]], *given[places[-1] + 1 :]] if places else None

    return edit


def last(kind: type[Instruction], condition: Callable[[object], bool] = lambda one: True) -> Edit:
    """Moves the first instruction of a kind behind all others."""

    def edit(given: Instructions) -> Instructions | None:
        place = next((n for n, one in enumerate(given) if isinstance(one, kind) and condition(one)), None)
        return None if place is None else [*given[:place], *given[place + 1 :], given[place]]

    return edit


def changed(kind: type[Instruction], change: Callable[[object], object | None]) -> Edit:
    def edit(given: Instructions) -> Instructions | None:
        for place, one in enumerate(given):
            if isinstance(one, kind) and (other := change(one)) is not None:
                return [*given[:place], other, *given[place + 1 :]]  # type: ignore[list-item]
        return None

    return edit


def late(one: object) -> object | None:
    """Makes iterations start with the second one."""
    assert isinstance(one, Iterate)
    return replace(one, run=replace(one.run, first=1)) if one.run.count > 1 and one.run.first == 0 else None


def fewer(one: object) -> object | None:
    assert isinstance(one, Interleave)
    return replace(one, iterations=one.iterations[:-1]) if len(one.iterations) > 1 else None


def other_given(one: object) -> object:
    """Gives an iteration tensors that nothing made."""
    assert isinstance(one, Iterate)
    return replace(one, given=tuple(Tensor(given.value, given.layout, given.dtype) for given in one.given))


def undeferred(one: object) -> object | None:
    """Makes a product compute its deferred weight gradient at once."""
    assert isinstance(one, Compute)
    return replace(one, deferred=None) if one.deferred is not None else None


def other_arrival(one: object) -> object | None:
    """Waits for a tensor that nothing has sent."""
    assert isinstance(one, Arrive)
    made = one.makes
    return replace(one, makes=Tensor(made.value, made.layout, made.dtype)) if isinstance(one.begun, Begin) else None


def other_copies(one: object) -> object | None:
    """Updates a buffer from a tensor that nothing made."""
    assert isinstance(one, Updates)
    copies = tuple((update, Tensor(made.value, made.layout, made.dtype)) for update, made in one.copies)
    return replace(one, copies=copies) if copies else None


def enters(one: object) -> bool:
    return isinstance(one, StartGathers) and bool(one.entering)


def reads_makes(one: object) -> object:
    assert isinstance(one, Convert)
    return replace(one, reads=one.makes)


def reads_term(given: Instructions) -> Instructions | None:
    """Converts a term that is still being sent."""
    for place, one in enumerate(given):
        if isinstance(one, Compute) and one.sends is not None and one.chunked is not None:
            term, layout = one.makes[0], one.chunked.layout
            made = Tensor(term.value, layout, term.dtype)
            return [*given[: place + 1], Convert(term, made, term.layout, one.sends), *given[place + 1 :]]
    return None


def sends_more(given: Instructions) -> Instructions | None:
    """Sends a value once more, and nothing waits for it."""
    for place, one in enumerate(given):
        if isinstance(one, Begin):
            again = replace(one, makes=unknown(one.makes))
            return [*given[: place + 1], again, *given[place + 1 :]]
    return None


def unawaited_blocks(given: Instructions) -> Instructions | None:
    """Computes a product in blocks of a gather that is not waited for."""
    begun = {one.arrives for one in given if isinstance(one, Compute) and one.arrives is not None}
    left = [one for one in given if not (isinstance(one, Arrive) and one.begun in begun)]
    return left if len(left) < len(given) else None


def sends_back(one: object) -> object:
    """Sends a tensor into the place of the one that is sent."""
    assert isinstance(one, Begin)
    return replace(one, makes=one.reads)


def stale(given: Instructions) -> Instructions | None:
    """Reads a buffer after its update."""
    for place, one in enumerate(given):
        if isinstance(one, Updates) and place:
            kept = [other for other in given[:place] if isinstance(other, Keep)]
            if kept:
                again = Keep(kept[0].reads, Tensor(kept[0].reads.value, kept[0].reads.layout, kept[0].reads.dtype))
                return [*given[: place + 1], again]
    return None


def unknown(like: Tensor) -> Tensor:
    """A tensor that nothing makes."""
    return Tensor(like.value, like.layout, like.dtype)


def other_captured(one: object) -> object | None:
    assert isinstance(one, Open)
    return replace(one, captured=tuple(map(unknown, one.captured))) if one.captured else None


def branching(one: object) -> object:
    """Makes a branch depend on a tensor that nothing makes."""
    assert isinstance(one, Iterate)
    return Branch(one.loop, unknown(one.makes[0]), one.given, one.makes)


def fused(one: object) -> object | None:
    """Makes an operator a kernel that reads tensors that nothing makes."""
    assert isinstance(one, Compute)
    group = cast(Group, None)  # legality does not look at it
    return Fused(group, tuple(map(unknown, one.reads)), one.makes) if is_read(one) and one.reads else None


def placed(reads: bool, makes: bool) -> Callable[[object], object | None]:
    """Places an operator on some devices: it is given unknown tensors (`reads`), yields unknown tensors (`makes`), or
    yields none.
    """

    def change(one: object) -> object | None:
        assert isinstance(one, Compute)
        if not is_read(one) or one.deferred is not None or not one.reads:
            return None
        given = tuple(map(unknown, one.reads)) if reads else one.reads
        leaving = one.makes if reads else tuple(map(unknown, one.makes)) if makes else ()
        return Placed((), (), given, (one,), leaving)

    return change


def made_again(given: Instructions) -> Instructions | None:
    """Makes a loop return a tensor that an operator has already made."""
    made = next((one.makes[0] for one in given if isinstance(one, Compute) and is_read(one)), None)
    for place, one in enumerate(given):
        if isinstance(one, Close) and made is not None:
            return [*given[:place], replace(one, makes=(made,)), *given[place + 1 :]]
    return None


def returning(given: Instructions) -> Instructions | None:
    made = next((one.makes[0] for one in given if isinstance(one, Compute)), None)
    return None if made is None else [*given, ReturnOutputs((unknown(made),))]


def begins(one: object) -> bool:
    """Whether gathers of the function itself start here. Those of loops may also start in their first iterations."""
    return isinstance(one, StartGathers) and bool(one.gathers)


def is_read(one: object) -> bool:
    """Whether an operator's results are read directly, as most are."""
    return isinstance(one, Compute) and not one.joined and not one.sliced and one.sends is None


def is_deferring(one: object) -> bool:
    return isinstance(one, Compute) and one.deferred is not None


def is_sent(one: object) -> bool:
    return isinstance(one, Compute) and one.sends is not None


def is_among(one: object) -> bool:
    return isinstance(one, AwaitGathers) and bool(one.among)


EDITS: dict[str, tuple[Edit, str]] = {
    "a conversion is left out": (without(Convert), "read before it is there"),
    "an operator is left out": (without(Compute, is_read), "read before it is there"),
    "a wait is left out": (without(Arrive), "read before it is there|nothing waits for|runs in blocks"),
    "what is begun is left out": (without(Begin), "nothing sent it|runs in blocks"),
    "gathers are not begun": (without(StartGathers, begins), "waited for before it is gathered"),
    "gathers are not waited for": (without(AwaitGathers, is_among), "read before it is there|nothing waits for"),
    "a weight is not gathered": (without(AwaitGathers), "read before it is there|nothing waits for"),
    "a loop is not opened": (without(Open), "is not open"),
    "a loop does not iterate": (without(Iterate), "read before it is there|ends after 0"),
    "interleaved loops do not iterate": (without(Interleave), "read before it is there|ends after"),
    "a loop does not end": (without(Close), "a loop does not end"),
    "an operator runs twice": (twice(Compute), "made twice|defers what was not read"),
    "a conversion is made twice": (twice(Convert), "made twice"),
    "a wait comes twice": (twice(Arrive), "nothing sent it"),
    "a value is sent twice": (twice(Begin), "is sent twice"),
    "gathers begin twice": (twice(StartGathers, begins), "gathered twice"),
    "weights are waited for twice": (twice(AwaitGathers), "made twice|waited for before"),
    "iterations run twice": (twice(Iterate), "left out|made twice"),
    "a loop ends twice": (twice(Close), "ends after None"),
    "an operator runs first": (first(Compute), "read before it is there|defers what was not read"),
    "a conversion runs first": (first(Convert), "read before it is there"),
    "a wait comes first": (first(Arrive), "nothing sent it"),
    "iterations run first": (first(Iterate), "is not open"),
    "a loop ends first": (first(Close), "ends after None"),
    "an operator runs last": (last(Compute, is_read), "read before it is there"),
    "a conversion runs last": (last(Convert), "read before it is there"),
    "a wait comes last": (last(Arrive), "read before it is there|runs in blocks"),
    "a send comes last": (last(Begin), "nothing sent it|read before"),
    "gathers begin last": (last(StartGathers, begins), "waited for before it is gathered"),
    "a loop is opened last": (last(Open), "is not open"),
    "iterations run last": (last(Iterate), "read before it is there|ends after 0"),
    "a weight is read too late to defer": (first(Compute, is_deferring), "defers what was not read|read before"),
    "a term is sent last": (last(Compute, is_sent), "nothing sent it|read before"),
    "the first iteration is left out": (changed(Iterate, late), "left out"),
    "the last iteration is left out": (changed(Interleave, fewer), "ends after"),
    "an iteration is given what is not there": (changed(Iterate, other_given), "read before it is there"),
    "a conversion reads itself": (changed(Convert, reads_makes), "read before it is there"),
    "a weight is read for nothing": (changed(Compute, undeferred), "no operator does|nothing sent it"),
    "a buffer becomes what is not there": (changed(Updates, other_copies), "read before it is there"),
    "another value arrives": (changed(Arrive, other_arrival), "is not what was sent|read before"),
    "a value is sent and not waited for": (sends_more, "nothing waits for"),
    "blocks are not waited for": (unawaited_blocks, "runs in blocks"),
    "what is sent becomes what is there": (changed(Begin, sends_back), "made twice"),
    "gathers of a loop begin behind it": (last(StartGathers, enters), "a loop has begun|waited for before"),
    "a term is read while it is sent": (reads_term, "read while it is sent"),
    "a buffer is read behind its update": (stale, "read behind its update"),
    "a loop captures what is not there": (changed(Open, other_captured), "read before it is there"),
    "what is not there decides": (changed(Iterate, branching), "read before it is there"),
    "a kernel reads what is not there": (changed(Compute, fused), "read before it is there"),
    "some devices are given what is not there": (changed(Compute, placed(True, False)), "read before it is there"),
    "some devices make what they do not": (changed(Compute, placed(False, True)), "devices elsewhere have"),
    "what some devices make stays with them": (changed(Compute, placed(False, False)), "read before it is there"),
    "a loop ends with what was made": (made_again, "made twice|read before it is there"),
    "outputs are not there": (returning, "read before it is there"),
}


@pytest.fixture(scope="module")
def built() -> list[Function]:
    return list(schedules())


def test_what_is_built_is_legal(built: list[Function]) -> None:
    for function in built:
        check_schedule(function)
    kinds = {type(one).__name__ for function in built for one in function.instructions}
    assert {"Begin", "Arrive", "Defer", "StartGathers", "Interleave", "Iterate", "Updates", "Keep"} <= kinds


def test_each_instruction_is_its_own() -> None:
    """Two instructions with equal content are distinct: each is started, awaited, deferred or gathered on its own."""
    kinds = [kind for kind in vars(ir).values() if is_dataclass(kind) and kind.__module__ == ir.__name__]
    assert {*get_args(Instruction), Tensor, Loop, Function} == {*kinds}
    assert all(kind.__eq__ is object.__eq__ and kind.__hash__ is object.__hash__ for kind in kinds)


@dataclass(frozen=True)
class Alone:
    """An operator as a kernel of its own, in double precision."""

    nodes: tuple[PlannedNode, ...]
    dtype: str = "f64"

    @property
    def reads(self) -> tuple[tuple[Value, Layout], ...]:
        (step,) = self.nodes
        return tuple(zip(step.node.arguments, step.typed.arguments, strict=True))

    @property
    def makes(self) -> tuple[tuple[Value, Layout], ...]:
        (step,) = self.nodes
        return tuple(zip(step.node.results, step.typed.results, strict=True))


def test_kernels_read_floats_in_their_type_and_what_was_sent_when_it_arrives() -> None:
    """Each operator is one kernel: the schedule is legal, and each kernel makes what its operator makes."""
    kernels = 0
    for number in range(12):
        model = build_model(parse_model(Source("text.udl", (CHAINS, AVERAGES)[number % 2])), LIBRARY)
        plan = random_plan(model, mesh_of(*DEGREES[number % 2]), LIBRARY, Random(number))
        if sets := independent_repeats(plan):
            plan = side_by_side(plan, sets)

        def groups(steps: Sequence[PlannedNode], *_: object) -> list[Group]:
            return [Alone((step,)) for step in steps]

        for apart in (False, True):
            function = build_schedule(plan, LIBRARY, groups=groups, apart=apart)
            check_schedule(function)
            bodies = [body for one in function.instructions if isinstance(one, Open) for body in one.loop.bodies]
            for one in (one for part in (function, *bodies) for one in part.instructions if isinstance(one, Fused)):
                kernels += 1
                assert [(made.value, made.layout) for made in one.makes] == [*one.group.makes]
                assert all(read.dtype == ("f64" if read.value.dtype != "int" else "int") for read in one.reads)
    assert kernels > 50


def test_no_operator_comes_twice_where_outputs_come_first() -> None:
    """Operators that only the loss needs are computed after the outputs."""
    for number in range(12):
        model = build_model(parse_model(Source("text.udl", (LAYERS, CHAINS, AVERAGES)[number % 3])), LIBRARY)
        plan = random_plan(model, mesh_of(*DEGREES[number % 2]), LIBRARY, Random(number))
        function = build_schedule(plan, LIBRARY, apart=True)
        names = [one.step.node.name for one in function.instructions if isinstance(one, Compute)]
        assert len(names) == len({*names})


@pytest.mark.parametrize("name", EDITS)
def test_what_no_program_can_run_is_refused(name: str, built: list[Function]) -> None:
    """In every schedule to which the edit applies, except for a few in which it changes nothing."""
    edit, reason = EDITS[name]
    refused = made = 0
    for function in built:
        edited = edit(list(function.instructions))
        if edited is None:
            continue
        made += 1
        try:
            check_schedule(replace(function, instructions=tuple(edited)))
        except IllegalSchedule as found:
            assert re.search(reason, str(found)), f"{name}: {found}"
            refused += 1
    assert made, f"no schedule has it: {name}"
    assert refused >= 0.7 * made, f"{name}: {refused} of {made}"


def test_bodies_are_checked_too(built: list[Function]) -> None:
    for function in built:
        for place, one in enumerate(function.instructions):
            if isinstance(one, Open):
                body = one.loop.bodies[0]
                wrong = replace(body, instructions=body.instructions[1:])
                loop = replace(one.loop, bodies=(wrong, *one.loop.bodies[1:]))
                edited = [*function.instructions[:place], replace(one, loop=loop), *function.instructions[place + 1 :]]
                with pytest.raises(IllegalSchedule, match=body.path):
                    check_schedule(replace(function, instructions=tuple(edited)))
                return
    raise AssertionError(f"no loops: {Loop}")
