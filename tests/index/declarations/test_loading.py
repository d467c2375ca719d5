"""Refused declarations, each with its diagnostic (tests/cases/type_error), and how a library is assembled."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from unity_dsl.index.declarations.loading import library_of, library_sources, load_library
from unity_dsl.index.declarations.trial_record import record_of
from unity_dsl.index.evaluation.evaluate import evaluate
from unity_dsl.index.instantiation.instantiate import Binding, Shape, instantiate, instantiate_parallel
from unity_dsl.index.library import Library
from unity_dsl.syntax.codes import CODES
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.read import read_source
from unity_dsl.syntax.render import render
from unity_dsl.syntax.span import Source, Span

from ..declare import FUNCTIONS, operator

FOLDER = Path(__file__).parent.parent.parent / "cases" / "type_error"
CASES = sorted(path.stem for path in FOLDER.glob("*.uop"))
CALL = re.compile(r"# call: (?P<shapes>[^;\n]*)(; (?P<attributes>.*))?\n")
SHAPE = re.compile(r"(?:int<(?P<range>\d+)>)?\[(?P<dims>[\d, ]*)\]")


def fault(text: str) -> InputError:
    """The error of a declaration, or of its call if the first line is one: `# call: [2, 3]; dim=1`.

    Every operand's shape originates from its place in that line.
    """
    source = Source("case.uop", text)
    with pytest.raises(InputError) as caught:
        call = CALL.match(text)
        library = library_of([FUNCTIONS, source])
        assert call is not None, "the declaration is accepted"
        shapes = [
            Shape(
                tuple(int(size) for size in found["dims"].split(",") if size.strip()),
                int(found["range"]) if found["range"] else None,
                Span(source, *found.span()),
            )
            for found in SHAPE.finditer(text, *call.span("shapes"))
        ]
        entries = [entry.split("=") for entry in (call["attributes"] or "").split(", ") if entry]
        attributes = {name: float(value) if "." in value else int(value) for name, value in entries}
        span = Span(source, call.start("shapes"), call.end() - 1)
        for declared in library.operators.values():
            instantiate(declared, shapes, attributes, span=span)
        for parallel in library.parallels.values():
            degrees = {name: attributes.pop(name) for name in parallel.degrees if name in attributes}
            instantiate_parallel(parallel, shapes, degrees, attributes, span=span)  # type: ignore[arg-type]
    return caught.value


@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_told_in_one_diagnostic(name: str) -> None:
    """UNITY_UPDATE=1 rewrites the expected texts."""
    found = render(fault((FOLDER / f"{name}.uop").read_text()).diagnostic) + "\n"
    expected = FOLDER / f"{name}.txt"
    if os.environ.get("UNITY_UPDATE"):
        expected.write_text(found)
    assert found == expected.read_text()


def test_every_code_of_declarations_and_calls_has_a_case() -> None:
    shown = {code for name in CASES for code in re.findall(r"error\[(E1\d\d)\]", (FOLDER / f"{name}.txt").read_text())}
    elsewhere = {"E115", "E129", "E130"}  # definitions that grow, in cli_error; patterns, below
    assert shown | elsewhere == {code for code in CODES if code.startswith("E1")}


def test_a_shipped_operator_that_no_rule_is_about_may_be_declared_anew() -> None:
    own = "op {}(x: [b..]) -> y: [b..]\n  y[b..] = 2 * x[b..]\n"
    sources = library_sources()
    for name in ("roll", "stop", "conv_transpose1d"):
        library = library_of([*sources, Source("own.uop", own.format(name))])
        found = library.operators[name]
        assert found.span is not None and found.span.source.name == "own.uop"
        assert "softmax" in library.operators and len(library.operators) == len(load_library().operators)
    for name in ("softmax", "add", "rearrange", "relu"):
        with pytest.raises(InputError, match=f"`{name}` is declared twice"):
            library_of([*sources, Source("own.uop", own.format(name))])
    with pytest.raises(InputError, match="`stop` is declared twice"):
        library_of([*sources, Source("own.uop", own.format("stop")), Source("more.uop", own.format("stop"))])


SUM = "op total(x: [k.., r..]) -> y: [k..]\n  y[k..] = sum(r..) x[k.., r..]\n"
RELU = "op relu(x: [b..]) -> y: [b..]\n  y[b..] = relu(x[b..])\n"
SOFTMAX = "op softmax(x: [b.., c]) -> y: [b.., c]\n  y[b.., c] = exp(x[b.., c])\n"
A, B, C = ("a", 2), ("b", 3), ("c", 4)


@pytest.mark.parametrize(
    ("source", "shape", "binding", "code", "words"),
    [
        (SOFTMAX, (2, 3), Binding(((A,), (B,)), ((A,), (B,))), "E129", "takes no pattern"),
        (SUM, (2, 3), Binding(((A,), (B,), (C,)), ((A,),)), "E130", "names 3 dimensions"),
        (SUM, (2, 5), Binding(((A,), (B,)), ((A,),)), "E130", r"dimension 1 of \[2, 5\] has size 5"),
        (SUM, (2, 3), Binding(((A,), (B,)), ((C,),)), "E130", "`c` is on the right of the pattern only"),
        (SUM, (2, 2), Binding(((A,), (A,)), ((A,),)), "E130", "`a` occurs twice on the left"),
        (SUM, (2, 3), Binding(((A,), (B,)), ((A,), (A,))), "E130", "`a` occurs twice on the right"),
        (SUM, (2, 3), Binding(((A,), (B,)), ((("a", 3),),)), "E130", "`a` is 2 on the left and 3 on the right"),
        (RELU, (2, 3), Binding(((A,), (B,)), ((A,),)), "E130", "`b` is on the left of the pattern only"),
    ],
)
def test_patterns_that_do_not_fit(source: str, shape: tuple[int, ...], binding: Binding, code: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        instantiate(operator(source), [Shape(shape)], {}, binding=binding)
    assert caught.value.diagnostic.code == code


def test_a_user_s_folder_is_added(tmp_path: Path) -> None:
    (tmp_path / "mine.uop").write_text("op cube(x: [n..]) -> y: [n..]\n  y[n..] = x[n..] * x[n..] * x[n..]\n")
    library = load_library([tmp_path])
    (found,) = evaluate(instantiate(library.operators["cube"], [Shape((2,))], {}), [[2.0, -1.0]], library)
    assert found.tolist() == [8.0, -1.0]
    assert set(load_library().operators) == set(library.operators) - {"cube"}


def test_the_same_texts_are_read_once() -> None:
    text = "op cube(x: [n..]) -> y: [n..]\n  y[n..] = x[n..] * x[n..] * x[n..]\n"
    first, again, other = (library_of([Source("mine.uop", found)]) for found in (text, text, text + "# a remark\n"))
    assert first is again
    assert other is not first and other.operators["cube"].span != first.operators["cube"].span


def test_a_user_may_not_replace_what_is_shipped(tmp_path: Path) -> None:
    path = tmp_path / "mine.uop"
    path.write_text("op linear(x: [n..]) -> y: [n..]\n  y[n..] = x[n..]\n")
    with pytest.raises(InputError) as caught:
        load_library([tmp_path])
    diagnostic = caught.value.diagnostic
    assert diagnostic.code == "E105"
    assert diagnostic.span is not None and diagnostic.span.source.name == str(path)
    assert diagnostic.notes[0].span.source.name.endswith("linear.uop")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_library([tmp_path / "nowhere"])
    assert caught.value.diagnostic.code == "E001"


def test_functions_have_names_of_their_own(library: Library) -> None:
    assert library.operators["relu"].name == library.functions["relu"].name == "relu"


def test_shipped_operators_are_read_when_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.uop").write_text(f"{FUNCTIONS.text}\n")
    bad = "## Unbound.\nop bad(x: [n]) -> y: [n]\n  y[n] = x[m]\n"
    (tmp_path / "b.uop").write_text(f"{RELU}\n{bad}\n{SOFTMAX}")
    (tmp_path / "given").write_text(bad)
    with pytest.raises(InputError) as at_once:
        load_library([tmp_path / "given"])
    monkeypatch.setattr("unity_dsl.index.declarations.loading.folder", lambda _: tmp_path)
    known = record_of(map(read_source, tmp_path.glob("*.uop")), [], {})
    monkeypatch.setattr("unity_dsl.index.declarations.trial_record.shipped_record", lambda: known)
    library = load_library()
    assert list(library.operators) == ["relu", "bad", "softmax"] and len(library.operators) == 3
    assert "bad" in library.operators and "worse" not in library.operators
    assert library.operators["softmax"] is library.operators["softmax"]
    with pytest.raises(InputError) as asked:
        library.operators["bad"]
    assert asked.value.diagnostic.code == at_once.value.diagnostic.code == "E101"
    with pytest.raises(KeyError):
        library.operators["worse"]


def test_two_shipped_operators_of_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        (tmp_path / f"{name}.uop").write_text("op same(x: [n..]) -> y: [n..]\n  y[n..] = x[n..]\n")
    monkeypatch.setattr("unity_dsl.index.declarations.loading.folder", lambda _: tmp_path)
    with pytest.raises(InputError) as caught:
        load_library()
    diagnostic = caught.value.diagnostic
    assert diagnostic.code == "E105" and diagnostic.span is not None
    assert diagnostic.span.source.name == str(tmp_path / "b.uop")
    assert diagnostic.notes[0].span.source.name == str(tmp_path / "a.uop")


@pytest.mark.parametrize(
    "body",
    [
        "op f(x: [c]) -> y: [c]\n  y[c] = x[c + 1 else 0]\n",
        # An index of a result runs over the dimension at its place, `e`, whatever the name of the index.
        "op f(x: [c]) -> y: [e]\n  where e == c - 1\n  y[c] = x[c + 1]\n",
        "op f(x: [c]) -> y: [e]\n  where e == c - 1\n  y[e] = x[e + 1] * x[1 + e]\n",
    ],
)
def test_reads_that_may_be_inside_are_no_fault_of_the_declaration(body: str) -> None:
    library = library_of([Source("case.uop", body)])
    assert instantiate(library.operators["f"], [Shape((5,))], {}).outputs
