"""Checks and times programs and kernels on a GPU, in at most eight minutes: `python bench/gpu.py --prepare DIR`.

This command writes a folder with programs, kernels and the scripts that measure them. `python DIR/gpu.py` then runs the
phases on a machine that needs only Python, torch and triton. Each phase saves its results. If one fails, the others
still run:

  steps     a training step of six models with torch's operators and with our kernels, each eager and as a CUDA graph,
            and of hand-written modules with the best native calls; losses and gradients are compared with float64
  families  families of kernels against eager calls, torch.compile and the device's ceilings
  curves    matrix products, attention, convolutions, memory, and the host's time by kind of call
  profile   `unityc profile`, so that the simulator's error on each step can be computed
  ranks     programs of two ranks on one GPU through gloo
  compiled  the steps under torch.compile, which takes minutes to compile
  programs  train.py as users start it

A kernel that fell back to torch's operators counts as failed. After each phase all results are written to `gpu.json` in
the folder `--out DIR`. `python bench/gpu_report.py` compares them with the simulator's predictions.
`--cpu` rehearses every phase in Triton's interpreter, in a folder that `--prepare DIR --tiny` has written.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import Any

HERE = Path(__file__).resolve().parent
MANIFEST = "manifest.json"
CARRIED = ("gpu.py", "gpu_timing.py", "gpu_steps.py", "gpu_families.py", "gpu_curves.py", "gpu_ranks.py")
SHARED = ("by_hand.py", "kernel_families.py")
PACKAGES = ("unity_dsl", "lark")
"""Pure Python packages that are copied. The others that `unityc profile` imports (click, jinja2, numpy, scipy) are
expected on the machine beside torch.
"""

MODELS: Mapping[str, Mapping[str, int]] = {
    "gpt2": {"b": 8},
    "llama3_8b": {"b": 2, "s": 2048, "layers": 4},
    "bert_large": {"b": 8},
    "resnext50": {"b": 64},
    "mixtral_8x7b": {"b": 1, "s": 2048, "layers": 2},
    "dlrm": dict.fromkeys((f"rows{number}" for number in (1, 10, 11, 20, 21, 22)), 1_000_000),
}
"""Settings of each model that differ from the example's, so that one GPU also fits the float64 reference."""

KERNELS = ("torch", "triton")
TWO_RANKS = (
    ("gpt2", "zero"), ("gpt2", "data_parallel"), ("llama3_8b", "expert"), ("mixtral_8x7b", "auto"),
    ("resnext50", "data_parallel"),
)  # fmt: skip
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("gpt2_triton", "--cuda-graphs"), ("dlrm_torch", "--cuda-graphs"), ("resnext50_torch",),
    ("gpt2_torch", "--cuda-graphs", "--compile"),
)  # fmt: skip
"""Programs, and the options of their train.py."""

FAMILY_MACHINE = "dgx-h100"

PHASES = ("steps", "families", "curves", "profile", "ranks", "compiled", "programs")
MOST_SECONDS = {
    "steps": 20, "families": 60, "curves": 90, "profile": 100, "ranks": 60, "programs": 60, "compiled": 20,
}  # fmt: skip
"""Time limit of each phase. For `steps` and `compiled` the limit is for one model, after all models have compiled."""

WARM_SECONDS = {"steps": 60, "compiled": 200}
"""Time limit in which all models, and in `steps` also the families, compile."""


# ---------------------------------------------------------------------------------------------- before, without a GPU


