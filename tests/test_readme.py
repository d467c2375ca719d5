"""The documents are true: their commands run, their texts compile, their tables and figures are what the code says."""

from __future__ import annotations

import json
import math
import re
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.document_commands import run, run_by_shell, with_what_they_use
from tests.sampling import SAMPLE, of_the_day
from unity_dsl.graph.collective_steps import StepKind
from unity_dsl.graph.layout import At, Invariant, Kind, Layout, Mesh, MeshAxis, Partial, Replicate, Shard
from unity_dsl.index.declarations.loading import library_of, load_library
from unity_dsl.machine.conversion_model import ConversionModel
from unity_dsl.machine.machine import load_machine, read_machine
from unity_dsl.machine.nccl_settings import NcclSettings
from unity_dsl.prove.answer import Proved
from unity_dsl.prove.rule_proof import prove_rule
from unity_dsl.rules.wellformed import load_rules
from unity_dsl.syntax.format import format_model, format_ops, format_rules
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.parse_ops import parse_ops
from unity_dsl.syntax.read import read_source
from unity_dsl.syntax.span import Source

ROOT = Path(__file__).parent.parent
DOCUMENTS = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/import.md",
    "docs/kernels.md",
    "docs/language.md",
    "docs/layouts.md",
    "docs/memory.md",
    "docs/prices.md",
    "docs/program.md",
    "docs/proofs.md",
    "docs/python.md",
    "docs/rules.md",
    "docs/search.md",
    "docs/strategies.md",
    "docs/use.md",
    "bench/README.md",
    "unity_dsl/search/cost_network/README.md",
)
SHARED = ("README.md",)
"""The documents whose named files (`my_ops/length_norm.uop`, `tiny.udl`) every other document's commands may use."""

NOT_RUN = {
    "make setup": "it would make an environment inside the test of an environment; the test runs in its result",
    "make check": "it is the other half of what runs this test",
    "make test": "it is what runs this test",
    "make bench": "it takes minutes, and its times would be those of a busy machine",
    "git ": "it looks at the work of a person",
    ".venv/bin/python -m pytest": "pytest inside pytest",
}
"""Commands that are not run, by their prefix, with the reason. The make targets among them get a dry run."""
PROVED_ONCE = "unityc rules verify"
"""This command takes a minute, and tests/commands/test_rules.py runs it."""
COMMANDS_OF_A_PAGE = 3
AS_WRITTEN = ("README.md",)
"""The documents whose commands run in a shell as written."""
EXTRAS = {"--picture": "matplotlib", "keras": "keras"}
"""Words of commands that need an extra of the package. These commands run only where it is installed."""


@dataclass(frozen=True)
class Block:
    """A fenced block: `kind` is the first word after the fence, `name` the second (the file that it is)."""

    document: str
    line: int
    kind: str
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


