"""Inlines both sides of a rule: every output as a normal form over the shared inputs.

A rest group `b..` of a rule's input is proved at several ranks from 0 on; rest_ranks.py says which suffice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ...index.equations.instance import Instance, Operand
from ...index.equations.term import free_axes, rewrite, walk
from ...index.equations.where_conditions import keys, mentions_rank
from ...index.instantiation.instantiate import Binding, Shape, instantiate, instantiate_parallel
from ...index.instantiation.view_call import takes_pattern
from ...index.library import Library
from ...syntax.ast import Apply, DimDecl, Expr, Name, Number, OperatorDecl, ParallelDecl, Read, Size, Uniform
from ...syntax.diagnostic import InputError, fail, suggest
from ...syntax.parse_rules import GraphCall, GraphExpr, GraphView, RuleDecl, RuleInput
from ...syntax.rational import Rational, exact_number, rational
from ..decision.integer_arithmetic import Arithmetic
from ..functions.fact_laws import laws_of
from ..functions.scalar_functions import Functions
from ..normal_form.form import Unsupported
from ..normal_form.guard import Guard, compare
from ..normal_form.polynomial import ONE, Poly, Var, fresh, number, of, product
from .extern_symbols import ExternSymbols
from .operator_forms import Call, Tensor, input_tensor
from .real_conditions import assuming
from .rule_results import check_results
from .size_assumptions import Claim, without_conditions
from .symbolic_sizes import Factors, Failed, Sizes, arithmetic_value, exactly, factors_of, share, shown, valued

Sized = TypeVar("Sized", OperatorDecl, ParallelDecl)
Ranks = Mapping[str, int]
Views = Mapping[int, Mapping[str, Factors]]
"""The axes that each view (by identity) names, with their factors."""


def claim_of(rule: RuleDecl, *, undivided: bool = False) -> Claim:
    """The sizes of a rule under its conditions, independent of their order. Raises Unsupported and E010."""
    devices = tuple(_device_axes(rule))
    claim = without_conditions(rule, frozenset(devices), undivided=undivided)
    # Products last: other conditions may determine names in them.
    for condition in sorted(rule.conditions, key=_is_of_products):
        claim = claim.assume(condition)
    for name in devices:
        claim.degree(name)  # raises Unsupported for a product
    return replace(claim, conditions=(*claim.conditions, *_positive_sizes(rule, claim)))


def _is_of_products(condition: Apply) -> bool:
    """Whether neither side of a condition is a name or a remainder."""
    remainders = any(isinstance(side, Apply) and side.function == "%" for side in condition.arguments)
    names = any(isinstance(side, Name) for side in condition.arguments)
    return condition.function == "==" and not (remainders or names)


def _positive_sizes(rule: RuleDecl, claim: Claim) -> Iterator[Guard]:
    """Guards that dimensions, integer ranges and device axes are at least 1: `x: [m - 5]` implies m >= 6."""
    sizes = [dim.size for tensor in rule.inputs for dim in tensor.dims if not dim.rest]
    sizes += [tensor.integer_range for tensor in rule.inputs if tensor.integer_range is not None]
    sizes += [Name(p) for p in _device_axes(rule)]
    for size in sizes:
        for factor in claim.factors(size):
            least = compare(">=", factor, number(1))
            if least.verdict is not True:
                yield least


def _device_axes(rule: RuleDecl) -> Iterator[str]:
    """The names of the device axes of inputs and calls."""
    dims = (dim for tensor in rule.inputs for dim in tensor.dims if dim.device)
    yield from (dim.size.name for dim in dims if isinstance(dim.size, Name))
    yield from (p for call in calls(rule) for p in call.degrees or ())


def rest_groups(rule: RuleDecl) -> tuple[str, ...]:
    """The names of the rule's rest groups."""
    dims = [dim for tensor in rule.inputs for dim in tensor.dims if dim.rest]
    return tuple(dict.fromkeys(dim.size.name for dim in dims if isinstance(dim.size, Name)))


