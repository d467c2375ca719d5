"""Operators of a user's file as counterparts of torch's."""

from __future__ import annotations

from pathlib import Path

import pytest

from unity_dsl.cli import run
from unity_dsl.importer.model_import import import_module
from unity_dsl.syntax.diagnostic import InputError

from . import odd_modules

FACTORY = f"{odd_modules.__name__}:angles"
OWN = """
## Arc tangent.
fn arc_tangent(x)
  derivative x: 1 / (1 + x * x)
  torch: torch.atan(x)
  numpy: np.arctan(x)

## Arc tangent of every element.
op atan(x: [b..]) -> y: [b..]
  y[b..] = arc_tangent(x[b..])

## Length of the hypotenuse.
op hypot(x: [b..], other: [b..]) -> y: [b..]
  y[b..] = sqrt(x[b..] * x[b..] + other[b..] * other[b..])

## x where it is positive, else a curve down to -alpha.
op celu(x: [b..]; alpha = 1) -> y: [b..]
  y[b..] = maximum(x[b..], 0) + minimum(alpha * (exp(x[b..] / alpha) - 1), 0)
"""


def test_what_lacks_is_told_with_a_way_to_declare_it() -> None:
    with pytest.raises(InputError, match="E605") as error:
        import_module(FACTORY, "angles")
    told = error.value.diagnostic
    assert "atan.default at the model (odd_modules.py:" in told.message and "hypot.default" in told.message
    for stub in ("`op atan(x: [a..]) -> y: [a..]`", "`op hypot(x: [a..], other: [a..]) -> y: [a..]`"):
        assert stub in str(told.help)


def test_a_file_of_operators_gives_the_counterparts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Loss and gradients equal the module's, a user's operator precedes a decomposition, and two ranks agree."""
    monkeypatch.chdir(tmp_path)
    Path("own.uop").write_text(OWN)
    assert run(["import", FACTORY, "-o", "made", "--ops", "own.uop"]) == 0
    assert "compile it with --ops own.uop" in capsys.readouterr().out
    text = Path("made/angles.udl").read_text()
    assert " = atan(one)\n" in text and " = hypot(one, two)\n" in text and " = celu(two; alpha=0.5)\n" in text
    assert run(["made/angles.udl", "-o", "out", "--devices", "2", "--ops", "own.uop"]) == 0
    assert run(["check", "out"]) == 0


def test_an_operator_with_other_operands_is_told(tmp_path: Path) -> None:
    own = tmp_path / "own.uop"
    own.write_text(
        OWN.replace("op hypot(x: [b..], other: [b..])", "op hypot(x: [b..])").replace("other[b..]", "x[b..]")
    )
    with pytest.raises(InputError, match="E605") as error:
        import_module(FACTORY, "angles", ops=(own,))
    assert "2 operands, of which `hypot` takes 1" in error.value.diagnostic.message
