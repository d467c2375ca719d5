"""Recurrent layers, each a block that scans the positions of a sequence."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .blocks import Block
from .operators import linear
from .tensor_parts import joined, part_of
from .translation import Entry, Translation, Unsupported, filled, handles, unary
from .views import View


@dataclass(frozen=True)
class _Cell:
    """A recurrent layer: its name, its states, the last of which is its output, and the lines of a step."""

    name: str
    article: str
    states: tuple[str, ...]
    step: tuple[str, ...]


_CELLS = {
    "lstm.input": _Cell("lstm", "an LSTM", ("c", "h"), ("c, h = lstm_cell((z + {h})[b, (g=4 d)] -> [b, g, d], c)",)),
    "gru.input": _Cell(
        "gru",
        "a GRU",
        ("h",),
        ("u = {h}", "h = gru_cell(z[b, (g=3 d)] -> [b, g, d], u[b, (g=3 d)] -> [b, g, d], h)"),
    ),
    "rnn_tanh.input": _Cell("rnn", "an Elman network", ("h",), ("h = tanh(z + {h})",)),
}


def _block(cell: _Cell, size: int, *, biased: bool) -> Block:
    """The block of a layer with this number of states, which scans the contributions of its inputs to the gates."""
    name = f"{cell.name}_layer" if biased else f"{cell.name}_layer_unbiased"
    added = "linear_bias(h, w, bias)" if biased else "linear(h, w)"
    lines = [
        f"## A layer of {cell.article} along the sequence, from what its inputs add to the gates.",
        f"block {name}[d](gates, w{', bias' if biased else ''})",
        *(f"  {state} = start_state(gates; size=d)" for state in cell.states),
        "  scan z in gates along 1 as step",
        *(f"    {line.format(h=added)}" for line in cell.step),
        "    collect h as y",
        f"  return y, {cell.states[0]}",
    ]
    return Block("\n".join(lines) + "\n", d=size)


@handles(*_CELLS)
def _recurrent(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    assert walk.node is not None
    return _layers(walk, _CELLS[str(walk.node.target).removeprefix("aten.")], args)


def _layers(walk: Translation, cell: _Cell, args: list[Entry]) -> Entry:
    """The layers of a recurrent network: the outputs at all positions, and the last states."""
    x, starts, weights, biased, layers, dropout, _, both, batch_first = filled(args, (None,) * 9)
    starts = starts if isinstance(starts, list) else [starts]
    if not all(isinstance(start, Tensor) and not bool(start.any()) for start in starts):
        raise Unsupported("a state to begin with that is not zeros")
    each, directions = (4 if biased else 2), (2 if both else 1)
    if len(weights) != each * layers * directions:
        raise Unsupported("a projection of the states")
    made = walk.view(x)
    if len(made.dims) != 3:
        raise Unsupported("a sequence without a batch")
    made = made if batch_first else made.permuted((1, 0, 2))
    lasts: list[list[View]] = [[], []]
    for layer in range(layers):
        parts = []
        for direction in range(directions):
            first = each * (directions * layer + direction)
            given, own, *biases = weights[first : first + each]
            known = [None if _is_zero(bias) else walk.spread(walk.view(bias)) for bias in biases] or [None, None]
            gates = linear(walk, made, walk.view(given), known[0])
            y, state = _layer(walk, cell, gates, walk.view(own), known[1], backward=direction == 1)
            end = 0 if direction else y.shape[1] - 1
            lasts[0].append(_at(part_of(walk, y, 1, end, end + 1)))
            lasts[1].append(state)
            parts.append(y)
        made = joined(walk, parts, 2) if both else parts[0]
        if dropout and layer < layers - 1:
            made = unary(walk, "dropout", made, p=dropout)
    result = made if batch_first else made.permuted((1, 0, 2))
    ends = [_stacked(walk, part) for part in lasts[: len(cell.states)]]
    return [result, *ends]


def _at(view: View) -> View:
    return view.arranged((view.dims[0], view.dims[2]))


def _stacked(walk: Translation, parts: list[View]) -> View:
    return (
        joined(walk, [part.arranged(((), *part.dims)) for part in parts], 0)
        if len(parts) > 1
        else parts[0].arranged(((), *parts[0].dims))
    )


def _is_zero(bias: Entry) -> bool:
    """Whether a bias is a constant that adds nothing."""
    return isinstance(bias, Tensor) and not bool(bias.any())


def _layer(
    walk: Translation, cell: _Cell, gates: View, own: View, bias: View | None, *, backward: bool
) -> tuple[View, View]:
    """The outputs at all positions and the last state, from the contributions of the inputs to the gates."""
    gates = _reversed(walk, gates) if backward else gates
    size = own.shape[1]
    block = _block(cell, size, biased=bias is not None)
    operands = (gates, own) if bias is None else (gates, own, bias)
    y, last = walk.call(block, operands, ((*gates.shape[:2], size), (gates.shape[0], size)))
    return (_reversed(walk, y) if backward else y), last


def _reversed(walk: Translation, view: View) -> View:
    return walk.make("flip", walk.spread(view), shape=view.shape, dim=1)
