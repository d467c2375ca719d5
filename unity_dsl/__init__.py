"""unity-dsl: from one declaration per operator to the fastest correct distributed training program."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
__all__ = [
    "Block",
    "InputError",
    "ParallelModule",
    "PlannedModel",
    "Report",
    "WhatIf",
    "__version__",
    "compile",
    "parallelize",
    "replaces",
]

_WHERE = {
    "Block": "importer.blocks",
    "InputError": "syntax.diagnostic",
    "ParallelModule": "api.parallel_module",
    "PlannedModel": "api.planned_model",
    "Report": "api.planned_model",
    "WhatIf": "commands.what_if",
    "compile": "api.planned_model",
    "parallelize": "api.parallel_module",
    "replaces": "importer.block_calls",
}
"""The modules of the public names, imported on first access, as importing the prover and torch takes seconds."""


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
