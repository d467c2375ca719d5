"""Tests the lines of element functions against each other: definition, `numpy:`, `torch:` and derivatives.

Native values are compared with the definition, and torch's derivative with the declared one, kinks included. The
declared derivative is compared with difference quotients of the definition (Ridders' extrapolation); at a kink it must
lie between the one-sided slopes. A function is tested at the same points on every run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...syntax.ast import Apply, Expr, FunctionDecl, NativeCall, Number
from ...syntax.diagnostic import InputError, fail
from ..equations.term import COMPARISONS, walk
from ..evaluation.native_calls import ARRAY_CALLS, evaluate_native
from ..evaluation.rounding_bounds import Bounded, call_function, evaluate_function, exact
from ..evaluation.torch_calls import NativeFailure, run_call
from .trial_operands import parameters_of

if TYPE_CHECKING:
    from torch import Tensor

Array = npt.NDArray[Any]
Functions = Mapping[str, FunctionDecl]
Points = Mapping[str, Array]

ERRORS = 32
"""Tolerance of a native call, as a multiple of the reference's error bound."""
RELATIVE = 1e-12
ABSOLUTE = 1e-14
"""Absolute tolerance for cancellation between numbers of ordinary magnitude: `exp(x) - 1` near 0."""
STEPS = (1e-1, 1e-3, 1e-5, 1e-7)
"""First steps of difference quotients, relative to the point."""
HALVINGS = 4
CONVERGED = 1e-5
DIFFERENT = 20.0
"""A difference quotient contradicts a derivative beyond this multiple of its own uncertainty."""


def differs(found: Array, reference: Bounded, rounding: Array | float = ABSOLUTE) -> Array:
    """Where a native call contradicts the reference. Undecided elements contradict nothing.

    `rounding` is the error that the call may have beyond the error of the reference.
    """
    with np.errstate(all="ignore"):
        size = np.where(np.isfinite(reference.value), np.abs(reference.value), 0.0)
        far = np.abs(found - reference.value) > ERRORS * reference.error + RELATIVE * size + rounding
        wrong = (found != reference.value) & (far | ~np.isfinite(found) | ~np.isfinite(reference.value))
    return np.asarray(wrong & reference.decided)


def check_function_lines(function: FunctionDecl, functions: Functions) -> None:
    """Tests an element function. Raises E114 (native line), E108 (derivative) and E116 (a call that fails)."""
    points = parameters_of(function, functions)
    for name, value in _kinks(function, functions).items():
        points[name] = np.concatenate((points[name], value)) if len(points) == 1 else points[name]
    _Trial(function, functions, points).check()


