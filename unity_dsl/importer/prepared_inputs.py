"""The text of `data.py`: a function that makes a model's inputs of a batch as the module takes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..emit.program_names import Names
from ..syntax.diagnostic import fail
from .translation import Prepared, Translation
from .views import Value

_COMPUTE = "register it as a persistent buffer, or compute it in the module's forward"
_HEAD = '''"""Makes the inputs of {name} of a batch: what its module computes of integers before anything else."""

from __future__ import annotations

import torch
from torch import Tensor


def prepare(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """The model's inputs, of the tensors that the module takes, by name."""
'''


MOST_ELEMENTS = 1 << 16
"""Of a table whose numbers are written out."""


def prepared_text(name: str, inputs: Mapping[str, Value], walk: Translation, batch: int) -> str:
    """The text of data.py for a model whose `inputs` have these names; the translation says how integer ones are made
    of a batch of so many examples. Raises E605 for a table that is too large for a text.
    """
    body, prepared = _Body(batch, walk.origins), walk.prepared
    made = {value: body.variable(entry) for entry, value in prepared.items() if value in inputs.values()}
    results = []
    for written, value in inputs.items():
        source = made.get(value) or f'batch["{value.name}"]'
        results.append(f'"{written}": {source}{".long()" if value.bound is not None else ""}')
    first = next((entry.name for entry in body.known if not entry.call), "")
    lines = [f'rows = len(batch["{first}"])'] if any("(rows)" in line for line in body.lines) else []
    lines += [*body.lines, "return {", *(f"    {result}," for result in results), "}"]
    return _HEAD.format(name=name) + "".join(f"    {line}\n" for line in lines)


def prepare_of(text: str) -> Callable[[Mapping[str, Tensor]], dict[str, Tensor]]:
    """The function that a text of data.py defines."""
    names: dict[str, Any] = {}
    exec(text, names)
    prepare: Callable[[Mapping[str, Tensor]], dict[str, Tensor]] = names["prepare"]
    return prepare


class _Body:
    """The lines of the function, and the variables of tensors that are there."""

    def __init__(self, batch: int, origins: Mapping[int, Prepared]) -> None:
        self.batch = batch
        self.origins = origins
        self.lines: list[str] = []
        self.known: dict[Prepared, str] = {}
        self.names = Names(("batch", "prepare", "rows"))

    def variable(self, entry: Prepared) -> str:
        if entry not in self.known:
            code = self.code(entry)
            self.known[entry] = self.names.fresh(entry.name)
            self.lines.append(f"{self.known[entry]} = {code}")
        return self.known[entry]

    def code(self, entry: Prepared) -> str:
        if not entry.call:
            return f'batch["{entry.name}"]'
        args = [*map(self.text, entry.args), *(f"{key}={self.text(part)}" for key, part in entry.named)]
        return f"{entry.call}({', '.join(args)})"

    def counts(self, tensor: Tensor) -> bool:
        """Whether a table numbers the examples of a batch."""
        alike = tensor.numel() == self.batch and self.batch > 1 and not tensor.is_floating_point()
        return alike and bool((tensor.flatten() == torch.arange(self.batch)).all())

    def text(self, part: Any) -> str:
        match part:
            case Prepared():
                return self.variable(part)
            case Tensor() if self.counts(part):
                return f"torch.arange(rows).reshape({[-1 if size > 1 else 1 for size in part.shape]})"
            case Tensor() if id(part) in self.origins:
                return self.variable(self.origins[id(part)])
            case Tensor() if part.numel() > MOST_ELEMENTS:
                told = ", ".join(map(str, part.shape))
                raise fail("E605", f"a table of the module, [{told}], that is computed nowhere", help=_COMPUTE)
            case Tensor():
                return f"torch.tensor({part.tolist()}, dtype={part.dtype})"
            case list() | tuple():
                return f"[{', '.join(map(self.text, part))}]"
            case torch.device():
                return f'torch.device("{part}")'
            case _:
                return repr(part)
