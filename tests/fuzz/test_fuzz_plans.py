"""Random models under random legal plans: every program must equal its model on one device.

`UNITY_FUZZ_CASES` sets how many are drawn (200 for a full run), `UNITY_FUZZ_SEED` which. A failure prints the model and
the seed; the same seed and case number draw the same model and plan again.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from unity_dsl.emit.program_check import TOLERANCE, compare
from unity_dsl.emit.program_text import render_model, render_parallel, write_down
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.graph.graph import Model
from unity_dsl.graph.layout import Mesh, MeshAxis
from unity_dsl.graph.model_graph import build_model
from unity_dsl.graph.plan import Plan
from unity_dsl.index.declarations.loading import library_of, library_sources
from unity_dsl.index.library import Library
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.render import render
from unity_dsl.syntax.span import Source

from .evaluate import losses
from .models import random_model
from .plans import features, random_plan

CASES = int(os.environ.get("UNITY_FUZZ_CASES", "30"))
SEED = int(os.environ.get("UNITY_FUZZ_SEED", "1"))
MESHES = ((2, 2), (2,), (4,), (2, 2))


CYCLIC = Source(
    "cyclic.uop",
    """
## Device @p gets every p-th position of dimension `dim`.
parallel cyclic[p; dim](x: [f.., d, g..]) -> y: [@p, f.., e, g..]
  where rank(f) == dim, d == p * e
  y[@p, f.., j, g..] = x[f.., j * |p| + @p, g..]
""",
)


@pytest.fixture(scope="module")
def libraries() -> tuple[Library, Library]:
    """The shipped one, and one with a way to cut tensors that a user declared."""
    shipped = library_sources()
    return library_of(shipped), library_of([*shipped, CYCLIC])


def draw(case: int, libraries: tuple[Library, Library]) -> tuple[str, Model, Library, Plan, Random]:
    library = libraries[case % 5 == 4]
    rng = Random(f"{SEED} {case}")
    text = random_model(rng)
    try:
        model = build_model(parse_model(Source("fuzz.udl", text)), library)
    except InputError as error:
        pytest.fail(f"{describe(case, text)}\n{render(error.diagnostic)}")
    degrees = MESHES[case % len(MESHES)]
    mesh = Mesh(tuple(MeshAxis("abc"[i], degree) for i, degree in enumerate(degrees)))
    return text, model, library, random_plan(model, mesh, library, rng), rng


def describe(case: int, text: str) -> str:
    return f"seed {SEED}, case {case} (UNITY_FUZZ_SEED={SEED} pytest tests/fuzz -k 'plan and {case}')\n{text}"


def write(plan: Plan, library: Library, folder: Path) -> Path:
    folder.mkdir()
    (folder / "__init__.py").write_text("from .model import Model as Model\n")
    (folder / "model.py").write_text(render_model(write_down(plan, library)))
    (folder / "parallel.py").write_text(render_parallel(write_down(plan, library)))
    return folder


@pytest.mark.parametrize("case", range(CASES))
def test_a_random_plan_equals_its_model(
    case: int, pool: RankPool, libraries: tuple[Library, Library], tmp_path: Path
) -> None:
    print(f"seed {SEED}")
    text, model, library, plan, rng = draw(case, libraries)
    program = write(plan, library, tmp_path / "program")
    reference = write(random_plan(model, Mesh(()), library, rng), library, tmp_path / "reference")
    expected, found = losses(model, library, reference)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12), describe(case, text)
    try:
        errors = compare(program, reference, plan.mesh.size, pool=pool)
    except InputError as error:
        pytest.fail(f"{describe(case, text)}\n{error.diagnostic.message}\n{error.diagnostic.help}")
    largest = max(errors["loss_rel_err"], errors["grad_rel_err"], errors["param_rel_err"])
    assert largest <= TOLERANCE, f"{describe(case, text)}\n{errors}\n{(program / 'model.py').read_text()}"


def test_the_cases_reach_every_role_and_every_conversion(libraries: tuple[Library, Library]) -> None:
    """Drawn for thirty cases at least: fewer could miss one by chance."""
    found: Counter[str] = Counter()
    for case in range(max(CASES, 30)):
        found += features(draw(case, libraries)[3])
    roles = {"uniformly I", "uniformly R", "linearly", "along", "summed", "inner", "merged", "runs"}
    steps = ("slice", "mask", "pad", "all_gather", "all_reduce", "reduce_scatter", "all_to_all", "exchange")
    wanted = roles | {f"{way} {step}" for way in ("forward", "backward") for step in steps}
    assert wanted <= found.keys()
