"""Recorded plans, searched once. Their simulated tasks and emitted programs must not change.

`python -m tests.replay.recorded_plans` searches the plans that are missing, and `NAME…` searches those plans again.
`--write DIR` writes the tasks and programs of all plans. A recorded plan has no texts of the library: these come from
the checkout.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from unity_dsl.compilation import Request, compile_model, shipped_texts
from unity_dsl.emit import plan_file
from unity_dsl.emit.output_folder import render_program
from unity_dsl.emit.plan_file import PlanFile, render_plan_file
from unity_dsl.emit.written_plan import written_plan
from unity_dsl.graph.plan import Plan
from unity_dsl.index.declarations.loading import library_sources
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import machine_source, read_machine
from unity_dsl.simulation.step_tasks import simulate_step
from unity_dsl.simulation.task import Task
from unity_dsl.syntax.read import read_source

ROOT = Path(__file__).parent.parent.parent
PLANS = Path(__file__).parent / "plans"
LEFT_OUT = ("hash", "unity_dsl", "theorems", "declared", "files", "sources", "notes", "warnings")


@dataclass(frozen=True)
class Cell:
    """The request of a recorded plan: an example on a number of devices of a machine, with other options."""

    model: str
    machine: str
    devices: int
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        words = [f"{key}={value}" for key, value in self.options.items() if key not in ("settings",)]
        words += [f"{key}={value}" for key, value in self.options.get("settings", {}).items()]
        text = "-".join((self.model, self.machine, str(self.devices), *words))
        return "".join(letter if letter.isalnum() or letter in "-=_." else "_" for letter in text)

    @property
    def request(self) -> Request:
        own = Path(__file__).parent / f"{self.model}.udl"
        path = own if own.exists() else ROOT / "examples" / own.name
        return Request(path, machine=self.machine, devices=self.devices, time_limit=60, **self.options)


H100, V100 = "dgx-h100", "summit"
CELLS = (
    *(Cell("gpt2", H100, count) for count in (8, 64)),
    *(Cell("gpt2", H100, 8, {"strategy": name}) for name in ("zero", "expert", "random:3")),
    Cell("gpt2", H100, 8, {"micro_batches": 4}),
    Cell("gpt2", H100, 8, {"recompute": "layer"}),
    Cell("gpt2", H100, 8, {"kernels": "triton"}),
    *(Cell("gpt2_xl", V100, count) for count in (6, 24)),
    *(Cell("llama3_8b", H100, count) for count in (8, 64)),
    Cell("llama3_8b", H100, 8, {"strategy": "expert"}),
    Cell("llama3_8b", "h200", 8),
    Cell("llama3_70b", "llama3-cluster", 64),
    *(Cell("mixtral_8x7b", H100, count) for count in (16, 64)),
    Cell("mixtral_8x7b", H100, 16, {"strategy": "expert"}),
    Cell("resnext50", H100, 8),
    Cell("resnext50", H100, 8, {"strategy": "data_parallel"}),
    Cell("resnext50", H100, 8, {"kernels": "triton"}),
    Cell("resnext50_unity", H100, 512),
    Cell("resnext50_unity", V100, 96),
    Cell("inception_v3", H100, 8),
    Cell("inception_v3_unity", V100, 24),
    Cell("dlrm", H100, 8),
    Cell("dlrm_kaggle", H100, 8),
    Cell("dlrm_unity", V100, 24),
    *(Cell("candle_uno", *where) for where in ((V100, 96), (H100, 8))),
    Cell("candle_uno_unity", H100, 64),
    *(Cell("mlp_unity", *where) for where in ((H100, 8), (V100, 6))),
    Cell("xdl_unity", V100, 12),
    Cell("bert_large", H100, 8),
    Cell("bert_large", "dgx-a100", 64),
    Cell("bert_unity", V100, 24),
    *(Cell("vit_l16", where, 8) for where in (H100, "h200")),
    Cell("lstm_lm", H100, 4),
    *(Cell("towers", H100, 4, {"strategy": f"random:{seed}"}) for seed in (1, 2, 8)),
    Cell("towers", H100, 4),
    Cell("llama3_8b", H100, 8, {"micro_batches": 2}),
    Cell("skipnet", "local", 2),
    Cell("digits", "local", 1),
)


def read_plan(cell: Cell) -> tuple[Plan, Library, PlanFile]:
    """The recorded plan of a cell, with the library texts of the checkout."""
    request = cell.request
    texts = {
        "model": read_source(request.model),
        "ops": library_sources(()),
        "machine": machine_source(request.machine),
        "rules": (),
        "fusions": shipped_texts(request.strategy),
    }
    document = json.loads((PLANS / f"{cell.name}.json").read_text())
    document["sources"] = {
        role: [{"name": text.name, "text": text.text} for text in found]
        if isinstance(found, tuple)
        else {"name": found.name, "text": found.text}
        for role, found in texts.items()
    }
    record = plan_file._read(document | {"files": {}, "notes": []})
    plan, library = written_plan(record, PLANS)
    return plan, library, record


def listed_texts(cell: Cell) -> dict[str, str]:
    """The texts to compare, by name: tasks and memory of a step, one task a line, and the program files except
    plan.json.
    """
    plan, library, record = read_plan(cell)
    timeline = simulate_step(plan, read_machine(record.sources.machine), library)
    tasks = timeline.graph.tasks
    files = render_program(plan, library, record.sources, record)
    listed = {
        "tasks": "\n".join(f"{_told(task)}" for task in tasks),
        "memory": "\n".join(f"{task.name} {task.place} {task.allocated:.9g} {task.freed:.9g}" for task in tasks),
    }
    return listed | {name: text for name, text in files.items() if name != plan_file.NAME}


def _told(task: Task) -> str:
    """A task in one line, without its memory."""
    spent = f"{task.seconds:.9g} s, {task.launches} launches, {task.sent:.9g} bytes, limit {task.limit}"
    where = f"{task.channel} of {task.device}, {task.phase.value}, {task.purpose.value}"
    return f"{task.name} {task.place}: {where}, {spent}, {task.traffic}, after {task.after}, reads {task.reads}"


def digests(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: sha256(text.encode()).hexdigest()[:16] for name, text in sorted(texts.items())}


def mechanisms(document: Mapping[str, Any]) -> list[str]:
    """The mechanisms in a recorded plan that affect the order of a step."""
    found = [
        name
        for name in (
            "recomputed",
            "regathered",
            "kept_iterations",
            "interleaved",
            "skew",
            "chunks",
            "deferred_gradients",
            "bucket_mib",
            "rules",
        )
        if document.get(name)
    ]
    found += ["micro_batches"] * (document["micro_batches"]["count"] > 1)
    found += ["kernels"] * (document["request"]["kernels"] != "torch")
    text = json.dumps(document["graph"])
    return found + ["placement"] * ('"@' in text or "@0" in text)


def record(cell: Cell) -> None:
    """Searches a plan and saves it."""
    found = compile_model(cell.request)
    text = render_plan_file(found.plan, found.sources, cell.request, {}, (), (), "")
    document = {key: value for key, value in json.loads(text).items() if key not in LEFT_OUT}
    (PLANS / f"{cell.name}.json").write_text(json.dumps(document, separators=(",", ":")) + "\n")
    print(cell.name, mechanisms(document), flush=True)


def main() -> None:
    if sys.argv[1:2] == ["--write"]:
        for cell in CELLS:
            for name, text in listed_texts(cell).items():
                path = Path(sys.argv[2]) / cell.name / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        return
    PLANS.mkdir(exist_ok=True)
    for cell in CELLS:
        if cell.name in sys.argv[1:] or not (sys.argv[1:] or (PLANS / f"{cell.name}.json").exists()):
            record(cell)


if __name__ == "__main__":
    main()
