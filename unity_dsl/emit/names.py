"""Names in an emitted program: what the user's text may become there, and what it may not."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable
from keyword import iskeyword, issoftkeyword

PROGRAM_NAMES = frozenset({
    "self", "model", "nn", "torch", "F", "Tensor", "parallel", "math", "hashlib", "DeviceMesh", "dist", "uniform",
    "NamedTuple", "Model", "MESH", "WORLD_SIZE", "INPUTS", "PARAMETERS", "BUFFERS", "MODEL", "DTYPE", "factory",
    "inputs", "loss", "build_mesh", "init_device_mesh", "TensorSpec", "ParameterSpec", "_own",
})  # fmt: skip
"""What the module itself uses: no local variable may hide one of these."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_BUILTINS = frozenset(dir(builtins))


def is_identifier(name: str) -> bool:
    """Whether a name of the user's text may stand in code at all; the grammars allow nothing else between dots."""
    return _IDENTIFIER.match(name) is not None


def checked(name: str) -> str:
    """The name, for use within code. Raises ValueError for what no grammar lets through."""
    if not all(is_identifier(part) or part.isdecimal() for part in name.split(".")):
        raise ValueError(f"{name!r} is no name")
    return name


class Names:
    """The names of one scope of emitted code, each given once."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._used = {*PROGRAM_NAMES, *reserved}

    def fresh(self, wanted: str) -> str:
        """`wanted` where it is free and no word of Python's, else the nearest name that is: `x_`, `x_2`, …"""
        stem = checked(wanted).replace(".", "_")
        if iskeyword(stem) or issoftkeyword(stem) or stem in _BUILTINS or stem in PROGRAM_NAMES or stem.startswith("__"):
            stem = f"{stem.lstrip('_') or 'name'}_"
        name, number = stem, 1
        while name in self._used:
            number += 1
            name = f"{stem}_{number}"
        self._used.add(name)
        return name


def class_name(word: str) -> str:
    """`my_layer` as a class: `MyLayer`."""
    parts = checked(word).replace(".", "_").split("_")
    return "".join(part[:1].upper() + part[1:] for part in parts if part) or "Body"


def comment_text(text: str) -> str:
    """User text within a comment: one line of printable characters."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def docstring_text(text: str) -> str:
    """User text within a docstring: as in a comment, and nothing that could end the string or escape in it."""
    return comment_text(text).replace("\\", "/").replace('"', "'")
