"""Parses counterexamples from the tables that an audit prints."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

Place = tuple[int, ...]


@dataclass(frozen=True)
class Shown:
    """The contents of a table: sizes, inputs by place, and where the values or shapes of the two sides differ."""

    sizes: Mapping[str, int]
    inputs: Mapping[str, Mapping[Place, float]]
    output: int
    position: Place
    shapes: bool
    evaluation: bool = False


def read_table(text: str) -> Shown:
    """Reads a table printed by `counterexample_table`. Raises ValueError if the table leaves out elements."""
    rows = dict(re.split(r" {2,}", line, maxsplit=1) for line in text.splitlines())
    sizes = {name: int(size) for name, size in re.findall(r"([\w.]+) = (\d+)", rows.pop("sizes"))}
    evaluation = rows.pop("mode", "") == "outside training"
    (left,) = (name for name in rows if name.endswith(", left"))
    shape = rows.pop(left).startswith("of shape")
    rows.pop(left.replace(", left", ", right"))
    found = re.fullmatch(r"output ?(\d*)(?:\[(.*)\])?, left", left)
    assert found is not None
    position = _place(found[2] or "")
    inputs = {name: _elements(value) for name, value in rows.items()}
    return Shown(sizes, inputs, int(found[1] or 0), position, shape, evaluation)


def _elements(text: str) -> Mapping[Place, float]:
    """Parses the elements of `[[1, 0]]` or `of shape [1, 2]: [0, 0] = 1, else 0`."""
    if not text.startswith("of shape"):
        array = np.asarray(json.loads(text))
        return {place: float(array[place]) for place in product(*map(range, array.shape))}
    if "more that are not 0" in text:
        raise ValueError(f"elements are left out: {text}")
    shape, _, others = text.removeprefix("of shape ").partition(": ")
    named = {_place(place): float(value) for place, value in re.findall(r"\[([\d, ]*)\] = ([-\d.e]+)", others)}
    return {place: named.get(place, 0.0) for place in product(*map(range, _place(shape.strip("[]"))))}


def _place(text: str) -> Place:
    return tuple(int(part) for part in text.split(",") if part.strip())
