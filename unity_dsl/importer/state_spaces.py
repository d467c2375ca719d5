"""Selective state spaces, whose code loops over the positions of a sequence: each becomes a block with a `scan`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .block_calls import called_block
from .blocks import Block
from .translation import Entry, Translation
from .whole_calls import FUNCTIONS, Replacement, Result, WholeCall

_TEXT = """\
## A selective state space (Gu, Dao 2023): every feature has `n` states, which each position decays and adds to.
block selective_scan[n]({operands})
  steps = {steps}
  h = start_state(hidden_states[b, d, s] -> [b, d, s, 1]; size=n)
  scan x_t in hidden_states along 2, t in steps along 2, b_t in B along 2, c_t in C along 2 as step
    added = (t * x_t)[b, d] -> [b, d, 1] * (b_t[b, n] -> [b, 1, n])
    h = exp((t[b, d] -> [b, d, 1]) * A) * h + added
    collect (matmul(h, c_t[b, n] -> [b, n, 1]))[b, d, 1] -> [b, d] as y along 2
  return {results}
"""


def _scanned(walk: Translation, call: WholeCall) -> list[Entry]:
    """The outputs of a selective scan whose states start at zero, and its last states if they are asked for."""
    given = call.given
    steps = "dt + (delta_bias[d] -> [d, 1])" if "delta_bias" in given else "dt"
    steps = f"softplus({steps})" if call.plain["delta_softplus"] else steps
    results = "(y + hidden_states * (D[d] -> [d, 1]))" if "D" in given else "y"
    results = f"{results} * silu(z)" if "z" in given else results
    results = f"{results}, h" if call.plain["return_last_state"] else results
    text = _TEXT.format(operands=", ".join(given), steps=steps, results=results)
    return called_block(walk, call, Block(text, n=walk.view(given["A"]).shape[1]))


def _returned(values: Mapping[str, Any]) -> Any:
    """A tensor like the input, and the states of all features after the last position if they are asked for."""
    x, rates = values["hidden_states"], values["A"]
    made = Result.like(x)
    return (made, Result((x.shape[0], *rates.shape), x.dtype)) if values["return_last_state"] else made


_SCAN = Replacement(_scanned, _returned)
for _family in ("mamba", "falcon_mamba", "jamba", "zamba"):
    FUNCTIONS[f"transformers.models.{_family}.modeling_{_family}.mamba_selective_scan"] = _SCAN
