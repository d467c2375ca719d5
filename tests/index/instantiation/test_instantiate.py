"""From declarations and shapes to equations: axes, sizes, broadcasting, patterns, cutting."""

from __future__ import annotations

import pytest

from unity_dsl.index.equations.instance import Equation, Instance
from unity_dsl.index.equations.term import dim_index, walk
from unity_dsl.index.instantiation.instantiate import Binding, Shape, instantiate, instantiate_parallel
from unity_dsl.index.library import Library
from unity_dsl.syntax.ast import Apply, Expr, Name, Number, Read, Reduce, ReductionKind, Select, Size, Uniform

from ..declare import operator, parallel


def text(expr: Expr) -> str:
    """A term as text, fully bracketed."""
    match expr:
        case Number(value):
            return f"{value:g}"
        case Name(name):
            return name
        case Size(name):
            return f"|{name}|"
        case Read(tensor, index, fill):
            inside = ", ".join(map(text, index)) + (f" else {text(fill)}" if fill is not None else "")
            return f"{tensor}[{inside}]"
        case Uniform(index):
            return f"uniform[{', '.join(map(text, index))}]"
        case Select(condition, then, otherwise):
            return f"select({text(condition)}, {text(then)}, {text(otherwise)})"
        case Apply(function, (a, b)) if not function.isalpha():
            return f"({text(a)} {function} {text(b)})"
        case Apply(function, arguments):
            return f"{function}({', '.join(map(text, arguments))})"
    raise TypeError(expr)


def line(equation: Equation) -> str:
    dims = ["1" if not dim else dim[0] if len(dim) == 1 else f"({' '.join(dim)})" for dim in equation.target.dims]
    kind = f"{equation.kind}({', '.join(equation.over)}) " if equation.kind else ""
    return f"{equation.target.name}[{', '.join(dims)}] = {kind}{text(equation.value)}"


def lines(instance: Instance) -> list[str]:
    for equation in (*instance.equations, *instance.evaluation):
        assert not any(isinstance(node, Reduce) for node in walk(equation.value))
        assert (equation.kind is None) == (not equation.over)
        assert not set(equation.over) & set(equation.target.axes)
        assert set(equation.space) <= set(instance.sizes)
    return [line(equation) for equation in instance.equations]


def called(source: str, *shapes: tuple[int, ...], **attributes: float) -> Instance:
    return instantiate(operator(source), [Shape(shape) for shape in shapes], attributes)


# ---------------------------------------------------------------------------------------------- axes and sizes


def test_rest_axes_are_numbered(library: Library) -> None:
    linear = instantiate(library.operators["linear"], [Shape((2, 3, 4)), Shape((5, 4))], {})
    assert lines(linear) == ["y[b0, b1, o] = sum(i) (x[b0, b1, i] * w[o, i])"]
    assert linear.sizes == {"b0": 2, "b1": 3, "i": 4, "o": 5}
    assert linear.native
    assert linear.axes == ("b0", "b1", "o", "i")
    assert linear.shape(linear.outputs[0]) == (2, 3, 5)


def test_rest_axes_avoid_declared_names() -> None:
    source = "op f(x: [b.., b0]) -> y: [b.., b0]\n  y[b.., b0] = x[b.., b0]\n"
    assert called(source, (2, 3)).sizes == {"b_0": 2, "b0": 3}


def test_broadcasting_is_aligned_on_the_right(library: Library) -> None:
    add = instantiate(library.operators["add"], [Shape((3, 1)), Shape((2, 1, 4))], {})
    assert [operand.dims for operand in add.inputs] == [(("b1",), ()), (("b0",), (), ("b2",))]
    assert lines(add) == ["z[b0, b1, b2] = (x[b1, 0] + y[b0, 0, b2])"]
    assert add.shape(add.inputs[0]) == (3, 1)


def test_an_axis_that_is_1_everywhere_is_an_axis(library: Library) -> None:
    add = instantiate(library.operators["add"], [Shape((1,)), Shape((1,))], {})
    assert [operand.dims for operand in add.inputs] == [(("b0",),), (("b0",),)]


