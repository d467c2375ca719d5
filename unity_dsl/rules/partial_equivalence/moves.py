"""Candidates for partially equal forms: the same operator on rearranged images.

A factor of one dimension of the image becomes the major or minor factor of another dimension, the operator is applied,
and the factor is moved back. Factors of the batch move to height or width; phases of a dilated operator move to the
batch or become adjacent. Other candidates join two images along a dimension. This module does not determine which
candidates agree with the original, nor at which positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product as combinations

from ...syntax.parse_rules import RuleDecl
from ...syntax.rule_names import names_in
from .candidate import Candidate

DIMENSIONS = ("batch", "channels", "height", "width")
NAMES = ("n", "c", "h", "w")
"""The axes of an image, by dimension."""
LAYER = {"n": 1, "b": 32, "c": 64, "o": 64, "h": 56, "w": 56, "u": 56, "v": 56, "m": 1, "a": 1, "e": 1, "d": 2}
"""Sizes at which forms are priced, those of a ResNet layer: 64 channels, 56 by 56 positions, 32 images; or two images
of 56 by 56; a dilation of 2.
"""


@dataclass(frozen=True)
class Program:
    """An operator on images `x`. `call` is applied to the original image, `dense` to the rearranged one; they differ
    only if the layout undoes dilation.

    `sizes` are the factors of each dimension of x. `split` names the minor factors that may move, each with its
    dimension, to one of the `targets`. `result` names the height and width of the result, by sizes of the rule if
    possible.
    """

    name: str
    sizes: tuple[str, str, str, str]
    inputs: tuple[str, ...]
    conditions: tuple[str, ...]
    call: str
    dense: str
    split: tuple[tuple[int, str], ...]
    targets: tuple[int, ...]
    channels: str = "o"
    result: tuple[str, str] = ("p", "q")


def _kernel(*sizes: str) -> tuple[str, ...]:
    return (f"k: [o, c, {', '.join(sizes)}]",)


PROGRAMS = (
    Program(
        "conv2d",
        ("n * b", "c", "h", "w"),
        _kernel("2 * a + 1", "2 * e + 1"),
        ("h >= 2 * a + 1", "w >= 2 * e + 1"),
        "conv2d({x}, k; pad_h=a, pad_w=e)",
        "conv2d({x}, k; pad_h=a, pad_w=e)",
        ((0, "b"),),
        (2, 3),
    ),
    Program(
        "strided_conv2d",
        ("n * b", "c", "h * 2", "w * 2"),
        _kernel("3", "3"),
        ("h >= 3", "w >= 3"),
        "conv2d({x}, k; stride=2, pad_h=1, pad_w=1)",
        "conv2d({x}, k; stride=2, pad_h=1, pad_w=1)",
        ((0, "b"),),
        (2, 3),
    ),
    Program(
        "dilated_conv2d",
        ("n", "c", "h * d", "w * d"),
        _kernel("2 * a + 1", "2 * e + 1"),
        ("h >= 2 * a + 1", "w >= 2 * e + 1"),
        "conv2d({x}, k; pad_h=a * d, pad_w=e * d, dilation=d)",
        "conv2d({x}, k; pad_h=a, pad_w=e)",
        ((2, "i"), (3, "j")),
        (0, 2, 3),
        result=("h", "w"),
    ),
    Program(
        "max_pool2d",
        ("n * b", "c", "h", "w"),
        (),
        ("h >= 3", "w >= 3"),
        "max_pool2d({x}; size=3, stride=1, pad_h=1, pad_w=1)",
        "max_pool2d({x}; size=3, stride=1, pad_h=1, pad_w=1)",
        ((0, "b"),),
        (2, 3),
        "c",
    ),
    Program(
        "avg_pool2d",
        ("n * b", "c", "h", "w"),
        (),
        ("h >= 3", "w >= 3"),
        "avg_pool2d({x}; size=3, stride=1, pad_h=1, pad_w=1)",
        "avg_pool2d({x}; size=3, stride=1, pad_h=1, pad_w=1)",
        ((0, "b"),),
        (2, 3),
        "c",
    ),
)


def candidates() -> Iterator[Candidate]:
    """Every candidate, one program after the other."""
    for program in PROGRAMS:
        yield from _moved(program)
        if "*" not in program.sizes[2]:
            yield from _joined(program)


def sizes_of_layer(rule: RuleDecl) -> dict[str, int]:
    """The sizes of `LAYER` that a form has, corrected or not; empty for a rule that is not one of the candidates."""
    if rule.name not in {candidate.name for candidate in candidates()}:
        return {}
    used = {name.name for tensor in rule.inputs for dim in tensor.dims for name in names_in(dim.size)}
    return {name: size for name, size in LAYER.items() if name in used}


def _moved(program: Program) -> Iterator[Candidate]:
    """Every way to move the program's factors, each as the major or the minor factor of its new dimension."""
    places = [(target, major) for target in program.targets for major in (True, False)]
    for chosen in combinations(places, repeat=len(program.split)):
        moves = dict(zip((name for _, name in program.split), chosen, strict=True))
        if all(_is_new(dim, name, moves) for dim, name in program.split):
            yield _moved_by(program, moves)


