"""Shapes of the results of torch's indexing, reductions and views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from .local_tensor import Memory, Shape, Tensor, broadcast
from .torch_term import Argument, Range, Sort, Term, word

VIEWS = frozenset({
    ".transpose", ".permute", ".reshape", ".unflatten", ".flatten", ".squeeze", ".unsqueeze", ".expand", ".expand_as",
    ".diagonal", ".detach", ".narrow", "[]", "torch.detach", "torch.narrow", "torch.unsqueeze", "torch.transpose",
    "torch.permute", "torch.reshape", "torch.select", "replicate",
})  # fmt: skip
"""Calls whose result shares the storage of its first tensor, if the strides allow that."""


def numbers(given: Argument) -> tuple[int, ...]:
    """The integers in an argument: a single one, or those of a tuple or list."""
    match given:
        case int():
            return (given,)
        case Term(value=int(value)):
            return (value,)
        case tuple() | list():
            return tuple(number for part in given for number in numbers(part))
    return ()


def view(memory: Memory, term: Term, operands: Sequence[Tensor]) -> Tensor:
    """The result of one of VIEWS."""
    tensor, arguments = operands[0], numbers(term.arguments[1:])
    rank = len(tensor.shape)
    match term.operation.rpartition(".")[2]:
        case "transpose":
            places = list(range(rank))
            first, second = arguments
            places[first], places[second] = places[second], places[first]
            return tensor.permuted(places)
        case "permute":
            return tensor.permuted(arguments)
        case "reshape":
            known = prod(size for size in arguments if size != -1)
            sizes = [prod(tensor.shape) // known if size == -1 else size for size in arguments]
            return memory.reshaped(tensor, operands[1].shape if len(operands) > 1 else sizes)
        case "unflatten":
            place, *sizes = arguments
            return memory.reshaped(tensor, (*tensor.shape[:place], *sizes, *tensor.shape[place + 1 :]))
        case "flatten":
            first, last = (place % rank for place in (*arguments, -1)[:2])
            merged = prod(tensor.shape[first : last + 1])
            return memory.reshaped(tensor, (*tensor.shape[:first], merged, *tensor.shape[last + 1 :]))
        case "squeeze":
            return _without(tensor, arguments[0])
        case "unsqueeze":
            return _inserted(tensor, arguments[0] % (rank + 1))
        case "expand":
            return tensor.expanded(arguments)
        case "expand_as":
            return tensor.expanded(operands[1].shape)
        case "diagonal":
            return _diagonal(tensor, *(numbers(value)[0] for _, value in term.keywords))
        case "detach":
            return replace(tensor, moves=False)
        case "narrow":
            dim, _, size = arguments
            return tensor.viewed([size if n == dim % rank else s for n, s in enumerate(tensor.shape)], tensor.strides)
        case "select":
            return _without(tensor, arguments[0] % rank)
        case "[]":
            return _subscripted(tensor, term)[0]
    return tensor


def is_view(memory: Memory, term: Term, operands: Sequence[Tensor]) -> bool:
    """Whether the result shares the storage of the first tensor."""
    if term.operation == ".to":
        floats = (Sort.FLOAT, Sort.POSITION)
        widths = [memory.element_bytes(sort) for sort in (operands[0].sort, term.sort)]
        return operands[0].sort in floats and term.sort in floats and widths[0] == widths[1]
    return term.operation in VIEWS and (term.operation != "[]" or len(operands) == 1)


def gathered(term: Term, operands: Sequence[Tensor]) -> Shape:
    """The shape of a tensor at index tensors. Their common shape replaces adjacent dimensions, and else comes first."""
    tensor, *places = operands
    shape = broadcast([place.shape for place in places])
    held, at = _subscripted(tensor, term)
    kept = [size for dim, size in enumerate(held.shape) if dim not in at]
    beside = at[-1] - at[0] == len(at) - 1
    before = at[0] if beside else 0
    return (*kept[:before], *shape, *kept[before:])


def _subscripted(tensor: Tensor, term: Term) -> tuple[Tensor, list[int]]:
    """The view by ranges, numbers and new dimensions, and its dimensions that an index tensor reads."""
    shape, strides = list(tensor.shape), list(tensor.strides)
    at: list[int] = []
    place = 0
    parts = term.arguments[1:]
    for number, part in enumerate(parts):
        if part == word("..."):
            place = len(shape) - sum(other is not None for other in parts[number + 1 :])
            continue
        if part is None:
            shape.insert(place, 1)
            strides.insert(place, 1)
        elif isinstance(part, Range):
            shape[place] = len(range(shape[place])[slice(part.start, part.stop, part.step)])
            strides[place] *= part.step or 1
        elif isinstance(part, Term) and part.axes:
            at.append(place)
        else:
            del shape[place], strides[place]
            continue
        place += 1
    return tensor.viewed(shape, strides), at


def _without(tensor: Tensor, dim: int) -> Tensor:
    return tensor.viewed(*([*s[:dim], *s[dim + 1 :]] for s in (tensor.shape, tensor.strides)))


def _inserted(tensor: Tensor, dim: int) -> Tensor:
    return tensor.viewed(
        [*tensor.shape[:dim], 1, *tensor.shape[dim:]], [*tensor.strides[:dim], 1, *tensor.strides[dim:]]
    )


def _diagonal(tensor: Tensor, first: int, second: int) -> Tensor:
    kept = [dim for dim in range(len(tensor.shape)) if dim not in (first, second)]
    shape = [*(tensor.shape[dim] for dim in kept), min(tensor.shape[first], tensor.shape[second])]
    return tensor.viewed(shape, [*(tensor.strides[d] for d in kept), tensor.strides[first] + tensor.strides[second]])


def reduced(shape: Shape, dims: Sequence[int]) -> Shape:
    """The shape without some dimensions; () if no dimensions are named."""
    gone = {dim % len(shape) for dim in dims} if shape else set()
    return tuple(size for dim, size in enumerate(shape) if dims and dim not in gone)


def padded(shape: Shape, sides: Sequence[int]) -> Shape:
    """The padded shape. `sides` are the positions before and after, the last dimension's first."""
    extra = [sides[n] + sides[n + 1] for n in range(0, len(sides), 2)]
    extra += [0] * (len(shape) - len(extra))
    return tuple(size + more for size, more in zip(shape, reversed(extra), strict=True))


def taken(shape: Shape, places: Shape, dim: int) -> Shape:
    """The shape of elements taken along a dimension, with all other dimensions broadcast."""
    return broadcast([(*shape[:dim], 1, *shape[dim + 1 :]), places])


def transposed(image: Shape, kernel: Shape, keywords: Mapping[str, Argument]) -> Shape:
    """The shape of a transposed convolution's result, with these keywords of torch's call."""

    def each(name: str, default: int) -> Sequence[int]:
        found = numbers(keywords.get(name, default))
        return found * (len(image) - 2) if len(found) == 1 else found

    (groups,) = numbers(keywords.get("groups", 1))
    steps = zip(each("stride", 1), each("padding", 0), each("output_padding", 0), each("dilation", 1), strict=True)
    made = [
        (size - 1) * stride - 2 * pad + dilation * (row - 1) + more + 1
        for size, row, (stride, pad, more, dilation) in zip(image[2:], kernel[2:], steps, strict=True)
    ]
    return (image[0], kernel[1] * groups, *made)
