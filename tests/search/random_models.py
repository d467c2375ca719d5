"""Small random models with shared values and tied weights, and machines on which any plan may be the cheapest."""

from __future__ import annotations

from random import Random

from unity_dsl.machine.machine import Link, Machine

Step = tuple[str, str, tuple[str, ...], str | None]
"""A value's name, its expression, the values it reads, and its weight."""


def random_model(rng: Random, steps: int, sizes: tuple[int, ...] = (2, 3, 4)) -> str:
    """Matrix operators of one shape, each reading the last value or earlier ones. Unread operators are left out.

    Some models also have outputs, some have outputs only.
    """
    rows, columns = rng.choice(sizes), rng.choice(sizes)
    made: list[Step] = [("v0", "linear(x, w0)", (), "w0")]
    for number in range(1, steps + 1):
        made.append(_step(rng, number, made))
    wanted, weights, body = {made[-1][0]}, set(), []
    for name, expression, reads, weight in reversed(made):
        if name in wanted:
            wanted.update(reads)
            weights.update([weight] if weight else [])
            body.append(f"  {name} = {expression}")
    lines = [f"  input {name}: f32[{rows}, {columns}]" for name in ("x", "target")]
    lines += [f"  weight {weight}: f32[{columns}, {columns}] ~ normal(0.1)" for weight in sorted(weights)]
    ends = [f"  loss mse({made[-1][0]}, target)"]
    if (chance := rng.random()) < 0.5:
        ends.append(f"  output {rng.choice(sorted(wanted))}")
    if chance < 0.1:
        ends[0] = f"  output {made[-1][0]} as last"
        lines.remove(f"  input target: f32[{rows}, {columns}]")
    return "\n".join(["model random[n = 1]", *lines, *reversed(body), *ends]) + "\n"


def _step(rng: Random, number: int, made: list[Step]) -> Step:
    last, other = made[-1][0], rng.choice(made)[0]
    name = f"v{number}"
    match rng.choice(("linear", "tied", "add", "mul", "relu", "softmax", "scale")):
        case "linear":
            return name, f"linear({last}, w{number})", (last,), f"w{number}"
        case "tied":
            weight = rng.choice([weight for _, _, _, weight in made if weight])
            return name, f"linear({last}, {weight})", (last,), weight
        case "add":
            return name, f"{last} + {other}", (last, other), None
        case "mul":
            return name, f"{last} * {other}", (last, other), None
        case "scale":
            return name, f"{other} * 0.5", (other,), None
        case function:
            return name, f"{function}({other})", (other,), None


def random_repeat(rng: Random, count: int) -> tuple[str, str]:
    """A model with a repeat, and the same model with its iterations written out."""
    rows, columns = rng.choice((2, 4, 6)), rng.choice((2, 4, 6))
    kinds = [rng.choice(("linear", "relu", "add", "softmax", "mul")) for _ in range(rng.choice((1, 2, 3)))]
    head = [f"  input {name}: f32[{rows}, {columns}]" for name in ("x", "target")]
    head += [f"  weight w0: f32[{columns}, {columns}] ~ normal(0.1)", "  v = linear(x, w0)"]
    folded = [f"  repeat {count} as layer", *_body(kinds, columns, "    ", "")]
    written = [line for i in range(count) for line in _body(kinds, columns, "  ", f"_{i}")]
    texts = ["\n".join(["model m[n = 1]", *head, *body, "  loss mse(v, target)"]) + "\n" for body in (folded, written)]
    return texts[0], texts[1]


def _body(kinds: list[str], columns: int, indent: str, suffix: str) -> list[str]:
    weights = [f"u{i}{suffix}" for i, kind in enumerate(kinds) if kind == "linear"]
    lines = [f"{indent}weight {weight}: f32[{columns}, {columns}] ~ normal(0.1)" for weight in weights]
    reads_entry = any(kind in ("add", "mul") for kind in kinds)
    lines += [f"{indent}e = v * 2"] if reads_entry else []
    expressions = {"relu": "relu(v)", "add": "v + e", "softmax": "softmax(v)", "mul": "v * e"}
    for i, kind in enumerate(kinds):
        lines.append(f"{indent}v = {expressions.get(kind, f'linear(v, u{i}{suffix})')}")
    return lines


def random_machine(rng: Random) -> Machine:
    """A machine of two levels. Compute, memory, links and launches cost about the same on tensors of a few bytes."""

    def about(scale: float) -> float:
        return scale * 10 ** rng.uniform(-1.5, 1.5)

    levels = tuple(Link(name, 2, about(20.0), about(0.1)) for name in ("fast", "slow"))
    peak = dict.fromkeys(("f64", "f32", "bf16", "f16"), about(50.0))
    return Machine("random", "cpu", peak, about(100.0), 1e9, about(0.05), 1.0, 1.0, levels)
