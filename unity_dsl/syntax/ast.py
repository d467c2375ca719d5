"""Syntax trees of `.uop` (operators) and `.udl` (models).

The expression nodes are also the terms of the index calculus: later stages rewrite them, they do not translate them.
Spans never take part in equality, so that structural comparison of terms is comparison of meaning.
"""

# ruff: noqa: RUF009 (`_span()` is a field specification, not a shared default)

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import pairwise

from .span import Span


def _span() -> Span | None:
    return field(default=None, compare=False, repr=False, kw_only=True)


# ---------------------------------------------------------------------------------------------- expressions


@dataclass(frozen=True)
class Number:
    """A literal. `text` keeps how it was written (`1e-5`), `value` is what it is worth; `inf` is a literal."""

    value: int | float
    span: Span | None = _span()


@dataclass(frozen=True)
class Name:
    """A bare name: an axis (as an index or as its value), an attribute, a model parameter or a tensor.

    `rest` marks `b..`, a name that stands for any number of axes.
    """

    name: str
    rest: bool = False
    span: Span | None = _span()


@dataclass(frozen=True)
class Size:
    """`|c|`, the number of positions of an axis; `|b..|`, the product over rest axes; `|d|` is global, never local."""

    name: str
    rest: bool = False
    span: Span | None = _span()


@dataclass(frozen=True)
class DeviceName:
    """`@p`: the index along a device axis. Its size is `Name("p")`."""

    name: str
    span: Span | None = _span()


@dataclass(frozen=True)
class Read:
    """`x[i, j + 1 else 0]`: an element of a tensor. Reading outside the tensor gives `fill`; without it, an error."""

    tensor: str
    index: tuple[Expr, ...]
    fill: Expr | None = None
    span: Span | None = _span()


@dataclass(frozen=True)
class Apply:
    """An element function or arithmetic. Arithmetic is spelt `+ - * / // % neg`; comparisons `== != < <= > >=`.

    A comparison in value position is written in brackets, `[v == ids[n]]`, and is worth 1 or 0 (Iverson).
    """

    function: str
    arguments: tuple[Expr, ...]
    span: Span | None = _span()


@dataclass(frozen=True)
class Select:
    """`select(condition, then, otherwise)`: the branch not taken is not evaluated, so it may be infinite."""

    condition: Expr
    then: Expr
    otherwise: Expr
    span: Span | None = _span()


class ReductionKind(StrEnum):
    SUM = "sum"
    PROD = "prod"
    MAX = "max"
    MIN = "min"


class Ties(StrEnum):
    """To which of several equal elements the gradient of a max or min goes: to all alike, or to the first in order."""

    SHARE = "share"
    FIRST = "first"


@dataclass(frozen=True)
class Reduce:
    """`sum(i, j) body`: body is the product that follows. Axes may be rest axes or device axes."""

    kind: ReductionKind
    axes: tuple[Name | DeviceName, ...]
    body: Expr
    ties: Ties = Ties.SHARE
    span: Span | None = _span()


@dataclass(frozen=True)
class Uniform:
    """`uniform[b..]`: a counter-based random number in [0, 1), a function of (seed, step, site, global index)."""

    index: tuple[Expr, ...]
    span: Span | None = _span()


Expr = Number | Name | Size | DeviceName | Read | Apply | Select | Reduce | Uniform


# ---------------------------------------------------------------------------------------------- .uop


@dataclass(frozen=True)
class DimDecl:
    """One axis of a tensor's declared shape: `i`, `b..` (rest), `b..~` (rest, broadcasting), `@p` (device axis).

    `joined` says that it lies in one dimension with the axis before it, as i in `(g i)`.
    """

    name: str
    rest: bool = False
    broadcast: bool = False
    device: bool = False
    joined: bool = False
    span: Span | None = _span()


@dataclass(frozen=True)
class TensorDecl:
    """`x: [b.., i]` is a float tensor; `ids: int<v>[n..]` holds integers in [0, size of v).

    `dims` are its axes one by one, by which the body reads it, `dimensions` what they make up: `[n, (g i)]` has three
    axes in two dimensions.
    """

    name: str
    dims: tuple[DimDecl, ...]
    integer_range: str | None = None
    span: Span | None = _span()

    @cached_property
    def dimensions(self) -> tuple[tuple[DimDecl, ...], ...]:
        starts = [place for place, dim in enumerate(self.dims) if not dim.joined]
        return tuple(self.dims[a:b] for a, b in pairwise((*starts, len(self.dims))))

    @property
    def merged(self) -> bool:
        """Whether a dimension is made of several axes."""
        return any(dim.joined for dim in self.dims)


@dataclass(frozen=True)
class AttributeDecl:
    """`p = 0.1` after the `;`: a number that the call may give; without default it must."""

    name: str
    default: int | float | None = None
    span: Span | None = _span()


