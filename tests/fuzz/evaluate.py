"""The loss of a model twice: by NumPy from the operators' definitions, and by the program for one device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unity_dsl.emit.rank_comparison import initial_state, load_program
from unity_dsl.graph.graph import Graph, Model, Node, Segment
from unity_dsl.index.evaluation.evaluate import evaluate
from unity_dsl.index.evaluation.uniform import uniform
from unity_dsl.index.library import Library

Values = dict[str, Any]


def losses(model: Model, library: Library, program: Path, seed: int = 0) -> tuple[float, float]:
    """The loss by NumPy and by the single-device program in `program`, for weights and data drawn from the seed."""
    import torch

    rng = np.random.default_rng(seed)
    with load_program(program) as module:
        drawn = initial_state(module, None, seed)
        state = {name: tensor.numpy() + 0.1 * rng.standard_normal(tensor.shape) for name, tensor in drawn.items()}
        inputs = {item.value.name: draw_input(item.value, rng) for item in model.graph.inputs}
        running = module.Model(None, dtype=torch.float64)
        running.load_global({name: torch.from_numpy(array) for name, array in state.items()})
        running.seed, running.step = seed, 0
        loss, _ = running(**{name: torch.from_numpy(np.asarray(array)) for name, array in inputs.items()})
    sites = max((node.site for node in model.graph.nodes()), default=0)
    values = _Evaluation(library, state, seed, sites).graph(model.graph, dict(inputs), "", 0)
    return float(values[model.loss.name]), loss.item()


def draw_input(value: Any, rng: np.random.Generator) -> Any:
    if value.integer_range is not None:
        return rng.integers(value.integer_range, size=value.shape)
    return rng.standard_normal(value.shape)


@dataclass(frozen=True)
class _Evaluation:
    """`state`: weights and buffers by full names. `sites`: the number of random sites, by which each iteration's sites
    advance.
    """

    library: Library
    state: Mapping[str, Any]
    seed: int
    sites: int

    def graph(self, graph: Graph, values: Values, prefix: str, iteration: int) -> Values:
        """Computes every value of a graph, repeated parts iteration by iteration."""
        for stored in (*graph.weights, *graph.buffers):
            values[stored.value.name] = self.state[prefix + stored.value.name]
        for step in graph.steps:
            if isinstance(step, Segment):
                self.segment(step, values, prefix, step.count * iteration)
            else:
                self.node(step, values, step.site + self.sites * iteration)
        return values

    def segment(self, segment: Segment, values: Values, prefix: str, before: int) -> None:
        """Runs a repeat. `before` is the number of its iterations in earlier passes of an outer repeat."""
        carried = [values[value.name] for value in segment.initial]
        made: list[list[Any]] = [[] for _ in segment.stacked]
        executed = segment.predicate is None or bool(values[segment.predicate.name])
        for iteration, path in enumerate(segment.paths if executed else ()):
            inside = {value.name: values[value.name] for value in segment.captured}
            inside |= {value.name: array for value, array in zip(segment.entry, carried, strict=True)}
            inside |= {s.part.name: values[s.whole.name].take(iteration, s.dim) for s in segment.sliced}
            after = self.graph(segment.body, inside, prefix + path, before + iteration)
            carried = [after[value.name] for value in segment.exit]
            for parts, series in zip(made, segment.stacked, strict=True):
                parts.append(after[series.part.name])
        values |= {value.name: array for value, array in zip(segment.results, carried, strict=True)}
        for parts, series in zip(made, segment.stacked, strict=True):
            values[series.whole.name] = np.stack(parts, series.dim)

    def node(self, node: Node, values: Values, site: int) -> None:
        arguments = [values[value.name] for value in node.arguments]
        found = evaluate(node.instance, arguments, self.library, uniform=lambda _, at: uniform(at, self.seed, 0, site))
        values |= {value.name: array for value, array in zip(node.results, found, strict=True)}
