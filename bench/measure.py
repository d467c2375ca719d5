"""Shared by the benchmarks: timing of fresh processes, description of the hardware, result files."""

from __future__ import annotations

import ast
import json
import os
import platform
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results"
COMPILER = tuple(ROOT / name for name in ("unity_dsl", "grammar", "ops", "codegen", "rules"))
"""The files and folders that determine the program of a model."""
_STAGES = ("syntax", "index", "graph", "prove", "rules", "schedule", "machine", "simulation", "search")
PLANNER = (
    *(ROOT / "unity_dsl" / stage for stage in (*_STAGES, "compilation.py")),
    *(ROOT / name for name in ("grammar", "ops", "rules", "machines", "examples")),
)
"""The files and folders that determine the plan of an example."""


def hardware() -> dict[str, str | int]:
    """Processor, usable cores and versions, without anything that identifies the machine itself."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {"cpu": model, "cores": cores, "python": platform.python_version(), "system": platform.system()}


def time_command(command: Sequence[str], repetitions: int, warmup: int = 1) -> dict[str, float | int]:
    """Wall-clock seconds of a command in fresh processes. The first `warmup` runs only warm the disk cache.

    Python caches bytecode, as it does for users, even if the caller has switched that off.
    Raises CalledProcessError if the command fails, so that no time of a failure is reported.
    """
    times = []
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(warmup + repetitions):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, env=environment)
        times.append(time.perf_counter() - start)
    kept = times[warmup:]
    rounded = {"median": median(kept), "least": min(kept), "most": max(kept)}
    return {**{name: round(value, 3) for name, value in rounded.items()}, "repetitions": repetitions}


def processor_seconds() -> float:
    """Processor seconds of this process and of the child processes that it has waited for."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def write_results(name: str, command: str, results: Mapping[str, Any]) -> Path:
    """Writes `bench/results/NAME.json`: the results, the command that reproduces them, and the hardware."""
    document = {"command": command, "unity_dsl": version("unity-dsl"), "hardware": hardware(), "seconds": results}
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return path


# ------------------------------------------------------------------------------- rows that an interrupted run keeps


def digest(paths: Iterable[Path]) -> str:
    """A hash of files and of all files below folders. Python is hashed as its syntax tree, without comments and
    docstrings.
    """
    content = sha256()
    for path in paths:
        below = [path] if path.is_file() else sorted(found for found in path.rglob("*") if found.is_file())
        for found in below:
            if found.suffix != ".pyc":
                content.update(f"{found.relative_to(ROOT)}\n".encode() + sha256(_meant(found)).digest())
    return content.hexdigest()


def _meant(path: Path) -> bytes:
    if path.suffix != ".py":
        return path.read_bytes()
    return ast.dump(_WithoutStrings().visit(ast.parse(path.read_bytes()))).encode()


class _WithoutStrings(ast.NodeTransformer):
    """Drops statements that are strings: docstrings of modules, classes, functions and constants."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str) else node


def rows_of(path: Path) -> dict[str, dict[str, Any]]:
    """The rows of a file of results by case; none if the file is missing or cannot be read."""
    try:
        return dict(json.loads(path.read_text())["cases"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def write_rows(
    path: Path, command: str, rows: Mapping[str, Mapping[str, Any]], summary: Mapping[str, Any] | None = None
) -> None:
    """Writes a file of results atomically. After an interruption either the old or the new file is there."""
    document = {"command": command, "unity_dsl": version("unity-dsl"), "hardware": hardware(), "cases": rows}
    document |= {"summary": summary} if summary is not None else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    os.replace(new, path)


def print_table(results: Mapping[str, Mapping[str, float | int]]) -> None:
    """Prints the median, least and most seconds by name."""
    width = max(map(len, results))
    print(f"{'':<{width}}  median   least    most  seconds")
    for name, row in results.items():
        print(f"{name:<{width}}  {row['median']:6.3f}  {row['least']:6.3f}  {row['most']:6.3f}")
