"""Sizes of imported models are parameters: at other sizes, the model equals the one imported there."""

from __future__ import annotations

import random
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest

from unity_dsl.graph.graph import Graph, Segment
from unity_dsl.graph.model_graph import build_model
from unity_dsl.importer import model_import
from unity_dsl.importer.capture import Captured, capture
from unity_dsl.importer.formulas import Formula, formula_of
from unity_dsl.importer.model_import import ImportedModel, import_module
from unity_dsl.index.declarations.loading import library_of, library_sources
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.span import Source

from . import deep_modules, modules, odd_modules

FACTORY, ODD, DEEP = (f"{one.__name__}:" for one in (modules, odd_modules, deep_modules))


def graph(found: ImportedModel, name: str, settings: Mapping[str, float]) -> object:
    """The graph of the model at these settings, as a tree of names and shapes."""
    source = Source(f"{name}.udl", found.files[f"{name}.udl"])
    return tree(build_model(parse_model(source), library_of(library_sources(())), dict(settings)).graph)


def tree(found: Graph) -> object:
    kept = [(weight.value.name, weight.value.shape) for weight in (*found.inputs, *found.weights, *found.buffers)]
    return kept, [
        (step.name, step.count, tree(step.body))
        if isinstance(step, Segment)
        else (
            step.instance.operator.name,
            dict(step.instance.attributes),
            [(value.name, value.shape) for value in step.arguments],
        )
        for step in found.steps
    ]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("language_model_of", {"layers": 3, "width": 48, "heads": 6, "length": 12, "vocabulary": 30}),
        ("language_model_of", {"width": 20, "heads": 5}),
        ("perceptron", {"hidden": 11, "p": 0.3}),
        ("deep", {"width": 10, "layers": 13}),
        ("deep_but_one", {"width": 10}),
    ],
)
def test_a_model_at_other_sizes_is_the_one_imported_there(
    name: str, settings: Mapping[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = deep_modules if hasattr(deep_modules, name) else modules
    found = import_module(f"{module.__name__}:{name}", name)
    assert set(settings) <= set(found.sizes.known)
    factory = getattr(module, name)
    monkeypatch.setattr(module, name, lambda: factory(**settings))
    other = import_module(f"{module.__name__}:{name}", name, sizes=False)
    assert graph(found, name, settings) == graph(other, name, {})
    assert graph(found, name, {}) != graph(other, name, {})


def test_sizes_of_many_layers_are_found_with_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """One module is captured whole, others with few layers. If few do not represent all, half as many are tried."""
    captured = list[int]()

    def counted(module: Any, *given: Any) -> Captured:
        captured.append(len(module.layers))
        return capture(module, *given)

    monkeypatch.setattr(model_import, "capture", counted)
    import_module(DEEP + "deep", "deep", verified=False)
    assert captured[0] == 10 and len(captured) > 3 and {*captured[1:]} == {4, 5}, "five are tried, which is half"
    captured.clear()
    import_module(DEEP + "deep_but_one", "deep", verified=False)
    assert captured[:2] == [10, 4] and len(captured) > 4 and min(captured[2:]) == 5, "half as many layers are tried"


def test_what_changes_the_model_is_told() -> None:
    """`layers` adds a norm; `rows` is the batch, which is a parameter anyway; a seed changes nothing."""
    found = import_module(FACTORY + "perceptron", "perceptron")
    assert set(found.sizes.fixed) == {"layers"} and "another one" in found.sizes.fixed["layers"]
    assert "model perceptron[b = 4, hidden = 6, p = 0.2]" in found.files["perceptron.udl"]
    found = import_module(FACTORY + "language_model_of", "m", verified=False)
    assert not found.sizes.fixed and "seed" not in found.files["m.udl"]


def test_lengths_of_inputs_are_sizes() -> None:
    """Lengths that no keyword gives become sizes, and `prepare` takes other lengths too."""
    found = import_module(FACTORY + "language_model", "language_model")
    assert "model language_model[b = 2, s = 8]" in found.files["language_model.udl"]
    names: dict[str, object] = {}
    exec(found.files["data.py"], names)
    made = names["prepare"](names["random_batch"](3, 0, s=5))  # type: ignore[operator]
    assert {key: tuple(value.shape) for key, value in made.items()} == dict.fromkeys(made, (3, 5))


def test_formulas_are_found() -> None:
    """Finds random formulas from their values as one size changes at a time. The text of each gives its value."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    draw = random.Random(seed)
    for _ in range(300):
        at = {name: draw.randint(2, 9) * 4 for name in "abc"}
        moved = {name: value * draw.choice([2, 3]) for name, value in at.items()}
        names = draw.sample("abc", draw.randint(1, 3))
        if draw.random() < 0.3:
            wanted = Formula(Fraction(draw.randint(1, 5)), {names[0]: 1}, draw.randint(-7, 7))
        else:
            powers = {name: draw.choice([1, 1, 2, -1]) for name in names}
            wanted = Formula(Fraction(at[names[0]] * at[names[-1]] * 1296) ** 2, powers)
        changed = {name: int(wanted.value({**at, name: moved[name]})) for name in wanted.powers}
        exact = all(changed[name] == wanted.value({**at, name: moved[name]}) for name in changed)
        value = wanted.value(at)
        if not exact or value.denominator != 1 or value <= 0:
            continue
        found = formula_of(int(value), changed, at, moved)
        assert found is not None
        points = [{**at, name: moved[name]} for name in changed]
        if bool(found.constant) == bool(wanted.constant):  # else a product of powers has the same two values
            points.append({name: draw.randint(1, 40) for name in "abc"})
        for point in (at, *points):
            assert found.value(point) == wanted.value(point)
            given = {name: Fraction(size) for name, size in point.items()}
            assert eval(found.text("/"), given) == wanted.value(point), found.text("/")


def test_a_sum_of_products_is_no_formula() -> None:
    """A fused projection of heads with shared keys is such a sum: (heads + 2 * shared) * size."""
    at, moved = {"heads": 8, "shared": 2}, {"heads": 16, "shared": 4}
    assert formula_of(12 * 16, {"heads": (16 + 4) * 8, "shared": 16 * 16}, at, moved) is None


def test_a_number_of_examples_that_the_module_computes_with_keeps_the_batch() -> None:
    found = import_module(ODD + "counted_rows", "counted_rows")
    assert "b" in found.sizes.fixed and "input x: f32[4, 5]" in found.files["counted_rows.udl"]
    assert "b" not in import_module(FACTORY + "perceptron", "perceptron", verified=False).sizes.fixed


def test_a_formula_of_one_size_is_tried_at_a_third() -> None:
    for name in ("of_a_root", "of_at_most"):
        found = import_module(ODD + name, name, verified=False)
        assert "width" in found.sizes.fixed, name


def test_names_that_a_model_or_its_data_have_are_sizes_under_another() -> None:
    """The batch is no parameter here, as the module divides by it."""
    found = import_module(ODD + "of_such_names", "m")
    assert found.verified is not None and found.verified.ok
    assert {"b_size", "p"} <= set(found.sizes.known) | set(found.sizes.fixed)
    assert "b" in found.sizes.fixed or "b = " not in found.files["m.udl"]
