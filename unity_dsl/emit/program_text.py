"""Renders model.py and parallel.py of a plan from their templates (codegen/model.py.j2, codegen/parallel.py.j2)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import groupby
from typing import Any

from ..graph.graph import Model, Value, computed_from
from ..graph.layout import Layout, Shard, invariant
from ..graph.local_lowering import declared_cut
from ..graph.plan import Plan, updates_again
from ..graph.precision import FULL, TF32, is_mixed
from ..graph.reused_operands import with_reused_operands
from ..index.library import Library
from ..index.lowering.division import global_positions
from ..index.lowering.torch_term import word
from ..schedule.build import build_schedule, output_layout
from ..schedule.legality import check_schedule
from ..simulation.offloading_tasks import LEAST_BYTES
from ..syntax.ast import Number
from .column_padding import ColumnPadding
from .constant_text import ConstantsText
from .conversion_text import Collectives
from .forward_text import ForwardText
from .input_parts import InputPart, input_parts, part_entries, write_inputs
from .kernels.contraction_choice import ContractionChoice
from .loss_shares_text import LossShares, loss_shares
from .micro_batch_text import joined_outputs
from .module_text import ModuleText, Repeat, Stored
from .output_text import gathering_lines, outputs_text
from .parallel_text import render_collectives
from .placed_text import stored_size
from .plan_file import TORCH, TRITON
from .program_facts import program_facts
from .program_names import STATE, TORCH_TYPES, Names, docstring_text, is_plain_attribute, path
from .program_state import Program
from .smaller_sizes import NONE, SmallerSizes
from .source_lines import broken, returning, statement
from .templates import template, tuple_text
from .torch_text import term_text


@dataclass(frozen=True)
class ProgramText:
    """The parts of a program's two files, before the templates lay them out. `optional` names the inputs that only the
    loss needs. `smaller` says which dimensions of inputs may be smaller outside training. `gathering` are the lines
    that gather the outputs of a training step, none if they are whole already. `parts` are the inputs that a rank reads
    only in part; `shares` weight the terms of the loss over several batches.
    """

    plan: Plan
    program: Program
    module: ModuleText
    signature: list[str]
    optional: tuple[str, ...] = ()
    smaller: SmallerSizes = field(default_factory=dict)
    gathering: tuple[str, ...] = ()
    parts: Mapping[str, InputPart] = field(default_factory=dict)
    shares: LossShares | None = None


def render_model(text: ProgramText, imports: Sequence[str] = ()) -> str:
    """model.py: the model as one module that every rank runs. `imports` are other modules of the program's folder."""
    plan, program = text.plan, text.program
    mesh = plan.mesh
    modules = [*program.modules, text.module]
    containers = [part for module in modules for part in _containers(module)]
    guarded = any(part.rpartition(".")[2] == "training" for module in modules for part in _dotted(module))
    text_lines = [line for module in modules for line in module.lines]
    kernel_lines = (
        [line for kernel in program.kernels.known.values() for line in kernel.torch] if program.kernels else []
    )
    beside = {
        "kernels": program.kernels and program.kernels.known,
        "offload": bool(plan.passes.offloaded),
        "parallel": mesh.size > 1,
    }
    narrow = any(_is_narrow(stored) for module in modules for stored in module.stored)
    helpers = {"factory": narrow, "surrogate": any("surrogate(" in line for line in text_lines)}
    return template("model.py.j2").render(
        title=docstring_text(plan.model.name),
        machine=docstring_text(plan.machine),
        facts=list(program_facts(plan)),
        imports=imports,
        beside=[name for name, needed in beside.items() if needed],
        draws=any(draw in line for draw in ("uniform(", "at_least(") for line in text_lines),
        helpers=[name for name, needed in helpers.items() if needed],
        own_gradients=program.own_gradients,
        narrow=helpers["factory"],
        world=mesh.size,
        mesh=tuple_text(f'("{axis.name}", {axis.degree})' for axis in mesh.axes),
        hash=_hash(plan),
        dtype=TORCH_TYPES[_dtype(plan.model)],
        tf32=plan.model.precision == TF32,
        compute_dtype=TORCH_TYPES[plan.model.precision or FULL] if program.mixed else None,
        sums=any(".sum_dtype" in line for line in (*text_lines, *kernel_lines)),
        shares=text.shares,
        several=len(text.optional) > 1,
        smaller=bool(text.smaller),
        parts=list(part_entries(plan, text.parts)),
        trained=plan.model.loss is not None,
        bucket_mib=plan.passes.bucket_mib,
        outputs=bool(plan.model.outputs),
        gathering=text.gathering,
        optional=bool(text.optional),
        constants=list(_constants(text)),
        random=program.random,
        gathered=program.gathered,
        freed=sorted(plan.passes.regathered),
        held=program.constants.lines if program.constants else [],
        recomputed=bool(plan.passes.recomputed),
        offloaded=bool(plan.passes.offloaded),
        interleaved=any(module.interleaved for module in program.modules),
        updating=updates_again(plan.graph, plan.passes.recomputed),
        blocks=("guarded" if guarded else "plain") if containers else "",
        modules=[_class(module, text) for module in program.modules],
        sync=bool(program.collectives.parameters),
        storage=list(_storage(text.module, text)),
        collisions=_collisions(text.module),
        signature="\n".join(text.signature),
        lines=text.module.lines,
        division=plan.division,
        joined=list(joined_outputs(plan)),
        cuts=sorted(_cuts(text)),
        owned=text.program.collectives.owned,
        padded_inputs=any(given.value.unpadded for given in plan.model.graph.inputs),
        padded_weights=any(one.value.unpadded for module in modules for one in module.stored),
    )


