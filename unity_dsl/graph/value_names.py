"""What emitted programs call values to which the model's author gave no name."""

from __future__ import annotations

import re
from collections.abc import Container

from .graph import Node, Value

REARRANGED = "rearrange"
"""The operator that only moves the elements of a tensor."""


def spoken_name(node: Node, value: Value, operators: Container[str]) -> str:
    """The name of a value in a program. A value that is called `linear_1` after one of these operators loses its
    number. A rearranged one is called after its operand: `q_rearranged`.
    """
    stem, _, number = value.name.rpartition("_")
    if not number.isdecimal() or stem.rpartition(".")[2] not in operators:
        return value.name
    if node.instance.name != REARRANGED or not node.arguments:
        return stem
    of = re.sub(r"_\d+\Z", "", node.arguments[0].name)
    return of if of.endswith("_rearranged") else f"{of}_rearranged"
