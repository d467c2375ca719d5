"""Signature tables: their contents, and diagnostics for faulty ones."""

from __future__ import annotations

import pytest

from unity_dsl.index.declarations.loading import load_library
from unity_dsl.resources import folder
from unity_dsl.rules.enumeration.context import contexts, type_text
from unity_dsl.rules.enumeration.signature import read_signature
from unity_dsl.rules.enumeration.signature_table import load_table, read_table
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.span import Source

LIBRARY = load_library()
REQUIRED = (
    *("linear", "matmul", "conv2d", "relu", "gelu", "exp", "softmax", "layer_norm", "rms_norm", "add", "mul", "scale"),
    *("concat", "slice", "reduce_sum", "avg_pool2d", "max_pool2d", "embedding", "full_attention"),
    *("partition", "combine", "replicate", "reduce"),
)


def test_the_shipped_table_covers_the_operators_and_types_follow_from_their_declarations() -> None:
    table = load_table(folder("rules") / "signatures.toml")
    texts = [text for theme in table.themes for text in (*theme.signatures, *theme.special)]
    read = [read_signature(text, LIBRARY, table.place(text)) for text in texts]
    assert all(len(signature.types) == len(signature.results) for signature in read)
    for name in REQUIRED:
        assert any(f" {name}(" in text or f" {name}[" in text for text in texts), name


@pytest.mark.parametrize(
    ("text", "results"),
    [
        ("(x: [m, k], w: [n, k]) linear(x, w)", ["[m, n]"]),
        ("(x: [b * m, n]) x[(b m), n] -> [b, m, n]", ["[b, m, n]"]),
        ("(x: [n, i, h + r - 1, w + s - 1], k: [o, i, r, s]) conv2d(x, k)", ["[n, o, h, w]"]),
        ("(x: [a + b]) slice(x; dim=0, start=0, stop=a), slice(x; dim=0, start=a, stop=a + b)", ["[a]", "[b]"]),
        ("(x: [m, p * n]) partition[p; dim=1](x)", ["[@p, m, n]"]),
        ("(i: int<v>[m], w: [v, n]) embedding(i, w)", ["[m, n]"]),
        ("(x: [m, n]) reduce_sum(x[m, n] -> [m])", ["[m]"]),
    ],
)
def test_types_of_results_follow_from_the_declaration(text: str, results: list[str]) -> None:
    assert [type_text(tensor) for tensor in read_signature(text, LIBRARY).types] == results


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("[a\n", 1, "not a toml file"),
        ("# nothing\n", 1, "no theme"),
        ("x = 1\n", 1, "outside of a theme"),
        ("[a]\nsignature = []\n", 2, "unknown key `signature`"),
        ("[a]\nsignatures = [1]\n", 2, "is a list of texts"),
        ("[a]\nsignatures = []\n", 1, "has no signatures"),
        ('[a]\noperators = 9\nsignatures = ["(x: [n]) relu(x)"]\n', 2, "from 1 to 4"),
        ('[a]\nsignatures = ["(x: [n]) relu(x)", "(x: [n]) relu(x)"]\n', 2, "stands twice"),
        ('[a]\nsignatures = [\n  "(x: [n]) rely(x)",\n]\n', 3, "unknown operator `rely`"),
        ('[a]\nsignatures = [\n  "(x: [n], y: [n]) add(x, y)",\n  "(x: [n]) matmul(x, x)",\n]\n', 4, "matmul"),
        ('[a]\nsignatures = [\n  "relu(x)",\n]\n', 3, "declared with its sizes"),
    ],
)
def test_a_bad_table_has_a_diagnostic_at_its_place(text: str, line: int, message: str) -> None:
    with pytest.raises(InputError) as caught:
        contexts(read_table(Source("table.toml", text)), LIBRARY)
    found = caught.value.diagnostic
    assert found.code == "E509"
    assert message in found.message
    assert found.span is not None and found.span.source.position(found.span.start)[0] == line
