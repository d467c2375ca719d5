"""Mixed precision: the float types of a model's values when its arithmetic is in a narrower type than its weights.

Weights are stored in float32 and operators read a cast of them. Activations and their gradients are narrow
(Micikevicius et al. 2018, "Mixed Precision Training"). Inputs, buffers that are not declared to be narrower, and what
only buffer updates need stay in float32. Scalars, such as losses, do too, with what operators that contract nothing
compute for them alone.

The precision `tf32` stores and computes everything in float32, but products of matrices and convolutions may round
their factors to 10 explicit bits of mantissa, as tensor cores of NVIDIA GPUs since Ampere do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from ..index.cost.kernels import equation_kernels, is_depthwise
from ..index.cost.lowering_class import PRODUCT_CLASSES, LoweringClass, lowering_class
from ..index.equations.instance import Instance
from ..index.library import Library
from ..index.lowering.accumulation import NarrowSums, narrow_sums
from ..syntax.ast import Precision
from ..syntax.diagnostic import fail, suggest
from ..syntax.span import Span
from .graph import DTYPE_BYTES, Buffer, Graph, Input, Model, Node, Segment, Series, Value, Weight, computed_from

FULL = "f32"
"""The type of stored tensors, in which losses, statistics and gradients of weights are accumulated."""
TF32 = "tf32"
"""FULL, but the factors of products may be rounded."""
SUMMED = "summed"
"""FULL on a CPU and the narrow type on a GPU: for calls that accumulate in float32 internally only on GPUs."""
PRECISIONS = (FULL, "bf16", "f16", TF32)

_TAIL = frozenset({LoweringClass.ELEMENTWISE, LoweringClass.ROW_REDUCTION, LoweringClass.VIEW})
"""Operators that compute in float32 if their results are read in float32 only."""

_Stored = TypeVar("_Stored", Input, Weight, Buffer)


def chosen_precision(declared: Precision | None, asked: str | None) -> str | None:
    """The requested precision, or else the model's, if it declares one. Raises E314 for an unknown precision."""
    if declared is not None:
        _check(declared.name, declared.span)
    if asked is not None:
        _check(asked, None)
        return asked
    return None if declared is None else declared.name


def _check(precision: str, span: Span | None) -> None:
    if precision not in PRECISIONS:
        hint = suggest(precision, PRECISIONS) or f"there are {', '.join(PRECISIONS)}"
        raise fail("E314", f"there is no precision called `{precision}`", span, help=hint)


def with_precision(model: Model) -> Model:
    """The model with the float types that its precision gives every value; unchanged if it has none."""
    if model.precision is None:
        return model
    typing = _Typing(FULL, tf32=True) if model.precision == TF32 else _Typing(model.precision)
    graph, values = typing.graph(model.graph, {}, model.returned)
    return model.with_returned(graph, [values[value.name] for value in model.returned])


def is_mixed(model: Model) -> bool:
    """Whether a model's arithmetic is in a narrower type than its weights."""
    return model.precision not in (None, FULL, TF32)


def is_scaled(model: Model) -> bool:
    """Whether a model's loss must be scaled, because float16 has less range than float32."""
    return model.loss is not None and model.precision == "f16"


# ---------------------------------------------------------------------------------------------- of one operator


def arithmetic(node: Node, native: bool, library: Library) -> str:
    """The float type in which an operator runs. torch's native calls accumulate in float32 internally. In mixed
    precision, statements that sum run in float32, and so do calls that would accumulate in a narrow type on any device.
    A look-up of rows of a weight as it is stored runs in float32 too, and casts the rows.
    """
    if not node.mixed or node.dtype == FULL:
        return node.dtype
    if any(value.is_weight and not value.is_cast and _looks_up_few(node, value) for value in node.arguments):
        return FULL
    return FULL if narrow_sums(node.instance, native, library) is NarrowSums.ANYWHERE else node.dtype


