"""Fusions onto operators without a native call: they are proved, but no search uses them, since their statements cost
more.
"""

from __future__ import annotations

import pytest

from unity_dsl.graph.emitted_kernels import EmittedKernels
from unity_dsl.graph.graph import Model
from unity_dsl.index.library import Library
from unity_dsl.machine import operator_price
from unity_dsl.machine.machine import load_machine
from unity_dsl.machine.mesh import build_mesh
from unity_dsl.rules.fusing import fused
from unity_dsl.rules.shipped_fusions import fusions_for, shipped_fusions
from unity_dsl.search.model_variants.variant_enumeration import SingleDevice
from unity_dsl.search.plan_search import search
from unity_dsl.syntax.parse_rules import RuleDecl
from unity_dsl.syntax.read import read_source

from ...datasheet import by_datasheet
from ..conftest import Build

MODEL = """model m[b = {b}, i = {i}, o = {o}]
  input x: f32[b, i]
  input target: f32[b, {width}]
{weights}
  y = {y}
  loss mse(y, target)
"""
WEIGHTS = {"w": "o, i", "bias": "o", "gain": "i", "shift": "i", "z": "b, i"}
APART = {
    "relu_of_linear": ("linear_bias_relu", "relu(linear(x, w) + bias)"),
    "gelu_of_linear": ("linear_bias_gelu", "gelu(linear(x, w) + bias)"),
    "gelu_tanh_of_linear": ("linear_bias_gelu_tanh", "gelu_tanh(linear(x, w) + bias)"),
    "linear_of_layer_norm": ("layer_norm_linear", "linear(layer_norm(x, gain, shift), w)"),
    "linear_of_rms_norm": ("rms_norm_linear", "linear(rms_norm(x, gain), w)"),
    "layer_norm_of_sum": ("add_layer_norm", "layer_norm(x + z, gain, shift)"),
    "rms_norm_of_sum": ("add_rms_norm", "rms_norm(x + z, gain)"),
}
SIZES = ((8, 16, 16), (512, 64, 4096), (8192, 1024, 4096))


def written(build: Build, rule: str, b: int, i: int, o: int) -> Model:
    _, y = APART[rule]
    names = [name for name in WEIGHTS if name in y.replace("(", " ").replace(",", " ").replace(")", " ").split()]
    weights = "\n".join(f"  weight {name}: f32[{WEIGHTS[name]}] ~ normal(0.1)" for name in names)
    return build(MODEL.format(b=b, i=i, o=o, width="o" if "w" in names else "i", weights=weights, y=y))


def operators(model: Model) -> list[str]:
    return [node.instance.name for node in model.graph.nodes()]


def the_rule(name: str, model: Model, library: Library) -> list[RuleDecl]:
    accepted = fusions_for(model, [read_source(shipped_fusions())], library)
    return [one.rule for one in accepted if one.rule.name == name]


@pytest.mark.parametrize("machine", ["local", "dgx-a100"])
@pytest.mark.parametrize("rule", APART)
def test_the_rule_fits_and_is_not_worth_it(rule: str, machine: str, library: Library, build: Build) -> None:
    """The operator costs no less than the operators that it replaces, so no plan on four devices uses it."""
    hardware = load_machine(machine)
    for sizes in SIZES:
        model = written(build, rule, *sizes)
        rules = the_rule(rule, model, library)
        changed, applied = fused(model, rules, library, lambda *_: True)
        assert [used.rule for used in applied] == [rule] and APART[rule][0] in operators(changed)
        alone = SingleDevice(hardware, library).seconds
        assert alone(changed) >= alone(model) * (1 - 1e-9), sizes
        plan = search(model, build_mesh(hardware, 4), hardware, library, fusions=rules)
        assert plan.rules == () and operators(plan.model) == operators(model), sizes


def test_without_their_statements_some_would_look_cheaper(
    library: Library, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = by_datasheet("dgx-a100")
    mesh = build_mesh(machine, 4)
    one_kernel = EmittedKernels(1, 1, (), (), {})
    monkeypatch.setattr(operator_price, "emitted_kernels", lambda *_: one_kernel)
    monkeypatch.setattr(operator_price, "_known", lambda *_: {})
    used: set[str] = set()
    for rule in APART:
        model = written(build, rule, 8192, 1024, 4096)
        plan = search(model, mesh, machine, library, fusions=the_rule(rule, model, library))
        used |= {applied.rule for applied in plan.rules}
    assert used >= {"relu_of_linear", "gelu_of_linear", "gelu_tanh_of_linear"}, used
