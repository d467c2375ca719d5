"""The computation graph of a model: values, operators at shapes, parameters, repeated segments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

from ..index.equations.instance import Instance
from ..index.instantiation.operand_shape import shape_text
from ..syntax.ast import Initialiser
from ..syntax.span import Span

if TYPE_CHECKING:
    from .padding_claims import PaddingClaim


@dataclass(frozen=True)
class Value:
    """A tensor of the graph. `name` is unique within its graph and a Python identifier except for dots.

    `needs_gradient` is False for integers, for inputs and what is computed from them alone, and for what only buffer
    updates need. In mixed precision a weight is stored, and its gradient reduced, in the type `cast_from`; operators
    read a cast if `dtype` differs. A buffer that is stored in a narrower type has a `cast_from` too. The gradient of a
    weight, `is_weight`, is summed over devices in buckets.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "f32"
    integer_range: int | None = None
    needs_gradient: bool = True
    span: Span | None = None
    cast_from: str | None = None
    is_weight: bool = False
    unpadded: tuple[int, ...] | None = None

    @property
    def model_shape(self) -> tuple[int, ...]:
        """The shape in the model, without padding."""
        return self.unpadded or self.shape

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of the tensor as operators read it."""
        return self.elements * DTYPE_BYTES[self.dtype]

    @property
    def is_cast(self) -> bool:
        """Whether operators read a cast of the stored tensor."""
        return self.cast_from not in (None, self.dtype)

    @property
    def stored_dtype(self) -> str:
        """The type in which a weight or a buffer is stored."""
        return self.cast_from or self.dtype

    @cached_property
    def as_stored(self) -> Value:
        """A weight in the type in which it is stored, which is that of its gradient."""
        return self if self.cast_from is None else replace(self, dtype=self.cast_from, cast_from=None)

    @property
    def stored_bytes(self) -> int:
        """Bytes of a weight as it is stored, and of its gradient."""
        return self.elements * DTYPE_BYTES[self.stored_dtype]


DTYPE_BYTES = {"f64": 8, "f32": 4, "tf32": 4, "bf16": 2, "f16": 2, "int": 8}
"""Bytes of an element. No value has the type `tf32`: it is the type at which products of float32 are priced."""


def type_text(value: Value) -> str:
    """`f32[2, 4]`."""
    kind = value.dtype if value.integer_range is None else f"int<{value.integer_range}>"
    return f"{kind}{shape_text(value.shape)}"


@dataclass(frozen=True)
class Input:
    """A tensor that the data supplies at each step."""

    value: Value


@dataclass(frozen=True)
class Weight:
    """A trained parameter. Within a repeat it stands for one tensor per iteration: `layer.{i}.name`.

    Weight decay applies if `decays`: not to gains and biases (decayed_weights.py).
    """

    value: Value
    initialiser: Initialiser
    decays: bool = True


@dataclass(frozen=True)
class Buffer:
    """State that is not trained."""

    value: Value
    initialiser: Initialiser


@dataclass(frozen=True)
class Update:
    """At the end of a training step a buffer of the same graph becomes `value`, of the same shape and type.

    All reads of the buffer in that step see its old value.
    """

    buffer: Value
    value: Value
    span: Span | None = None


@dataclass(frozen=True)
class Node:
    """An operator applied to values. `arguments` bind the instance's inputs by position, `results` its outputs.

    `site` numbers the random sites of the model (dropout); 0 means none. `rule` names the rule that inserted the
    operator, whose `span` is then that of what it replaced. `mixed` says that the model is in mixed precision, `tf32`
    that products may round float32 factors to TF32. `stopped` are the positions of arguments that get no gradient from
    the operator.
    """

    name: str
    instance: Instance
    arguments: tuple[Value, ...]
    results: tuple[Value, ...]
    site: int = 0
    span: Span | None = None
    rule: str | None = None
    mixed: bool = False
    tf32: bool = False
    stopped: frozenset[int] = frozenset()

    @cached_property
    def gradients(self) -> tuple[bool, ...]:
        """Which arguments get a gradient from this operator: those that need one, if a result does, unless stopped."""
        backward = any(value.needs_gradient for value in self.results)
        return tuple(
            backward and value.needs_gradient and place not in self.stopped
            for place, value in enumerate(self.arguments)
        )

    @cached_property
    def dtype(self) -> str:
        """The float type of its arithmetic: the narrowest of its float results, or of its operands if it has none."""
        for values in (self.results, self.arguments):
            floats = [value.dtype for value in values if value.dtype != "int"]
            if floats:
                return min(floats, key=DTYPE_BYTES.__getitem__)
        return "f32"

    @property
    def model_sizes(self) -> Mapping[str, int]:
        """The sizes of the operator's axes, without padding."""
        instance, sizes = self.instance, dict(self.instance.sizes)
        values = zip((*self.arguments, *self.results), (*instance.inputs, *instance.outputs), strict=True)
        for value, operand in values:
            sizes |= {dim[0]: size for size, dim in zip(value.model_shape, operand.dims, strict=True) if len(dim) == 1}
        return sizes

    @property
    def factor_type(self) -> str:
        """The float type to which its products round their factors."""
        return "tf32" if self.tf32 and self.dtype == "f32" else self.dtype

    @property
    def reads(self) -> tuple[Value, ...]:
        """The values that the step reads."""
        return self.arguments

    @property
    def makes(self) -> tuple[Value, ...]:
        """The values that the step makes."""
        return self.results


@dataclass(frozen=True)
class Series:
    """A tensor and its slices at the positions of a dimension: iteration i of a scan reads, or makes, slice i.

    `whole` is a value of the graph around the scan. `part` is a value of the body and has all dimensions but `dim`.
    """

    whole: Value
    part: Value
    dim: int


