"""The typing rule of operators: the operand layouts that a configuration needs, and the layouts of its results.

Each mesh axis has exactly one of these roles; integers are Invariant in place of Replicate:

- all operands and results are Invariant, or all are Replicate;
- the devices of one coordinate compute the operator alone: operands are At it, or Replicate, of which one copy is
  used; results are At it;
- the mesh axis divides an axis of the operator. Operands that have the axis are Shard. The others are Replicate if
  every equation that reads them runs over the axis, else Invariant. A result that has the axis is Shard, one that sums
  over it Partial. An operand that is read around the axis is a Window, held by a declared op that gives every device
  all it reads;
- a set of operands in which the operator is jointly homogeneous-linear is Partial, the others are Replicate, the
  results Partial.

No other rule mixes Invariant with another kind. This keeps a redundant computation from contributing twice.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from ..cached_hash import cached_hash
from ..index.axes.axis_classes import AxisKind, classify, gradient_free, linear_operands, local_native
from ..index.equations.instance import Equation, Instance, Key, Operand
from ..index.library import Library
from ..index.lowering.division import InnerCollective, InnerReduce, InnerReplicate
from ..index.lowering.standardisation import with_moments
from ..syntax.ast import ReductionKind
from .declared_slices import is_cut, why_no_cut
from .halo import HaloFinder, Halos, divides_merged, is_halo_op, why_not_dealt
from .layout import PARTITION, At, Invariant, Kind, Layout, Mesh, Partial, Replicate, Shard
from .local_operator import LocalOperator
from .operand_layouts import Effect, dim_of, place, placements, read_names, sliced
from .placed_operators import Placed


@dataclass(frozen=True, order=True)
class Uniformly:
    """Every operand and result is Invariant, or every one is Replicate."""

    kind: Invariant | Replicate

    def __str__(self) -> str:
        return str(self.kind)


@cached_hash
@dataclass(frozen=True, order=True)
class Along:
    """The mesh axis divides this axis of the operator; `by` names the parallel op that cuts the slices.

    If that op cannot cut the axis itself, `partition` does. The op then holds the dimensions that are read around the
    axis or merge it with a major one.
    """

    axis: str
    by: str = PARTITION

    def __str__(self) -> str:
        return self.axis if self.by == PARTITION else f"{self.by}({self.axis})"


@dataclass(frozen=True, order=True)
class Linearly:
    """These operands (by position) are Partial and pass through."""

    operands: tuple[int, ...]

    def __str__(self) -> str:
        return f"P{','.join(map(str, self.operands))}"


Role = Uniformly | Along | Linearly | Placed
Configuration = tuple[Role, ...]
"""One role per mesh axis."""


@dataclass(frozen=True, kw_only=True)
class TypedOperator(LocalOperator):
    """An operator under a configuration, with the layouts of its operands."""

    configuration: Configuration
    arguments: tuple[Layout, ...]
    results: tuple[Layout, ...]


@dataclass(frozen=True)
class DividedOperator:
    """The part of a typed operator that depends only on the divided axes. Equal divisions share one object."""

    local: LocalOperator
    holding: Halos
    sliced: frozenset[tuple[str, int]]

    @cached_property
    def beside_kinds(self) -> Hashable:
        """What layouts depend on besides kinds: which windows are plain slices, and the ops of merged dimensions."""
        return (self.sliced, *self.holding.merged.items()) if self.sliced or self.holding.merged else None


@dataclass(frozen=True)
class _Slicing:
    """The part of a divided operator that depends on mesh axes only through their degrees. `callable` says whether the
    declaration's torch call may be run on the slices.
    """

    sizes: Mapping[str, int]
    holding: Halos
    sliced: frozenset[tuple[str, int]]
    callable: bool


@dataclass(frozen=True)
class _Found:
    """Cached facts about an instance that hold on any mesh. `native_along` are the axes whose slices may be given to
    the torch call, `reading` the names of the tensors that each equation reads.
    """

    native_along: frozenset[str]
    reading: tuple[tuple[str, ...], ...]
    reasons: dict[tuple[Role, int], str | None] = field(default_factory=dict)
    replicated: dict[tuple[Role, int], frozenset[str]] = field(default_factory=dict)
    effects: dict[Role, Effect] = field(default_factory=dict)
    slicings: dict[Hashable, _Slicing | str] = field(default_factory=dict)


@lru_cache(maxsize=4096)
def _found(identity: Key, library: Library) -> _Found:
    instance = identity.instance
    native = (axis for axis in classify(instance, library) if local_native(instance, library, (axis,)))
    return _Found(frozenset(native), tuple(read_names(equation) for equation in instance.equations))


class Typing:
    """The typing rule of one instance on one mesh. What several configurations share is computed once."""

    def __init__(self, instance: Instance, mesh: Mesh, library: Library) -> None:
        self.instance = instance
        self.mesh = mesh
        self.library = library
        self.operands: tuple[Operand, ...] = (*instance.inputs, *instance.outputs)
        self._merged = [(operand, dim) for operand in self.operands for dim in operand.dims if len(dim) > 1]
        self.classes = classify(instance, library)
        self.finder = HaloFinder(instance, mesh, library)
        self.degrees = mesh.degrees
        self.linear = linear_operands(instance)
        self.detached = gradient_free(instance)
        self.always_native = local_native(instance, library, ())
        self.outputs = {output.name for output in instance.outputs}
        self._found = _found(instance.identity, library)
        self._divisions: dict[tuple[int, ...], DividedOperator | str] = {}
        self.placements = placements(instance.kind)

    # ------------------------------------------------------------------------------------------ one axis

    def blocked(self, role: Role, axis: int) -> str | None:
        """Why a mesh axis cannot have a role, in words; None if it can."""
        key, reasons = (role, self.mesh.axes[axis].degree), self._found.reasons
        if key not in reasons:
            reasons[key] = self._find_reason(role, key[1])
        return reasons[key]

    def _find_reason(self, role: Role, degree: int) -> str | None:
        match role:
            case Placed(coordinate=coordinate) if coordinate >= degree:
                return f"of {degree} devices none has the coordinate {coordinate}"
            case Linearly(operands=operands) if operands not in self.linear:
                return f"{self.instance.name} is not jointly linear in these operands"
            case Along(axis=name, by=by):
                found = self.classes.get(name)
                if found is None:
                    return f"{self.instance.name} has no axis `{name}`"
                declaration = self.library.parallels.get(by)
                if declaration is None:
                    return f"there is no parallel op `{by}`"
                if (reason := why_no_cut(declaration)) is not None:
                    return reason
                if found.kind is AxisKind.DECLARED and by != PARTITION:
                    return f"axis `{name}` of {self.instance.name} is declared for slices by {PARTITION} only"
                holds = is_halo_op(declaration)
                if holds and name in self.finder.windowed:
                    return self.finder.missing_halo(name, by, degree)
                if found.kind is AxisKind.BLOCKED:
                    return f"axis `{name}` of {self.instance.name} cannot be divided: {found.reason}"
                merged = any(name in dim[1:] for _, dim in self._merged)
                size = self.instance.sizes[name]
                if holds and not (merged and divides_merged(declaration, degree)):
                    why = why_not_dealt(declaration, degree, size)
                    return f"axis `{name}` of {self.instance.name} needs nothing that `{by}` holds: {why}"
                if size % degree:
                    return f"{degree} devices do not divide axis `{name}` of {size}"
                return None if holds else self._why_not_dealt(name, by, degree, size)
        return None

    def _why_not_dealt(self, axis: str, by: str, degree: int, size: int) -> str | None:
        """Why an op does not put each of `size` positions of an axis on exactly one device; None if it does."""
        if by == PARTITION:
            return None
        why = why_not_dealt(self.library.parallels[by], degree, size)
        return None if why is None else f"axis `{axis}` of {self.instance.name} cannot be cut: {why}"

    def operand_kind(self, role: Role, operand: Operand, position: int) -> Kind:
        """The kind of an input along a mesh axis with this role; a Shard's place is left at 0."""
        match role:
            case Uniformly(kind=kind):
                return kind if operand.integer_range is None else Invariant()
            case Placed(coordinate=coordinate, there=there) if position in there:
                return At(coordinate)
            case Placed():
                return Replicate() if operand.integer_range is None else Invariant()
            case Linearly(operands=operands):
                if operand.integer_range is not None:
                    return Invariant()
                return Partial() if position in operands else Replicate()
            case Along(axis=axis):
                if (window := self.finder.window(role.axis, role.by, operand)) is not None:
                    return window
                if (dim := dim_of(operand, axis)) is not None:
                    return Shard(dim, by=self.finder.cut_by(role.by))
                if operand.integer_range is not None:
                    return Invariant()
                readers = [
                    equation
                    for equation, names in zip(self.instance.equations, self._found.reading, strict=True)
                    if operand.name in names
                ]
                alone = bool(readers) and all(axis in equation.space for equation in readers)
                return Replicate() if alone else Invariant()

    def result_kind(self, role: Role, output: Operand) -> Kind:
        match role:
            case Uniformly(kind=kind):
                return kind if output.integer_range is None else Invariant()
            case Placed(coordinate=coordinate):
                return At(coordinate)
            case Linearly():
                return Partial()
            case Along(axis=axis):
                if (dim := dim_of(output, axis)) is not None:
                    return Shard(dim, by=self.finder.cut_by(role.by))
                if output.integer_range is not None:
                    return Invariant()
                equation = self.equation_of(output.name)
                return Partial() if axis in equation.over and equation.kind is ReductionKind.SUM else Invariant()

    def equation_of(self, name: str) -> Equation:
        return next(e for e in self.instance.equations if e.target.name == name)

    # ------------------------------------------------------------------------------------------ all axes

    def type(self, configuration: Configuration) -> TypedOperator | str:
        """The operator under a configuration, or the reason why there is none."""
        for axis, role in enumerate(configuration):
            if (reason := self.blocked(role, axis)) is not None:
                return reason
        return self.type_unblocked(configuration)

    def type_unblocked(self, configuration: Configuration) -> TypedOperator | str:
        """Like `type`, for roles that are known not to be blocked."""
        effects = [self.effect(role) for role in configuration]
        division = self.division(configuration, effects)
        if isinstance(division, str):
            return division
        layouts = tuple(self.layout(place, effects, division) for place in range(len(self.operands)))
        return typed_operator(division.local, configuration, layouts, len(self.instance.inputs))

    def effect(self, role: Role) -> Effect:
        effects = self._found.effects
        if (found := effects.get(role)) is None:
            given = [self.operand_kind(role, operand, i) for i, operand in enumerate(self.instance.inputs)]
            kinds = (*given, *(self.result_kind(role, output) for output in self.instance.outputs))
            numbers = []
            for kind, placed in zip(kinds, self.placements, strict=True):
                numbers.append(placed.number(kind, role.axis if isinstance(role, Along) else ""))
            along = 1 + len(effects) if isinstance(role, Along) else 0
            found = effects[role] = Effect(kinds, tuple(numbers), along, self._collects(role))
        return found

    def division(self, configuration: Configuration, effects: Sequence[Effect]) -> DividedOperator | str:
        """What follows from the divided axes alone, or the reason why they cannot be divided in this way."""
        key = tuple([effect.along for effect in effects])
        if (division := self._divisions.get(key)) is None:
            division = self._divisions[key] = self._divide(configuration, effects)
        return division

    def _divide(self, configuration: Configuration, effects: Sequence[Effect]) -> DividedOperator | str:
        divided: dict[str, tuple[int, ...]] = {}
        cuts: dict[int, str] = {}
        for axis, role in enumerate(configuration):
            if isinstance(role, Along):
                divided[role.axis] = (*divided.get(role.axis, ()), axis)
                cuts[axis] = self.finder.cut_by(role.by)
        found = self._slicing(configuration, effects, divided, cuts)
        if isinstance(found, str):
            return found
        inner, windows = self._inner(configuration, effects), found.holding.windows
        if windows and inner:
            return f"{self.instance.name} reduces on the way what is read around axis `{windows[0].axis}`"
        if len(windows) > 1:
            windows = tuple(sorted(windows, key=lambda window: [*divided].index(window.axis)))
        local = LocalOperator(found.sizes, divided, inner, found.callable and not inner, windows, cuts)
        return DividedOperator(local, found.holding, found.sliced)

    def _slicing(
        self,
        configuration: Configuration,
        effects: Sequence[Effect],
        divided: Mapping[str, tuple[int, ...]],
        cuts: Mapping[int, str],
    ) -> _Slicing | str:
        """The slicing, cached for all meshes unless an op holds a merged dimension along one of the mesh axes. A reason
        against it may be one of several and is cached for each order of the axes.
        """
        known, degrees = self._found.slicings, self.degrees
        ordered = tuple([tuple([(effects[axis].along, degrees[axis]) for axis in axes]) for axes in divided.values()])
        if (found := known.get(alike := frozenset(ordered)) or known.get(ordered)) is None:
            found = self._slice(configuration, divided, cuts)
            if isinstance(found, str):
                known[ordered] = found
            elif not found.holding.merged:
                known[alike] = found
        return found

    def _slice(
        self, configuration: Configuration, divided: Mapping[str, tuple[int, ...]], cuts: Mapping[int, str]
    ) -> _Slicing | str:
        local = dict(self.instance.sizes)
        for name, axes in divided.items():
            degree = self.mesh.degree(axes)
            if local[name] % degree:
                return f"{degree} devices do not divide axis `{name}` of {local[name]}"
            for axis in axes:
                if (reason := self._why_not_dealt(name, cuts[axis], self.degrees[axis], local[name])) is not None:
                    return reason
                local[name] //= self.degrees[axis]
        if (reason := self._unmerged(configuration, divided, local)) is not None:
            return reason
        holding = self.finder.hold(_held_by(configuration), divided, local)
        if isinstance(holding, str):
            return holding
        local |= holding.sizes(self.instance)
        native = self.always_native and self._found.native_along.issuperset(divided)
        native = native and not holding.windows and all(by == PARTITION for by in cuts.values())
        return _Slicing(local, holding, sliced(self.instance, holding, divided, self.mesh), native)

    def _unmerged(
        self,
        configuration: Configuration,
        divided: Mapping[str, tuple[int, ...]],
        local: Mapping[str, int],
    ) -> str | None:
        """Why a merged dimension cannot be divided in this way; None if it can. It is divided major factor first, into
        blocks, unless an op holds it.
        """
        if not self._merged:
            return None
        held = {
            role.axis for role in configuration if isinstance(role, Along) and self.finder.cut_by(role.by) != role.by
        }
        for operand, dim in self._merged:
            cuts = {self.finder.cut_by(r.by) for r in configuration if isinstance(r, Along) and r.axis in dim}
            if cuts - {PARTITION}:
                return f"a merged dimension of {self.instance.name} is cut by partition only"
            for position, name in enumerate(dim[1:], 1):
                if name not in divided or name in held:
                    continue
                left = [major for major in dim[:position] if local[major] > 1]
                if left:
                    return (
                        f"axis `{name}` is merged with `{left[0]}` in {operand.name} of {self.instance.name}: "
                        f"`{left[0]}` has to be divided entirely first"
                    )
        return None

    def layout(self, position: int, effects: Sequence[Effect], division: DividedOperator) -> Layout:
        """The layout of an operand or a result, in the order of `operands`."""
        known = self.placements[position].layouts
        key = *[effect.numbers[position] for effect in effects], division.beside_kinds
        if (found := known.get(key)) is None:
            kinds = [effect.kinds[position] for effect in effects]
            found = known[key] = place(
                kinds, self.operands[position], division.local.divided, division.holding, division.sliced
            )
        return found

    def _inner(self, configuration: Configuration, effects: Sequence[Effect]) -> tuple[InnerCollective, ...]:
        numbers = sorted({number for effect in effects for number in effect.collects})
        return with_moments(self.instance, [one for n in numbers for one in self._of_equation(n, configuration)])

    def _collects(self, role: Role) -> frozenset[int]:
        every = range(len(self.instance.equations))
        return frozenset(number for number in every if any(self._of_equation(number, (role,))))

    def _of_equation(self, number: int, configuration: Configuration) -> Iterator[InnerReduce | InnerReplicate]:
        equation = self.instance.equations[number]
        for name, axes in self._replicated(number, configuration).items():
            if name not in self.detached:
                yield InnerReplicate(number, name, axes)
        reduced = tuple(
            axis
            for axis, role in enumerate(configuration)
            if isinstance(role, Along)
            and role.axis in equation.over
            and not (equation.target.name in self.outputs and equation.kind is ReductionKind.SUM)
        )
        if reduced and equation.kind is not None:
            yield InnerReduce(number, reduced, equation.kind)

    def _replicated(self, number: int, configuration: Configuration) -> dict[str, tuple[int, ...]]:
        """For each tensor that an equation reads: the mesh axes that divide the equation, but not the tensor, which is
        Invariant along them.
        """
        by_axis, found = [self._replicated_by(role, number) for role in configuration], {}
        for name in self._found.reading[number]:
            if axes := tuple(axis for axis, names in enumerate(by_axis) if name in names):
                found[name] = axes
        return found

    def _replicated_by(self, role: Role, number: int) -> frozenset[str]:
        """The tensors that an equation divided by this role reads as Invariant along the mesh axis."""
        replicated = self._found.replicated
        if (role, number) not in replicated:
            equation, names = self.instance.equations[number], []
            if isinstance(role, Along) and role.axis in equation.space:
                for name in self._found.reading[number]:
                    operand = self.instance.operand(name)
                    absent = operand.integer_range is None and dim_of(operand, role.axis) is None
                    absent = absent and self.finder.window(role.axis, role.by, operand) is None
                    if absent and not self._replicated_from_outside(role, operand):
                        names.append(name)
            replicated[role, number] = frozenset(names)
        return replicated[role, number]

    def _replicated_from_outside(self, role: Along, operand: Operand) -> bool:
        for position, given in enumerate(self.instance.inputs):
            if given.name == operand.name:
                return isinstance(self.operand_kind(role, given, position), Replicate)
        return False

    # ------------------------------------------------------------------------------------------ choices

    def roles(self, axis: int, needs_gradient: Sequence[bool], weights: Sequence[bool]) -> list[Role]:
        """The roles worth considering along a mesh axis, as the declaration suggests them.

        Replicate differs from Invariant only if some operand needs a gradient. Weights, which are stored Invariant or
        Shard, and tensors without a gradient are never Partial.
        """
        found: list[Role] = [Uniformly(Invariant())]
        if any(needs_gradient):
            found.append(Uniformly(Replicate()))
        cuts = [name for name, declaration in self.library.parallels.items() if is_cut(declaration)]
        for name in self.classes:
            found += [Along(name, by) for by in cuts if self.blocked(Along(name, by), axis) is None]
        for operands in self.linear:
            if all(needs_gradient[i] and not weights[i] for i in operands):
                found.append(Linearly(operands))
        return found


def typed_operator(
    local: LocalOperator, configuration: Configuration, layouts: tuple[Layout, ...], inputs: int
) -> TypedOperator:
    """The operator under a configuration. The first `inputs` of `layouts` are its operands', the rest its results'."""
    arguments, results = layouts[:inputs], layouts[inputs:]
    return TypedOperator(**vars(local), configuration=configuration, arguments=arguments, results=results)


def _held_by(configuration: Configuration) -> dict[str, tuple[str, ...]]:
    """For each divided axis, the ops that its roles name."""
    found: dict[str, tuple[str, ...]] = {}
    for role in configuration:
        if isinstance(role, Along) and role.by not in found.get(role.axis, ()):
            found[role.axis] = (*found.get(role.axis, ()), role.by)
    return found


def type_operator(
    instance: Instance, configuration: Configuration, mesh: Mesh, library: Library
) -> TypedOperator | str:
    """The operator under a configuration, or the reason in words why it cannot have it."""
    return Typing(instance, mesh, library).type(configuration)
