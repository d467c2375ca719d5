"""Text of a model's outputs: the dictionary that a call returns, and the lines that gather it after a training step."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from ..graph.graph import Model, Value
from ..graph.layout import Layout, invariant
from .conversion_text import Collectives
from .source_lines import statement


def outputs_text(model: Model, variables: Sequence[str]) -> str:
    """The text of the dictionary of outputs, which these variables hold. The outputs of a model without a loss lose
    their padding here.
    """
    if model.loss is None:
        variables = [_without_padding(value, name) for value, name in zip(model.outputs, variables, strict=True)]
    pairs = zip(model.output_names, variables, strict=True)
    return f"{{{', '.join(f'{json.dumps(name)}: {variable}' for name, variable in pairs)}}}"


def gathering_lines(model: Model, collectives: Collectives, layouts: Sequence[Layout]) -> Iterator[str]:
    """The lines that replace outputs by whole ones, the same on every device and without padding; none if all of them
    are.
    """
    whole = invariant(collectives.mesh)
    for name, value, layout in zip(model.output_names, model.outputs, layouts, strict=True):
        found = collectives.conversion(layout, whole, value.shape, value.bytes, gradient=value.needs_gradient)
        given = f"outputs[{json.dumps(name)}]"
        if found is not None:
            yield from statement(f"{given} = parallel.{found.name}({given}, self.groups)", f"{layout} -> {whole}")
        if value.unpadded:
            yield from statement(f"{given} = {_without_padding(value, given)}", "without padding")


def _without_padding(value: Value, variable: str) -> str:
    """The text of a tensor without its padding."""
    if not value.unpadded:
        return variable
    kept = [":" if size == own else f":{own}" for size, own in zip(value.shape, value.unpadded, strict=True)]
    return f"{variable}[{', '.join(kept)}]"