def test_an_operand_that_does_not_broadcast_fixes_the_sizes() -> None:
    source = "op f(x: [b..~], y: [b..]) -> z: [b..]\n  z[b..] = x[b..] * y[b..]\n"
    instance = called(source, (1,), (2, 3))
    assert lines(instance) == ["z[b0, b1] = (x[0] * y[b0, b1])"]


def test_attributes_become_numbers_and_negative_dims_count_from_the_end(library: Library) -> None:
    concat = instantiate(library.operators["concat"], [Shape((2, 3)), Shape((2, 5))], {"dim": -1})
    assert concat.attributes == {"dim": 1}
    assert lines(concat) == ["z[f0, s] = (x[f0, s else 0] + y[f0, (s - |d|) else 0])"]
    assert concat.sizes == {"f0": 2, "d": 3, "e": 5, "s": 8}


def test_sizes_are_solved_through_arithmetic() -> None:
    source = """
op conv(x: [n, c, h], k: [o, c, r]; stride = 1, pad = 0) -> y: [n, o, p]
  where p == (h + 2 * pad - r) // stride + 1
  y[n, o, p] = sum(c, r) x[n, c, p * stride + r - pad else 0] * k[o, c, r]
"""
    instance = called(source, (2, 3, 11), (4, 3, 5), stride=2, pad=1)
    assert instance.sizes["p"] == 5
    assert lines(instance) == ["y[n, o, p] = sum(c, r) (x[n, c, (((p * 2) + r) - 1) else 0] * k[o, c, r])"]


def test_a_condition_may_define_an_axis_that_no_tensor_has() -> None:
    source = """
op pool(x: [h]; window) -> y: [p]
  where r == window, h == p * r
  y[p] = max(r) x[p * |r| + r]
"""
    instance = called(source, (12,), window=3)
    assert instance.sizes == {"h": 12, "r": 3, "p": 4}
    assert lines(instance) == ["y[p] = max(r) x[((p * |r|) + r)]"]


def test_indices_take_the_names_of_what_they_run_over() -> None:
    source = """
op f(x: [a, c]) -> y: [c, a]
  m[i] = max(j) x[i, j]
  y[p, q] = x[q, p] - m[q]
"""
    assert lines(called(source, (2, 3))) == ["m[a] = max(c) x[a, c]", "y[c, a] = (x[a, c] - m[a])"]


def test_an_index_keeps_its_own_name_where_that_of_its_dimension_is_taken() -> None:
    gram = called("op gram(x: [n, m]) -> y: [n, n]\n  y[i, j] = sum(m) x[i, m] * x[j, m]\n", (2, 3))
    assert lines(gram) == ["y[n, j] = sum(m) (x[n, m] * x[j, m])"]
    assert gram.sizes == {"n": 2, "m": 3, "j": 2}
    source = "op f(x: [a], y: [c]) -> z: [a]\n  z[c] = x[c] * sum(a) y[a]\n"
    with pytest.raises(Exception, match="E128"):
        called(source, (4,), (3,))
    shadowed = called(source, (3,), (4,))
    assert lines(shadowed) == ["z_1[] = sum(a) y[a]", "z[c_1] = (x[c_1] * z_1[])"]
    assert shadowed.sizes == {"a": 3, "c": 4, "c_1": 3}


def test_integer_ranges_give_sizes() -> None:
    source = "op one_hot(ids: int<v>[n..]) -> y: [n.., v]\n  y[n.., v] = [v == ids[n..]]\n"
    instance = instantiate(operator(source), [Shape((4,), integer_range=7)], {})
    assert instance.sizes == {"n0": 4, "v": 7}
    assert lines(instance) == ["y[n0, v] = (v == ids[n0])"]


def test_a_smaller_range_may_stand_for_a_greater_one(library: Library) -> None:
    embedding = instantiate(library.operators["embedding"], [Shape((2,), integer_range=5), Shape((8, 3))], {})
    assert embedding.inputs[0].integer_range == 5
    assert embedding.sizes["v"] == 8


# ---------------------------------------------------------------------------------------------- cutting


def test_softmax_in_one_line_is_cut_at_its_reductions() -> None:
    source = """
op softmax(x: [b, c]) -> y: [b, c]
  y[b, c] = exp(x[b, c] - (max(c) x[b, c])) / (sum(c) exp(x[b, c] - (max(c) x[b, c])))
"""
    assert lines(called(source, (2, 3))) == [
        "y_1[b] = max(c) x[b, c]",
        "y_2[b] = sum(c) exp((x[b, c] - y_1[b]))",
        "y[b, c] = (exp((x[b, c] - y_1[b])) / y_2[b])",
    ]


