"""Matches the left side of a rule against the graph of a model (subgraph matching by backtracking).

A match binds the rule's inputs to values of one graph: the model's graph or the body of a repeat. A match in a body
applies to every iteration. Matches across iterations, or across the border of a repeat, are not found. Commutative
operators (`x + y`) are matched in both operand orders.

An operator matches if its declaration, attributes and pattern equal the rule's at the sizes that the match determines.
These sizes follow from the shapes of the bound values, from attributes and from the axes of patterns. They must meet
the rule's conditions. An input is never bound to a value that may be infinite. Intermediate values may have other
readers. Operators that return their input unchanged may stand between matched operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import islice
from itertools import product as combinations
from math import isfinite, prod

from ..graph.graph import Graph, Model, Node, Segment, Value
from ..graph.plan import AppliedRule
from ..index.equations.instance import Instance
from ..index.equations.term import substitute
from ..index.instantiation.instantiate import Binding, Shape, instantiate
from ..prove.normal_form.form import Unsupported
from ..prove.normal_form.polynomial import product
from ..prove.translation.real_conditions import meets, numbers_at
from ..prove.translation.rule_forms import Ranks, attribute_value, call_pattern, input_dims, number_of, view_binding
from ..syntax.ast import Apply, Name, OperatorDecl, Read
from ..syntax.diagnostic import InputError
from ..syntax.parse_rules import GraphCall, GraphExpr, GraphView
from ..syntax.rational import exact_number, plain_number
from ..syntax.span import Span
from .graph_identity import is_identity, operation
from .infinities import Infinities, Known, infinities
from .match_numbers import Numbers, attribute_number, solve_numbers
from .match_sizes import Equation, solve_sizes
from .substitution import Settled, Substitution

STEPS = 20_000
"""Limit of comparisons of a rule's call with an operator, for one model."""
_SETTLING = 50
"""Comparisons that are charged for solving the sizes of one match."""


class TooMany(Exception):
    """The limit of `STEPS` comparisons is reached."""


@dataclass(frozen=True)
class Site:
    """A call of the left side and the node that it matches, with the node's operands in the order of the rule."""

    call: GraphCall
    view: GraphView | None
    node: Node
    operands: tuple[Value, ...]


@dataclass(frozen=True)
class Match:
    """An occurrence of a rule in a model.

    `path` names the enclosing repeats, outermost first. `roots` are the values of the left sides. `values` binds the
    rule's inputs and local names. `numbers` are the values of the names in attributes that stand for real numbers,
    sizes included.
    """

    substitution: Substitution
    path: tuple[str, ...]
    roots: tuple[Value, ...]
    values: Mapping[str, Value]
    nodes: tuple[Node, ...]
    ranks: Ranks
    sizes: Mapping[str, int]
    numbers: Numbers = field(default_factory=dict)

    @property
    def place(self) -> str:
        """The path of the first replaced value, such as `layer.h`."""
        return ".".join((*self.path, self.roots[0].name))

    def applied(self, span: Span | None) -> AppliedRule:
        """The entry for this match in a plan; `span` is the place of the operator that makes the first value."""
        replaced = tuple(root.name for root in self.roots)
        return AppliedRule(self.substitution.rule.name, self.place, span, replaced=replaced)


@dataclass(frozen=True)
class _Found:
    """A partial match."""

    values: Mapping[str, Value] = field(default_factory=dict)
    sites: tuple[Site, ...] = ()

    def bound(self, name: str, value: Value) -> _Found:
        return replace(self, values={**self.values, name: value})


def matches(substitution: Substitution, model: Model, place: str | None = None) -> Iterator[Match]:
    """Every match of the left side in the order of the model's steps, or only the matches at `place` if it is given.

    Raises TooMany, possibly after some matches, at the limit of comparisons.
    """
    steps = iter(range(STEPS))
    finite = _FiniteValues(model, substitution)
    for path, graph in graphs(model.graph):
        around = "".join(f"{name}." for name in path)
        if place is not None and not place.startswith(around):
            continue
        first = None if place is None else place.removeprefix(around)
        for match in _Matcher(substitution, path, Operators.of(_nodes(graph)), steps, first=first).run():
            if finite.are_inputs_of(match):
                yield match


IsUseful = Callable[[Sequence[Value], Mapping[str, Value], Sequence[Node]], bool]
"""Whether a match of these roots, values and operators is useful. Called before the sizes of the match are solved."""


def matches_among(
    substitution: Substitution,
    operators: Operators,
    path: tuple[str, ...],
    infinite: Mapping[str, Infinities],
    is_useful: IsUseful,
) -> Iterator[Match]:
    """Every useful match among operators, several of which may make the same value. `infinite` gives the possible
    infinities of each value; inputs are bound to finite values only.

    Raises TooMany, possibly after some matches, at the limit of comparisons.
    """
    inputs = [tensor.name for tensor in substitution.rule.inputs]
    for match in _Matcher(substitution, path, operators, iter(range(STEPS)), is_useful).run():
        if not any(infinite[match.values[name].name] for name in inputs if name in match.values):
            yield match


