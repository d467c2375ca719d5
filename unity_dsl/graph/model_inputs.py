"""Inputs, weights and buffers of a model, with shapes and initialisers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..syntax.ast import If, Initialiser, ModelFile, ModelStatement, Nested, Number, Storage, StorageDecl
from ..syntax.diagnostic import fail
from .blocks import inside
from .expression import Keeper, Place
from .graph import DTYPE_BYTES, Buffer, Input, Value, Weight
from .model_parameters import Numeric, fold, shape_of, whole

FAN_INITIALISERS = {"xavier_uniform", "kaiming_uniform", "fan_in_normal", "fan_in_uniform", "fan_out_normal"}
INTEGER_INITIALISERS = ("zeros", "ones", "constant")


def store(place: Place, statement: StorageDecl) -> None:
    """Declare an input, a weight or a buffer. What the body of a scan declares is stored by the graph around it.

    Raises E205 and E225 (sizes), E206 (names), E218 (a weight of integers, a missing initialiser) or E219 (what an
    initialiser is given) or E242 (a repeat inside a scan).
    """
    numbers, declared = place.scope.numbers, statement.type
    name = place.scope.prefix + statement.name
    draft, keeper = place.draft, place.draft.keeper
    if keeper is not None:
        draft, name = keeper.draft, keeper.prefix + name
        _check_kept(keeper, statement)
    integer_range = None
    if declared.integer_range is not None:
        integer_range = whole(declared.integer_range, numbers, f"the range of `{name}`")
    shape = shape_of(declared.dims, numbers, name, statement.span)
    is_weight = statement.storage is Storage.WEIGHT
    dtype, stored = declared.dtype, None
    if _is_narrow(statement, place.program.dtype):
        dtype, stored = place.program.dtype, declared.dtype
    value = Value(name, shape, dtype, integer_range, span=statement.span, cast_from=stored, is_weight=is_weight)
    place.scope.declare(statement.name, value, statement.span)
    draft.claim(name, statement.span)
    if name in draft.names or name in place.draft.names:
        message = f"the graph around `{name}` already has a tensor of that name"
        raise fail("E206", message, statement.span, help="a repeat's body sees the tensors around it: rename one")
    draft.names.take(name)
    place.draft.names.take(name)
    if statement.storage is Storage.INPUT:
        draft.inputs.append(Input(value))
        return
    initialiser = _initialiser(statement, value, numbers)
    if is_weight:
        if declared.dtype == "int":
            message = f"weight `{name}` is of integers, which have no gradient"
            raise fail("E218", message, statement.span, help=f"`buffer {statement.name}: …`")
        draft.weights.append(Weight(value, initialiser))
    else:
        draft.buffers.append(Buffer(value, initialiser))


def _check_kept(keeper: Keeper, statement: StorageDecl) -> None:
    if keeper.repeat:
        message = f"{statement.storage} `{statement.name}` in repeat `{keeper.repeat}` inside a scan"
        help = "a scan has the same weights in each iteration: put the scan into the repeat, or declare before both"
        raise fail("E242", message, statement.span, help=help)


def _initialiser(statement: StorageDecl, value: Value, numbers: Mapping[str, Numeric]) -> Initialiser:
    """The declared initialiser with its arguments as numbers."""
    given = statement.initialiser
    if given is None:
        help = f"`{statement.storage} {statement.name}: … ~ normal(0.02)`"
        raise fail("E218", f"{statement.storage} `{value.name}` has no initialiser", statement.span, help=help)
    arguments = [fold(argument, numbers) for argument in given.arguments]
    if (reason := _refused(given.name, arguments, value)) is not None:
        raise fail("E219", f"`{value.name}`: {reason}", given.span)
    return Initialiser(given.name, tuple(Number(argument) for argument in arguments), span=given.span)


def _refused(name: str, arguments: list[Numeric], value: Value) -> str | None:
    """Why a tensor cannot have this initialiser, in words; None if it can."""
    if value.integer_range is not None and name not in INTEGER_INITIALISERS:
        return f"integers start as {', '.join(INTEGER_INITIALISERS)}, not `{name}`"
    match name, arguments:
        case "normal", [std] if std < 0:
            return f"a standard deviation of {std:g} is negative"
        case "uniform", [low, high] if low > high:
            return f"uniform({low:g}, {high:g}) is an empty range"
        case _ if name in FAN_INITIALISERS and len(value.shape) < 2:
            return f"`{name}` needs at least two dimensions, [out, in, …]"
        case _, [gain] if name in FAN_INITIALISERS and gain < 0:
            return f"a variance of {gain:g} / fan is negative"
        case "constant", [constant] if value.integer_range is not None:
            if constant != int(constant) or not 0 <= constant < value.integer_range:
                return f"{constant:g} is not an int<{value.integer_range}>"
        case "ones", _ if value.integer_range == 1:
            return "1 is not an int<1>"
    return None


def default_dtype(file: ModelFile) -> str:
    """The type of the first float tensor that is declared, f32 if there is none. Buffers count only if there is nothing
    else, since they may be stored in a narrower type.
    """
    bodies = (file.model.body, *(block.body for block in file.blocks))
    found = [s for body in bodies for s in _declarations(body) if s.type.dtype != "int"]
    found.sort(key=lambda declared: declared.storage is Storage.BUFFER)
    return found[0].type.dtype if found else "f32"


def _is_narrow(declared: StorageDecl, dtype: str) -> bool:
    """Whether a declaration is a float buffer narrower than the model's floats, to which it is cast when it is read."""
    narrow = DTYPE_BYTES[declared.type.dtype] < DTYPE_BYTES[dtype]
    return declared.storage is Storage.BUFFER and narrow and declared.type.dtype != "int"


def _declarations(statements: Iterable[ModelStatement]) -> Iterator[StorageDecl]:
    for statement in statements:
        if isinstance(statement, StorageDecl):
            yield statement
        elif isinstance(statement, Nested | If):
            yield from _declarations(inside(statement))
