"""Calls of modules that a captured graph keeps whole: which modules they are of, and what such a call reads and returns."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode
from torch.utils import _pytree as pytree

from ..syntax.diagnostic import fail


@dataclass(frozen=True)
class WholeCall:
    """A call of a module. `given` are the arguments of its `forward` that are tensors, by name, and `own` its parameters
    and buffers, whose names have underscores for dots; `plain` are the types of other arguments. `results` are the
    shapes of the tensors that it returns.
    """

    module: nn.Module
    given: Mapping[str, Any]
    own: Mapping[str, Any]
    plain: Mapping[str, str]
    results: tuple[tuple[int, ...], ...]


Caller = Callable[[Any, WholeCall], list[Any]]
"""Makes statements of a call while a translation walks the graph; gives the entries of its results."""

BY_CLASS: dict[type[nn.Module], Caller] = {}
"""What users replace."""
BY_NAME: dict[str, Caller] = {}
"""Classes of other packages, by module and name: `package.module.Class`."""
BY_FORM: list[tuple[Callable[[nn.Module], bool], Caller]] = []
"""Modules that are recognised by what they have."""


def caller_of(module: nn.Module) -> Caller | None:
    """What makes statements of the calls of a module; None where its forward is captured as it is. A subclass with a
    forward of its own is another module.
    """
    own = type(module).forward
    for known in type(module).__mro__:
        if getattr(known, "forward", None) is not own:
            break
        found = BY_CLASS.get(known) or BY_NAME.get(f"{known.__module__}.{known.__qualname__}")
        if found is not None:
            return found
    return next((caller for has_form, caller in BY_FORM if has_form(module)), None)


torch.library.define("unity_dsl::whole_call", "(Tensor[] operands, str told) -> Tensor[]")
WHOLE_CALL = torch.ops.unity_dsl.whole_call.default


@torch.library.register_fake("unity_dsl::whole_call")
def _results(operands: list[Tensor], told: str) -> list[Tensor]:
    device = operands[0].device if operands else None
    made = json.loads(told)["results"]
    return [torch.empty(shape, dtype=getattr(torch, dtype), device=device) for shape, dtype in made]


def read_call(module: nn.Module, entries: list[Any], told: str) -> WholeCall:
    """The call that an operator of a graph stands for, with entries for its operands."""
    found = json.loads(told)
    count = len(found["given"])
    given, own = dict(zip(found["given"], entries, strict=False)), dict(zip(found["own"], entries[count:], strict=True))
    results = tuple(tuple(shape) for shape, _ in found["results"])
    return WholeCall(module.get_submodule(found["path"]), given, own, found["plain"], results)


# ---------------------------------------------------------------------------------------- capturing


_Form = tuple[str, tuple[torch.Size, ...]]
"""The path of a module, and the shapes of what it is called with."""


@contextmanager
def kept_whole(module: nn.Module, args: tuple[Any, ...], named: Mapping[str, Any]) -> Iterator[None]:
    """Meanwhile modules that are replaced do nothing but record their calls, for `torch.export`.

    What they return is known by a run before, of the values or, where weights have none, of shapes. Raises E612 for a
    module that updates a buffer.
    """
    replaced = {path: part for path, part in module.named_modules() if caller_of(part) is not None}
    if not replaced:
        yield
        return
    returned: dict[_Form, Any] = {}
    if any(weight.dim() > 1 and not any(weight.stride()) for weight in module.parameters()):
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        with FakeCopyMode(mode):
            copied = deepcopy(module)
        given = pytree.tree_map_only(Tensor, mode.from_tensor, (args, dict(named)))
        with mode, torch.no_grad(), _forwards(copied, replaced, _observed(returned, {})):
            copied(*given[0], **given[1])
    else:
        before = [(buffer, buffer.clone()) for buffer in module.buffers()]
        with torch.no_grad(), _forwards(module, replaced, _observed(returned, None)):
            module(*args, **named)
            for buffer, value in before:
                buffer.copy_(value)
    with _forwards(module, replaced, _recorded(returned)):
        yield


_Wrapper = Callable[[str, nn.Module, Callable[..., Any]], Callable[..., Any]]


@contextmanager
def _forwards(module: nn.Module, paths: Mapping[str, nn.Module], wrapper: _Wrapper) -> Iterator[None]:
    """Meanwhile these modules have other forwards."""
    parts = [(path, module.get_submodule(path)) for path in paths]
    before = [vars(part).get("forward") for _, part in parts]
    try:
        for path, part in parts:
            part.__dict__["forward"] = wrapper(path, part, part.forward)
        yield
    finally:
        for (_, part), own in zip(parts, before, strict=True):
            part.__dict__.pop("forward")
            if own is not None:
                part.__dict__["forward"] = own


def _observed(returned: dict[_Form, Any], known: dict[object, Any] | None) -> _Wrapper:
    """Runs a module and keeps what it returns as shapes. With `known`, modules of one class whose tensors and arguments
    have the same shapes return the same: a loop over a sequence takes seconds on shapes.
    """

    def wrapper(path: str, module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        def observed(*args: Any, **kwargs: Any) -> Any:
            form = path, _shapes((args, kwargs))
            alike = type(module), form[1], tuple(tensor.shape for tensor in _own(module).values())
            if known is not None and alike in known:
                returned[form] = known[alike]
                return pytree.tree_map_only(Tensor, torch.empty_like, known[alike])
            versions = {name: buffer._version for name, buffer in module.named_buffers()}
            found = forward(*args, **kwargs)
            for name, buffer in module.named_buffers():
                if buffer._version != versions.get(name):
                    told = f"{type(module).__name__} updates its buffer `{name}`, and a block updates none"
                    raise fail("E612", told, help="replace a part of it that updates none")
            returned[form] = pytree.tree_map_only(Tensor, lambda tensor: tensor.to("meta"), found)
            if known is not None:
                known[alike] = found
            return found

        return observed

    return wrapper


def _recorded(returned: Mapping[_Form, Any]) -> _Wrapper:
    """One operator in place of what a module does."""

    def wrapper(path: str, module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(*args: Any, **kwargs: Any) -> Any:
            form = path, _shapes((args, kwargs))
            if form not in returned:
                raise RuntimeError(f"{path} is called with other shapes than when the module runs")
            values = _arguments(forward, args, kwargs)
            given = {name: value for name, value in values.items() if isinstance(value, Tensor)}
            leaves, spec = pytree.tree_flatten(returned[form])
            tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
            own = _own(module)
            told = {
                "path": path,
                "given": list(given),
                "own": list(own),
                "plain": {name: type(value).__name__ for name, value in values.items() if name not in given},
                "results": [(list(leaf.shape), str(leaf.dtype).removeprefix("torch.")) for leaf in tensors],
            }
            made = iter(WHOLE_CALL([*given.values(), *own.values()], json.dumps(told)))
            return pytree.tree_unflatten([next(made) if isinstance(leaf, Tensor) else leaf for leaf in leaves], spec)

        return recorded

    return wrapper


def _shapes(tree: Any) -> tuple[torch.Size, ...]:
    return tuple(leaf.shape for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor))


def _arguments(forward: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """What a forward is called with, by the names of its parameters."""
    signature = inspect.signature(forward)
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    found: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            found |= value
        else:
            found[name] = value
    return found


def _own(module: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers of a module, as they are while it is captured."""
    every = chain(module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False))
    return {name.replace(".", "_"): reduce(getattr, name.split("."), module) for name, _ in every}
