"""Text of parallel.py: device groups, conversions and collectives of a plan, with their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, product

from ..graph.collective_steps import Step, StepKind
from ..graph.declared_slices import positions_of
from ..graph.layout import PARTITION, Invariant, Kind, Layout, Mesh, Partial, Replicate, Shard, Window
from ..graph.layout_conversion import Conversion, Conversions
from ..graph.layout_exchange import transfers
from ..index.library import Library
from ..syntax.ast import ReductionKind
from .program_names import Names

DEFERRED = frozenset({StepKind.ALL_REDUCE, StepKind.REDUCE_SCATTER})
"""Last steps of a parameter's gradient that GradientSync takes over."""


@dataclass(frozen=True)
class Group:
    """Devices that differ along these mesh axes only, major first, as an attribute of the groups' object."""

    name: str
    axes: tuple[int, ...]


@dataclass(frozen=True)
class Table:
    """The transfers of an exchange, as text, and the local shape of what it makes. No group where nothing travels."""

    name: str
    group: Group | None
    shape: tuple[int, ...]
    rows: tuple[str, ...]


@dataclass(frozen=True)
class StepText:
    """A step as the template writes it: a function, its arguments after the tensor, and words about it."""

    function: str
    arguments: tuple[str, ...]
    words: str


@dataclass(frozen=True)
class ConversionText:
    """One function of parallel.py. `deferred` is the last step of a parameter's gradient, which GradientSync does."""

    name: str
    class_name: str
    layouts: str
    forward: tuple[StepText, ...]
    backward: tuple[StepText, ...]
    deferred: StepText | None = None

    @property
    def backward_words(self) -> list[str]:
        words = [step.words for step in self.backward]
        return words if self.deferred is None else [*words, f"{self.deferred.words}, by GradientSync"]


_Key = tuple[tuple[Step, ...], tuple[Step, ...], bool, tuple[int, ...] | None]


