"""Readings of TASO's operators: matrices [m, k] and images [n, c, h, w], axes outermost first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...prove.normal_form.polynomial import number
from .file_rules import FileOperator
from .reading import SHARED_MEANINGS, Format, shared_meaning
from .typed_terms import Call, Dim, NoReading, Typed, Typing

CONVOLUTION = (
    "convolution of x[n, c, h, w] by w[o, i, r, s] at stride 1, padded so that h and w stay, then the activation"
)
MEANINGS: Mapping[str, Mapping[str, str]] = {
    "matmul": {"product": "matrix product of a[m, k] and b[k, n], then the activation"},
    "conv2d": {
        "dense": f"{CONVOLUTION}; in c / i groups, 1 in every rule in which all convolutions can have 1",
        "grouped": f"{CONVOLUTION}; in c / i groups, any number of them in every convolution",
    },
    **SHARED_MEANINGS,
}
MATRICES, IMAGES, KERNELS = range(-6, 0), range(-9, -6), range(-19, -9)
"""External tensors of the generator by number: matrices have rank 2, images and kernels have rank 4."""


def _rank(made: FileOperator) -> int | None:
    return {"matmul": 2, "conv2d": 4}.get(made.kind, made.parameters.get("rank"))


def _usual_rank(external: int) -> int:
    if external in MATRICES:
        return 2
    if external in IMAGES or external in KERNELS:
        return 4
    raise NoReading(f"the generator has no external tensor {external} with axes")


def _axes(external: int, rank: int) -> Sequence[str]:
    if rank == 2:
        return ("m", "k")
    if rank == 4:
        return ("o", "i", "r", "s") if external in KERNELS else ("n", "c", "h", "w")
    raise NoReading(f"a tensor of rank {rank}")


def _meaning(made: FileOperator, operands: Sequence[Typed], typing: Typing) -> tuple[Typed, ...]:
    match made.kind:
        case "matmul":
            return (_matmul(made, operands, typing),)
        case "conv2d":
            return (_convolution(made, operands, typing),)
        case _:
            return shared_meaning(made, operands, typing)


def _matmul(made: FileOperator, operands: Sequence[Typed], typing: Typing) -> Typed:
    left, right = operands
    if len(left.dims) != 2 or len(right.dims) != 2:
        raise NoReading(f"`matmul` of ranks {len(left.dims)} and {len(right.dims)}")
    typing.equal(left.dims[1], right.dims[0])
    return typing.activated(Typed(Call("matmul", (left.term, right.term)), (left.dims[0], right.dims[1])), made)


def _convolution(made: FileOperator, operands: Sequence[Typed], typing: Typing) -> Typed:
    image, weight = operands
    given = made.parameters
    kernel = (given.get("kernel_h", 0), given.get("kernel_w", 0))
    if len(image.dims) != 4 or len(weight.dims) != 4:
        raise NoReading(f"`conv2d` of ranks {len(image.dims)} and {len(weight.dims)}")
    if (given.get("stride_h"), given.get("stride_w"), given.get("padding")) != (1, 1, 0):
        raise NoReading("`conv2d` at a stride or with a padding that is not of the reading")
    if not all(size > 0 and size % 2 for size in kernel):
        raise NoReading(f"`conv2d` with a kernel of {kernel[0]} by {kernel[1]}, which cannot keep h and w")
    for axis, size in zip((2, 3), kernel, strict=True):
        typing.sizes.equal(weight.dims[axis].size, number(size))
    attributes = [(name, number(size // 2)) for name, size in zip(("pad_h", "pad_w"), kernel, strict=True) if size > 1]
    if typing.choices["conv2d"] == "dense":
        typing.equal(image.dims[1], weight.dims[1])
    else:
        groups = typing.sizes.fresh("g")
        typing.sizes.equal(image.dims[1].size, groups * weight.dims[1].size)
        features = typing.sizes.value(weight.dims[0].size)
        if len(features.terms) == 1:  # for a sum, the prover checks divisibility by the groups
            typing.sizes.equal(features, groups * typing.sizes.fresh("p"))
        attributes.insert(0, ("groups", groups))
    call = Call("conv2d", (image.term, weight.term), tuple(attributes))
    dims = (image.dims[0], weight.dims[0], Dim(image.dims[2].size), Dim(image.dims[3].size))
    return typing.activated(Typed(call, dims), made)


TASO = Format("taso", MEANINGS, _rank, _usual_rank, _axes, _meaning, wider={("conv2d", "dense"): "grouped"})
