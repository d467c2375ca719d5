"""parallel.py on ranks: a conversion is its index map forwards and the adjoint backwards. Gradients are summed once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations, permutations, product
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.fuzz.plans import random_plan
from tests.graph.simulation import decode, encode
from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.conversion_text import Collectives, conversion_name
from unity_dsl.emit.output_folder import render_program
from unity_dsl.emit.parallel_text import render_collectives
from unity_dsl.emit.program_text import render_model, render_parallel, write_down
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.graph.collective_steps import Step, StepKind
from unity_dsl.graph.graph import Model
from unity_dsl.graph.layout import Invariant, Kind, Layout, Mesh, Partial, Replicate, Shard, nest
from unity_dsl.graph.layout_codes import all_layouts
from unity_dsl.graph.layout_conversion import Conversion
from unity_dsl.graph.model_graph import build_model
from unity_dsl.graph.plan import Plan
from unity_dsl.index.declarations.loading import library_of, library_sources, load_library
from unity_dsl.index.library import Library
from unity_dsl.index.lowering.execution import Operand, execute
from unity_dsl.index.lowering.operator_lowering import Lowering
from unity_dsl.index.lowering.torch_term import Sort, Term, Variable
from unity_dsl.index.lowering.value_lowering import Statement
from unity_dsl.machine.two_step_collectives import TWO_STEP_KINDS
from unity_dsl.syntax.ast import ReductionKind
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.span import Source

from . import ranks
from .planning import batch_plan, conversions_on, mesh_of

CYCLIC = """
parallel cyclic[p; dim](x: [f.., d, g..]) -> y: [@p, f.., e, g..]
  where rank(f) == dim, d == p * e
  y[@p, f.., j, g..] = x[f.., j * |p| + @p, g..]
