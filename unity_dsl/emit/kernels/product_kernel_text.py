"""Triton text of kernels over products of rows and columns that are not kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from keyword import kwlist
from math import prod

from ...index.equations.instance import Instance, Operand
from ...index.equations.term import dim_axes, dim_index, free_axes, fresh
from ...index.kernels.live_columns import Live
from ...index.kernels.product_kernels import Pass, ProductKernel, mixed_side, product_sides
from ...index.library import Library
from ...index.lowering.loop_nest import LoopNest, loop_nest, without
from ...syntax.ast import Expr, Name, Read, ReductionKind, Uniform
from ..torch_text import Binding
from .kernel_text import KernelText, Lines, pointer, power_of_two
from .positions import Local, Positions
from .triton_calls import DEFINED
from .triton_terms import NoKernelError, Piece, Sort, TermText, number_piece

LEAST = 16
"""A matrix product has no side shorter than this."""
BLOCK_ROWS, BLOCK_COLUMNS = 64, 32
"""Of a tile. Fewer rows where a row has many elements of its own."""

_RESERVED = (
    "batch",
    "row",
    "column",
    "first_row",
    "first_column",
    "first_position",
    "seed",
    "step",
    "site",
    "T",
    "tl",
    "growth",
)
_IDENTITY = {ReductionKind.SUM: "0.0", ReductionKind.MAX: 'float("-inf")', ReductionKind.MIN: 'float("inf")'}


def product_kernel_text(
    name: str, kernel: ProductKernel, instance: Instance, kept: Collection[str], local: Local, library: Library
) -> KernelText:
    """The text of a kernel; what was `kept` is in the type in which kernels compute. Raises NoKernelError where it
    computes what has none.
    """
    return _Body(name, kernel, instance, kept, local, library).text()


@dataclass(frozen=True)
class _Side:
    """Positions along axes, as a variable that goes down or across: one side of a tile."""

    variable: str
    axes: tuple[str, ...]
    extent: int
    block: int

    @property
    def mask(self) -> str | None:
        return f"{self.variable} < {self.extent}" if self.extent % self.block else None


class _Body:
    """A kernel's body while it is written: what comes before the loops, and the loop that is being written."""

    def __init__(
        self,
        name: str,
        kernel: ProductKernel,
        instance: Instance,
        kept: Collection[str],
        local: Local,
        library: Library,
    ) -> None:
        self.name, self.kernel, self.instance, self.local, self.library = name, kernel, instance, local, library
        self.nests: dict[str, LoopNest] = {e.target.name: loop_nest(instance, e) for e in instance.equations}
        self.operands: dict[str, Operand] = {operand.name: operand for operand in instance.inputs}
        self.operands |= {e.target.name: e.target for e in instance.equations}
        given = {operand.name for operand in (*instance.inputs, *instance.outputs)}
        self.wide = {*kept, *(name for name in self.operands if name not in given)}
        self.made = {target for found in kernel.passes for target in found.targets}
        widest = max([self.extent(self.inner(name)) for name in (*kernel.products, *kernel.mixed)])
        rows = BLOCK_ROWS if widest <= 128 else BLOCK_ROWS // 2
        self.row = self.side("row", kernel.rows, min(rows, _block(self.extent(kernel.rows))))
        columns = min(BLOCK_COLUMNS, _block(self.extent(kernel.columns)))
        self.column = self.side("column", kernel.columns, columns)
        self.taken = {*_RESERVED, *DEFINED, *kwlist}
        self.before = Lines("    ")
        self.loop: Lines | None = None
        self.loads: dict[str, None] = {}
        self.numbers: dict[str, None] = {}
        self.functions: set[str] = set()
        self.random = False
        self.running: dict[str, str] = {}
        self.tile = _Frame(self, self.row, self.column)

    # ------------------------------------------------------------------------------------------ structure

    def text(self) -> KernelText:
        kernel = self.kernel
        blocks = -(-self.row.extent // self.row.block)
        program = "tl.program_id(0)" + (".to(tl.int64)" if self.large() else "")
        self.before.write(f"batch = {program} // {blocks}")
        self.before.write(f"first_row = {program} % {blocks} * BLOCK_ROWS")
        self.before.write(f"row = first_row + {_down('BLOCK_ROWS')}")
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
            wide=tuple(name for name in (*self.loads, *kernel.stored) if name in self.wide),
        )

    def write_pass(self, found: Pass) -> None:
        """A loop over the columns, with the reductions that it makes."""
        sums = {}
        for name in found.targets:
            kind = self.nests[name].equation.kind
            assert kind is not None
            across = self.side("", self.inner(name)).block if name in self.kernel.mixed else 1
            sums[name] = self.fresh(name)
            self.before.write(f"{sums[name]} = tl.full([BLOCK_ROWS, {across}], {_IDENTITY[kind]}, T)")
        self.loop = Lines("        ")
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
        self.before.lines.append(f"        column = first_column + {_across('BLOCK_COLUMNS')}")
        self.before.lines += self.loop.lines
        self.loop, self.running = None, {}
        for name, by in found.divided:
            self.before.write(f"{sums[name]} = {sums[name]} / {sums[by]}")
        for name, variable in sums.items():
            self.before.names[name] = variable

    def live(self) -> tuple[str, str]:
        """The columns that count for a block of rows, where the axes that decide it are whole and blocks lie in one."""
        kernel, local = self.kernel, self.local
        start, stop = "0", str(self.column.extent)
        row, column = kernel.rows[-1], kernel.columns[-1]
        length = local.sizes[row]
        if kernel.live is Live.ALL or {row, column} & local.divided or self.column.extent != local.sizes[column]:
            return start, stop
        first = "first_row"
        if self.row.extent != length:
            if length % self.row.block:
                return start, stop
            first = f"first_row % {length}"
        if kernel.live is Live.UP_TO_ROW:
            return start, f"tl.minimum({stop}, {first} + BLOCK_ROWS)"
        return f"{first} // BLOCK_COLUMNS * BLOCK_COLUMNS", stop

    def grow(self, name: str, variable: str) -> None:
        """The greatest so far, which sums are made of. Where nothing is greater than -inf they are made of 0."""
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
        """The matrix product of a tile with what its columns have."""
        nest = self.nests[name]
        side = mixed_side(nest, [axis for axis in self.inner(name) if self.local.sizes[axis] > 1] or self.inner(name))
        assert side is not None
        value = self.tile.piece(without(nest.value, side))
        tile = self.kept(value, "0.0")
        tile = tile if self.column.mask or value.binding is Binding.ATOM else f"({tile})"
        operand = self.operand(side, self.down(self.column), self.inner_side(self.inner(name)))
        self.functions.add("product")
        return f"product({tile}.to({self.memory_type()}), {operand}, T)"

    def product(self, name: str) -> str:
        """The matrix product of rows and columns, scaled."""
        nest = self.nests[name]
        sides = product_sides(nest)
        assert sides is not None
        first, second = sides if set(self.kernel.rows) & set(free_axes(sides[0])) else sides[::-1]
        inner = self.inner_side(nest.over)
        left = self.operand(first, self.row, inner)
        right = self.operand(second, self.down(inner), self.column)
        self.functions.add("product")
        code = f"product({left}, {right}, T)"
        for operator, amount in nest.scale:
            code += f" {operator} {self.tile.piece(amount).inside(Binding.SIGN)}"
        rest = [factor for factor in nest.factors if factor not in sides]
        for factor in rest:
            code += f" * {self.tile.piece(factor).inside(Binding.SIGN)}"
        return code

    def operand(self, expr: Expr, down: _Side, across: _Side) -> str:
        """A tile as an operand of a matrix product, in the type in which it lies in memory; 0 outside of it."""
        return _Frame(self, down, across).operand(expr)

    # ------------------------------------------------------------------------------------------ sides

    def memory_type(self) -> str:
        """The type of floats in memory, in which tiles are multiplied."""
        found = [name for name in self.loads if name not in self.wide and self.operands[name].integer_range is None]
        return f"{pointer(found[0])}.dtype.element_ty" if found else "T"

    def large(self) -> bool:
        """Whether some tensor has more elements than 32 bits count."""
        kept = (*self.instance.inputs, *self.instance.outputs)
        return max(self.extent(operand.axes) for operand in kept) >= 2**31

    def inner(self, name: str) -> tuple[str, ...]:
        """The axes of a product that are summed, or those that a second product has of its own."""
        nest = self.nests[name]
        if name in self.kernel.products:
            return nest.over
        return tuple(axis for axis in nest.equation.target.axes if axis not in (*self.kernel.batch, *self.kernel.rows))

    def extent(self, axes: Sequence[str]) -> int:
        return prod(self.local.sizes[axis] for axis in axes)

    def side(self, variable: str, axes: tuple[str, ...], block: int | None = None) -> _Side:
        extent = self.extent(axes)
        return _Side(variable, axes, extent, _block(extent) if block is None else block)

    def inner_side(self, axes: tuple[str, ...]) -> _Side:
        """Positions that a matrix product sums over, or makes, across."""
        return self.side(f"at_{'_'.join(axes)}", axes)

    def down(self, side: _Side) -> _Side:
        """The same positions, downwards."""
        return _Side(f"{side.variable}_down", side.axes, side.extent, side.block)

    def declare(self, side: _Side) -> None:
        """The variable of a side, where it is not there yet."""
        if side.variable in ("row", "column") or self.known(("side", side.variable)) is not None:
            return
        turned = side.variable.endswith("_down")
        if side.variable == "column_down":
            assert self.loop is not None
            self.loop.write(f"column_down = first_column + {_down('BLOCK_COLUMNS')}")
            self.loop.names["side", side.variable] = side.variable
        else:
            self.before.write(f"{side.variable} = {(_down if turned else _across)(str(side.block))}")
            self.before.names["side", side.variable] = side.variable
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
        """A variable, in the loop if it depends on the columns."""
        scope = self.loop if looped and self.loop is not None else self.before
        name = self.fresh(wanted)
        scope.write(f"{name} = {code}")
        scope.names[key] = name
        return name

    def kept(self, value: Piece, identity: str) -> str:
        """A value of a tile, and the identity beyond the last column."""
        code = self.tile.terms.as_float(value).code
        mask = self.column.mask
        return f"tl.where({mask}, {code}, {identity})" if mask else code

    def store(self, name: str) -> None:
        """A tensor of rows to memory."""
        operand = self.operands[name]
        own = tuple(axis for axis in operand.axes if axis not in (*self.kernel.batch, *self.kernel.rows))
        frame = _Frame(self, self.row, self.inner_side(own) if own else _Side("", (), 1, 1))
        read = Read(name, tuple(map(dim_index, operand.dims)))
        value = frame.piece(read).code
        if own:
            self.declare(frame.across)
        offset, _ = frame.positions.offset(read, operand)
        single = [side.variable for side in (self.row, frame.across) if side.axes and side.extent == 1]
        offset = " + ".join([offset, *single])
        mask = " & ".join(f"({side.mask})" for side in (self.row, frame.across) if side.axes and side.mask)
        self.before.write(f"tl.store({pointer(name)} + {offset}, {value}{f', mask={mask}' if mask else ''})")


