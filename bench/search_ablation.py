"""Ablation of each move, pass and constant of the search: `python bench/search_ablation.py`.

Cells are planned with one move or pass switched off at a time. Some cells are also planned with each constant of
`search/constants.py` doubled and halved; for a factor between 1 and 2, the part above 1 is doubled and halved. A row
has for each cell the plan's step, whether it fits, the evaluations and the processor seconds. A cell for which no
function ran that reads the constant copies its row of the unchanged search. An interrupted run resumes. `--only WORD …`
runs some switches; run `as it is`, the unchanged search, before those of constants. `--summary` compares with it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache, partial
from math import exp, log
from pathlib import Path
from types import CodeType
from typing import Any
from unittest.mock import patch

from measure import RESULTS, rows_of, write_rows
from search_loop import planned

from unity_dsl.search import constants, improve
from unity_dsl.search.moves import edits, passes

FILE = RESULTS / "search_ablation.json"
COMMAND = "python bench/search_ablation.py"
KEPT = ("step", "fits", "evaluations", "processor_s")
AS_IT_IS = "as it is"
CONSTANT = "constant "
"""Prefix of the switches that change a constant. Upper-case names are constants of the module, others fields of
`Effort`.
"""
Batches = Mapping[str, int]
"""Number of examples in the batch of each cell."""
# fmt: off
SMALL = [
    "dlrm_unity summit 24", "dlrm_unity dgx-h100 512", "mlp_unity dgx-h100 64", "mlp summit 96", "mlp dgx-h100 512",
    "bert_unity dgx-h100 8", "bert_unity summit 24", "bert_unity summit 192", "candle_uno_unity dgx-h100 8",
    "candle_uno_unity summit 24", "candle_uno dgx-h100 8", "candle_uno summit 6", "resnext50_unity summit 6",
    "resnext50_unity dgx-h100 8", "dlrm dgx-h100 8", "dlrm summit 24", "lstm_lm dgx-h100 8", "mlp_unity dgx-h100 512",
    "bert_large dgx-h100 8", "mixtral_8x7b dgx-h100 8",
]
"""Cells on which all constants are changed."""
LIMITED = ["dlrm summit 6", "llama3_70b dgx-h100 8", "gpt3_175b dgx-h100 8", "bert_large summit 6"]
"""Memory-limited cells, for which constants are changed as well that few of the `SMALL` cells read."""
FURTHER = [
    "bert_unity dgx-h100 64", "candle_uno summit 24", "dlrm summit 96", "lstm_lm summit 6",
    "resnext50_unity dgx-h100 64", "resnext50 dgx-h100 8", "inception_v3_unity summit 6",
    "lstm_lm summit 192", "gpt2_xl dgx-h100 8", "gpt2_xl summit 24", "llama3_8b summit 96",
]
# fmt: on
"""Further cells on which moves and passes are switched off."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[""])
    parser.add_argument("--processor", type=int, default=0)
    parser.add_argument("--output", type=Path, default=FILE)
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    os.sched_setaffinity(0, {options.processor})
    batches = {cell: row["batch"] for cell, row in rows_of(RESULTS / "search.json").items()}
    rows = rows_of(options.output)
    switches = {AS_IT_IS: ExitStack, **moves_and_passes(), **doubled_and_halved()}
    for name, switch in () if options.summary else switches.items():
        if any(word in name for word in options.only):
            row = rows.setdefault(name, {})
            for cell in cells_of(name, batches):
                if cell not in row:
                    may_differ = reads(cell, name, batches)
                    row[cell] = planned_with(switch, cell, batches[cell]) if may_differ else rows[AS_IT_IS][cell]
                    print(name, cell, row[cell], flush=True)
                    write_rows(options.output, COMMAND, rows)
    found = summary(rows)
    write_rows(options.output, COMMAND, rows, found)
    print(json.dumps(found, indent=1))


Switch = Callable[[], Any]
"""Makes a context in which a part of the search is switched off or a constant is changed."""


def moves_and_passes() -> dict[str, Switch]:
    """The switches by name, each of which turns off a move, a pass or another part of the search."""

    def without(one: Any) -> Switch:
        kept = tuple(propose for propose in edits.EDITS if propose is not one)
        return partial(patch.object, edits, "EDITS", kept)

    def no_start(part: str) -> Switch:
        return partial(patch.object, improve, part, lambda *_: False)

    def switched(kept: Callable[[Any, Any], bool]) -> Switch:
        """Restricts the tried pass settings to those for which `kept(before, after)` holds."""
        given = passes._switched

        def some(plan: Any, evaluator: Any) -> Iterator[Any]:
            yield from (one for one in given(plan, evaluator) if kept(plan.passes, one[1].passes))

        return partial(patch.object, passes, "_switched", some)

    moves = {f"move {one.__name__.removeprefix('propose_')}": without(one) for one in edits.EDITS}
    usual = improve.Search._exposures
    search = improve.Search
    return {
        **moves,
        "points without branches, once others have": partial(
            patch.object, search, "_below", lambda self, point: self.below
        ),
        "move exposures": partial(patch.object, search, "_settle", lambda *_: None),
        "move exposures in usual buckets, of one kind": partial(
            patch.object, search, "_exposures", lambda *given, first: usual(*given, first=False)
        ),
        "start interleaved": no_start("interleavable_repeats"),
        "start on other meshes": partial(patch.object, search, "_from", _first_alone),
        "pass interleaving": switched(lambda before, after: bool(before.interleaved) or not after.interleaved),
        "pass skew": switched(lambda before, after: before.skew == after.skew),
        "pass deferred gradients": switched(lambda _, after: not after.deferred_gradients),
        "pass decomposed matmul": switched(lambda _, after: after.chunks == 1),
        "pass smaller buckets": switched(lambda before, after: after.bucket_mib >= before.bucket_mib),
        "pass larger buckets": switched(lambda before, after: after.bucket_mib <= before.bucket_mib),
        "pass offloading": partial(patch.object, improve, "offloaded_where_shorter", lambda plan, *_: plan),
        "passes of the point before": partial(patch.object, improve, "inherited", lambda plan, _: plan),
    }


