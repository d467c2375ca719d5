"""Torch text of the forward pass: operators in order, conversions before their first use.

What only updates of buffers need comes last, and runs in training alone, without gradients.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from ..graph.chunked_products import NONE
from ..graph.delayed_gradients import WeightProduct
from ..graph.graph import Segment, Value, computed_from
from ..graph.interleaved_repeats import in_turns
from ..graph.layout import Layout
from ..graph.placed_order import in_stretches
from ..graph.plan import PlannedGraph, PlannedNode, PlannedSegment, Run, run_again
from ..graph.precision import SUMMED, emitted_arithmetic, operand_types, result_types
from ..graph.reused_operands import updated_in_place
from ..graph.shared_calls import SharedCalls
from ..graph.value_names import spoken_name
from ..syntax.ast import Initialiser
from .body_loops import Passed, carried_names, find_loops, iterations
from .comment_words import body_words, layout_word, loop_words, origin, roles, where
from .gathering_text import Ungathered, add_gathered, add_gathers, announce, gathers_first
from .interleaved_text import add_interleaved, arrive, depart
from .module_text import ModuleText, Repeat, Stored, body_name, name_constants, stores_anything
from .operator_text import Place, operator_text
from .overlapped_products_text import add_travelling, find_chunks, find_delays, product_call
from .placed_text import add_placed
from .program_names import Names, float_type, path
from .program_state import Copies, Program
from .shared_call_text import is_shared
from .source_lines import block, statement

if TYPE_CHECKING:
    from .kernels.operator_groups import OperatorGroup


class ForwardText:
    """Writes the body of one forward method. `state` is what holds groups, seed and the like: `self` or `model`.
    `prefix` stands before the paths of its segments.
    """

    def __init__(
        self,
        program: Program,
        planned: PlannedGraph,
        module: ModuleText,
        names: Names,
        outside: dict[str, Copies],
        state: str,
        prefix: str = "",
    ) -> None:
        self.program = program
        self.planned = planned
        self.module = module
        self.names = names
        self.state = state
        self.prefix = prefix
        self.detached = False
        self.leaving: set[str] = {update.value.name for update in planned.graph.updates}
        self.written: set[int] = set()
        self.announced: dict[str, str] = {}
        self.ungathered: dict[str, Ungathered] = {}  # weights that are gathered where they are read
        self.held: dict[str, Copies] = {}
        self.shared = SharedCalls(planned, program.mesh, program.library)
        self.travelling: dict[str, str] = {}  # what holds a value that is on its way
        self.joined: dict[str, list[str]] = {}  # what is joined later: the variables of its parts
        self.delayed: dict[str, tuple[WeightProduct, str]] = {}
        self.alone: set[str] = set()
        self.delays = {} if module.in_turns else find_delays(program, planned)
        self.chunks, self.departed = NONE, dict[tuple[str, Layout], str]()
        for name, held in outside.items():
            self.held[name] = held
            if name in planned.values:
                held.sources |= {made.layout: made.source for made in planned.values[name].materialised}
        graph = planned.graph
        changed = updated_in_place(planned)
        self.updates_left = [update for update in graph.updates if update.buffer.name not in changed]
        self.updated = frozenset(path("self", update.buffer.name, "_buffers") for update in self.updates_left)
        for weight in graph.weights:
            self.store(weight.value, weight.initialiser, trained=True, decays=weight.decays)
        for buffer in graph.buffers:
            self.store(buffer.value, buffer.initialiser, trained=False)

    def store(self, value: Value, initialiser: Initialiser, *, trained: bool, decays: bool = False) -> None:
        layout = self.planned.values[value.name].produced
        self.module.stored.append(Stored(value.name, value, layout, initialiser, trained, decays))
        self.program.collectives.owned |= bool(layout.placement)
        registry = "_parameters" if trained else "_buffers"
        self.add(value, path("self", value.name, registry), layout, parameter=trained)

    def add(self, value: Value, variable: str, layout: Layout, *, parameter: bool = False) -> None:
        """A value that exists from here on; a term of the loss times its share of a step of several batches."""
        number = self.program.shares.get(value.name) if self.state == "self" and not self.prefix else None
        if number is not None:
            whole, variable = variable, self.names.fresh(f"{variable}_share")
            self.module.lines += statement(f"{variable} = {whole} * self.shares[{number}]", "see `counted`")
        planned = self.planned.values.get(value.name)
        sources = {made.layout: made.source for made in planned.materialised} if planned else {}
        stored = variable if value.is_cast else None
        variables = {} if stored else {layout: variable}
        self.held[value.name] = Copies(value, layout, variables, sources, parameter, stored)

    def write(self, wanted: Sequence[tuple[Value, Layout]]) -> list[str]:
        """All steps and updates. Returns the variables that hold these values, as they are before the updates."""
        results = self.compute(wanted)
        late = [step for number, step in enumerate(self.planned.steps) if number not in self.written]
        if self.updates_left or late:
            self.updates(late)
        return results

    def compute(self, wanted: Sequence[tuple[Value, Layout]]) -> list[str]:
        """The steps that these values are computed from and that are not written yet. Returns as `write`."""
        _, numbers = computed_from(self.planned.graph, [value for value, _ in wanted])
        left = numbers - self.written
        self.written |= left
        self.leaving |= {value.name for value, _ in wanted}
        if not self.module.in_turns:
            self.chunks = find_chunks(self.program, self.planned, self.leaving)
        self.steps(self.planned.steps[number] for number in sorted(left))
        return [self.before_updates(value, layout) for value, layout in wanted]

    def steps(self, steps: Iterable[PlannedNode | PlannedSegment]) -> None:
        """Operators one after the other; what those between two bodies gather comes before them."""
        stretches = [list(stretch) for _, stretch in groupby(steps, lambda step: isinstance(step, PlannedNode))]
        for number, stretch in enumerate(stretches, 1):
            following = stretches[number] if number < len(stretches) else []
            nodes = [step for step in stretch if isinstance(step, PlannedNode)]
            if nodes:
                add_gathers(self, nodes, following)
            for placement, same in in_stretches(nodes):
                add_placed(self, same, placement) if placement else self.operators(same)
            bodies = (step for step in stretch if isinstance(step, PlannedSegment))
            for together in in_turns(bodies, () if self.prefix else self.program.interleaved):
                after = following if together[-1] is stretch[-1] else []
                add_interleaved(self, together, after) if len(together) > 1 else self.segment(together[0], after)

    def operators(self, steps: Sequence[PlannedNode]) -> None:
        grouped = list(self.grouped(steps))
        self.alone |= {step.node.name for step in grouped if isinstance(step, PlannedNode)}
        for step in grouped:
            self.node(step) if isinstance(step, PlannedNode) else self.kernel(step)

    def grouped(self, nodes: Sequence[PlannedNode]) -> Iterable[PlannedNode | OperatorGroup]:
        """The steps, those that run as one kernel together."""
        kernels = self.program.kernels
        return nodes if kernels is None else kernels.groups(nodes, self.planned, self.leaving, self.detached)

    # ------------------------------------------------------------------------------------------ updates

    def updates(self, steps: Sequence[PlannedNode | PlannedSegment]) -> None:
        """The new values of buffers that no operator has changed in place, all from the old ones.

        Such a buffer is another tensor from then on: what the backward pass keeps of the old one stays what it was.
        """
        before, self.module.lines = self.module.lines, []
        self.detached = True
        self.steps(steps)
        updates = self.updates_left
        layouts = [self.planned.values[update.buffer.name].produced for update in updates]
        values = [self.before_updates(update.value, layout) for update, layout in zip(updates, layouts, strict=True)]
        for update, value in zip(updates, values, strict=True):
            copy = f"to({self.float_type(update.buffer.dtype)}, copy=True)"
            same = update.value.dtype == update.buffer.dtype
            code = f"{path('self', update.buffer.name, '_buffers')} = {value}.{'clone()' if same else copy}"
            self.module.lines += statement(code, f"{where(update.span)}update")
        inner = [f"        {line}" for line in self.module.lines]
        self.module.lines = [*before, f"if {self.state}.training:", "    with torch.no_grad():", *inner]

    def before_updates(self, value: Value, layout: Layout) -> str:
        """The variable of a value; where that is a buffer which is updated, one that keeps the old tensor."""
        variable = self.variable(value, layout)
        if variable not in self.updated:
            return variable
        name = self.names.fresh(f"{value.name}_before")
        self.module.lines += statement(f"{name} = {variable}")
        return name

    # ------------------------------------------------------------------------------------------ values

    def variable(self, value: Value, layout: Layout, dtype: str | None = None) -> str:
        """The variable that holds a value in a layout, in a float type of its own if `dtype` says so; conversion and
        cast are written where there is none yet.
        """
        held, given = self.held[value.name], self.converted(value, layout)
        if dtype in (None, "int", value.dtype):
            return given
        assert dtype is not None
        if (given, dtype) not in held.cast:
            held.cast[given, dtype] = self.cast(value.name, given, value.dtype, dtype)
        return held.cast[given, dtype]

    def cast(self, name: str, given: str, source: str, target: str) -> str:
        """A variable for a value in another float type."""
        arrive(self, [given], others_first=False)
        cast = self.names.fresh(f"{name}_{target}")
        self.module.lines += statement(
            f"{cast} = {given}.to({self.float_type(target)})",
            f"{source} -> {'f32 on a CPU' if target == SUMMED else target}",
        )
        return cast

    def float_type(self, dtype: str) -> str:
        """The text of a float type: what the program computes in, or what is as wide as what it stores."""
        return float_type(self.state, dtype, self.program.mixed)

    def converted(self, value: Value, layout: Layout) -> str:
        """The variable that holds a value in a layout."""
        while value.name in self.ungathered:
            add_gathered(self, next(iter(self.ungathered.values())))
        held = self.held[value.name]
        if not value.needs_gradient:
            layout = layout.without_copies
            held.variables = {found.without_copies: text for found, text in held.variables.items()}
            # Invariant made from Replicate, or the other way, is the same tensor: the first source is the real one.
            sources: dict[Layout, Layout] = {}
            for made, source in held.sources.items():
                sources.setdefault(made.without_copies, source.without_copies)
            held.sources = sources
        if layout not in held.variables:
            held.variables[layout] = self.convert(held, layout)
        return held.variables[layout]

    def convert(self, held: Copies, layout: Layout) -> str:
        value = held.value
        produced = held.produced if value.needs_gradient else held.produced.without_copies
        source = held.sources.get(layout, produced)
        # A weight is cast on its way, as its gradient is; a buffer before that.
        stored = held.stored if source == produced and (value.is_weight or layout == produced) else None
        if stored and layout == produced:
            return self.cast(value.name, stored, value.stored_dtype, value.dtype)
        gradient = value.needs_gradient and not self.detached
        parameter = held.parameter and source == produced and gradient
        in_buckets = value.is_weight and source == produced
        ahead = in_buckets and self.program.weights.ahead.begins(value, source, layout)
        found = self.program.collectives.conversion(
            source,
            layout,
            value.shape,
            value.bytes,
            value.stored_bytes,
            gradient=gradient,
            in_buckets=in_buckets,
            ahead=ahead,
            deferred=parameter,
        )
        if found is None:
            return self.converted(value, source)
        given = [stored or self.converted(value, source), f"{self.state}.{'sync' if found.deferred else 'groups'}"]
        arrive(self, given[:1], others_first=False)
        name = self.names.fresh(f"{value.name}_{layout_word(layout)}")
        comment = f"{source} -> {layout}" if source.kinds else ""
        if self.module.in_turns and not held.parameter and not stored and found.travels:
            depart(self, name, found.name, given, comment)
            return name
        if gradient and add_travelling(self, (value.name, layout), name, found.name, given, comment):
            return name
        if stored:
            given.append(self.float_type(value.dtype))
            comment += f", {value.stored_dtype} -> {value.dtype}"
        self.module.lines += statement(f"{name} = parallel.{found.name}({', '.join(given)})", comment)
        return name

    # ------------------------------------------------------------------------------------------ operators

    def node(self, step: PlannedNode) -> None:
        if self.program.kernels is None and is_shared(self, step):
            return
        node, typed = step.node, replace(step.typed, native=step.native)
        program = self.program
        dtype = emitted_arithmetic(node, typed.native, program.library)
        reads = zip(node.arguments, typed.arguments, operand_types(node, dtype), strict=True)
        arguments = [self.variable(value, layout, wanted) for value, layout, wanted in reads]
        arrive(self, arguments)
        call = product_call(self, step, arguments)
        states = {number: arguments[operand] for number, operand in typed.reuse.states}
        sent = "_sent" if call is not None and call.given else ""
        named = [spoken_name(node, value, program.library.operators) + sent for value in node.results]
        results = [states.get(number) or self.names.fresh(name) for number, name in enumerate(named)]
        made, casts = [*results], []
        for number, (value, own) in enumerate(zip(node.results, result_types(node, dtype), strict=True)):
            if own != value.dtype:
                made[number] = self.names.fresh(f"{value.name}_{own}")
                casts.append(f"{results[number]} = {made[number]}.to({self.float_type(value.dtype)})")
        shared = self.names, program.mesh, program.library, program.collectives, self.state
        words = origin(node, self.roles(step))
        numbers = self.site(node.site), self.float_type(dtype), program.micro_batches, program.constants, words
        place = Place(*shared, *numbers, call, padded=self.padded(step))
        lines = [*operator_text(node.instance, typed, arguments, made, place), *casts]
        if place.random:
            self.program.random = self.module.sites = True
        self.module.lines += block(lines, words)
        for value, layout, name in zip(node.results, typed.results, results, strict=True):
            self.add(value, name, layout)
        if sent:
            self.departed[node.results[0].name, self.chunks.leaving[node.name].layout] = results[0]

    def padded(self, step: PlannedNode) -> tuple[int, int] | None:
        """The columns of a product that is padded, and how many more it has then. What runs in chunks is not."""
        program, in_chunks = self.program, self.chunks.reading(step) or step.node.name in self.chunks.leaving
        if program.padding is None or in_chunks:
            return None
        return program.padding.columns(self.prefix + step.node.name, step, program.mesh, program.library)

    def roles(self, step: PlannedNode) -> str:
        operands = [operand.name for operand in step.node.instance.inputs]
        return roles(step.typed.configuration, self.program.mesh, operands)

    def kernel(self, group: OperatorGroup) -> None:
        """Operators that run as one kernel."""
        assert self.program.kernels is not None
        made = self.program.kernels.function(group)
        given = [
            self.variable(value, layout, None if value.dtype == "int" else group.dtype) for value, layout in group.reads
        ]
        arrive(self, given)
        if made.draws:
            self.program.random = self.module.sites = True
            given.append(self.site(group.site))
        makers = {value.name: step.node for step in group.nodes for value in step.node.results}
        known = self.program.library.operators
        named = (spoken_name(makers[value.name], value, known) for value, _ in group.makes)
        results = list(map(self.names.fresh, named))
        call = f"{', '.join(results)} = kernels.{made.name}({', '.join([self.state, *given])})"
        first, *others = (step.node for step in group.nodes)
        words = ", ".join([f"{where(first.span)}{first.instance.name}", *(node.instance.name for node in others)])
        self.module.lines += statement(call, words)
        for (value, layout), name in zip(group.makes, results, strict=True):
            self.add(value, name, layout)

    def site(self, number: int) -> str:
        """The random site, which counts a repeat's iterations."""
        if self.state == "self":
            return str(number)
        stride = self.program.random_sites
        return f"{number} + {'' if stride == 1 else f'{stride} * '}{self.index}"

    @property
    def index(self) -> str:
        """Which iteration of the bodies around it this is: what a module knows and a function is given."""
        return "self.index" if self.module.stores else "index"

    # ------------------------------------------------------------------------------------------ bodies

    def segment(self, step: PlannedSegment, following: Sequence[PlannedNode | PlannedSegment]) -> None:
        """A repeat, scan or cond. What the steps that follow gather is on its way in the last iteration of a loop."""
        segment, border = step.segment, step.border
        taken = [self.variable(value, layout) for value, layout in border.reads(segment)]
        captured, slices = taken[: len(segment.captured)], taken[len(segment.captured) :]
        if segment.predicate is not None:
            self.cond(step, captured, taken[-1])
            return
        carried: list[str] = []
        parts = self.unbind(step, slices)
        stacks = [self.names.fresh(f"{series.whole.name}_parts") for series in segment.stacked]
        self.module.lines += [f"{stack} = []" for stack in stacks]
        modules = [self.body(step, run, number) for number, run in enumerate(step.runs)]
        stores = [module.stores for module in modules]
        for loop in find_loops(step, self.planned, stores, self.run_again(segment)):
            run, end = loop.run, loop.run.first + loop.run.count
            layouts = [run.body.values[value.name].produced for value in segment.entry]
            given = segment.initial if run.first == 0 else segment.results
            carries = zip(given, layouts, segment.entry, strict=True)
            current = [self.variable(value, layout, entry.dtype) for value, layout, entry in carries]
            carried = carried or list(carried_names(self, segment, current))
            ahead, then = segment.count > 1 and any(modules[number].gathers for number in loop.numbers), ""
            if segment.count > 1:
                then = gathers_first(step, modules, end) if end < segment.count else announce(self, following)
            passed = Passed(carried, current, parts, captured, stacks, ahead or bool(then), then, loop.again)
            self.iterate(step, run, modules[loop.numbers[0]], passed)
            leaving = step.leaving(loop.numbers[-1], self.planned)
            for value, name, layout in zip(segment.results, carried, leaving, strict=True):
                self.add(value, name, layout)
        bodies = [(module, run.first, run.count) for module, run in zip(modules, step.runs, strict=True)]
        self.keep(segment, bodies)
        for series, layout, stack in zip(segment.stacked, border.stacked, stacks, strict=True):
            name = self.names.fresh(series.whole.name)
            self.module.lines += statement(f"{name} = torch.stack({stack}, {series.dim})")
            self.add(series.whole, name, layout.inserted(series.dim))

    def run_again(self, segment: Segment) -> int:
        """Of a segment's iterations, so many first ones the backward pass runs again."""
        program = self.program
        return run_again(self.prefix + segment.name, segment.count, program.recomputed, program.kept_iterations)

    def unbind(self, step: PlannedSegment, slices: Sequence[str]) -> list[str]:
        """Variables that hold the slices of what a scan reads, by position."""
        names = []
        for series, whole in zip(step.segment.sliced, slices, strict=True):
            names.append(self.names.fresh(f"{series.part.name}_parts"))
            self.module.lines += statement(f"{names[-1]} = {whole}.unbind({series.dim})")
        return names

    def cond(self, step: PlannedSegment, captured: Sequence[str], decides: str) -> None:
        """What a cond replaces has one layout, whether its body is executed or not."""
        segment, border = step.segment, step.border
        (run,) = step.runs
        module = self.body(step, run, 0)
        carries = zip(segment.initial, border.carried, segment.entry, strict=True)
        current = [self.variable(value, layout, entry.dtype) for value, layout, entry in carries]
        carried = list(carried_names(self, segment, current))
        self.keep(segment, [(module, 0, 1)])
        targets = f"{', '.join(carried)} = " if carried else ""
        if carried != current:
            self.module.lines += statement(f"{targets}{', '.join(current)}")
        self.module.lines += statement(f"if {decides}.item():", f"{where(segment.span)}cond as {segment.name}")
        index = "0" if self.state == "self" else self.index
        called = path("self", segment.name, "_modules") if module.stores else module.name
        given = [*carried, *captured, self.state, *([index] if module.sites and not module.stores else [])]
        call = self.call(called, given, again=self.run_again(segment) > 0)
        self.module.lines += statement(f"{targets}{call}", indent="    ")
        for value, name, layout in zip(segment.results, carried, border.carried, strict=True):
            self.add(value, name, layout)

    def keep(self, segment: Segment, bodies: Sequence[tuple[ModuleText, int, int]]) -> None:
        """The modules of bodies that store something; others are functions."""
        if any(module.stores for module, _, _ in bodies):
            repeat = Repeat(segment.name, segment.count, tuple(bodies), alone=segment.predicate is not None)
            name_constants(repeat, self.program.modules, self.program.classes)
            self.module.repeats.append(repeat)
        self.module.sites |= any(module.sites for module, _, _ in bodies)

    def body(self, step: PlannedSegment, run: Run, number: int, *, in_turns: bool = False) -> ModuleText:
        """The class of a run's iterations, or the function if they store nothing."""
        segment, program = step.segment, self.program
        stores = stores_anything(run.body.graph)
        name = body_name(step, number, stores, self.names, program.classes)
        module = ModuleText(name, body_words(step, run), stores=stores, in_turns=in_turns)
        names = Names(("index",))
        parameters = [names.fresh(value.name) for value in segment.entry]
        parts = [names.fresh(series.part.name) for series in segment.sliced]
        outside = {}
        for value, layout in zip(segment.captured, step.border.captured, strict=True):
            held = self.held[value.name]
            name = names.fresh(value.name)
            parameter = held.parameter and held.stored is None and layout == held.produced
            outside[value.name] = Copies(value, layout, {layout: name}, {}, parameter)
            module.parameters.append(name)
        module.parameters[:0] = [*parameters, *parts]
        body = ForwardText(program, run.body, module, names, outside, "model", f"{self.prefix}{segment.name}.")
        for value, name in zip(segment.entry, parameters, strict=True):
            body.add(value, name, run.body.values[value.name].produced)
        for series, name, layout in zip(segment.sliced, parts, step.border.sliced, strict=True):
            body.add(series.part, name, layout)
        leaves = [*zip(segment.exit, step.leaving(number, self.planned), strict=True)]
        leaves += [(series.part, layout) for series, layout in zip(segment.stacked, step.border.stacked, strict=True)]
        module.results = body.write(leaves)
        arrive(body, module.results)
        for number, (value, entry) in enumerate(zip(segment.exit, segment.entry, strict=True)):
            if value.dtype != entry.dtype:
                module.results[number] += f".to({body.float_type(entry.dtype)})"
        program.modules.append(module)
        return module

    def call(self, body: str, given: Sequence[str], *, again: bool) -> str:
        """The text of one execution of a body, whose forward may be run again."""
        if again:
            return f"{self.state}.recomputed({', '.join([body, *given])})"
        return f"{body}({', '.join(given)})"

    def iterate(self, step: PlannedSegment, run: Run, module: ModuleText, passed: Passed) -> None:
        """The iterations of a run, or of several that are one loop: the only one, or a loop."""
        segment, once = step.segment, run.count == 1
        lines = self.module.lines
        modules = path("self", segment.name, "_modules")
        words = f"{where(segment.span)}{loop_words(segment)}"
        counted = bool(segment.sliced or (module.sites and not module.stores))
        variable = str(run.first)
        if once and passed.ahead:
            begun = filter(None, (f"{modules}[{run.first}].gathers()" if module.gathers else "", passed.then))
            lines += statement(f"{self.state}.gathered.start({', '.join(begun)})")
        if not once:
            if list(passed.carried) != list(passed.current):
                lines += statement(f"{', '.join(passed.carried)} = {', '.join(passed.current)}")
            variable = self.names.fresh(segment.name.rpartition(".")[2])
            first, last = ("" if run.first == 0 else f"{run.first}, "), run.first + run.count
            over = (
                iterations(modules, range(run.first, last), segment.count) if module.stores else f"range({first}{last})"
            )
            if passed.ahead:
                over = f"{self.state}.gathered.ahead({', '.join(filter(None, (over, passed.then)))})"
            lines += statement(f"for {variable if module.stores or counted else '_'} in {over}:", words)
        called = module.name if not module.stores else f"{modules}[{run.first}]" if once else variable
        given = [*(passed.current if once else passed.carried), *(f"{part}[{variable}]" for part in passed.parts)]
        given += [*passed.captured, self.state]
        if module.sites and not module.stores:
            given.append(variable if self.state == "self" else f"{segment.count} * {self.index} + {variable}")
        made = [self.names.fresh(stack.replace("_parts", "_part")) for stack in passed.stacks]
        targets = ", ".join([*passed.carried, *made])
        call = f"{targets} = " * bool(targets) + self.call(called, given, again=passed.again)
        indent = "" if once else "    "
        lines += statement(call, words if once else "", indent=indent)
        for stack, part in zip(passed.stacks, made, strict=True):
            lines += statement(f"{stack}.append({part})", indent=indent)
