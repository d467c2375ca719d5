"""Padded programs, for sizes that devices do not divide, equal their model; checkpoints have its shapes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.emit.test_train_files import losses, train
from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.output_folder import write_program
from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.syntax.diagnostic import InputError

from ..sampling import of_the_day

EXAMPLES = Path(__file__).parents[2] / "examples"

MODEL = """
model odd[b = 7, s = 5, d = 12, heads = 3, classes = 13, rows = 11]
  input tokens: int<rows>[b, s]
  input target: int<classes>[b, s]
  weight table: f32[rows, d] ~ normal(0.5)
  weight q: f32[heads, d / heads, d] ~ normal(0.5)
  weight k: f32[heads, d / heads, d] ~ normal(0.5)
  weight v: f32[heads, d / heads, d] ~ normal(0.5)
  weight out: f32[d, d] ~ normal(0.5)
  weight head: f32[classes, d] ~ normal(0.5)
  weight bias: f32[classes] ~ normal(0.5)
  x = embedding(tokens, table)
  scores = matmul(project(x, q)[b, s, h, e] -> [b, h, s, e], project(x, k)[b, t, h, e] -> [b, h, e, t])
  p = softmax(causal_mask(scores))
  mixed = matmul(p, project(x, v)[b, t, h, e] -> [b, h, t, e])
  y = x + linear(mixed[b, h, s, e] -> [b, s, (h e)], out)
  logits = linear(y, head) + bias
  loss cross_entropy(logits, target)
  output logits
"""

BATCH_NORM = """
model normed[b = 7, c = 5, classes = 3]
  input x: f32[b, c, 4, 4]
  input target: int<classes>[b]
  weight k: f32[6, c, 3, 3] ~ normal(0.3)
  weight gain: f32[6] ~ ones
  weight offset: f32[6] ~ zeros
  buffer mean: f32[6] ~ zeros
  buffer variance: f32[6] ~ ones
  weight head: f32[classes, 6] ~ normal(0.5)
  h = conv2d(x, k; pad_h=1, pad_w=1)
  y, m, v = batch_norm(h, gain, offset, mean, variance)
  update mean = m
  update variance = v
  pooled = reduce_mean(relu(y)[b, c, i, j] -> [b, c])
  loss cross_entropy(linear(pooled, head), target)
