"""A step as data: functions of instructions over tensors, as every device runs them.

An instruction reads tensors that exist and makes others. The program issues a function's instructions in their order.
The backward pass has no instructions. Autograd derives it from what the instructions recorded, in reverse order
(`simulation/backward_pass.py`), and sends gradients in buckets (`simulation/gradient_buckets.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..graph.chunked_products import ChunkedProduct
from ..graph.deferred_gradients import WeightProduct
from ..graph.graph import Update as BufferUpdate
from ..graph.graph import Value
from ..graph.layout import Layout, Placement
from ..graph.layout_conversion import Conversion
from ..graph.plan import PlannedGraph, PlannedNode, PlannedSegment, Run


@dataclass(frozen=True, eq=False, slots=True)
class Tensor:
    """A value in a layout and a float type; each device has its part. Each tensor is made once, and equality is
    identity.

    `parameter` marks a stored parameter in its stored layout, whose gradient buckets may take over.
    """

    value: Value
    layout: Layout
    dtype: str
    parameter: bool = False

    def __str__(self) -> str:
        return f"{self.value.name}: {self.layout}"


class Group(Protocol):
    """Operators that run as one kernel: what the kernel reads and makes, and the type of all its floats."""

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
    """An operator. Its results are cast to the types of their values if it makes them in others.

    A concatenation that a later one joins runs in the later one's call (`joined`); the later one is given all their
    `parts`. If operators take all slices of a tensor, the first one runs for all of them (`slices`, with their results)
    and the others are `sliced`. `along` is the dimension of such a call. A product may run in blocks of what `arrives`,
    or its result is sent in parts by the conversion that it `sends`; `chunked` describes this. The gradient of its
    weight is computed where it was `deferred`.
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
        """Whether its result is a term of a sum, and parts of it are sent while it computes others."""
        return self.sends is not None


@dataclass(frozen=True, eq=False)
class Fused:
    """Operators that run as one kernel."""

    group: Group
    reads: tuple[Tensor, ...]
    makes: tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class Placed:
    """Operators that only the devices of a placement run. The other devices have zeros for what these operators make.
    The results are functions of `given`, which all devices have.
    """

    placement: Placement
    steps: tuple[PlannedNode, ...]
    given: tuple[Tensor, ...]
    body: tuple[Instruction, ...]
    makes: tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class Cast:
    """A tensor in another float type. The cast of a function's result is `returned` at once."""

    reads: Tensor
    makes: Tensor
    returned: bool = False


@dataclass(frozen=True, eq=False)
class Keep:
    """The tensor of a buffer before the buffer is updated."""

    reads: Tensor
    makes: Tensor


@dataclass(frozen=True, eq=False)
class Updates:
    """New values of buffers, only in training and without gradients: instructions, then copies to the buffers."""

    body: tuple[Instruction, ...]
    copies: tuple[tuple[BufferUpdate, Tensor], ...]


# ---------------------------------------------------------------------------------------------- communication


@dataclass(frozen=True, eq=False)
class Convert:
    """A tensor in another layout than its `source`, converted at once, and cast on the way if its type differs. For a
    `parameter`, the sum that ends the backward conversion of its gradient goes into a bucket.
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
    """Starts to convert a tensor. A `product` that reads it in blocks may wait for the blocks one by one."""

    reads: Tensor
    makes: Tensor
    source: Layout
    conversion: Conversion
    product: ChunkedProduct | None = None


@dataclass(frozen=True, eq=False)
class Arrive:
    """Waits for what was started. If it `yields`, the other interleaved repeats run before that."""

    begun: Begin | Compute
    makes: Tensor
    yields: bool


@dataclass(frozen=True, eq=False)
class Defer:
    """Reads the weight of a product. The backward pass computes the weight's gradient when it comes back to here,
    overlapped with the communication of the gradient of the value `travelling`. The product may itself run `in_blocks`.
    """

    product: WeightProduct
    reads: Tensor
    travelling: Value
    in_blocks: bool


@dataclass(frozen=True, eq=False)
class StartGathers:
    """Starts to gather sharded weights, each for one operator, and the first gathers of the first
    iterations of loops.
    """

    gathers: tuple[Convert, ...]
    entering: tuple[Loop, ...] = ()


@dataclass(frozen=True, eq=False)
class AwaitGathers:
    """Waits for weights that are gathered together. They were started `among` others, or are started here if that is
    empty.
    """

    gathers: tuple[Convert, ...]
    among: tuple[Convert, ...] = ()


# ---------------------------------------------------------------------------------------------- bodies


@dataclass(frozen=True, eq=False)
class Loop:
    """A repeat, scan or cond with the function of each of its runs. Among its first iterations, `again` are recomputed
    in the backward pass, and `offloaded` keep what they save in the host's memory.
    """

    step: PlannedSegment
    bodies: tuple[Function, ...]
    again: int
    offloaded: int

    @property
    def count(self) -> int:
        return self.step.segment.count

    def number(self, iteration: int) -> int:
        """The number of the run that an iteration belongs to."""
        return sum(run.first <= iteration for run in self.step.runs) - 1


@dataclass(frozen=True, eq=False)
class Open:
    """Gives a loop's bodies what they capture, and the slices of the tensors that they read slice by slice."""

    loop: Loop
    captured: tuple[Tensor, ...]
    sliced: tuple[Tensor, ...] = ()


@dataclass(frozen=True, eq=False)
class Iterate:
    """Iterations of a loop one after the other, in the runs with these `numbers`. Each takes what the one before
    leaves, the first one takes the tensors `given`. The last one starts the gathers of what comes next: `then` are
    those of what follows the loop.
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
        """The number of the iteration after these."""
        return self.run.first + self.run.count


@dataclass(frozen=True, eq=False)
class Branch:
    """A cond: its body runs if the tensor that `decides` says so, otherwise `given` stays."""

    loop: Loop
    decides: Tensor
    given: tuple[Tensor, ...]
    makes: tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class Interleave:
    """The same iterations of several loops, interleaved: each loop runs until it waits for what it sends, then the next
    one runs. `given` and `makes` are by loop.
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
    """Returns the outputs if the inputs that only the loss reads are not given."""

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
    """A function that a device runs for a planned graph: the model's forward step, or an iteration of a body, whose
    `path` is that of its segment, `layer.`.

    It takes the `inputs`, or what is `entering` it and what it has `captured`. `leaving` are the names of values that
    are read after it. The gathers of `first` can start before it begins. One that is `interleaved` lets other
    repeats run where it waits. One that `defers` may read weights early, for deferred weight gradients.
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
