"""Triton text of kernels over products of rows and columns that are not stored, such as attention."""

from __future__ import annotations

from collections.abc import Collection

from ...index.equations.instance import Instance
from ...index.equations.loop_nest import without
from ...index.equations.term import dim_index, free_axes
from ...index.kernels.live_columns import ALL
from ...index.kernels.product_kernels import Pass, ProductKernel, mixed_side, product_sides
from ...index.library import Library
from ...syntax.ast import Read, ReductionKind
from ..torch_text import Binding
from .kernel_text import KernelText, Lines
from .positions import Local
from .tiles import Frame, Side, TileKernel, block_of
from .triton_terms import NoKernelError, Piece, Sort, number_piece

BLOCK_ROWS, BLOCK_COLUMNS = 64, 32
"""Rows and columns of a tile. There are half as many rows if an inner side of a product has more than 128 positions."""

_IDENTITY = {ReductionKind.SUM: "0.0", ReductionKind.MAX: 'float("-inf")', ReductionKind.MIN: 'float("inf")'}


def product_kernel_text(
    name: str, kernel: ProductKernel, instance: Instance, wide: Collection[str], local: Local, library: Library
) -> KernelText:
    """The text of a kernel. `wide` tensors are stored in the type in which the kernel computes. Raises NoKernelError if
    an equation has no Triton text.
    """
    return _Body(name, kernel, instance, wide, local, library).text()


