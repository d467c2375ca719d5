"""Blocks of a `.udl` file: their call graph, checked to be free of recursion and of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..index.library import Library
from ..syntax.ast import (
    Assign,
    Binary,
    BlockDecl,
    Call,
    Collect,
    Cond,
    If,
    Loss,
    ModelExpr,
    ModelFile,
    ModelStatement,
    Name,
    Nested,
    Number,
    Output,
    Repeat,
    Return,
    Scan,
    StorageDecl,
    UpdateStatement,
    View,
)
from ..syntax.diagnostic import Label, fail
from ..syntax.span import Span

DEEPEST = 32
LARGEST = 20_000
LONGEST = 192
"""Limits with all blocks inlined: the nesting of blocks and repeats, the number of operators, the nesting of calls."""


def blocks_by_name(file: ModelFile, library: Library) -> dict[str, BlockDecl]:
    """The blocks of a file.

    Raises E206 (two of one name, or an operator's), E209 (a block that calls itself) or E226 (nested too deep, too many
    operators).
    """
    blocks: dict[str, BlockDecl] = {}
    for block in file.blocks:
        if block.name in blocks:
            notes = _note(blocks[block.name].span, "first declared here")
            raise fail("E206", f"block `{block.name}` is declared twice", block.span, notes=notes)
        if block.name in library.operators or block.name == "split":
            raise fail("E206", f"block `{block.name}` has the name of an operator", block.span, help="rename the block")
        blocks[block.name] = block
    extents: dict[str, _Extent] = {}
    for name in blocks:
        _measure_block(name, blocks, extents, ())
    whole = _measure(file.model.body, blocks, extents, ())
    if whole.depth > DEEPEST:
        message = f"blocks and repeats are nested {whole.depth} deep, {DEEPEST} is the limit"
        raise fail("E226", message, file.model.span)
    if whole.operators > LARGEST:
        message = f"{whole.operators} operators with all blocks written out, {LARGEST} is the limit"
        raise fail("E226", message, file.model.span, help="`repeat` writes its body out once")
    if whole.calls > LONGEST:
        message = f"calls are nested {whole.calls} deep with all blocks written out, {LONGEST} is the limit"
        raise fail("E226", message, file.model.span, help="name intermediate results on lines of their own")
    return blocks


@dataclass(frozen=True)
class _Extent:
    """The size of a body with its blocks inlined: operators, the nesting depth of blocks and repeats, and the nesting
    depth of calls in expressions.
    """

    operators: int
    depth: int
    calls: int


def _measure_block(
    name: str, blocks: Mapping[str, BlockDecl], extents: dict[str, _Extent], path: tuple[str, ...]
) -> _Extent:
    """The extent of a block. Each block is measured once, after the blocks that it calls."""
    if name not in extents:
        inner = _measure(blocks[name].body, blocks, extents, (*path, name))
        extents[name] = _Extent(inner.operators, inner.depth + 1, inner.calls)
    return extents[name]


def _measure(
    statements: Iterable[ModelStatement],
    blocks: Mapping[str, BlockDecl],
    extents: dict[str, _Extent],
    path: tuple[str, ...],
) -> _Extent:
    """The extent of statements. `path` are the blocks that are being measured; a call of one of them is a cycle."""
    operators = depth = calls = 0
    for statement in statements:
        if isinstance(statement, Nested | If):
            inner = _measure(inside(statement), blocks, extents, path)
            operators, depth = operators + inner.operators, max(depth, inner.depth + isinstance(statement, Nested))
            calls = max(calls, inner.calls)
        for node in (node for expr in expressions(statement) for node in walk(expr)):
            if isinstance(node, Call) and node.function in blocks:
                _check_cycle(node, blocks, path)
                inner = _measure_block(node.function, blocks, extents, path)
                operators, depth = operators + inner.operators, max(depth, inner.depth)
            elif isinstance(node, Call | Binary | View):
                operators += 1
        calls = max((calls, *(_nesting(expr, extents) for expr in expressions(statement))))
    return _Extent(operators, depth, calls)


def _nesting(expr: ModelExpr, extents: Mapping[str, _Extent]) -> int:
    """How many calls stand inside one another. The blocks that are called have been measured."""
    match expr:
        case Call(function=function, arguments=arguments):
            inside = extents[function].calls if function in extents else 0
            return 1 + max((inside, *(_nesting(argument, extents) for argument in arguments)))
        case Binary(left=left, right=right):
            return 1 + max(_nesting(left, extents), _nesting(right, extents))
        case View(operand=operand):
            return 1 + _nesting(operand, extents)
        case Name() | Number():
            return 0


def _check_cycle(call: Call, blocks: Mapping[str, BlockDecl], path: tuple[str, ...]) -> None:
    """Raises E209 for a call of a block that contains the call, and E226 before the walk itself goes too deep."""
    if call.function in path:
        cycle = " -> ".join((*path[path.index(call.function) :], call.function))
        help = "a block is written out at its call: it cannot contain itself; `repeat` repeats"
        notes = _note(blocks[call.function].span, "declared here")
        raise fail("E209", f"block `{call.function}` calls itself: {cycle}", call.span, help=help, notes=notes)
    if len(path) > DEEPEST:
        raise fail("E226", f"blocks are nested more than {DEEPEST} deep: {' -> '.join(path[:3])} -> …", call.span)


# ---------------------------------------------------------------------------------------------- walking


def expressions(statement: ModelStatement) -> tuple[ModelExpr, ...]:
    """The tensor expressions of one statement, those of its body left out."""
    match statement:
        case Assign(value=value) | UpdateStatement(value=value) | Collect(value=value) | Loss(value=value):
            return (value,)
        case Output(value=value):
            return (value,)
        case Cond(predicate=predicate):
            return (predicate,)
        case Scan(slices=slices):
            return tuple(part.value for part in slices)
        case Return(values=values):
            return values
        case Repeat() | If() | StorageDecl():
            return ()


def inside(statement: Nested | If) -> tuple[ModelStatement, ...]:
    """The statements of the body; for an `if`, those of both branches."""
    return (*statement.body, *statement.otherwise) if isinstance(statement, If) else statement.body


def walk(expr: ModelExpr) -> Iterator[ModelExpr]:
    """The expression and everything inside it."""
    yield expr
    match expr:
        case View(operand=operand):
            yield from walk(operand)
        case Call(arguments=arguments):
            for argument in arguments:
                yield from walk(argument)
        case Binary(left=left, right=right):
            yield from walk(left)
            yield from walk(right)
        case Name() | Number():
            pass


def names_of(expr: ModelExpr) -> Iterator[Name]:
    """Every name that a tensor expression reads."""
    return (node for node in walk(expr) if isinstance(node, Name))


def assignments(statements: Iterable[ModelStatement]) -> Iterator[Assign]:
    """Every assignment, also those inside repeats, in the order of the text.

    What a scan collects is assigned after its body.
    """
    for statement in statements:
        if isinstance(statement, Assign):
            yield statement
        elif isinstance(statement, If):
            yield from assignments(inside(statement))
        elif isinstance(statement, Nested):
            yield from assignments(statement.body)
            for inner in statement.body:
                if isinstance(inner, Collect):
                    yield Assign((inner.name,), inner.value, span=inner.span)


def written_names(file: ModelFile) -> frozenset[str]:
    """Every name that the text gives to a tensor or a repeat, anywhere."""
    bodies = (file.model.body, *(block.body for block in file.blocks))
    inputs = (name for block in file.blocks for name in block.inputs)
    return frozenset(inputs) | {name for body in bodies for name in written(body)}


def written(statements: Iterable[ModelStatement]) -> Iterator[str]:
    """Every name that these statements and those inside them give to a tensor or a repeat."""
    for statement in statements:
        match statement:
            case Assign(targets=targets):
                yield from targets
            case StorageDecl(name=name):
                yield name
            case Scan(name=name, slices=slices, body=body):
                yield name
                yield from (part.name for part in slices)
                yield from written(body)
            case Repeat(name=name, body=body) | Cond(name=name, body=body):
                yield name
                yield from written(body)
            case If():
                yield from written(inside(statement))
            case Collect(name=name):
                yield name
            case UpdateStatement() | Return() | Loss() | Output():
                pass


def _note(span: Span | None, text: str) -> tuple[Label, ...]:
    return () if span is None else (Label(span, text),)
