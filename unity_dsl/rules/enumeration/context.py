"""Contexts: the operand types over which graphs are compared. They are the most general types of small graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from hashlib import sha256
from itertools import count, permutations, product
from math import factorial, prod

from ...collector import collector_paused
from ...index.library import Library
from ...prove.normal_form.polynomial import Poly
from ...prove.translation.symbolic_sizes import shown
from .dimensions import Dim, TensorType, letters_of, named, unified
from .fingerprints import sizes_for
from .signature import Signature, read_signature
from .signature_table import SignatureTable, Theme

LETTERS = (*"mnkhijloqrstuvwabefg", *(f"m{number}" for number in range(1, 40)))
"""Names of sizes. `c` and `d` are reserved for real numbers, `p` for degrees."""
MAX_LETTERS = len(LETTERS)
DEGREES = frozenset({"p"})
"""Names of device counts in signature tables. They are never renamed."""
INPUTS = 5
"""Limit of operands of a graph."""
MULTIPLE = 2
TAKEN_APART = 1
"""Limit of places at which slices and views may split dimensions of operands."""


@dataclass(frozen=True)
class Context:
    """Operands of a theme's graphs, by their types. A context is one unit of work and depends only on its text.

    `only` are operators; each substitution must contain at least one of them.
    """

    theme: str
    operators: int
    inputs: tuple[TensorType, ...]
    signatures: tuple[str, ...]
    numbers: tuple[str, ...]
    degrees: frozenset[str] = frozenset()
    only: frozenset[str] = frozenset()

    @cached_property
    def text(self) -> str:
        """The operands in readable form: `[m, k], [k, n]`."""
        return ", ".join(map(type_text, self.inputs))

    @cached_property
    def digest(self) -> str:
        """Hash of everything that the candidates of the context depend on, except the declarations."""
        parts = (str(self.operators), *self.signatures, *self.numbers, *sorted(self.only), context_key(self.inputs))
        return sha256("\n".join(parts).encode()).hexdigest()[:16]


def type_text(tensor: TensorType) -> str:
    """A type in the notation of rules: `int<v>[@p, m, h * k]`."""
    parts = [f"@{name}" for name in tensor.devices] + [shown(dim.total) for dim in tensor.dims]
    integers = "" if tensor.bound is None else f"int<{shown(tensor.bound.total)}>"
    return f"{integers}[{', '.join(parts)}]"


def contexts(table: SignatureTable, library: Library, only: frozenset[str] = frozenset()) -> tuple[Context, ...]:
    """The contexts of a table's themes; within a theme, contexts with few and small operands come first.

    With `only`, contexts of graphs that have one of these operators. Raises E509.
    """
    return tuple(made for theme in table.themes for made in theme_contexts(theme, library, table, only))


@collector_paused()
def theme_contexts(
    theme: Theme, library: Library, table: SignatureTable, only: frozenset[str] = frozenset()
) -> tuple[Context, ...]:
    """The contexts of one theme: the most general operand types of every graph, with operands identified in
    all ways.
    """
    own = [read_signature(text, library, table.place(text)) for text in theme.signatures]
    special = [read_signature(text, library, table.place(text)) for text in theme.special]
    degrees = frozenset(name for signature in own for name in signature.degrees)
    found: dict[str, tuple[TensorType, ...]] = {}
    for inputs in _graph_types((*own, *special), theme.operators, degrees, only):
        found.setdefault(context_key(inputs), inputs)
    pending = list(found.values())
    while pending:
        one = pending.pop()
        for inputs in _identified(one, degrees):
            key = context_key(inputs)
            if key not in found and _is_plain(inputs) and _multiple(inputs) <= _multiple(one):
                found[key] = inputs
                pending.append(inputs)
    made = [
        Context(theme.name, theme.operators, inputs, theme.signatures, theme.numbers, degrees, only)
        for inputs in _merged(found.values())
    ]
    return tuple(sorted(made, key=lambda one: (len(one.inputs), len(one.text), one.text, one.digest)))


# ---------------------------------------------------------------------------------------------- types of graphs


@dataclass(frozen=True)
class _Graph:
    """The types of a graph during construction: its operands, and its tensors, each with whether an operator reads it.

    `wanted`: whether it contains one of the required operators.
    """

    inputs: tuple[TensorType, ...]
    tensors: tuple[tuple[TensorType, bool], ...]
    wanted: bool = True

    def replaced(self, values: dict[str, Dim]) -> _Graph:
        inputs = tuple(tensor.replaced(values) for tensor in self.inputs)
        tensors = tuple((tensor.replaced(values), used) for tensor, used in self.tensors)
        return _Graph(inputs, tensors, self.wanted)

    @property
    def key(self) -> str:
        """Equal for graphs that differ only in names of letters, and for some that differ only in the order of
        operands.
        """
        renamed = renaming([*self.inputs, *(tensor for tensor, _ in self.tensors)])
        inputs = [structure_text(tensor.replaced(renamed)) for tensor in self.inputs]
        tensors = [(structure_text(tensor.replaced(renamed)), used) for tensor, used in self.tensors]
        return f"{self.wanted}{inputs}{tensors}"


def _graph_types(
    signatures: Sequence[Signature], operators: int, degrees: frozenset[str], only: frozenset[str]
) -> Iterator[tuple[TensorType, ...]]:
    """Operand types of all graphs with up to `operators` operators and one root; each operand is read once."""
    level = {"": _Graph((), (), not only)}
    fresh = (f"_{number}" for number in count())
    for made in range(operators):
        grown: dict[str, _Graph] = {}
        for graph in level.values():
            for signature in signatures:
                wanted = graph.wanted or not only.isdisjoint(signature.operators)
                for larger in _applied(replace(graph, wanted=wanted), signature, degrees, fresh):
                    if not _is_plain(larger.inputs):
                        continue
                    unread = sum(not used for _, used in larger.tensors)
                    if unread - 1 <= (operators - made - 1) * _widest(signatures) and len(larger.inputs) <= INPUTS:
                        grown.setdefault(larger.key, larger)
                        if unread <= 1 and wanted:
                            yield larger.inputs
        level = grown


def _is_plain(inputs: Sequence[TensorType]) -> bool:
    """Whether graphs over these operands are compared. Few places may be split, no size may be a difference or a large
    multiple of letters, and there must be sizes at which every dimension has elements.
    """
    terms = [term for tensor in inputs for part in tensor.parts for term in part.total.terms if term[0]]
    if _taken_apart(inputs) > TAKEN_APART or not all(0 < coefficient <= MULTIPLE for _, coefficient in terms):
        return False
    try:
        sizes_for(inputs, frozenset())
    except ValueError:
        return False
    return True


def _multiple(inputs: Sequence[TensorType]) -> Fraction:
    """The largest multiple of letters among the sizes, such as 2 for a tensor concatenated with itself."""
    terms = [term for tensor in inputs for part in tensor.parts for term in part.total.terms if term[0]]
    return max((coefficient for _, coefficient in terms), default=Fraction(1))


def _merged(found: Iterable[tuple[TensorType, ...]]) -> Iterator[tuple[TensorType, ...]]:
    """Operands of equal sizes once, with the splits of all graphs joined."""
    by_sizes: dict[str, tuple[TensorType, ...]] = {}
    for inputs in map(_determined, found):
        order = min(_likely_orders(inputs), key=lambda order: (totals_text(order), _ordered_text(order)))
        named_alike = tuple(tensor.replaced(_by_totals(order)) for tensor in order)
        known = by_sizes.setdefault(totals_text(order), named_alike)
        by_sizes[totals_text(order)] = tuple(map(TensorType.joined, known, named_alike))
    yield from map(_renamed, by_sizes.values())


def _taken_apart(inputs: Sequence[TensorType]) -> int:
    """The number of places at which dimensions of operands are split; dimensions of equal size count once."""
    sizes = {part.total: len(part.cuts) + len(part.prefixes) for tensor in inputs for part in tensor.parts}
    return sum(sizes.values())


def _widest(signatures: Sequence[Signature]) -> int:
    """The most operands of a signature, less one: by so much one operator can reduce the number of unread tensors."""
    return max(len(signature.operands) for signature in signatures) - 1


def _applied(graph: _Graph, signature: Signature, degrees: frozenset[str], fresh: Iterator[str]) -> Iterator[_Graph]:
    """The graph with one more operator, whose operands are the graph's tensors or new inputs."""
    names = dict.fromkeys(
        name for tensor in signature.operands for part in tensor.parts for name in letters_of(part.total)
    )
    renamed = {name: named(next(fresh)) for name in names if name not in degrees}
    operands = [tensor.replaced(renamed) for tensor in signature.operands]
    choices = [
        [None, *(place for place, (tensor, _) in enumerate(graph.tensors) if _may_meet(tensor, operand, signature))]
        for operand in operands
    ]
    for chosen in product(*choices):
        new = [operand for operand, place in zip(operands, chosen, strict=True) if place is None]
        ambient = {
            _ambient(graph.tensors[place][0], operand)
            for operand, place in zip(operands, chosen, strict=True)
            if place is not None
        } or {()}
        if len(ambient) > 1 or len(graph.inputs) + len(new) > INPUTS:
            continue
        (over,) = ambient
        pairs = [
            pair
            for operand, place in zip(operands, chosen, strict=True)
            if place is not None
            for pair in zip(graph.tensors[place][0].parts, operand.parts, strict=True)
        ]
        for values in unified(pairs, degrees, fresh):
            results = [(_lifted(result.replaced(renamed), over).replaced(values), False) for result in signature.types]
            old = [(tensor, used or place in chosen) for place, (tensor, used) in enumerate(graph.tensors)]
            inputs = (*graph.inputs, *(_lifted(operand, over) for operand in new))
            larger = _Graph(inputs, tuple(old), graph.wanted).replaced(values)
            # Each graph takes one result. Another graph takes the other.
            for result in results:
                yield _Graph(larger.inputs, (*larger.tensors, result), graph.wanted)


