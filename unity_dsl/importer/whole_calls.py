"""Calls that a captured graph keeps as one operator: of which modules and functions, and what they read and return."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeCopyMode,
    FakeTensorMode,
)
from torch.utils import _pytree as pytree

from ..syntax.diagnostic import fail


@dataclass(frozen=True)
class WholeCall:
    """A call of a module, or of a function, where `module` is None; `name` is the class or the function.

    `given` are the tensor arguments by name; tensors of a tuple are named by its name and their positions. `own` are
    the module's parameters and buffers, with underscores for dots. `plain` are the other arguments, `results` the
    shapes of the returned tensors.
    """

    name: str
    module: nn.Module | None
    given: Mapping[str, Any]
    own: Mapping[str, Any]
    plain: Mapping[str, Any]
    results: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Result:
    """A tensor that a call returns."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def like(cls, tensor: Tensor) -> Result:
        return cls(tuple(tensor.shape), tensor.dtype)


@dataclass(frozen=True)
class Replacement:
    """The replacement of a call: `call` makes statements during a translation and returns the entries of the results.
    `returns` gives the return value for these arguments, with a Result for each tensor, if it is known without a run.
    """

    call: Callable[[Any, WholeCall], list[Any]]
    returns: Callable[[Mapping[str, Any]], Any] | None = None


CLASSES: dict[type[nn.Module], Replacement] = {}
"""Replacements by class of modules."""
FORMS: list[tuple[Callable[[nn.Module], bool], Replacement]] = []
"""Replacements of modules that have certain attributes, whatever their class."""
FUNCTIONS: dict[str, Replacement] = {}
"""Replacements of functions `package.module.name`, called by modules whose class is from the same file."""


def replacement_of(module: nn.Module) -> Replacement | None:
    """The replacement of a module's calls; None where its forward is captured as it is. A replacement does not apply
    to a subclass with its own forward.
    """
    own = type(module).forward
    for known in type(module).__mro__:
        if getattr(known, "forward", None) is not own:
            break
        if known in CLASSES:
            return CLASSES[known]
    return next((found for has_form, found in FORMS if has_form(module)), None)


torch.library.define("unity_dsl::whole_call", "(Tensor[] operands, str told) -> Tensor[]")
WHOLE_CALL = torch.ops.unity_dsl.whole_call.default


def _results(operands: list[Tensor], told: str) -> list[Tensor]:
    device = operands[0].device if operands else None
    made = json.loads(told)["results"]
    return [torch.empty(shape, dtype=getattr(torch, dtype), device=device) for shape, dtype in made]


torch.library.register_fake("unity_dsl::whole_call", _results)


def read_call(module: nn.Module, entries: list[Any], told: str) -> tuple[WholeCall, Replacement]:
    """The call that an operator of a graph records, with entries for its operands, and its replacement."""
    found = json.loads(told)
    part = None if found["path"] is None else module.get_submodule(found["path"])
    replacement = FUNCTIONS[found["name"]] if part is None else replacement_of(part)
    assert replacement is not None, "as when it was captured"
    given = dict(zip(found["given"], entries, strict=False))
    own = dict(zip(found["own"], entries[len(given) :], strict=True))
    results = tuple(tuple(shape) for shape, _ in found["results"])
    return WholeCall(found["name"], part, given, own, found["plain"], results), replacement


# ---------------------------------------------------------------------------------------- capturing


@dataclass(frozen=True)
class _Code:
    """The code of a replaced call, `name` in a `namespace`: the forward of a module with its path, or a Python
    function. `told` is the full name of the class or function.
    """

    told: str
    replacement: Replacement
    namespace: dict[str, Any]
    name: str
    run: Callable[..., Any]
    path: str | None = None
    module: nn.Module | None = None


def _replaced(module: nn.Module) -> list[_Code]:
    """The code to replace for a module: that of its submodules, and functions from the files of its classes."""
    found = []
    for path, part in module.named_modules():
        if (replacement := replacement_of(part)) is not None:
            told = f"{type(part).__module__}.{type(part).__qualname__}"
            found.append(_Code(told, replacement, vars(part), "forward", part.forward, path, part))
    files = {known.__module__ for part in module.modules() for known in type(part).__mro__}
    for told, replacement in FUNCTIONS.items():
        file, _, name = told.rpartition(".")
        code = vars(sys.modules[file]).get(name) if file in files else None
        if code is not None:
            found.append(_Code(told, replacement, vars(sys.modules[file]), name, code))
    return found


_Form = tuple[str, str | None, tuple[Any, ...]]
"""A call: its name, its path, and its arguments, with tensors by their shapes."""


@contextmanager
def kept_whole(module: nn.Module, args: tuple[Any, ...], named: Mapping[str, Any]) -> Iterator[None]:
    """Inside this context, replaced calls only record themselves, for `torch.export`.

    Return values that `returns` does not give are found by a run beforehand: on values, or on shapes if weights take
    no memory. Raises E612 for a module that updates a buffer, E603 where shapes depend on values.
    """
    replaced = _replaced(module)
    returned: dict[_Form, Any] = {}
    if any(code.replacement.returns is None for code in replaced):
        if any(weight.dim() > 1 and not any(weight.stride()) for weight in module.parameters()):
            _run_shapes(module, args, named, returned)
        else:
            _run_values(module, args, named, returned)
    with _wrapped(replaced, partial(_recorded, returned)):
        yield


