"""Locates the declarative folders: beside the package in a checkout, inside it in a wheel."""

from __future__ import annotations

from pathlib import Path

FOLDERS = frozenset({"grammar", "ops", "rules", "codegen", "machines", "examples"})

_PACKAGE = Path(__file__).resolve().parent


def folder(name: str) -> Path:
    """The directory of one declarative folder (`ops`, `machines`, …).

    A wheel has the folders under `unity_dsl/data`; a checkout has them at its top. Raises FileNotFoundError if the
    installation lacks the folder, and KeyError if the name is not one of FOLDERS.
    """
    if name not in FOLDERS:
        raise KeyError(name)
    for base in (_PACKAGE / "data", _PACKAGE.parent):
        if (base / name).is_dir():
            return base / name
    raise FileNotFoundError(f"the folder {name}/ is missing from the installation of unity_dsl")
