"""Imports a module: writes the text of its model and compares the model with the module."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from io import BytesIO
from logging import getLogger
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from ..graph.model_graph import build_model
from ..index.declarations.loading import library_of, library_sources
from ..syntax.diagnose import terminal_texts
from ..syntax.diagnostic import InputError, fail
from ..syntax.parse_model import parse_model
from ..syntax.span import Source
from . import (  # noqa: F401  (their handlers)
    attention,
    comparisons,
    convolutions,
    experts,
    losses,
    norms,
    operators,
    recurrences,
    selections,
    state_spaces,
    tensor_parts,
)
from .capture import Captured, capture, dropped_layers, keywords_of, module_of, quietly, without_loss
from .comments import with_comments
from .draft import Draft, DraftOptions
from .duplicates import without_duplicates
from .formulas import Point
from .graph_walk import translate
from .idioms import with_idioms
from .model_text import ModelText, model_text
from .module_blocks import with_module_blocks
from .own_operators import own_operators
from .prepared_inputs import TABLES, Prepare, PreparedText, prepare_of, prepared_text
from .short_lists import is_deep, shorten
from .sizes import FEW, Sizes, is_the_same, resized, with_sizes
from .statements import Imported
from .translation import Entry, Translation
from .verification import DrawnAlike, Verified, verify
from .views import Value
from .weight_parts import Stored, with_weight_parts

LOG = getLogger(__name__)


@dataclass(frozen=True)
class ImportedModel:
    """The files of an imported model by name, and its difference from the module, None if they were not compared.
    `results` are the module's return values, flattened; `outputs` maps those that are outputs of the model to their
    names. `sizes` are the model's parameters, `weights` says where the state_dict has each weight, and `notes` are
    remarks for the user. `tables` are constant tensors that data.py loads from a file.
    """

    files: dict[str, str]
    statements: int
    verified: Verified | None
    captured: Captured
    results: tuple[Entry, ...] = ()
    outputs: Mapping[Value, str] = field(default_factory=dict)
    loss: Value | None = None
    sizes: Sizes = field(default_factory=Sizes)
    weights: Mapping[str, Stored] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    tables: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def prepare(self) -> Prepare:
        """The function of data.py that makes the model's inputs from a batch."""
        return prepare_of(self.files["data.py"], self.tables)

    @property
    def written(self) -> dict[str, bytes]:
        """The contents of all files by name."""
        found = {name: text.encode() for name, text in self.files.items()}
        if self.tables:
            torch.save(dict(self.tables), contents := BytesIO())
            found[TABLES] = contents.getvalue()
        return found


def import_onnx(
    path: Path, name: str, loss: str | None, sizes: Mapping[str, int], *, verified: bool = True
) -> tuple[ImportedModel, str]:
    """The model of an ONNX file, with a `loss` of its first output if one is named, and a remark for the user about
    the file.

    Raises E608 for a file that is not ONNX, E609 for unsupported content, E610 without the package, and what
    `imported_model` raises.
    """
    try:
        from .onnx_graph import load_onnx

        module, examples, told = load_onnx(path, loss, sizes)
    except ImportError:
        raise fail("E610", "ONNX files need the package onnx", help="pip install 'unity-dsl[onnx]'") from None
    return imported_model(module, examples, {}, name, verified=verified), told


def import_module(
    spec: str,
    name: str,
    *,
    verified: bool = True,
    weights: bool = True,
    sizes: bool = True,
    ops: tuple[Path, ...] = (),
) -> ImportedModel:
    """The model of the module that a factory `package.module:function` returns with its example inputs.

    Without `weights`, matrices take no memory and the model is not compared. With `sizes`, numbers that change with
    keywords of the factory or with dimensions of its inputs become parameters. Operators of the files `ops` replace
    the torch operators of the same names.

    Raises E601 and E602 for a factory that cannot be called or returns something else, and what `imported_model`
    raises.
    """
    given = keywords_of(spec) if sizes else {}
    names = {_size_name(keyword): keyword for keyword in given}
    keywords = {size: given[keyword] for size, keyword in names.items()}
    reserved = {*keywords, "s", "size"} if sizes else set[str]()

    def attempt(
        settings: Point,
        inputs: Mapping[int, int],
        *,
        rows: int = 1,
        few: int | None = None,
        any_batch: bool = True,
        short: bool = False,
    ) -> Draft:
        settings = {names[size]: value for size, value in settings.items()}
        module, args, named = module_of(spec, weights=weights, settings=settings)
        args, named = tree_map_only(Tensor, lambda part: resized(part, inputs, rows, few), (args, named))
        left_out = shorten(module) if short else {}
        return _draft(module, args, named, DraftOptions(name, reserved, left_out, any_batch, ops))

    LOG.info("capturing the module")
    draft, found = attempt({}, {}), Sizes()
    if sizes:
        LOG.info("finding its sizes")
        with quietly():
            # If fewer layers and examples give the same text, sizes are varied on this smaller module.
            is_large = draft.imported.examples > FEW and "b" in draft.model.parameters
            small: dict[str, Any] = {"short": True, "few": FEW if is_large else None}
            small = small if is_large or is_deep(draft.captured.module) else {}
            small = small if small and is_the_same(draft, partial(attempt, {}, {}, **small)) else {}
            again = partial(attempt, **small)
            holds = "b" not in draft.model.parameters or is_the_same(draft, partial(again, {}, {}, rows=2))
            draft = draft if holds else attempt({}, {}, any_batch=False)
            draft, found = with_sizes(draft, keywords, partial(again if holds else attempt, any_batch=holds))
        if draft.imported.examples > 1 and "b" not in draft.model.parameters:
            why = "what it computes, or is prepared, depends on the number of examples"
            why = why if holds else "the model is another one at twice the batch"
            found = replace(found, fixed={"b": why, **found.fixed})
    return replace(_finished(draft, verified=verified and weights), sizes=found)


