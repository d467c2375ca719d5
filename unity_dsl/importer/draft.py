"""What an import has made of a module before both are compared: the texts of its model and of its data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .capture import Captured
from .formulas import Formula
from .model_text import ModelText
from .prepared_inputs import PreparedText
from .statements import Imported
from .translation import Entry


@dataclass(frozen=True)
class Draft:
    """The texts of a captured module, and formulas for numbers of the model's lines, by line and token. `results` are
    what the module returns, flat.
    """

    captured: Captured
    imported: Imported
    results: tuple[Entry, ...]
    model: ModelText
    data: PreparedText
    formulas: Mapping[tuple[int, int], Formula] = field(default_factory=dict)
