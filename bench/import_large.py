"""Models of published sizes, imported without weights and planned: `python bench/import_large.py`, with transformers.

Recorded are the seconds and the peak memory of an import in its own process, the lines of the imported model, and the
predicted steps on 64 H100 of the imported model and of the hand-written example of the same sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from measure import RESULTS, write_rows

FILE = RESULTS / "import_large.json"
EXAMPLES = Path(__file__).parent.parent / "examples"
LLAMA = {"vocab_size": 128256, "num_key_value_heads": 8, "max_position_embeddings": 8192, "rope_theta": 500000.0}
LLAMA_8B = {
    **LLAMA,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
}
LLAMA_70B = {
    **LLAMA,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
}
NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
BERT_LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
MODELS: Mapping[str, tuple[str, Mapping[str, Any], int, tuple[str, ...]]] = {
    "gpt2_xl": (
        "GPT2LMHeadModel",
        {"n_embd": 1600, "n_layer": 48, "n_head": 25, **NO_DROPOUT},
        1024,
        ("gpt2_xl", "--set", "dropout=0", "--set", "s=1024"),
    ),
    "llama3_8b": ("LlamaForCausalLM", {**LLAMA, **LLAMA_8B}, 2048, ("llama3_8b", "--set", "s=2048")),
    "llama3_70b": ("LlamaForCausalLM", {**LLAMA, **LLAMA_70B}, 2048, ("llama3_70b", "--set", "s=2048")),
    "mixtral_8x7b": (
        "MixtralForCausalLM",
        {},
        1024,
        ("mixtral_8x7b", "--set", "s=1024", "--set", "factor=4"),
    ),
    "bert_large": ("BertForPreTraining", BERT_LARGE, 512, ("bert_large", "--set", "dropout=0", "--set", "s=512")),
}
"""The class of each model, its settings, the length of its inputs, and the example of the same sizes."""
BATCH, DEVICES = 64, 64


def factory(name: str) -> Any:
    """A model of published size with example inputs."""
    import torch
    import transformers

    kind, settings, length, _ = MODELS[name]
    model = getattr(transformers, kind)
    config = model.config_class(**settings)
    config.use_cache = False
    tokens = torch.randint(100, (BATCH, length))
    given = {"input_ids": tokens, "labels": tokens.clone()}
    if name == "bert_large":
        given |= {"token_type_ids": torch.randint(2, (BATCH, length)), "attention_mask": torch.ones_like(tokens)}
        given |= {"next_sentence_label": torch.randint(2, (BATCH,))}
    return model(config), given


def __getattr__(name: str) -> Any:
    """Makes the factories accessible by name, as for `unityc import import_large:llama3_8b`. Raises AttributeError."""
    if name not in MODELS:
        raise AttributeError(name)
    return lambda: factory(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS), metavar="NAME")
    options = parser.parse_args()
    rows = {} if options.models == list(MODELS) else json.loads(FILE.read_text())["cases"]
    for name in options.models:
        with TemporaryDirectory() as folder:
            rows[name] = measured(name, folder)
        print(name, rows[name], flush=True)
        write_rows(FILE, "python bench/import_large.py", rows, {"devices": DEVICES, "batch": BATCH})


def measured(name: str, folder: str) -> dict[str, Any]:
    """Seconds, peak memory and lines of a model's import, and the predicted steps of model and example."""
    begun = time.perf_counter()
    peak = finished("import", f"import_large:{name}", "-o", folder, "--no-weights")[1]
    row = {
        "seconds": round(time.perf_counter() - begun, 1),
        "peak_bytes": peak,
        "lines": (Path(folder) / f"{name}.udl").read_text().count("\n"),
        "step_s": step(Path(folder) / f"{name}.udl", folder, "--precision", "bf16"),
    }
    if example := MODELS[name][3]:
        by_hand = step(
            EXAMPLES / f"{example[0]}.udl", folder, *example[1:], "--set", f"b={BATCH}", "--precision", "bf16"
        )
        row["step_of_the_example_s"] = by_hand
    return row


def step(model: Path, folder: str, *options: str) -> float:
    """Seconds of the predicted step on H100."""
    where = "--machine", "dgx-h100", "--devices", str(DEVICES)
    finished(str(model), "-o", f"{folder}/out", *where, *options, "--force")
    seconds: float = json.loads((Path(folder) / "out" / "plan.json").read_text())["simulated_seconds"]
    return seconds


def finished(*arguments: str) -> tuple[str, int]:
    """The output of a command and its peak memory in bytes. Raises AssertionError if it fails."""
    path = os.pathsep.join((str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")))
    process = subprocess.Popen(
        [sys.executable, "-m", "unity_dsl", *arguments],
        env={**os.environ, "PYTHONPATH": path},
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    told = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, (arguments, told)
    return told, used.ru_maxrss * 1024


if __name__ == "__main__":
    main()
