"""Predicted memory against what the emitted program holds on CPU ranks: `python bench/memory.py`."""

from __future__ import annotations

import argparse
import tempfile
import weakref
from pathlib import Path
from typing import Any

from unity_dsl.compile import Request, compile_model
from unity_dsl.emit.output_folder import write_program
from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.machine.machine import load_machine
from unity_dsl.simulation.step_tasks import step_tasks

ROOT = Path(__file__).parent.parent


def measured_peak(rank: int, ranks: int, folder: str) -> dict[str, Any]:
    """Bytes of the storages that are alive at once in a training step with AdamW, the most of them, and at its ends."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
    from torch.utils._pytree import tree_iter

    class Alive(TorchDispatchMode):
        """Counts storages that kernels make, until they are freed."""

        def __init__(self) -> None:
            super().__init__()
            self.known: dict[int, int] = {}
            self.now = self.peak = 0
            self.at = ""
            self.log: list[tuple[str, int, int]] = []

        def see(self, tensor: torch.Tensor, what: str = "") -> None:
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key in self.known:
                return
            count = storage.nbytes()
            self.known[key] = count
            self.now += count
            weakref.finalize(storage, self.gone, key)
            if self.now > self.peak:
                self.peak, self.at = self.now, what

        def gone(self, key: int) -> None:
            self.now -= self.known.pop(key)

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = function(*args, **(kwargs or {}))
            for tensor in tree_iter(found):
                if isinstance(tensor, torch.Tensor):
                    self.see(tensor, str(function))
            self.log.append((str(function), self.now, self.peak))
            return found

    class RMSNorm(torch.autograd.Function):
        """A GPU's kernel, which a CPU has not: it keeps its operands and the reciprocal root of every row."""

        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, gain: torch.Tensor, eps: float) -> torch.Tensor:
            with _disable_current_modes():
                root = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)
                found = (x * root).to(x.dtype) * gain
            ctx.save_for_backward(x, gain, root)
            ctx.eps = eps
            for tensor in (found, root):
                alive.see(tensor, "rms_norm")
            return found

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
            x, gain, _ = ctx.saved_tensors
            with _disable_current_modes(), torch.enable_grad():
                x, gain = x.detach().requires_grad_(), gain.detach().requires_grad_()
                found = whole(x, [x.shape[-1]], gain, ctx.eps)
                found = torch.autograd.grad(found, (x, gain), gradients)
            for tensor in found:
                alive.see(tensor, "rms_norm backward")
            return *found, None

    whole = torch.nn.functional.rms_norm
    torch.nn.functional.rms_norm = lambda x, shape, gain, eps: RMSNorm.apply(x, gain, eps)
    torch.set_num_threads(1)
    with load_program(Path(folder)) as module:
        mesh = module.build_mesh("cpu") if ranks > 1 else None
        model = module.Model(mesh)
        model.initialise(0)
        optimizer = torch.optim.AdamW(list(model.parameters()), lr=1e-4, foreach=True)
        source = torch.Generator().manual_seed(0)
        batch = {
            name: torch.randint(spec.integer_range, tuple(spec.shape), generator=source)
            if spec.integer_range is not None
            else torch.randn(tuple(spec.shape), generator=source)
            for name, spec in module.INPUTS.items()
        }
        alive = Alive()

        def step() -> None:
            model.train()
            model.zero_grad()
            loss = model(**batch)[0]
            loss.backward()
            del loss
            model.synchronise()
            optimizer.step()

        step()
        alive.now = 0
        model.zero_grad()
        for tensor in (*model.parameters(), *model.buffers(), *batch.values()):
            alive.see(tensor)
        for state in optimizer.state.values():
            for tensor in state.values():
                alive.see(tensor)
        held = alive.now
        alive.peak = 0
        with alive:
            step()
        model.zero_grad()
        torch.nn.functional.rms_norm = whole
        return {"held": held, "end": alive.now, "peak": alive.peak, "at": alive.at, "log": alive.log}


def predicted_peak(tasks: Any) -> tuple[float, str]:
    now = peak = tasks.held
    at = ""
    for task in tasks.tasks:
        now += task.allocated
        if now > peak:
            peak, at = now, f"{task.phase.value} {task.name} {task.place}"
        now -= task.freed
    return peak, at


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", nargs="*")
    parser.add_argument("--ranks", nargs="*", type=int, default=[1, 2])
    parser.add_argument("--strategy", default="data_parallel")
    options = parser.parse_args()
    names = options.examples or sorted(path.stem for path in (ROOT / "examples").glob("*.udl"))
    with RankPool(max(options.ranks)) as pool, tempfile.TemporaryDirectory() as folder:
        for name in names:
            for ranks in options.ranks:
                request = Request(
                    ROOT / "examples" / f"{name}.udl", preset="small", devices=ranks, strategy=options.strategy
                )
                compiled = compile_model(request)
                out = Path(folder) / f"{name}_{ranks}"
                write_program(compiled.plan, compiled.library, compiled.sources, request, out)
                tasks = step_tasks(compiled.plan, load_machine("local"), compiled.library)
                peak, at = predicted_peak(tasks)
                found = pool.run(measured_peak, str(out), ranks=ranks)[0]
                print(
                    f"{name} {ranks}: measured {found['peak']} at {found['at']}, predicted {peak:.0f} at {at}: "
                    f"{peak / found['peak'] - 1:+.1%}; held {found['held']} {tasks.held:.0f}; end {found['end']}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
