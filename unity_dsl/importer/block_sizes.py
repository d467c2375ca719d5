"""Parameters of a block: the numbers in which similar modules differ, named after their attributes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from math import isclose

from torch import nn

from .text_lines import Quantity

MUCH = 2.0
"""If standard deviations differ by more than this factor, the modules are taken to use different initialisers."""


@dataclass(frozen=True)
class Place:
    """The place of a number in a block: a `word` to name it, and whether it is a setting that a call may leave out. An
    initialiser is one number as a whole, named after what it initialises. It becomes a parameter only if it
    `may_differ`.
    """

    word: str
    is_initialiser: bool = False
    may_differ: bool = True
    has_default: bool = False


@dataclass(frozen=True)
class Sizing:
    """The numbers of a block: `head` declares its parameters, and `body` has the numbers of its lines in terms of
    these. `arguments` are the values of each call by name, `usual` the defaults that a call may leave out.
    """

    head: str
    body: tuple[Quantity, ...]
    arguments: tuple[Mapping[str, Quantity], ...]
    usual: Mapping[str, str]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.arguments[0])


def sizing_of(
    columns: Sequence[Sequence[Quantity]],
    modules: Sequence[nn.Module | None],
    places: Sequence[Place],
    taken: Collection[str],
) -> Sizing:
    """The numbers of a block, from the numbers of modules at the same places.

    Places that have the same numbers in every module share one parameter. The value of a setting in most modules is
    its default.
    """
    names: dict[tuple[str, ...], str] = {}
    values: dict[str, tuple[Quantity, ...]] = {}
    body = []
    defaults = set[str]()
    for number, place in enumerate(places):
        row = tuple(column[number] for column in columns)
        row, around = _initialisers(row, place) if place.is_initialiser else (row, "{}")
        key = tuple(one.text for one in row)
        if len(set(key)) == 1:
            body.append(row[0])
            continue
        if key not in names:
            wanted = _words([one.value for one in row], modules, place)
            names[key] = next(name for name in wanted if name not in taken and name not in values)
            values[names[key]] = row
        if place.has_default:
            defaults.add(names[key])
        body.append(Quantity(row[0].value, around.format(names[key])))
    usual = {name: text for name in values if name in defaults and (text := _usual(values[name])) is not None}
    ordered = [*(name for name in values if name not in usual), *usual]
    head = ", ".join(f"{name} = {usual[name]}" if name in usual else name for name in ordered)
    arguments = tuple({name: values[name][place] for name in ordered} for place in range(len(columns)))
    return Sizing(f"[{head}]" if head else "", tuple(body), arguments, usual)


def _initialisers(row: tuple[Quantity, ...], place: Place) -> tuple[tuple[Quantity, ...], str]:
    """The numbers of initialisers and the text around them, if only the numbers differ, and by more than chance
    explains. Otherwise all modules get the most frequent initialiser, so that chance does not decide which are
    similar.
    """
    kinds = {one.text.partition("(")[0] for one in row}
    deviations = [abs(one.value) for one in row]
    differ = kinds == {"constant"} or (kinds == {"normal"} and max(deviations) > MUCH * min(deviations))
    if place.may_differ and differ:
        numbers = (Quantity(one.value, one.text.partition("(")[2].removesuffix(")")) for one in row)
        return tuple(numbers), f"{kinds.pop()}({{}})"
    most, _ = Counter(one.text for one in row).most_common(1)[0]
    return (next(one for one in row if one.text == most),) * len(row), "{}"


def _usual(row: Sequence[Quantity]) -> str | None:
    """The number that most modules have, if it is plain."""
    text, times = Counter(one.text for one in row).most_common(1)[0]
    plain = next(one for one in row if one.text == text).value == _plain(text)
    return text if 2 * times > len(row) and plain else None


def _plain(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _words(values: Sequence[float], modules: Sequence[nn.Module | None], place: Place) -> Iterator[str]:
    """Names for a number with these values in the modules: attributes, also with their path, then the word of the
    place.
    """
    attributes = [] if place.is_initialiser else list(_attributes(values, modules))
    yield from (name for _, name in attributes if name == place.word)
    yield from (name for _, name in attributes)
    yield from (f"{path}_{name}" for path, name in attributes if path.isidentifier())
    yield from chain((place.word,), (f"{place.word}_{number}" for number in count(2)))


def _attributes(values: Sequence[float], modules: Sequence[nn.Module | None]) -> Iterator[tuple[str, str]]:
    """The attributes that have these values, each after the path of the submodule that has it."""
    found = [module for module in modules if module is not None]
    if len(found) < len(values):
        return
    inside = [dict(module.named_modules()) for module in found]
    for path, part in inside[0].items():
        if any(path not in other for other in inside):
            continue
        for name, value in vars(part).items():
            if name.startswith("_") or _number(value) is None or not name.isidentifier():
                continue
            others = (_number(getattr(other[path], name, None)) for other in inside)
            if all(one is not None and isclose(one, value) for one, value in zip(others, values, strict=True)):
                yield path.replace(".", "_"), name


def _number(value: object) -> float | None:
    """A number, or the common value of a sequence of equal ones."""
    if isinstance(value, tuple | list) and value and all(one == value[0] for one in value):
        value = value[0]
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