def _may_meet(tensor: TensorType, operand: TensorType, signature: Signature) -> bool:
    same = len(tensor.dims) == len(operand.dims) and (tensor.bound is None) == (operand.bound is None)
    made = {name for result in signature.types for name in result.devices} - set(operand.devices)
    over = set(tensor.devices) - set(operand.devices)
    return same and set(operand.devices) <= set(tensor.devices) and made.isdisjoint(over)


def _ambient(tensor: TensorType, operand: TensorType) -> tuple[str, ...]:
    """The device axes over which an operator is mapped."""
    return tuple(name for name in tensor.devices if name not in operand.devices)


def _lifted(tensor: TensorType, over: tuple[str, ...]) -> TensorType:
    return TensorType(tuple(sorted((*tensor.devices, *over))), tensor.dims, tensor.bound)


def _identified(inputs: tuple[TensorType, ...], degrees: frozenset[str]) -> Iterator[tuple[TensorType, ...]]:
    """The operand types with two of the operands identified."""
    fresh = (f"_i{number}" for number in count())
    for second in range(len(inputs)):
        for first in range(second):
            one, other = inputs[first], inputs[second]
            if one.kind != other.kind:
                continue
            for values in unified(list(zip(one.parts, other.parts, strict=True)), degrees, fresh):
                merged = [tensor.replaced(values) for tensor in inputs]
                merged[first] = merged[first].joined(merged[second])
                yield tuple(merged[:second] + merged[second + 1 :])


