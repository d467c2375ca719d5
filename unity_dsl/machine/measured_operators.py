"""Measured seconds of operators, preferred to the datasheet: by name, by lowering class, and for matrix products."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ..index.cost.lowering_class import PRODUCT_CLASSES, LoweringClass
from ..index.cost.work import Work
from .measured_curves import Curve, Numbers, ProductGrid, read_curve, read_grid
from .toml_table import TomlTable


class Direction(StrEnum):
    """Forward, or the gradients of the operands; for a product, the gradient of its left or right operand."""

    FORWARD = "forward"
    BACKWARD = "backward"
    LEFT = "left"
    RIGHT = "right"


@dataclass(frozen=True)
class CurveKey:
    """The key of a curve: an operator by its name, or a whole class by `class_name`."""

    name: str
    dtype: str
    direction: Direction


@dataclass(frozen=True)
class WorkCurve:
    """A curve over the bytes read and written, or over `flops`."""

    over: str
    curve: Curve

    def at(self, done: Work) -> Numbers:
        return self.curve.at(done.flops if self.over == "flops" else done.bytes_read + done.bytes_written)


@dataclass(frozen=True)
class GridKey:
    """The key of a grid; `batched` for batches of more than one product."""

    kind: LoweringClass
    dtype: str
    direction: Direction
    batched: bool


@dataclass(frozen=True)
class MeasuredOperators:
    """Curves of operators and classes, and grids of products. `update` is the optimizer's curve, over bytes of a
    parameter.

    Products of 16-bit floats have slowdown factors `unaligned`. The key is the largest power of two, in bytes, that
    divides the lengths of their rows in memory; without an entry the factor is 1.
    """

    curves: Mapping[CurveKey, WorkCurve] = field(default_factory=dict, hash=False)
    grids: Mapping[GridKey, ProductGrid] = field(default_factory=dict, hash=False)
    update: Curve | None = None
    unaligned: Mapping[int, float] = field(default_factory=dict, hash=False)

    def faster(self, times: float) -> MeasuredOperators:
        """All curves and grids at `times` the speed; the optimizer's step stays as it is."""
        curves = {key: replace(found, curve=found.curve.faster(times)) for key, found in self.curves.items()}
        return replace(self, curves=curves, grids={key: grid.faster(times) for key, grid in self.grids.items()})

    def sustained(self, part: float) -> MeasuredOperators:
        """Products and curves over flops at the fraction `part` of their speed."""
        arithmetic = {key: found for key, found in self.curves.items() if found.over == "flops"}
        slower = replace(self, curves=arithmetic).faster(part)
        return replace(slower, curves={**self.curves, **slower.curves})


CAST = "cast"
"""Name of the curve of kernels that convert one float type to another. No operator has this name."""

CLASS = "class "
"""Prefix of the name in the key of a class's curve."""

AMOUNTS = ("bytes", "flops")
OPERATORS, PRODUCTS, OPTIMIZER, UNALIGNED = "operator", "product", "optimizer", "unaligned"
"""The machine file sections of measured operators."""


def class_name(kind: LoweringClass) -> str:
    """The name in the key of a curve for a whole class."""
    return f"{CLASS}{kind}"


def read_measured_operators(machine: TomlTable, dtypes: tuple[str, ...]) -> MeasuredOperators:
    """The measurements of the sections that a machine file has. Raises E304."""
    curves: dict[CurveKey, WorkCurve] = {}
    for table in machine.tables(OPERATORS) if OPERATORS in machine else ():
        key, curve = _read_operator(table, dtypes)
        if key in curves:
            raise table.fault("direction", f"two curves for `{key.name}`, {key.dtype}, {key.direction}")
        curves[key] = curve
    grids: dict[GridKey, ProductGrid] = {}
    for table in machine.tables(PRODUCTS) if PRODUCTS in machine else ():
        found, grid = _read_product(table, dtypes)
        if found in grids:
            raise table.fault("direction", f"two grids for `{found.kind}`, {found.dtype}, {found.direction}")
        grids[found] = grid
    update = None
    if OPTIMIZER in machine:
        table = machine.table(OPTIMIZER)
        table.only(("bytes", "time_us"))
        update = read_curve(table, "bytes")
    unaligned: dict[int, float] = {}
    if UNALIGNED in machine:
        table = machine.table(UNALIGNED)
        table.only(("bytes", "times", "source"))
        places = table.numbers("bytes")
        unaligned = dict(zip(map(int, places), table.array("times", [len(places)]), strict=True))
    return MeasuredOperators(curves, grids, update, unaligned)


def _read_operator(table: TomlTable, dtypes: tuple[str, ...]) -> tuple[CurveKey, WorkCurve]:
    table.only(("name", "class", "dtype", "direction", "time_us", *AMOUNTS))
    if ("name" in table) == ("class" in table):
        raise table.fault("name", f"there is either a `name` or a `class`{table.place}")
    if "name" in table:
        name = table.text("name")
    else:
        name = class_name(LoweringClass(table.choice("class", tuple(LoweringClass))))
    direction = table.choice("direction", (Direction.FORWARD, Direction.BACKWARD))
    if all(amounts in table for amounts in AMOUNTS):
        raise table.fault("flops", f"there is either `bytes` or `flops`{table.place}")
    over = "flops" if "flops" in table else "bytes"
    key = CurveKey(name, table.choice("dtype", dtypes), Direction(direction))
    return key, WorkCurve(over, read_curve(table, over))


def _read_product(table: TomlTable, dtypes: tuple[str, ...]) -> tuple[GridKey, ProductGrid]:
    table.only(("class", "dtype", "direction", "batched", "rows", "columns", "inner", "time_us", "launch_us"))
    kind = LoweringClass(table.choice("class", PRODUCT_CLASSES))
    directions = (Direction.FORWARD, Direction.LEFT, Direction.RIGHT)
    direction = Direction(table.choice("direction", directions))
    return GridKey(kind, table.choice("dtype", dtypes), direction, table.flag("batched")), read_grid(table)
