"""Linear maps with padded columns: what replaces the call, and what stays unchanged."""

from __future__ import annotations

from unity_dsl.emit.torch_text import term_text
from unity_dsl.index.lowering.operator_lowering import Lowering
from unity_dsl.index.lowering.padded_columns import with_padded_columns
from unity_dsl.index.lowering.torch_term import Term, Variable, torch_call, word
from unity_dsl.index.lowering.value_lowering import Statement


def padded(value: Term) -> str:
    lowering = Lowering((Statement((Variable(0),), value, "y"),), (Variable(0),), native=True)
    (statement,) = with_padded_columns(lowering, 5, 3).statements
    return term_text(statement.value, str)


def test_the_weight_and_the_bias_get_zeros_and_the_result_loses_them() -> None:
    x, w, bias = map(word, ("x", "w", "bias"))
    weight = "F.pad(w, (0, 0, 0, 3))"
    assert padded(torch_call("F.linear", x, w)) == f"F.linear(x, {weight}).narrow(-1, 0, 5)"
    found = padded(torch_call("F.relu", torch_call("F.linear", x, w, bias)))
    assert found == f"F.relu(F.linear(x, {weight}, F.pad(bias, (0, 3))).narrow(-1, 0, 5))"


def test_a_function_in_another_module_is_given_a_padded_weight() -> None:
    assert padded(torch_call("parallel.linear", word("x"), word("w"))) == "parallel.linear(x, w).narrow(-1, 0, 5)"


def test_other_products_stay() -> None:
    assert padded(torch_call("torch.matmul", word("x"), word("w"))) == "torch.matmul(x, w)"
