"""Small random models with shared values and tied weights, and machines on which anything may be the cheapest."""

from __future__ import annotations

from random import Random

from unity_dsl.machine.machine import Link, Machine


def random_model(rng: Random, steps: int, sizes: tuple[int, ...] = (2, 3, 4)) -> str:
    """A chain of operators with branches: each reads what came last or what came before, all of one shape or square."""
    rows, columns = rng.choice(sizes), rng.choice(sizes)
    lines = [f"  input x: f32[{rows}, {columns}]", f"  input target: f32[{rows}, {columns}]"]
    values, weights, body = [], [f"w0: f32[{columns}, {columns}]"], ["  v0 = linear(x, w0)"]
    values.append("v0")
    for number in range(1, steps + 1):
        last, other = values[-1], rng.choice(values)
        kind = rng.choice(("linear", "tied", "add", "mul", "relu", "softmax", "scale"))
        match kind:
            case "linear":
                weights.append(f"w{number}: f32[{columns}, {columns}]")
                body.append(f"  v{number} = linear({last}, w{number})")
            case "tied":
                body.append(f"  v{number} = linear({last}, {rng.choice(weights).split(':')[0]})")
            case "add":
                body.append(f"  v{number} = {last} + {other}")
            case "mul":
                body.append(f"  v{number} = {last} * {other}")
            case "scale":
                body.append(f"  v{number} = {other} * 0.5")
            case _:
                body.append(f"  v{number} = {kind}({other})")
        values.append(f"v{number}")
    lines += [f"  weight {weight} ~ normal(0.1)" for weight in weights]
    ends = [f"  loss mse({values[-1]}, target)"]
    if rng.random() < 0.5:
        ends.append(f"  output {rng.choice(values)}")
    return "\n".join(["model random[n = 1]", *lines, *body, *ends]) + "\n"


def random_machine(rng: Random) -> Machine:
    """Two levels. Compute, memory, links and launches are worth about the same on tensors of a few bytes."""

    def about(scale: float) -> float:
        return scale * 10 ** rng.uniform(-1.5, 1.5)

    levels = tuple(Link(name, 2, about(20.0), about(0.1)) for name in ("fast", "slow"))
    peak = dict.fromkeys(("f64", "f32", "bf16", "f16"), about(50.0))
    return Machine("random", "cpu", peak, about(100.0), 1e9, about(0.05), 1.0, 1.0, levels)
