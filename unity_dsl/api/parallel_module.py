"""Makes a torch module parallel: its model is imported, planned, and run in place of the module."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Variable
from torch.utils import _pytree as pytree

from ..emit.rank_comparison import load_program
from ..importer.keras_models import with_plain_weights
from ..importer.model_import import ImportedModel, imported_model
from ..importer.views import View
from ..importer.weight_parts import of_states, to_states
from .planned_model import PlannedModel, compile


def parallelize(
    module: nn.Module,
    example_inputs: Mapping[str, Any] | Sequence[Any],
    *,
    devices: int | None = None,
    machine: str = "local",
    strategy: str = "auto",
    verify: bool = True,
    device: str | torch.device = "cpu",
    **options: Any,
) -> tuple[PlannedModel, ParallelModule]:
    """A plan of a module, and a module that runs the plan on as many ranks, each with its part of the weights.

    `devices` is by default the number of ranks of the default process group, or 1 if there is none. With another number
    the plan can only be inspected, and calling the module raises RuntimeError. The module has to return its loss, as
    for `unityc import`, which says what `verify` compares. A compiled Keras model is called by names: `x` and `y`. All
    ranks call this together. Raises InputError.
    """
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    name = "".join(part if part.isalnum() else "_" for part in type(module).__name__.lower())
    module, example_inputs = with_plain_weights(module, example_inputs)
    named = dict(example_inputs) if isinstance(example_inputs, Mapping) else {}
    args = () if isinstance(example_inputs, Mapping) else tuple(example_inputs)
    found = imported_model(module, args, named, name, verified=verify)
    folder = TemporaryDirectory(prefix="unity-")
    model = Path(folder.name) / f"{name}.udl"
    model.write_text(found.files[model.name])
    planned = compile(
        model, machine=machine, devices=devices or ranks, strategy=strategy, **{"micro_batches": 1, **options}
    )
    planned.write(model.parent / "out", force=True)
    return planned, ParallelModule(module, found, folder, torch.device(device))


class ParallelModule(nn.Module):
    """A module with this rank's part of the weights, whose calls run its compiled program on all ranks.

    It is called like the module that it was made from, on the whole batch, and returns what that module returned.
    `state_dict` has the module's names and whole tensors; all ranks have to call it together. Gradients are summed over
    ranks when `backward` ends.
    """

    def __init__(
        self, module: nn.Module, found: ImportedModel, folder: TemporaryDirectory[str], device: torch.device
    ) -> None:
        super().__init__()
        self._folder = folder  # deleted together with the module
        self._found = found
        self._prepare = found.prepare
        self._states = _names_by_tensor(module)
        self._weights = found.weights
        self._left = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
        self._stack = ExitStack()
        self._program = self._stack.enter_context(load_program(Path(folder.name) / "out"))
        self.steps = 0
        ranks = dist.get_world_size() if dist.is_initialized() else 1
        if ranks != self._program.WORLD_SIZE:
            self.model: Any = None
            return
        mesh = self._program.build_mesh(device.type) if ranks > 1 else None
        self.model = self._program.Model(mesh, device=device)
        self.model.load_global(of_states(self._left, self._weights))
        self.model.seed = int(os.environ.get("UNITY_SEED", "0"))

    # ------------------------------------------------------------------------------------------ calls

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's results for a whole batch, which all ranks pass."""
        if self.model is None:
            raise RuntimeError(f"this module runs on {self._program.WORLD_SIZE} ranks: start as many by torchrun")
        with torch.random.fork_rng():
            torch.manual_seed(2**32 * self.model.seed + self.steps)  # so that all ranks draw the same for a batch
            prepared = self._prepare(self._batch(args, kwargs))
        inputs = {name: tensor.to(self.model.device) for name, tensor in prepared.items()}
        if self.training:
            self.model.step, self.steps = self.steps, self.steps + 1
        loss, outputs = self.model(**inputs)
        if self.training and outputs:
            outputs = self.model.gather(outputs)
        if loss is not None and loss.requires_grad:
            loss.register_hook(self._when_backward_ends)
        spec = self._found.captured.program.call_spec.out_spec
        assert spec is not None
        return pytree.tree_unflatten([self._result(entry, loss, outputs) for entry in self._found.results], spec)

    def _when_backward_ends(self, gradient: Tensor) -> Tensor:
        Variable._execution_engine.queue_callback(self.model.synchronise)
        return gradient

    def _batch(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Tensor]:
        """The tensors of a call by their names in the graph. Raises TypeError for other arguments than the examples."""
        given, named = self._found.captured.given
        if len(args) != len(given) or set(kwargs) != set(named):
            wanted, found = (
                f"{len(some)} by place, {', '.join(by_name) or 'none'} by name"
                for some, by_name in ((given, named), (args, kwargs))
            )
            raise TypeError(f"called with other arguments than the examples: {found}; not {wanted}")
        parts = [*args, *(kwargs[name] for name in named)]
        tensors = [part for part in parts if isinstance(part, Tensor)]
        return dict(zip(self._found.captured.inputs, tensors, strict=True))

    def _result(self, entry: Any, loss: Tensor, outputs: Mapping[str, Tensor]) -> Any:
        if not isinstance(entry, View):
            return entry
        if entry.value is self._found.loss:
            return loss
        name = self._found.outputs.get(entry.value)
        return None if name is None else _arranged(outputs[name], entry)

    # ------------------------------------------------------------------------------------------ weights

    def grad_norm(self) -> Tensor:
        """The norm of all gradients, however they are divided. All ranks call this together."""
        norm: Tensor = self.model.grad_norm()
        return norm

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """The whole tensors by the module's names. All ranks call this together."""
        found = dict(self._left)
        for name, tensor in to_states(self.model.global_tensors(), self._weights).items():
            found |= dict.fromkeys(self._states[name], tensor)
        destination = {} if destination is None else destination
        destination |= {f"{prefix}{name}": tensor for name, tensor in found.items()}
        return destination

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Loads whole tensors by the module's names. If `strict`, raises KeyError unless all are there."""
        missing = sorted(set(self._left) - set(state_dict)) if strict else []
        if missing:
            raise KeyError(f"names that are not there: {', '.join(missing)}")
        self._left |= {name: tensor for name, tensor in state_dict.items() if name in self._left}
        self.model.load_global(of_states(self._left, self._weights))
        return nn.modules.module._IncompatibleKeys(missing, [])


def _names_by_tensor(module: nn.Module) -> dict[str, list[str]]:
    """For each name, all names of its tensor: several for tied weights."""
    states = module.state_dict(keep_vars=True)
    same: dict[int, list[str]] = {}
    for name, tensor in states.items():
        same.setdefault(id(tensor), []).append(name)
    return {name: same[id(tensor)] for name, tensor in states.items()}


def _arranged(tensor: Tensor, view: View) -> Tensor:
    """A value permuted, expanded and reshaped as a view of it."""
    axes = [axis for dim in view.base for axis in dim]
    apart = tensor.reshape([axis.size for axis in axes])
    wanted = [axis for dim in view.dims for axis in dim]
    kept = [axes.index(axis) for axis in wanted if axis in axes]
    turned = apart.permute(kept)
    for place, axis in enumerate(wanted):
        if axis not in axes:
            turned = turned.unsqueeze(place)
    return turned.expand([axis.size for axis in wanted]).reshape(view.shape)
