"""A kernel as text, with what it takes to launch it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Placed:
    """How the kernel of a sum into rows that data choose is given its entries: by their `keys`, the name of a tensor.

    For each position of a `batch` this counts rows anew. `rows` and `entries` are those of the whole batch. A row with
    more than `part` entries is divided into parts, whose sums are the tensor `sums`. `given` are names for the order of
    entries, and for where parts begin and end in it. A row has so many `columns`.
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
        """Rows that are divided have no more parts: those of count > part entries are less than 2 * count / part."""
        return 2 * self.entries // self.part if self.entries > self.part else 0


@dataclass(frozen=True)
class KernelText:
    """A kernel as text.

    `loads` and `stores` are the tensors it is given, by name, `integers` those of integers; of those in `terms` so many
    programs store one term of a sum, into memory that is `zeroed`. `numbers` are integers that it is given, where axes
    start, and with `random` seed, step and site. `functions` are those of the emitted file that it calls. `grid` is how
    many programs there are, `blocks` are its constants by name; `wide` are tensors in the type in which it computes.
    Blocks `by_width` are as long for elements of 16 bits, for others as many bytes. `placed` are the entries of a sum
    into rows that data choose.
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
        """The kernel of the emitted file that adds up the parts of rows afterwards, if some may have several."""
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
    """Statements at one depth of a kernel while it is written, and the variables they define, by what these hold."""

    indent: str
    lines: list[str] = field(default_factory=list)
    names: dict[object, str] = field(default_factory=dict)

    def write(self, line: str) -> None:
        self.lines.append(self.indent + line)


def pointer(tensor: str) -> str:
    """The parameter of a kernel that points to a tensor."""
    return f"{tensor.replace(chr(39), '_')}_ptr"


def power_of_two(count: int) -> int:
    """The least that is not below a count."""
    return 1 << max(0, count - 1).bit_length()