def prepare(made: Path, tiny: bool, machine: str, models: Collection[str], families: Collection[str]) -> None:
    """Write the programs of models, the kernels of families, and the scripts that run them. Raises what the compiler
    raises.
    """
    made.mkdir(parents=True, exist_ok=True)
    manifest = {
        "tiny": tiny,
        "machine": machine,
        "models": dict(prepared_models(made, tiny, machine, models)),
        "families": prepared_families(made, tiny, families),
        "ranks": dict(prepared_ranks(made, machine, models)),
    }
    (made / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    for file in (*CARRIED, *SHARED):
        shutil.copy(HERE / file, made / file)
    carry_packages(made / "site")


def prepared_models(
    made: Path, tiny: bool, machine: str, models: Collection[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Writes each model's programs, with torch's operators and with kernels; yields the model's manifest entry."""
    from unity_dsl.compilation import Request
    from unity_dsl.resources import folder

    for name, settings in ((name, MODELS[name]) for name in MODELS if name in models):
        for kernels in KERNELS:
            request = Request(
                folder("examples") / f"{name}.udl",
                settings={} if tiny else settings,
                preset="small" if tiny else None,
                machine=machine,
                kernels=kernels,
            )
            plan = written(request, made / f"{name}_{kernels}")
        record = {"sizes": dict(plan.parameters), "predicted": plan.seconds, "precision": plan.model.precision or "f32"}
        kinds = [kernels for kernels in KERNELS if (made / f"{name}_{kernels}" / "model.py").exists()]
        print(f"prepared {name}", flush=True)
        yield name, record | {"kernels": kinds, "dropout": plan.parameters.get("dropout", 0) > 0}


def prepared_ranks(made: Path, machine: str, models: Collection[str]) -> Iterator[tuple[str, str]]:
    """Writes small programs for two ranks and for one; yields the name of each with its one-rank reference."""
    from unity_dsl.compilation import Request
    from unity_dsl.resources import folder

    for name, strategy in TWO_RANKS:
        if name not in models:
            continue
        model = folder("examples") / f"{name}.udl"
        for devices, called in ((1, f"{name}_alone"), (2, f"{name}_{strategy}_2")):
            chosen = strategy if devices > 1 else "single"
            request = Request(model, preset="small", precision="f32", machine=machine, devices=devices, strategy=chosen)
            written(request, made / called)
        yield f"{name}_{strategy}_2", f"{name}_alone"


def written(request: Any, out: Path) -> Any:
    """Compiles a request, writes its program to `out`, and returns the plan."""
    from unity_dsl.compilation import compile_model
    from unity_dsl.emit.output_folder import write_program

    found = compile_model(request)
    write_program(found.plan, found.library, found.sources, request, out, force=True)
    return found.plan


def prepared_families(made: Path, tiny: bool, families: Collection[str]) -> dict[str, Any]:
    """Writes the kernels of every family; returns their arguments, or the reason why a family has no single kernel.
    Matrix products are fused into kernels where that is cheaper on `FAMILY_MACHINE`.
    """
    from kernel_families import FAMILIES, model_text

    from unity_dsl.compilation import Request, compile_model
    from unity_dsl.emit.kernels.contraction_choice import ContractionChoice
    from unity_dsl.emit.kernels.kernel_file import kernel_file_text
    from unity_dsl.emit.plan_file import TRITON
    from unity_dsl.emit.program_text import write_down
    from unity_dsl.machine.machine import load_machine

    found: dict[str, Any] = {}
    for name, family in FAMILIES.items():
        if name not in families:
            continue
        model = made / f"{name}.udl"
        model.write_text(model_text(name))
        preset = "tiny" if tiny else None
        request = Request(
            model, preset=preset, precision="bf16", machine=FAMILY_MACHINE, strategy="single", kernels=TRITON
        )
        compiled = compile_model(request)
        choice = ContractionChoice(load_machine(FAMILY_MACHINE)) if family.contraction else None
        calls = write_down(compiled.plan, compiled.library, kernels=TRITON, contractions=choice).program.kernels
        operators = [*calls.known.values()] if calls is not None else []
        if len(operators) != 1 or len(operators[0].fused.shapes) != len(family.storage):
            found[name] = {"reason": "these operators are not one kernel at these sizes"}
            continue
        (operator,) = operators
        (made / f"{name}.py").write_text(kernel_file_text(name, [operator]))
        ranges = [operand.integer_range for operand in operator.fused.instance.inputs]
        shapes = operator.fused.shapes
        found[name] = {"function": operator.name, "shapes": shapes, "ranges": ranges, "draws": operator.draws}
    return found


def carry_packages(site: Path) -> None:
    """Copy the packages that `unityc profile` needs, and the folders of declarations."""
    from importlib.util import find_spec

    from unity_dsl.resources import folder

    for name in PACKAGES:
        spec = find_spec(name)
        assert spec is not None and spec.origin is not None
        shutil.copytree(
            Path(spec.origin).parent, site / name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("ops", "grammar", "machines", "codegen", "rules"):
        shutil.copytree(folder(name), site / name, dirs_exist_ok=True)


# ---------------------------------------------------------------------------------------------- on the GPU


@dataclass
class Child:
    """A process of a phase, and whether it has reported that it is ready."""

    name: str
    process: subprocess.Popen[str]
    ready: bool = False


@dataclass
class Session:
    """One run: its folder of programs, results so far, and when it has to end."""

    made: Path
    out: Path
    cpu: bool
    end: float
    results: dict[str, Any] = field(default_factory=dict)

    @property
    def left(self) -> float:
        return self.end - time.monotonic()

    @property
    def work(self) -> Path:
        return self.made / "work"

    def environment(self) -> dict[str, str]:
        settings = {"TORCHINDUCTOR_COMPILE_THREADS": "3", "PYTHONUNBUFFERED": "1"}
        rehearsed = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"} if self.cpu else {}
        return {**os.environ, **settings, **rehearsed}

    def start(self, name: str, script: str, *arguments: str) -> Child:
        """Starts a script of a phase, which writes its results to `work/NAME.json`."""
        command = [sys.executable, str(self.made / script), *arguments, "--out", str(self.work / f"{name}.json")]
        command += ["--cpu"] if self.cpu else []
        with (self.work / f"{name}.log").open("w") as log:
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True, env=self.environment())
        return Child(name, process)

    def finish(self, child: Child, seconds: float) -> None:
        """Let a process continue, wait at most `seconds` for its end, and collect the results that it has saved."""
        try:
            child.process.communicate("go\n", timeout=max(1.0, min(seconds, self.left)))
            ended = f"exit code {child.process.returncode}" if child.process.returncode else None
        except (subprocess.TimeoutExpired, BrokenPipeError) as error:
            child.process.kill()
            child.process.wait()
            ended = "stopped: its time was over" if isinstance(error, subprocess.TimeoutExpired) else "died"
        self.collect(child.name, ended)

    def collect(self, name: str, ended: str | None) -> None:
        """Add the results that a process has saved, and write all results."""
        path = self.work / f"{name}.json"
        found = json.loads(path.read_text()) if path.exists() else {}
        if ended is not None:
            found["ended"] = ended
        found["log"] = (self.work / f"{name}.log").read_text()[-3000:]
        self.results[name] = found
        self.save()
        print(f"{time.strftime('%H:%M:%S')} {name}: {ended or 'done'}, {self.left:.0f} s left", flush=True)

    def save(self) -> None:
        from gpu_timing import write  # it imports torch, which preparing a folder does not need

        write(self.out / "gpu.json", self.results)


def run_together(session: Session, children: Sequence[Child], warm: float, most: Mapping[str, float]) -> None:
    """Let processes compile concurrently for at most `warm` seconds, then run their measurements one at a time."""
    selector = DefaultSelector()
    for child in children:
        assert child.process.stdout is not None
        selector.register(child.process.stdout, EVENT_READ, child)
    end = time.monotonic() + (600 if session.cpu else min(warm, session.left * 0.6))
    while not all(child.ready for child in children) and time.monotonic() < end:
        for key, _ in selector.select(timeout=1.0):
            key.data.ready = True  # the process is ready or has ended: there is nothing to wait for
            key.data.process.stdout.readline()
            selector.unregister(key.fileobj)
    told = ", ".join(child.name for child in children if not child.ready)
    print(f"compiled{f', but not {told}' if told else ''}: {session.left:.0f} s left", flush=True)
    for child in sorted(children, key=lambda child: not child.ready):
        session.finish(child, 600 if session.cpu else most[child.name])


def run_programs(session: Session) -> None:
    """Run each program's train.py as a user starts it."""
    found: dict[str, Any] = {}
    for name, *given in COMMANDS:
        if not (session.made / name).exists():
            continue
        options = [] if session.cpu else given
        log = session.work / f"{name}_steps.json"
        log.unlink(missing_ok=True)
        steps = "1" if session.cpu else "30"
        command = [
            sys.executable,
            str(session.made / name / "train.py"),
            "--steps",
            steps,
            "--log-every",
            "10",
            *options,
        ]
        command += ["--log-file", str(log), *(["--device", "cpu"] if session.cpu else [])]
        start = time.monotonic()
        try:
            seconds = max(1.0, min(300 if session.cpu else MOST_SECONDS["programs"], session.left))
            ran = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=session.environment())
            row: dict[str, Any] = {"exit": ran.returncode, "stderr": ran.stderr[-1500:], "stdout": ran.stdout[-600:]}
        except subprocess.TimeoutExpired:
            row = {"exit": None, "stderr": "no end in time"}
        if log.exists() and (lines := log.read_text().splitlines()):
            row["last"] = json.loads(lines[-1])
        fell_back = "runs without its kernel" in row["stderr"]
        found[" ".join([name, *options])] = row | {"seconds": time.monotonic() - start, "fell_back": fell_back}
        session.results["programs"] = found
        session.save()
    print(f"programs: done, {session.left:.0f} s left", flush=True)


def run_profile(session: Session) -> None:
    """Run `unityc profile` on this machine; the machine file is written next to the results."""
    seconds = 3 if session.cpu else 60
    device = "cpu" if session.cpu else "cuda"
    command = [sys.executable, "-m", "unity_dsl", "profile", "--device", device, "--seconds", str(seconds)]
    command += ["-o", str(session.out / "measured.toml")]
    environment = {**session.environment(), "PYTHONPATH": str(session.made / "site"), "UNITY_DEBUG": "1"}
    try:
        limit = max(1.0, min(MOST_SECONDS["profile"], session.left))
        ran = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=environment)
        found = {"exit": ran.returncode, "stdout": ran.stdout[-1500:], "stderr": ran.stderr[-3000:]}
    except subprocess.TimeoutExpired as error:
        told = error.stderr.decode(errors="replace") if isinstance(error.stderr, bytes) else (error.stderr or "")
        found = {"exit": None, "stderr": told[-3000:]}
    session.results["profile"] = found
    session.save()
    print(f"profile: exit {found['exit']}, {session.left:.0f} s left", flush=True)


def run_phase(session: Session, phase: str, models: Sequence[str], phases: Collection[str]) -> None:
    """Run one phase. The families compile at the same time as the models."""
    programs = ("--programs", str(session.made))
    if phase in ("steps", "compiled"):
        way = ("--compiled",) if phase == "compiled" else ()
        names = {name: f"{name}{'_compiled' if way else ''}" for name in models}
        children = [session.start(called, "gpu_steps.py", name, *programs, *way) for name, called in names.items()]
        most = dict.fromkeys(names.values(), float(MOST_SECONDS[phase]))
        if phase == "steps" and "families" in phases:
            children.append(session.start("families", "gpu_families.py", *programs))
            most["families"] = MOST_SECONDS["families"]
        run_together(session, children, WARM_SECONDS[phase], most)
    elif phase == "families" and "steps" not in phases:
        session.finish(session.start("families", "gpu_families.py", *programs), MOST_SECONDS["families"])
    elif phase == "curves":
        session.finish(session.start("curves", "gpu_curves.py"), MOST_SECONDS["curves"])
    elif phase == "ranks":
        child = session.start("ranks", "gpu_ranks.py", *programs)
        session.finish(child, 240 if session.cpu else MOST_SECONDS["ranks"])
    elif phase == "programs":
        run_programs(session)
    elif phase == "profile":
        run_profile(session)


def run(made: Path, options: argparse.Namespace) -> int:
    """Runs all phases and prints a summary. Returns 1 if something failed or fell back, 2 for a folder of another kind
    (`--tiny` without `--cpu`, or the reverse).
    """
    sys.path.insert(0, str(made))
    from gpu_timing import device_of, hardware

    manifest = json.loads((made / MANIFEST).read_text())
    if options.cpu != manifest["tiny"]:
        print("--cpu takes a folder that was prepared with --tiny, and a GPU one without", file=sys.stderr)
        return 2
    device_of(options.cpu)
    options.out.mkdir(parents=True, exist_ok=True)
    session = Session(made, options.out, options.cpu, time.monotonic() + options.seconds)
    session.work.mkdir(exist_ok=True)
    session.results = {"hardware": hardware(), "machine": manifest["machine"]}
    for phase in options.phases:
        print(f"{phase}: {session.left:.0f} s left", flush=True)
        run_phase(session, phase, options.models or tuple(manifest["models"]), set(options.phases))
    wrong = list(failures(session.results))
    print("\n".join(summary(session.results)))
    print("\n".join(f"failed: {line}" for line in wrong) or "nothing failed")
    return 1 if wrong else 0


# ---------------------------------------------------------------------------------------------- what it says


def failures(results: Mapping[str, Any]) -> Iterator[str]:
    """One line for each result that is wrong, fell back to torch's operators, or did not finish."""
    for name, found in results.items():
        if not isinstance(found, dict):
            continue
        if "ended" in found:
            yield f"{name}: {found['ended']}"
        for part in ("check", "check_by_hand"):
            if "failed" in found.get(part, {}):
                yield f"{name} {part}: {found[part]['failed']}"
            for way, row in found.get(part, {}).items():
                if isinstance(row, dict) and row.get("correct") is False:
                    gave = f", {', '.join(row['fell_back'])} gave way" if row.get("fell_back") else ""
                    yield f"{name} {way}: gradients {row.get('gradients', float('nan')):.1e}{gave}"
        for way, row in found.get("ways", {}).items():
            if "failed" in row:
                yield f"{name} {way}: {row['failed']}"
    for name, row in results.get("families", {}).get("families", {}).items():
        if not row.get("correct"):
            gave = f", {', '.join(row['fell_back'])} gave way" if row.get("fell_back") else ""
            yield f"family {name}: {row.get('reason', row.get('error'))}{gave}"
    for name, row in results.get("programs", {}).items():
        if row["exit"] != 0 or row["fell_back"]:
            yield f"program {name}: exit {row['exit']}{', a kernel gave way' if row['fell_back'] else ''}"
    for name, row in results.get("ranks", {}).items():
        if isinstance(row, dict) and not row["correct"]:
            yield f"ranks {name}: {row.get('reason', row.get('error'))}"
    for name, row in results.get("curves", {}).items():
        if isinstance(row, dict) and "failed" in row:
            yield f"curves {name}: {row['failed']}"
    if results.get("profile", {}).get("exit", 0) != 0:
        yield f"profile: {results['profile']['stderr'].strip()[-300:]}"


def summary(results: Mapping[str, Any]) -> Iterator[str]:
    """One line for each model, with the milliseconds of each way to run it, and for each family with its ratios."""
    for name, found in results.items():
        if isinstance(found, dict) and "ways" in found:
            rows = {way: row for way, row in found["ways"].items() if "seconds" in row}
            told = ", ".join(f"{way} {1e3 * row['seconds']:.2f}" for way, row in rows.items())
            yield f"{name:<14} {told} ms; predicted {1e3 * found['predicted']:.2f}"
    for name, row in results.get("families", {}).get("families", {}).items():
        for direction in ("forward", "backward"):
            if direction in row:
                ways = ", ".join(f"{k[6:]} {v:.2f}x" for k, v in row[direction].items() if k.startswith("times_"))
                took = 1e3 * row[direction]["seconds"]["triton"]
                yield f"{name:<32} {direction:<9} {took:.3f} ms; {ways}; error {row['error']:.1e}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prepare", type=Path, metavar="DIR", help="write what a bare machine runs, and end")
    parser.add_argument("--tiny", action="store_true", help="prepare tiny sizes, for --cpu")
    parser.add_argument("--machine", default="h200", help="the machine that programs are compiled for")
    parser.add_argument(
        "--report", type=Path, metavar="gpu.json", help="write results/gpu.json of what it brought back"
    )
    parser.add_argument("--phases", nargs="+", choices=PHASES, default=PHASES, metavar="PHASE")
    parser.add_argument("--models", nargs="+", choices=tuple(MODELS), metavar="NAME", help="to prepare, or to run")
    parser.add_argument("--families", nargs="+", metavar="NAME", help="of kernels, to prepare")
    parser.add_argument("--seconds", type=float, default=470, help="after which it ends, with what it has")
    parser.add_argument("--out", type=Path, default=Path("gpu_results"), metavar="DIR")
    parser.add_argument("--cpu", action="store_true", help="rehearse in Triton's interpreter: times mean nothing")
    options = parser.parse_args()
    if options.prepare is not None:
        from kernel_families import FAMILIES

        models, families = options.models or tuple(MODELS), options.families or tuple(FAMILIES)
        prepare(options.prepare, options.tiny, options.machine, models, families)
        return 0
    if not (HERE / MANIFEST).exists():
        parser.error("there are no programs here: run it in a folder that --prepare has written")
    return run(HERE, options)


if __name__ == "__main__":
    sys.exit(main())
