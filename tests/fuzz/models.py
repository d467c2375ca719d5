"""Random small models over the shipped operators, as `.udl` text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from random import Random

Shape = tuple[int, ...]
SIZES = (2, 4, 4, 8, 3)
LARGEST = 512
"""Bound on the elements of a tensor: a case must stay a fraction of a second."""


def random_model(rng: Random) -> str:
    """The text of a model whose every input and weight reaches the loss."""
    writer = _Writer(rng)
    writer.first_inputs()
    for _ in range(rng.randint(2, 6)):
        rng.choice(STEPS)(writer)
    return writer.finish()


@dataclass
class _Writer:
    """The model so far. `tensors` are those that a later step may read, `unread` those that nothing has read yet."""

    rng: Random
    lines: list[str] = field(default_factory=list)
    tensors: dict[str, Shape] = field(default_factory=dict)
    unread: dict[str, None] = field(default_factory=dict)
    weights: dict[str, Shape] = field(default_factory=dict)
    indent: str = "  "
    count: int = 0

    # ------------------------------------------------------------------------------------------ writing

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def input(self, shape: Shape, integers: int | None = None) -> str:
        name = self.fresh("x")
        dtype = "f32" if integers is None else f"int<{integers}>"
        self.line(f"input {name}: {dtype}{list(shape)}")
        return name

    def weight(self, *shape: int, scale: float = 0.5) -> str:
        name = self.fresh("w")
        initialiser = self.rng.choice([f"normal({scale})", f"uniform(-{scale}, {scale})", "zeros"])
        self.line(f"weight {name}: f32{list(shape)} ~ {initialiser}")
        self.weights[name] = shape
        return name

    def buffer(self, *shape: int) -> str:
        name = self.fresh("m")
        self.line(f"buffer {name}: f32{list(shape)} ~ {self.rng.choice(['uniform(-1, 1)', 'ones'])}")
        return name

    def assign(self, value: str, shape: Shape) -> str:
        name = self.fresh("t")
        self.line(f"{name} = {value}")
        self.tensors[name] = shape
        self.unread[name] = None
        return name

    def read(self, name: str) -> str:
        self.unread.pop(name, None)
        return name

    # ------------------------------------------------------------------------------------------ choosing

    def tensor(self, least: int = 0, most: int = 4, where: Callable[[Shape], bool] = lambda shape: True) -> str | None:
        """A tensor with a rank in the given range, recent ones more often; None if there is none."""
        fitting = [n for n, s in self.tensors.items() if least <= len(s) <= most and where(s)]
        if not fitting:
            return None
        return self.read(fitting[-1] if self.rng.random() < 0.6 else self.rng.choice(fitting))

    def size(self, room: int) -> int:
        """A size such that a tensor of `room` elements per unit stays small."""
        fitting = [size for size in SIZES if size * room <= LARGEST]
        return self.rng.choice(fitting or [1])

    # ------------------------------------------------------------------------------------------ beginning and end

    def first_inputs(self) -> None:
        batch = self.rng.choice((4, 4, 8, 2, 6))
        shape = (batch, *(self.rng.choice(SIZES) for _ in range(self.rng.randint(1, 2))))
        kind = self.rng.random()
        if kind < 0.4:
            rows, vocabulary, width = shape[:-1], self.rng.choice((4, 8, 5)), self.rng.choice((4, 8))
            ids = self.input(rows, vocabulary)
            table = self.weight(vocabulary, width)
            self.assign(f"embedding({ids}, {table})", (*rows, width))
        else:
            # An input by itself carries no gradient; what is computed from it and a weight does.
            name = self.input(shape)
            self.tensors[name] = shape
            if kind < 0.8:
                out = self.rng.choice((4, 8))
                self.assign(f"linear({self.read(name)}, {self.weight(out, shape[-1])})", (*shape[:-1], out))
            else:
                self.assign(f"{self.read(name)} * {self.weight(shape[-1])}", shape)

    def finish(self) -> str:
        losses = []
        last = next(reversed(self.unread), None) or self.tensor()
        assert last is not None
        self.read(last)
        shape = self.tensors[last]
        if len(shape) >= 2 and shape[-1] > 1 and self.rng.random() < 0.6:
            target = self.input(shape[:-1], shape[-1])
            losses.append(f"cross_entropy({last}, {target})")
        else:
            losses.append(f"mse({last}, {self.input(shape)})")
        for name in list(self.unread):
            axes = [f"i{k}" for k in range(len(self.tensors[name]))]
            reduce = self.rng.choice(("reduce_mean", "reduce_sum"))
            losses.append(f"{reduce}({name}[{', '.join(axes)}] -> []) * 0.125")
        # A model's gradients may all vanish (the sum of a softmax), and then there is nothing but rounding to compare:
        # the first tensor made of a weight gets a loss of its own.
        first = next(name for name in self.tensors if name.startswith("t"))
        losses.append(f"mse({first}, {self.input(self.tensors[first])})")
        names = []
        for value in losses:
            names.append(self.fresh("loss"))
            self.line(f"{names[-1]} = {value}")
        self.line("loss " + " + ".join(names))
        for name in self.rng.sample(list(self.tensors), k=min(len(self.tensors), self.rng.randint(0, 2))):
            self.line(f"output {name}")
        return "model fuzz[b = 4]\n" + "\n".join(self.lines) + "\n"


# ---------------------------------------------------------------------------------------------- steps


def _linear(w: _Writer) -> None:
    x = w.tensor(1, 3)
    if x is None:
        return
    shape = w.tensors[x]
    tied = [name for name, s in w.weights.items() if len(s) == 2 and s[1] == shape[-1]]
    if tied and w.rng.random() < 0.4:
        weight = w.rng.choice(tied)
        out = w.weights[weight][0]
    else:
        out = w.size(prod(shape[:-1]))
        weight = w.weight(out, shape[-1])
    y = w.assign(f"linear({x}, {weight})", (*shape[:-1], out))
    if w.rng.random() < 0.5:
        w.assign(f"{w.read(y)} + {w.weight(out)}", (*shape[:-1], out))


def _elementwise(w: _Writer) -> None:
    x = w.tensor()
    if x is None:
        return
    forms = ("relu({})", "gelu({})", "gelu_tanh({})", "tanh({})", "sigmoid({})", "exp(tanh({}))", "-{}")
    forms += ("{} * 0.5", "{} + 0.25", "1 - {}", "{0} / (sigmoid({0}) + 0.5)")
    w.assign(w.rng.choice(forms).format(x), w.tensors[x])


def _binary(w: _Writer) -> None:
    x = w.tensor()
    if x is None:
        return
    shape = w.tensors[x]
    operator = w.rng.choice("+-*")
    choice = w.rng.random()
    if choice < 0.5:
        y = w.tensor(where=lambda other: other == shape)
    elif choice < 0.75 and shape:
        # Broadcasting: a weight of fewer dimensions, or with dimensions of 1.
        kept = w.rng.randrange(len(shape))
        y = w.weight(*(size if w.rng.random() < 0.5 else 1 for size in shape[kept:]))
    elif choice < 0.9:
        y = w.weight(*shape)
    else:
        y = w.buffer(*shape)
    w.assign(f"{x} {operator} {y}", shape)


def _softmax(w: _Writer) -> None:
    if (x := w.tensor(1)) is not None:
        w.assign(f"softmax({x})", w.tensors[x])


def _layer_norm(w: _Writer) -> None:
    x = w.tensor(1, where=lambda shape: shape[-1] > 2)
    if x is not None:
        width = w.tensors[x][-1]
        w.assign(f"layer_norm({x}, {w.weight(width)}, {w.weight(width)})", w.tensors[x])


def _dropout(w: _Writer) -> None:
    if (x := w.tensor(1)) is not None:
        w.assign(f"dropout({x}; p = {w.rng.choice((0.1, 0.5))})", w.tensors[x])


def _view(w: _Writer) -> None:
    """Split one dimension, permute, and perhaps merge two neighbours."""
    x = w.tensor(1, 3)
    if x is None:
        return
    shape = w.tensors[x]
    names = [f"i{k}" for k in range(len(shape))]
    factors: list[tuple[str, int]] = list(zip(names, shape, strict=True))
    source = list(names)
    even = [k for k, size in enumerate(shape) if size % 2 == 0 and size > 2]
    if even and w.rng.random() < 0.7:
        k = w.rng.choice(even)
        source[k] = f"(p=2 {names[k]})"
        factors[k : k + 1] = [("p", 2), (names[k], shape[k] // 2)]
    w.rng.shuffle(factors)
    target, sizes = [n for n, _ in factors], [s for _, s in factors]
    if len(factors) > 1 and w.rng.random() < 0.6:
        k = w.rng.randrange(len(factors) - 1)
        target[k : k + 2] = [f"({target[k]} {target[k + 1]})"]
        sizes[k : k + 2] = [sizes[k] * sizes[k + 1]]
    w.assign(f"{x}[{', '.join(source)}] -> [{', '.join(target)}]", tuple(sizes))


def _slice(w: _Writer) -> None:
    x = w.tensor(1, where=lambda shape: max(shape) > 2)
    if x is None:
        return
    shape = w.tensors[x]
    dim = w.rng.choice([k for k, size in enumerate(shape) if size > 2])
    start = w.rng.randrange(shape[dim] - 1)
    stop = w.rng.randint(start + 1, shape[dim])
    sliced = (*shape[:dim], stop - start, *shape[dim + 1 :])
    w.assign(f"slice({x}; dim = {dim}, start = {start}, stop = {stop})", sliced)


def _concat(w: _Writer) -> None:
    x = w.tensor(1, where=lambda shape: prod(shape) <= LARGEST // 2)
    if x is None:
        return
    shape = w.tensors[x]
    dim = w.rng.randrange(len(shape))
    y = w.tensor(where=lambda s: len(s) == len(shape) and s[:dim] == shape[:dim] and s[dim + 1 :] == shape[dim + 1 :])
    assert y is not None
    joined = (*shape[:dim], shape[dim] + w.tensors[y][dim], *shape[dim + 1 :])
    if prod(joined) <= 2 * LARGEST:
        w.assign(f"concat({x}, {y}; dim = {dim})", joined)


def _split(w: _Writer) -> None:
    x = w.tensor(1, where=lambda shape: any(size % 2 == 0 for size in shape))
    if x is None:
        return
    shape = w.tensors[x]
    dim = w.rng.choice([k for k, size in enumerate(shape) if size % 2 == 0])
    half = (*shape[:dim], shape[dim] // 2, *shape[dim + 1 :])
    names = [w.fresh("t"), w.fresh("t")]
    w.line(f"{names[0]}, {names[1]} = split({x}; dim = {dim}, parts = 2)")
    for name in names:
        w.tensors[name] = half
        w.unread[name] = None


def _reduce(w: _Writer) -> None:
    x = w.tensor(2)
    if x is None:
        return
    shape = w.tensors[x]
    names = [f"i{k}" for k in range(len(shape))]
    kept = sorted(w.rng.sample(range(len(shape)), k=w.rng.randint(1, len(shape) - 1)))
    kind = w.rng.choice(("sum", "mean", "max"))
    pattern = f"{x}[{', '.join(names)}] -> [{', '.join(names[k] for k in kept)}]"
    w.assign(f"reduce_{kind}({pattern})", tuple(shape[k] for k in kept))


def _attention(w: _Writer) -> None:
    """Scores of a tensor with a projection of itself, weighted values: batched matrix products and a softmax."""
    x = w.tensor(3, 3, where=lambda shape: prod(shape) <= 128)
    if x is None:
        return
    batch, rows, width = w.tensors[x]
    key = w.assign(f"linear({x}, {w.weight(width, width)})", (batch, rows, width))
    transposed = w.assign(f"{w.read(key)}[i, j, k] -> [i, k, j]", (batch, width, rows))
    scores = w.assign(f"matmul({x}, {w.read(transposed)})", (batch, rows, rows))
    if w.rng.random() < 0.5:
        w.line(f"{scores} = causal_mask({scores})")
    weights = w.assign(f"softmax({w.read(scores)})", (batch, rows, rows))
    del w.tensors[scores]  # minus infinity read anywhere else would leave nothing to compare
    w.assign(f"matmul({w.read(weights)}, {x})", (batch, rows, width))


def _repeat(w: _Writer) -> None:
    """Layers with their own weights and a residual, and perhaps a weight that they share."""
    x = w.tensor(1, 3)
    if x is None or w.indent != "  ":
        return
    shape = w.tensors[x]
    width = shape[-1]
    carried = w.assign(f"{x} * 1.0", shape)
    shared = w.weight(width, width) if w.rng.random() < 0.5 else None
    w.line(f"repeat {w.rng.randint(2, 4)} as {w.fresh('layer')}")
    w.indent = "    "
    matrix = w.fresh("w")
    w.line(f"weight {matrix}: f32{[width, width]} ~ normal(0.3)")
    h = w.fresh("h")
    w.line(f"{h} = linear({carried}, {matrix})")
    for form in w.rng.sample(["tanh({})", "dropout({}; p = 0.25)", "softmax({})", "{} * 0.5"], k=w.rng.randint(0, 2)):
        w.line(f"{h} = {form.format(h)}")
    if shared is not None:
        w.line(f"{h} = linear({h}, {shared})")
    if w.rng.random() < 0.3:
        w.line(f"repeat 2 as {w.fresh('inner')}")
        gain = w.fresh("w")
        w.line(f"  weight {gain}: f32{[width]} ~ normal(0.3)")
        w.line(f"  {h} = dropout({h} * {gain}; p = 0.25)")
    w.line(f"{carried} = {carried} + {h}")
    w.indent = "  "


STEPS: tuple[Callable[[_Writer], None], ...] = (
    *(_linear, _linear, _elementwise, _elementwise, _binary, _softmax, _layer_norm, _dropout, _view, _view),
    *(_slice, _concat, _split, _reduce, _attention, _repeat),
)
