"""Registers, shared memory and spills of every kernel of the examples, compiled for GPUs on a machine without one:
`python bench/compile_kernels.py`.

Each example is compiled for one device with `--kernels triton`, at its full size. Its kernels and the optimizer's are
then compiled ahead of time for sm_80, sm_90 and gfx942, with the blocks and warps of the program's launches. Equal
kernels are compiled once. A spill is a register that a thread has to keep in memory.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from measure import RESULTS, write_results

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.kernels.contraction_choice import ContractionChoice
from unity_dsl.emit.kernels.kernel_file import kernel_file_text
from unity_dsl.emit.kernels.kernel_text import KernelText
from unity_dsl.emit.plan_file import TRITON
from unity_dsl.emit.program_text import write_down
from unity_dsl.emit.train_files import render_optimizer
from unity_dsl.machine.machine import load_machine
from unity_dsl.resources import folder

TARGETS = {"sm_80": ("cuda", 80, 32), "sm_90": ("cuda", 90, 32), "gfx942": ("hip", "gfx942", 64)}
TYPES: Mapping[str, str] = {"bf16": "bfloat16", "fp32": "float32"}
"""Triton's types of floats in memory, by their names in kernel signatures."""
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
EXAMPLES = tuple(path.stem for path in sorted(folder("examples").glob("*.udl")))


def kernels_of(example: str, preset: str | None) -> tuple[str, dict[str, KernelText]]:
    """The text of kernels.py, and its kernels by name."""
    model = folder("examples") / f"{example}.udl"
    request = Request(model, preset=preset, machine="dgx-h100", strategy="single", kernels=TRITON)
    found = compile_model(request)
    choice = ContractionChoice(load_machine("dgx-h100"))
    calls = write_down(found.plan, found.library, kernels=TRITON, contractions=choice).program.kernels
    assert calls is not None
    operators = list(calls.known.values())
    kernels = {kernel.name: kernel for operator in operators for kernel in operator.fused.kernels}
    kernels |= {added.name: added for kernel in kernels.values() if (added := kernel.adds_parts) is not None}
    return kernel_file_text(example, operators), kernels


def optimizer_kernels(dtype: str) -> tuple[str, dict[str, KernelText]]:
    """The text of optimizer.py, and its kernel for parameters of a type."""
    text = render_optimizer()
    (chunk, block, warps) = map(int, re.findall(r"^CHUNK, BLOCK, WARPS = (\d+), (\d+), (\d+)", text, re.MULTILINE)[0])
    loads, integers = ("addresses", "lengths", "chunks", "factor", "numbers"), ("addresses", "lengths", "chunks")
    blocks = (("CHUNK", chunk), ("BLOCK", block), ("ALIGNED", 1))
    wide = ("factor", "numbers")
    made = KernelText("adamw_kernel", loads, (), (), integers, (), False, frozenset(), (1,), blocks, warps, ())
    return text, {made.name: replace(made, wide=wide)}


def compiled(path: Path, kernels: Mapping[str, KernelText], dtype: str) -> Iterator[dict[str, Any]]:
    """Registers, spills, shared memory and compile seconds of each kernel on each target. Floats in memory are of type
    `dtype`.
    """
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    for name, kernel in kernels.items():
        function = getattr(module, name)
        constants = {**dict(kernel.blocks), "T": tl.float32}
        constants |= {"REAL": getattr(tl, TYPES[dtype])} if "REAL" in function.arg_names else {}
        signature = {
            key: "constexpr" if key in constants else pointer_type(key, kernel, dtype) for key in function.arg_names
        }
        # Torch aligns allocations to 16 bytes, which Triton detects at launch.
        pointers = [number for number, key in enumerate(function.arg_names) if key.endswith("_ptr")]
        aligned = {(number,): [["tt.divisibility", 16]] for number in pointers}
        for target, parts in TARGETS.items():
            begun = perf_counter()
            options = {"num_warps": kernel.warps}
            source = ASTSource(function, signature, constants, aligned)
            made = triton.compile(source, target=GPUTarget(*parts), options=options)
            seconds = perf_counter() - begun
            taken = nvidia_usage(made.asm["ptx"]) if "ptx" in made.asm else amd_usage(made.asm["amdgcn"])
            yield {"kernel": name, "target": target, **taken, "shared": made.metadata.shared, "seconds": seconds}


