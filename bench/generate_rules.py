"""Generates the rule library from its table of signatures; counts and processor seconds of each stage.

    python bench/generate_rules.py [THEME ...] [--processes N] [--cache DIR] [--write] [--results NAME]

The stages are the enumeration of candidates, their derivation and proof, and the minimisation of the rules. The
generated files are compared with the shipped ones, and `--write` replaces these. By default all themes are generated.
If only some are given, the shipped rules of the others are taken as known. Results are written for a run of all themes
without a cache, or with `--results` under another name.
"""

from __future__ import annotations

import argparse
import resource
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from measure import processor_seconds, write_results

from unity_dsl.index.declarations.loading import load_library
from unity_dsl.resources import folder
from unity_dsl.rules.certificate import certificates_path
from unity_dsl.rules.enumeration.signature_table import load_table
from unity_dsl.rules.generation.library_files import ThemeFile, write_library
from unity_dsl.rules.generation.pipeline import Generation, Generator, known_rules
from unity_dsl.rules.generation.rule_text import sides_text

STAGES = {"enumerated": "enumeration", "derived or proved": "derivation and proof", "minimised": "minimisation"}


@dataclass
class Clock:
    """Processor seconds of this process and of its finished children, by the stage that the progress reports name."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    stage: str = "contexts"
    since: float = field(default_factory=lambda: processor_seconds())

    def tell(self, what: str, done: int, whole: int) -> None:
        """Receives a generator's progress report. A new stage begins when `what` changes."""
        stage = STAGES.get(what, what)
        if stage != self.stage:
            self.turn(stage)
            print(f"{stage}: {whole:,}", flush=True)

    def turn(self, stage: str) -> None:
        now = processor_seconds()
        self.seconds[self.stage] += now - self.since
        self.stage, self.since = stage, now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("themes", nargs="*")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--cache", type=Path, help="a folder as of `unityc rules generate --cache`; its times are less")
    parser.add_argument("--write", action="store_true", help="replace the shipped files")
    parser.add_argument("--results", metavar="NAME", help="keep what is measured as bench/results/NAME.json, anyway")
    given = parser.parse_args()
    table = load_table(folder("rules") / "signatures.toml")
    themes = [theme for theme in table.themes if not given.themes or theme.name in given.themes]
    library = load_library()
    clock, begun = Clock(), perf_counter()
    known = known_rules(library, [theme.name for theme in themes])
    generator = Generator(library, given.processes, given.cache, known=known, progress=clock.tell)
    made = generator.run(replace(table, themes=tuple(themes)))
    clock.turn("files")
    same = all(map(is_shipped, made.files))
    if given.write:
        write_library(made.files, folder("rules"))
    measured = {"wall_seconds": round(perf_counter() - begun, 1), "files_are_the_shipped_ones": same}
    measured |= summary(made, clock, given.processes)
    print("\n".join(f"{name}: {value}" for name, value in measured.items()))
    whole = not given.themes and given.cache is None
    if whole or given.results:
        command = " ".join(["python bench/generate_rules.py", *given.themes, f"--processes {given.processes}"])
        write_results(given.results or "generate_rules", command, measured)


def is_shipped(made: ThemeFile) -> bool:
    """Whether a generated file and its certificates equal the shipped ones."""
    path = folder("rules") / f"{made.theme}.rules"
    texts = {path: made.rules, certificates_path(path): made.certificates}
    return all(one.exists() and one.read_text(encoding="utf-8") == text for one, text in texts.items())


def summary(made: Generation, clock: Clock, processes: int) -> dict[str, Any]:
    """Counts, processor seconds, memory, and the candidates that hold at random operands but are not proved or are
    refuted.

    `peak_mib_at_most` bounds the total memory by the peak of the largest process times the number of processes.
    """
    peak = max(
        resource.getrusage(whose).ru_maxrss // 1024 for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    rules = {one.theme: one.count for one in made.files}
    return {
        "processor_seconds": {stage: round(seconds, 1) for stage, seconds in clock.seconds.items()},
        "peak_mib_of_a_process": peak,
        "peak_mib_at_most": peak * (1 + processes),
        **made.counts,
        "examination_median_ms": round(median(made.seconds) * 1e3, 1) if made.seconds else None,
        "themes": {
            name: {
                "contexts": one.contexts,
                **one.enumerated,
                "processor_seconds": round(one.seconds, 1),
                "rules": rules.get(name, 0),
            }
            for name, one in made.themes.items()
        },
        "not_proved": [sides_text(rule) for rule in made.not_proved],
        "refuted": [sides_text(rule) for rule in made.refuted],
    }


if __name__ == "__main__":
    main()
