"""`unityc rules show`: the proof of a rule, and what its two sides cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .list_rules import shipped_files

if TYPE_CHECKING:
    from ..machine.machine import Machine
    from ..machine.rule_price import SidePrice
    from ..syntax.parse_rules import RuleDecl

DTYPE = "f32"


@click.command("show", short_help="Show the proof of the rule NAME, and what its sides cost.")
@click.argument("name", metavar="NAME")
@click.option(
    "--rules", type=click.Path(path_type=Path), multiple=True, metavar="FILE", help="Where to look; else shipped rules."
)
@click.option(
    "--ops", type=click.Path(path_type=Path), multiple=True, metavar="DIR", help="Your own .uop files (repeatable)."
)
@click.option("--smt", is_flag=True, help="All questions to z3 in full, as SMT-LIB.")
@click.option("--at", "given", multiple=True, metavar="NAME=SIZE", help="Price both sides at this size (repeatable).")
@click.option("--machine", "-m", default="local", metavar="NAME|FILE", show_default=True, help="Hardware of prices.")
def show_rule_command(
    name: str, rules: tuple[Path, ...], ops: tuple[Path, ...], smt: bool, given: tuple[str, ...], machine: str
) -> None:
    """Show how the rule NAME is proved, or how far the proof goes.

    The rule, its sizes, both sides in the prover's normal form, the obligations that were met, and what z3 was asked.
    In the normal form `sum(k < h) [k < o] x[i, k]` is a sum over k of those elements for which k < o; `max{…}` is the
    greatest of a set; a dimension made of several factors has an index in brackets, the major factor first.

    Last, with --at for each size, what either side costs, forward on one device. Partially equal forms, with their
    correction, are priced without being asked, at the sizes of a layer of a ResNet.
    """
    from ..index.declarations.loading import load_library
    from ..machine.machine import load_machine
    from ..machine.rule_price import price_sides
    from ..prove.normal_form.form import Unsupported
    from ..prove.translation.symbolic_sizes import Failed
    from ..rules.partial_equivalence.moves import sizes_of_layer
    from ..rules.proof_text import describe_rule
    from ..rules.wellformed import check_rule
    from ..syntax.diagnostic import fail, suggest

    library = load_library(ops)
    known = {rule.name: rule for rule in _rules_of(rules)}
    if name not in known:
        hint = suggest(name, known) or "`--rules FILE` says in which file to look"
        raise fail("E541", f"there is no rule called `{name}`", help=hint)
    hardware = load_machine(machine)
    # Only this rule of a file has to be well formed.
    rule = check_rule(known[name], library)
    sizes = sizes_of_layer(rule) | dict(map(parse_size, given))
    try:
        priced = price_sides(rule, library, sizes, hardware, DTYPE) if sizes else None
    except (Failed, Unsupported) as reason:
        raise fail("E510", f"`{name}` has no price: {reason}") from None
    click.echo(describe_rule(rule, library, smt=smt))
    if priced is not None:
        for line in price_lines(priced, sizes, hardware):
            click.echo(line)


def parse_size(text: str) -> tuple[str, int]:
    """`m=64` as a name and its size."""
    name, _, size = text.partition("=")
    if not (name.strip() and size.strip().isdecimal() and int(size) > 0):
        raise click.BadParameter(f"`{text}` is not NAME=SIZE, a whole number from 1", param_hint="--at")
    return name.strip(), int(size)


def price_lines(priced: Sequence[SidePrice], sizes: Mapping[str, int], machine: Machine) -> Iterator[str]:
    """A heading, and a line for each side."""
    from ..machine.byte_count import describe_bytes
    from ..written_figures import duration
    from .summary import operations

    yield f"price      at {', '.join(f'{name} = {size}' for name, size in sizes.items())}"
    yield f"           forward on one device of {machine.name}, {DTYPE}"
    for side, price in zip(("left", "right"), priced, strict=True):
        kernels = f"{price.kernels} kernel{'s' * (price.kernels != 1)}"
        yield (
            f"           {side:<6}{duration(price.seconds):>8}  {operations(price.flops):>11}  "
            f"{describe_bytes(price.bytes):>8}  {kernels:>10}"
        )


def _rules_of(paths: Sequence[Path]) -> Iterator[RuleDecl]:
    """The rules of these files, or the shipped ones, as they were parsed."""
    from ..syntax.parse_rules import parse_rules
    from ..syntax.read import read_source

    for path in paths or shipped_files():
        yield from parse_rules(read_source(path)).rules
