"""Megatron's and FSDP's layouts, found or pinned, and their collectives."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.machine.machine import machine_source
from unity_dsl.resources import folder

from .counting import count_collectives

LAYER = """
model layer[b = {b}, s = {s}, d = {d}, heads = 4, f = 4 * d]
  input x: f32[b, s, d]
  input target: f32[b, s, d]
  weight gain1: f32[d] ~ ones
  weight bias1: f32[d] ~ zeros
  weight wq: f32[d, d] ~ normal(0.1)
  weight wk: f32[d, d] ~ normal(0.1)
  weight wv: f32[d, d] ~ normal(0.1)
  weight wo: f32[d, d] ~ normal(0.1)
  weight gain2: f32[d] ~ ones
  weight bias2: f32[d] ~ zeros
  weight w1: f32[f, d] ~ normal(0.1)
  weight w2: f32[d, f] ~ normal(0.1)
  n1 = layer_norm(x, gain1, bias1)
  q = linear(n1, wq)
  k = linear(n1, wk)
  v = linear(n1, wv)
  qh = q[b, s, (h=heads k)] -> [b, h, s, k]
  kt = k[b, s, (h=heads k)] -> [b, h, k, s]
  vh = v[b, s, (h=heads k)] -> [b, h, s, k]
  p = softmax(matmul(qh, kt) * 0.35)
  a = matmul(p, vh)
  o = linear(a[b, h, s, k] -> [b, s, (h k)], wo)
  r = x + o
  n2 = layer_norm(r, gain2, bias2)
  g = gelu(linear(n2, w1))
  y = r + linear(g, w2)
  loss mse(y, target)