@dataclass(frozen=True)
class Segment:
    """A step with a body: repeated (`repeat`, `scan`), or executed if `predicate`, one integer, is 1 (`cond`).

    Iteration i+1 reads, as `entry`, what iteration i left in `exit`; the first reads `initial`. `captured` are the
    values from outside that every iteration reads unchanged (masks, tied weights). `results` are what the code after
    the repeat sees: one per carried value, the last iteration's exit, or `initial` where the body was not executed.
    A scan also reads the slices of `sliced` and makes those of `stacked`; its body stores nothing. `probability` is how
    often a cond is expected to execute its body.
    """

    name: str
    count: int
    body: Graph
    initial: tuple[Value, ...]
    entry: tuple[Value, ...]
    exit: tuple[Value, ...]
    results: tuple[Value, ...]
    captured: tuple[Value, ...]
    span: Span | None = None
    sliced: tuple[Series, ...] = ()
    stacked: tuple[Series, ...] = ()
    predicate: Value | None = None
    probability: float = 1.0

    @property
    def iterations(self) -> int:
        """How often the body is executed in a loop; 1 for a cond."""
        return self.count if self.predicate is None else 1

    @property
    def is_loop(self) -> bool:
        """Whether its body is executed several times."""
        return self.iterations > 1

    @property
    def reads(self) -> tuple[Value, ...]:
        """The values that the step reads."""
        decides = () if self.predicate is None else (self.predicate,)
        return (*self.initial, *(series.whole for series in self.sliced), *decides, *self.captured)

    @property
    def makes(self) -> tuple[Value, ...]:
        """The values that the step makes."""
        return (*self.results, *(series.whole for series in self.stacked))

    @property
    def leaves(self) -> tuple[Value, ...]:
        """The values of the body that are read after an iteration."""
        return (*self.exit, *(series.part for series in self.stacked))

    @property
    def paths(self) -> tuple[str, ...]:
        """The prefixes of the names of what the body stores: one per iteration, one for a cond."""
        if self.predicate is not None:
            return (f"{self.name}.",)
        return tuple(f"{self.name}.{iteration}." for iteration in range(self.count))


@dataclass(frozen=True)
class Graph:
    """Steps in an order in which every value is made before it is read."""

    inputs: tuple[Input, ...]
    weights: tuple[Weight, ...]
    buffers: tuple[Buffer, ...]
    steps: tuple[Node | Segment, ...]
    updates: tuple[Update, ...] = ()

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments of this graph, without those inside bodies."""
        return tuple(step for step in self.steps if isinstance(step, Segment))

    def nodes(self) -> Iterator[Node]:
        """Every operator; those of a repeated body once."""
        for step in self.steps:
            if isinstance(step, Segment):
                yield from step.body.nodes()
            else:
                yield step


@dataclass(frozen=True)
class Model:
    """A model at chosen parameters: its graph, its loss (None for inference) and its outputs.

    `output_names` are the names under which `outputs` are returned; a value keeps its own name in the graph.
    `precision` is the float type of its arithmetic (see precision.py), None for the declared types of its tensors.
    `padding` are padded sizes of axes (see padding.py), `claims` what is to be proved of operators that have them.
    """

    name: str
    graph: Graph
    loss: Value | None
    outputs: tuple[Value, ...]
    parameters: dict[str, int | float]
    output_names: tuple[str, ...] = ()
    span: Span | None = None
    precision: str | None = None
    padding: Mapping[str, int] = field(default_factory=dict)
    claims: tuple[PaddingClaim, ...] = ()

    @property
    def returned(self) -> tuple[Value, ...]:
        """The loss, if there is one, and the outputs."""
        return (*(() if self.loss is None else (self.loss,)), *self.outputs)

    @property
    def whole(self) -> tuple[Value, ...]:
        """What every call of the planned program returns unsharded on each device: the loss, or else the outputs.

        Outputs of a training step keep their layout: the caller has to gather them.
        """
        return self.outputs if self.loss is None else (self.loss,)

    def with_returned(self, graph: Graph, returned: Sequence[Value]) -> Model:
        """The same model over another graph, in which `returned` are the loss, if there is one, and the outputs."""
        first = 0 if self.loss is None else 1
        return replace(self, graph=graph, loss=returned[0] if first else None, outputs=tuple(returned[first:]))

    def weights(self) -> Iterator[tuple[str, Weight]]:
        """Every weight under its full name; those of a repeat once per iteration."""
        yield from _weights(self.graph, "")

    @property
    def gradient_bytes(self) -> int:
        """Bytes of the gradients of all weights."""
        return _gradient_bytes(self.graph)


def _gradient_bytes(graph: Graph) -> int:
    own = sum(weight.value.stored_bytes for weight in graph.weights if weight.value.needs_gradient)
    segments = (step for step in graph.steps if isinstance(step, Segment))
    return own + sum(segment.count * _gradient_bytes(segment.body) for segment in segments)


def _weights(graph: Graph, prefix: str) -> Iterator[tuple[str, Weight]]:
    for weight in graph.weights:
        yield prefix + weight.value.name, weight
    for step in graph.steps:
        if isinstance(step, Segment):
            for path in step.paths:
                yield from _weights(step.body, prefix + path)


def computed_from(graph: Graph, wanted: Iterable[Value]) -> tuple[frozenset[str], frozenset[int]]:
    """The names of the wanted values and of all values that they are computed from, and the numbers of the steps that
    make these.
    """
    names = {value.name for value in wanted}
    numbers = set()
    for number, step in reversed(list(enumerate(graph.steps))):
        if not names.isdisjoint(value.name for value in step.makes):
            numbers.add(number)
            names.update(value.name for value in step.reads)
    return frozenset(names), frozenset(numbers)
