"""The enumeration against brute force over all graphs of a small table: handwritten functions on exact integers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations_with_replacement, product

import numpy as np
import numpy.typing as npt

from unity_dsl.index.declarations.loading import load_library
from unity_dsl.rules.enumeration.candidates import candidates
from unity_dsl.rules.enumeration.context import contexts
from unity_dsl.rules.enumeration.signature_table import read_table
from unity_dsl.syntax.ast import Apply, Expr, Name, Number
from unity_dsl.syntax.parse_rules import GraphCall, GraphExpr, GraphView, RuleDecl
from unity_dsl.syntax.span import Source

Array = npt.NDArray[np.int64]
Graph = tuple[object, ...]
"""`("x",)` is an input, `("add", g, h)` an operator."""
SEED = 20
OPERATORS = 2
TABLE = """
[small]
operators = 2
signatures = [
  "(x: [m, n], y: [m, n]) add(x, y)",
  "(x: [m, n], y: [m, n]) mul(x, y)",
  "(x: [m, n]) relu(x)",
  "(x: [m, k], y: [k, n]) matmul(x, y)",
  "(x: [m, n]) x[m, n] -> [n, m]",
]
"""
FUNCTIONS: dict[str, Callable[..., Array]] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "relu": lambda x: np.maximum(x, 0),
    "matmul": lambda x, y: x @ y,
    "transpose": lambda x: np.swapaxes(x, -1, -2),
}


def typed(name: str, *shapes: tuple[int, int]) -> bool:
    if name in ("add", "mul"):
        return shapes[0] == shapes[1]
    return name != "matmul" or shapes[0][1] == shapes[1][0]


def operators_of(graph: Graph) -> set[Graph]:
    inner = [part for part in graph[1:] if isinstance(part, tuple)]
    return {graph, *(one for part in inner for one in operators_of(part))} if inner else set()


def value(graph: Graph, inputs: dict[str, Array]) -> Array:
    name, *parts = graph
    if not parts:
        return inputs[str(name)]
    return FUNCTIONS[str(name)](*(value(part, inputs) for part in parts if isinstance(part, tuple)))


def all_graphs(inputs: dict[str, Array]) -> dict[Graph, Array]:
    """Every graph of at most two operators (a shared operator counts once) with its values."""
    made: dict[Graph, Array] = {(name,): array for name, array in inputs.items()}
    for _ in range(OPERATORS):
        for name, function in FUNCTIONS.items():
            arity = 1 if name in ("relu", "transpose") else 2
            for parts in product(list(made), repeat=arity):
                graph = (name, *parts)
                if graph in made or len(operators_of(graph)) > OPERATORS:
                    continue
                operands = [made[part] for part in parts]
                if typed(name, *((one.shape[-2], one.shape[-1]) for one in operands)):
                    made[graph] = function(*operands)
    return made


# ---------------------------------------------------------------------------------------------- what the rules say


def graph_of(expr: GraphExpr) -> Graph:
    match expr:
        case Name(name):
            return (name,)
        case GraphView(operand):
            return "transpose", graph_of(operand)
        case GraphCall(name, arguments):
            return name, *map(graph_of, arguments)
    raise AssertionError(expr)


@cache
def found_rules() -> list[RuleDecl]:
    library = load_library()
    table = read_table(Source("table.toml", TABLE))
    return [rule for context in contexts(table, library) for rule in candidates(context, library).candidates]


def matches(pattern: Graph, graph: Graph, bound: dict[str, Graph]) -> dict[str, Graph] | None:
    if len(pattern) == 1:
        name = str(pattern[0])
        return bound | {name: graph} if bound.get(name, graph) == graph else None
    if pattern[0] != graph[0] or len(pattern) != len(graph):
        return None
    known: dict[str, Graph] | None = bound
    for one, other in zip(pattern[1:], graph[1:], strict=True):
        assert isinstance(one, tuple) and isinstance(other, tuple)
        known = None if known is None else matches(one, other, known)
    return known


def filled(pattern: Graph, bound: dict[str, Graph]) -> Graph:
    if len(pattern) == 1:
        return bound[str(pattern[0])]
    return pattern[0], *(filled(part, bound) for part in pattern[1:] if isinstance(part, tuple))


def classes_by_rules(graphs: dict[Graph, Array], rules: list[tuple[Graph, Graph]]) -> dict[Graph, Graph]:
    """The representative of every graph's equivalence class under the rules, which are applied at any subgraph."""
    first = {graph: graph for graph in graphs}

    def find(graph: Graph) -> Graph:
        while first[graph] != graph:
            graph = first[graph]
        return graph

    def join(one: Graph, other: Graph) -> bool:
        one, other = find(one), find(other)
        if one != other:
            first[max(one, other, key=str)] = min(one, other, key=str)
        return one != other

    for graph in graphs:
        for left, right in rules:
            bound = matches(left, graph, {})
            other = None if bound is None else filled(right, bound)
            if other in graphs:
                join(graph, other)
    changed = True
    while changed:
        changed = False
        seen: dict[Graph, Graph] = {}
        for graph in graphs:
            if len(graph) > 1:
                key = graph[0], *(find(part) for part in graph[1:] if isinstance(part, tuple))
                changed |= join(seen.setdefault(key, graph), graph)
    return {graph: find(graph) for graph in graphs}