"""


@pytest.fixture(scope="module")
def library() -> Library:
    return load_library()


Case = tuple[Layout, Layout, Conversion]


def conversions(
    pairs: Iterable[tuple[Layout, Layout]], shape: tuple[int, ...], mesh: Mesh, library: Library
) -> list[Case]:
    converting = conversions_on(mesh, library)
    return [(source, target, converting.conversion(source, target, shape, 1e6)) for source, target in pairs]


def every_layout(shape: tuple[int, ...], mesh: Mesh) -> list[Layout]:
    """All layouts, with mesh axes in mesh order or not."""
    return all_layouts(shape, mesh)[0].layouts(tuple(range(len(shape))))


def check_conversions(
    cases: list[Case],
    shape: tuple[int, ...],
    mesh: Mesh,
    library: Library,
    pool: RankPool,
    folder: Path,
    dtype: str = "float64",
) -> Collectives:
    """Sends random values and gradients through the emitted functions, and compares the reassembled results."""
    collectives = Collectives(mesh, library, conversions_on(mesh, library))
    rng = np.random.default_rng(0)
    given, expected = [], []
    for source, target, steps in cases:
        if not steps.forward and not steps.backward:
            continue
        name = collectives.function(steps, shape, conversion_name(source, target, mesh), "").name
        value, cotangent = (rng.integers(-9, 9, shape).astype(float) for _ in range(2))
        there, back = encode(value, source, mesh, rng, library), encode(cotangent, target.transpose, mesh, rng, library)
        given.append((name, there, back))
        expected.append((source, target, value, cotangent))
    path = folder / "parallel.py"
    path.write_text(render_collectives("conversions", collectives))
    results = pool.run(ranks.convert_all, str(path), mesh.degrees, given, dtype, ranks=mesh.size)
    assert given
    for (source, target, value, cotangent), *held in zip(expected, *results, strict=True):
        made = decode([y for y, _ in held], target, shape, mesh, library)
        np.testing.assert_array_equal(made, value, f"{source} -> {target}")
        back = decode([x for _, x in held], source.transpose, shape, mesh, library)
        np.testing.assert_array_equal(back, cotangent, f"backward of {source} -> {target}")
    return collectives


def layout_of(kinds: dict[int, Kind], others: Iterable[Kind], mesh: Mesh) -> Layout:
    rest = iter(others)
    return Layout(tuple(kinds[axis] if axis in kinds else next(rest) for axis in range(len(mesh.axes))))


def steps_over(axes: tuple[int, ...], others: tuple[Kind, ...], mesh: Mesh) -> Iterator[Case]:
    """A conversion with each kind of step over a group, and the step of its adjoint. Other axes keep their kinds."""

    def all_of(kind: Kind) -> Layout:
        return layout_of(dict.fromkeys(axes, kind), others, mesh)

    def nested(dim: int, order: tuple[int, ...] = axes) -> Layout:
        return layout_of({axis: Shard(dim, place) for place, axis in enumerate(order)}, others, mesh)

    def pair(there: Step, back: Step | None) -> Conversion:
        return Conversion((there,), () if back is None else (back,))

    def swap(kind: StepKind, source: Layout, target: Layout) -> Case:
        back = Step(kind, axes, source=target.transpose, target=source.transpose)
        return source, target, pair(Step(kind, axes, source=source, target=target), back)

    gather, cut = Step(StepKind.ALL_GATHER, axes, 0), Step(StepKind.SLICE, axes, 0)
    scatter, pad = Step(StepKind.REDUCE_SCATTER, axes, 0), Step(StepKind.PAD, axes, 0)
    add, mask = Step(StepKind.ALL_REDUCE, axes), Step(StepKind.MASK, axes)
    yield all_of(Invariant()), nested(0), pair(cut, gather)
    yield nested(0), all_of(Invariant()), pair(gather, cut)
    yield all_of(Partial()), nested(0), pair(scatter, gather)
    yield nested(0), all_of(Partial()), pair(pad, cut)
    yield all_of(Partial()), all_of(Invariant()), pair(add, None)
    yield all_of(Replicate()), all_of(Partial()), pair(mask, mask)
    to_rows, to_columns = (Step(StepKind.ALL_TO_ALL, axes, dim, 1 - dim) for dim in (1, 0))
    yield nested(0), nested(1), pair(to_columns, to_rows)
    for order in permutations(axes):
        if order != axes:
            yield swap(StepKind.PERMUTE, nested(0), nested(0, order))
            yield swap(StepKind.EXCHANGE, nested(0), nested(0, order))
            first, last = axes[0], axes[-1]
            for absent in (Invariant(), Replicate(), Partial()):
                one, other = (dict.fromkeys(axes, absent) | {axis: Shard(1)} for axis in (first, last))
                ends = (layout_of(kinds, others, mesh) for kinds in (one, other))
                yield swap(StepKind.PERMUTE, *ends)


@pytest.mark.parametrize("degrees", [(2, 2), (2, 2, 2)])
def test_every_step_over_every_group(
    degrees: tuple[int, ...], pool: RankPool, library: Library, tmp_path: Path
) -> None:
    """Groups of several mesh axes in any order. The other axes keep random kinds."""
    mesh = mesh_of(*degrees)
    kinds: list[Kind] = [Invariant(), Replicate(), Partial()]
    cases = []
    for size in range(1, len(degrees) + 1):
        for axes in permutations(range(len(degrees)), size):
            others = Random(str(axes)).choices(kinds, k=len(degrees) - size)
            cases += steps_over(axes, tuple(others), mesh)
    collectives = check_conversions(cases, (8, 16), mesh, library, pool, tmp_path)
    assert {step.function for text in collectives.functions for step in text.forward} == {
        *("block", "one_only", "pad", "all_gather", "all_reduce", "reduce_scatter", "all_to_all"),
        *("exchange", "permute"),
    }


def in_two_steps(case: Case, first: tuple[int, ...]) -> Case:
    """The same conversion, with every collective that allows it split in two steps: first over `first`, then over the
    rest.
    """
    source, target, steps = case
    there, back = (
        tuple(replace(step, first=first) if step.kind in TWO_STEP_KINDS else step for step in way)
        for way in (steps.forward, steps.backward)
    )
    return source, target, Conversion(there, back)


@pytest.mark.parametrize("degrees", [(2, 2), (2, 2, 2), (4, 2)])
def test_collectives_in_two_steps(degrees: tuple[int, ...], pool: RankPool, library: Library, tmp_path: Path) -> None:
    """Groups of several mesh axes in any order, with any subset first: the index map is that of one step."""
    mesh, cases = mesh_of(*degrees), list[Case]()
    for size in range(2, len(degrees) + 1):
        for axes in permutations(range(len(degrees)), size):
            others = tuple(Random(str(axes)).choices([Invariant(), Replicate(), Partial()], k=len(degrees) - size))
            subsets = [first for count in range(1, size) for first in combinations(sorted(axes), count)]
            for case in steps_over(axes, others, mesh):
                if {step.kind for step in (*case[2].forward, *case[2].backward)} & TWO_STEP_KINDS:
                    cases += (in_two_steps(case, first) for first in subsets)
    collectives = check_conversions(cases, (8, 16), mesh, library, pool, tmp_path)
    assert collectives.staged
    assert {step.function for text in collectives.functions for step in text.forward if "_by_" in step.needs} == {
        *("all_gather", "reduce_scatter", "all_to_all"),
    }


@pytest.mark.parametrize("degrees", [(2,), (4,), (2, 2)])
def test_every_conversion_is_its_index_map(
    degrees: tuple[int, ...], pool: RankPool, library: Library, tmp_path: Path
) -> None:
    mesh, shape = mesh_of(*degrees), (4, 8)
    layouts = every_layout(shape, mesh)
    collectives = check_conversions(
        conversions(product(layouts, layouts), shape, mesh, library), shape, mesh, library, pool, tmp_path
    )
    if len(degrees) > 1:
        assert collectives.reordered and collectives.planned
        kinds = {step.function for text in collectives.functions for step in (*text.forward, *text.backward)}
        assert len(kinds) == len(StepKind)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_every_conversion_in_other_types(dtype: str, pool: RankPool, library: Library, tmp_path: Path) -> None:
    mesh, shape = mesh_of(2), (4, 2)
    layouts = every_layout(shape, mesh)
    check_conversions(
        conversions(product(layouts, layouts), shape, mesh, library), shape, mesh, library, pool, tmp_path, dtype
    )


def test_conversions_of_a_scalar(pool: RankPool, library: Library, tmp_path: Path) -> None:
    mesh = mesh_of(2, 2)
    layouts = every_layout((), mesh)
    check_conversions(conversions(product(layouts, layouts), (), mesh, library), (), mesh, library, pool, tmp_path)


def test_a_users_cut(pool: RankPool, tmp_path: Path) -> None:
    library = library_of([*library_sources(), Source("cyclic.uop", CYCLIC)])
    mesh = mesh_of(2, 2)
    kinds = [Invariant(), Replicate(), Shard(0), Shard(0, by="cyclic"), Shard(1, by="cyclic")]
    layouts = [nest(choice) for choice in product(kinds, repeat=2)]
    rng = Random(0)
    pairs = rng.sample(list(product(layouts, layouts)), 60)
    check_conversions(conversions(pairs, (8, 4), mesh, library), (8, 4), mesh, library, pool, tmp_path)


def test_names_say_what_happens() -> None:
    mesh = mesh_of(2, 2)
    whole, copies = nest([Invariant()] * 2), nest([Replicate()] * 2)
    assert conversion_name(whole, copies, mesh) == "replicate_ab"
    assert conversion_name(nest([Shard(0), Invariant()]), nest([Replicate(), Shard(1)]), mesh) == (
        "gather_0_a_and_partition_1_b"
    )


def test_a_conversion_is_written_once(library: Library) -> None:
    mesh = mesh_of(2, 2)
    collectives = Collectives(mesh, library, conversions_on(mesh, library))
    first = collectives.conversion(
        nest([Invariant(), Shard(1)]), nest([Replicate(), Shard(1)]), (4, 4), 64, gradient=True
    )
    again = collectives.conversion(nest([Invariant()] * 2), nest([Replicate(), Invariant()]), (8,), 32, gradient=True)
    assert first is again is not None and len(collectives.functions) == 1
    assert collectives.replicate((0,)) == first.name
    assert collectives.conversion(nest([Invariant()] * 2), nest([Replicate()] * 2), (8,), 32, gradient=False) is None


def test_only_what_is_used_is_written(library: Library) -> None:
    mesh = mesh_of(2)
    collectives = Collectives(mesh, library, conversions_on(mesh, library))
    collectives.conversion(nest([Invariant()]), nest([Replicate()]), (8,), 32, gradient=True)
    text = render_collectives("small", collectives)
    assert "def all_reduce" in text
    for name in ("all_gather", "all_to_all", "exchange", "GradientSync", "max_over", "pad"):
        assert name not in text


def test_of_a_plan_that_divides_nothing_there_are_groups_alone(tmp_path: Path) -> None:
    """No unused import, and no empty section."""
    (tmp_path / "same.udl").write_text("model same[b = 4]\n  input x: f32[b]\n  y = relu(x)\n  output y\n")
    request = Request(tmp_path / "same.udl", devices=2)
    found = compile_model(request)
    text = render_program(found.plan, found.library, found.sources, request)["parallel.py"]
    compile(text, "parallel.py", "exec")
    sections = re.findall(r"^# -{40,} (.+)$", text, re.MULTILINE)
    assert sections == ["groups of devices"] and text.rstrip().splitlines()[-1].lstrip().startswith("self.")
    assert not re.search(r"^import torch$|import Tensor", text, re.MULTILINE)


@pytest.mark.parametrize("kind", ["max", "min", "prod"])
def test_reductions_over_a_group(kind: str, pool: RankPool, library: Library, tmp_path: Path) -> None:
    """All elements that attain the extremum share its gradient, on whichever rank they are. Zeros do not break prod."""
    import torch

    mesh = mesh_of(4)
    collectives = Collectives(mesh, library, conversions_on(mesh, library))
    collectives.reduce_over(ReductionKind(kind), free=False)
    path = tmp_path / "parallel.py"
    path.write_text(render_collectives("reductions", collectives))
    rng = np.random.default_rng(1)
    whole, g = rng.integers(-2, 3, (3, 8)).astype(float), rng.standard_normal(3)
    shards = np.split(whole, 4, 1)
    results = pool.run(ranks.reduce_over, str(path), kind, shards, (1,), g, ranks=4)
    x = torch.from_numpy(whole).requires_grad_()
    y = {"max": lambda: x.amax(1), "min": lambda: x.amin(1), "prod": lambda: x.prod(1)}[kind]()
    y.backward(torch.from_numpy(g))
    for value, _ in results:
        np.testing.assert_allclose(value, y.detach().numpy())
    np.testing.assert_allclose(np.concatenate([back for _, back in results], 1), x.grad.numpy(), atol=1e-12)


@pytest.mark.parametrize("kind", ["max", "min", "prod"])
def test_what_reductions_over_a_group_save(kind: str, pool: RankPool, library: Library, tmp_path: Path) -> None:
    mesh, shape = mesh_of(2), (3, 4)
    collectives = Collectives(mesh, library, conversions_on(mesh, library))
    collectives.reduce_over(ReductionKind(kind), free=False)
    (tmp_path / "parallel.py").write_text(render_collectives("reductions", collectives))
    x = Term("name", (Variable(0),), ("b", "c"))
    over = Term("reduce_over", (x, (1,), (0,), kind, False), ("b",))
    lowering = Lowering((Statement((Variable(1),), over, "y"),), (Variable(1),))
    found = execute(lowering, [Operand(shape, Sort.FLOAT, moves=True)], [Operand((3,), Sort.FLOAT)], 8)
    (given,) = found.inputs
    own = [storage.bytes for storage in found.saved if storage is given.storage]
    expected = [*(own or [0]), *sorted(storage.bytes for storage in found.saved if storage is not given.storage)]
    path = str(tmp_path / "parallel.py")
    assert pool.run(ranks.saved_by_reduction, path, kind, shape, ranks=2) == [expected] * 2


# ---------------------------------------------------------------------------------------------- gradients

TIED = """
model tied[b = 4, d = 8]
  input x: f32[b, d]
  input target: f32[b, d]
  weight w: f32[d, d] ~ normal(0.3)
  weight c: f32[d] ~ normal(0.3)
  h = relu(linear(x, w) + c)
  repeat 2 as layer
    weight v: f32[d, d] ~ normal(0.3)
    h = relu(linear(linear(h, v), w))
  y = linear(h, w) + c
  loss mse(y, target)
