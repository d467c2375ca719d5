"""The transformers with operators really divided: at small sizes `auto` divides nothing, and agreement shows nothing.

Pins on activations force the division; each case names the operators that must be divided before agreement counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.output_folder import write_program
from unity_dsl.emit.program_check import check
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.graph.plan import PlannedGraph, PlannedSegment

from .agreement import path_of

HEADS = ("layer.attn.project_1=S3", "layer.attn.scores=S1")
WIDE = {"vocabulary": 30_000, "d": 64}
"""A vocabulary that is worth dividing: otherwise the logits are re-gathered for the loss."""

CASES = [
    ("gpt2", HEADS, {}, {"project", "root_scale", "causal_mask", "softmax", "dropout", "matmul"}),
    ("gpt2", ("layer.mlp.linear_1=S2", "layer.mlp.h=S2"), {}, {"linear", "gelu_tanh"}),
    ("gpt2", ("wte=S0", "logits=S2"), WIDE, {"embedding", "linear", "cross_entropy"}),
    ("bert_large", ("layer.attn.scores=S1",), {}, {"root_scale", "padding_mask", "softmax", "matmul"}),
    ("bert_large", ("token=S0", "token_logits=S2"), WIDE, {"embedding", "linear", "masked_cross_entropy"}),
]


@pytest.mark.parametrize("name, pins, settings, divided", CASES)
def test_a_divided_example_equals_its_model(
    name: str, pins: tuple[str, ...], settings: dict[str, int], divided: set[str], pool: RankPool, tmp_path: Path
) -> None:
    request = Request(model=path_of(name), preset="small", settings=settings, devices=2, pins=pins)
    compiled = compile_model(request)
    assert divided <= set(_divided(compiled.plan.graph))
    write_program(compiled.plan, compiled.library, compiled.sources, request, tmp_path / "out")
    report = check(tmp_path / "out", pool=pool)
    assert report.ok, report


def _divided(graph: PlannedGraph) -> Iterator[str]:
    """The operators of which some device computes only a part."""
    for step in graph.steps:
        if isinstance(step, PlannedSegment):
            for run in step.runs:
                yield from _divided(run.body)
        elif step.typed.divided:
            yield step.node.instance.name