def render_kernels(text: ProgramText) -> str | None:
    """kernels.py: the groups of operators that run as GPU kernels; None if there are none."""
    kernels = text.program.kernels
    if kernels is None or not kernels.known:
        return None
    return kernels.file_text(docstring_text(text.plan.model.name), text.plan.model.precision == TF32)


def render_offload() -> str:
    """offload.py: keeps in host memory what iterations save for backward."""
    return template("offload.py.j2").render(least=LEAST_BYTES)


def render_parallel(text: ProgramText) -> str:
    """parallel.py: the groups, conversions and gradient synchronisation that this plan uses, and nothing else."""
    program = text.program
    facts = program.gathered, program.mixed, bool(text.plan.passes.recomputed)
    interleaved = any(module.interleaved for module in program.modules)
    products = sorted(program.products)
    return render_collectives(
        text.plan.model.name, program.collectives, *facts, interleaved, products, chunked=program.chunked
    )


def write_down(
    plan: Plan,
    library: Library,
    smaller: SmallerSizes = NONE,
    kernels: str = TORCH,
    contractions: ContractionChoice | None = None,
    padding: ColumnPadding | None = None,
) -> ProgramText:
    """Walk the plan once and write every line of the forward, and everything that it needs. `kernels` is one of
    KERNELS. With Triton kernels, `contractions` chooses the matrix products that become kernels. `padding` chooses the
    products whose columns are padded.
    """
    mesh, graph = plan.mesh, plan.graph
    if kernels != TRITON:  # Triton kernels allocate their results
        graph = with_reused_operands(graph, plan.model, mesh, library, plan.passes.recomputed)
    sites = max((node.site for node in graph.graph.nodes()), default=0)
    collectives = Collectives(mesh, library, plan.conversions)
    mixed, several, calls = is_mixed(plan.model), plan.division is not None, None
    if kernels == TRITON:
        from .kernels.kernel_calls import KernelCalls  # imports the kernel writers, which few programs need

        calls = KernelCalls(mesh, library, collectives, mixed, several, contractions)
    program = Program(
        mesh, library, collectives, Names(("Block",)), sites, mixed, several, plan.passes.skew, calls, padding
    )
    shares = loss_shares(plan.model, collectives)
    program.shares = shares.numbers if shares is not None else {}
    if any(plan.model.weights()):  # weights determine the type and device of constants
        program.constants = ConstantsText(bool(smaller))
    module, names = ModuleText("Model", ()), Names()
    optional, parts = _optional(plan.model), input_parts(plan)
    whole = {given.value.name: invariant(mesh) for given in graph.graph.inputs}
    function = build_schedule(
        replace(plan, graph=graph),
        library,
        given=whole | {name: part.layout for name, part in parts.items()},
        apart=bool(optional),
        groups=None if calls is None else calls.groups,
    )
    check_schedule(function)
    variables = {tensor.value.name: names.fresh(tensor.value.name) for tensor in function.inputs}
    sizes = names.fresh("sizes") if smaller else ""
    if sizes:
        module.lines.append(f"{sizes} = None if self.training else {{}}  # of the dimensions that may be smaller")
    outputs = [output_layout(plan, value) for value in plan.model.outputs]
    gathering = tuple(gathering_lines(plan.model, program.collectives, outputs))
    returned = "" if plan.model.loss is None else names.fresh("outputs")

    def on_outputs(made: Sequence[str]) -> None:
        module.lines += statement(f"{returned} = {outputs_text(plan.model, made)}")
        missing = " and ".join(f"{variables[name]} is None" for name in optional)
        alone = f"self.gather({returned})" if gathering else returned
        module.lines += [f"if {missing}:  # there is no loss", f"    return None, {alone}"]
        write_inputs(forward, [one for one in function.inputs if one.value.name in optional], variables, sizes, parts)

    forward = ForwardText(program, function, module, names, "self", on_outputs)
    write_inputs(forward, [one for one in function.inputs if one.value.name not in optional], variables, sizes, parts)
    if plan.model.loss is None:
        made = forward.write()
        module.lines += statement(f"return None, {outputs_text(plan.model, made)}")
    else:
        minimised, *made = forward.write()
        if not optional:
            module.lines += statement(f"{returned} = {outputs_text(plan.model, made)}")
        then = f"{returned} if self.training else self.gather({returned})" if gathering else returned
        module.lines += statement(f"return {minimised}, {then}")
    if program.collectives.parameters:
        module.lines[:0] = ["self.sync.begin(self.accumulating, self.bucket_bytes)"]
    signature = _signature(variables, optional, plan.model, module)
    return ProgramText(plan, program, module, signature, optional, smaller, gathering, parts, shares)


