"""`unityc import`: the model of a torch module as text."""

from __future__ import annotations

from pathlib import Path

import click

from .console import replace_file, show_lines
from .progress import say_progress


@click.command("import", short_help="Write the model of a torch module as a .udl file.")
@click.argument("factory", metavar="PACKAGE.MODULE:FACTORY")
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Folder of the files."
)
@click.option("--name", metavar="NAME", help="Of the model; by default that of the factory.")
@click.option("--verify/--no-verify", default=True, show_default=True, help="Compare it with the module in float64.")
@click.option("--force", is_flag=True, help="Write over files that are there.")
def import_command(factory: str, output: Path, name: str | None, verify: bool, force: bool) -> None:
    """Write what the module of a FACTORY computes in training as a model: NAME.udl, weights.json, data.py.

    FACTORY takes no arguments and returns a torch.nn.Module and its example inputs, a dict by name or a tuple. The
    module returns its loss, alone or among other values. Dropout is off where both are compared.
    `weights.json` has the module's names of weights, and `data.py` a function that makes the model's inputs of a batch.

    \b
    unityc import my_model:tiny -o imported/
    unityc imported/tiny.udl -o out/ --devices 2
    """
    from ..importer.model_import import import_module
    from ..syntax.diagnostic import fail

    name = name or factory.rpartition(":")[2]
    if not name.isidentifier():
        raise click.BadParameter(f"`{name}` is no name", param_hint="--name")
    with say_progress(factory):
        found = import_module(factory, name, verified=verify)
    paths = [output / file for file in found.files]
    try:
        output.mkdir(parents=True, exist_ok=True)
        present = [path for path in paths if path.exists() and path.read_text() != found.files[path.name]]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise fail("E401", f"cannot write {output}: {reason}", help="choose another folder with -o") from None
    if present and not force:
        raise fail("E607", f"{present[0]} is there with another text", help="--force writes over it")
    for path in paths:
        replace_file(path, found.files[path.name])
    lines = [("model", f"{name}, {found.statements} statements in {found.files[f'{name}.udl'].count(chr(10))} lines")]
    if found.verified is not None:
        told = (
            f"loss {found.verified.loss:.1e}, gradients at most {found.verified.gradient:.1e} ({found.verified.weight})"
        )
        lines.append(("equal", f"{told} from the module in float64"))
    lines.append(("wrote", f"{output}: {', '.join(found.files)}"))
    show_lines(lines)
