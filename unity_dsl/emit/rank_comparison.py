"""One rank of a check: runs the program and its reference from the same start and compares tensors.

Error of a tensor = max|a - b| / max(max|b|, 1e-3 · RMS over all gradients). Some gradients are identically zero (a key
bias under softmax), and relative error alone is noise there. If all are zero, their RMS is noise as well: the scale of
a gradient is at least 1e-6 · |loss| / RMS over all weights. 1e-10 of that is a rounding of the loss.
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .float32_operators import float32_operators
from .rounded_factors import UNIT_OF_TF32, rounding_factors

if TYPE_CHECKING:
    from torch import Tensor, dtype

Tensors = Mapping[str, "Tensor"]
NORM = "gradient norm"
"""The name under which the norm of all gradients is compared."""


@dataclass(frozen=True)
class Start:
    """The start of both programs, in float64: weights and buffers by name, a batch per step, SGD's learning rate."""

    state: Tensors
    batches: Sequence[Tensors]
    rate: float


@dataclass(frozen=True)
class Trace:
    """What a program computed, as global float64 tensors by description."""

    losses: Tensors
    gradients: Tensors
    parameters: Tensors


def run_rank(
    rank: int, ranks: int, program: str, reference: str, steps: int, seed: int, starts: int = 1, data: str = ""
) -> dict[str, Any] | None:
    """Run the check as one of `ranks`. Rank 0 returns the errors under the names of `CheckReport`, the others None.
    Batches are random, or come from the function `data`, `package.module:function`.

    In float32 and mixed precision the error is the largest over `starts` runs, whose initial weights differ by a
    rounding. An element that rounds to the other side of a kink, such as that of a relu, may cause most of an error;
    only some of the starts hit it. With several starts the mixed-precision error is a bound for other programs: every
    operator computes in float32 and rounds its result.
    """
    import numpy as np
    import torch
    import torch.distributed as dist

    expected = _reference(reference, steps, seed, data) if rank == 0 else None
    shared = [(expected.start, expected.initial) if expected else None]
    if ranks > 1:
        dist.broadcast_object_list(shared)
    assert shared[0] is not None
    start, _ = shared[0]
    # Triton's interpreter computes with NumPy, also beyond the borders of a tensor, where nothing is stored.
    with load_program(Path(program)) as module, np.errstate(all="ignore"):
        if ranks != module.WORLD_SIZE:
            raise RuntimeError(f"the program is for {module.WORLD_SIZE} ranks, not {ranks}")
        mesh = module.build_mesh("cpu") if ranks > 1 else None
        initial = initial_state(module, mesh, seed)
        double = trace(module, mesh, start, torch.float64)
        unit = torch.finfo(torch.float32).eps / 2
        single = [trace(module, mesh, found, torch.float32) for found in _nudged(start, starts, unit)]
        mixed = _compiled_traces(module, mesh, start, starts)
    if expected is None:
        return None
    return _errors(double, single, mixed, initial, expected)


def _compiled_traces(module: ModuleType, mesh: Any, start: Start, starts: int) -> list[Trace]:
    """The traces in the compiled precision, if it differs from the type of stored tensors. TF32 is emulated."""
    import torch

    if getattr(module, "TF32", False):
        with rounding_factors():
            return [trace(module, mesh, found, None) for found in _nudged(start, starts, UNIT_OF_TF32)]
    if not hasattr(module, "COMPUTE_DTYPE"):
        return []
    unit = torch.finfo(module.COMPUTE_DTYPE).eps / 2
    with float32_operators() if starts > 1 else nullcontext():
        return [trace(module, mesh, found, None) for found in _nudged(start, starts, unit)]


@contextmanager
def load_program(folder: Path) -> Iterator[ModuleType]:
    """The program's model.py as a module, removed from `sys.modules` afterwards so that the next one is read anew."""
    name = f"unity_program_{hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]}"
    spec = spec_from_file_location(name, folder / "__init__.py", submodule_search_locations=[str(folder)])
    assert spec is not None and spec.loader is not None
    package = module_from_spec(spec)
    sys.modules[name] = package
    try:
        spec.loader.exec_module(package)
        yield sys.modules[f"{name}.model"]
    finally:
        for loaded in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
            del sys.modules[loaded]


# ---------------------------------------------------------------------------------------------- the reference


@dataclass(frozen=True)
class _Expected:
    start: Start
    initial: Tensors
    double: Trace
    single: Trace


