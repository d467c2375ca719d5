"""Captures a torch module in training mode as a graph of its operators, with its weights and example inputs."""

from __future__ import annotations

import importlib
import inspect
import logging
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager, nullcontext, redirect_stderr
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from sysconfig import get_path
from traceback import extract_tb
from types import MappingProxyType
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.export import ExportedProgram, default_decompositions, export
from torch.export.graph_signature import InputKind
from torch.fx.traceback import preserve_node_meta
from torch.utils._pytree import tree_leaves, tree_map

from ..syntax.diagnostic import InputError, fail
from .complex_pairs import complex_as_pairs
from .decompositions import OWN, gaussian_nll_loss
from .keras_models import (
    KerasModule,
    is_keras_layer,
    keras_refusal,
    number_layers_anew,
    torch_for_keras,
    with_plain_weights,
)
from .patched_attributes import patched
from .whole_calls import kept_whole

_PAIR = "the factory returns a module and its example inputs: `return module, {'x': x, 'target': target}`"


@dataclass(frozen=True)
class Captured:
    """A module's graph in training mode, functional, with composite operators kept.

    `given` are the example inputs, `inputs` the tensors among them by placeholder. `states` maps placeholders of
    weights and buffers to their names in the state_dict. `frozen` are the placeholders of parameters that require no
    gradient. `constants` are the values of tensors outside the state_dict.
    """

    module: nn.Module
    given: tuple[tuple[Any, ...], Mapping[str, Any]]
    program: ExportedProgram
    inputs: Mapping[str, Tensor]
    states: Mapping[str, str]
    buffers: frozenset[str]
    frozen: frozenset[str]
    constants: Mapping[str, Tensor]

    def decomposed(self, operators: Set[Any]) -> Captured | None:
        """This capture with these operators decomposed into others; None if none of them has a known decomposition."""
        known = {**default_decompositions(), **OWN}
        table = {one: known[one] for one in operators if one in known}
        if not table:
            return None
        with quietly(), preserve_node_meta():
            return replace(self, program=self.program.run_decompositions(table))


