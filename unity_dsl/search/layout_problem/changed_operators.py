"""Which operators a model has that another lacks, and what shares a tensor with them: paths, as in a Restriction."""

from __future__ import annotations

from collections.abc import Iterator, Set

from ...graph.graph import Graph, Node, Segment
from .variable_meaning import Meaning


def changed_paths(changed: Meaning, given: Meaning) -> set[str]:
    """The operators of a changed model for which the given one has none of the same name, op and tensors."""
    before = {path: _signature(node) for path, node in _operators(given.graph, "")}
    return {path for path, node in _operators(changed.graph, "") if before.get(path) != _signature(node)}


def next_to(meaning: Meaning, paths: Set[str]) -> set[str]:
    """Some operators, their arguments and results, and the operators that share one with them in the same body."""
    every = [(path, node, path.removesuffix(node.name)) for path, node in _operators(meaning.graph, "")]
    tensors = {prefix + name for path, node, prefix in every if path in paths for name in _tensors(node)}
    sharing = {path for path, node, prefix in every if any(prefix + name in tensors for name in _tensors(node))}
    return sharing | tensors


def _operators(graph: Graph, prefix: str) -> Iterator[tuple[str, Node]]:
    for step in graph.steps:
        if isinstance(step, Segment):
            yield from _operators(step.body, f"{prefix}{step.name}.")
        else:
            yield prefix + step.name, step


def _tensors(node: Node) -> Iterator[str]:
    return (value.name for value in (*node.arguments, *node.results))


def _signature(node: Node) -> tuple[str, tuple[str, ...]]:
    return node.instance.name, tuple(_tensors(node))
