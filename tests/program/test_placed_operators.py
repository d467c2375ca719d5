"""Operators that only some devices compute: every rank runs the same collectives, and the program equals the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import torch

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.output_folder import write_program
from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.machine.machine import load_machine
from unity_dsl.simulation.step_tasks import step_tasks
from unity_dsl.simulation.task import COMPUTE, Phase
from unity_dsl.syntax.diagnostic import InputError

from ..emit.test_train_files import losses, train
from .counting import count_collectives
from .peak_memory import count_memory

Compile = Callable[..., Path]
CANDLE = Path(__file__).parents[2] / "examples" / "candle_uno.udl"

TOWERS = """model towers[b = 8, d = 6, h = 12, e = 4]
  input user: f32[b, d]
  input item: f32[b, d]
  input target: f32[b, e]
  weight mix: f32[d, d] ~ normal(0.5)
  weight u1: f32[h, d] ~ normal(0.5)
  weight u2: f32[e, h] ~ normal(0.5)
  weight i1: f32[h, d] ~ normal(0.5)
  weight i2: f32[e, h] ~ normal(0.5)
  shared = linear(user + item, mix)
  left_sum = user + shared
  left_up = linear(left_sum, u1)
  left_hidden = relu(left_up)
  left = linear(left_hidden, u2)
  right_sum = item + shared
  right_up = linear(right_sum, i1)
  right_hidden = sigmoid(right_up)
  right = linear(right_hidden, i2)
  y = left * right
  loss mse(y, target)
  output y
"""
"""Two towers over the result of a shared operator on both inputs, multiplied at the end."""

STATE = """model state[b = 8, v = 12, d = 8, classes = 5]
  input ids: int<v>[b]
  input x: f32[b, d]
  input goal: f32[b, 3]
  input target: int<classes>[b]
  weight table: f32[v, d] ~ normal(1)
  weight gain: f32[d] ~ ones
  weight bias: f32[d] ~ zeros
  buffer mean: f32[d] ~ zeros
  buffer variance: f32[d] ~ ones
  weight head: f32[classes, d] ~ normal(0.3)
  left_rows = embedding(ids, table)
  left = dropout(left_rows; p=0.25)
  right_norm, right_mean, right_variance = batch_norm(x, gain, bias, mean, variance)
  right_best = top_k(x; count=3)
  right = gather(right_norm, right_best; dim=-1)
  repeat 2 as layer
    weight w: f32[d, d] ~ normal(0.3)
    up = linear(left, w)
    left = left + tanh(up)
  update mean = right_mean
  update variance = right_variance
  loss cross_entropy(linear(left, head), target) + mse(right, goal)
