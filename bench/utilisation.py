"""Predicted speed of published training runs: `python bench/utilisation.py`.

Each case of `published_runs.py` is planned with the published parallelism, without the optimizations that only our
programs have (decomposed matmul, deferred weight gradients, interleaved execution). The step of the plan is simulated.
Printed are predicted and published tokens per second of a device. The results also have model FLOPs utilisation.
Nothing is measured here.

One constant is fitted to these runs: `sustained` of the machine files, except that of `h200`, which is measured.
`--leave-one-out` leaves out each run in turn, fits the constant to the other runs on the same machine, and prints the
error of the run that was left out.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

from measure import RESULTS, ROOT, rows_of, write_rows
from published_runs import CASES, Case

from unity_dsl.compilation import Compilation, Request, compile_model
from unity_dsl.graph.model_flops import seconds_at_peak
from unity_dsl.graph.plan import Plan
from unity_dsl.machine.byte_count import describe_bytes
from unity_dsl.machine.machine import Machine, load_machine, machine_source, read_machine
from unity_dsl.search.accounting.weighed_plan import gathered_paths
from unity_dsl.simulation.step_tasks import simulate_step
from unity_dsl.syntax.span import Source

FILE = RESULTS / "utilisation.json"
TENSOR_OR_NOT = ("llama3_8b, 4096, 4 H200, FSDP", "llama3_8b, 4096, 4 H200, tensor parallel")
ROOMY = 2 * 10**12
"""Memory of a device in bytes, so large that the larger memory footprint of our programs changes no plan."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of names of cases; all, if none is given")
    parser.add_argument("--again", action="store_true", help="predict all cases again")
    parser.add_argument("--leave-one-out", action="store_true", help="fit `sustained` without each case in turn")
    options = parser.parse_args()
    rows = {} if options.again else rows_of(FILE)
    rows = {case.name: rows[case.name] for case in CASES if case.name in rows}
    for case in CASES:
        named = not options.names or any(name in case.name for name in options.names)
        if case.name not in rows and named:
            rows[case.name] = predict(case)
            write_rows(FILE, "python bench/utilisation.py", rows)
        if case.name in rows:
            print(describe(case.name, rows[case.name]), flush=True)
    if options.leave_one_out:
        for name, found in left_out(rows).items():
            rows[name]["left_out"] = found
            print(f"{name}: {found['ratio']:.3f} times by sustained {found['sustained']:.3f}, fitted without it")
    found = summary(rows)
    write_rows(FILE, "python bench/utilisation.py --leave-one-out", rows, found)
    for what, value in found.items():
        print(f"{what.replace('_', ' ')}: {value}")


# ---------------------------------------------------------------------------------------------- prediction


def predict(case: Case) -> dict[str, Any]:
    """The row of a case: predicted step seconds, predicted and published tokens per second and utilisation, and the
    ratio of predicted to published tokens per second.
    """
    begun = time.process_time()
    machine = machine_of(case)
    compiled = compiled_as_published(case)
    plan = as_published(compiled.plan, compiled)
    timeline = simulate_step(plan, machine, compiled.library)
    tokens = case.batch * case.sequence / case.devices
    best = plan.micro_batches * seconds_at_peak(plan.model, machine.peak, case.devices)
    found = tokens / timeline.seconds
    seconds = {str(rate): seconds_at(case, rate, plan, compiled) for rate in RATES}
    return {
        **asdict(case.published),
        "machine": machine.name,
        "published_utilisation": round(best / tokens * case.published.tokens_per_second, 4),
        "predicted_utilisation": round(best / timeline.seconds, 4),
        "tokens_per_second_predicted": round(found, 1),
        "ratio": round(found / case.published.tokens_per_second, 3),
        "step_seconds": timeline.seconds,
        "exposed_seconds": timeline.exposed(),
        "memory": describe_bytes(timeline.most_memory().peak),
        "sustained": sustained_of(case),
        "seconds_by_sustained": seconds,
        "mesh": [axis.degree for axis in plan.mesh.axes],
        "processor_seconds": round(time.process_time() - begun, 1),
    }


def machine_path(case: Case) -> str:
    return str(ROOT / case.machine) if case.machine.endswith(".toml") else case.machine


def machine_of(case: Case) -> Machine:
    return load_machine(machine_path(case))


