"""Blocks for similar modules: their texts, names of weights and sizes; random trees of modules against torch."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from unity_dsl.graph.model_graph import build_model
from unity_dsl.importer.initialisers import drawn
from unity_dsl.importer.model_import import ImportedModel, import_module, imported_model
from unity_dsl.index.declarations.loading import library_of, library_sources
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.span import Source

from .modules import Example


class Unit(nn.Module):
    """A convolution, its norm, dropout and relu."""

    def __init__(self, given: int, made: int, stride: int = 1, drop: float = 0.0) -> None:
        super().__init__()
        self.conv = nn.Conv2d(given, made, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(made)
        self.drop = nn.Dropout(drop)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.drop(self.norm(self.conv(x))))


class Residual(nn.Module):
    """Three units with a residual connection around them; also returns the result of the first one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second, self.third = Unit(width, width), Unit(width, width), Unit(width, width)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        middle = self.first(x)
        return x + self.third(self.second(middle)), middle


class Pyramid(nn.Module):
    """Levels of two widths, one module that is called twice, and a list of equal layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = Unit(3, width)
        self.one, self.down, self.two = Residual(width), Unit(width, 2 * width, 2), Residual(2 * width)
        self.three, self.four = Residual(2 * width), Residual(2 * width)
        self.layers = nn.ModuleList(Unit(2 * width, 2 * width, drop=0.25) for _ in range(3))
        self.shared = Unit(2 * width, 2 * width)
        self.head = nn.Linear(2 * width, 5)

    def forward(self, image: Tensor, label: Tensor) -> Tensor:
        x, side = self.one(self.stem(image))
        x, below = self.two(self.down(x))
        x, beside = self.three(x)
        x, last = self.four(x)
        for layer in self.layers:
            x = layer(x)
        x = self.shared(self.shared(x)) + below + beside + last + side.mean()
        return F.cross_entropy(self.head(x.mean((2, 3))), label)


def pyramid(width: int = 4) -> Example:
    torch.manual_seed(0)
    return Pyramid(width), {"image": torch.randn(4, 3, 8, 8), "label": torch.randint(5, (4,))}


def imported(make: Callable[[], Example]) -> ImportedModel:
    module, inputs = make()
    return imported_model(module, (), inputs, "m")


def test_modules_that_do_alike_are_calls_of_one_block() -> None:
    """A unit is written once, though some have other sizes and strides. A module that is called twice has its weights
    once, outside of any block.
    """
    found = imported(pyramid)
    text = found.files["m.udl"]
    assert "\nblock unit[out_channels, in_channels, stride = 1](x)\n" in text and text.count("conv2d(") == 4
    assert "\nblock residual[in_channels](x)\n  first = unit[" in text and "  return first, total\n" in text
    assert "\n  one, one_total = residual[in_channels=4](stem)\n" in text
    assert "\n  down = unit[out_channels=8, in_channels=4, stride=2](one_total)\n" in text
    assert text.count("batch_norm2d[num_features=8](") == 1, "that of the layers, which drop what it makes"
    shared = [name for name in found.weights if name.startswith("shared")]
    assert sorted(shared) == ["shared_conv_weight", *(f"shared_norm_{one}" for one in sorted(STATES))]
    assert found.verified is not None and found.verified.gradient < 1e-10


STATES = ("bias", "running_mean", "running_var", "weight")


def test_weights_are_named_after_calls() -> None:
    """Each tensor of the state_dict has one weight, whose name tells where the tensor is."""
    module, _ = pyramid()
    weights = imported(pyramid).weights
    states = {name for name in module.state_dict() if not name.endswith("num_batches_tracked")}
    assert sorted(own.state for own in weights.values()) == sorted(states)
    named = {"one.first.conv_weight", "two.second.norm.running_var", "layers.2.conv_weight"}
    assert {weights[name].state for name in named} == {
        "one.first.conv.weight",
        "two.second.norm.running_var",
        "layers.2.conv.weight",
    }


def test_sizes_of_the_factory_are_arguments(here: ModuleType) -> None:
    """At another width, the text gives the model of the module of that width."""
    text = import_module(f"{here.__name__}:pyramid", "m").files["m.udl"]
    assert "out_channels=2 * width" in text and "model m[b = 4, width = 4, size = 8]" in text
    library = library_of(library_sources(()))
    for width in (4, 6):
        graph = build_model(parse_model(Source("m.udl", text)), library, {"width": width}).graph
        module, inputs = pyramid(width)
        own = imported_model(module, (), inputs, "m")
        other = build_model(parse_model(Source("m.udl", own.files["m.udl"])), library).graph
        shapes = {one.value.name: one.value.shape for one in (*graph.weights, *graph.buffers)}
        assert shapes == {one.value.name: one.value.shape for one in (*other.weights, *other.buffers)}


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """This module, under a name that a command line could contain."""
    module = sys.modules[__name__]
    monkeypatch.setitem(sys.modules, "of_blocks", module)
    monkeypatch.setattr(module, "__name__", "of_blocks")
    return module


class Numbered(nn.Module):
    """Modules whose names begin with digits or underscores, that compute tensors from their weights alone, and whose
    result is an output.
    """

    def __init__(self) -> None:
        super().__init__()
        for kernel in (1, 3, 5):
            self.add_module(f"{kernel}x{kernel}", Unit(4, 4))
        self._1, self._2 = weight_norm(nn.Linear(4, 4)), weight_norm(nn.Linear(4, 4))
        self.class_ = Unit(4, 4)

    def forward(self, image: Tensor, label: Tensor) -> dict[str, Tensor]:
        for unit in (getattr(self, name) for name in ("1x1", "3x3", "5x5")):
            image = unit(image)
        logits = self._2(torch.relu(self._1(self.class_(image).mean((2, 3)))))
        return {"logits": logits, "loss": F.cross_entropy(logits, label)}


def numbered() -> Example:
    torch.manual_seed(0)
    return Numbered(), {"image": torch.randn(4, 4, 8, 8), "label": torch.randint(4, (4,))}


def test_names_of_modules_that_are_no_names_of_tensors() -> None:
    text = imported(numbered).files["m.udl"]
    assert "\n  layer_1x1 = unit(image)\n" in text.replace("unit[inputs=4](", "unit(") and " as logits\n" in text
    assert "block parametrized_linear" in text and text.count("linear_bias(") == 1


def test_initial_numbers_do_not_decide_what_is_alike() -> None:
    """After training, the weights of all modules have other deviations, and biases have other means."""
    module, inputs = pyramid()
    with torch.no_grad():
        for place, weight in enumerate(module.parameters()):
            weight.add_(0.1 * torch.randn_like(weight)).mul_(1 + place % 3)
    text = imported_model(module, (), inputs, "m").files["m.udl"]
    assert text.count("conv2d(") == 4 and "\nblock residual[" in text


class Gated(nn.Module):
    """A layer with a given initial gate and deviation of weights."""

    def __init__(self, start: float, std: float) -> None:
        super().__init__()
        self.map, self.gate = nn.Linear(8, 8), nn.Parameter(torch.full((8,), start))
        nn.init.normal_(self.map.weight, 0, std)
        nn.init.zeros_(self.map.bias)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.map(x))
        return x + y * torch.sigmoid(self.gate) + y.square()


class Gates(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = Gated(-2.0, 0.02), Gated(-2.0, 0.02)
        self.three, self.four = Gated(3.0, 0.1), Gated(-0.5, 0.1)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(self.four(self.three(self.two(self.one(x)))), y)


ORDINALS = ("one", "two", "three", "four")


def test_what_modules_are_told_to_begin_with_is_kept() -> None:
    """Constants keep their signs, and matrices their deviations if these differ by more than chance."""
    torch.manual_seed(0)
    found = imported_model(Gates(), (), {"x": torch.randn(4, 8), "y": torch.randn(4, 8)}, "m")
    graph = build_model(parse_model(Source("m.udl", found.files["m.udl"])), library_of(library_sources(()))).graph
    starts = {one.value.name: [part.value for part in one.initialiser.arguments] for one in graph.weights}  # type: ignore[union-attr]
    assert "block gated[" in found.files["m.udl"]
    assert [starts[f"{name}.gate"] for name in ORDINALS] == [[-2.0], [-2.0], [3.0], [-0.5]]
    assert [starts[f"{name}.map_weight"] for name in ORDINALS] == [[0.02], [0.02], [0.1], [0.1]]


# ---------------------------------------------------------------------------------------------- random modules


class Tree(nn.Module):
    """A random module on vectors: its children may be trees too, some are called twice, and there are residuals."""

    def __init__(self, source: random.Random, kinds: list[int], width: int, depth: int) -> None:
        super().__init__()
        self.steps = kinds
        made = [self.child(source, kind, width, depth) for kind in kinds]
        self.parts = nn.ModuleDict({f"part{place}": part for place, part in enumerate(made)})

    def child(self, source: random.Random, kind: int, width: int, depth: int) -> nn.Module:
        if kind >= 4 and depth:
            return Tree(source, CHOICES[kind % len(CHOICES)], width, depth - 1)
        if kind == 3:
            return nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        return [nn.Linear(width, width), nn.LayerNorm(width), nn.BatchNorm1d(width)][kind % 3]

    def forward(self, x: Tensor) -> Tensor:
        kept = x
        for place, kind in enumerate(self.steps):
            part = self.parts[f"part{place}"]
            x = torch.tanh(part(x)) if kind % 2 else x + part(x)
            if kind == 6:
                x = part(x) - kept
        return x


CHOICES: list[list[int]] = []


class Forest(nn.Module):
    """Trees of two widths, one after another."""

    def __init__(self, source: random.Random) -> None:
        super().__init__()
        CHOICES[:] = [[source.randrange(8) for _ in range(source.randint(1, 4))] for _ in range(3)]
        widths = [source.choice([4, 6]) for _ in range(source.randint(2, 4))]
        self.inner = nn.ModuleList(Tree(source, source.choice(CHOICES), width, 2) for width in widths)
        self.widen = nn.ModuleList(nn.Linear(a, b) for a, b in zip([3, *widths], widths, strict=False))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        for widen, tree in zip(self.widen, self.inner, strict=True):
            x = tree(widen(x))
        return (x.mean(1) - y).square().mean()


@pytest.mark.parametrize("seed", range(12))
def test_a_random_tree_of_modules_is_its_text(seed: int) -> None:
    """Compares loss, gradients and statistics as the import does."""
    torch.manual_seed(seed)
    module = Forest(random.Random(seed))
    found = imported_model(module, (), {"x": torch.randn(4, 3), "y": torch.randn(4)}, "forest")
    assert found.verified is not None and found.verified.ok, f"seed {seed}"


# ---------------------------------------------------------------------------------------------- initialisers


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (lambda w: nn.init.kaiming_uniform_(w, a=5**0.5), "fan_in_uniform(1 / 3)"),
        (lambda w: nn.init.kaiming_uniform_(w), "fan_in_uniform(2)"),
        (lambda w: nn.init.xavier_uniform_(w), "xavier_uniform"),
        (lambda w: nn.init.uniform_(w, -0.3, 0.3), "uniform(-0.3, 0.3)"),
        (lambda w: nn.init.kaiming_normal_(w), "fan_in_normal(2)"),
        (lambda w: nn.init.normal_(w), "normal(1)"),
        (lambda w: nn.init.kaiming_normal_(w, mode="fan_out"), "fan_out_normal(2)"),
        (lambda w: nn.init.normal_(w, 0, w[0].numel() ** -0.5), "fan_in_normal(1)"),
        (lambda w: nn.init.normal_(w, 0, 0.02), "normal(0.02)"),
        (lambda w: nn.init.normal_(w, 0, 0.3), "normal(0.3)"),
    ],
)
@pytest.mark.parametrize("shape", [(96, 40), (64, 24, 3, 3)])
def test_how_weights_are_drawn_is_recognised(
    draw: Callable[[Tensor], Any], expected: str, shape: tuple[int, ...]
) -> None:
    for seed in range(5):
        torch.manual_seed(seed)
        assert expected in drawn(draw(torch.empty(shape))), f"seed {seed}"
