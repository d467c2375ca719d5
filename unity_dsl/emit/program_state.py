"""The state of writing a program: the classes and functions that it needs."""

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
    """The state shared by all writers of a program: the plan's mesh, the names of classes, what parallel.py must have.

    `mixed` means that its arithmetic is in a narrower type than float32, `micro_batches` that a batch runs as several.
    Interleaved repeats have the skewed start `skew`. `products` are the functions of parallel.py for products that
    are decomposed or have deferred weight gradients; `chunked` means that some are decomposed. `kernels` are functions
    of kernels.py, if groups of operators run as kernels. `padding` chooses products with padded columns. `constants`
    has what depends on no input and no parameter. `own_gradients` means that some products do not use autograd's
    gradients. `shares` are the indices of loss terms among the weighted ones.
    """

    mesh: Mesh
    library: Library
    collectives: Collectives
    classes: Names
    random_sites: int
    mixed: bool = False
    micro_batches: bool = False
    skew: int = 1
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
