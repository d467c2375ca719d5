"""Frozen classes of ours behave as those of the standard library do."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from functools import cached_property
from itertools import product
from typing import Any

import pytest

from unity_dsl import records


def plain(dataclass: Any) -> type:
    @dataclass(frozen=True)
    class Plain:
        """A docstring."""

        a: int
        b: tuple[int, ...] = ()

        @cached_property
        def twice(self) -> int:
            return 2 * self.a

    return Plain


def ordered(dataclass: Any) -> type:
    @dataclass(frozen=True, order=True)
    class Ordered:
        a: int
        b: tuple[int, ...] = ()

    return Ordered


def by_identity(dataclass: Any) -> type:
    @dataclass(frozen=True, eq=False)
    class ByIdentity:
        a: int
        b: tuple[int, ...] = ()

    return ByIdentity


def special(dataclass: Any) -> type:
    """Fields that are left out of one thing or the other, a factory, and keywords before and behind the rest."""

    @dataclass(frozen=True)
    class Special:
        first: int = dataclasses.field(default=7, kw_only=True, compare=False, repr=False)
        a: int
        b: tuple[int, ...] = dataclasses.field(default=(), hash=False)
        c: dict[str, int] = dataclasses.field(default_factory=dict, compare=False)
        last: int | None = dataclasses.field(default=None, kw_only=True)

    return Special


def own_methods(dataclass: Any) -> type:
    @dataclass(frozen=True)
    class Own:
        a: int
        b: tuple[int, ...] = ()

        def __hash__(self) -> int:
            return 5

        def __repr__(self) -> str:
            return f"own {self.a}"

    return Own


def own_equality(dataclass: Any) -> type:
    @dataclass(frozen=True)
    class Equal:
        a: int
        b: tuple[int, ...] = ()

        def __eq__(self, other: object) -> bool:
            return True

    return Equal


def empty(dataclass: Any) -> type:
    @dataclass(frozen=True)
    class Empty:
        pass

    return Empty


MAKERS: list[Callable[[Any], type]] = [plain, ordered, by_identity, special, own_methods, own_equality]
ARGUMENTS = [((a,), {}) for a in (1, 2)] + [((a, b), {}) for a, b in product((1, 2), ((), (1,), (0, 3)))]
OPERATORS: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x == y,
    lambda x, y: x != y,
    lambda x, y: x < y,
    lambda x, y: x <= y,
    lambda x, y: x > y,
    lambda x, y: x >= y,
    lambda x, y: hash(x) == hash(y),
    lambda x, y: x == (y.a, y.b),
]


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except TypeError as error:
        return type(error)


@pytest.mark.parametrize("maker", MAKERS)
def test_comparison_and_text(maker: Callable[[Any], type]) -> None:
    ours, theirs = maker(records.dataclass), maker(dataclasses.dataclass)
    first = [ours(*given, **named) for given, named in ARGUMENTS]
    second = [theirs(*given, **named) for given, named in ARGUMENTS]
    assert [repr(made) for made in first] == [repr(made) for made in second]
    for operator in OPERATORS:
        found = [outcome(operator, x, y) for x in first for y in first]
        assert found == [outcome(operator, x, y) for x in second for y in second]
    assert first[0] != second[0] or maker is own_equality
    assert ours.__match_args__ == theirs.__match_args__  # type: ignore[attr-defined]
    assert [f.name for f in dataclasses.fields(ours)] == [f.name for f in dataclasses.fields(theirs)]


@pytest.mark.parametrize("maker", MAKERS)
def test_hash_is_of_the_same_fields(maker: Callable[[Any], type]) -> None:
    ours, theirs = maker(records.dataclass), maker(dataclasses.dataclass)
    if maker is not by_identity:
        assert [hash(ours(*given)) for given, _ in ARGUMENTS] == [hash(theirs(*given)) for given, _ in ARGUMENTS]


@pytest.mark.parametrize("named", [{}, {"first": 1}, {"last": 2}, {"c": {"x": 1}}, {"first": 1, "last": 2, "b": (4,)}])
def test_keywords_and_factories(named: dict[str, Any]) -> None:
    ours, theirs = special(records.dataclass), special(dataclasses.dataclass)
    assert vars(ours(1, **named)) == vars(theirs(1, **named))
    assert repr(ours(1, **named)) == repr(theirs(1, **named))
    assert ours(1).c is not ours(1).c
    for wrong in [(), (1, (), {}, 3), (1, (), {}, 3, 4)]:
        assert outcome(ours, *wrong) is outcome(theirs, *wrong) is TypeError
    for unknown in (ours, theirs):
        with pytest.raises(TypeError):
            unknown(1, other=2)


@pytest.mark.parametrize("maker", [*MAKERS, empty])
def test_nothing_can_be_assigned_or_deleted(maker: Callable[[Any], type]) -> None:
    made = maker(records.dataclass)(*([] if maker is empty else [1]))
    for name in ("a", "other"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, name, 3)
        with pytest.raises(dataclasses.FrozenInstanceError):
            delattr(made, name)


def test_an_empty_class() -> None:
    ours = empty(records.dataclass)
    assert ours() == ours() and hash(ours()) == hash(()) and repr(ours()).endswith("Empty()")


def test_replacing_matching_and_caching() -> None:
    made = plain(records.dataclass)(1, (2,))
    assert dataclasses.replace(made, a=5) == plain_of(made, 5, (2,))
    assert made.twice == made.twice == 2 and vars(made)["twice"] == 2
    match made:
        case object(a=1, b=(2,)):
            pass
        case _:
            raise AssertionError
    assert dataclasses.asdict(made) == {"a": 1, "b": (2,)}
    assert type(made).__doc__ == "A docstring."
    assert type(made).__init__.__qualname__.endswith("Plain.__init__") and type(made).__init__.__module__ == __name__


def plain_of(other: Any, *given: Any) -> Any:
    return type(other)(*given)


@records.dataclass(frozen=True)
class Kept:
    """At the top of a module, as pickle asks for."""

    a: int
    b: tuple[int, ...] = ()


def test_copies() -> None:
    for made in (pickle.loads(pickle.dumps(Kept(1, (2,)))), copy.copy(Kept(1, (2,))), copy.deepcopy(Kept(1, (2,)))):
        assert made == Kept(1, (2,)) and vars(made) == {"a": 1, "b": (2,)}


def test_a_class_that_is_not_frozen_is_the_standard_library_s() -> None:
    @records.dataclass
    class Open:
        a: int
        b: list[int] = dataclasses.field(default_factory=list)

    made = Open(1)
    made.a = 2
    assert made == Open(2) and made != Open(1)
    with pytest.raises(TypeError):
        hash(made)
