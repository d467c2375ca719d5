"""A kernel as text, with what is needed to launch it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Placed:
    """The entries of a sum into rows that data choose, as its kernel is given them. `keys` is the tensor of each
    entry's row.

    Each position of a `batch` counts rows from 0. `rows` and `entries` are those of the whole batch. A row with more
    than `part` entries is divided into parts, whose sums are the tensor `sums`. `given` are the names of three tensors:
    the order of entries, and the begin and the end of parts in it. A row has `columns` columns.
    """

    given: tuple[str, ...]
    sums: str
    keys: str
    batch: int
    rows: int
    entries: int
    columns: int
    part: int

    @property
    def parts(self) -> int:
        """An upper bound on the parts of divided rows. A row with count > part entries has fewer than 2 * count / part
        parts.
        """
        return 2 * self.entries // self.part if self.entries > self.part else 0


@dataclass(frozen=True)
class KernelText:
    """A kernel as text.

    `loads` and `stores` are the tensors it is given, by name; `integers` are those with integers. For a tensor in
    `terms`, that many programs store one term of a sum each, into memory that is `zeroed`. `numbers` are the integers
    that it is given, at which axes start. With `random` it is also given seed, step and site. `functions` are those of
    the emitted file that it calls. `grid` is the number of programs; `blocks` are its constants by name. `wide` are
    tensors in the type in which it computes. Blocks `by_width` have this length for elements of 16 bits, and the same
    number of bytes for others. `placed` are the entries of a sum into rows that data choose.
    """

    name: str
    loads: tuple[str, ...]
    stores: tuple[str, ...]
    terms: tuple[tuple[str, int], ...]
    integers: tuple[str, ...]
    numbers: tuple[str, ...]
    random: bool
    functions: frozenset[str]
    grid: tuple[int, ...]
    blocks: tuple[tuple[str, int], ...]
    warps: int
    lines: tuple[str, ...]
    zeroed: bool = False
    wide: tuple[str, ...] = ()
    by_width: tuple[str, ...] = ()
    placed: Placed | None = None

    @property
    def pointers(self) -> tuple[str, ...]:
        """The parameters that point to tensors."""
        given = list(map(pointer, (*self.loads, *self.stores)))
        if self.placed is not None:
            given = [*map(pointer, self.placed.given), *given]
            given += [pointer(self.placed.sums)] if self.placed.parts else []
        return tuple(given)

    @property
    def adds_parts(self) -> KernelText | None:
        """The kernel of the emitted file that adds up the parts of rows afterwards; None if no row has several."""
        if self.placed is None or not self.placed.parts:
            return None
        columns = self.placed.columns
        block = min(128, power_of_two(columns))
        return KernelText(
            "add_parts",
            ("starts", "part_rows", "sums"),
            ("result",),
            (),
            ("starts", "part_rows"),
            (),
            False,
            frozenset(),
            (self.placed.parts, -(-columns // block)),
            (("COLUMNS", columns), ("BLOCK_COLUMNS", block)),
            4,
            (),
            wide=("sums", *(["result"] if self.stores[0] in self.wide else [])),
        )


@dataclass
class Lines:
    """Statements at one depth of a kernel that is being written, and the names of variables, by what they hold."""

    indent: str
    lines: list[str] = field(default_factory=list)
    names: dict[object, str] = field(default_factory=dict)

    def write(self, line: str) -> None:
        self.lines.append(self.indent + line)


def pointer(tensor: str) -> str:
    """The parameter of a kernel that points to a tensor."""
    return f"{tensor.replace(chr(39), '_')}_ptr"


def power_of_two(count: int) -> int:
    """The smallest power of two that is not below a count."""
    return 1 << max(0, count - 1).bit_length()
