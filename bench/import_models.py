"""Imports unmodified models of libraries: `python bench/import_models.py`, with transformers and torchvision.

Each model is built small from its configuration, without pretrained weights, imported and verified. Recorded are the
seconds, the lines and statements of the imported model, and the errors of loss and gradients against the module in
float64, or why the import was refused. With --check, a row also notes whether programs for two ranks, planned by `auto`
and two random strategies, equal the model.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from measure import RESULTS, write_rows
from torch import Tensor, nn
from torch.nn import functional as F

from unity_dsl.cli import run
from unity_dsl.importer.model_import import ImportedModel, import_module
from unity_dsl.syntax.diagnostic import InputError

FILE = RESULTS / "import_models.json"
PLANS = ("auto", "random:1", "random:2")
Settings = Mapping[str, Any]

SMALL = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
FEED = {"intermediate_size": 48, "max_position_embeddings": 64}
SHARED = {"num_key_value_heads": 2}
GPT2 = {"n_positions": 32, "n_embd": 32, "n_layer": 3, "n_head": 4}
ROUTED = {"num_experts": 4, "num_experts_per_tok": 2}
LATENT = {
    "moe_intermediate_size": 16,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "first_k_dense_replace": 1,
    "num_key_value_heads": 4,
}
TOWERS = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
}
SCANNED = {"num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 4}
CAUSAL: Mapping[str, tuple[str, Settings]] = {
    "gpt2": ("GPT2LMHeadModel", GPT2),
    "gpt_bigcode": ("GPTBigCodeForCausalLM", GPT2),
    "gptj": ("GPTJForCausalLM", {**GPT2, "rotary_dim": 4}),
    "codegen": ("CodeGenForCausalLM", {**GPT2, "rotary_dim": 4}),
    "llama": ("LlamaForCausalLM", SHARED),
    "mistral": ("MistralForCausalLM", {**SHARED, "sliding_window": 4}),
    "qwen2": ("Qwen2ForCausalLM", SHARED),
    "qwen3": ("Qwen3ForCausalLM", {**SHARED, "head_dim": 8}),
    "phi": ("PhiForCausalLM", {}),
    "phi3": ("Phi3ForCausalLM", SHARED),
    "opt": ("OPTForCausalLM", {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    "gpt_neox": ("GPTNeoXForCausalLM", {}),
    "stablelm": ("StableLmForCausalLM", SHARED),
    "starcoder2": ("Starcoder2ForCausalLM", {**SHARED, "sliding_window": 4}),
    "olmo": ("OlmoForCausalLM", SHARED),
    "olmo2": ("Olmo2ForCausalLM", SHARED),
    "granite": ("GraniteForCausalLM", SHARED),
    "smollm3": ("SmolLM3ForCausalLM", SHARED),
    "gemma": ("GemmaForCausalLM", {**SHARED, "head_dim": 8}),
    "gemma2": ("Gemma2ForCausalLM", {**SHARED, "head_dim": 8, "sliding_window": 4}),
    "gemma3": ("Gemma3ForCausalLM", {**SHARED, "head_dim": 8, "sliding_window": 4, "num_hidden_layers": 6}),
    "cohere": ("CohereForCausalLM", SHARED),
    "glm": ("GlmForCausalLM", {**SHARED, "head_dim": 8}),
    "mpt": ("MptForCausalLM", {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 16}),
    "falcon": ("FalconForCausalLM", {"new_decoder_architecture": False}),
    "falcon_new": ("FalconForCausalLM", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "bloom": ("BloomForCausalLM", {"n_layer": 3, "n_head": 4}),
    "mixtral": ("MixtralForCausalLM", {**SHARED, "num_local_experts": 4}),
    "qwen3_moe": ("Qwen3MoeForCausalLM", {**SHARED, **ROUTED, "head_dim": 8, "moe_intermediate_size": 16}),
    "olmoe": ("OlmoeForCausalLM", {**SHARED, **ROUTED}),
    "deepseek_v3": ("DeepseekV3ForCausalLM", LATENT),
    "mamba": ("MambaForCausalLM", {"state_size": 4, "num_hidden_layers": 2}),
    "falcon_mamba": ("FalconMambaForCausalLM", {"state_size": 4, "num_hidden_layers": 2}),
    "mamba2": ("Mamba2ForCausalLM", {**SCANNED, "state_size": 8, "num_hidden_layers": 2}),
    "t5": ("T5ForConditionalGeneration", {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}),
    "bart": ("BartForConditionalGeneration", TOWERS),
}
MASKED: Mapping[str, tuple[str, Settings]] = {
    "bert": ("BertForMaskedLM", {}),
    "roberta": ("RobertaForMaskedLM", {}),
    "distilbert": ("DistilBertForMaskedLM", {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48}),
    "electra": ("ElectraForMaskedLM", {"embedding_size": 32}),
    "albert": ("AlbertForMaskedLM", {"embedding_size": 16}),
    "deberta_v2": ("DebertaV2ForMaskedLM", {}),
    "modernbert": ("ModernBertForMaskedLM", {"num_hidden_layers": 4, "local_attention": 4}),
}
PATCHES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "patch_size": 4, "image_size": 16}
STAGES = {"hidden_sizes": [8, 16, 32, 64], "depths": [1, 1, 2, 1], "image_size": 32}
OF_IMAGES: Mapping[str, tuple[str, Settings]] = {
    "vit": ("ViTForImageClassification", {**PATCHES, "intermediate_size": 48}),
    "deit": ("DeiTForImageClassification", {**PATCHES, "intermediate_size": 48}),
    "beit": ("BeitForImageClassification", {**PATCHES, "intermediate_size": 48}),
    "dinov2": ("Dinov2ForImageClassification", PATCHES),
    "convnext": ("ConvNextForImageClassification", STAGES),
    "resnet": ("ResNetForImageClassification", {**STAGES, "embedding_size": 8}),
    "segformer": ("SegformerForImageClassification", {**STAGES, "decoder_hidden_size": 16, "image_size": 64}),
    "swin": (
        "SwinForImageClassification",
        {"embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4, "image_size": 32, "patch_size": 2},
    ),
}
TORCHVISION = {
    "resnet50": 64,
    "mobilenet_v2": 64,
    "mobilenet_v3_small": 64,
    "efficientnet_b0": 64,
    "convnext_tiny": 64,
    "swin_t": 64,
    "densenet121": 64,
    "squeezenet1_1": 64,
    "googlenet": 64,
}


class Classified(nn.Module):
    """A classifier with its loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        found = self.model(x)
        logits = found if isinstance(found, Tensor) else found[0]
        return F.cross_entropy(logits, labels), logits


