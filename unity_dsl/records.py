"""`dataclass` as the standard library has it, where `frozen=True` is what is asked for: made in a third of the time.

The library compiles each method of a frozen class by itself, six of them. A compile of a model loads two hundred such
classes, and their methods took half of the time until the model was read. Here those that depend on the fields are one
text, and the others are shared by all classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    import dataclasses

    def dataclass(cls=None, /, *, frozen=False, eq=True, order=False):
        """The decorator; fields take part in `__init__`, and there is no `__post_init__`, wherever `frozen` is set."""
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, eq=eq, order=order)
        if not frozen:
            return dataclasses.dataclass(cls, eq=eq, order=order)
        own = frozenset(name for name, method in vars(cls).items() if method is not None)
        made = dataclasses.dataclass(cls, init=False, repr=False, eq=False)
        methods = {"__repr__": _repr, "__setattr__": _refuse_assignment, "__delattr__": _refuse_deletion}
        for name, method in {**methods, **_compiled(made, eq, order)}.items():
            if name not in own:
                setattr(made, name, method)
        return made


def _compiled(cls: type, eq: bool, order: bool) -> dict[str, Callable[..., Any]]:
    """The methods that name the fields, by their own names."""
    scope: dict[str, Any] = {"set_field": object.__setattr__, "MISSING": MISSING}
    lines = [*_init_lines(fields(cls), scope), *_comparison_lines(fields(cls), eq, order)]
    methods: dict[str, Callable[..., Any]] = {}
    exec("\n".join(lines), scope, methods)
    for name, method in methods.items():
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        method.__module__ = cls.__module__
    return methods


def _init_lines(found: tuple[Field[Any], ...], scope: dict[str, Any]) -> Iterator[str]:
    """`__init__`; the defaults that it speaks of are put into its scope."""
    parameters, keywords, body = ["self"], ["*"], ["    pass"]
    for field in found:
        value = field.name
        parameter = field.name
        if field.default is not MISSING:
            scope[f"default_{field.name}"] = field.default
            parameter = f"{field.name}=default_{field.name}"
        elif field.default_factory is not MISSING:
            scope[f"make_{field.name}"] = field.default_factory
            parameter = f"{field.name}=MISSING"
            value = f"make_{field.name}() if {field.name} is MISSING else {field.name}"
        (keywords if field.kw_only else parameters).append(parameter)
        body.append(f"    set_field(self, {field.name!r}, {value})")
    yield f"def __init__({', '.join([*parameters, *(keywords if len(keywords) > 1 else [])])}):"
    yield from body


def _comparison_lines(found: tuple[Field[Any], ...], eq: bool, order: bool) -> Iterator[str]:
    """What compares the fields as tuples."""
    compared = [field.name for field in found if field.compare]
    hashed = [field.name for field in found if (field.compare if field.hash is None else field.hash)]
    for name, operator in _COMPARISONS.items() if order else _EQUALITY.items() if eq else ():
        yield f"def {name}(self, other):"
        yield "    if other.__class__ is self.__class__:"
        yield f"        return {_tuple('self', compared)} {operator} {_tuple('other', compared)}"
        yield "    return NotImplemented"
    if eq:
        yield "def __hash__(self):"
        yield f"    return hash({_tuple('self', hashed)})"


_EQUALITY = {"__eq__": "=="}
_COMPARISONS = {**_EQUALITY, "__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}


def _tuple(name: str, attributes: list[str]) -> str:
    return f"({''.join(f'{name}.{attribute}, ' for attribute in attributes)})"


# ---------------------------------------------------------------------------------------------- shared methods


def _repr(self: Any) -> str:
    shown = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr)
    return f"{type(self).__qualname__}({shown})"


def _refuse_assignment(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
