"""Measured sections of machine files: diagnostics of wrong ones, and prices computed by hand from curves and grids."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from unity_dsl.graph.emitted_kernels import emitted_kernels
from unity_dsl.graph.layout import Invariant, Mesh, MeshAxis
from unity_dsl.graph.layout_typing import Along, TypedOperator, Uniformly, type_operator
from unity_dsl.graph.typed_configurations import configurations
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.index.library import Library
from unity_dsl.machine.machine import Machine, load_machine, read_machine
from unity_dsl.machine.operator_price import price_inner, price_operator, price_operators, price_update
from unity_dsl.resources import folder
from unity_dsl.rules.sharding_theorems import ShardingTheorems
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.span import Source

LOCAL = (folder("machines") / "local.toml").read_text()
LINES = LOCAL.count("\n")
MEASURED = """
[[operator]]
class = "elementwise"
dtype = "f32"
direction = "forward"
bytes = [1000, 1000000]
time_us = [10, 100]

[[operator]]
class = "elementwise"
dtype = "f32"
direction = "backward"
bytes = [1000, 1000000]
time_us = [20, 200]

[[operator]]
name = "gelu"
dtype = "f32"
direction = "forward"
flops = [1000, 1000000]
time_us = [50, 500]

[[operator]]
class = "row reduction"
dtype = "f32"
direction = "forward"
bytes = [1000, 1000000]
time_us = [7, 70]

[[product]]
class = "contraction"
dtype = "f32"
direction = "forward"
batched = false
rows = [1, 100]
columns = [1, 100]
inner = [1, 100]
time_us = [[[1, 100], [100, 10000]], [[100, 10000], [10000, 1000000]]]

[[product]]
class = "contraction"
dtype = "f32"
direction = "left"
batched = false
rows = [1, 100]
columns = [1, 100]
inner = [1, 100]
time_us = [[[2, 200], [200, 20000]], [[200, 20000], [20000, 2000000]]]

[[product]]
class = "contraction"
dtype = "f32"
direction = "right"
batched = false
rows = [1, 100]
columns = [1, 100]
inner = [1, 100]
time_us = [[[3, 300], [300, 30000]], [[300, 30000], [30000, 3000000]]]

[[product]]
class = "contraction"
dtype = "f32"
direction = "forward"
batched = true
launch_us = 5
rows = [1, 100]
columns = [1, 100]
inner = [1, 100]
time_us = [[[0.5, 50], [50, 5000]], [[50, 5000], [5000, 500000]]]

