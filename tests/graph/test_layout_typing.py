"""The typing rule on operators with known answers: Megatron's linear layers, softmax, losses, views."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from unity_dsl.graph.layout import Invariant, Mesh, MeshAxis, Partial, Replicate
from unity_dsl.graph.layout_typing import (
    Along,
    Configuration,
    InnerReduce,
    InnerReplicate,
    Linearly,
    Role,
    TypedOperator,
    Uniformly,
    type_operator,
)
from unity_dsl.graph.typed_configurations import configurations
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.instantiation.instantiate import Binding, Shape, instantiate
from unity_dsl.index.instantiation.representative import small_instances
from unity_dsl.index.lowering.division import InnerMoments
from unity_dsl.rules.sharding_theorems import ShardingTheorems
from unity_dsl.syntax.ast import ReductionKind

LIBRARY = load_library()
THEOREMS = ShardingTheorems(LIBRARY)
TWO = Mesh((MeshAxis("a", 2),))
FOUR = Mesh((MeshAxis("a", 2), MeshAxis("b", 2)))


def make(name: str, *shapes: tuple[int, ...], integer: dict[int, int] | None = None, **attributes: float) -> Instance:
    given = [Shape(shape, (integer or {}).get(i)) for i, shape in enumerate(shapes)]
    return instantiate(LIBRARY.operators[name], given, attributes)


def typed(instance: Instance, *roles: Along | Linearly | Uniformly, mesh: Mesh = TWO) -> TypedOperator:
    found = type_operator(instance, tuple(roles), mesh, LIBRARY)
    assert isinstance(found, TypedOperator), found
    return found


def layouts(found: TypedOperator) -> str:
    return " ".join(map(str, found.arguments)) + " -> " + " ".join(map(str, found.results))


LINEAR = make("linear", (4, 8, 16), (32, 16))


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        (Uniformly(Invariant()), "I I -> I"),
        (Uniformly(Replicate()), "R R -> R"),
        (Along("b0"), "S0 R -> S0"),
        (Along("b1"), "S1 R -> S1"),
        (Along("o"), "R S0 -> S2"),
        (Along("i"), "S2 S1 -> P"),
        (Linearly((0,)), "P R -> P"),
    ],
)
def test_linear(role: Along | Linearly | Uniformly, expected: str) -> None:
    found = typed(LINEAR, role)
    assert layouts(found) == expected
    assert found.native and not found.inner


def test_a_role_names_the_op_that_cuts_slices_unless_it_is_partition() -> None:
    assert [str(Along("k")), str(Along("k", "rows"))] == ["k", "rows(k)"]


def test_linear_takes_partial_in_one_operand_only() -> None:
    assert "jointly linear" in str(type_operator(LINEAR, (Linearly((0, 1)),), TWO, LIBRARY))


def test_bias_is_refused_in_a_partial_sum() -> None:
    add = make("add", (4, 8), (8,))
    assert isinstance(type_operator(add, (Linearly((0,)),), TWO, LIBRARY), str)
    assert layouts(typed(add, Linearly((0, 1)))) == "P P -> P"


def test_relu_of_a_partial_sum_is_refused() -> None:
    relu = make("relu", (4, 8))
    roles = [found.configuration[0] for found in configurations(relu, TWO, LIBRARY, [True], [False], THEOREMS)]
    assert not any(isinstance(role, Linearly) for role in roles)


def test_weight_beside_a_divided_activation_is_replicate_never_invariant() -> None:
    for found in configurations(LINEAR, FOUR, LIBRARY, [True, True], [False, True], THEOREMS):
        for x, w, y in zip(*(layout.kinds for layout in (*found.arguments, *found.results)), strict=True):
            assert (isinstance(x, Invariant), isinstance(w, Invariant)) in {(True, True), (False, False)}
            assert isinstance(x, Invariant) == isinstance(y, Invariant)


def test_softmax_along_its_reduced_axis_has_inner_collectives() -> None:
    softmax = make("softmax", (4, 8))
    found = typed(softmax, Along("c"))
    assert layouts(found) == "S1 -> S1"
    assert not found.native
    reduced = [inner.kind for inner in found.inner if isinstance(inner, InnerReduce)]
    assert reduced == [ReductionKind.MAX, ReductionKind.SUM]
    replicated = [inner.operand for inner in found.inner if isinstance(inner, InnerReplicate)]
    assert replicated == ["z"], "z is read along the divided axis; m carries no gradient"
    assert typed(softmax, Along("b0")).native


NORMS: list[tuple[str, list[tuple[int, ...]], str, dict[str, float]]] = [
    ("batch_norm", [(4, 6, 8), (6,), (6,), (6,), (6,)], "n", {}),
    ("batch_norm", [(4, 6, 8), (6,), (6,), (6,), (6,)], "s0", {}),
    ("layer_norm", [(4, 8), (8,), (8,)], "c", {}),
    ("group_norm", [(4, 6, 8), (6,), (6,)], "s0", {"groups": 2}),
    ("add_layer_norm", [(4, 8), (4, 8), (8,), (8,)], "c", {}),
    ("layer_norm_linear", [(4, 8), (8,), (8,), (6, 8)], "i", {}),
]


@pytest.mark.parametrize(("name", "shapes", "axis", "attributes"), NORMS)
def test_mean_and_variance_over_a_divided_axis_are_one_collective(
    name: str, shapes: list[tuple[int, ...]], axis: str, attributes: dict[str, float]
) -> None:
    instance = make(name, *shapes, **attributes)
    found = typed(instance, Along(axis))
    (inner,) = found.inner
    assert isinstance(inner, InnerMoments) and inner.axes == (0,) and not found.native
    both = typed(instance, Along(axis), Along(axis), mesh=FOUR)
    assert [one.axes for one in both.inner] == [(0, 1)]


def test_cross_entropy_over_its_classes_needs_no_collective_backwards() -> None:
    loss = make("cross_entropy", (4, 8), (4,), integer={1: 8})
    found = typed(loss, Along("c"))
    assert layouts(found) == "S1 I -> I"
    assert not any(isinstance(inner, InnerReplicate) for inner in found.inner)


def test_cross_entropy_over_its_rows_is_a_partial_mean_of_global_size() -> None:
    loss = make("cross_entropy", (4, 8), (4,), integer={1: 8})
    found = typed(loss, Along("n0"))
    assert layouts(found) == "S0 S0 -> P"
    assert not found.native, "the native mean divides by the local size"


def test_vocabulary_parallel_embedding() -> None:
    found = typed(make("embedding", (4, 8), (32, 16), integer={0: 32}), Along("v"))
    assert layouts(found) == "I S0 -> P"
    assert not found.native


def test_layer_norm_gain_is_replicated_beside_rows_and_cut_beside_the_hidden_axis() -> None:
    norm = make("layer_norm", (4, 8), (8,), (8,))
    rows, hidden = (name for name in norm.axes)
    assert layouts(typed(norm, Along(rows))) == "S0 R R -> S0"
    assert layouts(typed(norm, Along(hidden))) == "S1 S0 S0 -> S1"


def test_merged_axes_are_consumed_major_first() -> None:
    binding = Binding(((("b", 4),), (("h", 2), ("k", 8))), ((("b", 4),), (("h", 2),), (("k", 8),)))
    split = instantiate(LIBRARY.operators["rearrange"], [Shape((4, 16))], {}, binding=binding)
    assert layouts(typed(split, Along("h"))) == "S1 -> S1"
    assert "divided entirely first" in str(type_operator(split, (Along("k"),), TWO, LIBRARY))
    both = typed(split, Along("k"), Along("h"), mesh=FOUR)
    assert both.arguments[0].nesting(1) == (1, 0), "h, the major factor, is cut by b; then k by a"
    assert str(both.results[0]) == "S2,S1"


def test_sizes_that_do_not_divide_are_refused_in_words() -> None:
    odd = make("linear", (3, 8), (5, 8))
    assert "2 devices do not divide axis `b0` of 3" in str(type_operator(odd, (Along("b0"),), TWO, LIBRARY))
    six = make("relu", (6,))
    assert "4 devices do not divide" in str(type_operator(six, (Along("b0"), Along("b0")), FOUR, LIBRARY))


def test_concatenated_axis_is_blocked_with_a_reason() -> None:
    concat = make("concat", (4, 8), (4, 8), dim=1)
    refused = {
        name: type_operator(concat, (Along(name),), TWO, LIBRARY)
        for name in concat.axes
        if isinstance(type_operator(concat, (Along(name),), TWO, LIBRARY), str)
    }
    assert len(refused) == 1 and "cannot be divided" in str(next(iter(refused.values())))


@pytest.mark.parametrize(
    ("instance", "integers"),
    [
        (make("embedding", (4, 8), (6, 16), integer={0: 6}), [0]),
        (make("cross_entropy", (4, 6), (4,), integer={1: 6}), [1]),
    ],
    ids=["embedding", "cross_entropy"],
)
def test_integers_are_no_terms_of_a_sum(instance: Instance, integers: list[int]) -> None:
    gradients = [operand.integer_range is None for operand in instance.inputs]
    found = configurations(instance, FOUR, LIBRARY, gradients, [False, False], AllProved())
    assert len(found) > 4
    assert not any(isinstance(kind, Partial) for one in found for n in integers for kind in one.arguments[n].kinds)


def test_configurations_are_the_legal_ones() -> None:
    """The list is exactly the set of role combinations that type, and starts with the all-Invariant one."""
    found = configurations(LINEAR, FOUR, LIBRARY, [True, True], [False, True], THEOREMS)
    roles = [Uniformly(Invariant()), Uniformly(Replicate()), *map(Along, ("b0", "b1", "o", "i")), Linearly((0,))]
    legal: list[Configuration] = [
        choice
        for choice in product(roles, repeat=2)
        if isinstance(type_operator(LINEAR, choice, FOUR, LIBRARY), TypedOperator)
    ]
    assert {t.configuration for t in found} == set(legal)
    assert found[0].configuration == (Uniformly(Invariant()), Uniformly(Invariant()))
    assert len(found) == len(set(legal)) == 49


class AllProved:
    """Accepts every role that a declaration suggests."""

    def about(self, instance: Instance, gradients: Sequence[bool]) -> Callable[[Role], bool]:
        return lambda role: True


@pytest.mark.parametrize("name", ["conv2d", "linear", "softmax", "rearrange", "max_pool2d"])
def test_layouts_do_not_depend_on_which_sizes_were_typed_before(name: str) -> None:
    """Operators that differ only in sizes share their configurations. An operator with a distinct attribute has its
    own.
    """
    made = small_instances(LIBRARY.operators[name], np.random.default_rng(3), 8)
    for number, instance in enumerate(made):
        alone = replace(instance, attributes={**instance.attributes, "~": number})
        gradients = [operand.integer_range is None for operand in instance.inputs]
        weights = [False] * len(gradients)
        found = [configurations(one, FOUR, LIBRARY, gradients, weights, AllProved()) for one in (instance, alone)]
        assert found[0] == found[1]