class Recurrent(nn.Module):
    """A language model with two recurrent layers."""

    def __init__(self, kind: type[nn.RNNBase], **settings: Any) -> None:
        super().__init__()
        self.table = nn.Embedding(64, 32)
        self.layers = kind(32, 32, 2, batch_first=True, **settings)
        self.head = nn.Linear(64 if self.layers.bidirectional else 32, 64)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        states, _ = self.layers(self.table(tokens))
        return F.cross_entropy(self.head(states).flatten(0, 1), labels.flatten())


class Unet(nn.Module):
    """A U-Net with two levels. One is upsampled by a transposed convolution, the other by bilinear interpolation."""

    def __init__(self) -> None:
        super().__init__()
        self.down_1, self.down_2, self.middle = _two(3, 8), _two(8, 16), _two(16, 32)
        self.up_2, self.join_2 = nn.ConvTranspose2d(32, 16, 2, 2), _two(32, 16)
        self.up_1, self.join_1 = nn.Upsample(scale_factor=2, mode="bilinear"), _two(24, 8)
        self.out = nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        first = self.down_1(x)
        second = self.down_2(F.max_pool2d(first, 2))
        y = self.middle(F.max_pool2d(second, 2))
        y = self.join_2(torch.cat([self.up_2(y), second], 1))
        y = self.join_1(torch.cat([self.up_1(y), first], 1))
        return F.cross_entropy(self.out(y), labels)


def _two(given: int, made: int) -> nn.Sequential:
    parts = [nn.Conv2d(given, made, 3, padding=1), nn.BatchNorm2d(made), nn.ReLU()]
    return nn.Sequential(*parts, nn.Conv2d(made, made, 3, padding=1), nn.BatchNorm2d(made), nn.ReLU())


def words() -> dict[str, Tensor]:
    tokens = torch.randint(3, 60, (2, 8))
    return {"tokens": tokens, "labels": tokens.clone()}


OWN: Mapping[str, Callable[[], tuple[nn.Module, dict[str, Tensor]]]] = {
    "lstm": lambda: (Recurrent(nn.LSTM, dropout=0.1), words()),
    "gru": lambda: (Recurrent(nn.GRU), words()),
    "lstm_both_ways": lambda: (Recurrent(nn.LSTM, bidirectional=True), words()),
    "unet": lambda: (Unet(), {"x": torch.randn(2, 3, 16, 16), "labels": torch.randint(4, (2, 16, 16))}),
}
EVERY = [*CAUSAL, *MASKED, *OF_IMAGES, *(f"torchvision_{name}" for name in TORCHVISION), *OWN]


