"""The picture of `unityc compare`: speedup over data parallelism by model and strategy, as bars."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from importlib.util import find_spec
from pathlib import Path

import click

from ..syntax.diagnostic import fail
from .console import check_writable
from .strategy_comparison import BASELINE, Comparison

KINDS = (".svg", ".png", ".pdf")
LIBRARY = "matplotlib"
COLOURS = 20
"""The number of colours in matplotlib's palette tab20."""


def check_picture(path: Path, names: Collection[str]) -> None:
    """Raises E319 without matplotlib or without the strategy over which speedups are shown, E030 for a file
    that cannot be written, and a usage error for a file of another kind.
    """
    if path.suffix.lower() not in KINDS:
        raise click.BadParameter(
            f"`{path}` is not a {', '.join(KINDS[:-1])} or {KINDS[-1]} file", param_hint="--picture"
        )
    if find_spec(LIBRARY) is None:
        raise fail("E319", f"a picture needs {LIBRARY}, which is not installed", help="pip install 'unity-dsl[plot]'")
    if BASELINE not in names:
        raise fail("E319", f"a picture shows speedups over `{BASELINE}`", help=f"add {BASELINE} to --strategies")
    check_writable(path)


def draw(comparisons: Sequence[Comparison], path: Path) -> None:
    """Write the picture. Raises E319 if no model has a plan of data parallelism, E030 if the file cannot be written."""
    shown = [found for found in comparisons if any(found.speedup(row) is not None for row in found.strategies)]
    if not shown:
        raise fail("E319", f"no model has a plan by `{BASELINE}`, over which a speedup could be shown")
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "unity-dsl"  # otherwise the same picture would have other bytes each time
    from matplotlib import pyplot

    names = list(dict.fromkeys(row.name for found in shown for row in found.strategies))
    width = 0.8 / len(names)
    figure, axes = pyplot.subplots(figsize=(max(6.0, 1.2 + 0.22 * len(names) * len(shown)), 3.6), layout="constrained")
    colours = pyplot.get_cmap("tab20")
    for number, name in enumerate(names):
        rows = [next((row for row in found.strategies if row.name == name), None) for found in shown]
        heights = [0.0 if row is None else found.speedup(row) or 0.0 for found, row in zip(shown, rows, strict=True)]
        places = [place + (number - (len(names) - 1) / 2) * width for place in range(len(shown))]
        hatch = ["" if row is None or row.fits else "///" for row in rows]
        axes.bar(places, heights, width, label=name, color=colours(number % COLOURS), hatch=hatch, edgecolor="white")
    axes.axhline(1.0, color="black", linewidth=0.6)
    axes.set_xticks(range(len(shown)), [found.model for found in shown])
    axes.set_ylabel(f"speedup over {BASELINE}")
    axes.set_title(
        f"{shown[0].devices} devices of {shown[0].machine}; hatched: does not fit the memory", fontsize="small"
    )
    axes.legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    new = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
        figure.savefig(new, metadata=metadata, dpi=150)
        os.replace(new, path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise fail("E030", f"cannot write `{path}`: {error.strerror or error}") from None
    finally:
        pyplot.close(figure)
