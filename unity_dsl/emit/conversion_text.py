"""Text of parallel.py: device groups, conversions and collectives of a plan, with their names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from ..graph.axis_names import common_name
from ..graph.collective_steps import BEGUN, Step, StepKind
from ..graph.layout import PARTITION, At, Cut, Invariant, Kind, Layout, Mesh, Partial, Replicate, Shard, Window
from ..graph.layout_conversion import Conversion, Conversions
from ..index.library import Library
from ..index.lowering.standardised_lowering import STANDARDISED
from ..syntax.ast import ReductionKind
from .exchange_text import axis_tuple, crossed, exchange_arguments, permuted
from .positions_text import PositionsFunction, positions_function
from .program_names import Names
from .source_lines import above, broken

_FUNCTIONS = {
    StepKind.SLICE: "block",
    StepKind.MASK: "one_only",
    StepKind.PAD: "pad",
    StepKind.ALL_GATHER: "all_gather",
    StepKind.ALL_REDUCE: "all_reduce",
    StepKind.REDUCE_SCATTER: "reduce_scatter",
    StepKind.ALL_TO_ALL: "all_to_all",
}
"""Functions of parallel.py for steps whose group determines which device has which part."""

_PLANNED = frozenset({StepKind.EXCHANGE, StepKind.PERMUTE})
"""Steps whose senders and receivers the emitted program determines when it starts."""


@dataclass(frozen=True)
class Group:
    """Devices that differ along these mesh axes only, major first, as an attribute of the groups object.

    A collective in two steps uses the groups named `first` and `last`.
    """

    name: str
    axes: tuple[int, ...]
    first: str = ""
    last: str = ""

    def code(self, mesh: Mesh) -> str:
        """The expression that creates the group."""
        axes = axis_tuple(self.axes, mesh)
        return f"TwoGroups(mesh, {axes}, self.{self.first}, self.{self.last})" if self.first else f"Group(mesh, {axes})"


@dataclass(frozen=True)
class Planned:
    """An exchange or a permutation as an attribute of the groups object. `code` creates it; `layouts` describes the
    layouts that change.
    """

    name: str
    code: str
    layouts: str

    @property
    def lines(self) -> list[str]:
        return [*above(self.layouts), *broken(f"self.{self.name} = {self.code}")]


@dataclass(frozen=True)
class StepText:
    """A step as the template writes it: a function, its arguments after the tensor, and an attribute of the groups
    object.
    """

    function: str
    arguments: tuple[int, ...]
    needs: str

    @property
    def code(self) -> str:
        return f"({', '.join([self.function, *map(str, self.arguments), json.dumps(self.needs)])})"


@dataclass(frozen=True)
class ConversionText:
    """A conversion function of parallel.py. `deferred` is the last step of a parameter's gradient, which GradientSync
    runs.
    """

    name: str
    layouts: str
    forward: tuple[StepText, ...]
    backward: tuple[StepText, ...]
    deferred: StepText | None = None

    @property
    def steps(self) -> tuple[StepText, ...]:
        return *self.forward, *self.backward, *([self.deferred] if self.deferred else [])

    @property
    def travels(self) -> bool:
        """Whether its forward or its backward ends in a step that can be started now and waited for later."""
        return any(steps and steps[-1].function in BEGUN for steps in (self.forward, self.backward))

    @property
    def direct(self) -> bool:
        """Whether the parameter is read without a conversion, and its gradient needs only the deferred step."""
        return not (self.forward or self.backward)

    @property
    def lines(self) -> list[str]:
        """The statement that creates the function."""
        steps = {"forward": self.forward, "backward": self.backward}
        given = [f"{end}=[{', '.join(step.code for step in found)}]" for end, found in steps.items() if found]
        if self.deferred is None:
            return [*above(self.layouts), *broken(f"{self.name} = conversion({', '.join(given)})")]
        given.append(f"last={self.deferred.code}")
        return [*above(self.layouts), *broken(f"{self.name} = parameter_conversion({', '.join(given)})")]


_Key = tuple[tuple[Step, ...], tuple[Step, ...], bool, tuple[tuple[int, int], ...]]


@dataclass
class Collectives:
    """Collects the groups and functions that the program asks for, each once, in order of first use. `elsewhere` means
    that only some devices compute something, `owned` that only some devices store something.
    """

    mesh: Mesh
    library: Library
    converting: Conversions
    names: Names = field(default_factory=Names)
    groups: dict[tuple[tuple[int, ...], ...], Group] = field(default_factory=dict)
    conversions: dict[_Key, ConversionText] = field(default_factory=dict)
    planned: dict[tuple[Step, tuple[tuple[int, int], ...]], Planned] = field(default_factory=dict)
    positions: dict[str, PositionsFunction] = field(default_factory=dict)
    reductions: dict[str, None] = field(default_factory=dict)
    elsewhere: bool = False
    owned: bool = False

    def __post_init__(self) -> None:
        for axis in range(len(self.mesh.axes)):
            self.group((axis,))

    # ------------------------------------------------------------------------------------------ asked for

    def conversion(
        self,
        source: Layout,
        target: Layout,
        shape: tuple[int, ...],
        count: float,
        back: float | None = None,
        *,
        gradient: bool,
        in_buckets: bool = False,
        ahead: bool = False,
        deferred: bool = False,
    ) -> ConversionText | None:
        """The function that converts a tensor of `count` bytes from one layout to another; None if it would do nothing.
        `back` is the number of bytes of its gradient, if that differs. With `ahead`, an all-gather that comes first may
        be prefetched. With `deferred`, a reduction at the end of the backward is left to a bucket.
        """
        found = self.converting.conversion(source, target, shape, count, back, in_buckets=in_buckets, ahead=ahead)
        if not found.forward and not (gradient and found.backward):
            return None
        return self.between(found, source, target, shape, deferred=deferred)

    def between(
        self, found: Conversion, source: Layout, target: Layout, shape: tuple[int, ...], *, deferred: bool = False
    ) -> ConversionText:
        """The function that runs the steps of a conversion between two layouts; `deferred` as in `conversion`."""
        name = conversion_name(source, target, self.mesh)
        return self.function(found, shape, name, changes(source, target, self.mesh), parameter=deferred)

    def replicate(self, axes: tuple[int, ...]) -> str:
        found = Conversion((), (Step(StepKind.ALL_REDUCE, axes),))
        name = f"replicate_{self._axis_names(axes)}"
        return self.function(found, (), name, f"{', '.join(self._axes(axes))}: I -> R").name

    def reduce(self, axes: tuple[int, ...]) -> str:
        found = Conversion((Step(StepKind.ALL_REDUCE, axes),), ())
        name = f"reduce_{self._axis_names(axes)}"
        return self.function(found, (), name, f"{', '.join(self._axes(axes))}: P -> I").name

    def reduce_over(self, kind: ReductionKind, free: bool) -> str:
        name = f"{kind.value}_over" + ("_detached" if free else "")
        self.reductions[name] = None
        return name

    def standardised(self) -> str:
        self.reductions[STANDARDISED] = None
        return STANDARDISED

    def group(self, axes: tuple[int, ...], first: tuple[int, ...] = ()) -> str:
        """The name of the group along some axes. With `first`, a group in two steps: over the axes `first`, then over
        the others.
        """
        if (axes, first) not in self.groups:
            name, parts = self._axis_names(axes), tuple[str, ...]()
            if first:
                parts = self.group(tuple(sorted(first))), self.group(tuple(sorted({*axes} - {*first})))
                name = f"{name}_by_{parts[0]}"
            self.groups[axes, first] = Group(name, axes, *parts)
        return self.groups[axes, first].name

    def function(
        self, found: Conversion, shape: tuple[int, ...], name: str, layouts: str, *, parameter: bool = False
    ) -> ConversionText:
        """The function that runs these steps on a tensor of this shape. `layouts` describes it in a comment."""
        parameter = parameter and found.ends_in_sum
        extents = {extent for step in (*found.forward, *found.backward) for extent in _extents(step, shape)}
        key = found.forward, found.backward, parameter, tuple(sorted(extents))
        if key not in self.conversions:
            name = self.names.fresh(f"parameter_{name}" if parameter else name)
            forward, backward = (
                [self._step(step, shape) for step in steps] for steps in (found.forward, found.backward)
            )
            deferred = backward.pop() if parameter else None
            self.conversions[key] = ConversionText(name, layouts, tuple(forward), tuple(backward), deferred)
        return self.conversions[key]

    # ------------------------------------------------------------------------------------------ written down

    @property
    def functions(self) -> list[ConversionText]:
        return list(self.conversions.values())

    @property
    def parameters(self) -> list[ConversionText]:
        """The conversions of parameters whose gradients GradientSync sums."""
        return [made for made in self.functions if made.deferred]

    @property
    def steps(self) -> frozenset[str]:
        """The names of the step functions that are used."""
        return frozenset(step.function for text in self.functions for step in text.steps)

    @property
    def reordered(self) -> bool:
        """Whether a group's order differs from that of the mesh."""
        return self.staged or any(list(group.axes) != sorted(group.axes) for group in self.groups.values())

    @property
    def staged(self) -> bool:
        """Whether any collective has two steps."""
        return any(group.first for group in self.groups.values())

    def _step(self, step: Step, shape: tuple[int, ...]) -> StepText:
        if step.kind in _PLANNED:
            return StepText(step.kind.value, (), self._planned(step, shape).name)
        match step.kind:
            case StepKind.ALL_REDUCE:
                arguments: tuple[int, ...] = ()
            case StepKind.MASK:
                arguments = (step.member,)
            case StepKind.ALL_TO_ALL:
                arguments = step.dim, step.to_dim
            case _:
                arguments = (step.dim,)
        return StepText(_FUNCTIONS[step.kind], arguments, self.group(step.axes, step.first))

    def _planned(self, step: Step, shape: tuple[int, ...]) -> Planned:
        assert step.source is not None and step.target is not None
        key = step, _extents(step, shape)
        if key not in self.planned:
            if step.kind is StepKind.EXCHANGE:
                axes = crossed(step.source, step.target, shape, self.mesh, self.library)
                arguments = exchange_arguments(step, shape, self.mesh, self.library, self._positions)
            else:
                moved = permuted(step, shape, self.mesh)
                axes, arguments = moved.axes, moved.arguments(self.mesh)
            group = f"self.{self.group(axes)}" if axes else "None"
            made = "Exchange" if step.kind is StepKind.EXCHANGE else "Permutation"
            count = 1 + sum(other.kind is step.kind for other, _ in self.planned)
            self.planned[key] = Planned(
                f"{step.kind.value}_{count}",
                f"{made}({', '.join(['mesh', group, *arguments])})",
                changes(step.source, step.target, self.mesh),
            )
        return self.planned[key]

    def _positions(self, by: str) -> PositionsFunction:
        if by not in self.positions:
            self.positions[by] = positions_function(self.names.fresh(f"{by}_positions"), self.library.parallels[by])
        return self.positions[by]

    def _axes(self, axes: Sequence[int]) -> list[str]:
        return [self.mesh.axes[axis].name for axis in axes]

    def _axis_names(self, axes: Sequence[int]) -> str:
        return axis_word(axes, self.mesh)