_references: OrderedDict[tuple[str, int, int, str], _Expected] = OrderedDict()
_KEPT = 8


def _reference(folder: str, steps: int, seed: int, data: str) -> _Expected:
    """The traces of the reference. The last few are cached, because the same model is checked under many plans."""
    import torch

    text = (Path(folder) / "model.py").read_bytes()
    key = (hashlib.sha256(text).hexdigest(), steps, seed, data)
    if key not in _references:
        with load_program(Path(folder)) as module:
            initial = initial_state(module, None, seed)
            start = _start(module, initial, steps, seed, data)
            double = trace(module, None, start, torch.float64)
            single = trace(module, None, start, torch.float32)
        _references[key] = _Expected(start, initial, double, single)
        while len(_references) > _KEPT:
            _references.popitem(last=False)
    return _references[key]


def _start(module: ModuleType, initial: Tensors, steps: int, seed: int, data: str) -> Start:
    """Data, and initial weights with noise added: a bias of zero would hide that it is added twice."""
    import torch

    source = torch.Generator().manual_seed(seed)
    state = {
        name: tensor + 0.02 * torch.randn(tensor.shape, generator=source, dtype=torch.float64)
        if tensor.is_floating_point()
        else tensor
        for name, tensor in initial.items()
    }
    if data:
        function = data_function(data)
        batches = [_given(function, module, seed, step) for step in range(steps)]
    else:
        batches = [{name: _draw(spec, source) for name, spec in module.INPUTS.items()} for _ in range(steps)]
    return Start(state, batches, _rate(module, state, batches[0], seed))


class DataFault(Exception):
    """A data function failed, or what it returned is not a batch of the model's inputs."""


def _given(function: Callable[..., Any], module: ModuleType, seed: int, step: int) -> Tensors:
    """The batch that a data function returns for a step, checked as in train.py. Raises DataFault."""
    data = import_module(f"{module.__package__}.data")
    try:
        batch = function(module.INPUTS, seed, step, "train")
    except Exception as error:
        told = " ".join(f"{type(error).__name__}: {error}".split())
        raise DataFault(f"the data function raised {told}") from None
    try:
        data.check(batch, module.INPUTS, "train")
    except data.DataError as error:
        raise DataFault(str(error)) from None
    return {name: batch[name] for name in module.INPUTS}


def data_function(name: str) -> Callable[..., Any]:
    """A function `package.module:function`, also from the current folder. Raises ValueError if there is none."""
    module, _, function = name.partition(":")
    sys.path.append(os.getcwd())
    try:
        found: Callable[..., Any] = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from None
    finally:
        sys.path.remove(os.getcwd())
    return found


def _nudged(start: Start, count: int, unit: float) -> Iterator[Start]:
    """The start, then `count` - 1 copies whose initial floats are perturbed by at most a rounding, `unit` relative to
    each.
    """
    import torch

    yield start
    source = torch.Generator().manual_seed(0)
    for _ in range(count - 1):
        moved = {
            name: tensor * (1 + unit * (2 * torch.rand(tensor.shape, generator=source, dtype=torch.float64) - 1))
            if tensor.is_floating_point()
            else tensor
            for name, tensor in start.state.items()
        }
        yield replace(start, state=moved)


def _draw(spec: Any, source: Any) -> Tensor:
    import torch

    if spec.integer_range is not None:
        return torch.randint(spec.integer_range, tuple(spec.shape), generator=source)
    return torch.randn(tuple(spec.shape), generator=source, dtype=torch.float64)


def _rate(module: ModuleType, state: Tensors, batch: Tensors, seed: int) -> float:
    """A learning rate at which the first step is short: a long one would amplify rounding errors from step to step."""
    first = trace(module, None, Start(state, [batch], 0.0), _double())
    norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in first.gradients.values()))
    return 0.1 / max(1.0, norm)


def _double() -> dtype:
    import torch

    return torch.float64


# ---------------------------------------------------------------------------------------------- running


def initial_state(module: ModuleType, mesh: Any, seed: int) -> Tensors:
    """The global float64 weights and buffers as the program itself initialises them."""
    model = module.Model(mesh, device="cpu", dtype=_double())
    model.initialise(seed)
    return _state(module, model)


def _state(module: ModuleType, model: Any) -> Tensors:
    stored = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: _global(model, name, stored[name]) for name in (*module.PARAMETERS, *module.BUFFERS)}


