"""Which matrix products are fused with the operators around them into kernels: those for which this is predicted to
pay.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unity_dsl.compilation import Request, compile_model
from unity_dsl.emit.kernels.contraction_choice import ContractionChoice, ContractionPrice
from unity_dsl.emit.output_folder import render_program
from unity_dsl.emit.plan_file import TRITON
from unity_dsl.machine.machine import load_machine
from unity_dsl.resources import folder

MODEL = """model dense[r = {rows}, d = {inner}, h = 4096]
  precision bf16
  input x: f32[r, d]
{gate}  input target: f32[r, 1]
  weight w: f32[h, d] ~ normal(0.3)
  weight head: f32[1, h] ~ normal(0.3)
{bias}  y = {body}
  loss mse(linear(y, head), target)
"""


def program(model: Path, **choices: object) -> dict[str, str]:
    """The files of a program for one H100."""
    request = Request(model, machine="dgx-h100", devices=1, kernels=TRITON, **choices)  # type: ignore[arg-type]
    found = compile_model(request)
    return render_program(found.plan, found.library, found.sources, request)


def functions(body: str, tmp_path: Path, rows: int = 65536, inner: int = 512) -> set[str]:
    """The functions of kernels.py that the model calls."""
    model = tmp_path / "dense.udl"
    gate = "  input gate: f32[r, h]\n" if "gate" in body else ""
    bias = "  weight bias: f32[h] ~ zeros\n" if "bias" in body else ""
    model.write_text(MODEL.format(body=body, rows=rows, inner=inner, bias=bias, gate=gate))
    return set(re.findall(r"kernels\.(\w+)\(", program(model)["model.py"]))


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("relu(linear(x, w))", "linear_relu"),
        ("silu(linear(x, w)) * gate", "linear_silu_mul"),
        ("relu(linear(x, w) + bias)", "linear_bias_relu"),
    ],
)
def test_a_narrow_product_is_one_kernel_with_what_follows_it(body: str, name: str, tmp_path: Path) -> None:
    assert name in functions(body, tmp_path)


def test_a_wide_product_is_the_vendor_s(tmp_path: Path) -> None:
    """A wide product is compute-bound, and the vendor's library has the higher throughput."""
    assert "linear_relu" not in functions("relu(linear(x, w))", tmp_path, inner=16384)


@pytest.mark.parametrize("body", ["linear(x, w)", "linear(x, w) + bias"])
def test_a_product_with_a_bias_alone_is_the_vendor_s(body: str, tmp_path: Path) -> None:
    assert not {name for name in functions(body, tmp_path) if "linear" in name}


def test_attention_keeps_its_products() -> None:
    """The product of queries and keys is not saved, so it is no separate kernel with the mask after it."""
    found = program(folder("examples") / "gpt2.udl", strategy="single")["model.py"]
    assert "kernels.rearrange_root_scale_matmul_causal_mask_softmax_dropout(" in found
    assert "kernels.linear_add_dropout(" in found


def test_both_predictions_stand_above_the_function_as_documented() -> None:
    text = (folder("examples").parent / "docs" / "kernels.md").read_text()
    quoted = re.findall(r"```python\n(# gpt2.*?|mlp_h = .*?)\n```", text, re.DOTALL)
    assert len(quoted) == 2
    files = program(folder("examples") / "gpt2.udl", preset="small")
    written = re.sub(r"\n *# ", " ", files["kernels.py"]) + files["model.py"]
    for part in quoted:
        assert re.sub(r"\n# ", " ", part).removeprefix("# ") in written


def test_the_same_operators_at_other_sizes_are_grouped_alike() -> None:
    """A program runs smaller batches outside training, where its groups of operators must be the same."""
    choice = ContractionChoice(load_machine("dgx-h100"))
    among, names = ("h", "y", "z"), ("h", "y")
    assert choice.best(among, {names: ContractionPrice(1.0, 2.0), ("h", "y", "z"): ContractionPrice(1.5, 2.0)}) == names
    assert choice.best(among, {names: ContractionPrice(2.0, 1.0)}) == names
    assert choice.best(("a", "b"), {("a", "b"): ContractionPrice(2.0, 1.0)}) == ()


def test_a_convolution_of_few_channels_is_one_kernel_with_what_follows_it(tmp_path: Path) -> None:
    """Only without gradients: the gradient of the convolution's weights has few tiles with long sums."""
    model = tmp_path / "convolved.udl"
    model.write_text("""model convolved[b = 64, c = 32]
  precision bf16
  input x: f32[b, c, 56, 56]
  weight k: f32[64, c, 3, 3] ~ normal(0.3)
  y = relu(conv2d(x, k; pad_h=1, pad_w=1))
  output y
""")
    files = program(model)
    assert "kernels.conv2d_relu(" in files["model.py"]
    assert "convolved.udl:5  conv2d" in files["kernels.py"]
