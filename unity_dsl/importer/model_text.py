"""The text of an imported model: weights, statements and repeats under names that the module's own suggest."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain, count
from keyword import kwlist
from types import MappingProxyType

from ..syntax.diagnose import terminal_texts
from .folding import Item, Repeat, folded, results_of, weights_of
from .initialisers import initialisers_of
from .short_lists import KEPT
from .statements import EXAMPLES, Imported, Statement
from .views import Value, View
from .weight_parts import Stored


@dataclass(frozen=True)
class ModelText:
    """The lines of a .udl file: blocks, the model's parameters, and its statements, with the module path of each line.
    `weights` says, by names in the model, where the module's state_dict has weights and buffers. `comments` stand
    above the model.
    """

    name: str
    blocks: tuple[str, ...]
    parameters: Mapping[str, float]
    lines: tuple[str, ...]
    paths: tuple[tuple[str, ...], ...] = ()
    weights: dict[str, Stored] = field(default_factory=dict)
    inputs: dict[Value, str] = field(default_factory=dict)
    outputs: dict[Value, str] = field(default_factory=dict)
    comments: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        parameters = ", ".join(f"{size} = {value}" for size, value in self.parameters.items())
        head = f"model {self.name}[{parameters}]" if parameters else f"model {self.name}"
        return (
            "\n".join((*self.blocks, *self.comments, head, *(f"  {line}" if line else "" for line in self.lines)))
            + "\n"
        )


def model_text(
    name: str,
    model: Imported,
    batch: int | None = None,
    reserved: Set[str] = frozenset(),
    left_out: Mapping[tuple[str, ...], int] = MappingProxyType({}),
) -> ModelText:
    """The text of a model of this name, in which no tensor has a reserved name. With a `batch`, sizes of the batch are
    written as the parameter `b`. Repeats also count the layers that were `left_out` of a list, by its path.
    """
    writer = _Writer(model, batch, reserved, left_out)
    writer.write(folded(model))
    used = dict.fromkeys(s.operator for s in model.statements if s.operator in model.blocks)
    blocks = [line for name in used for line in (*model.blocks[name].text.splitlines(), "")]
    parameters = {"b": batch} if batch else {}
    lines, paths = tuple(writer.lines), tuple(writer.paths.get(row, ()) for row in range(len(writer.lines)))
    return ModelText(name, tuple(blocks), parameters, lines, paths, writer.weights, writer.inputs, writer.outputs)


class Names:
    """Unique names of one file or block; some are `taken` from the start."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = {*terminal_texts("udl").values(), *kwlist, *taken}

    def fresh(self, *wanted: str) -> str:
        """The first of these names that is free; else the last one with a number."""
        words = [re.sub(r"\W", "_", word).lstrip("_") or "x" for word in wanted]
        words = [f"x_{word}" if word[0].isdecimal() else word for word in words]
        numbered = (f"{words[-1]}_{number}" for number in count(2))
        found = next(word for word in chain(words, numbered) if word not in self.taken)
        self.taken.add(found)
        return found


