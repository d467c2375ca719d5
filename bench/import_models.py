"""Models of a library as they are, imported: `pip install transformers`, then `python bench/import_models.py`.

Each is built small from its configuration, without weights of others, imported and verified. Kept are seconds, the
lines of the model, its statements, and how far loss and gradients are from the module's in float64; or what the import
was refused for.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from typing import Any

import torch
from measure import RESULTS, write_rows

from unity_dsl.importer.model_import import import_module
from unity_dsl.syntax.diagnostic import InputError

FILE = RESULTS / "import_models.json"
SMALL = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
FEED = {"intermediate_size": 48, "max_position_embeddings": 64}
SHARED = {"num_key_value_heads": 2}
NO_DROPOUT = {
    **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop", "dropout", "attention_dropout"), 0.0),
    **dict.fromkeys(("hidden_dropout", "hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0),
}
GPT2 = {"vocab_size": 64, "n_positions": 32, "n_embd": 32, "n_layer": 3, "n_head": 4}
DISTILLED = {"vocab_size": 64, "dim": 32, "n_layers": 3, "n_heads": 4}
IMAGES = {"image_size": 16, "patch_size": 4, "num_labels": 8}
CAUSAL: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", GPT2),
    "llama": ("LlamaForCausalLM", {**SMALL, **FEED, **SHARED}),
    "mistral": ("MistralForCausalLM", {**SMALL, **FEED, **SHARED}),
    "qwen2": ("Qwen2ForCausalLM", {**SMALL, **FEED, **SHARED}),
    "qwen3": ("Qwen3ForCausalLM", {**SMALL, **FEED, **SHARED, "head_dim": 8}),
    "phi": ("PhiForCausalLM", {**SMALL, **FEED}),
    "opt": ("OPTForCausalLM", {**SMALL, "ffn_dim": 48, "max_position_embeddings": 64, "word_embed_proj_dim": 32}),
    "gpt_neox": ("GPTNeoXForCausalLM", {**SMALL, **FEED}),
    "stablelm": ("StableLmForCausalLM", {**SMALL, **FEED, **SHARED}),
    "olmo": ("OlmoForCausalLM", {**SMALL, **FEED, **SHARED}),
    "olmo2": ("Olmo2ForCausalLM", {**SMALL, **FEED, **SHARED}),
    "granite": ("GraniteForCausalLM", {**SMALL, **FEED, **SHARED}),
    "smollm3": ("SmolLM3ForCausalLM", {**SMALL, **FEED, **SHARED}),
    "gemma": ("GemmaForCausalLM", {**SMALL, **FEED, **SHARED, "head_dim": 8}),
    "falcon": ("FalconForCausalLM", {**SMALL, "new_decoder_architecture": False}),
    "bloom": ("BloomForCausalLM", {"vocab_size": 64, "hidden_size": 32, "n_layer": 3, "n_head": 4}),
    "mixtral": ("MixtralForCausalLM", {**SMALL, **FEED, **SHARED, "num_local_experts": 4}),
}
MASKED = {
    "bert": ("BertForMaskedLM", {**SMALL, **FEED}),
    "roberta": ("RobertaForMaskedLM", {**SMALL, **FEED}),
    "distilbert": (
        "DistilBertForMaskedLM",
        {"vocab_size": 64, "dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48},
    ),
    "electra": ("ElectraForMaskedLM", {**SMALL, **FEED, "embedding_size": 32}),
}
OF_IMAGES = {
    "vit": ("ViTForImageClassification", {**SMALL, "intermediate_size": 48, **IMAGES}),
    "deit": ("DeiTForImageClassification", {**SMALL, "intermediate_size": 48, **IMAGES}),
}


def factory(name: str) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """A small model of the library with example inputs."""
    import transformers

    torch.manual_seed(0)
    of, settings = {**CAUSAL, **MASKED, **OF_IMAGES}[name]
    kind = getattr(transformers, of)
    config = kind.config_class(
        **NO_DROPOUT, **settings, bos_token_id=1, eos_token_id=2, pad_token_id=0, use_cache=False
    )
    module = kind(config).train()
    if name in OF_IMAGES:
        return module, {"pixel_values": torch.randn(2, 3, 16, 16), "labels": torch.randint(8, (2,))}
    words = torch.randint(3, 64, (2, 8))
    if name in MASKED:
        seen = torch.ones_like(words)
        seen[1, -2:] = 0
        return module, {"input_ids": words, "attention_mask": seen, "labels": words.clone()}
    return module, {"input_ids": words, "labels": words.clone()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = [*CAUSAL, *MASKED, *OF_IMAGES]
    parser.add_argument("--models", nargs="*", default=every, choices=every, metavar="NAME")
    options = parser.parse_args()
    rows = {}
    for name in options.models:
        rows[name] = imported(name)
        print(name, rows[name], flush=True)
        equal = sum("gradient" in row for row in rows.values())
        write_rows(FILE, "python bench/import_models.py", rows, {"models": len(rows), "equal": equal})


def imported(name: str) -> dict[str, Any]:
    """What one import took and gave."""
    setattr(sys.modules[__name__], f"make_{name}", lambda: factory(name))
    sys.modules["import_models"] = sys.modules[__name__]
    begun = time.perf_counter()
    try:
        found = import_module(f"import_models:make_{name}", name)
    except InputError as error:
        return {"refused": f"{error.diagnostic.code}: {error.diagnostic.message}"}
    assert found.verified is not None
    return {
        "seconds": round(time.perf_counter() - begun, 1),
        "lines": found.files[f"{name}.udl"].count("\n"),
        "statements": found.statements,
        "loss": found.verified.loss,
        "gradient": found.verified.gradient,
    }


if __name__ == "__main__":
    main()
