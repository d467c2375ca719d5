"""Tests `torch:` lines of operators against the statements: values, gradients, types, and changes of operands.

The statements and the derived adjoint are evaluated with rounding bounds. The native call runs in float64 and float32,
with operands of various memory layouts: at random instances, at instances where cases of the declaration begin and end,
and at operands that are all small. An operator is tested at the same instances on every run. A test can refute a
declaration and never prove it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...syntax.ast import NativeCall, NativeSteps, OperatorDecl
from ...syntax.diagnostic import fail
from ...syntax.span import Span
from ..equations.instance import Instance, Operand
from ..evaluation.extern import evaluate_extern
from ..evaluation.native_calls import asks_for_training, changed_in_place
from ..evaluation.rounding_bounds import Bounded, evaluate_bounded, exact
from ..evaluation.torch_calls import NativeFailure, run_operator
from ..gradients.adjoint import adjoint
from ..instantiation.view_call import takes_pattern
from .border_instances import Untried, border_instances
from .function_trials import ERRORS, check_numpy_call, differs, refused, told_apart
from .trial_operands import (
    ENDS,
    MODES,
    SMALL,
    cotangents,
    declared_numbers,
    scales,
    small_values,
    trial_instances,
    trial_values,
)

if TYPE_CHECKING:
    from torch import Tensor

    from ..library import Library

Array = npt.NDArray[Any]

INSTANCES = 40
"""Number of instances at which an operator is tested, each with operands of one kind."""
SMALL_INSTANCES = 16
"""Number of instances whose operands are all small."""
SMALLER = 8
"""Number of further instances after a contradiction, to find a smaller one."""
SINGLE = 2.0**29
"""Ratio of the rounding errors of float32 and float64."""
SINGLE_RELATIVE = 1e-4
MODERATE = ("normal", "grid", "unit")
"""Modes of operands whose values and powers float32 can represent."""
REFUSALS = ("Expected more than 1 value per channel when training",)
"""Messages with which torch rejects some sizes. A program then stops, and computes nothing wrong."""
JUMP = 1e-9
"""Larger errors from rounded operands, relative to the largest operand, indicate a discontinuity."""
SHOWN = 12
"""Operands with at most this many elements are printed in full."""


@dataclass(frozen=True)
class Contradiction:
    """A result of a native call that differs from the statements: instance, operands, description, both values."""

    instance: Instance
    inputs: Mapping[str, Array]
    what: str
    expected: str
    found: str

    @property
    def size(self) -> int:
        return sum(value.size for value in self.inputs.values())


def check_native_lines(operator: OperatorDecl, library: Library, seed: int = 0) -> None:
    """Tests an operator's `torch:` line, for an extern operator against `numpy:`, at random instances of fixed seed.

    Raises E114 if it differs or could not be tested, E116 if it fails.
    """
    if operator.torch is None or _only_by_pattern(operator):
        return
    if operator.numpy is not None:
        check_numpy_call(operator.numpy)
    span = operator.torch.span
    found: list[Contradiction] = []
    failures: list[tuple[NativeFailure, Instance]] = []
    compared = tried = last = 0
    for trial in _trials(operator, library, np.random.default_rng(seed)):
        if found and tried > last + SMALLER:
            break
        if isinstance(trial, Untried):
            if not found:
                raise _untried(trial, operator, span)
            break
        try:
            new = list(trial.contradictions())
            last = tried if new and not found else last
            found += new
            tried += 1
        except NativeFailure as failure:
            if _is_fault(failure, trial.instance):
                raise _failed(failure, trial.instance, span) from failure
            failures.append((failure, trial.instance))
        compared += trial.compared
    if found:
        raise _contradicted(min(found, key=lambda one: one.size), operator, span)
    if failures and not compared:
        raise _failed(*failures[0], span)
    if not compared:
        reason = "its statements have no value at any operands" if tried else "no sizes were found that it admits"
        raise fail("E114", f"`torch:` of `{operator.name}` could not be tried: {reason}", span, help=LEAVE_OUT)


def _trials(operator: OperatorDecl, library: Library, random: np.random.Generator) -> Iterator[_Trial | Untried]:
    """Instances with operands: random ones, ones at borders of cases, and ones whose operands are all small."""
    constants = declared_numbers(operator, library.functions)
    for number, instance in enumerate(trial_instances(operator, random, INSTANCES)):
        mode = MODES[number % len(MODES)]
        yield _Trial(instance, trial_values(instance, mode, constants, random), library, mode, number, random)
    for place, found in enumerate(border_instances(operator, library.functions, random)):
        if isinstance(found, Untried):
            yield found
            continue
        mode = ENDS[place % 2] if found.counts else MODES[place // 2 % len(MODES)]
        values = trial_values(found.instance, mode, constants, random)
        yield _Trial(found.instance, values, library, mode, place, random)
    small = scales(constants)
    for place, instance in enumerate(trial_instances(operator, random, SMALL_INSTANCES)):
        values = small_values(instance, small[place % len(small)], random)
        yield _Trial(instance, values, library, SMALL, place, random)


def _is_fault(failure: NativeFailure, instance: Instance) -> bool:
    """Whether a failure is a fault of the declaration: at default attributes, by a type error, or by a change in place.

    A rejected negative stride and the like end the program without computing anything wrong.
    """
    if str(failure.error).startswith(REFUSALS):
        return False
    usual = all(instance.attributes[one.name] == one.default for one in instance.operator.attributes)
    return usual or isinstance(failure.error, TypeError | InPlace)


def _only_by_pattern(operator: OperatorDecl) -> bool:
    """Whether it can only be called with a pattern, which never uses the native call."""
    groups = takes_pattern(operator)
    return groups is not None and groups[1] is not None


class InPlace(ValueError):
    """A native call has changed an operand."""


@dataclass
class _Trial:
    """One instance with operands. `compared` counts the elements with a known reference."""

    instance: Instance
    values: Mapping[str, Array]
    library: Library
    mode: str
    number: int
    random: np.random.Generator
    compared: int = 0

    def contradictions(self) -> Iterator[Contradiction]:
        instance = self.instance
        native = instance.operator.torch
        assert native is not None
        expected, results = self.expected(training=True), self.run()
        misfits = [self.misfit(*pair, "float64") for pair in zip(instance.outputs, results, strict=True)]
        if any(misfits):
            yield from filter(None, misfits)
            return
        yield from self.compare_results(results, expected)
        if instance.evaluation and asks_for_training(native):
            evaluated = self.run(training=False)
            yield from self.compare_results(evaluated, self.expected(training=False), ", outside training")
        if not instance.whole:
            yield from self.compare_gradients(native, expected)
        if self.mode in MODERATE and not instance.whole:
            yield from self.compare_single(expected)
        if self.mode == SMALL and not instance.whole and not instance.extern:
            yield from self.compare_small(results, expected)

    def expected(self, *, training: bool) -> list[Bounded]:
        """The results by the statements, or by the `numpy:` line of an extern operator."""
        instance = self.instance
        if instance.extern:
            assert instance.operator.numpy is not None
            try:
                with np.errstate(all="ignore"):
                    return [exact(evaluate_extern(instance, self.values))]
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                raise NativeFailure(instance.operator.numpy, error) from error
        return self.evaluated(instance, self.values, training)

    def evaluated(self, instance: Instance, values: Mapping[str, Array], training: bool = True) -> list[Bounded]:
        """The results by the equations, with the error bounds of any backward stable algorithm if these are small.

        If they are not, the operands are within rounding of a discontinuity, and are taken as exact.
        """
        found = evaluate_bounded(instance, values, self.library, training=training)
        rounded = evaluate_bounded(instance, values, self.library, training=training, rounded=True)
        largest = max((_largest(value) for value in values.values()), default=1.0)
        return [_stable(found[output.name], rounded[output.name], largest) for output in instance.outputs]

    # ------------------------------------------------------------------------------------------ running

    def tensors(self, single: bool = False) -> dict[str, Tensor]:
        """The operands as tensors, not contiguous in every other trial."""
        import torch

        found = {}
        for name, value in self.values.items():
            tensor = torch.from_numpy(np.array(value))
            if single and tensor.is_floating_point():
                tensor = tensor.to(torch.float32)
            if self.number % 2 and tensor.dim():
                turned = tensor.permute(*reversed(range(tensor.dim()))).contiguous()
                tensor = torch.stack([turned, turned + 1], -1)[..., 0].permute(*reversed(range(tensor.dim())))
            found[name] = tensor
        return found

    def run(self, *, training: bool = True, single: bool = False) -> list[Any]:
        """The native call on operands that it may not change. Raises NativeFailure."""
        import torch

        tensors = self.tensors(single)
        before = {name: tensor.clone() for name, tensor in tensors.items()}
        with torch.no_grad():
            results = run_operator(self.instance, tensors, training=training)
        for name, tensor in tensors.items():
            if not torch.equal(tensor.nan_to_num(), before[name].nan_to_num()):
                assert self.instance.operator.torch is not None
                call = _calls(self.instance.operator.torch)[-1]
                raise NativeFailure(call, InPlace(f"it changes `{name}` in place"))
        return results

    # ------------------------------------------------------------------------------------------ comparing

    def compare_results(
        self, results: Sequence[Any], expected: Sequence[Bounded], where: str = ""
    ) -> Iterator[Contradiction]:
        for output, result, reference in zip(self.instance.outputs, results, expected, strict=True):
            self.compared += int(np.count_nonzero(reference.decided))
            found = result.numpy().astype(np.float64)
            yield from self.elements(f"`{output.name}", "`" + where, differs(found, reference), reference, found)

    def misfit(self, output: Operand, result: Any, real: str) -> Contradiction | None:
        """A result of wrong shape or type."""
        import torch

        shape = list(self.instance.shape(output))
        wanted = "int64" if output.integer_range is not None else real
        expected = f"{wanted} of shape {shape}"
        if not isinstance(result, torch.Tensor):
            return Contradiction(self.instance, self.values, f"`{output.name}`", expected, f"{type(result).__name__}")
        kind = str(result.dtype).removeprefix("torch.")
        if list(result.shape) == shape and kind == wanted:
            return None
        found = f"{kind} of shape {list(result.shape)}"
        return Contradiction(self.instance, self.values, f"`{output.name}`", expected, found)

    def elements(
        self, before: str, after: str, wrong: Array, reference: Bounded, found: Array
    ) -> Iterator[Contradiction]:
        """The first wrong element."""
        places = np.argwhere(wrong)
        if len(places):
            place = tuple(map(int, places[0]))
            what = f"{before}{list(place)}{after}" if place else f"{before}{after}"
            yield Contradiction(self.instance, self.values, what, *told_apart(reference.value[place], found[place]))

    def compare_gradients(
        self, native: NativeCall | NativeSteps, expected: Sequence[Bounded]
    ) -> Iterator[Contradiction]:
        """Compares autograd of the native call with the derived adjoint, for integer cotangents."""
        import torch

        instance = self.instance
        tensors = self.tensors()
        floats = [operand.name for operand in instance.inputs if operand.integer_range is None]
        for name in floats:
            tensors[name] = tensors[name].detach().requires_grad_()
        given = cotangents(instance, changed_in_place(native), self.random)
        results = run_operator(instance, tensors)
        pairs = zip(results, given.values(), strict=True)
        carrying = [(result, torch.from_numpy(value)) for result, value in pairs if result.requires_grad]
        slopes: Sequence[Tensor | None] = [None] * len(floats)
        if carrying and floats:
            # As one scalar: for several outputs torch imports modules, which takes longer than all trials.
            total = torch.stack([(result * weight).sum() for result, weight in carrying]).sum()
            try:
                slopes = torch.autograd.grad(total, [tensors[name] for name in floats], allow_unused=True)
            except RuntimeError as error:
                # the derived adjoint has a value where autograd fails
                told = f"an error ({str(error).strip().splitlines()[0].rstrip('.')})"
                yield Contradiction(instance, self.values, "the gradient", "a number", told)
                return
        defined = all(np.all(reference.decided) for reference in expected)
        for name, slope in zip(floats, slopes, strict=True):
            place = next(place for place, operand in enumerate(instance.inputs) if operand.name == name)
            derived = adjoint(instance, self.library, place)
            names = (operand.name for operand in derived.inputs[len(instance.inputs) :])
            inputs = {**self.values, **dict(zip(names, given.values(), strict=True))}
            (reference,) = self.evaluated(derived, inputs)
            found = np.zeros(self.values[name].shape) if slope is None else slope.numpy()
            wrong = differs(found, reference)
            if not defined:
                wrong &= ~np.isnan(found)
            self.compared += int(np.count_nonzero(reference.decided))
            yield from self.elements(f"the gradient by `{name}", self.given(given), wrong, reference, found)

    def given(self, cotangent: Mapping[str, Array]) -> str:
        return "`, for " + ", ".join(f"d_{name} = {_shown(value)}" for name, value in cotangent.items())

    def compare_single(self, expected: Sequence[Bounded]) -> Iterator[Contradiction]:
        """Compares in float32 with a loose tolerance, as a call may not depend on the precision."""
        for output, result, reference in zip(self.instance.outputs, self.run(single=True), expected, strict=True):
            wrong = self.misfit(output, result, "float32")
            if wrong is not None:
                yield wrong
                continue
            found = result.numpy().astype(np.float64)
            with np.errstate(all="ignore"):
                size = np.max(np.abs(reference.value), initial=1.0, where=np.isfinite(reference.value))
                far = np.abs(found - reference.value) > ERRORS * SINGLE * reference.error + SINGLE_RELATIVE * size
            wrong = (found != reference.value) & (far | ~np.isfinite(found)) & (reference.error < 1e-10 * size)
            yield from self.elements(f"`{output.name}", "` in float32", wrong, reference, found)

    def compare_small(self, doubles: Sequence[Any], expected: Sequence[Bounded]) -> Iterator[Contradiction]:
        """Compares in float32.

        The tolerance covers the statements' bounds for float32 and the rounding of the call itself.

        The rounding is measured in float64, as the largest distance from the statements. The operands are float32
        numbers.
        """
        instance, values, library = self.instance, self.values, self.library
        bounds = evaluate_bounded(instance, values, library, rounded=True, single=True)
        rows = zip(instance.outputs, doubles, self.run(single=True), expected, strict=True)
        for output, double, result, reference in rows:
            bound = bounds[output.name]
            found, same = result.numpy().astype(np.float64), double.numpy().astype(np.float64)
            known = bound.decided & reference.decided
            with np.errstate(all="ignore"):
                finite = known & np.isfinite(same) & np.isfinite(reference.value)
                size = np.max(np.abs(reference.value), initial=0.0, where=finite)
                rounds = np.max(np.abs(same - reference.value), initial=0.0, where=finite)
                allowed = ERRORS * (bound.error + SINGLE * rounds) + SINGLE_RELATIVE * size
                far = (found != reference.value) & ~(np.abs(found - reference.value) <= allowed)
            known &= bound.error < SINGLE_RELATIVE * size
            yield from self.elements(f"`{output.name}", "` in float32", known & far, reference, found)


def _largest(value: Array) -> float:
    return float(np.max(np.abs(value), initial=1.0, where=np.isfinite(value)))


def _stable(found: Bounded, rounded: Bounded, largest: float) -> Bounded:
    with np.errstate(all="ignore"):
        small = rounded.error <= JUMP * np.fmax(np.abs(found.value), largest)
        return Bounded(found.value, np.where(small & found.decided, np.fmax(found.error, rounded.error), found.error))


# ---------------------------------------------------------------------------------------------- words


def _calls(native: NativeCall | NativeSteps) -> list[NativeCall]:
    return [native] if isinstance(native, NativeCall) else [call for _, call in native.steps]


LEAVE_OUT = "leave the line out: code is then made from the statements"


def _untried(untried: Untried, operator: OperatorDecl, span: Span | None) -> Exception:
    border = untried.border
    reason = f"its cases change at `{border.name}` = {border.value}, where it has {untried.positions:,} positions"
    return fail("E114", f"`torch:` of `{operator.name}` could not be tried: {reason}", span, help=LEAVE_OUT)


def _contradicted(found: Contradiction, operator: OperatorDecl, span: Span | None) -> Exception:
    source = "`numpy:` line" if operator.extern else "statements"
    label = f"{found.what} is {found.expected} by the {source}, {found.found} by this call"
    message = f"`torch:` of `{operator.name}` contradicts its {source} at {_operands(found.instance, found.inputs)}"
    help = "another gradient on purpose is a `surrogate` of a function" if "gradient" in found.what else ""
    return fail("E114", message, span, label=label, help=help)


def _failed(failure: NativeFailure, instance: Instance, span: Span | None) -> Exception:
    error = refused(failure).diagnostic
    operands = _operands(instance, {})
    return fail(error.code, error.message, error.span or span, label=f"at {operands}" if operands else "")


def _operands(instance: Instance, inputs: Mapping[str, Array]) -> str:
    """Shapes, attributes, and the values of small operands."""
    small = sum(value.size for value in inputs.values()) <= SHOWN
    parts = [
        f"{operand.name} = {_shown(inputs[operand.name])}"
        if small and operand.name in inputs
        else f"{operand.name}: {list(instance.shape(operand))}"
        for operand in instance.inputs
    ]
    return ", ".join(parts + [f"{name} = {value:g}" for name, value in instance.attributes.items()])


def _shown(value: Array) -> str:
    if value.size > SHOWN:
        return f"… of shape {list(value.shape)}"
    return " ".join(np.array2string(value, separator=", ", formatter={"all": lambda number: f"{number:.10g}"}).split())
