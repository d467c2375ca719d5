"""Torch text of forward methods: the statements of every instruction in a schedule's function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from ..graph.plan import PlannedNode
from ..graph.precision import SUMMED, emitted_arithmetic, result_types
from ..graph.value_names import spoken_name
from ..schedule import ir
from ..schedule.loops import stores_anything
from .body_loops import carried_names, iterations
from .comment_words import body_words, layout_word, loop_words, origin, roles, where
from .gathering_text import add_awaited, add_start, gathers_first, list_gathers
from .interleaved_text import add_arrive, add_begin, add_interleaved
from .module_text import ModuleText, Repeat, Stored, body_name, name_constants
from .operator_text import Place, operator_text
from .overlapped_products_text import add_deferred, product_call
from .placed_text import add_placed
from .program_names import Names, float_type, path
from .program_state import Program
from .shared_call_text import add_joined, add_split
from .source_lines import block, statement

if TYPE_CHECKING:
    from .kernels.operator_groups import OperatorGroup


class ForwardText:
    """Writes the body of one forward method. `state` is the object that has groups, seed and the like: `self` or
    `model`. `on_outputs` writes the early return of outputs alone, in the forward of the model itself.
    """

    def __init__(
        self,
        program: Program,
        function: ir.Function,
        module: ModuleText,
        names: Names,
        state: str,
        on_outputs: Callable[[Sequence[str]], None] = lambda outputs: None,
    ) -> None:
        self.program, self.function, self.module, self.names = program, function, module, names
        self.state, self.on_outputs = state, on_outputs
        self.plain = False
        self.variables: dict[ir.Tensor, str] = {}
        self.variables_of: dict[str, set[str]] = {}
        self.sent: dict[ir.Begin | ir.Compute, str] = {}
        self.deferred: dict[ir.Defer, str] = {}
        self.listed: dict[tuple[ir.Convert, ...], str] = {}
        self.modules: dict[ir.Loop, list[ModuleText]] = {}
        self.captured: dict[ir.Loop, list[str]] = {}
        self.carried: dict[ir.Loop, list[str]] = {}
        self.slices: dict[ir.Loop, list[str]] = {}
        self.stacks: dict[ir.Loop, list[str]] = {}
        graph = function.planned.graph
        kinds = [(one, True, one.decays) for one in graph.weights] + [(one, False, False) for one in graph.buffers]
        for tensor, (stored, trained, decays) in zip(function.stored, kinds, strict=True):
            value = tensor.value
            module.stored.append(Stored(value.name, value, tensor.layout, stored.initialiser, trained, decays))
            program.collectives.owned |= bool(tensor.layout.placement)
            self.add([tensor], [path("self", value.name, "_parameters" if trained else "_buffers")])

    def add(self, tensors: Sequence[ir.Tensor], variables: Sequence[str]) -> None:
        """Names values that exist from here on. A term of the loss is multiplied by its share of a step over several
        batches.
        """
        for tensor, variable in zip(tensors, variables, strict=True):
            own = self.state == "self" and not self.function.path
            number = self.program.shares.get(tensor.value.name) if own else None
            if number is not None:
                whole, variable = variable, self.names.fresh(f"{variable}_share")
                self.module.lines += statement(f"{variable} = {whole} * self.shares[{number}]", "see `counted`")
            self.variables_of[tensor.value.name] = set()
            self.name(tensor, variable)

    def name(self, tensor: ir.Tensor, variable: str) -> None:
        """Records the variable that holds a tensor from here on."""
        self.variables[tensor] = variable
        if tensor.dtype == tensor.value.dtype:
            self.variables_of.setdefault(tensor.value.name, set()).add(variable)

    def variable(self, tensor: ir.Tensor) -> str:
        """The variable that holds a tensor."""
        return self.variables[tensor]

    def write(self) -> list[str]:
        """Writes all instructions. Returns the variables that hold the results."""
        for instruction in self.function.instructions:
            self.instruction(instruction)
        return [self.variables[tensor] for tensor in self.function.results]

    def instruction(self, instruction: ir.Instruction) -> None:
        """Writes the statements of an instruction."""
        match instruction:
            case ir.Compute():
                self._compute(instruction)
            case ir.Fused():
                self._fused(instruction)
            case ir.Convert():
                self._convert(instruction)
            case ir.Cast():
                self._cast(instruction)
            case ir.Begin():
                add_begin(self, instruction)
            case ir.Arrive():
                add_arrive(self, instruction)
            case ir.Defer():
                add_deferred(self, instruction)
            case ir.StartGathers():
                add_start(self, instruction)
            case ir.AwaitGathers():
                add_awaited(self, instruction)
            case ir.Open():
                self._open(instruction)
            case ir.Iterate():
                self._iterate(instruction)
            case ir.Branch():
                self._branch(instruction)
            case ir.Interleave():
                add_interleaved(self, instruction)
            case ir.Close():
                self._close(instruction)
            case ir.Placed():
                add_placed(self, instruction)
            case ir.Updates():
                self._update(instruction)
            case ir.Keep():
                name = self.names.fresh(f"{instruction.reads.value.name}_before")
                self.module.lines += statement(f"{name} = {self.variables[instruction.reads]}")
                self.variables[instruction.makes] = name
            case ir.ReturnOutputs():
                self.on_outputs([self.variables[tensor] for tensor in instruction.reads])

    # ------------------------------------------------------------------------------------------ values

    def float_type(self, dtype: str) -> str:
        """The text of a float type: the program's compute type, or in mixed precision one of its wider types."""
        return float_type(self.state, dtype, self.program.mixed)

    def _cast(self, cast: ir.Cast) -> None:
        given, target = cast.reads, cast.makes.dtype
        code = f"{self.variables[given]}.to({self.float_type(target)})"
        if cast.returned:
            self.variables[cast.makes] = code
            return
        name = self.names.fresh(f"{given.value.name}_{target}")
        words = f"{given.dtype} -> {'f32 on a CPU' if target == SUMMED else target}"
        self.module.lines += statement(f"{name} = {code}", words)
        self.name(cast.makes, name)

    def _convert(self, convert: ir.Convert) -> None:
        given, made, value = convert.reads, convert.makes, convert.reads.value
        source, target, collectives = convert.source, made.layout, self.program.collectives
        found = collectives.between(convert.conversion, source, target, value.shape, deferred=convert.parameter)
        over = f"{self.state}.{'sync' if found.deferred else 'groups'}"
        arguments, comment = [self.variables[given], over], f"{source} -> {target}" if source.kinds else ""
        name = self.names.fresh(f"{value.name}_{layout_word(target)}")
        if given.dtype != made.dtype:
            arguments.append(self.float_type(made.dtype))
            comment += f", {given.dtype} -> {made.dtype}"
        self.module.lines += statement(f"{name} = parallel.{found.name}({', '.join(arguments)})", comment)
        self.name(made, name)

    def _update(self, update: ir.Updates) -> None:
        """Writes the new values of buffers. An updated buffer becomes a new tensor, so that what the backward pass
        saved of the old one does not change.
        """
        before, self.module.lines = self.module.lines, []
        self.plain = True
        for instruction in update.body:
            self.instruction(instruction)
        for one, tensor in update.copies:
            copy = f"to({self.float_type(one.buffer.dtype)}, copy=True)"
            same = one.value.dtype == one.buffer.dtype
            buffer = path("self", one.buffer.name, "_buffers")
            code = f"{buffer} = {self.variables[tensor]}.{'clone()' if same else copy}"
            self.module.lines += statement(code, f"{where(one.span)}update")
        self.plain = False
        inner = [f"        {line}" for line in self.module.lines]
        self.module.lines = [*before, f"if {self.state}.training:", "    with torch.no_grad():", *inner]

    # ------------------------------------------------------------------------------------------ operators

    def _compute(self, compute: ir.Compute) -> None:
        step, node, program = compute.step, compute.step.node, self.program
        if compute.joined or compute.sliced:
            return
        if compute.parts:
            add_joined(self, compute)
            return
        if compute.slices:
            add_split(self, compute)
            return
        typed = replace(step.typed, native=step.native)
        dtype = emitted_arithmetic(node, typed.native, program.library)
        arguments = [self.variables[tensor] for tensor in compute.reads]
        call = product_call(self, compute, arguments)
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
        padded = None if compute.chunked else self.padded_columns(step)
        place = Place(*shared, *numbers, call, padded=padded)
        lines = [*operator_text(node.instance, typed, arguments, made, place), *casts]
        if place.random:
            program.random = self.module.sites = True
        self.module.lines += block(lines, words)
        self.add(compute.makes, results)
        if sent:
            self.sent[compute] = results[0]

    def padded_columns(self, step: PlannedNode) -> tuple[int, int] | None:
        """The columns of a product that is padded, and how many are added; None if it is not padded. It is not called
        for decomposed matmuls, which are never padded.
        """
        program = self.program
        if program.padding is None:
            return None
        return program.padding.columns(self.function.path + step.node.name, step, program.mesh, program.library)

    def roles(self, step: PlannedNode) -> str:
        """What each mesh axis does for an operator."""
        operands = [operand.name for operand in step.node.instance.inputs]
        return roles(step.typed.configuration, self.program.mesh, operands)

    def _fused(self, fused: ir.Fused) -> None:
        """Writes the call of a kernel that computes several operators."""
        kernels, group = self.program.kernels, cast("OperatorGroup", fused.group)
        assert kernels is not None, "they are asked for"
        made = kernels.function(group)
        given = [self.variables[tensor] for tensor in fused.reads]
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
        self.add(fused.makes, results)

    def site(self, number: int) -> str:
        """The text of the random site, which in a body depends on the iteration."""
        if self.state == "self":
            return str(number)
        stride = self.program.random_sites
        return f"{number} + {'' if stride == 1 else f'{stride} * '}{self.index}"

    @property
    def index(self) -> str:
        """The text of the enclosing bodies' iteration index: an attribute of a module, an argument of a function."""
        return "self.index" if self.module.stores else "index"

    # ------------------------------------------------------------------------------------------ bodies

    def _open(self, opened: ir.Open) -> None:
        """Writes the bodies of a loop, and unbinds the tensors of which each iteration takes a slice."""
        loop, segment = opened.loop, opened.loop.step.segment
        self.captured[loop] = [self.variables[tensor] for tensor in opened.captured]
        self.slices[loop] = []
        for series, whole in zip(segment.sliced, opened.sliced, strict=True):
            name = self.names.fresh(f"{series.part.name}_parts")
            self.slices[loop].append(name)
            self.module.lines += statement(f"{name} = {self.variables[whole]}.unbind({series.dim})")
        self.stacks[loop] = [self.names.fresh(f"{series.whole.name}_parts") for series in segment.stacked]
        self.module.lines += [f"{stack} = []" for stack in self.stacks[loop]]
        self.modules[loop] = [self._body(loop, number) for number in range(len(loop.bodies))]

    def _body(self, loop: ir.Loop, number: int) -> ModuleText:
        """The class of a run's iterations, or a function if they store nothing."""
        function, step, program = loop.bodies[number], loop.step, self.program
        stores = stores_anything(function.planned.graph)
        name = body_name(step, number, stores, self.names, program.classes)
        module = ModuleText(name, body_words(step, step.runs[number]), stores=stores, interleaved=function.interleaved)
        names = Names(("index",))
        body = ForwardText(program, function, module, names, "model")
        given = (*function.entering, *function.captured)
        module.parameters += [names.fresh(tensor.value.name) for tensor in given]
        body.add(given, module.parameters)
        module.results = body.write()
        program.modules.append(module)
        return module

    def _close(self, closed: ir.Close) -> None:
        """Stacks what iterations made, and registers the modules of bodies that store something. Other bodies are
        functions.
        """
        loop, segment = closed.loop, closed.loop.step.segment
        modules, runs = self.modules[loop], loop.step.runs
        if loop.offloaded:
            self.module.lines.append(f"{self.state}.host.finish()")
        if any(module.stores for module in modules):
            bodies = tuple((module, run.first, run.count) for module, run in zip(modules, runs, strict=True))
            repeat = Repeat(segment.name, segment.count, bodies, alone=segment.predicate is not None)
            name_constants(repeat, self.program.modules, self.program.classes)
            self.module.repeats.append(repeat)
        self.module.sites |= any(module.sites for module in modules)
        for series, stack, made in zip(segment.stacked, self.stacks[loop], closed.makes, strict=True):
            name = self.names.fresh(series.whole.name)
            self.module.lines += statement(f"{name} = torch.stack({stack}, {series.dim})")
            self.add([made], [name])

    def _branch(self, branch: ir.Branch) -> None:
        """Writes a cond. The values that it replaces have the same layout whether its body runs or not."""
        loop, segment = branch.loop, branch.loop.step.segment
        (module,) = self.modules[loop]
        current = [self.variables[tensor] for tensor in branch.given]
        results = [value.name for value in segment.results]
        carried = list(carried_names(self, branch.given, current, results))
        targets = f"{', '.join(carried)} = " if carried else ""
        if carried != current:
            self.module.lines += statement(f"{targets}{', '.join(current)}")
        decides = self.variables[branch.decides]
        self.module.lines += statement(f"if {decides}.item():", f"{where(segment.span)}cond as {segment.name}")
        index = "0" if self.state == "self" else self.index
        called = path("self", segment.name, "_modules") if module.stores else module.name
        given = [*carried, *self.captured[loop], self.state, *([index] if module.sites and not module.stores else [])]
        self.module.lines += statement(
            f"{targets}{self._call(called, given, 'recomputed' if loop.again else '')}", indent="    "
        )
        self.add(branch.makes, carried)

    def _call(self, body: str, given: Sequence[str], how: str) -> str:
        """The text of one execution of a body. `how` names the wrapper that recomputes or offloads what is saved for
        backward.
        """
        if how:
            return f"{self.state}.{how}({', '.join([body, *given])})"
        return f"{body}({', '.join(given)})"

    def _iterate(self, iterate: ir.Iterate) -> None:
        """Writes the iterations of a run, or of several runs that share a loop. A single iteration is a call without a
        loop.
        """
        loop, run, segment, once = iterate.loop, iterate.run, iterate.loop.step.segment, iterate.run.count == 1
        module, lines, modules = (
            self.modules[loop][iterate.numbers[0]],
            self.module.lines,
            path("self", segment.name, "_modules"),
        )
        current = [self.variables[tensor] for tensor in iterate.given]
        if loop not in self.carried:
            results = [value.name for value in segment.results]
            self.carried[loop] = list(carried_names(self, iterate.given, current, results))
        carried = self.carried[loop]
        then = list_gathers(self, iterate.then) if iterate.then else ""
        if segment.count > iterate.end:
            then = gathers_first(loop, iterate.end)
        prefetches = bool(then) or (segment.count > 1 and any(loop.bodies[number].first for number in iterate.numbers))
        words = f"{where(segment.span)}{loop_words(segment)}"
        counted = bool(segment.sliced or (module.sites and not module.stores))
        variable = str(run.first)
        if once and prefetches:
            begun = filter(None, (f"{modules}[{run.first}].gathers()" if module.gathers else "", then))
            lines += statement(f"{self.state}.gathered.start({', '.join(begun)})")
        if not once:
            if carried != current:
                lines += statement(f"{', '.join(carried)} = {', '.join(current)}")
            variable = self.names.fresh(segment.name.rpartition(".")[2])
            numbers = range(run.first, iterate.end)
            first = "" if run.first == 0 else f"{run.first}, "
            over = iterations(modules, numbers, segment.count) if module.stores else f"range({first}{iterate.end})"
            if prefetches:
                over = f"{self.state}.gathered.prefetch_next({', '.join(filter(None, (over, then)))})"
            lines += statement(f"for {variable if module.stores or counted else '_'} in {over}:", words)
        called = module.name if not module.stores else f"{modules}[{run.first}]" if once else variable
        given = [*(current if once else carried), *(f"{part}[{variable}]" for part in self.slices[loop])]
        given += [*self.captured[loop], self.state]
        if module.sites and not module.stores:
            given.append(variable if self.state == "self" else f"{segment.count} * {self.index} + {variable}")
        made = [self.names.fresh(stack.replace("_parts", "_part")) for stack in self.stacks[loop]]
        targets, indent = ", ".join([*carried, *made]), "" if once else "    "
        how = "recomputed" if iterate.again else "offloaded" if iterate.offloaded else ""
        call = f"{targets} = " * bool(targets) + self._call(called, given, how)
        lines += statement(call, words if once else "", indent=indent)
        for stack, part in zip(self.stacks[loop], made, strict=True):
            lines += statement(f"{stack}.append({part})", indent=indent)
        self.add(iterate.makes, carried)
