"""Renders parallel.py from its template (codegen/parallel.py.j2): conversions, and the groups that they need."""

from __future__ import annotations

import json
import re
from collections.abc import Collection

from .conversion_text import Collectives
from .program_names import docstring_text
from .templates import template


def render_collectives(
    title: str,
    collectives: Collectives,
    gathered: bool = False,
    mixed: bool = False,
    recomputed: bool = False,
    interleaved: bool = False,
    products: Collection[str] = (),
    *,
    chunked: bool = False,
) -> str:
    """parallel.py with the groups, conversions and reductions that were asked for. `gathered` means that parameters are
    all-gathered, `mixed` that conversions of parameters cast them, `recomputed` that bodies are recomputed in the
    backward pass. `interleaved` means that bodies are interleaved, with asynchronous conversions. `products` are the
    functions for products that are decomposed or have deferred weight gradients. `chunked` means that some are
    decomposed matmuls, which overlap with communication.
    """
    mesh, steps = collectives.mesh, collectives.steps
    gathering = {"all_gather", "prod_over", "prod_over_detached"} & {*steps, *collectives.reductions}
    deferred = {made.deferred.function for made in collectives.parameters if made.deferred}
    planned, positions = list(collectives.planned.values()), list(collectives.positions.values())
    dimensions = [kind for kind in ("Blocks", "Slices", "Windows") if any(f"{kind}(" in plan.code for plan in planned)]
    partial = (collectives.staged and gathered) or any("partial(" in plan.code for plan in planned)
    functional = {"partial": partial, "wraps": gathered}
    abstract = {
        "Callable": True,
        "Iterable": gathered or interleaved,
        "Iterator": gathered or interleaved,
        "Sequence": True,
    }
    imports = {
        "import re": gathered,
        "from collections import Counter": deferred,
        f"from collections.abc import {', '.join(name for name, needed in abstract.items() if needed)}": (
            collectives.functions
        ),
        f"from functools import {', '.join(name for name, needed in functional.items() if needed)}": any(
            functional.values()
        ),
        "from itertools import product": planned or collectives.staged,
        "from math import prod": {"Blocks", "Windows"} & {*dimensions},
        "from typing import NamedTuple": positions,
    }
    text = template("parallel.py.j2").render(
        title=docstring_text(title),
        mesh=" x ".join(f"{axis.name} = {axis.degree}" for axis in mesh.axes),
        degrees=f"{{{', '.join(f'{json.dumps(axis.name)}: {axis.degree}' for axis in mesh.axes)}}}",
        imports=[line for line, needed in imports.items() if needed],
        groups=[{"name": group.name, "code": group.code(mesh)} for group in collectives.groups.values()],
        staged=collectives.staged,
        steps=steps,
        collective=bool(steps - {"block", "one_only", "pad"} or collectives.reductions or deferred),
        reordered=collectives.reordered,
        planned=[line for plan in planned for line in plan.lines],
        dimensions=dimensions,
        positions=[
            {
                "name": function.name,
                "parameters": "".join(f", {argument}: int" for _, argument in function.sizes),
                "words": docstring_text(function.words),
                "code": function.code,
            }
            for function in positions
        ],
        reductions=list(collectives.reductions),
        elsewhere=collectives.elsewhere,
        owned=collectives.owned,
        parameters=collectives.parameters,
        gathered=gathered,
        mixed=mixed,
        recomputed=recomputed,
        interleaved=interleaved,
        products=products,
        chunked=chunked,
        asynchronous=interleaved or products,
        gathers=gathered or bool(gathering),
        scattered="reduce_scatter" in deferred,
        reduced="all_reduce" in deferred,
        conversions=[made.lines for made in collectives.functions],
    )
    return without_unused(re.sub(r"\n{4,}", "\n\n\n", text).rstrip() + "\n")


_IMPORTS = {"import torch\n": r"(?<!from )\btorch\.", "from torch import Tensor\n": r"\bTensor\b"}
"""Imports that every parallel.py may have, with the pattern of the text that needs them."""


def without_unused(text: str) -> str:
    """The file without empty sections and unused imports. If no tensor is converted, only groups are left."""
    text = re.sub(r"\n+# -{40,} [a-z ]+\n+(?=# -{40,} |\Z)", "\n", text)
    for line, needed in _IMPORTS.items():
        if re.search(needed, text.replace(line, "")) is None:
            text = text.replace(line, "")
    return text
