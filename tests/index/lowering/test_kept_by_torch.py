"""What the table says torch saves for backward, against what torch saves, for every function of the allowlist."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from unity_dsl.index.evaluation.native_calls import TORCH_CALLS
from unity_dsl.index.lowering.execution import Operand, execute
from unity_dsl.index.lowering.operator_lowering import Lowering
from unity_dsl.index.lowering.torch_term import Argument, Sort, Term, Variable, number
from unity_dsl.index.lowering.value_lowering import Statement

from ...emit.fused_kernels import rms_norm


@dataclass(frozen=True)
class Ids:
    """A tensor of positions, or a mask."""

    shape: tuple[int, ...]
    mask: bool = False


# A tuple of sizes is a float tensor; any value but `Ids` stands for itself.
ROWS = ((3, 4),)
IMAGE = ((2, 3, 8, 8),)


def several(names: str, *arguments: Any) -> dict[str, tuple[Any, ...]]:
    return dict.fromkeys(names.split(), arguments)


POINTWISE = """
    abs acos acosh asin asinh atan atanh ceil clone cos cosh detach erf exp exp2 expm1 floor log log10 log1p log2 neg
    relu round rsqrt sigmoid sign sin sinh sqrt square tan tanh trunc zeros_like F.elu F.gelu F.hardtanh F.leaky_relu
    F.silu F.softplus
