"""Compares an imported model, compiled for one device, with the module: loss, gradients and buffers, in float64."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from logging import getLogger
from math import inf, isnan, prod
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from ..compilation import Request, compile_model
from ..emit.output_folder import write_program
from ..emit.rank_comparison import load_program
from ..syntax.diagnostic import fail
from .capture import Captured, loss_of, without_caches_and_layerdrop, without_loss, without_recomputation
from .prepared_inputs import Prepare
from .weight_parts import Stored, of_states, to_states

LOG = getLogger(__name__)

LOSS_ERROR, GRADIENT_ERROR = 1e-10, 1e-8
"""Relative errors in float64 up to which the model and the module count as equal."""
TABLE_LOSS_ERROR, TABLE_GRADIENT_ERROR = 1e-7, 1e-6
"""The same where the module has tables rounded to float32, such as positions, that the model computes."""


@dataclass(frozen=True)
class Verified:
    """The relative difference of both losses, and the largest one of gradients and updated buffers, with the tensor's
    name in the module.
    """

    loss: float
    gradient: float
    weight: str
    tables: bool = False

    @property
    def ok(self) -> bool:
        if self.tables:
            return self.loss <= TABLE_LOSS_ERROR and self.gradient <= TABLE_GRADIENT_ERROR
        return self.loss <= LOSS_ERROR and self.gradient <= GRADIENT_ERROR


def verify(
    captured: Captured,
    model: Path,
    prepare: Prepare,
    weights: Mapping[str, Stored],
    out: Path,
    ops: tuple[Path, ...] = (),
) -> Verified:
    """Runs both on the example inputs with the module's weights, and writes the program to `out`. `ops` are files of
    operators that the model has besides the library's.

    Raises E604 where the module returns no scalar loss, E606 where it does not run in float64.
    """
    request = Request(model, strategy="single", operators=ops)
    compilation = compile_model(request)
    write_program(compilation.plan, compilation.library, compilation.sources, request, out, True)
    LOG.info("comparing the model with the module in float64")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = _copied(captured.module).double()
        with _double_by_default():
            return _compared(captured, module, prepare, weights, out)


def _copied(module: nn.Module) -> nn.Module:
    """A copy of a module. Tensors that its parts computed from weights, as `weight_norm` does, are detached; the copy
    computes them anew.
    """
    for part in module.modules():
        for name, value in vars(part).items():
            if isinstance(value, Tensor) and not value.is_leaf:
                setattr(part, name, value.detach())
    return copy.deepcopy(module)


def _compared(
    captured: Captured, module: nn.Module, prepare: Prepare, weights: Mapping[str, Stored], out: Path
) -> Verified:
    """Compares the module, in float64, with the program in a folder."""
    states = {name: tensor.detach().clone() for name, tensor in module.state_dict(keep_vars=True).items()}
    loss, gradients, after = _step(module, captured)
    batch = {name: _double(tensor) for name, tensor in captured.inputs.items()}
    with load_program(out) as program:
        made = program.Model(None, dtype=torch.float64)
        made.load_global(of_states(states, weights))
        made.train()
        with _InDouble():
            inputs = prepare(batch)
        total, _ = made(**{name: _double(tensor) for name, tensor in inputs.items()})
        torch.autograd.backward(total)
        grads = {name: parameter.grad for name, parameter in made.named_parameters()}
        own = {name: torch.zeros_like(made.get_parameter(name)) if one is None else one for name, one in grads.items()}
        found = to_states(own, weights)
        buffers = to_states({name: buffer for name, buffer in made.named_buffers() if name in weights}, weights)
    worst = max(_gradient_errors(gradients, found), default=(0.0, ""))
    # A running mean of normalised values is 0 up to rounding, so a least magnitude is needed.
    least = 1e-4 * max((float(after[state].abs().max()) for state in buffers), default=0.0)
    worst = max(worst, *((_relative(buffer, after[state], least), state) for state, buffer in buffers.items()), worst)
    return Verified(abs(float(total.detach()) - loss) / max(abs(loss), 1e-30), *worst)


@contextmanager
def _double_by_default() -> Iterator[None]:
    """Inside this context, new tensors have float64 by default."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(usual)


def _gradient_errors(
    expected: Sequence[tuple[Sequence[str], Tensor]], found: Mapping[str, Tensor]
) -> Iterator[tuple[float, str]]:
    """The relative error of every gradient of the module, with the name of its weight. A gradient that the model lacks
    counts as 0.
    """
    largest = max((float(gradient.abs().max()) for _, gradient in expected), default=0.0)
    for names, wanted in expected:
        known = next((found[name] for name in names if name in found), torch.zeros_like(wanted))
        yield _relative(known, wanted, 1e-4 * largest), names[-1]


def _relative(found: Tensor, wanted: Tensor, least: float = 0.0) -> float:
    """The largest difference, relative to the largest element but at least to `least`; infinite where one is NaN."""
    error = float((found - wanted).abs().max()) / max(float(wanted.abs().max()), least, 1e-30)
    return inf if isnan(error) else error


_TABLES = {"as_tensor", "tensor", "asarray"}
"""Functions that make tensors from lists and arrays."""
_DROPPING = {"dropout", "dropout_"}
_DROPPING_ROWS = {"dropout1d", "dropout2d", "dropout3d", "feature_dropout"}
_KEPT = {"dropout_p": 0.0}


_DRAWING = {"randn", "randn_like", "normal", "normal_", "randint", "randint_like", "exponential_"}


