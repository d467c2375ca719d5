"""A draft of an import: the texts of a model and its data before they are compared with the module."""

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
class DraftOptions:
    """Options of a draft: the `name` of the model, `reserved` names that no tensor may have, whether the batch may be
    a parameter, and files of the user's operators. `left_out` counts the layers that were removed from shortened
    lists, by the path of the list.
    """

    name: str
    reserved: Set[str] = frozenset()
    left_out: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    any_batch: bool = True
    ops: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Draft:
    """The texts of a captured module and the operator files that they need. `formulas` replace numbers of the model's
    lines, by line and token. `results` are the module's return values, flattened.
    """

    captured: Captured
    imported: Imported
    results: tuple[Entry, ...]
    model: ModelText
    data: PreparedText
    ops: tuple[Path, ...] = ()
    formulas: Mapping[tuple[int, int], Formula] = field(default_factory=dict)