"""

NESTED = """
block inner(x)
  weight a: f32[d, d] ~ normal(0.3)
  repeat 2 as deep
    weight w: f32[d, d] ~ normal(0.3)
    x = dropout(relu(linear(x, w)) + linear(x, a); p=0.2)
  return x

model nested[b = 4, d = 8]
  input x: f32[b, d]
  input target: f32[b, d]
  weight t: f32[d, d] ~ normal(0.3)
  y = linear(x, t)
  z = y * 0.5
  repeat 3 as outer
    weight v: f32[d, d] ~ normal(0.3)
    f = inner(y)
    y = z + linear(f, v)
    z = linear(z, t) + y
  loss mse(y + z, target)
"""


def tied(library: Library, text: str = TIED) -> Model:
    return build_model(parse_model(Source("tied.udl", text)), library)


def write(plan: Plan, library: Library, folder: Path) -> str:
    folder.mkdir()
    (folder / "__init__.py").write_text("from .model import Model as Model\n")
    (folder / "model.py").write_text(render_model(write_down(plan, library)))
    (folder / "parallel.py").write_text(render_parallel(write_down(plan, library)))
    return str(folder)


@pytest.mark.a_day(8)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("bucket_bytes", [0, 300, 1 << 20])
@pytest.mark.parametrize("text", [TIED, NESTED], ids=["tied", "nested"])
def test_accumulated_gradients(
    text: str, seed: int, bucket_bytes: int, pool: RankPool, library: Library, tmp_path: Path
) -> None:
    model = tied(library, text)
    degrees = [(2,), (4,), (2, 2)][seed % 3]
    program = write(random_plan(model, mesh_of(*degrees), library, Random(seed)), library, tmp_path / "program")
    reference = write(random_plan(model, mesh_of(), library, Random(0)), library, tmp_path / "reference")
    size = mesh_of(*degrees).size
    assert max(pool.run(ranks.accumulate, program, reference, bucket_bytes, ranks=size)) < 1e-12


@pytest.mark.parametrize("degrees", [(2,), (4,)])
def test_gradients_are_what_autograd_leaves(
    degrees: tuple[int, ...], pool: RankPool, library: Library, tmp_path: Path
) -> None:
    """Gradients are added to the existing p.grad in place. Hooks see the sum over devices, once."""
    mesh = mesh_of(*degrees)
    program = write(batch_plan(tied(library), mesh, library), library, tmp_path / "program")
    assert pool.run(ranks.accumulated, program, ranks=mesh.size) == [[]] * mesh.size


def test_gradients_are_sent_while_the_backward_goes_on(pool: RankPool, library: Library, tmp_path: Path) -> None:
    """A parameter is sent once, with the gradient of all its uses: `w` and `c`, used first, come last."""
    program = write(batch_plan(tied(library), mesh_of(2), library), library, tmp_path / "program")
    events = pool.run(ranks.launches, program, 0, ranks=2)[0]
    assert events.count("send") == events.count("use") == 4
    assert events.index("send") < events.index("backward done") == len(events) - 1
    assert events[:2] == ["use", "send"], "of the second layer only `v` is complete: `w` is used before"
    events = pool.run(ranks.launches, program, 1 << 30, ranks=2)[0]
    assert events[-2:] == ["backward done", "send"] and events.count("send") == 1


def test_a_step_is_one_graph_of_torch_compile(pool: RankPool, library: Library, tmp_path: Path) -> None:
    """Conversions, their adjoints and the sums of gradients are in one graph, without a break."""
    program = write(random_plan(tied(library), mesh_of(2, 2), library, Random(11)), library, tmp_path / "program")
    text = (Path(program) / "parallel.py").read_text()
    assert all(word in text for word in ("parameter_conversion(", " Exchange(", " Permutation("))
    assert max(max(pair) for pair in pool.run(ranks.compiled, program, ranks=4)) < 1e-12
