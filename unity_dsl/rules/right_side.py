"""Builds the right side of a rule at a match. Existing operators on the same values are reused (hash consing)."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import replace

from ..graph.graph import Node, Value, type_text
from ..index.equations.instance import Instance
from ..index.gradients.surrogates import stopped_inputs
from ..index.instantiation.instantiate import Binding, Shape, instantiate
from ..prove.normal_form.form import Unsupported
from ..prove.translation.rule_forms import call_pattern
from ..syntax.ast import Name
from ..syntax.parse_rules import GraphCall, GraphExpr, GraphView
from .graph_identity import is_identity_rearrangement, operation
from .graph_match import Match, instance_of, is_commutative

Made = MutableMapping[tuple[object, ...], Value]
"""Values by the operator that makes them, the number of the result and the names of the operands."""


class Refused(Exception):
    """A match that cannot be applied. The first argument says why."""


def made_by(nodes: Iterable[Node]) -> Made:
    """The results of operators, the first among equal operators. Random operators are left out: no two of them are
    equal.
    """
    known: dict[tuple[object, ...], Value] = {}
    for node in nodes:
        if not node.site:
            for place, value in enumerate(node.results):
                known.setdefault(made_key(node.instance, node.arguments, place), value)
    return known


class RightSide:
    """The right side of a rule at a match. `made` are its new operators; they are added to `known`, and their names to
    `names`.
    """

    def __init__(self, match: Match, known: Made, names: set[str]) -> None:
        self.match = match
        self.names = names
        self.made: list[Node] = []
        self.spans = {value.name: node.span for node in match.nodes for value in node.results}
        self.span = self.spans[match.roots[0].name]
        self.local: dict[str, Value] = {}
        self.known = known
        definitions = match.substitution.definitions
        self.wanted: dict[GraphExpr, Value] = {}
        for root, expr in zip(match.roots, match.substitution.rule.right, strict=True):
            while isinstance(expr, Name) and expr.name in definitions:
                expr = definitions[expr.name]
            self.wanted.setdefault(expr, root)

    def root(self, expr: GraphExpr, root: Value) -> Value:
        """The value that replaces a root. Raises Refused if its type differs, and InputError."""
        self.span = self.spans[root.name]
        found = self.value(expr, root)
        if kind_of(found) != kind_of(root):
            raise Refused(f"the result would be {type_text(found)}, not {type_text(root)}")
        return found

    def value(self, expr: GraphExpr, root: Value | None = None) -> Value:
        """The value of an expression; a new operator for `root` gets its name."""
        match expr:
            case Name(name) if name in self.match.substitution.definitions:
                if name not in self.local:
                    self.local[name] = self.value(self.match.substitution.definitions[name], root)
                return self.local[name]
            case Name(name):
                return self.match.values[name]
            case GraphView():
                return self._call(GraphCall("rearrange", (expr,), span=expr.span), root)
            case GraphCall():
                return self._call(expr, root)
        raise AssertionError("a number is no tensor")

    def _call(self, call: GraphCall, root: Value | None) -> Value:
        view = call_pattern(call, self.match.substitution.library.operators[call.name])
        operands = [self.value(part) for part in ((view.operand,) if view is not None else call.arguments)]
        match = self.match
        try:
            instance = instance_of(match.substitution, call, view, operands, match.ranks, match.sizes, match.numbers)
        except Unsupported as reason:
            raise Refused(str(reason)) from None
        if is_identity_rearrangement(instance):
            return operands[0]
        known = self.known.get(made_key(instance, operands, call.result))
        if known is not None:
            return known
        roots = [self.wanted.get(replace(call, result=place)) for place in range(call.results)]
        roots[call.result] = root
        return self._make(instance, operands, roots)[call.result]

    def copy(self, source: Value, root: Value) -> None:
        """Adds a copy of `source` under the name of a root."""
        axes = tuple(((f"d{dim}", size),) for dim, size in enumerate(source.shape))
        operator = self.match.substitution.library.operators["rearrange"]
        shape = Shape(source.shape, source.integer_range, source.span)
        self._make(instantiate(operator, [shape], {}, binding=Binding(axes, axes)), [source], [root])

    def _make(self, instance: Instance, operands: Sequence[Value], roots: Sequence[Value | None]) -> tuple[Value, ...]:
        """The results of a new operator, named after the roots that they replace."""
        results = []
        for place, (output, root) in enumerate(zip(instance.outputs, roots, strict=True)):
            name = self.fresh(instance.name) if root is None else root.name
            kind = "int" if output.integer_range is not None else self._float_type(operands)
            gradient = kind != "int" and any(operand.needs_gradient for operand in operands)
            value = Value(name, instance.shape(output), kind, output.integer_range, gradient, self.span)
            results.append(root if root is not None and kind_of(value) == kind_of(root) else value)
            self.known[made_key(instance, operands, place)] = results[-1]
        substitution, values = self.match.substitution, (tuple(operands), tuple(results))
        stopped = stopped_inputs(instance, substitution.library)
        rule = substitution.rule.name
        self.made.append(Node(results[0].name, instance, *values, span=self.span, rule=rule, stopped=stopped))
        return tuple(results)

    def _float_type(self, operands: Sequence[Value]) -> str:
        """The float type of the operands if they have only one, else that of the first root. Several types occur only
        under a precision, which also sets the type of the root. Raises Refused if the first root holds integers.
        """
        types = {value.dtype for value in operands if value.dtype != "int"}
        found = types.pop() if len(types) == 1 else self.match.roots[0].dtype
        if found == "int":
            raise Refused("nothing says of which float type a tensor between would be")
        return found

    def fresh(self, operator: str) -> str:
        """`h_concat`, `h_concat_2`, …: a name derived from the replaced value and distinct from all names
        of the model.
        """
        stem = name = f"{self.match.roots[0].name}_{operator}"
        number = 1
        while name in self.names:
            number += 1
            name = f"{stem}_{number}"
        self.names.add(name)
        return name


def made_key(instance: Instance, arguments: Sequence[Value], result: int) -> tuple[object, ...]:
    names = [value.name for value in arguments]
    return (operation(instance), result, *(sorted(names) if is_commutative(instance.operator) else names))


def kind_of(value: Value) -> tuple[object, ...]:
    """The properties of a value that a rule must preserve. The float type is not one: it follows from the operands or
    from a precision.
    """
    return value.shape, value.integer_range
