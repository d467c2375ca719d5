"""A kernel as text, with what it takes to launch it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class KernelText:
    """A kernel as text.

    `loads` and `stores` are the tensors it is given, by name, `integers` those of integers; of those in `terms` so many
    programs store one term of a sum, into memory that is `zeroed`. `numbers` are integers that it is given, where axes
    start, and with `random` seed, step and site. `functions` are those of the emitted file that it calls. `grid` is how
    many programs there are, `blocks` are its constants by name; `wide` are tensors in the type in which it computes.
    Blocks `by_width` are as long for elements of 16 bits, for others as many bytes.
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