[optimizer]
bytes = [1000, 1000000]
time_us = [30, 300]
"""
"""A product of m, n and k takes m * n * k microseconds forward, and two and three times that for its gradients."""

ALONE = Mesh(())


@pytest.fixture(scope="module")
def library() -> Library:
    return load_library()


@pytest.fixture(scope="module")
def machine() -> Machine:
    return read_machine(Source("mine.toml", LOCAL + MEASURED))


def instance_of(library: Library, name: str, *shapes: tuple[int, ...]) -> Instance:
    return instantiate(library.operators[name], list(map(Shape, shapes)), {})


def price(instance: Instance, library: Library, machine: Machine, *needs: bool, native: bool = True) -> float:
    typed = type_operator(instance, (), ALONE, library)
    assert isinstance(typed, TypedOperator)
    return price_operator(instance, replace(typed, native=native), "f32", ALONE, machine, needs, library)


def test_a_product_is_priced_by_its_sizes(library: Library, machine: Machine) -> None:
    linear = instance_of(library, "linear", (2, 3, 5), (7, 5))
    once = 6 * 7 * 5 * 1e-6
    assert price(linear, library, machine, False, False) == pytest.approx(once)
    assert price(linear, library, machine, True, False) == pytest.approx(once + 2 * once)
    assert price(linear, library, machine, False, True) == pytest.approx(once + 3 * once)
    assert price(linear, library, machine, True, True) == pytest.approx(6 * once)


def test_a_batch_of_products_has_its_own_grid(library: Library, machine: Machine) -> None:
    """Each product takes half a microsecond times m * n * k. The batch takes one launch."""
    matmul = instance_of(library, "matmul", (4, 3, 5), (4, 5, 7))
    assert price(matmul, library, machine, False, False) == pytest.approx(5e-6 + 4 * 3 * 7 * 5 * 0.5e-6)


def test_a_bias_is_summed_over_rows(library: Library, machine: Machine) -> None:
    """The gradient of the bias reads that of the result, 100 x 10 floats: 7 us times the cube root of 4, for 4 kB."""
    biased = instance_of(library, "linear_bias", (100, 5), (10, 5), (10,))
    product = 100 * 10 * 5 * 1e-6
    found = price(biased, library, machine, False, True, True)
    assert found == pytest.approx(product + 3 * product + 7e-6 * 4 ** (1 / 3))


def test_by_class_by_name_and_by_the_datasheet(library: Library, machine: Machine) -> None:
    """`relu` of 1,000 floats moves 8,000 bytes forward, and 12,000 backward; `gelu` counts operations forward."""
    relu, gelu = (instance_of(library, name, (1000,)) for name in ("relu", "gelu"))
    assert price(relu, library, machine, False) == pytest.approx(10e-6 * 8 ** (1 / 3))
    assert price(relu, library, machine, True) == pytest.approx(10e-6 * 8 ** (1 / 3) + 20e-6 * 12 ** (1 / 3))
    assert price(gelu, library, machine, False) == pytest.approx(50e-6 * 5 ** (1 / 3))
    typed = type_operator(relu, (), ALONE, library)
    assert isinstance(typed, TypedOperator)
    found = price_operator(relu, typed, "f64", ALONE, machine, [True], library)
    assert found == price_operator(relu, typed, "f64", ALONE, load_machine("local"), [True], library)


def test_what_a_native_call_does_at_once_takes_its_equations_without_it(library: Library, machine: Machine) -> None:
    """`gelu` has one equation. Without the native call it is one kernel of its class; the curve of its name does not
    apply.
    """
    gelu = instance_of(library, "gelu", (1000,))
    assert price(gelu, library, machine, False, native=False) == pytest.approx(10e-6 * 8 ** (1 / 3))


def test_cotangents_that_are_passed_on_take_a_launch(library: Library, machine: Machine) -> None:
    add = instance_of(library, "add", (1000,), (1000,))
    forward = price(add, library, machine, False, False)
    assert price(add, library, machine, True, True) == pytest.approx(forward + machine.launch_seconds)


def test_elementwise_kernels_are_priced_one_by_one(library: Library) -> None:
    """`rms_norm_linear` of 20 rows and a weight of 7 rows, kernel by kernel. Squaring x writes 400 bytes, which are
    then summed. Each row's sum is divided by 5, eps is added and the root is taken, on 80 bytes each. x is multiplied
    by its row factors and by the gain. The gradients of a product read three tensors and write two; that of the sum
    with eps is passed on.
    """
    curve = '\n[[operator]]\nclass = "row reduction"\ndtype = "f32"\ndirection = "backward"\n'
    machine = read_machine(Source("mine.toml", LOCAL + MEASURED + curve + "bytes = [1000, 1000000]\ntime_us = [9, 90]"))
    fused = instance_of(library, "rms_norm_linear", (20, 5), (5,), (7, 5))
    product = 20 * 7 * 5 * 1e-6
    made = sum(count ** (1 / 3) for count in (1.2, 0.16, 0.16, 0.16, 0.8, 0.8))
    cotangents = sum(count ** (1 / 3) for count in (2.0, 0.24, 0.24, 2.0, 2.0))
    forward = 7e-6 * 0.48 ** (1 / 3) + 10e-6 * made + product
    backward = 9e-6 * 0.88 ** (1 / 3) + 20e-6 * cotangents + 5 * product
    assert price(fused, library, machine, False, False, False, native=False) == pytest.approx(forward)
    assert price(fused, library, machine, True, True, True, native=False) == pytest.approx(forward + backward)


def test_a_function_is_priced_by_the_operator_of_its_name(library: Library) -> None:
    """`tanh` in `linear_bias_gelu_tanh`, of 20 x 7 floats, is priced by a flat curve."""
    curve = """
[[operator]]
name = "tanh"
dtype = "f32"
direction = "forward"
bytes = [1000, 1000000]
time_us = [700, 700]
"""
    fused = instance_of(library, "linear_bias_gelu_tanh", (20, 5), (7, 5), (7,))
    machines = [read_machine(Source("mine.toml", LOCAL + MEASURED + more)) for more in ("", curve)]
    prices = [price(fused, library, machine, False, False, False, native=False) for machine in machines]
    assert prices[1] - prices[0] == pytest.approx(700e-6 - 10e-6 * (2 * 20 * 7 * 4 / 1000) ** (1 / 3))


def test_what_is_not_run_takes_a_launch(library: Library) -> None:
    """Dropout with p = 0 is its operand, whatever dropout was measured to take."""
    curves = "".join(
        f"""
