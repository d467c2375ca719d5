"""Functions that the ranks of a pool run for the tests of emitted programs, which import them by name."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from unity_dsl.emit.rank_comparison import load_program

Array = np.ndarray


def load_file(path: str, name: str) -> ModuleType:
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build_mesh(degrees: tuple[int, ...]) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", degrees, mesh_dim_names=tuple("abcdef"[: len(degrees)]))


def convert_all(
    rank: int,
    ranks: int,
    path: str,
    degrees: tuple[int, ...],
    cases: list[tuple[str, list[Array], list[Array]]],
    dtype: str,
) -> list[tuple[Array, Array]]:
    """Per case (function, local values, local gradients of the result): the local results and local gradients."""
    import torch

    module = load_file(path, "conversions")
    groups = module.Groups(build_mesh(degrees))
    results = []
    for name, values, cotangents in cases:
        x = torch.as_tensor(values[rank]).to(getattr(torch, dtype)).requires_grad_()
        y = getattr(module, name)(x, groups)
        y.backward(torch.as_tensor(cotangents[rank]).to(y.dtype))
        assert y.dtype == x.grad.dtype == x.dtype
        results.append((y.detach().double().numpy(), x.grad.double().numpy()))
    return results


def reduce_over(
    rank: int, ranks: int, path: str, kind: str, shards: list[Array], dims: tuple[int, ...], g: Array
) -> Any:
    """A reduction over local dimensions and all ranks: its value, and the gradient of this rank's part."""
    import torch

    module = load_file(path, "conversions")
    groups = module.Groups(build_mesh((ranks,)))
    x = torch.from_numpy(shards[rank]).requires_grad_()
    y = getattr(module, f"{kind}_over")(x, dims, groups.a)
    y.backward(torch.from_numpy(g))
    return y.detach().numpy(), x.grad.numpy()


def accumulate(rank: int, ranks: int, program: str, reference: str, bucket_bytes: int) -> float:
    """Accumulates gradients over two batches, the first without communication. Returns the largest relative difference
    from one device.
    """
    import torch

    with load_program(Path(reference)) as module:
        single = module.Model(None, dtype=torch.float64)
        single.initialise(3)
        state = {name: tensor.detach().clone() for name, tensor in single.stored().items()}
        source = torch.Generator().manual_seed(0)
        batches = [
            {
                name: torch.randn(spec.shape, generator=source, dtype=torch.float64)
                if spec.integer_range is None
                else torch.randint(spec.integer_range, spec.shape, generator=source)
                for name, spec in module.INPUTS.items()
            }
            for _ in range(2)
        ]
        for step, batch in enumerate(batches):
            single.step = step
            single(**batch)[0].backward()
        expected = {name: parameter.grad for name, parameter in single.named_parameters()}
    with load_program(Path(program)) as module:
        model = module.Model(module.build_mesh("cpu"), dtype=torch.float64, bucket_bytes=bucket_bytes)
        model.load_global(state)
        model(**batches[0])[0].backward()  # not finished by `synchronise`, and dropped
        model.zero_grad()
        with torch.no_grad():
            model(**batches[0])
        for step, batch in enumerate(batches):
            model.step, model.accumulating = step, step == 0
            model(**batch)[0].backward()
        model.synchronise()
        worst = 0.0
        for name, parameter in model.named_parameters():
            difference = model.full(name, parameter.grad) - expected[name]
            worst = max(worst, float(difference.abs().max() / expected[name].abs().max().clamp(min=1e-6)))
    return worst


def launches(rank: int, ranks: int, program: str, bucket_bytes: int) -> list[str]:
    """The events of a backward pass in order: `send` per collective, `use` per gradient of a parameter, `backward
    done`.
    """
    import torch

    events: list[str] = []
    with load_program(Path(program)) as module:
        model = module.Model(module.build_mesh("cpu"), bucket_bytes=bucket_bytes)
        model.initialise(0)
        send, add = model.sync._send, model.sync.add
        model.sync._send = lambda key: (events.append("send"), send(key))[1]
        model.sync.add = lambda *given: (events.append("use"), add(*given))[1]
        batch = {
            name: torch.randn(spec.shape)
            if spec.integer_range is None
            else torch.randint(spec.integer_range, spec.shape)
            for name, spec in module.INPUTS.items()
        }
        model(**batch)[0].backward()
        events.append("backward done")
        model.synchronise()
    return events