class _Body(TileKernel):
    """A kernel's body that is being written."""

    def __init__(
        self,
        name: str,
        kernel: ProductKernel,
        instance: Instance,
        wide: Collection[str],
        local: Local,
        library: Library,
    ) -> None:
        super().__init__(name, instance, wide, local, library, kernel.batch)
        self.kernel = kernel
        self.made = {target for found in kernel.passes for target in found.targets}
        widest = max([self.extent(self.inner(name)) for name in (*kernel.products, *kernel.mixed)])
        rows = BLOCK_ROWS if widest <= 128 else BLOCK_ROWS // 2
        block = min(rows, block_of(self.extent(kernel.rows)))
        self.row = Side("row", kernel.rows, self.extent(kernel.rows), block, True, "first_row", "BLOCK_ROWS")
        extent = self.extent(kernel.columns)
        columns = min(BLOCK_COLUMNS, block_of(extent))
        self.column = Side(
            "column", kernel.columns, extent, columns, False, "first_column", "BLOCK_COLUMNS", looped=True
        )
        self.running: dict[str, str] = {}
        self.tile = Frame(self, self.row, self.column)

    # ------------------------------------------------------------------------------------------ structure

    def text(self) -> KernelText:
        kernel = self.kernel
        blocks = -(-self.row.extent // self.row.block)
        program = self.program()
        self.before.write(f"batch = {program} // {blocks}")
        self.before.write(f"first_row = {program} % {blocks} * BLOCK_ROWS")
        self.declare(self.row)
        for found in kernel.passes:
            self.write_pass(found)
        for name in kernel.stored:
            self.store(name)
        return KernelText(
            self.name,
            tuple(self.loads),
            kernel.stored,
            (),
            tuple(name for name in self.loads if self.operands[name].integer_range is not None),
            tuple(self.numbers),
            self.random,
            frozenset(self.functions),
            (blocks * self.extent(kernel.batch),),
            (("BLOCK_ROWS", self.row.block), ("BLOCK_COLUMNS", self.column.block)),
            4,
            tuple(self.before.lines),
        )

    def write_pass(self, found: Pass) -> None:
        """Writes a loop over the columns, with the reductions that it makes."""
        sums = {}
        for name in found.targets:
            kind = self.nests[name].equation.kind
            assert kind is not None
            across = block_of(self.extent(self.inner(name))) if name in self.kernel.mixed else 1
            sums[name] = self.fresh(name)
            self.before.write(f"{sums[name]} = tl.full([BLOCK_ROWS, {across}], {_IDENTITY[kind]}, T)")
        self.loop = Lines("        ")
        self.declare(self.column)
        held = dict(self.before.names)
        self.running = {} if found.extremum is None else {name: sums[name] for name in found.targets}
        growth = dict(found.scales)
        if found.extremum is not None:
            self.grow(found.extremum, sums[found.extremum])
        for name, variable in sums.items():
            if name != found.extremum:
                self.accumulate(name, variable, growth.get(name), dict(found.divided).get(name))
        self.before.names = {**held, **{key: name for key, name in self.before.names.items() if key not in held}}
        start, stop = self.live()
        self.before.write(f"for first_column in range({start}, {stop}, BLOCK_COLUMNS):")
        self.before.lines += self.loop.lines
        self.loop, self.running = None, {}
        for name, by in found.divided:
            self.before.write(f"{sums[name]} = {sums[name]} / {sums[by]}")
        for name, variable in sums.items():
            self.before.names[name] = variable

    def live(self) -> tuple[str, str]:
        """The texts of the start and the stop of the columns that count for a block of rows. All columns count unless
        the axes that decide it are whole, and each block lies within one of them.
        """
        kernel, local = self.kernel, self.local
        start, stop = "0", str(self.column.extent)
        row, column = kernel.rows[-1], kernel.columns[-1]
        length = local.sizes[row]
        if kernel.live == ALL or {row, column} & local.divided or self.column.extent != local.sizes[column]:
            return start, stop
        first = "first_row"
        if self.row.extent != length:
            if length % self.row.block:
                return start, stop
            first = f"first_row % {length}"
        if kernel.live.first is not None:
            there = f"tl.maximum(0, {first} + {kernel.live.first})".replace("+ -", "- ") if kernel.live.first else first
            start = f"{there} // BLOCK_COLUMNS * BLOCK_COLUMNS"
        if kernel.live.last is not None:
            beyond = f" + {kernel.live.last}".replace("+ -", "- ") if kernel.live.last else ""
            stop = f"tl.minimum({stop}, {first} + BLOCK_ROWS{beyond})"
        return start, stop

    def grow(self, name: str, variable: str) -> None:
        """Writes the running maximum, which sums read. While it is -inf, they read 0 instead."""
        value = self.kept(self.tile.piece(self.nests[name].value), 'float("-inf")')
        greater = self.fresh(f"{name}_grown")
        assert self.loop is not None
        self.loop.write(f"{greater} = tl.maximum({variable}, tl.max({value}, axis=1, keep_dims=True))")
        self.loop.write(f"growth = tl.where({greater} == {variable}, 0.0, {greater} - {variable})")
        self.loop.write(f"{variable} = {greater}")
        finite = self.fresh(f"{name}_so_far")
        self.loop.write(f'{finite} = tl.where({variable} == float("-inf"), 0.0, {variable})')
        self.running[name] = finite

    def accumulate(self, name: str, variable: str, scale: int | None, norm: str | None) -> None:
        assert self.loop is not None
        nest = self.nests[name]
        before = self.running.get(norm) if norm is not None else None
        if norm is not None:
            self.running[norm] = "1.0"
        if name in self.kernel.mixed:
            value = self.mixed(name)
        else:
            kind = nest.equation.kind
            assert kind is not None
            value = self.kept(self.tile.piece(nest.value), _IDENTITY[kind])
            value = f"tl.{kind.value}({value}, axis=1, keep_dims=True)"
            if kind is not ReductionKind.SUM:
                self.loop.write(f"{variable} = tl.{kind.value}imum({variable}, {value})")
                return
        if norm is not None and before is not None:
            self.running[norm] = before
        if scale:
            factor = "growth" if scale == 1 else "-growth" if scale == -1 else f"{scale} * growth"
            self.loop.write(f"{variable} = {variable} * tl.exp({factor}) + {value}")
        else:
            self.loop.write(f"{variable} += {value}")

    def mixed(self, name: str) -> str:
        """The text of the matrix product of a tile with the operand that its columns have."""
        nest = self.nests[name]
        side = mixed_side(nest, [axis for axis in self.inner(name) if self.local.sizes[axis] > 1] or self.inner(name))
        assert side is not None
        value = self.tile.piece(without(nest.value, side))
        tile = self.kept(value, "0.0")
        tile = tile if self.column.mask or value.binding is Binding.ATOM else f"({tile})"
        operand = Frame(self, self.column.turned, self.inner_side(self.inner(name))).operand(side)
        self.functions.add("product")
        return f"product({tile}.to({self.memory_type()}), {operand}, T)"

    def product(self, name: str) -> str:
        """The text of the scaled matrix product of rows and columns."""
        nest = self.nests[name]
        sides = product_sides(nest)
        assert sides is not None
        first, second = sides if set(self.kernel.rows) & set(free_axes(sides[0])) else sides[::-1]
        inner = self.inner_side(nest.over)
        left = Frame(self, self.row, inner).operand(first)
        right = Frame(self, inner.turned, self.column).operand(second)
        self.functions.add("product")
        code = f"product({left}, {right}, T)"
        for operator, amount in nest.scale:
            code += f" {operator} {self.tile.piece(amount).inside(Binding.SIGN)}"
        rest = [factor for factor in nest.factors if factor not in sides]
        for factor in rest:
            code += f" * {self.tile.piece(factor).inside(Binding.SIGN)}"
        return code

    # ------------------------------------------------------------------------------------------ sides

    def inner(self, name: str) -> tuple[str, ...]:
        """The axes that a product sums over, or the axes of its own that the result of a second product has."""
        nest = self.nests[name]
        if name in self.kernel.products:
            return nest.over
        return tuple(axis for axis in nest.equation.target.axes if axis not in (*self.kernel.batch, *self.kernel.rows))

    def inner_side(self, axes: tuple[str, ...]) -> Side:
        """The side of the positions that a matrix product sums over, or makes, across."""
        extent = self.extent(axes)
        return Side(f"at_{'_'.join(axes)}", axes, extent, block_of(extent))

    def held(self, frame: Frame, read: Read, own: bool) -> Piece | None:
        """A reduction of this kernel or of an earlier one, or a product."""
        name = read.tensor
        if name in self.running:
            known = self.running[name]
            return number_piece(1.0) if known == "1.0" else Piece(known, Sort.FLOAT)
        if name in self.made:
            there = self.before.names.get(name)
            if there is None or not own or frame.down is not self.row:
                raise NoKernelError(f"`{name}` is not there yet")
            return Piece(there, Sort.FLOAT)
        if self.nests[name].over and name not in self.kernel.products:
            return frame.loaded(read)
        if name not in self.kernel.products:
            return None
        if not own or frame is not self.tile:
            raise NoKernelError(f"`{name}` is read outside of its tile")
        return Piece(self.known(name) or self.define(name, self.product(name), True, name), Sort.FLOAT)

    def kept(self, value: Piece, identity: str) -> str:
        """A value of a tile, with the identity beyond the last column."""
        code = self.tile.terms.as_float(value).code
        mask = self.column.mask
        return f"tl.where({mask}, {code}, {identity})" if mask else code

    def store(self, name: str) -> None:
        """Writes a tensor of rows to memory."""
        operand = self.operands[name]
        own = tuple(axis for axis in operand.axes if axis not in (*self.kernel.batch, *self.kernel.rows))
        frame = Frame(self, self.row, self.inner_side(own) if own else Side("", (), 1, 1))
        read = Read(name, tuple(map(dim_index, operand.dims)))
        value = frame.piece(read).code
        if own:
            self.declare(frame.across)
        self.before.write(frame.store(name, value))
