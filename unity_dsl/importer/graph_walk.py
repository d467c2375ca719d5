"""Walks a captured graph: constants are evaluated, integer work on inputs becomes `prepare`, and what computes becomes
operators of the library.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor
from torch.export.graph_signature import OutputKind
from torch.fx import Node
from torch.utils import _pytree as pytree

from ..syntax.ast import OperatorDecl
from ..syntax.diagnostic import InputError, fail
from .capture import Captured, loss_of
from .own_operators import call_own, stub_of
from .source_places import module_path, source_line
from .statements import Imported
from .translation import (
    ALIASES,
    EXPONENTIAL,
    HANDLERS,
    Entry,
    Lacking,
    Noise,
    Prepared,
    Translation,
    Unsupported,
    flat,
    identity,
)
from .views import Unarranged, Value, View, whole
from .whole_calls import WHOLE_CALL, read_call

IGNORED = {"_assert_tensor_metadata.default", "_assert_scalar.default", "sym_constrain_range_for_size.default"}
RESHAPED = {
    "view.default",
    "_unsafe_view.default",
    "reshape.default",
    "alias.default",
    "clone.default",
    "expand.default",
}
RANDOM = {"native_dropout.default", "bernoulli.p", "bernoulli.default", "rand.default", "dropout.default"}
DRAWN = {
    **dict.fromkeys(("randn.default", "randn_like.default", "normal_functional.default"), "torch.randn"),
    **dict.fromkeys(("randint.default", "randint.low"), "torch.randint"),
    "exponential.default": EXPONENTIAL,
}
"""Random numbers that `prepare` draws: noise that is added, steps of diffusion; and by what."""
_ZEROS = ("zeros_like.default", "new_zeros.default", "empty_like.default", "new_empty.default")
COMPARED = {"eq", "ne", "gt", "ge", "lt", "le"}
"""Comparisons, which `prepare` makes of inputs."""
SCALED = {"normal_functional.default", "exponential.default"}
"""Those that draw others where they have more arguments."""
FILLED: Mapping[str, str] = {
    **dict.fromkeys(_ZEROS, "zeros"),
    **dict.fromkeys(("ones_like.default", "new_ones.default"), "ones"),
    **dict.fromkeys(("full_like.default", "new_full.default"), "full"),
}
"""What makes constants in the shape or the type of a tensor, whatever that contains."""


def translate(captured: Captured, own: Mapping[str, OperatorDecl]) -> tuple[Imported, Translation]:
    """The statements of a captured graph. What has no counterpart, and is none of a user's `own` operators, is
    decomposed as torch does it, where that knows how.

    Raises E605 that names every operator without a counterpart.
    """
    first: dict[str, Lacking] = {}
    before: Mapping[str, Lacking] | None = None
    while True:
        walk = Translation(captured, own)
        outputs = _walked(walk)
        if not walk.missing:
            return _imported(walk, outputs), walk
        lacking = {one.operator for one in walk.missing.values()}
        parts = None if walk.missing == before else captured.decomposed(lacking)
        if parts is None:
            break
        first, before, captured = walk.missing | first, walk.missing, parts
    # What the module calls is told, not what that was decomposed into.
    left = {one.place for one in walk.missing.values()}
    raise _missing({name: one for name, one in first.items() if one.place in left} or walk.missing)


def _walked(walk: Translation) -> list[Entry]:
    """Translates every call of the graph; what it returns."""
    outputs: list[Entry] = []
    for node in walk.captured.program.graph.nodes:
        walk.node = node
        if node.op == "placeholder":
            walk.entries[node] = _placeholder(walk, node)
        elif node.op == "output":
            outputs = [_resolved(walk, part) for part in node.args[0]]
        elif node.op == "call_function":
            walk.entries[node] = _called(walk, node)
    return outputs


def operator_name(node: Node) -> str:
    """The operator of torch that a node calls, with its overload: `linear.default`."""
    name, dot, overload = str(node.target).removeprefix("aten.").partition(".")
    return f"{ALIASES.get(name, name)}{dot}{overload}"


# ---------------------------------------------------------------------------------------- nodes


def _placeholder(walk: Translation, node: Node) -> Entry:
    captured = walk.captured
    if node.name in captured.states:
        state = captured.states[node.name]
        tensor = captured.program.state_dict[state].detach()
        is_changed = state in captured.program.graph_signature.buffers_to_mutate.values()
        if node.name in captured.buffers - captured.frozen and not is_changed:
            walk.tables[id(tensor)] = state
            return tensor
        kind = "buffer" if node.name in captured.buffers | captured.frozen else "weight"
        value = Value(tuple(tensor.shape), kind, state, constant=tensor)
        return whole(value) if tensor.is_floating_point() else tensor
    if node.name in captured.constants:
        return captured.constants[node.name]
    if node.name not in captured.inputs:
        return None
    example = captured.inputs[node.name]
    if not example.is_floating_point():
        return Prepared(node.name, example)
    walk.inputs.append(Value(tuple(example.shape), "input", name=node.name))
    return whole(walk.inputs[-1])


def _resolved(walk: Translation, part: Any) -> Entry:
    if isinstance(part, Node):
        return walk.entries[part]
    if isinstance(part, list | tuple):
        return [_resolved(walk, one) for one in part]
    return part


def _called(walk: Translation, node: Node) -> Entry:
    name = operator_name(node)
    args = [_resolved(walk, part) for part in node.args]
    named = {key: _resolved(walk, part) for key, part in node.kwargs.items()}
    if name in IGNORED:
        return None
    if node.target is operator.getitem:
        return args[0] if args[0] in (None, Missing) else args[0][args[1]]
    entries = list(flat([*args, *named.values()]))
    if node.target is WHOLE_CALL:
        return _called_whole(walk, *args)
    if any(entry is Missing for entry in entries):
        if name not in HANDLERS:
            _note_missing(walk, name, "")
        return Missing
    if name.partition(".")[0] in COMPARED:
        args = [_as_prepared(walk, entry) for entry in args]
        entries = list(flat([*args, *named.values()]))
    if name in FILLED and isinstance(args[0], View | Prepared):
        return _filled(walk, name, args, named)
    if name in DRAWN and (name not in SCALED or not [*args[1:], *named]):
        return _drawn(DRAWN[name], args)
    if not any(isinstance(entry, View | Noise) for entry in entries) and name not in RANDOM:
        return _computed(walk, node, args, named)
    if (declared := walk.own.get(name.partition(".")[0])) is not None:
        return _tried(walk, name, lambda: call_own(walk, declared, node, args, named))
    if name not in HANDLERS:
        _note_missing(walk, name, "")
        return Missing
    return _tried(walk, name, lambda: HANDLERS[name](walk, args, named))


def _drawn(call: str, args: list[Entry]) -> Entry:
    """Normal or exponential numbers, or whole ones below a bound, as `prepare` draws them anew for every batch."""
    if call == "torch.randint":
        *bounds, shape = args
        example = torch.full(shape, int(bounds[-1]) - 1)
        return Prepared("drawn", example, call, (*bounds, list(shape)))
    of = args[0]
    shape = (
        list(of) if isinstance(of, list | tuple) else list(of.example.shape if isinstance(of, Prepared) else of.shape)
    )
    return Prepared("noise", torch.ones(shape), call, (shape,))


def _as_prepared(walk: Translation, entry: Entry) -> Entry:
    """An input of numbers as a tensor that `prepare` has; others as they are."""
    if isinstance(entry, View) and entry.is_whole and entry.value.kind == "input":
        example = walk.captured.inputs.get(entry.value.name)
        return entry if example is None else walk.prepare(entry.value.name, example, "")
    return entry


def _called_whole(walk: Translation, operands: list[Entry], told: str) -> Entry:
    """What replaces a call of a module or a function."""
    if any(entry is Missing for entry in operands):
        return Missing
    call, replacement = read_call(walk.captured.module, operands, told)
    return _tried(walk, call.name.rpartition(".")[2], lambda: replacement.call(walk, call))


def _tried(walk: Translation, name: str, handler: Callable[[], Entry]) -> Entry:
    """What a handler makes; Missing, and noted, where it refuses."""
    try:
        return handler()
    except (Unsupported, Unarranged) as reason:
        _note_missing(walk, name, f": {reason}")
    return Missing


def _computed(walk: Translation, node: Node, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """What depends on no input is evaluated, what depends on integers alone is left to `prepare`."""
    name = operator_name(node)
    is_view = name in ("view.default", "_unsafe_view.default")
    call = cast(Callable[..., Any], torch.reshape if is_view else node.target)
    try:
        found = _evaluated(call, args, named)
    except (RuntimeError, TypeError) as reason:  # as of places that no operator gives
        _note_missing(walk, name, f": {str(reason).splitlines()[0]}")
        return Missing
    if not isinstance(found, Tensor):
        return found
    given = args[0] if args else None
    nothing = len(args) == 2 and isinstance(args[1], int) and args[1] == 0
    if name in ("add.Tensor", "sub.Tensor") and nothing and isinstance(given, Tensor | Prepared):
        return given
    if name == "_to_copy.default" and (source := _uncast(given, found)) is not None:
        return source
    if name in RESHAPED and isinstance(given, Prepared) and given.example.shape == found.shape:
        return given
    told = "torch.reshape" if is_view else f"torch.ops.aten.{name}"
    made = Prepared(node.name, found, told, tuple(args), tuple(named.items()))
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        made = walk.known.setdefault((told, identity(args), identity([*named.items()])), made)
    if any(isinstance(entry, Prepared) for entry in flat([*args, *named.values()])):
        return made
    walk.origins[id(found)] = made
    return found


_WHOLE = (torch.int32, torch.int64)


def _uncast(given: Entry, found: Tensor) -> Prepared | None:
    """The whole numbers that were cast to what are whole numbers again, maybe by way of others."""
    while isinstance(given, Prepared):
        if given.example.dtype in _WHOLE and found.dtype in _WHOLE and torch.equal(given.example.long(), found.long()):
            return given
        given = given.args[0] if given.call.endswith("_to_copy.default") else None
    return None


def _filled(walk: Translation, name: str, args: list[Entry], named: dict[str, Entry]) -> Tensor:
    """A constant tensor that is made in the likeness of another."""
    likeness, *others = args
    like = likeness.example if isinstance(likeness, Prepared) else None
    shape = list(likeness.shape if like is None else like.shape) if "_like" in name else list(others.pop(0))
    dtype = named.get("dtype") or (torch.float32 if like is None else like.dtype)
    found: Tensor = getattr(torch, FILLED[name])(shape, *others, dtype=dtype)
    told, given = f"torch.{FILLED[name]}", (shape, *others)
    if like is not None and list(like.shape) == shape:  # as large as the batch is
        told, given = f"{told}_like", (likeness, *others)
    walk.origins[id(found)] = Prepared("filled", found, told, given, (("dtype", dtype),))
    return found


def _note_missing(walk: Translation, name: str, why: str) -> None:
    """Keeps an operator that has no counterpart, with the first place that calls it."""
    assert walk.node is not None
    path, line = ".".join(module_path(walk.node)) or "the model", source_line(walk.node)
    place = f"{path} ({line})" if line else path
    walk.missing.setdefault(f"{name}{why}", Lacking(walk.node.target, place, "" if why else stub_of(walk.node)))


Missing = object()
"""What a call without a counterpart gives: the walk goes on, so that all of them are told."""


def _evaluated(call: Any, args: Any, named: Any) -> Any:
    def value(part: Any) -> Any:
        if isinstance(part, list):
            return [value(one) for one in part]
        return part.example if isinstance(part, Prepared) else part

    with torch.no_grad():
        return call(*value(args), **{key: value(part) for key, part in named.items()})


# ---------------------------------------------------------------------------------------- the whole


def _missing(missing: Mapping[str, Lacking]) -> InputError:
    """The diagnostic of operators without a counterpart, by the places that call them, with a way to declare them."""
    # Sizes of what has no counterpart are no operators that a user called.
    missing = {name: one for name, one in missing.items() if not name.startswith(("sym_", "<"))} or missing
    told = "; ".join(f"{name} at {one.place}" for name, one in missing.items())
    subject = "1 operator has" if len(missing) == 1 else f"{len(missing)} operators have"
    hint = "use another operator, or replace the module by a block of the language: unity_dsl.replaces"
    declared = [f"`{one.stub}`" for one in missing.values() if one.stub]
    hint += f"; or declare in a file for --ops: {', '.join(declared)}" if declared else ""
    return fail("E605", f"{subject} no counterpart: {told}", help=hint)


def _imported(walk: Translation, outputs: list[Entry]) -> Imported:
    signature = walk.captured.program.graph_signature
    buffers = dict(signature.buffers_to_mutate)
    by_state = {
        entry.value.state: entry.value
        for entry in walk.entries.values()
        if isinstance(entry, View) and entry.value.kind == "buffer"
    }
    walk.results = [
        entry
        for spec, entry in zip(signature.output_specs, outputs, strict=True)
        if spec.kind is OutputKind.USER_OUTPUT
    ]
    spec = walk.captured.program.call_spec.out_spec
    assert spec is not None
    returned = pytree.tree_unflatten(walk.results, spec)
    loss: View | None = loss_of(returned, lambda entry: isinstance(entry, View) and entry.shape == ())
    keys = {id(entry): str(key) for key, entry in returned.items()} if isinstance(returned, Mapping) else {}
    left, updates = list[tuple[str, View]](), list[tuple[Value, View]]()
    read = {operand.value for statement in walk.statements for operand in statement.operands}
    for spec, entry in zip(signature.output_specs, outputs, strict=True):
        name = getattr(spec.arg, "name", "")
        if name in buffers:
            if isinstance(entry, View) and by_state.get(buffers[name]) in read:  # else no step depends on it
                updates.append((by_state[buffers[name]], entry))
        elif isinstance(entry, View):
            if (loss is None or entry.value is not loss.value) and all(
                entry.value is not other.value for _, other in left
            ):
                left.append((keys.get(id(entry), ""), entry))
    inputs = [*walk.inputs, *walk.prepared.values()]
    return Imported(inputs, walk.statements, loss, left, updates, walk.blocks, examples=walk.examples)