@dataclass(frozen=True)
class _Trial:
    function: FunctionDecl
    functions: Functions
    points: Points

    def check(self) -> None:
        function = self.function
        if function.numpy is not None:
            self.numpy(function.numpy)
        reference = self.reference(self.points)
        if not np.any(reference.decided):
            message = f"`{function.name}` has no value at any of {reference.value.size} points: it cannot be tried"
            raise fail("E114", message, function.span)
        for parameter, derivative in function.derivatives:
            if parameter not in function.surrogates:
                self.derivative(parameter, derivative, reference)
        if function.torch is not None:
            self.torch(function.torch, reference)

    def reference(self, points: Points) -> Bounded:
        """The values by the definition, or for a primitive by the `numpy:` line."""
        function = self.function
        return call_function(function, [exact(points[name]) for name in function.parameters], self.functions)

    # ------------------------------------------------------------------------------------------ native lines

    def numpy(self, call: NativeCall) -> None:
        check_numpy_call(call)
        points = {name: value.copy() for name, value in self.points.items()}
        for value in points.values():
            value.setflags(write=False)
        try:
            with np.errstate(all="ignore"):
                found = np.asarray(evaluate_native(call, points))
        except Exception as error:  # any exception of a native function is a failure of the call
            raise refused(NativeFailure(call, error)) from error
        count = len(next(iter(points.values())))
        if found.dtype != np.float64 or np.broadcast_shapes(found.shape, (count,)) != (count,):
            message = f"`{call.function}` gives {found.dtype} of shape {list(found.shape)} for {count} numbers"
            raise fail("E114", message, call.span)
        if self.function.definition is not None:
            self.compare("numpy", call, np.broadcast_to(found, (count,)), self.reference(self.points))

    def torch(self, call: NativeCall, reference: Bounded) -> None:
        """Compares values, and the derivative by autograd."""
        import torch

        tensors = {name: torch.from_numpy(value.copy()).requires_grad_() for name, value in self.points.items()}
        try:
            result = run_call(call, tensors, {})
            self.check_result(call, result, tensors)
            slopes: Sequence[Tensor | None] = [None] * len(tensors)
            if result.requires_grad:
                slopes = torch.autograd.grad(result.sum(), list(tensors.values()), allow_unused=True)
        except NativeFailure as failure:
            raise refused(failure) from failure
        except RuntimeError as error:
            raise refused(NativeFailure(call, error)) from error
        self.compare("torch", call, result.detach().numpy(), reference)
        if self.function.surrogates:
            return  # the program propagates the declared gradient, not the call's
        for (name, _), slope in zip(tensors.items(), slopes, strict=True):
            declared = self.declared(dict(self.function.derivatives)[name], reference, name)
            found = np.zeros(declared.value.shape) if slope is None else slope.numpy()
            self.compare("torch", call, found, declared, f"the derivative by `{name}`")

    def check_result(self, call: NativeCall, result: Any, tensors: Mapping[str, Any]) -> None:
        import torch

        first = next(iter(tensors.values()))
        for name, tensor in tensors.items():
            if tensor._version or not np.array_equal(tensor.detach().numpy(), self.points[name], equal_nan=True):
                raise fail("E116", f"`{call.function}` changes `{name}` in place", call.span)
        if not isinstance(result, torch.Tensor) or result.shape != first.shape or result.dtype != first.dtype:
            found = f"{result.dtype} of shape {list(result.shape)}" if isinstance(result, torch.Tensor) else "no tensor"
            message = f"`{call.function}` gives {found} for {len(first)} numbers of float64"
            raise fail("E114", message, call.span, help="it has to give a number for each, of the same type")

    def compare(self, line: str, call: NativeCall, found: Array, reference: Bounded, what: str = "") -> None:
        """Raises E114 at the simplest point of difference."""
        wrong = np.flatnonzero(differs(found, reference))
        if not len(wrong):
            return
        place = self.simplest(wrong)
        source = "declaration" if what else "definition" if self.function.definition is not None else "`numpy:` line"
        expected, given = told_apart(reference.value[place], found[place])
        values = f"{expected} by the {source}, {given} by this call"
        where = f"at {self.at(place)} {what or 'the value'} is {values}"
        raise fail("E114", f"`{line}:` of `{self.function.name}` contradicts its {source}", call.span, label=where)

    # ------------------------------------------------------------------------------------------ derivatives

    def declared(self, derivative: Expr, reference: Bounded, parameter: str) -> Bounded:
        """The declared derivative, undecided if the function has no value on either side of the point."""
        bound = {name: exact(value) for name, value in self.points.items()}
        value = evaluate_function(derivative, bound, self.functions)
        shape = reference.value.shape
        step = _step(self.points[parameter], STEPS[-1])
        sides = [self.reference({**self.points, parameter: self.points[parameter] + s}).decided for s in (step, -step)]
        known = reference.decided & (sides[0] | sides[1])
        error = np.where(known, np.broadcast_to(value.error, shape), np.inf)
        return Bounded(np.array(np.broadcast_to(value.value, shape)), error)

    def derivative(self, parameter: str, derivative: Expr, reference: Bounded) -> None:
        """Raises E108 if difference quotients contradict the declared derivative."""
        declared = self.declared(derivative, reference, parameter)
        sides = [tuple(self.quotients(parameter, step, side) for side in (0, 1, -1)) for step in STEPS]
        with np.errstate(all="ignore"):
            smooth = _agreeing([_smooth(*found) for found in sides])
            left, right = (_agreeing([found[side] for found in sides]) for side in (2, 1))
            uncertain = DIFFERENT * smooth.error + 1e-7 * np.abs(smooth.value) + ERRORS * declared.error
            wrong = smooth.decided & (np.abs(declared.value - smooth.value) > uncertain)
            low, high = np.fmin(left.value, right.value), np.fmax(left.value, right.value)
            margin = DIFFERENT * (left.error + right.error) + 1e-6 * (np.abs(low) + np.abs(high)) + 1e-9
            kink = left.decided & right.decided & ~smooth.decided
            outside = (declared.value < low - margin) | (declared.value > high + margin)
            places = np.flatnonzero((wrong | (kink & outside)) & declared.decided)
        if not len(places):
            return
        place = self.simplest(places)
        slope = f"{smooth.value[place]:.9g}" if smooth.decided[place] else f"{low[place]:.9g} to {high[place]:.9g}"
        message = f"the derivative of `{self.function.name}` by `{parameter}` contradicts what it computes"
        where = f"at {self.at(place)} this is {declared.value[place]:.9g}, the slope there is {slope}"
        raise fail("E108", message, derivative.span or self.function.span, label=where)

    def quotients(self, parameter: str, first: float, side: int) -> Bounded:
        """Extrapolated difference quotients, central (`side` 0) or one-sided, with their uncertainty."""
        at = self.points[parameter]
        with np.errstate(all="ignore"):
            step = _step(at, first)
            table: list[Array] = []
            noise = np.zeros(at.shape)
            best, error = np.full(at.shape, np.nan), np.full(at.shape, np.inf)
            for halving in range(HALVINGS + 1):
                width = step / 2**halving
                up, down = (at + width, at - width) if side == 0 else (at + side * width, at)
                high, low = (self.reference({**self.points, parameter: value}) for value in (up, down))
                span = up - down
                noise = np.fmax(noise, (high.error + low.error) / np.abs(span))
                row = [(high.value - low.value) / span]
                for order, before in enumerate(table, 1):
                    factor = 4.0**order if side == 0 else 2.0**order
                    row.append((factor * row[-1] - before) / (factor - 1))
                if table:
                    change = np.fmax(np.abs(row[-1] - row[-2]), np.abs(row[-1] - table[-1]))
                    better = change < error
                    best, error = np.where(better, row[-1], best), np.where(better, change, error)
                table = row
            error = error + noise + 1e-12 * np.abs(best)
            return Bounded(best, np.where(error <= CONVERGED * np.fmax(np.abs(best), 1.0), error, np.inf))

    # ------------------------------------------------------------------------------------------ words

    def simplest(self, places: Sequence[Any] | Array) -> int:
        """The point with the shortest text."""
        return min(map(int, places), key=lambda place: (len(self.at(place)), place))

    def at(self, place: int) -> str:
        return ", ".join(f"{name} = {value[place]:.12g}" for name, value in self.points.items())


