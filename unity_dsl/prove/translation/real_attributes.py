"""Turns attributes that may be any real number into operands: `scale(x; factor=c)` multiplies by a scalar tensor.

A name in an attribute that neither places nor counts elements is a real number, unless it is a size of the rule. It
becomes an input without dimensions, and the operator is replaced by one that reads this input. The prover then treats
the number like an element of a tensor: finite and of unknown sign. A proof holds for all values that meet the
conditions. A name that a `where` equation determines is replaced by its value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...index.equations.term import call as applied
from ...index.equations.term import rewrite, substitute, walk
from ...index.equations.term_text import expression_text
from ...index.instantiation.call_frame import integer_attributes
from ...index.instantiation.view_call import takes_pattern
from ...index.library import Library
from ...syntax.ast import Apply, AttributeDecl, Expr, Name, Number, OperatorDecl, Read, Statement, TensorDecl
from ...syntax.diagnostic import fail
from ...syntax.parse_rules import GraphCall, GraphExpr, GraphView, RuleDecl, RuleInput
from ...syntax.rule_names import names_in, subgraphs
from ..normal_form.form import Unsupported

Values = Mapping[str, Expr]
"""The expressions, in the other names, of the names that equations determine."""


def real_attributes(decl: OperatorDecl) -> frozenset[str]:
    """The attributes of an operator that may be any number: they place nothing, and no condition ties them to sizes."""
    if decl.extern:
        return frozenset()
    found = {one.name for one in decl.attributes} - integer_attributes(decl)
    while tied := [names for one in decl.conditions if (names := _named(one)) & found and not names <= found]:
        found.difference_update(*tied)
    return frozenset(found)


def _named(expr: Expr) -> set[str]:
    """The names in an expression; a size and a rank count as names."""
    return {node.name if isinstance(node, Name) else "" for node in walk(expr) if not isinstance(node, Apply | Number)}


def real_names(rule: RuleDecl, library: Library) -> tuple[str, ...]:
    """The names of a rule that stand for real numbers, as they appear. Raises E508 for one that is a tensor."""
    found: dict[str, Name] = {}
    sizes = {name.name for size in _sizes(rule) for name in names_in(size)}
    for call in _calls(rule):
        decl = library.operators.get(call.name) if call.degrees is None else None
        real = frozenset[str]() if decl is None else real_attributes(decl)
        for attribute, value in call.attributes:
            for name in names_in(value):
                if attribute in real:
                    found.setdefault(name.name, name)
                else:
                    sizes.add(name.name)
        sizes.update(call.degrees or ())
    if not found.keys() - sizes:
        return ()
    _spread(sizes, rule.conditions)
    tensors = {tensor.name for tensor in rule.inputs} | {name for name, _ in rule.definitions}
    for clash in sorted(found.keys() & tensors - sizes):
        help = f"give the number another name; `x * {clash}` multiplies by the tensor"
        raise fail("E508", f"`{clash}` is a tensor and a number", found[clash].span, help=help)
    reals = [name for name in found if name not in sizes]
    return (*reals, *_beside(reals, rule.conditions, sizes | tensors))


def _beside(reals: Sequence[str], conditions: Sequence[Apply], others: set[str]) -> Iterator[str]:
    """Names that occur in conditions only, together with a real number: `c` in `c == s * t` if no call uses c."""
    known = set(reals)
    while tied := next(
        (names for one in conditions if (names := {n.name for n in names_in(one)}) & known and names - known - others),
        None,
    ):
        found = sorted(tied - known - others)
        known.update(found)
        yield from found


def _sizes(rule: RuleDecl) -> Iterator[Expr]:
    for tensor in rule.inputs:
        yield from (dim.size for dim in tensor.dims)
        if tensor.integer_range is not None:
            yield tensor.integer_range


def _spread(sizes: set[str], conditions: Sequence[Apply]) -> None:
    """Adds to `sizes` every name of an integer equation that contains a size, until nothing changes."""
    equations = [{name.name for name in names_in(one)} for one in conditions if one.function == "==" and _is_whole(one)]
    while tied := [names for names in equations if names & sizes and not names <= sizes]:
        sizes.update(*tied)


def _is_whole(condition: Apply) -> bool:
    nodes = list(walk(condition))
    fractions = (isinstance(node, Number) and not isinstance(node.value, int) for node in nodes)
    return not any(fractions) and not any(isinstance(node, Apply) and node.function == "/" for node in nodes)


def _calls(rule: RuleDecl) -> Iterator[GraphCall]:
    roots = (*(value for _, value in rule.definitions), *rule.left, *rule.right)
    return (expr for expr in subgraphs(roots) if isinstance(expr, GraphCall))


# ---------------------------------------------------------------------------------------------- equations


def solved(conditions: Sequence[Apply], names: Sequence[str]) -> tuple[Values, tuple[Apply, ...]]:
    """The values of the names that equations determine, and the remaining conditions.

    The remaining conditions include `divisor != 0` for each divisor in such a value.
    """
    values: dict[str, Expr] = {}
    left = list(conditions)
    while True:
        found = next(((one, *given) for one in left if (given := _determined(one, names, values)) is not None), None)
        if found is None:
            return values, tuple(left)
        equation, name, value = found
        put_in = {name: value}
        values = {known: substitute(old, put_in) for known, old in values.items()} | put_in
        left = [_comparison(substitute(one, put_in)) for one in left if one is not equation]
        left += [applied("!=", divisor, Number(0)) for divisor in _divisors(value)]


def _comparison(expr: Expr) -> Apply:
    assert isinstance(expr, Apply)
    return expr


def _determined(condition: Apply, names: Sequence[str], known: Values) -> tuple[str, Expr] | None:
    """The name that an equation determines and its value, or None: `a * b == 1` gives a = 1 / b, where b is not 0."""
    if condition.function != "==":
        return None
    pairs = (condition.arguments, condition.arguments[::-1])
    for bare in (True, False):
        for side, other in pairs:
            inside = [name.name for name in names_in(side)]
            for name in inside if not bare or isinstance(side, Name) else ():
                free = name in names and name not in known
                once = inside.count(name) == 1 and all(part.name != name for part in names_in(other))
                value = _isolated(side, other, name) if free and once else None
                if value is not None:
                    return name, value
    return None


def _isolated(side: Expr, other: Expr, name: str) -> Expr | None:
    """Solves side == other for a name that occurs once in `side`; None where the value is not certain."""
    while not isinstance(side, Name):
        assert isinstance(side, Apply)
        first = any(part.name == name for part in names_in(side.arguments[0]))
        match side:
            case Apply("neg", (inner,)):
                side, other = inner, applied("neg", other)
            case Apply("+", (left, right)):
                side, other = (left, applied("-", other, right)) if first else (right, applied("-", other, left))
            case Apply("-", (left, right)):
                side, other = (left, applied("+", other, right)) if first else (right, applied("-", left, other))
            case Apply("*", (left, right)):
                side, factor = (left, right) if first else (right, left)
                if not (_is_nonzero(factor) or _is_nonzero(other)):
                    return None
                other = applied("/", other, factor)
            case Apply("/", (left, right)) if first and _is_nonzero(right):
                side, other = left, applied("*", other, right)
            case _:
                return None
    return other


def _is_nonzero(expr: Expr) -> bool:
    return isinstance(expr, Number) and expr.value != 0


def _divisors(expr: Expr) -> Iterator[Expr]:
    for node in walk(expr):
        if isinstance(node, Apply) and node.function == "/" and not _is_nonzero(node.arguments[1]):
            yield node.arguments[1]


# ---------------------------------------------------------------------------------------------- as operands


def determined_reals(rule: RuleDecl, library: Library) -> Values:
    """The values that conditions give to real numbers, in terms of others: `c == a * b` gives c."""
    return _solved_conditions(rule, real_names(rule, library))[1]


def _solved_conditions(rule: RuleDecl, names: Sequence[str]) -> tuple[list[Apply], Values, tuple[Apply, ...]]:
    """The conditions on real numbers as written, the values that they determine, and the remaining conditions."""
    own = [one for one in rule.conditions if any(part.name in names for part in names_in(one))]
    return own, *solved(own, names)


def with_reals(rule: RuleDecl, library: Library) -> tuple[RuleDecl, Library]:
    """The rule with its real numbers as inputs, and a library with the operators that read them.

    Without real numbers both are returned unchanged. The views of both rules are in the same order. Raises E508 and
    Unsupported.
    """
    names = real_names(rule, library)
    if not names:
        return rule, library
    own, values, conditions = _solved_conditions(rule, names)
    made = _Operands(library, frozenset(names), values)
    sides = [tuple(map(made.expr, side)) for side in (rule.left, rule.right)]
    left = {id(call) for call in _left_calls(rule)}
    given = [one for call, needed in made.needed if id(call) in left for one in needed]
    needs = [one for call, needed in made.needed if id(call) not in left for one in needed]
    definitions = tuple((name, made.expr(value)) for name, value in rule.definitions)
    inputs = tuple(RuleInput(name, (), real=True) for name in names if name not in values)
    found = replace(
        rule,
        inputs=(*rule.inputs, *inputs),
        conditions=tuple(one for one in rule.conditions if one not in own),
        real_values=tuple(values.items()),
        real_conditions=tuple(dict.fromkeys((*conditions, *given))),
        real_needs=tuple(dict.fromkeys(one for one in needs if one not in given)),
        definitions=definitions,
        left=sides[0],
        right=sides[1],
    )
    return found, replace(library, operators={**library.operators, **made.operators})


def _left_calls(rule: RuleDecl) -> Iterator[GraphCall]:
    """The calls of the left side, including those in the definitions that it reads."""
    made = dict(rule.definitions)
    pending, seen = list(rule.left), set[str]()
    while pending:
        for expr in subgraphs([pending.pop()]):
            if isinstance(expr, Name) and expr.name in made and expr.name not in seen:
                seen.add(expr.name)
                pending.append(made[expr.name])
            elif isinstance(expr, GraphCall):
                yield expr


@dataclass
class _Operands:
    """Rewrites calls so that they take real numbers as operands.

    `operators` are the operators made for these calls, under names that no source text can contain. `needed` are the
    conditions of operators on real numbers, per call.
    """

    library: Library
    names: frozenset[str]
    values: Values
    operators: dict[str, OperatorDecl] = field(default_factory=dict)
    known: dict[int, GraphExpr] = field(default_factory=dict)
    needed: list[tuple[GraphCall, tuple[Apply, ...]]] = field(default_factory=list)

    def expr(self, expr: GraphExpr) -> GraphExpr:
        """The expression with its calls rewritten. An expression without such calls is returned as the same object."""
        if id(expr) not in self.known:
            self.known[id(expr)] = self._expr(expr)
        return self.known[id(expr)]

    def _expr(self, expr: GraphExpr) -> GraphExpr:
        match expr:
            case GraphView(operand):
                inner = self.expr(operand)
                return expr if inner is operand else replace(expr, operand=inner)
            case GraphCall(arguments=arguments):
                parts = tuple(map(self.expr, arguments))
                same = all(new is old for new, old in zip(parts, arguments, strict=True))
                return self._call(expr, expr if same else replace(expr, arguments=parts))
        return expr

    def _call(self, written: GraphCall, call: GraphCall) -> GraphCall:
        """The call with real numbers as operands; `written` is the original call in the rule."""
        given = {
            name: substitute(value, self.values)
            for name, value in call.attributes
            if any(part.name in self.names for part in names_in(value))
        }
        if not given:
            return call
        decl = self.library.operators[call.name]
        if isinstance(call.arguments[0], GraphView) and takes_pattern(decl) is not None:
            if len(decl.inputs[0].dims) > 1:
                raise Unsupported(f"a pattern at `{call.name}` with any number as an attribute")
        every: dict[str, Expr] = {one.name: Number(one.default) for one in decl.attributes if one.default is not None}
        every |= dict(call.attributes) | given
        conditions = [one for one in decl.conditions if _named(one) & given.keys()]
        self.needed.append((written, tuple(_comparison(substitute(one, every)) for one in conditions)))
        inside = dict.fromkeys(part.name for value in given.values() for part in names_in(value))
        reals = [name for name in inside if name in self.names]
        sizes = [name for name in inside if name not in self.names]
        name = f"{call.name}({', '.join(f'{name}={expression_text(value)}' for name, value in given.items())})"
        if name not in self.operators:
            self.operators[name] = _reading(decl, given, reals, sizes)
        others = tuple(entry for entry in call.attributes if entry[0] not in given)
        return replace(
            call,
            name=name,
            arguments=(*call.arguments, *map(Name, reals)),
            attributes=(*others, *((f"size {name}", Name(name)) for name in sizes)),
        )


def _reading(decl: OperatorDecl, given: Values, reals: Sequence[str], sizes: Sequence[str]) -> OperatorDecl:
    """The operator with real numbers as operands. Its first statements compute the attributes from them."""
    names: dict[str, Expr] = {name: Read(f"real {name}", ()) for name in reals}
    names |= {name: Name(f"size {name}") for name in sizes}
    computed = tuple(Statement(f"the {name}", (), substitute(value, names)) for name, value in given.items())

    def read(node: Expr) -> Expr:
        named = isinstance(node, Name) and not node.rest and node.name in given
        return Read(f"the {node.name}", (), span=node.span) if named and isinstance(node, Name) else node

    def statements(own: tuple[Statement, ...]) -> tuple[Statement, ...]:
        return (*computed, *(replace(one, value=rewrite(one.value, read)) for one in own)) if own else ()

    kept = tuple(attribute for attribute in decl.attributes if attribute.name not in given)
    return replace(
        decl,
        inputs=(*decl.inputs, *(TensorDecl(f"real {name}", ()) for name in reals)),
        attributes=(*kept, *(AttributeDecl(f"size {name}") for name in sizes)),
        conditions=tuple(one for one in decl.conditions if not _named(one) & given.keys()),
        statements=statements(decl.statements),
        evaluation=statements(decl.evaluation),
        torch=None,
        numpy=None,
    )
