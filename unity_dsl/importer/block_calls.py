"""Replaces modules by a user's blocks of the language, and calls a block with operands found by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import Tensor, nn

from ..graph.blocks import inside
from ..graph.model_graph import build_model
from ..index.declarations.loading import library_of, library_sources
from ..syntax.ast import BlockDecl, If, ModelStatement, Nested, StorageDecl, UpdateStatement
from ..syntax.diagnose import terminal_texts
from ..syntax.diagnostic import InputError, fail, suggest
from ..syntax.parse_model import parse_model
from ..syntax.span import Source
from .blocks import Block
from .translation import Entry, Prepared, Translation
from .views import View
from .whole_calls import CLASSES, Replacement, WholeCall

Replacing = Callable[[Any], Block]


def replaces(module_class: type[nn.Module]) -> Callable[[Replacing], Replacing]:
    """Registers a function that makes, from a module of this class, the block that replaces it in imported models.

    Operands of the block are found by name among the arguments of the module's `forward` and its parameters and
    buffers. Arguments in a tuple `state` are named `state_0`, `state_1`. Dots become underscores, and a reserved word
    of the language gets an underscore appended: `weight_`. The block returns the tensors that `forward` returns, in
    order. Subclasses without their own `forward` are replaced too. Raises TypeError for anything but a class of
    modules.
    """
    if not isinstance(module_class, type) or not issubclass(module_class, nn.Module):
        raise TypeError(f"replaces({module_class!r}): not a class of torch.nn.Module")

    def register(function: Replacing) -> Replacing:
        CLASSES[module_class] = Replacement(lambda walk, call: called_block(walk, call, _made(function, call)))
        return function

    return register


def _made(function: Replacing, call: WholeCall) -> Block:
    told = f"the function that replaces {_kind(call)}"
    try:
        found = function(call.module)
    except Exception as reason:
        line = f"{type(reason).__name__}: {reason}".splitlines()[0]
        raise fail("E611", f"{told} cannot be called: {line}", help=_RETURNED) from None
    if not isinstance(found, Block):
        raise fail("E611", f"{told} returned {type(found).__name__}", help=_RETURNED)
    for name, value in found.settings.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise fail(
                "E611", f"{told} sets `{name}` to {type(value).__name__}", help="parameters of blocks are numbers"
            )
    return found


_RETURNED = "it takes the module and returns unity_dsl.Block(text, parameter=number)"


def called_block(walk: Translation, call: WholeCall, block: Block) -> list[Entry]:
    """The results of a block that replaces a module's call.

    Raises InputError for faults of its text, and E612 where it does not fit the module: operands that the module
    lacks, arguments that it does not read, or other results than `forward` returns.
    """
    name, kind = f"block of {call.name}", _kind(call)
    declared = _declared(name, block.text)
    operands = [_operand(walk, call, declared, operand, block.bounds.get(operand)) for operand in declared.inputs]
    unread = [argument for argument in call.given if _written(argument) not in declared.inputs]
    if unread:
        told = f"block `{declared.name}` does not read `{unread[0]}`, which is passed to {kind}"
        raise fail("E612", told, declared.span, help=f"an operand `{_written(unread[0])}` is that argument")
    if not call.results:
        raise fail("E612", f"{kind} returns no tensors", help="replace a module that returns some")
    text = _checked_text(block, declared.inputs, operands, call.results)
    results = walk.call(block, operands, call.results)
    for view, bound in zip(results, _bounds(Source(name, text), call, declared.name), strict=True):
        view.value.bound = bound
    return list(results)


def _kind(call: WholeCall) -> str:
    """The name of a call's class or function, without the package."""
    return call.name.rpartition(".")[2]