def _global(model: Any, name: str, local: Tensor) -> Tensor:
    tensor: Tensor = model.full(name, local.detach()).detach().clone()
    return tensor.double() if tensor.is_floating_point() else tensor


def trace(module: ModuleType, mesh: Any, start: Start, dtype: dtype | None) -> Trace:
    """Train with plain SGD from a given start, and record losses, outputs, gradients and parameters. `dtype` is the
    float type; None stands for the compiled precision.
    """
    import torch

    model = module.Model(mesh, device="cpu", dtype=dtype)
    precision = module.DTYPE if dtype is None else dtype
    model.load_global({name: _cast(tensor, precision) for name, tensor in start.state.items()})
    model.train()
    losses: dict[str, Tensor] = {}
    gradients: dict[str, Tensor] = {}
    for step, batch in enumerate(start.batches):
        inputs = {name: _cast(tensor, precision) for name, tensor in batch.items()}
        model.zero_grad()
        model.seed, model.step = 0, step
        loss, outputs = _run(module, model, inputs, whole=step == 0)
        if loss is not None:
            model.synchronise()
            losses[f"loss of step {step + 1}"] = loss.double()
        if step == 0:
            losses |= {f"output {name}": _kept(tensor) for name, tensor in outputs.items()}
            for name, parameter in model.named_parameters() if loss is not None else ():
                gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                gradients[f"gradient of {name}"] = _global(model, name, gradient)
            if loss is not None:
                gradients[NORM] = torch.as_tensor(model.grad_norm()).detach().double()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter -= start.rate * parameter.grad
    model.eval()
    inputs = {name: _cast(tensor, precision) for name, tensor in start.batches[0].items()}
    with torch.no_grad():
        loss, _ = _run(module, model, inputs)
        least = {name: tensor for name, tensor in inputs.items() if not module.INPUTS[name].optional}
        _, outputs = _run(module, model, least)
    if loss is not None:
        losses["loss in evaluation mode"] = loss.double()
    losses |= {f"output {name} in evaluation mode": _kept(tensor) for name, tensor in outputs.items()}
    parameters = {f"{name} after {len(start.batches)} steps": t for name, t in _state(module, model).items()}
    return Trace(losses, gradients, parameters)


def _run(module: ModuleType, model: Any, batch: Tensors, *, whole: bool = True) -> tuple[Tensor | None, Tensors]:
    """The loss and outputs of a batch. In training it runs the backward pass too. A program with micro-batches adds up
    their losses and joins their outputs. The outputs of a training step are gathered if `whole`, else left out.
    """
    several = hasattr(module, "MICRO_BATCHES")
    losses, found = [], []
    for part in model.micro_batches(batch) if several else [batch]:
        loss, outputs = model(**part)
        if loss is not None:
            loss = loss / module.LOSS_DIVISOR if several else loss
            losses.append(loss.detach())
        if loss is not None and model.training:
            outputs = model.gather(outputs) if whole and outputs else {}
            loss.backward()
        found.append({name: tensor.detach() for name, tensor in outputs.items()})
    joined = model.join(found) if several and found[0] else found[0]
    return sum(losses[1:], losses[0]) if losses else None, joined


def _kept(tensor: Tensor) -> Tensor:
    """A copy: an output may be a parameter, which the next step changes."""
    import torch

    return tensor.detach().to(torch.float64, copy=True)


def _cast(tensor: Tensor, precision: dtype) -> Tensor:
    return tensor.to(precision) if tensor.is_floating_point() else tensor


# ---------------------------------------------------------------------------------------------- comparing


def _errors(
    double: Trace, single: Sequence[Trace], mixed: Sequence[Trace], initial: Tensors, expected: _Expected
) -> dict[str, Any]:
    floor = 1e-3 * _rms(expected.double.gradients)
    least = max(floor, 1e-6 * _sensitivity(expected))
    groups = {
        "loss_rel_err": _compare(double.losses, expected.double.losses, floor),
        "grad_rel_err": _compare_gradients(double.gradients, expected.double.gradients, least),
        "param_rel_err": _compare(double.parameters, expected.double.parameters, floor)
        | _compare(_initially(initial), _initially(expected.initial), floor),
    }
    every = {name: error for group in groups.values() for name, error in group.items()}
    return {
        "trained": bool(expected.double.gradients),
        **{name: max(group.values(), default=0.0) for name, group in groups.items()},
        "worst": max(every, key=lambda name: every[name]),
        "not_finite": _not_finite(expected.double),
        "float32_err": max(_largest(found, expected.double, floor, least) for found in single),
        "float32_single_device_err": _largest(expected.single, expected.double, floor, least),
        **({"mixed_err": max(_in_norm(found, expected.double) for found in mixed)} if mixed else {}),
    }


