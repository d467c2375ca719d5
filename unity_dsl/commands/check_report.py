"""Prints what `unityc check` found, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ..emit.plan_file import PlanFile
from ..emit.program_check import CheckReport, measured
from ..search.accounting.unproved_divisions import UNDIVIDED
from ..syntax.diagnostic import first_of
from .console import show_lines

_NAMED = 6


def show_report(report: CheckReport, plan: PlanFile) -> None:
    """Prints the largest relative errors, what the plan divides, and the verdict."""
    errors = {"loss": report.loss_rel_err, "gradients": report.grad_rel_err, "parameters": report.param_rel_err}
    if not report.trained:
        errors = {"outputs": report.loss_rel_err, "stored tensors": report.param_rel_err}
    ranks = "1 rank" if report.ranks == 1 else f"{report.ranks} ranks"
    lines = [
        (
            "float64",
            ", ".join(f"{name} {_text(error)}" for name, error in errors.items()) + f"; largest: {report.worst}",
        ),
        ("float32", f"{_text(report.float32_err)}; on one device {_text(report.float32_single_device_err)}"),
    ]
    if report.mixed is not None:
        err, alone = _text(report.mixed.err), _text(report.mixed.single_device_err)
        lines.append((report.mixed.precision, f"{err}; on one device {alone}, bound {_text(report.mixed.bound)}"))
    if not report.recompiled and report.ranks > 1:
        lines += divided_lines(plan)
    if report.recompiled:
        lines.append(("note", f"the program is for another world size: its texts were compiled again for {ranks}"))
    if report.edited:
        lines.append(("note", f"edited since they were written: {', '.join(report.edited)}"))
    program = f"the program on {ranks}"
    verdict = f"{program} equals its model" if report.ok else f"{program} does NOT equal its model"
    if report.not_finite:
        verdict = f"{program} can't be compared: the model on one device is not finite in {report.not_finite}"
    show_lines([*lines, ("verdict", verdict)])


def divided_lines(plan: PlanFile) -> list[tuple[str, str]]:
    """How many operators are divided, and along what most of them are; a warning if none is."""
    operators = list(_operators(plan.graph))
    divided = [axes for axes in map(_axes, operators) if axes]
    if not divided:
        return [("warning", "no operator is divided: all devices do the same")]
    axes = Counter(axis for found in divided for axis in found)
    along = first_of([f"{axis} ({count})" for axis, count in axes.most_common()], _NAMED)
    lines = [("divided", f"{len(divided)} of {len(operators)} operators: along {along}")]
    return lines + [("warning", note) for note in plan.notes if note.startswith(UNDIVIDED)]


def _operators(graph: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The operators of a planned graph. Those of a repeat come once for each of its plans."""
    for step in graph["steps"]:
        if "node" in step:
            yield step
        for run in step.get("runs", ()):
            yield from _operators(run["body"])


def _axes(operator: Mapping[str, Any]) -> list[str]:
    """The axes along which an operator is divided, each once, or the words for other ways to divide it."""
    roles = [role for role in operator["configuration"] if role not in ("I", "R")]
    words = ("terms of sums" if role.startswith("linearly") else role.removeprefix("along ") for role in roles)
    return list(dict.fromkeys(words))


def _text(error: float) -> str:
    return "not finite" if measured(error) is None else f"{error:.1e}"
