"""What is known while a program is written: the variables that hold its values, the classes and functions it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..graph.gathered_weights import GatheredWeights
from ..graph.graph import Value
from ..graph.interleaved_repeats import Interleaved
from ..graph.layout import Layout, Mesh
from ..index.library import Library
from .column_padding import ColumnPadding
from .constant_text import ConstantsText
from .conversion_text import Collectives
from .module_text import ModuleText
from .program_names import Names

if TYPE_CHECKING:
    from .kernels.kernel_calls import KernelCalls


@dataclass
class Copies:
    """The variables that hold a value, by layout. `parameter` is one whose gradient GradientSync may take over.

    `stored` is the variable of a weight of which these hold a cast, `cast` those of casts to another float type.
    """

    value: Value
    produced: Layout
    variables: dict[Layout, str]
    sources: dict[Layout, Layout] = field(default_factory=dict)
    parameter: bool = False
    stored: str | None = None
    cast: dict[tuple[str, str], str] = field(default_factory=dict)


@dataclass
class Program:
    """What is shared while a program is written: the plan's mesh, the names of classes, what parallel.py must have, the
    `weights` that operators read gathered.

    `mixed` says that its arithmetic is in a narrower type than float32, `micro_batches` that a batch is run as several.
    `recomputed` are paths of segments, of which as many last iterations as `kept_iterations` says are not;
    `interleaved` are sets of repeats whose iterations run in turns, and begin `stagger`ed. With `delayed_gradients`
    those of weights are deferred, overlapped with exchanges of gradients of values; `products` are the functions that
    are given such weights. With `chunks`, more than 1, products are decomposed; `chunked` says that some are. `kernels`
    are functions of kernels.py, if groups of operators run as such. `padding` chooses products with padded columns.
    `constants` holds what depends on no input and no parameter. `own_gradients` says that some products have gradients
    that are not autograd's. `shares` are the places of terms of the loss among those by which they are weighed.
    """

    mesh: Mesh
    library: Library
    collectives: Collectives
    weights: GatheredWeights
    classes: Names
    random_sites: int
    mixed: bool = False
    micro_batches: bool = False
    recomputed: frozenset[str] = frozenset()
    kept_iterations: Mapping[str, int] = field(default_factory=dict)
    interleaved: Interleaved = ()
    stagger: int = 1
    delayed_gradients: bool = False
    chunks: int = 1
    kernels: KernelCalls | None = None
    padding: ColumnPadding | None = None
    constants: ConstantsText | None = None
    modules: list[ModuleText] = field(default_factory=list)
    random: bool = False
    gathered: bool = False
    chunked: bool = False
    own_gradients: bool = False
    shares: Mapping[str, int] = field(default_factory=dict)
    products: set[str] = field(default_factory=set)
