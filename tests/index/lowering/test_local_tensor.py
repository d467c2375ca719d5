"""Shapes and strides of tensors, against torch's own: results of kernels, views and copies, contractions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from unity_dsl.index.lowering.local_tensor import Memory, Storage, Tensor
from unity_dsl.index.lowering.matrix_products import contract
from unity_dsl.index.lowering.torch_term import Sort

SEEDS = range(200)


def drawn(random: np.random.Generator, shape: list[int]) -> torch.Tensor:
    """A random tensor of a shape: its dimensions have some order in memory, and some take every second position."""
    order = [int(dim) for dim in random.permutation(len(shape))]
    steps = [int(random.choice([1, 1, 1, 2])) for _ in shape]
    held = torch.empty([shape[dim] * steps[dim] for dim in order])
    x = held.permute([order.index(dim) for dim in range(len(shape))])
    for dim, step in enumerate(steps):
        x = x[(slice(None),) * dim + (slice(None, None, step),)]
    return x


def known(memory: Memory, x: torch.Tensor) -> Tensor:
    return memory.new(x.shape, Sort.FLOAT).viewed(x.shape, x.stride())


def same_strides(found: Tensor, x: torch.Tensor) -> bool:
    """Whether shapes and strides are equal. Strides of dimensions of length 1 are never followed."""
    pairs = zip(found.strides, x.stride(), x.shape, strict=True)
    return found.shape == tuple(x.shape) and all(mine == other for mine, other, size in pairs if size != 1)


def cases() -> Iterator[np.random.Generator]:
    yield from map(np.random.default_rng, SEEDS)


def test_results_of_pointwise_kernels() -> None:
    for random in cases():
        shape = [int(size) for size in random.choice([1, 2, 3], random.integers(1, 5))]
        operands = []
        for _ in range(random.integers(1, 4)):
            own = [size if random.random() < 0.8 else 1 for size in shape[int(random.integers(0, len(shape))) :]]
            operands.append(drawn(random, own))
        memory = Memory(4)
        tensors = [known(memory, x) for x in operands]
        x = operands[0].exp() if len(operands) == 1 else operands[0] + operands[1]
        x = torch.addcmul(*operands) if len(operands) == 3 else x
        assert same_strides(memory.elementwise(tensors, Sort.FLOAT), x), [(x.shape, x.stride()) for x in operands]


def test_reshapes_are_views_where_torch_s_are() -> None:
    for random in cases():
        shape = [int(size) for size in random.choice([1, 2, 3, 4], random.integers(1, 5))]
        x = drawn(random, shape)
        left = x.numel()
        wanted = []
        while left > 1:
            wanted.append(int(random.choice([d for d in range(1, left + 1) if left % d == 0])))
            left //= wanted[-1]
        memory = Memory(4)
        tensor = known(memory, x)
        found, expected = memory.reshaped(tensor, wanted), x.reshape(wanted)
        is_view = expected.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        assert (found.storage is tensor.storage) == is_view, (x.shape, x.stride(), wanted)
        assert same_strides(found, expected)


SPECS = ["bi,oi->bo", "bhsk,bhtk->bhst", "abk,kc,bd->cda", "ab,cb,db->acd", "ab,ac->abc", "abi,bi->a", "ai,b->ab"]


@pytest.mark.parametrize("spec", SPECS)
def test_contractions_save_and_give_what_torch_s_do(spec: str) -> None:
    names = spec.split("->")[0].split(",")
    sizes = dict(zip("abcdhiokst", [2, 3, 4, 5, 2, 3, 4, 5, 2, 3], strict=True))
    for random in cases():
        operands = [drawn(random, [sizes[letter] for letter in name]).requires_grad_() for name in names]
        kept = []

        def save(x: torch.Tensor, kept: list[torch.Tensor] = kept) -> torch.Tensor:
            kept.append(x)
            return x

        with torch.autograd.graph.saved_tensors_hooks(save, lambda x: x):
            expected = torch.einsum(spec, *operands)
        memory = Memory(4)
        saved: list[Storage] = []
        tensors = [known(memory, x) for x in operands]
        tensors = [Tensor(x.shape, x.strides, x.storage, x.sort, moves=True) for x in tensors]
        found = contract(memory, spec, tensors, saved)
        assert same_strides(found, expected)
        own = {x.untyped_storage().data_ptr() for x in operands}
        copies = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in kept}
        mine = {storage: storage.bytes for storage in saved if all(storage is not x.storage for x in tensors)}
        assert sorted(mine.values()) == sorted(n for at, n in copies.items() if at not in own), spec