@dataclass
class _FiniteValues:
    """Checks that inputs are bound to finite values only: rules are proved for inputs with finite elements."""

    model: Model
    substitution: Substitution

    @cached_property
    def infinities(self) -> Mapping[tuple[str, ...], Known]:
        return infinities(self.model, self.substitution.library)

    def are_inputs_of(self, match: Match) -> bool:
        known = self.infinities[match.path]
        bound = (match.values.get(tensor.name) for tensor in self.substitution.rule.inputs)
        return not any(known[value.name] for value in bound if value is not None)


def graphs(graph: Graph, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Graph]]:
    """A graph and the bodies of its repeats, each with its path of repeats."""
    yield path, graph
    for step in graph.steps:
        if isinstance(step, Segment):
            yield from graphs(step.body, (*path, step.name))


def _nodes(graph: Graph) -> Iterator[Node]:
    return (step for step in graph.steps if isinstance(step, Node))


@dataclass(frozen=True)
class Operators:
    """Operators indexed by the value that they make, by name, and by name and a value that they read."""

    makers: Mapping[str, Sequence[Node]]
    by_name: Mapping[str, Sequence[Node]]
    readers: Mapping[tuple[str, str], Sequence[Node]]

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> Operators:
        makers: dict[str, list[Node]] = {}
        by_name: dict[str, list[Node]] = {}
        readers: dict[tuple[str, str], list[Node]] = {}
        for node in nodes:
            for name in {value.name for value in node.arguments}:
                readers.setdefault((node.instance.name, name), []).append(node)
            for value in node.results:
                makers.setdefault(value.name, []).append(node)
            by_name.setdefault(node.instance.name, []).append(node)
        return cls(makers, by_name, readers)


