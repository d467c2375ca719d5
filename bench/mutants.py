"""Mutation testing of a folder of sources: `python bench/mutants.py --count 100`.

A mutant is one change of one expression or statement, drawn by seed. A comparison or condition is negated, `and` and
`or` are swapped, an integer, Boolean or the operator of an augmented assignment is changed, or a call is removed.
The tests run in a copy of the project, for a minute at most per mutant. A mutant is killed if they fail. Mutants on
which the tests do not end are listed separately.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

from measure import write_results

ROOT = Path(__file__).parent.parent
# fmt: off
COPIED = (
    "unity_dsl", "ops", "rules", "grammar", "codegen", "machines", "examples", "tests", "bench", "docs", "README.md",
    "CHANGELOG.md", "pyproject.toml",
)
# fmt: on
OPPOSITE = {ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt}
WITHOUT_EFFECT = ("strict", "frozen", "slots")
"""Arguments without effect in a correct program, which are not mutated."""
OPPOSITE |= {ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", default="unity_dsl/schedule", help="or one file")
    parser.add_argument("--tests", nargs="+", default=["tests/schedule"])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--short", action="store_true", help="run the cases of a usual run, not all")
    options = parser.parse_args()
    given = ROOT / options.folder
    sources = [given] if given.is_file() else sorted(given.glob("*.py"))
    every = [(path, number) for path in sources for number in places(path)]
    chosen = Random(options.seed).sample(every, min(options.count, len(every)))
    survivors, endless, killed = list[str](), list[str](), 0
    with tempfile.TemporaryDirectory() as folder:
        for name in COPIED:
            source, target = ROOT / name, Path(folder) / name
            shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
        given_tests = options.tests, options.seconds, options.short
        assert fails(Path(folder), *given_tests) is False, "the tests pass without a fault, in time"
        for done, (path, number) in enumerate(chosen, 1):
            relative = path.relative_to(ROOT)
            text, told = mutant(path, number)
            (Path(folder) / relative).write_text(text)
            dies = fails(Path(folder), *given_tests)
            shutil.copy(path, Path(folder) / relative)
            killed += dies is True
            if dies is not True:
                (endless if dies is None else survivors).append(f"{relative}: {told}")
            end = "" if dies else "  DOES NOT END" if dies is None else "  SURVIVES"
            print(f"{done} of {len(chosen)}, {killed} killed: {relative}: {told}{end}", flush=True)
    row = {"mutants": len(chosen), "killed": killed, "survivors": survivors, "endless": endless}
    write_results(f"mutants_{given.stem}", shlex.join(["python", "bench/mutants.py", *sys.argv[1:]]), row)


def fails(folder: Path, tests: list[str], seconds: float, short: bool) -> bool | None:
    """Whether the tests fail; None if they do not end in time."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONPATH": str(folder)} | ({} if short else {"UNITY_EVERYTHING": "1"})
    try:
        found = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return None
    return found.returncode != 0


def places(path: Path) -> Iterator[int]:
    """The numbers of the nodes of a file that can be changed."""
    tree = ast.parse(path.read_text())
    keywords = [node for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg in WITHOUT_EFFECT]
    without = {id(node.value) for node in keywords}
    yield from (n for n, node in enumerate(ast.walk(tree)) if id(node) not in without and is_changed(node))


def is_changed(node: ast.AST) -> bool:
    match node:
        case ast.Compare(ops=[one]):
            return type(one) in OPPOSITE
        case ast.BoolOp() | ast.IfExp() | ast.If():
            return True
        case ast.Constant(value=bool() | int()):
            return True
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            return True
    return False


def mutant(path: Path, number: int) -> tuple[str, str]:
    """The text of a file with one node changed, and the node's line and original text."""
    tree = ast.parse(path.read_text())
    node = copy.copy([*ast.walk(tree)][number])
    target = [*ast.walk(tree)][number]
    before = ast.unparse(node).split("\n")[0]
    match target:
        case ast.Compare(ops=[one]):
            target.ops = [OPPOSITE[type(one)]()]
        case ast.BoolOp(op=one):
            target.op = ast.Or() if isinstance(one, ast.And) else ast.And()
        case ast.IfExp() | ast.If():
            target.test = ast.UnaryOp(ast.Not(), target.test)
        case ast.Constant(value=bool() as value):
            target.value = not value
        case ast.Constant(value=int() as value):
            target.value = value + 1
        case ast.Expr():
            target.value = ast.Constant(None)
        case ast.AugAssign():
            target.op = ast.Sub() if isinstance(target.op, ast.Add) else ast.BitXor()
    return ast.unparse(ast.fix_missing_locations(tree)), f"line {getattr(node, 'lineno', 0)}: {before}"


if __name__ == "__main__":
    main()
