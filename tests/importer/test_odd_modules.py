"""Modules that importers have got wrong, each imported unchanged."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from unity_dsl.cli import run
from unity_dsl.importer.model_import import ImportedModel, import_module
from unity_dsl.importer.statements import DRAWING
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.prove.translation.rule_forms import draws
from unity_dsl.syntax.diagnostic import InputError

from . import modules, odd_modules


def imported(name: str) -> ImportedModel:
    return import_module(f"{odd_modules.__name__}:{name}", name, sizes=False)


def data_of(found: ImportedModel) -> ModuleType:
    made = ModuleType("data")
    exec(found.files["data.py"], made.__dict__)
    return made


def test_random_numbers_are_drawn_anew_for_every_batch() -> None:
    """`prepare` draws them for any number of examples. The same seed and step give the same numbers."""
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


ATTACKS = ["locked_dropout", "penalised", "taught", "padded", "shared_layer", "sorted_parts", "routed", "ternary"]


@pytest.mark.parametrize("name", ATTACKS)
def test_what_attacks_have_found(name: str) -> None:
    found = imported(name)
    assert found.verified is not None and found.verified.ok


def test_every_element_of_a_mask_is_dropped_by_itself() -> None:
    """This holds also for a mask that is made of equal numbers."""
    text = imported("locked_dropout").files["locked_dropout.udl"]
    assert "spread(" in text.split("dropout(")[0] and "size=6" in text


def test_the_loss_is_what_the_module_calls_so() -> None:
    text = imported("penalised").files["penalised.udl"]
    made = next(line for line in text.splitlines() if line.startswith("  loss ")).split()[1]
    assert f"{made} = mse + scaled" in text


def test_parts_in_evaluation_mode_stay_so() -> None:
    """Their statistics are not updated and nothing is dropped. A note says that their initial state differs from the
    module's.
    """
    found = imported("taught")
    text = found.files["taught.udl"]
    assert "batch_norm(" not in text and "dropout(" not in text and "update" not in text
    assert any("teacher_1_running_mean" in note for note in found.notes)
    assert not import_module(f"{modules.__name__}:plain_norms", "m", sizes=False).notes


def test_large_tables_stand_in_a_file_beside_data_py(tmp_path: Path) -> None:
    """There is one file for equal tables, however many layers have them. `data.py` finds it from any folder."""
    found = import_module(f"{odd_modules.__name__}:kept_tables", "m")
    assert found.verified is not None and found.verified.ok
    assert sorted(table.shape for table in found.tables.values()) == [(72, 72), (1024, 4, 2)]
    assert {"positions", "band"} <= set(found.sizes.fixed), "a table of other numbers is another table"
    for name, contents in found.written.items():
        (tmp_path / name).write_bytes(contents)
    batch = {"x": torch.randn(3, 72, 8)}
    made = runpy.run_path(str(tmp_path / "data.py"))["prepare"](batch)
    wanted = odd_modules.kept_tables()[0].layers[0]
    assert torch.equal(made["hidden"].bool(), wanted.hidden)
    tables = [tensor.reshape(72, 4) for tensor in made.values() if tensor.numel() == 72 * 4]
    assert any(torch.equal(table, wanted.cache[:72, :, 0]) for table in tables)
    assert all(torch.equal(tensor, found.prepare(batch)[name]) for name, tensor in made.items())


def test_what_is_computed_twice_of_the_same_is_computed_once_but_what_is_drawn() -> None:
    text = imported("sliced_twice").files["sliced_twice.udl"]
    assert [text.count(f"{word}(") for word in ("slice", "square", "dropout")] == [2, 1, 2]


def test_norms_of_heads_and_what_turns_them_are_recognised_in_any_order_of_dimensions() -> None:
    """Parts of a joined weight are named after the inputs of attention, and the number of examples is free."""
    text = imported("normed_heads").files["normed_heads.udl"]
    assert "[b = 4]" in text and "target: int<32>[b, 11]" in text and "table" not in text
    assert [text.count(f"{word}(") for word in ("rms_norm", "rope", "causal_attention", "square")] == [2, 2, 1, 0]
    assert all(f"weight qkv_weight_{word}:" in text for word in "qkv")


def test_a_gain_behind_a_norm_of_groups_is_none_of_the_norm() -> None:
    found = imported("norm_of_groups")
    assert found.verified is not None and found.verified.gradient < 1e-12
    assert "rms_norm(" not in found.files["norm_of_groups.udl"]


@pytest.mark.parametrize("name", ["drawing", "drawing_hard"])
def test_what_distributions_draw_is_drawn_by_prepare(name: str) -> None:
    """Both sides of the comparison draw the same numbers; otherwise `prepare` draws new ones."""
    found = imported(name)
    assert found.verified is not None and found.verified.gradient < 1e-9
    data, x = data_of(found), torch.zeros(1000, 8)
    one, two = (data.prepare({"x": x}) for _ in range(2))
    drawn = [key for key in one if key != "x"]
    assert len(drawn) == 2 and not any(torch.equal(one[key], two[key]) for key in drawn)


def test_batches_have_the_sizes_of_the_model_and_other_examples_in_the_test_split() -> None:
    found = import_module(f"{odd_modules.__name__}:normed_heads", "m")
    batches = data_of(found).batches
    inputs = {"tokens": SimpleNamespace(shape=(3, 8), integer_range=5)}
    train, test = (batches(inputs, 0, 0, split) for split in ("train", "test"))
    assert train["tokens"].shape == (3, 8) and int(train["tokens"].max()) < 5 and int(train["target"].max()) < 5
    assert not torch.equal(train["tokens"], test["tokens"])


def test_operators_that_draw_are_those_whose_declarations_do() -> None:
    assert {name for name, declared in load_library().operators.items() if draws(declared)} == DRAWING


def test_a_factory_whose_name_is_a_keyword_names_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["import", f"{odd_modules.__name__}:model", "-o", str(tmp_path), "--no-sizes"]
    assert run(command) == 0 and (tmp_path / "odd_modules.udl").exists()
    assert run([*command, "--name", "loss"]) == 2 and "no name of a model" in capsys.readouterr().err


def test_a_part_with_a_name_that_graphs_have_is_told() -> None:
    with pytest.raises(InputError, match="a part is called `code`"):
        imported("part_called_code")
