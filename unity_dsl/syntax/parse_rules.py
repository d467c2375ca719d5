"""Parser of `.rules`: graph substitutions, `lhs => rhs` over shared inputs."""

# ruff: noqa: RUF009 (`_span()` is a field specification, not a shared default)

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from lark import Token, Tree

from .ast import Apply, Expr, Name, Number
from .diagnostic import InputError, fail, gathered
from .grammar import Node
from .outline import declared_parts
from .parse import parse
from .span import Source, Span
from .token_lines import Layout
from .tree_builder import Builder, token_at, tokens_of, tree_at, tree_of, trees_of


def _span() -> Span | None:
    return field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class RuleDim:
    """A dimension of a rule's input: a size (`m`, `p * e`, `d + 1`), a rest group `b..` or a device axis `@p`."""

    size: Expr
    rest: bool = False
    device: bool = False
    span: Span | None = _span()


@dataclass(frozen=True)
class RuleInput:
    """`x: [m, k]` or `ids: int<v>[n]`. A `real` input is a number in the rule's calls, which no text declares."""

    name: str
    dims: tuple[RuleDim, ...]
    integer_range: Expr | None = None
    real: bool = False
    span: Span | None = _span()


@dataclass(frozen=True)
class GraphCall:
    """An operator or, with degrees, a parallel op: `partition[p; dim=0](x)`. Infix signs are calls of `add`, …

    It represents one tensor, number `result` of the operator's `results`: in `n, h = lstm_cell(z, c)`, the name `h` is
    the call with result 1 of 2.
    """

    name: str
    arguments: tuple[GraphExpr, ...]
    attributes: tuple[tuple[str, Expr], ...] = ()
    degrees: tuple[str, ...] | None = None
    result: int = 0
    results: int = 1
    span: Span | None = _span()


@dataclass(frozen=True)
class GraphView:
    """`x[b, (h k)] -> [b, h, k]`; each dimension lists its factors, major first, as names or numbers."""

    operand: GraphExpr
    source: tuple[tuple[str | int, ...], ...]
    target: tuple[tuple[str | int, ...], ...]
    span: Span | None = _span()


GraphExpr = Name | Number | GraphCall | GraphView


@dataclass(frozen=True)
class RuleDecl:
    """`rule name(inputs) where conditions`, local names, then `left => right`, tensor by tensor.

    A parsed side may have one call for all results of an operator; `rule_results` writes it result by result.
    `with_reals` turns numbers into real inputs and fills three fields: `real_conditions` on real inputs, `real_values`
    of other numbers that these determine, and `real_needs`, the requirements of the right side's operators.
    """

    name: str
    inputs: tuple[RuleInput, ...]
    conditions: tuple[Apply, ...]
    definitions: tuple[tuple[str, GraphExpr], ...]
    left: tuple[GraphExpr, ...]
    right: tuple[GraphExpr, ...]
    real_conditions: tuple[Apply, ...] = ()
    real_values: tuple[tuple[str, Expr], ...] = ()
    real_needs: tuple[Apply, ...] = ()
    doc: str = ""
    span: Span | None = _span()


@dataclass(frozen=True)
class RulesFile:
    """A parsed `.rules` file, rules in the order of the text."""

    rules: tuple[RuleDecl, ...]
    span: Span | None = _span()


INFIX = {"+": "add", "-": "sub", "*": "mul", "/": "div"}


def parse_rules(source: Source) -> RulesFile:
    """The rules of a `.rules` text. Raises E005 to E029, for all faulty rules."""
    rules, faults = parse_each_rule(source)
    if faults:
        raise gathered(faults)
    return RulesFile(rules, span=Span(source, 0, len(source.text)))


def parse_rule(part: Span) -> RuleDecl:
    """The rule that a part of a `.rules` text, of whole lines, declares. Raises E005 to E029."""
    (rule,) = _rules(part)
    return rule


