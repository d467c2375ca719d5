"""`unityc profile`: measures this machine and writes a machine file."""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from .. import __version__
from .console import check_writable, replace_file, show_lines

SECONDS = 150


@click.command("profile", short_help="Measure this machine, and write a machine file to plan for.")
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), default=Path("measured.toml"), metavar="FILE", show_default=True
)
@click.option("--ranks", "-n", type=click.IntRange(1, 64), default=1, show_default=True, help="Processes, or GPUs.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option(
    "--seconds",
    type=click.FloatRange(1, 3600),
    default=SECONDS,
    show_default=True,
    help="Time to take, about; below 45 fewer operators at fewer sizes are measured.",
)
def profile_command(output: Path, ranks: int, device: str, seconds: float) -> None:
    """Measure operators, memory and collectives of this machine, and write what --machine FILE then plans for.

    All ranks measure at the same time, with one thread each, as they run a program: ranks share memory and caches. Do
    it on a quiet machine. An interrupted run writes nothing: times of different moments would not fit together.

    \b
    unityc profile -o measured.toml --ranks 2
    unityc model.udl -o out/ --devices 2 --machine measured.toml
    """
    from ..emit.rank_pool import RankError, RankPool
    from ..index.declarations.loading import load_library
    from ..profiling.machine_file import machine_file
    from ..profiling.machine_profile import Profiler
    from ..syntax.diagnostic import fail

    check_output(output)
    memory = memory_of(device, ranks)
    with RankPool(ranks, "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo", measured=True) as pool:
        profiler = Profiler(pool, load_library(), device, ranks, seconds)
        with click.progressbar(
            length=profiler.count, label="measuring", item_show_func=lambda part: part, file=sys.stderr
        ) as bar:
            profiler.tell = lambda part, count: bar.update(count, part)
            try:
                found = profiler.run()
            except RankError as error:
                raise fail(
                    "E406", f"a measurement fails on rank {error.rank}: {error.reason}", help=error.trace
                ) from error
    replace_file(output, machine_file(found, output.stem, memory, header(ranks, device)))
    show_lines(
        [
            ("ranks", f"{ranks} on {device}, one thread each"),
            ("memory", f"{found.bandwidth / 1e9:.3g} GB/s a rank, a launch {found.launch * 1e6:.2g} µs"),
            ("products", f"{found.peak['f32'] / 1e9:.3g} GFLOP/s a rank in float32"),
            (
                "wrote",
                f"{output}: {len(found.operators.curves)} curves, {len(found.operators.grids)} grids of products",
            ),
        ]
    )


def check_output(output: Path) -> None:
    """Raises E030 for a file that cannot be written, and a usage error for one of another kind."""
    if output.suffix != ".toml":
        raise click.BadParameter(f"`{output}` is no .toml file", param_hint="--output")
    check_writable(output)


def memory_of(device: str, ranks: int) -> float:
    """The memory of one rank in bytes. Raises a usage error if there are fewer GPUs than ranks."""
    if device == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / ranks
    import torch

    if torch.cuda.device_count() < ranks:
        raise click.BadParameter(f"there are {torch.cuda.device_count()} CUDA devices", param_hint="--device")
    return float(torch.cuda.get_device_properties(0).total_memory)


def header(ranks: int, device: str) -> list[str]:
    """The header of the machine file: when, on what, and by what it was measured."""
    from importlib.metadata import version

    processor = processor_name()
    if device == "cuda":
        import torch

        processor = f"{torch.cuda.get_device_name(0)}, {processor}"
    return [
        f"Measured by `unityc profile` on {datetime.now(UTC):%Y-%m-%d} at {datetime.now(UTC):%H:%M} UTC, {ranks} ranks "
        "at the same time, one thread each.",
        f"{processor}, {platform.system()}; Python {platform.python_version()}, torch {version('torch')}, "
        f"unity_dsl {__version__}.",
        "The curves of [[operator]] and [[collective]] and the grids of [[product]] win over the figures before them.",
    ]


def processor_name() -> str:
    """The processor's model and the cores that can be used."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    return f"{model}, {cores} cores"
