"""Hashes that are computed once: those of objects that tables are asked for all the time."""

from __future__ import annotations

from typing import Any, TypeVar

Kept = TypeVar("Kept")


def cached_hash(kind: type[Kept]) -> type[Kept]:
    """A frozen dataclass whose objects keep their hash. Pickles leave it out: in another process texts have others."""
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
