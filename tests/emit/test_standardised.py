"""The emitted function that standardises a sharded tensor, against torch's autograd of the whole tensor in float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from unity_dsl.emit.conversion_text import Collectives
from unity_dsl.emit.parallel_text import render_collectives
from unity_dsl.emit.rank_pool import RankPool
from unity_dsl.graph.emitted_kernels import STANDARDISING
from unity_dsl.index.declarations.loading import load_library

from . import ranks
from .planning import conversions_on, mesh_of

EPS = 1e-3


@pytest.fixture
def path(tmp_path: Path) -> str:
    mesh, library = mesh_of(4), load_library()
    collectives = Collectives(mesh, library, conversions_on(mesh, library))
    collectives.standardised()
    found = tmp_path / "parallel.py"
    found.write_text(render_collectives("standardised", collectives))
    return str(found)


def whole(given: list[np.ndarray | None], cotangents: list[np.ndarray | None]) -> list[np.ndarray]:
    """Results and gradients of the definition, on one device."""
    import torch

    x, gain, bias = (None if a is None else torch.from_numpy(a).double().requires_grad_() for a in given)
    assert x is not None
    over, shape = [dim for dim in range(x.dim()) if dim != 1], (-1, *[1] * (x.dim() - 2))
    mean = x.mean(over)
    variance = ((x - mean.view(shape)) ** 2).mean(over)
    y = (x - mean.view(shape)) / torch.sqrt(variance + EPS).view(shape)
    y = y if gain is None else y * gain.view(shape)
    y = y if bias is None else y + bias.view(shape)
    pairs = [
        (r, torch.from_numpy(c).double()) for r, c in zip((y, mean, variance), cotangents, strict=True) if c is not None
    ]
    moved = [a for a in (x, gain, bias) if a is not None]
    found = torch.autograd.grad([r for r, _ in pairs], moved, [c for _, c in pairs], allow_unused=True)
    zeros = [torch.zeros_like(a) if g is None else g for a, g in zip(moved, found, strict=True)]
    return [t.detach().numpy() for t in (y, mean, variance, *zeros)]


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("of", ["value", "all", "moments"])
@pytest.mark.parametrize("shape", [(8, 3), (8, 3, 5), (4, 3, 2, 5)])
def test_it_is_the_definition(shape: tuple[int, ...], of: str, scaled: bool, path: str, pool: RankPool) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal(shape) * 2 + 1
    gain, bias = (random.standard_normal(3) for _ in range(2)) if scaled else (None, None)
    value, *moments = random.standard_normal(shape), random.standard_normal(3), random.standard_normal(3)
    cotangents = [None if of == "moments" else value, *([None, None] if of == "value" else moments)]
    shards = np.split(x, 4), [None] * 4 if cotangents[0] is None else np.split(value, 4)
    results = pool.run(ranks.standardise, path, shards[0], gain, bias, EPS, shards[1], cotangents[1:], ranks=4)
    expected = whole([x, gain, bias], cotangents)
    found = [np.concatenate([r["y"] for r in results]), *(results[0][name] for name in ("mean", "variance"))]
    found.append(np.concatenate([r["x"] for r in results]))
    # Every device has a partial sum of the gain and bias gradients, which `synchronise` would sum.
    found += [sum(r[name] for r in results) for name in (("gain", "bias") if scaled else ())]
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(("mean", "deviation"), [(1e4, 1.0), (1e4, 0.0), (0.0, 0.0), (3.0, 1e-3)])
def test_far_means_and_constants_in_float32(mean: float, deviation: float, path: str, pool: RankPool) -> None:
    """At most about twice the error of torch's own call on one device, which knows the mean to one unit in the last
    place.
    """
    import torch

    random = np.random.default_rng(1)
    x = (random.standard_normal((32, 4, 6)) * deviation + mean).astype(np.float32)
    gain, bias, g = (random.standard_normal(s).astype(np.float32) for s in (4, 4, x.shape))
    results = pool.run(ranks.standardise, path, np.split(x, 4), gain, bias, EPS, np.split(g, 4), [None, None], ranks=4)
    found = [np.concatenate([r[name] for r in results]) for name in ("y", "x")]
    expected = whole([x, gain, bias], [g, None, None])
    one, w, b = (torch.from_numpy(a).requires_grad_() for a in (x, gain, bias))
    native = torch.nn.functional.batch_norm(one, None, None, w, b, True, 0.0, EPS)
    (native_x,) = torch.autograd.grad(native, one, torch.from_numpy(g))
    for mine, theirs, exact in zip(
        found, (native.detach().numpy(), native_x.numpy()), (expected[0], expected[3]), strict=True
    ):
        size = max(float(np.abs(exact).max()), 1.0)
        assert float(np.abs(mine - exact).max()) <= 2 * float(np.abs(theirs - exact).max()) + 1e-6 * size


def test_collectives_kernels_and_what_is_saved(path: str, pool: RankPool) -> None:
    """One collective each way, and as many kernels as the price assumes. In float64 means are averaged before
    variances.
    """
    x = np.random.default_rng(2).standard_normal((8, 3, 5))
    parts = np.split(x, 4)
    exact = pool.run(ranks.standardising, path, parts, EPS, ranks=4)
    forward, backward = STANDARDISING[0]
    assert exact == [(("all_reduce",) * 2, ("all_reduce",), (forward - 3, backward), [24, 24, 24, 240])] * 4
    found = pool.run(ranks.standardising, path, [part.astype(np.float32) for part in parts], EPS, ranks=4)
    # The gain, then mean and variance in one storage, then the standardised operand.
    assert found == [(("all_reduce",), ("all_reduce",), STANDARDISING[0], [12, 24, 120])] * 4
