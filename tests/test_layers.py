"""The architecture, enforced: the order of the stages, what is loaded when, and the size of files."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "unity_dsl"
STAGES = (
    *("syntax", "index", "graph", "prove", "rules", "schedule", "machine", "simulation", "search", "emit", "profiling"),
    *("frontend", "report", "compilation", "importer", "commands", "api", "cli", "__main__"),
)
BELOW_ALL = ("cached_hash", "collector", "resources", "written_figures", "__init__")
"""Modules that every stage may import and that import no stage."""

MODULES = sorted(PACKAGE.rglob("*.py"))


def stage_of(parts: tuple[str, ...]) -> str:
    """The stage of a dotted name inside the package: `index` for `("index", "term")`, `__init__` for the package
    itself.
    """
    return parts[0] if parts and parts[0] != "__init__" else "__init__"


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def names_imported(path: Path) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """Line and dotted name of every import of this package, including those inside functions and for types alone."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    found: list[tuple[int, tuple[str, ...]]] = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            targets = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = (*base, *(node.module.split(".") if node.module else ()))
            targets = [(*module, alias.name) for alias in node.names]
        else:
            continue
        found += [(node.lineno, target[1:]) for target in targets if target[0] == "unity_dsl"]
    return tuple(found)


def stages_imported(path: Path) -> Iterator[tuple[int, str]]:
    """Line and stage of every import of this package."""
    for line, name in names_imported(path):
        yield line, stage_of(name if name and is_module(name[0]) else ())


@cache
def module_of(name: tuple[str, ...]) -> tuple[str, ...]:
    """The module that a dotted name is, or that defines the name."""
    while name and not (PACKAGE.joinpath(*name).is_dir() or PACKAGE.joinpath(*name).with_suffix(".py").exists()):
        name = name[:-1]
    return name


def imports() -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Every pair of a module and another module that it imports."""
    for path in MODULES:
        own = path.relative_to(PACKAGE).with_suffix("").parts
        own = own[:-1] if own[-1] == "__init__" else own
        yield from ((own, other) for _, name in names_imported(path) if (other := module_of(name)) not in (own, ()))


def check_acyclic(edges: Iterator[tuple[tuple[str, ...], tuple[str, ...]]]) -> None:
    """Fails with the cycle, if there is one."""
    graph: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for user, used in edges:
        graph.setdefault(user, set()).add(used)
    assert graph
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(".".join(name) for name in error.args[1]))


def is_module(name: str) -> bool:
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").exists()


def test_a_stage_imports_only_those_before_it() -> None:
    wrong = []
    for path in MODULES:
        name = path.relative_to(PACKAGE)
        own = stage_of(name.with_suffix("").parts)
        allowed = (*BELOW_ALL, *STAGES[: STAGES.index(own) + 1]) if own in STAGES else BELOW_ALL
        wrong += [f"{name}:{line} imports {stage}" for line, stage in stages_imported(path) if stage not in allowed]
    assert not wrong


def test_no_imports_go_in_a_circle() -> None:
    check_acyclic(imports())


def test_no_rooms_of_a_stage_import_each_other() -> None:
    """A room is a subpackage of a stage. The imports between rooms have no cycle."""
    rooms = ((user[:2], used[:2]) for user, used in imports() if len(user) > 2 and len(used) > 2)
    check_acyclic((user, used) for user, used in rooms if user != used)


def test_every_part_of_the_package_is_a_stage() -> None:
    parts = {path.stem if path.is_file() else path.name for path in PACKAGE.iterdir() if path.suffix in ("", ".py")}
    assert parts - {"__pycache__", "data"} <= {*STAGES, *BELOW_ALL}


def test_rows_of_benchmarks_know_every_stage_that_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash of a row covers what the search imports."""
    monkeypatch.syspath_prepend(ROOT / "bench")
    planner = importlib.import_module("measure").PLANNER
    covered = {path.name for path in planner if path.parent == PACKAGE}
    assert covered == {*STAGES[: STAGES.index("search") + 1], "compilation.py"}


def test_the_import_walk_sees_imports() -> None:
    """An empty walk would make the order test pass whatever the imports are."""
    seen = {stage for path in MODULES for _, stage in stages_imported(path)}
    assert {"syntax", "index", "graph", "machine", "search", "emit", "compilation", "resources"} <= seen


def test_torch_and_z3_are_imported_inside_functions() -> None:
    """Modules that import torch modules or make them parallel are exempt: they are loaded only for this."""
    wrong = []
    of_torch = {PACKAGE / "importer", PACKAGE / "api" / "parallel_module.py"}
    for path in (path for path in MODULES if of_torch.isdisjoint((path, *path.parents))):
        for node in tree_of(path).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            loaded = {name.split(".")[0] for name in names} & {"torch", "z3", "triton"}
            wrong += [f"{path.relative_to(PACKAGE)}:{node.lineno} imports {name}" for name in sorted(loaded)]
    assert not wrong


@pytest.mark.parametrize("arguments", [["--help"], ["compile", "--help"], ["explain", "softmax"]], ids=" ".join)
def test_a_command_without_ranks_loads_no_torch(arguments: list[str]) -> None:
    assert not loaded_by(arguments) & {"torch", "z3", "triton", "sklearn", "scipy", "sympy"}


@pytest.mark.parametrize(
    ("example", "prover"),
    [("digits", True), ("digits --no-rules", False), ("xdl_unity --strategy data_parallel --force", False)],
)
def test_a_compile_loads_no_torch_and_without_rules_no_prover(example: str, prover: bool, tmp_path: Path) -> None:
    """The shipped rules are proved: they need no z3, and are loaded for a model that one of them may match."""
    name, *options = example.split()
    model = str(ROOT / "examples" / f"{name}.udl")
    loaded = loaded_by([model, "-o", str(tmp_path / "out"), "--devices", "2", *options], whole=True)
    assert not {name.split(".")[0] for name in loaded} & {"torch", "z3", "triton", "sklearn", "scipy", "sympy"}
    assert "unity_dsl.rules.sharding_theorems" in loaded
    unused = {"unity_dsl.prove.rule_proof", "unity_dsl.prove.normal_form.form", "unity_dsl.rules.rulebook"}
    assert bool(loaded & unused) == prover


def test_help_loads_no_stage() -> None:
    assert not {name for name in loaded_by(["--help"], whole=True) if name.startswith("unity_dsl.index")}


def loaded_by(arguments: list[str], whole: bool = False) -> set[str]:
    """The modules loaded in a fresh process after one command: full names if `whole`, else top-level packages."""
    program = (
        "import sys; from unity_dsl.cli import run; code = run(sys.argv[1:]); "
        "print(*sys.modules, sep='\\n', file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    names = set(done.stderr.split())
    return names if whole else {name.split(".")[0] for name in names}


TEXTS = [
    path
    for folder in ("unity_dsl", "tests", "bench", "codegen", "grammar", "ops", "examples")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".j2", ".lark", ".uop", ".udl")
]


def test_no_file_is_longer_than_500_lines() -> None:
    lengths = {path.relative_to(ROOT).as_posix(): path.read_text().count("\n") for path in TEXTS}
    assert len(lengths) > 50
    assert not {name: length for name, length in lengths.items() if length >= 500}


def test_there_is_no_catch_all_module() -> None:
    names = {part for path in TEXTS for part in path.relative_to(ROOT).with_suffix("").parts}
    assert not names & {"utils", "util", "helpers", "helper", "managers", "manager", "common", "misc"}
