"""Published training runs without pipeline parallelism, as their sources describe them, for `utilisation.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

FOUNDRY = "MosaicML, llm-foundry, scripts/train/benchmarking/README.md at 061f2c7"
TITAN = "torchtitan, benchmarks/llama3_h100_202412_torchtitan.md at 31a17bf"
ASYNC = "torchtitan, pull request of benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md"
FSDP2 = "torchtitan, docs/performance.md at 0413364"
GRAND_TETON = "bench/machines/grand-teton.toml"
KEMPNER = "KempnerForge, benchmarks/mfu_scaling/mfu_scaling_2026-04-05.md at 9f3f03a"
EAGER = "torch of 2023 with its fused attention; train metrics of the loss besides"
COMPILED = "torch.compile"
SELECTIVE = "every second product is computed again, where the prediction computes every second layer again"


@dataclass(frozen=True)
class Published:
    """What a source reports: the `parallelism`, tokens per second of a device, and how the run `differs` from the
    predicted one.
    """

    source: str
    parallelism: str
    tokens_per_second: float
    differs: str = ""


@dataclass(frozen=True)
class Case:
    """A model on devices of a machine file, with the global batch and the micro-batches of a published run.

    Tensor parallelism runs over `tensor` devices. Weights are sharded over the remaining factor of devices, as in FSDP.
    `recompute` and `pins` have the syntax of the command line.
    """

    name: str
    model: str
    machine: str
    devices: int
    batch: int
    sequence: int
    published: Published
    micro_batches: int = 1
    recompute: str = "none"
    tensor: int = 1
    settings: Mapping[str, int] = field(default_factory=dict)
    pins: tuple[str, ...] = ()


def mpt(width: int, heads: int, layers: int) -> dict[str, int]:
    """Settings of GPT-3's architecture at the sizes of an MPT model, with the same number of parameters."""
    return {"d": width, "heads": heads, "layers": layers, "vocabulary": 50368}


MPT = {
    "760m": mpt(1536, 12, 24), "1b": mpt(2048, 16, 24), "7b": mpt(4096, 32, 32), "13b": mpt(5120, 40, 40),
    "70b": mpt(8192, 64, 80),
}  # fmt: skip


def foundry(
    size: str, machine: str, devices: int, batch: int, tokens: float, *, micro_batches: int = 1, sequence: int = 2048,
    recompute: str = "none",
) -> Case:  # fmt: skip
    """A row of MosaicML's tables."""
    again = ", full recomputation" if recompute == "all" else ""
    gpu = "A100" if machine == "dgx-a100" else "H100"
    return Case(
        f"MPT {size}, {sequence}, {devices} {gpu}", "examples/gpt3_175b.udl", machine, devices, batch, sequence,
        Published(FOUNDRY, f"FSDP{again}", tokens, EAGER), micro_batches, recompute, 1, MPT[size],
    )  # fmt: skip


GATHERS = ("layer.attn.xq=S1", "layer.attn.xk=S1", "layer.attn.xv=S1", "layer.ff.xg=S1", "layer.ff.xu=S1")
"""Pins by which each of five matrix products of a layer gathers its own operand, as in KempnerForge's
tensor_parallel.py.
"""

CASES = (
    foundry("7b", "dgx-a100", 8, 96, 4641, micro_batches=2),
    foundry("1b", "dgx-a100", 8, 448, 20513, micro_batches=4),
    foundry("1b", "dgx-h100", 8, 112, 45455),
    foundry("7b", "dgx-h100", 8, 48, 10643),
    foundry("70b", "dgx-h100", 64, 2048, 1039, micro_batches=4, recompute="all"),
    foundry("13b", "dgx-h100", 64, 128, 4800),
    foundry("760m", "dgx-h100", 16, 384, 68551),
    foundry("7b", "dgx-h100", 8, 128, 6935, micro_batches=2, sequence=8192, recompute="all"),
    Case(
        "llama3_8b, 4096, 4 H200, FSDP", "examples/llama3_8b.udl", "h200", 4, 32, 4096,
        Published(KEMPNER, "FSDP, full recomputation", 38983 / 4, COMPILED), 2, "all",
    ),
    Case(
        "llama3_8b, 4096, 4 H200, tensor parallel", "bench/models/llama3_8b_gathers.udl", "h200", 4, 8, 4096,
        Published(KEMPNER, "tensor parallel 4, full recomputation", 25135 / 4, f"{COMPILED}; gathers logits too"), 2,
        "all", 4, pins=GATHERS,
    ),
    Case(
        "llama3_8b, 8192, 64 A100", "examples/llama3_8b.udl", "dgx-a100", 64, 64, 8192,
        Published(FSDP2, "FSDP, selective recomputation", 2973, SELECTIVE), 1, "layer:16",
    ),
    Case(
        "llama3_70b, 8192, 64 A100", "examples/llama3_70b.udl", "dgx-a100", 64, 64, 8192,
        Published(FSDP2, "FSDP, full recomputation", 331), 1, "all",
    ),
    Case(
        "llama3_8b, 8192, 8 H100 of 500 W", "examples/llama3_8b.udl", GRAND_TETON, 8, 16, 8192,
        Published(TITAN, "FSDP, selective recomputation", 6667, f"{COMPILED}; {SELECTIVE}"), 1, "layer:16",
    ),
    Case(
        "llama3_8b, 8192, 128 H100 of 500 W", "examples/llama3_8b.udl", GRAND_TETON, 128, 256, 8192,
        Published(TITAN, "FSDP, selective recomputation", 6514, f"{COMPILED}; {SELECTIVE}"), 1, "layer:16",
    ),
    Case(
        "llama3_70b, 8192, 256 H100 of 500 W", "examples/llama3_70b.udl", GRAND_TETON, 256, 512, 8192,
        Published(ASYNC, "FSDP 32, tensor parallel 8, full recomputation", 597.3, COMPILED), 1, "all", 8,
    ),
)  # fmt: skip