def _optional(model: Model) -> tuple[str, ...]:
    """Names of the inputs that only the loss needs. A call without them returns the outputs alone."""
    if model.loss is None or not model.outputs:
        return ()
    needed, _ = computed_from(model.graph, model.outputs)
    return tuple(given.value.name for given in model.graph.inputs if given.value.name not in needed)


def _signature(variables: Mapping[str, str], optional: Sequence[str], model: Model, module: ModuleText) -> list[str]:
    """The lines of the forward's signature: inputs by name, optional ones last. If an input's name is reserved by
    Python or by the program, all inputs come in a dictionary.
    """
    loss = "None" if model.loss is None else "Tensor | None" if optional else "Tensor"
    result = f"-> tuple[{loss}, dict[str, Tensor]]"
    if all(name == variable for name, variable in variables.items()):
        arguments = [f"{name}: Tensor" for name in variables if name not in optional]
        arguments += [f"{name}: Tensor | None = None" for name in optional]
        return broken(f"def forward({', '.join(['self', *arguments])}) {result}:", "    ")
    module.lines[:0] = [
        f"{variable} = inputs.get({json.dumps(name)})"
        if name in optional
        else f"{variable} = inputs[{json.dumps(name)}]"
        for name, variable in variables.items()
    ]
    if "self" not in variables:
        return [f"    def forward(self, **inputs: Tensor) {result}:"]
    return [
        f"    def __call__(self, /, **inputs: Tensor) {result}:",
        "        return super().__call__(inputs)  # an input has the name `self`",
        "",
        f"    def forward(self, inputs: dict[str, Tensor]) {result}:",
    ]


# ---------------------------------------------------------------------------------------------- constants


def _dtype(model: Model) -> str:
    """The float type that the program stores: f32 for a model with a precision and for one without floats."""
    if model.precision is not None:
        return FULL
    values = (*model.returned, *(weight.value for _, weight in model.weights()))
    return next((value.dtype for value in values if value.dtype != "int"), FULL)


def _hash(plan: Plan) -> str:
    """Hash of the model at its parameters, the same for every number of devices and micro-batches."""
    shapes = [(name, weight.value.model_shape) for name, weight in plan.model.weights()]
    described = repr((plan.model.name, sorted(plan.parameters.items()), shapes))
    return sha256(described.encode()).hexdigest()[:16]


def _constants(text: ProgramText) -> Iterator[str]:
    inputs = [given.value for given in text.plan.graph.graph.inputs]
    yield _dict("INPUTS", [f"{json.dumps(value.name)}: {_tensor_spec(value, text)}" for value in inputs], "TensorSpec")
    if text.plan.model.loss is not None and text.plan.model.outputs:
        yield _dict("OUTPUTS", list(_output_specs(text.plan)), "OutputSpec")
    for module in [*text.program.modules, text.module]:
        for trained in (True, False) if module.base is None else ():
            own = list(_entries(module, trained, text.plan.model))
            if own or module is text.module:
                yield _dict(module.constants[not trained], own, "ParameterSpec")


def _dict(name: str, entries: Sequence[str], kind: str) -> str:
    lines = [line for entry in entries for line in broken(f"{entry},", "    ")]
    head = f"{name}: dict[str, {kind}] = {{"
    return "\n".join([head, *lines, "}"]) if lines else f"{head}}}"


