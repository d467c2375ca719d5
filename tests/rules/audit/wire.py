"""Writes TASO's format byte by byte from the protobuf encoding's description. It shares no code with the reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

TYPES = {"conv2d": 3, "dropout": 4, "relu": 8, "concat": 12, "split": 13, "add": 16, "mul": 17, "matmul": 18}
CONV = {4: 3, 5: 3, 6: 1, 7: 1, 8: 0, 9: 0}
"""Parameters of a 3 x 3 convolution with stride 1, padding `same` and no activation."""

Op = tuple[str | int, Sequence[tuple[int, int]], Mapping[int, int]]


def varint(value: int) -> bytes:
    """A protobuf varint: seven bits per byte, low bits first; negative numbers as 64-bit two's complement."""
    value &= (1 << 64) - 1
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def integer(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def message(field: int, body: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(body)) + body


def operator(made: Op) -> bytes:
    kind, inputs, parameters = made
    body = integer(1, TYPES[kind] if isinstance(kind, str) else kind)
    body += b"".join(message(2, integer(1, number) + integer(2, output)) for number, output in inputs)
    return body + b"".join(message(3, integer(1, key) + integer(2, value)) for key, value in parameters.items())


def rule(source: Sequence[Op], target: Sequence[Op], outputs: Sequence[tuple[int, int, int, int]]) -> bytes:
    """A rule in TASO's format. `outputs` are (source operator, its result, target operator, its result)."""
    body = b"".join(message(1, operator(made)) for made in source)
    body += b"".join(message(2, operator(made)) for made in target)
    for first, result, second, other in outputs:
        body += message(3, integer(1, first) + integer(2, second) + integer(3, result) + integer(4, other))
    return message(1, body)


def concat(axis: int, rank: int) -> dict[int, int]:
    return {1: 2, 11: axis, 10: rank}


def grouped() -> bytes:
    """Two concatenated convolutions become one of the concatenated tensors: true for equal outputs per group."""
    return rule(
        [
            ("conv2d", [(-7, 0), (-10, 0)], CONV),
            ("conv2d", [(-8, 0), (-11, 0)], CONV),
            ("concat", [(0, 0), (1, 0)], concat(1, 4)),
        ],
        [
            ("concat", [(-7, 0), (-8, 0)], concat(1, 4)),
            ("concat", [(-10, 0), (-11, 0)], concat(0, 4)),
            ("conv2d", [(0, 0), (1, 0)], CONV),
        ],
        [(2, 0, 2, 0)],
    )


def associative() -> bytes:
    return rule(
        [("matmul", [(-1, 0), (-4, 0)], {9: 0}), ("matmul", [(0, 0), (-5, 0)], {9: 0})],
        [("matmul", [(-4, 0), (-5, 0)], {9: 0}), ("matmul", [(-1, 0), (0, 0)], {9: 0})],
        [(1, 0, 1, 0)],
    )


def split_of_product() -> bytes:
    """Two matmuls with the same left factor are the parts of one matmul."""
    return rule(
        [("matmul", [(-1, 0), (-4, 0)], {9: 0}), ("matmul", [(-1, 0), (-5, 0)], {9: 0})],
        [
            ("concat", [(-4, 0), (-5, 0)], concat(1, 2)),
            ("matmul", [(-1, 0), (0, 0)], {9: 0}),
            ("split", [(1, 0)], {2: 2, 11: 1}),
        ],
        [(0, 0, 2, 0), (1, 0, 2, 1)],
    )


def moves_relu() -> bytes:
    """False: the activation applies to the product, not to a factor."""
    return rule(
        [("matmul", [(-1, 0), (-4, 0)], {9: 2})],
        [("relu", [(-1, 0)], {}), ("matmul", [(0, 0), (-4, 0)], {9: 0})],
        [(0, 0, 1, 0)],
    )
