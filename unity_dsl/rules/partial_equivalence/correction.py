"""The exact correction of a partially equal form: the form inside its box, and the original operator outside.

Outside the box, the original is computed on slices of its operands, with the halo that its windows need. A correction
therefore costs as much as the rows that it computes. The result is a claim like any other and is proved before it is
used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ...index.equations.term_text import expression_text
from ...index.library import Library
from ...prove.normal_form.form import Unsupported
from ...prove.normal_form.polynomial import ONE, ZERO, Poly, number
from ...prove.translation.symbolic_sizes import shown
from ...syntax.ast import Name
from ...syntax.parse_rules import GraphCall, GraphExpr
from .agreement import Agreement, Interval, Sides
from .candidate import Candidate
from .windows import Window, windows


@dataclass(frozen=True)
class Corrected:
    """A candidate, its boxes, and the rule that corrects it. It is `exact` if the boxes are the whole outputs."""

    candidate: Candidate
    boxes: tuple[Agreement, ...]
    rule: Candidate

    @property
    def exact(self) -> bool:
        return all(box.whole for box in self.boxes)


def corrected(candidate: Candidate, library: Library) -> Corrected | None:
    """The corrected candidate; None if the sides agree nowhere for some output.

    Raises Failed and Unsupported if a side cannot be inlined or the original cannot be computed in parts.
    """
    rule = candidate.rule(library)
    sides = Sides(rule, library)
    boxes = [sides.agreement(output) for output in range(len(rule.left))]
    found = tuple(box for box in boxes if box is not None)
    if len(found) < len(boxes):
        return None
    writer = _Writer(sides, [*candidate.definitions])
    right = tuple(writer.frame(output, box, candidate.right[output]) for output, box in enumerate(found))
    doc = f"Without its correction the form agrees in {' and '.join(map(str, found))}."
    doc = "The form agrees everywhere." if all(box.whole for box in found) else doc
    return Corrected(candidate, found, replace(candidate, definitions=tuple(writer.definitions), right=right, doc=doc))


@dataclass
class _Writer:
    """Writes expressions for parts of the original; `definitions` are the local names made so far."""

    sides: Sides
    definitions: list[str]
    made: dict[str, str] = field(default_factory=dict)

    def named(self, name: str, text: str) -> str:
        """A local name for an expression; equal expressions get the same name."""
        if text not in self.made:
            taken = {line.split(" = ")[0] for line in self.definitions} | {t.name for t in self.sides.rule.inputs}
            self.made[text] = next(new for new in _names(name) if new not in taken)
            self.definitions.append(f"{self.made[text]} = {text}")
        return self.made[text]

    # ------------------------------------------------------------------------------------------ the frame of a box

    def frame(self, output: int, box: Agreement, fast: str) -> str:
        """The output, assembled from the fast form inside the box and the original outside."""
        cut = [(dim, interval) for dim, interval in enumerate(box.intervals) if not interval.whole]
        found = self.named("fast", fast) if cut else fast
        for dim, interval in cut:
            found = _sliced(found, dim, interval)
        for dim, interval in reversed(cut):
            others = [entry for entry in cut if entry[0] < dim]
            parts = [
                self._outside(output, dim, Interval(ZERO, interval.start, interval.size), others),
                found,
                self._outside(output, dim, Interval(interval.stop, interval.size, interval.size), others),
            ]
            found = self._joined([part for part in parts if part], dim)
        return found

    def _outside(self, output: int, dim: int, slab: Interval, others: list[tuple[int, Interval]]) -> str:
        """A slab of the original next to the box, cut to the box along the dimensions that are framed later."""
        if slab.start == slab.stop:
            return ""
        found = self.part(self.sides.rule.left[output], dim, slab)
        for other, interval in others:
            found = _sliced(found, other, interval)
        return found

    def _joined(self, parts: list[str], dim: int) -> str:
        first, *others = parts
        for part in others:
            first = self.named("rows", f"concat({first}, {part}; dim={dim})")
        return first

    # ------------------------------------------------------------------------------------------ parts of the original

    def part(self, expr: GraphExpr, dim: int, interval: Interval) -> str:
        """The expression restricted to an interval of a dimension. Raises Unsupported."""
        definitions = dict(self.sides.rule.definitions)
        if isinstance(expr, Name) and expr.name in definitions:
            return self.part(definitions[expr.name], dim, interval)
        if isinstance(expr, Name):
            return _sliced(expr.name, dim, interval)
        if not isinstance(expr, GraphCall) or expr.degrees is not None:
            raise Unsupported("a part of a view")
        moved = windows(self.sides.graph.made[id(expr)], expr.result, dim)
        if all(window.aligned for window in moved):
            parts = {window.operand: (window.dim, replace(interval, size=window.size)) for window in moved}
            return self._call(expr, parts)
        if len(moved) != 1:
            raise Unsupported(f"`{expr.name}`: several windows along one dimension")
        (window,) = moved
        before = _rows_before(window) if interval.start.terms else ZERO
        text = self._call(expr, {window.operand: (window.dim, _read_by(window, interval, before))})
        name = self.named("border", text)
        return _sliced(name, dim, Interval(before, before + interval.stop - interval.start, interval.size))

    def _call(self, call: GraphCall, parts: Mapping[int, tuple[int, Interval]]) -> str:
        operands = [
            self.part(argument, *parts[place]) if place in parts else self._text(argument)
            for place, argument in enumerate(call.arguments)
        ]
        given = ", ".join(f"{name}={expression_text(value)}" for name, value in call.attributes)
        return f"{call.name}({', '.join(operands)}{f'; {given}' if given else ''})"

    def _text(self, expr: GraphExpr) -> str:
        if isinstance(expr, Name):
            return expr.name
        if isinstance(expr, GraphCall) and expr.degrees is None:
            return self._call(expr, {})
        raise Unsupported("a view in the original")


def _read_by(window: Window, interval: Interval, before: Poly) -> Interval:
    """The interval of a windowed dimension that is read for an interval of the result and `before`
    positions before it.
    """
    step = number(window.step)
    start = (interval.start - before) * step
    whole = interval.stop == interval.size
    stop = window.size if whole else (interval.stop - ONE) * step + window.high + ONE
    return Interval(start, stop, window.size)


def _rows_before(window: Window) -> Poly:
    """How many positions earlier a slice must begin so that no padding is read instead of elements."""
    if window.step == 1:
        return -window.low
    least = window.low.constant
    if least is None:
        raise Unsupported("a padding that is no number, at a stride")
    return number(-(least.numerator // window.step))


def _sliced(text: str, dim: int, interval: Interval) -> str:
    if interval.whole:
        return text
    return f"slice({text}; dim={dim}, start={shown(interval.start)}, stop={shown(interval.stop)})"


def _names(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}_{count}" for count in range(2, 1_000))
