"""Device and host time of single calls: `python gpu_curves.py --out FILE`.

Measured are matrix products by (m, n, k, type), forward and both gradients, products of batches of matrices forward,
attention and convolutions forward and backward, memory-bound calls, and the host's seconds by kind of call. Short
kernels are timed in a CUDA graph, which excludes launch overhead. The curves of machine files are derived from these
times. A phase of bench/gpu.py.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from gpu_timing import ceilings, device_of, host_seconds, kernel_seconds, reason_of, tf32, write
from torch import Tensor

Row = dict[str, Any]
TYPES = {
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "f32": torch.float32,
    "tf32": torch.float32,
}
MOST_FLOPS = {"bf16": 5e12, "f16": 5e12, "tf32": 2.5e12, "f32": 4e11}


def drawn(shape: tuple[int, ...], kind: str, device: torch.device) -> Tensor:
    return torch.randn(shape, device=device, dtype=torch.float32).to(TYPES[kind])


# ---------------------------------------------------------------------------------------------- products


def products(device: torch.device, tiny: bool) -> Iterator[Row]:
    """`linear` of x[m, k] and w[n, k], and its two gradients: dy[m, n] w[n, k], and dy'[n, m] x[m, k]."""
    sides = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
    rows = (1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
    few = (128, 512, 2048, 8192)
    grids = {
        "bf16": (rows, sides, sides),
        "tf32": (few, few, few),
        "f32": (few, few, few),
        "f16": ((512, 8192), (1024, 8192), (1024, 8192)),
    }
    if tiny:
        grids = {"bf16": ((4,), (8,), (8,)), "f32": ((4,), (8,), (8,))}
    for kind, (ms, ns, ks) in grids.items():
        tf32(kind == "tf32")
        for m, n, k in product(ms, ns, ks):
            if kind == "bf16" and not tiny and (m.bit_length() + n.bit_length() + k.bit_length()) % 2:
                continue  # only every second point, as on a checkerboard
            if 2.0 * m * n * k <= MOST_FLOPS[kind]:
                yield product_row(m, n, k, kind, device)
    tf32(False)


def product_row(m: int, n: int, k: int, kind: str, device: torch.device) -> Row:
    x, w, dy = drawn((m, k), kind, device), drawn((n, k), kind, device), drawn((m, n), kind, device)
    seconds = [kernel_seconds(call) for call in (lambda: F.linear(x, w), lambda: dy @ w, lambda: dy.t() @ x)]
    return {"m": m, "n": n, "k": k, "type": kind, "seconds": seconds}


def batched(device: torch.device, tiny: bool) -> Iterator[Row]:
    """Products of a batch of matrices, [b, m, k] by [b, k, n]."""
    batches, sides = ((2,), (8,)) if tiny else ((8, 64, 512), (32, 64, 128, 512, 1024, 2048))
    for kind in ("bf16", "tf32", "f32"):
        tf32(kind == "tf32")
        for b, m, n, k in product(batches, sides, sides, sides):
            elements = b * max(m * k, k * n, m * n)
            if 2.0 * b * m * n * k <= MOST_FLOPS[kind] / 4 and elements <= 2**29 and _kept(kind, tiny, m, n, k):
                x, y = drawn((b, m, k), kind, device), drawn((b, k, n), kind, device)
                seconds = kernel_seconds(lambda x=x, y=y: x @ y)  # type: ignore[misc]
                yield {"batch": b, "m": m, "n": n, "k": k, "type": kind, "seconds": seconds}
    tf32(False)


def _kept(kind: str, tiny: bool, *sides: int) -> bool:
    """Whether a shape is measured: some side is 64 or 128, and for types other than bf16 two sides are equal."""
    narrow = any(side in (64, 128) for side in sides)
    return tiny or (narrow and (kind == "bf16" or len(set(sides)) < 3))


# ---------------------------------------------------------------------------------------------- attention, convolutions


def attention(device: torch.device, tiny: bool) -> Iterator[Row]:
    """torch's fused attention in bf16, forward and backward; also with dropout, an additive mask, grouped queries."""
    lengths, heads = ((16,), (16,)) if tiny else ((256, 512, 1024, 2048, 4096, 8192), (64, 128))
    options = ("causal", "full", "causal, dropout", "causal, 4 heads a key", "full, mask", "full, mask, dropout")
    for s, e, how in product(lengths, heads, options):
        if (how.startswith("full, mask") or "dropout" in how) and s > 2048:
            continue
        h = 2048 // e if not tiny else 4
        b = max(1, 8192 // s) if not tiny else 1
        q = drawn((b, h, s, e), "bf16", device).requires_grad_()
        shared = h // 4 if "4 heads" in how else h
        k, v = (drawn((b, shared, s, e), "bf16", device).requires_grad_() for _ in range(2))
        given: dict[str, Any] = {"is_causal": "causal" in how, "dropout_p": 0.1 if "dropout" in how else 0.0}
        if "mask" in how:
            given["attn_mask"] = drawn((b, 1, 1, s), "bf16", device)
        if shared != h:
            given["enable_gqa"] = True
        made = F.scaled_dot_product_attention(q, k, v, **given)
        dy = torch.randn_like(made)

        def forward(q: Tensor = q, k: Tensor = k, v: Tensor = v, given: dict[str, Any] = given) -> Tensor:
            with torch.no_grad():
                return F.scaled_dot_product_attention(q, k, v, **given)

        def backward(q: Tensor = q, k: Tensor = k, v: Tensor = v, made: Tensor = made, dy: Tensor = dy) -> Any:
            return torch.autograd.grad(made, (q, k, v), dy, retain_graph=True)

        row = {"b": b, "h": h, "s": s, "e": e, "how": how}
        yield row | {"seconds": [kernel_seconds(forward), kernel_seconds(backward, graph=False)]}


CONVOLUTIONS = (  # images, channels, pixels a side, kernels, rows and columns of one, stride, groups
    (64, 3, 224, 64, 7, 7, 2, 1), (64, 64, 56, 128, 1, 1, 1, 1), (64, 256, 56, 128, 1, 1, 1, 1),
    (64, 512, 28, 256, 1, 1, 1, 1), (64, 1024, 14, 512, 1, 1, 1, 1), (64, 2048, 7, 1024, 1, 1, 1, 1),
    (64, 512, 14, 1024, 1, 1, 1, 1), (64, 256, 56, 512, 1, 1, 2, 1), (64, 128, 56, 128, 3, 3, 1, 32),
    (64, 256, 28, 256, 3, 3, 1, 32), (64, 512, 14, 512, 3, 3, 1, 32), (64, 1024, 7, 1024, 3, 3, 1, 32),
    (64, 64, 56, 64, 3, 3, 1, 1), (64, 128, 28, 128, 3, 3, 1, 1), (64, 256, 14, 256, 3, 3, 1, 1),
    (64, 512, 7, 512, 3, 3, 1, 1), (64, 288, 35, 384, 3, 3, 2, 1), (64, 64, 35, 96, 3, 3, 1, 1),
    (64, 128, 17, 128, 1, 7, 1, 1), (64, 192, 17, 192, 7, 1, 1, 1), (64, 448, 8, 384, 3, 3, 1, 1),
    (64, 32, 147, 64, 3, 3, 1, 1), (8, 128, 28, 128, 3, 3, 1, 1), (8, 1024, 14, 512, 1, 1, 1, 1),
    (32, 336, 21, 336, 5, 5, 1, 336), (32, 168, 42, 168, 3, 3, 1, 168), (256, 128, 28, 128, 3, 3, 1, 1),
)  # fmt: skip


def convolutions(device: torch.device, tiny: bool) -> Iterator[Row]:
    """Convolutions: forward, gradient of the image, gradient of the weight; contiguous as in programs, and channels
    last.
    """
    shapes = ((2, 4, 8, 4, 3, 3, 1, 2),) if tiny else CONVOLUTIONS
    for kind, last in (("f32", False), ("tf32", False), ("bf16", False), ("tf32", True), ("bf16", True)):
        tf32(kind == "tf32")
        for n, c, side, o, r, s, stride, groups in shapes:
            form = torch.channels_last if last else torch.contiguous_format
            x = drawn((n, c, side, side), kind, device).to(memory_format=form).requires_grad_()
            w = drawn((o, c // groups, r, s), kind, device).to(memory_format=form).requires_grad_()
            made = F.conv2d(x, w, None, stride, (r // 2, s // 2), 1, groups)
            dy = torch.randn_like(made)
            row = {"n": n, "c": c, "side": side, "o": o, "r": r, "s": s, "stride": stride, "groups": groups}

            def forward(x: Tensor = x, w: Tensor = w, how: Any = (stride, (r // 2, s // 2), 1, groups)) -> Tensor:
                with torch.no_grad():
                    return F.conv2d(x, w, None, *how)

            def of(which: Tensor, made: Tensor = made, dy: Tensor = dy) -> Callable[[], Any]:
                return lambda: torch.autograd.grad(made, which, dy, retain_graph=True)

            seconds = [kernel_seconds(forward), kernel_seconds(of(x), graph=False), kernel_seconds(of(w), graph=False)]
            yield row | {"type": kind, "channels_last": last, "seconds": seconds}
    tf32(False)


# ---------------------------------------------------------------------------------------------- memory


def streams(device: torch.device, tiny: bool) -> Iterator[Row]:
    """Elementwise calls, reductions and look-ups by the bytes that they read and write, in bf16 and float32."""
    amounts = (2**12,) if tiny else (2**16, 2**18, 2**20, 2**22, 2**24, 2**26, 2**28, 2**30)
    for kind, amount in product(("bf16", "f32"), amounts):
        columns = 64 if tiny else 1024
        rows = max(1, amount // TYPES[kind].itemsize // columns // 2)
        x, y = drawn((rows, columns), kind, device), drawn((rows, columns), kind, device)
        calls = stream_calls(x, y, drawn((64 if tiny else 50257, columns), kind, device))
        seconds = {name: [kernel_seconds(call), moved] for name, (call, moved) in calls.items()}
        yield {"bytes": amount, "type": kind, "seconds": seconds}


def stream_calls(x: Tensor, y: Tensor, table: Tensor) -> dict[str, tuple[Callable[[], Any], float]]:
    """Calls on matrices, and the bytes that each has to read and write."""
    rows, columns = x.shape
    once, other = x.nbytes, torch.float32 if x.dtype == torch.bfloat16 else torch.bfloat16
    gain, ids = torch.ones_like(x[0]), torch.randint(len(table), (rows,), device=x.device)
    return {
        "copy": (lambda: y.copy_(x), 2 * once),
        "cast": (lambda: x.to(other), once + x.numel() * other.itemsize),
        "add": (lambda: x + y, 3 * once),
        "gelu": (lambda: F.gelu(x, approximate="tanh"), 2 * once),
        "layer_norm": (lambda: F.layer_norm(x, (columns,), gain, gain), 2 * once),
        "rms_norm": (lambda: F.rms_norm(x, (columns,), gain), 2 * once),
        "softmax": (lambda: x.softmax(-1), 2 * once),
        "dropout": (lambda: F.dropout(x, 0.1), 2 * once),
        "row_sum": (lambda: x.sum(1), once),
        "column_sum": (lambda: x.sum(0), once),
        "embedding": (lambda: F.embedding(ids, table), 2 * once),
        "transposed": (lambda: x.t().contiguous(), 2 * once),
    }


# ---------------------------------------------------------------------------------------------- the host


class Passed(torch.autograd.Function):
    """An autograd function with as little computation as possible."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        return dy


def host(device: torch.device, tiny: bool) -> Iterator[Row]:
    """Host seconds by kind of call, on tensors so small that the device waits for the host."""
    times = 5 if tiny else 300
    x = torch.randn(8, 64, device=device, dtype=torch.bfloat16)
    grown, gain = x.clone().requires_grad_(), torch.ones(64, device=device, dtype=torch.bfloat16)
    w = torch.randn(64, 64, device=device, dtype=torch.bfloat16, requires_grad=True)
    q = torch.randn(1, 2, 16, 64, device=device, dtype=torch.bfloat16, requires_grad=True)
    image = torch.randn(1, 4, 8, 8, device=device, requires_grad=True)
    kernel = torch.randn(4, 4, 3, 3, device=device, requires_grad=True)
    with torch.no_grad():
        plain: dict[str, Callable[[], Any]] = {
            "empty": lambda: torch.empty(64, device=device),
            "view": lambda: x.view(64, 8),
            "transpose": lambda: x.t(),
            "cast": lambda: x.to(torch.float32),
            "add": lambda: x + x,
            "add_in_place": lambda: x.add_(1.0),
            "linear": lambda: F.linear(x, w),
            "layer_norm": lambda: F.layer_norm(x, (64,), gain, gain),
            "attention": lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True),
            "assert_async": lambda: torch._assert_async((x == x).all(), "x"),
        }
        for name, call in plain.items():
            yield {"call": name, "gradient": False, "seconds": host_seconds(call, times)}
    recorded: dict[str, Callable[[], Tensor]] = {
        "view": lambda: grown.view(64, 8),
        "cast": lambda: grown.to(torch.float32),
        "add": lambda: grown + x,
        "linear": lambda: F.linear(grown, w),
        "layer_norm": lambda: F.layer_norm(grown, (64,), gain, gain),
        "attention": lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True),
        "conv2d": lambda: F.conv2d(image, kernel, padding=1),
        "gelu": lambda: F.gelu(grown, approximate="tanh"),
        "function": lambda: Passed.apply(grown),
    }
    for name, call in recorded.items():
        made = call()
        leaf = {"linear": (grown, w), "attention": (q,), "conv2d": (image, kernel)}.get(name, (grown,))
        dy = torch.ones_like(made)
        yield {"call": name, "gradient": True, "seconds": host_seconds(call, times)}

        def backward(made: Tensor = made, leaf: tuple[Tensor, ...] = leaf, dy: Tensor = dy) -> Any:
            return torch.autograd.grad(made, leaf, dy, retain_graph=True)

        yield {"call": f"{name} backward, with autograd's start", "seconds": host_seconds(backward, times)}
    for name, apply in (("function", Passed.apply), ("neg", torch.neg), ("mul", lambda y: y * x)):
        yield {"call": f"{name} backward, a node", "seconds": chained(apply, grown, times)}
    parameters = [torch.randn(64, device=device, requires_grad=True) for _ in range(150)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.AdamW(parameters, lr=1e-5, fused=device.type == "cuda")
    yield {"call": "AdamW of 150 parameters", "seconds": host_seconds(optimizer.step, max(3, times // 10))}
    event = torch.cuda.Event if device.type == "cuda" else None
    if event is not None:
        stream = torch.cuda.Stream()
        yield {"call": "record an event", "seconds": host_seconds(lambda: event().record(), times)}
        yield {
            "call": "wait for a stream",
            "seconds": host_seconds(lambda: stream.wait_stream(torch.cuda.current_stream()), times),
        }
    yield from host_collectives(device, times)


def chained(apply: Callable[[Tensor], Tensor], x: Tensor, times: int) -> float:
    """Host seconds of one autograd node: a tenth of the time by which a chain of eleven exceeds a chain of one."""

    def of(count: int) -> float:
        made = x
        for _ in range(count):
            made = apply(made)
        dy = torch.ones_like(made)
        return host_seconds(lambda: torch.autograd.grad(made, x, dy, retain_graph=True), times)

    return (of(11) - of(1)) / 10


def host_collectives(device: torch.device, times: int) -> Iterator[Row]:
    """Host seconds to issue and to wait for collectives in a group of one rank."""
    with tempfile.TemporaryDirectory() as folder:
        backend = "nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, init_method=f"file://{folder}/store", rank=0, world_size=1)
        group = dist.new_group([0])
        x = torch.ones(64, device=device)
        functional: Any = torch.ops._c10d_functional
        name = group.group_name
        calls: dict[str, Callable[[], Any]] = {
            "functional all_reduce": lambda: functional.wait_tensor(functional.all_reduce(x, "sum", name)),
            "functional all_gather": lambda: functional.wait_tensor(functional.all_gather_into_tensor(x, 1, name)),
            "functional reduce_scatter": lambda: functional.wait_tensor(
                functional.reduce_scatter_tensor(x, "sum", 1, name)
            ),
            "all_reduce": lambda: dist.all_reduce(x, group=group),
            "all_reduce, async": lambda: dist.all_reduce(x, group=group, async_op=True).wait(),
        }
        for call_name, call in calls.items():
            yield {"call": call_name, "seconds": host_seconds(call, times)}
        dist.destroy_process_group()


PARTS = {
    "host": host,
    "products": products,
    "attention": attention,
    "convolutions": convolutions,
    "batched": batched,
    "streams": streams,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--parts", nargs="+", choices=tuple(PARTS), default=tuple(PARTS))
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    device = device_of(options.cpu)
    results: dict[str, Any] = {"ceilings": ceilings(device, options.cpu)}
    for name in options.parts:
        rows: list[Row] = []
        start = saved = perf_counter()
        results[name] = {"rows": rows}
        try:
            for row in PARTS[name](device, options.cpu):
                rows.append(row)
                if perf_counter() > saved + 2:
                    write(options.out, results)
                    saved = perf_counter()
        except Exception as error:
            results[name]["failed"] = reason_of(error)
        results[name]["took"] = perf_counter() - start
        write(options.out, results)
    print("done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
