"""`unityc import`: the model of a torch module as text."""

from __future__ import annotations

from pathlib import Path

import click

from .console import replace_file, show_lines
from .progress import say_progress

LOSSES = ("cross_entropy", "mse")


@click.command("import", short_help="Write the model of a torch module as a .udl file.")
@click.argument("factory", metavar="PACKAGE.MODULE:FACTORY")
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Folder of the files."
)
@click.option(
    "--name",
    metavar="NAME",
    help="Of the model; by default that of the factory, or of its module where that is a keyword.",
)
@click.option("--loss", metavar="NAME", help="Of an ONNX file without one: cross_entropy or mse of its first output.")
@click.option("--size", "sizes", multiple=True, metavar="NAME=N", help="A symbolic size of an ONNX file; by default 2.")
@click.option("--verify/--no-verify", default=True, show_default=True, help="Compare it with the module in float64.")
@click.option("--weights/--no-weights", default=True, show_default=True, help="Without: matrices take no memory.")
@click.option(
    "--sizes/--no-sizes", "probed", default=True, show_default=True, help="Try other sizes: they become parameters."
)
@click.option(
    "--ops", type=click.Path(path_type=Path), multiple=True, metavar="FILE", help="Your own .uop files (repeatable)."
)
@click.option("--force", is_flag=True, help="Write over files that were edited.")
def import_command(
    factory: str,
    output: Path,
    name: str | None,
    loss: str | None,
    sizes: tuple[str, ...],
    verify: bool,
    weights: bool,
    probed: bool,
    ops: tuple[Path, ...],
    force: bool,
) -> None:
    """Write what the module of a FACTORY computes in training as a model: NAME.udl, weights.json, data.py.

    FACTORY takes no arguments and returns a torch.nn.Module and its example inputs, a dict by name or a tuple; or it is
    a file, model.onnx. The module returns its loss, alone or among other values; or it is a compiled Keras model, whose
    inputs are x and y. Dropout is off in the comparison.
    `weights.json` has the module's names of weights, and `data.py` a function that makes the model's inputs of a batch.
    Large tensors that the module keeps without training them stand in `tables.pt`. Operators of torch that have no
    counterpart may be declared in files for --ops, under torch's names.

    \b
    unityc import my_model:tiny -o imported/
    unityc import model.onnx -o imported/ --loss cross_entropy --size batch=4
    unityc imported/tiny.udl -o out/ --devices 2
    """
    from ..importer.model_import import import_module, import_onnx
    from ..syntax.diagnose import terminal_texts
    from ..syntax.diagnostic import fail

    is_file = factory.endswith(".onnx")
    module, _, function = factory.rpartition(":")
    keywords = {*terminal_texts("udl").values()}
    usual = [Path(factory).stem] if is_file else [function, module.rpartition(".")[2]]
    name = name or next((one for one in usual if one not in keywords), usual[0])
    if not name.isidentifier() or name in keywords:
        raise click.BadParameter(f"`{name}` is no name of a model: give one by --name", param_hint="--name")
    known = ""
    with say_progress(factory):
        if is_file:
            given = _sizes(sizes)
            found, known = import_onnx(Path(factory), name, _loss(loss), given, verified=verify)
        else:
            found = import_module(factory, name, verified=verify, weights=weights, sizes=probed, ops=ops)
    written = found.written
    try:
        output.mkdir(parents=True, exist_ok=True)
        present = [path for path in map(output.joinpath, written) if path.exists()]
        edited = [path for path in present if path.read_bytes() != written[path.name]]
    except OSError as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise fail("E401", f"cannot write {output}: {reason}", help="choose another folder with -o") from None
    if edited and not force:
        raise fail("E607", f"{edited[0]} is there with other contents", help="--force writes over it")
    for file, contents in written.items():
        replace_file(output / file, contents)
    lines = [("model", f"{name}, {found.statements} statements in {found.files[f'{name}.udl'].count(chr(10))} lines")]
    if found.verified is not None:
        told = (
            f"loss {found.verified.loss:.1e}, gradients at most {found.verified.gradient:.1e} ({found.verified.weight})"
        )
        lines.append(("equal", f"{told} from the module in float64"))
    lines += [("sizes", ", ".join(found.sizes.known))] if found.sizes.known else []
    lines += [("note", f"`{size}` is no parameter: {why}") for size, why in found.sizes.fixed.items()]
    lines += [("note", note) for note in (*found.notes, *([known] if known else []))]
    lines += [("note", f"compile it with {' '.join(f'--ops {path}' for path in ops)}")] if ops else []
    lines.append(("wrote", f"{output}: {', '.join(written)}"))
    show_lines(lines)


def _loss(name: str | None) -> str | None:
    if name not in (None, *LOSSES):
        raise click.BadParameter(f"`{name}` is none of {', '.join(LOSSES)}", param_hint="--loss")
    return name


def _sizes(given: tuple[str, ...]) -> dict[str, int]:
    found = {}
    for one in given:
        name, equals, size = one.partition("=")
        if not equals or not size.isdecimal() or not int(size):
            raise click.BadParameter(f"`{one}` is not NAME=N", param_hint="--size")
        found[name] = int(size)
    return found
