"""User-declared ways to distribute positions over devices: attention runs on slices of each, and is checked."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from pathlib import Path

import pytest

from unity_dsl.emit.program_check import TOLERANCE, check, compare
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.graph.model_graph import build_model
from unity_dsl.index.declarations.loading import library_of
from unity_dsl.machine.machine import machine_source, read_machine
from unity_dsl.machine.mesh import build_mesh
from unity_dsl.search.plan_search import search
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.span import Source

from ..fuzz.cases import write
from ..graph.overlapping import sources_with, without
from .example_cases import SLOW

Compile = Callable[..., Path]

KINDS = {
    # Two chunks per device, one from either end, balance causal attention.
    "zigzag": "(j // (|e| // 2)) * (2 * |p| - 1 - 2 * @p) * (|e| // 2) + @p * (|e| // 2) + j % (|e| // 2)",
    "last_first": "(|p| - 1 - @p) * |e| + j",
    "backwards": "|d| - 1 - @p * |e| - j",
    "cyclic": "j * |p| + @p",
    "block_cyclic": "(j // block) * block * |p| + @p * block + j % block",
    # For an even number of devices.
    "swapped": "(@p + 1 - 2 * (@p % 2)) * |e| + j",
    "turned": "@p * |e| + |e| - 1 - j",
    "rotated": "(@p + 1) % |p| * |e| + j",
    "even_odd": "(2 * (@p * |e| + j)) % |d| + (2 * (@p * |e| + j)) // |d|",
    "shuffled_halves": "@p * |e| + (j + |e| // 2) % |e|",
    "shifted": "(@p * |e| + j + 1) % |d|",
    "diagonal": "j * |p| + (@p + j) % |p|",
}
"""The positions of a device under each kind. No two kinds agree on four devices."""

CONDITIONS = {
    "zigzag": "e % 2 == 0",
    "block_cyclic": "e % block == 0",
    "swapped": "p % 2 == 0",
    "even_odd": "d % 2 == 0",
    "shuffled_halves": "e % 2 == 0",
}

MODEL = """
model attention[b = 2, s = 8, d = 8, v = 8]
  input tokens: int<v>[b, s]
  input target: int<v>[b, s]
  weight table: f32[v, d] ~ normal(0.3)
  weight query: f32[d, d] ~ normal(0.3)
  weight gain: f32[d] ~ ones
  weight bias: f32[d] ~ zeros
  x = embedding(tokens, table)
  q = linear(x, query)
  scores = matmul(q, x[b, s, e] -> [b, e, s])
  masked = causal_mask(scores)
  a = softmax(masked)
  mixed = matmul(a, x)
  y = dropout(layer_norm(mixed, gain, bias))
  logits = linear(y, table)
  loss cross_entropy(logits, target)
  output logits
"""
ROWS = ("q", "masked", "mixed"), "{kind}(1)"
KEYS = ("a",), "{kind}(2)"
FEATURES = ("mixed", "y", "logits"), "{kind}(2)"


def declaration(name: str, index: str, condition: str = "") -> str:
    attribute = ", block = 2" if "block" in index else ""
    return (
        f"parallel {name}[p; dim{attribute}](x: [f.., d, g..]) -> y: [@p, f.., e, g..]\n"
        f"  where rank(f) == dim, d == p * e{condition and f', {condition}'}\n"
        f"  y[@p, f.., j, g..] = x[f.., {index}, g..]\n"
    )


def pins(kind: str, *groups: tuple[tuple[str, ...], str]) -> list[str]:
    return [f"{name}={form.format(kind=kind)}" for names, form in groups for name in names]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All kinds in one folder, as a user would have them. Kinds that no pin names have no effect."""
    folder = tmp_path_factory.mktemp("kinds")
    texts = [declaration(name, index, CONDITIONS.get(name, "")) for name, index in KINDS.items()]
    (folder / "kinds.uop").write_text("\n".join(texts))
    return folder


@pytest.mark.a_day(6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("mesh", "groups"),
    [((2,), (KEYS, FEATURES)), ((4,), (ROWS, KEYS))],
    ids=["features on 2", "rows on 4"],
)
def test_a_declared_kind(
    kind: str,
    mesh: tuple[int, ...],
    groups: tuple[tuple[tuple[str, ...], str], ...],
    own: Path,
    compile_program: Compile,
    pool: RankPool,
) -> None:
    out = compile_program(MODEL, devices=mesh[0], mesh=mesh, pins=pins(kind, *groups), operators=[own])
    assert f"def {kind}_positions" in (out / "parallel.py").read_text()
    report = check(out, pool=pool)
    assert report.ok, report


def test_kinds_within_and_beside_one_another(own: Path, compile_program: Compile, pool: RankPool) -> None:
    """Along two mesh axes: one kind within itself, one within another, and two on different dimensions."""
    wanted = ["q=zigzag(1),zigzag(1)", "masked=zigzag(1),turned(2)", "mixed=turned(1),I"]
    report = check(compile_program(MODEL, devices=4, mesh=(2, 2), pins=wanted, operators=[own]), pool=pool)
    assert report.ok, report


