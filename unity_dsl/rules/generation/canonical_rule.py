"""Names the tensors, sizes and numbers of a rule in order of appearance, so that rules that differ only in names are
equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from ...index.equations.term import rewrite
from ...index.library import Library
from ...prove.translation.real_attributes import real_names
from ...syntax.ast import Apply, Expr, Name
from ...syntax.canonical_text import canonical_text
from ...syntax.parse_rules import GraphCall, GraphExpr, GraphView, RuleDecl, RuleDim, RuleInput
from ...syntax.rule_names import names_in, subgraphs

TENSORS = ("x", "y", "z", "w", "v", "u", *(f"x{number}" for number in range(1, 64)))
GROUPS = ("a", "b", *(f"a{number}" for number in range(1, 64)))
SIZES = (*"mnkhijloqrefg", *(f"m{number}" for number in range(1, 512)))
NUMBERS = ("c", "d", "s", "t", *(f"c{number}" for number in range(1, 512)))
DEGREES = ("p", "q", *(f"p{number}" for number in range(1, 512)))


def canonical_rule(rule: RuleDecl, library: Library) -> RuleDecl:
    """The rule without local names and source places, with names in order of appearance, left side first.

    Inputs are `x`, `y`, `z`, `w`, in the order in which they are read.
    """
    made = dict(rule.definitions)
    left, right = (tuple(_inlined(expr, made) for expr in side) for side in (rule.left, rule.right))
    plain = replace(rule, definitions=(), left=left, right=right, span=None)
    return _Renaming(plain, frozenset(real_names(plain, library))).rule()


def rule_digest(rule: RuleDecl, library: Library) -> str:
    """A hash of the canonical rule without its name and comment."""
    return sha256(canonical_text(replace(canonical_rule(rule, library), name="", doc="")).encode()).hexdigest()


def _inlined(expr: GraphExpr, made: dict[str, GraphExpr]) -> GraphExpr:
    match expr:
        case Name(name) if name in made:
            return _inlined(made[name], made)
        case GraphCall(arguments=arguments):
            return replace(expr, arguments=tuple(_inlined(one, made) for one in arguments), span=None)
        case GraphView(operand):
            return replace(expr, operand=_inlined(operand, made), span=None)
    return expr


@dataclass
class _Renaming:
    """The new names of a rule's tensors (`tensors`), and of its sizes, groups, degrees and real numbers (`names`)."""

    old: RuleDecl
    reals: frozenset[str]
    tensors: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def rule(self) -> RuleDecl:
        rule = self.old
        degrees = {name for call in _calls(rule) for name in call.degrees or ()}
        degrees |= {
            dim.size.name for one in rule.inputs for dim in one.dims if dim.device and isinstance(dim.size, Name)
        }
        self.degrees = frozenset(degrees)
        groups = {dim.size.name for one in rule.inputs for dim in one.dims if dim.rest and isinstance(dim.size, Name)}
        # A single group is named `b..`; the first of two is `a..`.
        self.groups = dict.fromkeys(groups, GROUPS if len(groups) > 1 else GROUPS[1:])
        inputs = {tensor.name: tensor for tensor in rule.inputs}
        for expr in subgraphs((*rule.left, *rule.right)):
            if isinstance(expr, Name) and expr.name in inputs:
                self.tensors.setdefault(expr.name, TENSORS[len(self.tensors)])
        ordered = [inputs[name] for name in self.tensors]
        for tensor in ordered:
            for dim in tensor.dims:
                self._see(dim.size)
            if tensor.integer_range is not None:
                self._see(tensor.integer_range)
        for expr in subgraphs((*rule.left, *rule.right)):
            if isinstance(expr, GraphCall):
                for name in expr.degrees or ():
                    self._see(Name(name))
                for _, value in expr.attributes:
                    self._see(value)
        for condition in rule.conditions:
            self._see(condition)
        left, right = (tuple(map(self._graph, side)) for side in (rule.left, rule.right))
        conditions = sorted((self._size(one) for one in rule.conditions), key=self._condition_order)
        return replace(
            rule,
            inputs=tuple(map(self._input, ordered)),
            conditions=tuple(one for one in conditions if isinstance(one, Apply)),
            left=left,
            right=right,
        )

    def _see(self, expr: Expr) -> None:
        for name in names_in(expr):
            if name.name not in self.names:
                used = {*self.names.values()}
                self.names[name.name] = next(new for new in self._pool(name.name) if new not in used)

    def _pool(self, name: str) -> Sequence[str]:
        """The candidates for the new name, which depend on the kind of the name."""
        if name in self.groups:
            return self.groups[name]
        return NUMBERS if name in self.reals else DEGREES if name in self.degrees else SIZES

    def _condition_order(self, condition: Expr) -> tuple[list[int], str]:
        """The positions of its names in order of appearance, then the text."""
        order = list(self.names.values())
        return [order.index(name.name) for name in names_in(condition)], canonical_text(condition)

    def _size(self, expr: Expr) -> Expr:
        def renamed(node: Expr) -> Expr:
            return Name(self.names[node.name], node.rest) if isinstance(node, Name) else node

        return rewrite(expr, renamed)

    def _input(self, tensor: RuleInput) -> RuleInput:
        dims = tuple(RuleDim(self._size(dim.size), dim.rest, dim.device) for dim in tensor.dims)
        bound = None if tensor.integer_range is None else self._size(tensor.integer_range)
        return RuleInput(self.tensors[tensor.name], dims, bound)

    def _graph(self, expr: GraphExpr) -> GraphExpr:
        match expr:
            case Name(name):
                return Name(self.tensors[name])
            case GraphCall():
                return replace(
                    expr,
                    arguments=tuple(map(self._graph, expr.arguments)),
                    attributes=tuple((name, self._size(value)) for name, value in expr.attributes),
                    degrees=None if expr.degrees is None else tuple(self.names[name] for name in expr.degrees),
                )
            case GraphView(operand, source, target):
                axes = self._axes((*source, *target))
                return GraphView(self._graph(operand), _renamed(source, axes), _renamed(target, axes))
        return expr

    def _axes(self, dims: tuple[tuple[str | int, ...], ...]) -> dict[str, str]:
        """The axes of a view: sizes of the rule have their new names, other axes get letters that are not sizes."""
        axes: dict[str, str] = {}
        letters = (letter for letter in SIZES if letter not in self.names.values())
        for name in (name for names in dims for name in names if isinstance(name, str)):
            if name not in axes:
                axes[name] = self.names[name] if name in self.names else next(letters)
        return axes


def _renamed(side: tuple[tuple[str | int, ...], ...], axes: dict[str, str]) -> tuple[tuple[str | int, ...], ...]:
    return tuple(tuple(axes[name] if isinstance(name, str) else name for name in names) for names in side)


def _calls(rule: RuleDecl) -> Iterator[GraphCall]:
    return (expr for expr in subgraphs((*rule.left, *rule.right)) if isinstance(expr, GraphCall))