def emitted_arithmetic(node: Node, native: bool, library: Library) -> str:
    """`arithmetic`, or SUMMED if only CPUs would accumulate in the narrow type."""
    dtype = arithmetic(node, native, library)
    if dtype == FULL or not node.mixed or len({value.dtype for value in node.results} - {"int"}) > 1:
        return dtype
    return SUMMED if narrow_sums(node.instance, native, library) is NarrowSums.ON_CPUS else dtype


def operand_types(node: Node, dtype: str) -> tuple[str, ...]:
    """The type in which an operator that runs in `dtype` gets each operand; values of another type are cast.

    If results have several types (batch_norm's activations and running statistics), a native call takes wider operands
    as they are.
    """
    floats = {value.dtype for value in node.results if value.dtype != "int"}
    kept = DTYPE_BYTES[dtype] if len(floats) > 1 else max(DTYPE_BYTES.values())
    return tuple(
        value.dtype if value.dtype == "int" or DTYPE_BYTES[value.dtype] > kept else dtype for value in node.arguments
    )


def result_types(node: Node, dtype: str) -> tuple[str, ...]:
    """The type in which an operator that runs in `dtype` makes each result; it is cast if the value has another."""
    return tuple(dtype if dtype != node.dtype == value.dtype else value.dtype for value in node.results)


def priced_type(node: Node, native: bool, library: Library) -> str:
    """The type at whose peak an operator is priced: `arithmetic`, or TF32 where its products round their factors."""
    dtype = arithmetic(node, native, library)
    return TF32 if node.tf32 and dtype == FULL and rounds_factors(node.instance, native) else dtype


def rounds_factors(instance: Instance, native: bool) -> bool:
    """Whether torch runs an operator's products in TF32 if that is enabled. It does for products of statements and for
    a native call that is one product. Fused attention and depthwise convolutions have kernels that ignore the setting.
    """
    kernels = zip(instance.equations, equation_kernels(instance), strict=False)
    products = [equation for equation, kernel in kernels if kernel.product is not None]
    if not native or len(products) != 1:
        return bool(products) and not native
    return lowering_class(instance) in PRODUCT_CLASSES and not is_depthwise(instance, products[0])


# ---------------------------------------------------------------------------------------------- of a graph