@dataclass
class Graph:
    """A rule inlined at given ranks. `witness`: a number for every size; `shapes`: shapes only; `made`: the calls."""

    rule: RuleDecl
    claim: Claim
    library: Library
    ranks: Ranks
    witness: Mapping[str, int]
    arithmetic: Arithmetic
    shapes: bool = False
    tensors: dict[str, Tensor] = field(default_factory=dict)
    views: dict[int, Mapping[str, Factors]] = field(default_factory=dict)
    made: dict[int, Call] = field(default_factory=dict)
    divisions: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.functions = assuming(Functions(laws_of(self.library), self.arithmetic), self.claim)
        self.functions.applications.followed = True
        self.externs = ExternSymbols(self.arithmetic)
        names = (*used_names(self.rule, self.claim, self.ranks), *self.claim.names)
        self.named = {name: self.claim.factors(Name(name)) for name in names}
        for tensor in self.rule.inputs:
            self.tensors[tensor.name] = self._input(tensor)

    def sides(self) -> tuple[list[Tensor], list[Tensor]]:
        """The outputs of both sides. Raises Failed, Unsupported, and InputError for unknown names."""
        for name, expr in self.rule.definitions:
            self.tensors[name] = self.tensor(expr)
        return [self.tensor(expr) for expr in self.rule.left], [self.tensor(expr) for expr in self.rule.right]

    def _input(self, decl: RuleInput) -> Tensor:
        names = [dim.size.name for dim in decl.dims if dim.device and isinstance(dim.size, Name)]
        devices = {name: self.claim.degree(name) for name in names}
        bound = None if decl.integer_range is None else self.claim.size(decl.integer_range)
        tensor = input_tensor(decl.name, devices, input_dims(decl, self.claim, self.ranks), bound)
        return tensor if decl.integer_range is None else replace(tensor, factors=self.claim.factors(decl.integer_range))

    # ------------------------------------------------------------------------------------------ expressions

    def tensor(self, expr: GraphExpr) -> Tensor:
        match expr:
            case Name(name):
                if name not in self.tensors:
                    raise fail("E102", f"unknown tensor `{name}`", expr.span, help=suggest(name, self.tensors))
                return self.tensors[name]
            case GraphView():
                return self._call(GraphCall("rearrange", (expr,), span=expr.span))
            case GraphCall():
                return self._call(expr)
        raise fail("E010", "a number where a tensor is expected", expr.span)

    def _call(self, call: GraphCall) -> Tensor:
        decl = declaration(call, self.library)
        pattern = call_pattern(call, decl)
        inner = (pattern.operand,) if pattern is not None else call.arguments
        operands = [self.tensor(part) for part in inner]
        given = {name: attribute_value(expr, self.claim) for name, expr in call.attributes}
        _check_numbers(call, decl, given)
        degrees: dict[str, str] = {}
        devices = _ambient(call, operands, taken(call, decl))
        if isinstance(decl, ParallelDecl):
            degrees = dict(zip(decl.degrees, call.degrees or (), strict=True))
            operands = [
                _exposed(tensor, part.dims, degrees) for tensor, part in zip(operands, decl.inputs, strict=True)
            ]
            for name in degrees.values():
                if name in devices:
                    raise Failed("same_layout", f"`{call.name}`: there is an axis @{name} already")
        numbers = {name: valued(self.claim.degree(p), self.witness) for name, p in degrees.items()}
        site = _Site(call, decl, given, numbers, self.witness, pattern)
        sizes = Sizes(self.arithmetic, {f"@{name}": factors_of(self.claim.degree(p)) for name, p in degrees.items()})
        if pattern is not None:
            self.views[id(pattern)] = view_axes(pattern, operands[0], self.named)
        instance = site.instance(operands, None if pattern is None else self.views[id(pattern)])
        sizes.attributes |= site.attributes(instance)
        if pattern is None:
            sizes.bind_operands(instance, [[_sizes(dim) for dim in tensor.dims] for tensor in operands])
        else:
            for axis, factors in self.views[id(pattern)].items():
                sizes.bind(axis, factors, "the view")
        _bind_ranges(sizes, instance, operands)
        sizes.solve(instance.operator)
        self.divisions |= dict.fromkeys(sizes.divisions)
        mapped = tuple((name, fresh(self.claim.degree(name))) for name in devices)
        named = {operand.name: tensor for operand, tensor in zip(instance.inputs, operands, strict=True)}
        made = self.made[id(pattern or call)] = Call(instance, named, sizes, mapped, self.functions)
        outputs = made.shapes() if self.shapes else [self.externs.result(made)] if instance.extern else made.run()
        return _hidden(
            outputs[call.result], instance.outputs[call.result], {f"@{name}": p for name, p in degrees.items()}
        )


