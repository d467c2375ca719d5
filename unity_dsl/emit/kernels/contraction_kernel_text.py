"""Triton text of matrix products with elementwise operations in their operands and results."""

from __future__ import annotations

from collections.abc import Collection

from ...index.equations.term import dim_index
from ...index.kernels.contractions import BLOCK
from ...index.kernels.step_schedule import Contraction, Step
from ...index.library import Library
from ...syntax.ast import Read
from ..torch_text import Binding
from .kernel_text import KernelText, Lines, pointer
from .positions import Local
from .tiles import Frame, Side, TileKernel, block_of
from .triton_terms import NoKernelError, Piece, Sort

BLOCK_INNER = 64
"""How many positions of the summed axes are multiplied at once if elements have 16 bits. For wider elements it is the
same number of bytes.
"""
BLOCK_WINDOWS = 32
"""The same if windows are read, whose positions take registers."""
GROUP = 8
"""How many blocks of rows are computed for each block of columns, so that operands are still in the cache."""


def contraction_kernel_text(name: str, step: Step, wide: Collection[str], local: Local, library: Library) -> KernelText:
    """The text of a kernel. `wide` tensors are stored in the type in which the kernel computes. Raises NoKernelError if
    an equation has no Triton text.
    """
    assert isinstance(step.kernel, Contraction)
    return _Body(name, step, step.kernel, wide, local, library).text()


class _Body(TileKernel):
    """A kernel's body that is being written."""

    def __init__(
        self, name: str, step: Step, kernel: Contraction, wide: Collection[str], local: Local, library: Library
    ) -> None:
        super().__init__(name, step.instance, wide, local, library, kernel.batch)
        self.kernel = kernel
        self.loaded = step.loaded
        inner = BLOCK_WINDOWS if kernel.windowed else BLOCK_INNER
        self.row = self.side("row", "ROWS", kernel.rows, BLOCK, down=True)
        self.column = self.side("column", "COLUMNS", kernel.columns, BLOCK)
        self.inner = self.side("inner", "INNER", kernel.inner, inner, looped=True)
        self.tile = Frame(self, self.row, self.column)
        self.sum: str | None = None

    def side(
        self, variable: str, block: str, axes: tuple[str, ...], most: int, down: bool = False, looped: bool = False
    ) -> Side:
        extent = self.extent(axes)
        length = min(most, block_of(extent))
        return Side(variable, axes, extent, length, down, f"first_{variable}", f"BLOCK_{block}", looped)

    def text(self) -> KernelText:
        kernel = self.kernel
        programs = self.place_program()
        self.multiply()
        for name in kernel.stored:
            read = Read(name, tuple(map(dim_index, self.operands[name].dims)))
            self.before.write(self.tile.store(name, self.tile.piece(read).code))
        blocks = {"BLOCK_ROWS": self.row.block, "BLOCK_COLUMNS": self.column.block, "BLOCK_INNER": self.inner.block}
        return KernelText(
            self.name,
            tuple(self.loads),
            kernel.stored,
            (),
            tuple(name for name in self.loads if self.operands[name].integer_range is not None),
            tuple(self.numbers),
            self.random,
            frozenset(self.functions),
            (programs,),
            tuple(blocks.items()),
            8 if self.row.block * self.column.block > 64 * 64 else 4,
            tuple(self.before.lines),
            by_width=("BLOCK_INNER",),
        )

    def place_program(self) -> int:
        """Writes which tile a program makes. Returns the number of programs."""
        down, across = (-(-side.extent // side.block) for side in (self.row, self.column))
        batch = self.extent(self.kernel.batch)
        cached = f": {GROUP} blocks of rows for each block of columns, while operands are in the cache"
        self.before.write(f"# The tile that the program makes{cached if down > GROUP else ''}.")
        self.before.write(f"program = {self.program()}")
        tile = "program"
        if batch > 1:
            self.before.write(f"batch = program // {down * across}")
            self.before.write(f"tile = program % {down * across}")
            tile = "tile"
        if down == 1:
            self.before.write("first_row = 0")
            self.before.write(f"first_column = {tile} * BLOCK_COLUMNS")
        elif down <= GROUP:
            self.before.write(f"first_row = {tile} % {down} * BLOCK_ROWS")
            self.before.write(f"first_column = {tile} // {down} * BLOCK_COLUMNS")
        else:
            self.before.write(f"group = {tile} // {GROUP * across}")
            rows = f"tl.minimum({GROUP}, {down} - {GROUP} * group)" if down % GROUP else f"{GROUP}"
            self.before.write(f"group_rows = {rows}")
            place = f"{tile} % {GROUP * across}"
            self.before.write(f"first_row = ({GROUP} * group + {place} % group_rows) * BLOCK_ROWS")
            self.before.write(f"first_column = {place} // group_rows * BLOCK_COLUMNS")
        self.declare(self.row)
        self.declare(self.column)
        return batch * down * across

    def multiply(self) -> None:
        """Writes the loop that accumulates the product."""
        kernel, nest = self.kernel, self.nests[self.kernel.product]
        total = self.fresh(kernel.product)
        self.before.write(f"{total} = tl.zeros([BLOCK_ROWS, BLOCK_COLUMNS], T)")
        self.loop = Lines("        ")
        left = Frame(self, self.row, self.inner).operand(kernel.left)
        right = Frame(self, self.inner.turned, self.column).operand(kernel.right)
        self.functions.add("product")
        self.loop.write(f"{total} += product({left}, {right}, T)")
        self.before.write(f"for first_inner in range(0, {self.inner.extent}, BLOCK_INNER):")
        self.before.lines += self.loop.lines
        self.loop = None
        if nest.scale:
            scaled = "".join(
                f" {operator} {self.tile.piece(amount).inside(Binding.SIGN)}" for operator, amount in nest.scale
            )
            self.before.write(f"{total} = {total}{scaled}")
        self.sum = total

    def held(self, frame: Frame, read: Read, own: bool) -> Piece | None:
        """The product, or a reduction that an earlier kernel made."""
        if read.tensor == self.kernel.product:
            if self.sum is None or not own or frame is not self.tile:
                raise NoKernelError(f"`{read.tensor}` is read outside of its tile")
            return Piece(self.sum, Sort.FLOAT)
        return frame.loaded(read) if self.nests[read.tensor].over else None

    def memory_type(self) -> str:
        """The type of the first tensor that the kernel is given in the type of results, even if it is not read yet."""
        plain = [operand.name for operand in self.loaded if operand.name not in self.wide]
        found = [name for name in plain if self.operands[name].integer_range is None]
        return f"{pointer(found[0])}.dtype.element_ty" if found else "T"