def told_apart(first: float, second: float) -> tuple[str, str]:
    """Two numbers as text, with enough digits to distinguish them."""
    texts = [(f"{first + 0.0:.{digits}g}", f"{second + 0.0:.{digits}g}") for digits in (9, 12, 17)]
    return next((pair for pair in texts if pair[0] != pair[1]), texts[-1])


def _step(at: Array, relative: float) -> Array:
    return relative * np.where(at == 0, 1.0, np.fmin(np.abs(at), 1e3))


def _smooth(central: Bounded, right: Bounded, left: Bounded) -> Bounded:
    """The central estimate if the one-sided slopes agree, else undecided."""
    apart = np.abs(left.value - right.value) > DIFFERENT * (left.error + right.error) + 1e-9 * np.abs(central.value)
    return Bounded(central.value, np.where(apart | ~left.decided | ~right.decided, np.inf, central.error))


def _agreeing(estimates: Sequence[Bounded]) -> Bounded:
    """The most precise estimate consistent with that of the smallest step that is not noise.

    Longer steps are more precise, but may step over a kink.
    """
    value, error = estimates[-1].value, estimates[-1].error
    for place, other in enumerate(reversed(estimates[:-1])):
        agrees = np.isfinite(error) & (np.abs(other.value - value) <= DIFFERENT * (other.error + error))
        better = (np.isinf(error) & (place == 0)) | (agrees & (other.error < error))
        value, error = np.where(better, other.value, value), np.where(better, other.error, error)
    return Bounded(value, error)


def refused(failure: NativeFailure) -> InputError:
    """The diagnostic of a native call that torch or NumPy rejects."""
    call = failure.call
    return fail("E116", f"`{call.function}` cannot be called like this: {failure}", call.span)


def check_numpy_call(call: NativeCall) -> None:
    """Checks that elementwise NumPy functions get exactly their operands, by position.

    A further one would be overwritten.
    """
    function: Callable[..., Any] = ARRAY_CALLS[call.function]
    if isinstance(function, np.ufunc):
        if call.keywords or len(call.arguments) != function.nin:
            given = f"{len(call.arguments)}" + (f" and `{call.keywords[0][0]}`" if call.keywords else "")
            operands = "operand" if function.nin == 1 else "operands"
            raise fail("E116", f"`{call.function}` takes {function.nin} {operands}, {given} given", call.span)
    for argument in call.arguments:
        if isinstance(argument, NativeCall):
            check_numpy_call(argument)


def _kinks(function: FunctionDecl, functions: Functions) -> dict[str, Array]:
    """Points where the sides of a comparison cross, and points next to them, for functions of one parameter."""
    if len(function.parameters) != 1:
        return {}
    (name,) = function.parameters
    grid = np.linspace(-64.0, 64.0, 4097) + 1e-3
    found: list[float] = []
    for difference in _differences(function):

        def value(at: Array, of: Expr = difference) -> Array:
            return np.broadcast_to(evaluate_function(of, {name: exact(at)}, functions).value, at.shape)

        low = value(grid)
        crossing = np.flatnonzero(np.sign(low[:-1]) * np.sign(low[1:]) < 0)[:16]
        left, right = grid[crossing], grid[crossing + 1]
        sign = np.sign(value(left)) if len(left) else left
        for _ in range(60):
            middle = (left + right) / 2
            same = np.sign(value(middle)) == sign
            left, right = np.where(same, middle, left), np.where(same, right, middle)
        found += [*left, *right]
    near = [number + step for number in found for step in (0.0, 1e-2, -1e-2, 1e-4, -1e-4)]
    return {name: np.array(near)} if near else {}


def _differences(function: FunctionDecl) -> list[Expr]:
    """The differences of the sides of comparisons and bounds in the definition and the derivatives."""
    terms = [*(expr for _, expr in function.derivatives), *([function.definition] if function.definition else [])]
    found: dict[Expr, None] = {}
    for node in (node for term in terms for node in walk(term)):
        if isinstance(node, Apply) and (node.function in COMPARISONS or node.function in ("maximum", "minimum")):
            if len(node.arguments) == 2:
                found[Apply("-", node.arguments)] = None
        elif isinstance(node, Apply) and node.function == "abs":
            found[Apply("-", (node.arguments[0], Number(0)))] = None
    return list(found)