def _is_new(dim: int, name: str, moves: Mapping[str, tuple[int, bool]]) -> bool:
    """Whether a factor changes its place; it was the minor factor of its dimension."""
    return moves[name] != (dim, False)


def _moved_by(program: Program, moves: Mapping[str, tuple[int, bool]]) -> Candidate:
    before = [[name] for name in NAMES]
    after = [[name] for name in NAMES]
    for dim, factor in program.split:
        before[dim].append(factor)
    for factor, (target, major) in moves.items():
        after[target].insert(0 if major else len(after[target]), factor)
    there = _view(before, after)
    result = {"c": program.channels, "h": program.result[0], "w": program.result[1]}
    back = _view(*([[result.get(name, name) for name in dim] for dim in dims] for dims in (after, before)))
    where = [f"{DIMENSIONS[dim]}_to_{_said(*moves[name])}" for dim, name in program.split]
    fast = f"{program.dense.format(x=f'x{there}')}{back}"
    return Candidate(
        f"{program.name}_{'_and_'.join(where)}",
        ", ".join((f"x: [{', '.join(program.sizes)}]", *program.inputs)),
        program.conditions,
        (),
        (program.call.format(x="x"),),
        (fast,),
    )


def _said(target: int, major: bool) -> str:
    return DIMENSIONS[target] if major else f"{DIMENSIONS[target]}_interleaved"


def _view(source: list[list[str]], target: list[list[str]]) -> str:
    """A view between two layouts, with each dimension given by its factors."""
    return f"{_pattern(source)} -> {_pattern(target)}"


def _pattern(dims: list[list[str]]) -> str:
    shown = (dim[0] if len(dim) == 1 else f"({' '.join(dim)})" for dim in dims)
    return f"[{', '.join(shown)}]"


def _joined(program: Program) -> Iterator[Candidate]:
    """Two images that touch along one dimension, computed as one; the results are slices of the joint result."""
    image = ("n", "c", "h", "w")
    for dim, size, other in ((0, "n", "m"), (2, "h", "u"), (3, "w", "v")):
        second = (*image[:dim], other, *image[dim + 1 :])
        both = f"both = {program.call.format(x=f'concat(x, y; dim={dim})')}"
        least = [condition.replace(f"{size} ", f"{other} ") for condition in program.conditions if condition[0] == size]
        halves = (("0", size), (size, f"{size} + {other}"))
        yield Candidate(
            f"{program.name}_side_by_side_along_{DIMENSIONS[dim]}",
            ", ".join((f"x: [{', '.join(image)}]", f"y: [{', '.join(second)}]", *program.inputs)),
            (*program.conditions, *least),
            (both,),
            tuple(program.call.format(x=name) for name in "xy"),
            tuple(f"slice(both; dim={dim}, start={start}, stop={stop})" for start, stop in halves),
        )
