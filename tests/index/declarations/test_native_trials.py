"""Native calls and derivatives against the statements: contradictions are refused, shipped declarations pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.sampling import SAMPLE, of_the_day
from unity_dsl.index.declarations import native_trials
from unity_dsl.index.declarations.function_trials import check_function_lines
from unity_dsl.index.declarations.loading import library_of, library_sources
from unity_dsl.index.declarations.native_trials import check_native_lines
from unity_dsl.index.library import Library
from unity_dsl.syntax.codes import CODES
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.span import Source

from ..declare import FUNCTIONS

FOLDER = Path(__file__).parents[2] / "cases" / "contradiction"
CASES = sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.uop"))


@pytest.mark.parametrize("name", of_the_day(CASES, 40))
def test_a_line_that_contradicts_the_others_is_refused(name: str) -> None:
    """The folder is the error code. The diagnostic points at a line of the declaration, with numbers or a reason."""
    text = (FOLDER / f"{name}.uop").read_text()
    with pytest.raises(InputError) as caught:
        library_of([FUNCTIONS, Source("case.uop", text)])
    found = caught.value.diagnostic
    assert found.code == name.partition("/")[0], found
    assert found.span is not None and found.span.source.name == "case.uop"
    assert re.search(r"\d|cannot be called|could not be tried", found.message + found.label)


def test_every_code_of_contradictions_has_cases() -> None:
    assert {name.partition("/")[0] for name in CASES} == {"E114", "E108", "E116"} <= CODES.keys()


RIGHT = {
    "a string": """op soft(x: [b..]) -> y: [b..]
  y[b..] = x[b..] * (1 + tanh(0.7978845608028654 * (x[b..] + 0.044715 * x[b..] * x[b..] * x[b..]))) / 2
  torch: F.gelu(x, approximate="tanh")
""",
    "a sum of squares": """op squares(x: [n..], y: [n..]) -> z: []
  z[] = sum(n..) (x[n..] - y[n..]) * (x[n..] - y[n..])
  torch: F.mse_loss(x, y, reduction="sum")
""",
    "rounding where numbers cancel": """fn expless(x)
  derivative x: exp(x)
  torch: torch.sub(torch.exp(x), 1)
  numpy: np.expm1(x)
""",
    "one size only": """op tenth(x: [b, c]) -> y: [b]
  where c == 10
  y[b] = sum(c) x[b, c] / 10
  torch: torch.mean(x, -1)
""",
    "undefined on one side": """op root(x: [b..]) -> y: [b..]
  y[b..] = sqrt(x[b..] - 100)
  torch: torch.sqrt(torch.sub(x, 100))
""",
    "an attribute that torch refuses": """op mean3(x: [n, c, l]; stride = 1) -> y: [n, c, q]
  where q == (l - 3) // stride + 1, r == 3
  y[n, c, q] = sum(r) x[n, c, q * stride + r] / 3
  torch: F.avg_pool1d(x, 3, stride)
""",
    "a derivative by convention": """fn ramp(x) = maximum(x, 0)
  derivative x: [x > 0] + [x == 0] / 3
""",
    "steps": """fn stairs(x)
  derivative x: 0
  torch: torch.floor(x)
  numpy: np.floor(x)
""",
    "a slope that ends": """fn six(x) = minimum(maximum(x, 0), 6)
  derivative x: [x >= 0] * [x <= 6]
  torch: torch.clamp(x, 0, 6)
""",
    "ties first": """op pool(x: [n, c, h, w]) -> y: [n, c, p, q]
  where r == 3, s == 3, p == h, q == w
  y[n, c, p, q] = max(r, s; ties = first) x[n, c, p + r - 1, q + s - 1 else -inf]
  torch: F.max_pool2d(x, 3, 1, 1)
""",
    "masks": """op kept(x: [b.., s, t], m: int<v>[b.., s, t]) -> y: [b.., s, t]
  y[b.., s, t] = select(m[b.., s, t] != 0, x[b.., s, t], -inf)
  torch: torch.masked_fill(x, torch.ne(torch.ne(m, 0), True), -1e999)
""".replace("-1e999", "-inf"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_agrees_is_accepted(name: str) -> None:
    library_of([FUNCTIONS, Source("case.uop", RIGHT[name])])


@pytest.fixture(scope="module")
def shipped() -> Library:
    return library_of(library_sources())


def test_shipped_functions_pass(shipped: Library) -> None:
    for function in shipped.functions.values():
        check_function_lines(function, shipped.functions)


def test_shipped_operators_pass_at_the_instances_of_the_day(shipped: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """The instances differ from those tried before the operators shipped."""
    native = [name for name, operator in shipped.operators.items() if operator.torch is not None]
    monkeypatch.setattr(native_trials, "INSTANCES", 20)
    for name in of_the_day(native, 6):
        print(f"{name}: UNITY_SAMPLE={SAMPLE}")
        check_native_lines(shipped.operators[name], shipped, seed=SAMPLE)
