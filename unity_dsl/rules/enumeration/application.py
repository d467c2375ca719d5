"""Signatures applied to operands: types by matching, values by the reference evaluation, for many operands at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ...index.equations.where_conditions import Value
from ...index.evaluation.batched import BatchedEvaluation, batched_evaluation
from ...index.instantiation.instantiate import Binding, Shape, instantiate, instantiate_parallel
from ...index.library import Library
from ...prove.normal_form.polynomial import Poly, of
from ...prove.translation.rule_forms import call_pattern
from ...prove.translation.symbolic_sizes import exactly
from ...syntax.ast import Apply, Expr, Name, Number
from ...syntax.diagnostic import InputError
from ...syntax.parse_rules import GraphCall, GraphExpr, GraphView
from .dimensions import Dim, TensorType, letters_of
from .signature import Signature

Array = npt.NDArray[Any]
LARGEST_SPACE = 1 << 21
"""Limit of positions that are evaluated at once."""


@dataclass(frozen=True)
class Application:
    """A signature at the types of given operands. `letters` maps its sizes to sizes of the context.

    `reals` are the expressions of its real numbers, `over` the device axes over which it is mapped.
    """

    signature: Signature
    letters: tuple[tuple[str, Dim], ...]
    reals: tuple[tuple[str, Expr], ...]
    over: tuple[str, ...]
    operands: tuple[TensorType, ...]
    types: tuple[TensorType, ...]


def applications(
    signature: Signature, operands: Sequence[TensorType], numbers: Sequence[Expr], degrees: frozenset[str]
) -> Iterator[Application]:
    """All ways to apply a signature to operands of these types, with each of the numbers for its real attributes."""
    over: set[tuple[str, ...]] = set()
    for given, declared in zip(operands, signature.operands, strict=True):
        if len(given.dims) != len(declared.dims) or (given.bound is None) != (declared.bound is None):
            return
        if not set(declared.devices) <= set(given.devices):
            return
        over.add(tuple(name for name in given.devices if name not in declared.devices))
    if len(over) != 1:
        return
    (ambient,) = over
    made = {name for result in signature.types for name in result.devices}
    if not made.isdisjoint(ambient):
        return
    pairs = [
        pair
        for one, other in zip(signature.operands, operands, strict=True)
        for pair in zip(one.parts, other.parts, strict=True)
    ]
    pairs.sort(key=lambda pair: pair[0].letter is None)
    start = {name: Dim(of(name)) for name in signature.degrees & degrees}
    for letters in _matched(pairs, start):
        types = []
        for result in signature.types:
            changed = result.replaced(letters)
            types.append(TensorType(tuple(sorted((*changed.devices, *ambient))), changed.dims, changed.bound))
        bound = tuple(sorted(letters.items()))
        for choice in product(numbers, repeat=len(signature.reals)):
            reals = tuple(zip(signature.reals, choice, strict=True))
            yield Application(signature, bound, reals, ambient, tuple(operands), tuple(types))


def _matched(pairs: list[tuple[Dim, Dim]], letters: dict[str, Dim]) -> Iterator[dict[str, Dim]]:
    """The values of the letters, found by matching the declared dimensions (left) with the given ones (right)."""
    if not pairs:
        yield letters
        return
    (declared, given), *others = pairs
    for found in _matched_dim(declared, given, letters):
        yield from _matched(others, found)


def _matched_dim(declared: Dim, given: Dim, letters: dict[str, Dim]) -> Iterator[dict[str, Dim]]:
    sizes = {name: value.total for name, value in letters.items()}
    open_letters = [name for name in letters_of(declared.total) if name not in letters]
    if not open_letters:
        if declared.replaced(letters).total == given.total:
            name = declared.letter
            yield letters if name is None else letters | {name: letters[name].joined(given)}
        return
    if declared.letter is not None:
        yield letters | {declared.letter: given}
        return
    if len(open_letters) == 1:
        yield from _solved(declared.total, given.total, open_letters[0], letters, sizes)
        return
    for first in sorted(declared.cuts, key=lambda part: part.key):
        for cut in sorted(given.cuts, key=lambda part: part.key):
            for found in _matched_dim(Dim(first), Dim(cut), letters):
                yield from _matched_dim(Dim(declared.total - first), Dim(given.total - cut), found)
    for first in sorted(declared.prefixes, key=lambda part: part.key):
        for prefix in sorted(given.prefixes, key=lambda part: part.key):
            inner, rest = declared.total.exactly_divided(first), given.total.exactly_divided(prefix)
            if inner is not None and rest is not None:
                for found in _matched_dim(Dim(first), Dim(prefix), letters):
                    yield from _matched_dim(Dim(inner), Dim(rest), found)


_OPEN = "?"
"""Placeholder for the letter that is solved for; no size contains it."""


def _solved(
    declared: Poly, given: Poly, name: str, letters: dict[str, Dim], sizes: Mapping[str, Poly]
) -> Iterator[dict[str, Dim]]:
    """Solves for the one open letter of a sum or product. A placeholder replaces it, since given sizes may use the same
    name.
    """
    known = {other: Dim(size) for other, size in sizes.items() if other != name}
    others = Dim(declared).replaced(known | {name: Dim(of(_OPEN))}).total
    factor = others.coefficient(_OPEN)
    if factor:
        value = (given - others).scaled(1 / factor) + of(_OPEN)
        if value.is_integral:
            yield letters | {name: Dim(value)}
        return
    if len(others.terms) == 1:
        ratio = others.exactly_divided(of(_OPEN))
        quotient = None if ratio is None else given.exactly_divided(ratio)
        if quotient is not None and quotient.is_integral:
            yield letters | {name: Dim(quotient)}


# ---------------------------------------------------------------------------------------------- values


class Values:
    """Evaluates applications at given sizes and numbers, with the reference evaluation."""

    def __init__(self, library: Library, sizes: Mapping[str, int], numbers: Mapping[str, float]) -> None:
        self.library = library
        self.sizes = sizes
        self.numbers = numbers
        self._known: dict[Poly, int] = {}

    def shape(self, tensor: TensorType) -> tuple[int, ...]:
        """Sizes of the device axes, then of the dimensions. Raises ValueError if one is not a positive integer."""
        return (*(self.sizes[name] for name in tensor.devices), *(self.size(dim.total) for dim in tensor.dims))

    def size(self, size: Poly) -> int:
        """A size as a number. Raises ValueError if it is not a positive integer."""
        known = self._known.get(size)
        if known is None:
            value = exactly(size, self.sizes)
            known = int(value) if value.denominator == 1 and value >= 1 else 0
            self._known[size] = known
        if not known:
            raise ValueError("not a size")
        return known

    def real(self, expr: Expr) -> float:
        """A real attribute's value."""
        match expr:
            case Number(value):
                return float(value)
            case Name(name):
                return self.numbers[name]
            case Apply("*", (left, right)):
                return self.real(left) * self.real(right)
            case Apply("+", (left, right)):
                return self.real(left) + self.real(right)
        raise ValueError("a number of another form")

    def key(self, application: Application) -> tuple[object, ...]:
        """Equal for applications of the same operator at the same shapes. Raises ValueError if a size is not a positive
        integer.
        """
        operands = tuple(
            (tensor.devices, self.shape(tensor), tensor.bound and self.size(tensor.bound.total))
            for tensor in application.operands
        )
        results = tuple((tensor.devices, self.shape(tensor)) for tensor in application.types)
        sizes = tuple(self.size(value.total) for _, value in application.letters)
        return application.signature.text, operands, results, sizes, application.reals

    def evaluations(self, application: Application) -> tuple[tuple[BatchedEvaluation, int], ...]:
        """One evaluation per result, with the number of the result in it. Raises ValueError if the operator cannot be
        evaluated.
        """
        sizes = {name: self.size(value.total) for name, value in application.letters}
        reals = tuple((name, self.real(value)) for name, value in application.reals)
        shapes = []
        for tensor in application.operands:
            own = TensorType(tuple(n for n in tensor.devices if n not in application.over), tensor.dims, tensor.bound)
            shapes.append((self.shape(own), None if own.bound is None else self.size(own.bound.total)))
        try:
            return tuple(
                (
                    _evaluation(result, tuple(shapes), tuple(sorted(sizes.items())), reals, self.library),
                    result_number(result),
                )
                for result in application.signature.results
            )
        except InputError as error:
            raise ValueError(error.diagnostic.message) from None

    def results(self, application: Application, operands: Sequence[Array]) -> list[Array]:
        """The results for many operands. Arrays have a leading axis over the operands, then device axes, then
        dimensions.
        """
        count = len(operands[0])
        lead = prod(self.sizes[name] for name in application.over)
        flat = [
            self._flat(array, tensor, application) for array, tensor in zip(operands, application.operands, strict=True)
        ]
        made = []
        for (evaluation, number), kind in zip(self.evaluations(application), application.types, strict=True):
            value = _in_parts(evaluation, flat)[number]
            own = tuple(name for name in kind.devices if name not in application.over)
            over = tuple(self.sizes[name] for name in application.over)
            value = value.reshape((count, *over, *value.shape[1:]))
            made.append(_in_order(value, (*application.over, *own), kind.devices))
            assert lead * count == len(flat[0])
        return made

    def _flat(self, array: Array, tensor: TensorType, application: Application) -> Array:
        """The array with the device axes over which the operator is mapped merged into the leading axis."""
        own = tuple(name for name in tensor.devices if name not in application.over)
        ordered = _in_order(array, tensor.devices, (*application.over, *own))
        return ordered.reshape((-1, *ordered.shape[1 + len(application.over) :]))


