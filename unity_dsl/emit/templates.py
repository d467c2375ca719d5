"""The templates of `codegen/`, and helpers for the Python texts that they are given."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from pickle import UnpicklingError

import jinja2
from jinja2.bccache import Bucket, BytecodeCache

from ..resources import folder


class KeptTemplates(BytecodeCache):
    """Caches compiled templates in a `__pycache__` beside them, as Python does with modules. A file is named after the
    template and the versions of Python and jinja, and has a hash of the text. Nothing is cached if the folder cannot be
    written, or if Python writes no bytecode.
    """

    def __init__(self, beside: Path) -> None:
        self.folder = beside / "__pycache__"

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        return f"{name}.{sys.implementation.cache_tag}.jinja-{jinja2.__version__}"

    def load_bytecode(self, bucket: Bucket) -> None:
        with suppress(OSError, EOFError, UnpicklingError), (self.folder / bucket.key).open("rb") as file:
            bucket.load_bytecode(file)

    def dump_bytecode(self, bucket: Bucket) -> None:
        if sys.dont_write_bytecode:
            return
        whole, part = self.folder / bucket.key, self.folder / f"{bucket.key}.{os.getpid()}"
        with suppress(OSError):
            self.folder.mkdir(exist_ok=True)
            try:
                with part.open("wb") as file:
                    bucket.write_bytecode(file)
                part.replace(whole)
            finally:
                part.unlink(missing_ok=True)


@cache
def template(name: str) -> jinja2.Template:
    """A template by its file's name. A variable that it is not given is an error."""
    return _environment().get_template(name)


@cache
def _environment() -> jinja2.Environment:
    texts = folder("codegen")
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(texts),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        bytecode_cache=KeptTemplates(texts),
    )


def tuple_text(parts: Iterable[str]) -> str:
    """The text of a tuple with these elements."""
    items = list(parts)
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
