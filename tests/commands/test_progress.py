"""Lines of progress: overwritten on a terminal, one after the other elsewhere."""

from __future__ import annotations

import io
import logging
import os
import sys
import time
from collections.abc import Callable

import pytest

from unity_dsl.commands import progress
from unity_dsl.commands.progress import say_progress

LOG = logging.getLogger("unity_dsl.search")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_terminal_shows_at_once_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.01)
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    with say_progress("gpt2") as tell:
        assert shown.getvalue().startswith("\rgpt2 (0 s)\x1b[K"), "before anything is told"
        LOG.info("2 of 4 meshes")
        tell("3 of 4 meshes")
        assert "\rgpt2: 2 of 4 meshes (0 s)" in shown.getvalue() and "gpt2: 3 of 4 meshes" in shown.getvalue()
        count = shown.getvalue().count("3 of 4")
        wait_for(lambda: shown.getvalue().count("3 of 4") > count)
    assert shown.getvalue().endswith("\r\x1b[K")
    LOG.info("afterwards")
    assert "afterwards" not in shown.getvalue()


def test_without_a_terminal_a_line_is_printed_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY_LINE", 0.01)
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    with say_progress("gpt2"):
        LOG.info("2 of 4 meshes")
        wait_for(lambda: shown.getvalue().count("\n") > 2)
    lines = shown.getvalue().splitlines()
    assert set(lines) <= {"unityc: gpt2 (0 s)", "unityc: gpt2: 2 of 4 meshes (0 s)"} and "\x1b" not in shown.getvalue()


def test_short_work_is_silent_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    with say_progress("gpt2"):
        LOG.info("2 of 4 meshes")
    assert shown.getvalue() == ""


def test_a_forked_process_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY", 60.0)
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    with say_progress("gpt2") as tell:
        before = shown.getvalue()
        process = os.fork()
        if not process:
            tell("of the child")
            os._exit(int(shown.getvalue() != before))
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
