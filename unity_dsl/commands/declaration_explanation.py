"""`unityc explain NAME`: explains an operator, a parallel op or an element function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..index.library import Library
    from ..syntax.ast import FunctionDecl, ParallelDecl


def explain_declaration(name: str, ops: Sequence[Path], tell: Callable[[str], None] = lambda _: None) -> str:
    """The descriptions of everything of that name: an operator may share it with an element function. Raises E031 for
    an unknown name.

    `tell` is called for each axis and set of operands of an operator after its theorems were looked at, which may take
    seconds.
    """
    from ..index.cost.explanation import describe_function, describe_operator, describe_parallel
    from ..index.declarations.loading import load_library
    from ..prove.functions.fact_proofs import fact_lines
    from ..rules.sharding_table import table_of
    from ..rules.sharding_theorems import ShardingTheorems
    from ..syntax.codes import CODES
    from ..syntax.diagnostic import fail, suggest

    library = load_library(ops)
    texts = []
    if name in library.operators:
        operator = library.operators[name]
        known: dict[str, str] = {}
        assumed: dict[str, None] = {}
        for row in table_of(operator, ShardingTheorems(library), again=False):
            known[row.subject] = row.status
            assumed |= dict.fromkeys(row.assumed)
            tell(f"{name} {row.subject}")
        lines = [f"{'' if place else 'assumes':<10}{fact}" for place, fact in enumerate(assumed)]
        texts.append("\n".join([describe_operator(operator, library, known), *lines]))
    if name in library.parallels:
        texts.append(f"{describe_parallel(library.parallels[name])}\n\n{pinnable(library.parallels[name])}")
    if name in library.functions:
        texts.append(describe_function(library.functions[name]))
        facts = fact_lines(library.functions[name], library)
        texts.append(f"{'used by':<10}{', '.join(users(library.functions[name], library)) or 'no operator'}")
        if facts:
            texts.append("\n".join(f"{'' if place else 'facts':<10}{line}" for place, line in enumerate(facts)))
    if texts:
        return "\n\n".join(texts)
    every = (*library.operators, *library.parallels, *library.functions, *CODES)
    hint = suggest(name, every) or "`unityc list ops` names all operators"
    raise fail("E031", f"there is no operator, element function or error code called `{name}`", help=hint)


def pinnable(parallel: ParallelDecl) -> str:
    """Whether a pin can name a layout that a parallel op makes, and if not, why."""
    from ..graph.declared_slices import free_attributes, why_no_cut
    from ..graph.halo import is_halo_op
    from ..graph.layout import PARTITION

    name = parallel.name
    if name == PARTITION:
        told = "a pin calls what it makes S0, S1, … by the dimension that is cut: --pin 'w=S0'"
    elif (reason := why_no_cut(parallel)) is not None:
        told = f"no pin names it: {reason}; it is a step from one layout to another"
    elif free := free_attributes(parallel):
        given = ", ".join(f"`{attribute}`" for attribute in free)
        told = f"no pin may name it: a plan chooses {given} by what operators read around or merge with an axis"
    elif is_halo_op(parallel):
        told = "no pin may name it: its slices do not put every position on exactly one device"
    else:
        told = f"a pin may name it, with the dimension that is cut: --pin 'w={name}(0)'"
    return f"{'pins':<10}{told}"


def users(function: FunctionDecl, library: Library) -> list[str]:
    """The names of the operators that apply an element function."""
    from ..index.equations.term import walk
    from ..syntax.ast import Apply

    return [
        operator.name
        for operator in library.operators.values()
        if any(
            isinstance(node, Apply) and node.function == function.name
            for statement in (*operator.statements, *operator.evaluation)
            for node in walk(statement.value)
        )
    ]