_TAKEN = {
    "b",
    "batch",
    "batches",
    "inputs",
    "prepare",
    "random_batch",
    "rows",
    "seed",
    "source",
    "split",
    "step",
    "torch",
}
"""Names that the model uses for its batch, and that data.py uses for its own variables."""


def _size_name(keyword: str) -> str:
    """The name of the model parameter for a keyword of the factory."""
    return f"{keyword}_size" if keyword in _TAKEN | {*terminal_texts("udl").values()} else keyword


def imported_model(
    module: nn.Module, args: tuple[Any, ...], named: Mapping[str, Any], name: str, *, verified: bool = True
) -> ImportedModel:
    """The model of a module that is called with these example inputs.

    Raises E603 for a module that cannot be captured, E604 for one without a loss, E605 for operators without a
    counterpart, E606 where the model differs from the module.
    """
    return _finished(_draft(module, args, named, DraftOptions(name)), verified=verified)


def _draft(module: nn.Module, args: tuple[Any, ...], named: Mapping[str, Any], options: DraftOptions) -> Draft:
    """The texts of a module before the comparison, with the batch size as a parameter where possible."""
    captured = capture(module, args, named)
    imported, walk = translate(captured, own_operators(options.ops))
    captured = walk.captured
    imported = with_weight_parts(with_idioms(without_duplicates(imported)))
    if imported.loss is None:
        raise without_loss()
    for weight in imported.untrained():
        weight.kind = "buffer"
    if not any(operand.value.kind == "weight" for one in imported.statements for operand in one.operands):
        help = "a loss of weights that are trained: what was detached, or computed under no_grad, has no gradient"
        raise fail("E604", "no gradient of the loss reaches a weight of the module", help=help)
    batch = imported.examples
    fixed = _texts(imported, walk, None, options)
    constant = {name for value, name in fixed[0].inputs.items() if value.constant is not None}
    if options.any_batch and _is_any_batch(captured, fixed[1], batch, constant):
        text, prepared = _texts(imported, walk, batch, options)
        if _builds(text, batch, options.ops):
            return Draft(captured, imported, tuple(walk.results), text, prepared, options.ops)
    return Draft(captured, imported, tuple(walk.results), *fixed, options.ops)


def _finished(draft: Draft, *, verified: bool) -> ImportedModel:
    """The files of a draft, compared with its module if `verified`."""
    library, captured, imported = library_of(library_sources(draft.ops)), draft.captured, draft.imported
    text = with_module_blocks(draft.model, draft.formulas, captured.module, library)
    text = with_comments(text, imported, captured)
    draft = replace(draft, model=text)
    files = {
        f"{text.name}.udl": text.text,
        "weights.json": json.dumps(_names(draft), indent=1) + "\n",
        "data.py": draft.data.text,
    }
    found = _verified(draft) if verified else None
    loss = imported.loss.value if imported.loss is not None else None
    made = ImportedModel(files, len(imported.statements), found, captured, draft.results, text.outputs, loss)
    return replace(made, weights=text.weights, notes=_notes(draft), tables=draft.data.tables)


