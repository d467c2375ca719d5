"""Strategy `automap`: Monte-Carlo tree search over tilings of arguments (Schaarschmidt et al., Automap, 2021; Alabed et
al., PartIR, 2025).

A decision tiles one dimension along a mesh axis: that of a weight, or the batch of all inputs that have it. The
arguments of equal layers are decided together. Tiles propagate forwards through the operators that read them, along the
first tiled axis of an operand, until an operator cannot be divided so. Everything else is whole. With two mesh axes,
the first is fixed to the batch, as an inductive tactic. The tree is searched by UCT, mean reward + c sqrt(ln N / n),
with playouts of random decisions. The reward comes from a cost model, here the seconds of the plan, with a penalty if
the plan does not fit the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from logging import getLogger
from math import inf, log, sqrt
from random import Random

from ...graph.graph import Graph, Node
from ...graph.layout import Invariant, Mesh
from ...graph.layout_typing import Along, Role, TypedOperator, Uniformly, type_operator
from ...index.library import Library
from ..choices.restriction import node_path, places, stored_values
from ..exact_search.bounded_search import optimise
from ..layout_problem.model_problem import Problem
from ..model_variants.rewritten_model import Variant
from ..search_end import SearchEnded
from .kept_storage import KeptAsRead
from .operator_sites import Site, allowed_domains
from .strategy import Chosen, Space, cheapest_fitting, no_plan

LOG = getLogger(__name__)
PLAYOUTS = 150
"""Playouts on all meshes together."""
SEED = 0
DEEPEST = 6
"""Most decisions of a plan: the authors' agents found no better plans with more."""
EXPLORATION = 0.5
"""The constant c of UCT, for rewards between 0 and 1."""
TOO_LARGE = 0.5
"""Factor of the reward of a plan that does not fit the memory."""


@dataclass(frozen=True, order=True)
class Tiling:
    """A tiling of one dimension along a mesh axis, for all arguments with these paths."""

    paths: tuple[str, ...]
    dim: int
    axis: int


Tilings = tuple[Tiling, ...]


