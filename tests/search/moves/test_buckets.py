"""The size of gradient buckets is the best of those that are tried, for plans of any strategy. Nothing is tried if it
makes no difference.
"""

from __future__ import annotations

import json
import re
from inspect import signature
from pathlib import Path

import pytest

from unity_dsl.cli import run
from unity_dsl.compilation import Compilation, Request, compile_model
from unity_dsl.emit.output_folder import write_program
from unity_dsl.emit.plan_file import NAME, load_plan_file
from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.emit.written_plan import written_plan
from unity_dsl.graph.layout_conversion import BUCKET_MIB
from unity_dsl.machine.machine import read_machine
from unity_dsl.search import evaluate
from unity_dsl.search.constants import GAIN, WORTH
from unity_dsl.simulation.exposure import exposed_sums, gradient_sums
from unity_dsl.simulation.step_tasks import simulate_step, step_tasks
from unity_dsl.syntax.diagnostic import InputError

EXAMPLES = Path(__file__).parents[3] / "examples"
SIZES = (0, 1, 3, 6, 12, 25, 50, 100, 200, 400, 800, 1600)


def compiled(example: str, machine: str, devices: int, per_device: int, strategy: str, **asked: int) -> Compilation:
    return compile_model(
        Request(
            EXAMPLES / f"{example}.udl",
            settings={"b": per_device * devices},
            machine=machine,
            devices=devices,
            strategy=strategy,
            **asked,
        )
    )


def simulated(found: Compilation, size: int) -> float:
    return simulate_step(
        found.plan.with_passes(bucket_mib=size), read_machine(found.sources.machine), found.library
    ).seconds


PLANS = [
    ("candle_uno_unity", "dgx-h100", 64, 8, "data_parallel", 800),
    ("mlp_unity", "dgx-h100", 512, 8, "data_parallel", 800),
    ("mlp", "summit", 6, 8, "data_parallel", 12),
    ("dlrm", "dgx-h100", 64, 256, "expert", BUCKET_MIB),
    ("mlp_unity", "dgx-h100", 512, 8, "auto", None),
]
"""Example, machine, devices, examples a device, strategy, and the size in MiB that is chosen, which is the best of all
sizes. None stands for any other size than the default. It is the best of the sizes tried, from the default to half or
twice the chosen size.
"""


@pytest.mark.a_day(2)
@pytest.mark.parametrize(("example", "machine", "devices", "per_device", "strategy", "size"), PLANS)
def test_the_step_of_a_plan_is_the_shortest_of_all_sizes(
    example: str, machine: str, devices: int, per_device: int, strategy: str, size: int | None
) -> None:
    found = compiled(example, machine, devices, per_device, strategy)
    assert found.plan.passes.bucket_mib == size or (size is None and found.plan.passes.bucket_mib != BUCKET_MIB)
    chosen = found.plan.passes.bucket_mib
    least, most = (chosen // 2, BUCKET_MIB) if chosen < BUCKET_MIB else (BUCKET_MIB, 2 * chosen)
    compared = [other for other in SIZES if size is not None or least <= other <= most]
    size, seconds = chosen, {other: simulated(found, other) for other in compared}
    assert found.plan.simulated == seconds[size]
    assert (1 - GAIN) * seconds[size] <= min(seconds.values())
    told = [note for note in found.plan.notes if f"gradient buckets of {size} MiB, instead of {BUCKET_MIB} MiB" in note]
    assert len(told) == (size != BUCKET_MIB)
    if told:
        part = float(told[0].rpartition(" (")[2].split()[0])
        assert part == pytest.approx(seconds[size] / seconds[BUCKET_MIB], abs=6e-4)
    graph = step_tasks(found.plan, read_machine(found.sources.machine), found.library)
    assert found.plan.cost.memory.total == pytest.approx(graph.peak().bytes, rel=1e-3)


def test_what_a_plan_holds_with_its_buckets_fits_the_memory() -> None:
    example = "candle_uno_unity", "dgx-h100", 64, 8, "data_parallel"
    free = compiled(*example).plan
    limit = int(free.cost.memory.total) - 1
    short = compiled(*example, memory=limit).plan
    assert BUCKET_MIB < short.passes.bucket_mib < free.passes.bucket_mib
    assert short.cost.memory.total <= limit and not short.warnings
    assert free.simulated is not None and short.simulated is not None and free.simulated < short.simulated


@pytest.mark.parametrize(("strategy", "devices", "per_device"), [("data_parallel", 1, 8), ("expert", 8, 32)])
def test_nothing_is_simulated_where_sums_are_hidden(
    strategy: str, devices: int, per_device: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor where there are no sums."""
    sizes = list[int]()
    simulate = evaluate.simulate_step

    def noting(plan, machine, library):  # type: ignore[no-untyped-def]
        sizes.append(plan.passes.bucket_mib)
        return simulate(plan, machine, library)

    monkeypatch.setattr(evaluate, "simulate_step", noting)
    found = compiled("bert_large", "dgx-h100", devices, per_device, strategy)
    assert set(sizes) == {BUCKET_MIB}
    timeline = simulate(found.plan, read_machine(found.sources.machine), found.library)
    assert bool(gradient_sums(timeline)) == (devices > 1) and exposed_sums(timeline) <= WORTH


@pytest.mark.parametrize("size", [0, 3, 100])
def test_the_size_is_written_read_back_and_what_the_program_does_by_itself(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    request = Request(EXAMPLES / "mlp.udl", preset="small", devices=2, strategy="data_parallel")
    found, out = compile_model(request), tmp_path / "out"
    assert found.plan.passes.bucket_mib == BUCKET_MIB
    plan = found.plan.with_passes(bucket_mib=size)
    write_program(plan, found.library, found.sources, request, out)
    read, _ = written_plan(load_plan_file(out), out)
    assert read.passes.bucket_mib == size
    with load_program(out) as module:
        assert signature(module.Model).parameters["bucket_bytes"].default == size * 2**20
    default = re.search(r'"--bucket-mb", type=float, default=([\d.]+),', (out / "train.py").read_text())
    assert default is not None and float(default[1]) == size
    monkeypatch.chdir(tmp_path)
    assert run(["explain", "out"]) == 0
    told = capsys.readouterr().out
    assert f"gradient buckets of {size} MiB" in told or (size == 0 and "no bucketing of gradients" in told)
    assert run(["explain", "out", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bucket_mib"] == size


@pytest.mark.parametrize("size", [-1, 2.5, "25", True, None])
def test_no_other_size_is_read(size: object, tmp_path: Path) -> None:
    request = Request(EXAMPLES / "mlp.udl", preset="small", devices=2, strategy="data_parallel")
    found, out = compile_model(request), tmp_path / "out"
    write_program(found.plan, found.library, found.sources, request, out)
    document = json.loads((out / NAME).read_text())
    assert "bucket_mib" not in document
    (out / NAME).write_text(json.dumps({**document, "bucket_mib": size}))
    with pytest.raises(InputError) as caught:
        load_plan_file(out)
    assert caught.value.diagnostic.code == "E404" and "bucket_mib is no count" in caught.value.diagnostic.message
