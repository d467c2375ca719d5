"""An ONNX graph as a torch module: every node is a torch call, every float weight a parameter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.fx.traceback import annotate

from ..syntax.diagnostic import InputError, fail
from .onnx_layers import OPERATORS
from .onnx_operators import Values, as_tensor
from .source_places import MODULE

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, ValueInfoProto

LOSSES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": lambda x, labels: nn.functional.cross_entropy(x.flatten(0, -2), labels.flatten()),
    "mse": nn.functional.mse_loss,
}
OPSETS = range(13, 27)
_HIDING = 1e4
"""An initializer with a number of at least this magnitude masks scores and is not a weight."""
_STATISTICS = (3, 4)
"""Positions of the running statistics among the inputs of BatchNormalization."""


class OnnxGraph(nn.Module):
    """A graph whose float initializers are parameters with their names; other constants are arrays. With a `loss` of
    its first output, it takes labels as its last input.
    """

    def __init__(self, model: ModelProto, loss: str | None) -> None:
        from onnx import numpy_helper

        super().__init__()
        graph = model.graph
        self.graph, self.loss = graph, loss
        self.given = [given.name for given in graph.input if given.name not in {one.name for one in graph.initializer}]
        arrays = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
        statistics = {
            node.input[place] for node in graph.node if node.op_type == "BatchNormalization" for place in _STATISTICS
        }
        self.states = {name: array for name, array in arrays.items() if name in statistics or _is_weight(array)}
        self.arrays = {name: array for name, array in arrays.items() if name not in self.states}
        for name, array in self.states.items():
            _register(self, name, torch.from_numpy(array.copy()), trained=name not in statistics)

    def values(self, inputs: Sequence[Tensor]) -> dict[str, Any]:
        """The values that nodes may read before any node has run, by name."""
        states = {name: _held(self, name) for name in self.states}
        return {**dict(zip(self.given, inputs, strict=False)), **states, **self.arrays}

    def forward(self, *inputs: Tensor) -> Any:
        values = self.values(inputs)
        for node in self.graph.node:
            path = scope_of(node)
            if path:
                with annotate({MODULE: path}):
                    self.call(node, values)
            else:
                self.call(node, values)
        outputs = [values[one.name] for one in self.graph.output]
        if self.loss is None:
            return tuple(outputs)
        return LOSSES[self.loss](outputs[0], inputs[-1]), *outputs

    def call(self, node: NodeProto, values: dict[str, Any]) -> Values:
        """Computes a node's outputs and adds them to the values. Returns the node's inputs and attributes."""
        from onnx.helper import get_attribute_value

        settings = {one.name: get_attribute_value(one) for one in node.attribute}
        inputs = [values[name] if name else None for name in node.input]
        given = Values(inputs, settings, self.training, len(node.output))
        made = OPERATORS[node.op_type](given)
        made = made if isinstance(made, tuple) else (made,)
        values |= {name: value for name, value in zip(node.output, made, strict=False) if name and value is not None}
        return given


def ignored(node: NodeProto, given: Values) -> Iterator[str]:
    """The parts of a node that its operator has not read: attributes that differ from their defaults, and inputs."""
    usual = _usual_settings(node.op_type)
    for name, value in given.settings.items():
        if name not in given.read and value != usual.get(name):
            yield f"{node.op_type} with {name} = {value.decode() if isinstance(value, bytes) else value}"
    for place, value in enumerate(given.inputs):
        if place not in given.read and value is not None:
            yield f"{node.op_type} with input {place + 1}"


def load_onnx(path: Path, loss: str | None, sizes: Mapping[str, int]) -> tuple[nn.Module, tuple[Tensor, ...], str]:
    """The module of a file, its example inputs, and a remark for the user about the file. Symbolic sizes are 2 unless
    `sizes` gives them. Raises E608 for a file that is not ONNX, E609 for all unsupported content at once.
    """
    import onnx

    try:
        model = onnx.load(str(path))
        onnx.checker.check_model(model)
    except Exception as reason:
        line = next(iter(str(reason).splitlines()), type(reason).__name__)
        raise fail("E608", f"`{path}` is no ONNX model: {line}", help="write one by torch.onnx.export") from None
    if (refusal := _unsupported(model)) is not None:
        raise refusal
    module = OnnxGraph(model, loss)
    named = {one.name: one for one in model.graph.input}
    examples = [_example(named[name], sizes) for name in module.given]
    output = _checked(module.eval(), examples)
    if loss is not None:
        examples.append(_labels(output, loss))
    return module.train(), tuple(examples), _told(model, module)


def _unsupported(model: ModelProto) -> InputError | None:
    opsets = [one.version for one in model.opset_import if one.domain in ("", "ai.onnx")]
    words = [f"opset {version}" for version in opsets if version not in OPSETS]
    words += sorted({node.op_type for node in model.graph.node if node.op_type not in OPERATORS})
    if not words:
        return None
    hint = f"opsets {OPSETS.start} to {OPSETS.stop - 1} and {len(OPERATORS)} operators are; import the module it is of"
    return fail("E609", f"not supported of this ONNX file: {', '.join(words)}", help=hint)


def _checked(module: OnnxGraph, examples: Sequence[Tensor]) -> Tensor:
    """The first output. Raises E609 for everything that operators ignore, and for the first node that cannot be
    computed.
    """
    values, words = module.values(examples), dict[str, None]()
    for node in module.graph.node:
        if missing := [name for name in node.input if name and name not in values]:
            words[f"the output `{missing[0]}` that {node.op_type} reads"] = None
            break
        try:
            with torch.no_grad():
                words |= dict.fromkeys(ignored(node, module.call(node, values)))
        except Exception as reason:
            line = next(iter(str(reason).splitlines()), type(reason).__name__)
            words[f"{node.op_type}: {line}"] = None
            break
    else:
        left = [one.name for one in module.graph.output if one.name not in values]
        words |= dict.fromkeys(f"the output `{name}`" for name in left)
    if words:
        raise fail("E609", f"not supported of this ONNX file: {', '.join(words)}", help="import the module it is of")
    return as_tensor(values[module.graph.output[0].name])


@cache
def _usual_settings(operator: str) -> Mapping[str, Any]:
    """The default values of an operator's attributes."""
    from onnx.defs import get_schema
    from onnx.helper import get_attribute_value

    attributes = get_schema(operator).attributes.items()
    return {name: get_attribute_value(one.default_value) for name, one in attributes if one.default_value.type}


