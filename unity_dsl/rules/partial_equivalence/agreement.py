"""The output positions at which the two sides of a rule agree, as a box, computed from their normal forms.

The guards and quotients in both forms are affine in an output index. Each of them changes its truth value at a
threshold; these are the split points of PET (Wang et al., OSDI'21, section 5). Between split points the set of
contributing elements keeps its form. A box between split points is accepted if the forms are proved equal in it at all
sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product as combinations

from ...index.library import Library
from ...prove.decision.integer_arithmetic import Arithmetic
from ...prove.equality.form_equality import Comparison
from ...prove.normal_form.form import Unsupported, positions, substitute
from ...prove.normal_form.guard import Guard, compare, within
from ...prove.normal_form.polynomial import ONE, ZERO, Poly, Quotient, Var, fresh, number, of, product, quotient
from ...prove.normal_form.step_limit import limited
from ...prove.refutation.numeric_run import witness_sizes
from ...prove.translation.operator_forms import Tensor
from ...prove.translation.rule_forms import Graph, claim_of, rest_groups, used_names
from ...prove.translation.symbolic_sizes import exactly, shown
from ...syntax.parse_rules import RuleDecl

STEPS = 200_000
"""Step limit for the comparisons of one rule."""
MAX_VARIABLES = 4
"""Limit of other indices in a guard; each is set to both ends of its range."""


@dataclass(frozen=True)
class Interval:
    """The positions from start to stop, excluding stop, of a dimension of `size`."""

    start: Poly
    stop: Poly
    size: Poly

    @property
    def whole(self) -> bool:
        return not self.start.terms and self.stop == self.size

    def __str__(self) -> str:
        return ":" if self.whole else f"{shown(self.start)}:{shown(self.stop)}"


@dataclass(frozen=True)
class Agreement:
    """A box of one output in which both sides of a rule agree: one interval per dimension."""

    intervals: tuple[Interval, ...]

    @property
    def whole(self) -> bool:
        return all(interval.whole for interval in self.intervals)

    def __str__(self) -> str:
        """`[:, :, a:h - a, :]`: the positions of each dimension, `:` for all of them."""
        return f"[{', '.join(map(str, self.intervals))}]"


@dataclass(frozen=True)
class _Span:
    """An interval of one index: start <= index < stop."""

    start: Poly
    stop: Poly


@dataclass
class Sides:
    """A rule inlined at the sizes of a witness. `outputs` has both sides of each output over the same indices."""

    rule: RuleDecl
    library: Library
    graph: Graph = field(init=False)
    outputs: list[tuple[Tensor, Tensor]] = field(init=False)

    def __post_init__(self) -> None:
        """Raises Unsupported for rules with rest groups, and Failed and Unsupported as `Graph.sides` does."""
        if rest_groups(self.rule):
            raise Unsupported("a box in a tensor of any rank")
        claim = claim_of(self.rule)
        sizes = witness_sizes(claim, used_names(self.rule, claim, {}), 0)
        if sizes is None:
            raise Unsupported("conditions that no sizes meet")
        self.graph = Graph(self.rule, claim, self.library, {}, sizes, Arithmetic(claim.conditions))
        left, right = self.graph.sides()
        self.outputs = [second.over(first) for first, second in zip(left, right, strict=True)]

    @property
    def arithmetic(self) -> Arithmetic:
        return self.graph.arithmetic

    def agreement(self, output: int) -> Agreement | None:
        """The whole output if its sides are proved equal there, else the first such box found, longest intervals first.
        None if there is no such box.
        """
        left, right = self.outputs[output]
        majors = [dim[0] for dim in left.dims if dim]
        with limited(STEPS):
            if self._agree(left, right, {}):
                return self._box(left, {})
            spans = {var: tuple(self._spans(var, left, right)) for var in majors}
            cut = [var for var in majors if spans[var]]
            for chosen in (*((var,) for var in cut), *combinations(cut, cut)):
                if len(set(chosen)) < len(chosen) or list(chosen) != sorted(chosen, key=majors.index):
                    continue
                for box in combinations(*(spans[var] for var in chosen)):
                    taken = dict(zip(chosen, box, strict=True))
                    if self._agree(left, right, taken):
                        return self._box(left, taken)
        return None

    def _agree(self, left: Tensor, right: Tensor, box: Mapping[Var, _Span]) -> bool:
        """Whether both sides are proved equal at all indices in a box."""
        here = {var: fresh(span.stop - span.start) for var, span in box.items()}
        inner = {var: of(index) + box[var].start for var, index in here.items()}
        left, right = (_inside(tensor, here, inner) for tensor in (left, right))
        for choice in left.choices(right):
            first, second = left.chosen(choice), right.chosen(choice)
            try:
                if not Comparison(self.arithmetic).equal(first.value, second.value):
                    return False
            except Unsupported:
                return False
        return True

    def _box(self, tensor: Tensor, spans: Mapping[Var, _Span]) -> Agreement:
        """The box in terms of positions. An interval of the major digit is an interval of blocks of the
        other digits.
        """
        found = []
        for dim in tensor.dims:
            size = product(var.size for var in dim)
            block = product(var.size for var in dim[1:])
            span = spans.get(dim[0]) if dim else None
            whole = Interval(ZERO, size, size)
            found.append(whole if span is None else Interval(span.start * block, span.stop * block, size))
        return Agreement(tuple(found))

    # ------------------------------------------------------------------------------------------ split points

    def _spans(self, var: Var, left: Tensor, right: Tensor) -> Iterator[_Span]:
        """The intervals of an index between its split points that are never empty, longest at the witness first."""
        points = dict.fromkeys([ZERO, var.size, *self._thresholds(var, left, right)])
        inside = [point for point in points if self._holds(compare(">=", point, ZERO), compare(">=", var.size, point))]
        pairs = (_Span(low, high) for low, high in combinations(inside, inside) if (low, high) != (ZERO, var.size))
        kept = [span for span in pairs if self._holds(compare(">", span.stop, span.start))]
        yield from sorted(kept, key=lambda span: -exactly(span.stop - span.start, self.graph.witness))

    def _holds(self, *conditions: Guard) -> bool:
        return all(self.arithmetic.certain(condition) for condition in conditions)

    def _thresholds(self, var: Var, left: Tensor, right: Tensor) -> Iterator[Poly]:
        """Values of an index at which a comparison that contains it changes, with other indices at their ends."""
        polys = (poly for tensor in (left, right) for poly in _compared(tensor))
        for poly in dict.fromkeys(polys):
            coefficient = poly.coefficient(var)
            if not coefficient or not poly.is_integral:
                continue
            rest = poly - of(var).scaled(coefficient)
            others = sorted(rest.variables, key=lambda other: other.key)
            if len(others) > MAX_VARIABLES or any(isinstance(symbol, Quotient) for symbol in rest.symbols()):
                continue
            for ends in combinations(*((ZERO, other.size - ONE) for other in others)):
                value = quotient(rest.substitute(dict(zip(others, ends, strict=True))), number(abs(coefficient)))
                # c v + r >= 0 holds from v = -(r // c) on; r - c v >= 0 holds up to v = r // c.
                threshold = -value if coefficient > 0 else value + ONE
                if threshold.is_of_sizes:
                    yield threshold


def _inside(tensor: Tensor, indices: Mapping[Var, Var], values: Mapping[Var, Poly]) -> Tensor:
    """A tensor restricted to a box, over the indices of the box."""
    dims = tuple(tuple(indices.get(var, var) for var in dim) for dim in tensor.dims)
    return replace(tensor, value=substitute(tensor.value, values), domain=(), dims=dims)


def _compared(tensor: Tensor) -> Iterator[Poly]:
    """The polynomials on whose signs the value depends: those of guards, and the bounds of divided positions."""
    for poly in positions(tensor.value):
        yield poly
        for symbol in poly.symbols():
            if isinstance(symbol, Quotient):
                yield from (guard.poly for guard in within(symbol.numerator, symbol.denominator))
