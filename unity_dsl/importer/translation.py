"""The state of a walk over a captured graph, and the registry of handlers for torch's operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain, count
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.fx import Node

from ..syntax.ast import OperatorDecl
from .blocks import Block
from .capture import Captured
from .source_places import module_path, source_line
from .statements import EXAMPLES, Statement
from .views import Unarranged, Value, View, whole

Entry = Any
"""The translation of a node: a View, a constant Tensor, a Prepared tensor, a number, or a sequence of these."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """A tensor that `prepare` computes from inputs alone before the model runs: an input, or a call of torch. `name`
    is its name in `prepare`, `example` its value for the example inputs.
    """

    name: str
    example: Tensor
    call: str = ""
    args: tuple[Entry, ...] = ()
    named: tuple[tuple[str, Entry], ...] = ()


EXPONENTIAL = "torch.Tensor.exponential_"
"""The method that `prepare` calls on a new tensor to draw exponential numbers."""


@dataclass(frozen=True, eq=False)
class Noise:
    """A random mask of a shape: each element is `factor` with probability `kept`, else 0. `uniform` marks uniform
    random numbers that `floor` has not yet turned into zeros and ones.
    """

    shape: tuple[int, ...]
    kept: float
    factor: float = 1.0
    uniform: bool = False


@dataclass(frozen=True)
class Lacking:
    """An operator without a counterpart: torch's object, the first `place` that calls it, and the first line of a
    declaration. That line is empty where only some arguments have no counterpart.
    """

    operator: Any
    place: str
    stub: str = ""


@dataclass
class Translation:
    """The state of a walk over a graph, with the statements so far.

    By the identity of tensors, `tables` are the state_dict names of buffers that do not change, and `origins` says how
    other constants were computed. `missing` are operators without a counterpart, `own` those of the user's files, both
    by name. `results` are the module's return values.
    """

    captured: Captured
    own: Mapping[str, OperatorDecl] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)
    entries: dict[Node, Entry] = field(default_factory=dict)
    inputs: list[Value] = field(default_factory=list)
    prepared: dict[Prepared, Value] = field(default_factory=dict)
    known: dict[object, Prepared] = field(default_factory=dict)
    constants: dict[object, Value] = field(default_factory=dict)
    tables: dict[int, str] = field(default_factory=dict)
    origins: dict[int, Prepared] = field(default_factory=dict)
    missing: dict[str, Lacking] = field(default_factory=dict)
    blocks: dict[str, Block] = field(default_factory=dict)
    results: list[Entry] = field(default_factory=list)
    node: Node | None = None

    # ------------------------------------------------------------------------------------------ what handlers use

    @property
    def examples(self) -> int:
        """The number of examples: the first dimension of the module's first input."""
        first = next(iter(self.captured.inputs.values()), None)
        return len(first) if first is not None and first.dim() else 1

    def count(self, number: int) -> str:
        """The text of a number of elements in a setting: a multiple of the number of examples, if it is one."""
        each, rest = divmod(number, self.examples)
        return str(number) if rest else f"{each} * {EXAMPLES}"

    def make(self, name: str, *operands: View, shape: Sequence[int], **settings: object) -> View:
        """The result of an operator that has a single result, of this shape."""
        result = Value(tuple(shape))
        self.add(name, operands, (result,), settings)
        return whole(result)

    def add(self, name: str, operands: Sequence[View], results: tuple[Value, ...], settings: dict[str, object]) -> None:
        assert self.node is not None
        texts = {key: _number(value) for key, value in settings.items()}
        views = tuple(self.spread(view) for view in operands)
        found = Statement(name, views, results, texts, module_path(self.node), source_line(self.node))
        self.statements.append(found)

    def call(self, block: Block, operands: Sequence[View], shapes: Sequence[Sequence[int]]) -> list[View]:
        """The results of a block, which have these shapes. A different block of the same name is renamed."""
        names = chain((block.name,), (f"{block.name}_{number}" for number in count(2)))
        named = next(
            other for other in map(block.renamed, names) if self.blocks.get(other.name, other).text == other.text
        )
        self.blocks[named.name] = named
        results = tuple(Value(tuple(shape)) for shape in shapes)
        self.add(named.name, operands, results, dict(named.settings))
        return [whole(result) for result in results]

    def view(self, entry: Entry) -> View:
        """An entry as an operand. Raises Unsupported for an entry that is no tensor."""
        if isinstance(entry, Prepared):
            return whole(self.as_input(entry))
        if isinstance(entry, Tensor):
            return self.constant(entry)
        if not isinstance(entry, View):
            raise Unsupported(f"an operand that is {type(entry).__name__}")
        return entry

    def as_input(self, entry: Prepared, bound: int | None = None) -> Value:
        """The model input that holds a prepared tensor. `bound` is the number of values that its reader allows; the
        largest one holds.
        """
        value = self.prepared.setdefault(entry, Value(tuple(entry.example.shape), "input", name=entry.name))
        if bound is not None:
            value.bound = bound if value.bound is None else max(bound, value.bound)
        return value

    def prepare(self, name: str, example: Tensor, call: str, *args: Entry) -> Prepared:
        """A tensor that `prepare` computes by a call of torch, shared by calls with equal arguments."""
        return self.known.setdefault((call, identity(args), ()), Prepared(name, example, call, args))

    def constant(self, tensor: Tensor, name: str = "table", bound: int | None = None) -> View:
        """A constant as an operand: a buffer of the module, or an input that `prepare` computes. Such an input has one
        element along dimensions in which all elements are equal. Raises Unsupported for an empty tensor.
        """
        if not tensor.numel():
            raise Unsupported("a table without elements")
        kept = tensor
        for dim in range(tensor.dim()):
            first = kept.narrow(dim, 0, 1)
            kept = first if bool((kept == first).all()) else kept
        content = kept.contiguous().view(torch.uint8) if kept.dtype == torch.bfloat16 and kept.dim() else kept
        # An integer table becomes a separate input for each bound, as that of the axis which it indexes.
        bound = None if kept.is_floating_point() else bound or int(kept.max()) + 1
        key = (kept.shape, kept.dtype, sha256(content.contiguous().numpy().tobytes()).digest(), bound)
        if key not in self.constants:
            self.constants[key] = self._constant_value(tensor, kept, name)
        value = self.constants[key]
        value.bound = bound
        return whole(value).expanded(tensor.shape)

    def _constant_value(self, tensor: Tensor, kept: Tensor, name: str) -> Value:
        state = self.tables.get(id(tensor), "")
        if state:
            return Value(tuple(tensor.shape), "buffer", state, None, tensor)
        made = self.origins.get(id(tensor)) or Prepared(name, tensor, "torch.asarray", (tensor,))
        for dim in range(tensor.dim()):
            if kept.shape[dim] < tensor.shape[dim]:
                made = self.prepare(name, made.example.narrow(dim, 0, 1), "torch.narrow", made, dim, 0, 1)
        value = self.as_input(Prepared(name, made.example, made.call, made.args, made.named))
        value.constant = kept
        return value

    def whole_view(self, view: View) -> View:
        """The view as a value of its own, by a `rearrange` statement if it is an arrangement."""
        if view.is_whole:
            return view
        result = Value(view.shape)
        self.add("rearrange", (view,), (result,), {})
        return whole(result)

    def spread(self, view: View) -> View:
        """The view with its repeated axes materialised."""
        if not view.repeated:
            return view
        axes = [axis for dim in view.dims for axis in dim]
        made = view.arranged([(axis,) for axis in axes if axis not in view.repeated])
        for place, axis in enumerate(axes):
            if axis in view.repeated:
                made = self.make("spread", made, shape=(axis.size, *made.shape), size=axis.size)
                made = made.permuted([*range(1, place + 1), 0, *range(place + 1, len(made.dims))])
        return made.reshaped(view.shape)

    def read_whole(self, view: View) -> View:
        """The view, which must have no repeated axes. Raises Unsupported."""
        if view.repeated:
            raise Unsupported("an operand that is repeated")
        return view

    def reshaped(self, view: View, shape: Sequence[int]) -> View:
        try:
            return view.reshaped(shape)
        except Unarranged:
            return self.whole_view(view).reshaped(shape)