def test_a_sum_times_something_is_an_equation_of_its_own(library: Library) -> None:
    source = """
op affine(x: [b.., i], w: [o, i], c: [o]) -> y: [b.., o]
  y[b.., o] = sum(i) x[b.., i] * w[o, i] + c[o]
"""
    assert lines(called(source, (2, 3), (4, 3), (4,))) == [
        "y_1[b0, o] = sum(i) (x[b0, i] * w[o, i])",
        "y[b0, o] = (y_1[b0, o] + c[o])",
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("(sum(c) x[b, c]) / |c|", "sum(c) (x[b, c] / |c|)"),
        ("-(sum(c) x[b, c]) * 0.5", "sum(c) (neg(x[b, c]) * 0.5)"),
        ("2 * (sum(c) x[b, c])", "sum(c) (2 * x[b, c])"),
        ("sum(c) (sum(d) x[b, c] * w[d])", "sum(c, d) (x[b, c] * w[d])"),
        ("sum(c) 0.5 * (sum(d) x[b, c] * w[d])", "sum(c, d) (0.5 * (x[b, c] * w[d]))"),
    ],
)
def test_constants_and_nested_sums_stay_one_equation(body: str, expected: str) -> None:
    source = f"op f(x: [b, c], w: [d]) -> y: [b]\n  y[b] = {body}\n"
    assert lines(called(source, (2, 3), (4,))) == [f"y[b] = {expected}"]


def test_constants_stay_outside_other_reductions() -> None:
    source = "op f(x: [b, c]) -> y: [b]\n  y[b] = -(max(c) x[b, c])\n"
    assert lines(called(source, (2, 3))) == ["y_1[b] = max(c) x[b, c]", "y[b] = neg(y_1[b])"]


def test_a_named_reduction_is_shared() -> None:
    source = """
op f(x: [b, c]) -> y: [b, c]
  s[b] = sum(c) x[b, c]
  y[b, c] = x[b, c] / (sum(c) x[b, c]) + s[b]
"""
    assert lines(called(source, (2, 3))) == ["s[b] = sum(c) x[b, c]", "y[b, c] = ((x[b, c] / s[b]) + s[b])"]


def test_a_sum_over_the_target_s_own_name_is_a_sum_of_its_own() -> None:
    source = "op f(x: [b, c]) -> y: [b, c]\n  y[b, c] = sum(c) x[b, c]\n"
    assert lines(called(source, (2, 3))) == ["y_1[b] = sum(c) x[b, c]", "y[b, c] = y_1[b]"]


def test_fresh_names_avoid_those_in_use() -> None:
    source = """
op f(y_1: [b, c]) -> y: [b]
  y[b] = exp(sum(c) y_1[b, c])
"""
    assert lines(called(source, (2, 3)))[0] == "y_2[b] = sum(c) y_1[b, c]"


def test_reducing_no_axis_is_the_body() -> None:
    source = "op f(x: [n..]) -> y: []\n  y[] = sum(n..) x[n..] / |n..|\n"
    assert lines(called(source, ())) == ["y[] = (x[] / 1)"]
    assert lines(called(source, (2, 3))) == ["y[] = sum(n0, n1) (x[n0, n1] / (|n0| * |n1|))"]


def test_evaluation_statements(library: Library) -> None:
    dropout = instantiate(library.operators["dropout"], [Shape((2,))], {})
    assert lines(dropout) == ["y[b0] = (((uniform[b0] >= 0.1) * x[b0]) / (1 - 0.1))"]
    assert [line(equation) for equation in dropout.evaluation] == ["y[b0] = x[b0]"]


# ---------------------------------------------------------------------------------------------- patterns


def test_a_pattern_names_the_axes(library: Library) -> None:
    binding = Binding(((("b", 2),), (("h", 3), ("k", 4)), ()), ((("h", 3), ("b", 2)), (), (("k", 4),)))
    view = instantiate(library.operators["rearrange"], [Shape((2, 12, 1))], {}, binding=binding)
    assert lines(view) == ["y[(h b), 1, k] = x[b, ((h * |k|) + k), 0]"]
    assert [operand.dims for operand in (*view.inputs, *view.outputs)] == [
        (("b",), ("h", "k"), ()),
        (("h", "b"), (), ("k",)),
    ]
    assert not view.native
    assert view.shape(view.outputs[0]) == (6, 1, 4)


