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

    `given` are the example inputs, `inputs` those that are tensors by placeholder. `states` are the names of weights
    and buffers in the state_dict by placeholder, `frozen` those that a module has as weights without a gradient;
    `constants` are the values of tensors that are in none.
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
        """The same with these operators written out by others; None if no way is known for any."""
        known = {**default_decompositions(), **OWN}
        table = {one: known[one] for one in operators if one in known}
        if not table:
            return None
        with quietly(), preserve_node_meta():
            return replace(self, program=self.program.run_decompositions(table))


@contextmanager
def without_weights() -> Iterator[None]:
    """Modules that are made meanwhile have matrices that take no memory, all elements of which are one zero."""
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
    """Parameters without memory become views of one element, of which constants can be computed; tied ones the same."""
    made: dict[int, nn.Parameter] = {}
    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            if parameter.is_meta:
                one = torch.zeros((), dtype=parameter.dtype).expand(parameter.shape)
                setattr(part, name, made.setdefault(id(parameter), nn.Parameter(one, parameter.requires_grad)))


@contextmanager
def _calling(spec: str) -> Iterator[Callable[..., Any]]:
    """A factory; what is raised meanwhile is its fault, E601."""
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
    """An error in one line, with its place."""
    return f"{type(reason).__name__}: {reason}".splitlines()[0] + _place(reason)


def _place(reason: Exception) -> str:
    """The last line of code on the way to an error that is not torch's, Python's or ours, if there is one."""
    own, python = (Path(__file__).parent.parent, Path(torch.__file__).parent), Path(get_path("stdlib"))
    places = []
    for frame in extract_tb(reason.__traceback__):
        path = Path(frame.filename)
        is_python = path.is_relative_to(python) and "site-packages" not in path.parts
        if path.is_file() and not is_python and not any(path.is_relative_to(one) for one in own):
            places.append(f"{path.name}:{frame.lineno}")
    return f" ({places[-1]})" if places else ""


def keywords_of(spec: str) -> dict[str, float]:
    """The parameters of a factory that have a number, but 0, by default. Raises E601."""
    with _calling(spec) as factory:
        parameters = inspect.signature(factory).parameters.values()
    usual = {parameter.name: parameter.default for parameter in parameters}
    return {name: value for name, value in usual.items() if type(value) in (int, float) and value > 0}


def module_of(
    spec: str, *, weights: bool = True, settings: Mapping[str, float] = MappingProxyType({})
) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """What a factory `package.module:function` returns for settings of its keywords: a module, positional and named
    example inputs. Without `weights` its matrices take no memory. What it draws is the same each time.

    Raises E601 for a factory that cannot be loaded or that raises, E602 for what it should not return.
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
    # A tensor that is given twice would be one input of the graph.
    given, named = tree_map(lambda part: part.clone() if isinstance(part, Tensor) else part, (given, named))
    return module, given, named


@contextmanager
def without_recomputation() -> Iterator[None]:
    """Checkpointed parts run once meanwhile: what is recomputed is a choice of the plan."""

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
    """Models of transformers return no keys and values for generation meanwhile, which a step of training has no use
    for, and drop no layers.
    """
    configs = {id(config): config for part in module.modules() if (config := getattr(part, "config", None)) is not None}
    caching = [
        (config, "use_cache", False) for config in configs.values() if getattr(config, "use_cache", None) is True
    ]
    with patched(*caching, *((owner, name, 0.0) for owner, name in dropped_layers(module))):
        yield


def dropped_layers(module: nn.Module) -> list[tuple[Any, str]]:
    """What has the probability of dropping a whole layer, and under which name, where it is not 0."""
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
    """What torch warns of, logs and prints of a module that cannot be captured is not shown: a diagnostic is."""
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
    """Modules of torch that look at the values of tensors do as they mostly do: a mask of a Transformer is no hint that
    attention is causal, and what a distribution or a likelihood is given is valid.
    """
    with patched(
        (nn.modules.transformer, "_detect_is_causal_mask", lambda mask, is_causal=None, size=None: bool(is_causal)),
        (torch.distributions.Distribution, "_validate_args", False),
        (nn.functional, "gaussian_nll_loss", gaussian_nll_loss),
    ):
        yield


def capture(module: nn.Module, args: tuple[Any, ...], named: Mapping[str, Any]) -> Captured:
    """The graph of a module, in which the calls of modules that are replaced are one operator each.

    Raises E603 where its Python code cannot be captured, with the line that stops it.
    """
    if not module.training:  # as a whole: parts in evaluation mode stay so
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
    """Detaches what the parts of a program compute that run without gradients, as under `torch.no_grad()`: else that is
    lost where they are written out.
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
    """Of what a module returns the scalar that it calls `loss`, else the first one; None if there is none."""
    named = returned.get("loss") if isinstance(returned, Mapping) else None
    return next(filter(is_scalar, (named, *tree_leaves(returned))), None)


def without_loss() -> InputError:
    """The diagnostic of a module that returns no loss."""
    given = "return the loss, with the labels among the inputs: `return loss, logits`"
    help = f"{given}; of an ONNX file, --loss cross_entropy, or mse, computes one"
    return fail("E604", "the module returns no loss: no scalar", help=help)


def _not_run(module: nn.Module, args: tuple[Any, ...], named: Mapping[str, Any]) -> InputError | None:
    """The diagnostic of a module that does not run on its example inputs, with the last line outside of torch; None of
    one that does.
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