class _Writer:
    def __init__(
        self, model: Imported, batch: int | None, reserved: Set[str], left_out: Mapping[tuple[str, ...], int]
    ) -> None:
        self.model = model
        self.left_out = left_out
        self.batch = batch
        self.names = Names()
        self.reserved = {"b", *reserved} if batch else set(reserved)
        self.names.taken |= self.reserved
        self.given: dict[Value, str] = {}
        self.inputs: dict[Value, str] = {}
        self.lines: list[str] = []
        self.paths: dict[int, tuple[str, ...]] = {}
        self.weights: dict[str, Stored] = {}
        self.outputs: dict[Value, str] = {}
        stored = list(weights_of(model.statements))
        self.initialisers = {value: initialisers_of(value) for value in stored}
        self.common = Counter(text for texts in self.initialisers.values() for text in texts)
        self.around = _around([value.state for value in stored])

    def write(self, items: Sequence[Item]) -> None:
        for value in self.model.inputs:
            self.given[value] = self.inputs[value] = self.names.fresh(value.name)
            shape = [*map(str, value.shape)]
            if self.batch and value.shape and value.shape[0] == self.batch and value.constant is None:
                shape[0] = "b"
            kind = "f32" if value.bound is None else f"int<{value.bound}>"
            self.lines.append(f"input {self.given[value]}: {kind}[{', '.join(shape)}]")
        self.lines.append("")
        inside = {value for item in items if isinstance(item, Repeat) for value in item.own[0]}
        outer = [statement for item in items for statement in (item.body if isinstance(item, Repeat) else [item])]
        self.declare([value for value in weights_of(outer) if value not in inside], (), "")
        if self.weights:
            self.lines.append("")
        for value in self.begun(items):
            self.given[value] = self.names.fresh("x", "h")
        for item in items:
            if isinstance(item, Repeat):
                self.repeat(item)
            else:
                self.add(item, (), "")
        self.lines.append("")
        if self.model.loss is not None:
            self.lines.append(f"loss {self.read(self.model.loss)}")
        for key, view in self.model.outputs:
            if view.value in self.given and view.value.kind != "input":
                self.outputs[view.value] = self.output(self.given[view.value], key)

    def output(self, name: str, key: str) -> str:
        """Writes an output and returns its name: the key that the module returns it by, if that is a free name."""
        if not key.isidentifier() or key in self.names.taken:
            self.lines.append(f"output {name}")
            return name
        self.names.taken.add(key)
        self.lines.append(f"output {name} as {key}")
        return key

    def begun(self, items: Sequence[Item]) -> Iterator[Value]:
        """The values that repeats begin with and that nothing later reads. They share a name with what the repeats
        carry.
        """
        repeats = [item for item in items if isinstance(item, Repeat)]
        for repeat in repeats:
            for value, _ in repeat.carried:
                carried = any(value in other.results(-1) for other in repeats)
                if value.kind == "made" and not carried and not self.is_read_beside(value, repeat):
                    yield value

    # ------------------------------------------------------------------------------------------ weights

    def declare(self, values: Sequence[Value], prefix: tuple[str, ...], indent: str) -> None:
        around = ".".join(prefix) + "." if prefix else ""
        for value in values:
            own = (value.state or value.name).removeprefix(around).removeprefix(self.around)
            own = f"{own}_{value.part.word}" if value.part is not None else own
            name = self.given[value] = self.names.fresh(own, *([f"{prefix[-2]}_{own}"] if len(prefix) > 1 else []))
            kind = "f32" if value.bound is None else f"int<{value.bound}>"
            word = "weight" if value.kind == "weight" else "buffer"
            shape = ", ".join(map(str, value.shape))
            self.lines.append(f"{indent}{word} {name}: {kind}[{shape}] ~ {self.initialiser(value)}")
            if not prefix:
                self.weights[name] = Stored(value.state, value.part)

    def initialiser(self, value: Value) -> str:
        """Chooses, among the initialisers that fit a tensor, the one that fits the most tensors of the model."""
        return max(self.initialisers[value], key=self.common.__getitem__)

    # ------------------------------------------------------------------------------------------ statements

    def repeat(self, repeat: Repeat) -> None:
        """Writes layers as one `repeat`, in which a carried result has the name of what the first layer reads."""
        carried, before = [], {value: self.given[value] for value, _ in repeat.carried}
        for value, place in repeat.carried:
            if value.kind != "made" or self.is_read_beside(value, repeat):
                name = self.names.fresh("x", "h")
                self.lines.append(f"{name} = {self.given[value]}")
                self.given[value] = name
            carried.append((self.given[value], place))
        name = self.label(repeat)
        self.paths[len(self.lines)] = repeat.prefixes[0]
        around, last = repeat.prefixes[-1][:-1], int(repeat.prefixes[-1][-1])
        more = self.left_out.get(around, 0) if last == KEPT - 1 else 0
        self.lines.append(f"repeat {len(repeat.layers) + more} as {name}")
        values, prefix = repeat.own[0], repeat.prefixes[0]
        self.declare(values, prefix, "  ")
        for number, layer in enumerate(repeat.own):
            for value, other in zip(values, layer, strict=True):
                self.weights[f"{name}.{number}.{self.given[value]}"] = Stored(other.state, other.part)
        results = results_of(repeat.body)
        late = {place: own for own, place in carried if self.is_read_later(own, results[place], repeat)}
        for own, place in carried:
            if place not in late:
                self.given[results[place]] = own
        for statement in repeat.body:
            self.add(statement, prefix, "  ")
        for place, own in late.items():
            self.lines.append(f"  {own} = {self.given[results[place]]}")
        self.given |= before
        for own, place in carried:
            self.given[repeat.results(-1)[place]] = own

    def label(self, repeat: Repeat) -> str:
        """A name for a repeat, which may be the reserved name of a size."""
        if repeat.name in self.reserved:
            self.reserved.discard(repeat.name)
            return repeat.name
        return self.names.fresh(repeat.name)

    def is_read_beside(self, value: Value, repeat: Repeat) -> bool:
        """Whether an output reads a value, or a statement outside the repeat that comes after its beginning."""
        inside = {id(statement) for layer in repeat.layers for statement in layer}
        readers = [s for s in self.model.statements if any(operand.value is value for operand in s.operands)]
        places = {id(statement): place for place, statement in enumerate(self.model.statements)}
        first = min(places[id(statement)] for statement in repeat.body)
        return any(id(reader) not in inside and places[id(reader)] > first for reader in readers) or any(
            view.value is value for _, view in self.model.outputs
        )

    def is_read_later(self, name: str, result: Value, repeat: Repeat) -> bool:
        """Whether a layer reads the carried value of a name after it has made the value that replaces it."""
        begun = [value for value, _ in repeat.carried if self.given[value] == name]
        after = False
        for statement in repeat.body:
            if after and any(operand.value in begun for operand in statement.operands):
                return True
            after = after or result in statement.results
        return False

    def add(self, statement: Statement, prefix: tuple[str, ...], indent: str) -> None:
        """Writes the lines of a statement, with the path of its module."""
        for line in self.statement(statement, prefix):
            self.paths[len(self.lines)] = statement.path
            self.lines.append(indent + line)

    def statement(self, statement: Statement, prefix: tuple[str, ...]) -> Iterator[str]:
        words = statement.path[len(prefix) :]
        weights = [operand.value for operand in statement.operands if operand.value.kind == "weight"]
        named = [words[-1], "_".join(words[-2:])] if weights and words else [self.noun(statement)]
        part = weights[-1].part if weights and statement.operator not in self.model.blocks else None
        if part is not None:
            named = [f"{word}_{part.word}" for word in named]
        for result in statement.results:
            if result not in self.given:
                self.given[result] = self.names.fresh(*named)
        made = ", ".join(self.given[result] for result in statement.results)
        yield f"{made} = {self.call(statement)}"
        for buffer, view in self.model.updates:
            if view.value in statement.results:
                yield f"update {self.given[buffer]} = {self.read(view)}"

    def noun(self, statement: Statement) -> str:
        """The base name of a result that no module gives a name."""
        if statement.operator == "slice":
            return f"{self.given[statement.operands[0].value]}_part"
        return _NOUNS.get(statement.operator, statement.operator)

    def call(self, statement: Statement) -> str:
        operands = [self.read(operand) for operand in statement.operands]
        if statement.operator in _SIGNS and all("->" not in operand for operand in operands):
            return f" {_SIGNS[statement.operator]} ".join(operands)
        if statement.operator == "rearrange":
            return operands[0]
        examples = "b" if self.batch else str(self.model.examples)
        settings = {key: text.replace(EXAMPLES, examples) for key, text in statement.settings.items()}
        if "kept" in settings:
            letters = [f"a{place}" for place in range(len(statement.operands[0].dims))]
            kept = ", ".join(letters[int(place)] for place in settings.pop("kept").split())
            operands[0] += f"[{', '.join(letters)}] -> [{kept}]"
        told = ", ".join(f"{key}={value}" for key, value in settings.items())
        if statement.operator in self.model.blocks:
            return f"{statement.operator}{f'[{told}]' if told else ''}({', '.join(operands)})"
        return f"{statement.operator}({', '.join(operands)}{f'; {told}' if told else ''})"

    def read(self, view: View) -> str:
        return view.text(self.given[view.value])


_NOUNS = {
    **dict.fromkeys(("causal_attention", "full_attention", "masked_attention", "window_attention"), "attended"),
    "matmul": "product",
    "mul": "product",
    "add": "total",
    "scale": "scaled",
    "root_scale": "scaled",
    "softmax": "weights",
    "rope": "turned",
    "rearrange": "rearranged",
    "concat": "joined",
    "layer_norm": "normed",
    "rms_norm": "normed",
}
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


def _around(states: Sequence[str]) -> str:
    """The first part that all paths `model/layer/kernel` share, as those of one Keras model; empty if there is none."""
    firsts = {"".join(state.partition("/")[:2]) for state in states}
    return firsts.pop() if len(firsts) == 1 and all("/" in state for state in states) else ""
