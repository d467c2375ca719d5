"""Infers shapes of a rule's tensors: ranks, device axes, and contradictions that hold at all sizes.

Each call is instantiated at numeric sizes, which determines the axes of its result. The sizes in the inferred shapes
are symbolic. A failure that other numbers might avoid is not reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..index.equations.instance import Instance
from ..index.instantiation.instantiate import Binding, Shape, instantiate, instantiate_parallel
from ..index.library import Library
from ..prove.decision.integer_arithmetic import Arithmetic
from ..prove.normal_form.form import Unsupported
from ..prove.normal_form.polynomial import ONE, Poly, number, product
from ..prove.refutation.numeric_run import witness_sizes
from ..prove.translation.real_attributes import with_reals
from ..prove.translation.rule_forms import (
    Ranks,
    attribute_value,
    call_pattern,
    claim_of,
    declaration,
    input_dims,
    number_of,
    rest_groups,
    sized_attributes,
    taken,
    used_names,
    view_binding,
)
from ..prove.translation.size_assumptions import Claim
from ..prove.translation.symbolic_sizes import Factors, Failed, Sizes, factors_of, shown, valued
from ..syntax.ast import Name, Number, OperatorDecl, ParallelDecl, TensorDecl
from ..syntax.diagnostic import InputError, Label, fail
from ..syntax.parse_rules import GraphCall, GraphExpr, GraphView, RuleDecl
from ..syntax.rational import exact_number
from ..syntax.span import Span

USUAL, OTHERS = 1, (2, 0)
"""Ranks of a rest group. The usual rank comes first, so that a fault that occurs at every rank is shown at this one."""
WITNESSES = 6
ALWAYS = frozenset({"E121", "E130"})
"""Error codes of a call that do not depend on sizes."""


def shapes_of(rule: RuleDecl, claim: Claim, library: Library, instances: Instances | None = None) -> Shapes | None:
    """The shapes of a rule's tensors, with one dimension per rest group; None if no sizes are found or they do not fit.

    No operator may have real numbers as attributes: call `with_reals` first. `instances` is a cache that is shared with
    other rules over the same declarations.
    """
    ranks = dict.fromkeys(rest_groups(rule), USUAL)
    for sizes in _witnesses(rule, claim, ranks):
        found = Shapes(rule, claim, library, ranks, sizes, instances=instances)
        try:
            if found.fit():
                return found
        except (Unsupported, InputError):
            continue
    return None


def check_shapes(rule: RuleDecl, library: Library) -> None:
    """Raises E121 to E123, E126, E130, E506 and E507 if no sizes make the rule's operators fit, and E508."""
    try:
        rule, library = with_reals(rule, library)
        claim = claim_of(rule)
        for ranks in _ranks(rule):
            for sizes in _witnesses(rule, claim, ranks):
                if _fits(rule, claim, library, ranks, sizes):
                    break
    except Unsupported:
        return


def _fits(rule: RuleDecl, claim: Claim, library: Library, ranks: Ranks, sizes: Mapping[str, int]) -> bool:
    try:
        return Shapes(rule, claim, library, ranks, sizes).fit()
    except Unsupported:
        return False


def _ranks(rule: RuleDecl) -> Iterator[Ranks]:
    """Rank 1 for all groups, then another rank for each group in turn."""
    usual = dict.fromkeys(rest_groups(rule), USUAL)
    yield usual
    yield from ({**usual, group: rank} for group in usual for rank in OTHERS)