def _tensor_spec(value: Value, text: ProgramText) -> str:
    limit = f", {value.integer_range}" if value.integer_range is not None else ""
    limit += ", optional=True" if value.name in text.optional else ""
    if value.name in text.smaller:
        names = (json.dumps(name) if name is not None else "None" for name in text.smaller[value.name])
        limit += f", sizes={tuple_text(list(names))}"
    return f'TensorSpec({tuple_text(map(str, value.model_shape))}, "{TORCH_TYPES[value.dtype]}"{limit})'


def _output_specs(plan: Plan) -> Iterator[str]:
    for name, value in zip(plan.model.output_names, plan.model.outputs, strict=True):
        kinds = tuple_text(json.dumps(str(kind)) for kind in output_layout(plan, value).kinds)
        yield f"{json.dumps(name)}: OutputSpec({tuple_text(map(str, value.shape))}, {kinds})"


def _entries(module: ModuleText, trained: bool, model: Model) -> Iterator[str]:
    for stored in module.stored:
        if stored.trained is trained:
            shape = tuple_text(map(str, stored.value.model_shape))
            kinds = tuple_text(json.dumps(kind) for kind in _kinds(stored.layout))
            numbers = [repr(n.value) for n in stored.initialiser.arguments if isinstance(n, Number)]
            start = tuple_text([json.dumps(stored.initialiser.name), *numbers])
            kept = ", decays=False" if trained and model.loss is not None and not stored.decays else ""
            if stored.value.unpadded:
                kept += f", padded={tuple_text(map(str, stored.value.shape))}"
            yield f"{json.dumps(stored.name)}: ParameterSpec({shape}, {kinds}, {start}{kept})"
    for repeat in module.repeats:
        for constants, group in groupby(repeat.runs, key=lambda run: run[0].constants[not trained]):
            runs = list(group)
            if any(_has_stored(runs[0][0], trained)):
                name = json.dumps(repeat.name)[1:-1]
                if repeat.alone:
                    yield f'**{{f"{name}.{{name}}": spec for name, spec in {constants}.items()}}'
                    continue
                first, last = runs[0][1], runs[-1][1] + runs[-1][2]
                span = f"{last}" if first == 0 else f"{first}, {last}"
                loop = f"for i in range({span}) for name, spec in {constants}.items()"
                yield f'**{{f"{name}.{{i}}.{{name}}": spec {loop}}}'


def _has_stored(module: ModuleText, trained: bool) -> Iterator[bool]:
    yield from (stored.trained is trained for stored in module.stored)
    for repeat in module.repeats:
        for inner, _, _ in repeat.runs:
            yield from _has_stored(inner, trained)


def _kinds(layout: Layout) -> Iterator[str]:
    """The layout kinds of a stored tensor by mesh axis. Raises ValueError if axes divide a dimension in another order
    than the mesh's.
    """
    for dim in {kind.dim for kind in layout.kinds if isinstance(kind, Shard)}:
        if list(layout.nesting(dim)) != sorted(layout.nesting(dim)):
            raise ValueError(f"a stored tensor is divided in another order than the mesh's: {layout}")
    yield from map(str, layout.kinds)


def _cuts(text: ProgramText) -> set[str]:
    """Per declared cut of a stored tensor, a dictionary entry as text: an element's position, computed from the
    device's index and the local index.
    """
    mesh, library = text.plan.mesh, text.program.library
    found = set()
    for module in [*text.program.modules, text.module]:
        for stored in module.stored:
            for dim, extent in enumerate(stored.value.shape):
                for axis in stored.layout.nesting(dim):
                    kind, degree = stored.layout.kinds[axis], mesh.axes[axis].degree
                    assert isinstance(kind, Shard)
                    if kind.by != "partition":
                        cut = declared_cut(kind.by, degree, extent, word("device"), library)
                        position = term_text(global_positions(word("local"), [cut]), str)
                        found.add(f"({json.dumps(kind.by)}, {degree}, {extent}): lambda device, local: {position},")
                    extent //= degree
    return found


# ---------------------------------------------------------------------------------------------- classes


