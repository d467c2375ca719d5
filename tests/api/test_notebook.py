"""The notebook of the examples, cell by cell in one process, as Jupyter runs it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
RUNNER = """
import ast, json, sys
names = {}
for source in json.load(sys.stdin):
    tree = ast.parse(source)
    shown = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    value = eval(compile(shown, "cell", "eval"), names) if shown is not None else None
    if value is not None:
        print(value._repr_html_() if hasattr(value, "_repr_html_") else repr(value))
"""


def test_every_cell_runs_and_shows_what_it_should(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs" / "notebook", tmp_path / "notebook")
    cells = json.loads((tmp_path / "notebook" / "parallel_module.ipynb").read_text())["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        input=json.dumps(sources),
        cwd=tmp_path / "notebook",
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    out = done.stdout
    assert "<table" in out and "dgx-h100" in out and "zero" in out
    found = re.search(r"loss ([0-9.]+), after 20 steps ([0-9.]+)", out)
    assert found is not None and float(found[2]) < 0.8 * float(found[1]), out
    assert "from the module in float64" in out and "equals its model" in out and "step 4  test loss" in out