def pointer_type(name: str, kernel: KernelText, dtype: str) -> str:
    if not name.endswith("_ptr"):
        return "i64"
    tensor = name.removesuffix("_ptr")
    if tensor in kernel.integers:
        return "*i64"
    return "*fp32" if tensor in (*dict(kernel.terms), *kernel.wide) else f"*{dtype}"


def nvidia_usage(ptx: str) -> dict[str, int]:
    """Registers and spilled bytes of a kernel, from the output of the ptxas that comes with Triton."""
    import triton

    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    ptxas = next(tool for tool in (tools / "ptxas-blackwell", tools / "ptxas") if tool.exists())
    (arch,) = re.findall(r"^\.target (sm_\w+)", ptx, re.MULTILINE)
    with TemporaryDirectory() as made:
        source = Path(made) / "kernel.ptx"
        source.write_text(ptx)
        command = [str(ptxas), "-v", f"--gpu-name={arch}", str(source), "-o", str(source.with_suffix(".cubin"))]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    spills = [int(stores) + int(loads) for stores, loads in SPILLS.findall(text)]
    (registers,) = re.findall(r"Used (\d+) registers", text)
    return {"registers": int(registers), "spills": sum(spills)}


def amd_usage(text: str) -> dict[str, int]:
    """Vector registers and spilled registers of a kernel, from the metadata in its assembly."""
    found = {key: int(value) for key, value in re.findall(r"\.(vgpr_count|vgpr_spill_count):\s+(\d+)", text)}
    return {"registers": found["vgpr_count"], "spills": found["vgpr_spill_count"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--examples", nargs="+", default=EXAMPLES, choices=EXAMPLES, metavar="NAME", help="whose rows are made again"
    )
    parser.add_argument("--preset", help="of the examples, instead of their full sizes")
    parser.add_argument("--dry-run", action="store_true", help="print only, and write no results")
    options = parser.parse_args()
    if os.environ.get("TRITON_INTERPRET") == "1":
        sys.exit("TRITON_INTERPRET is set: the interpreter compiles nothing")

    found: list[dict[str, Any]] = []
    known: set[str] = set()
    with TemporaryDirectory() as made:
        for example in options.examples:
            text, kernels = kernels_of(example, options.preset)
            bodies = {name: body_of(kernel) for name, kernel in kernels.items()}
            fresh = {name: kernel for name, kernel in kernels.items() if bodies[name] not in known}
            known |= set(bodies.values())
            path = Path(made) / f"kernels_of_{example}.py"
            path.write_text(text)
            found += [{"example": example, **row} for row in compiled(path, fresh, "bf16")]
            print(f"{example}: {len(kernels)} kernels, {len(fresh)} new", flush=True)
        for dtype in TYPES:
            text, kernels = optimizer_kernels(dtype)
            path = Path(made) / f"optimizer_{dtype}.py"
            path.write_text(text)
            found += [{"example": f"optimizer, {dtype}", **row} for row in compiled(path, kernels, dtype)]
    if set(options.examples) < set(EXAMPLES) and not options.dry_run:
        found = with_others(found)
    spilled = [row for row in found if row["spills"]]
    summary = {
        target: {
            "kernels": sum(row["target"] == target for row in found),
            "spilling": sum(row["target"] == target for row in spilled),
            "most_registers": max((row["registers"] for row in found if row["target"] == target), default=0),
            "most_shared_bytes": max((row["shared"] for row in found if row["target"] == target), default=0),
        }
        for target in TARGETS
    }
    for target, numbers in summary.items():
        print(f"{target}: {', '.join(f'{value} {key}' for key, value in numbers.items())}")
    for row in spilled:
        unit = "registers" if row["target"] == "gfx942" else "bytes"
        print(f"spills: {row['example']} {row['kernel']} on {row['target']}, {row['spills']} {unit}")
    if not options.dry_run:
        command = "python bench/compile_kernels.py"
        write_results("compile_kernels", command, {"summary": summary, "kernels": [without_time(row) for row in found]})


def with_others(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of the last run, with those of the given examples replaced."""
    rows = json.loads((RESULTS / "compile_kernels.json").read_text())["seconds"]["kernels"]
    again = {row["example"] for row in found}
    return [*(row for row in rows if row["example"] not in again), *found]


def body_of(kernel: KernelText) -> str:
    return "\n".join([str((kernel.blocks, kernel.warps)), *kernel.lines])


def without_time(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "seconds"}


if __name__ == "__main__":
    main()
