"""Schedules as texts for comparison: every instruction with all its fields, tensors by number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from unity_dsl.graph.chunked_products import ChunkedProduct
from unity_dsl.graph.deferred_gradients import WeightProduct
from unity_dsl.graph.graph import Update, Value
from unity_dsl.graph.layout import Layout
from unity_dsl.graph.layout_conversion import Conversion
from unity_dsl.graph.plan import PlannedNode, PlannedSegment, Run
from unity_dsl.schedule.ir import Function, Loop, Tensor


class ScheduleText:
    """Numbers objects in order of first occurrence."""

    def __init__(self) -> None:
        self.numbers: dict[int, str] = {}
        self.kept: list[object] = []

    def lines(self, function: Function) -> Iterator[str]:
        """Lines of a function, followed by the bodies of its loops."""
        yield f"function {function.path or 'model'}, {len(function.instructions)} instructions"
        for name in ("inputs", "stored", "entering", "captured"):
            yield f"{name} {self.told(getattr(function, name))}"
        loops = []
        for one in function.instructions:
            yield f"  {self.told(one)}"
            loops += [one.loop] if type(one).__name__ == "Open" else []  # type: ignore[union-attr]
        yield f"results {self.told(function.results)}, first {self.told(function.first)}"
        yield f"{sorted(function.leaving)} {function.interleaved} {function.defers}"
        for loop in loops:
            for body in loop.bodies:
                yield from self.lines(body)

    def told(self, one: Any) -> str:
        """Text of an object. A tensor that has occurred before is its number."""
        match one:
            case Tensor():
                known = id(one) in self.numbers
                name = self._number(one, "t")
                return name if known else f"{name}={one.value.name}:{one.layout}:{one.dtype}:{one.parameter}"
            case Loop():
                return f"{one.step.segment.name} again {one.again} offloaded {one.offloaded}"
            case PlannedNode():
                return f"{one.node.name} {one.typed.configuration}"
            case PlannedSegment():
                return one.segment.name
            case Layout():
                return str(one)
            case Conversion():
                return f"{one.forward!r} back {one.backward!r}"
            case ChunkedProduct():
                return f"{one.product.step.node.name} by {one.axis} in {one.parts}, {one.value.name}: {one.layout}"
            case WeightProduct():
                return f"{one.step.node.name} of {one.weight}"
            case Update():
                return f"{one.buffer.name} becomes {one.value.name}"
            case Run():
                return f"{one.first}+{one.count}"
            case tuple() | list():
                return f"[{', '.join(map(self.told, one))}]"
        kind = type(one)
        if kind.__module__.endswith("schedule.ir"):
            known = id(one) in self.numbers
            name = self._number(one, kind.__name__)
            told = (f"{field.name}={self.told(getattr(one, field.name))}" for field in fields(one))
            return name if known else f"{name}({', '.join(told)})"
        return one.name if isinstance(one, Value) else str(one)

    def _number(self, one: object, stem: str) -> str:
        if id(one) not in self.numbers:
            self.numbers[id(one)] = f"{stem}{len(self.numbers)}"
            self.kept.append(one)
        return self.numbers[id(one)]