@dataclass(frozen=True)
class _Types:
    """Float types by name: `made` of a graph's results, `read` those in which its values and outside ones are read."""

    made: Mapping[str, str]
    read: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class _Typing:
    """Assigns float types; `narrow` is the type of activations. With `tf32` products may round their factors."""

    narrow: str
    tf32: bool = False

    def types(self, graph: Graph, left: Iterable[Value]) -> _Types:
        """The types of a graph that the values `left` leave. Steps are visited backwards, so readers come first."""
        leaving = [value.name for value in left]
        needed, _ = computed_from(graph, left)
        made: dict[str, str] = {}
        read: defaultdict[str, list[str]] = defaultdict(list)
        for name in leaving:
            read[name].append(self.narrow)

        def result_type(node: Node, value: Value) -> str:
            if not value.shape or value.name not in needed:
                return FULL
            tail = set(read[value.name]) == {FULL} and lowering_class(node.instance) in _TAIL
            return FULL if tail else self.narrow

        for step in reversed(graph.steps):
            if isinstance(step, Segment):
                for value, entry in zip(step.initial, step.entry, strict=True):
                    read[value.name].append(self.carried_type(entry))
                for series in step.sliced:
                    read[series.whole.name].append(self.narrow)
                inside = self.types(step.body, step.leaves).read
                for value in step.captured:
                    read[value.name] += inside[value.name]
                continue
            found = {value.name: result_type(step, value) for value in step.results if value.dtype != "int"}
            made |= found
            for value in step.arguments:
                # An operator that also updates statistics, or looks up a few rows, reads stored tensors as stored.
                stored = len(set(found.values())) > 1 or _looks_up_few(step, value)
                stored = stored and _is_stored(value, graph)
                read[value.name].append(FULL if stored or set(found.values()) == {FULL} else self.narrow)
        return _Types(made, read)

    def carried_type(self, value: Value) -> str:
        return self.narrow if value.shape else FULL

    def graph(
        self, graph: Graph, outside: Mapping[str, Value], left: Sequence[Value]
    ) -> tuple[Graph, dict[str, Value]]:
        """The graph with types, and its values by name, those from `outside` included."""
        types = self.types(graph, left)
        values = dict(outside)

        def add(value: Value, dtype: str, cast_from: str | None = None) -> Value:
            if value.dtype != "int":
                value = replace(value, dtype=dtype, cast_from=cast_from)
            values[value.name] = value
            return value

        def stored(items: Iterable[_Stored]) -> tuple[_Stored, ...]:
            """Inputs, weights or buffers with types. A weight is cast unless every reader wants float32, and so is a
            buffer that is stored in a narrower type. Everything else is float32.
            """
            found = []
            for item in items:
                kept = FULL if isinstance(item, Weight) and self.narrow != FULL else item.value.cast_from
                full = kept is None or set(types.read[item.value.name]) == {FULL}
                typed = add(item.value, FULL if full else self.narrow, kept)
                found.append(replace(item, value=typed))
            return tuple(found)

        inputs, weights, buffers = stored(graph.inputs), stored(graph.weights), stored(graph.buffers)
        steps: list[Node | Segment] = []
        for step in graph.steps:
            if isinstance(step, Segment):
                steps.append(self.segment(step, values))
                for value in steps[-1].makes:
                    values[value.name] = value
                continue
            arguments = tuple(values[value.name] for value in step.arguments)
            results = tuple(add(value, types.made.get(value.name, "int")) for value in step.results)
            mixed = self.narrow != FULL
            steps.append(replace(step, arguments=arguments, results=results, mixed=mixed, tf32=self.tf32))
        updates = tuple(
            replace(update, buffer=values[update.buffer.name], value=values[update.value.name])
            for update in graph.updates
        )
        return Graph(inputs, weights, buffers, tuple(steps), updates), values

    def segment(self, segment: Segment, around: Mapping[str, Value]) -> Segment:
        """The segment with types. A carried value has one type in all iterations; slices have the type of the whole."""

        def carried(values: Iterable[Value]) -> tuple[Value, ...]:
            return tuple(v if v.dtype == "int" else replace(v, dtype=self.carried_type(v)) for v in values)

        def outer(values: Iterable[Value]) -> tuple[Value, ...]:
            return tuple(around[value.name] for value in values)

        entry = carried(segment.entry)
        sliced = tuple(_series(series, around[series.whole.name].dtype, around) for series in segment.sliced)
        inside = {**around, **{value.name: value for value in (*entry, *(series.part for series in sliced))}}
        body, inside = self.graph(segment.body, inside, segment.leaves)
        stacked = tuple(_series(series, inside[series.part.name].dtype, {}) for series in segment.stacked)
        return replace(
            segment,
            body=body,
            initial=outer(segment.initial),
            entry=entry,
            exit=tuple(inside[value.name] for value in segment.exit),
            results=carried(segment.results),
            captured=outer(segment.captured),
            sliced=sliced,
            stacked=stacked,
            predicate=None if segment.predicate is None else around[segment.predicate.name],
        )


def _series(series: Series, dtype: str, around: Mapping[str, Value]) -> Series:
    whole = around.get(series.whole.name) or replace(series.whole, dtype=dtype)
    return replace(series, whole=whole, part=replace(series.part, dtype=dtype))


ROWS = 2**20
"""From this many rows on, as in tables of recommendation models, only the rows that are looked up are cast."""


def _looks_up_few(node: Node, weight: Value) -> bool:
    """Whether an operator looks up rows of a large table. The number of rows that it looks up does not matter, so that
    every batch size has the same types.
    """
    return weight.shape[:1] >= (ROWS,) and lowering_class(node.instance) is LoweringClass.GATHER


def _is_stored(value: Value, graph: Graph) -> bool:
    stored = (*(weight.value for weight in graph.weights), *(buffer.value for buffer in graph.buffers))
    return any(found.name == value.name for found in stored)
