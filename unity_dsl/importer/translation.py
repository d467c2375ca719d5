"""Translates a captured graph into statements: constants are evaluated, integer work on inputs becomes `prepare`, and
what computes becomes operators of the library.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from ..syntax.diagnostic import InputError, fail
from .capture import Captured
from .statements import Imported, Statement
from .views import Unarranged, Value, View, whole

Entry = Any
"""What a node stands for: a View, a Tensor that is constant, a Prepared tensor, or a number or sequence of these."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """An integer tensor that is computed from inputs alone, before the model runs: an input, or a call of torch. `name`
    is what `prepare` calls it, `example` its value for the example inputs.
    """

    name: str
    example: Tensor
    call: str = ""
    args: tuple[Entry, ...] = ()
    named: tuple[tuple[str, Entry], ...] = ()


@dataclass
class Translation:
    """The statements of a graph while it is walked. `tables` are the states of buffers that do not change, by the
    identity of their tensors; `missing` are operators without a counterpart, with places.
    """

    captured: Captured
    statements: list[Statement] = field(default_factory=list)
    entries: dict[Node, Entry] = field(default_factory=dict)
    inputs: list[Value] = field(default_factory=list)
    prepared: dict[Prepared, Value] = field(default_factory=dict)
    known: dict[object, Prepared] = field(default_factory=dict)
    constants: list[Value] = field(default_factory=list)
    tables: dict[int, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    node: Node | None = None

    # ------------------------------------------------------------------------------------------ what handlers use

    def make(self, name: str, *operands: View, shape: Sequence[int], **settings: object) -> View:
        """The result of an operator, which has one of this shape."""
        result = Value(tuple(shape))
        self.add(name, operands, (result,), settings)
        return whole(result)

    def add(self, name: str, operands: Sequence[View], results: tuple[Value, ...], settings: dict[str, object]) -> None:
        assert self.node is not None
        texts = {key: _number(value) for key, value in settings.items()}
        found = Statement(name, tuple(operands), results, texts, module_path(self.node), source_line(self.node))
        self.statements.append(found)

    def view(self, entry: Entry) -> View:
        """An operand that computes: constants become buffers."""
        if isinstance(entry, Prepared):
            return whole(self.as_input(entry))
        if isinstance(entry, Tensor):
            return whole(self.as_buffer(entry))
        if not isinstance(entry, View):
            raise Unsupported(f"an operand that is {type(entry).__name__}")
        return entry

    def as_input(self, entry: Prepared, bound: int | None = None) -> Value:
        """The input of the model that a prepared tensor is; its reader knows how many values it has."""
        value = self.prepared.setdefault(entry, Value(tuple(entry.example.shape), "input", name=entry.name))
        if bound is not None:
            value.bound = bound if value.bound is None else max(bound, value.bound)
        return value

    def prepare(self, name: str, example: Tensor, call: str, *args: Entry) -> Prepared:
        """A tensor that `prepare` computes by a call of torch, once for equal arguments."""
        key = (call, *((id(arg) if isinstance(arg, Prepared) else str(arg)) for arg in args))
        if key not in self.known:
            self.known[key] = Prepared(name, example, call, args)
        return self.known[key]

    def as_buffer(self, constant: Tensor) -> Value:
        for known in self.constants:
            if known.constant is constant or (
                known.constant is not None
                and known.constant.shape == constant.shape
                and known.constant.dtype == constant.dtype
                and torch.equal(known.constant, constant)
            ):
                return known
        bound = None if constant.is_floating_point() else int(constant.max()) + 1
        state = self.tables.get(id(constant), "")
        self.constants.append(Value(tuple(constant.shape), "buffer", state, bound, constant, "constant"))
        return self.constants[-1]

    def whole_view(self, view: View) -> View:
        """The view as a tensor of its own: a statement, if it is not one already."""
        if view.is_whole:
            return view
        result = Value(view.shape)
        self.add("rearrange", (view,), (result,), {})
        return whole(result)

    def read_whole(self, view: View) -> View:
        """The view, if it repeats nothing. Raises Unsupported."""
        if view.repeated:
            raise Unsupported("an operand that is repeated")
        return view

    def reshaped(self, view: View, shape: Sequence[int]) -> View:
        try:
            return view.reshaped(shape)
        except Unarranged:
            return self.whole_view(view).reshaped(shape)


class Unsupported(ValueError):
    """A call of an operator that has no counterpart."""


Handler = Callable[[Translation, list[Entry], dict[str, Entry]], Entry]
HANDLERS: dict[str, Handler] = {}
"""By operator of torch, `linear.default`."""


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Registers a handler for operators of torch."""

    def register(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return register


def filled(args: Sequence[Any], usual: Sequence[Any]) -> list[Any]:
    """Arguments, those that are left out as usual, without any beyond these."""
    return [*args, *usual[len(args) :]][: len(usual)]


IGNORED = {"_assert_tensor_metadata.default", "_assert_scalar.default", "sym_constrain_range_for_size.default"}
RESHAPED = {
    "view.default",
    "_unsafe_view.default",
    "reshape.default",
    "alias.default",
    "clone.default",
    "expand.default",
}
RANDOM = {"native_dropout.default", "bernoulli.p", "rand.default", "randn.default", "dropout.default"}


def translate(captured: Captured) -> tuple[Imported, Translation]:
    """The statements of a captured graph. Raises E605 that names every operator without a counterpart."""
    walk = Translation(captured)
    outputs: list[Entry] = []
    for node in captured.program.graph.nodes:
        walk.node = node
        if node.op == "placeholder":
            walk.entries[node] = _placeholder(walk, node)
        elif node.op == "output":
            outputs = [_resolved(walk, part) for part in node.args[0]]
        elif node.op == "call_function":
            walk.entries[node] = _called(walk, node)
    if walk.missing:
        raise _missing(walk)
    return _imported(walk, outputs), walk


def module_path(node: Node) -> tuple[str, ...]:
    """The names of the modules around a call, the model's own left out."""
    stack = node.meta.get("nn_module_stack") or {}
    last = list(stack.values())[-1][0] if stack else ""
    return tuple(part.partition("@")[0] for part in last.split(".") if part)


def source_line(node: Node) -> str:
    """The line of the user's code that made a call: `model.py:31`."""
    lines = [
        line.strip() for line in (node.meta.get("stack_trace") or "").splitlines() if line.strip().startswith("File ")
    ]
    if not lines:
        return ""
    file, _, rest = lines[-1].removeprefix('File "').partition('", line ')
    return f"{file.rpartition('/')[2]}:{rest.partition(',')[0]}"


# ---------------------------------------------------------------------------------------- nodes


def _placeholder(walk: Translation, node: Node) -> Entry:
    captured = walk.captured
    if node.name in captured.states:
        state = captured.states[node.name]
        tensor = captured.program.state_dict[state].detach()
        if node.name in captured.buffers and state not in captured.program.graph_signature.buffers_to_mutate.values():
            walk.tables[id(tensor)] = state
            return tensor
        kind = "buffer" if node.name in captured.buffers else "weight"
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
    name = str(node.target).removeprefix("aten.")
    args = [_resolved(walk, part) for part in node.args]
    named = {key: _resolved(walk, part) for key, part in node.kwargs.items()}
    if name in IGNORED:
        return None
    if node.target is operator.getitem:
        return args[0] if args[0] in (None, Missing) else args[0][args[1]]
    entries = list(_flat([*args, *named.values()]))
    if any(entry is Missing for entry in entries):
        if name not in HANDLERS:
            _note_missing(walk, name, "")
        return Missing
    if not any(isinstance(entry, View) for entry in entries) and name not in RANDOM:
        call = torch.reshape if name in ("view.default", "_unsafe_view.default") else node.target
        found = _evaluated(call, args, named)
        if not any(isinstance(entry, Prepared) for entry in entries) or not isinstance(found, Tensor):
            return found
        given = args[0]
        if name in RESHAPED and isinstance(given, Prepared) and given.example.shape == found.shape:
            return given
        if not found.is_floating_point():
            told = "torch.reshape" if call is torch.reshape else f"torch.ops.aten.{name}"
            return Prepared(node.name, found, told, tuple(args), tuple(named.items()))
    try:
        if name in HANDLERS:
            return HANDLERS[name](walk, args, named)
        _note_missing(walk, name, "")
    except (Unsupported, Unarranged) as reason:
        _note_missing(walk, name, f": {reason}")
    return Missing


def _note_missing(walk: Translation, name: str, why: str) -> None:
    """Keeps an operator that has no counterpart, with the first place that calls it."""
    assert walk.node is not None
    path, line = ".".join(module_path(walk.node)) or "the model", source_line(walk.node)
    walk.missing.setdefault(f"{name}{why}", f"{path} ({line})" if line else path)


Missing = object()
"""What a call without a counterpart gives: the walk goes on, so that all of them are told."""


def _flat(parts: Any) -> list[Entry]:
    if isinstance(parts, list | tuple):
        return [entry for part in parts for entry in _flat(part)]
    return [parts]


def _evaluated(call: Any, args: Any, named: Any) -> Any:
    def value(part: Any) -> Any:
        if isinstance(part, list):
            return [value(one) for one in part]
        return part.example if isinstance(part, Prepared) else part

    with torch.no_grad():
        return call(*value(args), **{key: value(part) for key, part in named.items()})


def _number(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)


# ---------------------------------------------------------------------------------------- the whole


def _missing(walk: Translation) -> InputError:
    told = "; ".join(f"{name} at {place}" for name, place in walk.missing.items())
    count = len(walk.missing)
    subject = "1 operator has" if count == 1 else f"{count} operators have"
    hint = "declare it in a .uop file, and write the module's part of the model by hand, or use another operator"
    return fail("E605", f"{subject} no counterpart: {told}", help=hint)


def _imported(walk: Translation, outputs: list[Entry]) -> Imported:
    signature = walk.captured.program.graph_signature
    buffers = dict(signature.buffers_to_mutate)
    by_state = {
        entry.value.state: entry.value
        for entry in walk.entries.values()
        if isinstance(entry, View) and entry.value.kind == "buffer"
    }
    loss, left, updates = None, list[tuple[str, View]](), list[tuple[Value, View]]()
    for spec, entry in zip(signature.output_specs, outputs, strict=True):
        name = getattr(spec.arg, "name", "")
        if name in buffers:
            if isinstance(entry, View) and buffers[name] in by_state:
                updates.append((by_state[buffers[name]], entry))
        elif isinstance(entry, View):
            if loss is None and entry.shape == ():
                loss = entry
            else:
                left.append((name, entry))
    return Imported([*walk.inputs, *walk.prepared.values()], walk.statements, loss, left, updates)