def _witnesses(rule: RuleDecl, claim: Claim, ranks: Ranks) -> Iterator[Mapping[str, int]]:
    """Numeric sizes that meet the conditions: distinct sizes, equal sizes, and some sizes that include 1."""
    names = used_names(rule, claim, ranks)
    for seed in range(WITNESSES):
        equal = dict.fromkeys(names, seed + 1)
        chosen = witness_sizes(claim, names, seed, least=2 if seed < WITNESSES // 2 else 1)
        if chosen is None:
            return  # contradictory conditions are reported by the prover
        yield chosen
        if claim.holds(equal):
            yield equal


Instances = dict[object, Instance]
"""Cache of operators at numeric sizes. The key has everything that they depend on except the declarations."""


class _Unknown(Exception):
    """A shape that is not determined."""


@dataclass(frozen=True)
class TensorShape:
    """The shape of a tensor and its place in the text. The shape has device axes, dimensions as factors, and the bound
    of its integers.
    """

    devices: tuple[str, ...]
    dims: tuple[Factors, ...]
    bound: Poly | None
    span: Span | None

    @property
    def text(self) -> str:
        parts = [f"@{name}" for name in self.devices]
        parts += [" * ".join(_grouped(factor) for factor in dim) or "1" for dim in self.dims]
        integers = "" if self.bound is None else f"int<{shown(self.bound)}>"
        return f"{integers}[{', '.join(parts)}]"


def _grouped(factor: Poly) -> str:
    return shown(factor) if len(factor.terms) == 1 else f"({shown(factor)})"


class _Symbols(Sizes):
    """Symbolic sizes, equal unless they are known to differ."""

    def _equal(self, left: Factors, right: Factors) -> bool:
        return True


def _differ(left: Poly, right: Poly) -> bool:
    """Whether two sizes differ for all values >= 1 of their symbols."""
    signs = {coefficient > 0 for _, coefficient in (left - right).terms}
    plain = all(isinstance(symbol, str) for symbol in (left - right).symbols())
    return plain and len(signs) == 1


@dataclass
class Shapes:
    """Shapes of a rule at given ranks of its groups and numeric sizes. `made` holds the shapes of calls by `id`.

    `instances`, if given, is a cache of operators at numeric sizes that is shared between rules.
    """

    rule: RuleDecl
    claim: Claim
    library: Library
    ranks: Ranks
    sizes: Mapping[str, int]
    tensors: dict[str, TensorShape] = field(default_factory=dict)
    made: dict[int, TensorShape] = field(default_factory=dict)
    instances: Instances | None = None

    def fit(self) -> bool:
        """Whether the rule is well shaped at these sizes. Raises InputError if it is well shaped at no sizes."""
        complete = True
        for tensor in self.rule.inputs:
            devices = tuple(dim.size.name for dim in tensor.dims if dim.device and isinstance(dim.size, Name))
            bound = None if tensor.integer_range is None else self.claim.size(tensor.integer_range)
            dims = tuple(input_dims(tensor, self.claim, self.ranks))
            self.tensors[tensor.name] = TensorShape(devices, dims, bound, tensor.span)
        for name, expr in self.rule.definitions:
            value = self._known(expr)
            complete = complete and value is not None
            if value is not None:
                self.tensors[name] = value
        for left, right in zip(self.rule.left, self.rule.right, strict=True):
            first, second = self._known(left), self._known(right)
            complete = complete and first is not None and second is not None
            if first is not None and second is not None:
                self._compare(first, second, right)
        return complete

    def _known(self, expr: GraphExpr) -> TensorShape | None:
        try:
            return self.value(expr)
        except _Unknown:
            return None

    def _compare(self, left: TensorShape, right: TensorShape, place: GraphExpr) -> None:
        notes = [] if left.span is None else [Label(left.span, f"this has shape {left.text}")]
        if (left.bound is None) != (right.bound is None):
            message = "one side holds integers, the other floats"
        elif len(left.dims) != len(right.dims):
            message = f"the right side has rank {len(right.dims)}, the left side {len(left.dims)}"
        else:
            return
        label = f"this has shape {right.text}"
        raise fail("E507", message, place.span, label=label, help=self.where(), notes=notes)

    def where(self) -> str:
        """The ranks for diagnostics, if they differ from the usual ones."""
        odd = [(name, rank) for name, rank in self.ranks.items() if rank != USUAL]
        parts = [f"`{name}..` for {rank or 'none'}" for name, rank in odd]
        return f"a group stands for any number of dimensions; here {', '.join(parts)}" if parts else ""

    # ------------------------------------------------------------------------------------------ calls

    def value(self, expr: GraphExpr) -> TensorShape:
        match expr:
            case Name(name):
                if name not in self.tensors:
                    raise _Unknown
                known = self.tensors[name]
                return TensorShape(known.devices, known.dims, known.bound, expr.span)
            case GraphView() | GraphCall():
                if id(expr) not in self.made:
                    whole = GraphCall("rearrange", (expr,), span=expr.span) if isinstance(expr, GraphView) else expr
                    self.made[id(expr)] = self._call(whole)
                return self.made[id(expr)]
        raise TypeError("a number is no tensor")

    def _call(self, call: GraphCall) -> TensorShape:
        decl = declaration(call, self.library)
        pattern = call_pattern(call, decl)
        operands = [self.value(part) for part in ((pattern.operand,) if pattern is not None else call.arguments)]
        own = taken(call, decl)
        devices = self._mapped(call, operands, own)
        degrees: dict[str, str] = {}
        if isinstance(decl, ParallelDecl):
            degrees = dict(zip(decl.degrees, call.degrees or (), strict=True))
            self._check_free(call, devices, degrees)
            operands = [
                self._exposed(call, operand, part, degrees) for operand, part in zip(operands, decl.inputs, strict=True)
            ]
        else:
            self._check_kinds(call, decl, operands)
        site = _Site(self, call, decl, operands, pattern, degrees)
        dims, bound = site.result()
        made = [degrees[dim.name] for dim in decl.outputs[call.result].dims if dim.device] if degrees else []
        if isinstance(decl, ParallelDecl):
            bound = operands[0].bound
        return TensorShape((*devices, *made), dims[len(made) :], bound, call.span)

    def _mapped(self, call: GraphCall, operands: list[TensorShape], own: frozenset[str]) -> tuple[str, ...]:
        """The device axes over which a call is mapped. Raises E506 if its operands have different device axes."""
        found = [tuple(name for name in operand.devices if name not in own) for operand in operands]
        for operand, names in zip(operands, found, strict=True):
            if set(names) != set(found[0]):
                odd = sorted(set(names) ^ set(found[0]))[0]
                having, lacking = (operand, operands[0]) if odd in names else (operands[0], operand)
                notes = [] if having.span is None else [Label(having.span, f"this has the device axis `@{odd}`")]
                message = f"an operand of `{call.name}` has the device axis `@{odd}`, another has not"
                help = f"give each device its copy, `replicate[{odd}](…)`, or its part, `partition[{odd}; dim=…](…)`"
                raise fail("E506", message, lacking.span, label=f"this has no axis `@{odd}`", help=help, notes=notes)
        return found[0]

    def _check_free(self, call: GraphCall, devices: tuple[str, ...], degrees: Mapping[str, str]) -> None:
        for name in degrees.values():
            if name in devices:
                message = f"the operand of `{call.name}` has a device axis `@{name}` already"
                raise fail("E506", message, call.span, help="axes over different devices have different names")

    def _exposed(
        self, call: GraphCall, value: TensorShape, part: TensorDecl, degrees: Mapping[str, str]
    ) -> TensorShape:
        """The operand with the device axes that a parallel op consumes as its leading dimensions.

        Raises E506 if one is missing.
        """
        wanted = [degrees[dim.name] for dim in part.dims if dim.device]
        for name in wanted:
            if name not in value.devices:
                axes = ", ".join(f"`@{axis}`" for axis in value.devices) or "none"
                message = f"`{call.name}` takes the device axis `@{name}` away, which its operand does not have"
                raise fail("E506", message, value.span, label=f"its device axes: {axes}")
        leading = tuple(factors_of(self.claim.degree(name)) for name in wanted)
        rest = tuple(name for name in value.devices if name not in wanted)
        return TensorShape(rest, leading + value.dims, value.bound, value.span)

    def _check_kinds(self, call: GraphCall, decl: OperatorDecl, operands: list[TensorShape]) -> None:
        for part, operand in zip(decl.inputs, operands, strict=True):
            if (part.integer_range is None) != (operand.bound is None):
                wanted = "floats" if part.integer_range is None else "integers"
                message = f"`{part.name}` of `{call.name}` holds {wanted}"
                notes = [] if decl.span is None else [Label(decl.span, "declared here")]
                raise fail("E123", message, operand.span, label=f"this is {operand.text}", notes=notes)


@dataclass
class _Site:
    """A call at numeric and at symbolic sizes."""

    shapes: Shapes
    call: GraphCall
    decl: OperatorDecl | ParallelDecl
    operands: list[TensorShape]
    pattern: GraphView | None
    degrees: Mapping[str, str]

    def result(self) -> tuple[tuple[Factors, ...], Poly | None]:
        """The dimensions of the result and the bound of its integers. Raises _Unknown, and InputError."""
        claim = self.shapes.claim
        given = {name: attribute_value(expr, claim) for name, expr in self.call.attributes}
        axes = None if self.pattern is None else self._view_axes(self.pattern)
        instance = self._instance(given, axes)
        # No solver queries: sizes are treated as equal unless they are known to differ.
        degrees = {f"@{name}": factors_of(claim.degree(p)) for name, p in self.degrees.items()}
        symbols = _Symbols(Arithmetic(claim.conditions), degrees)
        symbols.attributes |= {name: number(exact_number(value)) for name, value in instance.attributes.items()}
        symbols.attributes |= given | {f"{name}'": value for name, value in given.items()}
        try:
            if axes is not None:
                for axis, factors in axes.items():
                    symbols.bind(axis, factors, "")
            else:
                symbols.bind_operands(instance, [operand.dims for operand in self.operands])
            symbols.solve(instance.operator, assumed=True)
        except Failed:
            raise _Unknown from None
        output = instance.outputs[self.call.result]
        try:
            dims = tuple(tuple(f for axis in dim for f in symbols.dims[axis]) for dim in output.dims)
        except KeyError:
            raise _Unknown from None
        declared = instance.operator.outputs[self.call.result].integer_range
        return dims, None if declared is None else symbols.size(Name(declared))

    def _view_axes(self, view: GraphView) -> dict[str, Factors]:
        """The axes of a view with their factors. Raises E130 and _Unknown."""
        (operand,) = self.operands
        if len(view.source) != len(operand.dims):
            message = f"the pattern names {len(view.source)} dimensions, the tensor has rank {len(operand.dims)}"
            raise self._fault("E130", message, view.span)
        axes: dict[str, Factors] = {}
        for names, factors in zip(view.source, operand.dims, strict=True):
            named = [name for name in names if name != 1]
            parts = [factors] if len(named) == 1 else [(factor,) for factor in factors]
            if not named and _differ(product(factors), ONE):
                message = f"the pattern has 1 for a dimension of size {shown(product(factors))}"
                raise self._fault("E130", message, view.span)
            if len(named) != len(parts) or not all(isinstance(name, str) for name in named):
                raise _Unknown
            for name, part in zip(named, parts, strict=True):
                if name in axes:
                    raise self._fault("E130", f"axis `{name}` occurs twice on the left of the pattern", view.span)
                axes[str(name)] = part
        return axes

    def _fault(self, code: str, message: str, span: Span | None) -> InputError:
        notes = [
            Label(operand.span, f"this has shape {operand.text}")
            for operand in self.operands
            if operand.span is not None
        ]
        return fail(code, message, span, help=self.shapes.where(), notes=notes)

    def _instance(self, given: Mapping[str, Poly], axes: Mapping[str, Factors] | None) -> Instance:
        """The instance at numbers. Raises InputError if no other numbers would fit, else _Unknown."""
        sizes = self.shapes.sizes
        moves = isinstance(self.decl, ParallelDecl)
        shapes = [
            Shape(
                tuple(valued(product(dim), sizes) for dim in operand.dims),
                None if moves or operand.bound is None else valued(operand.bound, sizes),
                operand.span,
                operand.text,
            )
            for operand in self.operands
        ]
        numbers = {name: number_of(value, sizes) for name, value in given.items()}
        degrees = {name: valued(self.shapes.claim.degree(p), sizes) for name, p in self.degrees.items()}
        symbolic = tuple(name for name, value in given.items() if value.constant is None)
        binding = self._binding(axes)
        kept = self.shapes.instances
        dims = tuple((shape.dims, shape.integer_range) for shape in shapes)
        key = (self.decl.name, moves, dims, tuple(numbers.items()), tuple(degrees.items()), symbolic, binding)
        if kept is not None and key in kept:
            return kept[key]
        try:
            if isinstance(self.decl, ParallelDecl):
                found = instantiate_parallel(self.decl, shapes, degrees, numbers, span=self.call.span)
            else:
                operator = sized_attributes(self.decl, symbolic, numbers)
                found = instantiate(operator, shapes, numbers, binding=binding, span=self.call.span)
            if kept is not None:
                kept[key] = found
            return found
        except Unsupported:
            raise _Unknown from None
        except InputError as error:
            fault = error.diagnostic
            constant = all(isinstance(value, Number) for _, value in self.call.attributes)
            if fault.code in ALWAYS or (fault.code == "E126" and constant):
                raise fail(
                    fault.code, fault.message, fault.span, help=fault.help or self.shapes.where(), notes=fault.notes
                ) from None
            if fault.code == "E122":
                self._check_sizes()
            raise _Unknown from None

    def _binding(self, axes: Mapping[str, Factors] | None) -> Binding | None:
        if self.pattern is None or axes is None:
            return None
        return view_binding(self.pattern, axes, self.shapes.sizes)

    def _check_sizes(self) -> None:
        """Raises E122 if two sizes that must be equal differ for all values of their symbols."""
        seen: dict[str, tuple[Poly, TensorDecl]] = {}
        for part, operand in zip(self.decl.inputs, self.operands, strict=True):
            for axis, size, broadcast in _axes(part, operand):
                known, first = seen.setdefault(axis, (size, part))
                if not _differ(known, size) or (broadcast and not (_differ(known, ONE) and _differ(size, ONE))):
                    continue
                name = "a dimension" if broadcast or "." in axis else f"`{axis}`"
                message = (
                    f"{name} of `{self.call.name}` has size {shown(known)} in `{first.name}`, "
                    f"but {shown(size)} in `{part.name}`"
                )
                raise self._fault("E122", message, self.call.span)


def _axes(part: TensorDecl, operand: TensorShape) -> Iterator[tuple[str, Poly, bool]]:
    """The axes of an operand, each with its size and whether it broadcasts. Axes of a group are named by their position
    in it.
    """
    groups = [dim for dim in part.dims if dim.rest]
    if len(groups) > 1 or part.merged:
        return  # the attributes decide which axes belong to which group
    rank = len(operand.dims) - (len(part.dims) - len(groups))
    position = 0
    for dim in part.dims:
        for place in range(rank if dim.rest else 1):
            # A broadcasting group is aligned on the right.
            axis = f"{dim.name}.{place - rank if dim.broadcast else place}" if dim.rest else dim.name
            yield axis, product(operand.dims[position]), dim.broadcast
            position += 1
