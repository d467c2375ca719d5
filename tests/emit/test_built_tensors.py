"""The tensors that a lowering is predicted to build and save, against torch's run of the emitted text, to the byte.

A dispatch mode sees every tensor that a kernel makes, and autograd's hooks see every tensor that autograd saves. A view
counts as its storage. Kernels that are one on a GPU and several on a CPU are one here. These are `rms_norm`, whose
kernel saves its operands and one number per row, and attention, which is one CPU kernel for keys and values of the same
length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from unity_dsl.emit.constant_text import ConstantsText
from unity_dsl.graph.layout import Mesh
from unity_dsl.graph.layout_typing import TypedOperator, type_operator
from unity_dsl.graph.local_lowering import local_execution
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.lowering.execution import Execution
from unity_dsl.index.lowering.kept_by_torch import KEPT

from ..index.gradients.test_adjoint import ALL
from .fused_kernels import rms_norm
from .test_operator_text import constants_of, run, text_of
from .test_operators import draw, valued

LIBRARY = load_library()
FLOATS = [name for name, operator in LIBRARY.operators.items() if not operator.extern]
Storages = dict[int, int]
"""Bytes by storage address."""


@dataclass
class Built(TorchDispatchMode):
    """The storages that kernels make. It keeps all tensors that it sees alive, so that no address is reused."""

    storages: Storages = field(default_factory=dict)
    seen: list[torch.Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        for tensor in found if isinstance(found, tuple | list) else [found]:
            if isinstance(tensor, torch.Tensor):
                self.seen.append(tensor)
                self.storages.setdefault(tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes())
        return found


@dataclass
class Measured:
    """Sizes of the storages that a run built, and those it saved: operands and results by position, others by size."""

    built: Counter[int]
    saved: Counter[str]


def measured(lines: Sequence[str], inputs: Sequence[torch.Tensor], outputs: int, held: ConstantsText) -> Measured:
    kept: Storages = {}
    alive: list[torch.Tensor] = []
    constants = constants_of(held, torch.float32)
    places = {tensor.untyped_storage().data_ptr() for tensor in vars(constants).values()}

    def save(tensor: torch.Tensor) -> torch.Tensor:
        alive.append(tensor)
        if (place := tensor.untyped_storage().data_ptr()) not in places:
            kept[place] = tensor.untyped_storage().nbytes()
        return tensor

    mode = Built()
    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor), mode:
        found = run(lines, inputs, outputs, True, draw, constants)
    names = {tensor.untyped_storage().data_ptr(): f"output {place}" for place, tensor in enumerate(found)}
    names |= {tensor.untyped_storage().data_ptr(): f"input {place}" for place, tensor in enumerate(inputs)}
    given = {address for address, name in names.items() if name.startswith("in")} | places
    made = {address: count for address, count in mode.storages.items() if address not in given}
    return Measured(Counter(made.values()), Counter(names.get(a, f"{count} bytes") for a, count in kept.items()))


def predicted(found: Execution) -> Measured:
    names = {tensor.storage: f"output {place}" for place, tensor in enumerate(found.outputs)}
    names |= {tensor.storage: f"input {place}" for place, tensor in enumerate(found.inputs)}
    saved = Counter(names.get(storage, f"{storage.bytes} bytes") for storage in found.saved)
    return Measured(Counter(storage.bytes for storage in found.built), saved)


def runs(name: str) -> Iterator[tuple[Instance, TypedOperator, Sequence[torch.Tensor]]]:
    """Instances with the native call and with the equations, at the sizes of a case and at the smallest sizes."""
    case = ALL[name](np.random.default_rng(0))
    first = (case.instance(LIBRARY.operators[name]), case.inputs)
    for instance, inputs in (first, next(iter(valued(name, np.random.default_rng(3))))):
        found = type_operator(instance, (), Mesh(()), LIBRARY)
        assert isinstance(found, TypedOperator)
        for native in {found.native, False}:
            # On a CPU, attention is several kernels if values and keys have different lengths.
            if not (native and name.endswith("attention") and inputs[1].shape[-1] != inputs[2].shape[-1]):
                yield replace(instance, native=native), replace(found, native=native), inputs


@pytest.mark.parametrize("name", FLOATS)
def test_tensors_that_are_built_and_saved(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Needs gradients of all float operands, of each one alone, and of none."""
    monkeypatch.setattr(torch.nn.functional, "rms_norm", rms_norm)
    for instance, typed, given in runs(name):
        floats = [place for place, x in enumerate(given) if x.is_floating_point()]
        if instance.whole or not floats:
            continue
        held = ConstantsText()
        lines = text_of(instance, typed, LIBRARY, held)
        for wanted in (floats, *([place] for place in floats), []):
            needs = [place in wanted for place in range(len(given))]
            inputs = [
                x.detach().to(torch.float32, copy=True).requires_grad_(needed) if x.is_floating_point() else x.clone()
                for x, needed in zip(given, needs, strict=True)
            ]
            found = predicted(local_execution(instance, typed, Mesh(()), LIBRARY, needs, 4))
            torch_s = measured(lines, inputs, len(instance.outputs), held)
            told = "\n".join([f"{typed.native=} {wanted=} {[tuple(x.shape) for x in inputs]}", *lines])
            assert found.saved == torch_s.saved, told
            if not typed.native:
                assert found.built == torch_s.built, told


@pytest.mark.parametrize("name", sorted(name for name in KEPT if name.startswith(("torch.", "F."))))
def test_the_table_names_functions_of_torch(name: str) -> None:
    module, _, function = name.partition(".")
    assert hasattr(torch.nn.functional if module == "F" else torch, function)