def automap(space: Space) -> Chosen:
    """Monte-Carlo tree search over tilings of inputs and weights, which are propagated through the model."""
    rng, playouts = Random(SEED), -(-PLAYOUTS // max(1, len(space.meshes)))
    found: list[Chosen] = []
    try:
        found += (best for mesh in space.meshes if (best := _Search(space, mesh).run(playouts, rng)) is not None)
    except SearchEnded:
        if not found:
            raise
    if not found:
        raise no_plan("automap", "no tilings of its tree have a plan")
    return cheapest_fitting(space, found)


@dataclass
class _Tree:
    """A node of the search tree: its visits, the sum of its rewards, and the decisions tried from it."""

    visits: int = 0
    reward: float = 0.0
    children: dict[Tiling, _Tree] = field(default_factory=dict)


class _Search:
    def __init__(self, space: Space, mesh: Mesh) -> None:
        self.space = space
        self.mesh = mesh
        self.held = KeptAsRead()
        self.problem: Problem = space.problem(space.model, mesh, held=self.held)
        self.tree = _Tree()
        self.best: tuple[float, Chosen] | None = None
        self.rewards: dict[frozenset[Tiling], float] = {}
        self.actions = tuple(self._actions())
        self.first = tuple(
            one for one in self.actions if len(mesh.axes) > 1 and one.axis == 0 and one == self._batch(0)
        )
        self.whole = self._cost(self.first)

    def run(self, playouts: int, rng: Random) -> Chosen | None:
        """The best plan found in `playouts` playouts."""
        for number in range(playouts):
            LOG.info("automap: %d of %d playouts", number, playouts)
            try:
                self._playout(rng)
            except SearchEnded:
                break
        return None if self.best is None else self.best[1]

    def _batch(self, axis: int) -> Tiling:
        """The tiling of the batch: the first dimension of all inputs that are equally long there as the first input."""
        inputs = [source.value for source in self.space.model.graph.inputs if source.value.shape]
        return Tiling(tuple(v.name for v in inputs if v.shape[0] == inputs[0].shape[0]), 0, axis)

    def _actions(self) -> list[Tiling]:
        """All tilings that divide at least one operator."""
        model, degrees = self.space.model, self.mesh.degrees
        stored = [place for place in places(model) if place.stored and place.value.needs_gradient]
        sizes = {place.path: place.value.shape for place in stored}
        sizes |= {source.value.name: source.value.shape for source in model.graph.inputs}
        found = [self._batch(axis) for axis in range(len(degrees))]
        for place in stored:
            dims = range(len(place.value.shape))
            found += [Tiling((place.path,), dim, axis) for dim in dims for axis in range(len(degrees))]

        def divides(one: Tiling) -> bool:
            return bool(one.paths) and all(sizes[path][one.dim] % degrees[one.axis] == 0 for path in one.paths)

        return [one for one in found if divides(one) and self._roles((one,))]

    def _playout(self, rng: Random) -> None:
        path, state = [self.tree], list(self.first)
        tree = self.tree
        while len(state) < DEEPEST and self.actions:
            left = self._possible(state)
            untried = [action for action in left if action not in tree.children]
            if not left:
                break
            if untried:
                action = rng.choice(untried)
                tree.children[action] = _Tree()
                state.append(action)
                path.append(tree.children[action])
                break
            action = max(left, key=lambda action: self._worth(tree, tree.children[action]))
            state.append(action)
            tree = tree.children[action]
            path.append(tree)
        reward = self._reward(state)
        while len(state) < DEEPEST and (left := self._possible(state)) and rng.random() < 0.7:
            state.append(rng.choice(left))
            reward = max(reward, self._reward(state))
        for tree in path:
            tree.visits += 1
            tree.reward += reward

    def _possible(self, state: Sequence[Tiling]) -> list[Tiling]:
        """The remaining decisions: each argument is tiled at most once along a mesh axis."""
        decided = {(tiling.paths, tiling.axis) for tiling in state}
        return [action for action in self.actions if (action.paths, action.axis) not in decided]

    def _worth(self, tree: _Tree, child: _Tree) -> float:
        if not child.visits:
            return inf
        return child.reward / child.visits + EXPLORATION * sqrt(log(max(1, tree.visits)) / child.visits)

    def _reward(self, state: Sequence[Tiling]) -> float:
        """The reward, 0 to 1: the cost of the starting plan, ideally divided over all devices, over the cost of this
        plan.
        """
        key = frozenset(state)
        if key not in self.rewards:
            cost = self._cost(tuple(sorted(state)))
            least = self.whole / self.mesh.size
            self.rewards[key] = 0.0 if cost == inf else min(1.0, least / cost) if cost > 0 else 1.0
        return self.rewards[key]

    def _cost(self, state: Tilings) -> float:
        roles = self._roles(state)
        whole = Uniformly(Invariant())

        def allows(site: Site, typed: TypedOperator) -> bool:
            wanted = roles.get(site.path, {})
            return all(role == wanted.get(axis, whole) for axis, role in enumerate(typed.configuration))

        found = optimise(self.problem.part, allowed_domains(self.problem, allows))
        if found.plan is None:
            return inf
        told = ", ".join(f"{' and '.join(one.paths)}[{one.dim}] along {self.mesh.axes[one.axis].name}" for one in state)
        note = f"tiled: {told or 'nothing'}; {PLAYOUTS} playouts, seed {SEED}"
        chosen = Chosen(Variant(self.space.model), self.problem, found.plan, found.cost, self.held, (note,))
        cost = found.cost
        if not self.space.fits(self.space.model, chosen.graph, self.mesh):
            cost /= TOO_LARGE
        if self.best is None or cost < self.best[0]:
            self.best = cost, chosen
        return cost

    def _roles(self, state: Tilings) -> dict[str, dict[int, Role]]:
        """The roles of operators after propagation, by path and by mesh axis."""
        found: dict[str, dict[int, Role]] = {}
        for axis in range(len(self.mesh.axes)):
            tiled = {path: one.dim for one in state if one.axis == axis for path in one.paths}
            if tiled:
                along = Propagation(Mesh((self.mesh.axes[axis],)), self.space.library, tiled)
                along.graph(self.space.model.graph, "", {})
                for path, role in along.roles.items():
                    found.setdefault(path, {})[axis] = role
        return found


class Propagation:
    """Propagates tiles of arguments through a graph, along one mesh axis. `roles` are those of operators, by path."""

    def __init__(self, mesh: Mesh, library: Library, tiled: dict[str, int]) -> None:
        self.mesh = mesh
        self.library = library
        self.tiled = tiled
        self.roles: dict[str, Along] = {}

    def graph(self, graph: Graph, prefix: str, outside: dict[str, int]) -> dict[str, int]:
        """The tiled dimension of each value of a graph; `outside` has those of values from outside."""
        dims = dict(outside)
        values = [*(source.value for source in graph.inputs), *stored_values(graph)]
        dims |= {value.name: self.tiled[prefix + value.name] for value in values if prefix + value.name in self.tiled}
        for step in graph.steps:
            if isinstance(step, Node):
                self._node(step, prefix, dims)
                continue
            entered = {
                own.name: dims[given.name]
                for given, own in zip(step.initial, step.entry, strict=True)
                if given.name in dims
            }
            captured = {value.name: dims[value.name] for value in step.captured if value.name in dims}
            for series in step.sliced:
                dim = dims.get(series.whole.name, series.dim)
                if dim != series.dim:
                    entered[series.part.name] = dim - (dim > series.dim)
            inside = self.graph(step.body, f"{prefix}{step.name}.", captured | entered)
            for left, result in zip(step.exit, step.results, strict=True):
                if left.name in inside:
                    dims[result.name] = inside[left.name]
            for series in step.stacked:
                if series.part.name in inside:
                    dims[series.whole.name] = inside[series.part.name] + (inside[series.part.name] >= series.dim)
        return dims

    def _node(self, node: Node, prefix: str, dims: dict[str, int]) -> None:
        for value, operand in zip(node.arguments, node.instance.inputs, strict=True):
            if value.name not in dims or not operand.dims[dims[value.name]]:
                continue
            axis = operand.dims[dims[value.name]][0]
            typed = type_operator(node.instance, (Along(axis),), self.mesh, self.library)
            if isinstance(typed, str):
                continue
            self.roles[node_path(prefix, node)] = Along(axis)
            for result, output in zip(node.results, node.instance.outputs, strict=True):
                for dim, factors in enumerate(output.dims):
                    if factors[:1] == (axis,):
                        dims[result.name] = dim
            return
