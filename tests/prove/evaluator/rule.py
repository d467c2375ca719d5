"""Lazy evaluation of both sides of a rule at one instance, element by element.

Device axes are leading indices. A view splits a dimension into the factors from which the rule forms it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import count
from math import prod
from random import Random

from unity_dsl.syntax.ast import Apply, Expr, Name, OperatorDecl, ParallelDecl, Read, Size
from unity_dsl.syntax.parse_rules import GraphCall, GraphExpr, GraphView, RuleDecl, RuleInput

from .extern import ExternFunction
from .operator import Budget, Declarations, Operation
from .reals import real_names
from .shapes import Declaration, Frame, NoMeaning, Pattern, frame
from .sizes import Dim, Factor, Sizes, names_in, number, whole
from .values import Value

Place = tuple[int, ...]
Elements = Callable[[Place], Value]
Source = Callable[[RuleInput, int | None], Elements]
"""Maps an input and its integer bound to the input's elements, indexed by device indices and positions."""


@dataclass(frozen=True)
class Tensor:
    """A lazy tensor whose elements are indexed by device indices, then one position per dimension."""

    devices: tuple[Factor, ...]
    dims: tuple[Dim, ...]
    at: Elements
    integer_range: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.devices)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(prod(size for _, size in dim) for dim in self.dims)

    @property
    def extents(self) -> tuple[int, ...]:
        return (*(size for _, size in self.devices), *self.shape)