def _in_order(array: Array, devices: tuple[str, ...], wanted: tuple[str, ...]) -> Array:
    if devices == wanted:
        return array
    order = [0, *(1 + devices.index(name) for name in wanted), *range(1 + len(devices), array.ndim)]
    return array.transpose(order)


def result_number(expr: GraphExpr) -> int:
    """The number of the operator's result that a graph takes."""
    return expr.result if isinstance(expr, GraphCall) else 0


@lru_cache(maxsize=65536)
def _evaluation(
    expr: GraphExpr,
    shapes: tuple[tuple[tuple[int, ...], int | None], ...],
    sizes: tuple[tuple[str, int], ...],
    reals: tuple[tuple[str, float], ...],
    library: Library,
) -> BatchedEvaluation:
    """The equations of a signature's operator at shapes. Raises ValueError for an extern operator."""
    known: dict[str, float] = {**dict(sizes), **dict(reals)}
    given = [Shape(dims, bound) for dims, bound in shapes]
    if isinstance(expr, GraphView):
        made = instantiate(library.operators["rearrange"], given, {}, binding=_binding(expr, given, known))
        return batched_evaluation(made, library)
    assert isinstance(expr, GraphCall)
    attributes = {name: _number(value, known) for name, value in expr.attributes}
    if expr.degrees is not None:
        decl = library.parallels[expr.name]
        degrees = {own: int(known[name]) for own, name in zip(decl.degrees, expr.degrees, strict=True)}
        moved = [Shape(shape.dims) for shape in given]
        return batched_evaluation(instantiate_parallel(decl, moved, degrees, attributes), library)
    operator = library.operators[expr.name]
    pattern = call_pattern(expr, operator)
    binding = None if pattern is None else _binding(pattern, given, known)
    return batched_evaluation(instantiate(operator, given, attributes, binding=binding), library)


