"""Axis classes, linearity and independence, on operators with known answers and on faults that must be detected."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np
import pytest

from unity_dsl.index.axes.axis_classes import AxisKind, classify, gradient_free, linear_operands, local_native
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.evaluation.evaluate import evaluate, evaluate_all
from unity_dsl.index.gradients.derivative import dependents
from unity_dsl.index.instantiation.instantiate import Binding, Shape, instantiate
from unity_dsl.index.library import Library

from ..declare import declare
from ..test_ops import CASES, Case


def made(text: str, *shapes: Shape | tuple[int, ...]) -> tuple[Instance, Library]:
    found = declare(text)
    (operator,) = found.operators.values()
    given = [shape if isinstance(shape, Shape) else Shape(shape) for shape in shapes]
    return instantiate(operator, given, {}), found


def kinds(instance: Instance, library: Library) -> dict[str, AxisKind]:
    return {axis: found.kind for axis, found in classify(instance, library).items()}


@pytest.mark.parametrize(
    ("text", "shape", "blocked"),
    [
        ("op f(x: [a]) -> y: [a]\n  y[i] = x[i + 1 else 0]\n", (6,), {"a"}),
        ("op f(x: [a]) -> y: [a]\n  y[i] = x[|a| - 1 - i]\n", (6,), {"a"}),
        ("op f(x: [a, b]) -> y: [a]\n  where a == b\n  y[i] = x[i, i]\n", (6, 6), {"a", "b"}),
        ("op f(x: [a]) -> y: [a, c]\n  where c == a\n  y[i, j] = x[i] * x[j]\n", (6,), {"a", "c"}),
        ("op f(x: [a]) -> y: [a]\n  y[i] = x[i] - x[0]\n", (6,), {"a"}),
        ("op f(x: [a, b]) -> y: [b]\n  y[j] = x[0, j]\n", (6, 4), {"a"}),
    ],
    ids=["window", "reversed", "diagonal", "two_roles", "first", "constant"],
)
def test_an_axis_that_is_not_read_at_itself_is_blocked(text: str, shape: tuple[int, ...], blocked: set[str]) -> None:
    instance, library = made(text, shape)
    found = classify(instance, library)
    assert {axis for axis, c in found.items() if c.kind is AxisKind.BLOCKED} == blocked & set(found)
    assert all(f"`{axis}`" in found[axis].reason for axis in blocked & set(found))


def test_linear(library: Library) -> None:
    instance = instantiate(library.operators["linear"], [Shape((4, 8)), Shape((6, 8))], {})
    assert kinds(instance, library) == {"b0": AxisKind.MAPPED, "o": AxisKind.MAPPED, "i": AxisKind.SUMMED}
    assert not any(c.inner or c.positional or c.sized for c in classify(instance, library).values())


def test_an_index_used_as_a_value_is_positional(library: Library) -> None:
    mask = instantiate(library.operators["causal_mask"], [Shape((2, 4, 4))], {})
    assert {a for a, c in classify(mask, library).items() if c.positional} == {"s", "t"}
    table = instantiate(library.operators["embedding"], [Shape((3,), 8), Shape((8, 4))], {})
    assert {a for a, c in classify(table, library).items() if c.positional} == {"v"}
    dropped = instantiate(library.operators["dropout"], [Shape((3, 4))], {})
    assert all(c.positional for c in classify(dropped, library).values())


def test_a_mean_uses_the_global_size(library: Library) -> None:
    loss = instantiate(library.operators["mse"], [Shape((4, 6)), Shape((4, 6))], {})
    assert all(c.sized for c in classify(loss, library).values())
    assert local_native(loss, library, ()) and not local_native(loss, library, ("n0",))


def test_the_sizes_of_merged_indices_are_no_values(library: Library) -> None:
    binding = Binding(((("h", 2), ("k", 3)),), ((("k", 3),), (("h", 2),)))
    split = instantiate(library.operators["rearrange"], [Shape((6,))], {}, binding=binding)
    assert not any(c.sized or c.positional for c in classify(split, library).values())
    assert kinds(split, library) == {"k": AxisKind.MAPPED, "h": AxisKind.MAPPED}


@pytest.mark.parametrize("name", CASES)
def test_linear_operands_are_those_that_distribute_over_sums(name: str, library: Library) -> None:
    """Tests the definition on samples: f(.., u + v, ..) = f(.., u, ..) + f(.., v, ..) and f(.., 3 u, ..) = 3 f(.., u,
    ..).

    Much is linear if an axis has one position, so only operands that are linear in all samples must be recognised.
    """
    always: dict[tuple[int, ...], bool] = {}
    for seed in range(3, 7):
        random = np.random.default_rng(seed)
        case = CASES[name](random)
        instance = case.instance(library.operators[name])
        given = [t.numpy() for t in case.inputs]
        floats = [i for i, operand in enumerate(instance.inputs) if operand.integer_range is None]
        for chosen in chain.from_iterable(combinations(floats, size) for size in range(1, len(floats) + 1)):
            linear = distributes(instance, given, chosen, random, library)
            assert linear or chosen not in linear_operands(instance)
            always[chosen] = linear and always.get(chosen, True)
    missed = [chosen for chosen, linear in always.items() if linear and chosen not in linear_operands(instance)]
    # All that is known of a function with a surrogate is that equal operands have equal results.
    unseen = {"reduce_max", "stop", "straight_through", "reverse_gradient", "start_state"}
    assert not missed or name in unseen, f"{name} is linear in {missed}, which is not seen"


def distributes(
    instance: Instance, given: list[np.ndarray], chosen: tuple[int, ...], random: np.random.Generator, library: Library
) -> bool:
    other = [random.standard_normal(g.shape) if i in chosen else g for i, g in enumerate(given)]
    joint = [2 * g + 3 * o if i in chosen else g for i, (g, o) in enumerate(zip(given, other, strict=True))]
    results = (evaluate(instance, values, library) for values in (given, other, joint))
    # Minus infinity absorbs what is added to it: a mask looks additive, but is not.
    return all(
        bool(np.isfinite(both).all()) and np.allclose(2 * left + 3 * right, both, rtol=1e-9, atol=1e-9)
        for left, right, both in zip(*results, strict=True)
    )


@pytest.mark.parametrize(
    ("name", "free"), [("softmax", {"m"}), ("cross_entropy", {"m"}), ("layer_norm", set()), ("mse", set())]
)
def test_what_cancels_carries_no_gradient(name: str, free: set[str], library: Library) -> None:
    instance = CASES[name](np.random.default_rng(0)).instance(library.operators[name])
    assert gradient_free(instance) == free


@pytest.mark.parametrize(
    "last",
    [
        "y[b, c] = e[b, c]",
        "y[b, c] = e[b, c] / z[b] + m[b]",
        "y[b, c] = e[b, c] / (z[b] * z[b])",
        "y[b, c] = e[b, c] / (z[b] + 1)",
    ],
)
def test_what_does_not_cancel_is_kept(last: str) -> None:
    body = "m[b] = max(c) x[b, c]\n  e[b, c] = exp(x[b, c] - m[b])\n  z[b] = sum(c) e[b, c]"
    instance, _ = made(f"op f(x: [b, c]) -> y: [b, c]\n  {body}\n  {last}\n", (3, 4))
    assert "m" not in gradient_free(instance)


@pytest.mark.parametrize("name", CASES)
def test_outputs_do_not_depend_on_what_is_called_free(name: str, library: Library) -> None:
    """Replaces each intermediate called gradient-free by other numbers: the results must not change."""
    case = CASES[name](np.random.default_rng(5))
    instance = case.instance(library.operators[name])
    given = [t.numpy() for t in case.inputs]
    floats = frozenset(operand.name for operand in instance.inputs if operand.integer_range is None)
    for free in gradient_free(instance) & dependents(instance, floats):
        values = evaluate_all(instance, given, library)
        number = next(i for i, e in enumerate(instance.equations) if e.target.name == free)
        operand = instance.equations[number].target
        changed = Instance(
            instance.operator,
            (*instance.inputs, operand),
            instance.outputs,
            instance.sizes,
            instance.attributes,
            (*instance.equations[:number], *instance.equations[number + 1 :]),
        )
        (found,) = evaluate(changed, [*given, values[free] + 0.7], library)
        np.testing.assert_allclose(found, values[instance.outputs[0].name], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "text",
    [
        # Adding the same number to every m changes nothing; adding it to one of them does.
        "op f(x: [b, c]) -> y: [b]\n  m[b] = max(c) x[b, c]\n  y[b] = m[b] - m[0]\n",
        "op f(x: [b, c]) -> y: [b]\n  m[b] = max(c) x[b, c]\n  z[] = sum(b) exp(m[b])\n  y[b] = exp(m[b]) / z[]\n",
        "op f(x: [b, c]) -> y: [b]\n  m[b] = max(c) x[b, c]\n  y[b] = m[b] - m[b - 1 else 0]\n",
        # A fill does not change with m.
        "op f(x: [b, c]) -> y: [b]\n  m[b] = max(c) x[b, c]\n  y[b] = x[b, 0] * m[b - 1 else 0]\n",
        "op f(x: [b, c]) -> y: [b]\n  m[b] = max(c) x[b, c]\n  y[b] = exp(m[b - 1 else 3]) / exp(m[b - 1 else 5])\n",
        "op f(x: [b, c]) -> y: [b]\n  m[b] = max(c) x[b, c]\n  y[b] = [m[b] > 0] * x[b, 0]\n",
    ],
    ids=["first", "softmax_over_m", "neighbour", "fill", "other_fills", "comparison"],
)
def test_what_cancels_for_one_common_shift_only_is_kept(text: str) -> None:
    instance, _ = made(text, (3, 4))
    assert "m" not in gradient_free(instance)


def test_a_cancelling_term_is_followed_through_other_names_and_numbers() -> None:
    text = (
        "op f(x: [a, c]) -> y: [a, c]\n  m[a] = max(c) x[a, c]\n  n[i] = m[i] * 2\n"
        "  y[i, j] = exp(x[i, j] - m[i]) * exp(n[i] / 2)\n"
    )
    instance, _ = made(text, (3, 4))
    assert {"m"} == gradient_free(instance)


SOFTMAX = """op f(s: [e, h], to: int<v>[e], other: int<v>[e], u: [v, h]) -> a: [e, h]
  m[v, h] = max(e) select(v == to[e], s[e, h], -inf)
  t[v, h] = {kept}
  g[e, h] = sum(v) [v == to[e]] * t[v, h]
  x[e, h] = exp(s[e, h] - g[e, h])
  z[v, h] = sum(e) [v == {into}[e]] * x[e, h]
  w[e, h] = sum(v) [v == to[e]] * {last}
  a[e, h] = x[e, h] / w[e, h] + 0 * u[0, 0] + 0 * other[e]
