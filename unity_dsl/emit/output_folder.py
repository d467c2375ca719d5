"""Writes a program into its folder, all or nothing, and never over what the user edited."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

from .. import __version__
from ..graph.graph import Model
from ..graph.loss_divisors import divided_terms
from ..graph.model_graph import build_model
from ..graph.plan import Plan, Undivided
from ..index.library import Library
from ..machine.machine import read_machine
from ..search.micro_batches.batch_division import batch_parameter, divided_model
from ..syntax.diagnostic import InputError, fail
from ..syntax.parse_model import parse_model
from ..syntax.read import read_bytes
from .column_padding import ColumnPadding
from .comment_words import where
from .kernels.contraction_choice import ContractionChoice
from .plan_file import NAME, TRITON, Choices, Sources, digest, load_plan_file, render_plan_file
from .program_text import ProgramText, render_kernels, render_model, render_offload, render_parallel, write_down
from .smaller_sizes import NONE, SmallerSizes, find_smaller_sizes
from .theorem_list import list_declared, list_theorems
from .train_files import render_checkpoint, render_data, render_optimizer, render_train

_PACKAGE = '"""Written by unityc from {model}.udl; `plan.json` says how."""\n\nfrom .model import Model as Model\n'


def render_program(plan: Plan, library: Library, sources: Sources, choices: Choices) -> dict[str, str]:
    """Every file of the program by name. Pure: the same plan gives the same texts.

    A program for one device has no parallel.py. A model without a loss has no files for training.
    """
    machine = read_machine(sources.machine)
    chosen = ContractionChoice(machine), ColumnPadding(machine)
    text = write_down(plan, library, NONE, choices.kernels, *chosen)
    if smaller := _smaller_sizes(text, library, sources, choices, *chosen):
        text = write_down(plan, library, smaller, choices.kernels, *chosen)
    kernels = render_kernels(text)
    train: dict[str, str] = {}
    if plan.model.loss is not None:
        fused = choices.kernels == TRITON
        mixing = _mixing(plan, library, sources, choices)
        train = {"train.py": render_train(plan, machine, fused, mixing), "data.py": render_data(plan)}
        train |= {"optimizer.py": render_optimizer()} if fused else {}
    files = {
        "__init__.py": _PACKAGE.format(model=plan.model.name),
        "model.py": render_model(text),
        **({"kernels.py": kernels} if kernels else {}),
        **({"parallel.py": render_parallel(text)} if plan.mesh.size > 1 else {}),
        **({"offload.py": render_offload()} if plan.passes.offloaded else {}),
        **train,
        "checkpoint.py": render_checkpoint(plan),
    }
    theorems, declared = list_theorems(plan, library), list_declared(plan)
    return {**files, NAME: render_plan_file(plan, sources, choices, files, theorems, declared, __version__)}


def _mixing(plan: Plan, library: Library, sources: Sources, choices: Choices) -> str:
    """Why a step over several batches is not a step over one larger batch: the operator that mixes the examples of a
    batch. Empty if none does.
    """
    file = parse_model(sources.model)
    if divided_terms(plan.model):
        return ""  # weighted by their divisors
    try:
        whole = build_model(file, library, choices.settings, choices.preset, plan.model.precision)
        batch = whole.parameters[batch_parameter(file, whole)]
        count = next((n for n in range(2, int(batch) + 1) if batch % n == 0), 1)
        divided_model(whole, file, library, choices.settings, choices.preset, count)
    except InputError as error:
        found = error.diagnostic
        return f"{where(found.span)}{found.message}" if found.code == "E316" else ""
    return ""


def _smaller_sizes(
    text: ProgramText,
    library: Library,
    sources: Sources,
    choices: Choices,
    contractions: ContractionChoice,
    padding: ColumnPadding,
) -> SmallerSizes:
    file, precision = parse_model(sources.model), text.plan.model.precision
    settings = {**choices.settings, **text.plan.part_of_batch}

    def again(name: str, size: int) -> Model | None:
        model = build_model(file, library, {**settings, name: size}, choices.preset, precision)
        if not text.plan.rules:
            return model
        # Imported only for plans with rules: the import takes in most of the prover.
        from ..rules.replay import replayed

        return replayed(model, text.plan.rules, (*sources.rules, *sources.fusions), library)

    def comparable(text: ProgramText) -> object:
        modules = [(part.name, part.parameters, part.lines) for part in (*text.program.modules, text.module)]
        kernels = text.program.kernels
        return (
            modules,
            text.signature,
            render_parallel(text),
            [one.torch for one in kernels.known.values()] if kernels else [],
        )

    def write(plan: Plan) -> object:
        return comparable(write_down(plan, library, NONE, choices.kernels, contractions, padding))

    return find_smaller_sizes(text.plan, comparable(text), file, library, again, write)


def write_program(
    plan: Plan, library: Library, sources: Sources, choices: Choices, out: Path, force: bool = False
) -> list[Path]:
    """Write the program of a plan into `out` and return the files.

    Everything is rendered before anything is written. Unless `force`, raises E313 for a plan that does not fit the
    memory, and E402 if the user's edits or another's folder would be destroyed. Raises E401 if the folder cannot be
    written. In all these cases nothing has changed.
    """
    for found in plan.warnings:
        if found.code == "W301" and not force:
            undivided = next((f"; {note}" for note in plan.notes if isinstance(note, Undivided)), "")
            help = f"{found.help}{undivided}; --force writes it all the same"
            raise fail("E313", found.message, label=found.label, help=help)
    return write_files(render_program(plan, library, sources, choices), out, force)


def write_files(files: Mapping[str, str], out: Path, force: bool = False) -> list[Path]:
    """Write texts into a folder, all or nothing. Files that an earlier compile wrote and this one does not are removed.

    Raises E401 (cannot be written) and E402 (edited, or not a folder of ours) with nothing changed.
    """
    try:
        obsolete = _earlier_files(files, out, force) - set(files)
        if out.exists():
            _replace(files, obsolete, out)
        else:
            _create(files, out)
    except OSError as error:
        reason = error.strerror or str(error)
        raise fail("E401", f"cannot write {out}: {reason}", help="choose another folder with -o") from None
    return [out / name for name in files]


def edited_files(out: Path) -> list[str]:
    """The names of files that differ from what was written. Raises E403, E404 and E405 like `load_plan_file`."""
    plan = load_plan_file(out)
    return [name for name, recorded in plan.files.items() if _differs(out / name, recorded)]


def _differs(path: Path, recorded: str) -> bool:
    """Whether a file exists and differs from what was written. A file that the user removed may be written again."""
    try:
        return digest(read_bytes(path)) != recorded
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _earlier_files(files: Mapping[str, str], out: Path, force: bool) -> set[str]:
    """The names of the files that an earlier compile wrote in this folder. Raises E401 if it is not a folder and,
    unless `force`, E402 if anything of the user's is in the way.
    """
    if out.exists() and not out.is_dir():
        raise fail("E401", f"cannot write {out}: it is not a folder", help="choose another folder with -o")
    if not out.exists() or not any(out.iterdir()):
        return set()
    try:
        plan = load_plan_file(out)
    except InputError as error:
        if force:
            return set()
        reason = "is not empty and holds no plan of ours" if error.diagnostic.code == "E403" else "holds a damaged plan"
        raise fail("E402", f"{out} {reason}", help="choose another folder, or overwrite with --force") from None
    edited = edited_files(out)
    foreign = [name for name in files if name != NAME and name not in plan.files and (out / name).exists()]
    if (edited or foreign) and not force:
        names = ", ".join(sorted(edited + foreign))
        message = f"{out} has files that were changed since they were written: {names}"
        raise fail("E402", message, help="choose another folder, or overwrite with --force")
    return set(plan.files)


def _create(files: Mapping[str, str], out: Path) -> None:
    """Creates a folder that appears complete, by one rename."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with _temporary(out.parent, out.name) as folder:
        _fill(folder, files)
        folder.rename(out)


def _replace(files: Mapping[str, str], obsolete: set[str], out: Path) -> None:
    """Replaces each file by one rename, the plan last. If any of them fails, the earlier files are put back."""
    with _temporary(out, "new") as new, _temporary(out, "old") as old:
        _fill(new, files)
        kept = [name for name in (*files, *sorted(obsolete)) if (out / name).exists()]
        for name in kept:
            shutil.copy2(out / name, old / name)
        try:
            for name in sorted(files, key=lambda name: name == NAME):
                os.replace(new / name, out / name)
            for name in obsolete:
                (out / name).unlink(missing_ok=True)
        except OSError:
            for name in kept:
                if (old / name).exists() and not (out / name).is_dir():
                    os.replace(old / name, out / name)
            for name in set(files) - set(kept):
                (out / name).unlink(missing_ok=True)
            raise


def _fill(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_bytes(text.encode())


@contextmanager
def _temporary(parent: Path, stem: str) -> Iterator[Path]:
    """A temporary folder on the same file system, with the user's permissions (`mkdtemp` would make it private)."""
    folder = parent / f".{stem}-{token_hex(6)}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