@dataclass(frozen=True)
class Statement:
    """`y[b.., o] = expr`. Left indices are bare; output indices bind by position."""

    target: str
    index: tuple[Name | DeviceName, ...]
    value: Expr
    span: Span | None = _span()


@dataclass(frozen=True)
class NativeCall:
    """A parsed call from an allowlist: `F.linear(x, w)`. Arguments are names, numbers, sizes, lists, nested calls."""

    function: str
    arguments: tuple[NativeArgument, ...]
    keywords: tuple[tuple[str, NativeArgument], ...] = ()
    span: Span | None = _span()


@dataclass(frozen=True)
class NativeList:
    items: tuple[NativeArgument, ...]
    span: Span | None = _span()


@dataclass(frozen=True)
class NativeSteps:
    """Calls one after the other, each bound to a name that those below may use; outputs go by their own names."""

    steps: tuple[tuple[str, NativeCall], ...]
    span: Span | None = _span()


NativeArgument = Number | Name | Size | NativeCall | NativeList


@dataclass(frozen=True)
class OperatorDecl:
    """`op name(inputs; attributes) -> outputs where conditions`, statements, then clauses.

    `evaluation` are the statements of `eval` (what the operator computes outside training), empty where the same.

    An `extern op` has no statements: `torch` and `numpy` compute it, and it may be divided along the axes `declared`,
    which is assumed.
    """

    name: str
    inputs: tuple[TensorDecl, ...]
    attributes: tuple[AttributeDecl, ...]
    outputs: tuple[TensorDecl, ...]
    conditions: tuple[Expr, ...]
    statements: tuple[Statement, ...]
    evaluation: tuple[Statement, ...] = ()
    torch: NativeCall | NativeSteps | None = None
    numpy: NativeCall | None = None
    declared: tuple[Name, ...] = ()
    extern: bool = False
    doc: str = ""
    span: Span | None = _span()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.inputs, self.attributes, self.outputs, self.conditions, self.statements))


@dataclass(frozen=True)
class ParallelDecl:
    """`parallel name[p, k; dim](x: …) -> y: … where …` with one statement. `p` is the degree of its device axis."""

    name: str
    degrees: tuple[str, ...]
    attributes: tuple[AttributeDecl, ...]
    inputs: tuple[TensorDecl, ...]
    outputs: tuple[TensorDecl, ...]
    conditions: tuple[Expr, ...]
    statements: tuple[Statement, ...]
    doc: str = ""
    span: Span | None = _span()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.attributes, self.inputs, self.outputs, self.conditions, self.statements))


@dataclass(frozen=True)
class FactDecl:
    """`fact log(a * b) == log(a) + log(b) where a > 0, b > 0`: both sides have a value, and compare as stated.

    For all real values of the names that meet the conditions.
    """

    claim: Apply
    conditions: tuple[Apply, ...] = ()
    span: Span | None = _span()


@dataclass(frozen=True)
class FunctionDecl:
    """`fn maximum(a, b)`: an element function; `derivatives` are by parameter, primitives have no `definition`."""

    name: str
    parameters: tuple[str, ...]
    definition: Expr | None
    derivatives: tuple[tuple[str, Expr], ...]
    torch: NativeCall | None
    numpy: NativeCall | None
    facts: tuple[FactDecl, ...] = ()
    doc: str = ""
    span: Span | None = _span()


@dataclass(frozen=True)
class OpsFile:
    """A parsed `.uop` file, declarations in the order of the text."""

    declarations: tuple[OperatorDecl | ParallelDecl | FunctionDecl, ...]
    span: Span | None = _span()


# ---------------------------------------------------------------------------------------------- .udl


@dataclass(frozen=True)
class Parameter:
    """`d = 1024`: a model parameter; its default may use earlier parameters. A block's parameter may have none."""

    name: str
    default: Expr | None
    span: Span | None = _span()


@dataclass(frozen=True)
class Preset:
    """`preset small: d = 32, h = 64`: a named set of parameter values."""

    name: str
    values: tuple[tuple[str, Expr], ...]
    span: Span | None = _span()


@dataclass(frozen=True)
class TypeExpr:
    """`f32[b, d]` or `int<v>[b, s]`; `dtype` is `f64 f32 bf16 f16` or `int`."""

    dtype: str
    integer_range: Expr | None
    dims: tuple[Expr, ...]
    span: Span | None = _span()


@dataclass(frozen=True)
class Initialiser:
    """`normal(0.02)`, `uniform(-1, 1)`, `zeros`, `ones`, `constant(c)`, `xavier_uniform` or `kaiming_uniform`."""

    name: str
    arguments: tuple[Expr, ...] = ()
    span: Span | None = _span()


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
    span: Span | None = _span()


