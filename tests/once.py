"""What several tests ask for is made once in a run, in whatever process: a proof, for one."""

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
"""The variable that names the folder of a run, which tests/conftest.py makes and which goes away with the run. Without
it, as in bench/, what was made is kept in the process alone.
"""
_HELD: dict[str, Any] = {}


def once(key: str, make: Callable[[], Made]) -> Made:
    """What `make` gives, or what it gave for the same key in this run. It must be possible to pickle it, no test may
    change it, and it may depend on nothing but the key and the files of the checkout.
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
    os.replace(file.name, path)  # at once, as another process may look
    return made
