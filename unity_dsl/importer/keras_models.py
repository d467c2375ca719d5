"""Keras models on the torch backend as torch modules: variables are parameters, and the compiled loss is returned."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from inspect import signature
from operator import attrgetter
from traceback import walk_tb
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.fx.traceback import annotate
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ..syntax.diagnostic import InputError, fail
from .keras_paths import layer_paths, numbered
from .patched_attributes import patched
from .source_places import MODULE

_BACKEND = "KERAS_BACKEND"
_INPUTS = ("x", "y", "sample_weight")
_PAIR = "a factory of a Keras model returns `model, {'x': x, 'y': y}` or `model, (x, y)`"


@contextmanager
def torch_for_keras() -> Iterator[None]:
    """Inside this context, an import of Keras selects the torch backend, unless the environment names one."""
    given = os.environ.get(_BACKEND)
    is_open = "keras" not in sys.modules and not given
    if is_open:
        os.environ[_BACKEND] = "torch"
    try:
        yield
    finally:
        if is_open:
            os.environ.pop(_BACKEND)
            os.environ |= {} if given is None else {_BACKEND: given}


def number_layers_anew() -> None:
    """Resets the numbering of Keras layers, so that the next one is `dense`, not `dense_3`."""
    if (keras := sys.modules.get("keras")) is not None:
        keras.utils.clear_session()


def keras_refusal(reason: Exception) -> InputError | None:
    """The diagnostic of a factory that cannot import Keras or its backend; None for any other reason."""
    if not isinstance(reason, ModuleNotFoundError):
        return None
    if reason.name == "keras":
        return fail("E610", "Keras models need the package keras", help="pip install 'unity-dsl[keras]'")
    backend = os.environ.get(_BACKEND) or "torch"
    modules = (frame.f_globals.get("__name__", "") for frame, _ in walk_tb(reason.__traceback__))
    return _of_backend(backend) if backend != "torch" and any(name.startswith("keras.") for name in modules) else None


def is_keras_layer(found: object) -> bool:
    """Whether an object is a layer or a model of Keras. Raises E613 where Keras's backend is not torch."""
    keras: Any = sys.modules.get("keras")
    if keras is None or not isinstance(found, keras.Layer):
        return False
    if keras.backend.backend() != "torch":
        raise _of_backend(keras.backend.backend())
    return True


def _of_backend(backend: str) -> InputError:
    help = "set KERAS_BACKEND=torch before keras is imported"
    return fail("E613", f"the backend of Keras is {backend}, and models of the backend torch are imported", help=help)


def with_plain_weights(module: Any, inputs: Any) -> tuple[nn.Module, Any]:
    """A module that contains Keras models as one whose parameters are their variables, with its inputs; any other
    module unchanged.

    A Keras model itself becomes its training step, which takes `x`, `y` and optionally `sample_weight`, and returns
    the compiled loss and the outputs. Raises E602 for other inputs, E603 for a torch module inside a Keras model, E604
    for a model without a loss.
    """
    outer = [part for part in module.modules() if is_keras_layer(part)] if "keras" in sys.modules else []
    for layer in (inner for model in outer for inner in model._flatten_layers()):
        if isinstance(layer, sys.modules["keras"].layers.TorchModuleWrapper):
            help = "make a torch.nn.Module that calls both, and returns the loss"
            raise fail("E603", f"the Keras model has a module of torch inside, `{layer.name}`", help=help)
    if not is_keras_layer(module):
        return (KerasModule(module) if outer else module), inputs
    named, model = _named_inputs(inputs), module
    if not all(layer.built for layer in model._flatten_layers()):
        with torch.no_grad():
            model(named["x"])
    _check_loss(model, named)
    return KerasModule(model, named), {key: tensor for name, part in named.items() for key, tensor in _flat(name, part)}


