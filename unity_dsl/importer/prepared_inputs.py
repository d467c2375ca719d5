"""The text of `data.py`: a function that makes a model's inputs from a batch as the module takes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..emit.program_names import Names
from .translation import EXPONENTIAL, Prepared, Translation
from .views import Value

_HEAD = '''"""Makes the inputs of {name} of a batch: what its module computes of integers before anything else."""

from __future__ import annotations

{imports}import torch
from torch import Tensor
{tables}

def prepare(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """The model's inputs, of the tensors that the module takes, by name."""
'''


_DRAWS = """

def random_batch({parameters}) -> dict[str, Tensor]:
    \"\"\"A batch as the module takes it, of random numbers: put your own data in its place.\"\"\"
    source = torch.Generator().manual_seed(seed)
    return {{
{draws}
    }}


def batches(inputs: dict, seed: int, step: int, split: str) -> dict[str, Tensor] | None:
    \"\"\"What `train.py --data` and `unityc check --data` read; the test split has four batches.\"\"\"
    if split == "test" and step >= 4:
        return None
    number = step + (1_000_000 if split == "test" else 1000 * seed)
{last}
"""
Prepare = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]
"""Makes a model's inputs from a batch."""
MOST_ELEMENTS = 1 << 12
"""The most elements of a tensor whose numbers are written out; larger ones are stored in a file."""
TABLES = "tables.pt"
"""The file of the larger tensors, next to data.py."""
_LOADED = f"""
TABLES: dict[str, Tensor] = torch.load(Path(__file__).with_name("{TABLES}"), weights_only=True)
\"\"\"What the module keeps and does not train, by name.\"\"\"
"""


@dataclass(frozen=True)
class PreparedText:
    """The parts of data.py: the lines of `prepare`, and those that draw each input of a random batch.

    `sizes` are the parameters of the model that these lines name, with their values. `read` has the expression by
    which `prepare` reads a size from its batch, `known` that by which `batches` reads it from the model's inputs.
    `first` is the first of these inputs that has a batch dimension. `draws_numbers` says whether `prepare` draws
    random numbers for every batch. `tables` are the tensors that it loads from a file.
    """

    name: str
    lines: tuple[str, ...]
    draws: tuple[str, ...]
    first: str
    draws_numbers: bool = False
    tables: Mapping[str, Tensor] = field(default_factory=dict)
    sizes: Mapping[str, float] = field(default_factory=dict)
    read: Mapping[str, str] = field(default_factory=dict)
    known: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        read = [f"{size} = {source}" for size, source in self.read.items() if _names(self.lines, size)]
        body = "".join(f"    {line}\n" for line in (*read, *self.lines))
        sizes = [size for size in self.sizes if _names(self.draws, size)]
        parameters = ["rows: int", "seed: int", *(f"{size}: int = {self.sizes[size]}" for size in sizes)]
        arguments = [f'inputs["{self.first}"].shape[0]', "number"]
        arguments += [f"{size}={self.known[size]}" for size in sizes if size in self.known]
        draws = "\n".join(f"        {line}" for line in self.draws)
        made = f"prepare(random_batch({', '.join(arguments)}))"
        last = f"    return {made}"
        if self.draws_numbers:  # the same on every rank
            seeded = "    with torch.random.fork_rng():\n        torch.manual_seed(number)\n"
            last = f"{seeded}        return {made}"
        written = {"parameters": ", ".join(parameters), "last": last, "draws": draws}
        imports, tables = ("from pathlib import Path\n\n", _LOADED) if self.tables else ("", "")
        return _HEAD.format(name=self.name, imports=imports, tables=tables) + body + _DRAWS.format(**written)

    @property
    def prepare(self) -> Prepare:
        """The function that the text defines."""
        return prepare_of(self.text, self.tables)


def _names(lines: Sequence[str], word: str) -> bool:
    return any(re.search(rf"\b{word}\b", line) for line in lines)


def prepared_text(name: str, inputs: Mapping[str, Value], walk: Translation, batch: int) -> PreparedText:
    """The text of data.py for a model whose `inputs` have these names. The translation says how integer inputs are
    made from a batch of this number of examples.
    """
    names = {id(tensor): name for name, tensor in walk.captured.program.constants.items()}
    body, prepared = _Body(batch, walk.origins, names), walk.prepared
    made = {value: body.variable(entry) for entry, value in prepared.items() if value in inputs.values()}
    results = []
    for written, value in inputs.items():
        source = made.get(value) or f'batch["{value.name}"]'
        results.append(f'"{written}": {source}{".long()" if value.bound is not None else ""}')
    first = next(iter(walk.captured.inputs), "")
    lines = [f'rows = len(batch["{first}"])'] if _names(body.lines, "rows") else []
    lines += [*body.lines, "return {", *(f"    {result}," for result in results), "}"]
    bounds = dict[str, int]()
    for entry, value in prepared.items():
        if value.bound is not None:
            bounds |= {source: min(value.bound, bounds.get(source, value.bound)) for source in _sources(entry)}
    draws = (f'"{key}": {_drawn(key, tensor, bounds.get(key, 0))},' for key, tensor in walk.captured.inputs.items())
    divided = (key for key, value in inputs.items() if value.shape and value.constant is None)
    return PreparedText(name, tuple(lines), tuple(draws), next(divided, ""), body.draws, body.tables)


def _sources(entry: Any) -> set[str]:
    """The tensors of a batch whose numbers an entry contains."""
    if isinstance(entry, list | tuple):
        return {source for part in entry for source in _sources(part)}
    if not isinstance(entry, Prepared):
        return set()
    if not entry.call:
        return {entry.name}
    name = entry.call.removeprefix(_ATEN).removeprefix("torch.").partition(".")[0]
    return _sources(entry.args) if name in _MOVING else set()


def _drawn(name: str, example: Tensor, bound: int) -> str:
    """An expression that draws an input like its example: floats, ones for a mask, or integers below a bound if one is
    known.
    """
    shape = ", ".join(["rows", *map(str, example.shape[1:])]) if example.dim() else ""
    shape += "," * (example.dim() == 1)
    if example.is_floating_point():
        return f"torch.randn(({shape}), generator=source)"
    if example.dtype == torch.bool or (bool((example <= 1).all()) and bool((example >= 0).all())):
        return f"torch.ones(({shape}), dtype={example.dtype})"
    return f"torch.randint({bound or int(example.max()) + 1}, ({shape}), generator=source)"


def prepare_of(text: str, tables: Mapping[str, Tensor]) -> Prepare:
    """The function that a text of data.py defines, with these tables in place of its file."""
    names: dict[str, Any] = {"TABLES": tables}
    exec(text.replace(_LOADED, ""), names)
    prepare: Prepare = names["prepare"]
    return prepare


def _finite(text: str) -> str:
    """Numbers as Python reads them, including infinities and NaN."""
    return re.sub(r"\b(inf|nan)\b", r'float("\1")', text)


_ATEN = "torch.ops.aten."
_USUAL = {"device", "pin_memory", "layout", "memory_format"}
"""Arguments of captured calls that only repeat a default."""
_MOVING = {
    *("alias", "cat", "clone", "constant_pad_nd", "detach", "expand", "flatten", "flip", "gather", "getitem", "index"),
    *("index_select", "lift_fresh_copy", "masked_fill", "narrow", "pad", "permute", "reshape", "roll", "select"),
    *("slice", "split", "squeeze", "stack", "t", "to", "_to_copy", "transpose", "unbind", "unsqueeze", "view"),
    *("_unsafe_view", "where"),
}
"""Torch functions whose results consist of elements of their arguments."""
_OVERLOADS = {"default", "Tensor", "Scalar", "int", "dim", "self", "other", "start", "Tensor_Scalar", "start_step"}
_PLAIN = {
    *("abs", "add", "arange", "bitwise_and", "bitwise_not", "bitwise_or", "clamp", "cos", "cumsum"),
    *("diff", "div", "eq", "exp", "full", "full_like", "ge", "gt", "le", "log", "logical_and"),
    *("logical_not", "logical_or", "lt", "masked_fill", "max", "min", "mul", "ne", "neg", "ones"),
    *("ones_like", "permute", "pow", "remainder", "select", "sin", "sub", "sum", "transpose", "tril"),
    *("triu", "unsqueeze", "where", "zeros", "zeros_like"),
}
"""Torch functions that take the same arguments as the operators of these names."""


class _Body:
    """The lines of `prepare`, the variables of tensors so far, and the tables that the lines read. `given` has names
    of tensors by identity.
    """

    def __init__(self, batch: int, origins: Mapping[int, Prepared], given: Mapping[int, str]) -> None:
        self.batch = batch
        self.origins = origins
        self.given = given
        self.tables: dict[str, Tensor] = {}
        self.draws = False
        self.lines: list[str] = []
        self.known: dict[Prepared, str] = {}
        self.names = Names(("batch", "prepare", "rows"))

    def variable(self, entry: Prepared) -> str:
        if entry not in self.known:
            code = self.code(entry)
            self.known[entry] = self.names.fresh(re.sub(r"_\d+$", "", entry.name) if entry.call else entry.name)
            self.lines.append(f"{self.known[entry]} = {code}")
        return self.known[entry]

    def code(self, entry: Prepared) -> str:
        """The expression that computes a tensor, as a programmer would write it."""
        if not entry.call:
            return f'batch["{entry.name}"]'
        name = entry.call.removeprefix(_ATEN)
        given = dict(entry.named)
        match name, entry.args:
            case "_to_copy.default" | "to.dtype", (x, *_) if "dtype" in given:
                return f"{self.text(x)}.to({self.text(given['dtype'])})"
            case "clone.default" | "detach.default" | "lift_fresh_copy.default", (x, *_):
                return self.text(x)
            case "torch.randn" | "torch.randint" | "torch.Tensor.exponential_", (*bounds, sizes):
                self.draws = True
                every = ["rows" if not place and size == self.batch else str(size) for place, size in enumerate(sizes)]
                shape = f"[{', '.join(every)}]"
                if name == EXPONENTIAL:
                    return f"torch.empty({shape}).exponential_()"
                return f"{name}({''.join(f'{bound}, ' for bound in bounds)}{shape})"
            case "torch.reshape" | "view.default" | "_unsafe_view.default", (x, [_, *_]) if entry.example.numel():
                return f"{self.text(x)}.reshape({self.text([-1, *entry.example.shape[1:]])})"
            case "expand.default", (x, sizes, *_):
                return f"{self.text(x)}.expand({self.text(sizes)})"
            case "slice.Tensor", (x, dim, start, stop) if isinstance(dim, int) and dim >= 0:
                last = "" if stop is None or stop > 2**60 else str(stop)
                return f"{self.text(x)}[{':, ' * dim}{start or ''}:{last}]"
        args = [
            *map(self.text, entry.args),
            *(f"{key}={self.text(part)}" for key, part in given.items() if key not in _USUAL),
        ]
        plain, _, overload = name.partition(".")
        if entry.call.startswith(_ATEN) and plain in _PLAIN and overload in _OVERLOADS:
            return f"torch.{plain}({', '.join(args)})"
        return f"{entry.call}({', '.join(args)})"

    def counts(self, tensor: Tensor) -> bool:
        """Whether a constant enumerates the examples of a batch."""
        alike = tensor.numel() == self.batch and self.batch > 1 and not tensor.is_floating_point()
        return alike and bool((tensor.flatten() == torch.arange(self.batch)).all())

    def table(self, tensor: Tensor) -> str:
        """The name of a table, shared by equal tables."""
        for name, known in self.tables.items():
            if known.dtype == tensor.dtype and torch.equal(known, tensor):
                return name
        name = self.given.get(id(tensor), f"table_{len(self.tables)}")
        self.tables[name] = tensor.detach().clone()
        return name

    def text(self, part: Any) -> str:
        match part:
            case Prepared():
                return self.variable(part)
            case Tensor() if self.counts(part):
                return f"torch.arange(rows).reshape({[-1 if size > 1 else 1 for size in part.shape]})"
            case Tensor() if id(part) in self.origins:
                return self.variable(self.origins[id(part)])
            case Tensor() if part.numel() > MOST_ELEMENTS:
                return f'TABLES["{self.table(part)}"]'
            case Tensor():
                return f"torch.tensor({_finite(str(part.tolist()))}, dtype={part.dtype})"
            case float():
                return _finite(repr(part))
            case list() | tuple():
                return f"[{', '.join(map(self.text, part))}]"
            case torch.device():
                return f'torch.device("{part}")'
            case _:
                return repr(part)
