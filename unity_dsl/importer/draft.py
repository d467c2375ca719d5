"""What an import has made of a module before both are compared: the texts of its model and of its data."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path

from .capture import Captured
from .formulas import Formula
from .model_text import ModelText
from .prepared_inputs import PreparedText
from .statements import Imported
from .translation import Entry


@dataclass(frozen=True)
class Wanted:
    """How a draft is made: the `name` of the model, names that no tensor has, layers that were `left_out` by the path
    of their list, whether the batch may be a parameter, and files of a user's operators.
    """

    name: str
    reserved: Set[str] = frozenset()
    left_out: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    any_batch: bool = True
    ops: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Draft:
    """The texts of a captured module, the files of operators that they need, and formulas for numbers of the model's
    lines, by line and token. `results` are what the module returns, flat.
    """

    captured: Captured
    imported: Imported
    results: tuple[Entry, ...]
    model: ModelText
    data: PreparedText
    ops: tuple[Path, ...] = ()
    formulas: Mapping[tuple[int, int], Formula] = field(default_factory=dict)
