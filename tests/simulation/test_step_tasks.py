"""Tasks of training steps against the emitted programs: the collectives they run, their memory, their price."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from unity_dsl.compilation import Compilation, Request, compile_model
from unity_dsl.emit.output_folder import write_program
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.machine.machine import load_machine
from unity_dsl.simulation.event_loop import simulate
from unity_dsl.simulation.hardware import Hardware
from unity_dsl.simulation.lower_bound import lower_bound
from unity_dsl.simulation.step_tasks import _SCHEDULES, step_tasks
from unity_dsl.simulation.task import COMPUTE, Phase, TaskGraph

from ..program.counting import count_collectives
from ..program.peak_memory import count_memory
from ..sampling import of_the_day

EXAMPLES = Path(__file__).parents[2] / "examples"
PLANS = [
    *(("mlp", strategy) for strategy in ("data_parallel", "random:1", "random:5")),
    *(("llama3_8b", strategy) for strategy in ("data_parallel", "random:2")),
    *(("gpt2", strategy) for strategy in ("data_parallel", "random:4")),
    *(("lstm_lm", "random:3"), ("mixtral_8x7b", "random:3"), ("resnext50", "random:2"), ("dlrm", "random:1")),
]


RECOMPUTED = [
    *(("llama3_8b", strategy) for strategy in ("data_parallel", "random:2")),
    *(("gpt2", strategy) for strategy in ("data_parallel", "random:4")),
    *(("lstm_lm", "random:3"), ("mixtral_8x7b", "random:3"), ("resnext50", "random:2")),
]


SEVERAL = [
    *(("mlp", "data_parallel", 4), ("mlp", "random:1", 2), ("gpt2", "data_parallel", 2), ("llama3_8b", "random:2", 2)),
]
"""Plans that run a batch as several micro-batches."""


def request(
    example: str,
    strategy: str,
    devices: int = 2,
    precision: str = "f32",
    recompute: str = "none",
    micro_batches: int = 1,
) -> Request:
    return Request(
        EXAMPLES / f"{example}.udl",
        preset="small",
        precision=precision,
        devices=devices,
        strategy=strategy,
        recompute=recompute,
        micro_batches=micro_batches,
    )


def tasks_of(compiled: Compilation) -> TaskGraph:
    return step_tasks(compiled.plan, load_machine("local"), compiled.library)


COUNTED = {
    "all_gather": "all_gather_into_tensor",
    "reduce_scatter": "reduce_scatter_tensor",
    "all_to_all": "all_to_all_single",
    "permute": "all_to_all_single",
    "exchange": "all_to_all_single",
}


def collectives(graph: TaskGraph, phase: Phase) -> Counter[str]:
    found: Counter[str] = Counter()
    for task in graph.tasks:
        if task.channel != COMPUTE and task.phase is phase:
            found[COUNTED.get(task.name, task.name)] += 1
    return found


@pytest.mark.parametrize(
    ("example", "strategy", "precision"),
    of_the_day([(*case, precision) for case in PLANS for precision in ("f32", "bf16")], 6),
)
def test_tasks_are_what_the_program_does(
    example: str, strategy: str, precision: str, tmp_path: Path, pool: RankPool
) -> None:
    """The program's collectives, and within 10 % the storages that are alive at once, on the rank with the most."""
    compare(request(example, strategy, precision=precision), tmp_path / "out", pool)


@pytest.mark.a_day(3)
@pytest.mark.parametrize(
    ("example", "strategy", "precision"), [(*case, "f32") for case in RECOMPUTED] + [("gpt2", "random:4", "bf16")]
)
def test_tasks_of_what_is_run_again_are_what_the_program_does(
    example: str, strategy: str, precision: str, tmp_path: Path, pool: RankPool
) -> None:
    recompute = "layer,layer.cell.step" if example == "lstm_lm" else "all"
    compare(request(example, strategy, precision=precision, recompute=recompute), tmp_path / "out", pool)


@pytest.mark.parametrize(
    ("example", "strategy", "recompute"),
    [("llama3_8b", "zero", "layer:1"), ("gpt2", "random:4", "layer:1"), ("lstm_lm", "random:3", "layer.cell.step:2")],
)
def test_tasks_of_iterations_that_are_kept_are_what_the_program_does(
    example: str, strategy: str, recompute: str, tmp_path: Path, pool: RankPool
) -> None:
    compare(request(example, strategy, recompute=recompute), tmp_path / "out", pool)