def test_a_view_of_integers_holds_integers(library: Library) -> None:
    binding = Binding(((("b", 4),),), ((("b", 4),), ()))
    view = instantiate(library.operators["rearrange"], [Shape((4,), integer_range=7)], {}, binding=binding)
    assert view.outputs[0].integer_range == 7 and view.whole
    floats = instantiate(library.operators["rearrange"], [Shape((4,))], {}, binding=binding)
    assert floats.outputs[0].integer_range is None
    total = Binding(((("b", 4),),), ())
    summed = instantiate(library.operators["reduce_sum"], [Shape((4,), integer_range=7)], {}, binding=total)
    assert summed.outputs[0].integer_range is None, "a sum of integers below 7 may be 7 or more"


def test_a_copy_of_integers_is_of_the_declared_kind() -> None:
    source = "op f(i: int<v>[n]) -> y: [n]\n  y[n] = i[n]\n"
    assert instantiate(operator(source), [Shape((4,), integer_range=7)], {}).outputs[0].integer_range is None


def test_axes_left_out_of_the_target_are_reduced(library: Library) -> None:
    binding = Binding(((("b", 2),), (("h", 3), ("k", 4))), ((("h", 3),),))
    mean = instantiate(library.operators["reduce_mean"], [Shape((2, 12))], {}, binding=binding)
    assert lines(mean) == ["y[h] = sum(b, k) (x[b, ((h * |k|) + k)] / (|b| * |k|))"]
    (equation,) = mean.equations
    assert equation.kind is ReductionKind.SUM
    (read,) = [node for node in walk(equation.value) if isinstance(node, Read)]
    assert read.index == (dim_index(("b",)), dim_index(("h", "k")))


def test_a_later_statement_reads_a_merged_output() -> None:
    source = """
op f(x: [k.., r..]) -> y: [k..], z: [k..]
  y[k..] = sum(r..) x[k.., r..]
  z[k..] = exp(y[k..])
"""
    binding = Binding(((("a", 2), ("c", 3)), (("d", 4),)), ((("c", 3), ("a", 2)),))
    instance = instantiate(operator(source), [Shape((6, 4))], {}, binding=binding)
    assert lines(instance)[1] == "z[(c a)] = exp(y[((c * |a|) + a)])"


def test_elementwise_operators_take_patterns(library: Library) -> None:
    binding = Binding(((("a", 2),), (("c", 3),)), ((("c", 3),), (("a", 2),)))
    instance = instantiate(library.operators["relu"], [Shape((2, 3))], {}, binding=binding)
    assert lines(instance) == ["y[c, a] = relu(x[a, c])"]


# ---------------------------------------------------------------------------------------------- parallel ops


def test_device_axes_are_axes(library: Library) -> None:
    partition = instantiate_parallel(library.parallels["partition"], [Shape((2, 6))], {"p": 3}, {"dim": 1})
    assert lines(partition) == ["y[@p, f0, e] = x[f0, ((@p * |e|) + e)]"]
    assert partition.sizes == {"@p": 3, "f0": 2, "d": 6, "e": 2}
    combine = instantiate_parallel(library.parallels["combine"], [Shape((3, 2, 2))], {"p": 3}, {"dim": 1})
    assert lines(combine) == ["y[f0, d] = x[(d // |e|), f0, (d % |e|)]"]
    reduce = instantiate_parallel(library.parallels["reduce"], [Shape((3, 2))], {"p": 3}, {})
    assert lines(reduce) == ["y[g0] = sum(@p) x[@p, g0]"]


def test_the_size_of_a_device_axis_is_its_degree() -> None:
    source = """
parallel mean[p](x: [@p, g..]) -> y: [g..]
  y[g..] = sum(@p) x[@p, g..] / |p|
"""
    instance = instantiate_parallel(parallel(source), [Shape((3, 2))], {"p": 3}, {})
    assert lines(instance) == ["y[g0] = sum(@p) (x[@p, g0] / |@p|)"]