"""


@pytest.mark.parametrize(
    ("mesh", "pins"),
    [
        ((2,), ("left*=@0", "right*=@1")),
        ((2,), ("left*=@1", "right=@1", "y=@0")),
        ((2,), ("left_*=@0", "shared=@1", "left=@1", "right_up=@0")),
        ((4,), ("left*=@2", "right*=@0", "shared=@1", "y=@3")),
        ((2, 2), ("left_up=@0,S1", "left_hidden=@0,S1", "left=@0,P", "right_*=@1,S0", "right=@1,R")),
        ((2, 2), ("left_*=@0,@1", "right_*=@1,@0", "left=@0,@1", "right=@1,S0")),
        ((2, 2), ("left_*=S0,@1", "left=S0,@1", "right_*=@0,S0", "right=S1,@0")),
    ],
    ids=["two", "one idle", "scattered", "four", "tensor and batch", "on single devices", "crossed"],
)
def test_towers(mesh: tuple[int, ...], pins: tuple[str, ...], compile_program: Compile, pool: RankPool) -> None:
    out = compile_program(TOWERS, devices=4 if mesh != (2,) else 2, mesh=mesh, pins=pins)
    assert ".index == " in (out / "model.py").read_text()
    report = check(out, pool=pool)
    assert report.ok, report


@pytest.mark.parametrize(
    "choices",
    [
        {"devices": 2, "mesh": (2,)},
        {"devices": 2, "mesh": (2,), "precision": "bf16"},
        {"devices": 2, "mesh": (2,), "recompute": "layer"},
        {"devices": 4, "mesh": (2, 2)},
    ],
    ids=["two", "bf16", "recomputed", "four"],
)
def test_integers_buffers_random_numbers_and_repeats(
    choices: dict[str, object], compile_program: Compile, pool: RankPool
) -> None:
    """Covers values without gradients, buffers kept between steps, random numbers, and values carried by a loop."""
    more = ",S0" if choices["devices"] == 4 else ""
    branch = ("left_rows", "left", "layer.up", "layer.tanh_1", "layer.left_1")
    pins = [f"{name}=@1{more}" for name in branch]
    if more:  # the statistics are over the whole batch
        pins += ["right_norm=@0,S0", "right_mean=@0,I", "right_variance=@0,I", "right_best=@0,S0", "right=@0,S0"]
    else:
        pins += ["right_*=@0"]
    out = compile_program(STATE, pins=pins, **choices)
    text = (out / "model.py").read_text()
    assert "torch.int64" in text or more
    report = check(out, pool=pool)
    assert report.ok, report


@pytest.mark.parametrize("seed", range(3))
def test_placed_by_chance(seed: int, compile_program: Compile, pool: RankPool) -> None:
    """Pins every value to random coordinates, or to none, which leaves the choice to the search."""
    rng = Random(seed)
    print(f"seed {seed}")
    names = ("shared", *(f"{side}{name}" for side in ("left", "right") for name in ("_sum", "_up", "_hidden", "")), "y")
    mesh = rng.choice([(2,), (4,), (2, 2)])
    kinds = ["I", "R", "S0", *(f"@{place}" for place in range(mesh[0]))]
    pins = []
    for name in names:
        chosen = [rng.choice(kinds) for _ in mesh]
        if any(kind.startswith("@") for kind in chosen):
            pins.append(f"{name}={','.join('I' if len({*chosen} - {'I', 'R'}) and k == 'R' else k for k in chosen)}")
    try:
        out = compile_program(TOWERS, devices=4 if len(mesh) == 2 else mesh[0], mesh=mesh, pins=pins)
    except InputError as error:
        assert error.diagnostic.code == "E311", error
        return
    report = check(out, pool=pool)
    assert report.ok, (pins, report)


def test_a_device_does_what_the_simulation_says(tmp_path: Path, pool: RankPool) -> None:
    """Each rank runs the collectives of its coordinate's tasks. The simulated peak memory is the largest rank's."""
    path = tmp_path / "towers.udl"
    path.write_text(TOWERS)
    sizes = {"b": "64", "d": "48", "h": "96", "e": "32"}
    wanted = Request(path, settings=sizes, devices=2, pins=["left*=@0", "right_hidden=@1", "right_up=@1", "right=@1"])
    compiled, out = compile_model(wanted), tmp_path / "out"
    write_program(compiled.plan, compiled.library, compiled.sources, wanted, out)
    graph = step_tasks(compiled.plan, load_machine("local"), compiled.library)
    counted = pool.run(count_collectives, str(out), compiled.plan.passes.bucket_mib * 2**20, False, True, ranks=2)
    for device in range(2):
        for phase, ran in zip((Phase.FORWARD, Phase.BACKWARD), counted[device], strict=True):
            told = Counter(
                t.name for t in graph.tasks if (t.device, t.phase) == (device, phase) and t.channel != COMPUTE
            )
            assert told == ran, (device, phase)
    held = max(found.peak for found in pool.run(count_memory, str(out), ranks=2))
    assert graph.peak().bytes == pytest.approx(held, rel=0.1), graph.peak().task
    place = {name: next(t for t in graph.tasks if t.place == name) for name in ("left", "right")}
    assert place["left"].device != place["right"].device


@pytest.mark.parametrize(
    ("pins", "code"),
    [
        (("left=@2",), "E307"),
        (("u1=@0",), "E307"),
        (("left*=@0", "u1=@1"), "E307"),
        (("user=@1",), "E307"),
        (("left=@x",), "E305"),
    ],
    ids=["coordinate", "weight", "other weight", "input", "text"],
)
def test_what_cannot_be_is_told(pins: tuple[str, ...], code: str, compile_program: Compile) -> None:
    with pytest.raises(InputError) as raised:
        compile_program(TOWERS, devices=2, pins=pins)
    assert raised.value.diagnostic.code == code


@pytest.mark.parametrize(("devices", "mesh"), [(2, None), (4, (2, 2))])
def test_branches_that_the_search_finds(
    devices: int, mesh: tuple[int, ...] | None, tmp_path: Path, pool: RankPool
) -> None:
    """If launches dominate, encoders run on different devices, and encoders that share weights on the same one."""
    wanted = Request(CANDLE, preset="small", machine="dgx-a100", devices=devices, mesh=mesh)
    compiled, out = compile_model(wanted), tmp_path / "out"
    plan = compiled.plan
    write_program(plan, compiled.library, compiled.sources, wanted, out)
    (told,) = (note for note in plan.notes if "disjoint groups of devices" in note)
    assert told.startswith("branches run on 2 disjoint groups")
    before, *after = [trial for trial in plan.trail if trial.best]
    assert any(trial.move == "branches" and trial.seconds < 0.9 * before.seconds for trial in after)
    places = {step.node.results[0].name: step.placement for step in plan.graph.nodes() if step.placement}
    drugs = {place for name, place in places.items() if name.startswith("drug")}
    assert len(drugs) == 1 and {*places.values()} > drugs
    report = check(out, pool=pool)
    assert report.ok, report


def test_weights_are_stored_by_the_devices_that_read_them(tmp_path: Path) -> None:
    """A run of one device resumes on two devices, each of which has the weights of one tower.

    Losses and the saved state, moments included, equal the run on one device.
    """
    path = tmp_path / "towers.udl"
    path.write_text(TOWERS)
    for ranks, pins in ((1, []), (2, ["left*=@0", "right*=@1"])):
        wanted = Request(path, devices=ranks, pins=pins)
        compiled = compile_model(wanted)
        write_program(compiled.plan, compiled.library, compiled.sources, wanted, tmp_path / f"out{ranks}")
    stored = {name: str(compiled.plan.graph.values[name].produced) for name in ("mix", "u1", "u2", "i1", "i2")}
    assert stored == {"mix": "I", "u1": "@0", "u2": "@0", "i1": "@1", "i2": "@1"}
    assert compiled.plan.cost.memory.parameters == 4 * (6 * 6 + 12 * 6 + 4 * 12)
    logs, saved = [tmp_path / f"log{ranks}" for ranks in (1, 2)], tmp_path / "saved"
    recipe = ("--lr", 0.05, "--clip", 0.5, "--dtype", "float64", "--weight-decay", 0.1)
    train(tmp_path / "out1", 1, *recipe, "--steps", 3, "--save-every", 1, "--checkpoint", saved, "--log-file", logs[0])
    with load_program(tmp_path / "out1") as program:
        model = program.Model(dtype=torch.float64)
        model.load_weights(saved)
        alone = {name: tensor.clone() for name, tensor in model.stored().items()}
        (saved / "latest").write_text("step-00000002\n")
        train(tmp_path / "out2", 2, "--checkpoint", saved, "--resume", "--log-file", logs[1])
        assert losses(logs[1]) == pytest.approx(losses(logs[0])[2:], rel=1e-12)
        model.load_weights(saved)
        for name, tensor in model.stored().items():
            assert torch.allclose(tensor, alone[name], rtol=1e-12, atol=0), name