@dataclass
class Collectives:
    """Collects what is asked for, each thing once, in order of first use."""

    mesh: Mesh
    library: Library
    converting: Conversions
    names: Names = field(default_factory=Names)
    groups: dict[tuple[int, ...], Group] = field(default_factory=dict)
    conversions: dict[_Key, ConversionText] = field(default_factory=dict)
    tables: dict[tuple[Layout, Layout, tuple[int, ...]], Table] = field(default_factory=dict)
    reductions: dict[str, None] = field(default_factory=dict)

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
        *,
        gradient: bool,
        parameter: bool = False,
    ) -> ConversionText | None:
        """The function from one layout to another of a tensor of `count` bytes; None where it would do nothing."""
        found = self.converting.conversion(source, target, shape, count)
        if not found.forward and not (gradient and found.backward):
            return None
        return self._function(
            found, shape, conversion_name(source, target, self.mesh), parameter, _words(source, target, self.mesh)
        )

    def replicate(self, axes: tuple[int, ...]) -> str:
        found = Conversion((), (Step(StepKind.ALL_REDUCE, axes),))
        name = f"replicate_{self._axis_names(axes)}"
        return self._function(found, (), name, False, f"{', '.join(self._axes(axes))}: I -> R").name

    def reduce(self, axes: tuple[int, ...]) -> str:
        found = Conversion((Step(StepKind.ALL_REDUCE, axes),), ())
        name = f"reduce_{self._axis_names(axes)}"
        return self._function(found, (), name, False, f"{', '.join(self._axes(axes))}: P -> I").name

    def reduce_over(self, kind: ReductionKind, free: bool) -> str:
        name = f"{kind.value}_over" + ("_detached" if free else "")
        self.reductions[name] = None
        return name

    def group(self, axes: tuple[int, ...]) -> str:
        if axes not in self.groups:
            self.groups[axes] = Group(self._axis_names(axes), axes)
        return self.groups[axes].name

    # ------------------------------------------------------------------------------------------ written down

    @property
    def functions(self) -> list[ConversionText]:
        return list(self.conversions.values())

    @property
    def steps(self) -> frozenset[str]:
        """The step functions that anything uses."""
        steps = {step.function for text in self.functions for step in (*text.forward, *text.backward)}
        return frozenset(steps)

    @property
    def reordered(self) -> bool:
        """Whether a group's order differs from that of the mesh."""
        return any(list(group.axes) != sorted(group.axes) for group in self.groups.values())

    def _function(
        self, found: Conversion, shape: tuple[int, ...], name: str, parameter: bool, layouts: str
    ) -> ConversionText:
        parameter = parameter and bool(found.backward) and found.backward[-1].kind in DEFERRED
        exchanges = any(step.source is not None for step in (*found.forward, *found.backward))
        key = found.forward, found.backward, parameter, shape if exchanges else None
        if key not in self.conversions:
            name = self.names.fresh(f"parameter_{name}" if parameter else name)
            backward = [self._step(step, shape) for step in found.backward]
            deferred = backward.pop() if parameter else None
            self.conversions[key] = ConversionText(
                name,
                "".join(part.capitalize() for part in name.split("_")),
                layouts,
                tuple(self._step(step, shape) for step in found.forward),
                tuple(backward),
                deferred,
            )
        return self.conversions[key]

    def _step(self, step: Step, shape: tuple[int, ...]) -> StepText:
        over = f"over {', '.join(self._axes(step.axes))}"
        group = f"groups.{self.group(step.axes)}" if step.source is None else ""
        match step.kind:
            case StepKind.SLICE:
                return StepText("block", (str(step.dim), group), f"keep a block of dimension {step.dim} {over}")
            case StepKind.MASK:
                return StepText("first_only", (group,), f"keep the first copy {over}")
            case StepKind.PAD:
                return StepText(
                    "pad", (str(step.dim), group), f"put the block into zeros along dimension {step.dim} {over}"
                )
            case StepKind.ALL_GATHER:
                return StepText("all_gather", (str(step.dim), group), f"all-gather dimension {step.dim} {over}")
            case StepKind.ALL_REDUCE:
                return StepText("all_reduce", (group,), f"all-reduce {over}")
            case StepKind.REDUCE_SCATTER:
                return StepText("reduce_scatter", (str(step.dim), group), f"reduce-scatter dimension {step.dim} {over}")
            case StepKind.ALL_TO_ALL:
                words = f"all-to-all {over}: dimension {step.to_dim} is cut, dimension {step.dim} joined"
                return StepText("all_to_all", (str(step.dim), str(step.to_dim), group), words)
            case StepKind.PERMUTE | StepKind.EXCHANGE:
                table = self._table(step, shape)
                size = f"({', '.join(map(str, table.shape))}{',' if len(table.shape) == 1 else ''})"
                if table.group is None:
                    return StepText("rearrange", (table.name, size, "groups.rank"), "keep slices")
                arguments = table.name, size, f"groups.{table.group.name}", "groups.rank"
                return StepText("exchange", arguments, f"exchange slices {over}")

    def _axes(self, axes: Sequence[int]) -> list[str]:
        return [self.mesh.axes[axis].name for axis in axes]

    def _axis_names(self, axes: Sequence[int]) -> str:
        return _joined(self._axes(axes))

    # ------------------------------------------------------------------------------------------ exchanges

    def _table(self, step: Step, shape: tuple[int, ...]) -> Table:
        assert step.source is not None and step.target is not None
        key = step.source, step.target, shape
        if key not in self.tables:
            moved = transfers(step.source, step.target, shape, self.mesh, self.library)
            local = all(move.giver == move.taker for move in moved)
            group = None if local else self._spanning(step.axes, [(move.giver, move.taker) for move in moved])
            sends: dict[tuple[int, int], list[str]] = {}
            takes: dict[tuple[int, int], list[str]] = {}
            for move in moved:
                for piece in product(*map(_runs, move.taken_from, move.put_at)):
                    sends.setdefault((move.giver, move.taker), []).append(_slices(run[0] for run in piece))
                    takes.setdefault((move.taker, move.giver), []).append(_slices(run[1] for run in piece))
            rows = []
            for rank in range(self.mesh.size):
                members = [rank] if group is None else list(self._members(rank, group.axes))
                out, into = ([found.get((rank, member), []) for member in members] for found in (sends, takes))
                if group is None:
                    rows.append(f"({_listed(out[0])}, {_listed(into[0])})")
                else:
                    rows.append(f"({_nested(out)}, {_nested(into)})")
            here = self.mesh.coordinates(0)
            shape_here = tuple(
                len(positions_of(step.target, dim, extent, self.mesh, here, self.library))
                for dim, extent in enumerate(shape)
            )
            self.tables[key] = Table(f"EXCHANGE_{len(self.tables) + 1}", group, shape_here, tuple(rows))
        return self.tables[key]

    def _spanning(self, axes: tuple[int, ...], pairs: list[tuple[int, int]]) -> Group:
        """The group of these axes, and of any others that a transfer crosses."""
        crossed = set(axes)
        for giver, taker in pairs:
            places = zip(self.mesh.coordinates(giver), self.mesh.coordinates(taker), strict=True)
            crossed |= {axis for axis, (there, here) in enumerate(places) if there != here}
        wanted = tuple(sorted(crossed))
        self.group(wanted)
        return self.groups[wanted]

    def _members(self, rank: int, axes: tuple[int, ...]) -> Iterator[int]:
        here = list(self.mesh.coordinates(rank))
        for choice in product(*(range(self.mesh.axes[axis].degree) for axis in axes)):
            for axis, coordinate in zip(axes, choice, strict=True):
                here[axis] = coordinate
            yield self.mesh.rank(here)


