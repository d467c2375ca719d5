"""Readers of rule files and the places of faults. Messages are tested by tests/cases/cli_error/audit_*."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.published import TASO, UNITY, published
from tests.rules.audit import unity, wire
from unity_dsl.rules.audit.file_rules import FileOperator, TensorRef
from unity_dsl.rules.audit.rule_file import read_rule_file
from unity_dsl.rules.audit.taso_file import OPERATORS, PARAMETERS
from unity_dsl.syntax.diagnostic import InputError


def read(tmp_path: Path, data: bytes | str) -> Any:
    path = tmp_path / "given"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return read_rule_file(path)


def test_protobuf_is_read_field_by_field(tmp_path: Path) -> None:
    file = read(tmp_path, wire.associative() + wire.split_of_product())
    assert file.format == "taso" and [rule.name for rule in file.rules] == ["rule_0", "rule_1"]
    first, second = file.rules
    assert first.source[1] == FileOperator("matmul", (TensorRef(0, 0), TensorRef(-5, 0)), {"activation": 0})
    assert second.target[2] == FileOperator("split", (TensorRef(1, 0),), {"outputs": 2, "axis": 1})
    assert [(pair.source, pair.target) for pair in second.outputs] == [
        (TensorRef(0, 0), TensorRef(2, 0)),
        (TensorRef(1, 0), TensorRef(2, 1)),
    ]


def test_json_is_read_field_by_field(tmp_path: Path) -> None:
    file = read(tmp_path, unity.text(unity.DATA_PARALLEL, unity.PARTS))
    assert file.format == "unity" and [rule.name for rule in file.rules] == ["data_parallel", "parts"]
    assert file.rules[0].source[1] == FileOperator("replicate", (TensorRef(-4, 0),), {"axis": 0, "degree": 2})
    assert file.rules[1].target[2].parameters == {"outputs": 2, "axis": 1}
    assert file.rules[0].externals == (-1, -4)


def test_every_prefix_of_a_file_is_refused_or_has_whole_rules(tmp_path: Path) -> None:
    data = wire.associative() + wire.moves_relu()
    whole = {len(wire.associative()): 1, len(data): 2}
    for length in range(1, len(data) + 1):
        if length in whole:
            assert len(read(tmp_path, data[:length]).rules) == whole[length]
        else:
            with pytest.raises(InputError):
                read(tmp_path, data[:length])


def test_every_damaged_byte_is_read_or_refused(tmp_path: Path) -> None:
    random = Random(5)
    for data in (wire.grouped(), unity.text(unity.PARTS).encode()):
        for _ in range(300):
            place = random.randrange(len(data))
            damaged = bytearray(data)
            damaged[place] = random.randrange(256)
            try:
                read(tmp_path, bytes(damaged))
            except InputError as error:
                assert error.diagnostic.code in ("E002", "E551", "E552", "E553", "E554", "E555")


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "code", "place"),
    [
        (lambda rule: rule.pop("name"), "E552", "rule[0]"),
        (lambda rule: rule.update(name=7), "E552", "rule[0]"),
        (lambda rule: rule.pop("dstOp"), "E552", "rule[0]"),
        (lambda rule: rule.update(srcOp=[]), "E552", "rule[0].srcOp"),
        (lambda rule: rule.update(srcOp={}), "E552", "rule[0]"),
        (lambda rule: rule.update(mappedOutput=[]), "E552", "rule[0]"),
        (lambda rule: rule["srcOp"].append(7), "E552", "rule[0].srcOp[2]"),
        (lambda rule: rule["srcOp"][0].pop("input"), "E552", "rule[0].srcOp[0]"),
        (lambda rule: rule["srcOp"][0]["input"][0].update(opId=1.5), "E552", "rule[0].srcOp[0].input[0]"),
        (lambda rule: rule["srcOp"][0]["input"][0].update(opId=True), "E552", "rule[0].srcOp[0].input[0]"),
        (lambda rule: rule["srcOp"][0]["input"][0].update(opId=2**31), "E552", "rule[0].srcOp[0].input[0]"),
        (lambda rule: rule["srcOp"][0]["input"][0].update(opId=2), "E552", "rule[0].srcOp[0]"),
        (lambda rule: rule["dstOp"][1]["input"][0].update(tsId=1), "E552", "rule[0].dstOp[1]"),
        (lambda rule: rule["mappedOutput"][1].update(dstTsId=2), "E552", "rule[0].mappedOutput[1]"),
        (lambda rule: rule["mappedOutput"][0].pop("srcOpId"), "E552", "rule[0].mappedOutput[0]"),
        (lambda rule: rule["dstOp"][0]["para"][0].update(key="PM_HEIGHT"), "E553", "rule[0].dstOp[0].para[0]"),
        (lambda rule: rule["dstOp"][0]["para"].append(rule["dstOp"][0]["para"][0]), "E552", "rule[0].dstOp[0].para[3]"),
        (lambda rule: rule["dstOp"][0].update(type="OP_MYSTERY"), "E553", "rule[0].dstOp[0]"),
        (lambda rule: rule["dstOp"][1]["input"][0].update(opId=2), "E554", "rule[0].dstOp"),
        (lambda rule: rule["dstOp"][1]["input"][0].update(opId=1), "E554", "rule[0].dstOp"),
        (lambda rule: rule["srcOp"].extend(rule["srcOp"][:1] * 70), "E555", "rule[0].srcOp"),
        (lambda rule: rule["srcOp"][0]["input"].extend([{"opId": -1, "tsId": 0}] * 9), "E555", "rule[0].srcOp[0]"),
    ],
)
def test_a_fault_is_told_by_its_place(tmp_path: Path, change: Change, code: str, place: str) -> None:
    rule = copy.deepcopy(unity.PARTS)
    change(rule)
    with pytest.raises(InputError) as caught:
        read(tmp_path, unity.text(rule))
    assert caught.value.diagnostic.code == code
    assert caught.value.diagnostic.message.startswith(f"{place}: ")


def test_numbers_without_a_name_are_refused(tmp_path: Path) -> None:
    for operator in ((26, [(-1, 0)], {}), (-1, [(-1, 0)], {}), ("relu", [(-1, 0)], {15: 1})):
        with pytest.raises(InputError) as caught:
            read(tmp_path, wire.rule([operator], [("relu", [(-1, 0)], {})], [(0, 0, 0, 0)]))
        assert caught.value.diagnostic.code == "E553"


def test_a_missing_field_of_a_message_is_told(tmp_path: Path) -> None:
    without_type = wire.message(1, wire.message(1, b"") + wire.message(2, wire.integer(1, 8)))
    with pytest.raises(InputError) as caught:
        read(tmp_path, without_type)
    assert caught.value.diagnostic.message == "rule[0].srcOp[0]: the field `type` is missing"


def test_operators_may_stand_in_any_order(tmp_path: Path) -> None:
    """The published files list operands before their users, but the format does not require it."""
    rule = copy.deepcopy(unity.SUM_OF_REPLICAS)
    rule["dstOp"].reverse()
    rule["dstOp"][0]["input"][0]["opId"] = 1
    rule["mappedOutput"][0]["dstOpId"] = 0
    assert len(read(tmp_path, unity.text(rule)).rules) == 1


# ---------------------------------------------------------------------------------------------- published files


def test_the_published_protobuf_is_what_another_decoder_read() -> None:
    """The output of an independent decoder is stored beside the file."""
    file, known = read_rule_file(published(TASO)), json.loads(published("taso_graph_subst.json").read_text())
    names = {"ewadd": "add", "ewmul": "mul"}
    keys = {"acti": "activation", "pad": "padding", "num_inputs": "inputs", "num_outputs": "outputs", "numdim": "rank"}
    assert len(file.rules) == len(known) == 133
    for rule, other in zip(file.rules, known, strict=True):
        for side, operators in ((rule.source, other["src"]), (rule.target, other["dst"])):
            assert [
                {
                    "type": made.kind,
                    "input": [[ref.operator, ref.output] for ref in made.inputs],
                    "para": dict(made.parameters),
                }
                for made in side
            ] == [
                {
                    "type": names.get(one["type"], one["type"]),
                    "input": one["input"],
                    "para": {keys.get(key, key): value for key, value in one["para"].items()},
                }
                for one in operators
            ]
        pairs = [
            [pair.source.operator, pair.source.output, pair.target.operator, pair.target.output]
            for pair in rule.outputs
        ]
        assert pairs == other["mapped"]


def test_the_published_json_has_the_known_counts() -> None:
    file = read_rule_file(published(UNITY))
    assert [rule.name for rule in file.rules] == [f"taso_rule_{number}" for number in range(640)]
    assert sum(bool(rule.unbound) for rule in file.rules) == 112
    assert sum(len(rule.outputs) == 2 for rule in file.rules) == 69
    kinds = [made.kind for rule in file.rules for made in (*rule.source, *rule.target)]
    assert len(kinds) == 3690 and kinds.count("replicate") == 866 and kinds.count("split") == 23


def test_names_of_numbers_are_distinct() -> None:
    assert len(set(OPERATORS)) == len(OPERATORS) == 26 and len(set(PARAMETERS)) == len(PARAMETERS) == 15
