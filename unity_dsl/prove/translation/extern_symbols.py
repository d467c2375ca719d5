"""Extern operators as uninterpreted functions: equal operands give equal results (congruence), nothing else is known.

The results of a call are the entries of an unknown integer tensor: one tensor for each operator, attributes and
operands up to proved equality. Determinism of extern operators is assumed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..decision.integer_arithmetic import Arithmetic
from ..equality.form_equality import Comparison
from ..normal_form.form import Unsupported
from ..normal_form.guard import compare
from ..normal_form.polynomial import Entry, Poly, Var, of
from .mixed_radix import digits
from .operator_forms import Call, Tensor

Attributes = tuple[tuple[str, Poly], ...]


@dataclass(frozen=True)
class _Known:
    """An earlier call: its operands, and the tensor symbol whose entries are its result."""

    name: str
    attributes: Attributes
    operands: tuple[Tensor, ...]
    symbol: str
    devices: tuple[str, ...]
    dims: tuple[tuple[Poly, ...], ...]


@dataclass
class ExternSymbols:
    """The extern calls of a rule so far."""

    arithmetic: Arithmetic
    known: list[_Known] = field(default_factory=list)

    def result(self, call: Call) -> Tensor:
        """The result of an extern call. Raises Unsupported for operands that may have no value."""
        instance = call.instance
        (output,) = instance.outputs
        operands = tuple(call.tensors[operand.name] for operand in instance.inputs)
        if any(operand.domain for operand in operands):
            raise Unsupported(f"`{instance.name}`, an extern operator, of what may have no value")
        attributes = tuple((name, call.sizes.attributes[name]) for name in sorted(instance.attributes))
        shape = call.without_elements(output)
        assert shape.bound is not None, "an extern operator returns integers"
        known = next((one for one in self.known if self._equal(one, instance.name, attributes, operands)), None)
        if known is None:
            symbol = f"{instance.name}.{len(self.known) + 1}"
            sizes = tuple(tuple(var.size for var in dim) for dim in shape.dims)
            known = _Known(instance.name, attributes, operands, symbol, tuple(name for name, _ in call.devices), sizes)
            self.known.append(known)
        return replace(shape, entry=_entry(known, dict(call.devices), shape.dims, shape.bound))

    def _equal(self, known: _Known, name: str, attributes: Attributes, operands: tuple[Tensor, ...]) -> bool:
        """Whether the operands are known to equal those of an earlier call."""
        if (known.name, known.attributes) != (name, attributes):
            return False
        return all(self._same(*pair) for pair in zip(known.operands, operands, strict=True))

    def _same(self, known: Tensor, other: Tensor) -> bool:
        shapes = [[tuple(var.size for var in dim) for dim in tensor.dims] for tensor in (known, other)]
        if {name for name, _ in known.devices} != {name for name, _ in other.devices} or known.bound != other.bound:
            return False
        if len(shapes[0]) != len(shapes[1]) or not all(map(self.arithmetic.equal_sizes, *shapes)):
            return False
        left, right = other.over(known)
        if left.entry is not None and right.entry is not None:
            return self.arithmetic.certain(compare("==", left.entry, right.entry), obligation="same_value")
        return Comparison(self.arithmetic).equal(left.value, right.value)


def _entry(known: _Known, devices: dict[str, Var], dims: tuple[tuple[Var, ...], ...], bound: Poly) -> Poly:
    """The element of a symbol at these indices, with dimensions factored as at its first call."""
    places = [part for dim, sizes in zip(dims, known.dims, strict=True) for part in digits(dim, sizes)]
    return of(Entry(known.symbol, (*(of(devices[name]) for name in known.devices), *places), bound))
