"""A cached hash equals the hash of the fields, and is not passed to another process."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import replace

from unity_dsl.graph.layout_typing import Along
from unity_dsl.machine.machine import load_machine

FOUND_ANEW = """
import pickle, sys
from unity_dsl.graph.layout_typing import Along
assert pickle.load(sys.stdin.buffer) in {Along("rows", "partition")}
"""


def test_equal_objects_have_equal_hashes() -> None:
    one, other = Along("rows", "window"), Along("rows", "window")
    assert hash(one) == hash(one) == hash(other) and one == other
    assert hash(replace(one, axis="columns")) != hash(one)
    machine = load_machine("dgx-h100")
    assert hash(replace(machine, memory_bytes=1.0)) != hash(machine) == hash(pickle.loads(pickle.dumps(machine)))


def test_another_process_computes_its_own() -> None:
    """Strings hash differently in another process."""
    one = Along("rows", "partition")
    hash(one)
    for seed in "1", "2":
        environment = os.environ | {"PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", FOUND_ANEW], input=pickle.dumps(one), env=environment, check=True)
