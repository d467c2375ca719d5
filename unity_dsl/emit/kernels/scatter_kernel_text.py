"""Triton text of sums into rows that data choose (scatter-add)."""

from __future__ import annotations

from collections.abc import Collection

from ...index.equations.term import dim_index, fresh
from ...index.kernels import scatters
from ...index.kernels.step_schedule import Scatter, Step
from ...index.library import Library
from ...syntax.ast import Read
from .kernel_text import KernelText, Lines, Placed, pointer, power_of_two
from .positions import Local
from .tiles import Frame, Side, TileKernel
from .triton_terms import NoKernelError, Piece

ELEMENTS = 1024
"""Elements of a tile of parts and columns."""
BLOCK_COLUMNS = 512
"""The largest number of columns of a program."""
_NAMES = ("part", "number", "place", "inside", "entry", "first", "last")


def scatter_kernel_text(name: str, step: Step, wide: Collection[str], local: Local, library: Library) -> KernelText:
    """The text of a kernel. `wide` tensors are stored in the type in which the kernel computes. Raises NoKernelError if
    an equation has no Triton text.
    """
    assert isinstance(step.kernel, Scatter)
    return _Body(name, step, step.kernel, wide, local, library).text()


class _Body(TileKernel):
    """A kernel's body that is being written. A program loops over the entries of several parts at once."""

    def __init__(
        self, name: str, step: Step, kernel: Scatter, wide: Collection[str], local: Local, library: Library
    ) -> None:
        super().__init__(name, step.instance, wide, local, library, ())
        self.kernel = kernel
        self.taken |= {*_NAMES}
        entries, self.rows = self.extent(kernel.entries), self.extent(kernel.rows)
        if kernel.rows[-1] in local.divided:
            raise NoKernelError(f"`{kernel.rows[-1]}` is divided, and read where data choose")
        keys = kernel.keys.tensor
        given = tuple(fresh(name, self.operands) for name in ("order", "first", "last"))
        sums = fresh(f"{kernel.target}_sums", self.operands)
        batch, extent = self.extent(kernel.batch), self.extent(kernel.columns)
        self.placed = Placed(given, sums, keys, batch, self.rows, entries, extent, scatters.PART)
        columns = min(BLOCK_COLUMNS, power_of_two(extent))
        parts = min(ELEMENTS // columns, power_of_two(self.rows + self.placed.parts))
        self.entry = Side("entry", kernel.entries, entries, parts, True, looped=True, guard="inside")
        self.column = Side("column", kernel.columns, extent, columns, False, "first_column", "BLOCK_COLUMNS")
        self.tile = Frame(self, self.entry, self.column)

    def text(self) -> KernelText:
        target, parts, placed = self.kernel.target, self.entry.block, self.placed
        count = self.rows + placed.parts
        order, first, last = map(pointer, placed.given)
        self.before.write(f"part = {self.program()} * BLOCK_PARTS + tl.arange(0, BLOCK_PARTS)[:, None]")
        self.before.write("first_column = tl.program_id(1) * BLOCK_COLUMNS")
        self.declare(self.column)
        mask = f", mask=part < {count}, other=0" if count % parts else ""
        self.before.write("# Of each part the program goes over its entries, which come in the order of their rows.")
        self.before.write(f"first = tl.load({first} + part{mask})")
        self.before.write(f"last = tl.load({last} + part{mask})")
        total = self.fresh(target)
        self.before.write(f"{total} = tl.zeros([BLOCK_PARTS, BLOCK_COLUMNS], T)")
        self.loop = Lines("        ")
        self.loop.write("place = first + number")
        self.loop.write("inside = place < last")
        self.loop.write(f"entry = tl.load({order} + place, mask=inside, other=0)")
        self.loop.names["side", "entry"] = "entry"
        value = self.tile.terms.as_float(self.tile.piece(self.kernel.value)).code
        self.loop.write(f"{total} += tl.where(inside, {value}, 0.0)")
        self.before.write("for number in range(0, tl.max(last - first)):")
        self.before.lines += self.loop.lines
        self.loop = None
        self.store(target, total, count)
        across = -(-self.column.extent // self.column.block)
        return KernelText(
            self.name,
            tuple(self.loads),
            (target,),
            (),
            (*placed.given, *(name for name in self.loads if self.operands[name].integer_range is not None)),
            tuple(self.numbers),
            self.random,
            frozenset({*self.functions, "add_parts", "by_row"}),
            (-(-count // parts), across),
            (("BLOCK_PARTS", parts), ("BLOCK_COLUMNS", self.column.block)),
            4,
            tuple(self.before.lines),
            wide=(placed.sums,),
            placed=placed,
        )

    def store(self, target: str, total: str, count: int) -> None:
        """Writes the sums: those of whole rows into the result, those of other parts into a tensor of their own."""
        rows, columns = self.rows, self.column.extent
        across = f" & ({self.column.mask})" if self.column.mask else ""
        row = Side("part", self.kernel.rows, rows, self.entry.block, True)
        own = Read(target, tuple(map(dim_index, self.operands[target].dims)))
        place, _ = Frame(self, row, self.column).positions.offset(own, self.operands[target])
        place += "".join(f" + {side.variable}" for side in (row, self.column) if side.extent == 1)
        self.before.write(f"tl.store({pointer(target)} + {place}, {total}, mask=(part < {rows}){across})")
        if self.placed.parts:
            place = f"(part - {rows}) * {columns} + column"
            inside = f"(part >= {rows}) & (part < {count}){across}"
            self.before.write(f"tl.store({pointer(self.placed.sums)} + {place}, {total}, mask={inside})")

    def held(self, frame: Frame, read: Read, own: bool) -> Piece | None:
        """A reduction that an earlier kernel made."""
        return frame.loaded(read) if self.nests[read.tensor].over else None
