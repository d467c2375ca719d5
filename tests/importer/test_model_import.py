"""Modules and the models imported from them: losses and gradients are equal, and the text is readable."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest
import torch

from unity_dsl.cli import run
from unity_dsl.emit.rank_comparison import load_program
from unity_dsl.graph.model_graph import build_model
from unity_dsl.importer.capture import capture
from unity_dsl.importer.model_import import ImportedModel, import_module
from unity_dsl.importer.verification import verify
from unity_dsl.index.declarations.loading import library_of, library_sources
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.span import Source

from . import modules

FACTORY = f"{modules.__name__}:"


def imported(name: str) -> ImportedModel:
    return import_module(FACTORY + name, name, sizes=False)


OTHERS = (
    "two_lists",
    "hidden_states",
    "words",
    "by_hand",
    "up_and_down",
    "plain_norms",
    "dropping",
    "weighed",
    "library_encoder",
)


@pytest.mark.parametrize("name", ["language_model", "gated_model", "encoder", "resnet", *OTHERS])
def test_a_model_equals_its_module(name: str) -> None:
    """Loss and every gradient in float64, with the module's weights. Each weight has its name in the module. Rotary
    positions are float32 tables in the module.
    """
    found = imported(name)
    most = 1e-6 if name == "gated_model" else 1e-12
    assert found.verified is not None and found.verified.loss < most and found.verified.gradient < most
    module, _ = getattr(modules, name)()
    states = module.state_dict(keep_vars=True)
    written = json.loads(found.files["weights.json"]).values()
    weights = [stored["of"] if isinstance(stored, dict) else stored for stored in written]
    every = [names if isinstance(names, list) else [names] for names in weights]
    assert all(len({id(states[name]) for name in names}) == 1 for names in every)
    named = [id(states[names[0]]) for names in every]
    assert {id(weight) for weight in module.parameters()} <= set(named)
    whole = [name for name, stored in zip(named, written, strict=True) if not isinstance(stored, dict)]
    assert len(whole) == len(set(whole)), "of tied weights one"
    parts = [(states[own["of"]], own) for own in written if isinstance(own, dict)]
    assert set(map(id, whole)).isdisjoint(id(tensor) for tensor, _ in parts)
    for tensor in {id(tensor): tensor for tensor, _ in parts}.values():
        ranges = sorted((own["start"], own["stop"]) for other, own in parts if other is tensor)
        assert [start for start, _ in ranges] == [0, *(stop for _, stop in ranges[:-1])], "each row once"
        assert ranges[-1][1] == tensor.shape[next(own["dim"] for other, own in parts if other is tensor)]


def test_what_a_module_does_between_layers_belongs_to_them() -> None:
    """Except for a first layer that reads one tensor twice. Values that are read later keep layers apart."""
    text = imported("two_lists").files["two_lists.udl"]
    assert "repeat 2 as first  #" in text and "repeat 2 as second  #" in text and text.count("linear_bias(") == 3
    assert "repeat" not in imported("hidden_states").files["hidden_states.udl"]
    assert "repeat 2 as layers  #" in imported("library_encoder").files["library_encoder.udl"]


def test_dropout_stays() -> None:
    text = imported("dropping").files["dropping.udl"]
    assert [text.count(f"; p={p})") for p in ("0.1", "0.2", "0.5")] == [1, 1, 1]


def test_written_attention_needs_no_mask() -> None:
    text = imported("by_hand").files["by_hand.udl"]
    assert "causal_mask(" in text and "buffer" not in text


def test_layers_become_repeats() -> None:
    text = imported("language_model").files["language_model.udl"]
    assert "repeat 3 as blocks  #" in text and "model language_model[b = 2]\n" in text
    assert text.count("causal_attention(") == 1 and len(text.splitlines()) < 52
    assert text.count("weight lm_head_weight:") == 1 and "wte_weight" not in text, "tied weights are one"


def test_idioms_are_recognised() -> None:
    text = imported("gated_model").files["gated_model.udl"]
    for call in ("rms_norm(x, norm_1; eps=1e-06)", "base=500)", "causal_attention(", "gelu_tanh("):
        assert call in text
    assert "spread(" not in text, "heads share keys and values as they are"
    assert "repeat 2 as layers  #" in text and "rsqrt" not in text and "tanh(" not in text.replace("gelu_tanh(", "")


def test_running_statistics_are_updated() -> None:
    text, weights = imported("resnet").files["resnet.udl"], imported("resnet").weights
    model = build_model(parse_model(Source("resnet.udl", text)), library_of(library_sources(())))
    assert text.count("  update running_") == 2 and "num_batches_tracked" not in text
    norms = [part for part in modules.resnet()[0].modules() if isinstance(part, torch.nn.BatchNorm2d)]
    assert sum(".running_" in own.state for own in weights.values()) == 2 * len(norms)
    starts = {buffer.value.name: buffer.initialiser.name for buffer in model.graph.buffers}
    assert starts["bn1.running_mean"] == "zeros" and starts["bn1.running_var"] == "ones"


def test_sums_are_those_of_another_batch_and_frozen_weights_stay(tmp_path: Path) -> None:
    """Compared with the module on twice the examples."""
    found = imported("sums")
    weights = json.loads(found.files["weights.json"])
    (tmp_path / "sums.udl").write_text(found.files["sums.udl"])
    assert run([str(tmp_path / "sums.udl"), "-o", str(tmp_path / "out"), "--strategy", "single", "--set", "b=6"]) == 0
    module, examples = modules.sums()
    batch = {name: torch.cat((part, part)) for name, part in examples.items()}
    with load_program(tmp_path / "out") as program:
        made = program.Model(None)
        made.load_global({name: module.state_dict()[state] for name, state in weights.items()})
        loss, _ = made(**batch)
        assert {weights[name] for name, _ in made.named_parameters()} == {"way.weight", "way.bias"}
    torch.testing.assert_close(loss, module(**batch))


def prepared(name: str) -> ModuleType:
    module = ModuleType("data")
    exec(imported(name).files["data.py"], module.__dict__)
    return module


def test_labels_and_masks_are_prepared() -> None:
    """Ignored positions are split from the labels. A padding token, where `kept` is 0, has no gradient."""
    _, batch = modules.language_model()
    found = prepared("language_model").prepare(batch)
    assert set(found) == {"tokens", "target", "counted"}
    assert found["counted"].tolist() == [[0] * 3 + [1] * 5, [1] * 8] and found["target"][0, :3].tolist() == [0] * 3
    _, batch = modules.gated_model()
    found = prepared("gated_model").prepare(batch)
    assert torch.equal(found["kept"], batch["tokens"].ne(0).long())
    _, batch = modules.encoder()
    assert prepared("encoder").prepare(batch)["mask"].shape == (2, 5, 5)


def test_an_imported_model_is_compiled_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands run on two ranks, at a batch size other than that of the examples."""
    monkeypatch.chdir(tmp_path)
    assert run(["import", FACTORY + "language_model", "-o", "lm"]) == 0
    assert "from the module in float64" in capsys.readouterr().out
    assert sorted(path.name for path in Path("lm").iterdir()) == ["data.py", "language_model.udl", "weights.json"]
    assert run(["lm/language_model.udl", "-o", "out", "--devices", "2", "--set", "b=4"]) == 0
    assert run(["check", "out"]) == 0
    assert "equals its model" in capsys.readouterr().out
    assert run(["check", "out", "--data", "lm.data:batches"]) == 0
    assert "equals its model" in capsys.readouterr().out
    for fault in ("lm.data:none", "nothing", "no_such:f"):
        assert run(["check", "out", "--data", fault]) == 2
        assert fault in capsys.readouterr().err
    assert run(["import", FACTORY + "language_model", "-o", "lm"]) == 0, "the same text"
    Path("lm/data.py").write_text("edited")
    capsys.readouterr()
    assert run(["import", FACTORY + "language_model", "-o", "lm"]) == 2
    assert "E607" in capsys.readouterr().err and Path("lm/data.py").read_text() == "edited"
    assert run(["import", FACTORY + "language_model", "-o", "lm", "--force", "--no-verify"]) == 0
    assert Path("lm/data.py").read_text() != "edited"


