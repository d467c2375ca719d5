"""ONNX files, as models, against equivalent torch modules."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from unity_dsl.cli import run
from unity_dsl.importer.model_import import import_onnx
from unity_dsl.importer.onnx_graph import load_onnx

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
RANDOM = np.random.default_rng(0)


def written(path: Path, nodes: Sequence[Any], weights: dict[str, Any], given: Any, left: Any, opset: int = 20) -> Path:
    """Writes a file with these nodes. `given` and `left` are its inputs and outputs, as names with shapes."""
    helper, numpy_helper, proto = onnx.helper, onnx.numpy_helper, onnx.TensorProto
    inputs = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in given.items()]
    outputs = [helper.make_tensor_value_info(name, proto.FLOAT, shape) for name, shape in left.items()]
    states = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    graph = helper.make_graph(list(nodes), "graph", inputs, outputs, states)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    onnx.save(model, str(path))
    return path


def normal(*shape: int) -> Any:
    return (0.3 * RANDOM.normal(size=shape)).astype(np.float32)


def perceptron(path: Path) -> Path:
    """Two layers; the graph computes the shape of a view, as exporters write it."""
    node = onnx.helper.make_node
    weights = {"first.weight": normal(16, 12), "first.bias": normal(16), "last.weight": normal(16, 4)}
    constants = {"rest": np.array([-1]), "zero": np.array(0), "axes": np.array([0])}
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["rows"]),
        node("Unsqueeze", ["rows", "axes"], ["row"]),
        node("Concat", ["row", "rest"], ["flat_shape"], axis=0),
        node("Reshape", ["x", "flat_shape"], ["flat"]),
        node("Gemm", ["flat", "first.weight", "first.bias"], ["h"], transB=1),
        node("Relu", ["h"], ["a"]),
        node("MatMul", ["a", "last.weight"], ["y"]),
    ]
    return written(path, nodes, {**weights, **constants}, {"x": (onnx.TensorProto.FLOAT, ["n", 3, 4])}, {"y": ["n", 4]})


def attention(path: Path) -> Path:
    """Attention as torch's exporter writes it: the scale on both factors, a table of -inf, and a guard against NaN."""
    node, scale = onnx.helper.make_node, np.float32(8**-0.25)
    past = np.where(np.tril(np.ones((6, 6), bool)), 0, -np.inf).astype(np.float32)
    weights = {name: normal(16, 16) for name in ("q.weight", "k.weight", "v.weight")}
    constants = {"heads": np.array([2, 6, 2, 8]), "whole": np.array([2, 6, 16]), "scale": scale, "past": past}
    nodes = []
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [
            node("MatMul", ["x", f"{name}.weight"], [f"{name}m"]),
            node("Reshape", [f"{name}m", "heads"], [f"{name}r"]),
            node("Transpose", [f"{name}r"], [f"{name}t"], perm=order),
        ]
    nodes += [node("Mul", [f"{name}t", "scale"], [f"{name}s"]) for name in "qk"]
    nodes += [
        node("MatMul", ["qs", "ks"], ["scores"]),
        node("Add", ["scores", "past"], ["masked"]),
        node("Softmax", ["masked"], ["weights"], axis=-1),
        node("IsNaN", ["weights"], ["none"]),
        node("Where", ["none", "nothing", "weights"], ["guarded"]),
        node("MatMul", ["guarded", "vt"], ["mixed"]),
        node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
        node("Reshape", ["back", "whole"], ["y"]),
    ]
    given = {"x": (onnx.TensorProto.FLOAT, [2, 6, 16])}
    return written(path, nodes, {**weights, **constants, "nothing": np.float32(0)}, given, {"y": [2, 6, 16]})


def test_a_file_is_the_module_that_it_describes(tmp_path: Path) -> None:
    """Compares its outputs and its loss with torch calls on the same weights."""
    module, (x, labels), told = load_onnx(perceptron(tmp_path / "m.onnx"), "cross_entropy", {"n": 5})
    assert x.shape == (5, 3, 4) and told == ""
    states = module.state_dict()
    y = F.relu(F.linear(x.flatten(1), states["first.weight"], states["first.bias"])) @ states["last.weight"]
    loss, found = module(x, labels)
    torch.testing.assert_close(found, y)
    torch.testing.assert_close(loss, F.cross_entropy(y, labels))
    assert [name for name, _ in module.named_parameters()] == ["first.weight", "first.bias", "last.weight"]