# ---------------------------------------------------------------------------------------------- tests


def typings() -> Iterator[tuple[tuple[int, int], ...]]:
    """Shapes of one to three inputs, up to their order."""
    shapes = list(product((2, 3), repeat=2))
    for count in (1, 2):
        yield from combinations_with_replacement(shapes, count)
    yield from (((2, 3), (2, 3), (2, 3)), ((2, 3), (3, 2), (2, 3)), ((2, 3), (3, 3), (3, 2)), ((2, 2), (2, 3), (2, 3)))


def draw(shapes: tuple[tuple[int, int], ...], random: np.random.Generator) -> dict[str, Array]:
    """Random integers, twenty draws for every input."""
    return {name: random.integers(-99, 100, (20, *shape)) for name, shape in zip("xyz", shapes, strict=False)}


def test_what_is_found_implies_all_equal_graphs_and_nothing_else() -> None:
    rules = [(graph_of(rule.left[0]), graph_of(rule.right[0])) for rule in found_rules()]
    assert len(rules) > 10
    random = np.random.default_rng(SEED)
    equal = 0
    for shapes in typings():
        graphs = all_graphs(draw(shapes, random))
        classes = classes_by_rules(graphs, rules)
        by_value: dict[tuple[tuple[int, ...], bytes], Graph] = {}
        for graph, array in graphs.items():
            one = by_value.setdefault((array.shape, array.tobytes()), graph)
            equal += one != graph
            assert classes[one] == classes[graph], f"seed {SEED}, {shapes}: {one} == {graph} is not found"
        by_class: dict[Graph, Graph] = {}
        for graph, array in graphs.items():
            one = by_class.setdefault(classes[graph], graph)
            assert np.array_equal(graphs[one], array), f"seed {SEED}, {shapes}: {one} == {graph} is found and false"
    assert equal > 400


def test_every_candidate_holds_at_sizes_of_its_own() -> None:
    random = np.random.default_rng(SEED)
    for rule in found_rules():
        sizes: dict[str, int] = {}
        inputs = {}
        for tensor in rule.inputs:
            shape = tuple(size(dim.size, sizes) for dim in tensor.dims)
            inputs[tensor.name] = random.integers(-9, 10, (4, *shape))
        left, right = (value(graph_of(side[0]), inputs) for side in (rule.left, rule.right))
        assert np.array_equal(left, right), f"seed {SEED}: {rule}"


def size(expr: Expr, sizes: dict[str, int]) -> int:
    """The numeric value of a size. Every new letter gets a different number."""
    match expr:
        case Name(name):
            return sizes.setdefault(name, 2 + len(sizes))
        case Number(number):
            return int(number)
        case Apply("+", (left, right)):
            return size(left, sizes) + size(right, sizes)
    raise AssertionError(expr)
