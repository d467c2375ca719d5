"""Derives the gradient of an operator as equations: reverse-mode differentiation of comprehensions.

An equation `t[a] = sum(b) value` that reads element `x[f(a, b)]` contributes

    d_x[j] += sum(a, b) [j == f(a, b)] * d_t[a] * (derivative of value by that element)

and the guard is solved for axes of a and b where possible. Ties of max and min share the gradient: the derivative by a
term is `[term == t] / (number of such terms)`, as for torch's amax; with `ties = first` it is 1 for the first of them,
as for torch's max and pooling. The derivative of a prod by one factor is the prod of the others, zero factors included.
Intermediates that the outputs do not depend on have no cotangent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from ...syntax.ast import Apply, Expr, Name, Number, OperatorDecl, Read, ReductionKind, Select, Size, Ties, Uniform
from ..equations.axis_lengths import Findings, Lengths, Sizes, dim_size
from ..equations.guarded_extrema import guarded_extremum
from ..equations.index_inversion import Inside, Inversion, invert
from ..equations.instance import Dim, Equation, Instance, Kind, Operand
from ..equations.loop_nest import joined, loop_nest
from ..equations.rewriting import ONE, ZERO, simplify
from ..equations.term import (
    COMPARISONS,
    call,
    dim_index,
    free_axes,
    fresh,
    interval,
    merged_axes,
    reads,
    rewrite,
    substitute,
    walk,
)
from ..library import Library
from .derivative import Slope, declared_slopes, dependents, derivative, smooth_reads
from .independence import gradient_free

_TOTAL = frozenset({"+", "-", "*", "neg"}) | COMPARISONS
"""Functions that are finite wherever their arguments are."""


def adjoint(instance: Instance, library: Library, wrt: int) -> Instance:
    """The cotangent of input `wrt` from all inputs and the outputs' cotangents (`d_y`), in the input's shape.

    It repeats the forward equations whose values it needs. Raises ValueError for an integer input.
    """
    return adjoint_by(instance, declared_slopes(library), wrt)


def adjoint_by(instance: Instance, slope: Slope, wrt: int) -> Instance:
    """`adjoint` with derivatives of element functions given by `slope`."""
    operand = instance.inputs[wrt]
    if operand.integer_range is not None:
        raise ValueError(f"{instance.name}: `{operand.name}` holds integers, which have no cotangent")
    if instance.whole:
        raise ValueError(f"{instance.name} returns integers, which have no cotangent")
    known = _derived(instance.kind, slope, wrt)
    if (found := known.find(instance.sizes)) is not None:
        return found[0].of(instance, found[1])
    derivation = _Adjoint(instance, slope, operand)
    made = derivation.build()
    known.keep(derivation.lengths, made)
    return made.of(instance, derivation.lengths.sizes)


@lru_cache(maxsize=8192)
def _derived(kind: Kind, slope: Slope, wrt: int) -> Findings[_Derived]:
    """The adjoints of operators of a kind, by the answers to queries about axis lengths."""
    return Findings()


@dataclass(frozen=True)
class _Derived:
    """An adjoint without sizes; `given` are the names of the outputs' cotangents."""

    operator: OperatorDecl
    given: tuple[str, ...]
    result: Operand
    axes: tuple[str, ...]
    equations: tuple[Equation, ...]

    def of(self, instance: Instance, sizes: Mapping[str, int]) -> Instance:
        outputs = zip(instance.outputs, self.given, strict=True)
        return Instance(
            self.operator,
            (*instance.inputs, *(replace(output, name=name) for output, name in outputs)),
            (self.result,),
            {axis: sizes[axis] for axis in self.axes},
            instance.attributes,
            self.equations,
            native=False,
        )


@dataclass(frozen=True)
class _Term:
    """A contribution to a cotangent: the sum of `value` over `over`."""

    over: tuple[str, ...]
    value: Expr


