"""Hashes that are computed once, for objects that are often used as keys."""

from __future__ import annotations

from typing import Any, TypeVar

Kept = TypeVar("Kept")


def cached_hash(kind: type[Kept]) -> type[Kept]:
    """Decorates a frozen dataclass to cache each object's hash. Pickles omit the hash, as that of a text differs
    between processes.
    """
    of_fields = kind.__hash__

    def hash_of(one: Any) -> int:
        try:
            return one._hash  # type: ignore[no-any-return]
        except AttributeError:
            found = one.__dict__["_hash"] = of_fields(one)
            return found

    def state_of(one: Any) -> dict[str, object]:
        return {name: value for name, value in one.__dict__.items() if name != "_hash"}

    kind.__hash__, kind.__getstate__ = hash_of, state_of  # type: ignore[method-assign, assignment]
    return kind
