"""Predicted model FLOPs utilisation beside published figures: `python bench/utilisation.py`.

Each case is an example at the batch, sequence, devices and precision of a published training run: `auto` plans it, the
plan's step is simulated, and its utilisation is put beside the published one, which is computed from tokens a second
where these are published. What differs from the published run is told with the case. Nothing is measured here.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from measure import RESULTS, ROOT, rows_of, write_rows

from unity_dsl.compile import Request, compile_model
from unity_dsl.graph.model_flops import model_flops, seconds_at_peak
from unity_dsl.machine.byte_count import describe_bytes, parse_bytes
from unity_dsl.machine.machine import load_machine
from unity_dsl.simulation.step_tasks import simulate_step

FILE = RESULTS / "utilisation.json"
ALLOWED = 0.2
"""A prediction further off than this needs a reason."""

TITAN = "torchtitan, benchmarks/llama3_h100_202412_torchtitan.md at 31a17bf"
ASYNC = "torchtitan, pull request of benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md"
FSDP2 = "torchtitan, docs/performance.md of 2024"
MEGATRON = "Korthikanti et al. 2022, Reducing Activation Recomputation in Large Transformer Models, 175B"
GRAND_TETON = "H100 of 96 GB, 2.4 TB/s and 500 W, where the machine file has the 3.35 TB/s and 700 W of a DGX"


@dataclass(frozen=True)
class Published:
    """A published run. `tokens_per_second` are those of a device; `utilisation` is given where these are not. `differs`
    says what is not as predicted, besides the parallelism.
    """

    source: str
    parallelism: str
    tokens_per_second: float | None = None
    utilisation: float | None = None
    differs: str = ""


@dataclass(frozen=True)
class Case:
    """An example on a machine whose devices have `memory`, at the global batch of a published run."""

    example: str
    machine: str
    devices: int
    batch: int
    sequence: int
    memory: str
    published: Published

    @property
    def key(self) -> str:
        return f"{self.example} {self.machine} {self.devices} batch {self.batch} by {self.published.parallelism}"


CASES = (
    Case(
        "llama3_8b", "dgx-h100", 8, 16, 8192, "96GB",
        Published(TITAN, "FSDP, torch.compile, selective recomputation", 6667, differs=GRAND_TETON),
    ),
    Case(
        "llama3_8b", "dgx-h100", 128, 256, 8192, "96GB",
        Published(TITAN, "FSDP, torch.compile, selective recomputation", 6514, differs=GRAND_TETON),
    ),
    Case(
        "llama3_8b", "dgx-a100", 64, 64, 8192, "80GB",
        Published(FSDP2, "FSDP, selective recomputation", 2973),
    ),
    Case(
        "llama3_70b", "dgx-a100", 64, 64, 8192, "80GB",
        Published(FSDP2, "FSDP, full recomputation", 331),
    ),
    Case(
        "llama3_70b", "dgx-h100", 256, 512, 8192, "96GB",
        Published(ASYNC, "FSDP 32, tensor parallel 8, torch.compile, full recomputation", 597.3, differs=GRAND_TETON),
    ),
    Case(
        "gpt3_175b", "dgx-a100", 64, 64, 2048, "80GB",
        Published(
            MEGATRON, "tensor parallel 8, pipeline 8, micro-batches of 1, selective recomputation", None, 0.514,
            "vocabulary of 51,200",
        ),
    ),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("examples", nargs="*", help="all, if none is named")
    parser.add_argument("--again", action="store_true", help="predict all cases again")
    options = parser.parse_args()
    rows = {} if options.again else rows_of(FILE)
    rows = {case.key: rows[case.key] for case in CASES if case.key in rows}
    for case in CASES:
        if case.key not in rows and (not options.examples or case.example in options.examples):
            rows[case.key] = predict(case)
            write_rows(FILE, "python bench/utilisation.py", rows)
        if case.key in rows:
            print(describe(case.key, rows[case.key]), flush=True)
    near = sum(abs(row["ratio"] - 1) <= ALLOWED for row in rows.values())
    print(f"{len(rows)} cases, {near} of them within {ALLOWED:.0%} of what is published")


def predict(case: Case) -> dict[str, Any]:
    """The row of a case: seconds, bytes, utilisation predicted and published, and the ratio of these."""
    settings = {"b": case.batch, "s": case.sequence}
    machine = load_machine(case.machine)
    request = Request(
        ROOT / "examples" / f"{case.example}.udl", settings, machine=case.machine, devices=case.devices,
        memory=parse_bytes(case.memory),
    )  # fmt: skip
    begun = time.process_time()
    compiled = compile_model(request)
    plan = compiled.plan
    timeline = simulate_step(plan, machine, compiled.library)
    best = plan.micro_batches * seconds_at_peak(plan.model, machine.peak, case.devices)
    tokens = case.batch * case.sequence / case.devices
    published = case.published.utilisation
    if case.published.tokens_per_second is not None:
        published = best / tokens * case.published.tokens_per_second
    assert published is not None
    return {
        **asdict(case.published),
        "precision": plan.model.precision,
        "sequence": case.sequence,
        "model_flops": plan.micro_batches * sum(model_flops(plan.model).values()),
        "published": round(published, 4),
        "predicted": round(best / timeline.seconds, 4),
        "ratio": round(best / timeline.seconds / published, 3),
        "by_the_cost_of_the_search": round(best / plan.cost.seconds, 4),
        "step_seconds": timeline.seconds,
        "exposed_seconds": timeline.exposed(),
        "tokens_per_second_predicted": round(tokens / timeline.seconds, 1),
        "mesh": [axis.degree for axis in plan.mesh.axes],
        "memory": describe_bytes(plan.cost.memory.total),
        "fits": not plan.warnings,
        "recomputed": sorted(plan.recomputed),
        "notes": list(plan.notes),
        "processor_seconds": round(time.process_time() - begun, 1),
    }


def describe(key: str, row: Mapping[str, Any]) -> str:
    fits = "" if row["fits"] else f", does not fit: {row['memory']}"
    return f"{key}: {row['predicted']:.1%} predicted, {row['published']:.1%} published, {row['ratio']:.2f} times{fits}"


if __name__ == "__main__":
    main()