def _number(expr: Expr, known: Mapping[str, float]) -> Value:
    match expr:
        case Number(value):
            return value
        case Name(name):
            return known[name]
        case Apply("neg", (inner,)):
            return -_number(inner, known)
        case Apply(function, (left, right)):
            one, other = _number(left, known), _number(right, known)
            return {"+": one + other, "-": one - other, "*": one * other}[function]
    raise ValueError("an attribute of another form")


def _binding(view: GraphView, given: Sequence[Shape], known: Mapping[str, float]) -> Binding:
    """The axes of a view with their sizes. A name that stands alone has the size of its dimension; any other name is a
    size.
    """
    sizes = {name: int(value) for name, value in known.items()}
    for names, size in zip(view.source, given[0].dims, strict=True):
        named = [str(name) for name in names if name != 1]
        if len(named) == 1:
            sizes[named[0]] = size

    def dims(side: tuple[tuple[str | int, ...], ...]) -> tuple[tuple[tuple[str, int], ...], ...]:
        return tuple(tuple((str(name), sizes[str(name)]) for name in names if name != 1) for names in side)

    return Binding(dims(view.source), dims(view.target))


def _in_parts(evaluation: BatchedEvaluation, operands: Sequence[Array]) -> list[Array]:
    """The results for all operands, computed in parts so that no equation has too many positions at once."""
    count = len(operands[0])
    instance = evaluation.instance
    space = max(prod(instance.sizes[axis] for axis in equation.space) for equation in instance.equations)
    step = max(LARGEST_SPACE // space, 1)
    parts = [evaluation.results([array[at : at + step] for array in operands]) for at in range(0, count, step)]
    return parts[0] if len(parts) == 1 else [np.concatenate(part) for part in zip(*parts, strict=True)]