def _notes(draft: Draft) -> tuple[str, ...]:
    """Remarks about what the text does not say: weights and buffers with initial numbers that no initialiser draws,
    weights that no gradient reaches, and dropped layers.
    """
    module, weights = draft.captured.module, draft.model.weights
    states, trained = module.state_dict(), {name for name, weight in module.named_parameters() if weight.requires_grad}
    special = [name for name, own in weights.items() if _is_special(states[own.state], draft, own.state)]
    operands = {operand.value for statement in draft.imported.statements for operand in statement.operands}
    buffers = {value.state for value in operands if value.kind == "buffer"}
    kept = [name for name, own in weights.items() if own.state in trained & buffers]
    notes = {
        "other numbers than in the module at first, unless train.py has --init": special,
        "buffers, as no gradient of the loss reaches these weights": kept,
    }
    told = [f"{note}: {_first_three(names)}" for note, names in notes.items() if names]
    dropped = dict.fromkeys(name for _, name in dropped_layers(module))
    return (*told, *(f"no layer is dropped as a whole: `{name}` is 0" for name in dropped))


def _first_three(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")


def _is_special(tensor: Tensor, draft: Draft, state: str) -> bool:
    """Whether a tensor has numbers that no initialiser would draw. Its elements are not all equal, and it is a buffer
    or a weight whose mean is more than five standard errors from 0.
    """
    if not tensor.is_floating_point() or tensor.numel() < 2 or not any(tensor.stride()):
        return False
    if bool((tensor == tensor.flatten()[0]).all()):
        return False
    is_buffer = state not in dict(draft.captured.module.named_parameters(remove_duplicate=False))
    error = float(tensor.std()) / tensor.numel() ** 0.5
    return is_buffer or abs(float(tensor.mean())) > 5 * error


def _names(draft: Draft) -> dict[str, object]:
    """The state_dict names of each weight and buffer of the model: one name, or all names of a tied tensor. A part of
    a tensor also has its range of a dimension.
    """
    states = draft.captured.module.state_dict(keep_vars=True)
    tied: dict[int, list[str]] = {}
    for state, tensor in states.items():
        tied.setdefault(id(tensor), []).append(state)
    found: dict[str, object] = {}
    for name, stored in draft.model.weights.items():
        every, part = tied[id(states[stored.state])], stored.part
        names = every if len(every) > 1 else every[0]
        found[name] = names if part is None else {"of": names, "dim": part.dim, "start": part.start, "stop": part.stop}
    return found


def _texts(
    imported: Imported, walk: Translation, batch: int | None, options: DraftOptions
) -> tuple[ModelText, PreparedText]:
    """The texts of the model and of data.py, with sizes of the batch as a parameter if one is given."""
    text = model_text(options.name, imported, batch, options.reserved, options.left_out)
    inputs = {text.inputs[value]: value for value in imported.inputs}
    return text, prepared_text(options.name, inputs, walk, imported.examples)


def _builds(text: ModelText, batch: int, ops: tuple[Path, ...]) -> bool:
    """Whether the model, which has the batch as parameter `b`, can be built at twice the batch."""
    source = Source(f"{text.name}.udl", text.text)
    try:
        build_model(parse_model(source), library_of(library_sources(ops)), {"b": 2 * batch})
    except InputError:
        return False
    return True


def _is_any_batch(captured: Captured, prepared: PreparedText, batch: int, constant: Set[str]) -> bool:
    """Whether the model holds for any batch size: a batch repeated twice is prepared to the prepared batch repeated
    twice. Constant inputs must stay the same instead.
    """
    prepare, inputs = prepared.prepare, captured.inputs
    if batch < 2 or any(tensor.dim() == 0 or len(tensor) != batch for tensor in inputs.values()):
        return False
    with DrawnAlike():
        once = prepare(inputs)
        try:
            twice = prepare({name: torch.cat((tensor, tensor)) for name, tensor in inputs.items()})
        except (RuntimeError, IndexError):
            return False
    if not all(torch.equal(once[name], twice[name]) for name in constant):
        return False
    both = ((once[name], twice[name]) for name in once if name not in constant)
    return all(one.shape[:1] == (batch,) and torch.equal(torch.cat((one, one)), two) for one, two in both)


def _verified(draft: Draft) -> Verified:
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{draft.model.name}.udl"
        path.write_text(_without_draws(draft.model.text))
        found = verify(draft.captured, path, draft.data.prepare, draft.model.weights, Path(folder) / "out", draft.ops)
        found = replace(found, tables=draft.imported.rounded)
    if not found.ok:
        told = f"loss {found.loss:.1e}, gradient of {found.weight} {found.gradient:.1e}"
        help = "what a module draws makes both differ, but for dropout; else this is a fault of the importer"
        raise fail("E606", f"the model differs from its module by {told} relative in float64", help=help)
    return found


def _without_draws(text: str) -> str:
    """The model text without dropout. Element dropout gets p=0 as in evaluation; row dropout becomes the scale 1 / (1
    - p) of kept rows.
    """
    rows = re.sub(r"\brow_dropout\((.*); p=([^)]*)\)", r"scale(\1; factor=1 / (1 - (\2)))", text)
    return re.sub(r"(\bdropout\(.*; p)=[^)]*\)", r"\1=0)", rows)