def blocks(document: str) -> Iterator[Block]:
    text = (ROOT / document).read_text()
    for match in re.finditer(r"^```(\w+) ?([\w./]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield Block(document, text[: match.start()].count("\n") + 1, *match.groups())


ALL = [block for document in DOCUMENTS for block in blocks(document)]


def of_kind(kind: str) -> list[Block]:
    found = [block for block in ALL if block.kind == kind]
    assert found
    return found


def test_every_block_is_of_a_known_kind() -> None:
    assert {block.kind for block in ALL} <= {"sh", "uop", "udl", "rules", "text", "python", "json", "toml"}
    fences = sum((ROOT / document).read_text().count("```") for document in DOCUMENTS)
    assert fences == 2 * len(ALL), "a fence that the tests do not see"


# ---------------------------------------------------------------------------------------------- commands


@pytest.fixture
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the named files of the documents, and links to those of the checkout."""
    folder = tmp_path_factory.mktemp("reader")
    for name in ("ops", "examples", "tests", "bench", ".venv"):
        if (ROOT / name).exists():
            (folder / name).symlink_to(ROOT / name)
    for block in ALL:
        if block.name:
            path = folder / block.name
            path.parent.mkdir(exist_ok=True)
            path.write_text(block.text)
    return folder


def commands(block: Block) -> list[str]:
    """The lines of a block, with continued lines joined."""
    return [line for line in block.text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]


def is_run(command: str) -> bool:
    extras = all(find_spec(needed) for option, needed in EXTRAS.items() if option in command)
    return extras and command != PROVED_ONCE and not any(command.startswith(start) for start in NOT_RUN)


@pytest.mark.parametrize("document", sorted({block.document for block in of_kind("sh")}))
def test_the_commands_of_a_document_run(document: str, workplace: Path) -> None:
    """Runs up to half of the page's commands, at most three: others every day, with the earlier ones that they need."""
    lines = [command for block in of_kind("sh") if block.document == document for command in commands(block)]
    for command in lines:
        if command.startswith("make ") and not is_run(command):
            run_by_shell(f"{command} --dry-run PYTHON={sys.executable}", ROOT)
    texts = {block.name: block.text for block in of_kind("python") if block.name}
    places = [place for place, command in enumerate(lines) if is_run(command)]
    chosen = of_the_day(places, min(COMMANDS_OF_A_PAGE, (len(places) + 1) // 2))
    print(f"UNITY_SAMPLE={SAMPLE}")
    for place in with_what_they_use(lines, chosen, texts):
        run_line(lines[place], document, workplace)


def run_line(command: str, document: str, workplace: Path) -> None:
    if command.startswith("make "):
        # Runs in the checkout, but with this environment and with temporary results.
        command += f" --assume-old .venv/.ready BIN={Path(sys.executable).parent} DEMO={workplace}/demo"
        run_by_shell(command, ROOT)
    else:
        (run_by_shell if document in AS_WRITTEN else run)(command, workplace)


def test_commands_are_run_after_those_that_write_what_they_use() -> None:
    lines = [
        *("unityc a.udl -o out/", "unityc b.udl -o out/", "torchrun out/train.py --checkpoint saved", "unityc check x"),
        *("torchrun out/train.py --checkpoint saved --resume", "python read.py", "unityc c.udl -o out/"),
    ]
    texts = {"read.py": "import out", "write.py": "import x"}
    assert with_what_they_use(lines, [4], texts) == [0, 1, 2, 4]
    assert with_what_they_use(lines, [3], texts) == [3]
    assert with_what_they_use(lines, [5, 3], texts) == [0, 1, 3, 5]


def test_what_is_not_run_is_still_there() -> None:
    lines = [command for block in of_kind("sh") for command in commands(block)]
    assert not {start for start in NOT_RUN if not any(line.startswith(start) for line in lines)}
    assert PROVED_ONCE in lines


# ---------------------------------------------------------------------------------------------- texts


def shipped(*names: str) -> list[Source]:
    return [read_source(ROOT / "ops" / name) for name in names]


@pytest.mark.parametrize("block", of_kind("uop"), ids=str)
def test_operators_in_documents_are_valid_and_formatted(block: Block) -> None:
    source = Source(str(block), block.text)
    assert parse_ops(source).declarations
    library_of([*shipped("functions.uop"), source])
    assert format_ops(source) == block.text


@pytest.mark.parametrize("block", of_kind("udl"), ids=str)
def test_models_in_documents_compile_and_are_formatted(block: Block, workplace: Path) -> None:
    source = Source(str(block), block.text)
    parse_model(source)
    assert format_model(source) == block.text
    (workplace / "snippet.udl").write_text(block.text)
    run(f"unityc snippet.udl --ops my_ops -o snippet-{block.line}/ --devices 2", workplace)


@pytest.mark.parametrize("block", of_kind("rules"), ids=str)
def test_rules_in_documents_are_proved_and_formatted(block: Block) -> None:
    source = Source(str(block), block.text)
    library = load_library()
    for rule in load_rules(source, library):
        assert isinstance(prove_rule(rule, library), Proved)
    assert format_rules(source) == block.text


def test_measured_sections_in_documents_are_read() -> None:
    """The sections are added to the figures of a shipped machine."""
    (block,) = [block for block in of_kind("toml") if "[[operator]]" in block.text]
    machine = read_machine(Source(str(block), (ROOT / "machines" / "local.toml").read_text() + block.text))
    assert machine.measured.curves and machine.measured.grids and machine.measured.update
    assert machine.collectives.measured.curves


def test_settings_of_nccl_in_documents_are_read() -> None:
    """The settings replace those of a shipped machine."""
    (block,) = [block for block in of_kind("toml") if "[nccl]" in block.text]
    text = (ROOT / "machines" / "dgx-h100.toml").read_text()
    shipped = re.search(r"\[nccl\]\n(.|\n)*?\n\n", text)
    assert shipped is not None
    machine = read_machine(Source(str(block), text.replace(shipped[0], block.text + "\n")))
    assert machine.collectives.nccl == NcclSettings(ring=340e9)


def test_operators_that_documents_repeat_are_the_shipped_ones() -> None:
    """A shipped operator that is shown must be shown as it is (its comment may be left out)."""
    library = library_of(shipped(*(path.name for path in sorted((ROOT / "ops").glob("*.uop")))))
    compared = 0
    for block in of_kind("uop"):
        for shown in parse_ops(Source(str(block), block.text)).declarations:
            real = {**library.operators, **library.parallels}.get(shown.name)
            if real is not None:
                assert shown.inputs == real.inputs and shown.outputs == real.outputs, f"{block}: {shown.name}"
                assert getattr(shown, "statements", ()) == getattr(real, "statements", ()), f"{block}: {shown.name}"
                compared += 1
    assert compared > 3


# ---------------------------------------------------------------------------------------------- tables and figures

WORDS = {
    StepKind.ALL_REDUCE: "all-reduce",
    StepKind.ALL_GATHER: "all-gather",
    StepKind.REDUCE_SCATTER: "reduce-scatter",
    StepKind.ALL_TO_ALL: "all-to-all",
    StepKind.SLICE: "slice",
    StepKind.PAD: "zero padding of a slice",
}
KINDS: dict[str, Kind] = {
    "I": Invariant(),
    "R": Replicate(),
    "P": Partial(),
    "S": Shard(0),
    "S0": Shard(0),
    "S1": Shard(1),
    "@0": At(0),
}


def rows(document: str, header: str) -> list[list[str]]:
    """The cells of the table that has this header line."""
    lines = (ROOT / document).read_text().splitlines()
    found = []
    for line in lines[lines.index(header) + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    assert found
    return found


def test_the_table_of_conversions_is_what_conversions_do() -> None:
    model = ConversionModel(Mesh((MeshAxis("a", 2),)), load_machine("local"), load_library())
    for sources, target, forward, backward in rows("docs/layouts.md", "| from | to | forward | backward |"):
        for source in sources.split(","):
            name = source.strip(" `")
            found = model.conversion(Layout((KINDS[name],)), Layout((KINDS[target.strip("`")],)), (4, 4), 1e6)
            for steps, told in ((found.forward, forward), (found.backward, backward)):
                words = " ".join(WORDS[step.kind] for step in steps) or "nothing"
                choices = {
                    part.split(" (`")[0] for part in told.split(", ") if "(" not in part or f"(`{name}`)" in part
                }
                assert words in choices, (source, target)


def test_the_table_of_kinds_says_which_kind_the_gradient_has() -> None:
    header = "| kind | value | gradient | meaning |"
    for name, _, gradient, _ in rows("docs/layouts.md", header):
        letter = name.split()[0].strip("`")
        assert type(Layout((KINDS[letter],)).transpose.kinds[0]).__name__ == gradient


def test_every_figure_in_the_readme_is_a_measured_one() -> None:
    """Every time and rate in the README is on a line with the file of results that holds it."""
    text = re.sub(r"```.*?```", "", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    for line in text.splitlines():
        for figure in re.findall(r"(\d+(?:\.\d+)?) (?:s|ms|seconds|milliseconds|GB|MiB)\b", line):
            named = re.findall(r"bench/results/\w+\.json", line)
            assert named, f"no source for: {line}"
            assert any(figure in (ROOT / name).read_text() for name in named), line


def test_the_table_of_cells_is_what_was_planned() -> None:
    """For every cell of the results: the step of `auto`, how many times longer three strategies take, and the fastest
    other strategy with its ratio.
    """
    cells = planned_cells()
    names = " | ".join(f"`{name}`" for name in BESIDE)
    told = rows("docs/strategies.md", f"| cell | `auto`, ms | {names} | fastest other |")
    assert [cell for cell, *_ in told] == sorted(cell for cell, every in cells.items() if len(every) > 1)
    for cell, auto, *times, other in told:
        every = cells[cell]
        own = every.pop("auto")
        assert auto == f"{own * 1e3:.4g}", cell
        assert times == [f"{every[name] / own:.2f} x" if name in every else "" for name in BESIDE], cell
        fastest, part = other.split(", ")
        assert every[fastest.strip("`")] == min(every.values()), cell
        assert part == f"{min(every.values()) / own:.4f}", cell


def test_all_cells_were_planned_by_the_same_sources() -> None:
    """Otherwise the table would compare prices and searches of different versions."""
    cells = json.loads((ROOT / "bench" / "results" / "search.json").read_text())["cases"]
    assert len({row.get("sources") for cell in cells.values() for row in cell["strategies"].values()}) == 1


def test_the_table_of_machines_is_of_all_cells() -> None:
    """By machine and devices: the number of cells in which `auto` has a plan that fits, and the geometric means."""
    cells, counted = planned_cells(), 0
    names = " | ".join(f"`{name}`" for name in BESIDE)
    for devices_of_machine, count, *times, least in rows(
        "README.md", f"| machine | cells | {names} | fastest other, at least |"
    ):
        devices, machine = devices_of_machine.split(" of ")
        own = [every for cell, every in cells.items() if cell.endswith(f" {machine} {devices}")]
        assert count == str(len(own))
        counted += len(own)
        for name, word in zip(BESIDE, times, strict=True):
            both = [every[name] / every["auto"] for every in own if name in every]
            assert word == (f"{math.prod(both) ** (1 / len(both)):.2f} x" if both else "")
        others = [seconds / every["auto"] for every in own for name, seconds in every.items() if name != "auto"]
        assert least == f"{min(others):.4f} x"
    assert counted == len(cells)


def test_the_table_of_padding_is_what_was_planned() -> None:
    text = (ROOT / "docs" / "search.md").read_text()
    cells = json.loads((ROOT / "bench" / "results" / "padding.json").read_text())["seconds"]
    rows = re.findall(r"^\| (\w+ on \d+) \| (.*?) \| (.*?) \|$", text, re.MULTILINE)
    assert len(rows) >= 6
    for name, without, padded in rows:
        found = cells[name]
        times = [float(f"{float(f'{found[key]:.3g}'):g}") for key in ("none_seconds", "auto_seconds")]
        assert [float(one.split()[0]) * {"s": 1, "ms": 1e-3}[one.split()[1]] for one in (without, padded)] == (
            pytest.approx(times)
        ), name
    tried = [row for row in cells.values() if isinstance(row, dict)]
    told = f"Of {len(tried)} cells in which the devices do not divide the batch, "
    assert told + f"{sum(bool(row['padding']) for row in tried)} are padded" in prose("docs/search.md")
    assert f"take {cells['geometric mean of ratios']:.2f} of the time in the geometric mean" in prose("docs/search.md")


def test_prose_about_the_cells_has_their_figures() -> None:
    text = prose("docs/strategies.md")
    document = json.loads((ROOT / "bench" / "results" / "search.json").read_text())
    autos = [cell["strategies"]["auto"] for cell in document["cases"].values()]
    seconds, gaps = [row["search_s"] for row in autos], [row["iteration_s"] / row["bound_s"] - 1 for row in autos]
    unplanned = len(document["summary"]["without a plan that fits"])
    ended = sum("ended" in row for cell in document["cases"].values() for row in cell["strategies"].values())
    lost = document["summary"]["faster than auto"]
    assert f"{len(autos)} cells" in text
    assert f"in {len(lost)} another strategy is faster" in text
    assert f"by {100 * (1 - min([row['part'] for row in lost.values()], default=1)):.1f} % at most" in text
    assert f"In {unplanned} of them no plan fits" in text
    assert f"{ended} searches of other strategies were ended" in text
    assert f"searches for {statistics.median(seconds):.1f} s in the median, and {max(seconds):.0f} s at most" in text
    assert f"at most {100 * statistics.median(gaps):.1f} % longer than what no order" in text
    assert f"{sum(gap > 0.1 for gap in gaps)} are more than 10 % longer, {100 * max(gaps):.0f} % at most" in text


def test_prose_about_compilations_has_their_figures() -> None:
    text, seconds = prose("docs/search.md"), compilations()
    median, most = statistics.median(seconds.values()), sorted(seconds, key=seconds.__getitem__)[-2:]
    assert f"takes {median:.1f} s in the median of {len(seconds)}" in text
    assert f"{sum(value < 3 for value in seconds.values())} take less than 3 s" in text
    assert f"and {sum(value > 10 for value in seconds.values())} more than 10 s" in text
    for case in most:
        name, devices = case.split()
        assert re.search(rf"{name} with {seconds[case]:.1f} s on {devices}\b", text), case
    for devices in (8, 64, 192, 1024):
        of_count = [value for case, value in seconds.items() if case.endswith(f" {devices}")]
        assert f"{statistics.median(of_count):.1f} s for {devices:,}" in text


def test_the_table_of_published_runs_has_their_figures() -> None:
    """Published and predicted utilisation, their ratio, and the ratio of a fit without the run."""
    document = json.loads((ROOT / "bench" / "results" / "utilisation.json").read_text())
    told = {name: cells for name, _, *cells in rows("docs/prices.md", PUBLISHED_RUNS)}
    assert told.keys() == document["cases"].keys()
    for name, case in document["cases"].items():
        of_both = [f"{100 * case[f'{which}_utilisation']:.1f} %" for which in ("published", "predicted")]
        assert told[name] == [*of_both, f"{case['ratio']:.2f}", f"{case['left_out']['ratio']:.2f}"], name
    text, summary = prose("docs/prices.md"), document["summary"]
    errors = [f"{100 * summary[name]:.1f} %" for name in ("median_error", "largest_error")]
    assert "The median error is {}, the largest {}.".format(*errors) in text
    errors = [f"{100 * summary[name]:.1f} %" for name in ("median_left_out_error", "largest_left_out_error")]
    assert "the median error is then {}, the largest {}.".format(*errors) in text


PUBLISHED_RUNS = "| run | parallelism | published | predicted | ratio | left out |"


def prose(document: str) -> str:
    """A page's text on one line."""
    return " ".join((ROOT / document).read_text().split())


def compilations() -> dict[str, float]:
    """Wall-clock seconds of a compilation, by example and devices."""
    rows_of_cases = json.loads((ROOT / "bench" / "results" / "compile_scale.json").read_text())["seconds"]
    return {case: row["wall"] for case, row in rows_of_cases.items()}


BESIDE = ("data_parallel", "unity", "taso_then_flexflow")


def planned_cells() -> dict[str, dict[str, float]]:
    """Seconds of a step of every strategy with a plan that fits, for each cell in which `auto` has one."""
    cells = json.loads((ROOT / "bench" / "results" / "search.json").read_text())["cases"]
    found = {
        cell: {name: row["iteration_s"] for name, row in every["strategies"].items() if row.get("fits")}
        for cell, every in cells.items()
    }
    return {cell: every for cell, every in found.items() if "auto" in every}


def test_prose_about_time_limits_has_their_figures() -> None:
    text = prose("docs/search.md")
    document = json.loads((ROOT / "bench" / "results" / "time_limit.json").read_text())
    seconds, summary = [row["seconds"] for row in document["cases"].values()], document["summary"]
    told = f"The {len(seconds)} commands took {statistics.median(seconds):.1f} s in the median and {max(seconds):.1f} s"
    assert told in text and not summary["slower than data_parallel or zero"] and not summary["failed"]


def test_prose_about_imports_has_their_figures() -> None:
    cases = json.loads((ROOT / "bench" / "results" / "import_models.json").read_text())["cases"]
    equal = [name for name, row in cases.items() if "gradient" in row]
    checked = [name for name in equal if all(cases[name]["checked"].values())]
    text = prose("docs/import.md")
    assert f"Of {len(cases)} models" in text and f"small and unchanged, {len(equal)} are" in text
    assert f"Programs of {len(checked)} of them" in text
    large = json.loads((ROOT / "bench" / "results" / "import_large.json").read_text())["cases"]["llama3_70b"]
    assert f"imported in {large['seconds']:.0f} s with at most {large['peak_bytes'] / 1e9:.1f} GB" in text
    assert f"Its text has {large['lines']} lines" in text


def test_results_name_their_hardware_and_no_machine() -> None:
    for path in (ROOT / "bench" / "results").glob("*.json"):
        document = json.loads(path.read_text())
        assert {"cpu", "cores", "python"} <= set(document["hardware"])
        assert not re.search(r"/(home|root|tmp|usr|work)\b", path.read_text())


def test_links_inside_the_repository_lead_somewhere() -> None:
    for document in (*DOCUMENTS, "CHANGELOG.md", "rules/README.md"):
        prose = re.sub(r"```.*?```|`[^`\n]*`", "", (ROOT / document).read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#]+)\)", prose):
            if "://" not in target:
                assert ((ROOT / document).parent / target).exists(), f"{document}: {target}"


def test_the_files_that_documents_name_are_there() -> None:
    """Module paths in CONTRIBUTING and in the pages exist as written."""
    for document in DOCUMENTS:
        for path in re.findall(
            r"`((?:syntax|index|graph|prove|rules|machine|search|emit)/[\w/]+\.py)`", (ROOT / document).read_text()
        ):
            assert (ROOT / "unity_dsl" / path).exists(), f"{document}: {path}"


def test_the_table_of_steps_on_a_gpu_is_what_was_measured() -> None:
    """Measured milliseconds of a training step for each model and way of running it, and the predicted ones."""
    measured = json.loads((ROOT / "bench" / "results" / "gpu.json").read_text())["models"]
    ways = ("torch", "triton", "torch_recorded", "triton_recorded", "torch_compiled", "by_hand", "by_hand_compiled")
    header = "| model | torch, ms | kernels, ms | torch, recorded, ms | kernels, recorded, ms | compiled, ms |"
    told = rows("docs/kernels.md", f"{header} by hand, ms | by hand, compiled, ms | predicted, ms |")
    assert [model for model, *_ in told] == list(measured)
    for model, *times, predicted in told:
        seconds = [measured[model]["ways"].get(way, {}).get("seconds") for way in ways]
        assert times == [f"{1e3 * value:.1f}" if value is not None else "" for value in seconds], model
        assert predicted == f"{1e3 * measured[model]['predicted']:.1f}", model
