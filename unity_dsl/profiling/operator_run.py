"""One operator as emitted in a program, run on random tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from math import prod
from typing import TYPE_CHECKING, Any

from ..emit.operator_text import Place, operator_text
from ..emit.program_names import Names
from ..emit.templates import template
from ..graph.layout import Mesh
from ..graph.layout_typing import TypedOperator, type_operator
from ..index.equations.instance import Instance
from ..index.library import Library
from ..machine.measured_operators import Direction
from ..syntax.ast import ReductionKind
from .samples import Sample

if TYPE_CHECKING:
    from torch import Tensor, device, dtype

SETS = 4
"""Sets of operands, and of held results, used in rotation: a program does not rerun an operator on one tensor."""

BEYOND_CACHES = 2**25
"""Bytes of operands that no cache still holds when they are read again, so one set is enough."""

DTYPES = {"f64": "float64", "f32": "float32", "bf16": "bfloat16", "f16": "float16"}


class NoCollectives:
    """Stands in for the collectives of a program: an operator on one device uses none."""

    def replicate(self, axes: tuple[int, ...]) -> str:
        raise AssertionError(axes)

    def reduce(self, axes: tuple[int, ...]) -> str:
        raise AssertionError(axes)

    def reduce_over(self, kind: ReductionKind, free: bool) -> str:
        raise AssertionError(kind)

    def standardised(self) -> str:
        raise AssertionError

    def group(self, axes: tuple[int, ...]) -> str:
        raise AssertionError(axes)


@dataclass(frozen=True)
class State:
    """The parts of the program's state that the text reads."""

    counters: tuple[Tensor, Tensor]
    dtype: dtype
    device: device
    training: bool = True


def operator_function(instance: Instance, library: Library, state: State) -> Callable[..., tuple[Tensor, ...]]:
    """The operator's outputs as a function of its inputs, compiled from the program text emitted for it."""
    import torch

    mesh = Mesh(())
    typed = type_operator(instance, (), mesh, library)
    assert isinstance(typed, TypedOperator), typed
    place = Place(Names(), mesh, library, NoCollectives(), "state", site="1")
    given = [f"given_{number}" for number in range(len(instance.inputs))]
    made = [f"made_{number}" for number in range(len(instance.outputs))]
    lines = [f"    {line}" for line in operator_text(instance, typed, given, made, place)]
    text = "\n".join([f"def run({', '.join(given)}):", *lines, f"    return ({', '.join(made)},)"])
    names: dict[str, Any] = {"torch": torch, "F": torch.nn.functional, "Tensor": torch.Tensor, "state": state}
    for part in ("uniform", "surrogate"):
        exec(compile(template(f"{part}.py.j2").render(division=None), part, "exec"), names)
    exec(compile(text, instance.name, "exec"), names)
    function: Callable[..., tuple[Tensor, ...]] = names["run"]
    return function


def sample_run(sample: Sample, library: Library, where: device) -> Callable[[], None]:
    """A function that runs the measured work of a sample once."""
    import torch

    kind = getattr(torch, DTYPES[sample.dtype])
    zero = torch.tensor(0)
    function = operator_function(sample.instance, library, State((zero, zero), kind, where))
    number = SETS if 8 * sample.elements < BEYOND_CACHES else 1
    sets = [_operands(sample, kind, where, seed) for seed in range(number)]
    held: list[Any] = [None] * number
    turns = cycle(range(number))
    if sample.direction is Direction.FORWARD:

        def forward() -> None:
            turn = next(turns)
            held[turn] = function(*sets[turn])

        return forward
    made = [[result for result in function(*given) if result.requires_grad] for given in sets]
    cotangents = [[torch.full_like(result, 1e-3) for result in results] for results in made]
    wanted = [[x for x, needed in zip(given, sample.needs, strict=True) if needed] for given in sets]

    def backward() -> None:
        turn = next(turns)
        held[turn] = torch.autograd.grad(
            made[turn], wanted[turn], cotangents[turn], retain_graph=True, allow_unused=True
        )

    return backward


def _operands(sample: Sample, kind: dtype, where: device, seed: int) -> list[Tensor]:
    """Operands: numbers in (0.1, 0.9), where every operator is defined, and integers below their bounds. Blocks of
    random numbers repeat, as drawing every number would take longer than the measurement.
    """
    import torch

    source = torch.Generator().manual_seed(seed)

    def filled(block: Tensor, shape: Sequence[int]) -> Tensor:
        wanted = prod(shape)
        return block.to(where).repeat(-(-wanted // block.numel()))[:wanted].reshape(*shape)

    operands = []
    for operand, needed in zip(sample.instance.inputs, sample.needs, strict=True):
        shape, bound = sample.instance.shape(operand), operand.integer_range
        if bound is not None:
            operands.append(filled(torch.randint(bound, (_BLOCK,), generator=source), shape))
        else:
            block = torch.empty(_BLOCK).uniform_(0.1, 0.9, generator=source).to(kind)
            operands.append(filled(block, shape).requires_grad_(needed))
    return operands


_BLOCK = 65_521
"""Numbers in a block: a prime, so that the rows of repeated blocks differ."""
