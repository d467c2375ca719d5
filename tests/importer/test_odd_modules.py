"""Modules that importers have got wrong, each imported as it is."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from unity_dsl.importer.model_import import ImportedModel, import_module

from . import modules, odd_modules


def imported(name: str) -> ImportedModel:
    return import_module(f"{odd_modules.__name__}:{name}", name, sizes=False)


def data_of(found: ImportedModel) -> ModuleType:
    made = ModuleType("data")
    exec(found.files["data.py"], made.__dict__)
    return made


def test_random_numbers_are_drawn_anew_for_every_batch() -> None:
    """By `prepare`, for any number of examples, and the same of the same seed and step."""
    found = imported("diffusion")
    assert found.verified is not None and found.verified.ok and "[b = 4]" in found.files["diffusion.udl"]
    data = data_of(found)
    x = torch.zeros(2000, 12)
    one, two = data.prepare({"x": x}), data.prepare({"x": x})
    assert not any(torch.equal(one[name], two[name]) for name in ("noise", "drawn"))
    assert abs(float(one["noise"].std()) - 1) < 0.05 and set(range(50)) == set(one["drawn"].tolist())
    batches = [data.batches({"x": x}, seed, step, "train") for seed, step in ((0, 3), (0, 3), (0, 4))]
    assert torch.equal(batches[0]["noise"], batches[1]["noise"])
    assert not torch.equal(batches[0]["noise"], batches[2]["noise"])


@pytest.mark.parametrize("name", ["locked_dropout", "penalised", "taught", "padded", "shared_layer"])
def test_what_attacks_have_found(name: str) -> None:
    found = imported(name)
    assert found.verified is not None and found.verified.ok


def test_every_element_of_a_mask_is_dropped_by_itself() -> None:
    """Also of one that is made of equal numbers."""
    text = imported("locked_dropout").files["locked_dropout.udl"]
    assert "spread(" in text.split("dropout(")[0] and "size=6" in text


def test_the_loss_is_what_the_module_calls_so() -> None:
    text = imported("penalised").files["penalised.udl"]
    made = next(line for line in text.splitlines() if line.startswith("  loss ")).split()[1]
    assert f"{made} = mse + scaled" in text


def test_parts_in_evaluation_mode_stay_so() -> None:
    """Their statistics are not updated, nothing is dropped, and that they do not begin as in the module is told."""
    found = imported("taught")
    text = found.files["taught.udl"]
    assert "batch_norm(" not in text and "dropout(" not in text and "update" not in text
    assert any("teacher_1_running_mean" in note for note in found.notes)
    assert not import_module(f"{modules.__name__}:plain_norms", "m", sizes=False).notes
