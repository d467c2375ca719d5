"""Tests on samples what no proof covers: declared axes of extern operators, ranges of integer results.

A sample can refute a declaration and never prove it. Operands have many ties, and are the same on every run. A range is
tried at small sizes, at sizes where cases of the declaration begin and end, and at long and large ones, with integer
operands at the ends of their ranges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...syntax.ast import OperatorDecl
from ...syntax.diagnostic import fail
from ..equations.instance import Instance, Operand
from ..evaluation.evaluate import evaluate
from ..instantiation.representative import small_instances
from ..library import Library
from .border_instances import Untried, border_instances, long_instances
from .trial_operands import ENDS, MODES, declared_numbers, trial_values

Array = npt.NDArray[Any]

SAMPLES = 40
"""Number of instances at which a declaration is tested, each at slices for 2 and for 3 devices."""
DEGREES = (2, 3)
_FAULTS = (ValueError, IndexError, TypeError)
"""Exceptions of NumPy for a call that does not fit its operands."""


@dataclass(frozen=True)
class Contradiction:
    """A sample that refutes a declaration: its sizes, and the reason."""

    sizes: Mapping[str, int]
    reason: str
    axis: str | None = None


def check_samples(operator: OperatorDecl, library: Library) -> None:
    """Tests the declaration of an operator that returns integers.

    Does nothing for any other operator. Raises E118 for an axis whose slices give another result, and for a result out
    of range.
    """
    if all(output.integer_range is None for output in operator.outputs):
        return
    found = contradiction(operator, library, SAMPLES)
    if found is None:
        return
    at = ", ".join(f"{name} = {size}" for name, size in found.sizes.items())
    span = next((axis.span for axis in operator.declared if axis.name == found.axis), operator.span)
    help = "" if found.axis is None else "leave the axis out of `axes:`; the operator then runs on all of it"
    raise fail("E118", f"`{operator.name}`: {found.reason}{' at ' if at else ''}{at}", span, help=help)


def contradiction(operator: OperatorDecl, library: Library, samples: int) -> Contradiction | None:
    """The first refutation by one of `samples` fixed samples, or by an instance at borders or of large sizes."""
    random = np.random.default_rng(0)
    instances = list(small_instances(operator, random, samples))
    if not instances:
        return Contradiction({}, "no sizes were found that meet its conditions")
    for instance in instances:
        values = {operand.name: _draw(instance, operand, random) for operand in instance.inputs}
        try:
            sample = _Sample(instance, library, values, _run(instance, values, library))
        except _FAULTS as error:
            return Contradiction(instance.sizes, str(error))
        for axis, name in instance.declared.items():
            reason = next(filter(None, (sample.differs(axis, degree) for degree in DEGREES)), None)
            if reason is not None:
                return Contradiction(instance.sizes, reason, name)
    constants = declared_numbers(operator, library.functions)
    for found in _further_instances(operator, library, random):
        if isinstance(found, Untried):
            border = found.border
            reason = f"its cases change at `{border.name}` = {border.value}, which is too large to be tried"
            return Contradiction({}, reason)
        instance = found
        for mode in (*ENDS, str(random.choice(MODES))):
            values = trial_values(instance, mode, constants, random)
            for training in (True, False) if instance.evaluation else (True,):
                try:
                    _run(instance, values, library, training=training)
                except _FAULTS as error:
                    return Contradiction({**instance.sizes, **_ranges(instance)}, str(error))
    return None


def _further_instances(
    operator: OperatorDecl, library: Library, random: np.random.Generator
) -> Iterator[Instance | Untried]:
    """Instances where cases begin and end, and instances that are long along one axis or have a large integer range."""
    for found in border_instances(operator, library.functions, random):
        yield found if isinstance(found, Untried) else found.instance
    yield from long_instances(operator, random)


def _ranges(instance: Instance) -> dict[str, int]:
    """The ranges of integer operands by the names that the declaration gives them."""
    pairs = zip(instance.operator.inputs, instance.inputs, strict=True)
    return {
        declared.integer_range: operand.integer_range
        for declared, operand in pairs
        if declared.integer_range is not None and operand.integer_range is not None
    }


@dataclass(frozen=True)
class _Sample:
    """Operands of one instance, and the result."""

    instance: Instance
    library: Library
    values: Mapping[str, Array]
    whole: Array

    def differs(self, axis: str, degree: int) -> str | None:
        """How slices of one axis over `degree` devices differ from the result, as text; None if they do not."""
        instance, size = self.instance, self.instance.sizes[axis]
        if size % degree:
            return None
        local = replace(instance, sizes={**instance.sizes, axis: size // degree})
        where = f"of {degree} of `{instance.declared[axis]}`"
        for device in range(degree):
            parts = {g.name: _slice(g, self.values[g.name], axis, degree, device) for g in instance.inputs}
            try:
                found = _run(local, parts, self.library)
            except _FAULTS as error:
                return f"on slice {device} {where} {error}"
            if not np.array_equal(found, _slice(instance.outputs[0], self.whole, axis, degree, device)):
                return f"slice {device} {where} is not that slice of the result"
        return None


def _run(instance: Instance, values: Mapping[str, Array], library: Library, *, training: bool = True) -> Array:
    given = [values[operand.name] for operand in instance.inputs]
    return evaluate(instance, given, library, training=training)[0]


def _draw(instance: Instance, operand: Operand, random: np.random.Generator) -> Array:
    """Few distinct numbers, so that ties are frequent; sometimes all distinct ones."""
    shape = instance.shape(operand)
    if operand.integer_range is not None:
        return random.integers(0, operand.integer_range, shape)
    return random.standard_normal(shape) if random.random() < 0.3 else random.integers(-2, 3, shape).astype(np.float64)


def _slice(operand: Operand, value: Array, axis: str, degree: int, device: int) -> Array:
    """The slice of one device."""
    for place, dim in enumerate(operand.dims):
        if axis in dim:
            value = np.split(value, degree, axis=place)[device]
    return value
