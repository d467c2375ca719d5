"""Text of a program that runs a batch as micro-batches."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ..graph.plan import Plan
from .source_lines import broken


def joined_outputs(plan: Plan) -> Iterator[str]:
    """The entries of the dictionary of a batch's outputs, joined from those of its micro-batches, `parts`."""
    if plan.division is None:
        return
    for name, part in zip(plan.model.output_names, plan.division.outputs, strict=True):
        given = f"[part[{json.dumps(name)}] for part in parts]"
        whole = f"torch.cat({given}, {part.dim})" if part.dim is not None else f"sum({given}) / {part.divisor}"
        yield from broken(f"{json.dumps(name)}: {whole},", "            ")