# ---------------------------------------------------------------------------------------------- names of letters


def renaming(tensors: Sequence[TensorType], fixed: frozenset[str] = DEGREES) -> dict[str, Dim]:
    """New names of the letters, in order of first appearance. The parts of a split dimension come before its total."""
    occurs = _occurrences(tensors)

    def ordered(size: Poly) -> list[tuple[_Places, str]]:
        return sorted((occurs.get(name, ()), name) for name in letters_of(size))

    letters = dict.fromkeys(
        name
        for tensor in tensors
        for part in tensor.parts
        for size in (*sorted(part.inner, key=lambda size: (len(letters_of(size)), ordered(size))), part.total)
        for _, name in ordered(size)
    )
    names = iter(LETTERS)
    return {name: named(next(names)) for name in letters if name not in fixed}


_Places = tuple[tuple[int, int, int, int, Fraction], ...]
"""The occurrences of a letter: dimension, number of terms in the size, number of letters in the term, power,
coefficient.
"""


def _occurrences(tensors: Sequence[TensorType]) -> dict[str, _Places]:
    """The places of each letter in the sizes. Letters with equal places are interchangeable: they are summands of the
    same sums or factors of the same products.
    """
    found: dict[str, _Places] = {}
    for place, part in enumerate(part for tensor in tensors for part in tensor.parts):
        for term in part.total.terms:
            powers = dict(term[0])
            for name in letters_of(Poly((term,))):
                occurs = (place, len(part.total.terms), len(powers), powers.get(name, 0), term[1])
                found[name] = (*found.get(name, ()), occurs)
    return {name: tuple(sorted(places)) for name, places in found.items()}


