"""Version numbers of the prover and of z3 that certificates record (compared in rules/certificate.py)."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

PROVER = 8
"""Incremented with every change in what this stage, or the calculus that it uses, proves.

Certificates of another version are not valid.
"""


def solver_version() -> str:
    """The version of z3, read from the package's metadata folder where there is one, so that z3 need not be loaded."""
    # By the name of the folder `z3_solver-4.13.0.0.dist-info` beside it: importlib.metadata takes long to load.
    found = find_spec("z3")
    if found is not None and found.origin is not None:
        recorded = list(Path(found.origin).parent.parent.glob("z3_solver-*.dist-info"))
        if len(recorded) == 1:
            return recorded[0].stem.removeprefix("z3_solver-")
    import z3

    return str(z3.get_version_string())