class _Adjoint:
    """The state of one derivation: names and sizes, equations made, cotangents known."""

    def __init__(self, instance: Instance, slope: Slope, wrt: Operand) -> None:
        self.instance = instance
        self.slope = slope
        self.wrt = wrt
        self.lengths = Lengths(instance.sizes)
        self.axes = dict.fromkeys(instance.sizes)
        self.forward = {equation.target.name: equation for equation in instance.equations}
        self.operands = {operand.name: operand for operand in instance.inputs}
        self.operands |= {equation.target.name: equation.target for equation in instance.equations}
        self.active = dependents(instance, frozenset({wrt.name})) | {wrt.name}
        self.active -= gradient_free(instance)
        self.names = set(self.operands)
        self.cotangents = {output.name: self.name(f"d_{output.name}") for output in instance.outputs}
        self.dims = {operand.name: self.distinct(operand.dims) for operand in self.operands.values()}
        self.made: list[Equation] = []

    def build(self) -> _Derived:
        given = tuple(replace(output, name=self.cotangents[output.name]) for output in self.instance.outputs)
        self.operands |= {operand.name: operand for operand in given}
        terms: dict[str, list[_Term]] = {
            output.name: [_Term((), self.cotangent(output))] for output in self.instance.outputs
        }
        for equation in reversed(self.instance.equations):
            target = equation.target.name
            if target not in self.active or target not in terms:
                continue
            if target not in self.cotangents or len(terms[target]) > 1:
                self.cotangents[target] = self.name(f"d_{target}")
                self.collect(target, terms[target])
            for read in dict.fromkeys(smooth_reads(equation.value)):
                if read.tensor in self.active:
                    terms.setdefault(read.tensor, []).append(self.term(equation, read))
        self.cotangents[self.wrt.name] = self.name(f"d_{self.wrt.name}")
        self.collect(self.wrt.name, terms.get(self.wrt.name, []))
        result = self.operands[self.cotangents[self.wrt.name]]
        return _Derived(
            replace(self.instance.operator, name=f"{self.instance.name}_{result.name}", torch=None),
            tuple(operand.name for operand in given),
            result,
            tuple(self.axes),
            (*self.needed_forward(), *self.made),
        )

    # ------------------------------------------------------------------------------------------ names

    def name(self, wanted: str) -> str:
        found = fresh(wanted, self.names)
        self.names.add(found)
        return found

    def axis(self, wanted: str, taken: Iterable[str]) -> str:
        """A new axis of the size of `wanted`, with a name outside `taken`."""
        made = fresh(wanted, taken)
        while made in self.axes and not self.lengths.same(made, wanted):
            made = fresh(wanted, {*taken, *self.axes})
        if made not in self.axes:
            self.axes[made] = None
            self.lengths.add(made, wanted)
        return made

    def distinct(self, dims: Sequence[Dim]) -> tuple[Dim, ...]:
        """Dimensions with repeated names renamed apart, for left sides."""
        used: list[str] = []
        for axis in (axis for dim in dims for axis in dim):
            used.append(self.axis(axis, used))
        left = iter(used)
        return tuple(tuple(next(left) for _ in dim) for dim in dims)

    def cotangent(self, operand: Operand) -> Read:
        """The cotangent of a tensor, read at its own axes."""
        return Read(self.cotangents[operand.name], tuple(dim_index(dim) for dim in operand.dims))

    # ------------------------------------------------------------------------------------------ contributions

    def collect(self, tensor: str, terms: Sequence[_Term]) -> None:
        """The equations of a cotangent: the sum of its terms, one reduction per set of axes."""
        target = Operand(self.cotangents[tensor], self.dims[tensor])
        groups: dict[tuple[str, ...], Expr] = {}
        for term in terms:
            if term.value != ZERO:
                before = groups.get(term.over)
                groups[term.over] = term.value if before is None else simplify(joined(before, term.value, term.over))
        if len(groups) <= 1:
            for over, value in groups.items() or [((), ZERO)]:
                self.make(target, value, ReductionKind.SUM if over else None, over)
            return
        total: Expr = groups.pop((), ZERO)
        for over, value in groups.items():
            axes = tuple((axis,) for axis in target.axes if axis in free_axes(value))
            part = Operand(self.name(target.name), axes)
            self.make(part, value, ReductionKind.SUM, over)
            total = call("+", total, Read(part.name, tuple(Name(axis) for axis in part.axes)))
        self.make(target, simplify(total), None, ())

    def make(self, target: Operand, value: Expr, kind: ReductionKind | None, over: tuple[str, ...]) -> None:
        self.made.append(Equation(target, value, kind, over))
        self.operands[target.name] = target

    def term(self, equation: Equation, read: Read) -> _Term:
        """The contribution of one read of an active tensor to its cotangent."""
        factor = simplify(call("*", self.weight(equation), derivative(equation.value, read, self.slope)))
        dims = self.dims[read.tensor]
        own = {axis for dim in dims for axis in dim}
        # The equation's axes are renamed apart from the tensor's; those not solved for get their names back.
        apart = {axis: f"{axis}'" for axis in equation.space}
        for axis, new in apart.items():
            if new not in self.lengths.sizes:
                self.lengths.add(new, axis)
        renaming: dict[str, Expr] = {axis: Name(new) for axis, new in apart.items()}
        renamed = substitute(read, renaming)
        assert isinstance(renamed, Read)
        found = invert(renamed, dims, [*apart.values()], self.lengths)
        free = [axis for axis in equation.space if apart[axis] not in found.solved]
        back: dict[str, str] = {}
        for axis in free:
            back[axis] = self.axis(axis, own | set(back.values()))
        final: dict[str, Expr] = {apart[axis]: Name(new) for axis, new in back.items()}
        solution = {axis: found.solved.get(new, Name(new)) for axis, new in apart.items()}
        at = {axis: simplify(substitute(term, final)) for axis, term in solution.items()}
        found.inside = [condition.at(final) for condition in found.inside]
        found.equal = [simplify(substitute(condition, final)) for condition in found.equal]
        return self.summed(self.placed(equation, factor, at, found), tuple(back.values()))

    def placed(self, equation: Equation, factor: Expr, at: Mapping[str, Expr], found: Inversion) -> Expr:
        """The factor at the solved positions, 0 at those outside the equation's space or off the element."""
        if any(_moves(node, at) for node in walk(factor)):
            factor = self.drawn(equation, factor)
        value = rewrite(substitute(factor, at), self.guarded)
        for condition in found.equal:
            value = call("*", condition, value)
        if found.inside and not self.vanishes(equation, value, at, found):
            for limit in found.inside:
                value = Select(self.holds(limit), value, ZERO)
        return simplify(value)

    def holds(self, condition: Inside) -> Expr:
        """A condition as a term, with lengths as numbers."""
        term, end = condition.term, condition.end
        if end is None:
            return simplify(call(">=", term, ZERO))
        return simplify(call("<", term, Number(self.lengths.number((end,))) if isinstance(end, str) else end))

    def guarded(self, node: Expr) -> Expr:
        """A read with fill 0 if its index may now be out of bounds, and without a fill if it cannot be.

        Whether a merged index is in bounds depends on these sizes: `h - r` is in bounds if r has size 1.
        """
        if not isinstance(node, Read):
            return node
        dims = zip(node.index, self.operands[node.tensor].dims, strict=True)
        if all(index == dim_index(dim) or self.lengths.ask(_inside, index, dim) for index, dim in dims):
            return replace(node, fill=None)
        return node if node.fill is not None else replace(node, fill=ZERO)

    def vanishes(self, equation: Equation, value: Expr, at: Mapping[str, Expr], found: Inversion) -> bool:
        """Whether the cotangent, read with fill 0, is 0 wherever the solved positions are outside the space."""
        incoming = Read(self.cotangents[equation.target.name], ())
        if any(isinstance(node, Apply) and node.arguments and node.function not in _TOTAL for node in walk(value)):
            return False
        known = {condition.term for condition in found.inside}
        kept = {at[dim[0]] for dim in equation.target.dims if len(dim) == 1}
        return known <= kept and _is_factor(incoming.tensor, value)

    def summed(self, value: Expr, over: tuple[str, ...]) -> _Term:
        """The term; an axis that the value does not depend on multiplies it by its size."""
        used = free_axes(value)
        for axis in over:
            if axis not in used and value != ZERO:
                value = simplify(call("*", value, Size(axis)))
        return _Term(tuple(axis for axis in over if axis in used), value)

    # ------------------------------------------------------------------------------------------ reductions

    def weight(self, equation: Equation) -> Expr:
        """The derivative of the outputs with respect to one value of the equation, before its reduction."""
        incoming = self.cotangent(equation.target)
        match equation.kind:
            case ReductionKind.MAX | ReductionKind.MIN:
                return (self.shared if equation.ties is Ties.SHARE else self.first)(equation, incoming)
            case ReductionKind.PROD:
                return call("*", incoming, self.others(equation))
        return incoming

    def shared(self, equation: Equation, incoming: Expr) -> Expr:
        """Ties share: 1 / (number of values equal to the extremum) for each of them."""
        guarded = guarded_extremum(equation)
        nest = loop_nest(self.instance, equation)
        if guarded is None or not (nest.placed or nest.looked_up):
            hit = counted = self.hit(equation, equation.value, equation.space)
        else:
            # There are values only where the guards hold, and the weight is read only there.
            used = {*free_axes(guarded.value)}
            hit = self.hit(equation, guarded.value, [axis for axis in equation.space if axis in used])
            counted = hit
            for guard in reversed(guarded.guards):
                counted = call("*", guard, counted)
        count = self.intermediate(
            equation, "ties", equation.target.axes, counted, kind=ReductionKind.SUM, over=equation.over
        )
        return call("*", hit, call("/", incoming, count))

    def first(self, equation: Equation, incoming: Expr) -> Expr:
        """1 for the first value equal to the extremum, at the least reduced position; 0 for the others."""
        position = dim_index(equation.over)
        beyond = Number(self.lengths.number(equation.over))
        least = self.intermediate(
            equation,
            "first",
            equation.target.axes,
            Select(self.hit(equation, equation.value, equation.space), position, beyond),
            kind=ReductionKind.MIN,
            over=equation.over,
        )
        return call("*", call("==", position, least), incoming)

    def hit(self, equation: Equation, value: Expr, axes: Sequence[str]) -> Expr:
        """Whether a value over these axes equals the extremum, as 1 or 0."""
        if not isinstance(value, Read):
            # The same term as computed: a rearranged one could round differently from the extremum.
            value = self.intermediate(equation, "term", axes, value)
        extremum = Read(equation.target.name, tuple(dim_index(dim) for dim in equation.target.dims))
        return call("==", value, extremum)

    def others(self, equation: Equation) -> Expr:
        """The product over all positions but one."""
        taken = set(equation.space)
        again: dict[str, str] = {}
        for axis in equation.over:
            again[axis] = self.axis(axis, taken | set(again.values()) | {axis})
        value = substitute(equation.value, {axis: Name(new) for axis, new in again.items()})
        same: Expr = ONE
        for axis, new in again.items():
            same = (
                call("==", Name(axis), Name(new)) if same == ONE else call("*", same, call("==", Name(axis), Name(new)))
            )
        return self.intermediate(
            equation,
            "others",
            equation.space,
            Select(same, ONE, value),
            kind=ReductionKind.PROD,
            over=tuple(again.values()),
        )

    def intermediate(
        self,
        equation: Equation,
        suffix: str,
        axes: Sequence[str],
        value: Expr,
        *,
        kind: ReductionKind | None = None,
        over: tuple[str, ...] = (),
    ) -> Read:
        """A read of a new tensor with this value; cached by its arguments."""
        for made in self.made:
            if (made.value, made.kind, made.over, made.target.axes) == (value, kind, over, tuple(axes)):
                return Read(made.target.name, tuple(Name(axis) for axis in axes))
        target = Operand(self.name(f"{equation.target.name}_{suffix}"), tuple((axis,) for axis in axes))
        self.make(target, value, kind, over)
        return Read(target.name, tuple(Name(axis) for axis in axes))

    # ------------------------------------------------------------------------------------------ repeated equations

    def drawn(self, equation: Equation, factor: Expr) -> Expr:
        """The factor with random numbers as tensors of their own, so that they can be read at other positions."""

        def drawn(node: Expr) -> Expr:
            if not isinstance(node, Uniform):
                return node
            return self.intermediate(equation, "uniform", free_axes(node), node)

        return rewrite(factor, drawn)

    def needed_forward(self) -> Iterator[Equation]:
        """The forward equations that the adjoint's equations read, in order."""
        needed = {read.tensor for equation in self.made for read in reads(equation.value)}
        for name in reversed(self.forward):
            if name in needed:
                needed |= {read.tensor for read in reads(self.forward[name].value)}
        return (equation for name, equation in self.forward.items() if name in needed)


def _inside(sizes: Sizes, index: Expr, dim: Dim) -> bool:
    """Whether an index is in bounds at all sizes, not only because it is a merged one at these."""
    if len(free_axes(index)) > 1 and merged_axes(index, sizes) is None:
        return False
    low, high = interval(index, sizes)
    return low >= 0 and high < dim_size(sizes, dim)


def _moves(node: Expr, at: Mapping[str, Expr]) -> bool:
    """Whether a random number would be drawn at a computed position."""
    return isinstance(node, Uniform) and not all(isinstance(at[axis], Name) for axis in free_axes(node))


def _is_factor(tensor: str, value: Expr) -> bool:
    """Whether the value is a product with a read of this tensor with fill 0."""
    match value:
        case Read(tensor=name, fill=fill):
            return name == tensor and fill == ZERO
        case Apply("*", (left, right)):
            return _is_factor(tensor, left) or _is_factor(tensor, right)
        case Apply("neg", (argument,)):
            return _is_factor(tensor, argument)
    return False