def _not_finite(expected: Trace) -> str:
    """The name of the first tensor of the single-device reference with an element that is not finite; empty if there is
    none.

    Gradients are those of the first step, and come before later losses, which are not finite because of them.
    """
    first = dict([*expected.losses.items()][:1])
    found = first | dict(expected.gradients) | dict(expected.losses) | dict(expected.parameters)
    return next((name for name, tensor in found.items() if not tensor.isfinite().all()), "")


def _initially(state: Tensors) -> Tensors:
    return {f"{name} at the start": tensor for name, tensor in state.items()}


def _rms(gradients: Tensors) -> float:
    """Root mean square over the elements of all gradients."""
    squares = [(float(g.square().sum()), g.numel()) for name, g in gradients.items() if name != NORM]
    count = sum(number for _, number in squares)
    return math.sqrt(sum(square for square, _ in squares) / count) if count else 0.0


def _sensitivity(expected: _Expected) -> float:
    """|loss| / RMS over all weights: the size of gradients for which a weight changes the loss by as much as itself."""
    names = (name.removeprefix("gradient of ") for name in expected.double.gradients)
    weights = _rms({name: expected.initial[name] for name in names if name in expected.initial})
    loss = next(iter(expected.double.losses.values()), None)
    return float(loss.abs().max()) / weights if loss is not None and weights else 0.0


def _compare(found: Tensors, expected: Tensors, floor: float) -> dict[str, float]:
    if found.keys() != expected.keys():
        different = ", ".join(sorted(found.keys() ^ expected.keys()))
        raise RuntimeError(f"the program and its reference differ in what they have: {different}")
    return {name: _error(found[name], expected[name], floor) for name in expected}


def _compare_gradients(found: Tensors, expected: Tensors, least: float) -> dict[str, float]:
    """The same for gradients of a scale of at least `least`. The norm over n elements has a scale of √n times that."""
    errors = _compare(found, expected, least)
    if NORM in errors:
        count = sum(gradient.numel() for name, gradient in expected.items() if name != NORM)
        errors[NORM] = _error(found[NORM], expected[NORM], least * math.sqrt(count))
    return errors


def _error(found: Tensor, expected: Tensor, floor: float) -> float:
    """The largest difference relative to the largest expected value, or to `floor` if that is larger.

    If both are zero (a model that computes nothing but zeros), it is the difference itself.
    """
    if found.shape != expected.shape:
        raise RuntimeError(f"shape {list(found.shape)} instead of {list(expected.shape)}")
    if found.numel() == 0:
        return 0.0
    difference = float((found.double() - expected.double()).abs().max())
    if difference == 0:
        return 0.0
    scale = max(float(expected.double().abs().max()), floor)
    error = difference / scale if scale else difference
    return error if math.isfinite(error) else sys.float_info.max


def _largest(found: Trace, expected: Trace, floor: float, least: float) -> float:
    """The largest error of any tensor. Gradients have a scale of at least `least`, others of at least `floor`."""
    groups = (
        _compare(found.losses, expected.losses, floor),
        _compare_gradients(found.gradients, expected.gradients, least),
        _compare(found.parameters, expected.parameters, floor),
    )
    return max(error for group in groups for error in group.values())


def _in_norm(found: Trace, expected: Trace) -> float:
    """The largest of three errors: of all losses and outputs, of all gradients and of all parameters, each taken as one
    vector. An error is the norm of the difference relative to the expected norm.
    """
    pairs = (
        (found.losses, expected.losses), (found.gradients, expected.gradients), (found.parameters, expected.parameters)
    )  # fmt: skip
    return max(_norm_error(a, b) for a, b in pairs)


def _norm_error(found: Tensors, expected: Tensors) -> float:
    wrong = math.sqrt(sum(float((found[name].double() - b.double()).square().sum()) for name, b in expected.items()))
    norm = math.sqrt(sum(float(b.double().square().sum()) for b in expected.values()))
    error = wrong / norm if norm else wrong
    return error if math.isfinite(error) else sys.float_info.max
