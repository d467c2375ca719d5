"""`unityc rules`: proves and verifies rules."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from .audit import audit_command
from .configurations import configurations_command
from .console import replace_file
from .generate import generate_command
from .list_rules import list_rules_command, shipped_files
from .show_rule import show_rule_command

if TYPE_CHECKING:
    from ..index.library import Library
    from ..prove.refutation.numeric_run import Difference
    from ..rules.rulebook import Progress, Verdict
    from ..syntax.diagnostic import Diagnostic, InputError
    from ..syntax.parse_rules import RuleDecl

PROCESSES = 2
"""Processes of `verify`."""
COLOURS = {"proved": "green", "refuted": "red", "not_proved": "yellow"}


@click.group("rules", short_help="Prove, list, show, generate and verify substitutions.")
def rules_group() -> None:
    """Substitutions of graphs (`.rules`): prove them for all sizes, show a proof, keep certificates.

    \b
    unityc rules prove my.rules
    unityc rules show linear_of_linear --rules my.rules
    unityc rules prove my.rules --write
    unityc rules verify my.rules
    unityc rules configurations softmax
    unityc rules audit graph_subst.pb
    """


rules_group.add_command(configurations_command)
rules_group.add_command(generate_command)
rules_group.add_command(list_rules_command)
rules_group.add_command(audit_command)
rules_group.add_command(show_rule_command)


def _ops(command: Any) -> Any:
    return click.option(
        "--ops", type=click.Path(path_type=Path), multiple=True, metavar="DIR", help="Your own .uop files (repeatable)."
    )(command)


def _files(command: Any) -> Any:
    return click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")(command)


# ---------------------------------------------------------------------------------------------- prove


@rules_group.command("prove", short_help="Prove every rule of FILE...")
@_files
@_ops
@click.option("--json", "as_json", is_flag=True, help="Print the answers as JSON.")
@click.option("--smt", type=click.Path(path_type=Path), metavar="DIR", help="Write what z3 was asked as .smt2 files.")
@click.option("--write", is_flag=True, help="Write the certificates of proved rules beside each file.")
@click.option("--conditions/--no-conditions", default=True, help="Look for conditions under which a wrong rule holds.")
def prove_command(
    files: tuple[Path, ...], ops: tuple[Path, ...], as_json: bool, smt: Path | None, write: bool, conditions: bool
) -> None:
    """Prove of every rule in FILE... that wherever its left side has a value the right side has the same.

    For all sizes that meet the rule's conditions. One line a rule: proved; refuted, with sizes and inputs at which the
    sides differ; or not proved, with what could not be shown. Exit code 0 where all are proved, 1 where one is not, 2
    where a file cannot be read or, after the answers to the others, a rule has no meaning.

    For a rule that is not proved as it is written a condition on sizes is looked for under which it is; that may take
    seconds a rule.

    --write keeps the proofs as X.certificates.json beside X.rules. With --smt every answer that a proof rests on is
    a question to which any SMT solver must say `unsat`.
    """
    from ..index.declarations.loading import load_library
    from ..rules.wellformed import read_each_rule
    from ..syntax.read import read_source

    library = load_library(ops)
    sources = [(path, read_source(path)) for path in files]
    if smt is not None:
        make_folder(smt)
    loaded = [(path, *read_each_rule(source, library)) for path, source in sources]
    answered: list[Verdict] = []
    try:
        for path, rules, _ in loaded:
            before = len(answered)
            if not as_json and len(files) > 1:
                click.echo(f"{path}:")
            width = max((len(rule.name) for rule in rules), default=0)
            for verdict in _answers(rules, library, conditions=conditions):
                answered.append(verdict)
                if not as_json:
                    show_verdict(verdict, library, width)
            if smt is not None:
                write_questions(answered[before:], library, smt)
            if write:
                write_certificates(path, answered[before:], library)
    finally:
        # What is finished is printed after an interruption too.
        faults = [fault for _, _, found in loaded for fault in found]
        if as_json:
            told = [summarise_diagnostic(fault.diagnostic) for fault in faults]
            document: dict[str, Any] = {"rules": list(map(summarise_verdict, answered))}
            click.echo(json.dumps({**document, "errors": told} if told else document, indent=1))
    tell_all(faults)
    if any(status_of(verdict) != "proved" for verdict in answered):
        raise click.exceptions.Exit(1)


def _answers(
    rules: Sequence[RuleDecl], library: Library, *, conditions: bool = False, processes: int = 1
) -> Iterator[Verdict]:
    """The answers as they come. On a terminal a progress line is shown, and removed before each answer.

    Conditions are looked for by one process.
    """
    from ..rules.rulebook import answers, answers_by

    def answered(progress: Progress | None) -> Iterator[Verdict]:
        if conditions:
            return answers(rules, library, progress, conditions=True)
        return answers_by(processes, rules, library, progress)

    if not sys.stderr.isatty():
        yield from answered(None)
        return

    def tell(done: int, total: int, rule: RuleDecl, searching: bool) -> None:
        what = ": looking for a condition" if searching else ""
        click.echo(f"\r{done}/{total} {rule.name[:50]}{what}\x1b[K", nl=False, err=True)

    try:
        for verdict in answered(tell):
            click.echo("\r\x1b[K", nl=False, err=True)
            yield verdict
    finally:
        click.echo("\r\x1b[K", nl=False, err=True)


def status_of(verdict: Verdict) -> str:
    """`proved`, `refuted` or `not_proved`."""
    from ..prove.answer import Proved, Refuted

    if isinstance(verdict.answer, Proved):
        return "proved"
    return "refuted" if isinstance(verdict.answer, Refuted) else "not_proved"


def show_verdicts(verdicts: Sequence[Verdict], library: Library, heading: str = "") -> None:
    """Prints one line per rule. Below a rule that is not proved: why, and where it holds. Below others: what they
    assume.
    """
    if heading:
        click.echo(f"{heading}:")
    width = max((len(verdict.rule.name) for verdict in verdicts), default=0)
    for verdict in verdicts:
        show_verdict(verdict, library, width)


def show_verdict(verdict: Verdict, library: Library, width: int) -> None:
    """Prints the lines of one rule, its name in a column of this width."""
    status = status_of(verdict)
    word = click.style(f"{status.replace('_', ' '):<11}", fg=COLOURS[status])
    time = f"{verdict.answer.seconds * 1e3:>8.1f} ms"
    where = f"  where {', '.join(verdict.conditions)}" if verdict.conditions else ""
    click.echo(f"{word}{verdict.rule.name:<{width}}{time}{where}")
    for line in _reasons(verdict, library):
        click.echo(f"  {line}")


def _reasons(verdict: Verdict, library: Library) -> Iterator[str]:
    """Why a rule is not proved, and the conditions under which it is. For a proved rule, the facts that are assumed."""
    from ..prove.answer import NotProved, Proved, Refuted
    from ..prove.refutation.counterexample import counterexample_table
    from ..prove.refutation.numeric_run import Difference
    from ..rules.rulebook import condition_texts, reason_text

    answer, found = verdict.answer, verdict.found
    if isinstance(answer, Proved):
        yield from (f"assumes {text}" for text in answer.assumed)
    if isinstance(answer, NotProved):
        yield reason_text(answer)
    outside = answer.counterexample if isinstance(answer, Refuted) else None if found is None else found.outside
    if isinstance(outside, Difference):
        yield from counterexample_table(outside, verdict.rule, library).splitlines()
    elif outside is not None:
        yield f"at {', '.join(f'{name} = {size}' for name, size in outside.sizes.items())}: {outside.reason}"
    for text in () if found is None else condition_texts(found):
        yield f"holds where {text} (proved)"


def summarise_verdict(verdict: Verdict) -> dict[str, Any]:
    """A verdict as plain data. `conditions` are the rule's own, or the one found under which a wrong rule is proved."""
    from ..prove.answer import NotProved, Proved, Refuted

    answer = verdict.answer
    found = answer.counterexample if isinstance(answer, Refuted) else None
    conditions: Sequence[str] = () if verdict.found is None else verdict.found.conditions
    if isinstance(answer, Proved):
        conditions = verdict.conditions
    return {
        "name": verdict.rule.name,
        "status": status_of(verdict),
        "conditions": list(conditions),
        "assumed": list(answer.assumed) if isinstance(answer, Proved) else [],
        "reason": f"{answer.obligation}: {answer.reason}" if isinstance(answer, NotProved) else None,
        "ms": round(answer.seconds * 1e3, 3),
        "counterexample": None if found is None else _summarise_difference(found),
    }


