"""Walks a captured graph. Constants are evaluated, integer computations on inputs become `prepare`, and other calls
become operators of the library.
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
"""Operators whose random numbers `prepare` draws, such as added noise or diffusion steps, with the call that draws
them.
"""
_ZEROS = ("zeros_like.default", "new_zeros.default", "empty_like.default", "new_empty.default")
COMPARED = {"eq", "ne", "gt", "ge", "lt", "le"}
"""Comparisons, which `prepare` evaluates where they only involve inputs."""
SCALED = {"normal_functional.default", "exponential.default"}
"""Operators of `DRAWN` whose further arguments change the distribution, so that `prepare` draws them only without
these.
"""
FILLED: Mapping[str, str] = {
    **dict.fromkeys(_ZEROS, "zeros"),
    **dict.fromkeys(("ones_like.default", "new_ones.default"), "ones"),
    **dict.fromkeys(("full_like.default", "new_full.default"), "full"),
}
"""Operators that make a constant in the shape or type of a tensor, whatever its contents, with torch's function for
it.
"""


def translate(captured: Captured, own: Mapping[str, OperatorDecl]) -> tuple[Imported, Translation]:
    """The statements of a captured graph. An operator that has no counterpart and is none of a user's `own` operators
    is decomposed, if a decomposition is known.

    Raises E605, which names every operator without a counterpart.
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
    # The diagnostic names the operators that the module calls, not those of their decompositions.
    left = {one.place for one in walk.missing.values()}
    raise _missing({name: one for name, one in first.items() if one.place in left} or walk.missing)


def _walked(walk: Translation) -> list[Entry]:
    """Translates every call of the graph and returns the graph's outputs."""
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
    """The torch operator that a node calls, with its overload: `linear.default`."""
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
    """Random numbers that `prepare` draws anew for every batch: normal, exponential, or integers below a bound."""
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
    """A floating-point input as a tensor that `prepare` reads; other entries are returned unchanged."""
    if isinstance(entry, View) and entry.is_whole and entry.value.kind == "input":
        example = walk.captured.inputs.get(entry.value.name)
        return entry if example is None else walk.prepare(entry.value.name, example, "")
    return entry


def _called_whole(walk: Translation, operands: list[Entry], told: str) -> Entry:
    """The results of the replacement of a module or function, whose call was captured as one operator."""
    if any(entry is Missing for entry in operands):
        return Missing
    call, replacement = read_call(walk.captured.module, operands, told)
    return _tried(walk, call.name.rpartition(".")[2], lambda: replacement.call(walk, call))


def _tried(walk: Translation, name: str, handler: Callable[[], Entry]) -> Entry:
    """The result of a handler; `Missing` where the handler refuses, which is noted."""
    try:
        return handler()
    except (Unsupported, Unarranged) as reason:
        _note_missing(walk, name, f": {reason}")
    return Missing


def _computed(walk: Translation, node: Node, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """Evaluates a call that depends on no input. A call that depends on integer inputs alone is left to `prepare`."""
    name = operator_name(node)
    is_view = name in ("view.default", "_unsafe_view.default")
    call = cast(Callable[..., Any], torch.reshape if is_view else node.target)
    try:
        found = _evaluated(call, args, named)
    except (RuntimeError, TypeError) as reason:  # for example where an argument is None
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
    """The integer tensor at the start of a chain of casts that ends in the same integers; None if there is none."""
    while isinstance(given, Prepared):
        if given.example.dtype in _WHOLE and found.dtype in _WHOLE and torch.equal(given.example.long(), found.long()):
            return given
        given = given.args[0] if given.call.endswith("_to_copy.default") else None
    return None


def _filled(walk: Translation, name: str, args: list[Entry], named: dict[str, Entry]) -> Tensor:
    """A constant tensor that is made in the shape or type of another."""
    likeness, *others = args
    like = likeness.example if isinstance(likeness, Prepared) else None
    shape = list(likeness.shape if like is None else like.shape) if "_like" in name else list(others.pop(0))
    dtype = named.get("dtype") or (torch.float32 if like is None else like.dtype)
    found: Tensor = getattr(torch, FILLED[name])(shape, *others, dtype=dtype)
    told, given = f"torch.{FILLED[name]}", (shape, *others)
    if like is not None and list(like.shape) == shape:  # so its size follows the batch
        told, given = f"{told}_like", (likeness, *others)
    walk.origins[id(found)] = Prepared("filled", found, told, given, (("dtype", dtype),))
    return found


def _note_missing(walk: Translation, name: str, why: str) -> None:
    """Records an operator without a counterpart, with the first place that calls it."""
    assert walk.node is not None
    path, line = ".".join(module_path(walk.node)) or "the model", source_line(walk.node)
    place = f"{path} ({line})" if line else path
    walk.missing.setdefault(f"{name}{why}", Lacking(walk.node.target, place, "" if why else stub_of(walk.node)))


Missing = object()
"""The result of a call without a counterpart. The walk continues, so that the diagnostic names all such calls."""


def _evaluated(call: Any, args: Any, named: Any) -> Any:
    def value(part: Any) -> Any:
        if isinstance(part, list):
            return [value(one) for one in part]
        return part.example if isinstance(part, Prepared) else part

    with torch.no_grad():
        return call(*value(args), **{key: value(part) for key, part in named.items()})


# ---------------------------------------------------------------------------------------- the whole


def _missing(missing: Mapping[str, Lacking]) -> InputError:
    """The diagnostic of operators without a counterpart: the places that call them, and how to declare them."""
    # Symbolic sizes follow from other missing operators, and the user did not call them.
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
            if isinstance(entry, View) and by_state.get(buffers[name]) in read:  # else no step depends on the buffer
                updates.append((by_state[buffers[name]], entry))
        elif isinstance(entry, View):
            if (loss is None or entry.value is not loss.value) and all(
                entry.value is not other.value for _, other in left
            ):
                left.append((keys.get(id(entry), ""), entry))
    inputs = [*walk.inputs, *walk.prepared.values()]
    return Imported(inputs, walk.statements, loss, left, updates, walk.blocks, examples=walk.examples)
