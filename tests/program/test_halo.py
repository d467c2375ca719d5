"""A user's own kind of parallelism whose slices overlap: declared in one file, proved, chosen, run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.index.declarations.loading import library_sources
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.span import Source

from ..graph.overlapping import HALO, WINDOWED, without

Compile = Callable[..., Path]
THIN = str(Path(__file__).parent / "thin.toml")

LONG = """model long[b = 1, c = 4, l = 256]
  input x: f32[b, c, l]
  input target: f32[b, c, l]
  weight w1: f32[8, c, 5] ~ normal(0.2)
  weight w2: f32[8, 8, 3] ~ normal(0.2)
  weight w3: f32[c, 8, 3] ~ normal(0.2)
  h = relu(conv1d(x, w1; pad=2))
  g = relu(conv1d(h, w2; pad=1))
  y = conv1d(g, w3; pad=1)
  loss mse(y, target)
"""

STRIDED = """model strided[b = 2, c = 3, l = 32]
  input x: f32[b, c, l]
  input target: f32[b, 2]
  weight w1: f32[4, c, 4] ~ normal(0.2)
  weight w2: f32[4, 4, 1] ~ normal(0.2)
  weight w3: f32[2, 4, 3] ~ normal(0.2)
  h = conv1d(x, w1; stride=2, pad=1)
  g = pool(h; size=3, stride=2, pad=1)
  k = conv1d(g, w2)
  m = blur(k)
  y = conv1d(m, w3; pad=1)
  z = reduce_sum(y[n, o, q] -> [n, o])
  loss mse(z, target)
"""

TWO_READERS = """model readers[b = 1, c = 2, l = 16]
  input x: f32[b, c, l]
  input target: f32[b, c, l]
  weight w: f32[c, c, 1] ~ normal(0.3)
  weight v: f32[c, c, 3] ~ normal(0.3)
  weight u: f32[c, c, 7] ~ normal(0.3)
  h = tanh(conv1d(x, w))
  s = conv1d(h, v; pad=1)
  t = conv1d(h, u; pad=3)
  y = s * t + h
  loss mse(y, target)
"""

SHRINKING = """model shrinking[b = 1, c = 2, l = 18]
  input x: f32[b, c, l]
  input target: f32[b, c, 16]
  weight w: f32[c, c, 3] ~ normal(0.3)
  y = conv1d(x, w)
  loss mse(y, target)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder that declares everything about windows, as if nothing of it were shipped."""

    def sources(folders: Sequence[Path]) -> tuple[Source, ...]:
        shipped = [without(source, ["halo", "conv1d"]) for source in library_sources()]
        return (*shipped, *(Source(str(path), path.read_text()) for own in folders for path in sorted(own.iterdir())))

    monkeypatch.setattr("unity_dsl.compilation.library_sources", sources)
    own = tmp_path / "my_ops"
    own.mkdir()
    (own / "windows.uop").write_text(WINDOWED)
    (own / "halo.uop").write_text(HALO)
    return own


def plan(out: Path) -> dict[str, Any]:
    found = json.loads((out / "plan.json").read_text())
    assert isinstance(found, dict)
    return found


def roles(out: Path, operator: str) -> list[list[str]]:
    """The configurations of an operator's calls, one word per mesh axis."""
    steps = plan(out)["graph"]["steps"]
    return [step["configuration"] for step in steps if step["operator"] == operator]


def conversions(out: Path) -> Iterator[tuple[str, str]]:
    for value in plan(out)["graph"]["values"].values():
        for made in value.get("materialised", ()):
            yield made["from"], made["layout"]


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_search_divides_a_long_sequence(ranks: int, folder: Path, compile_program: Compile, pool: RankPool) -> None:
    """With batch 1 and few channels only the sequence can be divided, and only the borders of slices are sent."""
    out = compile_program(LONG, devices=ranks, machine=THIN, operators=[folder])
    assert all(role == "along q by halo" for found in roles(out, "conv1d") for role in found)
    assert ("S2", "halo(2; before=1; after=1)") in [
        (before.split(",")[0], after.split(",")[0]) for before, after in conversions(out)
    ]
    report = check(out, pool=pool)
    assert report.ok, report


