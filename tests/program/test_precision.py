"""Programs in mixed precision: as accurate as on one device, cast as FSDP2 casts, with loss scaling for float16."""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.output_folder import write_program
from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.graph import precision
from unity_dsl.resources import folder

from ..emit.test_train_files import losses, train

Compile = Callable[..., Path]

MODEL = """
model m[b = 8, s = 4, d = 16, words = 12]
  input tokens: int<words>[b, s]
  input target: int<words>[b, s]
  weight table: f32[words, d] ~ normal(0.5)
  weight head: f32[words, d] ~ normal(0.5)
  x = embedding(tokens, table)
  repeat 2 as layer
    weight gain: f32[d] ~ ones
    weight bias: f32[d] ~ zeros
    weight up: f32[2 * d, d] ~ normal(0.3)
    weight down: f32[d, 2 * d] ~ normal(0.3)
    h = gelu(linear(layer_norm(x, gain, bias), up))
    y = linear(h, down)
    x = x + y
  logits = linear(x, head)
  loss cross_entropy(logits, target)
  output logits
"""
FSDP: dict[str, Any] = {
    "strategy": "data_parallel",
    "pins": ("table=S0", "head=S0", "layer.gain=S0", "layer.bias=S0", "layer.up=S0", "layer.down=S0"),
}
TENSOR = ("layer.up=S0", "layer.down=S1", "layer.h=S2", "x=I")


# ---------------------------------------------------------------------------------------------- examples


@pytest.mark.a_day(3)
@pytest.mark.parametrize(
    ("ranks", "strategy", "precision"), [(1, "auto", "f16"), (2, "data_parallel", "bf16"), (4, "random:1", "bf16")]
)
@pytest.mark.parametrize("example", ["mlp", "gpt2", "llama3_8b", "mixtral_8x7b", "resnext50", "dlrm"])
def test_an_example_is_as_good_as_on_one_device(
    compile_program: Compile, pool: RankPool, example: str, ranks: int, strategy: str, precision: str
) -> None:
    path = folder("examples") / f"{example}.udl"
    out = compile_program(path, devices=ranks, strategy=strategy, precision=precision, preset="small")
    report = check(out, pool=pool, steps=1)
    assert report.ok, report
    assert report.mixed is not None and report.mixed.precision == precision
    assert report.mixed.err > 100 * report.float32_err or example == "resnext50", "it is not in the narrow type at all"


# ---------------------------------------------------------------------------------------------- by hand, in FSDP2