def factory(name: str) -> tuple[nn.Module, dict[str, Tensor]]:
    """A small model of a library with example inputs."""
    torch.manual_seed(0)
    if name in OWN:
        return OWN[name]()
    if name.startswith("torchvision_"):
        return _of_torchvision(name.removeprefix("torchvision_"))
    import transformers

    of, settings = {**CAUSAL, **MASKED, **OF_IMAGES}[name]
    kind = getattr(transformers, of)
    if name in OF_IMAGES:
        module = kind(kind.config_class(**settings, num_labels=8))
        size = settings["image_size"]
        return module, {"pixel_values": torch.randn(8, 3, size, size), "labels": torch.randint(8, (8,))}
    ends = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    config = kind.config_class(**{**SMALL, **FEED, **ends, **settings})
    config.use_cache, config.decoder_start_token_id = False, 0
    tokens = torch.randint(3, 60, (2, 8))
    given = {"input_ids": tokens, "labels": tokens.clone()}
    if name in MASKED:
        given["attention_mask"] = torch.ones_like(tokens)
        given["attention_mask"][1, -2:] = 0
    return kind(config), given


def _of_torchvision(name: str) -> tuple[nn.Module, dict[str, Tensor]]:
    import torchvision

    settings = {"aux_logits": False, "init_weights": False} if name == "googlenet" else {}
    module = torchvision.models.get_model(name, weights=None, num_classes=8, **settings)
    size = TORCHVISION[name]
    return Classified(module), {"x": torch.randn(4, 3, size, size), "labels": torch.randint(8, (4,))}


def declare_operators() -> None:
    """Declares torchvision's operators. Its wheels are for CUDA, so its library cannot be loaded with a CPU build of
    torch.
    """
    for operator in ("nms(Tensor a, Tensor b, float c) -> Tensor", "qnms(Tensor a, Tensor b, float c) -> Tensor"):
        if find_spec("torchvision") and not hasattr(torch.ops.torchvision, operator.partition("(")[0]):
            LIBRARY.define(operator)


LIBRARY = torch.library.Library("torchvision", "FRAGMENT")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--models", nargs="*", default=EVERY, choices=EVERY, metavar="NAME", help="these alone: others keep their rows"
    )
    parser.add_argument("--check", action="store_true", help="check programs of every model on two ranks")
    options = parser.parse_args()
    torch.set_num_threads(1)
    declare_operators()
    rows = {} if options.models == EVERY else json.loads(FILE.read_text())["cases"]
    for name in options.models:
        rows[name] = imported(name, options.check)
        print(name, rows[name], flush=True)
        equal = sum("gradient" in row for row in rows.values())
        checked = sum(all(row["checked"].values()) for row in rows.values() if "checked" in row)
        write_rows(
            FILE,
            "python bench/import_models.py --check",
            rows,
            {"models": len(rows), "equal": equal, "checked": checked},
        )


def imported(name: str, check: bool) -> dict[str, Any]:
    """The row of one import: time, size and errors, or why it was refused."""
    setattr(sys.modules[__name__], f"make_{name}", lambda: factory(name))
    sys.modules["import_models"] = sys.modules[__name__]
    begun = time.perf_counter()
    try:
        found = import_module(f"import_models:make_{name}", name)
    except InputError as error:
        return {"refused": f"{error.diagnostic.code}: {error.diagnostic.message}"}
    assert found.verified is not None
    row = {
        "seconds": round(time.perf_counter() - begun, 1),
        "lines": found.files[f"{name}.udl"].count("\n"),
        "statements": found.statements,
        "sizes": list(found.sizes.known),
        "loss": found.verified.loss,
        "gradient": found.verified.gradient,
    }
    return {**row, "checked": checked(found, name)} if check else row


def checked(found: ImportedModel, name: str) -> dict[str, bool]:
    """Whether the program of each plan for two ranks equals the model on one device."""
    with TemporaryDirectory() as folder, redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        path, out = Path(folder) / f"{name}.udl", str(Path(folder) / "out")
        path.write_text(found.files[path.name])
        return {
            plan: run([str(path), "-o", out, "--devices", "2", "--strategy", plan, "--force"]) == 0
            and run(["check", out]) == 0
            for plan in PLANS
        }


if __name__ == "__main__":
    main()
