"""Every broken snippet is reported as the mistake that it exemplifies, wherever it occurs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.syntax.samples import MODEL, OPS, RULES
from unity_dsl.syntax.codes import CODES
from unity_dsl.syntax.diagnostic import Diagnostic, InputError
from unity_dsl.syntax.mistakes import MISTAKES, Mistake
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.parse_ops import parse_ops
from unity_dsl.syntax.parse_rules import parse_rules
from unity_dsl.syntax.span import Source

PARSERS: dict[str, Callable[[Source], object]] = {"uop": parse_ops, "udl": parse_model, "rules": parse_rules}
BEFORE = {"uop": OPS, "udl": MODEL, "rules": RULES}
SNIPPETS = [
    pytest.param(language, mistake, snippet, id=f"{language}: {snippet}".replace("\n", " / "))
    for language, mistakes in MISTAKES.items()
    for mistake in mistakes
    for snippet in mistake.snippets
]


def diagnostic(language: str, text: str) -> Diagnostic:
    with pytest.raises(InputError) as caught:
        PARSERS[language](Source(f"f.{language}", text))
    return caught.value.diagnostic


@pytest.mark.parametrize(("language", "mistake", "snippet"), SNIPPETS)
def test_a_snippet_is_told_as_its_mistake(language: str, mistake: Mistake, snippet: str) -> None:
    found = diagnostic(language, snippet)
    assert (found.code, found.message, found.help) == (mistake.code, mistake.message, mistake.help)
    assert found.code in CODES


@pytest.mark.parametrize(("language", "mistake", "snippet"), SNIPPETS)
def test_the_same_mistake_below_other_declarations(language: str, mistake: Mistake, snippet: str) -> None:
    before = BEFORE[language]
    found = diagnostic(language, before + snippet)
    assert found.message == mistake.message
    alone = diagnostic(language, snippet)
    assert found.span is not None and alone.span is not None
    assert (found.span.start - len(before), found.span.end - len(before)) == (alone.span.start, alone.span.end)


INNER = [
    ("y[i] = exp(x[i] + (sum x[i]))", "a reduction without axes"),
    ("y[i] = select(i < 3, x[|c + 1], 0)", "an unfinished size"),
    ("y[i] = select(i < 3, x[i] > 0, 0)", "a comparison outside brackets"),
    ("y[i] = sum(i) x[i, max(j, 0)]", "a reduction takes axes, not values"),
    ("y[i] = x[i else max(0, i)]", "a reduction takes axes, not values"),
    ("y[i] = exp(x[i] ** 2)", "there is no power operator"),
    ("y[i] = [x[i] < [0 < i < 2]]", "comparisons cannot be chained"),
    ("y[i, j, k - 1] = x[i]", "left sides have bare axis names only"),
]


@pytest.mark.parametrize(("line", "message"), INNER)
def test_a_mistake_deeper_inside(line: str, message: str) -> None:
    assert diagnostic("uop", f"op f(x: [i]) -> y: [i]\n  {line}\n").message == message
