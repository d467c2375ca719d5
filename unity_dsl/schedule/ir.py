"""A step as data: functions of instructions over tensors, as every device runs them.

An instruction reads tensors that are there and makes others. The order of a function's instructions is that in which
the program issues them. The backward pass has no instructions: autograd takes it from what these recorded, the latest
first (`simulation/backward_pass.py`), and sends gradients in buckets (`simulation/gradient_buckets.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..graph.chunked_products import ChunkedProduct
from ..graph.delayed_gradients import WeightProduct
from ..graph.graph import Update as BufferUpdate
from ..graph.graph import Value
from ..graph.layout import Layout, Placement
from ..graph.layout_conversion import Conversion
from ..graph.plan import PlannedGraph, PlannedNode, PlannedSegment, Run


@dataclass(frozen=True, eq=False, slots=True)
class Tensor:
    """A value in a layout and a float type: on each device its part. Each is made once; two are equal if they are one.

    `parameter` says that it is a stored parameter as it is stored, whose gradient buckets may take over.
    """

    value: Value
    layout: Layout
    dtype: str
    parameter: bool = False

    def __str__(self) -> str:
        return f"{self.value.name}: {self.layout}"


class Group(Protocol):
    """Operators that run as one kernel: what it reads and makes, and the type of all its floats."""

    @property
    def nodes(self) -> tuple[PlannedNode, ...]: ...
    @property
    def reads(self) -> tuple[tuple[Value, Layout], ...]: ...
    @property
    def makes(self) -> tuple[tuple[Value, Layout], ...]: ...
    @property
    def dtype(self) -> str: ...


# ---------------------------------------------------------------------------------------------- operators


@dataclass(frozen=True, eq=False)
class Compute:
    """An operator. Its results are cast to the types of their values, where it makes them in another.

    A concatenation that other ones join later runs in their call (`joined`); one that joins such is given all their
    `parts`. Of operators that take all slices of a tensor, the first one runs for all of them (`slices`, with what they
    make), the others are `sliced`. `along` is the dimension of such a call. A product may run in blocks of what
    `arrives`, or its result is sent in parts by the conversion that it `sends`, as `chunked` says; the gradient of its
    weight is computed where that was `deferred`.
    """

    step: PlannedNode
    reads: tuple[Tensor, ...]
    makes: tuple[Tensor, ...]
    joined: bool = False
    parts: tuple[Tensor, ...] = ()
    slices: tuple[tuple[PlannedNode, Tensor], ...] = ()
    sliced: bool = False
    along: int = 0
    chunked: ChunkedProduct | None = None
    arrives: Begin | None = None
    deferred: Defer | None = None
    sends: Conversion | None = None

    @property
    def sent(self) -> bool:
        """Whether its result is a term of a sum, parts of which travel while it computes others."""
        return self.sends is not None


@dataclass(frozen=True, eq=False)
class Fused:
    """Operators that run as one kernel."""

    group: Group
    reads: tuple[Tensor, ...]
    makes: tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class Placed:
    """Operators that the devices of a placement alone run. The others have zeros for what they `make`, functions of
    what is `given`, which all devices have.
    """

    placement: Placement
    steps: tuple[PlannedNode, ...]
    given: tuple[Tensor, ...]
    body: tuple[Instruction, ...]
    makes: tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class Cast:
    """A tensor in another float type. That of what a function returns is `returned` at once."""

    reads: Tensor
    makes: Tensor
    returned: bool = False


@dataclass(frozen=True, eq=False)
class Keep:
    """The tensor of a buffer as it is before the buffer is updated."""

    reads: Tensor
    makes: Tensor


@dataclass(frozen=True, eq=False)
class Updates:
    """New values of buffers, in training alone and without gradients: instructions, then copies to the buffers."""

    body: tuple[Instruction, ...]
    copies: tuple[tuple[BufferUpdate, Tensor], ...]


# ---------------------------------------------------------------------------------------------- communication


@dataclass(frozen=True, eq=False)
class Convert:
    """A tensor in another layout than its `source`, at once, cast on the way if its type is another one. The sum at the
    end of the way back of the gradient of a `parameter` goes into a bucket.
    """

    reads: Tensor
    makes: Tensor
    source: Layout
    conversion: Conversion
    parameter: bool = False

    @property
    def value(self) -> Value:
        return self.reads.value


@dataclass(frozen=True, eq=False)
class Begin:
    """Begins to convert a tensor, of which blocks may be waited for one by one: by the `product` that reads them."""

    reads: Tensor
    makes: Tensor
    source: Layout
    conversion: Conversion
    product: ChunkedProduct | None = None


@dataclass(frozen=True, eq=False)
class Arrive:
    """Waits for what was begun; where repeats run interleaved, after the others' `turn`."""

    begun: Begin | Compute
    makes: Tensor
    turn: bool = False


