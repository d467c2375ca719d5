"""Recurrent layers, each a block that scans the positions of a sequence."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from .blocks import Block
from .operators import linear, spread, unary
from .tensor_parts import joined, part_of
from .translation import Entry, Translation, Unsupported, filled, handles
from .views import Value, View, whole

_LSTM = """\
## A layer of an LSTM along the sequence, from what its inputs add to the gates.
block lstm_layer[d](gates, w{bias})
  c = start_state(gates; size=d)
  h = start_state(gates; size=d)
  scan z in gates along 1 as step
    c, h = lstm_cell((z + {product})[b, (g=4 d)] -> [b, g, d], c)
    collect h as y
  return y, c
"""
_GRU = """\
## A layer of a GRU along the sequence, from what its inputs add to the gates.
block gru_layer[d](gates, w{bias})
  h = start_state(gates; size=d)
  scan z in gates along 1 as step
    u = {product}
    h = gru_cell(z[b, (g=3 d)] -> [b, g, d], u[b, (g=3 d)] -> [b, g, d], h)
    collect h as y
  return y, h
"""
_RNN = """\
## A layer of an Elman network along the sequence, from what its inputs add to the state.
block rnn_layer[d](gates, w{bias})
  h = start_state(gates; size=d)
  scan z in gates along 1 as step
    h = tanh(z + {product})
    collect h as y
  return y, h
"""


def _block(text: str, *, biased: bool) -> Block:
    name = text.partition("block ")[2].partition("[")[0]
    words = (
        {"bias": ", bias", "product": "linear_bias(h, w, bias)"} if biased else {"bias": "", "product": "linear(h, w)"}
    )
    return Block(
        name if biased else f"{name}_unbiased",
        text.format(**words).replace(name, name if biased else f"{name}_unbiased"),
    )


@handles("lstm.input")
def _lstm(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    return _layers(walk, _LSTM, args)


@handles("gru.input")
def _gru(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    return _layers(walk, _GRU, args)


@handles("rnn_tanh.input")
def _rnn(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    return _layers(walk, _RNN, args)


def _layers(walk: Translation, text: str, args: list[Entry]) -> Entry:
    """The layers of a recurrent network: its states at all positions, and what is left at the last one."""
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
    block = _block(text, biased=biased)
    for layer in range(layers):
        parts = []
        for direction in range(directions):
            first = each * (directions * layer + direction)
            given = [walk.view(weight) for weight in weights[first : first + each]]
            y, state = _layer(walk, block, made, given, backward=direction == 1)
            end = 0 if direction else y.shape[1] - 1
            lasts[0].append(_at(part_of(walk, y, 1, end, end + 1)))
            lasts[1].append(state)
            parts.append(y)
        made = joined(walk, parts, 2) if both else parts[0]
        if dropout and layer < layers - 1:
            made = unary(walk, "dropout", made, p=dropout)
    result = made if batch_first else made.permuted((1, 0, 2))
    ends = [_stacked(walk, part) for part in (lasts if text is _LSTM else lasts[:1])]
    return [result, *ends]


def _at(view: View) -> View:
    return view.arranged((view.dims[0], view.dims[2]))


def _stacked(walk: Translation, parts: list[View]) -> View:
    return (
        joined(walk, [part.arranged(((), *part.dims)) for part in parts], 0)
        if len(parts) > 1
        else parts[0].arranged(((), *parts[0].dims))
    )


def _layer(walk: Translation, block: Block, x: View, weights: Sequence[View], *, backward: bool) -> tuple[View, View]:
    given, own, *biases = weights
    gates = linear(walk, x, given, biases[0] if biases else None)
    gates = _reversed(walk, gates) if backward else gates
    size = own.shape[1]
    results = Value((*x.shape[:2], size)), Value((x.shape[0], size))
    operands = (gates, own, *biases[1:])
    walk.call(block, operands, results, {"d": size})
    y = whole(results[0])
    return (_reversed(walk, y) if backward else y), whole(results[1])


def _reversed(walk: Translation, view: View) -> View:
    return walk.make("flip", spread(walk, view), shape=view.shape, dim=1)
