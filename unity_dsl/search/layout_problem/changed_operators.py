"""Finds the operators that one model has and another lacks, by path as in a Restriction."""

from __future__ import annotations

from collections.abc import Iterator

from ...graph.graph import Graph, Node, Segment


def changed_paths(changed: Graph, given: Graph) -> set[str]:
    """Paths of operators of a changed model for which the given one has none with the same name, op and tensors."""
    before = {path: _signature(node) for path, node in _operators(given, "")}
    return {path for path, node in _operators(changed, "") if before.get(path) != _signature(node)}


def _operators(graph: Graph, prefix: str) -> Iterator[tuple[str, Node]]:
    for step in graph.steps:
        if isinstance(step, Segment):
            yield from _operators(step.body, f"{prefix}{step.name}.")
        else:
            yield prefix + step.name, step


def _signature(node: Node) -> tuple[str, tuple[str, ...]]:
    return node.instance.name, tuple(value.name for value in (*node.arguments, *node.results))
