"""Measurements of ranks when a device runs out of memory."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
import torch

from unity_dsl.index.declarations.loading import load_library
from unity_dsl.profiling import rank_measurements
from unity_dsl.profiling.samples import Sample, streamed_samples


def test_what_a_gpu_has_no_memory_for_takes_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator's result may be far larger than its operands. The other samples of its chunk are measured all the
    same.
    """
    (first, *_), (second, *_) = (
        list(streamed_samples(load_library().operators[name], [4096], "f32")) for name in ("add", "relu")
    )
    run = rank_measurements.sample_run

    def too_large(sample: Sample, *rest: Any) -> Any:
        if sample.instance.name == "add":
            raise torch.OutOfMemoryError("CUDA out of memory")
        return run(sample, *rest)

    monkeypatch.setattr(rank_measurements, "sample_run", too_large)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    assert rank_measurements.measure_samples(0, 1, "cpu", [first], 0.01) == [inf]
    found = rank_measurements.measure_samples(0, 1, "cpu", [first, second], 0.01)
    assert found[0] == inf
    assert 0 < found[1] < 1