def _class(module: ModuleText, text: ProgramText) -> dict[str, Any]:
    arguments = ", ".join([*(f"{name}: Tensor" for name in module.parameters), "model: Model"])
    several, results = module.interleaved or len(module.results) > 1, ", ".join(module.results)
    kind = f"tuple[{', '.join('Tensor' for _ in module.results)}]" if several else "Tensor"
    kind = f"Iterator[{kind} | None]" if module.interleaved else kind if module.results else "None"
    if module.interleaved:
        lines = [*module.lines, *statement(f"yield ({results}{',' * (len(module.results) == 1)})")]
    else:
        lines = returning(module.lines, module.results) if module.results else module.lines
    if module.stores:
        head = f"def forward(self, {arguments}) -> {kind}:"
    else:
        index = ", index: int" if module.sites else ""
        head = f"def {module.name}({arguments}{index}) -> {kind}:"
    return {
        "name": module.name,
        "base": module.base and module.base.name,
        "words": "\n    ".join(map(docstring_text, module.words)),
        "stores": module.stores,
        "sites": module.sites,
        "storage": list(_storage(module, text)) or (["pass"] if not module.sites else []),
        "collisions": _collisions(module),
        "gathers": module.gathers,
        "signature": "\n".join(broken(head, "    " if module.stores else "")),
        "lines": lines,
    }


def _storage(module: ModuleText, text: ProgramText) -> Iterator[str]:
    """The statements that create a module's parameters, buffers and submodules."""
    made: set[str] = set()
    for stored in module.stored:
        yield from _make_containers(stored.name, made)
        factory = "**factory" if stored.value.dtype != "int" else 'dtype=torch.int64, device=factory["device"]'
        if _is_narrow(stored):
            factory = f"**factory.narrow(torch.{TORCH_TYPES[stored.value.stored_dtype]})"
        size = stored_size(stored.layout, stored.value.shape, text.plan.mesh)
        tensor = f"torch.empty({size}, {factory})"
        comment = f"{stored.layout} of {list(stored.value.shape)}" if stored.layout.kinds else ""
        yield from statement(_registered(stored, tensor), comment)
    for repeat in module.repeats:
        yield from _make_containers(repeat.name, made)
        yield from broken(f"{path('self', repeat.name, '_modules')} = {_module_list(repeat, module)}")


def _is_narrow(stored: Stored) -> bool:
    """Whether this is a buffer stored in another float type than the other tensors."""
    return not stored.trained and stored.value.cast_from is not None


def _registered(stored: Stored, tensor: str) -> str:
    holder, _, last = stored.name.rpartition(".")
    parent = path("self", holder, "_modules") if holder else "self"
    if stored.trained:
        frozen = "" if stored.value.needs_gradient else ", requires_grad=False"
        return f"{path('self', stored.name, '_parameters')} = nn.Parameter({tensor}{frozen})"
    if is_plain_attribute(last):
        return f"{parent}.register_buffer({json.dumps(last)}, {tensor})"
    return f"{parent}._buffers[{json.dumps(last)}] = {tensor}"


def _module_list(repeat: Repeat, module: ModuleText) -> str:
    if repeat.alone:
        ((inner, _, _),) = repeat.runs
        index = "" if not inner.sites else ", 0" if module.name == "Model" else ", self.index"
        return f"{inner.name}(factory{index})"
    parts = []
    for inner, first, count in repeat.runs:
        outer = "" if module.name == "Model" else f"{repeat.count} * self.index + "
        if count == 1 and len(repeat.runs) > 1:
            parts.append(f"{inner.name}(factory{f', {outer}{first}' if inner.sites else ''})")
            continue
        index = f", {outer}i" if inner.sites else ""
        span = f"{count}" if first == 0 else f"{first}, {first + count}"
        loop = f"{inner.name}(factory{index}) for {'i' if index else '_'} in range({span})"
        if len(repeat.runs) == 1:
            return f"nn.ModuleList({loop})"
        parts.append(f"*({loop})")
    return f"nn.ModuleList([{', '.join(parts)}])"


def _make_containers(name: str, made: set[str]) -> Iterator[str]:
    *parts, _ = name.split(".")
    for count in range(1, len(parts) + 1):
        container = ".".join(parts[:count])
        if container not in made:
            made.add(container)
            yield f"{path('self', container, '_modules')} = Block()"


def _dotted(module: ModuleText) -> Iterator[str]:
    yield from (stored.name for stored in module.stored if "." in stored.name)
    yield from (repeat.name for repeat in module.repeats if "." in repeat.name)


def _containers(module: ModuleText) -> Iterator[str]:
    yield from (name.rpartition(".")[0] for name in _dotted(module))


def _collisions(module: ModuleText) -> str:
    """Names of stored tensors and submodules that are also attributes which the module sets later, as the text of a
    tuple. Empty if there are none.
    """
    names = {name.split(".")[0] for name in (*(s.name for s in module.stored), *(r.name for r in module.repeats))}
    found = sorted(names & STATE)
    return tuple_text(map(json.dumps, found)) if found else ""