@pytest.mark.a_day(3)
@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize(("example", "strategy", "micro_batches"), SEVERAL)
def test_tasks_of_micro_batches_are_what_the_program_does(
    example: str, strategy: str, micro_batches: int, precision: str, tmp_path: Path, pool: RankPool
) -> None:
    wanted = request(example, strategy, precision=precision, micro_batches=micro_batches)
    compare(wanted, tmp_path / "out", pool)
    if example != "mlp":
        compare(replace(wanted, recompute="all"), tmp_path / "again", pool)


@pytest.mark.parametrize(("bucket_mib", "sums"), [(0, 8), (1, 4), (3, 3), (6, 2), (25, 1)])
def test_tasks_of_other_buckets_are_what_the_program_does(
    bucket_mib: int, sums: int, tmp_path: Path, pool: RankPool
) -> None:
    """Gradients of 1, 4, 4 and 1 MiB, each after that of a bias."""
    sizes = {"d": 256, "h": 1024, "layers": 4}
    wanted = replace(request("mlp", "data_parallel"), settings=sizes)
    compiled = compile_model(wanted)
    compiled = replace(compiled, plan=compiled.plan.with_passes(bucket_mib=bucket_mib))
    compare_plan(compiled, wanted, tmp_path / "out", pool)
    assert collectives(tasks_of(compiled), Phase.BACKWARD).total() == sums


def compare(wanted: Request, out: Path, pool: RankPool) -> None:
    compare_plan(compile_model(wanted), wanted, out, pool)


def compare_plan(compiled: Compilation, wanted: Request, out: Path, pool: RankPool) -> None:
    write_program(compiled.plan, compiled.library, compiled.sources, wanted, out)
    counted = pool.run(count_collectives, str(out), compiled.plan.passes.bucket_mib * 2**20, False, True, ranks=2)[0]
    graph = tasks_of(compiled)
    for phase, found in zip((Phase.FORWARD, Phase.BACKWARD), counted, strict=True):
        ran: Counter[str] = Counter()
        for name, times in found.items():
            ran[name.removesuffix("_coalesced")] += times
        assert collectives(graph, phase) == ran, phase
    held = max(found.peak for found in pool.run(count_memory, str(out), ranks=2))
    assert graph.peak().bytes == pytest.approx(held, rel=0.1), graph.peak().task


@pytest.mark.parametrize("example", of_the_day(sorted(path.stem for path in EXAMPLES.glob("*.udl")), 5))
def test_what_a_step_takes_it_gives_back(example: str) -> None:
    """Memory at the end equals that at the start, and is never lower. Tasks wait for earlier ones, and run after what
    they read.
    """
    for recompute in ("none", "all"):
        graph = tasks_of(compile_model(request(example, "random:7", precision="bf16", recompute=recompute)))
        gives_back(graph)
        read_when_made(graph)


def test_one_call_for_several_concatenations_reads_what_all_join(tmp_path: Path) -> None:
    (tmp_path / "model.udl").write_text("""model joins[b = 8, d = 8]
  input x: f32[b, d]
  input target: f32[b, (4 * d)]
  weight w: f32[d, d] ~ normal(0.5)
  h = linear(x, w)
  loss mse(concat(concat(sigmoid(h), tanh(h); dim=1), concat(relu(h), exp(h); dim=1); dim=1), target)
""")
    tasks = tasks_of(compile_model(Request(tmp_path / "model.udl", devices=1))).tasks
    (joined,) = (task for task in tasks if task.name == "concat")
    assert [tasks[number].name for number in joined.reads] == ["sigmoid", "tanh", "relu", "exp"]


def test_a_step_that_waits_for_its_launches_is_at_its_bound() -> None:
    """Tables are on some of the devices, and the others get zeros in place of their results: all launches come one by
    one.
    """
    machine = load_machine("dgx-h100")
    found = compile_model(
        Request(EXAMPLES / "xdl_unity.udl", machine="dgx-h100", devices=64, settings={"b": 512}, strategy="auto")
    )
    timeline = simulate(step_tasks(found.plan, machine, found.library), Hardware(machine.launch_seconds))
    assert any(task.name == "zeros" for task in timeline.graph.tasks)
    assert timeline.seconds == pytest.approx(lower_bound(timeline.graph, timeline.hardware).seconds)