@dataclass(frozen=True)
class PatternFactor:
    """One factor of a merged dimension: `h`, `h=heads` or `3`."""

    name: str | None
    size: Expr | None = None
    span: Span | None = _span()


@dataclass(frozen=True)
class Pattern:
    """`[b, s, (h=heads k)]`: per dimension its factors, major first."""

    dims: tuple[tuple[PatternFactor, ...], ...]
    span: Span | None = _span()


@dataclass(frozen=True)
class View:
    """`x[b, s, (h k)] -> [b, h, s, k]`: by itself a rearrangement; as a call's argument it names the operand's axes."""

    operand: ModelExpr
    source: Pattern
    target: Pattern
    span: Span | None = _span()


@dataclass(frozen=True)
class Call:
    """`linear(x, w)`, `softmax(x)`, `slice(x; dim=1, start=0, stop=4)`, or a block's name."""

    function: str
    arguments: tuple[ModelExpr, ...]
    attributes: tuple[tuple[str, Expr], ...] = ()
    span: Span | None = _span()


@dataclass(frozen=True)
class Binary:
    """Infix `+ - * /` on tensors or numbers: sugar for add, sub, mul, div, scale and shift."""

    operator: str
    left: ModelExpr
    right: ModelExpr
    span: Span | None = _span()


ModelExpr = Name | Number | View | Call | Binary


@dataclass(frozen=True)
class Assign:
    """`x = expr`, `q, k, v = split(x; …)`. A name that exists is rebound; inside `repeat` it is then carried."""

    targets: tuple[str, ...]
    value: ModelExpr
    span: Span | None = _span()


@dataclass(frozen=True)
class UpdateStatement:
    """`update m = expr`: what a buffer is from the next training step on. The value carries no gradient."""

    target: str
    value: ModelExpr
    span: Span | None = _span()


@dataclass(frozen=True)
class Repeat:
    """`repeat 24 as l`: the body once per iteration, weights inside are per iteration, named `l.0.w`, `l.1.w`, …"""

    count: Expr
    name: str
    body: tuple[ModelStatement, ...]
    span: Span | None = _span()


@dataclass(frozen=True)
class Slices:
    """`x_t in x along 1`: the name of a tensor's slice at each position of a dimension."""

    name: str
    value: ModelExpr
    dim: Expr
    span: Span | None = _span()


@dataclass(frozen=True)
class Scan:
    """`scan x_t in x along 1 as step`: the body once per position, in order, with the same weights each time."""

    slices: tuple[Slices, ...]
    name: str
    body: tuple[ModelStatement, ...]
    span: Span | None = _span()


@dataclass(frozen=True)
class Collect:
    """`collect h as y along 0`: what the iterations of a scan make, stacked; along the first slices' dimension if none
    is given.
    """

    value: ModelExpr
    name: str
    dim: Expr | None
    span: Span | None = _span()


@dataclass(frozen=True)
class Cond:
    """`cond gate expect 0.5 as skip`: the body, if the gate is 1; names of outside keep their tensors else."""

    predicate: ModelExpr
    probability: Expr | None
    name: str
    body: tuple[ModelStatement, ...]
    span: Span | None = _span()


@dataclass(frozen=True)
class Return:
    """`return y, z`: last line of a block."""

    values: tuple[ModelExpr, ...]
    span: Span | None = _span()


@dataclass(frozen=True)
class Loss:
    """`loss mse(y, target)`: a scalar."""

    value: ModelExpr
    span: Span | None = _span()


@dataclass(frozen=True)
class Output:
    """`output logits`: a tensor that `forward` returns beside the loss."""

    value: ModelExpr
    name: str
    span: Span | None = _span()


Nested = Repeat | Scan | Cond
"""Statements with a body."""
ModelStatement = StorageDecl | Assign | UpdateStatement | Repeat | Scan | Collect | Cond | Return | Loss | Output


@dataclass(frozen=True)
class BlockDecl:
    """`block ffn[h](x)`: a function of tensors; called as `f = ffn[h=64](x)`, its weights are then named `f.w`."""

    name: str
    parameters: tuple[Parameter, ...]
    inputs: tuple[str, ...]
    body: tuple[ModelStatement, ...]
    doc: str = ""
    span: Span | None = _span()


@dataclass(frozen=True)
class ModelDecl:
    name: str
    parameters: tuple[Parameter, ...]
    presets: tuple[Preset, ...]
    body: tuple[ModelStatement, ...]
    doc: str = ""
    span: Span | None = _span()


@dataclass(frozen=True)
class ModelFile:
    """A parsed `.udl` file: blocks, then one model."""

    blocks: tuple[BlockDecl, ...]
    model: ModelDecl
    span: Span | None = _span()
