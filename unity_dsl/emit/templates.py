"""The templates of `codegen/`, and Python texts that they are given."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import jinja2

from ..resources import folder


@cache
def template(name: str) -> jinja2.Template:
    """A template by its file's name; a name that it is not given is an error."""
    loader = jinja2.FileSystemLoader(folder("codegen"))
    environment = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    return environment.get_template(name)


def tuple_text(parts: Iterable[str]) -> str:
    """A tuple of these texts."""
    items = list(parts)
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