FORM = "parallel own[p; dim](x: [f.., d, g..]) -> y: [@p, f.., e, g..]\n  where rank(f) == dim, d == p * e\n"
ILL_FORMED = {
    "missing": (declaration("own", "2 * @p * |e| + 2 * j").replace("d ==", "d == 2 *"), "exactly one of 4 devices"),
    "everything": (declaration("own", "j").replace("d == p * e", "d == e"), "exactly one of 4 devices"),
    "outside": (declaration("own", "@p * |e| + j + 1"), "exactly one of 4 devices"),
    "by nothing": (declaration("own", "@p * |e| + j + j // (|e| // 8)"), "exactly one of 4 devices"),
    "attribute": (declaration("own", "@p * |e| + j").replace("dim]", "dim, block]"), "is to be given `block`"),
    "scaled": (f"{FORM}  y[@p, f.., j, g..] = 2 * x[f.., @p * |e| + j, g..]\n", "elements of its input as they are"),
    "numbered from the end": (
        declaration("own", "@p * |e| + j").replace("rank(f)", "rank(g)"),
        "is not given the number of the dimension: `where rank(f) == dim`",
    ),
    "first dimension only": (
        "parallel own[p](x: [d, g..]) -> y: [@p, e, g..]\n  where d == p * e\n  y[@p, j, g..] = x[@p * |e| + j, g..]\n",
        "does not cut one dimension among others",
    ),
    "transposing": (
        FORM.replace("[@p, f.., e, g..]", "[@p, g.., e, f..]")
        + "  y[@p, g.., j, f..] = x[f.., @p * |e| + j, g..]\n",
        "changes the order of the other dimensions",
    ),
    "diagonal": (
        "parallel own[p](x: [r, d]) -> y: [@p, r, e]\n  where d == p * e\n"
        "  y[@p, i, j] = x[i, (@p + i) % |p| * |e| + j]\n",
        "does not cut one dimension among others",
    ),
    "two slices": (
        "parallel own[p](x: [d], z: [d]) -> y: [@p, e]\n  where d == p * e\n"
        "  y[@p, j] = x[@p * |e| + j] + z[@p * |e| + j]\n",
        "does not make one tensor of one",
    ),
    "of copies": ("parallel own[p](x: [@p, g..]) -> y: [g..]\n  y[g..] = x[0, g..]\n", "one device axis first"),
}  # fmt: skip


@pytest.mark.parametrize("case", ILL_FORMED)
def test_an_op_that_cuts_nothing_says_why(case: str, tmp_path: Path, compile_program: Compile) -> None:
    text, reason = ILL_FORMED[case]
    (tmp_path / "own.uop").write_text(text)
    with pytest.raises(InputError) as caught:
        compile_program(MODEL, devices=4, mesh=(4,), pins=["q=own(1)"], operators=[tmp_path])
    assert caught.value.diagnostic.code == "E307"
    assert reason in caught.value.diagnostic.message


ONE_SIDED = """
parallel lookback[p; dim, before](x: [f.., d, g..]) -> y: [@p, f.., l, g..]
  where rank(f) == dim, d == p * e, l == e + before
  y[@p, f.., j, g..] = x[f.., @p * |e| + j - before, g.. else 0]

parallel lookahead[p; dim, after](x: [f.., d, g..]) -> y: [@p, f.., l, g..]
  where rank(f) == dim, d == p * e, l == e + after
  y[@p, f.., j, g..] = x[f.., @p * |e| + j, g.. else 0]

op causal_conv(x: [b, s, c], k: [r, c]) -> y: [b, s, c]
  y[b, s, c] = sum(r) x[b, s - r, c else 0] * k[r, c]

op next_conv(x: [b, s, c], k: [r, c]) -> y: [b, s, c]
  y[b, s, c] = sum(r) x[b, s + r, c else 0] * k[r, c]
"""
WINDOWS = """model windows[b = 1, s = 16, c = 3]
  input x: f32[b, s, c]
  input target: f32[b, s, c]
  weight k: f32[3, c] ~ normal(0.5)
  weight m: f32[2, c] ~ normal(0.5)
  y = next_conv(relu(causal_conv(x * 2, k)), m)
  loss mse(y, target)
"""


@pytest.mark.parametrize("degrees", [(2,), (2, 2)])
def test_neighbours_on_one_side(degrees: tuple[int, ...], tmp_path: Path, pool: RankPool) -> None:
    """Without the shipped halo the search divides the sequence by two user-declared ops, each with its attribute."""
    shipped = sources_with([Source("own.uop", ONE_SIDED)])
    library = library_of(without(source, ["halo"]) for source in shipped)
    model = build_model(parse_model(Source("windows.udl", WINDOWS)), library)
    machine = read_machine(machine_source(SLOW))
    plan = search(model, build_mesh(machine, prod(degrees), degrees), machine, library)
    program = write(plan, library, tmp_path / "program")
    text = (program / "parallel.py").read_text()
    assert "def lookback_positions" in text and "def lookahead_positions" in text
    alone = search(model, build_mesh(machine, 1, None), machine, library, "single")
    errors = compare(program, write(alone, library, tmp_path / "reference"), prod(degrees), pool=pool)
    assert max(errors["loss_rel_err"], errors["grad_rel_err"], errors["param_rel_err"]) <= TOLERANCE


def test_a_kind_must_fit_within_itself(own: Path, compile_program: Compile) -> None:
    """Twelve positions over 2 devices are two chunks for each. The 6 positions of one device, over 2 again, are not."""
    model = MODEL.replace("s = 8", "s = 12")
    with pytest.raises(InputError, match=r"`zigzag` does not put each of 6 positions on exactly one of 2 devices"):
        compile_program(model, devices=4, mesh=(2, 2), pins=["q=zigzag(1)"], operators=[own])