def _first_alone(search: Any, exposure: Any, move: str, start: Any) -> Any:
    """Replaces `Search._from`: only the first point of a start."""
    return [start(exposure, move)[0]]


def _normal(**changed: int) -> constants.Effort:
    return replace(constants.EFFORTS["normal"], **changed)


def doubled_and_halved() -> dict[str, Switch]:
    """The switches by name, each of which doubles or halves a constant."""
    found: dict[str, Switch] = {}
    for name, value in vars(constants).items():
        if name.isupper() and isinstance(value, int | float):
            for told, times in (("doubled", 2), ("halved", 0.5)):
                other = 1 + (value - 1) * times if isinstance(value, float) and 1 < value < 2 else value * times
                changed = max(1, round(other)) if isinstance(value, int) else other
                if changed != value:
                    found[f"{CONSTANT}{name} {told}"] = partial(_set, name, changed)
    for field in ("evaluations", "chains", "meshes"):
        for told, times in (("doubled", 2), ("halved", 0.5)):
            number = max(1, round(getattr(_normal(), field) * times))
            switch = partial(patch.dict, constants.EFFORTS, normal=_normal(**{field: number}))
            found[f"{CONSTANT}{field} {told}"] = switch
    return found


def cells_of(name: str, batches: Batches) -> list[str]:
    """The cells that are planned with a switch."""
    if not name.startswith(CONSTANT):
        return [*SMALL, *LIMITED, *FURTHER]
    few = sum(reads(cell, name, batches) for cell in SMALL) < len(LIMITED)
    return [*SMALL, *LIMITED] if few else SMALL


def reads(cell: str, name: str, batches: Batches) -> bool:
    """Whether a switch may change the plan of a cell. A constant that no executed function reads cannot change it."""
    constant = name.removeprefix(CONSTANT).partition(" ")[0]
    return not constant.isupper() or constant in read_by(cell, batches[cell])


def planned_with(switch: Switch, cell: str, batch: int) -> list[Any]:
    """The row of a cell under a switch."""
    with switch():
        found = planned(cell, batch, "")
    return [found[kept] for kept in KEPT]


@cache
def read_by(cell: str, batch: int) -> frozenset[str]:
    """All names that the search's functions which run while a cell is planned refer to, including constants."""
    ran: set[CodeType] = set()
    sys.setprofile(lambda frame, event, _: ran.add(frame.f_code) if event == "call" else None)
    try:
        planned(cell, batch, "")
    finally:
        sys.setprofile(None)
    return frozenset(name for code in ran if f"{os.sep}search{os.sep}" in code.co_filename for name in code.co_names)


@contextmanager
def _set(name: str, value: float) -> Iterator[None]:
    """Sets a constant in every module of the search that imported it."""
    with ExitStack() as stack:
        for module in [module for path, module in sys.modules.items() if path.startswith("unity_dsl.search")]:
            if name in vars(module):
                stack.enter_context(patch.object(module, name, value))
        yield


def summary(rows: dict[str, dict[str, list[Any]]]) -> dict[str, Any]:
    """For each switch, its ratios to the unchanged search over the cells in which both plans fit or neither does: the
    geometric mean of the steps, the steps that differ by more than 0.5 %, evaluations and processor seconds.
    """
    found, given = {}, rows.get(AS_IT_IS, {})
    for name, row in rows.items():
        cells = [cell for cell in row if cell in given and row[cell][1] == given[cell][1]]
        if name == AS_IT_IS or not cells:
            continue
        ratios = {cell: row[cell][0] / given[cell][0] for cell in cells}
        differing = {cell: round(ratio, 4) for cell, ratio in ratios.items() if abs(ratio - 1) > 0.005}
        found[name] = {
            "cells": len(cells),
            "geometric mean": round(exp(sum(map(log, ratios.values())) / len(cells)), 5),
            "differ by more than 0.5 %": differing,
            "evaluations": round(sum(row[cell][2] for cell in cells) / sum(given[cell][2] for cell in cells), 3),
            "processor seconds": round(sum(row[cell][3] for cell in cells) / sum(given[cell][3] for cell in cells), 3),
        }
    return found


if __name__ == "__main__":
    main()