class Unsupported(ValueError):
    """Raised for a call of an operator that has no counterpart."""


Handler = Callable[[Translation, list[Entry], dict[str, Entry]], Entry]
HANDLERS: dict[str, Handler] = {}
"""Handlers by torch operator: `linear.default`."""


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Registers a handler for torch operators."""

    def register(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return register


def unary(walk: Translation, name: str, view: View, **settings: object) -> View:
    """An elementwise operator on the value of a view. The result has the view's arrangement."""
    result = Value(view.value.shape)
    walk.add(name, (View(view.value, view.base, view.base),), (result,), settings)
    return View(result, view.base, view.dims)


def as_number(entry: Entry, beside: Entry = None) -> float | None:
    """A number, or the value of a constant whose elements are all equal; else None. A constant of several elements
    must broadcast to the shape of `beside`.
    """
    if isinstance(entry, int | float) and not isinstance(entry, bool):
        return entry
    if isinstance(entry, Tensor) and entry.dtype is not torch.bool and entry.numel():
        same = bool((entry == entry.flatten()[0]).all())
        fits = entry.numel() == 1 or (isinstance(beside, View) and _covers(beside.shape, tuple(entry.shape)))
        return float(entry.flatten()[0]) if same and fits else None
    return None


def _covers(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return len(other) <= len(shape) and np.broadcast_shapes(shape, other) == shape


def filled(args: Sequence[Any], usual: Sequence[Any]) -> list[Any]:
    """The arguments, with defaults for those left out, and without any beyond these."""
    return [*args, *usual[len(args) :]][: len(usual)]


ALIASES = {
    "divide": "div",
    "true_divide": "div",
    "multiply": "mul",
    "subtract": "sub",
    "absolute": "abs",
    "negative": "neg",
    "clip": "clamp",
    "concat": "cat",
    "concatenate": "cat",
}
"""Second names of torch operators."""


def identity(part: Any) -> object:
    """A key that is equal for equal arguments of a call. Tensors compare by identity, those of one element by type,
    shape and value.
    """
    if isinstance(part, list | tuple):
        return tuple(map(identity, part))
    if isinstance(part, Tensor) and part.numel() == 1:
        return part.dtype, tuple(part.shape), part.item()
    return part if isinstance(part, Prepared) else ("tensor", id(part)) if isinstance(part, Tensor) else repr(part)


def flat(parts: Any) -> list[Entry]:
    if isinstance(parts, list | tuple):
        return [entry for part in parts for entry in flat(part)]
    return [parts]


def _number(value: object) -> str:
    """A setting as text. A float that float32 represents exactly is written with its shortest digits, any other with
    twelve digits.
    """
    if not isinstance(value, float):
        return str(value)
    narrow = np.float32(value)
    return str(narrow) if float(narrow) == value and isfinite(value) else f"{value:.12g}"
