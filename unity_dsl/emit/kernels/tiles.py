"""Triton text of terms over tiles, which kernels with matrix products share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from keyword import kwlist
from math import prod

from ...index.equations.instance import Instance, Operand
from ...index.equations.loop_nest import LoopNest, loop_nest
from ...index.equations.term import dim_axes, dim_index, free_axes, fresh
from ...index.kernels.contractions import LEAST
from ...index.library import Library
from ...syntax.ast import Expr, Name, Read, Uniform
from .kernel_text import Lines, pointer, power_of_two
from .positions import Local, Positions
from .triton_calls import DEFINED
from .triton_terms import NoKernelError, Piece, Sort, TermText, number_piece

_RESERVED = (
    *("batch", "row", "column", "inner", "inner_down", "first_row", "first_column", "first_inner", "first_position"),
    *("program", "tile", "group", "group_rows", "seed", "step", "site", "T", "tl", "growth"),
)


@dataclass(frozen=True)
class Side:
    """One side of a tile of `block` positions: positions along axes, as a variable that runs down or across.

    The positions begin at the variable `start`, if any. Their number is the text `length`. `looped` means that a loop
    moves them. The variable `guard`, if any, says which positions exist.
    """

    variable: str
    axes: tuple[str, ...]
    extent: int
    block: int
    down: bool = False
    start: str = ""
    length: str = ""
    looped: bool = False
    guard: str = ""

    @property
    def mask(self) -> str | None:
        if self.guard:
            return self.guard
        return f"{self.variable} < {self.extent}" if self.extent % self.block else None

    @property
    def text(self) -> str:
        """The text of the positions."""
        shape = "[:, None]" if self.down else "[None, :]"
        start = f"{self.start} + " if self.start else ""
        return f"{start}tl.arange(0, {self.length or self.block}){shape}"

    @property
    def turned(self) -> Side:
        """The same positions, downwards."""
        return replace(self, variable=f"{self.variable}_down", down=True)


class TileKernel(ABC):
    """A kernel that is being written: the lines around loops, and the loop that is being written.

    Each program has one position of the axes `batch`. `wide` tensors are stored in the type in which kernels compute.
    """

    def __init__(
        self,
        name: str,
        instance: Instance,
        wide: Collection[str],
        local: Local,
        library: Library,
        batch: tuple[str, ...],
    ) -> None:
        self.name, self.instance, self.local, self.library, self.batch = name, instance, local, library, batch
        self.nests: dict[str, LoopNest] = {e.target.name: loop_nest(instance, e) for e in instance.equations}
        self.operands: dict[str, Operand] = {operand.name: operand for operand in instance.inputs}
        self.operands |= {e.target.name: e.target for e in instance.equations}
        self.wide = wide
        self.taken = {*_RESERVED, *DEFINED, *kwlist}
        self.before = Lines("    ")
        self.loop: Lines | None = None
        self.loads: dict[str, None] = {}
        self.numbers: dict[str, None] = {}
        self.functions: set[str] = set()
        self.random = False

    @abstractmethod
    def held(self, frame: Frame, read: Read, own: bool) -> Piece | None:
        """An intermediate that is a variable of the kernel or in memory; None for one that is evaluated where it is
        read, at its `own` positions.
        """

    # ------------------------------------------------------------------------------------------ sides

    def memory_type(self) -> str:
        """The type of floats in memory, in which tiles are multiplied."""
        found = [name for name in self.loads if name not in self.wide and self.operands[name].integer_range is None]
        return f"{pointer(found[0])}.dtype.element_ty" if found else "T"

    def large(self) -> bool:
        """Whether some tensor has more elements than 32 bits count."""
        kept = (*self.instance.inputs, *self.instance.outputs)
        return max(self.extent(operand.axes) for operand in kept) >= 2**31

    def extent(self, axes: Sequence[str]) -> int:
        return prod(self.local.sizes[axis] for axis in axes)

    def program(self) -> str:
        """The text of the program's number, wide enough to count elements."""
        return "tl.program_id(0)" + (".to(tl.int64)" if self.large() else "")

    def declare(self, side: Side) -> None:
        """Defines the variable of a side, unless it is defined."""
        if self.known(("side", side.variable)) is None:
            scope = self.loop if side.looped and self.loop is not None else self.before
            scope.write(f"{side.variable} = {side.text}")
            scope.names["side", side.variable] = side.variable
            self.taken.add(side.variable)

    # ------------------------------------------------------------------------------------------ names

    def fresh(self, wanted: str) -> str:
        name = fresh(wanted.replace("'", "_"), self.taken)
        self.taken.add(name)
        return name

    def known(self, key: object) -> str | None:
        if self.loop is not None and key in self.loop.names:
            return self.loop.names[key]
        return self.before.names.get(key)

    def define(self, wanted: str, code: str, looped: bool, key: object) -> str:
        """Defines a variable, in the loop if it depends on what the loop moves."""
        scope = self.loop if looped and self.loop is not None else self.before
        name = self.fresh(wanted)
        scope.write(f"{name} = {code}")
        scope.names[key] = name
        return name


