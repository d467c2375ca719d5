"""Reads a plan of another system in any of the known formats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ...syntax.read import read_source
from .autoparallel_plan import autoparallel_plan
from .galvatron_plan import galvatron_plan
from .imported_plan import ImportedPlan
from .json_text import Json, parse_json
from .nnscaler_plan import nnscaler_plan

MOST_BYTES = 8 << 20
"""Bytes of a file, at most: the export of a model of 32 layers has three million."""

FORMATS: dict[tuple[str, ...], Callable[[Json], ImportedPlan]] = {
    ("tp_sizes_enc",): galvatron_plan,
    ("mesh_shape", "placements"): autoparallel_plan,
    ("mesh", "nodes"): autoparallel_plan,
    ("desc",): nnscaler_plan,
}
"""The reader of each format, by the fields that identify it."""


def read_plan(path: Path) -> ImportedPlan:
    """The plan in a file. Raises E001 to E004 if it is no text, E321 if it is no plan of a known format, and E323 if it
    is a plan of a kind that the space does not have.
    """
    top = parse_json(read_source(path, MOST_BYTES))
    for fields, reader in FORMATS.items():
        if all(field in top for field in fields):
            return reader(top)
    raise top.refused(
        "this is no plan that Galvatron, nnScaler or autoparallel export",
        "these are known by `tp_sizes_enc`, by `desc`, and by `placements` or `nodes` with a mesh",
    )
