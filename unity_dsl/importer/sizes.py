"""Turns sizes of an imported model into parameters: one size changes at a time, and the texts are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count, islice
from math import ceil, isclose

import torch
from torch import Tensor

from ..syntax.diagnostic import InputError
from .draft import Draft
from .formulas import Formula, Point, are_alike, formula_of, numbers, replaced

Attempt = Callable[[Point, Mapping[int, int]], Draft]
"""Makes the draft of a module whose factory gets other keyword values, called with inputs whose sizes are replaced by
these. Raises InputError where there is no such module.
"""
MODEL, PREPARE, DRAWS = range(3)
"""The parts of a draft's text: the statements of the model, the lines of `prepare`, and the lines that draw a batch."""
_TRIES = 3


@dataclass(frozen=True)
class Sizes:
    """The sizes that became parameters, and the reason why each other size did not."""

    known: tuple[str, ...] = ()
    fixed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Moved:
    """A size that was changed: its new value and the draft of that module."""

    to: float
    draft: Draft


def with_sizes(draft: Draft, keywords: Point, attempt: Attempt) -> tuple[Draft, Sizes]:
    """The draft with sizes as parameters. These are keywords of its factory that explain every number which changes
    with them, and sizes of its inputs that no keyword changes.

    A number is a product of powers of sizes, or a whole multiple of one size plus a constant. Formulas are found from
    one change of each size, and are checked where all sizes change together.
    """
    moved, fixed = dict[str, _Moved](), dict[str, str]()

    def move(name: str, value: float, tries: int) -> None:
        found = _moved(draft, name, islice(_others(value), tries), among)
        if isinstance(found, str):
            fixed[name] = found
        elif found is not None:
            moved[name] = found

    lengths = dict[str, int]()

    def among(point: Point) -> Draft:
        settings = {name: value for name, value in point.items() if name in keywords}
        return attempt(settings, {size: int(point[name]) for name, size in lengths.items() if name in point})

    for name, value in keywords.items():
        move(name, value, _TRIES)
    for word, size in _lengths(draft, list(moved.values())):
        words = chain([word], (f"{word}_{number}" for number in count(2)))
        name = next(free for free in words if free not in {*lengths, *keywords})
        lengths[name] = size
        move(name, size, 1)
        if name not in moved:
            del lengths[name]
    point = {**keywords, **lengths}
    for _ in range(_TRIES):
        formulas, blamed = _formulas(draft, point, moved)
        if not blamed:
            blamed = _disagreeing(draft, formulas, point, moved, among)
        if not blamed:
            break
        for name in blamed:
            fixed[name] = "some of what changes with it is no simple formula"
            del moved[name]
    else:
        fixed |= dict.fromkeys(moved, "several sizes together are no simple formula")
        moved, formulas = {}, {}
    told = {name: why for name, why in fixed.items() if name in keywords}
    return _written(draft, point, moved, formulas), Sizes(tuple(moved), told)


def _others(value: float) -> Iterator[float]:
    """Other values of a size to try: half, double and three quarters, where these are whole; half of a float."""
    if isinstance(value, float):
        yield value / 2
        return
    if value % 2 == 0 and value >= 4:
        yield value // 2
    yield 2 * value
    if value % 4 == 0:
        yield 3 * value // 4


def _moved(draft: Draft, name: str, others: Iterable[float], attempt: Callable[[Point], Draft]) -> _Moved | str | None:
    """The draft for the first of other values that gives one; None if it is the same text; the reason if there is
    none.
    """
    why = "the module allows no other"
    for other in others:
        try:
            found = attempt({name: other})
        except InputError:
            continue
        if not _are_alike(draft, found):
            why = "the model is another one where it changes"
            continue
        return None if _parts(found) == _parts(draft) else _Moved(other, found)
    return why


def _parts(draft: Draft) -> tuple[Sequence[str], ...]:
    """The parts of a draft's text, without initialisers, because their numbers are random."""
    lines = [line.partition(" ~ ")[0] for line in (*draft.model.blocks, *draft.model.lines)]
    return lines, draft.data.lines, draft.data.draws


def _are_alike(draft: Draft, other: Draft) -> bool:
    """Whether two drafts differ in numbers alone and have equal tables."""
    same = _have_same_tables(draft, other)
    return same and all(are_alike(*both) for both in zip(_parts(draft), _parts(other), strict=True))


def _have_same_tables(draft: Draft, other: Draft) -> bool:
    own, others = draft.data.tables, other.data.tables
    return own.keys() == others.keys() and all(torch.equal(own[name], others[name]) for name in own)


_Formulas = Mapping[tuple[int, int, int], Formula]
"""Formulas by part, line and token."""


def _formulas(draft: Draft, point: Point, moved: Mapping[str, _Moved]) -> tuple[_Formulas, set[str]]:
    """Formulas for the numbers that change, and for each number without a formula one size that changes it."""
    found, blamed = dict[tuple[int, int, int], Formula](), set[str]()
    read = _read(draft, point, moved)
    others = {name: _parts(other.draft) for name, other in moved.items()}
    to = {name: other.to for name, other in moved.items()}
    for part, lines in enumerate(_parts(draft)):
        columns = {name: [value for _, _, value in numbers(other[part])] for name, other in others.items()}
        for index, (row, place, value) in enumerate(numbers(lines)):
            changed = {name: column[index] for name, column in columns.items() if column[index] != value}
            if not changed:
                continue
            formula = formula_of(value, changed, point, to)
            if formula is None or (part == PREPARE and not set(formula.powers) <= set(read)):
                blamed.add(list(changed)[-1])
            else:
                found[part, row, place] = formula
    return found, blamed