def drawn_alike(drawn: Tensor, word: str) -> Tensor:
    """Fixed numbers in place of random ones, so that both draw the same: equal for every example, varied along its
    elements.
    """
    if not drawn.is_floating_point():
        return drawn.fill_(1)
    row = 0.3 * (torch.arange(prod(drawn.shape[1:])) % 7 - 3)
    row = row.abs() + 0.1 if word == "exponential_" else row
    return drawn.copy_(row.reshape(drawn.shape[1:]).expand(drawn.shape))


class DrawnAlike(TorchFunctionMode):
    """Inside this mode, random numbers are fixed, however often they are drawn."""

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        word = getattr(func, "__name__", "")
        return drawn_alike(found, word) if word in _DRAWING else found


class _InDouble(TorchFunctionMode):
    """Runs a module in float64 without dropout. Casts to float32, as in norms and losses of language models, and to
    narrower types become casts to float64.
    """

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        word = getattr(func, "__name__", "")
        if not word.endswith("_"):  # plain tensors of a module are no state, so they are not float64 yet
            args, kwargs = tree_map(_double, (args, kwargs))
        args = tuple(map(_wide, args))
        named = {key: _wide(part) for key, part in (kwargs or {}).items()}
        is_table = isinstance(args[0], list | tuple | np.ndarray) and np.ndim(args[0]) if word in _TABLES else False
        if is_table:  # rounded, as it is in the module
            found = func(args[0], **(kwargs or {}))
            is_made = isinstance(args[0], list | tuple) and (kwargs or {}).get("dtype") is None
            if is_made and found.is_floating_point() and bool((found != found.flatten()[:1]).any()):
                found = found.float()  # equal elements are imported as one exact number
            return _double(found)
        if word in _DROPPING:
            return args[0]
        if word in _DROPPING_ROWS:  # as kept rows are scaled
            p = args[1] if len(args) > 1 else named.get("p", 0.5)
            training = args[2] if len(args) > 2 else named.get("training", True)
            is_of_rows = prod(args[0].shape[2:]) > 1  # else the model has element dropout
            return args[0] / (1 - p) if training and is_of_rows else args[0]
        if word == "scaled_dot_product_attention":
            args, named = args[:4] + (0.0,) * (len(args) > 4) + args[5:], {**named, **({} if len(args) > 4 else _KEPT)}
        if word == "multi_head_attention_forward":
            bound = inspect.signature(func).bind(*args, **named)
            bound.arguments["dropout_p"] = 0.0
            args, named = bound.args, bound.kwargs
        if word == "gumbel_softmax":  # its draws do not pass through this mode
            return _of_noise(*args, **named)
        if word == "rms_norm" and named.get("eps") is None and len(args) < 4:
            named["eps"] = torch.finfo(torch.float32).eps  # the default of the module's own type
        if word in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
            args = (*args[:5], 0.0, *args[6:])
        if word in ("hardsigmoid", "hardswish"):  # torch computes these with a float32 1/6
            line = torch.clamp(args[0] + 3, 0, 6) / 6
            return line if word == "hardsigmoid" else args[0] * line
        if word == "bernoulli_":
            return args[0].fill_(1)
        if word == "bernoulli":
            return torch.ones_like(args[0])
        if word == "rand":
            return func(*args, **named).fill_(1 - 1e-9)
        if word in _DRAWING:
            return drawn_alike(func(*args, **named), word)
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        return func(*args, **named)


def _of_noise(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """`torch.nn.functional.gumbel_softmax` with fixed numbers in place of its random ones."""
    noise = -drawn_alike(torch.empty_like(logits), "exponential_").log()
    soft = ((logits + noise) / tau).softmax(dim)
    one = torch.zeros_like(soft).scatter_(dim, soft.max(dim, keepdim=True)[1], 1.0)
    return one - soft.detach() + soft if hard else soft


def _wide(part: Any) -> Any:
    """A floating-point dtype as float64; other values unchanged."""
    return torch.float64 if isinstance(part, torch.dtype) and part.is_floating_point else part


def _double(part: Any) -> Any:
    return part.double() if isinstance(part, Tensor) and part.is_floating_point() else part


def _step(module: nn.Module, captured: Captured) -> tuple[float, list[tuple[list[str], Tensor]], Mapping[str, Tensor]]:
    """The module's loss on its example inputs, the gradient of every weight with all its names (several if tied), and
    the state afterwards.
    """
    given, named = captured.given
    for part in module.modules():
        # The grouped expert products of transformers do not support float64.
        if hasattr(part, "set_experts_implementation"):
            cast(Any, part).set_experts_implementation("eager")
    with _InDouble(), without_caches_and_layerdrop(module), without_recomputation():
        try:
            result = module(*map(_double, given), **{key: _double(part) for key, part in named.items()})
            loss = loss_of(
                result, lambda part: isinstance(part, Tensor) and part.dim() == 0 and part.is_floating_point()
            )
            if loss is not None:
                torch.autograd.backward(loss)
        except Exception as reason:
            told = f"{type(reason).__name__}: {reason}".splitlines()[0]
            help = "--no-verify imports it without the comparison"
            raise fail("E606", f"the module does not run in float64, to compare it: {told}", help=help) from None
    if loss is None:
        raise without_loss()
    names: dict[nn.Parameter, list[str]] = {}
    for name, weight in module.named_parameters(remove_duplicate=False):
        names.setdefault(weight, []).append(name)
    gradients = [
        (own, weight.grad.to_dense() if weight.grad.is_sparse else weight.grad)
        for weight, own in names.items()
        if weight.grad is not None and weight.numel()
    ]
    return float(loss.detach()), gradients, module.state_dict()
