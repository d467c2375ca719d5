"""A kind of syntax error."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    """Texts that go wrong in one way. `any_token`: whatever follows, the fault is the same."""

    code: str
    message: str
    snippets: tuple[str, ...]
    label: str = ""
    help: str = ""
    any_token: bool = False
