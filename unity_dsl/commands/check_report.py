"""What `unityc check` found, for people."""

from __future__ import annotations

from ..emit.program_check import CheckReport, measured
from .console import show_lines


def show_report(report: CheckReport) -> None:
    """The largest relative errors, and the verdict."""
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
    if report.recompiled:
        lines.append(("note", f"the program is for another world size: its texts were compiled again for {ranks}"))
    if report.edited:
        lines.append(("note", f"edited since they were written: {', '.join(report.edited)}"))
    program = f"the program on {ranks}"
    verdict = f"{program} equals its model" if report.ok else f"{program} does NOT equal its model"
    if report.not_finite:
        verdict = f"{program} can't be compared: the model on one device is not finite in {report.not_finite}"
    show_lines([*lines, ("verdict", verdict)])


def _text(error: float) -> str:
    return "not finite" if measured(error) is None else f"{error:.1e}"