class _Matcher:
    """Matches a rule in one graph. If `first` is given, only matches whose first root has that name are found."""

    def __init__(
        self,
        substitution: Substitution,
        path: tuple[str, ...],
        operators: Operators,
        steps: Iterator[int],
        is_useful: IsUseful | None = None,
        first: str | None = None,
    ) -> None:
        self.is_useful = is_useful
        self.first = first
        self.substitution = substitution
        self.path = path
        self.steps = steps
        self.operators = operators

    def run(self) -> Iterator[Match]:
        for roots, found in self._roots(0, (), _Found()):
            if self.is_useful is not None and not self.is_useful(
                roots, found.values, [site.node for site in found.sites]
            ):
                continue
            match = self._settled(roots, found)
            if match is not None:
                yield match

    def _roots(
        self, number: int, roots: tuple[Value, ...], found: _Found
    ) -> Iterator[tuple[tuple[Value, ...], _Found]]:
        """Matches of the left sides in order, each at a different value."""
        if number == len(self.substitution.left):
            yield roots, found
            return
        left, written = self.substitution.left[number], self.substitution.rule.left[number]
        assert isinstance(left, GraphCall | GraphView)
        operator = left.name if isinstance(left, GraphCall) else "rearrange"
        result = left.result if isinstance(left, GraphCall) else 0
        nodes: Sequence[Node] = self.operators.by_name.get(operator, ())
        read = [found.values[name.name] for name in left_operands(left) if name.name in found.values]
        if read and self.is_useful is not None:
            nodes = min((self.operators.readers.get((operator, value.name), ()) for value in read), key=len)
        values = {node.results[result].name: node.results[result] for node in nodes}
        if self.first is not None and not number:
            values = {name: value for name, value in values.items() if name == self.first}
        for value in values.values():
            if all(value.name != root.name for root in roots):
                for more in self._expr(written, value, found):
                    yield from self._roots(number + 1, (*roots, value), more)

    def _count(self, steps: int) -> None:
        if next(islice(self.steps, steps - 1, None), None) is None:
            raise TooMany

    # ------------------------------------------------------------------------------------------ structure

    def _expr(self, expr: GraphExpr, value: Value, found: _Found) -> Iterator[_Found]:
        """The extensions of a partial match in which `expr` matches at `value`."""
        match expr:
            case Name(name) if name in found.values:
                if found.values[name].name == value.name:
                    yield found
            case Name(name) if name in self.substitution.definitions:
                for more in self._expr(self.substitution.definitions[name], value, found):
                    yield more.bound(name, value)
            case Name(name):
                integers = self.substitution.inputs[name].integer_range is not None
                if integers == (value.integer_range is not None):
                    yield found.bound(name, value)
            case GraphView():
                yield from self._call(GraphCall("rearrange", (expr,), span=expr.span), value, found)
            case GraphCall():
                yield from self._call(expr, value, found)

    def _call(self, call: GraphCall, value: Value, found: _Found) -> Iterator[_Found]:
        self._count(1)
        for made, node in self._made_by(value, call.name):
            if len(node.arguments) == len(call.arguments) and node.results[call.result].name == made.name:
                yield from self._at(call, node, found)

    def _at(self, call: GraphCall, node: Node, found: _Found) -> Iterator[_Found]:
        """The extensions in which `call` matches `node`, an operator of the same name."""
        view = call_pattern(call, node.instance.operator)
        if view is not None:
            if not node.instance.native:
                site = Site(call, view, node, node.arguments)
                yield from self._operands((view.operand,), site, found)
                return
            # A rule writes `relu(x[a, b] -> [b, a])` as one call with a pattern; a model has a rearrangement and a
            # relu.
        if node.instance.native:
            orders = [node.arguments]
            if is_commutative(node.instance.operator) and node.arguments[0].name != node.arguments[1].name:
                orders.append(node.arguments[::-1])
            for operands in orders:
                yield from self._operands(call.arguments, Site(call, None, node, operands), found)

    def _made_by(self, value: Value, operator: str) -> Iterator[tuple[Value, Node]]:
        """The operators of that name that make a value. Operators that return their input unchanged, such as dropout at
        p = 0, are skipped.
        """
        for node in self.operators.makers.get(value.name, ()):
            if node.instance.name == operator:
                yield value, node
            elif is_identity(node.instance):
                yield from self._made_by(node.arguments[0], operator)

    def _operands(self, exprs: Sequence[GraphExpr], site: Site, found: _Found) -> Iterator[_Found]:
        ways: Iterator[_Found] = iter((replace(found, sites=(*found.sites, site)),))
        for expr, operand in zip(exprs, site.operands, strict=True):
            ways = self._each(expr, operand, ways)
        yield from ways

    def _each(self, expr: GraphExpr, operand: Value, ways: Iterator[_Found]) -> Iterator[_Found]:
        for found in ways:
            yield from self._expr(expr, operand, found)

    # ------------------------------------------------------------------------------------------ sizes

    def _settled(self, roots: tuple[Value, ...], found: _Found) -> Match | None:
        """The match with its sizes; None if the sizes or conditions do not fit."""
        self._count(_SETTLING)
        known, key = self.substitution.settled, _kinds(found)
        if key not in known:
            known[key] = self._found_sizes(found)
        if (settled := known[key]) is None:
            return None
        nodes = tuple({site.node.name: site.node for site in found.sites}.values())
        return Match(self.substitution, self.path, roots, found.values, nodes, *settled)

    def _found_sizes(self, found: _Found) -> Settled | None:
        for ranks in self._ranks(found.values):
            sizes = self._sizes(found, ranks)
            numbers = None if sizes is None else self._numbers(found, sizes)
            if sizes is None or numbers is None:
                continue
            if all(self._fits(site, ranks, sizes, numbers) for site in found.sites):
                return ranks, sizes, numbers
        return None

    def _ranks(self, values: Mapping[str, Value]) -> Iterator[Ranks]:
        """Ranks of the rest groups consistent with the ranks of the bound values."""
        groups = self.substitution.groups
        bound = [(tensor, values[tensor.name]) for tensor in self.substitution.rule.inputs if tensor.name in values]
        most = max((len(value.shape) for _, value in bound), default=0)
        for chosen in combinations(range(most + 1), repeat=len(groups)):
            ranks = dict(zip(groups, chosen, strict=True))
            if all(
                len(value.shape) == sum(_rank(dim.size, ranks) if dim.rest else 1 for dim in tensor.dims)
                for tensor, value in bound
            ):
                yield ranks

    def _sizes(self, found: _Found, ranks: Ranks) -> Mapping[str, int] | None:
        substitution = self.substitution
        views = substitution.views(ranks)
        if views is None:
            return None
        equations: list[Equation] = []
        for tensor in substitution.rule.inputs:
            if (value := found.values.get(tensor.name)) is not None:
                dims = input_dims(tensor, substitution.claim, ranks)
                equations += [(product(dim), size) for dim, size in zip(dims, value.shape, strict=True)]
                if tensor.integer_range is not None and value.integer_range is not None:
                    equations.append((substitution.claim.size(tensor.integer_range), value.integer_range))
        for site in found.sites:
            equations += self._attributes(site)
            if site.view is not None:
                axes = views[id(site.view)]
                told = _view_sizes(site.view, site.node.instance)
                equations += [(product(axes[name]), size) for name, size in told.items()]
        sizes = solve_sizes(equations)
        if sizes is None or not all(name in sizes for name in substitution.names(ranks)):
            return None
        return sizes if substitution.claim.holds(sizes) else None

    def _attributes(self, site: Site) -> Iterator[Equation]:
        """Equations for integer attributes that are written in terms of sizes. Constant attributes are checked later,
        because they may count from the end.
        """
        for name, expr in site.call.attributes:
            if self.substitution.is_real(expr):
                continue
            given = site.node.instance.attributes.get(name)
            size = attribute_value(expr, self.substitution.claim)
            if isinstance(given, int) and size.constant is None:
                yield size, given

    def _numbers(self, found: _Found, sizes: Mapping[str, int]) -> Numbers | None:
        """The exact values of the rule's real numbers; None if no values meet its conditions."""
        substitution = self.substitution
        if not substitution.reals:
            return {}
        told = []
        for site in found.sites:
            for name, expr in site.call.attributes:
                given = site.node.instance.attributes.get(name)
                if given is not None and substitution.is_real(expr):
                    if not isfinite(given):
                        return None
                    told.append((substitute(expr, substitution.determined), exact_number(given)))
        try:
            known = solve_numbers(told, numbers_at(substitution.claim, sizes, {}))
            if known is None or not substitution.claim.reals <= known.keys():
                return None
            if not meets(substitution.claim, sizes, {name: known[name] for name in substitution.claim.reals}):
                return None
            return numbers_at(substitution.claim, sizes, known)
        except (ZeroDivisionError, Unsupported):
            return None

    def _fits(self, site: Site, ranks: Ranks, sizes: Mapping[str, int], numbers: Numbers) -> bool:
        """Whether the rule's call at these sizes equals the model's operator, with operands in the model's order."""
        try:
            wanted = instance_of(self.substitution, site.call, site.view, site.node.arguments, ranks, sizes, numbers)
        except (InputError, Unsupported):
            return False
        return operation(wanted) == operation(site.node.instance)


