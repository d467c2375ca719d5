"""The `unityc` command line: the only part that prints and exits.

Exit codes: 0 done; 1 a check that failed, or a fault of ours; 2 a fault in the input; 130 interrupted. Only click is
imported before a command runs, so that help is immediate and a compile loads neither torch nor z3.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from time import monotonic

import click

from . import __version__
from .commands.console import (
    keep_interruptions,
    print_anything,
    replace_file,
    show_diagnostic,
    show_progress,
    show_usage_error,
)
from .commands.option_values import parse_mesh, parse_seconds, parse_settings

DEBUG = "UNITY_DEBUG"


def main() -> None:
    """Console entry: run, then exit with the code."""
    keep_interruptions()
    print_anything()
    show_progress()
    code = run(sys.argv[1:])
    if "triton" not in sys.modules:  # triton looks for leaks at exit, and would report frozen objects
        gc.freeze()  # Otherwise Python would look for cycles among all objects before it exits.
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; every failure is reported on stderr."""
    try:
        return run_to_its_end(arguments)
    except (click.Abort, KeyboardInterrupt):
        click.echo("unityc: interrupted", err=True)
        return 130


def run_to_its_end(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. Raises Abort or KeyboardInterrupt if it is interrupted."""
    from .syntax.diagnostic import InputError

    try:
        # Not in click's standalone mode, which exits the process. The result is None or the code of an Exit.
        code: int | None = unityc.main(list(arguments), prog_name="unityc", standalone_mode=False)
        sys.stdout.flush()
    except InputError as error:
        for diagnostic in (error.diagnostic, *error.more):
            show_diagnostic(diagnostic)
        return 2
    except click.ClickException as error:
        show_usage_error(error)
        return error.exit_code
    except click.Abort:
        raise
    except BrokenPipeError:
        # The pipe's reader has closed it. As click does, redirect stdout so that the flush at exit does not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        from .syntax.render import shortened

        text = shortened(f"{type(error).__name__}: {error}")
        click.echo(f"unityc: internal error: {text}\nhelp: this is a fault of unityc; {DEBUG}=1 shows where", err=True)
        return 1
    return code or 0


class Commands(click.Group):
    """`unityc MODEL.udl …` means `unityc compile MODEL.udl …`. Commands in modules of their own are imported on use."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted([*self.commands, *ELSEWHERE])

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        return ELSEWHERE[name]() if name in ELSEWHERE else super().get_command(context, name)

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        known = self.list_commands(context)
        if args and args[0] not in known and args[0] not in ("--help", "-h", "--version"):
            close = get_close_matches(args[0], known, n=1, cutoff=0.7)
            if close and not Path(args[0]).exists():
                raise click.UsageError(f"no such command: {args[0]}; did you mean `{close[0]}`?", context)
            args = ["compile", *args]
        return super().parse_args(context, args)


def load_rules_group() -> click.Command:
    from .commands.rules import rules_group

    return rules_group


def load_docs_command() -> click.Command:
    from .commands.documents import docs_command

    return docs_command


def load_profile_command() -> click.Command:
    from .commands.profile import profile_command

    return profile_command


def load_trace_command() -> click.Command:
    from .commands.trace import trace_command

    return trace_command


def load_compare_command() -> click.Command:
    from .commands.compare import compare_command

    return compare_command


def load_import_command() -> click.Command:
    from .commands.import_module import import_command

    return import_command


ELSEWHERE = {
    "import": load_import_command,
    "compare": load_compare_command,
    "rules": load_rules_group,
    "docs": load_docs_command,
    "profile": load_profile_command,
    "trace": load_trace_command,
}
"""Loaders of commands that have modules of their own."""


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="`unityc MODEL.udl -o out/` is short for `unityc compile MODEL.udl -o out/`.",
)
@click.version_option(__version__, message="unityc %(version)s")
def unityc() -> None:
    """Compile a model to the distributed PyTorch program that trains it."""


# ---------------------------------------------------------------------------------------------- compile