def _extents(step: Step, shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """The dimensions that an exchange cuts, with their extents; empty for other steps. An exchange depends on these
    extents alone.
    """
    if step.kind is not StepKind.EXCHANGE or step.source is None or step.target is None:
        return ()
    kinds = (*step.source.kinds, *step.target.kinds)
    return tuple((dim, shape[dim]) for dim in sorted({kind.dim for kind in kinds if isinstance(kind, Cut)}))


# ---------------------------------------------------------------------------------------------- names


def conversion_name(source: Layout, target: Layout, mesh: Mesh) -> str:
    """The name of a conversion by mesh axes: `replicate_a`, `gather_0_b`, `reduce_a_and_partition_1_b`."""
    verbs = [
        (_verb(before, after), axis)
        for axis, (before, after) in enumerate(zip(source.kinds, target.kinds, strict=True))
        if before != after
    ]
    return "_and_".join(
        f"{verb}_{axis_word([axis for _, axis in same], mesh)}"
        for verb, same in groupby(verbs, key=lambda pair: pair[0])
    )


def axis_word(axes: Sequence[int], mesh: Mesh) -> str:
    """Mesh axes in a name: `ab`, `data_tensor`, and `data` for `data_outer` and `data_inner`."""
    names = [mesh.axes[axis].name for axis in axes]
    return common_name(axes, mesh) or ("" if all(len(name) == 1 for name in names) else "_").join(names)


def _verb(before: Kind, after: Kind) -> str:
    match before, after:
        case At(coordinate=coordinate), _:
            return f"from_{coordinate}"
        case _, At(coordinate=coordinate):
            return f"to_{coordinate}"
        case Invariant(), Replicate():
            return "replicate"
        case Replicate(), Invariant():
            return "unreplicate"
        case Partial(), Invariant():
            return "reduce"
        case Partial(), Replicate():
            return "all_reduce"
        case Partial(), Shard(dim=dim, by=by):
            return f"reduce_scatter_{dim}" if by == PARTITION else f"reduce_{by}_{dim}"
        case Partial(), Window(dim=dim, by=by):
            return f"reduce_{by}_{dim}"
        case ((Invariant() | Replicate()), Partial()):
            return "one_only"
        case (Invariant(), Shard(dim=dim, by="partition")):
            return f"partition_{dim}"
        case (Replicate(), Shard(dim=dim, by="partition")):
            return f"block_{dim}"
        case ((Invariant() | Replicate()), (Shard(dim=dim, by=by) | Window(dim=dim, by=by))):
            return f"{by}_{dim}"
        case ((Shard(dim=dim, by=by) | Window(dim=dim, by=by)), Partial()):
            return f"pad_{dim}" if by == PARTITION else f"pad_{by}_{dim}"
        case ((Shard(dim=dim, by=by) | Window(dim=dim, by=by)), (Invariant() | Replicate())):
            word = "combine" if isinstance(after, Invariant) else "gather"
            return f"{word}_{dim}" if by == PARTITION else f"{word}_{by}_{dim}"
        case (Shard(by="partition") | Window()) as cut, Shard(dim=to_dim, by="partition"):
            return f"reorder_{cut.dim}" if cut.dim == to_dim else f"all_to_all_{cut.dim}_{to_dim}"
        case ((Shard(dim=dim) | Window(dim=dim)), (Shard(dim=to_dim, by=by) | Window(dim=to_dim, by=by))):
            return f"{by}_{to_dim}" if dim == to_dim else f"all_to_all_{dim}_{by}_{to_dim}"
    raise AssertionError(f"no conversion from {before} to {after}")


def changes(source: Layout, target: Layout, mesh: Mesh) -> str:
    """The kinds that change, `a: I -> R; b: S0 -> I`, and the order of the axes that cut a dimension, if it changes."""
    words = [
        f"{mesh.axes[axis].name}: {before} -> {after}"
        for axis, (before, after) in enumerate(zip(source.kinds, target.kinds, strict=True))
        if str(before) != str(after)
    ]
    for dim in sorted({kind.dim for kind in (*source.kinds, *target.kinds) if isinstance(kind, Cut)}):
        before, after = source.nesting(dim), target.nesting(dim)
        kept = [[axis for axis in axes if axis in before and axis in after] for axes in (before, after)]
        if kept[0] != kept[1]:
            orders = (", ".join(mesh.axes[axis].name for axis in axes) for axes in (before, after))
            words.append(f"dimension {dim} cut by {' -> '.join(orders)}")
    return "; ".join(words)
