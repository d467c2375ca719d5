"""Builds the computation graph of a model: blocks inlined, repeats as segments, every tensor with its shape."""

from __future__ import annotations

from collections.abc import Mapping

from ..index.instantiation.operand_shape import shape_text
from ..index.library import Library
from ..syntax.ast import (
    Assign,
    Call,
    Cond,
    Loss,
    ModelFile,
    ModelStatement,
    Output,
    Repeat,
    Scan,
    StorageDecl,
    UpdateStatement,
)
from ..syntax.diagnostic import Label, fail
from ..syntax.span import Span
from .blocks import blocks_by_name, written_names
from .buffer_updates import add_update
from .chosen_lines import chosen_lines
from .dead_code import finish
from .decayed_weights import mark_decaying
from .expression import Draft, Place, Program, call, counted, tensor
from .graph import Model, Value
from .loop_segments import add_loop
from .model_inputs import default_dtype, store
from .model_parameters import Setting, model_parameters
from .name_scope import Names, Scope
from .precision import chosen_precision


def build_model(
    file: ModelFile,
    library: Library,
    settings: Mapping[str, Setting] | None = None,
    preset: str | None = None,
    precision: str | None = None,
) -> Model:
    """The computation graph of a `.udl` file at chosen parameters.

    `settings` win over the preset, the preset over the defaults. `precision` is the float type of its arithmetic, None
    for what the model says, or else the types that its tensors are declared with. Anything that the loss, the outputs
    and the buffer updates do not need is left out. Raises InputError: E2xx for the model's own faults, E1xx for
    operators that refuse their operands, E314 for a precision.
    """
    declared = file.model
    precision = chosen_precision(declared.precision, precision)
    parameters = model_parameters(declared, settings or {}, preset)
    program = Program(
        library=library,
        blocks=blocks_by_name(file, library),
        parameters=parameters,
        declared={parameter.name: parameter.span for parameter in declared.parameters},
        written=written_names(file),
        dtype=default_dtype(file),
        run=run,
    )
    draft = Draft(Names(program.written))
    lines = chosen_lines(declared.body, parameters)
    place = Place(program, draft, Scope(parameters, program.declared, statements=lines))
    losses: list[tuple[Loss, Value]] = []
    outputs: dict[str, tuple[Output, Value]] = {}
    for statement in lines:
        match statement:
            case Loss():
                if losses:
                    raise fail("E221", "a second loss", statement.span, help="add them", notes=_note(losses[0][0].span))
                losses.append((statement, tensor(place, statement.value, "loss")))
            case Output(name=name):
                if name in outputs:
                    message = f"a second output `{name}`"
                    raise fail("E206", message, statement.span, notes=_note(outputs[name][0].span))
                outputs[name] = statement, tensor(place, statement.value, name)
            case _:
                run(place, statement)
    if not losses and not outputs:
        help = "end it with `loss VALUE` to train it, or with `output VALUE` to run it"
        raise fail("E220", f"model `{declared.name}` has neither a loss nor an output", declared.span, help=help)
    loss = _scalar(*losses[0]) if losses else None
    returned = tuple(value for _, value in outputs.values())
    model = Model(declared.name, draft.graph(), loss, returned, parameters, tuple(outputs), declared.span, precision)
    return mark_decaying(finish(model, losses[0][0].span if losses else None))


def _scalar(statement: Loss, value: Value) -> Value:
    """Raises E222 for a loss that is not one float."""
    if value.shape or value.dtype == "int":
        kind = "int " if value.dtype == "int" else ""
        message = f"the loss must be a float scalar, this is {kind}{shape_text(value.shape)}"
        raise fail("E222", message, statement.value.span, help="reduce it, by `reduce_mean`, say")
    return value


def run(place: Place, statement: ModelStatement) -> None:
    """Add a statement of a model, a block or a body to its graph."""
    match statement:
        case StorageDecl():
            store(place, statement)
        case Assign():
            _assign(place, statement)
        case UpdateStatement():
            add_update(place, statement)
        case Repeat() | Scan() | Cond():
            add_loop(place, statement, run)
        case _:
            raise AssertionError(f"{type(statement).__name__} is handled by its owner")


# ---------------------------------------------------------------------------------------------- assignment


def _assign(place: Place, statement: Assign) -> None:
    """Bind the targets to the results. Raises E212 where their numbers differ."""
    scope = place.scope
    for target in statement.targets:
        scope.check_free(target, statement.span)
    names = [scope.prefix + target for target in statement.targets]
    value = statement.value
    if isinstance(value, Call):
        results = call(place, value, names, assigned=True)
    else:
        results = (tensor(place, value, names[0] if len(names) == 1 else None),)
    if len(results) != len(names):
        raise fail("E212", f"{counted(len(names), 'name')} for {counted(len(results), 'tensor')}", statement.span)
    for target, result in zip(statement.targets, results, strict=True):
        scope.tensors[target] = result


def _note(span: Span | None) -> tuple[Label, ...]:
    return () if span is None else (Label(span, "the first one is here"),)