@unityc.command("compile", short_help="Compile MODEL.udl into a program (the default command).")
@click.argument("model", type=click.Path(path_type=Path), metavar="MODEL.udl")
@click.option("--output", "-o", type=click.Path(path_type=Path), metavar="DIR", help="Folder of the program, `out/`.")
@click.option("--machine", "-m", default="local", metavar="NAME|FILE", show_default=True, help="Hardware to plan for.")
@click.option("--devices", "-d", type=int, metavar="N", help="World size; by default that of --mesh, else 1.")
@click.option("--mesh", metavar="2,4", help="Degrees of the mesh axes, instead of a search.")
@click.option("--strategy", "-s", default="auto", metavar="NAME", show_default=True, help="How to choose the plan.")
@click.option("--preset", "-p", metavar="NAME", help="A preset of the model.")
@click.option("--precision", metavar="f32|tf32|bf16|f16", help="Float type of products; weights stay in float32.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter of the model (repeatable).")
@click.option("--pin", "pins", multiple=True, metavar="NAME=LAYOUT", help="Fix a layout, `w1=S0` (repeatable).")
@click.option(
    "--ops", type=click.Path(path_type=Path), multiple=True, metavar="DIR", help="Your own .uop files (repeatable)."
)
@click.option(
    "--rules", type=click.Path(path_type=Path), multiple=True, metavar="FILE", help="Proved substitutions (repeatable)."
)
@click.option("--no-rules", is_flag=True, help="Use no shipped rules.")
@click.option("--forbid", multiple=True, metavar="RULE", help="A rule that the search must not use (repeatable).")
@click.option("--memory", metavar="40GB", help="Memory of a device that a plan may use; by default all.")
@click.option(
    "--micro-batches",
    type=click.IntRange(min=1),
    metavar="N",
    help="Parts of the batch that a step runs one after the other; by default as memory asks for.",
)
@click.option(
    "--recompute",
    default="auto",
    metavar="NAME[:N],…|all|none",
    help="Repeats that the backward pass recomputes, or their first N iterations, to save memory; by default where it "
    "is short.",
)
@click.option(
    "--offload",
    default="auto",
    metavar="NAME[:N],…|all|none",
    help="Repeats, or their first N iterations, whose activations wait in host memory for the backward pass; by "
    "default where that is faster than to recompute them.",
)
@click.option(
    "--pad",
    default="auto",
    metavar="NAME:DIM[=SIZE],…|all|none",
    help="Dimensions that are padded, so that devices divide them; by default where a strategy or a pin needs "
    "it, or the step is shorter.",
)
@click.option(
    "--kernels",
    type=click.Choice(["torch", "triton"]),
    default="torch",
    show_default=True,
    help="As what operators run on a GPU: each as operations of torch, or groups of them as fused kernels.",
)
@click.option(
    "--time-limit",
    callback=parse_seconds,
    metavar="SECONDS",
    help="End the search with the best plan by then.",
)
@click.option(
    "--effort",
    type=click.Choice(["low", "normal", "high"]),
    default="normal",
    show_default=True,
    help="How much `auto` looks for: few plans, those that pay, or whatever may save a little more.",
)
@click.option("--force", is_flag=True, help="Write a program that does not fit, or over one that was edited.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.option("--verbose", "-v", is_flag=True, help="Print every layout and note of the plan.")
def compile_command(
    model: Path,
    output: Path | None,
    machine: str,
    devices: int | None,
    mesh: str | None,
    strategy: str,
    preset: str | None,
    precision: str | None,
    settings: tuple[str, ...],
    pins: tuple[str, ...],
    ops: tuple[Path, ...],
    rules: tuple[Path, ...],
    no_rules: bool,
    forbid: tuple[str, ...],
    memory: str | None,
    micro_batches: int | None,
    recompute: str,
    offload: str,
    pad: str,
    kernels: str,
    time_limit: float | None,
    effort: str,
    force: bool,
    as_json: bool,
    verbose: bool,
) -> None:
    """Compile MODEL.udl for a machine and write the program that trains it.

    \b
    unityc examples/digits.udl -o out/ --devices 2
    unityc examples/bert_large.udl -o out/ --machine dgx-a100 --devices 8
    unityc model.udl -o out/ --devices 4 --mesh 2,2 --pin 'layer.w=S0,I' --set d=512
    """
    begun = monotonic()
    # As in a search, objects made here live until the process ends, so garbage collection would find nothing.
    gc.disable()
    from math import prod

    from .commands.plan_summary import show_summary
    from .commands.progress import say_progress
    from .commands.search_interruption import ending_search
    from .commands.summary import summarise
    from .compilation import Request, compile_model
    from .emit.output_folder import write_program
    from .machine.byte_count import parse_bytes

    degrees = parse_mesh(mesh)
    if devices is None:
        devices = prod(degrees) if degrees else 1
    request = Request(
        model=model,
        settings=parse_settings(settings),
        preset=preset,
        precision=precision,
        machine=machine,
        devices=devices,
        mesh=degrees,
        strategy=strategy,
        pins=pins,
        memory=None if memory is None else parse_bytes(memory),
        micro_batches=micro_batches,
        recompute=recompute,
        offload=offload,
        pad=pad,
        kernels=kernels,
        operators=ops,
        rules=rules,
        shipped_rules=not no_rules,
        forbidden=forbid,
        time_limit=time_limit,
        effort=effort,
    )
    with ending_search(time_limit, begun) as end, say_progress(model.stem):
        compilation = compile_model(request, end)
    files = write_program(
        compilation.plan, compilation.library, compilation.sources, request, output or Path("out"), force
    )
    if as_json:
        click.echo(json.dumps(summarise(compilation, files, kernels), indent=1))
    else:
        show_summary(compilation, files, kernels, verbose)
    for warning in compilation.plan.warnings:
        show_diagnostic(warning)


# ---------------------------------------------------------------------------------------------- check


@unityc.command("check", short_help="Run a compiled program against its single-device reference.")
@click.argument("out", type=click.Path(path_type=Path), metavar="OUT")
@click.option("--ranks", "-n", type=int, metavar="N", help="World size; by default that of the program.")
@click.option("--steps", type=click.IntRange(min=1), default=3, show_default=True, help="SGD steps to compare.")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True, help="Of weights and data.")
@click.option("--data", metavar="MODULE:FUNCTION", help="Batches as train.py takes them; by default they are random.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def check_command(out: Path, ranks: int | None, steps: int, seed: int, data: str | None, as_json: bool) -> None:
    """Run the program in OUT on local ranks and compare it with its model on one device.

    Same initial weights, same data: the loss, every gradient, and the parameters after some SGD steps are compared, in
    float64 (the test of correctness) and in float32. Of a model without a loss the outputs are compared. Exit code 1
    where they differ, or where the model has values that are not finite and can't be compared.
    """
    from .commands.check_report import show_report
    from .emit.plan_file import load_plan_file
    from .emit.program_check import check

    if data is not None:
        from .emit.rank_comparison import data_function

        try:
            data_function(data)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--data") from None
    report = check(out, ranks, steps=steps, seed=seed, data=data or "")
    if as_json:
        click.echo(json.dumps(report.to_json()))
    else:
        show_report(report, load_plan_file(out))
    if not report.ok:
        raise click.exceptions.Exit(1)


# ---------------------------------------------------------------------------------------------- explain, list, fmt


@unityc.command("explain", short_help="Explain a program's plan, a declaration or an error code.")
@click.argument("name", metavar="OUT|NAME|CODE")
@click.argument("part", required=False, metavar="[TENSOR|OP]")
@click.option(
    "--ops", type=click.Path(path_type=Path), multiple=True, metavar="DIR", help="Your own .uop files (repeatable)."
)
@click.option("--pin", "pins", multiple=True, metavar="NAME=LAYOUT", help="What if this was pinned (repeatable)?")
@click.option(
    "--forbid", "forbidden", multiple=True, metavar="NAME=LAYOUT", help="What if this was not allowed (repeatable)?"
)
@click.option("--json", "as_json", is_flag=True, help="Print what is said of a plan as JSON.")
@click.option("--schedule", is_flag=True, help="Print the step in order: streams, waits, memory.")
@click.option("--search", is_flag=True, help="Print what the search tried, and what it gave.")
def explain_command(
    name: str,
    part: str | None,
    ops: tuple[Path, ...],
    pins: tuple[str, ...],
    forbidden: tuple[str, ...],
    as_json: bool,
    schedule: bool,
    search: bool,
) -> None:
    """Say what a step of the program in the folder OUT is spent on, what is derived from the declaration NAME, or what
    the error CODE means.

    A plan's step is simulated on the machine it was compiled for: seconds by operator and collective, those of all
    iterations together, what bounds them, and what data parallelism would take. TENSOR or OP, as plan.json or the table
    names it, tells of that alone, with its layouts. --pin and --forbid ask for the best plan on the same mesh with
    these layouts, or without them: what it costs and holds, and which other layouts it has. --schedule prints the step
    in the order in which a device issues it: what runs on which stream, what it waits for and how much is held. With
    --search it is what the search tried, in order.

    \b
    unityc explain out/
    unityc explain out/ --schedule
    unityc explain out/ --search
    unityc explain out/ 'layer.*.attn.qkv'
    unityc explain out/ --pin 'layer.attn.qkv=S0'
    unityc explain softmax
    unityc explain E012
    """
    if Path(name).is_dir():
        from .commands.plan_explanation import explain_plan, show_schedule

        if schedule or search:
            if part is not None or pins or forbidden or as_json or (schedule and search):
                raise click.UsageError(f"--{'schedule' if schedule else 'search'} takes no other option")
            if schedule:
                show_schedule(Path(name))
                return
            from .commands.search_trail import show_search

            show_search(Path(name))
            return
        explain_plan(Path(name), part, pins, forbidden, as_json)
        return
    if schedule or search:
        raise click.UsageError(f"there is no folder {name} with a program, whose step or search could be printed")
    if pins or forbidden:
        raise click.UsageError(f"there is no folder {name} with a program, whose plan could be another one")
    if part is not None:
        raise click.UsageError(f"there is no folder {name} with a program, of which {part} could be told")
    from .syntax.codes import CODES

    if name.upper() in CODES:
        code = CODES[name.upper()]
        click.echo(f"{name.upper()}: {code.title}\n\n{click.wrap_text(code.text, width=100)}")
        return
    from .commands.declaration_explanation import explain_declaration
    from .commands.progress import say_progress

    with say_progress(name) as tell:
        text = explain_declaration(name, ops, lambda what: tell(f"proved: {what}"))
    click.echo(text)


@unityc.command("list", short_help="List ops, machines, strategies or examples.")
@click.argument("kind", type=click.Choice(["ops", "machines", "strategies", "examples"]))
@click.option(
    "--ops", type=click.Path(path_type=Path), multiple=True, metavar="DIR", help="Your own .uop files (repeatable)."
)
def list_command(kind: str, ops: tuple[Path, ...]) -> None:
    """Print one line for each operator, machine, strategy or shipped example."""
    from .commands.listings import list_examples, list_machines, list_operators, list_strategies

    listings = {
        "ops": lambda: list_operators(ops),
        "machines": list_machines,
        "strategies": list_strategies,
        "examples": list_examples,
    }
    rows = listings[kind]()
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        click.echo(f"{name:<{width}}  {text}".rstrip())


@unityc.command("fmt", short_help="Format .uop, .udl and .rules files in place.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILES")
@click.option("--check", "only_check", is_flag=True, help="Change nothing; exit code 1 where a file is not formatted.")
def format_command(files: tuple[Path, ...], only_check: bool) -> None:
    """Write FILES in the one standard form. Comments are kept; the meaning is not touched."""
    from .syntax.format import format_model, format_ops, format_rules
    from .syntax.read import read_source

    formats = {".uop": format_ops, ".udl": format_model, ".rules": format_rules}
    for path in files:
        if path.suffix not in formats:
            raise click.BadParameter(f"`{path}` is not a .uop, .udl or .rules file", param_hint="FILES")
    sources = {path: read_source(path) for path in files}
    changed = {path: text for path, source in sources.items() if (text := formats[path.suffix](source)) != source.text}
    for path, text in changed.items():
        if not only_check:
            replace_file(path, text)
        click.echo(f"{'would format' if only_check else 'formatted'} {path}")
    if only_check and changed:
        raise click.exceptions.Exit(1)