"""

CASES = [
    *(("odd", {"strategy": "data_parallel"}, ranks) for ranks in (2, 4)),
    *(("odd", {"strategy": "zero"}, ranks) for ranks in (2, 4)),
    *(("odd", {"pins": ("head=S0", "logits=S2")}, ranks) for ranks in (2, 4)),
    *(("odd", {"pins": ("table=S0",)}, ranks) for ranks in (2, 4)),
    *(("odd", {"pins": ("q=S0", "k=S0", "v=S0", "out=S1")}, ranks) for ranks in (2, 4)),
    *(("odd", {"pad": "all", "strategy": f"random:{seed}"}, ranks) for seed in range(6) for ranks in (2, 4)),
    *(("normed", {"strategy": "data_parallel"}, ranks) for ranks in (2, 4)),
    *(("normed", {"pad": "all", "strategy": f"random:{seed}"}, 2) for seed in range(4)),
]
LARGER = [
    (example, f"random:{seed}")
    for example in ("gpt2", "bert_large", "mixtral_8x7b", "llama3_8b", "lstm_lm", "dlrm", "vit_l16", "resnext50")
    for seed in (1, 2)
]


def written(wanted: Request, out: Path) -> Path:
    found = compile_model(wanted)
    write_program(found.plan, found.library, found.sources, wanted, out)
    return out


def request(folder: Path, model: str, ranks: int, **choices: object) -> Request:
    path = folder / f"{model}.udl"
    path.write_text({"odd": MODEL, "normed": BATCH_NORM}[model].lstrip())
    return Request(path, devices=ranks, **choices)  # type: ignore[arg-type]


@pytest.mark.parametrize(("model", "choices", "ranks"), of_the_day(CASES, 8), ids=str)
def test_padded_programs_equal_their_model(
    model: str, choices: dict[str, object], ranks: int, tmp_path: Path, pool: RankPool
) -> None:
    out = written(request(tmp_path, model, ranks, **choices), tmp_path / "out")
    assert '"padding": {' in (out / "plan.json").read_text()
    report = check(out, pool=pool)
    assert report.ok, report


@pytest.mark.parametrize(("example", "strategy"), of_the_day(LARGER, 3))
def test_examples_on_three_ranks_equal_their_models(
    example: str, strategy: str, tmp_path: Path, pool: RankPool
) -> None:
    """Three devices divide almost none of these sizes."""
    wanted = Request(
        EXAMPLES / f"{example}.udl", preset="small", precision="f32", devices=3, strategy=strategy, pad="all"
    )
    report = check(written(wanted, tmp_path / "out"), pool=pool)
    assert report.ok, report


def test_a_checkpoint_has_the_shapes_of_the_model(tmp_path: Path) -> None:
    """4 ranks write it, then 2, and 1 without padding, resume it. The losses are those of an uninterrupted run."""
    recipe = ("--lr", 0.01, "--seed", 3, "--dtype", "float64")
    alone = written(request(tmp_path, "odd", 1), tmp_path / "alone")
    pins = ("head=S0", "table=S0")
    four, two = (
        written(request(tmp_path, "odd", ranks, strategy="data_parallel", pins=pins), tmp_path / f"out_{ranks}")
        for ranks in (4, 2)
    )
    assert "padded=(16, 12)" in (four / "model.py").read_text() and "padded=(14, 12)" in (two / "model.py").read_text()
    whole, saved = tmp_path / "whole", tmp_path / "saved"
    train(alone, 1, *recipe, "--steps", 6, "--log-file", whole)
    logs = []
    for out, ranks, steps in ((four, 4, 2), (two, 2, 4), (alone, 1, 6)):
        logs.append(tmp_path / f"log_{ranks}")
        how = ("--resume",) if steps > 2 else recipe
        train(out, ranks, *how, "--steps", steps, "--log-file", logs[-1], "--checkpoint", saved)
    assert [loss for log in logs for loss in losses(log)] == pytest.approx(losses(whole), rel=1e-9)


def tails(rank: int, ranks: int, folder: str) -> float:
    """The largest magnitude in the padding of weights, and of their gradients, after steps of AdamW."""
    with load_program(Path(folder)) as module:
        mesh = torch.distributed.device_mesh.init_device_mesh(
            "cpu", tuple(size for _, size in module.MESH), mesh_dim_names=tuple(name for name, _ in module.MESH)
        )
        model = module.Model(mesh, dtype=torch.float64)
        model.initialise(0)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        random, largest = torch.Generator().manual_seed(0), 0.0
        for _ in range(3):
            batch = {
                name: torch.randint(spec.integer_range, spec.shape, generator=random)
                for name, spec in module.INPUTS.items()
            }
            model.zero_grad()
            loss, _ = model(**batch)
            loss.backward()
            model.synchronise()
            optimizer.step()
            for name, weight in model.named_parameters():
                spec = module.PARAMETERS[name]
                if spec.padded is not None:
                    module.PARAMETERS[name] = spec._replace(shape=spec.padded)
                    for tensor in (weight.detach(), weight.grad):
                        held = model.full(name, tensor)
                        held[tuple(map(slice, spec.shape))] = 0
                        largest = max(largest, held.abs().max().item())
                    module.PARAMETERS[name] = spec
        return largest


def test_padding_of_weights_stays_zero(tmp_path: Path, pool: RankPool) -> None:
    out = written(request(tmp_path, "odd", 2, pad="all", strategy="random:3"), tmp_path / "out")
    assert "padded=" in (out / "model.py").read_text()
    assert pool.run(tails, str(out), ranks=2) == [0.0, 0.0]


def test_a_guard_selects_among_infinite_elements(tmp_path: Path, pool: RankPool) -> None:
    """A device that does not hold a row's class skips its own elements. Minus infinity must not enter the result."""
    (tmp_path / "few.udl").write_text(
        "model few[b = 4, classes = 4]\n"
        "  input x: f32[b, classes]\n"
        "  input target: int<2>[b]\n"
        "  weight w: f32[classes] ~ normal(1)\n"
        "  logits = x * w + tail(; size=classes, kept=2)\n"
        "  loss cross_entropy(logits, target)\n"
    )
    for seed in range(20):
        out = written(Request(tmp_path / "few.udl", devices=2, strategy=f"random:{seed}"), tmp_path / "out")
        if "max_over_detached" in (out / "model.py").read_text():  # each device has some of the classes
            break
    else:
        pytest.fail("no plan divides the classes")
    report = check(out, pool=pool)
    assert report.ok, report


def test_without_padding_it_is_told_what_is_not_divided(tmp_path: Path) -> None:
    for choices, code in (({"strategy": "data_parallel"}, "E309"), ({"pins": ("head=S0",)}, "E307")):
        with pytest.raises(InputError) as caught:
            compile_model(request(tmp_path, "odd", 4, pad="none", **choices))
        assert caught.value.diagnostic.code == code
