"""Models and their blocks: what a `.udl` file says."""

# ruff: noqa: RUF009 (`span_field()` is a field specification, not a shared default)

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..span import Span, span_field
from .expressions import Apply, Expr, Name, Number


@dataclass(frozen=True)
class Parameter:
    """`d = 1024`: a model parameter; its default may use earlier parameters. A block's parameter may have none."""

    name: str
    default: Expr | None
    span: Span | None = span_field()


@dataclass(frozen=True)
class Preset:
    """`preset small: d = 32, h = 64`: a named set of parameter values."""

    name: str
    values: tuple[tuple[str, Expr], ...]
    span: Span | None = span_field()


@dataclass(frozen=True)
class Precision:
    """`precision bf16`: the float type of the model's arithmetic."""

    name: str
    span: Span | None = span_field()


@dataclass(frozen=True)
class TypeExpr:
    """`f32[b, d]` or `int<v>[b, s]`; `dtype` is `f64 f32 bf16 f16` or `int`."""

    dtype: str
    integer_range: Expr | None
    dims: tuple[Expr, ...]
    span: Span | None = span_field()


@dataclass(frozen=True)
class Initialiser:
    """`normal(0.02)`, `uniform(-1, 1)`, `fan_in_uniform(1 / 3)`, `zeros`, …: an entry of `INITIALISERS` in
    parse_model.
    """

    name: str
    arguments: tuple[Expr, ...] = ()
    span: Span | None = span_field()


class Storage(StrEnum):
    INPUT = "input"
    WEIGHT = "weight"
    BUFFER = "buffer"


@dataclass(frozen=True)
class StorageDecl:
    """`input x: f32[b, d]`, `weight w: f32[h, d] ~ normal(0.02)`, `buffer m: f32[d] ~ zeros`."""

    storage: Storage
    name: str
    type: TypeExpr
    initialiser: Initialiser | None
    span: Span | None = span_field()


@dataclass(frozen=True)
class PatternFactor:
    """One factor of a merged dimension: `h`, `h=heads` or `3`."""

    name: str | None
    size: Expr | None = None
    span: Span | None = span_field()


@dataclass(frozen=True)
class Pattern:
    """`[b, s, (h=heads k)]`: the factors of each dimension, major first."""

    dims: tuple[tuple[PatternFactor, ...], ...]
    span: Span | None = span_field()


@dataclass(frozen=True)
class View:
    """`x[b, s, (h k)] -> [b, h, s, k]`: by itself a rearrangement; as a call's argument it names the operand's axes."""

    operand: ModelExpr
    source: Pattern
    target: Pattern
    span: Span | None = span_field()


@dataclass(frozen=True)
class Call:
    """`linear(x, w)`, `softmax(x)`, `slice(x; dim=1, start=0, stop=4)`, or a block's name."""

    function: str
    arguments: tuple[ModelExpr, ...]
    attributes: tuple[tuple[str, Expr], ...] = ()
    span: Span | None = span_field()


@dataclass(frozen=True)
class Binary:
    """Infix `+ - * /` on tensors or numbers: sugar for add, sub, mul, div, scale and shift."""

    operator: str
    left: ModelExpr
    right: ModelExpr
    span: Span | None = span_field()


ModelExpr = Name | Number | View | Call | Binary


@dataclass(frozen=True)
class Assign:
    """`x = expr`, `q, k, v = split(x; …)`. A name that exists is rebound; inside `repeat` it is then carried."""

    targets: tuple[str, ...]
    value: ModelExpr
    span: Span | None = span_field()


@dataclass(frozen=True)
class UpdateStatement:
    """`update m = expr`: the value of a buffer from the next training step on. It carries no gradient."""

    target: str
    value: ModelExpr
    span: Span | None = span_field()


@dataclass(frozen=True)
class Repeat:
    """`repeat 24 as l`: runs the body once per iteration. Each iteration has its own weights, named `l.0.w`, `l.1.w`,
    …
    """

    count: Expr
    name: str
    body: tuple[ModelStatement, ...]
    span: Span | None = span_field()


@dataclass(frozen=True)
class Slices:
    """`x_t in x along 1`: names the slice of a tensor at each position of a dimension."""

    name: str
    value: ModelExpr
    dim: Expr
    span: Span | None = span_field()


@dataclass(frozen=True)
class Scan:
    """`scan x_t in x along 1 as step`: runs the body once per position, in order, with the same weights each time."""

    slices: tuple[Slices, ...]
    name: str
    body: tuple[ModelStatement, ...]
    span: Span | None = span_field()


@dataclass(frozen=True)
class Collect:
    """`collect h as y along 0`: stacks the results of a scan's iterations, by default along the dimension of its first
    slices.
    """

    value: ModelExpr
    name: str
    dim: Expr | None
    span: Span | None = span_field()


@dataclass(frozen=True)
class Cond:
    """`cond gate expect 0.5 as skip`: runs the body if the gate is 1; otherwise outer names keep their tensors."""

    predicate: ModelExpr
    probability: Expr | None
    name: str
    body: tuple[ModelStatement, ...]
    span: Span | None = span_field()


@dataclass(frozen=True)
class If:
    """`if stride == 1, inputs == outputs`: the body if the comparisons hold, else the lines below `else`. The choice
    is made when the block is called.
    """

    conditions: tuple[Apply, ...]
    body: tuple[ModelStatement, ...]
    otherwise: tuple[ModelStatement, ...] = ()
    span: Span | None = span_field()


@dataclass(frozen=True)
class Return:
    """`return y, z`: last line of a block."""

    values: tuple[ModelExpr, ...]
    span: Span | None = span_field()


@dataclass(frozen=True)
class Loss:
    """`loss mse(y, target)`: a scalar."""

    value: ModelExpr
    span: Span | None = span_field()


@dataclass(frozen=True)
class Output:
    """`output logits`: a tensor that `forward` returns besides the loss."""

    value: ModelExpr
    name: str
    span: Span | None = span_field()


Nested = Repeat | Scan | Cond
"""Statements with a body."""
ModelChoice = Preset | Precision
"""Lines of a model that set choices of a compile and make no tensor."""
ModelStatement = StorageDecl | Assign | UpdateStatement | Nested | If | Collect | Return | Loss | Output


@dataclass(frozen=True)
class BlockDecl:
    """`block ffn[h](x)`: a function of tensors; called as `f = ffn[h=64](x)`, its weights are then named `f.w`."""

    name: str
    parameters: tuple[Parameter, ...]
    inputs: tuple[str, ...]
    body: tuple[ModelStatement, ...]
    doc: str = ""
    span: Span | None = span_field()


@dataclass(frozen=True)
class ModelDecl:
    """`model mlp[b = 64, d = 1024]`: its parameters, its presets, its precision if given, and its statements."""

    name: str
    parameters: tuple[Parameter, ...]
    presets: tuple[Preset, ...]
    body: tuple[ModelStatement, ...]
    precision: Precision | None = None
    doc: str = ""
    span: Span | None = span_field()


@dataclass(frozen=True)
class ModelFile:
    """A parsed `.udl` file: blocks, then one model."""

    blocks: tuple[BlockDecl, ...]
    model: ModelDecl
    span: Span | None = span_field()
