"""Unifies the element reads of two atoms to find changes of index under which they may be equal.

The results are candidates: the caller proves equality under one of them, or tries the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from ..normal_form.form import Atom, Element, Extremum, Family, Form, Function, Term
from ..normal_form.polynomial import ZERO, Entry, Poly, Var, of
from ..normal_form.step_limit import spend

MAX_CANDIDATES = 12
MAX_UNIFIERS = 200
"""Limit of unifications of all reads; many of them give the same change of index."""

INDEX = "#"
"""The tensor whose element at i is i."""

Read = tuple[str, tuple[Poly, ...]]
Change = dict[Var, Poly]


def changes_of_index(pattern: Atom | Form, target: Atom | Form, parameters: tuple[Var, ...]) -> Iterator[Change]:
    """Substitutions of the parameters by free indices of the target under which the pattern may equal the target."""
    yield from _distinct(_extended({}, [*reads(pattern)], [*reads(target)], parameters, _free(target)))


def changes_of_member(outer: Family, inner: Family) -> Iterator[Change]:
    """Substitutions of the bound indices of a family under which its member may equal that of another family.

    An index that the value does not read, `{1 / n : mask[t] == 0}`, is first unified in the reads of the guards.
    """
    if not _free(outer.value).issuperset(outer.bound):
        pattern, target = ([*reads(family.value), *_guard_reads(family)] for family in (outer, inner))
        free = _free(inner.value) | {var for condition in inner.guards for var in condition.variables}
        yield from _distinct(_extended({}, pattern, target, outer.bound, free))
    yield from changes_of_index(outer.value, inner.value, outer.bound)


def _guard_reads(family: Family) -> Iterator[Read]:
    for condition in family.guards:
        yield from _entries(condition.poly)


def _distinct(found: Iterator[Change]) -> Iterator[Change]:
    """The first `MAX_CANDIDATES` substitutions, each once."""
    seen: set[tuple[tuple[Var, Poly], ...]] = set()
    for change in islice(found, MAX_UNIFIERS):
        key = tuple(sorted(change.items(), key=lambda entry: entry[0].key))
        if key not in seen:
            seen.add(key)
            yield change
            if len(seen) == MAX_CANDIDATES:
                return


def _extended(
    change: Change, pattern: list[Read], target: list[Read], parameters: tuple[Var, ...], free: frozenset[Var]
) -> Iterator[Change]:
    """Every way to unify reads of the pattern with reads of the target until all parameters are determined."""
    spend()
    unknown = [var for var in parameters if var not in change]
    if not unknown:
        yield change
        return
    pattern, target = _remaining(change, pattern, target)
    useful = [read for read in pattern if any(var in part.variables for part in read[1] for var in unknown)]
    if not useful:
        # Parameters that occur in no read: any value is a candidate.
        yield change | dict.fromkeys(unknown, ZERO)
        return
    # Reads with one parameter first, elements of tensors before indices used as values, which unify with any other.
    chosen = min(useful, key=lambda read: (not _determines_one(read, unknown), read[0] == INDEX))
    name, index = chosen
    others = [read for read in pattern if read is not chosen]
    for position, (other, place) in enumerate(target):
        if other != name or len(place) != len(index):
            continue
        added = _unified(change, index, place, unknown, free)
        if added is not None:
            # A read with several parameters is unified again once one of them is determined.
            done = all(var in added for var in unknown if any(var in part.variables for part in index))
            left = (others, target[:position] + target[position + 1 :]) if done else (pattern, target)
            yield from _extended(change | added, *left, parameters, free)


def _determines_one(read: Read, unknown: list[Var]) -> bool:
    """Whether some index of a read has exactly one undetermined parameter."""
    return any(sum(var in part.variables for var in unknown) == 1 for part in read[1])


def _remaining(change: Change, pattern: list[Read], target: list[Read]) -> tuple[list[Read], list[Read]]:
    """The reads left after removing those of the pattern that the change maps to reads of the target."""
    left, open_reads = list(target), []
    for name, index in pattern:
        known = name, tuple(part.substitute(change) for part in index)
        if any(var in change for part in index for var in part.variables) and known in left:
            left.remove(known)
        else:
            open_reads.append((name, index))
    return open_reads, left


def _unified(
    change: Mapping[Var, Poly],
    index: tuple[Poly, ...],
    place: tuple[Poly, ...],
    unknown: list[Var],
    free: frozenset[Var],
) -> Change | None:
    """Parameter values that may make the reads at `index` and `place` equal; None where there are none.

    Indices bound inside the atoms are ignored.
    """
    added: Change = {}
    for part, other in zip(index, place, strict=True):
        part = part.substitute({**change, **added})
        for var in unknown:
            if var in added:
                continue
            coefficient = part.coefficient(var)
            bound = not part.variables <= free | set(unknown), not other.variables <= free
            if not coefficient or bound[0] != bound[1]:
                continue
            rest = _outer(part - of(var).scaled(coefficient), free | set(unknown))
            value = (_outer(other, free) - rest).scaled(1 / coefficient)
            if value.variables <= free and value.is_integral:
                added[var] = value
                break
    return added or None


def _outer(poly: Poly, free: frozenset[Var]) -> Poly:
    """The part of an index without indices bound inside."""
    kept = ZERO
    for monomial, coefficient in poly.terms:
        part = Poly(((monomial, coefficient),))
        if part.variables <= free:
            kept = kept + part
    return kept


def _free(item: Atom | Form) -> frozenset[Var]:
    if isinstance(item, tuple):
        return frozenset(var for term in item for var in term.free)
    return item.free


def reads(item: Atom | Form) -> Iterator[Read]:
    """Every element read, inside functions and maxima as well, and every entry of an integer tensor."""
    match item:
        case Element(tensor, index):
            yield tensor, index
            for part in index:
                yield from _entries(part)
        case Function(_, arguments):
            for argument in arguments:
                yield from reads(argument)
        case Extremum(families):
            for family in families:
                for condition in family.guards:
                    yield from _entries(condition.poly)
                yield from reads(family.value)
        case _:
            for term in item:
                yield from _term_reads(term)


def _term_reads(term: Term) -> Iterator[Read]:
    for factor, _ in term.factors:
        yield from reads(factor)
    for condition in term.guards:
        yield from _entries(condition.poly)


def _entries(poly: Poly) -> Iterator[Read]:
    for symbol in poly.symbols():
        if isinstance(symbol, Entry):
            yield symbol.tensor, symbol.index
