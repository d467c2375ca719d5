"""The passes of a plan as data: their settings in plan.json and in what commands print as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..graph.passes import Passes
from .json_fields import as_count, as_list, as_table, as_text

ALWAYS = ("recomputed", "regathered")
"""Settings that plan.json always has. It has others only if they differ from the defaults."""


def describe_passes(passes: Passes) -> dict[str, Any]:
    """All settings of the passes, by name."""
    return {
        "recomputed": sorted(passes.recomputed),
        "offloaded": sorted(passes.offloaded),
        "kept_iterations": dict(sorted(passes.kept_iterations.items())),
        "interleaved": [list(names) for names in passes.interleaved],
        "skew": passes.skew,
        "deferred_gradients": passes.deferred_gradients,
        "chunks": passes.chunks,
        "bucket_mib": passes.bucket_mib,
        "regathered": sorted(passes.regathered),
    }


def written_passes(passes: Passes) -> dict[str, Any]:
    """The settings that plan.json records."""
    usual = describe_passes(Passes())
    return {name: found for name, found in describe_passes(passes).items() if name in ALWAYS or found != usual[name]}


def read_passes(top: Mapping[str, Any]) -> Passes:
    """The passes that plan.json records. Raises Garbled for values of a wrong type."""
    usual, kept = Passes(), as_table(top.get("kept_iterations", {}), "kept_iterations")
    return Passes(
        regathered=frozenset(_texts(top.get("regathered", []), "regathered")),
        recomputed=frozenset(_texts(top.get("recomputed", []), "recomputed")),
        offloaded=frozenset(_texts(top.get("offloaded", []), "offloaded")),
        kept_iterations={name: as_count(count, f"kept_iterations.{name}") for name, count in kept.items()},
        interleaved=tuple(_texts(names, "interleaved") for names in as_list(top.get("interleaved", []), "interleaved")),
        skew=as_count(top.get("skew", usual.skew), "skew"),
        deferred_gradients=top.get("deferred_gradients", False) is True,
        chunks=as_count(top.get("chunks", usual.chunks), "chunks"),
        bucket_mib=as_count(top.get("bucket_mib", usual.bucket_mib), "bucket_mib", least=0),
    )


def _texts(value: Any, where: str) -> tuple[str, ...]:
    return tuple(as_text(text, where) for text in as_list(value, where))
