"""Activations offloaded to host memory: programs equal their model, and use as much device memory as simulated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.output_folder import write_program
from unity_dsl.emit.plan_file import load_plan_file
from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.emit.written_plan import written_plan
from unity_dsl.machine.machine import load_machine
from unity_dsl.search.accounting.memory_budget import Budget
from unity_dsl.search.offloading import offloaded_where_shorter
from unity_dsl.simulation.offloading_tasks import BACK, THERE
from unity_dsl.simulation.step_tasks import simulate_step, step_tasks
from unity_dsl.syntax.diagnostic import InputError

from ..sampling import of_the_day
from .peak_memory import count_memory

EXAMPLES = Path(__file__).parents[2] / "examples"
CASES = [
    *(("gpt2", strategy, ranks) for strategy in ("data_parallel", "zero", "random:4") for ranks in (1, 2, 4)),
    *(("llama3_8b", strategy, 4) for strategy in ("zero", "expert", "random:2")),
    *(("mixtral_8x7b", "random:3", 2), ("lstm_lm", "random:3", 2), ("bert_large", "zero", 2), ("vit_l16", "expert", 2)),
]


def request(example: str, strategy: str, ranks: int, **choices: object) -> Request:
    usual = Request(EXAMPLES / f"{example}.udl", preset="small", devices=ranks, strategy=strategy, offload="all")
    return replace(usual, precision="f32", recompute="none", **choices)  # type: ignore[arg-type]


def written(wanted: Request, out: Path) -> Path:
    found = compile_model(wanted)
    write_program(found.plan, found.library, found.sources, wanted, out, force=True)
    assert (".offloaded(" in (out / "model.py").read_text()) == bool(found.plan.passes.offloaded)
    return out


@pytest.mark.parametrize(("example", "strategy", "ranks"), of_the_day(CASES, 4))
def test_programs_equal_their_model(example: str, strategy: str, ranks: int, tmp_path: Path, pool: RankPool) -> None:
    out = written(request(example, strategy, ranks), tmp_path / "out")
    report = check(out, pool=pool)
    assert report.ok, report


@pytest.mark.parametrize(
    "choices", [{"micro_batches": 2}, {"offload": "layer:1"}, {"settings": {"layers": 5}}], ids=str
)
def test_with_other_choices_too(choices: dict[str, object], tmp_path: Path, pool: RankPool) -> None:
    """Micro-batches, offload of some iterations only, and more iterations than are on the device at a time."""
    report = check(written(request("gpt2", "zero", 2, **choices), tmp_path / "out"), pool=pool)
    assert report.ok, report


@pytest.mark.parametrize(("example", "strategy"), [("gpt2", "random:4"), ("mixtral_8x7b", "random:3")])
def test_a_device_holds_what_is_simulated(example: str, strategy: str, tmp_path: Path, pool: RankPool) -> None:
    """The peak is within 10 % of the simulated one and lower than without. A limit between both needs offload."""
    machine, peaks = load_machine("local"), {}
    for word in ("none", "all"):
        wanted = request(example, strategy, 2, settings={"layers": 6}, offload=word)
        plan, library = written_plan(load_plan_file(out := written(wanted, tmp_path / word)), out)
        counted = max(found.peak for found in pool.run(count_memory, str(out), ranks=2))
        assert step_tasks(plan, machine, library).peak().bytes == pytest.approx(counted, rel=0.1)
        peaks[word] = counted
    assert peaks["all"] < 0.75 * peaks["none"]
    limit = (peaks["all"] + peaks["none"]) // 2
    fits = request(example, strategy, 2, settings={"layers": 6}, memory=limit)
    assert not compile_model(fits).plan.warnings
    assert compile_model(replace(fits, offload="none")).plan.warnings, "no other way is allowed"


def saved(rank: int, ranks: int, folder: str) -> tuple[int, int]:
    """The number of tensors offloaded in a step, and how many are still on the device after the forward pass."""
    with load_program(Path(folder)) as module:
        model = module.Model()
        model.initialise(0)
        copies = []
        begin = module.offload.HostCopy.__init__

        def copy(self: object, tensor: torch.Tensor, host: object) -> None:
            copies.append(self)
            begin(self, tensor, host)

        module.offload.HostCopy.__init__ = copy
        inputs = {name: torch.zeros(spec.shape, dtype=torch.int64) for name, spec in module.INPUTS.items()}
        loss, _ = model(**inputs)
        left = sum(one.source is not None for one in copies)
        loss.backward()
        assert all(one.fetched is not None for one in copies), "all come back"
        return len(copies), left


def test_all_that_is_saved_leaves_the_device_and_comes_back(tmp_path: Path, pool: RankPool) -> None:
    out = written(request("gpt2", "single", 1), tmp_path / "out")
    ((count, left),) = pool.run(saved, str(out), ranks=1)
    assert count > 20 and left == 0


def test_copies_are_tasks_of_streams_of_their_own() -> None:
    """The same time is spent on copies to the host and back. Every allocated byte is freed."""
    found = compile_model(request("gpt2", "data_parallel", 2, settings={"layers": 6}))
    timeline = simulate_step(found.plan, load_machine("local"), found.library)
    there, back = ([t for t in timeline.graph.tasks if t.channel == channel] for channel in (THERE, BACK))
    assert len(there) == len(back) > 0
    assert sum(t.seconds for t in there) == pytest.approx(sum(t.seconds for t in back))
    assert sum(t.allocated - t.freed for t in timeline.graph.tasks) == 0


def test_what_memory_makes_a_plan_recompute_is_offloaded_where_that_is_faster() -> None:
    sizes = {"layers": 12, "b": 48}
    wanted = Request(
        EXAMPLES / "gpt2_xl.udl", machine="summit", devices=24, strategy="zero", settings=sizes, offload="none"
    )
    without = compile_model(replace(wanted, recompute="all"))
    machine = load_machine("summit")

    def seconds(plan: object) -> float:
        return simulate_step(plan, machine, without.library).seconds  # type: ignore[arg-type]

    found = offloaded_where_shorter(without.plan, Budget(machine, without.library, without.plan.division), seconds)
    assert found.passes.offloaded == {"layer"} and not found.passes.recomputed
    assert seconds(found) < seconds(without.plan)
    assert found.cost.memory.total <= machine.memory_bytes
    assert found.cost.compute < without.plan.cost.compute
    assert any(note.startswith("offloaded to the host's memory") for note in found.notes)


def test_a_search_within_a_time_limit_offloads_what_is_asked(tmp_path: Path) -> None:
    """The search chooses rewrites and layouts too, without a time limit and with whatever plan it has after 0.5 s."""
    for limit in (None, 0.5):
        wanted = replace(request("gpt2", "auto", 2), recompute="auto", time_limit=limit, machine="dgx-h100")
        assert compile_model(wanted).plan.passes.offloaded == {"layer"}


def test_what_is_recomputed_is_not_offloaded_as_well() -> None:
    with pytest.raises(InputError, match="E324"):
        compile_model(replace(request("gpt2", "single", 1), recompute="layer"))


@pytest.mark.parametrize("word", ["other", "layer:9", "layer:x", "layer.attn", "layer,layer:1", "layer,all"])
def test_what_is_no_repeat_is_refused(word: str) -> None:
    with pytest.raises(InputError, match="E324"):
        compile_model(request("gpt2", "single", 1, offload=word))


def test_a_model_without_a_loss_saves_nothing(tmp_path: Path) -> None:
    text = "model m[b = 4, d = 8]\n  input x: f32[b, d]\n  repeat 2 as layer\n    x = tanh(x)\n  output x\n"
    (tmp_path / "m.udl").write_text(text)
    with pytest.raises(InputError, match=r"E324.*has no loss"):
        compile_model(Request(tmp_path / "m.udl", offload="layer"))


def test_a_machine_without_a_link_to_its_host_is_refused(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "machines" / "summit.toml").read_text()
    start, end = text.index("[host]"), text.index("[[level]]")
    (tmp_path / "own.toml").write_text(text[:start] + text[end:])
    with pytest.raises(InputError, match=r"E324.*no link to its host"):
        compile_model(request("gpt2", "single", 1, machine=str(tmp_path / "own.toml")))
    (tmp_path / "own.toml").write_text(text.replace("bandwidth_gb_per_s = 40\nlatency_us = 10", "latency_us = 10"))
    with pytest.raises(InputError, match="E304"):
        compile_model(request("gpt2", "single", 1, machine=str(tmp_path / "own.toml"), offload="none"))