_Run = tuple[int, int, int]


def _runs(taken: tuple[int, ...], put: tuple[int, ...]) -> list[tuple[_Run, _Run]]:
    """Positions on both sides as pairs of slices (start, stop, step), each as long as possible."""
    found = []
    start = 0
    while start < len(taken):
        stop = start + 1
        if stop < len(taken):
            steps = taken[stop] - taken[start], put[stop] - put[start]
            while (
                min(steps) > 0
                and stop < len(taken)
                and steps == (taken[stop] - taken[stop - 1], put[stop] - put[stop - 1])
            ):
                stop += 1
        else:
            steps = 1, 1
        last = stop - 1
        one = (taken[start], taken[last] + 1, max(1, steps[0]))
        two = (put[start], put[last] + 1, max(1, steps[1]))
        found.append((one, two))
        start = stop
    return found


def _slices(runs: Iterator[_Run]) -> str:
    texts = [
        f"slice({start}, {stop})" if step == 1 else f"slice({start}, {stop}, {step})" for start, stop, step in runs
    ]
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _nested(members: list[list[str]]) -> str:
    return f"[{', '.join(map(_listed, members))}]"


def _listed(pieces: list[str]) -> str:
    return f"[{', '.join(pieces)}]"


# ---------------------------------------------------------------------------------------------- names


def conversion_name(source: Layout, target: Layout, mesh: Mesh) -> str:
    """What happens, by mesh axes: `replicate_a`, `gather_0_b`, `reduce_a_and_partition_1_b`."""
    verbs = [
        (_verb(before, after), mesh.axes[axis].name)
        for axis, (before, after) in enumerate(zip(source.kinds, target.kinds, strict=True))
        if before != after
    ]
    return "_and_".join(
        f"{verb}_{_joined([name for _, name in same])}" for verb, same in groupby(verbs, key=lambda pair: pair[0])
    )


def _joined(names: Sequence[str]) -> str:
    return ("" if all(len(name) == 1 for name in names) else "_").join(names)


def _verb(before: Kind, after: Kind) -> str:
    match before, after:
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
            return "first_only"
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


def _words(source: Layout, target: Layout, mesh: Mesh) -> str:
    """The kinds that change: `a: I -> R; b: S0 -> I`."""
    return "; ".join(
        f"{mesh.axes[axis].name}: {before} -> {after}"
        for axis, (before, after) in enumerate(zip(source.kinds, target.kinds, strict=True))
        if before != after
    )
