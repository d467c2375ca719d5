"""Functions that the commands share."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from unity_dsl.commands.console import replace_file, show_diagnostic, show_lines
from unity_dsl.syntax.diagnostic import Diagnostic, InputError
from unity_dsl.syntax.render import render
from unity_dsl.syntax.span import Source, Span

FAULT = Diagnostic("E101", "index `k` is not bound", Span(Source("x.uop", "y[k]\n"), 2, 3), "here", "bind it")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_fault_is_coloured_on_a_terminal_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    show_diagnostic(FAULT)
    plain = capsys.readouterr().err
    assert plain == f"{render(FAULT)}\n" and "\x1b" not in plain
    monkeypatch.setattr(sys, "stderr", Terminal())
    show_diagnostic(FAULT)
    shown = sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert re.sub(r"\x1b\[\d+m", "", shown) == plain
    assert "\x1b[31m\x1b[1merror[E101]\x1b[0m" in shown and "\x1b[36m\x1b[1mhelp:\x1b[0m bind it" in shown
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stderr", Terminal())
    show_diagnostic(FAULT)
    assert sys.stderr.getvalue() == plain  # type: ignore[attr-defined]


def test_labels_stand_in_a_column(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    show_lines([("plan", "mlp [a]"), ("predicted", "x" * 300)])
    plain = capsys.readouterr().out
    assert plain == f"plan       mlp [a]\npredicted  {'x' * 300}\n"
    monkeypatch.setattr(sys, "stdout", Terminal())
    show_lines([("plan", "mlp [a]")])
    assert sys.stdout.getvalue() == "\x1b[1mplan  \x1b[0mmlp [a]\n"  # type: ignore[attr-defined]


def test_one_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.uop"
    path.write_text("old")
    path.chmod(0o640)
    replace_file(path, "new")
    assert path.read_text() == "new" and path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["x.uop"]
    with pytest.raises(InputError):
        replace_file(tmp_path / "missing" / "x.uop", "new")


def test_a_new_file_appears_whole_and_a_link_stays_a_link(tmp_path: Path) -> None:
    replace_file(tmp_path / "new.json", "text")
    assert (tmp_path / "new.json").read_text() == "text"
    (tmp_path / "link.json").symlink_to("new.json")
    replace_file(tmp_path / "link.json", "other")
    assert (tmp_path / "link.json").is_symlink() and (tmp_path / "new.json").read_text() == "other"


def test_an_interruption_in_a_finaliser_is_not_lost() -> None:
    """The same holds if the second interruption meets a finaliser again. Other faults of finalisers appear as usual."""
    program = """
import signal, time
from unity_dsl.commands.console import keep_interruptions

class Interrupted:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

class Slow:
    def __del__(self):
        time.sleep(0.1)

class Faulty:
    def __del__(self):
        raise ValueError("a fault")

keep_interruptions()
signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background inherits that it is ignored
try:
    Faulty()
    Interrupted()
    Slow()
    time.sleep(60)
    print("lost")
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout == "interrupted\n", done.stderr
    assert "ValueError: a fault" in done.stderr and "KeyboardInterrupt" not in done.stderr
