"""Small, untrained models of transformers, imported unchanged and compared with themselves; their programs on two
ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from unity_dsl.cli import run
from unity_dsl.importer.model_import import ImportedModel, imported_model

transformers = pytest.importorskip("transformers", reason="the package transformers is not installed")

SMALL: Mapping[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 32,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
SHARED = {"num_key_value_heads": 2}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "head_dim": 8}
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
JAMBA = {
    **SHARED,
    "mamba_d_state": 4,
    "num_experts": 4,
    "attn_layer_period": 2,
    "attn_layer_offset": 1,
    "expert_layer_period": 2,
    "expert_layer_offset": 1,
}
ZAMBA = {
    "num_key_value_heads": 4,
    "mamba_d_state": 4,
    "n_mamba_heads": 2,
    "attention_head_dim": 16,
    "layers_block_type": ["hybrid", "hybrid"],
}
SCAN = {"state_size": 4, "num_hidden_layers": 1}
CASES: Mapping[str, tuple[str, Mapping[str, Any], tuple[str, ...]]] = {
    "dropout and a mask": ("BertForMaskedLM", {}, ("masked_fill(", "dropout(")),
    "a bias of positions": ("T5ForConditionalGeneration", {"d_model": 32, "d_kv": 8, "d_ff": 48}, ("causal_mask(",)),
    "windows": ("Gemma3ForCausalLM", {**SHARED, "head_dim": 8, "sliding_window": 4}, ("window_attention(", "window=4")),
    "slopes": ("BloomForCausalLM", {"n_layer": 2, "n_head": 4}, ("softmax(",)),
    "pairs turned": ("GPTJForCausalLM", {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4}, ("rope(",)),
    "experts": ("MixtralForCausalLM", {**SHARED, "num_local_experts": 4}, ("silu_experts[s=8](", "top_k(")),
    "experts of groups": ("DeepseekV3ForCausalLM", LATENT, ("silu_experts[s=8](", "one_hot(")),
    "experts and norms": ("Qwen3MoeForCausalLM", {**SHARED, **EXPERTS}, ("silu_experts[s=8](", "repeat 2 as")),
    "experts with biases": (
        "GptOssForCausalLM",
        {**SHARED, "num_local_experts": 4, "head_dim": 8, "layer_types": ["sliding_attention", "full_attention"]},
        ("clamped_experts[s=8, limit=7.0, alpha=1.702](", "sigmoid(scale("),
    ),
    "a scan": (
        "Mamba2ForCausalLM",
        {**SCAN, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 4},
        ("cumsum(",),
    ),
    "a loop over positions": (
        "MambaForCausalLM",
        {"state_size": 4, "use_conv_bias": False},
        ("selective_scan[n=4](", "scan x_t in", "repeat 2 as"),
    ),
    "a loop and a mask": ("FalconMambaForCausalLM", {"state_size": 4}, ("selective_scan[n=4](", "repeat 2 as")),
    "loops, attention and experts": ("JambaForCausalLM", JAMBA, ("selective_scan[n=4](", "silu_experts[s=8](")),
    "loops of several heads": ("ZambaForCausalLM", ZAMBA, ("selective_scan[n=4](",)),
    "two towers": ("BartForConditionalGeneration", {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1}, ()),
}


def small(case: str, length: int = 8) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """A model and its example inputs: two rows of `length` words."""
    torch.manual_seed(0)
    kind, settings, _ = CASES[case]
    model = getattr(transformers, kind)
    config = model.config_class(**{**SMALL, **settings})
    config.use_cache = False
    config.decoder_start_token_id = 0
    words = torch.randint(3, 60, (2, length))
    batch = {"input_ids": words, "labels": words.clone()}
    if "mask" in case:
        batch["attention_mask"] = torch.ones_like(words)
        batch["attention_mask"][1, -2:] = 0
    return model(config).train(), batch


def imported(case: str, verified: bool = True) -> ImportedModel:
    module, batch = small(case)
    return imported_model(module, (), batch, "small", verified=verified)


@pytest.mark.parametrize("case", CASES)
def test_a_model_equals_itself(case: str) -> None:
    """Loss and every gradient are equal in float64 without dropout, else the import refuses. Parts are recognised."""
    found = imported(case)
    assert found.verified is not None and found.verified.ok
    for words in CASES[case][2]:
        assert words in found.files["small.udl"], words


def test_the_text_of_a_loop_does_not_grow_with_the_sequence() -> None:
    lines = []
    for length in (8, 64):
        module, batch = small("a loop over positions", length)
        lines.append(imported_model(module, (), batch, "m", verified=False).files["m.udl"].splitlines())
    assert len(lines[0]) == len(lines[1])


@pytest.mark.parametrize("strategy", ["auto", "random:1"])
@pytest.mark.parametrize("case", ["a bias of positions", "a loop over positions", "experts", "windows"])
def test_its_program_on_two_ranks_equals_the_model(
    case: str, strategy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "small.udl"
    path.write_text(imported(case, verified=False).files["small.udl"])
    out = str(tmp_path / "out")
    assert run([str(path), "-o", out, "--devices", "2", "--strategy", strategy]) == 0
    assert run(["check", out]) == 0
    assert "the program on 2 ranks equals its model" in capsys.readouterr().out