"""


@pytest.mark.parametrize(
    ("kept", "into", "last", "cancels"),
    [
        ("select(m[v, h] > -1e30, m[v, h], 0)", "to", "z[v, h]", True),
        ("select(u[v, h] > 0, m[v, h], 5)", "to", "z[v, h]", True),
        ("select(u[v, h] > 0, m[v, h], 0) * 2", "to", "z[v, h] * u[v, h]", True),
        ("select(m[v, h] > -1e30, m[v, h], 0)", "other", "z[v, h]", False),
        ("select(u[0, h] > 0, m[v, h], 0)", "to", "(z[v, h] + 1)", False),
        ("select(m[v, h] > 0, m[v, h], m[v, h] * 2)", "to", "z[v, h]", False),
        ("select(m[v, h] > -1e30, m[v, h], 0)", "to", "z[v, h] * exp(m[v, h])", False),
    ],
)
def test_a_maximum_over_segments_cancels_where_it_is_gathered_and_added_up_alike(
    kept: str, into: str, last: str, cancels: bool
) -> None:
    """Checks the answer of the analysis. If it says that `m` cancels, a shift of `m` by about 1e-6 must not change the
    result.
    """
    known = declare(SOFTMAX.format(kept=kept, into=into, last=last))
    shapes = [Shape((7, 2)), Shape((7,), 3), Shape((7,), 3), Shape((3, 2))]
    instance = instantiate(known.operators["f"], shapes, {})
    assert ("m" in gradient_free(instance)) == cancels
    if not cancels:
        return
    rng = np.random.default_rng(4)
    given = [rng.standard_normal((7, 2)), *rng.integers(3, size=(2, 7)), rng.standard_normal((3, 2))]
    values = evaluate_all(instance, given, known)
    results = []
    for shift in (0.0, 1e-6 * rng.standard_normal((3, 2))):
        changed = Instance(
            instance.operator, (*instance.inputs, instance.equations[0].target), instance.outputs, instance.sizes,
            instance.attributes, instance.equations[1:],
        )  # fmt: skip
        results.append(evaluate(changed, [*given, values["m"] + shift], known)[0])
    np.testing.assert_allclose(*results, rtol=1e-10, atol=1e-12)


def test_what_is_made_of_integers_carries_no_gradient(library: Library) -> None:
    instance = CASES["masked_cross_entropy"](np.random.default_rng(0)).instance(
        library.operators["masked_cross_entropy"]
    )
    assert {"m", "k"} <= gradient_free(instance)


def test_a_result_that_is_read_again_is_no_sum_of_terms() -> None:
    text = "op f(x: [a, c]) -> y: [a, c], s: [a]\n  s[a] = sum(c) x[a, c]\n  y[a, c] = x[a, c] / s[a]\n"
    instance, library = made(text, (3, 4))
    found = classify(instance, library)
    assert found["a"].kind is AxisKind.MAPPED
    assert found["c"].kind is AxisKind.BLOCKED and "`s`" in found["c"].reason


def test_axes_that_only_operands_have_are_blocked(library: Library) -> None:
    joined = instantiate(library.operators["concat"], [Shape((3, 2)), Shape((4, 2))], {"dim": 0})
    assert kinds(joined, library) == {
        **dict.fromkeys(("s", "d", "e"), AxisKind.BLOCKED),
        "g0": AxisKind.MAPPED,
    }


def sliced(case: Case, instance: Instance, axis: str, half: slice) -> list[np.ndarray] | None:
    """The operands on one of two devices, or None if a dimension merges the axis with others."""
    found = []
    for value, operand in zip(case.inputs, instance.inputs, strict=True):
        index: list[slice] = [slice(None)] * len(operand.dims)
        for position, dim in enumerate(operand.dims):
            if axis in dim:
                if len(dim) > 1:
                    return None
                index[position] = half
        found.append(value.numpy()[tuple(index)])
    return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", CASES)
def test_slices_along_an_axis_give_slices_or_terms_of_the_result(name: str, seed: int, library: Library) -> None:
    """The operator itself runs on the slices, if it does not use a position, a length or a total of the axis."""
    case = CASES[name](np.random.default_rng(seed))
    instance = case.instance(library.operators[name])
    expected = evaluate(instance, [t.numpy() for t in case.inputs], library)
    for axis, found in classify(instance, library).items():
        size = instance.sizes[axis]
        if found.kind is AxisKind.BLOCKED or found.positional or found.sized or found.inner or size < 2:
            continue
        if name in ("spread", "start_state") and not any(
            axis in dim for given in instance.inputs for dim in given.dims
        ):
            continue  # its size is an attribute
        parts: list[list[np.ndarray]] = []
        for half in (slice(0, size // 2), slice(size // 2, size)):
            operands = sliced(case, instance, axis, half)
            if operands is None or case.binding is not None:
                break
            shapes = [
                Shape(value.shape, operand.integer_range)
                for value, operand in zip(operands, instance.inputs, strict=True)
            ]
            local = instantiate(library.operators[name], shapes, case.attributes)
            parts.append(list(evaluate(local, operands, library)))
        for output, whole, *halves in zip(instance.outputs, expected, *parts, strict=True) if len(parts) == 2 else ():
            dims = [position for position, dim in enumerate(output.dims) if axis in dim]
            if any(
                instance.sizes[major] > 1 for dim in dims for major in output.dims[dim][: output.dims[dim].index(axis)]
            ):
                continue  # halves lie in every part of a major axis
            joined = np.concatenate(halves, dims[0]) if dims else halves[0] + halves[1]
            np.testing.assert_allclose(joined, whole, rtol=1e-12, atol=1e-12, err_msg=axis)
