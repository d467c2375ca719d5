"""What an import has made of a module before both are compared: the texts of its model and of its data."""

from __future__ import annotations

from dataclasses import dataclass

from .capture import Captured
from .model_text import ModelText
from .prepared_inputs import PreparedText
from .statements import Imported
from .translation import Entry


@dataclass(frozen=True)
class Draft:
    """The texts of a captured module. `results` are what the module returns, flat."""

    captured: Captured
    imported: Imported
    results: tuple[Entry, ...]
    model: ModelText
    data: PreparedText