def _summarise_difference(found: Difference) -> dict[str, Any]:
    """Where the sides differ, without the inputs; `numbers`, `shapes` and `evaluation` only where they matter."""
    data = found.to_json()
    kept = ("sizes", "numbers", "output", "index", "left", "right", "shapes", "evaluation")
    return {name: data[name] for name in kept if name in data}


def make_folder(folder: Path) -> None:
    """Creates a folder. Raises E030 if it cannot be created."""
    from ..syntax.diagnostic import fail

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise fail("E030", f"cannot write `{folder}`: {error.strerror or error}") from None


def write_questions(verdicts: Sequence[Verdict], library: Library, folder: Path) -> None:
    """Writes the questions that the proofs of these rules asked z3, one file each. Raises E030 if one cannot be
    written.
    """
    from ..prove.rule_proof import follow_rule
    from ..prove.smtlib import smt_files

    for verdict in verdicts:
        if status_of(verdict) == "proved":
            for name, text in smt_files(verdict.rule.name, follow_rule(verdict.rule, library)[1]).items():
                replace_file(folder / name, text)


def write_certificates(path: Path, verdicts: Sequence[Verdict], library: Library) -> None:
    """Writes the certificates of the proved rules beside their file. Raises E030 if it cannot be written."""
    from ..prove.answer import Proved
    from ..rules.certificate import certificates_path, certify, render_certificates

    certificates = [
        certify(verdict.rule, verdict.answer, library) for verdict in verdicts if isinstance(verdict.answer, Proved)
    ]
    replace_file(certificates_path(path), render_certificates(certificates))


