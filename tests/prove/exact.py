"""An independent checker: both sides of a rule in exact numbers, from the declarations of its operators.

It shares the parser and the instances (which axes an operator has) with the rest, and no evaluation, no algebra and no
sizes. Device axes are leading indices. Where the left side has a value the right side has to have the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import count, product
from math import prod
from random import Random

from unity_dsl.index.equations.instance import Instance
from unity_dsl.index.instantiation.instantiate import Binding, Shape, instantiate, instantiate_parallel
from unity_dsl.index.library import Library
from unity_dsl.syntax.ast import Apply, Name, OperatorDecl, ParallelDecl, Size
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.parse_rules import GraphCall, GraphExpr, GraphView, RuleDecl, RuleInput

from .exact_numbers import TooLarge, Value, same
from .exact_operator import MAX_STEPS, Elements, NoMeaning, Operation
from .exact_sizes import MAX_ELEMENTS, Dim, Sizes, completed, drawn, number, whole

__all__ = ["Checked", "NoMeaning", "TooLarge", "check", "check_at"]

MEANINGS = 1
"""Instances after a difference that are looked at for a meaning only."""
MISSES = 3
"""So often no sizes may be found that meet the conditions."""


@dataclass(frozen=True)
class Tensor:
    """Elements by (device indices, then one position per dimension)."""

    devices: tuple[str, ...]
    dims: tuple[Dim, ...]
    elements: Elements
    integer_range: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(prod(size for _, size in dim) for dim in self.dims)


@dataclass(frozen=True)
class Found:
    """Where the sides differ. Without a position, their shapes do."""

    sizes: Mapping[str, int]
    output: int
    position: tuple[int, ...]
    left: Value
    right: Value


@dataclass(frozen=True)
class Checked:
    """Instances at which both sides had values and agreed, the first difference, and why an instance has no meaning."""

    agreed: int
    found: Found | None = None
    meaningless: str | None = None


def check(rule: RuleDecl, library: Library, instances: int, seed: int = 0) -> Checked:
    """The rule at so many random instances, up to the first difference, and some more that only need a meaning."""
    agreed, after, without, found, meaningless = 0, 0, 0, None, None
    for attempt in range(seed, seed + 3 * instances):
        sizes = drawn(rule, attempt)
        if sizes is None:
            without += 1
            if without == MISSES:
                break
            continue
        try:
            difference, compared = _Run(rule, _mode(library, attempt), sizes, attempt).difference()
        except TooLarge:
            continue
        except NoMeaning as reason:
            meaningless = f"{reason} at {dict(sizes.numbers)}"
            break
        found = found or difference
        agreed += difference is None and compared > 0
        after += found is not None
        if agreed == instances or after == MEANINGS:
            break
    return Checked(agreed, found, meaningless)


def check_at(rule: RuleDecl, library: Library, sizes: Mapping[str, int], draws: int = 12) -> Found | None:
    """A difference at these sizes, on some random inputs. Raises NoMeaning and TooLarge."""
    at = completed(rule, sizes, 50 * MAX_ELEMENTS)
    refused: TooLarge | None = None
    for seed in range(draws):
        try:
            found, _ = _Run(rule, _mode(library, seed), at, seed, 500 * MAX_STEPS).difference()
        except TooLarge as reason:
            refused = reason
            continue
        if found is not None:
            return found
    if refused is not None:
        raise refused
    return None


def _mode(library: Library, seed: int) -> Library:
    """What operators compute in training or, every third time, outside of it."""
    if seed % 3 != 2:
        return library
    operators = {
        name: replace(decl, statements=decl.evaluation or decl.statements, evaluation=())
        for name, decl in library.operators.items()
    }
    return replace(library, operators=operators)


class _Run:
    """A rule at one instance."""

    def __init__(self, rule: RuleDecl, library: Library, sizes: Sizes, seed: int, max_steps: int = MAX_STEPS) -> None:
        self.rule = rule
        self.library = library
        self.sizes = sizes
        self.seed = seed
        self.max_steps = max_steps
        self.random = Random(f"{rule.name} inputs {seed}")
        self.tensors: dict[str, Tensor] = {}
        self.unnamed = count()

    def difference(self) -> tuple[Found | None, int]:
        """The first difference, and how many elements had a value on the left. Raises NoMeaning."""
        for given in self.rule.inputs:
            self.tensors[given.name] = self._input(given)
        for name, expr in self.rule.definitions:
            self.tensors[name] = self.tensor(expr)
        left = [self.tensor(expr) for expr in self.rule.left]
        right = [self.tensor(expr) for expr in self.rule.right]
        compared = 0
        for output, (first, second) in enumerate(zip(left, right, strict=True)):
            if set(first.devices) != set(second.devices):
                raise NoMeaning("other device axes")
            if first.shape != second.shape:
                sides = (Fraction(len(first.elements)), Fraction(len(second.elements)))
                return Found(self.sizes.numbers, output, (), *sides), 0
            if (first.integer_range is None) != (second.integer_range is None):
                raise NoMeaning("integers on one side only")
            for place, value in _aligned(second, first.devices):
                if first.elements[place] is not None:
                    compared += 1
                    if not same(first.elements[place], value):
                        return Found(self.sizes.numbers, output, place, first.elements[place], value), compared
        return None, compared

    # ------------------------------------------------------------------------------------------ inputs

    def _input(self, given: RuleInput) -> Tensor:
        devices = tuple(dim.size.name for dim in given.dims if dim.device and isinstance(dim.size, Name))
        dims = tuple(self.sizes.dims(given))
        bound = None if given.integer_range is None else whole(given.integer_range, self.sizes.numbers)
        lengths = [*(self.sizes.degree(name)[1] for name in devices), *(prod(s for _, s in dim) for dim in dims)]
        places = product(*map(range, lengths))
        draw = self._float if bound is None else lambda: Fraction(self.random.randrange(bound))
        return Tensor(devices, dims, {place: draw() for place in places}, bound)

    def _float(self) -> Fraction:
        """By turns of any sign; of few whole numbers, with ties; positive; negative; mostly zeros."""
        kind = self.seed // 2 % 5
        match kind:
            case 0:
                return Fraction(self.random.randint(-60, 60), self.random.choice((7, 11, 13, 17, 19)))
            case 1:
                return Fraction(self.random.randint(-2, 2))
            case 4:
                return Fraction(self.random.choice((0, 0, 0, 1, -1)))
        return Fraction(self.random.randint(1, 400), 97 if kind == 2 else -97)

    # ------------------------------------------------------------------------------------------ calls

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
        parallel = call.degrees is not None
        decl = (self.library.parallels if parallel else self.library.operators).get(call.name)
        if decl is None or len(decl.inputs) != len(call.arguments):
            raise NoMeaning("no such operator")
        first = call.arguments[0]
        view = first if isinstance(first, GraphView) and _is_of_groups(decl) else None
        operands = [self.tensor(part) for part in ((view.operand,) if view is not None else call.arguments)]
        degrees: dict[str, str] = {}
        if isinstance(decl, ParallelDecl):
            if len(decl.degrees) != len(call.degrees or ()):
                raise NoMeaning("another number of degrees")
            degrees = dict(zip(decl.degrees, call.degrees or (), strict=True))
        exposed = [[degrees[dim.name] for dim in part.dims if dim.device] if parallel else [] for part in decl.inputs]
        mapped = _mapped(operands, exposed)
        made = [degrees[dim.name] for dim in decl.outputs[0].dims if dim.device] if parallel else []
        if not set(made).isdisjoint(mapped):
            raise NoMeaning("a device axis twice")
        own = [
            tuple((self.sizes.degree(name),) for name in names) + tensor.dims
            for names, tensor in zip(exposed, operands, strict=True)
        ]
        binding = None if view is None else _binding(view, own[0])
        exact = {name: number(value, self.sizes.numbers) for name, value in call.attributes}
        ranges = [None if parallel else tensor.integer_range for tensor in operands]
        shapes = [
            Shape(tuple(prod(s for _, s in dim) for dim in dims), bound)
            for dims, bound in zip(own, ranges, strict=True)
        ]
        given = {name: int(v) if v.denominator == 1 else float(v) for name, v in exact.items()}
        try:
            if isinstance(decl, ParallelDecl):
                sizes = {name: self.sizes.degree(degree)[1] for name, degree in degrees.items()}
                instance = instantiate_parallel(decl, shapes, sizes, given)
            else:
                instance = instantiate(decl, shapes, given, binding=binding)
        except InputError as error:
            raise NoMeaning(error.diagnostic.message) from None
        if len(instance.outputs) != call.results:
            raise NoMeaning("another number of results")
        fractions = {float(value): value for value in exact.values() if value.denominator != 1}
        operation = Operation(instance, self.library, fractions, self.seed, self.max_steps)
        elements: Elements = {}
        for place in product(*(range(self.sizes.degree(name)[1]) for name in mapped)):
            local = [
                _local(tensor, dict(zip(mapped, place, strict=True)), names)
                for tensor, names in zip(operands, exposed, strict=True)
            ]
            elements |= {(*place, *position): value for position, value in operation.run(local, call.result).items()}
        dims = self._result_dims(instance, own, binding is not None and view is not None, view, call.result)
        moved = operands[0].integer_range if parallel else instance.outputs[call.result].integer_range
        return Tensor((*mapped, *made), dims[len(made) :], elements, moved)

    # ------------------------------------------------------------------------------------------ factors

    def _result_dims(
        self, instance: Instance, operands: Sequence[tuple[Dim, ...]], viewed: bool, view: GraphView | None, result: int
    ) -> tuple[Dim, ...]:
        """The factors of the result's dimensions: those of the operands' axes, and what conditions say of others."""
        known: dict[str, Dim] = {}
        if viewed and view is not None:
            known |= _view_factors(view, operands[0])
        else:
            for operand, dims in zip(instance.inputs, operands, strict=True):
                known |= {axes[0]: dim for axes, dim in zip(operand.dims, dims, strict=True) if len(axes) == 1}
        for condition in instance.operator.conditions:
            if isinstance(condition, Apply) and condition.function == "==":
                _split(condition, known)
        return tuple(
            tuple(factor for axis in dim for factor in known.get(axis, self._unknown(axis, instance)))
            for dim in instance.outputs[result].dims
        )

    def _unknown(self, axis: str, instance: Instance) -> Dim:
        return ((f"{axis}#{next(self.unnamed)}", instance.sizes[axis]),)


def _split(condition: Apply, known: dict[str, Dim]) -> None:
    """`d == p * e`: the factors of d are those of p, then those of e."""
    whole_side, parts = condition.arguments
    if not (isinstance(whole_side, Name | Size) and isinstance(parts, Apply) and parts.function == "*"):
        return
    names = [part.name for part in parts.arguments if isinstance(part, Name | Size)]
    if len(names) != 2:
        return
    if whole_side.name not in known and all(name in known for name in names):
        known[whole_side.name] = known[names[0]] + known[names[1]]
    for name, other in (names, names[::-1]):
        if whole_side.name in known and name not in known and other in known:
            left = list(known[whole_side.name])
            if all(factor in left for factor in known[other]):
                for factor in known[other]:
                    left.remove(factor)
                known[name] = tuple(left)


def _is_of_groups(decl: OperatorDecl | ParallelDecl) -> bool:
    """Whether a view as the only operand names the axes of the call: one tensor of groups in, one group out."""
    if not isinstance(decl, OperatorDecl) or len(decl.inputs) != 1 or len(decl.outputs) != 1:
        return False
    (given,), (made,) = decl.inputs, decl.outputs
    return all(dim.rest for dim in given.dims) and len(made.dims) == 1 and made.dims[0].rest


def _mapped(operands: Sequence[Tensor], exposed: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The device axes over which a call is mapped, the same for all operands."""
    found = []
    for tensor, names in zip(operands, exposed, strict=True):
        if not set(names) <= set(tensor.devices):
            raise NoMeaning("no such device axis")
        found.append(tuple(name for name in tensor.devices if name not in names))
    if any(set(names) != set(found[0]) for names in found):
        raise NoMeaning("operands of other device axes")
    return found[0]


