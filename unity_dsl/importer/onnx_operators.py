"""ONNX operators as torch calls: elementwise, shapes, parts, reductions. Values computed from shapes stay arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Values:
    """The inputs of a node, None for those left out, its attributes, and its number of outputs. `read` records which
    inputs and attributes its operator has used, so that none is ignored silently.
    """

    inputs: Sequence[Any]
    settings: Mapping[str, Any]
    training: bool
    outputs: int = 1
    read: set[str | int] = field(default_factory=set)

    def __getitem__(self, place: int) -> Any:
        self.read.add(place)
        return self.inputs[place] if place < len(self.inputs) else None

    def get(self, name: str, usual: Any = None) -> Any:
        self.read.add(name)
        found = self.settings.get(name, usual)
        return found.decode() if isinstance(found, bytes) else found

    def every(self) -> list[Any]:
        """All inputs."""
        return [self[place] for place in range(len(self.inputs))]

    def tensor(self, place: int) -> Tensor:
        return as_tensor(self[place])

    def numbers(self, place: int) -> list[int]:
        """The integers of a constant input."""
        return [int(number) for number in np.asarray(self[place]).reshape(-1)]

    @property
    def constant(self) -> bool:
        return not any(isinstance(one, Tensor) for one in self.inputs)


Operator = Callable[[Values], Any]
OPERATORS: dict[str, Operator] = {}


def as_tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else torch.from_numpy(np.array(value))


def operator(*names: str) -> Callable[[Operator], Operator]:
    def register(function: Operator) -> Operator:
        OPERATORS.update(dict.fromkeys(names, function))
        return function

    return register


# ---------------------------------------------------------------------------------------- elementwise

_ONE: Mapping[str, Callable[[Tensor], Tensor]] = {
    **{name: getattr(torch, name.lower()) for name in ("Abs", "Exp", "Log", "Neg", "Sqrt", "Tanh", "Sigmoid", "Relu")},
    **{name: getattr(torch, name.lower()) for name in ("Reciprocal", "Cos", "Sin", "Erf", "Floor", "Ceil", "Sign")},
    "Softplus": F.softplus,
    "HardSwish": F.hardswish,
    "Mish": F.mish,
    "Not": torch.logical_not,
    "IsNaN": torch.isnan,
    "Identity": lambda x: x,
}
_TWO: Mapping[str, tuple[Callable[..., Tensor], Callable[..., Any]]] = {
    "Add": (torch.add, np.add),
    "Sub": (torch.sub, np.subtract),
    "Mul": (torch.mul, np.multiply),
    "Pow": (torch.pow, np.power),
    "Equal": (torch.eq, np.equal),
    "Greater": (torch.gt, np.greater),
    "GreaterOrEqual": (torch.ge, np.greater_equal),
    "Less": (torch.lt, np.less),
    "LessOrEqual": (torch.le, np.less_equal),
    "And": (torch.logical_and, np.logical_and),
    "Or": (torch.logical_or, np.logical_or),
    "Min": (torch.minimum, np.minimum),
    "Max": (torch.maximum, np.maximum),
    "Mod": (torch.remainder, np.mod),
}
_OF_MANY = ("Min", "Max")


def _one(name: str) -> Operator:
    return lambda given: _ONE[name](given.tensor(0))


def _number(value: Any) -> Any:
    """A constant of one element as a Python number, which adopts the other operand's type."""
    return value.item() if isinstance(value, np.ndarray | np.generic) and np.size(value) == 1 else value