def _renamed(inputs: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
    """The operands in the order and with the letters of the context's key."""
    first = min(_likely_orders(inputs), key=lambda order: (totals_text(order), _ordered_text(order)))
    renamed = renaming(first)
    return tuple(tensor.replaced(renamed) for tensor in first)


def structure_text(tensor: TensorType) -> str:
    """A type with the structure of its dimensions, which distinguishes contexts."""
    dims = []
    for dim in tensor.parts:
        if dim.letter is not None:
            dims.append(dim.letter)
            continue
        cuts, prefixes = (",".join(sorted(part.key for part in parts)) for parts in (dim.cuts, dim.prefixes))
        dims.append(f"{dim.total.key}|{cuts}|{prefixes}")
    return f"{tensor.devices}{tensor.bound is None}[{'; '.join(dims)}]"


def context_key(inputs: Sequence[TensorType]) -> str:
    """A text that does not depend on the order of operands or on the names of letters."""
    return min(_ordered_text(order) for order in _likely_orders(inputs))


def _plain(inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
    """The types without structure."""
    return tuple(_with_parts(tensor, lambda dim: Dim(dim.total)) for tensor in inputs)


def _determined(inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
    """The operands without splits into parts whose sizes no operand determines."""
    known = {name for tensor in inputs for part in tensor.parts for name in letters_of(part.total)}

    def determined(dim: Dim) -> Dim:
        kept = frozenset(size for size in dim.inner if known.issuperset(letters_of(size)))
        return Dim(dim.total, dim.cuts & kept, dim.prefixes & kept)

    return tuple(_with_parts(tensor, determined) for tensor in inputs)


def _with_parts(tensor: TensorType, change: Callable[[Dim], Dim]) -> TensorType:
    bound = None if tensor.bound is None else change(tensor.bound)
    return TensorType(tensor.devices, tuple(map(change, tensor.dims)), bound)


def _ordered_text(inputs: Sequence[TensorType]) -> str:
    renamed = renaming(inputs)
    return " ".join(structure_text(tensor.replaced(renamed)) for tensor in inputs)


def totals_text(inputs: Sequence[TensorType]) -> str:
    """A text that does not depend on the names of letters or on the places at which dimensions are split."""
    renamed = _by_totals(inputs)
    return " ".join(structure_text(tensor.replaced(renamed)) for tensor in _plain(inputs))


def _by_totals(inputs: Sequence[TensorType]) -> dict[str, Dim]:
    """New names of the letters, except degrees, by where they occur in the sizes."""
    names = sorted((places, name) for name, places in _occurrences(inputs).items() if name not in DEGREES)
    return {name: named(f"~{number:02}") for number, (_, name) in enumerate(names)}


def _likely_orders(inputs: Sequence[TensorType]) -> Iterator[tuple[TensorType, ...]]:
    """Candidate orders of the operands, by how often their letters occur. They do not depend on the given order, except
    for ties.
    """
    counts = Counter(name for tensor in inputs for part in tensor.parts for name in letters_of(part.total))

    def rank(tensor: TensorType) -> str:
        occurs = [sorted(counts[name] for name in letters_of(part.total)) for part in tensor.parts]
        return f"{tensor.kind}{occurs}"

    groups: dict[str, list[TensorType]] = {}
    for tensor in inputs:
        groups.setdefault(rank(tensor), []).append(tensor)
    ordered = [groups[key] for key in sorted(groups)]
    if prod(factorial(len(group)) for group in ordered) > 24:
        yield tuple(tensor for group in ordered for tensor in group)
        return
    for parts in product(*(list(permutations(group)) for group in ordered)):
        yield tuple(tensor for part in parts for tensor in part)