def compiled_as_published(case: Case) -> Compilation:
    """The plan with the run's parallelism. FSDP is planned by the strategy `zero`; with tensor parallelism the plan is
    imported from a Galvatron configuration.
    """
    settings = {**case.settings, "b": case.batch, "s": case.sequence}
    node = machine_of(case).node_devices
    mesh = (case.devices,) if case.devices <= node else (case.devices // node, node)
    request = Request(
        ROOT / case.model, settings, machine=machine_path(case), devices=case.devices, memory=ROOMY, pins=case.pins,
        operators=(ROOT / "bench" / "models",),
    )  # fmt: skip
    if case.tensor == 1:
        fixed = {"mesh": mesh, "micro_batches": case.micro_batches, "recompute": case.recompute}
        return compile_model(replace(request, strategy="zero", **fixed))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "plan.json"
        file.write_text(json.dumps(galvatron(case)))
        return compile_model(replace(request, plan=file))


def galvatron(case: Case) -> Mapping[str, Any]:
    """A Galvatron configuration with tensor parallelism of all layers, embedding and head, and FSDP over the other
    devices.
    """
    layers = LAYERS[case.model]

    def each(number: int) -> str:
        return ",".join([str(number)] * layers)

    return {
        "pp_deg": 1, "tp_sizes_enc": each(case.tensor), "tp_consecutive_flags": each(1), "dp_types_enc": each(1),
        "use_sp": each(0), "checkpoint": each(int(case.recompute == "all")), "global_bsz": case.batch,
        "chunks": case.micro_batches, "pp_division": str(layers), "pipeline_type": "pipedream_flush",
        "default_dp_type": "zero3", "vtp": case.tensor, "vsp": 0,
    }  # fmt: skip


LAYERS = {"bench/models/llama3_8b_gathers.udl": 32, "examples/llama3_70b.udl": 80}


def as_published(plan: Plan, compiled: Compilation) -> Plan:
    """The plan without passes that only our programs have, in which the backward pass re-gathers weights like FSDP.
    Weights of fully recomputed segments are not marked.
    """
    plan = plan.with_passes(chunks=1, deferred_gradients=False, interleaved=(), skew=1)
    whole = [path for path in plan.passes.recomputed if path not in plan.passes.kept_iterations]
    again = gathered_paths(plan, compiled.library)
    return plan.with_passes(regathered=frozenset(p for p in again if not any(p.startswith(f"{w}.") for w in whole)))


# ---------------------------------------------------------------------------------------------- fit

MEASURED = "h200"
"""The machine whose `sustained` is measured by bench/gpu.py."""
RATES = (0.6, 0.8, 1.0)
"""Values of `sustained` at which every step is simulated. Between them the step is linear in 1 / `sustained`."""


def text_with(case: Case, rate: float) -> Source:
    """The machine file of a case with `sustained` replaced."""
    source = machine_source(machine_path(case))
    lines = source.text.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("sustained"))
    lines[at] = f"sustained = {rate}"
    return Source(source.name, "\n".join(lines) + "\n")


def seconds_at(case: Case, rate: float, plan: Plan, compiled: Compilation) -> float:
    """Seconds of the step if `sustained` is `rate`, the fraction of their speed that matrix products sustain."""
    return simulate_step(plan, read_machine(text_with(case, rate)), compiled.library).seconds


def sustained_of(case: Case) -> float:
    text = machine_source(machine_path(case)).text
    return float(next(line.split("=")[1] for line in text.splitlines() if line.startswith("sustained")))


def ratio_at(case: Case, row: Mapping[str, Any], rate: float) -> float:
    """Predicted over published tokens per second if `sustained` is `rate`."""
    points = sorted((1 / float(key), seconds) for key, seconds in row["seconds_by_sustained"].items())
    low, high = (points[0], points[1]) if 1 / rate <= points[1][0] else (points[1], points[2])
    seconds = low[1] + (high[1] - low[1]) * (1 / rate - low[0]) / (high[0] - low[0])
    return case.batch * case.sequence / case.devices / seconds / float(row["tokens_per_second"])


def fitted(cases: Sequence[Case], rows: Mapping[str, Mapping[str, Any]]) -> float:
    """The `sustained` between 0.5 and 1 at which the geometric mean of these cases' ratios is 1."""
    low, high = 0.5, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        mean = sum(log(ratio_at(case, rows[case.name], middle)) for case in cases) / len(cases)
        low, high = (low, middle) if exp(mean) > 1 else (middle, high)
    return (low + high) / 2


def left_out(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """For each case, `sustained` fitted to the other cases on its machine, and the case's ratio with that value. A
    measured `sustained`, or one without other cases, stays.
    """
    found = {}
    known = [case for case in CASES if case.name in rows]
    for case in known:
        others = [other for other in known if other.machine == case.machine and other is not case]
        row = rows[case.name]
        fixed = case.machine == MEASURED or not others
        rate = float(row["sustained"]) if fixed else fitted(others, rows)
        found[case.name] = {"sustained": round(rate, 3), "ratio": round(ratio_at(case, row, rate), 3)}
    return found


# ---------------------------------------------------------------------------------------------- report


def summary(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Errors of all cases with the constants of the machine files and in the leave-one-out fit; predicted and published
    ratio of FSDP to tensor parallelism.
    """
    found: dict[str, Any] = {"cases": len(rows), **_errors("error", [row["ratio"] for row in rows.values()])}
    if all("left_out" in row for row in rows.values()):
        found |= _errors("left_out_error", [row["left_out"]["ratio"] for row in rows.values()])
    if all(name in rows for name in TENSOR_OR_NOT):
        sliced, divided = (rows[name] for name in TENSOR_OR_NOT)
        for told, key in (("predicted", "tokens_per_second_predicted"), ("published", "tokens_per_second")):
            found[f"fsdp_over_tensor_parallelism_{told}"] = round(sliced[key] / divided[key], 2)
    return found


def _errors(name: str, ratios: Sequence[float]) -> dict[str, float]:
    off = [abs(ratio - 1) for ratio in ratios]
    return {f"median_{name}": round(median(off), 3), f"largest_{name}": round(max(off), 3)}


def describe(name: str, row: Mapping[str, Any]) -> str:
    predicted, published = row["tokens_per_second_predicted"], row["tokens_per_second"]
    return f"{name}: {predicted:,.0f} tokens/s a device, {published:,.0f} published, {row['ratio']:.3f} times"


if __name__ == "__main__":
    main()
