"""Cases in which choosing rewrites and layouts jointly wins: `python bench/mechanisms.py`.

Each case is a model with two equivalent forms, one of which is faster on one device and the other on many. Recorded are
the simulated steps of both forms on one device and on many, each with its best layouts and without rules, and the step
of `auto` with the shipped rules, with the rules that it used. `in turns` is the sequential choice: the form that is
faster on one device, with its best layouts on many. In the last case the alternatives are a plan in which all operators
run on all devices, and one in which branches of the model run on some of the devices.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import ROOT, write_rows

from unity_dsl.compilation import Compilation, Request, compile_model
from unity_dsl.graph.model_graph import build_model
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.mesh import all_meshes
from unity_dsl.rules.sharding_theorems import ShardingTheorems
from unity_dsl.search.expected_exposure import expected_exposure
from unity_dsl.search.plan_search import search
from unity_dsl.simulation.step_tasks import simulate_step
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.read import read_source

MODELS = Path(__file__).parent / "mechanisms"
FILE = ROOT / "bench" / "results" / "mechanisms.json"
MACHINE = "dgx-h100"

Row = dict[str, Any]


@dataclass(frozen=True)
class Mechanism:
    """A model in which the text `written` may be replaced by `other`, and the number of devices where that matters."""

    model: str
    why: str
    written: str
    other: str
    devices: int


MECHANISMS = (
    Mechanism(
        "association",
        "an order of products is chosen by what has to be sent: of either the scores or the states",
        "matmul(matmul(q, k), v)",
        "matmul(q, matmul(k, v))",
        64,
    ),
    Mechanism(
        "bias",
        "a bias is added within a product that is divided by columns, and after the sum over devices of one by rows",
        "linear(a, down) + down_bias",
        "linear_bias(a, down, down_bias)",
        8,
    ),
    Mechanism(
        "attention",
        "attention is one call where its heads are divided, and several operators where the sequence has to be",
        "matmul(softmax(causal_mask(matmul(root_scale(q), k))), q)",
        "causal_attention(q, q, q)",
        8,
    ),
    Mechanism(
        "gain",
        "a factor moves from a weight, of which all have to scale their own, to what is divided among them",
        "linear(h, w * gain)",
        "linear(h * gain, w)",
        64,
    ),
)
BRANCHES = ("candle_uno", {"b": 32}, 8)
"""A model, its settings and devices."""


def main() -> None:
    rows = {mechanism.model: measured(mechanism) for mechanism in MECHANISMS}
    rows["branches"] = branched(*BRANCHES)
    write_rows(FILE, "python bench/mechanisms.py", rows, {})
    for name, row in rows.items():
        print(describe(name, row))


def measured(mechanism: Mechanism) -> Row:
    """Milliseconds of both forms and of `auto`, on one device and on many. Raises ValueError if the model lacks the
    text.
    """
    text = (MODELS / f"{mechanism.model}.udl").read_text()
    if mechanism.written not in text:
        raise ValueError(f"{mechanism.model}.udl does not have {mechanism.written}")
    texts = {"written": text, "other": text.replace(mechanism.written, mechanism.other)}
    row: Row = {"why": mechanism.why, "ways": {"written": mechanism.written, "other": mechanism.other}}
    for devices in (1, mechanism.devices):
        found = {way: compiled(one, mechanism.model, devices, rules=False) for way, one in texts.items()}
        joint = compiled(text, mechanism.model, devices, rules=True)
        row[f"{devices}"] = {way: milliseconds(one) for way, one in found.items()} | {
            "auto": milliseconds(joint),
            "rules": [used.rule for used in joint.plan.rules],
        }
    alone, many = row["1"], row[f"{mechanism.devices}"]
    row["in turns"] = many[min(texts, key=alone.__getitem__)]
    row["auto"] = many["auto"]
    return row


def compiled(text: str, name: str, devices: int, *, rules: bool) -> Compilation:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.udl"
        path.write_text(text)
        return compile_model(Request(path, machine=MACHINE, devices=devices, shipped_rules=rules))


def milliseconds(found: Compilation) -> float:
    return round(1e3 * found.plan.seconds, 4)


def branched(example: str, settings: Mapping[str, int], devices: int) -> Row:
    """Simulated milliseconds of the cheapest plan without branches, and of the plan of `auto`."""
    path = ROOT / "examples" / f"{example}.udl"
    library, machine = load_library(), load_machine(MACHINE)
    model, meshes = build_model(parse_model(read_source(path)), library, settings), all_meshes(machine, devices)
    priced = machine.exposing(expected_exposure(machine, model, meshes[0]))
    plain = search(model, meshes, priced, library, theorems=ShardingTheorems(library))
    auto = compile_model(Request(path, dict(settings), machine=MACHINE, devices=devices)).plan
    return {
        "why": "branches of a model run on disjoint groups of devices, each of which launches fewer kernels",
        "model": f"{example} {' '.join(f'{name}={value}' for name, value in settings.items())} on {devices}",
        "in turns": round(1e3 * simulate_step(plain, machine, library).seconds, 4),
        "auto": round(1e3 * auto.seconds, 4),
        "notes": [*notes_of_branches(auto.notes)],
    }


def notes_of_branches(notes: tuple[str, ...]) -> Iterator[str]:
    return (note for note in notes if "branch" in note or "devices compute" in note)


def describe(name: str, row: Row) -> str:
    return f"{name}: {row['auto']} ms, {row['in turns'] / row['auto']:.3f} times that in turns: {row['why']}"


if __name__ == "__main__":
    main()
