"""Processor seconds of a training step of emitted programs against modules written by hand: `python bench/program.py`.

Forward and backward pass on one device, on the same weights and data: emitted with and without the shipped fusions, and
by hand with the best native calls that PyTorch has. Seconds are of processor time, on one thread. Steps of the three
take turns in one process; a ratio is the median of the ratios of neighbouring steps. Without dropout all have the same
loss, which is checked; with it the draws differ.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from operator import truediv
from pathlib import Path
from statistics import median
from types import ModuleType

import torch
import torch.nn.functional as F
from measure import write_results
from torch import Tensor, nn

from unity_dsl.compile import Request, compile_model
from unity_dsl.emit.output_folder import write_program

ROOT = Path(__file__).parent.parent
SIZES = {"b": 2, "s": 256, "d": 256, "heads": 4, "layers": 2, "vocabulary": 1024}
"""Of both models: small enough for one core, large enough that kernels and not Python take the time."""

Weights = Mapping[str, Tensor]
Batch = Mapping[str, Tensor]


# ---------------------------------------------------------------------------------------------- by hand


def heads_of(x: Tensor, heads: int) -> Tensor:
    """[b, s, d] as [b, heads, s, d / heads]."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def dense(fan_in: int, w: Tensor, bias: Tensor) -> nn.Linear:
    """`nn.Linear` with these weights, of which `w` may be declared by factors."""
    made = nn.Linear(fan_in, bias.numel())
    made.weight.data.copy_(w.reshape(-1, fan_in))
    made.bias.data.copy_(bias.reshape(-1))
    return made


def norm(weights: Weights, name: str, eps: float) -> nn.LayerNorm:
    made = nn.LayerNorm(weights[f"{name}.gain"].numel(), eps=eps)
    made.weight.data.copy_(weights[f"{name}.gain"])
    made.bias.data.copy_(weights[f"{name}.bias"])
    return made


class Gpt2Layer(nn.Module):
    def __init__(self, weights: Weights, at: str, d: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.ln_1, self.ln_2 = norm(weights, f"{at}.ln_1", 1e-5), norm(weights, f"{at}.ln_2", 1e-5)
        self.qkv = dense(d, weights[f"{at}.attn.qkv"], weights[f"{at}.attn.qkv_bias"])
        self.out = dense(d, weights[f"{at}.attn.out"], weights[f"{at}.attn.out_bias"])
        self.up = dense(d, weights[f"{at}.mlp.up"], weights[f"{at}.mlp.up_bias"])
        self.down = dense(4 * d, weights[f"{at}.mlp.down"], weights[f"{at}.mlp.down_bias"])

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (heads_of(part, self.heads) for part in self.qkv(self.ln_1(x)).chunk(3, -1))
        p = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=p)
        x = x + F.dropout(self.out(mixed.transpose(1, 2).flatten(2)), self.dropout, self.training)
        h = F.gelu(self.up(self.ln_2(x)), approximate="tanh")
        return x + F.dropout(self.down(h), self.dropout, self.training)