def _disagreeing(
    draft: Draft,
    formulas: _Formulas,
    point: Point,
    moved: Mapping[str, _Moved],
    attempt: Callable[[Point], Draft],
) -> set[str]:
    """Sizes whose formulas do not hold where all sizes change together."""
    if not moved:
        return set()
    for together in _together(point, moved):
        try:
            found = attempt(together)
        except InputError:
            continue
        if _are_alike(draft, found):
            break
    else:
        return {list(moved)[-1]}
    at = {**point, **together}
    blamed = set[str]()
    for part, (lines, others) in enumerate(zip(_parts(draft), _parts(found), strict=True)):
        for (row, place, value), (_, _, other) in zip(numbers(lines), numbers(others), strict=True):
            formula = formulas.get((part, row, place))
            expected = value if formula is None else float(formula.value(at))
            if not isclose(expected, other, rel_tol=1e-6):
                blamed.add(list(formula.powers)[-1] if formula else list(moved)[-1])
    return blamed


def _together(point: Point, moved: Mapping[str, _Moved]) -> Iterator[Point]:
    """Points at which all sizes differ: multiples, which divide each other as before, or the values tried alone."""
    for times in (2, 3):
        yield {name: point[name] / times if isinstance(point[name], float) else times * point[name] for name in moved}
    yield {name: other.to for name, other in moved.items()}


def _read(draft: Draft, point: Point, moved: Mapping[str, _Moved]) -> dict[str, str]:
    """How `prepare` reads sizes from its batch, for those that are a dimension there."""

    def inputs(one: Draft) -> Mapping[str, Sequence[int]]:
        return {f'batch["{name}"]': tensor.shape for name, tensor in one.captured.inputs.items()}

    return _dimensions(inputs, draft, point, moved)


def _known(draft: Draft, point: Point, moved: Mapping[str, _Moved]) -> dict[str, str]:
    """How `batches` reads sizes from the model's inputs: from a shape, or from the range of an integer input."""

    def inputs(one: Draft) -> Mapping[str, Sequence[int]]:
        return {f'inputs["{name}"]': value.shape for value, name in one.model.inputs.items()}

    found = _dimensions(inputs, draft, point, moved)
    for size, other in moved.items():
        for (value, name), changed in zip(draft.model.inputs.items(), other.draft.model.inputs, strict=True):
            if (value.bound, changed.bound) == (point[size], other.to):
                found.setdefault(size, f'inputs["{name}"].integer_range')
    return found


def _dimensions(
    inputs: Callable[[Draft], Mapping[str, Sequence[int]]], draft: Draft, point: Point, moved: Mapping[str, _Moved]
) -> dict[str, str]:
    """An expression for each size that is a dimension of a tensor."""
    found = dict[str, str]()
    for size, other in moved.items():
        for (text, shape), changed in zip(inputs(draft).items(), inputs(other.draft).values(), strict=True):
            both = zip(shape, changed, strict=True)
            place = next((place for place, pair in enumerate(both) if pair == (point[size], other.to)), None)
            if place is not None:
                found.setdefault(size, f"{text}.shape[{place}]")
    return found


def _written(draft: Draft, point: Point, moved: Mapping[str, _Moved], formulas: _Formulas) -> Draft:
    """The draft with sizes as parameters, and with formulas in place of numbers of the model and of data.py."""
    parts = [{key[1:]: formula for key, formula in formulas.items() if key[0] == part} for part in range(3)]
    sizes = {name: point[name] for name in moved}
    above = len(draft.model.blocks)
    own = {(row - above, place): formula for (row, place), formula in parts[MODEL].items()}
    model = replace(draft.model, parameters={**draft.model.parameters, **sizes})
    data = replace(
        draft.data,
        lines=replaced(draft.data.lines, parts[PREPARE], "//"),
        draws=replaced(draft.data.draws, parts[DRAWS], "//"),
        sizes=sizes,
        read=_read(draft, point, moved),
        known=_known(draft, point, moved),
    )
    return replace(draft, model=model, data=data, formulas=own)


def _lengths(draft: Draft, moved: Sequence[_Moved]) -> Iterator[tuple[str, int]]:
    """Sizes of the inputs, except the batch, that no change of a keyword has changed, with a word for each."""
    seen = set[int]()
    for name, tensor in draft.captured.inputs.items():
        others = [other.draft.captured.inputs[name].shape for other in moved]
        for dim, size in enumerate(tensor.shape):
            if dim and size > 1 and size not in seen and all(other[dim] == size for other in others):
                seen.add(size)
                yield "s" if not tensor.is_floating_point() and tensor.dim() == 2 else "size", size


FEW = 4
"""How many examples the drafts use that show what sizes change, if the number of examples is a parameter."""


def resized(tensor: Tensor, sizes: Mapping[int, int], rows: int = 1, few: int | None = None) -> Tensor:
    """A tensor with other sizes in place of these, except in its first dimension: elements are cut off or repeated.
    Its rows, or only a `few` first ones, are repeated `rows` times.
    """
    tensor = tensor if few is None or not tensor.dim() else tensor[:few]
    for dim, size in enumerate(tensor.shape):
        if dim and size in sizes:
            repeated = torch.cat([tensor] * ceil(sizes[size] / size), dim)
            tensor = repeated.narrow(dim, 0, sizes[size]).contiguous()
    return torch.cat([tensor] * rows) if rows > 1 and tensor.dim() else tensor


def is_the_same(draft: Draft, attempt: Callable[[], Draft]) -> bool:
    """Whether another module or other inputs give the same text and tables."""
    try:
        found = attempt()
    except InputError:
        return False
    return _parts(found) == _parts(draft) and _have_same_tables(found, draft)