class Instance:
    """A rule at given sizes and inputs. `evaluation` selects what operators compute outside training."""

    def __init__(
        self,
        rule: RuleDecl,
        library: Declarations,
        sizes: Sizes,
        source: Source,
        *,
        evaluation: bool = False,
        seed: int = 0,
        budget: int = 6_000,
    ) -> None:
        self.rule = rule
        self.library = library
        self.sizes = sizes
        self.evaluation = evaluation
        self.seed = seed
        self.budget = Budget(budget)
        self.unnamed = count()
        self.reals = real_names(rule, library)
        self.tensors: dict[str, Tensor] = {}
        for given in rule.inputs:
            self.tensors[given.name] = self._input(given, source)
        for name, expr in rule.definitions:
            self.tensors[name] = self.tensor(expr)
        self.left = self._side(rule.left)
        self.right = self._side(rule.right)
        if len(self.left) != len(self.right):
            raise NoMeaning("another number of results on each side")

    def _input(self, given: RuleInput, source: Source) -> Tensor:
        devices = tuple(
            self.sizes.degree(dim.size.name) for dim in given.dims if dim.device and isinstance(dim.size, Name)
        )
        names = tuple(dim.size.name for dim in given.dims if dim.device and isinstance(dim.size, Name))
        devices = tuple((name, size) for name, (_, size) in zip(names, devices, strict=True))
        bound = None if given.integer_range is None else whole(given.integer_range, self.sizes.numbers)
        return Tensor(devices, tuple(self.sizes.dims(given)), source(given, bound), bound)

    # ------------------------------------------------------------------------------------------ calls

    def _side(self, exprs: Sequence[GraphExpr]) -> list[Tensor]:
        """The tensors of a side. A call of an operator with several results stands for all its results."""
        found = []
        for expr in exprs:
            decl = self.library.operators.get(expr.name) if isinstance(expr, GraphCall) else None
            if isinstance(expr, GraphCall) and decl is not None and expr.results == 1 < len(decl.outputs):
                count = len(decl.outputs)
                found += [self.tensor(replace(expr, result=place, results=count)) for place in range(count)]
            else:
                found.append(self.tensor(expr))
        return found

    def tensor(self, expr: GraphExpr) -> Tensor:
        match expr:
            case Name(name) if name in self.tensors:
                return self.tensors[name]
            case GraphView():
                return self._call(GraphCall("rearrange", (expr,), span=expr.span))
            case GraphCall():
                return self._call(expr)
        raise NoMeaning("no tensor")

    def _call(self, call: GraphCall) -> Tensor:
        decl = self._declaration(call)
        parallel = isinstance(decl, ParallelDecl)
        first = call.arguments[0]
        view = first if isinstance(first, GraphView) and _takes_pattern(decl) else None
        operands = [self.tensor(part) for part in ((view.operand,) if view is not None else call.arguments)]
        degrees: dict[str, str] = {}
        if isinstance(decl, ParallelDecl):
            degrees = dict(zip(decl.degrees, call.degrees or (), strict=True))
        exposed = [[degrees[dim.name] for dim in part.dims if dim.device] if parallel else [] for part in decl.inputs]
        mapped = _mapped(operands, exposed)
        result = decl.outputs[call.result]
        made = [degrees[dim.name] for dim in result.dims if dim.device] if parallel else []
        if not set(made).isdisjoint(name for name, _ in mapped):
            raise NoMeaning("a device axis twice")
        own = [
            tuple((self.sizes.degree(name),) for name in names) + tensor.dims
            for names, tensor in zip(exposed, operands, strict=True)
        ]
        undefined = {name for name, value in call.attributes if not self._has_value(value)}
        factors = None if view is None else _view_factors(view, own[0], self.sizes)
        framed = frame(
            decl,
            [tuple(prod(size for _, size in dim) for dim in dims) for dims in own],
            [None if parallel else tensor.integer_range for tensor in operands],
            {name: 1 if name in undefined else number(value, self.sizes.numbers) for name, value in call.attributes},
            {name: self.sizes.degree(degree)[1] for name, degree in degrees.items()},
            None if view is None or factors is None else _pattern(view, factors),
        )
        if undefined:
            framed = replace(framed, attributes={**framed.attributes, **dict.fromkeys(undefined)})  # type: ignore[arg-type]
        run = self._operation(decl, framed, [*zip(operands, exposed, strict=True)], mapped, call.result)
        known: dict[str, Dim] = {f"@{name}": (self.sizes.degree(degree),) for name, degree in degrees.items()}
        dims = self._result_dims(decl, framed, own, known, view, factors, call.result)
        copied = parallel or (view is not None and isinstance(decl.statements[0].value, Read))
        moved = operands[0].integer_range if copied else framed.ranges[call.result]
        devices = (*mapped, *((name, self.sizes.degree(name)[1]) for name in made))
        return Tensor(devices, dims[len(made) :], run, moved)

    def _has_value(self, attribute: Expr) -> bool:
        """False for an attribute over real numbers that divides by 0. Other divisions by 0 raise NoMeaning later."""
        if self.reals.isdisjoint(names_in(attribute)):
            return True
        try:
            number(attribute, self.sizes.numbers)
        except NoMeaning:
            return False
        return True

    def _declaration(self, call: GraphCall) -> Declaration:
        known: Mapping[str, Declaration] = (
            self.library.operators if call.degrees is None else self.library.parallels  # type: ignore[assignment]
        )
        if call.name not in known or len(known[call.name].inputs) != len(call.arguments):
            raise NoMeaning(f"no operator {call.name} of {len(call.arguments)} operands")
        decl = known[call.name]
        if isinstance(decl, ParallelDecl) and len(decl.degrees) != len(call.degrees or ()):
            raise NoMeaning("another number of degrees")
        if len(decl.outputs) != call.results:
            raise NoMeaning(f"{decl.name} has {len(decl.outputs)} results, {call.results} are taken")
        return decl

    def _operation(
        self,
        decl: Declaration,
        framed: Frame,
        operands: Sequence[tuple[Tensor, Sequence[str]]],
        mapped: Sequence[Factor],
        result: int,
    ) -> Elements:
        """The elements of a call's result, computed independently on each device."""
        statements = decl.statements
        if isinstance(decl, OperatorDecl) and self.evaluation and decl.evaluation:
            statements = decl.evaluation
        runs: dict[Place, Elements] = {}
        lead = len(mapped)

        def element(place: Place) -> Value:
            device = place[:lead]
            if device not in runs:
                where = dict(zip((name for name, _ in mapped), device, strict=True))
                inputs = [_local(tensor, where, names) for tensor, names in operands]
                if isinstance(decl, OperatorDecl) and decl.extern:
                    runs[device] = ExternFunction(decl, framed, inputs, result, self.seed)
                else:
                    made = Operation(decl, statements, framed, inputs, self.library, self.budget, self._uniform)
                    runs[device] = partial(made.output, result)
            return runs[device](place[lead:])

        return element

    def _uniform(self, position: int) -> Value:
        """The random number of a position, the same at every call of a random operator."""
        return Fraction(Random(f"{self.seed} {position}").randrange(20), 20)

    # ------------------------------------------------------------------------------------------ factors

    def _result_dims(
        self,
        decl: Declaration,
        framed: Frame,
        operands: Sequence[tuple[Dim, ...]],
        known: dict[str, Dim],
        view: GraphView | None,
        factors: Mapping[str, Dim] | None,
        result: int,
    ) -> tuple[Dim, ...]:
        """The factors of the result's dimensions, from the operands' axes or else from the declaration's conditions."""
        if view is not None and factors is not None:
            return tuple(tuple(f for name in names if name != 1 for f in factors[str(name)]) for names in view.target)
        for layout, dims in zip(framed.inputs, operands, strict=True):
            known |= {layout.axes[axes[0]]: dim for axes, dim in zip(layout.dims, dims, strict=True) if len(axes) == 1}
        for condition in decl.conditions:
            if isinstance(condition, Apply) and condition.function == "==":
                _split(condition, known)
        layout = framed.outputs[result]
        return tuple(
            tuple(factor for axis in dim for factor in self._factors(layout.axes[axis], framed, known))
            for dim in layout.dims
        )

    def _factors(self, axis: str, framed: Frame, known: Mapping[str, Dim]) -> Dim:
        return known[axis] if axis in known else ((f"{axis}#{next(self.unnamed)}", framed.sizes[axis]),)


