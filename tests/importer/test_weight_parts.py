"""Linear maps whose results are sliced become one map for each slice: which do, and that they equal the module."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unity_dsl.api.parallel_module import parallelize
from unity_dsl.importer.model_import import ImportedModel, imported_model
from unity_dsl.importer.weight_parts import of_states, to_states
from unity_dsl.syntax.diagnostic import InputError

from . import modules


class Sliced(nn.Module):
    """Applies a function to an affine map with 24 rows."""

    def __init__(self, function: Callable[[nn.Linear, Tensor], Tensor], *, bias: bool = True) -> None:
        super().__init__()
        self.way, self.function = nn.Linear(6, 24, bias=bias), function

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(self.function(self.way, x), y)


def halves(way: nn.Linear, x: Tensor) -> Tensor:
    gate, up = way(x).chunk(2, -1)
    return (F.silu(gate) * up)[..., :6]


def of_unequal_parts(way: nn.Linear, x: Tensor) -> Tensor:
    first, second, third = way(x).split((12, 6, 6), -1)
    return first[..., 6:] * second - third


def of_a_leading_axis(way: nn.Linear, x: Tensor) -> Tensor:
    """Divides queries, keys and values as libraries do: along a leading axis that is indexed."""
    q, k, v = way(x).view(*x.shape[:-1], 3, 8).permute(2, 0, 1, 3)
    return (q * k - v)[..., :6]


def of_an_inner_axis(way: nn.Linear, x: Tensor) -> Tensor:
    parts = way(x).view(*x.shape[:-1], 8, 3)
    return (parts[..., 0] * parts[..., 1] - parts[..., 2])[..., :6]


def with_rows_that_nothing_reads(way: nn.Linear, x: Tensor) -> Tensor:
    made = way(x)
    return made[..., :6] * made[..., 12:18]


def with_rows_read_twice(way: nn.Linear, x: Tensor) -> Tensor:
    made = way(x)
    return made[..., :12][..., :6] * made[..., 12:18] + made[..., 9:15] * made[..., 18:]


def read_whole_too(way: nn.Linear, x: Tensor) -> Tensor:
    gate, up = (made := way(x)).chunk(2, -1)
    return (gate * up)[..., :6] + made.mean(-1, keepdim=True)


def called_twice(way: nn.Linear, x: Tensor) -> Tensor:
    gate, up = way(x).chunk(2, -1)
    gated = gate * up
    gate, up = way(gated[..., :6]).chunk(2, -1)
    return (gate + up)[..., :6]


def imported(function: Callable[[nn.Linear, Tensor], Tensor], *, bias: bool = True) -> ImportedModel:
    torch.manual_seed(0)
    given = {"x": torch.randn(4, 5, 6), "y": torch.randn(4, 5, 6)}
    return imported_model(Sliced(function, bias=bias), (), given, "sliced")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("function", "parts"), [(halves, 2), (of_unequal_parts, 3), (of_a_leading_axis, 3)])
def test_a_weight_whose_rows_are_read_apart_is_in_parts(
    function: Callable[[nn.Linear, Tensor], Tensor], parts: int, bias: bool
) -> None:
    """The import compares its loss and gradients with the module's."""
    found = imported(function, bias=bias)
    assert found.verified is not None and found.verified.gradient < 1e-12
    assert found.files["sliced.udl"].count("linear") == parts
    assert len(found.weights) == parts * (1 + bias)


@pytest.mark.parametrize(
    "function",
    [of_an_inner_axis, with_rows_that_nothing_reads, with_rows_read_twice, read_whole_too, called_twice],
)
def test_a_weight_stays_whole_where_its_rows_are_not_read_apart(
    function: Callable[[nn.Linear, Tensor], Tensor],
) -> None:
    found = imported(function)
    assert {stored.part for stored in found.weights.values()} == {None}


def test_names_of_parts_are_found_where_values_are_read_again_and_again() -> None:
    """Each of 40 steps reads the previous value twice: there are 2^40 paths through them."""

    def folded(way: nn.Linear, x: Tensor) -> Tensor:
        first, second = way(x).chunk(2, -1)
        for _ in range(40):
            first = first * torch.sigmoid(first)
        return (first + second)[..., :6]

    assert {stored.part.word for stored in imported(folded).weights.values() if stored.part} == {"1", "2"}


def test_parts_are_named_as_attention_reads_them() -> None:
    module, inputs = modules.language_model()
    found = imported_model(module, (), inputs, "lm")
    words = {name.rpartition("_")[2] for name, stored in found.weights.items() if stored.part is not None}
    assert words == {"q", "k", "v"}


def test_parts_are_put_together_as_they_were_taken_apart() -> None:
    module, inputs = modules.language_model()
    found, states = imported_model(module, (), inputs, "lm", verified=False), module.state_dict()
    whole = to_states(of_states(states, found.weights), found.weights)
    assert len(whole) == len({tensor.data_ptr() for tensor in states.values()})
    assert all(torch.equal(tensor, states[name]) for name, tensor in whole.items())


def test_a_parallel_module_has_the_states_of_its_module() -> None:
    module, inputs = modules.language_model()
    _, parallel = parallelize(module, inputs, verify=False)
    states = module.state_dict()
    found = parallel.state_dict()
    assert list(found) == list(states) and all(torch.equal(found[name], states[name]) for name in states)


class Experts(nn.Module):
    """Experts, one of which each token chooses. `ReadTwice` also reads their first matrices whole."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.randn(2, 8, 6))
        self.down_proj = nn.Parameter(torch.randn(2, 6, 4))
        self.act_fn = nn.SiLU()

    def forward(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        made = torch.zeros_like(x)
        for expert in range(2):
            token, place = torch.where(chosen == expert)
            gate, up = F.linear(x[token], self.gate_up_proj[expert]).chunk(2, -1)
            given = F.linear(self.act_fn(gate) * up, self.down_proj[expert]) * weights[token, place, None]
            made = made.index_add(0, token, given)
        return made


class ReadTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router, self.experts = nn.Linear(6, 2), Experts()

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        weights, chosen = torch.topk(self.router(x), 1)
        return F.mse_loss(self.experts(x, chosen, weights) + self.experts.gate_up_proj.mean(), y)


def test_a_weight_of_experts_that_is_read_elsewhere_is_told() -> None:
    with pytest.raises(InputError, match=r"`experts.gate_up_proj` is read whole, and by experts in parts"):
        imported_model(ReadTwice(), (), {"x": torch.randn(4, 6), "y": torch.randn(4, 6)}, "m")
