"""What emitted programs call values to which the model's author gave no name."""

from __future__ import annotations

import re
from collections.abc import Container

from .graph import Node, Value

REARRANGED = "rearrange"
"""The operator that only moves the elements of a tensor."""


def spoken_name(node: Node, value: Value, operators: Container[str]) -> str:
    """A value's own name; of one that is called `linear_1` after one of these operators that name without its number.
    What is rearranged is called after what it is made of: `q_rearranged`.
    """
    stem, _, number = value.name.rpartition("_")
    if not number.isdecimal() or stem.rpartition(".")[2] not in operators:
        return value.name
    if node.instance.name != REARRANGED or not node.arguments:
        return stem
    of = re.sub(r"_\d+\Z", "", node.arguments[0].name)
    return of if of.endswith("_rearranged") else f"{of}_rearranged"
