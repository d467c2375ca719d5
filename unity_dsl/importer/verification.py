"""Compares an imported model, compiled for one device, with the module: loss and every gradient, in float64."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..compile import Request, compile_model
from ..emit.output_folder import write_program
from ..emit.rank_comparison import load_program
from ..syntax.diagnostic import fail
from .capture import Captured

LOSS_ERROR, GRADIENT_ERROR = 1e-10, 1e-8
"""Relative errors in float64 up to which both are equal."""
TABLE_LOSS_ERROR, TABLE_GRADIENT_ERROR = 1e-7, 1e-6
"""The same where the module has tables of positions, which are rounded to float32 there and computed here."""


@dataclass(frozen=True)
class Verified:
    """The relative difference of both losses, and of gradients the largest, with the weight's name in the module."""

    loss: float
    gradient: float
    weight: str
    tables: bool = False

    @property
    def ok(self) -> bool:
        if self.tables:
            return self.loss <= TABLE_LOSS_ERROR and self.gradient <= TABLE_GRADIENT_ERROR
        return self.loss <= LOSS_ERROR and self.gradient <= GRADIENT_ERROR


def verify(captured: Captured, model: Path, prepared: str, weights: Mapping[str, str], out: Path) -> Verified:
    """Runs both on the example inputs, with the module's weights. Writes the program to `out`.

    Raises E604 where the module's loss is no number that it gives first.
    """
    request = Request(model, strategy="single")
    compilation = compile_model(request)
    write_program(compilation.plan, compilation.library, compilation.sources, request, out, True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        module = copy.deepcopy(captured.module).double()
    states = {name: tensor.detach().clone() for name, tensor in module.state_dict(keep_vars=True).items()}
    expected = _gradients(module, captured)
    names: dict[str, Any] = {}
    exec(prepared, names)
    batch = {name: _double(tensor) for name, tensor in captured.inputs.items()}
    with load_program(out) as program:
        made = program.Model(None, dtype=torch.float64)
        made.load_global({name: states[state] for name, state in weights.items()})
        made.train()
        loss, _ = made(**names["prepare"](batch))
        torch.autograd.backward(loss)
        found = {name: parameter.grad for name, parameter in made.named_parameters()}
    largest = max((float(gradient.abs().max()) for gradient in expected[1].values()), default=0.0)
    worst, weight = 0.0, ""
    for name, state in weights.items():
        if (wanted := expected[1].get(state)) is None or found.get(name) is None:
            continue
        error = float((found[name] - wanted).abs().max()) / max(float(wanted.abs().max()), 1e-4 * largest, 1e-30)
        if error >= worst:
            worst, weight = error, state
    return Verified(abs(float(loss.detach()) - expected[0]) / max(abs(expected[0]), 1e-30), worst, weight)


_DROPPING, _KEPT = {"dropout", "dropout_"}, {"dropout_p": 0.0}


class _InDouble(TorchFunctionMode):
    """Casts to float32, as norms and losses of language models have them, are casts to float64 here, and nothing is
    dropped.
    """

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        wide = {torch.float32: torch.float64}
        args = tuple(wide.get(part, part) if isinstance(part, torch.dtype) else part for part in args)
        named = {
            key: wide.get(part, part) if isinstance(part, torch.dtype) else part for key, part in (kwargs or {}).items()
        }
        word = getattr(func, "__name__", "")
        if word in _DROPPING:
            return args[0]
        if word == "scaled_dot_product_attention":
            args, named = args[:4] + (0.0,) * (len(args) > 4) + args[5:], {**named, **({} if len(args) > 4 else _KEPT)}
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        return func(*args, **named)


def _double(part: Any) -> Any:
    return part.double() if isinstance(part, Tensor) and part.is_floating_point() else part


def _gradients(module: nn.Module, captured: Captured) -> tuple[float, dict[str, Tensor]]:
    """The loss of the module on its example inputs, and the gradient of every weight by its last name."""
    given, named = captured.given
    with _InDouble():
        result = module(*map(_double, given), **{key: _double(part) for key, part in named.items()})
    loss = _loss(result)
    torch.autograd.backward(loss)
    every = module.named_parameters(remove_duplicate=False)
    return float(loss.detach()), {name: weight.grad for name, weight in every if weight.grad is not None}


def _loss(result: Any) -> Tensor:
    """The first scalar of what a module returns."""
    parts = [result]
    while parts:
        part = parts.pop(0)
        if isinstance(part, Tensor) and part.dim() == 0 and part.is_floating_point():
            return part
        if isinstance(part, Mapping):
            parts = [*part.values(), *parts]
        elif isinstance(part, list | tuple):
            parts = [*part, *parts]
    help = "return the loss, with the labels among the inputs: `return loss, logits`"
    raise fail("E604", "the module returns no loss: no scalar", help=help)
