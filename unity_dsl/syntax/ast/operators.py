"""Declarations of `.uop`: operators, parallel ones and element functions."""

# ruff: noqa: RUF009 (`span_field()` is a field specification, not a shared default)

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from ...cached_hash import cached_hash
from ..rational import Rational
from ..span import Span, span_field
from .expressions import Apply, DeviceName, Expr, Name, Number, Size


@dataclass(frozen=True)
class DimDecl:
    """One axis of a tensor's declared shape: `i`, `b..` (rest), `b..~` (rest, broadcasting), `@p` (device axis).

    `joined` says that it shares a dimension with the axis before it, as i in `(g i)`.
    """

    name: str
    rest: bool = False
    broadcast: bool = False
    device: bool = False
    joined: bool = False
    span: Span | None = span_field()


@dataclass(frozen=True)
class TensorDecl:
    """`x: [b.., i]` is a float tensor; `ids: int<v>[n..]` holds integers in [0, size of v).

    `dims` are its single axes, by which the body reads it; `dimensions` groups them: `[n, (g i)]` has three axes in
    two dimensions.
    """

    name: str
    dims: tuple[DimDecl, ...]
    integer_range: str | None = None
    span: Span | None = span_field()

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
    """`p = 0.1` after the `;`: a number that a call may give, and must give if there is no default."""

    name: str
    default: Rational | None = None
    span: Span | None = span_field()


@dataclass(frozen=True)
class Statement:
    """`y[b.., o] = expr`. Left indices are bare; output indices bind by position."""

    target: str
    index: tuple[Name | DeviceName, ...]
    value: Expr
    span: Span | None = span_field()


@dataclass(frozen=True)
class NativeCall:
    """A parsed call from an allowlist: `F.linear(x, w)`. Arguments are names, numbers, sizes, strings, lists, calls."""

    function: str
    arguments: tuple[NativeArgument, ...]
    keywords: tuple[tuple[str, NativeArgument], ...] = ()
    span: Span | None = span_field()


@dataclass(frozen=True)
class NativeList:
    """`[1, d]` as an argument of a native call."""

    items: tuple[NativeArgument, ...]
    span: Span | None = span_field()


@dataclass(frozen=True)
class NativeString:
    """`"tanh"` as an argument of a native call, without its quotes."""

    value: str
    span: Span | None = span_field()


@dataclass(frozen=True)
class NativeSteps:
    """Consecutive calls, each bound to a name that later ones may use; outputs are bound to their own names."""

    steps: tuple[tuple[str, NativeCall], ...]
    span: Span | None = span_field()


NativeArgument = Number | Name | Size | NativeString | NativeCall | NativeList


@cached_hash
@dataclass(frozen=True)
class OperatorDecl:
    """`op name(inputs; attributes) -> outputs where conditions`, statements, then clauses.

    `evaluation` are the statements of `eval` (what the operator computes outside training), empty if it is the same.

    An `extern op` has no statements: `torch` and `numpy` compute it, and it is assumed to be divisible along the axes
    `declared`.
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
    span: Span | None = span_field()


@cached_hash
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
    span: Span | None = span_field()


@dataclass(frozen=True)
class FactDecl:
    """`fact log(a * b) == log(a) + log(b) where a > 0, b > 0`: both sides have a value, and compare as stated.

    It holds for all real values of the names that meet the conditions.
    """

    claim: Apply
    conditions: tuple[Apply, ...] = ()
    span: Span | None = span_field()


@dataclass(frozen=True)
class FunctionDecl:
    """`fn maximum(a, b)`: an element function. `derivatives` are by parameter; primitives have no `definition`.

    The derivatives by the parameters in `surrogates` replace the function's true ones in backward.
    """

    name: str
    parameters: tuple[str, ...]
    definition: Expr | None
    derivatives: tuple[tuple[str, Expr], ...]
    torch: NativeCall | None
    numpy: NativeCall | None
    facts: tuple[FactDecl, ...] = ()
    surrogates: tuple[str, ...] = ()
    doc: str = ""
    span: Span | None = span_field()


@dataclass(frozen=True)
class OpsFile:
    """A parsed `.uop` file, declarations in the order of the text."""

    declarations: tuple[OperatorDecl | ParallelDecl | FunctionDecl, ...]
    span: Span | None = span_field()
