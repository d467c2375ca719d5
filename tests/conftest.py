"""Fixtures, hooks and settings that all tests share."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings

from tests.declared import as_they_stand
from tests.once import RUN
from tests.processor_seconds import (  # noqa: F401, hooks
    RECORD,
    pytest_runtest_call,
    pytest_terminal_summary,
    read_record,
)
from tests.sampling import SHORT, of_the_day, share
from unity_dsl.emit.rank_pool import RankPool

# Declarations in tests are tried once a run, by whichever process comes first, and never recorded in the user's cache.
if "PYTEST_XDIST_WORKER" not in os.environ:
    CACHE = TemporaryDirectory(prefix="unity-test-cache-")
    os.environ["XDG_CACHE_HOME"] = os.environ[RUN] = CACHE.name
    # All test processes must agree on the cases of the day, also around midnight.
    os.environ.setdefault("UNITY_SAMPLE", str(date.today().toordinal()))
    # Without cached bytecode, every process that a test starts would compile this package again: a second of work.
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(Path(CACHE.name) / "bytecode")
        sys.dont_write_bytecode = False

# Kernels run in Triton's interpreter. Triton reads this at its import, and torch may import Triton at any time.
os.environ["TRITON_INTERPRET"] = "1"

# A rank that is killed by a signal prints its traceback.
os.environ.setdefault("PYTHONFAULTHANDLER", "1")

# The duration of an example only shows how busy the machine is.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


# Declarations, proofs and models live for the whole run: searching them for cycles took a twentieth of its time.
gc.set_threshold(100_000, 50, 100)


def pytest_collection_finish() -> None:
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Freezes the surviving objects after each file. Otherwise every `gc.collect()` of `compare` walks over all of
    them, which made a comparison take ten times as long as alone.
    """
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_unconfigure() -> None:
    """Unfreezes the objects before modules are torn down; otherwise Triton's modules report what is left."""
    gc.unfreeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the expected texts instead of comparing them")
    parser.addoption("--update-seconds", action="store_true", help="record how long tests take that take longer")


LONGEST = (
    "tests/test_readme.py::test_the_commands_of_a_document_run",
    "tests/examples/test_compiled.py",
    "tests/program/test_examples.py::test_example",
    "tests/emit/kernels/test_compiled_kernels.py",
    "tests/program/test_kernel_programs.py::test_an_example_equals_its_model",
    "tests/search/memory_limit/test_memory_limit.py::test_the_plan_is_the_cheapest_that_fits_or_as_near_as_it_says",
    "tests/prove/adversary/test_adversary.py",
    "tests/search/micro_batches/test_division_choice.py",
    "tests/rules/test_sharding_theorems.py::test_the_prover_leaves_no_axis_without_a_theorem_or_a_reason",
)
"""Tests that take tens of seconds. They run first: at the end, one process would wait for another's."""


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--update-golden") and config.getoption("numprocesses", None):
        raise pytest.UsageError("--update-golden takes one process: several would overwrite a file of digests")
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword:
        os.environ[SHORT] = "1"  # which workers see
    config.addinivalue_line("markers", "a_day(count): so many of the cases of a test are run, others every day")


def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    seconds = read_record(RECORD.read_text()) if SHORT in os.environ else {}
    left: set[pytest.Item] = set()
    for name, every in cases.items():
        if mark := every[0].get_closest_marker("a_day"):
            left |= {*every} - {*of_the_day(every, *mark.args)}
        elif SHORT in os.environ:
            names = [item.nodeid for item in every]
            kept = {*share(names, seconds.get(name, 0.0))}
            left |= {item for item in every if item.nodeid not in kept}
    config.hook.pytest_deselected(items=list(left))
    items[:] = [item for item in items if item not in left]
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """`golden(path, text)` checks that the file holds exactly this text. With --update-golden it writes the file
    instead.
    """
    update = request.config.getoption("--update-golden")

    def check(path: Path, text: str) -> None:
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{path} is missing; run with --update-golden"
        assert text == path.read_text(encoding="utf-8")

    return check


@pytest.fixture
def untried() -> Iterator[None]:
    """Skips the trials of native calls and derivatives when declarations are read."""
    with as_they_stand():
        yield


@pytest.fixture(scope="session")
def pool() -> Iterator[RankPool]:
    """One pool for all tests of a process that run programs on ranks: starting ranks takes seconds."""
    with RankPool(8) as ranks:
        yield ranks