def call_pattern(call: GraphCall, decl: OperatorDecl | ParallelDecl) -> GraphView | None:
    """The view that names the axes of an operator's only operand; None where a view is an ordinary operand."""
    (first, *others) = call.arguments
    named = isinstance(decl, OperatorDecl) and takes_pattern(decl) is not None
    return first if isinstance(first, GraphView) and not others and named else None


def declaration(call: GraphCall, library: Library) -> OperatorDecl | ParallelDecl:
    """The declaration that a call names. Raises E102 and E120, E125, E212."""
    known: Mapping[str, OperatorDecl | ParallelDecl] = library.operators if call.degrees is None else library.parallels
    if call.name not in known:
        what = "operator" if call.degrees is None else "parallel op"
        raise fail("E102", f"unknown {what} `{call.name}`", call.span, help=suggest(call.name, known))
    decl = known[call.name]
    if len(decl.inputs) != len(call.arguments):
        message = f"`{call.name}` takes {len(decl.inputs)} tensors, {len(call.arguments)} given"
        raise fail("E120", message, call.span)
    if isinstance(decl, ParallelDecl) and len(decl.degrees) != len(call.degrees or ()):
        raise fail("E125", f"`{call.name}` has {len(decl.degrees)} degrees", call.span)
    check_results(call, decl)
    return decl


def taken(call: GraphCall, decl: OperatorDecl | ParallelDecl) -> frozenset[str]:
    """The device axes that a parallel op consumes from its operands. An operator, mapped over all, consumes none."""
    if not isinstance(decl, ParallelDecl):
        return frozenset()
    degrees = dict(zip(decl.degrees, call.degrees or (), strict=True))
    return frozenset(degrees[dim.name] for tensor in decl.inputs for dim in tensor.dims if dim.device)


def attribute_value(expr: Expr, claim: Claim) -> Poly:
    """An attribute as a polynomial: a number with its exact decimal value, or an expression in sizes."""
    match expr:
        case Number(value):
            return number(exact_number(value))
        case Apply("/", (left, right)):
            inverse = attribute_value(right, claim).inverse()
            if inverse is None:
                raise fail("E010", "a quotient of sizes", expr.span)
            return attribute_value(left, claim) * inverse
        case Apply("neg", (inner,)):
            return -attribute_value(inner, claim)
        case Apply("+" | "-" | "*" as function, (left, right)):
            return arithmetic_value(function, [attribute_value(part, claim) for part in (left, right)])
    return claim.size(expr)


def _check_numbers(call: GraphCall, decl: OperatorDecl | ParallelDecl, given: Mapping[str, Poly]) -> None:
    """Raises Unsupported if an attribute on which ranks depend is not a number.

    With `dim=a` the proof would cover only the dimension that the witness assigns to a.
    """
    decided = {name for condition in decl.conditions if mentions_rank(condition) for name in keys(condition)}
    for name, value in given.items():
        if value.constant is None and name in decided:
            raise Unsupported(f"`{name}` of `{call.name}` that is no number")


def input_dims(decl: RuleInput, claim: Claim, ranks: Ranks) -> list[Factors]:
    """The dimensions of an input without device axes. The axes of a group are named `b.0`, `b.1`, …"""
    dims: list[Factors] = []
    for dim in decl.dims:
        if dim.rest and isinstance(dim.size, Name):
            dims += [(of(f"{dim.size.name}.{n}"),) for n in range(ranks[dim.size.name])]
        elif not dim.device:
            dims.append(claim.factors(dim.size))
    return dims


def _sizes(dim: tuple[Var, ...]) -> Factors:
    return tuple(var.size for var in dim)