def _batch(module: Any) -> dict[str, Any]:
    """Inputs of a program, the same ones on every rank."""
    import torch

    source = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(spec.shape, generator=source, dtype=torch.float64)
        if spec.integer_range is None
        else torch.randint(spec.integer_range, spec.shape, generator=source)
        for name, spec in module.INPUTS.items()
    }


def compiled(rank: int, ranks: int, program: str) -> tuple[float, float]:
    """Runs a step as one torch.compile graph. Returns the largest differences of loss and gradients from eager mode."""
    import torch

    with load_program(Path(program)) as module:
        model = module.Model(module.build_mesh("cpu"), dtype=torch.float64)
        model.initialise(0)
        batch = _batch(module)
        results = []
        for call in (model, torch.compile(model, backend="aot_eager", fullgraph=True)):
            model.zero_grad()
            loss = call(**batch)[0]
            loss.backward()
            model.synchronise()
            results.append((loss.detach(), [parameter.grad for parameter in model.parameters()]))
    (loss, gradients), (other, others) = results
    worst = max(float((a - b).abs().max()) for a, b in zip(gradients, others, strict=True))
    return float((loss - other).abs()), worst


def accumulated(rank: int, ranks: int, program: str) -> list[str]:
    """Compares p.grad with what autograd leaves on one device: names of parameters, each with what is wrong."""
    import torch

    wrong = []
    with load_program(Path(program)) as module:
        model = module.Model(module.build_mesh("cpu"), dtype=torch.float64)
        model.initialise(0)
        batch = _batch(module)

        def step() -> None:
            model(**batch)[0].backward()
            with torch.no_grad():
                model.synchronise()

        step()
        parameters = dict(model.named_parameters())
        single = {name: p.grad.clone() for name, p in parameters.items()}
        tensors = {name: p.grad for name, p in parameters.items()}
        for expected in (2, 1):
            step()
            for name, p in parameters.items():
                if p.grad is not tensors[name]:
                    wrong.append(f"{name}: another tensor")
                if not torch.allclose(p.grad, expected * single[name], atol=1e-12):
                    wrong.append(f"{name}: not {expected} gradients")
            model.zero_grad(set_to_none=False)
            wrong += [f"{name}: not zeroed" for name, p in parameters.items() if p.grad.any()]
        model.zero_grad()
        wrong += [f"{name}: not None" for name, p in parameters.items() if p.grad is not None]
        called: dict[torch.Tensor, int] = dict.fromkeys(parameters.values(), 0)

        def double(p: torch.Tensor) -> None:
            called[p] += 1
            p.grad.mul_(2)

        for p in parameters.values():
            p.register_hook(lambda gradient: 3 * gradient)
            p.register_post_accumulate_grad_hook(double)
        step()
        for name, p in parameters.items():
            if called[p] != 1:
                wrong.append(f"{name}: its hook was called {called[p]} times")
            elif not torch.allclose(p.grad, 6 * single[name], atol=1e-12):
                wrong.append(f"{name}: not as its hooks made it")
            if p.grad._base is not None:
                wrong.append(f"{name}: a view")
    return wrong