"""

Compile = Callable[..., Path]


def test_megatron_is_found_where_it_is_optimal(compile_program: Compile, pool: RankPool, tmp_path: Path) -> None:
    """With one sequence of odd length neither batch nor sequence divides, so heads and the hidden axis are sharded.

    The input has no gradient. The gradients of the first norm's two weights are therefore summed, in a bucket, instead
    of the gradient of its result. The machine has quick launches, shorter than the kernels.
    """
    quick = tmp_path / "quick.toml"
    quick.write_text(re.sub(r"launch_latency_us = \d+", "launch_latency_us = 2", machine_source("dgx-a100").text))
    out = compile_program(LAYER.format(b=1, s=255, d=512), devices=2, machine=str(quick))
    assert check(out, pool=pool).ok
    forward, backward = pool.run(count_collectives, str(out), 1 << 24, ranks=2)[0]
    assert forward == Counter(all_reduce=2)
    assert backward == Counter(all_reduce=2)


def test_megatron_can_be_pinned(compile_program: Compile, pool: RankPool) -> None:
    weights = {"wq": "S0", "wk": "S0", "wv": "S0", "wo": "S1", "w1": "S0", "w2": "S1"}
    activations = {"n1": "I", "n2": "I", "r": "I", "y": "I", "q": "S2", "k": "S2", "v": "S2", "g": "S2", "a": "S1"}
    norms = dict.fromkeys(("gain1", "bias1", "gain2", "bias2"), "I")
    pins = [f"{name}={layout}" for name, layout in (weights | activations | norms).items()]
    # A projection before the layer gives its input a gradient, as in a stack of layers.
    text = LAYER.format(b=4, s=16, d=32).replace("n1 = layer_norm(x,", "e = linear(x, w0)\n  n1 = layer_norm(e,")
    text = text.replace("r = x + o", "r = e + o").replace("weight gain1", "weight w0: f32[d, d] ~ ones\n  weight gain1")
    out = compile_program(text, devices=2, machine="dgx-a100", pins=[*pins, "w0=I", "e=I"])
    assert check(out, pool=pool).ok
    forward, backward = pool.run(count_collectives, str(out), 0, ranks=2)[0]
    assert forward == Counter(all_reduce=2)
    assert backward == Counter(all_reduce=2)


def test_fsdp_can_be_pinned(compile_program: Compile, pool: RankPool) -> None:
    """Sharded weights, activations sharded by batch: one coalesced all-gather, one reduce-scatter per weight."""
    weights = ("gain1", "bias1", "wq", "wk", "wv", "wo", "gain2", "bias2", "w1", "w2")
    activations = ("n1", "q", "k", "v", "p", "a", "o", "r", "n2", "g", "y")
    pins = [*(f"{name}=S0" for name in (*weights, *activations)), "loss=P"]
    out = compile_program(LAYER.format(b=4, s=16, d=32), devices=2, machine="dgx-a100", pins=pins)
    assert check(out, pool=pool).ok
    forward, backward = pool.run(count_collectives, str(out), 0, ranks=2)[0]
    assert forward == Counter(all_gather_into_tensor_coalesced=1)
    assert backward == Counter(reduce_scatter_tensor=len(weights))
    _, bucketed = pool.run(count_collectives, str(out), 1 << 24, ranks=2)[0]
    assert bucketed == Counter(reduce_scatter_tensor=1)
    # gloo's ALLGATHER_COALESCED corrupts its heap (torch 2.13, ProcessGroupGloo::runLoop): the program does not use it.
    forward, _ = pool.run(count_collectives, str(out), 0, False, False, True, ranks=2)[0]
    assert forward == Counter(all_gather_into_tensor_out=len(weights))


def test_data_parallel_reduces_each_gradient_once(compile_program: Compile, pool: RankPool) -> None:
    out = compile_program(LAYER.format(b=4, s=16, d=32), devices=2, strategy="data_parallel")
    assert check(out, pool=pool).ok
    forward, backward = pool.run(count_collectives, str(out), 0, ranks=2)[0]
    assert not forward
    assert backward == Counter(all_reduce=10)
    _, bucketed = pool.run(count_collectives, str(out), 1 << 24, ranks=2)[0]
    assert bucketed == Counter(all_reduce=1)


def bert(compile_program: Compile, pins: list[str], strategy: str = "auto", precision: str | None = None) -> str:
    """The small preset of bert_large, with two layers, on two ranks."""
    model = folder("examples") / "bert_large.udl"
    choices = {"strategy": strategy, "precision": precision}
    return str(compile_program(model, preset="small", devices=2, machine="dgx-a100", pins=pins, **choices))


def test_megatron_of_bert_sums_twice_a_layer(compile_program: Compile, pool: RankPool) -> None:
    """Shoeybi et al. 2019, section 3: two all-reduces forward and two backward, and none for weight gradients."""
    heads = [f"layer.attn.{name}" for name in ("query", "key", "value")]
    pins = [f"{name}.{weight}=S0" for name in (*heads, "layer.ff.up") for weight in ("w", "bias")]
    pins += [f"{name}.linear_1=S2" for name in (*heads, "layer.ff.up")]
    pins += [
        f"{name}.{end}" for name in ("layer.attn.out", "layer.ff.down") for end in ("w=S1", "linear_1=P", "bias=I")
    ]
    pins += ["layer.attn.p=S1"]
    pins += [f"{name}=I" for name in ("x", "layer.attn.out", "layer.ff.down", "layer.ln_*", "layer.add_*")]
    around = ("token", "position", "segment", "token_bias", "transform.*", "transformed.*", "pooler.*", "order.*")
    pins += [f"{name}=I" for name in around]  # else small operators each run on one device, and their losses are summed
    out = bert(compile_program, pins)
    forward, backward = pool.run(count_collectives, out, 0, ranks=2)[0]
    assert forward == backward == Counter(all_reduce=2 * 2)


def test_fsdp_of_bert_gathers_once_a_layer(compile_program: Compile, pool: RankPool) -> None:
    """Zhao et al. 2023, section 3: one all-gather and one reduce-scatter per unit, and a re-gather if weights are
    freed.

    The units are the layers, the operators before and after them, and the table that both read. In float32, because in
    bfloat16 a CPU keeps float32 copies of gains, and then the unit before the layers is not re-gathered.
    """
    stored = ("*.w", "*.bias", "*.gain", "token", "position", "segment", "token_bias")
    out = bert(compile_program, [f"{name}=S0" for name in stored], "data_parallel", "f32")
    for freed in (False, True):
        forward, backward = pool.run(count_collectives, out, 1 << 24, freed, ranks=2)[0]
        assert forward == Counter(all_gather_into_tensor_coalesced=2 + 2, all_gather_into_tensor=1)
        scattered = backward.pop("reduce_scatter_tensor")
        assert scattered == 1  # all gradients together do not fill a bucket
        assert backward == (Counter(all_gather_into_tensor_coalesced=2 + 2) if freed else Counter())
    weights = 2 * 16 + 14
    _, backward = pool.run(count_collectives, out, 0, ranks=2)[0]
    assert backward == Counter(reduce_scatter_tensor=weights)
