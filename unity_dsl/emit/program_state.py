"""What is known while a program is written: the variables that hold its values, the classes and functions it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..graph.layout import Mesh
from ..index.library import Library
from .column_padding import ColumnPadding
from .constant_text import ConstantsText
from .conversion_text import Collectives
from .module_text import ModuleText
from .program_names import Names

if TYPE_CHECKING:
    from .kernels.kernel_calls import KernelCalls


@dataclass
class Program:
    """What is shared while a program is written: the plan's mesh, the names of classes, what parallel.py must have.

    `mixed` says that its arithmetic is in a narrower type than float32, `micro_batches` that a batch is run as several.
    Interleaved repeats begin `stagger`ed. `products` are the functions that are given weights with deferred gradients,
    `chunked` says that some products are decomposed. `kernels` are functions of kernels.py, if groups of operators run
    as such. `padding` chooses products with padded columns. `constants` holds what depends on no input and no
    parameter. `own_gradients` says that some products have gradients that are not autograd's. `shares` are the places
    of terms of the loss among those by which they are weighed.
    """

    mesh: Mesh
    library: Library
    collectives: Collectives
    classes: Names
    random_sites: int
    mixed: bool = False
    micro_batches: bool = False
    stagger: int = 1
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
