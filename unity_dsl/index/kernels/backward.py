"""The cotangents of several inputs as one instance, which computes shared equations once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ...syntax.ast import Expr, Name, Read
from ..equations.instance import Equation, Instance, Operand
from ..equations.term import fresh, rewrite
from ..gradients.adjoint import adjoint
from ..library import Library


class DifferentAxesError(ValueError):
    """Adjoints of single inputs that cannot be one instance: axes of one name have several lengths."""


def backward_instance(
    instance: Instance, library: Library, wrt: Sequence[int], saved: Collection[str] = ()
) -> Instance:
    """The cotangents of inputs `wrt`, as outputs in this order, from all inputs and the outputs' cotangents.

    The adjoints of single inputs repeat the forward equations that they need, and each other's cotangents; equal
    equations are computed once. `saved` intermediates are inputs too, the last ones. Raises ValueError for an integer
    input, and DifferentAxesError.
    """
    merged = _Merged()
    parts = [adjoint(instance, library, number) for number in wrt]
    for part in parts:
        merged.add(part)
    sizes = {axis: size for part in parts for axis, size in part.sizes.items()}
    if any(size != sizes[axis] for part in parts for axis, size in part.sizes.items()):
        raise DifferentAxesError(f"adjoints of {instance.name} have axes of one name and several lengths")
    kept = [equation.target for equation in merged.equations if equation.target.name in saved]
    return replace(
        parts[0],
        inputs=(*parts[0].inputs, *kept),
        operator=replace(instance.operator, name=f"{instance.name}_backward", torch=None, extern=False),
        outputs=tuple(merged.outputs),
        sizes=sizes,
        equations=tuple(equation for equation in merged.equations if equation.target not in kept),
    )


class _Merged:
    """Collects the equations of several instances with the same inputs, each once, under unique names."""

    def __init__(self) -> None:
        self.equations: list[Equation] = []
        self.outputs: list[Operand] = []
        self.known: dict[tuple[object, ...], Operand] = {}
        self.names: set[str] = set()

    def add(self, part: Instance) -> None:
        renamed: dict[str, str] = {}
        self.names |= {operand.name for operand in part.inputs}
        for equation in part.equations:
            value = _renamed(equation.value, renamed)
            target = equation.target
            key = (target.dims, value, equation.kind, equation.over, equation.ties)
            found = self.known.get(key)
            if found is None:
                found = self.known[key] = replace(target, name=fresh(target.name, self.names))
                self.names.add(found.name)
                self.equations.append(replace(equation, target=found, value=value))
            renamed[target.name] = found.name
        for output in part.outputs:
            self.outputs.append(replace(output, name=renamed[output.name]))


def _renamed(value: Expr, names: dict[str, str]) -> Expr:
    def change(node: Expr) -> Expr:
        return replace(node, tensor=names.get(node.tensor, node.tensor)) if isinstance(node, Read) else node

    return rewrite(value, change)


def aliases(instance: Instance) -> dict[str, str]:
    """Outputs that are an input, unchanged and whole, by their names: `d_x[b, c] = d_y[b, c]`."""
    inputs = {operand.name: operand for operand in instance.inputs}
    outputs = {operand.name for operand in instance.outputs}
    return {
        equation.target.name: value.tensor
        for equation in instance.equations
        if equation.target.name in outputs
        and equation.kind is None
        and isinstance(value := equation.value, Read)
        and value.tensor in inputs
        and value.fill is None
        and instance.shape(equation.target) == instance.shape(inputs[value.tensor])
        and all(isinstance(index, Name) for index in value.index)
        and tuple((index.name,) for index in value.index if isinstance(index, Name)) == equation.target.dims
    }
