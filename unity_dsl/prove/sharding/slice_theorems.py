"""Proves that an operator on slices of one axis, with reductions over the devices, equals the operator on one device.

The axis has p × e positions, with indices (@p, j). Operands with the axis are partitioned along it, the others
replicated. Each device evaluates the operator's equations over its own e positions; indices used as values and sizes
are global; an equation that reduces the axis is followed by the same reduction over the devices. The theorem: combined
results with the axis, and results without it, are those of the operator wherever that has a value. The degree p and
all sizes are symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from time import perf_counter

from ...index.equations.instance import Equation, Instance, Operand
from ...index.library import Library
from ...syntax.ast import Expr, Name, Read, ReductionKind
from ...syntax.rational import exact_number
from ..answer import Answer, NotProved, Obligation, Proved
from ..decision.integer_arithmetic import Arithmetic
from ..equality.form_equality import Comparison
from ..functions.definedness import Domain, partial_name
from ..functions.domain_inclusion import uncovered
from ..functions.fact_laws import Laws, laws_of
from ..functions.fact_minimisation import with_assumed_facts
from ..functions.scalar_functions import Functions
from ..normal_form.form import Element, Unsupported, atom, free_variables, substitute
from ..normal_form.form_products import summed
from ..normal_form.guard import Guard, compare
from ..normal_form.polynomial import Poly, Var, fresh, number, of, product
from ..normal_form.step_limit import OutOfSteps, limited, steps_left
from ..translation.operator_forms import Call, Tensor, input_tensor
from ..translation.symbolic_sizes import Factors, Failed, Sizes
from .equation_congruence import congruence, obstacles
from .theorem_subject import Subject, generalise

DEGREE = "@p"
LOCAL = "@e"

STEPS = 30_000
"""Step limit of one theorem."""


def prove_configuration(instance: Instance, axis: str, library: Library) -> Answer:
    """Whether this axis of the operator may be divided over any degree that divides it, at all sizes.

    The instance gives ranks, attributes and equations (of adjoints and `eval` clauses as well); its sizes are not used.
    No counterexample is searched for.
    """
    return prove_division(generalise(instance, (axis,)), axis, library)


def prove_division(subject: Subject, axis: str, library: Library) -> Answer:
    """`prove_configuration` for a subject in which the axis is a dimension of its own.

    Tries congruence first, which needs no queries; compares normal forms if an equation is not of the required form.
    """
    axis = subject.axes.get(axis, axis)
    begun = perf_counter()
    obligations, obstacle = _congruent(subject, axis)
    if obstacle is None:
        return Proved(obligations, 0, perf_counter() - begun)
    found = prove_by_forms(subject, axis, library)
    return replace(found, reason=f"{found.reason}; {obstacle}") if isinstance(found, NotProved) else found


def prove_by_forms(subject: Subject, axis: str, library: Library) -> Answer:
    """`prove_division` by comparing the normal forms of both sides only. `axis` is an axis of the subject."""
    return answer(library, lambda functions: _divided(subject, axis, functions))


def prove_linearity(subject: Subject, operands: tuple[int, ...], library: Library, *, same: bool = False) -> Answer:
    """Whether the operator is jointly linear in these operands: f(sum x) = sum f(x) over any number of devices.

    With `same`, whether f(sum x) = f(x): each device gets the result for the sum from its own term alone.
    """
    return answer(library, lambda functions: _linear(subject, operands, functions, same))


def answer(library: Library, attempt: Callable[[Functions], tuple[Obligation, ...]]) -> Answer:
    """The answer of `attempt` to discharge obligations, timed, with the assumed facts that it uses minimised.

    Functions with a definition are uninterpreted at first, which suffices if slices apply the same functions. Their
    definitions are inlined only if that fails.
    """
    with limited(2 * STEPS):
        found = _attempted(library, attempt)
        steps = 2 * STEPS - (steps_left() or 0)
    return with_assumed_facts(found, library, lambda restricted: _attempted(restricted, attempt), steps)


def _attempted(library: Library, attempt: Callable[[Functions], tuple[Obligation, ...]]) -> Answer:
    begun = perf_counter()
    laws = laws_of(library)
    functions = _following(laws.opaque)
    try:
        try:
            with limited(STEPS):
                obligations = attempt(functions)
        except (Failed, Unsupported):
            if not functions.symbolic:
                raise
            functions = _following(laws)
            with limited(STEPS):
                obligations = attempt(functions)
    except Failed as failed:
        return NotProved(failed.obligation, failed.message, perf_counter() - begun)
    except OutOfSteps as reason:
        return NotProved("same_value", f"given up after {reason}", perf_counter() - begun)
    except Unsupported as reason:
        return NotProved("same_value", f"no method for {reason}", perf_counter() - begun)
    facts = tuple(functions.used.values())
    return Proved(obligations, functions.arithmetic.asked, perf_counter() - begun, facts)


def _following(laws: Laws) -> Functions:
    """The element functions, recording the partial applications of each form."""
    functions = Functions(laws, Arithmetic())
    functions.applications.followed = True
    return functions


def check_defined(name: str, undivided: Tensor, part: Domain, functions: Functions) -> None:
    """Shows that results on devices have a value wherever those on one device have one. Raises Failed."""
    partial = uncovered(part, undivided.domain, functions)
    if partial is not None:
        what = partial_name(partial.function)
        raise Failed("defined", f"`{name}`: {what} on a device is not known to have a value where the operator has")


def modes(subject: Subject) -> tuple[tuple[str, Subject], ...]:
    """(suffix of statements, subject) in training and, if there is an `eval` clause, in evaluation."""
    instance = subject.instance
    if not instance.evaluation:
        return (("", subject),)
    evaluated = replace(subject, instance=replace(instance, equations=instance.evaluation, evaluation=()))
    return (("", subject), (", in evaluation", evaluated))


def _congruent(subject: Subject, axis: str) -> tuple[tuple[Obligation, ...], str | None]:
    """The obligations that congruence meets in all modes, or the first obstacle to it."""
    met: list[Obligation] = []
    for mode, one in modes(subject):
        if (obstacle := next(obstacles(one.instance, axis), None)) is not None:
            return (), obstacle
        met += (replace(found, statement=found.statement + mode) for found in congruence(one.instance, axis))
    return tuple(met), None


def _divided(subject: Subject, axis: str, functions: Functions) -> tuple[Obligation, ...]:
    return tuple(
        replace(obligation, statement=obligation.statement + mode)
        for mode, one in modes(subject)
        for obligation in Division(one, axis, functions).obligations()
    )


def symbolic_sizes(subject: Subject, arithmetic: Arithmetic, given: Mapping[str, Factors]) -> Sizes:
    """A size symbol for every axis of the operands. Conditions that do not determine a size are assumed."""
    instance = subject.instance
    sizes = Sizes(arithmetic, dict(given))
    for operand in instance.inputs:
        for axis in operand.axes:
            sizes.dims.setdefault(axis, (of(axis),))
    for decl in instance.operator.inputs:
        if decl.integer_range is not None:
            sizes.dims.setdefault(decl.integer_range, (of(decl.integer_range),))
    for name, value in instance.attributes.items():
        sizes.attributes[name] = of(name) if name in subject.integers else number(exact_number(value))
    sizes.parametrise(instance.operator, sizes.dims.keys() - given.keys())
    sizes.solve(instance.operator, assumed=True)
    return sizes


def symbolic_input(instance: Instance, operand: Operand, sizes: Sizes) -> Tensor:
    """An operand with unknown elements."""
    dims = [tuple(size for axis in dim for size in sizes.dims[axis]) for dim in operand.dims]
    return input_tensor(operand.name, {}, dims, _bound(instance, operand, sizes))


def scalars(subject: Subject) -> dict[str, Tensor]:
    """The real attributes as unknown numbers, by the names under which equations read them."""
    return {f"#{name}": input_tensor(f"#{name}", {}, [], None) for name in subject.real}


def _bound(instance: Instance, operand: Operand, sizes: Sizes) -> Poly | None:
    if operand.integer_range is None:
        return None
    ranges = {decl.name: decl.integer_range for decl in instance.operator.inputs}
    name = ranges.get(operand.name)
    return of(f"<{operand.name}>") if name is None else product(sizes.dims[name])


class Division:
    """One axis divided: the operator on one device, and its equations on the slices of each device."""

    def __init__(self, subject: Subject, axis: str, functions: Functions) -> None:
        self.subject = subject
        self.instance = subject.instance
        self.axis = axis
        self.functions = functions
        self.arithmetic = functions.arithmetic
        self.axis_factors: Factors = (of(DEGREE), of(LOCAL))

    def obligations(self) -> tuple[Obligation, ...]:
        sizes = self.sizes()
        # A copy: calls add inferred sizes, and sizes on a device may be computed from that of the divided axis.
        local_sizes = replace(sizes, dims={**sizes.dims, self.axis: self.axis_factors[1:]})
        operands = [self.input(operand, sizes) for operand in self.instance.inputs]
        names = [operand.name for operand in self.instance.inputs]
        numbers = scalars(self.subject)
        expected = _Undivided(
            self.instance, dict(zip(names, operands, strict=True)) | numbers, sizes, (), self.functions
        )
        wanted = expected.run()
        device = expected.axis(self.axis)[0]
        local = [
            self.slice(operand, tensor, device) for operand, tensor in zip(self.instance.inputs, operands, strict=True)
        ]
        shard = self.on_device(dict(zip(names, local, strict=True)) | numbers, local_sizes, device)
        met = [Obligation("in_bounds", "every read without a fill lies inside its slice")]
        for operand, undivided, part in zip(self.instance.outputs, wanted, shard.run(), strict=True):
            self._same(operand, undivided, part, device)
            collected = "combined" if self.axis in operand.axes else "the same on every device"
            met.append(Obligation("same_value", f"`{operand.name}`, {collected}: {len(undivided.value)} terms"))
        return tuple(met)

    def sizes(self) -> Sizes:
        return symbolic_sizes(self.subject, self.arithmetic, {self.axis: self.axis_factors})

    def input(self, operand: Operand, sizes: Sizes) -> Tensor:
        return symbolic_input(self.instance, operand, sizes)

    def on_device(self, operands: dict[str, Tensor], sizes: Sizes, device: Var) -> OnDevice:
        return OnDevice(self, operands, sizes, device)

    def slice(self, operand: Operand, tensor: Tensor, device: Var) -> Tensor:
        """The operand on a device: partitioned if it has the axis, with @p taken out of its dimension; else replicated.

        Raises Failed.
        """
        if self.axis not in operand.axes:
            return tensor
        dims, own = [], None
        for axes, dim in zip(operand.dims, tensor.dims, strict=True):
            place = 0
            rest = list(dim)
            for axis in axes:
                if axis == self.axis:
                    if own is not None:
                        raise Failed("same_layout", f"`{operand.name}` has the axis `{axis}` twice")
                    own = rest.pop(place)
                else:
                    place += 1
            dims.append(tuple(rest))
        assert own is not None
        here = {own: of(device)}
        entry = None if tensor.entry is None else tensor.entry.substitute(here)
        return replace(tensor, dims=tuple(dims), value=substitute(tensor.value, here), entry=entry)

    def _same(self, operand: Operand, undivided: Tensor, part: Tensor, device: Var) -> None:
        """Shows that the combined result is that on one device, with (device, local) indices renamed to global ones.

        Raises Failed and Unsupported.
        """
        where = f"`{operand.name}`"
        if self.axis not in operand.axes and device in free_variables(part.value):
            raise Failed("same_layout", f"{where} differs from device to device")
        positions = [var for dim in part.dims for var in dim]
        others = [var for dim in undivided.dims for var in dim if var != device]
        if [var.size for var in positions] != [var.size for var in others]:
            raise Failed("same_shape", f"{where}: the slices do not make up the whole")
        renaming = {old: of(new) for old, new in zip(positions, others, strict=True) if old != new}
        if part.entry is not None and undivided.entry is not None:
            if not self.arithmetic.certain(compare("==", undivided.entry, part.entry.substitute(renaming))):
                raise Failed("same_value", f"{where}: the integers are not known to agree")
            return
        if part.entry is not None or undivided.entry is not None:
            raise Unsupported("an integer result that is an entry on one side only")
        if not Comparison(self.arithmetic).equal(undivided.value, substitute(part.value, renaming)):
            raise Failed("same_value", f"{where}: the coefficients are not known to agree")
        check_defined(operand.name, undivided, tuple(p.substitute(renaming) for p in part.domain), self.functions)


class _Undivided(Call):
    """The operator on one device. No other operator reads its results."""

    alone = True


class OnDevice(Call):
    """The equations on one device; reductions over the divided axis are followed by one over the devices."""

    alone = True

    def __init__(self, theorem: Division, operands: dict[str, Tensor], sizes: Sizes, device: Var) -> None:
        super().__init__(theorem.instance, operands, sizes, (), theorem.functions)
        self.divided = theorem.axis
        self.global_length = product(theorem.axis_factors)
        self.device = device

    def places(self, axis: str) -> tuple[Var, ...]:
        return (self.device, *self.axes[axis]) if axis == self.divided else self.axes[axis]

    def length(self, name: str) -> Poly:
        return self.global_length if name == self.divided else super().length(name)

    def _factored(
        self, read: Read, place: int, dim: tuple[Var, ...], index: Expr
    ) -> tuple[tuple[Poly, ...], list[Guard]]:
        own = self.instance.operand(read.tensor).dims[place]
        if read.fill is None and index == Name(self.divided) and self.divided not in own:
            raise Unsupported(f"`{read.tensor}`, whose slices have all positions that `{self.divided}` reads")
        return super()._factored(read, place, dim, index)

    def define(self, equation: Equation) -> Tensor:
        result = super().define(equation)
        if self.divided not in equation.over:
            return result
        over_devices = (self.device,)
        self.functions.applications.read(result.domain, {}, ())
        match equation.kind:
            case ReductionKind.SUM:
                value = self.functions.summed(result.value, over_devices)
            case ReductionKind.MAX | ReductionKind.MIN:
                value = self.functions.reduced(equation.kind.value, result.value, over_devices)
            case _:
                raise Unsupported("a reduction of this kind over devices")
        return replace(result, value=value, domain=self.functions.applications.collected(over_devices))


def _linear(subject: Subject, chosen: tuple[int, ...], functions: Functions, same: bool) -> tuple[Obligation, ...]:
    """Compares the operator on sums over devices with the sum over devices of the operator on their terms."""
    met = []
    for mode, one in modes(subject):
        instance = one.instance
        device = fresh(of(DEGREE))
        sizes = symbolic_sizes(one, functions.arithmetic, {})
        terms, totals = {}, {}
        for position, operand in enumerate(instance.inputs):
            tensor = symbolic_input(instance, operand, sizes)
            terms[operand.name] = totals[operand.name] = tensor
            if position in chosen:
                term = _per_device(tensor, operand.name, device)
                terms[operand.name] = term
                totals[operand.name] = replace(term, value=summed(term.value, (device,)))
        numbers = scalars(one)
        # A copy of the sizes, since each of the two calls adds inferred sizes.
        total = Call(instance, totals | numbers, replace(sizes, dims=dict(sizes.dims)), (), functions)
        part = Call(instance, terms | numbers, replace(sizes, dims=dict(sizes.dims)), (), functions)
        for operand, wanted, found in zip(instance.outputs, total.run(), part.run(), strict=True):
            renaming = {
                old: of(new)
                for mine, other in zip(found.dims, wanted.dims, strict=True)
                for old, new in zip(mine, other, strict=True)
            }
            if found.entry is not None:
                raise Unsupported("integer results")
            functions.applications.read(found.domain, renaming, ())
            value, over = substitute(found.value, renaming), () if same else (device,)
            if not same:
                value = functions.summed(value, over)
            if not Comparison(functions.arithmetic).equal(wanted.value, value):
                reason = "differs from device to device" if same else "of a sum is not the sum of its values"
                raise Failed("same_value", f"`{operand.name}` {reason}{mode}")
            check_defined(operand.name, wanted, functions.applications.collected(over), functions)
            collected = "the same on every device" if same else "summed"
            met.append(Obligation("same_value", f"`{operand.name}`, {collected}: {len(wanted.value)} terms{mode}"))
    return tuple(met)


def _per_device(tensor: Tensor, name: str, device: Var) -> Tensor:
    """A tensor with the device as first coordinate of its elements: one value per device."""
    index = (of(device), *(of(var) for dim in tensor.dims for var in dim))
    return replace(tensor, value=atom(Element(f"{name}@", index)))