class KerasModule(nn.Module):
    """A module that contains Keras models. Their `variables` are parameters and buffers here, each once, named by
    Keras's paths; dropout seeds are left out. With `examples` of its inputs, a Keras model is called as a training
    step.
    """

    def __init__(self, module: Any, examples: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self._given = (module, examples)  # in a tuple, so that its parameters are not registered here
        self._paths = layer_paths(module)
        self.variables, self._others = dict[str, Any](), list[str]()
        for variable, is_trained in _variables([part for part in module.modules() if is_keras_layer(part)]):
            name = next(one for one in numbered(variable.path.replace(".", "_")) if one not in self.variables)
            self.variables[name] = variable
            _register(self, name, variable.value, trained=is_trained)
        for name, tensor in _states_of_torch(module):
            self._others.append(name)
            _register(self, name, tensor, trained=tensor.requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> KerasModule:
        """A copy with its own weights around the same Keras model, without state of earlier calls."""
        made = KerasModule(*self._given)
        for tensor in (*made.parameters(), *made.buffers()):
            tensor.data = tensor.data.clone()
        return made.train(self.training)

    def forward(self, *args: Any, **named: Any) -> Any:
        keras: Any = sys.modules["keras"]
        module, examples = self._given
        values = [(variable, attrgetter(name)(self)) for name, variable in self.variables.items()]
        scope = keras.StatelessScope(values, collect_losses=True, initialize_variables=False)
        before = {name: scope.get_current_value(variable) for name, variable in self.variables.items()}
        with ExitStack() as stack:
            captured = _captured(self._paths) if torch.compiler.is_exporting() else ()
            for context in (scope, keras.device("cpu"), _torch_dropout(), *captured):
                stack.enter_context(context)
            if examples is None:
                others = {name: attrgetter(name)(self) for name in self._others}
                result = functional_call(module, others, args, named)
            else:
                result = _step(module, {name: _packed(name, part, named) for name, part in examples.items()})
        for name, variable in self.variables.items():
            after = scope.get_current_value(variable)
            if after is not before[name]:
                attrgetter(name)(self).copy_(after)
        return result


def _step(model: Any, given: Mapping[str, Any]) -> tuple[Any, Any]:
    """The loss of a compiled model, with penalties, and its outputs for `x`."""
    x, y, weight = (given.get(name) for name in _INPUTS)
    outputs = model(x, training=True)
    return model.compute_loss(x=x, y=y, y_pred=outputs, sample_weight=weight, training=True), outputs


def _check_loss(model: Any, given: Mapping[str, Any]) -> None:
    """Raises E604 where Keras has no loss to compute, E602 where it has no labels for one."""
    base: Any = sys.modules["keras"].Model
    is_own = isinstance(model, base) and type(model).compute_loss is not base.compute_loss
    is_compiled = getattr(model, "loss", None) is not None
    if not is_own and not is_compiled and not model.losses:
        help = "call `model.compile(loss=...)` in the factory, and give the labels as `y`"
        raise fail("E604", "the Keras model has no loss", help=help)
    if is_compiled and not is_own and "y" not in given:
        raise fail("E602", "inputs of a Keras model that is compiled with a loss lack `y`", help=_PAIR)


# ---------------------------------------------------------------------------------------- inputs


def _named_inputs(inputs: Any) -> dict[str, Any]:
    """The inputs `x`, `y` and `sample_weight` that a factory returns, with arrays as tensors. Raises E602."""
    if isinstance(inputs, Mapping):
        named = dict(inputs)
    else:
        named = dict(zip(_INPUTS, inputs, strict=False)) if isinstance(inputs, tuple | list) else {"x": inputs}
    if "x" not in named or not set(named) <= set(_INPUTS):
        raise fail("E602", f"inputs of a Keras model are x, y and sample_weight, not {', '.join(named)}", help=_PAIR)
    return {name: _mapped(part) for name, part in named.items() if part is not None}


def _mapped(part: Any) -> Any:
    if isinstance(part, Mapping):
        return {key: _mapped(one) for key, one in part.items()}
    if isinstance(part, list | tuple):
        return [_mapped(one) for one in part]
    if isinstance(part, np.ndarray):
        part = torch.from_numpy(part)
    return part.float() if isinstance(part, Tensor) and part.is_floating_point() else part


def _flat(name: str, part: Any) -> Iterator[tuple[str, Any]]:
    """The tensors of a nested input, named by dict keys and list positions."""
    if isinstance(part, Mapping):
        for key, one in part.items():
            yield from _flat(f"{name}_{key}", one)
    elif isinstance(part, list):
        for number, one in enumerate(part):
            yield from _flat(f"{name}_{number}", one)
    else:
        yield name, part


def _packed(name: str, like: Any, given: Mapping[str, Any]) -> Any:
    """An input nested like its example, from tensors by name."""
    if isinstance(like, Mapping):
        return {key: _packed(f"{name}_{key}", one, given) for key, one in like.items()}
    if isinstance(like, list):
        return [_packed(f"{name}_{number}", one, given) for number, one in enumerate(like)]
    return given[name]


# ---------------------------------------------------------------------------------------- weights


def _variables(layers: Sequence[Any]) -> Iterator[tuple[Any, bool]]:
    """The variables of layers, each once, and whether they are trained. Layers come before those that they contain."""
    seen = set[int]()
    for layer in layers:
        trained = {id(variable) for variable in layer.trainable_weights}
        for variable in layer.weights:
            if id(variable) not in seen:
                seen.add(id(variable))
                yield variable, id(variable) in trained


def _states_of_torch(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and persistent buffers of the parts of a module that are not Keras layers."""
    for path, part in module.named_modules():
        if not is_keras_layer(part) and not isinstance(part, nn.ParameterDict):
            own = part.state_dict(keep_vars=True)
            yield from ((f"{path}.{name}".lstrip("."), tensor) for name, tensor in own.items() if "." not in name)


def _register(module: nn.Module, name: str, tensor: Tensor, *, trained: bool) -> None:
    """Registers a parameter or a buffer; dots in its name become nested modules."""
    *path, last = name.split(".")
    for part in path:
        if part not in module._modules:
            module.add_module(part, nn.Module())
        module = getattr(module, part)
    if trained:
        module.register_parameter(last, nn.Parameter(tensor.detach().cpu()))
    else:
        module.register_buffer(last, tensor.detach().cpu())


# ---------------------------------------------------------------------------------------- calls


def _captured(paths: Mapping[int, str]) -> Iterator[Any]:
    """The patches during capture: calls are annotated with their layers, and some Keras compositions become torch
    operators.
    """
    yield _ExactNumbers()
    yield _noted(paths)
    yield _patched(sys.modules["keras"].layers.BatchNormalization, "call", _batch_norm)
    yield _patched(sys.modules["keras.src.backend.torch.numpy"], "take", _rows)
    for name in ("lstm", "gru"):
        yield _patched(sys.modules["keras.src.backend"], name, _recurrent(name))


class _ExactNumbers(TorchFunctionMode):
    """Keeps Python numbers that become tensors, and results of these alone, in float64 instead of float32."""

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        if func is torch.as_tensor and isinstance(args[0], int | float) and _is_float(named.get("dtype")):
            return func(*args, **{**named, "dtype": torch.float64})
        if func is torch.Tensor.to and _is_number(args[0]):
            return args[0]
        made = func(*args, **named)
        is_wide = isinstance(made, Tensor) and made.dtype is torch.float64 and made.dim() > 0
        return made.to(torch.float32) if is_wide else made


def _is_float(dtype: Any) -> bool:
    return isinstance(dtype, torch.dtype) and dtype.is_floating_point


def _is_number(tensor: Tensor) -> bool:
    return tensor.dim() == 0 and tensor.dtype is torch.float64


@contextmanager
def _patched(owner: Any, name: str, made_of: Callable[[Any], Any]) -> Iterator[None]:
    """Inside this context, an attribute is replaced by a function of its value."""
    with patched((owner, name, made_of(getattr(owner, name)))):
        yield


def _noted(paths: Mapping[int, str]) -> Any:
    """Patches Keras operations to annotate their calls with their paths."""

    def made(call: Any) -> Any:
        def noted(operation: Any, *args: Any, **named: Any) -> Any:
            if id(operation) not in paths:
                return call(operation, *args, **named)
            with annotate({MODULE: paths[id(operation)]}):
                return call(operation, *args, **named)

        return noted

    return _patched(sys.modules["keras"].Operation, "__call__", made)


@torch.library.custom_op("unity_dsl::biased_batch_norm", mutates_args=())
def biased_batch_norm(
    x: Tensor,
    gain: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Batch norm in training, with its new running mean and variance. The running variance averages the biased
    variances of batches.
    """
    new_mean, new_variance = mean.clone(), variance.clone()
    made = F.batch_norm(x, new_mean, new_variance, gain, bias, True, momentum, eps)
    count = x.numel() // x.shape[1]
    return made, new_mean, torch.lerp((1 - momentum) * variance, new_variance, 1 - 1 / count)


@biased_batch_norm.register_fake
def _(
    x: Tensor,
    gain: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(mean), torch.empty_like(variance)


def _batch_norm(written: Any) -> Any:
    """Batch norm in training as one operator, whose running variance averages the biased variances of batches."""

    def call(layer: Any, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        if not training or not layer.trainable or mask is not None or layer.renorm:
            return written(layer, inputs, training=training, mask=mask)
        gain, bias = (getattr(layer, name).value if getattr(layer, name) is not None else None for name in _AFFINE)
        statistics = layer.moving_mean.value, layer.moving_variance.value
        x = inputs.movedim(layer.axis, 1)
        y, mean, variance = biased_batch_norm(x, gain, bias, *statistics, 1 - layer.momentum, layer.epsilon)
        layer.moving_mean.assign(mean)
        layer.moving_variance.assign(variance)
        return y.movedim(1, layer.axis)

    return call


_AFFINE = ("gamma", "beta")


def _rows(take: Any) -> Any:
    """Lookup of table rows by `F.embedding`, without support for negative indices."""

    def call(x: Any, indices: Any, axis: int | None = None) -> Any:
        is_table = isinstance(indices, Tensor) and axis == 0 and len(x.shape) == 2
        return (
            F.embedding(indices, sys.modules["keras"].ops.convert_to_tensor(x)) if is_table else take(x, indices, axis)
        )

    return call


def _recurrent(name: str) -> Callable[[Any], Any]:
    """A recurrent layer with biases and default activations as torch's own, in place of a loop over positions."""

    def made(loop: Any) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            given = signature(loop).bind(*args, **named).arguments
            used = [getattr(given.get(key), "__name__", "") for key in ("activation", "recurrent_activation")]
            is_whole = given.get("mask") is None and given.get("batch_first", True) and given.get("reset_after", True)
            if used != ["tanh", "sigmoid"] or given["bias"] is None or not is_whole:
                return loop(*args, **named)
            as_tensor = sys.modules["keras"].ops.convert_to_tensor
            kernel, own, bias = (as_tensor(given[key]) for key in ("kernel", "recurrent_kernel", "bias"))
            states = tuple(as_tensor(part)[None] for key, part in given.items() if key.startswith("initial_state"))
            biases = [bias, torch.zeros_like(bias)]
            if name == "gru":
                kernel, own, *biases = map(_as_gates_of_torch, (kernel, own, *bias))
            x = as_tensor(given["inputs"]).to(kernel.dtype)
            x = x.flip(1) if given.get("go_backwards") else x
            function, first = getattr(torch, name), states if len(states) > 1 else states[0]
            y, *ends = function(x, first, [kernel.T, own.T, *biases], True, 1, 0.0, True, False, True)
            last = y[:, -1]
            return last, y if given.get("return_sequences") else last[:, None], [end[0] for end in ends]

        return call

    return made


def _as_gates_of_torch(weight: Tensor) -> Tensor:
    """Reorders the gates of a GRU along the last dimension from update, reset, new to reset, update, new."""
    update, reset, new = weight.chunk(3, -1)
    return torch.cat([reset, update, new], -1)


def _torch_dropout() -> Any:
    """Patches Keras dropout to draw by torch, ignoring seeds. Noise that is broadcast is drawn once for each row."""

    def made(_: Any) -> Any:
        def dropout(x: Tensor, rate: float, noise_shape: Sequence[int | None] = (), seed: Any = None) -> Tensor:
            if rate == 0:
                return x
            shape = [own or size for own, size in zip(noise_shape or x.shape, x.shape, strict=True)]
            if shape == list(x.shape):
                return F.dropout(x, rate, training=True)
            order = sorted(range(x.dim()), key=lambda dim: shape[dim] == 1)
            turned = x.permute(order)
            noise = torch.empty([shape[dim] for dim in order], dtype=x.dtype).bernoulli_(1 - rate).div_(1 - rate)
            return (turned * noise).permute([order.index(dim) for dim in range(x.dim())])

        return dropout

    return _patched(sys.modules["keras.src.backend.torch.random"], "dropout", made)