# ---------------------------------------------------------------------------------------------- verify


@rules_group.command("verify", short_help="Prove FILE..., or the shipped rules, again; compare with the certificates.")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE...]")
@_ops
def verify_command(files: tuple[Path, ...], ops: tuple[Path, ...]) -> None:
    """Prove every rule of FILE... again, and compare each proof with its certificate. Without FILE, all shipped rules.

    All certificates that are stale are told, before anything is proved, and all that are not those of the new proofs.
    Of the shipped rules only those that are not proved are listed.

    Exit code 0 where all rules are proved and each has the certificate of its proof, 1 where a rule is not proved,
    2 where a certificate is missing, damaged or stale or, after the answers to the others, a rule has no meaning.
    """
    from ..index.declarations.loading import load_library
    from ..rules.certificate_check import certificate_faults, proof_faults
    from ..rules.wellformed import read_rules
    from ..syntax.read import read_source

    library = load_library(ops)
    sources = [(path, read_source(path)) for path in files or shipped_files()]
    certificates = [certificate_faults(path, source, library) for path, source in sources]
    tell_all([fault for _, stale in certificates for fault in stale])
    loaded = [(path, *read_rules(source, library)) for path, source in sources]
    begun = perf_counter()
    verdicts = iter(_answers([rule for _, rules, _ in loaded for rule in rules], library, processes=PROCESSES))
    answered = [(path, list(islice(verdicts, len(rules)))) for path, rules, _ in loaded]
    pairs = zip(answered, certificates, strict=True)
    tell_all([fault for (_, found), (known, _) in pairs for fault in proof_faults(found, library, known)])
    for path, found in answered:
        told = found if files else [one for one in found if status_of(one) != "proved"]
        show_verdicts(told, library, heading=str(path) if told and len(sources) > 1 else "")
    every = [verdict for _, found in answered for verdict in found]
    if not files:
        show_totals(every, perf_counter() - begun)
    tell_all([fault for _, _, faults in loaded for fault in faults])
    if any(status_of(verdict) != "proved" for verdict in every):
        raise click.exceptions.Exit(1)


def summarise_diagnostic(diagnostic: Diagnostic) -> dict[str, Any]:
    """A fault as JSON values; lines and columns are counted from 1."""
    span = diagnostic.span
    line, column = (None, None) if span is None else span.source.position(span.start)
    return {
        "code": diagnostic.code,
        "message": diagnostic.message,
        "file": None if span is None else span.source.name,
        "line": line,
        "column": column,
        "label": diagnostic.label,
        "help": diagnostic.help,
    }


def tell_all(faults: Sequence[InputError]) -> None:
    """Raises all of these faults as one, if there are any."""
    from ..syntax.diagnostic import gathered

    if faults:
        raise gathered(faults)


def show_totals(verdicts: Sequence[Verdict], seconds: float) -> None:
    """Prints how many rules are proved and how many are not, and how long it took."""
    proved = sum(status_of(verdict) == "proved" for verdict in verdicts)
    each = median(verdict.answer.seconds for verdict in verdicts) if verdicts else 0.0
    text = f"{proved} rules proved, {len(verdicts) - proved} not proved, in {seconds:.1f} s"
    click.echo(f"{text}; median {each * 1e3:.1f} ms a proof")