def _ambient(call: GraphCall, operands: Sequence[Tensor], own: frozenset[str]) -> tuple[str, ...]:
    """The device axes over which a call is mapped: those of its operands, which must agree. Raises Failed."""
    found = [tuple(name for name, _ in tensor.devices if name not in own) for tensor in operands]
    for names in found:
        if set(names) != set(found[0]):
            odd = sorted(set(names) ^ set(found[0]))[0]
            raise Failed("same_layout", f"an operand of `{call.name}` has a device axis @{odd}, another has not")
    return found[0] if found else ()


def _exposed(tensor: Tensor, dims: Sequence[DimDecl], degrees: Mapping[str, str]) -> Tensor:
    """The operand with the device axes that a parallel op consumes as leading dimensions."""
    wanted = [dim.name for dim in dims if dim.device]
    if any(not dim.device for dim in dims[: len(wanted)]):
        raise Unsupported("a device axis that is not the first dimension")
    devices = dict(tensor.devices)
    for name in wanted:
        if degrees[name] not in devices:
            raise Failed("same_layout", f"an operand has no device axis @{degrees[name]}")
    indices = [devices[degrees[name]] for name in wanted]
    leading = tuple((var,) if var.size != ONE else () for var in indices)
    rest = tuple(entry for entry in tensor.devices if entry[0] not in {degrees[name] for name in wanted})
    return replace(tensor, devices=rest, dims=leading + tensor.dims)


def _hidden(tensor: Tensor, output: Operand, devices: Mapping[str, str]) -> Tensor:
    """The result with leading device dimensions turned back into device axes."""
    names = [devices[dim[0]] for dim in output.dims if len(dim) == 1 and dim[0] in devices]
    if any(len(dim) != 1 or dim[0] not in devices for dim in output.dims[: len(names)]):
        raise Unsupported("a device axis that is not the first dimension")
    own = tuple((name, dim[0] if dim else fresh(ONE)) for name, dim in zip(names, tensor.dims, strict=False))
    return replace(tensor, devices=tensor.devices + own, dims=tensor.dims[len(names) :])


def view_axes(view: GraphView, operand: Tensor, named: Mapping[str, Factors]) -> dict[str, Factors]:
    """The axes named by a view, with their factors. Raises Failed."""
    if len(view.source) != len(operand.dims):
        raise Failed("same_shape", f"a view of {len(view.source)} dimensions of a tensor of {len(operand.dims)}")
    pairs = zip(view.source, operand.dims, strict=True)
    return dict(entry for names, dim in pairs for entry in _pattern_axes(names, _sizes(dim), named))


def view_binding(view: GraphView, axes: Mapping[str, Factors], sizes: Mapping[str, int]) -> Binding:
    """A view at numeric sizes."""

    def dims(side: tuple[tuple[str | int, ...], ...]) -> tuple[tuple[tuple[str, int], ...], ...]:
        return tuple(tuple((str(n), known.get(str(n), 0)) for n in names if n != 1) for names in side)

    known = {axis: valued(product(factors), sizes) for axis, factors in axes.items()}
    return Binding(dims(view.source), dims(view.target))


def _pattern_axes(
    names: tuple[str | int, ...], factors: Factors, sizes: Mapping[str, Factors]
) -> Iterator[tuple[str, Factors]]:
    """The axes that a view names in one dimension, each with its factors. Raises Failed and Unsupported.

    If there are as many names as factors, they correspond in order. Otherwise a name that is a size of the rule has
    that size, and one remaining name gets the remaining factors.
    """
    named = [name for name in names if name != 1]
    if len(named) == 1 and isinstance(named[0], str):
        yield named[0], factors
        return
    texts = [name for name in named if isinstance(name, str)]
    if len(texts) != len(named):
        raise Unsupported("a number in a view other than 1")
    if len(named) == len(factors):
        yield from ((name, (factor,)) for name, factor in zip(texts, factors, strict=True))
        return
    known = {name: sizes[name] for name in texts if name in sizes}
    unknown = [name for name in texts if name not in known]
    size, part = product(factors), product(product(own) for own in known.values())
    rest = share(part, size) if len(unknown) <= 1 else None
    if rest is None or (not unknown and rest != ONE):
        written = " ".join(map(str, names))
        raise Failed("divides", f"`({written})` is not known to divide {' * '.join(map(shown, factors)) or '1'}")
    yield from known.items()
    yield from ((name, factors_of(rest)) for name in unknown)