@contextmanager
def without_weights() -> Iterator[None]:
    """Inside this context, modules are created with matrices on the meta device, which take no memory."""
    register = nn.Module.register_parameter

    def light(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and parameter.dim() > 1 and not parameter.is_meta:
            parameter = nn.Parameter(parameter.to("meta"), parameter.requires_grad)
        register(module, name, parameter)

    patched: Any = nn.Module
    patched.register_parameter = light
    try:
        yield
    finally:
        patched.register_parameter = register


def _with_one_element(module: nn.Module) -> None:
    """Replaces meta parameters by views of a single zero element, from which constants can be computed. Tied
    parameters stay tied.
    """
    made: dict[int, nn.Parameter] = {}
    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            if parameter.is_meta:
                one = torch.zeros((), dtype=parameter.dtype).expand(parameter.shape)
                setattr(part, name, made.setdefault(id(parameter), nn.Parameter(one, parameter.requires_grad)))


@contextmanager
def _calling(spec: str) -> Iterator[Callable[..., Any]]:
    """Yields the factory. An exception inside this context is reported as E601, or as the diagnostic of
    `keras_refusal`.
    """
    name, colon, function = spec.partition(":")
    if not colon or not name or not function.isidentifier():
        raise fail("E601", f"`{spec}` names no factory", help="write `package.module:function`")
    sys.path.insert(0, str(Path.cwd()))
    try:
        with torch_for_keras():
            factory = getattr(importlib.import_module(name), function)
            number_layers_anew()
            yield factory
    except Exception as reason:
        if (refusal := keras_refusal(reason)) is not None:
            raise refusal from None
        help = f"write `{name.removesuffix('.py').replace('/', '.')}:{function}`" if name.endswith(".py") else ""
        raise fail("E601", f"the factory `{spec}` cannot be called: {_told(reason)}", help=help) from None
    finally:
        sys.path.remove(str(Path.cwd()))


def _told(reason: Exception) -> str:
    """The type and message of an error on one line, with its place in the user's code."""
    return f"{type(reason).__name__}: {reason}".splitlines()[0] + _place(reason)


def _place(reason: Exception) -> str:
    """The innermost line of a traceback outside torch, the standard library and this package, as ` (model.py:31)`;
    empty if there is none.
    """
    own, python = (Path(__file__).parent.parent, Path(torch.__file__).parent), Path(get_path("stdlib"))
    places = []
    for frame in extract_tb(reason.__traceback__):
        path = Path(frame.filename)
        is_python = path.is_relative_to(python) and "site-packages" not in path.parts
        if path.is_file() and not is_python and not any(path.is_relative_to(one) for one in own):
            places.append(f"{path.name}:{frame.lineno}")
    return f" ({places[-1]})" if places else ""


def keywords_of(spec: str) -> dict[str, float]:
    """The parameters of a factory whose default is a positive number. Raises E601."""
    with _calling(spec) as factory:
        parameters = inspect.signature(factory).parameters.values()
    usual = {parameter.name: parameter.default for parameter in parameters}
    return {name: value for name, value in usual.items() if type(value) in (int, float) and value > 0}


def module_of(
    spec: str, *, weights: bool = True, settings: Mapping[str, float] = MappingProxyType({})
) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """The module that a factory `package.module:function` returns for these keywords, with its positional and named
    example inputs. Without `weights`, its matrices take no memory. Random numbers are seeded, so every call draws the
    same.

    Raises E601 for a factory that cannot be loaded or that raises, E602 for a wrong return value, and what
    `with_plain_weights` raises.
    """
    with torch.random.fork_rng(), _calling(spec) as factory, nullcontext() if weights else without_weights():
        torch.manual_seed(0)
        found = factory(**settings)
    is_pair = isinstance(found, tuple) and len(found) == 2
    if not is_pair or not (isinstance(found[0], nn.Module) or is_keras_layer(found[0])):
        raise fail("E602", f"`{spec}` returned {type(found).__name__}, and no module with inputs", help=_PAIR)
    module, inputs = with_plain_weights(*found)
    _with_one_element(module)
    named = dict(inputs) if isinstance(inputs, Mapping) else {}
    given = () if isinstance(inputs, Mapping) else tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
    if not any(isinstance(part, Tensor) for part in tree_leaves((given, named))):
        raise fail("E602", f"`{spec}` returned no tensors as inputs", help=_PAIR)
    # Tensors are cloned because one that is passed twice would become a single input of the graph.
    given, named = tree_map(lambda part: part.clone() if isinstance(part, Tensor) else part, (given, named))
    return module, given, named


@contextmanager
def without_recomputation() -> Iterator[None]:
    """Inside this context, activation checkpointing is disabled: the plan decides what is recomputed."""

    class Plain:
        @staticmethod
        def apply(function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
            return function(*args)

    def generator(*_: Any, **__: Any) -> Iterator[None]:
        yield

    own = torch.utils.checkpoint
    with patched((own, "CheckpointFunction", Plain), (own, "_checkpoint_without_reentrant_generator", generator)):
        yield


@contextmanager
def without_caches_and_layerdrop(module: nn.Module) -> Iterator[None]:
    """Inside this context, models of transformers return no key-value cache, which training does not use, and drop no
    layers.
    """
    configs = {id(config): config for part in module.modules() if (config := getattr(part, "config", None)) is not None}
    caching = [
        (config, "use_cache", False) for config in configs.values() if getattr(config, "use_cache", None) is True
    ]
    with patched(*caching, *((owner, name, 0.0) for owner, name in dropped_layers(module))):
        yield


def dropped_layers(module: nn.Module) -> list[tuple[Any, str]]:
    """The objects with a nonzero probability of dropping a whole layer, each with the name of that attribute."""
    names = ("layerdrop", "encoder_layerdrop", "decoder_layerdrop")
    owners = {id(one): one for part in module.modules() for one in (part, getattr(part, "config", None))}
    return [
        (owner, name)
        for owner in owners.values()
        for name in names
        if isinstance(value := getattr(owner, name, None), float) and value > 0
    ]


@contextmanager
def quietly() -> Iterator[None]:
    """Inside this context, warnings, logs and error output of torch are hidden; the user sees a diagnostic instead."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextmanager
def _usual_values() -> Iterator[None]:
    """Inside this context, torch modules that inspect the values of tensors assume the usual case. A Transformer's
    mask does not imply causal attention, and the arguments of distributions and likelihoods are valid.
    """
    with patched(
        (nn.modules.transformer, "_detect_is_causal_mask", lambda mask, is_causal=None, size=None: bool(is_causal)),
        (torch.distributions.Distribution, "_validate_args", False),
        (nn.functional, "gaussian_nll_loss", gaussian_nll_loss),
    ):
        yield


def capture(module: nn.Module, args: tuple[Any, ...], named: Mapping[str, Any]) -> Captured:
    """The graph of a module, in which each call of a replaced module or function is one operator.

    Raises E602 for a module that does not run on its example inputs, and E603 for Python code that cannot be captured,
    with the line that stops it.
    """
    if not module.training:  # a module in training mode keeps its parts that are in evaluation mode
        module.train()
    try:
        with (
            torch.random.fork_rng(),
            quietly(),
            preserve_node_meta(),
            without_caches_and_layerdrop(module),
            without_recomputation(),
            complex_as_pairs(),
            _usual_values(),
        ):
            with kept_whole(module, args, named):
                program = export(module, args, dict(named), strict=False)
            _stop_gradients(program)
            program = program.run_decompositions({})
    except InputError:
        raise
    except Exception as reason:
        raise _not_run(module, args, named) or _not_captured(reason) from None
    specs = program.graph_signature.input_specs
    given = iter(part for part in tree_leaves((args, dict(named))) if isinstance(part, Tensor))
    inputs, states, buffers, frozen, constants = {}, {}, set(), set(), {}
    for spec in specs:
        place = spec.arg.name
        if spec.kind is InputKind.USER_INPUT:
            if not hasattr(spec.arg, "value") or not isinstance(spec.arg.value, int | float | bool | type(None)):
                inputs[place] = next(given)
        elif spec.kind is InputKind.PARAMETER or (spec.kind is InputKind.BUFFER and spec.target in program.state_dict):
            states[place] = str(spec.target)
            buffers |= {place} if spec.kind is InputKind.BUFFER else set()
            is_variable = isinstance(module, KerasModule) and spec.target in module.variables
            if (is_variable or spec.kind is InputKind.PARAMETER) and not program.state_dict[
                str(spec.target)
            ].requires_grad:
                frozen.add(place)
        elif spec.kind in (InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            constants[place] = program.constants[str(spec.target)]
    return Captured(module, (args, named), program, inputs, states, frozenset(buffers), frozenset(frozen), constants)


def _stop_gradients(program: ExportedProgram) -> None:
    """Detaches floating-point results of subgraphs that run without gradients, such as under `torch.no_grad()`.
    Inlining these subgraphs would lose that otherwise.
    """
    for node in program.graph.nodes:
        if node.target is torch.ops.higher_order.wrap_with_set_grad_enabled and node.args[0] is False:
            part: Any = getattr(program.graph_module, node.args[1].target)
            output = part.graph.output_node()
            for made in output.all_input_nodes:
                value = made.meta.get("val")
                if isinstance(value, Tensor) and value.is_floating_point():
                    with part.graph.inserting_before(output):
                        stopped = part.graph.call_function(torch.ops.aten.detach.default, (made,))
                    stopped.meta = {**made.meta}
                    output.replace_input_with(made, stopped)
            part.recompile()


def loss_of(returned: Any, is_scalar: Callable[[Any], bool]) -> Any:
    """The scalar that a module returns as `loss`, else the first scalar that it returns; None if there is none."""
    named = returned.get("loss") if isinstance(returned, Mapping) else None
    return next(filter(is_scalar, (named, *tree_leaves(returned))), None)


def without_loss() -> InputError:
    """The diagnostic of a module that returns no loss."""
    given = "return the loss, with the labels among the inputs: `return loss, logits`"
    help = f"{given}; of an ONNX file, --loss cross_entropy, or mse, computes one"
    return fail("E604", "the module returns no loss: no scalar", help=help)


def _not_run(module: nn.Module, args: tuple[Any, ...], named: Mapping[str, Any]) -> InputError | None:
    """The diagnostic of a module that does not run on its example inputs, with the last line outside torch; None if it
    runs.
    """
    try:
        with torch.random.fork_rng(), quietly(), without_caches_and_layerdrop(module):
            module(*args, **named)
    except Exception as reason:
        return fail("E602", f"the module does not run on its example inputs: {_told(reason)}", help=_PAIR)
    return None


def _not_captured(reason: Exception) -> InputError:
    told = _told(reason)
    hint = "decide by torch.where or a mask, or replace the module by a block of the language: unity_dsl.replaces"
    if "data-dependent" in told:
        told = f"its code decides by values of tensors{_place(reason)}"
    elif (taken := re.search(r"references nonexistent attribute \w+ of (\w+)", told)) is not None:
        told, hint = f"a part is called `{taken[1]}`, as is a part of torch's graphs", "give it another name"
    elif isinstance(reason, SyntaxError):
        told = "a part of it has a name that is a word of Python, such as `class`, or none at all"
        hint = "give it another name, in the ModuleDict as well"
    return fail("E603", f"torch.export cannot capture the module: {told}", help=hint)
