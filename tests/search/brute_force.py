"""The cheapest plan by exhaustive search. It tries every configuration of every operator, every storage of every
weight, and for every value any set of layouts, made from each other in any way. Shares only the prices with the search.
"""

from __future__ import annotations

from functools import cache, lru_cache
from itertools import combinations, product

import numpy as np
import numpy.typing as npt

from unity_dsl.graph.collective_steps import StepKind
from unity_dsl.graph.graph import Model, Node, Value
from unity_dsl.graph.layout import Invariant, Layout, Mesh, Replicate, Shard, invariant, nest
from unity_dsl.graph.layout import Partial as Terms
from unity_dsl.graph.typed_configurations import configurations
from unity_dsl.index.library import Library
from unity_dsl.machine.collective_price import local_fraction, price_copies, price_step
from unity_dsl.machine.conversion_model import ConversionModel
from unity_dsl.machine.machine import Machine
from unity_dsl.machine.operator_price import price_operator, price_update
from unity_dsl.rules.sharding_theorems import ShardingTheorems

MOST_PLANS = 20_000

Choice = tuple[float, tuple[Layout, ...], tuple[Layout, ...]]
"""Seconds of an operator, with the layouts of its operands and results."""


class TooMany(Exception):
    """There are more plans than are worth trying."""