@pytest.mark.parametrize(
    ("factory", "code", "told"),
    [
        ("no_such_module:f", "E601", "ModuleNotFoundError"),
        ("nothing", "E601", "package.module:function"),
        (FACTORY + "no_such_function", "E601", "AttributeError"),
        (FACTORY + "raising", "E601", "RuntimeError: no such data (modules.py:"),
        ("tests/importer/modules.py:encoder", "E601", "write `tests.importer.modules:encoder`"),
        (FACTORY + "number", "E602", "returned int"),
        (FACTORY + "without_tensors", "E602", "no tensors"),
        (FACTORY + "branching", "E603", "decides by values of tensors (modules.py:"),
        ("tests.importer.deep_modules:worded", "E603", "a name that is a word of Python, such as `class`"),
        (FACTORY + "without_loss", "E604", "no loss"),
        (FACTORY + "detached", "E604", "no gradient of the loss reaches a weight"),
        (FACTORY + "unusual", "E605", "modules.py"),
        (FACTORY + "wrong", "E606", "gradient of way"),
    ],
)
def test_what_cannot_be_imported_is_told(
    factory: str,
    code: str,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """There is one diagnostic, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    assert run(["import", factory, "-o", "out"]) == 2
    error = capsys.readouterr().err
    assert f"error[{code}]" in error and told in error and "Traceback" not in error
    assert not Path("out").exists()


def test_all_missing_operators_are_told_at_once() -> None:
    with pytest.raises(InputError) as error:
        imported("unusual")
    message = error.value.diagnostic.message
    assert "2 operators have no counterpart" in message and "bessel_j0" in message and "erfinv" in message


def test_tables_are_prepared() -> None:
    """A value that the module computes from no input becomes an input that `prepare` makes, the same for any batch."""
    found = imported("tabled")
    assert found.verified is not None and found.verified.loss < 1e-12
    assert "input table: f32[4]" in found.files["tabled.udl"] and "[b = 2]" in found.files["tabled.udl"]
    _, batch = modules.tabled()
    assert prepared("tabled").prepare(batch)["table"].tolist() == [0.5, 3.0, 2.0, 1.0]


@pytest.mark.parametrize(("name", "any_batch"), [("encoder", True), ("language_model", True), ("weighed", False)])
def test_the_batch_is_a_parameter_where_all_is_made_for_any(name: str, any_batch: bool) -> None:
    """Preparing a doubled batch gives each prepared input doubled, unless it contains a sum over the batch."""
    assert (f"\nmodel {name}[b = " in imported(name).files[f"{name}.udl"]) is any_batch
    if any_batch:
        _, batch = getattr(modules, name)()
        prepare = prepared(name).prepare
        once, twice = prepare(batch), prepare({key: torch.cat((part, part)) for key, part in batch.items()})
        assert all(torch.equal(torch.cat((once[key], once[key])), twice[key]) for key in once)


def test_a_wrong_gradient_and_a_buffer_that_is_not_updated_are_found(tmp_path: Path) -> None:
    """Both are found although the loss is the same."""
    captured = capture(*(lambda module, inputs: (module, (), inputs))(*modules.resnet()))
    found = imported("resnet")
    path = tmp_path / "resnet.udl"
    text, weights = found.files["resnet.udl"], found.weights
    for before, after, told in (
        (
            "linear_bias(global_avg_pool2d, fc_weight,",
            "linear_bias(global_avg_pool2d, reverse_gradient(fc_weight),",
            "fc.weight",
        ),
        ("update running_mean =", "unread =", "running_mean"),
    ):
        assert before in text
        path.write_text(text.replace(before, after))
        other = verify(captured, path, found.prepare, weights, tmp_path / "out")
        assert not other.ok and other.weight.endswith(told)
