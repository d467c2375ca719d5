"""Benefit of padded shards where the batch is not divisible by the devices: `python bench/padding.py`.

Each cell is compiled with `pad` none and auto. Recorded are seconds of the simulated step, the padding, and processor
seconds of the compilation.
"""

from __future__ import annotations

from dataclasses import replace
from math import exp, log
from pathlib import Path
from time import process_time

from measure import write_results

from unity_dsl.compilation import Request, compile_model
from unity_dsl.graph.padding import padding_words

EXAMPLES = Path(__file__).parent.parent / "examples"
CELLS = (
    *((model, 6) for model in ("gpt2", "bert_large", "llama3_8b", "mixtral_8x7b", "resnext50", "vit_l16", "dlrm")),
    *((model, 6) for model in ("inception_v3", "candle_uno", "mlp_unity")),
    *((model, 24) for model in ("gpt2", "bert_large", "mixtral_8x7b", "resnext50")),
    *((model, 96) for model in ("gpt2_xl", "llama3_8b")),
    *((model, 512) for model in ("gpt2", "gpt2_xl", "bert_large")),
    ("lstm_lm", 8),
    ("lstm_lm", 64),
)
"""Models and numbers of H100 devices."""


def main() -> None:
    results: dict[str, object] = {}
    ratios = []
    for model, devices in CELLS:
        request = Request(EXAMPLES / f"{model}.udl", machine="dgx-h100", devices=devices)
        row: dict[str, object] = {}
        for word in ("none", "auto"):
            begun = process_time()
            plan = compile_model(replace(request, pad=word)).plan
            row |= {
                f"{word}_seconds": plan.seconds,
                f"{word}_fits": not plan.warnings,
                f"{word}_search_seconds": round(process_time() - begun, 1),
            }
        row |= {"padding": padding_words(plan.model), "ratio": plan.seconds / float(str(row["none_seconds"]))}
        ratios.append(float(str(row["ratio"])))
        results[f"{model} on {devices}"] = row
        print(model, devices, row, flush=True)
    results["geometric mean of ratios"] = exp(sum(map(log, ratios)) / len(ratios))
    write_results("padding", "python bench/padding.py", results)


if __name__ == "__main__":
    main()