def parse_each_rule(source: Source) -> tuple[tuple[RuleDecl, ...], tuple[InputError, ...]]:
    """The rules of a `.rules` text that can be read, and the faults of the others."""
    try:
        return _rules(Span(source, 0, len(source.text))), ()
    except InputError as fault:
        whole = fault
    rules: dict[str, RuleDecl] = {}
    faults: list[InputError] = []
    for part in declared_parts(source):
        try:
            found = parse_rule(part)
            rules.setdefault(found.name, found)
        except InputError as fault:
            faults.append(fault)
    return tuple(rules.values()), tuple(faults) or (whole,)


def _rules(part: Span) -> tuple[RuleDecl, ...]:
    layout, tree = parse(part.source, "rules", part)
    return tuple(_RulesBuilder(layout).build_all(tree.children))


class _RulesBuilder(Builder):
    """One method per rule of grammar/rules.lark."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self.names: dict[str, Token] = {}

    # ---------------------------------------------------------------- declarations

    def rule(self, node: Node) -> RuleDecl:
        name = tokens_of(node, "NAME")[0]
        if name in self.names:
            self.distinct([self.names[name], name], "the rule")
        self.names[str(name)] = name
        inputs = tree_of(node, "inputs")
        definitions = trees_of(node, "definition")
        substitution = tree_of(node, "substitution")
        assert inputs is not None and substitution is not None
        declared = [token for part in trees_of(inputs, "input") for token in tokens_of(part, "NAME")[:1]]
        declared += [token for part in definitions for token in tokens_of(part, "NAME")]
        self.distinct(declared, "the tensor")
        left, right = (tuple(self._tensors(part)) for part in trees_of(substitution, "graphs"))
        wheres = trees_of(node, "where")
        return RuleDecl(
            str(name),
            tuple(self.build_all(inputs.children)),
            tuple(condition for where in wheres for condition in self.build_all(where.children)),
            tuple(made for part in definitions for made in self._definition(part)),
            left,
            right,
            doc=self.doc(node),
            span=self.span(node),
        )

    def input(self, node: Node) -> RuleInput:
        dims = tree_of(node, "dims")
        devices = [] if dims is None else trees_of(dims, "device_dim")
        self.distinct([tokens_of(part, "NAME")[0] for part in devices], "the device axis")
        ranges = list(trees_of(node, *_QUANTITIES))
        return RuleInput(
            str(token_at(node, 0)),
            () if dims is None else tuple(self.build_all(dims.children)),
            self.build(ranges[0]) if ranges else None,
            span=self.span(node),
        )

    def plain_dim(self, node: Node) -> RuleDim:
        return RuleDim(self.build(tree_at(node, 0)), span=self.span(node))

    def rest_dim(self, node: Node) -> RuleDim:
        return RuleDim(Name(str(token_at(node, 0))), rest=True, span=self.span(node))

    def device_dim(self, node: Node) -> RuleDim:
        return RuleDim(Name(str(tokens_of(node, "NAME")[0])), device=True, span=self.span(node))

    def comparison(self, node: Node) -> Apply:
        return self.arithmetic(node)

    # ---------------------------------------------------------------- graphs

    def _tensors(self, node: Node) -> Iterator[GraphExpr]:
        """The tensors of a side. Names at its beginning are tokens, not trees."""
        for child in node.children:
            if isinstance(child, Tree):
                yield self.build(child)
            elif child is not None and child.type == "NAME":
                yield Name(str(child), span=self.at(child))

    def _definition(self, node: Node) -> Iterator[tuple[str, GraphExpr]]:
        """`h = …`, or `n, h = …` with a call that has this number of results."""
        names = tokens_of(node, "NAME")
        value: GraphExpr = self.build(next(child for child in node.children if isinstance(child, Tree)))
        if len(names) == 1:
            yield str(names[0]), value
            return
        if not isinstance(value, GraphCall):
            help = "several names take the results of one call: `n, h = lstm_cell(z, c)`"
            raise fail("E212", f"{len(names)} names for 1 tensor", self.span(node), help=help)
        for position, name in enumerate(names):
            yield str(name), replace(value, result=position, results=len(names))

    def binary(self, node: Node) -> GraphCall:
        """Two tensors become a call of an operator; a tensor and a number become `scale` or `shift`."""
        left, right = self.build(tree_at(node, 0)), self.build(tree_at(node, 2))
        sign, span = str(token_at(node, 1)), self.span(node)
        if isinstance(left, Number) and sign in "+*":
            left, right = right, left
        if not isinstance(right, Number):
            return GraphCall(INFIX[sign], (left, right), span=span)
        if sign in "+-":
            value = right.value if sign == "+" else -right.value
            return GraphCall("shift", (left,), (("by", Number(value, span=right.span)),), span=span)
        factor: Expr = right if sign == "*" else Apply("/", (Number(1), right), span=right.span)
        return GraphCall("scale", (left,), (("factor", factor),), span=span)

    def negative(self, node: Node) -> GraphExpr:
        inner: GraphExpr = self.build(tree_at(node, 1))
        if isinstance(inner, Number):
            return Number(-inner.value, span=self.span(node))
        return GraphCall("scale", (inner,), (("factor", Number(-1)),), span=self.span(node))

    def call(self, node: Node) -> GraphCall:
        return self._call(node, None)

    def parallel_call(self, node: Node) -> GraphCall:
        pattern = tree_of(node, "pattern")
        dims = () if pattern is None else self._pattern(pattern)
        degrees = tuple(dim[0] for dim in dims if len(dim) == 1 and isinstance(dim[0], str))
        if len(degrees) != len(dims):
            help = "write `partition[p; dim=0](x)`, and `where p == 2` if the degree is fixed"
            raise fail("E010", "a degree is a name", self.span(node), help=help)
        return self._call(node, tuple(str(degree) for degree in degrees))

    def _call(self, node: Node, degrees: tuple[str, ...] | None) -> GraphCall:
        arguments, settings = tree_of(node, "arguments"), tree_of(node, "settings")
        assert arguments is not None
        given = [] if settings is None else trees_of(settings, "setting")
        self.distinct([token_at(setting, 0) for setting in given], "the attribute")
        return GraphCall(
            str(token_at(node, 0)),
            tuple(self.build_all(arguments.children)),
            tuple((str(token_at(setting, 0)), self.build(tree_at(setting, 2))) for setting in given),
            degrees,
            span=self.span(node),
        )

    def name_view(self, node: Node) -> GraphView:
        return self._view(node, self.name(node))

    def view(self, node: Node) -> GraphView:
        return self._view(node, self.build(tree_at(node, 0)))

    def _view(self, node: Node, operand: GraphExpr) -> GraphView:
        arrow = next(place for place, child in enumerate(node.children) if child == "->")
        source, target = (
            next((self._pattern(part) for part in side if isinstance(part, Tree) and part.data == "pattern"), ())
            for side in (node.children[:arrow], node.children[arrow:])
        )
        return GraphView(operand, source, target, span=self.span(node))

    def _pattern(self, node: Node) -> tuple[tuple[str | int, ...], ...]:
        return tuple(self._factors(dim) for dim in trees_of(node, "pattern_dim"))

    def _factors(self, node: Node) -> tuple[str | int, ...]:
        found: list[str | int] = []
        for factor in trees_of(node, "pattern_factor"):
            token = token_at(factor, 0)
            if token.type == "NUMBER" and not token.isdigit():
                raise fail("E010", f"`{token}` is not a size", self.at(token), label="expected a whole number")
            found.append(int(token) if token.type == "NUMBER" else str(token))
        return tuple(found)

    def group(self, node: Node) -> GraphExpr:
        inner: GraphExpr = self.build(tree_at(node, 1))
        return replace(inner, span=self.span(node))

    # ---------------------------------------------------------------- numbers

    quantity_binary = Builder.arithmetic
    quantity_negative = Builder.negation


_QUANTITIES = ("quantity_binary", "quantity_negative", "number_literal", "name", "group")