class BruteForce:
    """`least(most)` is the cost of the cheapest plan with at most `most` further layouts of a value, or any number for
    None.
    """

    def __init__(self, model: Model, mesh: Mesh, machine: Machine, library: Library) -> None:
        self.model, self.mesh, self.machine, self.library = model, mesh, machine, library
        self.theorems = ShardingTheorems(library)
        self.gradients = sum(weight.value.bytes for weight in model.graph.weights if weight.value.needs_gradient)
        self.conversions = ConversionModel(mesh, machine, library, self.gradients)
        self.steps = [step for step in model.graph.steps if isinstance(step, Node)]
        assert len(self.steps) == len(model.graph.steps), "repeats are written out for brute force"
        self.weights = {weight.value.name: weight.value for weight in model.graph.weights}
        self.given = {source.value.name for source in model.graph.inputs}
        self.values = {v.name: v for step in self.steps for v in (*step.arguments, *step.results)}
        self.tree = lru_cache(maxsize=None)(self._tree)
        self.price = lru_cache(maxsize=None)(self._price)
        self.stored = lru_cache(maxsize=None)(self._stored)

    def least(self, most: int | None) -> float:
        choices = [self._choices(step) for step in self.steps]
        count = 1
        for options in choices:
            count *= len(options)
        if count > MOST_PLANS:
            raise TooMany
        return min(self._cost(chosen, most) for chosen in product(*choices))

    def _choices(self, node: Node) -> list[Choice]:
        gradients = node.gradients
        stored = [value.name in self.weights for value in node.arguments]
        best: dict[tuple[tuple[Layout, ...], tuple[Layout, ...]], float] = {}
        for typed in configurations(node.instance, self.mesh, self.library, gradients, stored, self.theorems):
            seconds = price_operator(node.instance, typed, "f32", self.mesh, self.machine, gradients, self.library)
            key = typed.arguments, typed.results
            best[key] = min(seconds, best.get(key, seconds))
        return [(seconds, *layouts) for layouts, seconds in best.items()]

    def _cost(self, chosen: tuple[Choice, ...], most: int | None) -> float:
        produced: dict[str, Layout] = {}
        # The loss is returned whole. If there is none, the outputs are; otherwise they keep their layouts.
        ends = self.model.outputs if self.model.loss is None else (self.model.loss,)
        wanted: dict[str, set[Layout]] = {value.name: {invariant(self.mesh)} for value in ends}
        total = 0.0
        for node, (seconds, arguments, results) in zip(self.steps, chosen, strict=True):
            total += seconds
            for value, layout in zip(node.arguments, arguments, strict=True):
                wanted.setdefault(value.name, set()).add(layout)
            for value, layout in zip(node.results, results, strict=True):
                produced[value.name] = layout
        for name, layouts in wanted.items():
            if name in self.weights:
                total += self.stored(name, frozenset(layouts), most)
            elif name not in self.given:
                total += self.tree(name, produced[name], frozenset(layouts), most)
        return total

    def _stored(self, name: str, layouts: frozenset[Layout], most: int | None) -> float:
        value = self.weights[name]
        return min(
            value.needs_gradient * price_update(value.bytes * local_fraction(kept, self.mesh), self.machine)
            + self.tree(name, kept, layouts, most)
            for kept in every_layout(value, self.mesh)
            if all(isinstance(kind, Invariant | Shard) for kind in kept.kinds)
        )

    def _tree(self, name: str, root: Layout, wanted: frozenset[Layout], most: int | None) -> float:
        """The cheapest arborescence from the root that reaches all wanted layouts, over every set of
        further layouts.
        """
        value = self.values[name]
        needed = wanted - {root}
        others = [layout for layout in every_layout(value, self.mesh) if layout != root and layout not in needed]
        best = float("inf")
        room = len(others) if most is None else most - len(needed)
        for size in range(min(room, len(others)) + 1):
            for extra in combinations(others, size):
                held = (*needed, *extra)
                best = min(best, self._span(name, root, held))
        return best

    def _span(self, name: str, root: Layout, held: tuple[Layout, ...]) -> float:
        """The cheapest way to make each layout from the root or from another one, without cycles."""
        prices = np.array(
            [
                [self.price(name, source, layout, not number) for layout in held]
                for number, source in enumerate((root, *held))
            ]
        )
        return float(prices[_sources(len(held)), np.arange(len(held))].sum(axis=1).min())

    def _price(self, name: str, source: Layout, target: Layout, produced: bool) -> float:
        """Price of a conversion of the produced value or of a copy. Gradients of copies of weights are not part of a
        bucket.
        """
        value = self.values[name]
        summed = produced and name in self.weights
        found = self.conversions.conversion(source, target, value.shape, value.bytes, in_buckets=summed)
        seconds, held = 0.0, local_fraction(source, self.mesh)
        for step in found.forward:
            price, left = price_step(step, self.mesh, self.machine, held)
            seconds += (price + price_copies(step, self.machine, held, left)).seconds(value.bytes)
            held = left
        if value.needs_gradient:
            held = local_fraction(target, self.mesh)
            for number, step in enumerate(found.backward, 1):
                price, left = price_step(step, self.mesh, self.machine, held)
                copies = price_copies(step, self.machine, held, left).seconds(value.bytes)
                taken = price.seconds(value.bytes) + copies
                ends = number == len(found.backward)
                if summed and ends and step.kind in (StepKind.ALL_REDUCE, StepKind.REDUCE_SCATTER):
                    at_once = max(value.bytes, min(25 * 2**20 / held, self.gradients))
                    moved = 2 * held * value.bytes  # into the bucket
                    copies += self.machine.launch_seconds + self.machine.traffic_seconds(moved)
                    taken = min(taken, price.seconds(at_once) * value.bytes / at_once + copies)
                seconds += taken
                held = left
        return seconds


@cache
def _sources(count: int) -> npt.NDArray[np.intp]:
    """Every way to make `count` layouts, one per row: the source of each, 0 for the root, 1 for the first layout, …"""
    every = product(range(count + 1), repeat=count)
    rows = [sources for sources in every if all(_reaches(place + 1, sources) for place in range(count))]
    return np.array(rows, dtype=np.intp).reshape(len(rows), count)


def _reaches(place: int, sources: tuple[int, ...]) -> bool:
    for _ in range(len(sources) + 1):
        if place == 0:
            return True
        place = sources[place - 1]
    return False


@cache
def _every_layout(shape: tuple[int, ...], mesh: Mesh) -> tuple[Layout, ...]:
    kinds = (Invariant(), Replicate(), Terms(), *map(Shard, range(len(shape))))
    return tuple(
        layout
        for layout in map(nest, product(kinds, repeat=len(mesh.axes)))
        if all(shape[dim] % mesh.degree(layout.nesting(dim)) == 0 for dim in range(len(shape)))
    )


def every_layout(value: Value, mesh: Mesh) -> tuple[Layout, ...]:
    return _every_layout(value.shape, mesh)