[[operator]]
name = "dropout"
dtype = "f32"
direction = "{direction}"
bytes = [1000, 1000000]
time_us = [5000, 5000]
"""
        for direction in ("forward", "backward")
    )
    machine = read_machine(Source("mine.toml", LOCAL + MEASURED + curves))
    dropout = library.operators["dropout"]
    some, none = (instantiate(dropout, [Shape((100, 10))], {"p": p}) for p in (Fraction(1, 10), 0))
    assert price(some, library, machine, True, native=False) == pytest.approx(10e-3)
    assert price(none, library, machine, True, native=False) == pytest.approx(2 * machine.launch_seconds)


def test_many_configurations_at_once(library: Library, machine: Machine) -> None:
    mesh = Mesh((MeshAxis("a", 2), MeshAxis("b", 2)))
    cases = (("linear", ((8, 6, 4), (4, 4))), ("matmul", ((4, 8, 4), (4, 4, 8))), ("softmax", ((8, 6, 4),)))
    for name, shapes in cases:
        instance = instance_of(library, name, *shapes)
        needs = [True] * len(shapes)
        typed = configurations(instance, mesh, library, needs, [False] * len(shapes), ShardingTheorems(library))
        found = price_operators(instance, typed, "f32", mesh, machine, needs, library)
        one_by_one = [price_operator(instance, t, "f32", mesh, machine, needs, library) for t in typed]
        assert found == pytest.approx(np.array(one_by_one))


def test_dividing_a_measured_product_divides_its_time(library: Library, machine: Machine) -> None:
    linear, mesh = instance_of(library, "linear", (64, 64), (64, 64)), Mesh((MeshAxis("a", 2),))
    prices = []
    for role in (Uniformly(Invariant()), Along("o")):
        typed = type_operator(linear, (role,), mesh, library)
        assert isinstance(typed, TypedOperator)
        prices.append(price_operator(linear, typed, "f32", mesh, machine, [False, False], library))
    assert prices[0] == pytest.approx(2 * prices[1])


def test_the_measured_optimizer(machine: Machine) -> None:
    assert price_update(1e6, machine) == pytest.approx(300e-6)


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [
        ('class = "row reduction"', 'class = "rows"', "rows"),
        ('name = "gelu"', 'name = "gelu"\nclass = "elementwise"', "either a `name` or a `class`"),
        ("flops = [1000, 1000000]", "flops = [1000, 1000]", "must increase"),
        ("time_us = [20, 200]", "time_us = [200, 20]", "must not fall"),
        ("time_us = [7, 70]", "time_us = [7, 70, 700]", "2 numbers"),
        ("time_us = [7, 70]", "time_us = [7, -70]", "numbers above 0"),
        ("time_us = [30, 300]", "time_us = []", "2 numbers above 0"),
        ('direction = "left"', 'direction = "up"', "`forward`, `left`, `right`, not `up`"),
        ('direction = "left"', 'direction = "forward"', "two grids"),
        (
            "time_us = [[[2, 200], [200, 20000]], [[200, 20000], [20000, 2000000]]]",
            "time_us = [[1]]",
            "2 by 2 by 2",
        ),
        ("batched = true", 'batched = "yes"', "true or false"),
    ],
)
def test_wrong_sections_are_told_where(before: str, after: str, word: str) -> None:
    assert MEASURED.count(before) == 1
    with pytest.raises(InputError) as raised:
        read_machine(Source("mine.toml", LOCAL + MEASURED.replace(before, after)))
    found = raised.value.diagnostic
    assert found.code == "E304"
    assert word in found.message
    assert found.span is not None
    assert found.span.line == LINES + MEASURED[: MEASURED.index(before)].count("\n") + 1


def test_moments_of_parts_are_taken_in_two_kernels(library: Library, machine: Machine) -> None:
    """With the batch divided, `batch_norm` reads x for the mean and again for the result. The variance takes no kernel.
    Running statistics are 5 floats each.
    """
    norm = instance_of(library, "batch_norm", (20, 5), (5,), (5,), (5,), (5,))
    mesh = Mesh((MeshAxis("a", 2),))
    typed = type_operator(norm, (Along("n"),), mesh, library)
    assert isinstance(typed, TypedOperator)
    found = emitted_kernels(norm, typed, mesh, library, [False] * 5, 4)
    names = {norm.equations[number].target.name for number in found.absorbed}
    assert names == {"d", "v"}
    forward = price_operator(norm, typed, "f32", mesh, machine, [False] * 5, library)
    inner = price_inner(norm, typed, "f32", mesh, machine, False)
    made = sum(count ** (1 / 3) for count in (0.46, 0.04, 0.06, 0.06))
    assert forward - inner == pytest.approx(7e-6 * 0.22 ** (1 / 3) + 10e-6 * made)