def _run_values(module: nn.Module, args: tuple[Any, ...], named: Mapping[str, Any], returned: dict[_Form, Any]) -> None:
    """Runs the module to record what calls return, then restores its buffers."""
    codes = [code for code in _replaced(module) if code.replacement.returns is None]
    buffers = [(part._buffers, dict(part._buffers)) for part in module.modules()]
    values = [(buffer, buffer.clone()) for buffer in module.buffers()]
    with torch.no_grad(), _wrapped(codes, partial(_observed, returned, None)):
        try:
            module(*args, **named)
        finally:
            for held, before in buffers:
                held.update(before)
            for buffer, value in values:
                buffer.copy_(value)


def _run_shapes(module: nn.Module, args: tuple[Any, ...], named: Mapping[str, Any], returned: dict[_Form, Any]) -> None:
    """Does the same by a run of a copy on shapes alone. Raises E603 where these depend on values."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with FakeCopyMode(mode):
        copied = deepcopy(module)
    args, named = pytree.tree_map_only(Tensor, mode.from_tensor, (args, dict(named)))
    with mode, torch.no_grad(), _wrapped(_replaced(copied), partial(_observed, returned, {})):
        try:
            copied(*args, **named)
        except (DataDependentOutputException, DynamicOutputShapeException) as reason:
            told = f"what a replaced module returns depends on values, and its weights have none: {reason}"
            raise fail("E603", told, help="import it with its weights") from None


_Wrapper = Callable[[_Code], Callable[..., Any]]


@contextmanager
def _wrapped(codes: Sequence[_Code], wrapper: _Wrapper) -> Iterator[None]:
    """Inside this context, wrappers run in place of these calls."""
    before = [(code, code.namespace.get(code.name)) for code in codes]
    try:
        for code in codes:
            code.namespace[code.name] = wrapper(code)
        yield
    finally:
        for code, own in before:
            code.namespace.pop(code.name)
            if own is not None:
                code.namespace[code.name] = own


def _observed(returned: dict[_Form, Any], known: dict[object, Any] | None, code: _Code) -> Callable[..., Any]:
    """Runs a call and records its return value. With `known`, for runs on shapes, calls of one class with equal shapes
    run once: a loop over a sequence takes seconds on shapes.
    """

    def observed(*args: Any, **kwargs: Any) -> Any:
        form = _form(code, args, kwargs)
        alike = form[0], form[2], tuple(tensor.shape for tensor in _own(code.module).values())
        if known is not None and code.replacement.returns is not None:
            known[alike] = code.replacement.returns(_arguments(code.run, args, kwargs))
        if known is not None and alike in known:
            returned[form] = known[alike]
            return pytree.tree_map_only(Result, lambda one: torch.empty(one.shape, dtype=one.dtype), known[alike])
        before = _versions(code.module)
        found = code.run(*args, **kwargs)
        for name in [name for name, version in _versions(code.module).items() if before.get(name) != version]:
            told = f"{type(code.module).__name__} updates its buffer `{name}`, and a block updates none"
            raise fail("E612", told, help="replace a part of it that updates none")
        returned[form] = pytree.tree_map_only(Tensor, Result.like, found)
        if known is not None:
            known[alike] = returned[form]
        return found

    return observed


def _recorded(returned: Mapping[_Form, Any], code: _Code) -> Callable[..., Any]:
    """Records one operator in place of running a call."""

    def recorded(*args: Any, **kwargs: Any) -> Any:
        values, form = _arguments(code.run, args, kwargs), _form(code, args, kwargs)
        if code.replacement.returns is None and form not in returned:
            raise RuntimeError(f"{code.told} is called with something else than when the module ran")
        found = returned[form] if code.replacement.returns is None else code.replacement.returns(values)
        leaves, spec = pytree.tree_flatten(found)
        given = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        own = _own(code.module)
        results = [leaf for leaf in leaves if isinstance(leaf, Result)]
        told = {
            "name": code.told,
            "path": code.path,
            "given": list(given),
            "own": list(own),
            "plain": {name: _plain(value) for name, value in values.items() if name not in given},
            "results": [(one.shape, str(one.dtype).removeprefix("torch.")) for one in results],
        }
        made = iter(WHOLE_CALL([*given.values(), *own.values()], json.dumps(told)))
        return pytree.tree_unflatten([next(made) if isinstance(leaf, Result) else leaf for leaf in leaves], spec)

    return recorded


def _versions(module: nn.Module | None) -> dict[str, tuple[int, int]]:
    """The identity and the version counter of each buffer."""
    buffers = [] if module is None else list(module.named_buffers())
    return {name: (id(buffer), buffer._version) for name, buffer in buffers}


def _form(code: _Code, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Form:
    leaves = pytree.tree_leaves((args, dict(kwargs)))
    return code.told, code.path, tuple(leaf.shape if isinstance(leaf, Tensor) else _plain(leaf) for leaf in leaves)


def _plain(value: Any) -> Any:
    """Numbers, flags and strings as they are; the type name of any other value."""
    return value if isinstance(value, int | float | str | None) else type(value).__name__


def _arguments(forward: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by the names of forward's parameters."""
    signature = inspect.signature(forward)
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    named = dict(bound.arguments)
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            named |= named.pop(name)
    found: dict[str, Any] = {}
    for name, value in named.items():
        leaves = pytree.tree_leaves(value)
        nested = not isinstance(value, Tensor) and any(isinstance(leaf, Tensor) for leaf in leaves)
        found |= {f"{name}_{place}": leaf for place, leaf in enumerate(leaves)} if nested else {name: value}
    return found


def _own(module: nn.Module | None) -> dict[str, Tensor]:
    """The parameters and buffers of a module as they are during capture, with underscores for dots."""
    if module is None:
        return {}
    every = chain(module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False))
    return {name.replace(".", "_"): _tensor(module, name) for name, _ in every}


def _tensor(module: nn.Module, name: str) -> Tensor:
    found: Any = reduce(getattr, name.split("."), module)
    assert isinstance(found, Tensor)
    return found
