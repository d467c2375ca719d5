"""Proves that padded operators compute the same results at original positions, and pass no gradient to the padding.

A padded axis has n + t positions instead of n; both are symbols. The first n are the front, the last t the tail. An
operand has the original elements in front; its tail has other elements or a given number. The theorem, for values and
for the adjoint by every operand: the front is the same, and the tail of a result is the claimed number, that of a
cotangent 0. By induction over a model's operators, a training step of the padded model is one of the original model:
weights are padded with zeros, whose gradient is 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from ...graph.padding_claims import PaddingClaim, front_size
from ...index.equations.instance import Equation, Instance, Operand
from ...index.gradients.adjoint import adjoint
from ...index.library import Library
from ...syntax.ast import Apply, Expr, Name, Number, Select
from ..answer import Answer, NotProved, Obligation, Proved
from ..equality.form_equality import Comparison
from ..functions.scalar_functions import Functions, literal
from ..normal_form.form import Element, Form, Term, add, atom, guarded, substitute
from ..normal_form.guard import compare
from ..normal_form.polynomial import Poly, Var, fresh, of
from ..normal_form.polynomial import number as number_of
from ..translation.operator_forms import Call, Tensor, input_tensor
from ..translation.symbolic_sizes import Failed, Sizes
from .slice_theorems import answer, check_defined, scalars, symbolic_input, symbolic_sizes
from .theorem_subject import generalise

Tails = Mapping[tuple[str, str], float]
"""The number in the tail of a tensor along an axis, by (tensor, axis)."""


def prove_padding(claim: PaddingClaim, library: Library) -> Answer:
    """Whether a padded operator and its adjoints meet the claim, at all sizes."""
    parts = list[Proved]()
    operands = {operand.name for operand in claim.instance.inputs}
    filled = frozenset(axis for name, axis, _ in claim.tails if name in operands)
    for passed in _passes(claim, library):
        for theorem in (passed, replace(passed, defined=True)) if filled else (passed,):
            found = answer(library, partial(theorem.obligations, filled=filled))
            if isinstance(found, NotProved) and passed.instance.attributes:
                found = answer(library, partial(replace(theorem, numbers=False).obligations, filled=filled))
            if isinstance(found, NotProved):
                return replace(found, reason=f"{passed.words}: {found.reason}")
            assert isinstance(found, Proved)
            parts.append(found)
    return Proved(
        tuple(obligation for part in parts for obligation in part.obligations),
        sum(part.questions for part in parts),
        sum(part.seconds for part in parts),
        tuple(dict.fromkeys(fact for part in parts for fact in part.facts)),
    )


def _passes(claim: PaddingClaim, library: Library) -> Iterator[_Pass]:
    """The theorems for the operator in training, for evaluation if that differs, and for its adjoints."""
    instance, padded = claim.instance, claim.padded
    instance, padded = _executed(instance), _executed(padded)
    tails = {(name, axis): number for name, axis, number in claim.tails}
    apart = replace(instance, evaluation=()), replace(padded, evaluation=())
    yield _Pass(*apart, claim.axes, tails, "in training")
    if instance.evaluation:
        first, second = (replace(one, equations=one.evaluation, evaluation=()) for one in (instance, padded))
        yield _Pass(first, second, claim.axes, tails, "in evaluation")
    if instance.whole:
        return
    operands = {operand.name for operand in instance.inputs}
    for position, operand in enumerate(instance.inputs):
        if operand.integer_range is None:
            one, other = (adjoint(made, library, position) for made in apart)
            given = {place: number for place, number in tails.items() if place[0] in operands}
            cotangents = [given for given in (*other.inputs, *other.outputs) if given.name not in operands]
            zeros = {(made.name, axis): 0.0 for made in cotangents for axis in claim.axes if axis in made.axes}
            yield _Pass(one, other, claim.axes, given | zeros, f"the gradient of `{operand.name}`")


def _executed(instance: Instance) -> Instance:
    """The instance with `[axis == …] * value` over a reduced axis written as a select between the value and 0."""

    def chosen(equation: Equation) -> Equation:
        match equation.value:
            case Apply("*", (Apply("==", (Name(name=axis), _)) as selects, selected)) if axis in equation.over:
                return replace(equation, value=Select(selects, selected, Number(0)))
        return equation

    equations = tuple(map(chosen, instance.equations))
    return replace(instance, equations=equations, evaluation=tuple(map(chosen, instance.evaluation)))


@dataclass(frozen=True)
class _Pass:
    """One theorem: an operator or an adjoint and its padded form, with the tails of operands and of results.

    With `numbers` it holds for the attributes' numbers, else for any. It states that results are the same or, with
    `defined`, that they have a value.
    """

    instance: Instance
    padded: Instance
    axes: tuple[str, ...]
    tails: Tails
    words: str
    numbers: bool = True
    defined: bool = False

    def obligations(self, functions: Functions, filled: frozenset[str] = frozenset()) -> tuple[Obligation, ...]:
        """The discharged obligations. Along `filled` axes some operand's tail is a number, else tails hold copies.

        Raises Failed.
        """
        one, other = (generalise(made, self.axes, numbers=self.numbers) for made in (self.instance, self.padded))
        fronts = {axis: of(f"@{number}") for number, axis in enumerate(self.axes)}
        tails = {axis: of(f"@{number}+") for number, axis in enumerate(self.axes)}
        if self.defined:  # rows that are copies have a value wherever their originals have one
            tails |= {axis: number_of(0) for axis in tails if axis not in filled}
        sizes = symbolic_sizes(one, functions.arithmetic, {one.axes[axis]: (size,) for axis, size in fronts.items()})
        longer = {other.axes[axis]: (size + tails[axis],) for axis, size in fronts.items()}
        longer |= {front_size(axis): (size,) for axis, size in fronts.items()}
        long = replace(sizes, dims={**sizes.dims, **longer})
        own = {axis: other.axes[axis] for axis in self.axes}
        given = {operand.name: symbolic_input(one.instance, operand, sizes) for operand in one.instance.inputs}
        real = scalars(one)
        wanted = _Alone(one.instance, given | real, sizes, (), functions).run()
        held = {
            operand.name: self.operand(operand, given[operand.name], long, own, fronts)
            for operand in other.instance.inputs
        }
        found = _Padded(
            other.instance, held | real, long, functions, {own[axis]: size for axis, size in fronts.items()}
        ).run()
        return tuple(
            obligation
            for operand, front, whole in zip(other.instance.outputs, wanted, found, strict=True)
            for obligation in self.result(operand, front, whole, own, tails, functions)
        )

    def operand(
        self, operand: Operand, front: Tensor, sizes: Sizes, own: Mapping[str, str], fronts: Mapping[str, Poly]
    ) -> Tensor:
        """The padded operand: the original elements in front; in the tail the given number, or unknown elements."""
        dims = [tuple(size for axis in dim for size in sizes.dims[axis]) for dim in operand.dims]
        tensor = input_tensor(operand.name, {}, dims, front.bound)
        for axis, name in own.items():
            number = self.tails.get((operand.name, axis))
            if number is None or tensor.entry is not None:
                continue
            for var in _indices(tensor, operand, name):
                inside = compare("<", of(var), fronts[axis])
                outside = () if number == 0 else guarded([inside.negated()], literal(number))
                tensor = replace(tensor, value=add(guarded([inside], tensor.value), outside))
        return tensor

    def result(
        self,
        operand: Operand,
        front: Tensor,
        whole: Tensor,
        own: Mapping[str, str],
        tails: Mapping[str, Poly],
        functions: Functions,
    ) -> Iterator[Obligation]:
        """Shows that a result is the same in front and has the claimed numbers in tails or, if `defined`, a value.

        Raises Failed.
        """
        name, equal = f"`{operand.name}`", Comparison(functions.arithmetic).equal
        places = zip(_every_index(whole), _every_index(front), strict=True)
        renaming = {old: of(new) for old, new in places if old != new}
        if whole.entry is not None and front.entry is not None:
            if not functions.arithmetic.certain(compare("==", front.entry, whole.entry.substitute(renaming))):
                raise Failed("same_value", f"{name}: the integers are not known to agree")
        elif not equal(front.value, substitute(whole.value, renaming)):
            raise Failed("same_value", f"{name} is not known to be the same in front")
        if self.defined:
            check_defined(operand.name, front, tuple(one.substitute(renaming) for one in whole.domain), functions)
            yield Obligation("defined", f"{name} has a value where it has one in the model")
            return
        yield Obligation("same_value", f"{name} in front")
        for axis, inner in own.items():
            if (number := self.tails.get((operand.name, axis))) is None:
                continue
            for var in _indices(whole, operand, inner):
                behind = {var: var.size - tails[axis] + of(fresh(tails[axis]))}
                if not equal(() if number == 0 else literal(number), substitute(whole.value, behind)):
                    raise Failed("same_value", f"{name} is not known to be {number:g} behind `{axis}`")
                yield Obligation("same_value", f"{name} is {number:g} behind `{axis}`")


def _indices(tensor: Tensor, operand: Operand, axis: str) -> list[Var]:
    """The indices of a tensor along an axis."""
    found = []
    for dim, axes in zip(tensor.dims, operand.dims, strict=True):
        if axis in axes:
            found.append(dim[axes.index(axis)] if len(dim) == len(axes) else dim[0])
    return found


def _every_index(tensor: Tensor) -> list[Var]:
    return [var for dim in tensor.dims for var in dim]


class _Alone(Call):
    """An operator whose results no other operator reads."""

    alone = True


class _Padded(_Alone):
    """A padded operator. A sum of terms masked to the front of an axis runs over the `fronts` only."""

    def __init__(
        self,
        instance: Instance,
        operands: Mapping[str, Tensor],
        sizes: Sizes,
        functions: Functions,
        fronts: Mapping[str, Poly],
    ) -> None:
        super().__init__(instance, operands, sizes, (), functions)
        self.fronts = fronts

    def _uniform(self, index: tuple[Expr, ...]) -> Form:
        """Random numbers, with positions counted by the sizes of the original model."""
        names = [part.name for part in index if isinstance(part, Name)]
        places = [(var, self.fronts.get(name, var.size)) for name in names for var in self.places(name)]
        strides = ",".join(size.key for _, size in places[1:])
        return atom(Element(f"uniform<{strides}>", tuple(of(var) for var, _ in places)))

    def summed(self, value: Form, over: tuple[Var, ...]) -> Form:
        """`sum(i < n + t) [i < n] f(i)` is `sum(i < n) f(i)`."""
        return add(*(self._summed(term, over) for term in value))

    def _summed(self, term: Term, over: tuple[Var, ...]) -> Form:
        found: Form = (term,)
        for axis, front in self.fronts.items():
            for var in self.axes.get(axis, ()):
                inside = compare("<", of(var), front)
                if var in over and inside in term.guards:
                    shorter = fresh(front)
                    found = tuple(
                        replace(one, guards=tuple(guard for guard in one.guards if guard != inside)) for one in found
                    )
                    found = substitute(found, {var: of(shorter)})
                    over = tuple(shorter if own == var else own for own in over)
        return super().summed(found, over)
