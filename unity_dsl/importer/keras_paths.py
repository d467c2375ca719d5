"""Paths of Keras's layers, as torch's modules have them, and repetitions among layers that have none."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from torch import nn

LONGEST_PERIOD = 64
"""Of layers that are looked for as a repetition."""


def layer_paths(module: nn.Module) -> dict[int, str]:
    """The paths of Keras's operations and layers by identity, as torch's modules have them: `layers.0.attention`.

    Layers in a list that is an attribute have its name and their number. Layers of a functional or a sequential model
    that follow each other in the same order more than once are a list as well.
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
    """What a module calls, with names relative to it: inside another one without the numbers that Keras gives."""
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
    """Operations in the order of their calls; what repeats is a list, whose members have the names of the first one."""
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
    """The name of an operation, without the number that Keras adds to that of its class."""
    name: str = operation.name.replace(".", "_")
    plain = re.sub(r"_\d+$", "", name)
    return plain if plain.replace("_", "") == type(operation).__name__.lower() else name


def _renumbered(names: Sequence[str]) -> Iterator[str]:
    """The names, those that are there already with a number."""
    taken = set[str]()
    for name in names:
        found = next(one for one in numbered(name) if one not in taken)
        taken.add(found)
        yield found


def _repetition(forms: Sequence[tuple[str, object]], first: int) -> tuple[int, int]:
    """The period from a place on that repeats over most operations, and how often."""
    best = 1, 1
    for period in range(1, min(LONGEST_PERIOD, (len(forms) - first) // 2) + 1):
        times, wanted = 1, forms[first : first + period]
        while forms[first + times * period : first + (times + 1) * period] == wanted:
            times += 1
        if times > 1 and any(shapes for _, shapes in wanted) and period * times > best[0] * best[1]:
            best = period, times
    return best


def _form(operation: Any) -> tuple[str, object]:
    """What is the same for layers that may do the same."""
    shapes = tuple(tuple(variable.shape) for variable in getattr(operation, "weights", ()))
    return type(operation).__name__, shapes


def numbered(name: str) -> Iterator[str]:
    """The name, and the same with numbers from 2 on."""
    yield name
    yield from (f"{name}_{number}" for number in count(2))