class Layer(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.gain, self.bias = nn.Parameter(torch.empty(d)), nn.Parameter(torch.empty(d))
        self.up, self.down = nn.Parameter(torch.empty(2 * d, d)), nn.Parameter(torch.empty(d, 2 * d))

    def forward(self, x: Tensor) -> Tensor:
        # A CPU sums gradients of gain, bias and rows in bfloat16, where the program sums them in float32.
        y = F.layer_norm(x.float(), [x.size(-1)], self.gain.float(), self.bias.float()).to(x.dtype)
        h = F.gelu(F.linear(y, self.up))
        return x + F.linear(h, self.down)


class ByHand(nn.Module):
    def __init__(self, words: int, d: int) -> None:
        super().__init__()
        self.table, self.head = nn.Parameter(torch.empty(words, d)), nn.Parameter(torch.empty(words, d))
        self.layer = nn.ModuleList(Layer(d) for _ in range(2))

    def forward(self, tokens: Tensor) -> Tensor:
        x = F.embedding(tokens, self.table.float()).to(self.table.dtype)
        for layer in self.layer:
            x = layer(x)
        return F.linear(x, self.head)


def batch(seed: int = 0) -> dict[str, Tensor]:
    source = torch.Generator().manual_seed(seed)
    return {name: torch.randint(12, (8, 4), generator=source) for name in ("tokens", "target")}


def beside_fsdp(rank: int, ranks: int, program: str) -> dict[str, tuple[Tensor, Tensor]]:
    """Loss and gradients of a program, each next to those of the same model under FSDP2's mixed precision policy."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    with load_program(Path(program)) as module:
        model = module.Model(module.build_mesh("cpu"))
        model.initialise(0)
        whole = model.global_tensors()
        loss, _ = model(**batch())
        loss.backward()
        model.synchronise()
        found = {name: model.full(name, parameter.grad) for name, parameter in model.named_parameters()}
        assert all(parameter.dtype == parameter.grad.dtype == torch.float32 for parameter in model.parameters())
    hand = ByHand(12, 16)
    hand.load_state_dict(whole)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    mesh = init_device_mesh("cpu", (ranks,))
    for layer in hand.layer:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(hand, mesh=mesh, mp_policy=policy)
    tokens, target = (tensor.chunk(ranks)[rank] for tensor in batch().values())
    expected = F.cross_entropy(hand(tokens).flatten(0, 1).float(), target.flatten())
    expected.backward()
    mean = expected.detach().clone()
    torch.distributed.all_reduce(mean)
    pairs = {name: (found[name], p.grad.full_tensor()) for name, p in hand.named_parameters()}
    return {"loss": (loss.detach(), mean / ranks), **pairs}


def test_it_is_what_fsdp_computes(compile_program: Compile, pool: RankPool) -> None:
    """Both sum slices of a gradient in float32. All arithmetic before is the same bfloat16 arithmetic."""
    out = compile_program(MODEL, devices=2, precision="bf16", **FSDP)
    for found in pool.run(beside_fsdp, str(out), ranks=2):
        for name, (ours, theirs) in found.items():
            scale = float(theirs.abs().max())
            assert float((ours - theirs).abs().max()) <= 2e-6 * scale, name


# ---------------------------------------------------------------------------------------------- what is sent


def sent(rank: int, ranks: int, program: str) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]]:
    """Bytes passed to collectives, without scalars, forwards and backwards, by collective and type."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.found: Counter[tuple[str, str]] = Counter()

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            namespace, _, name = func._schema.name.partition("::")
            if namespace == "_c10d_functional" and name != "wait_tensor":
                for x in args[0] if isinstance(args[0], list) else args[:1]:
                    if x.numel() > 1:
                        kind = name.removesuffix("_").removesuffix("_out").removesuffix("_coalesced")
                        self.found[kind, str(x.dtype).removeprefix("torch.")] += x.numel() * x.element_size()
            return func(*args, **(kwargs or {}))

    with load_program(Path(program)) as module:
        model = module.Model(module.build_mesh("cpu"))
        model.initialise(0)
        forward, backward = Count(), Count()
        with forward:
            loss, _ = model(**batch())
        with backward:
            loss.backward()
            model.synchronise()
    return forward.found, backward.found


def test_gathers_move_half_the_bytes_and_gradients_are_summed_in_float32(
    compile_program: Compile, pool: RankPool
) -> None:
    full, half = (compile_program(MODEL, devices=2, precision=name, **FSDP) for name in ("f32", "bf16"))
    (before, back), *_ = pool.run(sent, str(full), ranks=2)
    (after, summed), *_ = pool.run(sent, str(half), ranks=2)
    assert {kind for kind, _ in before} == {"all_gather_into_tensor"}
    assert after == {(kind, "bfloat16"): count // 2 for (kind, _), count in before.items()}
    assert {kind for kind, _ in back} == {"reduce_scatter_tensor"} and summed == back


def test_activations_move_half_the_bytes(compile_program: Compile, pool: RankPool) -> None:
    full, half = (compile_program(MODEL, devices=2, pins=TENSOR, precision=name) for name in ("f32", "bf16"))
    (before, back), *_ = pool.run(sent, str(full), ranks=2)
    (after, again), *_ = pool.run(sent, str(half), ranks=2)
    assert before["all_reduce", "float32"] and back["all_reduce", "float32"]
    assert after["all_reduce", "bfloat16"] * 2 == before["all_reduce", "float32"]
    assert again["all_reduce", "bfloat16"] * 2 == back["all_reduce", "float32"]


# ---------------------------------------------------------------------------------------------- scaling of the loss


def train_scaled(rank: int, ranks: int, program: str) -> list[tuple[float, bool, bool]]:
    """For each step: the loss scale after it, whether parameters changed, and whether the changed values are finite.

    In the second step the last rank's slice of a gradient has an infinite element.
    """
    with load_program(Path(program)) as module:
        train = __import__(f"{module.__package__}.train", fromlist=["train"])
        options = argparse.Namespace(
            dtype=None, seed=0, accumulate=2, clip=1.0, log=None, lr=0.01, warmup=0, schedule="constant", steps=4,
            optimizer="adamw", weight_decay=0.0, beta1=0.9, beta2=0.999, eps=1e-8,
        )  # fmt: skip
        model = module.Model(module.build_mesh("cpu") if ranks > 1 else None)
        model.initialise(0)
        optimizer, scaler = train.build_optimizer(model, options), train.build_scaler(options, "cpu")
        synchronise, found = model.synchronise, []

        def poisoned() -> None:
            synchronise()
            if step == 1 and rank == ranks - 1:
                next(model.parameters()).grad.view(-1)[0] = float("inf")

        model.synchronise = poisoned
        one_pass = partial(train.train_pass, model, lambda **given: model(**given)[0], scaler, options.accumulate)
        for step in range(4):
            before = [p.detach().clone() for p in model.parameters()]
            train.train_step(model, one_pass, optimizer, scaler, batch, step, 2 * step, options)
            changed = not all(map(torch.equal, before, model.parameters()))
            found.append((scaler.get_scale(), changed, all(bool(p.isfinite().all()) for p in model.parameters())))
        sys.modules.pop(train.__name__)
    return found


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_step_with_an_infinite_gradient_is_skipped_on_all_ranks(
    compile_program: Compile, pool: RankPool, ranks: int
) -> None:
    out = compile_program(MODEL, devices=ranks, precision="f16", **(FSDP if ranks > 1 else {}))
    first, second = 2.0**16, 2.0**15
    for found in pool.run(train_scaled, str(out), ranks=ranks):
        assert found == [(first, True, True), (second, False, True), (second, True, True), (second, True, True)]


# ---------------------------------------------------------------------------------------------- checkpoints


def test_a_checkpoint_goes_on_in_another_precision(compile_program: Compile, tmp_path: Path) -> None:
    """Parameters and the optimizer state are float32 in both precisions."""
    full, half = (compile_program(MODEL, precision=name) for name in ("f32", "f16"))
    saved, log = tmp_path / "saved", tmp_path / "log"
    recipe = ("--lr", 0.01, "--seed", 1, "--steps", 4, "--checkpoint", saved, "--save-every", 2)
    train(full, 1, *recipe, "--log-file", log)
    (saved / "latest").write_text("step-00000002\n")
    train(half, 1, "--log-file", tmp_path / "half", "--checkpoint", saved, "--resume")
    found, expected = losses(tmp_path / "half"), losses(log)[2:]
    assert found != expected
    assert found == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("kernels", ["torch", "triton"])
def test_rows_of_a_large_table_are_cast_after_they_are_looked_up(
    kernels: str, tmp_path: Path, pool: RankPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is read in float32, and its gradient is summed in float32."""
    monkeypatch.setattr(precision, "ROWS", 64)
    source = tmp_path / "large.udl"
    source.write_text(
        "model large[b = 4, d = 2, rows = 64]\n"
        "  input ids: int<rows>[b]\n"
        "  input target: f32[b, d]\n"
        "  weight table: f32[rows, d] ~ normal(1)\n"
        "  weight w: f32[d, d] ~ normal(1)\n"
        "  loss mse(linear(relu(embedding(ids, table)), w), target)\n"
    )
    request = Request(
        source, precision="bf16", devices=2, strategy="data_parallel", pins=("table=S0",), kernels=kernels
    )
    found = compile_model(request)
    write_program(found.plan, found.library, found.sources, request, out := tmp_path / "out")
    assert not re.search(r"table\w*\.to\(", (out / "model.py").read_text())
    report = check(out, pool=pool)
    assert report.ok, report