def gives_back(graph: TaskGraph) -> None:
    now = graph.held
    for number, task in enumerate(graph.tasks):
        assert all(0 <= other < number for other in task.after)
        assert min(task.seconds, task.allocated, task.freed) >= 0
        now += task.allocated - task.freed
        assert now >= graph.held - 1e-3
    assert now == pytest.approx(graph.held)


def read_when_made(graph: TaskGraph) -> None:
    """On a GPU, where kernels and collectives overlap. Backward passes of operators read values that have been made."""
    timeline = simulate(graph, Hardware(1e-6))
    for number, task in enumerate(graph.tasks):
        assert all(0 <= other < number for other in task.reads)
        assert all(timeline.end[other] <= timeline.start[number] for other in task.reads)
        assert task.reads or not task.name.endswith(("ones", " backward"))
    assert timeline.seconds >= lower_bound(graph, timeline.hardware).seconds * (1 - 1e-9)


def test_a_step_of_micro_batches_is_as_many_passes_and_one_update() -> None:
    """Gradients that are whole on each device are summed once. Those that are kept in slices are summed
    in every pass.
    """
    one, four = (compile_model(request("mlp", "data_parallel", micro_batches=count)) for count in (1, 4))
    forward = [sum(task.phase is Phase.FORWARD for task in tasks_of(compiled).tasks) for compiled in (one, four)]
    assert forward[1] == 4 * forward[0] > 0
    assert collectives(tasks_of(four), Phase.BACKWARD)["all_reduce"] == 1
    updates = [[task.name for task in tasks_of(c).tasks if task.phase is Phase.UPDATE] for c in (one, four)]
    assert updates[0] == updates[1] == ["optimizer"]
    sliced = ("w_in=S0", "w_out=S0", "hidden.w=S0")
    found = [
        tasks_of(compile_model(replace(request("mlp", "data_parallel", micro_batches=count), pins=sliced)))
        for count in (1, 4)
    ]
    summed = [sum(task.sent for task in graph.tasks if task.name == "reduce_scatter") for graph in found]
    assert summed[1] == pytest.approx(4 * summed[0]) and summed[0] > 0
    # One bucket holds the gradients of a pass. It is sent when the next pass starts, and the last one at the end.
    sent = [collectives(found[1], phase)["reduce_scatter_tensor"] for phase in (Phase.FORWARD, Phase.BACKWARD)]
    assert sent == [3, 1]


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_kernels_of_operators_take_what_they_are_priced_at(precision: str) -> None:
    """On one device, for a model in which every operator also has backward work, and no two operators read the same
    cast of a value.
    """
    compiled = compile_model(request("mlp", "data_parallel", devices=1, precision=precision))
    machine = load_machine("local")
    kernels = [task for task in tasks_of(compiled).tasks if task.phase is not Phase.UPDATE and task.name != "ones"]
    seconds = sum(task.seconds + task.launches * machine.launch_seconds for task in kernels)
    assert seconds == pytest.approx(compiled.plan.cost.compute)


def test_what_is_kept_of_a_plan_is_that_of_its_passes() -> None:
    """Steps of one plan with different passes and bucket sizes, simulated one after the other. Each equals the step
    that is simulated with an empty cache.
    """
    plan = compile_model(Request(EXAMPLES / "bert_unity.udl", machine="dgx-h100", devices=8)).plan
    library, machine = load_library(), load_machine("dgx-h100")
    others = [
        plan.with_passes(bucket_mib=size, deferred_gradients=late) for late in (True, False) for size in (1, 25, 100)
    ]
    kept = [step_tasks(other, machine, library).tasks for other in (*others, *reversed(others))]
    assert len({len(tasks) for tasks in kept}) > 1, "passes change the step"
    for other, *found in zip(others, kept, reversed(kept), strict=False):
        _SCHEDULES.clear()
        assert [step_tasks(other, machine, library).tasks] * 2 == found