def _two(name: str) -> Operator:
    def apply(given: Values) -> Any:
        ours, theirs = _TWO[name]
        if name == "Mod" and given.get("fmod", 0):
            ours, theirs = torch.fmod, np.fmod
        if name in _OF_MANY:
            return reduce(theirs if given.constant else lambda x, y: ours(as_tensor(x), as_tensor(y)), given.every())
        x, y = given[0], given[1]
        if given.constant:
            return theirs(x, y)
        if name in ("Add", "Sub", "Mul", "Pow", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"):
            x, y = (_number(one) if isinstance(other, Tensor) else one for one, other in ((x, y), (y, x)))
        x, y = (one if isinstance(one, int | float | bool | Tensor) else as_tensor(one) for one in (x, y))
        if name == "Sub" and not isinstance(x, Tensor):
            return torch.rsub(as_tensor(y), x)
        if name in ("Add", "Mul") and not isinstance(x, Tensor):
            x, y = y, x
        return ours(x, y)

    return apply


OPERATORS.update({name: _one(name) for name in _ONE})
OPERATORS.update({name: _two(name) for name in _TWO})


@operator("Div")
def _div(given: Values) -> Any:
    if given.constant:
        whole = np.asarray(given[0]).dtype.kind in "iu"
        return (given[0] - np.fmod(given[0], given[1])) // given[1] if whole else given[0] / given[1]
    x, y = given[0], _number(given[1])
    mode = "trunc" if isinstance(x, Tensor) and not x.is_floating_point() else None
    return torch.div(as_tensor(x), y if isinstance(y, int | float) else as_tensor(y), rounding_mode=mode)


@operator("Where")
def _where(given: Values) -> Any:
    if given.constant:
        return np.where(given[0], given[1], given[2])
    x, y = (one if isinstance(one, Tensor) else _number(one) for one in (given[1], given[2]))
    return torch.where(given.tensor(0), *(one if isinstance(one, int | float) else as_tensor(one) for one in (x, y)))


@operator("Cast", "CastLike")
def _cast(given: Values) -> Any:
    from onnx.helper import tensor_dtype_to_np_dtype

    dtype = np.dtype(tensor_dtype_to_np_dtype(given.get("to"))) if "to" in given.settings else None
    if given.constant:
        return np.asarray(given[0]).astype(dtype or np.asarray(given[1]).dtype)
    return given[0].to(torch.from_numpy(np.zeros(0, dtype)).dtype if dtype else as_tensor(given[1]).dtype)


@operator("Clip")
def _clip(given: Values) -> Any:
    lo, hi = (None if given[place] is None else _number(given[place]) for place in (1, 2))
    return given[0] if lo is None and hi is None else torch.clamp(given.tensor(0), lo, hi)


OPERATORS["LeakyRelu"] = lambda given: F.leaky_relu(given.tensor(0), given.get("alpha", 0.01))
OPERATORS["Elu"] = lambda given: F.elu(given.tensor(0), given.get("alpha", 1.0))
OPERATORS["Gelu"] = lambda given: F.gelu(given.tensor(0), approximate=given.get("approximate", "none"))
OPERATORS["HardSigmoid"] = lambda given: torch.clamp(
    given.tensor(0) * given.get("alpha", 0.2) + given.get("beta", 0.5), 0, 1
)


# ---------------------------------------------------------------------------------------- shapes and parts


@operator("Constant")
def _constant(given: Values) -> Any:
    from onnx import numpy_helper

    (name, _), *_ = given.settings.items()
    value = given.settings[name]
    given.read.add(name)
    return numpy_helper.to_array(value) if name == "value" else np.asarray(value)


@operator("ConstantOfShape")
def _filled(given: Values) -> Any:
    from onnx import numpy_helper

    value = given.get("value")
    one = np.zeros(1, np.float32) if value is None else numpy_helper.to_array(value)
    return np.full(given.numbers(0), one.reshape(-1)[0], one.dtype)


@operator("Shape")
def _shape(given: Values) -> Any:
    shape = np.array(given[0].shape, dtype=np.int64)
    return shape[given.get("start", 0) : given.get("end", len(shape))]


@operator("Size")
def _size(given: Values) -> Any:
    return np.array(np.prod(given[0].shape), dtype=np.int64)


@operator("Range")
def _range(given: Values) -> Any:
    return np.arange(*(np.asarray(given[place]).item() for place in range(3)))


@operator("Reshape")
def _reshape(given: Values) -> Any:
    shape = given.numbers(1)
    sizes = [
        given[0].shape[place] if size == 0 and not given.get("allowzero", 0) else size
        for place, size in enumerate(shape)
    ]
    return given[0].reshape(sizes)


@operator("Flatten")
def _flatten(given: Values) -> Any:
    axis, shape = given.get("axis", 1), given[0].shape
    return given[0].reshape([int(np.prod(shape[:axis])), -1])


@operator("Transpose")
def _transpose(given: Values) -> Any:
    order = given.get("perm") or list(range(len(given[0].shape)))[::-1]
    return np.transpose(given[0], order) if given.constant else given[0].permute(list(order))


def _axes(given: Values, place: int = 1) -> list[int] | None:
    if given[place] is not None:
        return given.numbers(place)
    axes = given.get("axes")
    return None if axes is None else list(axes)


@operator("Unsqueeze")
def _unsqueeze(given: Values) -> Any:
    made = given[0]
    rank = len(made.shape) + len(_axes(given) or [])
    for axis in sorted(axis % rank for axis in _axes(given) or []):
        made = np.expand_dims(made, axis) if given.constant else made.unsqueeze(axis)
    return made


@operator("Squeeze")
def _squeeze(given: Values) -> Any:
    axes = _axes(given)
    if axes is None:
        axes = [place for place, size in enumerate(given[0].shape) if size == 1]
    if given.constant:
        return np.squeeze(given[0], tuple(axes))
    return given[0].squeeze([axis % given[0].dim() for axis in axes])


@operator("Expand")
def _expand(given: Values) -> Any:
    shape = np.broadcast_shapes(tuple(given[0].shape), tuple(given.numbers(1)))
    return np.broadcast_to(given[0], shape) if isinstance(given[0], np.ndarray) else given[0].expand(shape)


@operator("Tile")
def _tile(given: Values) -> Any:
    counts = given.numbers(1)
    return np.tile(given[0], counts) if given.constant else given[0].repeat(counts)


@operator("Concat")
def _concat(given: Values) -> Any:
    if given.constant:
        return np.concatenate(given.every(), given.get("axis"))
    return torch.cat(list(map(as_tensor, given.every())), given.get("axis"))


@operator("Split")
def _split(given: Values) -> Any:
    axis = given.get("axis", 0)
    sizes = given.numbers(1) if given[1] is not None else given.get("split")
    if sizes is None:
        count = given.get("num_outputs") or given.outputs
        size = -(-given[0].shape[axis] // count)
        return tuple(given[0].split(size, axis))
    return tuple(given[0].split(list(sizes), axis))


@operator("Slice")
def _slice(given: Values) -> Any:
    starts, ends = given.numbers(1), given.numbers(2)
    axes = given.numbers(3) if given[3] is not None else list(range(len(starts)))
    steps = given.numbers(4) if given[4] is not None else [1] * len(starts)
    made = given[0]
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        places = [slice(None)] * (axis % len(made.shape))
        made = made[(*places, slice(start, min(end, np.iinfo(np.int64).max), step))]
    return made


@operator("Gather")
def _gather(given: Values) -> Any:
    axis = given.get("axis", 0)
    if given.constant:
        return np.take(given[0], given[1], axis)
    places, x = given[1], given.tensor(0)
    if not isinstance(places, Tensor):
        if np.ndim(places) == 0:
            return x.select(axis, int(places))
        places = as_tensor(places)
    if axis == 0 and x.dim() == 2 and x.is_floating_point():
        return F.embedding(places, x)
    before: list[Any] = [slice(None)] * (axis % x.dim())
    return x[(*before, places)]


@operator("GatherElements")
def _gather_elements(given: Values) -> Any:
    axis, places = given.get("axis", 0), given[1]
    if not isinstance(places, Tensor):
        places = as_tensor(np.where(places < 0, places + given[0].shape[axis], places))
    return torch.gather(given.tensor(0), axis, places)


@operator("GatherND")
def _gather_places(given: Values) -> Any:
    places = given.tensor(1)
    return given.tensor(0)[tuple(places[..., place] for place in range(places.shape[-1]))]


_PADDED = {"constant": "constant", "edge": "replicate", "reflect": "reflect", "wrap": "circular"}


@operator("Pad")
def _pad(given: Values) -> Any:
    before_after, mode = given.numbers(1), _PADDED[given.get("mode", "constant")]
    rank = len(before_after) // 2
    axes = range(rank) if given[3] is None else [axis % given[0].dim() for axis in given.numbers(3)]
    ends = {axis: (before_after[place], before_after[place + rank]) for place, axis in enumerate(axes)}
    first = min((axis for axis, pair in ends.items() if any(pair)), default=given[0].dim())
    pads = [number for axis in reversed(range(first, given[0].dim())) for number in ends.get(axis, (0, 0))]
    return F.pad(given.tensor(0), pads, mode, 0 if given[2] is None else _number(given[2]))


@operator("Trilu")
def _triangle(given: Values) -> Any:
    offset = 0 if given[1] is None else int(np.asarray(given[1]))
    cut = (np.triu if given.get("upper", 1) else np.tril) if given.constant else None
    if cut is not None:
        return cut(given[0], offset)
    return torch.triu(given[0], offset) if given.get("upper", 1) else torch.tril(given[0], offset)


@operator("Resize")
def _resize(given: Values) -> Any:
    """Resizes an image where torch computes the same. Raises ValueError where it does not."""
    x, mode = given.tensor(0), given.get("mode", "nearest")
    where = given.get("coordinate_transformation_mode", "half_pixel")
    scales = None if given[2] is None or not np.size(given[2]) else np.asarray(given[2]).tolist()
    wanted = [size * scale for size, scale in zip(x.shape, scales, strict=True)] if scales else given.numbers(3)
    sizes = [round(size) for size in wanted]
    if sizes != wanted or sizes[:2] != list(x.shape[:2]):
        raise ValueError(f"sizes {wanted} of {list(x.shape)}")
    _ = given[1]  # the region of interest, which only another mode uses
    if mode == "nearest":
        whole = all(new % old == 0 for new, old in zip(sizes[2:], x.shape[2:], strict=True))
        rounded = given.get("nearest_mode", "round_prefer_floor")
        if (where, rounded) != ("asymmetric", "floor") and not (whole and (where, rounded) == _NEAREST):
            raise ValueError(f"nearest elements by {where} and {rounded}")
        return F.interpolate(x, size=sizes[2:], mode="nearest")
    if where not in ("half_pixel", "align_corners") and (where != "pytorch_half_pixel" or 1 in sizes[2:]):
        raise ValueError(f"coordinates by {where}")
    kind = {"linear": "bilinear", "cubic": "bicubic"}[mode]
    return F.interpolate(x, size=sizes[2:], mode=kind, align_corners=where == "align_corners")


_NEAREST = ("half_pixel", "round_prefer_floor")


# ---------------------------------------------------------------------------------------- reductions


_REDUCED: Mapping[str, tuple[Callable[..., Tensor], Callable[..., Any]]] = {
    "ReduceMean": (torch.mean, np.mean),
    "ReduceSum": (torch.sum, np.sum),
    "ReduceMax": (torch.amax, np.max),
}


def _reduction(name: str) -> Operator:
    ours, theirs = _REDUCED[name]

    def apply(given: Values) -> Any:
        axes, keep = _axes(given), bool(given.get("keepdims", 1))
        axes = None if not axes and not given.get("noop_with_empty_axes", 0) else axes or []
        if axes == []:
            return given[0]
        if given.constant:
            return theirs(given[0], None if axes is None else tuple(axes), keepdims=keep)
        x = given.tensor(0)
        return ours(x, list(range(x.dim())) if axes is None else axes, keepdim=keep)

    return apply


OPERATORS.update({name: _reduction(name) for name in _REDUCED})
OPERATORS["GlobalAveragePool"] = lambda given: F.adaptive_avg_pool2d(given.tensor(0), 1)
OPERATORS["Softmax"] = lambda given: torch.softmax(given.tensor(0), given.get("axis", -1))
OPERATORS["LogSoftmax"] = lambda given: torch.log_softmax(given.tensor(0), given.get("axis", -1))


@operator("CumSum")
def _cumulated(given: Values) -> Any:
    axis = int(np.asarray(given[1]))
    return np.cumsum(given[0], axis) if given.constant else torch.cumsum(given[0], axis)
