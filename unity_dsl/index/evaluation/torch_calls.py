"""Runs `torch:` lines of declarations in torch, to test them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

from ...syntax.ast import Name, NativeArgument, NativeCall, NativeList, NativeSteps, NativeString, Number, Size
from ..equations.instance import Instance
from .native_calls import LITERALS, TRAINING

if TYPE_CHECKING:
    from torch import Tensor


class NativeFailure(Exception):
    """A native call that torch or NumPy rejects; `call` is the innermost one."""

    def __init__(self, call: NativeCall, error: Exception) -> None:
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        super().__init__(reason.strip().rstrip("."))
        self.call = call
        self.error = error


def run_operator(instance: Instance, inputs: Mapping[str, Tensor], *, training: bool = True) -> list[Any]:
    """The results of the operator's `torch:` lowering, unconverted. Raises NativeFailure."""
    native = instance.operator.torch
    assert native is not None
    sizes = {size: native_size(instance, size, instance.sizes) for size in _sizes_named(native)}
    bound: dict[str, Any] = {**instance.attributes, **inputs}
    if instance.evaluation:
        bound[TRAINING] = training
    if isinstance(native, NativeCall):
        found = run_call(native, bound, sizes)
        return list(found) if len(instance.outputs) > 1 and isinstance(found, tuple | list) else [found]
    for name, call in native.steps:
        bound[name] = run_call(call, bound, sizes)
    return [bound[output.name] for output in instance.outputs]


def run_call(call: NativeCall, bound: Mapping[str, Any], sizes: Mapping[Size, int]) -> Any:
    """One call with names and sizes bound. Raises NativeFailure."""

    def value(argument: NativeArgument) -> Any:
        match argument:
            case Number(number):
                return number
            case Name(name):
                return LITERALS[name] if name in LITERALS else bound[name]
            case Size():
                return sizes[argument]
            case NativeString(text):
                return text
            case NativeList(items):
                return [value(item) for item in items]
            case NativeCall():
                return run_call(argument, bound, sizes)

    positional = [value(argument) for argument in call.arguments]
    keywords = {key: value(argument) for key, argument in call.keywords}
    try:
        return _function(call.function)(*positional, **keywords)
    except Exception as error:  # any exception of a native function is a failure of the call
        raise NativeFailure(call, error) from error


def native_size(instance: Instance, size: Size, sizes: Mapping[str, int]) -> int:
    """`|c|` or `|b..|` in a native call, at the lengths of the instance's axes."""
    return prod(sizes[axis] for axis in _rest_axes(instance, size.name)) if size.rest else sizes[size.name]


def _rest_axes(instance: Instance, name: str) -> Iterator[str]:
    """The axes of a rest group, in an instance without a pattern."""
    for declared, operand in zip(instance.operator.inputs, instance.inputs, strict=True):
        names = [axes[0].name if axes[0].rest else None for axes in declared.dimensions]
        if names.count(None) == len(names) - 1 and name in names:
            before = names.index(name)
            after = len(names) - before - 1
            yield from (axis for dim in operand.dims[before : len(operand.dims) - after] for axis in dim)
            return
    raise ValueError(f"{instance.name}: no input says which axes `{name}..` stands for")


def _sizes_named(native: NativeCall | NativeSteps) -> Iterator[Size]:
    pending: list[NativeArgument] = [call for _, call in native.steps] if isinstance(native, NativeSteps) else [native]
    while pending:
        match pending.pop():
            case Size() as size:
                yield size
            case NativeList(items):
                pending += items
            case NativeCall(arguments=arguments, keywords=keywords):
                pending += [*arguments, *(argument for _, argument in keywords)]


def _function(name: str) -> Any:
    import torch

    module, _, function = name.rpartition(".")
    return getattr(torch.nn.functional if module == "F" else torch, function)
