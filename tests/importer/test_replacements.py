"""Modules that a block of the language replaces: equal to the modules, or refused with a reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import unity_dsl as u
from unity_dsl.cli import run
from unity_dsl.importer.capture import capture
from unity_dsl.importer.model_import import ImportedModel, import_module, imported_model
from unity_dsl.syntax.diagnostic import InputError

from . import replaced
from .replaced import TEXT, Decay, of_class, variant


def imported(example: tuple[nn.Module, dict[str, Any]], verified: bool = True) -> ImportedModel:
    module, batch = example
    return imported_model(module, (), batch, "m", verified=verified)


@pytest.mark.parametrize("name", ["decays", "paired", "routed"])
def test_a_block_stands_for_a_module(name: str) -> None:
    """Loss and gradients equal those of the module's own code, to the rounding of float64."""
    found = imported(getattr(replaced, name)()).verified
    assert found is not None and found.loss < 1e-12 and found.gradient < 1e-12


def test_the_text_does_not_grow_with_the_sequence() -> None:
    short, long = (imported(of_class(Decay, length), verified=False).files["m.udl"] for length in (5, 200))
    assert short.replace("5", "200") == long and "decay[n=3](" in short


def test_a_wrong_block_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The comparison finds it, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    assert run(["import", f"{replaced.__name__}:slower", "-o", "out", "--no-sizes"]) == 2
    error = capsys.readouterr().err
    assert "error[E606]" in error and "Traceback" not in error and not Path("out").exists()


class Counting(Decay):
    """Counts its calls in a buffer."""

    def __init__(self, width: int, states: int) -> None:
        super().__init__(width, states)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor, input: Tensor, kept: Tensor, start: Tensor | None = None) -> tuple[Tensor, Tensor]:
        self.calls: Tensor
        self.calls += 1
        return super().forward(x, input, kept, start)


u.replaces(Counting)(replaced.decay)


def block(before: str, after: str) -> Callable[[Any], u.Block]:
    """A function that gives the block with `before` replaced by `after`."""
    assert before in TEXT
    return lambda module: u.Block(TEXT.replace(before, after), n=module.states)


FAULTS: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "no such operand": (block("rate, w", "rote, w"), "E612", "`rote`, which Variant neither is called with nor has"),
    "an operand that is none": (block("kept)", "kept, start)"), "E612", "`start` of block `decay` is None"),
    "an argument that is not read": (
        lambda module: u.Block(
            TEXT.replace(", kept)", ")").replace("choose(kept[b, s] -> [b, s, 1], y, y * 0)", "y"), n=3
        ),
        "E612",
        "does not read `kept`",
    ),
    "too few results": (block("), h\n", ")\n"), "E612", "returns 1 tensor where Variant returns 2"),
    "another shape": (block("y * 0), h", "y * 0), shown"), "E612", "returns [2, 5, 8], [2, 5, 8] where"),
    "a weight": (block("  rates", "  weight w: f32[8] ~ zeros\n  rates"), "E612", "declares and updates no tensors"),
    "two blocks": (lambda module: u.Block(TEXT + TEXT.replace("decay", "other"), n=3), "E612", "2 blocks"),
    "no syntax": (block("choose(", "choose"), "E011", "block of tests.importer.replaced.Variant"),
    "no such operator": (block("linear_bias(", "linear_biased("), "E210", "linear_biased"),
    "no setting": (lambda module: u.Block(TEXT), "E2", "`n`"),
    "a setting that is no number": (lambda module: u.Block(TEXT, n=module.rate), "E611", "`n` to Parameter"),
    "no block": (lambda module: TEXT, "E611", "returned str"),
    "a function that raises": (lambda module: u.Block(TEXT, n=module.width), "E611", "AttributeError"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_told(name: str) -> None:
    function, code, told = FAULTS[name]
    with pytest.raises(InputError) as error:
        imported(of_class(variant(function)))
    found = error.value.diagnostic
    assert found.code.startswith(code) and told in f"{found.span} {found.message}", found


def test_a_module_that_updates_a_buffer_is_refused() -> None:
    """Its buffers keep their values."""
    module, batch = of_class(Counting)
    with pytest.raises(InputError, match=r"E612.* updates its buffer `calls`"):
        imported((module, batch))
    assert all(float(buffer) == 0 for buffer in module.buffers())


def test_blocks_of_one_name_are_told_apart() -> None:
    torch.manual_seed(0)
    other = variant(block("y * 0)", "0 * y)"))
    found = imported((replaced.Decays(Decay(8, 3), other(8, 3)), replaced.batch()))
    assert found.verified is not None and found.verified.ok
    assert all(f"block {name}[n](" in found.files["m.udl"] for name in ("decay", "decay_2"))


class Own(Decay):
    """Has its own forward, which can be captured."""

    def forward(self, x: Tensor, input: Tensor, kept: Tensor, start: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self.out(x * input) * kept[..., None], x


def test_a_subclass_with_a_forward_of_its_own_is_not_replaced() -> None:
    found = imported(of_class(Own))
    assert found.verified is not None and found.verified.ok and "block" not in found.files["m.udl"]


def test_modules_without_weights_are_replaced() -> None:
    """They are captured from shapes alone. A module that depends on values is refused, as there are none."""
    whole, light = (
        import_module(f"{replaced.__name__}:paired", "m", verified=False, weights=given) for given in (True, False)
    )
    assert _statements(whole) == _statements(light)
    with pytest.raises(InputError, match=r"E603.* depends on values"):
        import_module(f"{replaced.__name__}:decays", "m", weights=False)


def _statements(found: ImportedModel) -> list[str]:
    return [line for line in found.files["m.udl"].splitlines() if " ~ " not in line]


def test_the_module_is_left_as_it_was() -> None:
    module, batch = replaced.decays()
    before = module(**batch)
    capture(module, (), batch)
    assert "forward" not in vars(module.first) and torch.equal(module(**batch), before)


def test_only_classes_of_modules_are_replaced() -> None:
    with pytest.raises(TypeError, match="not a class of"):
        u.replaces(len)  # type: ignore[arg-type]