def _takes_pattern(decl: Declaration) -> bool:
    """Whether a view as the only operand is a pattern that names the axes of the call.

    The operator then has one input made of groups and one output that is a single group.
    """
    if not isinstance(decl, OperatorDecl) or len(decl.inputs) != 1 or len(decl.outputs) != 1:
        return False
    (given,), (made,) = decl.inputs, decl.outputs
    return all(dim.rest for dim in given.dims) and len(made.dims) == 1 and made.dims[0].rest


def _key(expr: object) -> str | None:
    return expr.name if isinstance(expr, Name | Size) else None


def _split(condition: Apply, known: dict[str, Dim]) -> None:
    """Derives factors from a condition `d == p * e`: the factors of p followed by the factors of e make up d."""
    left, right = condition.arguments
    whole_name = _key(left)
    if whole_name is None or not (isinstance(right, Apply) and right.function == "*"):
        return
    names = [_degree(name, known) for name in map(_key, right.arguments) if name is not None]
    if len(names) != 2:
        return
    if whole_name not in known and all(name in known for name in names):
        known[whole_name] = known[names[0]] + known[names[1]]
    for name, other in (names, names[::-1]):
        if whole_name in known and name not in known and other in known:
            left_over = list(known[whole_name])
            if all(factor in left_over for factor in known[other]):
                for factor in known[other]:
                    left_over.remove(factor)
                known[name] = tuple(left_over)


def _degree(name: str, known: Mapping[str, Dim]) -> str:
    """The axis `@p` if the name is a degree `p`, else the name itself."""
    return f"@{name}" if f"@{name}" in known else name


def _mapped(operands: Sequence[Tensor], exposed: Sequence[Sequence[str]]) -> tuple[Factor, ...]:
    """The device axes over which a call is mapped. Raises NoMeaning unless all operands have the same ones."""
    found = []
    for tensor, names in zip(operands, exposed, strict=True):
        if not set(names) <= set(tensor.names):
            raise NoMeaning("no such device axis")
        found.append(tuple(factor for factor in tensor.devices if factor[0] not in names))
    if any(set(names) != set(found[0]) for names in found):
        raise NoMeaning("operands of other device axes")
    return found[0]


def _local(tensor: Tensor, where: Mapping[str, int], exposed: Sequence[str]) -> Elements:
    """The elements of a tensor on one device, indexed by the exposed device axes in their order, then by positions."""
    if not tensor.devices:
        return tensor.at
    order = [(where[name], None) if name in where else (0, exposed.index(name)) for name in tensor.names]
    lead = len(exposed)

    def element(place: Place) -> Value:
        devices = tuple(fixed if source is None else place[source] for fixed, source in order)
        return tensor.at((*devices, *place[lead:]))

    return element


def _view_factors(view: GraphView, dims: Sequence[Dim], sizes: Sizes) -> dict[str, Dim]:
    """The factors of the axes that a view names. Raises NoMeaning if the named axes do not make up the dimensions."""
    if len(view.source) != len(dims):
        raise NoMeaning("a view of another rank")
    found: dict[str, Dim] = {}
    for names, dim in zip(view.source, dims, strict=True):
        named = [name for name in names if name != 1]
        if not named and prod(size for _, size in dim) == 1:
            continue
        if len(named) == 1:
            parts: Sequence[Dim] = [dim]
        elif len(named) == len(dim):
            parts = [(factor,) for factor in dim]
        else:
            parts = _shares(named, prod(size for _, size in dim), sizes)
        if not all(isinstance(name, str) and name not in found for name in named):
            raise NoMeaning("a view that names an axis twice, or a number")
        found |= dict(zip(map(str, named), parts, strict=True))
    if not {str(name) for names in view.target for name in names if name != 1} <= set(found):
        raise NoMeaning("a view that makes axes of nothing")
    return found


def _shares(names: Sequence[str | int], size: int, sizes: Sizes) -> list[Dim]:
    """The factors of a dimension: sizes of the rule as they are, and the remaining quotient for one more name."""
    known = {name: sizes.factors(Name(name)) for name in names if isinstance(name, str) and name in sizes.numbers}
    rest, over = divmod(size, prod(factor for dim in known.values() for _, factor in dim))
    unknown = [name for name in names if name not in known]
    if over or len(unknown) > 1 or (not unknown and rest != 1):
        raise NoMeaning("a view of other factors")
    return [known.get(str(name), ((f"{size}/{rest}", rest),)) for name in names]


def _pattern(view: GraphView, factors: Mapping[str, Dim]) -> Pattern:
    def side(pattern: tuple[tuple[str | int, ...], ...]) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(str(name) for name in names if name != 1) for names in pattern)

    sizes = {name: prod(size for _, size in dim) for name, dim in factors.items()}
    return Pattern(side(view.source), side(view.target), sizes)


def aligned(place: Place, left: Tensor, right: Tensor) -> Place:
    """The place in the right tensor of a place in the left one. Their device axes may be ordered differently."""
    where = dict(zip(left.names, place, strict=False))
    return (*(where[name] for name in right.names), *place[len(left.devices) :])