def activations(rank: int, ranks: int, program: str) -> int:
    """Bytes of all storages that autograd saves in a forward pass, each counted once, without the model's tensors."""
    import torch

    found: dict[int, torch.Tensor] = {}
    with load_program(Path(program)) as module:
        model = module.Model(module.build_mesh("cpu") if ranks > 1 else None)
        model.initialise(0)
        constants = vars(model.constants).values() if hasattr(model, "constants") else ()
        shares = [model.shares] if hasattr(model, "shares") else []
        held = *model.parameters(), *model.buffers(), *constants, *shares
        own = {tensor.untyped_storage().data_ptr() for tensor in held}

        def save(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.untyped_storage().data_ptr() not in own:
                found[tensor.untyped_storage().data_ptr()] = tensor  # kept alive, so that no address is reused
            return tensor

        batch = {
            name: torch.randn(spec.shape)
            if spec.integer_range is None
            else torch.randint(spec.integer_range, spec.shape)
            for name, spec in module.INPUTS.items()
        }
        with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
            model(**batch)
    return sum(tensor.untyped_storage().nbytes() for tensor in found.values())


def saved_by_reduction(rank: int, ranks: int, path: str, kind: str, shape: tuple[int, ...]) -> list[int]:
    """Bytes of every storage saved by a reduction over the last dimension and all ranks; the operand's come first."""
    import torch

    module = load_file(path, "conversions")
    groups = module.Groups(build_mesh((ranks,)))
    x = torch.randn(shape, dtype=torch.float64).requires_grad_()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda saved: kept.append(saved) or saved, lambda saved: saved):
        y = getattr(module, f"{kind}_over")(x, (len(shape) - 1,), groups.a)
    kept += [y.grad_fn.others] if kind == "prod" else []
    found = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in kept}
    return [found.pop(x.untyped_storage().data_ptr(), 0), *sorted(found.values())]


def standardise(
    rank: int,
    ranks: int,
    path: str,
    shards: list[Array],
    gain: Array | None,
    bias: Array | None,
    eps: float,
    cotangents: list[Array | None],
    of_moments: list[Array | None],
) -> dict[str, Array]:
    """Standardised values of parts, with mean and variance, and the gradients of the inputs."""
    import torch

    module = load_file(path, "conversions")
    groups = module.Groups(build_mesh((ranks,)))
    given = [None if a is None else torch.from_numpy(a).requires_grad_() for a in (shards[rank], gain, bias)]
    made = module.standardised(*given, eps, groups.a)
    # Mean and variance are one logical tensor, whose gradient every device has.
    wanted = [None if a is None else torch.from_numpy(a) for a in (cotangents[rank], *of_moments)]
    pairs = [(result, a.to(result.dtype)) for result, a in zip(made, wanted, strict=True) if a is not None]
    moved = {n: t for n, t in zip(("x", "gain", "bias"), given, strict=True) if t is not None}
    found = torch.autograd.grad([r for r, _ in pairs], list(moved.values()), [a for _, a in pairs])
    results = dict(zip(("y", "mean", "variance"), made, strict=True)) | dict(zip(moved, found, strict=True))
    return {name: tensor.detach().numpy() for name, tensor in results.items()}


def standardising(rank: int, ranks: int, path: str, shards: list[Array], eps: float) -> Any:
    """Collectives of a standardisation forward and backward, its numbers of kernels, and the bytes that it saves."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.sent: list[str] = []
            self.kernels = 0

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            name = function._schema.name
            if name.startswith("_c10d_functional"):
                self.sent += [name.partition("::")[2].removesuffix("_out")] if "wait" not in name else []
            elif not function.is_view and "empty" not in name:
                self.kernels += 1
            return result

    module = load_file(path, "conversions")
    groups = module.Groups(build_mesh((ranks,)))
    x = torch.from_numpy(shards[rank]).requires_grad_()
    gain, bias = (torch.ones(x.shape[1], dtype=x.dtype, requires_grad=True) for _ in range(2))
    saved: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), Seen() as forward:
        y, _, _ = module.standardised(x, gain, bias, eps, groups.a)
    g = torch.ones_like(y)
    with Seen() as backward:
        torch.autograd.grad(y, (x, gain, bias), g)
    return tuple(forward.sent), tuple(backward.sent), (forward.kernels, backward.kernels), sorted(saved.values())