def _told(model: ModelProto, module: OnnxGraph) -> str:
    """A remark on initializers that several nodes read: they are tied, or an exporter has merged equal ones."""
    reads: dict[str, int] = {}
    for node in model.graph.node:
        for name in node.input:
            reads[name] = reads.get(name, 0) + (name in module.states)
    several = [name for name, count in reads.items() if count > 1]
    if not several:
        return ""
    return f"read more than once, as tied weights are, or equal ones that an exporter merged: {', '.join(several[:8])}"


def scope_of(node: NodeProto) -> str:
    """The path of the module that a node belongs to, `h.0.attn`; empty if the exporter did not write it."""
    scopes = next((one.value for one in node.metadata_props if one.key == "pkg.torch.onnx.name_scopes"), "")
    if scopes:
        names = [name for name in scopes.strip("[]").replace("'", "").split(", ") if name]
        return names[-2] if len(names) > 1 else ""
    parts = node.name.split("/")
    return ".".join(parts[1:-1]) if node.name.startswith("/") else ""


def _is_weight(array: np.ndarray[Any, Any]) -> bool:
    return array.dtype.kind == "f" and array.size > 1 and bool((np.abs(array) < _HIDING).all())


def _register(module: nn.Module, name: str, tensor: Tensor, *, trained: bool) -> None:
    *path, last = _path(name)
    for part in path:
        if not hasattr(module, part):
            module.add_module(part, nn.Module())
        module = getattr(module, part)
    if trained:
        module.register_parameter(last, nn.Parameter(tensor))
    else:
        module.register_buffer(last, tensor)


def _held(module: nn.Module, name: str) -> Tensor:
    held: Any = module
    for part in _path(name):
        held = getattr(held, part)
    found: Tensor = held
    return found


def _path(name: str) -> list[str]:
    return [f"{part}_" if part in _TAKEN else part or "_" for part in name.split(".")]


_TAKEN = {*dir(nn.Module()), "graph", "loss", "given", "states", "arrays", "values"}


def _example(given: ValueInfoProto, sizes: Mapping[str, int]) -> Tensor:
    from onnx.helper import tensor_dtype_to_np_dtype

    kind = given.type.tensor_type
    shape = [one.dim_value if one.HasField("dim_value") else sizes.get(one.dim_param, 2) for one in kind.shape.dim]
    dtype = tensor_dtype_to_np_dtype(kind.elem_type)
    if np.issubdtype(dtype, np.floating):
        return torch.randn(shape)
    if "mask" in given.name:
        return torch.ones(shape, dtype=torch.int64)
    return torch.randint(2, shape)


def _labels(output: Tensor, loss: str) -> Tensor:
    """Random labels for a loss of this output."""
    return torch.randint(output.shape[-1], output.shape[:-1]) if loss == "cross_entropy" else torch.randn(output.shape)