@dataclass(frozen=True, eq=False)
class Defer:
    """Reads the weight of a product, whose gradient the backward pass computes when it comes back to here: while the
    gradient of a value is `travelling`. The product may itself run `in_blocks`.
    """

    product: WeightProduct
    reads: Tensor
    travelling: Value
    in_blocks: bool


@dataclass(frozen=True, eq=False)
class StartGathers:
    """Begins to gather weights that are stored in slices, each for one operator, and what the first iterations of loops
    gather first.
    """

    gathers: tuple[Convert, ...]
    entering: tuple[Loop, ...] = ()


@dataclass(frozen=True, eq=False)
class AwaitGathers:
    """Weights gathered together, which were begun `among` others, or are begun now if these are none."""

    gathers: tuple[Convert, ...]
    among: tuple[Convert, ...] = ()


# ---------------------------------------------------------------------------------------------- bodies


@dataclass(frozen=True, eq=False)
class Loop:
    """A repeat, scan or cond with the function of each of its runs. So many first iterations the backward pass runs
    `again`, or keep what they save in the host's memory (`offloaded`).
    """

    step: PlannedSegment
    bodies: tuple[Function, ...]
    again: int
    offloaded: int

    @property
    def count(self) -> int:
        return self.step.segment.count

    def number(self, iteration: int) -> int:
        """Of the run that an iteration is one of."""
        return sum(run.first <= iteration for run in self.step.runs) - 1


@dataclass(frozen=True, eq=False)
class Open:
    """A loop's bodies are given what they capture, and the slices of what it reads slice by slice."""

    loop: Loop
    captured: tuple[Tensor, ...]
    sliced: tuple[Tensor, ...] = ()


@dataclass(frozen=True, eq=False)
class Iterate:
    """Iterations of a loop, of the runs of these `numbers`, one after the other: each is given what the one before
    leaves, the first one the tensors `given`. In the last one gathers begin of what comes next, `then` of what comes
    behind the loop.
    """

    loop: Loop
    numbers: tuple[int, ...]
    run: Run
    given: tuple[Tensor, ...]
    makes: tuple[Tensor, ...]
    then: tuple[Convert, ...] = ()

    @property
    def again(self) -> bool:
        """Whether the backward pass recomputes them."""
        return self.run.first < self.loop.again

    @property
    def offloaded(self) -> bool:
        """Whether they keep what they save in the host's memory."""
        return self.run.first < self.loop.offloaded

    @property
    def end(self) -> int:
        """The number of the iteration behind."""
        return self.run.first + self.run.count


@dataclass(frozen=True, eq=False)
class Branch:
    """A cond: its body is executed if the tensor that `decides` says so, else what is `given` stays."""

    loop: Loop
    decides: Tensor
    given: tuple[Tensor, ...]
    makes: tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class Interleave:
    """The same iterations of several loops, interleaved: each goes on where it waits for what it sends, then the next
    one. `given` and `makes` are by loop.
    """

    loops: tuple[Loop, ...]
    iterations: range
    given: tuple[tuple[Tensor, ...], ...]
    makes: tuple[tuple[Tensor, ...], ...]
    then: tuple[Convert, ...] = ()


@dataclass(frozen=True, eq=False)
class Close:
    """The end of a loop: the slices that its iterations made are stacked."""

    loop: Loop
    makes: tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class ReturnOutputs:
    """Returns the outputs, where what the loss alone reads is not given."""

    reads: tuple[Tensor, ...]


Instruction = (
    Compute
    | Fused
    | Placed
    | Cast
    | Keep
    | Updates
    | Convert
    | Begin
    | Arrive
    | Defer
    | StartGathers
    | AwaitGathers
    | Open
    | Iterate
    | Branch
    | Interleave
    | Close
    | ReturnOutputs
)


@dataclass(frozen=True, eq=False)
class Function:
    """What a device runs of a planned graph: the model's step forward, or an iteration of a body, whose `path` is that
    of its segment, `layer.`.

    It is given the `inputs`, or what is `entering` it and what it has `captured`. `leaving` are the names of values
    that are read behind it. The weights of `first` can be under way before it begins; one that runs `interleaved` gives
    others a turn. One that `defers` may read weights early, for gradients that are computed later.
    """

    planned: PlannedGraph
    path: str
    inputs: tuple[Tensor, ...]
    stored: tuple[Tensor, ...]
    entering: tuple[Tensor, ...]
    captured: tuple[Tensor, ...]
    instructions: tuple[Instruction, ...]
    results: tuple[Tensor, ...]
    leaving: frozenset[str]
    first: tuple[Convert, ...]
    interleaved: bool
    defers: bool
