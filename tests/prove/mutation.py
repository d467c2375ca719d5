"""Mutants: rules that differ from a given one by one change, labelled by the kind of change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from unity_dsl.index.library import Library
from unity_dsl.syntax.ast import Apply, Expr, Name, Number
from unity_dsl.syntax.parse_rules import GraphCall, GraphExpr, GraphView, RuleDecl, RuleDim

from .evaluator.sizes import size_names

Mutant = tuple[str, RuleDecl]
Change = tuple[str, GraphExpr]

PLACES = ("dim", "from", "to")
"""Attributes that count dimensions."""
RELATIONS = {"==": ("<=", ">="), "<=": ("==",), ">=": ("==",), "<": ("<=",), ">": (">=",), "!=": ("==",)}


PER_KIND = 4
"""Most mutants of a rule for each kind. Kinds that apply everywhere would give many similar mutants."""


def mutants(rule: RuleDecl, library: Library, per_kind: int = PER_KIND) -> list[Mutant]:
    """Mutants with their kinds, the same on every run: all of a kind, or `per_kind` evenly spaced ones."""
    found: dict[RuleDecl, str] = {}
    for kind, mutant in _all(rule, library):
        if mutant != rule:
            found.setdefault(mutant, kind)  # a rule that two changes lead to counts once
    kinds: dict[str, list[RuleDecl]] = {}
    for mutant, kind in found.items():
        kinds.setdefault(kind, []).append(mutant)
    return [
        (kind, own[place * len(own) // min(len(own), per_kind)])
        for kind, own in kinds.items()
        for place in range(min(len(own), per_kind))
    ]


def _all(rule: RuleDecl, library: Library) -> Iterator[Mutant]:
    yield from _of_conditions(rule)
    yield from _of_inputs(rule)
    calls = _Calls(rule, library)
    for place, (name, expr) in enumerate(rule.definitions):
        for kind, changed in calls.changed(expr):
            definitions = (*rule.definitions[:place], (name, changed), *rule.definitions[place + 1 :])
            yield kind, replace(rule, definitions=definitions)
    for place, expr in enumerate(rule.right):
        for kind, changed in calls.changed(expr):
            yield kind, replace(rule, right=(*rule.right[:place], changed, *rule.right[place + 1 :]))
    for place, expr in enumerate(rule.left):
        for kind, changed in calls.changed(expr):
            yield kind, replace(rule, left=(*rule.left[:place], changed, *rule.left[place + 1 :]))
    for one, other in combinations((given.name for given in rule.inputs), 2):
        swapped = tuple(_renamed(expr, {one: other, other: one}) for expr in rule.right)
        yield "inputs swapped", replace(rule, right=swapped)


def _of_conditions(rule: RuleDecl) -> Iterator[Mutant]:
    for place, condition in enumerate(rule.conditions):
        before, after = rule.conditions[:place], rule.conditions[place + 1 :]
        yield "condition dropped", replace(rule, conditions=(*before, *after))
        left, right = condition.arguments
        for step in (-1, 1):
            moved = Apply(condition.function, (left, _moved(right, step)))
            yield "condition shifted", replace(rule, conditions=(*before, moved, *after))
        for relation in RELATIONS[condition.function]:
            other = Apply(relation, (left, right))
            yield "condition shifted", replace(rule, conditions=(*before, other, *after))


def _of_inputs(rule: RuleDecl) -> Iterator[Mutant]:
    """Replaces sizes of inputs by other sizes of the rule, by swapped operands, and by themselves plus one."""
    for place, given in enumerate(rule.inputs):
        for position, dim in enumerate(given.dims):
            if dim.rest or dim.device:
                continue
            for size in _other_sizes(dim.size, size_names(rule)):
                dims = (*given.dims[:position], RuleDim(size), *given.dims[position + 1 :])
                inputs = (*rule.inputs[:place], replace(given, dims=dims), *rule.inputs[place + 1 :])
                yield "size replaced", replace(rule, inputs=inputs)


def _other_sizes(size: Expr, names: tuple[str, ...]) -> Iterator[Expr]:
    match size:
        case Name(own):
            yield from (Name(name) for name in names if name != own)
        case Apply(function, (left, right)):
            yield from (Apply(function, (other, right)) for other in _other_sizes(left, names))
            yield from (Apply(function, (left, other)) for other in _other_sizes(right, names))
            yield Apply(function, (right, left))
    yield Apply("+", (size, Number(1)))


def _moved(value: Expr, step: int) -> Expr:
    """`value + step`, as a literal if the value is one, and as a subtraction for a negative step."""
    if isinstance(value, Number):
        return Number(value.value + step)
    return Apply("+" if step > 0 else "-", (value, Number(abs(step))))


def _renamed(expr: GraphExpr, names: dict[str, str]) -> GraphExpr:
    match expr:
        case Name(name):
            return Name(names.get(name, name))
        case GraphView():
            return replace(expr, operand=_renamed(expr.operand, names))
        case GraphCall():
            return replace(expr, arguments=tuple(_renamed(part, names) for part in expr.arguments))
    return expr


class _Calls:
    """Generates the changes of an expression in one place."""

    def __init__(self, rule: RuleDecl, library: Library) -> None:
        self.rule = rule
        self.library = library
        self.names = size_names(rule)
        self.tensors = [given.name for given in rule.inputs]

    def changed(self, expr: GraphExpr) -> Iterator[Change]:
        if not isinstance(expr, Number):
            yield from self._here(expr)
        match expr:
            case GraphView(operand):
                for kind, inner in self.changed(operand):
                    yield kind, replace(expr, operand=inner)
            case GraphCall(arguments=arguments):
                for place, argument in enumerate(arguments):
                    for kind, inner in self._argument(argument, alone=len(arguments) == 1):
                        yield kind, replace(expr, arguments=(*arguments[:place], inner, *arguments[place + 1 :]))

    def _argument(self, argument: GraphExpr, alone: bool) -> Iterator[Change]:
        """Changes of an argument. A pattern such as `reduce_sum(x[a, b] -> [a])` names axes and stays in its call."""
        if alone and isinstance(argument, GraphView):
            yield from self._view(argument)
            for kind, inner in self.changed(argument.operand):
                yield kind, replace(argument, operand=inner)
        else:
            yield from self.changed(argument)

    def _here(self, expr: GraphExpr) -> Iterator[Change]:
        yield "expression doubled", GraphCall("add", (expr, expr))
        yield "expression doubled", GraphCall("mul", (expr, expr))
        for function in ("relu", "negative"):
            yield "function applied", GraphCall(function, (expr,))
        match expr:
            case Name(own):
                for name in self.tensors:
                    if name != own:
                        yield "input replaced", Name(name)
            case GraphView():
                yield "operator dropped", expr.operand
                yield from self._view(expr)
            case GraphCall():
                yield from self._call(expr)

    def _view(self, view: GraphView) -> Iterator[Change]:
        for one, other in combinations(range(len(view.target)), 2):
            target = list(view.target)
            target[one], target[other] = target[other], target[one]
            yield "view permuted", replace(view, target=tuple(target))
        for one, other in combinations(range(len(view.source)), 2):
            source = list(view.source)
            source[one], source[other] = source[other], source[one]
            yield "view permuted", replace(view, source=tuple(source))
        for side in ("source", "target"):
            pattern = getattr(view, side)
            for place, factors in enumerate(pattern):
                if len(factors) > 1:
                    turned = (*pattern[:place], factors[::-1], *pattern[place + 1 :])
                    yield "view permuted", replace(view, **{side: turned})
        kept = {name for factors in view.target for name in factors}
        left_out = [factors for factors in view.source if kept.isdisjoint(factors)]
        for place in range(len(view.target)):
            for factors in left_out:
                other_target = (*view.target[:place], factors, *view.target[place + 1 :])
                yield "view permuted", replace(view, target=other_target)

    def _call(self, call: GraphCall) -> Iterator[Change]:
        arguments = call.arguments
        for argument in arguments:
            if isinstance(argument, GraphView) and len(arguments) == 1:
                yield "operator dropped", argument.operand
                yield "operator dropped", argument
            elif not isinstance(argument, Number):
                yield "operator dropped", argument
        for one, other in combinations(range(len(arguments)), 2):
            swapped = list(arguments)
            swapped[one], swapped[other] = arguments[other], arguments[one]
            yield "operands swapped", replace(call, arguments=tuple(swapped))
            for place, given in ((one, arguments[other]), (other, arguments[one])):
                repeated = (*arguments[:place], given, *arguments[place + 1 :])
                yield "operand repeated", replace(call, arguments=repeated)
        yield from self._attributes(call)
        for place, degree in enumerate(call.degrees or ()):
            for name in (*self.names, "other"):
                if name != degree:
                    degrees = (*call.degrees[:place], name, *call.degrees[place + 1 :])  # type: ignore[index]
                    yield "degree changed", replace(call, degrees=degrees)
        for name in self._replacements(call):
            yield "operator replaced", replace(call, name=name)

    def _attributes(self, call: GraphCall) -> Iterator[Change]:
        for place, (name, value) in enumerate(call.attributes):
            before, after = call.attributes[:place], call.attributes[place + 1 :]
            for kind, other in self._other_values(name, value):
                yield kind, replace(call, attributes=(*before, (name, other), *after))

    def _other_values(self, name: str, value: Expr) -> Iterator[tuple[str, Expr]]:
        if name in PLACES:
            yield from (("axis changed", Number(number)) for number in (-2, -1, 0, 1, 2))
            return
        for step in (-1, 1):
            yield "attribute shifted", _moved(value, step)
        match value:
            case Number(number):
                yield from (("constant changed", Number(other)) for other in (-number, 2 * number, 0, 0.5))
            case _:
                yield from (("attribute shifted", other) for other in self._other_symbols(value))
        yield from (("constant changed", Name(name)) for name in self.names)

    def _other_symbols(self, value: Expr) -> Iterator[Expr]:
        match value:
            case Name(own):
                yield from (Name(name) for name in self.names if name != own)
            case Apply(function, (left, right)):
                yield from (Apply(function, (other, right)) for other in self._other_symbols(left))
                yield from (Apply(function, (left, other)) for other in self._other_symbols(right))

    def _replacements(self, call: GraphCall) -> Iterator[str]:
        """Operators with equally many inputs, the same required attributes, and float results.

        Operators (not parallel ops) also need inputs of equal ranks.
        """
        known = self.library.operators if call.degrees is None else self.library.parallels
        if call.name not in known:
            return
        own = known[call.name]
        for name, decl in known.items():
            like = len(decl.inputs) == len(own.inputs) and [a.name for a in decl.attributes if a.default is None] == [
                a.name for a in own.attributes if a.default is None
            ]
            ranks = [[len(tensor.dims) for tensor in made.inputs] for made in (decl, own)]
            like = like and all(output.integer_range is None for output in decl.outputs)
            if name != call.name and like and (ranks[0] == ranks[1] or call.degrees is not None):
                yield name