def _bind_ranges(sizes: Sizes, instance: Instance, operands: Sequence[Tensor]) -> None:
    """`int<v>`: binds v to the operand's range; a bound v must be at least that range. Raises Failed."""
    for decl, tensor in zip(instance.operator.inputs, operands, strict=True):
        if decl.integer_range is None or tensor.bound is None:
            continue
        if decl.integer_range not in sizes.dims:
            sizes.dims[decl.integer_range] = tensor.factors or factors_of(tensor.bound)
        limit = product(sizes.dims[decl.integer_range])
        if limit != tensor.bound and not sizes.arithmetic.certain(compare("<=", tensor.bound, limit)):
            raise Failed("in_bounds", f"integers below {shown(tensor.bound)} where they must be below {shown(limit)}")


@dataclass(frozen=True)
class _Site:
    """A call, with its degrees and views at the numbers of the witness."""

    call: GraphCall
    decl: OperatorDecl | ParallelDecl
    given: Mapping[str, Poly]
    degrees: Mapping[str, int]
    witness: Mapping[str, int]
    pattern: GraphView | None

    def instance(self, operands: Sequence[Tensor], view: Mapping[str, Factors] | None) -> Instance:
        """The instance, with attributes that are sizes left symbolic. Raises Failed (same_shape)."""
        shapes = [
            Shape(
                tuple(valued(product(_sizes(dim)), self.witness) for dim in tensor.dims),
                # Parallel ops apply to integers as to floats.
                None
                if tensor.bound is None or isinstance(self.decl, ParallelDecl)
                else valued(tensor.bound, self.witness),
            )
            for tensor in operands
        ]
        numbers = {name: number_of(value, self.witness) for name, value in self.given.items()}
        try:
            if isinstance(self.decl, ParallelDecl):
                parallel = sized_attributes(self.decl, self._symbolic(), numbers)
                return instantiate_parallel(parallel, shapes, self.degrees, numbers, span=self.call.span)
            binding = None
            if self.pattern is not None and view is not None:
                binding = view_binding(self.pattern, view, self.witness)
            operator = sized_attributes(self.decl, self._symbolic(), numbers)
            operator = replace(operator, evaluation=()) if self._symbolic() else operator
            return instantiate(operator, shapes, numbers, binding=binding, span=self.call.span)
        except InputError as error:
            raise Failed("same_shape", error.diagnostic.message) from None

    def _symbolic(self) -> tuple[str, ...]:
        return tuple(name for name, value in self.given.items() if value.constant is None)

    def attributes(self, instance: Instance) -> dict[str, Poly]:
        """Every attribute as a polynomial. A symbolic one, `a`, is also listed as `a'`, its name in the statements."""
        found: dict[str, Poly] = {}
        for name, value in instance.attributes.items():
            symbolic = name in self.given and self.given[name].constant is None
            found[name] = self.given[name] if symbolic else number(exact_number(value))
            if symbolic:
                found[f"{name}'"] = self.given[name]
        return found


def number_of(value: Poly, sizes: Mapping[str, int]) -> Rational:
    """An attribute at numeric sizes."""
    return rational(exactly(value, sizes))


def sized_attributes(decl: Sized, names: tuple[str, ...], at: Mapping[str, Rational]) -> Sized:
    """The declaration with these attributes as sizes in its statements: `start` becomes `|start'|`.

    A condition `start' == start` gives the size its number, so that the instance can check its reads. Only integers
    >= 1 get one; a coefficient, `1 / k`, needs none. Raises Unsupported for an integer below 1 in an index.
    """
    if not names:
        return decl

    def sized(node: Expr) -> Expr:
        return Size(f"{node.name}'", span=node.span) if isinstance(node, Name) and node.name in names else node

    equal = tuple(
        Apply("==", (Name(f"{name}'"), Name(name))) for name in names if isinstance(at[name], int) and at[name] >= 1
    )
    reads = (node for made in decl.statements for node in walk(made.value) if isinstance(node, Read))
    placed = {name for read in reads for part in read.index for name in free_axes(part)}
    for name in names:
        if name in placed and at[name] < 1 and isinstance(at[name], int):
            raise Unsupported(f"`{name}` of `{decl.name}` where it is {at[name]}")
    statements = tuple(replace(made, value=rewrite(made.value, sized)) for made in decl.statements)
    return replace(decl, conditions=decl.conditions + equal, statements=statements)


