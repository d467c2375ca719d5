"""Triton text of kernels over rows and columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from keyword import kwlist
from math import prod

from ...index.equations.instance import Instance, Operand
from ...index.equations.loop_nest import LoopNest, loop_nest
from ...index.equations.term import dim_axes, dim_index, free_axes, fresh, substitute
from ...index.kernels.dependence import Dependence
from ...index.kernels.row_kernels import RowKernel
from ...index.library import Library
from ...syntax.ast import Expr, Name, Read, ReductionKind, Uniform
from ..torch_text import Binding
from .kernel_text import KernelText, Lines, pointer, power_of_two
from .positions import Local, Positions
from .triton_calls import DEFINED
from .triton_terms import NoKernelError, Piece, Sort, TermText, number_piece

ONE_TILE = 8192
"""How many columns are held at once. More are computed tile by tile."""
TILE = 2048
UNROLLED = 8
"""Loops over at most this many tiles may be unrolled, for which there are not enough registers. Tiles are then half as
long.
"""
SPLIT = 1024
"""Columns of a program that does not need all columns of its rows."""
PROGRAMS = 256
"""The largest number of programs that sum over rows, each of which leaves one term."""
ELEMENTS = 2048
"""Elements of a block of rows and columns, if a row has fewer."""

_RESERVED = ("row", "column", "first_row", "first_column", "first_position", "place", "seed", "step", "site", "T", "tl")
_IDENTITY = {ReductionKind.SUM: "0.0", ReductionKind.MAX: 'float("-inf")', ReductionKind.MIN: 'float("inf")'}


def row_kernel_text(name: str, kernel: RowKernel, instance: Instance, local: Local, library: Library) -> KernelText:
    """The text of a kernel. Raises NoKernelError if an equation has no Triton text."""
    return _Body(name, kernel, instance, local, library).text()


class _Body:
    """A kernel's body that is being written."""

    def __init__(self, name: str, kernel: RowKernel, instance: Instance, local: Local, library: Library) -> None:
        self.name = name
        self.kernel = kernel
        self.instance = instance
        self.local = local
        self.nests: dict[str, LoopNest] = {e.target.name: loop_nest(instance, e) for e in instance.equations}
        self.operands: dict[str, Operand] = {operand.name: operand for operand in instance.inputs}
        self.operands |= {e.target.name: e.target for e in instance.equations}
        self.depends = Dependence(kernel, self.nests, local.sizes)
        self.rows = prod(local.sizes[axis] for axis in kernel.rows)
        self.columns = prod(local.sizes[axis] for axis in kernel.columns)
        whole = power_of_two(self.columns)
        # Without reductions along rows, programs can divide the columns as well as the rows.
        self.split = not kernel.reduced and whole > SPLIT and all(map(self.over_columns, kernel.summed))
        tile = TILE if whole > UNROLLED * TILE else TILE // 2
        self.block_columns = SPLIT if self.split else whole if whole <= ONE_TILE else tile
        self.tiled = self.block_columns < self.columns and not self.split
        fitting = 1 if self.tiled else ELEMENTS // self.block_columns
        self.block_rows = max(1, min(power_of_two(self.rows), fitting))
        self.loops = bool(kernel.summed)
        self.taken = {*_RESERVED, *DEFINED, *kwlist}
        self.outside = set(self.taken)
        self.root = Lines("        " if self.loops else "    ")
        self.before = Lines("    ")
        self.tile: Lines | None = None
        self.loads: dict[str, str] = {}
        self.numbers: dict[str, None] = {}
        self.random = False
        self.functions: set[str] = set()
        self.guarding: tuple[str, ...] = ()
        self.positions = Positions(
            instance, local, {"row": kernel.rows, "column": kernel.columns}, self.term, self.shared, self.numbers
        )
        self.terms = TermText(library, instance.sizes, self.leaf, self.functions)

    # ------------------------------------------------------------------------------------------ structure

    def text(self) -> KernelText:
        kernel = self.kernel
        for passed in self.depends.passes():
            if self.tiled:
                self.reduce_tiles(passed)
            else:
                for target in passed:
                    self.define(target, self.reduction(target), True, False, target)
        stored = [name for name in kernel.stored if name not in kernel.summed]
        wide = [name for name in stored if self.spans_columns(name)]
        sums = {name: self.fresh(f"sum_{name}", self.root) for name in kernel.summed}
        for name in stored:
            if name not in wide:
                self.store(name)
        over_tiles = [name for name in kernel.summed if self.depends.on_columns(self.nests[name].value)]
        for name in kernel.summed:
            if name not in over_tiles:
                self.add(name, sums[name])
        if wide or over_tiles:

            def finish() -> None:
                for name in wide:
                    self.store(name)
                for name in over_tiles:
                    self.add(name, sums[name])

            self.in_tiles(finish)
        return self.finished(sums)

    def finished(self, sums: Mapping[str, str]) -> KernelText:
        kernel = self.kernel
        held = bool(kernel.columns) and not self.tiled
        first = "tl.program_id(1) * BLOCK_COLUMNS + " if self.split else ""
        lines: list[str] = [f"    column = {first}tl.arange(0, BLOCK_COLUMNS)[None, :]"] if held else []
        row = "tl.arange(0, BLOCK_ROWS)" + ("[:, None]" if kernel.columns else "")
        wide = ".to(tl.int64)" if self.large() else ""
        if self.loops:
            for name, variable in sums.items():
                if not self.in_memory(name):
                    lines.append(f"    {variable} = tl.zeros([{self.sum_shape(name)}], T)")
            step = "tl.num_programs(0) * BLOCK_ROWS"
            lines += self.before.lines
            lines.append(f"    for first_row in range(tl.program_id(0) * BLOCK_ROWS, {self.rows}, {step}):")
            lines.append(f"        row = first_row + {row}{wide}")
        else:
            lines.append(f"    row = tl.program_id(0){wide} * BLOCK_ROWS + {row}")
        lines += self.root.lines
        for name, variable in sums.items():
            if not self.in_memory(name):
                lines.append("    " + self.partial_store(name, variable))
        programs = -(-self.rows // self.block_rows)
        programs = min(programs, PROGRAMS) if self.loops else programs
        across = -(-self.columns // self.block_columns) if self.split else 1
        terms = {name: programs * (1 if self.operands[name].axes else across) for name in kernel.summed}
        blocks = {"BLOCK_ROWS": self.block_rows, **({"BLOCK_COLUMNS": self.block_columns} if kernel.columns else {})}
        per_warp = 256  # a thread has eight elements, as many as it loads at a time if they have 16 bits
        return KernelText(
            self.name,
            tuple(self.loads),
            kernel.stored,
            tuple(terms.items()),
            tuple(name for name in self.loads if self.operands[name].integer_range is not None),
            tuple(self.numbers),
            self.random,
            frozenset(self.functions),
            (programs, across) if self.split else (programs,),
            tuple(blocks.items()),
            max(1, min(16, self.block_rows * self.block_columns // per_warp)),
            tuple(lines),
            zeroed=self.tiled,
        )

    def in_tiles(self, write: Callable[[], None]) -> None:
        """Calls `write` for what depends on columns, in a loop over tiles if they are not held at once."""
        if not self.tiled:
            write()
            return
        self.tile = Lines(self.root.indent + "    ")
        write()
        scope, self.tile = self.tile, None
        self.root.write(f"for first_column in range(0, {self.columns}, BLOCK_COLUMNS):")
        self.root.lines.append(f"{scope.indent}column = first_column + tl.arange(0, BLOCK_COLUMNS)[None, :]")
        self.root.lines += scope.lines

    # ------------------------------------------------------------------------------------------ reductions

    def reduction(self, target: str) -> str:
        """The text of a reduction along columns that are held at once."""
        nest = self.nests[target]
        value = self.terms.piece(nest.value)
        kind = nest.equation.kind
        assert kind is not None
        if not self.depends.on_columns(nest.value):
            return f"{value.inside(Binding.PRODUCT)} * {self.columns}" if kind is ReductionKind.SUM else value.code
        return f"tl.{kind.value}({self.kept(value, _IDENTITY[kind], self.column_mask())}, axis=1, keep_dims=True)"

    def kept(self, value: Piece, identity: str, mask: str | None) -> str:
        """A value in the type of floats, with the identity outside of the mask."""
        code = value.code if value.sort is Sort.FLOAT else self.terms.as_float(value).code
        return f"tl.where({mask}, {code}, {identity})" if mask else code

    def reduce_tiles(self, targets: Sequence[str]) -> None:
        """Writes reductions along columns, tile by tile."""
        accumulated = {}
        for target in targets:
            kind = self.nests[target].equation.kind
            assert kind is not None
            variable = accumulated[target] = self.fresh(f"{target}_tile", self.root)
            self.root.write(f"{variable} = tl.full([BLOCK_ROWS, BLOCK_COLUMNS], {_IDENTITY[kind]}, T)")

        def accumulate() -> None:
            for target, variable in accumulated.items():
                kind = self.nests[target].equation.kind
                assert kind is not None and self.tile is not None
                value = self.kept(self.terms.piece(self.nests[target].value), _IDENTITY[kind], self.column_mask())
                if kind is ReductionKind.SUM:
                    self.tile.write(f"{variable} += {value}")
                else:
                    self.tile.write(f"{variable} = tl.{kind.value}imum({variable}, {value})")

        self.in_tiles(accumulate)
        for target, variable in accumulated.items():
            kind = self.nests[target].equation.kind
            assert kind is not None
            self.define(target, f"tl.{kind.value}({variable}, axis=1, keep_dims=True)", True, False, target)

    def add(self, target: str, variable: str) -> None:
        """Writes the addition of a term to a sum over rows."""
        nest = self.nests[target]
        across = self.depends.on_columns(nest.value)
        column = self.column_mask() if across else None
        mask = f"{self.row_mask()} & {column}" if column else self.row_mask()
        added = self.kept(self.terms.piece(nest.value), "0.0", mask)
        scope = self.tile or self.root
        if self.in_memory(target):
            column, added = self.column_mask(), f"tl.sum({added}, axis=0, keep_dims=True)"
            scope.write(f"place = {pointer(target)} + tl.program_id(0) * {self.columns} + column")
            scope.write(f"tl.store(place, tl.load(place, mask={column}) + {added}, mask={column})")
        else:
            scope.write(f"{variable} += {added}")

    def sum_shape(self, target: str) -> str:
        """The shape that a program accumulates for a sum over rows. Threads add up what they read, and combine their
        sums at the end.
        """
        if not self.kernel.columns:
            return "BLOCK_ROWS"
        return f"BLOCK_ROWS, {'BLOCK_COLUMNS' if self.over_columns(target) else '1'}"

    def in_memory(self, target: str) -> bool:
        """Whether a sum over rows has more columns than are held at once."""
        return self.tiled and bool(self.nests[target].equation.target.axes)

    def partial_store(self, target: str, variable: str) -> str:
        terms, total = pointer(target), f"tl.sum({variable}, axis=0, keep_dims=True)"
        if not self.nests[target].equation.target.axes:
            total = f"tl.sum({total}, axis=1, keep_dims=True)" if self.kernel.columns else total
            one = "tl.arange(0, 1)" + ("[:, None]" if self.kernel.columns else "")
            number = "tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)" if self.split else "tl.program_id(0)"
            return f"tl.store({terms} + {number} + {one}, {total})"
        mask = self.column_mask()
        place = f"{terms} + tl.program_id(0) * {self.columns} + column"
        return f"tl.store({place}, {total}{f', mask={mask}' if mask else ''})"

    def store(self, target: str) -> None:
        """Writes a tensor to memory, at its own axes."""
        own = Read(target, tuple(map(dim_index, self.operands[target].dims)))
        offset, _ = self.positions.offset(own, self.operands[target])
        if "row" not in offset and "column" not in offset:
            offset = "row"  # a single element, which gets the shape of a block
        wide = self.spans_columns(target)
        mask = self.mask(rows=True, columns=wide) or "row < 1"
        place = f"{pointer(target)} + {offset}"
        (self.tile or self.root).write(f"tl.store({place}, {self.terms.piece(own).code}, mask={mask})")

    # ------------------------------------------------------------------------------------------ names

    def fresh(self, wanted: str, scope: Lines) -> str:
        """A name that nothing around it has. Loops over tiles share names, as no variable of one is read after it."""
        within = scope is self.tile
        name = fresh(wanted.replace("'", "_"), {*self.outside, *scope.names.values()} if within else self.taken)
        self.taken.add(name)
        if not within:
            self.outside.add(name)
        return name

    def scope(self, rows: bool, columns: bool) -> Lines:
        """The lines to write to. For what depends on neither rows nor columns they are before the loop over rows."""
        if columns and self.tile is not None:
            return self.tile
        return self.root if rows or not self.loops else self.before

    def define(self, wanted: str, code: str, rows: bool, columns: bool, key: object = None) -> str:
        """Defines a variable, which is known from here on by its key."""
        scope = self.scope(rows, columns)
        name = self.fresh(wanted, scope)
        scope.write(f"{name} = {code}")
        scope.names[key] = name
        return name

    def shared(self, wanted: str, code: str, variable: str) -> str:
        """The variable of a text about rows or columns: one for all its uses."""
        columns = variable == "column"
        return self.known(("shared", code)) or self.define(wanted, code, not columns, columns, ("shared", code))

    def known(self, key: object) -> str | None:
        scopes = [*([self.tile] if self.tile else []), self.root, self.before]
        return next((scope.names[key] for scope in scopes if key in scope.names), None)

    # ------------------------------------------------------------------------------------------ terms

    def term(self, expr: Expr) -> Piece:
        return self.terms.piece(expr)

    def leaf(self, expr: Name | Read | Uniform) -> Piece:
        if isinstance(expr, Name):
            return self.positions.value(expr.name)
        if isinstance(expr, Uniform):
            return self.drawn(expr)
        if expr.tensor in self.nests and not self.is_loaded(expr.tensor):
            return self.computed(expr)
        return self.loaded(expr)

    def is_loaded(self, tensor: str) -> bool:
        """Whether an earlier kernel computed an intermediate."""
        return bool(self.nests[tensor].over) and tensor not in self.kernel.reduced

    def computed(self, read: Read) -> Piece:
        """An intermediate of this kernel. One without a reduction is evaluated where it is read."""
        nest, target = self.nests[read.tensor], self.operands[read.tensor]
        own = tuple(dim_axes(index, self.instance.sizes) for index in read.index) == target.dims
        if read.tensor in self.kernel.reduced:
            if not own:
                raise NoKernelError(f"`{read.tensor}` is read at other rows than it is computed at")
            return Piece(self.root.names[read.tensor], Sort.FLOAT)
        if not own:
            return self.moved(read, target, nest)
        known = self.known((read.tensor, *self.guarding))
        if known is None:
            piece = self.terms.piece(nest.value)
            if piece.sort is Sort.NUMBER or (piece.sort is Sort.FLOAT and piece.code.isidentifier()):
                return piece
            known = self.define(
                read.tensor,
                self.terms.as_float(piece).code,
                bool(self.guarding or self.depends.on_reductions(nest.value)) or self.depends.on_rows(nest.value),
                self.depends.on_columns(nest.value),
                (read.tensor, *self.guarding),
            )
        return Piece(known, Sort.FLOAT)

    def moved(self, read: Read, target: Operand, nest: LoopNest) -> Piece:
        """An intermediate evaluated at other positions than its own. It is the fill of the read at positions outside of
        the tensor.
        """
        if any(len(dim) != 1 for dim in target.dims) or self.positions.touches([*free_axes(read), *target.axes]):
            raise NoKernelError(f"`{read.tensor}` is read at other positions than its own")
        at = {dim[0]: index for dim, index in zip(target.dims, read.index, strict=True)}
        guards: list[str] = []
        if read.fill is not None:
            for dim, index in zip(target.dims, read.index, strict=True):
                guards += self.positions.guards(index, self.local.sizes[dim[0]])
        before, self.guarding = self.guarding, (*self.guarding, *guards)
        piece = self.terms.piece(substitute(nest.value, at))
        self.guarding = before
        if not guards or read.fill is None:
            return piece
        code = (
            self.terms.as_float(piece).code if piece.sort is not Sort.NUMBER else self.terms.float_literal(piece).code
        )
        return Piece(f"tl.where({' & '.join(guards)}, {code}, {self.terms.piece(read.fill).code})", Sort.FLOAT)

    def loaded(self, read: Read) -> Piece:
        known = self.known((read, *self.guarding))
        operand = self.operands[read.tensor]
        sort = Sort.FLOAT if operand.integer_range is None else Sort.INT
        if known is not None:
            return Piece(known, sort)
        self.loads[read.tensor] = pointer(read.tensor)
        offset, guards = self.positions.offset(read, operand)
        rows = self.depends.on_rows(read)
        columns = self.depends.on_columns(read)
        masks = [mask for mask in [self.mask(rows=rows, columns=columns), *self.guarding, *guards] if mask]
        fill = 0 if read.fill is None else self.terms.constant(read.fill)
        if read.fill is not None and fill is None:
            raise NoKernelError(f"`{read.tensor}` is filled with what depends on positions")
        parts = [pointer(read.tensor), *([offset] if offset != "0" else [])]
        if guards or self.guarding:
            # Comparisons of positions have the shape of a block, and so must what they guard.
            parts += [*([] if rows else ["row * 0"]), *([] if columns or not self.kernel.columns else ["column * 0"])]
            rows, columns = True, columns or bool(self.kernel.columns)
        place = " + ".join(parts)
        mask = f", mask={' & '.join(masks)}, other={number_piece(fill or 0).code}" if masks else ""
        cast = ".to(T)" if sort is Sort.FLOAT else ""
        name = self.define(read.tensor, f"tl.load({place}{mask}){cast}", rows, columns, (read, *self.guarding))
        return Piece(name, sort)

    def drawn(self, expr: Uniform) -> Piece:
        known = self.known(expr)
        if known is None:
            self.random = True
            self.functions.add("uniform_numbers")
            place = self.positions.of_draw(expr)
            rows, columns = self.depends.on_rows(expr), self.depends.on_columns(expr)
            known = self.define(
                "draw", f"uniform_numbers({place}, first_position, seed, step, site, T)", rows, columns, expr
            )
        return Piece(known, Sort.FLOAT)

    # ------------------------------------------------------------------------------------------ masks

    def row_mask(self) -> str:
        return self.shared("inside", f"row < {self.rows}", "row")

    def column_mask(self) -> str | None:
        if not self.kernel.columns or self.columns % self.block_columns == 0:
            return None
        return self.shared("inside_columns", f"column < {self.columns}", "column")

    def mask(self, *, rows: bool, columns: bool) -> str | None:
        masks = [self.row_mask()] if rows and self.rows > 1 else []
        column = self.column_mask() if columns else None
        return " & ".join([*masks, *([column] if column else [])]) or None

    def large(self) -> bool:
        """Whether some tensor has more elements than 32 bits count."""
        elements = (prod(self.local.sizes[axis] for axis in operand.axes) for operand in self.operands.values())
        return max([self.rows * self.columns, *elements]) >= 2**31

    def over_columns(self, target: str) -> bool:
        """Whether a sum over rows has a value for each column, or adds up values that depend on columns."""
        return bool(self.nests[target].equation.target.axes) or self.depends.on_columns(self.nests[target].value)

    def spans_columns(self, target: str) -> bool:
        return bool(set(self.operands[target].axes) & set(self.kernel.columns))
