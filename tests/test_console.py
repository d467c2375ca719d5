"""What the commands share, where `tests/test_cli.py` does not see it."""

from __future__ import annotations

import subprocess
import sys


def test_an_interruption_in_a_finaliser_is_not_lost() -> None:
    """Also where the second one meets a finaliser again; other faults of finalisers are shown as ever."""
    program = """
import signal, time
from unity_dsl.console import keep_interruptions

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
