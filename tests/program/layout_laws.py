"""Laws of parallel ops as programs: an op is a layout conversion, a law equates two ways to lay out the same tensors.

`combine[p; dim=1]` of slices is the whole tensor, and so is `reduce[p]` of partial sums. Each parallel op therefore
becomes a multiplication by 1 whose result is pinned to a layout. The emitted program runs the conversion to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from unity_dsl.graph.layout import Invariant, Kind, Partial, Replicate, Shard
from unity_dsl.prove.translation.rule_forms import expressions
from unity_dsl.syntax.ast import Apply, Expr, Name, Number
from unity_dsl.syntax.parse_rules import GraphCall, GraphExpr, GraphView, RuleDecl, RuleInput

DEGREE = "p"
"""The name of the number of devices in the shipped rules."""


class NoLayout(Exception):
    """An op of the law is no conversion between layouts. The message names the op."""


def ends(call: GraphCall) -> tuple[Kind, Kind]:
    """The kinds between which a parallel op converts. Raises NoLayout."""
    whole, copies, terms = Invariant(), Replicate(), Partial()
    given = {name: value.value for name, value in call.attributes if isinstance(value, Number)}
    match call.name:
        case "partition":
            return whole, Shard(int(given["dim"]))
        case "combine":
            return Shard(int(given["dim"])), whole
        case "replicate":
            return whole, copies
        case "unreplicate":
            return copies, whole
        case "mask":
            return whole, terms
        case "reduce":
            return terms, whole
        case "pad":
            return Shard(int(given["dim"])), terms
        case "own_slice":
            return copies, Shard(int(given["dim"]))
        case "all_to_all" | "all_to_all_back":
            return Shard(int(given["from"])), Shard(int(given["to"]))
    raise NoLayout(f"`{call.name}` is no conversion of a value")


def laid_out(rule: RuleDecl) -> tuple[RuleDecl, Mapping[str, Kind]]:
    """The law without parallel ops, on whole tensors, and the kinds to which its local names are pinned.

    Dimensions of the kinds are counted from the end where the law does so. Raises NoLayout.
    """
    writer = _Writer(rule)
    for given in rule.inputs:
        writer.give(given)
    left, right = (tuple(map(writer.rewritten, side)) for side in (rule.left, rule.right))
    inputs = tuple(map(writer.whole, rule.inputs))
    return replace(rule, inputs=inputs, definitions=tuple(writer.lines), left=left, right=right), writer.pins


@dataclass
class _Writer:
    rule: RuleDecl
    lines: list[tuple[str, GraphExpr]] = field(default_factory=list)
    pins: dict[str, Kind] = field(default_factory=dict)
    named: dict[str, str] = field(default_factory=dict)

    def give(self, given: RuleInput) -> None:
        """Adds an input as a computed value, because no plan stores partial sums or copies of a weight."""
        computed = self.line(_times_one(Name(given.name)))
        self.named[given.name] = self.line(_times_one(Name(computed)), self.kind(given))

    def kind(self, given: RuleInput) -> Kind:
        """The kind from which the ops that read the input convert; whole without device axes. Raises NoLayout."""
        if not any(dim.device for dim in given.dims):
            return Invariant()
        kinds = {ends(call)[0] for call in self._parallel() if call.arguments == (Name(given.name),)}
        if len(kinds) != 1:
            raise NoLayout(f"`{given.name}` is any tensors that devices hold")
        return kinds.pop()

    def _parallel(self) -> Iterator[GraphCall]:
        for expr in expressions(self.rule):
            if isinstance(expr, GraphCall) and expr.degrees is not None:
                yield expr

    def whole(self, given: RuleInput) -> RuleInput:
        """The input without device axes. A sharded dimension has the length of all slices together."""
        dims = [dim for dim in given.dims if not dim.device]
        kind = self.kind(given)
        if isinstance(kind, Shard):
            sliced = dims[kind.dim]
            dims[kind.dim] = replace(sliced, size=Apply("*", (Name(DEGREE), sliced.size)))
        return replace(given, dims=tuple(dims))

    def rewritten(self, expr: GraphExpr) -> GraphExpr:
        match expr:
            case Name(name):
                return Name(self.named[name])
            case GraphView(operand=operand):
                return replace(expr, operand=self.rewritten(operand))
            case GraphCall(arguments=arguments, degrees=None):
                return replace(expr, arguments=tuple(map(self.rewritten, arguments)))
            case GraphCall(arguments=(operand,)):
                source, target = ends(expr)
                if isinstance(operand, GraphCall) and operand.degrees is not None and ends(operand)[1] != source:
                    raise NoLayout(f"`{expr.name}` takes what `{operand.name}` makes for something else")
                read = self.line(_times_one(self.rewritten(operand)), source)
                return Name(self.line(_times_one(Name(read)), target))
        raise TypeError(expr)

    def line(self, expr: GraphExpr, kind: Kind | None = None) -> str:
        """Adds a line, pinned to a kind if one is given, and returns its local name."""
        name = f"v{len(self.lines)}"
        self.lines.append((name, expr))
        if kind is not None:
            self.pins[name] = kind
        return name


def _times_one(operand: GraphExpr) -> GraphCall:
    factor: tuple[tuple[str, Expr], ...] = (("factor", Number(1)),)
    return GraphCall("scale", (operand,), factor)
