"""Reports tests that took much longer than recorded, at the end of a run. The report does not make the run fail.

tests/processor_seconds.txt lists the longest case of every test function that has one of a second or more. Times
include child processes. `pytest --update-seconds` raises the recorded times to those of the run.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

RECORD = Path(__file__).with_suffix(".txt")
RECORDED = 1.0
"""Seconds assumed for a function without a line, which takes less."""
TIMES, LEAST = 3.0, 5.0
"""A test is reported if it takes more than `TIMES` times the recorded seconds, and more than `LEAST` seconds."""
PROPERTY = "processor seconds"


def processor_seconds() -> float:
    """Processor seconds of this process, of children it has waited for and, on Linux, of those that main threads have
    started.
    """
    own = os.times()
    return (
        own.user + own.system + own.children_user + own.children_system + sum(map(_of_process, _started(os.getpid())))
    )


def _started(process: int) -> Iterator[int]:
    with suppress(OSError):  # the process may have ended
        for child in map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split()):
            yield from (child, *_started(child))


def _of_process(process: int) -> float:
    with suppress(OSError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def read_record(text: str) -> dict[str, float]:
    return {name: float(seconds) for seconds, name in (line.split(maxsplit=1) for line in text.splitlines())}


def record_text(seconds: Mapping[str, float]) -> str:
    return "".join(f"{seconds[name]:6.1f} {name}\n" for name in sorted(seconds) if seconds[name] >= RECORDED)


def longer(cases: Iterable[tuple[str, float]], recorded: Mapping[str, float]) -> list[str]:
    """A line for every case that took much longer than recorded."""
    known = [(case, took, recorded.get(case.partition("[")[0], RECORDED)) for case, took in cases]
    found = [(case, took, told) for case, took, told in known if took > max(TIMES * told, LEAST)]
    return [f"{case}: {took:.1f} s, recorded {told:.1f} s" for case, took, told in found]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    begun = processor_seconds()
    try:
        return (yield)
    finally:
        item.user_properties.append((PROPERTY, processor_seconds() - begun))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.getreports(kind)]
    cases = [(one.nodeid, seconds) for one in reports for key, seconds in one.user_properties if key == PROPERTY]
    recorded = read_record(RECORD.read_text())
    if told := longer(cases, recorded):
        terminalreporter.section(f"more than {TIMES:g} times the processor seconds of {RECORD.name}", sep="-")
        terminalreporter.write("\n".join([*told, ""]))
    if config.getoption("--update-seconds"):
        longest = {case.partition("[")[0]: seconds for case, seconds in sorted(cases, key=lambda case: case[1])}
        raised = {name: max(seconds, recorded.get(name, 0.0)) for name, seconds in longest.items()}
        RECORD.write_text(record_text(recorded | raised))
