"""Paths of Keras layers in the form of torch's module paths, and repetitions among layers that have no such path."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from torch import nn

LONGEST_PERIOD = 64
"""The most layers of a period that is searched for as a repetition."""


def layer_paths(module: nn.Module) -> dict[int, str]:
    """The paths of Keras operations and layers by identity, in the form of torch's module paths: `layers.0.attention`.

    Layers in a list attribute are named by the attribute and their number. Repeated sequences of layers in a
    functional or sequential model become a list as well.
    """
    found: dict[int, str] = {}
    _note_paths(module, (), found)
    return found


def _note_paths(module: Any, path: tuple[str, ...], found: dict[int, str]) -> None:
    for own, child in _children(module, is_inside=bool(path)):
        if id(child) not in found:
            found[id(child)] = ".".join((*path, *own))
            _note_paths(child, (*path, *own), found)


def _children(module: Any, *, is_inside: bool) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The children of a module, with names relative to it. Inside another module, names lack the numbers that Keras
    appends.
    """
    operations = module.layers if isinstance(module, sys.modules["keras"].Sequential) else []
    operations = operations or getattr(module, "operations", [])
    names = [one.name.replace(".", "_") for one in operations]
    if is_inside:
        names = list(_renumbered([_plain_name(one) for one in operations]))
    yield from _in_order(operations, names)
    for name, part in vars(module).items():
        members = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list | tuple) else ()
        for key, one in members:
            if name == "_modules" and not isinstance(one, nn.ParameterDict):
                yield (str(key).lstrip("_"),), one
            elif not name.startswith("_") and isinstance(one, nn.Module):
                yield (name, str(key)), one


def _in_order(operations: Sequence[Any], names: Sequence[str]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Operations in the order of their calls. A repetition becomes a list, whose members are named as in its first
    period.
    """
    forms = [_form(operation) for operation in operations]
    place, lists = 0, set[str]()
    while place < len(operations):
        period, times = _repetition(forms, place)
        if times < 2:
            yield (names[place],), operations[place]
            place += 1
            continue
        word = _plain_name(operations[place]) if period == 1 else "layers"
        around = next(one for one in numbered(word) if one not in lists)
        lists.add(around)
        for number in range(times * period):
            own = (names[place + number % period],) if period > 1 else ()
            yield (around, str(number // period), *own), operations[place + number]
        place += times * period


def _plain_name(operation: Any) -> str:
    """The name of an operation, without the number that Keras appends to the name of its class."""
    name: str = operation.name.replace(".", "_")
    plain = re.sub(r"_\d+$", "", name)
    return plain if plain.replace("_", "") == type(operation).__name__.lower() else name


def _renumbered(names: Sequence[str]) -> Iterator[str]:
    """The names, with a number appended to each repeated one."""
    taken = set[str]()
    for name in names:
        found = next(one for one in numbered(name) if one not in taken)
        taken.add(found)
        yield found


def _repetition(forms: Sequence[tuple[str, object]], first: int) -> tuple[int, int]:
    """The period at a position whose repetitions cover the most operations, and how often it repeats."""
    best = 1, 1
    for period in range(1, min(LONGEST_PERIOD, (len(forms) - first) // 2) + 1):
        times, wanted = 1, forms[first : first + period]
        while forms[first + times * period : first + (times + 1) * period] == wanted:
            times += 1
        if times > 1 and any(shapes for _, shapes in wanted) and period * times > best[0] * best[1]:
            best = period, times
    return best


def _form(operation: Any) -> tuple[str, object]:
    """A key that is equal for layers of one class with equal weight shapes."""
    shapes = tuple(tuple(variable.shape) for variable in getattr(operation, "weights", ()))
    return type(operation).__name__, shapes


def numbered(name: str) -> Iterator[str]:
    """The name, then the name with numbers from 2 on."""
    yield name
    yield from (f"{name}_{number}" for number in count(2))
