"""Results of bench/gpu.py with the simulator's predictions: `python bench/gpu_report.py gpu.json`.

It writes `results/gpu.json` and `results/gpu_curves.json`. With `--profile measured.toml`, a machine file that the same
run wrote, steps are predicted from that file as well as from the shipped one.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from gpu import MODELS
from measure import RESULTS, ROOT

from unity_dsl.compilation import Request, compile_model
from unity_dsl.resources import folder


def report(brought: Sequence[Path], profile: Path | None) -> None:
    """Write `results/gpu.json`: the measurements of one or more runs, and the steps that the simulator predicts."""
    results = reduce(joined, (json.loads(file.read_text()) for file in brought))
    machines = {"predicted": results["machine"], **({"predicted_by_profile": str(profile)} if profile else {})}
    kept: dict[str, Any] = {"command": "python bench/gpu.py", "machine": results["machine"], "models": {}}
    kept["hardware"] = results["hardware"]
    for name in MODELS:
        if "ways" not in results.get(name, {}):
            continue
        found = results[name]
        compiled = results.get(f"{name}_compiled", {}).get("ways", {})
        row: dict[str, Any] = {key: predicted_step(name, machine) for key, machine in machines.items()}
        row |= {part: found[part] for part in ("check", "check_by_hand") if part in found}
        row["ways"] = {way: without_traces(ran) for way, ran in {**found["ways"], **compiled}.items()}
        kept["models"][name] = row
    for part in ("families", "ranks", "programs"):
        if part in results:
            kept[part] = without_traces(results[part])
    if "curves" in results:
        write_curves(results["curves"], kept["hardware"])
    path = RESULTS / "gpu.json"
    path.write_text(json.dumps(kept, indent=1) + "\n")
    for name, row in kept["models"].items():
        seconds = row["ways"].get("torch", {}).get("seconds", float("nan"))
        told = ", ".join(f"{key} {1e3 * row[key]:.1f} ms, off by {row[key] / seconds - 1:+.0%}" for key in machines)
        print(f"{name:<14} measured {1e3 * seconds:.1f} ms; {told}")
    print(f"wrote {path.relative_to(ROOT)}")


def write_curves(curves: dict[str, Any], hardware: dict[str, Any]) -> None:
    """Write `results/gpu_curves.json`, one measurement per line."""
    head = {"command": "python bench/gpu.py", "hardware": hardware, "ceilings": curves["ceilings"]}
    parts = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    for name, found in curves.items():
        if isinstance(found, dict) and "rows" in found:
            lines = ",\n  ".join(json.dumps(row) for row in found["rows"])
            parts.append(f"{json.dumps(name)}: [\n  {lines}\n ]")
    (RESULTS / "gpu_curves.json").write_text("{\n " + ",\n ".join(parts) + "\n}\n")


def predicted_step(name: str, machine: str) -> float:
    """Seconds of the simulated step of a model with torch's operators. `machine` is a name or the path of a profile."""
    request = Request(folder("examples") / f"{name}.udl", settings=MODELS[name], machine=machine)
    return float(compile_model(request).plan.seconds)


def joined(before: Any, after: Any) -> Any:
    """The merged results of two runs. The later run overrides the earlier one."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return after
    return {**before, **{key: joined(before.get(key), value) for key, value in after.items()}}


def without_traces(found: Any) -> Any:
    """Results without tracebacks, logs and durations, and with only the 28 longest kernels of a step."""
    if not isinstance(found, dict):
        return found
    kept = {key: without_traces(value) for key, value in found.items() if key not in ("trace", "log", "took")}
    if "kernels" in kept and "kernel_seconds" in kept:
        kept["kernels"] = dict(list(kept["kernels"].items())[:28])
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("brought", type=Path, nargs="+", metavar="gpu.json", help="of one run, or of several in turn")
    parser.add_argument("--profile", type=Path, metavar="measured.toml", help="predict by this profile too")
    options = parser.parse_args()
    report(options.brought, options.profile)


if __name__ == "__main__":
    main()