def _declared(name: str, text: str) -> BlockDecl:
    """The single block of a text. Raises InputError."""
    file = parse_model(Source(name, f"{text}\n{_MODEL}  input given: f32[1]\n  output given\n"))
    if len(file.blocks) != 1:
        count = len(file.blocks)
        raise fail("E612", f"the text has {count} blocks, where one is called", file.span, help="write one block")
    for statement in _statements(file.blocks[0].body):
        if isinstance(statement, StorageDecl | UpdateStatement):
            help = "parameters and buffers of the module are operands of the block, by name"
            raise fail(
                "E612", "a block that replaces a module declares and updates no tensors", statement.span, help=help
            )
    return file.blocks[0]


_MODEL = "model checked\n"


def _statements(body: Sequence[ModelStatement]) -> Iterator[ModelStatement]:
    for statement in body:
        yield statement
        if isinstance(statement, Nested | If):
            yield from _statements(inside(statement))


def _operand(walk: Translation, call: WholeCall, block: BlockDecl, name: str, bound: int | None) -> View:
    """The tensor of this name among the call's arguments, parameters and buffers. An integer one has values below the
    bound.
    """
    kind = _kind(call)
    known = {_written(own): entry for own, entry in {**call.own, **call.given}.items()}
    if name not in known:
        plain = {_written(own): told for own, told in call.plain.items()}
        if name in plain:
            told = f"operand `{name}` of block `{block.name}` is {plain[name]} where {kind} is called"
            help = "operands are tensors; numbers of the module are parameters of the block"
            raise fail("E612", told, block.span, help=help)
        told = f"block `{block.name}` reads `{name}`, which {kind} neither is called with nor has"
        help = suggest(name, known) or f"there are {', '.join(f'`{one}`' for one in known)}"
        raise fail("E612", told, block.span, help=help)
    entry = known[name]
    example = entry.example if isinstance(entry, Prepared) else entry
    if isinstance(example, Tensor) and not example.is_floating_point():
        bound = bound or max(2, int(example.max()) + 1)
        if isinstance(entry, Prepared):
            walk.as_input(entry, bound)
        else:
            return walk.constant(entry, name, bound)
    return walk.spread(walk.view(entry))


def _written(name: str) -> str:
    """A Python name as it is written in a block."""
    return f"{name}_" if name in terminal_texts("udl").values() else name


def _checked_text(
    block: Block, names: Sequence[str], operands: Sequence[View], results: Sequence[Sequence[int]]
) -> str:
    """The block and a model that only calls it, on inputs with the shapes of these operands."""
    lines = [block.text, _MODEL.strip()]
    for name, view in zip(names, operands, strict=True):
        kind = "f32" if view.value.bound is None else f"int<{view.value.bound}>"
        lines.append(f"  input {name}: {kind}[{', '.join(map(str, view.shape))}]")
    made = [f"result_{number}" for number in range(1, len(results) + 1)]
    settings = ", ".join(f"{key}={value}" for key, value in block.settings.items())
    called = f"{block.name}[{settings}]" if settings else block.name
    lines += [f"  {', '.join(made)} = {called}({', '.join(names)})", *(f"  output {name}" for name in made)]
    return "\n".join(lines) + "\n"


def _bounds(source: Source, call: WholeCall, name: str) -> list[int | None]:
    """How many values each result has, None for floats. Raises InputError where the block cannot be called like this,
    or returns other shapes than the module.
    """
    kind = _kind(call)
    wanted = ", ".join(str(list(shape)) for shape in call.results)
    help = "it returns the tensors that the module's forward returns, in the same order"
    try:
        model = build_model(parse_model(source), library_of(library_sources(())))
    except InputError as reason:
        if reason.diagnostic.code != "E212":
            raise
        told = f"{reason.diagnostic.message.partition(' for ')[0]} where {kind} returns {len(call.results)}"
        raise fail("E612", told, reason.diagnostic.span, help=help) from None
    found = [tuple(value.shape) for value in model.outputs]
    if found != [tuple(shape) for shape in call.results]:
        told = ", ".join(str(list(shape)) for shape in found)
        raise fail("E612", f"block `{name}` returns {told} where {kind} returns {wanted}", help=help)
    return [value.integer_range for value in model.outputs]
