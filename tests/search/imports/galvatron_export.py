"""Galvatron's export format, for models with equal layers."""

from __future__ import annotations

from typing import Any


def config(layers: int = 4, *, batch: int = 16, chunks: int = 2, **changed: Any) -> dict[str, Any]:
    """The plan of Galvatron's test of data parallelism (four layers, 16 examples as two micro-batches),
    with changes.
    """
    ones, zeros = ",".join("1" * layers), ",".join("0" * layers)
    return {
        "pp_deg": 1,
        "tp_sizes_enc": ones,
        "tp_consecutive_flags": ones,
        "cp_sizes_enc": ones,
        "dp_types_enc": zeros,
        "use_sp": zeros,
        "checkpoint": zeros,
        "global_bsz": batch,
        "chunks": chunks,
        "pp_division": str(layers),
        "pipeline_type": "pipedream_flush",
        "default_dp_type": "zero2",
        "vtp": 1,
        "vsp": 0,
    } | changed