class Frame:
    """Terms over a tile: its two sides, and the batch position of the program."""

    def __init__(self, body: TileKernel, down: Side, across: Side) -> None:
        self.body, self.down, self.across = body, down, across
        variables: Mapping[str, Sequence[str]] = {
            "batch": body.batch, down.variable: down.axes, across.variable: across.axes
        }  # fmt: skip
        self.positions = Positions(body.instance, body.local, variables, self.piece, self.shared, body.numbers)
        self.terms = TermText(body.library, body.instance.sizes, self.leaf, body.functions)

    @property
    def looped(self) -> bool:
        return self.down.looped or self.across.looped

    def piece(self, expr: Expr) -> Piece:
        return self.terms.piece(expr)

    def shared(self, wanted: str, code: str, variable: str) -> str:
        key = ("shared", code)
        looped = any(side.looped for side in (self.down, self.across) if side.variable == variable)
        return self.body.known(key) or self.body.define(wanted, code, looped, key)

    def operand(self, expr: Expr) -> str:
        """The tile as an operand of a matrix product, in the type of floats in memory; 0 outside of the tile. An input
        is loaded in the type that it has.
        """
        body = self.body
        for side in (self.down, self.across):
            body.declare(side)
        if isinstance(expr, Read) and self.in_memory(expr.tensor):
            return self.loaded(expr, raw=True).code
        code = self.terms.as_float(self.piece(expr)).code
        masks = [f"({side.mask})" for side in (self.down, self.across) if side.mask]
        code = f"tl.where({' & '.join(masks)}, {code}, 0.0)" if masks else code
        code = code if code.isidentifier() or masks else f"({code})"
        return f"{code}.to({body.memory_type()})"

    def in_memory(self, tensor: str) -> bool:
        """Whether a tensor is a float input of the type in which tiles are multiplied."""
        known = tensor in self.body.nests or tensor in self.body.wide
        return not known and self.body.operands[tensor].integer_range is None

    def leaf(self, expr: Name | Read | Uniform) -> Piece:
        if isinstance(expr, Name):
            return self.positions.value(expr.name)
        if isinstance(expr, Uniform):
            return self.drawn(expr)
        if expr.tensor not in self.body.nests:
            return self.loaded(expr)
        return self.computed(expr)

    def computed(self, read: Read) -> Piece:
        """An intermediate: held by the kernel, or evaluated where it is read."""
        body, name = self.body, read.tensor
        own = tuple(dim_axes(index, body.instance.sizes) for index in read.index) == body.operands[name].dims
        held = body.held(self, read, own)
        if held is not None:
            return held
        if not own:
            raise NoKernelError(f"`{name}` is read at other positions than its own")
        key = (name, self.down.variable, self.across.variable)
        known = body.known(key)
        if known is None:
            piece = self.piece(body.nests[name].value)
            if piece.sort is Sort.NUMBER or (piece.sort is Sort.FLOAT and piece.code.isidentifier()):
                return piece
            known = body.define(name, self.terms.as_float(piece).code, self.looped, key)
        return Piece(known, Sort.FLOAT)

    def loaded(self, read: Read, raw: bool = False) -> Piece:
        """An element of memory; with `raw` in the type that it has there."""
        body = self.body
        operand = body.operands[read.tensor]
        sort = Sort.FLOAT if operand.integer_range is None else Sort.INT
        key = (read, self.down.variable, self.across.variable, raw)
        known = body.known(key)
        if known is not None:
            return Piece(known, sort)
        body.loads[read.tensor] = None
        offset, guards = self.positions.offset(read, operand)
        axes = set(free_axes(read))
        # An operand of a matrix product has both sides of its tile, even if one has a single position.
        sides = [side for side in (self.down, self.across) if raw or guards or axes & set(side.axes)]
        offset = " + ".join([offset, *(side.variable for side in sides if side.extent == 1)])
        apart = [side for side in sides if side.extent > 1 and not axes & set(side.axes)]
        offset = " + ".join([offset, *(f"{side.variable} * 0" for side in apart)])
        for side in sides:
            body.declare(side)
        masks = [*(in_brackets(side.mask) for side in sides if side.mask), *guards]
        fill = 0 if read.fill is None else self.terms.constant(read.fill)
        if fill is None:
            raise NoKernelError(f"`{read.tensor}` is filled with what depends on positions")
        mask = f", mask={' & '.join(masks)}, other={number_piece(fill).code}" if masks else ""
        cast = "" if raw or sort is Sort.INT else ".to(T)"
        looped = any(side.looped for side in sides)
        code = f"tl.load({pointer(read.tensor)} + {offset}{mask}){cast}"
        return Piece(body.define(read.tensor, code, looped, key), sort)

    def drawn(self, expr: Uniform) -> Piece:
        body = self.body
        key = (expr, self.down.variable, self.across.variable)
        known = body.known(key)
        if known is None:
            body.random = True
            body.functions.add("uniform_numbers")
            for side in (self.down, self.across):
                body.declare(side)
            place = self.positions.of_draw(expr)
            known = body.define(
                "draw", f"uniform_numbers({place}, first_position, seed, step, site, T)", self.looped, key
            )
        return Piece(known, Sort.FLOAT)

    def store(self, name: str, value: str) -> str:
        """The statement that stores a tensor in memory, at its own axes."""
        operand = self.body.operands[name]
        read = Read(name, tuple(map(dim_index, operand.dims)))
        sides = [side for side in (self.down, self.across) if side.axes]
        offset, _ = self.positions.offset(read, operand)
        offset = " + ".join([offset, *(side.variable for side in sides if side.extent == 1)])
        mask = " & ".join(f"({side.mask})" for side in sides if side.mask)
        return f"tl.store({pointer(name)} + {offset}, {value}{f', mask={mask}' if mask else ''})"


def in_brackets(mask: str) -> str:
    """A comparison as an operand of `&`."""
    return mask if mask.isidentifier() else f"({mask})"


def block_of(extent: int) -> int:
    """The length of the shortest side of a tile that has this many positions."""
    return max(LEAST, power_of_two(extent))
