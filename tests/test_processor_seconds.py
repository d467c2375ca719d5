"""How tests that take longer than recorded are reported, and how the record is written."""

from __future__ import annotations

import sys
from subprocess import PIPE, Popen
from time import process_time

from tests.processor_seconds import RECORD, longer, processor_seconds, read_record, record_text

BUSY = "from time import process_time\nwhile process_time() < 0.3: pass"


def test_only_what_takes_many_times_as_long_is_told() -> None:
    cases = [("a.py::quick[1]", 4.9), ("a.py::new", 5.1), ("a.py::long[1]", 29.0), ("a.py::long[2]", 31.0)]
    assert longer(cases, {"a.py::long": 10.0}) == [
        "a.py::new: 5.1 s, recorded 1.0 s",
        "a.py::long[2]: 31.0 s, recorded 10.0 s",
    ]


def test_the_record_is_sorted_and_has_no_quick_tests() -> None:
    assert record_text({"b": 2.04, "a": 11.0, "c": 0.9}) == "  11.0 a\n   2.0 b\n"
    text = RECORD.read_text()
    assert record_text(read_record(text)) == text


def test_processes_that_are_started_count_while_they_live_and_after() -> None:
    before, own = processor_seconds(), process_time()
    with Popen(
        [sys.executable, "-c", f"{BUSY}\nprint(flush=True)\ninput()"], stdin=PIPE, stdout=PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        alive = processor_seconds() - before - (process_time() - own)
        process.communicate("\n")
    ended = processor_seconds() - before - (process_time() - own)
    assert ended > 0.25 and (alive > 0.25 or not sys.platform.startswith("linux"))
