"""JSON with spans, against Python's own reader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import isnan
from random import Random
from typing import Any

import pytest

from unity_dsl.search.imports.json_text import DEEPEST, Json, parse_json
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.span import Source

from ...sampling import SAMPLE


def parsed(text: str) -> Json:
    return parse_json(Source("plan.json", text))


def plain(found: Json) -> Any:
    if isinstance(found.value, dict):
        return {name: plain(part) for name, part in found.value.items()}
    return list(map(plain, found.value)) if isinstance(found.value, list) else found.value


def parts(found: Json) -> Iterator[Json]:
    yield found
    inner = found.value.values() if isinstance(found.value, dict) else found.value
    for part in inner if isinstance(found.value, dict | list) else ():  # type: ignore[union-attr]
        yield from parts(part)  # type: ignore[arg-type]


def drawn(rng: Random, depth: int = 0) -> Any:
    kind = rng.randrange(8 if depth < 4 else 6)
    if kind == 6:
        return [drawn(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 7:
        return {f'n{number}"\\ é': drawn(rng, depth + 1) for number in range(rng.randrange(4))}
    return [rng.randrange(-(10**9), 10**9), rng.random() * 1e-7, True, None, "", 'a"b\\\n\u2603{[,:'][kind]


def test_values_are_those_of_json_and_spans_are_theirs() -> None:
    rng = Random(SAMPLE)
    for number in range(300):
        wanted = drawn(rng)
        text = json.dumps(wanted, indent=rng.choice([None, 1, 4]), ensure_ascii=rng.random() < 0.5)
        found = parsed(f" \n{text}\t")
        assert plain(found) == wanted, f"UNITY_SAMPLE={SAMPLE}: {number}"
        for part in parts(found):
            assert json.loads(part.span.text) == plain(part), f"UNITY_SAMPLE={SAMPLE}: {number}"


def test_text_that_is_no_json_is_refused_with_its_place() -> None:
    """After any change, the text is read as Python's reader reads it, or both refuse it."""
    rng, refused = Random(SAMPLE), 0
    for number in range(2000):
        text = json.dumps(drawn(rng))
        place = rng.randrange(len(text) + 1)
        changed = text[:place] + rng.choice('{}[]",:0 .ex-tn\\') + text[place + rng.randrange(2) :]
        try:
            wanted = json.loads(changed)
        except json.JSONDecodeError:
            with pytest.raises(InputError, match="E321") as raised:
                parsed(changed)
            span = raised.value.diagnostic.span
            assert span is not None and 0 <= span.start < span.end <= max(1, len(changed))
            refused += 1
            continue
        try:
            assert plain(parsed(changed)) == wanted, f"UNITY_SAMPLE={SAMPLE}: {number}: {changed}"
        except InputError as error:  # a duplicate name, a number of too many digits
            message = error.diagnostic.message
            assert "twice" in message or "value is missing" in message, f"UNITY_SAMPLE={SAMPLE}: {changed}: {message}"
    assert refused > 500


@pytest.mark.parametrize(
    ("text", "said", "line", "column"),
    [
        ('{"a": 1,\n "b" 2}', "a colon is missing", 2, 6),
        ('{"a": 1,\n "a": 2}', "`a` is there twice", 2, 2),
        ("[1, 2", "a comma or `]` is missing", 1, 5),
        ("[1,, 2]", "a value is missing", 1, 4),
        ("{1: 2}", "a text is missing", 1, 2),
        ("[] []", "there is more after the end", 1, 4),
        ('["a', "unterminated string", 1, 2),
        ("[" * (DEEPEST + 2) + "]" * (DEEPEST + 2), "nested too deeply", 1, DEEPEST + 2),
        ("9" * 5000, "a value is missing", 1, 1),
    ],
)
def test_what_is_said(text: str, said: str, line: int, column: int) -> None:
    with pytest.raises(InputError) as raised:
        parsed(text)
    diagnostic = raised.value.diagnostic
    assert said in diagnostic.message and diagnostic.span is not None
    assert diagnostic.span.source.position(diagnostic.span.start) == (line, column)


def test_what_is_not_a_number_is_one_there() -> None:
    """Costs of infeasible choices."""
    first, second, third = plain(parsed("[NaN, Infinity, -Infinity]"))
    assert isnan(first) and second == float("inf") == -third


def test_fields_of_another_kind_are_refused_where_they_are() -> None:
    found = parsed('{"a": [1, "2"], "b": "3,x,5", "c": true}')
    for read, said, text in (
        (lambda: found["d"], "the field `d` is missing", found.span.text),
        (lambda: found["a"].table(), "no table", '[1, "2"]'),
        (lambda: found["b"].items(), "no list", '"3,x,5"'),
        (lambda: found["b"].numbers(), "no whole number", "x"),
        (lambda: found["a"].items()[1].number(), "no whole number of 0 or more", '"2"'),
        (lambda: found["a"].items()[0].number(2), "no whole number of 2 or more", "1"),
        (lambda: found["c"].number(), "no whole number", "true"),
        (lambda: found["a"].text(), "no text", '[1, "2"]'),
    ):
        with pytest.raises(InputError, match=said) as raised:
            read()
        assert raised.value.diagnostic.span is not None and raised.value.diagnostic.span.text == text
    assert [part.number() for part in parsed('"4, 4 ,2"').numbers()] == [4, 4, 2]
