"""Random models under random legal plans, by number: drawn, written, and compared with one device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.program.example_cases import strict
from unity_dsl.emit.kernels.contraction_choice import ContractionChoice
from unity_dsl.emit.plan_file import TORCH
from unity_dsl.emit.program_check import compare
from unity_dsl.emit.program_text import render_kernels, render_model, render_parallel, write_down
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.graph.graph import Model
from unity_dsl.graph.layout import Mesh, MeshAxis
from unity_dsl.graph.model_graph import build_model
from unity_dsl.graph.plan import Plan
from unity_dsl.index.declarations.loading import library_of, library_sources
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.span import Source

from .models import random_model
from .plans import random_plan

CYCLIC = Source(
    "cyclic.uop",
    """
## Device @p gets every p-th position of dimension `dim`.
parallel cyclic[p; dim](x: [f.., d, g..]) -> y: [@p, f.., e, g..]
  where rank(f) == dim, d == p * e
  y[@p, f.., j, g..] = x[f.., j * |p| + @p, g..]
""",
)


def libraries() -> tuple[Library, Library]:
    """The shipped library, and one with a way to cut tensors that a user declared."""
    shipped = library_sources()
    return library_of(shipped), library_of([*shipped, CYCLIC])


@dataclass(frozen=True)
class Drawn:
    """A case: the same seed, number and mesh draw the same one."""

    text: str
    model: Model
    library: Library
    plan: Plan

    @property
    def alone(self) -> Plan:
        """A plan for one device."""
        return random_plan(self.model, Mesh(()), self.library, Random(0))


def random_text(seed: int, case: int) -> tuple[str, Random]:
    """The text of a case's model, and the generator from which its plan is drawn."""
    rng = Random(f"{seed} {case}")
    return random_model(rng), rng


def draw(seed: int, case: int, degrees: Sequence[int], known: tuple[Library, Library]) -> Drawn:
    """Draws a case. Every fifth one also has a user's own cuts. Raises InputError for an invalid model."""
    library = known[case % 5 == 4]
    text, rng = random_text(seed, case)
    model = build_model(parse_model(Source("fuzz.udl", text)), library)
    mesh = Mesh(tuple(MeshAxis("abc"[i], degree) for i, degree in enumerate(degrees)))
    return Drawn(text, model, library, random_plan(model, mesh, library, rng))


def write(plan: Plan, library: Library, folder: Path, kernels: str = TORCH) -> Path:
    """Writes the program. A kernel that fails ends the run."""
    folder.mkdir(parents=True)
    contractions = ContractionChoice(load_machine("dgx-h100"))
    text = write_down(plan, library, kernels=kernels, contractions=contractions)
    (folder / "__init__.py").write_text("from .model import Model as Model\n")
    (folder / "model.py").write_text(render_model(text))
    (folder / "parallel.py").write_text(render_parallel(text))
    if written := render_kernels(text):
        (folder / "kernels.py").write_text(strict(written))
    return folder


def errors_of(drawn: Drawn, program: Path, reference: Path, pool: RankPool) -> tuple[float, Mapping[str, Any]]:
    """The largest relative error in float64, and all results of the comparison. Raises InputError."""
    found = compare(program, reference, drawn.plan.mesh.size, pool=pool)
    return max(found["loss_rel_err"], found["grad_rel_err"], found["param_rel_err"]), found