def used_names(rule: RuleDecl, claim: Claim, ranks: Ranks) -> tuple[str, ...]:
    """The sizes of the rule that its conditions do not determine, in order of appearance."""
    used = [*_sizes_of_inputs(rule, claim, ranks), *(condition.poly for condition in claim.conditions)]
    used += [size for call in calls(rule) for size in _sizes_of_call(call, claim)]
    return _free_names(used)


def attribute_names(rule: RuleDecl, claim: Claim, ranks: Ranks) -> frozenset[str]:
    """The undetermined names that are attributes only: neither a size of a tensor nor a degree."""
    degrees = [claim.degree(p) for call in calls(rule) for p in call.degrees or ()]
    sized = _free_names([*_sizes_of_inputs(rule, claim, ranks), *degrees])
    given = [attribute_value(expr, claim) for call in calls(rule) for _, expr in call.attributes]
    return frozenset(_free_names(given)) - frozenset(sized)


def _sizes_of_inputs(rule: RuleDecl, claim: Claim, ranks: Ranks) -> Iterator[Poly]:
    for tensor in rule.inputs:
        for factors in input_dims(tensor, claim, ranks):
            yield from factors
        if tensor.integer_range is not None:
            yield claim.size(tensor.integer_range)
        yield from (claim.size(dim.size) for dim in tensor.dims if dim.device)


def _sizes_of_call(call: GraphCall, claim: Claim) -> Iterator[Poly]:
    yield from (claim.degree(p) for p in call.degrees or ())
    yield from (attribute_value(expr, claim) for _, expr in call.attributes)


def _free_names(sizes: Iterable[Poly]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(symbol for size in sizes for symbol in size.symbols() if isinstance(symbol, str)))


def views_at(rule: RuleDecl, claim: Claim, library: Library, ranks: Ranks, sizes: Mapping[str, int]) -> Views:
    """The views of a rule whose axes could be determined, even if inlining its sides then fails."""
    graph = Graph(rule, claim, library, ranks, sizes, Arithmetic(claim.conditions))
    with suppress(Failed, Unsupported):
        graph.sides()
    return graph.views


def check_random(rule: RuleDecl, library: Library) -> None:
    """Raises Unsupported if a side calls several random operators, since each call draws its own numbers."""
    for side in (rule.left, rule.right):
        drawn = [call.name for call in calls(replace(rule, left=side, right=())) if draws(declaration(call, library))]
        if len(drawn) > 1:
            raise Unsupported(f"{len(drawn)} random operators on one side")


def draws(decl: OperatorDecl | ParallelDecl) -> bool:
    """Whether an operator is random."""
    return any(isinstance(node, Uniform) for made in decl.statements for node in walk(made.value))


def calls(rule: RuleDecl) -> Iterator[GraphCall]:
    """Every call of a rule."""
    return (expr for expr in expressions(rule) if isinstance(expr, GraphCall))


def views(rule: RuleDecl) -> Iterator[GraphView]:
    """Every view of a rule."""
    return (expr for expr in expressions(rule) if isinstance(expr, GraphView))


def expressions(rule: RuleDecl) -> Iterator[GraphExpr]:
    """Every expression of a rule, parents first."""
    pending: list[GraphExpr] = [*(expr for _, expr in rule.definitions), *rule.left, *rule.right]
    while pending:
        expr = pending.pop(0)
        yield expr
        if isinstance(expr, GraphCall):
            pending += expr.arguments
        elif isinstance(expr, GraphView):
            pending.append(expr.operand)
