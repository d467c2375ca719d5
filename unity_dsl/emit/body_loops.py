"""The loops of an emitted forward over the iterations of a segment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol

from ..schedule.ir import Tensor
from .gathering_text import ForwardText as Gathering
from .program_names import is_identifier


class Written(Gathering, Protocol):
    """A forward function that is being written. `variables_of` has the variables that hold a value, by its name."""

    variables_of: dict[str, set[str]]


def carried_names(
    text: Written, given: Sequence[Tensor], current: Sequence[str], results: Sequence[str]
) -> Iterator[str]:
    """The variables of the values that a segment carries. The variable of an initial value is reused if nothing else
    reads it, as in `x = layer(x)`; otherwise the name is new.
    """
    function, graph = text.function, text.function.planned.graph
    reads = Counter(value.name for step in graph.steps for value in step.reads)
    reads += Counter(update.value.name for update in graph.updates)
    holding = Counter(variable for variables in text.variables_of.values() for variable in variables)
    for result, begun, variable in zip(results, given, current, strict=True):
        name = begun.value.name
        once = reads[name] == 1 and name not in function.leaving and not function.defers
        own = holding[variable] == 1 and variable in text.variables_of.get(name, ())
        if once and own and is_identifier(variable):
            del text.variables_of[name]  # the variable holds another value from here on
            yield variable
        else:
            yield text.names.fresh(result)


def iterations(modules: str, numbers: range, count: int) -> str:
    """The text of the modules of some iterations: all `count` of the segment, or a slice."""
    first, last = numbers.start or "", "" if numbers.stop == count else numbers.stop
    return modules if len(numbers) == count else f"{modules}[{first}:{last}]"
