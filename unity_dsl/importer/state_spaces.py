"""Selective state spaces, whose code loops over the positions of a sequence: each becomes a block with a `scan`."""

from __future__ import annotations

from .block_calls import called_block
from .blocks import Block
from .translation import Entry, Translation
from .whole_calls import FUNCTIONS, WholeCall

_HEAD = """\
## A selective state space (Gu, Dao 2023): every feature has `n` states, which each position decays and adds to.
block {name}[n]({operands})
"""
_STEPS = """\
  h = start_state(hidden_states[b, d, s] -> [b, d, s, 1]; size=n)
  scan x_t in hidden_states along 2, t in steps along 2, b_t in B along 2, c_t in C along 2 as step
    added = (t * x_t)[b, d] -> [b, d, 1] * (b_t[b, n] -> [b, 1, n])
    h = exp((t[b, d] -> [b, d, 1]) * A) * h + added
    collect (matmul(h, c_t[b, n] -> [b, n, 1]))[b, d, 1] -> [b, d] as y along 2
"""


def _scanned(walk: Translation, call: WholeCall) -> list[Entry]:
    """The outputs of a selective scan that begins with zeros, and its last states where they are asked for."""
    given, plain = call.given, call.plain
    states = walk.view(given["A"]).shape[1]
    lines = ["  steps = dt"]
    if "delta_bias" in given:
        lines = ["  steps = dt + (delta_bias[d] -> [d, 1])"]
    lines += ["  steps = softplus(steps)"] * bool(plain["delta_softplus"])
    lines += [_STEPS.rstrip()]
    lines += ["  y = y + hidden_states * (D[d] -> [d, 1])"] * ("D" in given)
    lines += ["  y = y * silu(z)"] * ("z" in given)
    lines += ["  return y, h" if plain["return_last_state"] else "  return y"]
    head = _HEAD.format(name="selective_scan", operands=", ".join(given))
    return called_block(walk, call, Block(head + "\n".join(lines) + "\n", n=states))


for _family in ("mamba", "falcon_mamba", "jamba", "zamba"):
    FUNCTIONS[f"transformers.models.{_family}.modeling_{_family}.mamba_selective_scan"] = _scanned
