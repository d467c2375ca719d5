"""Benefit of activation offloading under a memory limit: `python bench/offload.py`.

Each cell is compiled with `offload` none and auto. Recorded are seconds of the simulated step, bytes of memory, and
processor seconds of the compilation.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import process_time

from measure import write_results

from unity_dsl.compilation import Request, compile_model

EXAMPLES = Path(__file__).parent.parent / "examples"
CELLS = (
    ("gpt2_xl", "summit", 6, None),
    ("gpt2_xl", "summit", 24, None),
    ("bert_large", "summit", 6, None),
    ("vit_l16", "summit", 6, None),
    ("gpt2_xl", "dgx-h100", 8, 30_000_000_000),
    ("llama3_8b", "dgx-h100", 8, 40_000_000_000),
)


def main() -> None:
    results = {}
    for model, machine, devices, memory in CELLS:
        request = Request(EXAMPLES / f"{model}.udl", machine=machine, devices=devices, memory=memory)
        row: dict[str, object] = {}
        for word in ("none", "auto"):
            begun = process_time()
            plan = compile_model(replace(request, offload=word)).plan
            row |= {
                f"{word}_seconds": plan.seconds,
                f"{word}_bytes": plan.cost.memory.total,
                f"{word}_search_seconds": round(process_time() - begun, 1),
                f"{word}_recomputed": sorted(plan.passes.recomputed),
            }
        row |= {"offloaded": sorted(plan.passes.offloaded), "kept": dict(plan.passes.kept_iterations)}
        row["ratio"] = plan.seconds / float(str(row["none_seconds"]))
        results[f"{model} on {devices} of {machine}" + (f", {memory / 1e9:g} GB" if memory else "")] = row
        print(model, machine, devices, row, flush=True)
    write_results("offload", "python bench/offload.py", results)


if __name__ == "__main__":
    main()
