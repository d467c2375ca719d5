"""What `unityc check` found, for people."""

from __future__ import annotations

from ..emit.program_check import CheckReport
from .console import show_lines


def show_report(report: CheckReport) -> None:
    """The largest relative errors, and the verdict."""
    errors = {"loss": report.loss_rel_err, "gradients": report.grad_rel_err, "parameters": report.param_rel_err}
    if not report.trained:
        errors = {"outputs": report.loss_rel_err, "stored tensors": report.param_rel_err}
    ranks = "1 rank" if report.ranks == 1 else f"{report.ranks} ranks"
    lines = [
        ("float64", ", ".join(f"{name} {error:.1e}" for name, error in errors.items()) + f"; largest: {report.worst}"),
        ("float32", f"{report.float32_err:.1e}; on one device {report.float32_single_device_err:.1e}"),
    ]
    if report.mixed is not None:
        err, alone = report.mixed.err, report.mixed.single_device_err
        lines.append((report.mixed.precision, f"{err:.1e}; on one device {alone:.1e}, bound {report.mixed.bound:.1e}"))
    if report.recompiled:
        lines.append(("note", f"the program is for another world size: its texts were compiled again for {ranks}"))
    if report.edited:
        lines.append(("note", f"edited since they were written: {', '.join(report.edited)}"))
    if report.not_finite:
        where = f"the model on one device is not finite in {report.not_finite}"
        lines.append(("note", f"{where}: so it can't be compared"))
    verdict = "equals its model" if report.ok else "does NOT equal its model"
    show_lines([*lines, ("verdict", f"the program on {ranks} {verdict}")])