class _Frame:
    """Terms over a tile: two sides, and the batch position of the program."""

    def __init__(self, body: _Body, down: _Side, across: _Side) -> None:
        self.body, self.down, self.across = body, down, across
        variables: Mapping[str, Sequence[str]] = {
            "batch": body.kernel.batch, down.variable: down.axes, across.variable: across.axes
        }  # fmt: skip
        self.positions = Positions(body.instance, body.local, variables, self.piece, self.shared, body.numbers)
        self.terms = TermText(body.library, body.instance.sizes, self.leaf, body.functions)

    def piece(self, expr: Expr) -> Piece:
        return self.terms.piece(expr)

    def shared(self, wanted: str, code: str, variable: str) -> str:
        key = ("shared", code)
        looped = variable in ("column", "column_down")
        return self.body.known(key) or self.body.define(wanted, code, looped, key)

    def operand(self, expr: Expr) -> str:
        """In the type of memory where it is read from there, else in that of floats."""
        for side in (self.down, self.across):
            self.body.declare(side)
        if isinstance(expr, Read) and expr.tensor not in self.body.nests:
            return self.loaded(expr, raw=True).code
        code = self.terms.as_float(self.piece(expr)).code
        masks = [f"({side.mask})" for side in (self.down, self.across) if side.mask]
        code = f"tl.where({' & '.join(masks)}, {code}, 0.0)" if masks else code
        code = code if code.isidentifier() or masks else f"({code})"
        return f"{code}.to({self.body.memory_type()})"

    def leaf(self, expr: Name | Read | Uniform) -> Piece:
        if isinstance(expr, Name):
            return self.positions.value(expr.name)
        if isinstance(expr, Uniform):
            return self.drawn(expr)
        if expr.tensor not in self.body.nests:
            return self.loaded(expr)
        return self.computed(expr)

    def computed(self, read: Read) -> Piece:
        """An intermediate: a reduction of this kernel or of one before, a product, or an equation without either."""
        body, name = self.body, read.tensor
        target = body.operands[name]
        own = tuple(dim_axes(index, body.instance.sizes) for index in read.index) == target.dims
        nest = body.nests[name]
        if name in body.running:
            known: str | None = body.running[name]
            return number_piece(1.0) if known == "1.0" else Piece(str(known), Sort.FLOAT)
        if name in body.made:
            known = body.before.names.get(name)
            if known is None or not own or self.down is not body.row:
                raise NoKernelError(f"`{name}` is not there yet")
            return Piece(known, Sort.FLOAT)
        if nest.over and name not in body.kernel.products:
            return self.loaded(read)
        if not own:
            raise NoKernelError(f"`{name}` is read at other positions than its own")
        key = (name, self.down.variable, self.across.variable)
        known = body.known(key)
        if known is None and name in body.kernel.products:
            if self is not body.tile:
                raise NoKernelError(f"`{name}` is read outside of its tile")
            known = body.define(name, body.product(name), True, key)
        elif known is None:
            piece = self.piece(nest.value)
            if piece.sort is Sort.NUMBER or (piece.sort is Sort.FLOAT and piece.code.isidentifier()):
                return piece
            known = body.define(name, self.terms.as_float(piece).code, self.looped(), key)
        return Piece(str(known), Sort.FLOAT)

    def looped(self) -> bool:
        return "column" in self.across.variable or "column" in self.down.variable

    def loaded(self, read: Read, raw: bool = False) -> Piece:
        """An element of memory; `raw` in the type in which it lies there."""
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
        # An operand of a matrix product has both sides of its tile, of which one may have a single position.
        sides = [side for side in (self.down, self.across) if raw or guards or axes & set(side.axes)]
        offset = " + ".join([offset, *(side.variable for side in sides if side.extent == 1)])
        apart = [side for side in sides if side.extent > 1 and not axes & set(side.axes)]
        offset = " + ".join([offset, *(f"{side.variable} * 0" for side in apart)])
        for side in sides:
            body.declare(side)
        masks = [*(f"({side.mask})" for side in sides if side.mask), *guards]
        fill = 0 if read.fill is None else self.terms.constant(read.fill)
        if fill is None:
            raise NoKernelError(f"`{read.tensor}` is filled with what depends on positions")
        mask = f", mask={' & '.join(masks)}, other={number_piece(fill).code}" if masks else ""
        cast = "" if raw or sort is Sort.INT else ".to(T)"
        looped = any("column" in side.variable for side in sides)
        code = f"tl.load({pointer(read.tensor)} + {offset}{mask}){cast}"
        return Piece(body.define(read.tensor, code, looped, key), sort)

    def drawn(self, expr: Uniform) -> Piece:
        body = self.body
        known = body.known(expr)
        if known is None:
            if self is not body.tile:
                raise NoKernelError("a random number at other positions than its own")
            body.random = True
            body.functions.add("drawn")
            place = self.positions.of_draw(expr)
            known = body.define("draw", f"drawn({place}, seed, step, site, T)", True, expr)
        return Piece(known, Sort.FLOAT)


def _block(extent: int) -> int:
    return max(LEAST, power_of_two(extent))


def _down(length: str) -> str:
    return f"tl.arange(0, {length})[:, None]"


def _across(length: str) -> str:
    return f"tl.arange(0, {length})[None, :]"
