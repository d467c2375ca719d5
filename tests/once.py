"""Computes a value that several tests need, such as a proof, once a run, whichever process asks first."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, TypeVar, cast

Made = TypeVar("Made")

RUN = "UNITY_TEST_RUN"
"""The variable that names the folder of a run. tests/conftest.py makes the folder, and it is deleted with the run.
Without the variable, as in bench/, values are kept in the process alone.
"""
_HELD: dict[str, Any] = {}


def once(key: str, make: Callable[[], Made]) -> Made:
    """The result of `make`, or its earlier result for the same key in this run. The result must be picklable, and no
    test may change it. It may depend only on the key and the files of the checkout.
    """
    if key not in _HELD:
        _HELD[key] = _shared(key, make, Path(os.environ[RUN])) if RUN in os.environ else make()
    return cast(Made, _HELD[key])


def _shared(key: str, make: Callable[[], Made], folder: Path) -> Made:
    path = folder / f"once-{sha256(key.encode()).hexdigest()}"
    if path.exists():
        return cast(Made, pickle.loads(path.read_bytes()))
    made = make()
    with NamedTemporaryFile(dir=folder, delete=False) as file:
        file.write(pickle.dumps(made))
    os.replace(file.name, path)  # atomically, as another process may read it
    return made
