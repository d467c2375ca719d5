"""Handlers of torch operators that select elements: table rows, indexing, top-k, sorting, scatter."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor

from .comparisons import equal
from .operators import binary, product, ungrouped
from .tensor_parts import part_of
from .translation import Entry, Prepared, Translation, Unsupported, filled, handles, unary
from .views import View, whole


@handles("embedding.default")
def _embedding(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    padding = args[2] if len(args) > 2 else named.get("padding_idx", -1)
    return rows_of(walk, walk.view(args[0]), args[1], padding)


def rows_of(walk: Translation, table: View, ids: Entry, padding: int = -1) -> View:
    """Rows of a two-dimensional table; the row `padding` has no gradient."""
    rows, width = table.shape
    if isinstance(ids, Tensor) and padding < 0 and ids.numel():
        known = _known_rows(walk, table, ids)
        if known is not None:
            return known
    if isinstance(ids, Tensor):
        operand = walk.constant(ids, "rows", rows)
    else:
        operand = whole(walk.as_input(ids, rows)) if isinstance(ids, Prepared) else _places(walk, ids)
    lead, repeated = operand.shape, operand.repeated
    single = operand.without(repeated)
    made = walk.make("embedding", single, table, shape=(*single.shape, width))
    if padding >= 0:
        # The padding row gets no gradient.
        if not isinstance(ids, Prepared):
            raise Unsupported("a padding row with places that are no input")
        kept = walk.prepare("kept", ids.example.ne(padding), "torch.ne", ids, padding)
        mask = whole(walk.as_input(kept, 2))
        made = walk.make("choose", mask.arranged((*mask.dims, ())), made, unary(walk, "stop", made), shape=made.shape)
    return made.expanded((*lead, width)) if repeated else made


def _places(walk: Translation, entry: Entry) -> View:
    """Integer indices with a known bound. Raises Unsupported."""
    view = walk.view(entry)
    if _is_computed(view):
        raise Unsupported("places that are computed of others")
    return view


def _is_computed(view: View) -> bool:
    """Whether integers are computed by the model as floats, so that they have no known bound."""
    return view.value.kind == "made" and view.value.bound is None


def _known_rows(walk: Translation, table: View, ids: Tensor) -> View | None:
    """Rows at constant indices that are consecutive or all equal; None for other indices."""
    lead, width = tuple(ids.shape), table.shape[1]
    flat = (ids[:1] if ids.dim() > 1 and bool((ids == ids[:1]).all()) else ids).reshape(-1)
    if bool((flat == flat[0] + torch.arange(len(flat))).all()):
        found = _rows(walk, table, int(flat[0]), len(flat))
        if len(flat) == ids.numel():
            return found.reshaped((*lead, width))
        if prod(lead[1:]) == len(flat):
            inner = found.reshaped((*lead[1:], width))
            return inner.arranged(((), *inner.dims)).expanded((*lead, width))
    if bool((flat == flat[0]).all()):
        row = _rows(walk, table, int(flat[0]), 1)
        return row.arranged([() for _ in lead] + [row.dims[1]]).expanded((*lead, width))
    return None


def _rows(walk: Translation, table: View, first: int, count: int) -> View:
    if first == 0 and count == table.shape[0]:
        return table
    return walk.make("slice", table, shape=(count, table.shape[1]), dim=0, start=first, stop=first + count)


@handles("embedding_bag.padding_idx")
def _bags(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """Bags of equal length, whose offsets are a constant range."""
    table, ids, offsets, _, mode, _, weights, last, padding = filled(
        args, (None, None, None, False, 0, False, None, False, -1)
    )
    starts = offsets.example if isinstance(offsets, Prepared) else offsets
    if mode == 2 or weights is not None or last or (padding is not None and padding >= 0):
        raise Unsupported("the greatest of a bag, weights, a last offset or a padding row")
    count = len(starts)
    length = ids.example.numel() // max(count, 1) if isinstance(ids, Prepared) else 0
    if not length or isinstance(offsets, Prepared) or not bool((starts == length * torch.arange(count)).all()):
        raise Unsupported("bags of several lengths")
    table = walk.view(table)
    bags = _flat_origin(ids, (count, length))
    if bags is None:
        bags = walk.prepare("bags", ids.example.reshape(count, length), "torch.reshape", ids, [-1, length])
    operand = whole(walk.as_input(bags, table.shape[0]))
    name = "embedding_bag_mean" if mode == 1 else "embedding_bag"
    return [walk.make(name, operand, table, shape=(count, table.shape[1])), None, None, None]


def _flat_origin(ids: Prepared, shape: tuple[int, int]) -> Prepared | None:
    """The tensor that was flattened, if it has this shape."""
    first = ids.args[0] if ids.call == "torch.reshape" else None
    return first if isinstance(first, Prepared) and first.example.shape == shape else None


_MASK = "as many elements as a mask keeps: multiply by the mask, and divide by its sum"


@handles("masked_select.default")
def _selected(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    raise Unsupported(_MASK)


@handles("index.Tensor")
def _indexed(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """Elements at indices along one dimension, or along adjacent dimensions."""
    x, places = walk.view(args[0]), list(args[1])
    given = [place for place, entry in enumerate(places) if entry is not None]
    assert walk.node is not None
    nodes: Any = walk.node.args[1]
    for entry, node in zip(places, nodes, strict=True):
        if entry is not None and not isinstance(entry, Tensor) and node.meta["val"].dtype == torch.bool:
            raise Unsupported(_MASK)
    if len(given) == 1:
        return _along(walk, x, given[0], places[given[0]])
    ids = [places[place] for place in given]
    if given != list(range(given[0], given[0] + len(given))):
        raise Unsupported("places along dimensions that are not side by side")
    if given[0] == 0 and _is_each_row(ids, x.shape):
        return _one_of_each(walk, x, ids[1])
    if not all(isinstance(entry, Tensor) for entry in ids):
        raise Unsupported("places along several dimensions that are computed")
    sizes = [x.shape[place] for place in given]
    flat = torch.zeros((), dtype=torch.int64)
    for size, entry in zip(sizes, ids, strict=True):
        flat = flat * size + entry % size
    first = given[0]
    merged = x.reshaped((*x.shape[:first], prod(sizes), *x.shape[first + len(given) :]))
    return _along(walk, merged, first, flat)


def _is_each_row(ids: list[Entry], shape: tuple[int, ...]) -> bool:
    """Whether the first indices enumerate the rows, so that one position of each row is selected."""
    rows = ids[0]
    alike = len(ids) == 2 and isinstance(rows, Tensor) and tuple(rows.shape) == shape[:1]
    return bool(alike) and bool((rows == torch.arange(shape[0])).all())


def _one_of_each(walk: Translation, x: View, places: Entry) -> View:
    """One position of every row, as a product with its one-hot encoding."""
    if not isinstance(places, Prepared | View):
        raise Unsupported("places that are constant")
    operand = whole(walk.as_input(places, x.shape[1])) if isinstance(places, Prepared) else places
    weights = walk.make("one_hot", operand, shape=(*operand.shape, x.shape[1]))
    lead = weights.arranged((weights.dims[0], (), weights.dims[1]))
    rows = x.reshaped((*x.shape[:2], prod(x.shape[2:]))) if len(x.dims) != 3 else x
    made = walk.make("matmul", lead, rows, shape=(x.shape[0], 1, rows.shape[-1]))
    return made.arranged((made.dims[0], made.dims[2])).reshaped((x.shape[0], *x.shape[2:]))


@handles("index_select.default")
def _selected_along(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x = walk.view(args[0])
    return _along(walk, x, args[1] % len(x.dims), args[2])


def _along(walk: Translation, x: View, dim: int, ids: Entry) -> View:
    """The slices of x at indices along a dimension."""
    if isinstance(ids, Tensor) and ids.dtype == torch.bool:
        raise Unsupported("a mask that decides how many are left")
    if isinstance(ids, Tensor):
        ids = ids % x.shape[dim]
        steps = ids.reshape(-1)
        if len(steps) and bool((steps == steps[0] + torch.arange(len(steps))).all()):
            part = part_of(walk, x, dim, int(steps[0]), int(steps[0]) + len(steps))
            return part.reshaped((*x.shape[:dim], *ids.shape, *x.shape[dim + 1 :]))
        if _is_lower(steps, x.shape, dim):
            return _lower(walk, x, dim)
    order = [dim, *(place for place in range(len(x.dims)) if place != dim)]
    turned = x.permuted(order)
    rows = turned.reshaped((turned.shape[0], prod(turned.shape[1:])))
    found = rows_of(walk, rows, ids)
    count = len(found.dims) - 1
    made = found.reshaped((*found.shape[:-1], *turned.shape[1:]))
    lead = list(range(count))
    rest = [place + count for place in range(len(x.dims) - 1)]
    return made.permuted([*rest[:dim], *lead, *rest[dim:]])


def _is_lower(steps: Tensor, shape: tuple[int, ...], dim: int) -> bool:
    """Whether indices into a flattened square matrix enumerate the elements below its diagonal, row by row."""
    size = round(shape[dim] ** 0.5)
    if size * size != shape[dim] or dim != len(shape) - 1:
        return False
    rows, columns = torch.tril_indices(size, size, -1)
    return torch.equal(steps, rows * size + columns)


def _lower(walk: Translation, x: View, dim: int) -> View:
    size = round(x.shape[dim] ** 0.5)
    square = x.reshaped((*x.shape[:dim], size, size))
    return walk.make("lower_triangle", square, shape=(*x.shape[:dim], size * (size - 1) // 2))


@handles("topk.default")
def _greatest(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, count, dim, largest, _ = filled(args, (None, None, -1, True, True))
    return list(extremes(walk, walk.view(x), count, dim, largest=largest))


@handles("argmax.default", "argmin.default")
def _place_of_greatest(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """The index of the first extreme element, along a dimension or over all elements."""
    assert walk.node is not None
    x, dim, keep = filled(args, (None, None, False))
    x = walk.view(x)
    given = walk.reshaped(x, (prod(x.shape),)) if dim is None else x
    last = -1 if dim is None else dim % len(x.dims)
    _, places = extremes(walk, given, 1, last, largest="argmax" in str(walk.node.target))
    return places if keep and dim is not None else places.without_dims([last])


def extremes(walk: Translation, x: View, count: int, dim: int, *, largest: bool) -> tuple[View, View]:
    """The `count` greatest or least elements along a dimension, and their indices."""
    rank, dim = len(x.dims), dim % len(x.dims)
    order = [place for place in range(rank) if place != dim] + [dim]
    turned = x.permuted(order)
    given = ungrouped(walk.spread(turned))
    shape = (*given.shape[:-1], count)
    scored = given if largest else unary(walk, "scale", given, factor=-1)
    places = walk.make("top_k", scored, shape=shape, count=count)
    places.value.bound = x.shape[dim]
    made = walk.make("gather", given, places, shape=shape, dim=len(shape) - 1)
    back = [order.index(place) for place in range(rank)]
    values, found = (view.reshaped((*turned.shape[:-1], count)).permuted(back) for view in (made, places))
    return values, found


@handles("sort.default", "sort.stable", "argsort.default", "argsort.stable", "msort.default")
def _sorted(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """All elements along a dimension, in ascending order by default, and their indices."""
    assert walk.node is not None
    word = str(walk.node.target).split(".")[1]
    dim, descending = filled(args[1:], (0 if word == "msort" else -1, False))
    dim, descending = named.get("dim", dim), named.get("descending", descending)
    view = walk.view(args[0])
    values, places = extremes(walk, view, view.shape[dim], dim, largest=descending)
    return places if word == "argsort" else values if word == "msort" else [values, places]


@handles("median.dim")
def _median(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """The median along a dimension, of two middle elements the lower, and its index."""
    x, dim, keep = filled(args, (None, None, False))
    view = walk.view(x)
    count = (view.shape[dim] + 1) // 2
    found = [part_of(walk, part, dim, count - 1, count) for part in extremes(walk, view, count, dim, largest=False)]
    return [part if keep else part.without_dims([dim]) for part in found]


@handles("gather.default")
def _gathered(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    x, dim, places = walk.view(args[0]), args[1] % len(walk.view(args[0]).dims), args[2]
    operand = whole(walk.as_input(places, x.shape[dim])) if isinstance(places, Prepared) else _places(walk, places)
    if isinstance(places, Tensor):
        operand = walk.constant(places, "places", x.shape[dim])
    sizes = [
        (own, other) for place, (own, other) in enumerate(zip(x.shape, operand.shape, strict=True)) if place != dim
    ]
    if any(own != other for own, other in sizes) or operand.repeated:
        raise Unsupported("places in a part of the others")
    if dim == len(x.dims) - 1 and ungrouped(x).shape[:-1] == ungrouped(operand).shape[:-1]:
        given, others = ungrouped(walk.spread(x)), ungrouped(operand)
        made = walk.make("gather", given, others, shape=others.shape, dim=len(others.dims) - 1)
        return made.reshaped(operand.shape)
    return walk.make("gather", x, operand, shape=operand.shape, dim=dim)


@handles("scatter.value")
def _scattered(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """Scatters a number into zeros at indices along the last dimension."""
    zeros, dim, places, value = args
    if not isinstance(zeros, Tensor) or bool(zeros.any()) or dim % zeros.dim() != zeros.dim() - 1:
        raise Unsupported("into what is not zeros, or along another dimension than the last")
    operand = walk.view(places)
    spread = walk.make("one_hot", operand, shape=(*operand.shape, zeros.shape[-1]))
    kept = " ".join(str(place) for place in range(len(spread.dims)) if place != len(spread.dims) - 2)
    made = walk.make("reduce_sum", spread, shape=zeros.shape, kept=kept)
    return made if value == 1 else unary(walk, "scale", made, factor=value)


@handles("index_add.default")
def _added_at(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """Slices added at indices along a dimension, as a product with the one-hot matrix of the indices."""
    into, dim, places, source = args
    source = walk.view(source)
    if named.get("alpha", 1) != 1 or isinstance(places, View):
        raise Unsupported("places that are computed, or alpha")
    dim = dim % len(source.dims)
    order = [dim, *(place for place in range(len(source.dims)) if place != dim)]
    turned, count = source.permuted(order), into.shape[dim]
    ids = walk.constant(places, "places", count) if isinstance(places, Tensor) else whole(walk.as_input(places, count))
    spread = walk.make("one_hot", ids, shape=(turned.shape[0], count)).permuted((1, 0))
    rows = walk.reshaped(turned, (turned.shape[0], prod(turned.shape[1:])))
    made = walk.reshaped(product(walk, spread, rows), (count, *turned.shape[1:]))
    made = made.permuted([order.index(place) for place in range(len(order))])
    is_nothing = isinstance(into, Tensor) and not bool(into.any())
    return made if is_nothing else binary(walk, "add", walk.view(into), made)


@handles("scatter_add.default")
def _scattered_sums(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    """`scatter_add` as `index_add`, where all elements of a slice have the same index."""
    into, dim, places, source = args
    while isinstance(places, Prepared) and places.example.dim() > 1 and places.call.endswith(_SPREADING):
        places = places.args[0]
    shape = walk.view(source).shape
    if isinstance(places, Tensor) and tuple(places.shape) == shape:
        rows = places.movedim(dim, 0).flatten(1)
        places = rows[:, 0].contiguous() if bool((rows == rows[:, :1]).all()) else places
    if not isinstance(places, Prepared | Tensor) or _shape_of(places) != (shape[dim % len(shape)],):
        raise Unsupported("places that differ along a slice")
    return _added_at(walk, [into, dim, places, source], {})


_SPREADING = ("expand.default", "unsqueeze.default", "view.default", "torch.reshape", "expand_as.default")


def _shape_of(places: Prepared | Tensor) -> tuple[int, ...]:
    return tuple((places.example if isinstance(places, Prepared) else places).shape)


@handles("one_hot.default")
def _one_hot(walk: Translation, args: list[Entry], named: dict[str, Entry]) -> Entry:
    operand = walk.view(args[0])
    if _is_computed(operand):
        numbers = torch.arange(args[1], dtype=torch.float32)
        return equal(walk, operand.arranged((*operand.dims, ())), walk.constant(numbers))
    return walk.make("one_hot", operand, shape=(*operand.shape, args[1]))