def test_without_the_declaration_it_cannot(folder: Path, compile_program: Compile) -> None:
    (folder / "halo.uop").unlink()
    out = compile_program(LONG, devices=2, machine=THIN, operators=[folder])
    assert not any("along q" in role for found in roles(out, "conv1d") for role in found)


def test_the_plan_names_the_theorems_it_rests_on(folder: Path, compile_program: Compile) -> None:
    out = compile_program(LONG, devices=2, machine=THIN, operators=[folder])
    theorems = [found["theorem"] for found in plan(out)["theorems"]]
    assert "conv1d along halo(q), as `halo` holds it" in theorems


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize(
    "pins",
    [["h=S2", "g=S2", "k=S2", "m=S2", "y=S2"], ["h=S1", "g=S2", "k=S2", "m=S2", "y=I"]],
    ids=["all", "some"],
)
def test_strides_and_other_fills(
    ranks: int, pins: list[str], folder: Path, compile_program: Compile, pool: RankPool
) -> None:
    """Even kernels, strides, windows of maxima, an axis with circular padding, and a fill of 1."""
    out = compile_program(STRIDED, devices=ranks, pins=pins, operators=[folder])
    assert {role for found in roles(out, "pool") for role in found} == {"along q by halo"}
    assert {role for found in roles(out, "blur") for role in found} == {"along l by halo"}
    report = check(out, pool=pool)
    assert report.ok, report


@pytest.mark.parametrize("mesh", [(2, 2), (4,)])
def test_readers_with_windows_of_different_widths(
    mesh: tuple[int, ...], folder: Path, compile_program: Compile, pool: RankPool
) -> None:
    pins = ["h=S2", "s=S2", "t=S2", "y=S2"]
    out = compile_program(TWO_READERS, devices=4, mesh=mesh, pins=pins, machine=THIN, operators=[folder])
    made = {after.split(",")[0] for _, after in conversions(out)}
    assert {"halo(2; before=1; after=1)", "halo(2; before=3; after=3)"} <= made
    report = check(out, pool=pool)
    assert report.ok, report


def test_mixed_with_other_mesh_axes(folder: Path, compile_program: Compile, pool: RankPool) -> None:
    pins = ["h=S2,S1", "g=S1,S2", "y=S2,S1"]
    report = check(compile_program(LONG, devices=4, pins=pins, operators=[folder]), pool=pool)
    assert report.ok, report


def test_slices_that_drift_apart_are_refused_in_words(folder: Path, tmp_path: Path) -> None:
    """18 positions give 16. On the second device the windows would start elsewhere than the slice of x."""
    model = tmp_path / "shrinking.udl"
    model.write_text(SHRINKING)
    with pytest.raises(InputError) as refused:
        compile_model(Request(model=model, devices=2, pins=["y=S2"], operators=[folder]))
    assert refused.value.diagnostic.code == "E307"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("l == e + before + after", "l == e + 1"), "one position, at one side"),
        (("j - before", "j - before + 1"), "a neighbour's second position, not its first"),
        (("else 0", "else 1"), "ones outside"),
    ],
    ids=["narrow", "shifted", "fill"],
)
def test_an_op_that_does_not_hold_what_is_read_is_not_used_wrongly(
    change: tuple[str, str], why: str, folder: Path, compile_program: Compile, pool: RankPool
) -> None:
    """The op is not used, or the program is right because a larger slice of the neighbours makes up for it."""
    text = HALO.replace(*change)
    if change[1] == "l == e + 1":
        text = text.replace("; dim, before, after", "; dim").replace("- before", "- 0")
    (folder / "halo.uop").write_text(text)
    out = compile_program(LONG, devices=2, machine=THIN, operators=[folder])
    used = any("halo" in role for found in roles(out, "conv1d") for role in found)
    assert used == (change[0] == "j - before"), why
    report = check(out, pool=pool)
    assert report.ok, report
