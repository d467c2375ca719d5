"""Imports a module: the texts of its model, and their comparison with the module."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ..graph.model_graph import build_model
from ..index.declarations.loading import library_of, library_sources
from ..syntax.diagnostic import InputError, fail
from ..syntax.parse_model import parse_model
from ..syntax.span import Source
from . import operators, tensor_parts  # noqa: F401  (their handlers)
from .capture import Captured, capture, module_of
from .idioms import with_idioms
from .model_text import ModelText, model_text
from .prepared_inputs import prepared_text
from .statements import Imported
from .translation import translate
from .verification import Verified, verify


@dataclass(frozen=True)
class ImportedModel:
    """The files of an imported model by name, and how far it is from its module, if that was looked at."""

    files: dict[str, str]
    statements: int
    verified: Verified | None


def import_module(spec: str, name: str, *, verified: bool = True) -> ImportedModel:
    """The model of the module that a factory `package.module:function` makes, with its example inputs.

    Raises E601 to E603 for a factory or a module that cannot be captured, E604 for one without a loss, E605 for
    operators and tables without a counterpart, E606 where the model is not equal to the module.
    """
    module, args, named = module_of(spec)
    captured = capture(module, args, named)
    imported, walk = translate(captured)
    imported = with_idioms(imported)
    if imported.loss is None:
        help = "return the loss, with the labels among the inputs: `return loss, logits`"
        raise fail("E604", "the module returns no loss: no scalar", help=help)
    batch = imported.inputs[0].shape[0] if imported.inputs and imported.inputs[0].shape else None
    text = _with_batch(name, imported, batch)
    if text.buffers:
        told = ", ".join(f"[{', '.join(map(str, value.shape))}]" for value in text.buffers.values())
        raise fail("E605", f"tables of the module that no operator has: {told}", help="compute them of its weights")
    inputs = {text.inputs[value]: value for value in imported.inputs}
    files = {
        f"{name}.udl": "\n".join(text.lines) + "\n",
        "weights.json": json.dumps(text.weights, indent=1) + "\n",
        "data.py": prepared_text(name, inputs, walk.prepared),
    }
    found = _verified(captured, name, files, text) if verified else None
    return ImportedModel(files, len(imported.statements), found)


def _with_batch(name: str, imported: Imported, batch: int | None) -> ModelText:
    """The text with the batch as a parameter, where the model is one at another batch as well."""
    if batch is not None and batch > 1:
        text = model_text(name, imported, batch)
        try:
            source = Source(f"{name}.udl", "\n".join(text.lines) + "\n")
            build_model(parse_model(source), library_of(library_sources(())), {"b": 2 * batch})
            return text
        except InputError:
            pass
    return model_text(name, imported)


def _verified(captured: Captured, name: str, files: dict[str, str], text: ModelText) -> Verified:
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.udl"
        path.write_text(re.sub(r"(dropout\(.*; p)=[^)]*\)", r"\1=0)", files[path.name]))
        found = verify(captured, path, files["data.py"], text.weights, Path(folder) / "out")
        found = replace(found, tables="rope(" in files[path.name])
    if not found.ok:
        told = f"loss {found.loss:.1e}, gradient of {found.weight} {found.gradient:.1e}"
        help = "what a module draws makes both differ, but for dropout; else this is a fault of the importer"
        raise fail("E606", f"the model differs from its module by {told} relative in float64", help=help)
    return found
