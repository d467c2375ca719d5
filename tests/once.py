"""What several tests ask for is made once in a run, in whatever process: a proof, a compiled model."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, TypeVar, cast

Made = TypeVar("Made")

FOLDER = Path(os.environ["XDG_CACHE_HOME"]) / "once"
"""In the folder that tests/conftest.py makes for a run, and that goes away with it."""
_HELD: dict[str, Any] = {}


def once(key: str, make: Callable[[], Made]) -> Made:
    """What `make` gives, or what it gave for the same key in this run. It must be possible to pickle it, no test may
    change it, and it may depend on nothing but the key and the files of the checkout.
    """
    if key not in _HELD:
        path = _folder() / sha256(key.encode()).hexdigest()
        if path.exists():
            _HELD[key] = pickle.loads(path.read_bytes())
        else:
            _HELD[key] = make()
            with NamedTemporaryFile(dir=path.parent, delete=False) as file:
                file.write(pickle.dumps(_HELD[key]))
            os.replace(file.name, path)
    return cast(Made, _HELD[key])


@cache
def _folder() -> Path:
    FOLDER.mkdir(parents=True, exist_ok=True)
    return FOLDER