def test_a_file_becomes_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command verifies it and keeps the initializers' names; its program runs on two ranks."""
    path = perceptron(tmp_path / "small.onnx")
    out = tmp_path / "imported"
    assert run(["import", str(path), "-o", str(out), "--loss", "cross_entropy", "--size", "n=4"]) == 0
    assert "from the module in float64" in capsys.readouterr().out
    weights = json.loads((out / "weights.json").read_text())
    assert set(weights.values()) == {"first.weight", "first.bias", "last.weight"}
    program = str(tmp_path / "program")
    assert run([str(out / "small.udl"), "-o", program, "--devices", "2", "--strategy", "data_parallel"]) == 0
    assert run(["check", program]) == 0


def test_attention_is_recognised(tmp_path: Path) -> None:
    found, _ = import_onnx(attention(tmp_path / "m.onnx"), "m", "mse", {})
    text = found.files["m.udl"]
    assert "causal_attention(" in text and "softmax" not in text and "masked" not in text
    assert found.verified is not None and found.verified.gradient < 1e-6


def test_what_an_exporter_may_have_merged_is_told(tmp_path: Path) -> None:
    node = onnx.helper.make_node
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Tanh", ["h"], ["a"]), node("MatMul", ["a", "w"], ["y"])]
    given = {"x": (onnx.TensorProto.FLOAT, [4, 8])}
    path = written(tmp_path / "m.onnx", nodes, {"w": normal(8, 8)}, given, {"y": [4, 8]})
    found, told = import_onnx(path, "m", "mse", {})
    assert told.endswith("an exporter merged: w") and found.files["m.udl"].count("weight w:") == 1


@pytest.mark.parametrize("fault", ["text", "operator", "opset", "attribute", "output", "no loss", "size", "loss"])
def test_bad_input_is_told(fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One diagnostic, exit code 2, and nothing is written."""
    node, path = onnx.helper.make_node, tmp_path / "m.onnx"
    given = {"x": (onnx.TensorProto.FLOAT, [4, 8])}
    options = ["--loss", "mse"]
    if fault == "text":
        path.write_text("no protobuf")
    elif fault == "operator":
        nodes = [node("Det", ["x"], ["a"]), node("Hardmax", ["a"], ["y"])]
        written(path, nodes, {}, given, {"y": [4]})
    elif fault == "attribute":
        nodes = [node("CumSum", ["x", "axis"], ["a"], reverse=1), node("Relu", ["a"], ["y"])]
        written(path, nodes, {"axis": np.array(1)}, given, {"y": [4, 8]})
    elif fault == "output":
        nodes = [node("Dropout", ["x"], ["a", "mask"]), node("Where", ["mask", "x", "a"], ["y"])]
        written(path, nodes, {}, given, {"y": [4, 8]})
    elif fault == "opset":
        written(path, [node("Tanh", ["x"], ["y"])], {}, given, {"y": [4, 8]}, opset=9)
    else:
        written(path, [node("MatMul", ["x", "w"], ["y"])], {"w": normal(8, 8)}, given, {"y": [4, 8]})
        options = {"no loss": [], "size": ["--size", "n"], "loss": ["--loss", "none"]}[fault]
    assert run(["import", str(path), "-o", str(tmp_path / "out"), *options]) == 2
    told = capsys.readouterr().err
    expected = {
        "text": "E608",
        "operator": "not supported of this ONNX file: Det, Hardmax",
        "attribute": "not supported of this ONNX file: CumSum with reverse = 1",
        "output": "the output `mask` that Where reads",
        "opset": "opset 9",
        "no loss": "--loss cross_entropy, or mse, computes one",
        "size": "is not NAME=N",
        "loss": "`none` is none of cross_entropy, mse",
    }
    assert expected[fault] in told and not (tmp_path / "out").exists()
