"""Predicted kernels of operators against those that torch's dispatcher sees, and their traffic at other sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from unity_dsl.emit.templates import template
from unity_dsl.graph.emitted_kernels import DRAWS, _emitted_kernels, emitted_kernels
from unity_dsl.graph.layout import Invariant, Mesh, MeshAxis
from unity_dsl.graph.layout_typing import Along, TypedOperator, Uniformly, type_operator
from unity_dsl.graph.model_graph import build_model
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.span import Source

LIBRARY = load_library()
ALONE = Mesh(())


@dataclass
class Kernels(TorchDispatchMode):
    """Counts operations other than views, and the bytes they read and write in tensors of more than one element."""

    count: int = 0
    bytes: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if not isinstance(result, torch.Tensor):
            return result
        given = [x for x in args if isinstance(x, torch.Tensor)]
        addresses = {x.untyped_storage().data_ptr() for x in given}
        viewed = result.untyped_storage().data_ptr() in addresses and not function._schema.name.endswith("_")
        if not viewed:
            self.count += 1
            moved = [x.numel() * x.element_size() for x in (*given, result) if x.numel() > 1]
            self.bytes += sum(moved)
        return result


def test_the_kernels_of_a_draw() -> None:
    names: dict[str, Any] = {"torch": torch, "Tensor": torch.Tensor}
    exec(template("uniform.py.j2").render(division=None), names)
    position, counter = torch.arange(1000, dtype=torch.int32), torch.tensor(0)
    for name, given in (("uniform", ()), ("at_least", (0.1,))):
        with Kernels() as seen:
            found = names[name](*given, position, counter, counter, 3)
        assert DRAWS[name] == (seen.count, found.element_size(), seen.bytes / 1000), name


def typed_at(instance: Instance, mesh: Mesh, *roles: Any) -> TypedOperator:
    found = type_operator(instance, roles, mesh, LIBRARY)
    assert isinstance(found, TypedOperator), found
    return found


@pytest.mark.parametrize(
    ("name", "shapes", "forward", "backward"),
    [
        ("relu", [(6, 4)], 1, 1),
        ("linear", [(6, 4), (8, 4)], 1, 1),
        ("root_scale", [(6, 4)], 1, 1),
        ("linear_bias_relu", [(6, 4), (8, 4), (8,)], 3, 3),  # einsum, sum, relu
        ("dropout", [(6, 4)], DRAWS["at_least"][0] + 6, 2),  # positions (3), floats, product, quotient
    ],
)
def test_counts_by_hand(name: str, shapes: list[tuple[int, ...]], forward: int, backward: int) -> None:
    instance = instantiate(LIBRARY.operators[name], list(map(Shape, shapes)), {})
    found = emitted_kernels(instance, typed_at(instance, ALONE), ALONE, LIBRARY, [True] * len(shapes), 4)
    assert (found.forward, found.backward) == (forward, backward)
    without = emitted_kernels(instance, typed_at(instance, ALONE), ALONE, LIBRARY, [False] * len(shapes), 4)
    assert (without.forward, without.backward) == (forward, 0)


@pytest.mark.parametrize("name", ["dropout", "linear_bias_gelu", "layer_norm_linear", "rms_norm_linear", "rope"])
def test_traffic_at_other_sizes_is_that_of_the_operator_there(name: str) -> None:
    """Traffic extrapolated from one size to twice the rows equals the traffic of kernels built at twice the rows."""
    shapes = {
        "dropout": [(6, 4)],
        "linear_bias_gelu": [(6, 4), (8, 4), (8,)],
        "layer_norm_linear": [(6, 4), (4,), (4,), (8, 4)],
        "rms_norm_linear": [(6, 4), (4,), (8, 4)],
        "rope": [(6, 3, 4)],
    }[name]
    mesh = Mesh((MeshAxis("a", 2),))
    twice = [(2 * shapes[0][0], *shapes[0][1:]), *shapes[1:]]
    found = []
    for given in (shapes, twice):
        instance = instantiate(LIBRARY.operators[name], list(map(Shape, given)), {})
        typed = typed_at(instance, mesh, Uniformly(Invariant()))
        kernels = emitted_kernels(instance, typed, mesh, LIBRARY, [True] * len(given), 4)
        sizes = {axis: np.array([float(size)]) for axis, size in typed.local_sizes.items()}
        first = next(axis for axis in instance.inputs[0].axes)
        doubled = {**sizes, first: 2 * sizes[first]}
        found.append((kernels.traffic(doubled), kernels.traffic(sizes)))
    (guess, _), (_, truth) = found
    assert guess[0] == pytest.approx(truth[0])
    assert guess[1] == pytest.approx(truth[1])


@pytest.mark.parametrize(
    ("name", "shapes", "passes"),
    [
        # The sum with the bias, whose gradient is summed over rows, and the maximum with 0.
        ("linear_bias_relu", [(6, 4), (8, 4), (8,)], [("", 48 * 2, 48 * 2), ("relu", 48 * 2, 48 * 3)]),
        (
            "rms_norm_linear",
            [(6, 4), (4,), (8, 4)],
            [
                ("", 24 * 3, 24 * 5),  # x * x; another kernel sums it
                ("", 6 * 2, 6 * 3),  # division by the number of columns
                ("", 6 * 2, None),  # eps is added
                ("rsqrt", 6 * 2, 6 * 3),
                ("", 24 * 2, 24 * 5),  # x times its row factors, which are few
                ("", 24 * 2, 24 * 5),  # times the gain
            ],
        ),
        (
            "linear_bias_gelu",
            [(6, 4), (8, 4), (8,)],
            [("", 96, 96), ("", 96, 144), ("erf", 96, 144), ("", 96, None), ("", 144, 240), ("", 96, 144)],
        ),
    ],
)
def test_what_elementwise_kernels_move(
    name: str, shapes: list[tuple[int, ...]], passes: list[tuple[str, int, int | None]]
) -> None:
    """Floats read and written, forward and backward. With twice the rows each is twice as large."""
    instance = instantiate(LIBRARY.operators[name], list(map(Shape, shapes)), {})
    typed = typed_at(instance, ALONE)
    kernels = emitted_kernels(instance, replace(typed, native=False), ALONE, LIBRARY, [True] * len(shapes), 4)
    first = instance.inputs[0].axes[0]
    for times in (1, 2):
        sizes = {axis: np.float64(times if axis == first else 1) * size for axis, size in typed.local_sizes.items()}
        found = [
            (function, float(forward) / 4, None if backward is None else float(backward) / 4)
            for function, forward, backward in kernels.passes_at(sizes)
        ]
        assert sorted(found, key=str) == sorted(
            ((function, times * moved, back and times * back) for function, moved, back in passes), key=str
        )


def test_no_passes_of_a_native_call_and_of_draws() -> None:
    for name, native in (("gelu", True), ("dropout", False)):
        instance = instantiate(LIBRARY.operators[name], [Shape((6, 4))], {})
        typed = typed_at(instance, ALONE)
        assert not emitted_kernels(instance, replace(typed, native=native), ALONE, LIBRARY, [True], 4).passes


def test_a_divided_axis_moves_its_part() -> None:
    """Each of two devices moves half of the elements, whichever configuration was typed first."""
    mesh = Mesh((MeshAxis("a", 2),))
    instance = instantiate(LIBRARY.operators["dropout"], [Shape((64, 32))], {})
    axis = instance.inputs[0].axes[0]
    whole, half = typed_at(instance, mesh, Uniformly(Invariant())), typed_at(instance, mesh, Along(axis))
    moved = []
    for typed in (whole, half):
        kernels = emitted_kernels(instance, typed, mesh, LIBRARY, [True], 4)
        sizes = {name: np.array([float(size)]) for name, size in typed.local_sizes.items()}
        moved.append(float(kernels.traffic(sizes)[1][0]))
    assert moved[1] == pytest.approx(moved[0] / 2)


def test_blocks_of_blocks_launch_what_blocks_do() -> None:
    """A device computes a position from one number, however many mesh axes the blocks lie on."""
    instance = instantiate(LIBRARY.operators["dropout"], [Shape((16, 4))], {})
    rows = Along(instance.inputs[0].axes[0])
    found = []
    for degrees in ((8,), (4, 2), (2, 2, 2)):
        mesh = Mesh(tuple(MeshAxis(f"a{place}", degree) for place, degree in enumerate(degrees)))
        typed = typed_at(instance, mesh, *[rows] * len(degrees))
        _emitted_kernels.cache_clear()
        found.append(emitted_kernels(instance, typed, mesh, LIBRARY, [True], 4))
    assert found[0] == found[1] == found[2]
    assert (
        found[0].forward == DRAWS["at_least"][0] + 6 + 2
    )  # and the product and the sum that give the first row of a device


MERGED = """
model merged[n = 6]
  input x: f32[n, 12, 8, 4]
  input target: f32[n, 8, 48]
  weight w: f32[12, 1, 1] ~ ones
  loss mse((x * w)[b, h, s, e] -> [b, s, (h e)], target)
"""


@pytest.mark.parametrize("degrees", [(4, 12), (12, 4)])
def test_a_transposition_of_one_element_is_a_view_whatever_was_asked_before(degrees: tuple[int, ...]) -> None:
    """Merging heads behind positions takes one copy, but none with one head a device."""
    model = build_model(parse_model(Source("merged.udl", MERGED.lstrip())), LIBRARY)
    instance = next(node.instance for node in model.graph.nodes() if node.instance.operator.name == "rearrange")
    _emitted_kernels.cache_clear()
    for degree in degrees:
        mesh = Mesh((MeshAxis("a", degree),))
        found = emitted_kernels(instance, typed_at(instance, mesh, Along("h")), mesh, LIBRARY, [True], 4)
        assert (found.forward, found.backward) == ((0, 0) if degree == 12 else (1, 1)), degree
