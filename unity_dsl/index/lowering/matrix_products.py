"""The operands of matrix products in torch: views or copies that one kernel can multiply."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from .local_tensor import Memory, Storage, Tensor, broadcast


def kept_factors(operands: Sequence[Tensor]) -> Iterator[Storage]:
    """Yields each factor of a product of two whose other factor has a gradient."""
    for operand, other in zip(operands, reversed(operands), strict=True):
        if len(operands) > 1 and other.moves:
            yield operand.storage


def matrix_product(memory: Memory, left: Tensor, right: Tensor, saved: list[Storage]) -> Tensor:
    """`torch.matmul(left, right)` of matrices or batches of them (ATen's matmul).

    What autograd saves is added to `saved`.
    """
    rows, columns = left.shape[:-1], right.shape[-1]
    if len(right.shape) == 2:
        flat = left.split((prod(rows), left.shape[-1]))
        if flat is not None or right.moves:
            left = memory.reshaped(left, (prod(rows), left.shape[-1]))
            saved += kept_factors([left, right])
            return memory.new((*rows, columns), left.sort, moves=left.moves or right.moves)
    batch = broadcast([left.shape[:-2], right.shape[:-2]])
    left, right = (
        memory.reshaped(t.expanded((*batch, *t.shape[-2:])), (prod(batch), *t.shape[-2:])) for t in (left, right)
    )
    saved += kept_factors([left, right])
    return memory.new((*batch, left.shape[-2], columns), left.sort, moves=left.moves or right.moves)


def contract(memory: Memory, spec: str, operands: Sequence[Tensor], saved: list[Storage]) -> Tensor:
    """`torch.einsum(spec, *operands)`, contracted pair by pair from the left (ATen's einsum, without opt_einsum)."""
    inputs, result = spec.split("->")
    names = inputs.split(",")
    letters = [*result, *dict.fromkeys(letter for name in names for letter in name if letter not in result)]
    left = [_placed(operand, name, letters) for operand, name in zip(operands, names, strict=True)]
    counts = {dim: sum(t.shape[dim] != 1 for t in left) for dim in range(len(result), len(letters))}
    while len(left) > 1:
        first, second, *left = left
        both = {dim for dim in counts if first.shape[dim] != 1 != second.shape[dim]}
        for dim in both:
            counts[dim] -= 1
        summed = {dim for dim in both if counts[dim] == 1}
        alone = {dim for dim, count in counts.items() if count == 1 and dim not in both}
        first, second = (_summed(memory, t, {dim for dim in alone if t.shape[dim] != 1}) for t in (first, second))
        for dim in (*summed, *alone):
            counts[dim] = 0
        left.insert(0, _pair(memory, first, second, summed, saved))
    (total,) = left
    return total.viewed(total.shape[: len(result)], total.strides[: len(result)])


def _placed(operand: Tensor, name: str, letters: Sequence[str]) -> Tensor:
    """The operand with a dimension for every letter, of length 1 where it has none."""
    shape, strides = dict(zip(name, operand.shape, strict=True)), dict(zip(name, operand.strides, strict=True))
    return operand.viewed([shape.get(letter, 1) for letter in letters], [strides.get(letter, 1) for letter in letters])


def _summed(memory: Memory, tensor: Tensor, dims: set[int]) -> Tensor:
    if not dims:
        return tensor
    shape = [1 if dim in dims else size for dim, size in enumerate(tensor.shape)]
    return memory.new(shape, tensor.sort, moves=tensor.moves)


def _pair(memory: Memory, left: Tensor, right: Tensor, over: set[int], saved: list[Storage]) -> Tensor:
    """The product of two tensors, summed over dimensions that keep length 1 (ATen's sumproduct_pair)."""
    moves = left.moves or right.moves
    if not over:
        saved += kept_factors([left, right])
        return memory.elementwise([left, right], left.sort, moves=moves)
    shape = broadcast([left.shape, right.shape])
    dims = [dim for dim in range(len(shape)) if dim not in over]
    batch = [dim for dim in dims if left.shape[dim] != 1 and right.shape[dim] != 1]
    rows = [dim for dim in dims if left.shape[dim] != 1 and right.shape[dim] == 1]
    columns = [dim for dim in dims if left.shape[dim] == 1]
    inner = sorted(over)
    sizes = [prod(shape[dim] for dim in group) for group in (batch, rows, inner, columns)]
    first = memory.reshaped(left.permuted([*batch, *rows, *inner, *columns]), sizes[:3])
    second = memory.reshaped(right.permuted([*batch, *inner, *columns, *rows]), [sizes[0], *sizes[2:]])
    saved += kept_factors([first, second])
    product = memory.new([sizes[0], sizes[1], sizes[3]], left.sort, moves=moves)
    order = [*batch, *rows, *inner, *columns]
    whole = product.split([1 if dim in over else shape[dim] for dim in order])
    assert whole is not None
    return replace(whole.permuted([order.index(dim) for dim in range(len(shape))]), moves=moves)