"""
LOSSES = "F.mse_loss F.l1_loss F.huber_loss F.smooth_l1_loss F.binary_cross_entropy F.binary_cross_entropy_with_logits"
CALLS: dict[str, tuple[Any, ...]] = {
    **several(POINTWISE, *ROWS),
    **several("add div maximum minimum mul sub pow", (3, 4), (3, 4)),
    **several("amax amin cumsum logsumexp mean prod softmax sum argsort", *ROWS, -1),
    **several(LOSSES, (3, 4), (3, 4)),
    "sort": (*ROWS, -1),
    "topk": (*ROWS, 2),
    "bmm": ((2, 3, 4), (2, 4, 5)),
    "matmul": ((2, 3, 4), (4, 5)),
    "cat": ([(3, 4), (2, 4)], 0),
    "clamp": (*ROWS, 0.2, 0.7),
    "flip": (*ROWS, [0]),
    "roll": (*ROWS, 1, 0),
    "gather": (*ROWS, 0, Ids((2, 4))),
    "scatter_add": (*ROWS, 0, Ids((2, 4)), (2, 4)),
    "masked_fill": (*ROWS, Ids((3, 4), mask=True), 0),
    "where": (Ids((3, 4), mask=True), (3, 4), (3, 4)),
    "narrow": (*ROWS, 0, 1, 2),
    "ne": (*ROWS, 0),
    "permute": (*ROWS, [1, 0]),
    "reshape": (*ROWS, [4, 3]),
    "select": (*ROWS, 0, 1),
    "transpose": (*ROWS, 0, 1),
    "unsqueeze": (*ROWS, 0),
    "F.adaptive_avg_pool2d": (*IMAGE, 2),
    "F.avg_pool1d": ((2, 3, 8), 2),
    "F.avg_pool2d": (*IMAGE, 2),
    "F.max_pool1d": ((2, 3, 8), 2),
    "F.max_pool2d": (*IMAGE, 2),
    "F.conv1d": ((2, 3, 8), (5, 3, 3)),
    "F.conv2d": (*IMAGE, (5, 3, 3, 3)),
    "F.conv_transpose1d": ((2, 3, 8), (3, 5, 3)),
    "F.conv_transpose2d": (*IMAGE, (3, 5, 3, 3)),
    "F.cross_entropy": (*ROWS, Ids((3,))),
    "F.nll_loss": (*ROWS, Ids((3,))),
    "F.log_softmax": (*ROWS, -1),
    "F.embedding": (Ids((5,)), (3, 4)),
    "F.embedding_bag": (Ids((5, 2)), (3, 4)),
    "F.one_hot": (Ids((5,)), 3),
    "F.linear": ((2, 3, 4), (5, 4)),
    "F.pad": (*ROWS, [1, 1]),
    "F.layer_norm": (*ROWS, [4], (4,), (4,)),
    "F.rms_norm": (*ROWS, [4], (4,), 1e-5),
    "F.group_norm": ((2, 4, 5), 2, (4,), (4,)),
    "F.batch_norm": ((3, 4, 5), (4,), (4,), (4,), (4,), True),
    "F.scaled_dot_product_attention": ((2, 4, 5, 8), (2, 4, 5, 8), (2, 4, 5, 8)),
}


def named(name: str) -> str:
    return name if "." in name else f"torch.{name}"


def tensor(given: Any) -> torch.Tensor | None:
    """The tensor that an argument stands for; a float tensor requires a gradient."""
    match given:
        case Ids(shape, True):
            return torch.rand(shape) < 0.5
        case Ids(shape):
            return torch.randint(2, shape)
        case tuple():
            return torch.rand(given).add(0.01).clamp(max=0.99).requires_grad_()
    return None


def kept(function: Any, arguments: list[Any]) -> tuple[list[torch.Tensor], Counter[str]]:
    """The results of a call, and what torch saves for backward: operands by number, results, others by their bytes."""
    found: dict[int, torch.Tensor] = {}

    def save(saved: torch.Tensor) -> torch.Tensor:
        return found.setdefault(saved.untyped_storage().data_ptr(), saved)

    with torch.autograd.graph.saved_tensors_hooks(save, lambda saved: saved):
        made = function(*arguments)
    results = [made] if isinstance(made, torch.Tensor) else list(made)
    if not any(result.requires_grad for result in results):
        return results, Counter()  # no result requires a gradient, so what was saved is freed
    operands = [x for part in arguments for x in (part if isinstance(part, list) else [part])]
    operands = [x for x in operands if isinstance(x, torch.Tensor)]
    names = {result.untyped_storage().data_ptr(): "result" for result in results[:1]}
    names |= {operand.untyped_storage().data_ptr(): str(place) for place, operand in enumerate(operands)}
    sizes = {at: saved.untyped_storage().nbytes() for at, saved in found.items()}
    return results, Counter(names.get(at, f"{size} bytes") for at, size in sizes.items())


def test_every_function_has_a_case() -> None:
    assert {named(name) for name in CALLS} == TORCH_CALLS


@pytest.mark.parametrize("name", CALLS)
def test_what_a_call_keeps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(torch.nn.functional, "rms_norm", rms_norm)
    inputs: list[torch.Tensor] = []

    def both(given: Any) -> tuple[Any, Argument]:
        if isinstance(given, list) and isinstance(given[0], tuple):
            pairs = [both(part) for part in given]
            return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        x = tensor(given)
        if x is None:
            return given, number(given) if isinstance(given, int | float) else given
        if name == "F.batch_norm" and len(inputs) in (1, 2):
            x = x.detach()
        inputs.append(x)
        sort = Sort.FLOAT if x.is_floating_point() else Sort.BOOL if x.dtype == torch.bool else Sort.INT
        return x, Term("name", (Variable(len(inputs) - 1),), tuple(map(str, range(x.dim()))), sort)

    pairs = [both(given) for given in CALLS[name]]
    module, _, function = named(name).partition(".")
    call = getattr(torch.nn.functional if module == "F" else torch, function)
    results, expected = kept(call, [pair[0] for pair in pairs])
    (real, *_) = results
    sort = Sort.FLOAT if real.is_floating_point() else Sort.BOOL if real.dtype == torch.bool else Sort.INT
    term = Term(named(name), tuple(pair[1] for pair in pairs), tuple(map(str, range(real.dim()))), sort)
    result = Variable(len(inputs))
    operands = [
        Operand(tuple(x.shape), s.sort, x.requires_grad)
        for x, s in zip(inputs, (t for t in _terms(pairs)), strict=True)
    ]
    found = execute(
        Lowering((Statement((result,), term, "y"),), (result,)), operands, [Operand(tuple(real.shape), Sort.FLOAT)], 4
    )
    names = {output.storage: "result" for output in found.outputs}
    names |= {x.storage: str(place) for place, x in enumerate(found.inputs)}
    assert Counter(names.get(storage, f"{storage.bytes} bytes") for storage in found.saved) == expected


def _terms(pairs: list[tuple[Any, Argument]]) -> list[Term]:
    """The operands of a call, in order."""
    parts = [part for _, given in pairs for part in (given if isinstance(given, list) else [given])]
    return [part for part in parts if isinstance(part, Term) and part.is_name]