def _kinds(found: _Found) -> tuple[object, ...]:
    """Everything that the sizes of a match depend on: shapes, and operators in the order of the rule's calls."""
    values = ((name, value.shape, value.integer_range) for name, value in found.values.items())
    return *values, *(site.node.instance.identity for site in found.sites)


def _rank(size: object, ranks: Ranks) -> int:
    assert isinstance(size, Name)
    return ranks[size.name]


def _view_sizes(view: GraphView, instance: Instance) -> dict[str, int]:
    """Sizes of the axes of a rule's view, read from the model's pattern if it has the same axes."""
    told: dict[str, int] = {}
    for names, axes in zip(view.source, instance.inputs[0].dims, strict=False):
        named = [str(name) for name in names if name != 1]
        sizes = [instance.sizes[axis] for axis in axes]
        if len(named) == 1:
            told[named[0]] = prod(sizes)
            continue
        if len(named) != len(sizes):
            sizes = [size for size in sizes if size != 1]
        if len(named) == len(sizes):
            told |= dict(zip(named, sizes, strict=True))
    return told


def left_operands(left: GraphCall | GraphView) -> Iterator[Name]:
    """The operands of a call that are plain names."""
    operands = left.arguments if isinstance(left, GraphCall) else (left.operand,)
    return (operand for operand in operands if isinstance(operand, Name))


# ---------------------------------------------------------------------------------------------- operators


def instance_of(
    substitution: Substitution,
    call: GraphCall,
    view: GraphView | None,
    operands: Sequence[Value],
    ranks: Ranks,
    sizes: Mapping[str, int],
    numbers: Numbers,
) -> Instance:
    """A call of the rule at numeric sizes. Raises InputError if the call does not fit its operands, and Unsupported."""
    operator = substitution.library.operators[call.name]
    shapes = [Shape(value.shape, value.integer_range, value.span) for value in operands]
    given = {
        name: attribute_number(expr, numbers)
        if substitution.is_real(expr)
        else plain_number(number_of(attribute_value(expr, substitution.claim), sizes))
        for name, expr in call.attributes
    }
    binding: Binding | None = None
    if view is not None:
        views = substitution.views(ranks)
        assert views is not None, "asked for before there are sizes"
        binding = view_binding(view, views[id(view)], sizes)
    return instantiate(operator, shapes, given, binding=binding, span=call.span)


@lru_cache(maxsize=1024)
def is_commutative(operator: OperatorDecl) -> bool:
    """Whether the operator is the sum or product of its two operands, read at the same index."""
    if len(operator.inputs) != 2 or len(operator.statements) != 1 or operator.evaluation or operator.attributes:
        return False
    first, second = operator.inputs
    alike = first.dims == second.dims and first.integer_range == second.integer_range
    match operator.statements[0].value:
        case Apply("+" | "*", (Read(left, index), Read(right, other))):
            return alike and index == other and {left, right} == {first.name, second.name}
    return False