class Gpt2(nn.Module):
    def __init__(self, weights: Weights, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.wte = nn.Parameter(weights["wte"].clone())
        self.wpe = nn.Parameter(weights["wpe"].clone())
        d, heads = SIZES["d"], SIZES["heads"]
        made = (Gpt2Layer(weights, f"layer.{i}", d, heads, dropout) for i in range(SIZES["layers"]))
        self.layers = nn.Sequential(*made)
        self.ln_f = norm(weights, "ln_f", 1e-5)

    def forward(self, tokens: Tensor, target: Tensor) -> Tensor:
        x = F.dropout(F.embedding(tokens, self.wte) + self.wpe, self.dropout, self.training)
        logits = F.linear(self.ln_f(self.layers(x)), self.wte)
        return F.cross_entropy(logits.flatten(0, 1), target.flatten())


class BertLayer(nn.Module):
    def __init__(self, weights: Weights, at: str, d: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        parts = {name: f"{at}.attn.{name}" for name in ("query", "key", "value", "out")}
        for name, path in {**parts, "up": f"{at}.ff.up", "down": f"{at}.ff.down"}.items():
            setattr(self, name, dense(4 * d if name == "down" else d, weights[f"{path}.w"], weights[f"{path}.bias"]))
        self.ln_1, self.ln_2 = norm(weights, f"{at}.ln_1", 1e-12), norm(weights, f"{at}.ln_2", 1e-12)

    def forward(self, x: Tensor, kept: Tensor) -> Tensor:
        q, k, v = (heads_of(made(x), self.heads) for made in (self.query, self.key, self.value))
        p = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, kept, dropout_p=p)
        attended = F.dropout(self.out(mixed.transpose(1, 2).flatten(2)), self.dropout, self.training)
        x = self.ln_1(x + attended)
        return self.ln_2(x + F.dropout(self.down(F.gelu(self.up(x))), self.dropout, self.training))


class Bert(nn.Module):
    def __init__(self, weights: Weights, dropout: float) -> None:
        super().__init__()
        self.dropout, d = dropout, SIZES["d"]
        for name in ("token", "position", "segment", "token_bias"):
            setattr(self, name, nn.Parameter(weights[name].clone()))
        self.embedded, self.transformed = norm(weights, "embedded", 1e-12), norm(weights, "transformed", 1e-12)
        for name in ("transform", "pooler", "order"):
            setattr(self, name, dense(d, weights[f"{name}.w"], weights[f"{name}.bias"]))
        made = (BertLayer(weights, f"layer.{i}", d, SIZES["heads"], dropout) for i in range(SIZES["layers"]))
        self.layers = nn.ModuleList(made)

    def forward(
        self, tokens: Tensor, types: Tensor, mask: Tensor, target: Tensor, chosen: Tensor, follows: Tensor
    ) -> Tensor:
        x = F.embedding(tokens, self.token) + self.position + F.embedding(types, self.segment)
        x = F.dropout(self.embedded(x), self.dropout, self.training)
        kept = ((mask == 0) * -10000.0)[:, None, None, :]
        for layer in self.layers:
            x = layer(x, kept)
        transformed = self.transformed(F.gelu(self.transform(x)))
        logits = F.linear(transformed, self.token, self.token_bias)
        losses = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none")
        told = (losses * chosen.flatten()).sum() / chosen.sum().clamp(min=1)
        return told + F.cross_entropy(self.order(torch.tanh(self.pooler(x[:, 0]))), follows)


BY_HAND: Mapping[str, Callable[[Weights, float], nn.Module]] = {"gpt2": Gpt2, "bert_large": Bert}


# ---------------------------------------------------------------------------------------------- measured


def emitted(example: str, dropout: float, folder: Path, fused: bool) -> ModuleType:
    """The module `model.py` of an example at `SIZES`, compiled for one device."""
    settings = {**SIZES, "dropout": dropout}
    request = Request(ROOT / "examples" / f"{example}.udl", settings=settings, precision="f32", shipped_rules=fused)
    compilation = compile_model(request)
    write_program(compilation.plan, compilation.library, compilation.sources, request, folder)
    name = f"{folder.parent.name}_{folder.name}"
    spec = importlib.util.spec_from_file_location(name, folder / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def batch_of(module: ModuleType) -> Batch:
    """Integers for every input of a program."""
    source = torch.Generator().manual_seed(0)
    return {
        name: torch.randint(spec.integer_range, spec.shape, generator=source) for name, spec in module.INPUTS.items()
    }


def step(model: nn.Module, loss_of: Callable[[], Tensor]) -> tuple[float, float]:
    """Loss, and processor seconds of a forward and backward pass."""
    model.zero_grad()
    start = time.process_time()
    loss = loss_of()
    loss.backward()
    seconds = time.process_time() - start
    return float(loss.detach()), seconds


def compare(example: str, dropout: float, repetitions: int, folder: Path) -> dict[str, float | int]:
    """Median seconds of a step of each, and the medians of the ratios of neighbouring steps to the one by hand."""
    programs: dict[str, nn.Module] = {}
    for name, fused in (("without_rules", False), ("emitted", True)):
        module = emitted(example, dropout, folder / name, fused)
        programs[name] = module.Model()
        programs[name].initialise(0)
    batch = batch_of(module)
    losses = {name: partial(first_of, model, batch) for name, model in programs.items()}
    programs["by_hand"] = BY_HAND[example](programs["emitted"].global_tensors(), dropout)
    losses["by_hand"] = partial(programs["by_hand"], **batch)
    times: dict[str, list[float]] = {name: [] for name in programs}
    for number in range(2 + repetitions):
        done = {name: step(model, losses[name]) for name, model in programs.items()}
        loss, _ = done["by_hand"]
        for name, (own, seconds) in done.items():
            if not dropout and abs(own - loss) > 1e-4 * abs(loss):
                raise SystemExit(f"{example}, {name}: the loss is {own}, by hand {loss}")
            if number >= 2:  # the first two warm up
                times[name].append(seconds)
    ratios = {
        f"ratio_{name}": round(median(map(truediv, times[name], times["by_hand"])), 3)
        for name in ("without_rules", "emitted")
    }
    return {**{name: round(median(own), 4) for name, own in times.items()}, **ratios, "repetitions": repetitions}


def first_of(model: nn.Module, batch: Batch) -> Tensor:
    """The loss of an emitted program."""
    loss: Tensor = model(**batch)[0]
    return loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    results: dict[str, dict[str, float | int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for example in BY_HAND:
            for dropout in (0, 0.1):
                name = f"{example}, dropout {dropout}"
                path = Path(folder) / f"{example}_{len(results)}"
                path.mkdir()
                results[name] = compare(example, dropout, options.repetitions, path)
                print(f"{name:<24} {results[name]}", flush=True)
    write_results("program", "python bench/program.py", results)


if __name__ == "__main__":
    main()