def _local(tensor: Tensor, place: Mapping[str, int], exposed: Sequence[str]) -> Elements:
    """The elements on one device, exposed device axes first, in their order."""
    found: Elements = {}
    for index, value in tensor.elements.items():
        devices = dict(zip(tensor.devices, index, strict=False))
        if all(devices[name] == position for name, position in place.items()):
            found[(*(devices[name] for name in exposed), *index[len(tensor.devices) :])] = value
    return found


def _aligned(tensor: Tensor, devices: tuple[str, ...]) -> Iterator[tuple[tuple[int, ...], Value]]:
    """The elements with the device axes in this order."""
    order = [tensor.devices.index(name) for name in devices]
    for index, value in tensor.elements.items():
        yield (*(index[position] for position in order), *index[len(order) :]), value


def _view_factors(view: GraphView, dims: Sequence[Dim]) -> dict[str, Dim]:
    """The factors of the axes that a view names. Raises NoMeaning where a dimension does not have as many."""
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
            raise NoMeaning("a view of other factors")
        if not all(isinstance(name, str) and name not in found for name in named):
            raise NoMeaning("a view that names an axis twice, or a number")
        found |= dict(zip(map(str, named), parts, strict=True))
    return found


def _binding(view: GraphView, dims: Sequence[Dim]) -> Binding:
    known = {name: prod(size for _, size in dim) for name, dim in _view_factors(view, dims).items()}

    def side(pattern: tuple[tuple[str | int, ...], ...]) -> tuple[tuple[tuple[str, int], ...], ...]:
        return tuple(tuple((str(n), known.get(str(n), 0)) for n in names if n != 1) for names in pattern)

    return Binding(side(view.source), side(view.target))
