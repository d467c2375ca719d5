"""Torch text of one operator on local tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ..graph.deferred_gradients import WeightProduct
from ..graph.layout import Mesh
from ..graph.layout_typing import TypedOperator
from ..graph.local_lowering import evaluation_lowering, training_lowering
from ..index.equations.instance import Instance
from ..index.library import Library
from ..index.lowering.constant_terms import split_constants, without_constants
from ..index.lowering.operator_lowering import Lowering
from ..index.lowering.padded_columns import with_padded_columns
from ..index.lowering.torch_term import Argument, Term, Variable
from ..index.lowering.value_lowering import Statement
from ..syntax.ast import ReductionKind
from .constant_text import HOLDER, ConstantsText
from .program_names import Names
from .torch_text import argument_text, term_text


class Collectives(Protocol):
    """Names of what an operator needs from parallel.py. Asking for a name has the thing written there."""

    def replicate(self, axes: tuple[int, ...]) -> str:
        """Invariant to Replicate: nothing in the forward, an all-reduce in the backward."""

    def reduce(self, axes: tuple[int, ...]) -> str:
        """Partial to Invariant: an all-reduce in the forward, nothing in the backward."""

    def reduce_over(self, kind: ReductionKind, free: bool) -> str:
        """A reduction other than a sum, over local dimensions and a group. `free` asks for one without a gradient."""

    def standardised(self) -> str:
        """Standardised values with their mean and variance, computed over local parts and a group."""

    def group(self, axes: tuple[int, ...]) -> str:
        """The attribute of the groups object that spans these mesh axes, major first."""


@dataclass(frozen=True)
class ProductCall:
    """The call of a function that replaces a product. In parallel.py these are products whose weight gradient is
    `deferred`, products of what is `sent` in blocks, and products that send their own result, for which more arguments
    are `given`. If none of these holds, it is a function of model.py with its own gradients.
    """

    product: WeightProduct
    deferred: bool
    sent: str | None = None
    given: tuple[str, ...] = ()

    @property
    def function(self) -> str:
        if not (self.deferred or self.sent or self.given):
            return f"{self.product.function.capitalize()}.apply"
        return f"parallel.{self.product.function}{'_sent' if self.given else ''}"


@dataclass
class Place:
    """The place of an operator's text in the program.

    `state` is the object with groups, seed, step, dtype and device (`self` or `model`). `site` is the text of the
    random site. `float_type` is the text of the type in which the operator runs, by default the state's. With
    `micro_batches`, each draws numbers of its own. `random` records that the operator draws. `constants` takes what
    depends on no operand, under the comment `words`. A `product` is computed by a function of parallel.py, overlapped
    with communication, or by one of model.py. `padded` are the columns of a linear map and how many are added.
    """

    names: Names
    mesh: Mesh
    library: Library
    collectives: Collectives
    state: str
    site: str = "0"
    float_type: str | None = None
    micro_batches: bool = False
    constants: ConstantsText | None = None
    words: str = ""
    product: ProductCall | None = None
    padded: tuple[int, int] | None = None
    random: bool = False


def operator_text(
    instance: Instance, typed: TypedOperator, arguments: Sequence[str], results: Sequence[str], place: Place
) -> list[str]:
    """Statements that bind `results` to the operator's outputs on this device. `arguments` are its local inputs."""

    def text(lowering: Lowering) -> list[str]:
        if place.padded is not None:
            lowering = with_padded_columns(lowering, *place.padded)
        return lowering_text(lowering, instance.name, typed.local_sizes, arguments, results, place)

    lowering = training_lowering(instance, typed, place.mesh, place.library)
    if place.product is not None:
        lowering = _with_call(lowering, place.product)
    training = text(lowering)
    evaluation = evaluation_lowering(instance, typed, place.mesh, place.library)
    if evaluation is None:
        return training
    return [
        f"if {place.state}.training:",
        *(f"    {line}" for line in training),
        "else:",
        *(f"    {line}" for line in text(evaluation)),
    ]


def lowering_text(
    lowering: Lowering,
    operator: str,
    sizes: Mapping[str, int],
    arguments: Sequence[str],
    results: Sequence[str],
    place: Place,
) -> list[str]:
    """Statements of one lowering of an operator, at local sizes."""
    return _Text(lowering, operator, sizes, arguments, results, place).lines()


def _with_call(lowering: Lowering, call: ProductCall) -> Lowering:
    """The lowering with the call in place of the product."""
    product = call.product

    def changed(argument: Argument) -> Argument:
        if not isinstance(argument, Term):
            return argument
        if argument != product.term:
            return argument.mapped(changed)
        given = [*argument.arguments]
        if call.deferred:
            given[product.factor] = Term("name", (Variable(product.weight),))
        given += [Term("word", (text,)) for text in call.given]
        sent = (("sent", Term("word", (call.sent,))),) if call.sent is not None else ()
        return replace(argument, operation=call.function, arguments=tuple(given), keywords=sent)

    statements = []
    for one in lowering.statements:
        value = changed(one.value)
        assert isinstance(value, Term)
        statements.append(replace(one, value=value))
    return replace(lowering, statements=tuple(statements))


class _Text:
    """The statements of one lowering as text. A variable is named where it is bound."""

    def __init__(
        self,
        lowering: Lowering,
        operator: str,
        sizes: Mapping[str, int],
        arguments: Sequence[str],
        results: Sequence[str],
        place: Place,
    ) -> None:
        self.lowering = lowering
        self.operator, self.local_sizes = operator, sizes
        self.place = place
        self.stem = results[0]
        self.names = {Variable(number): text for number, text in enumerate(arguments)}
        self.results = dict(zip(lowering.results, results, strict=True))

    def lines(self) -> list[str]:
        taken = self.take_constants(self.place.constants) if self.place.constants is not None else []
        return [*taken, *(self.line(statement) for statement in self.lowering.statements)]

    def take_constants(self, held: ConstantsText) -> list[str]:
        """Moves functions of positions to the constants. Returns the statements that slice these for smaller inputs."""
        place = self.place
        dtype = f"model.{(place.float_type or 'dtype').rpartition('.')[2]}"
        found = split_constants(self.lowering, self.local_sizes, dtype, "model.device")
        if found is None:
            return []

        def spelled(term: Term) -> str:
            match term.operation, term.arguments:
                case "float_type", ():
                    return dtype
                case "index", axes:
                    return f"model.groups.{place.collectives.group(mesh_axes(axes))}.index"
            raise TypeError(f"{term.operation} in a constant")

        names = held.add(found, self.operator, place.words, spelled)
        self.lowering, lines = without_constants(self.lowering), []
        for variable, name, extents in zip(found.results, names, found.extents, strict=True):
            self.names[variable] = f"{place.state}.{HOLDER}.{name}"
            if held.smaller and any(extents):
                sizes = [f":{term_text(size, self.spelling)}" if size else ":" for size in extents]
                lines.append(f"{place.names.fresh(name)} = {self.names[variable]}[{', '.join(sizes)}]")
                self.names[variable] = lines[-1].partition(" ")[0]
        return lines

    def line(self, statement: Statement) -> str:
        value = term_text(statement.value, self.spelling)
        for number, variable in enumerate(statement.variables):
            named = replace(statement, name=statement.others[number - 1]) if number and statement.others else statement
            self.names[variable] = self.results.get(variable) or self.place.names.fresh(self.wanted(named))
        return f"{', '.join(self.names[variable] for variable in statement.variables)} = {value}"

    def wanted(self, statement: Statement) -> str:
        if statement.own:
            return f"{self.stem}_{statement.name}"
        if statement.value.operation != "replicate":
            return statement.name
        given = self.operand(statement.value)
        return f"{given if given.isidentifier() else statement.name}_r"

    def operand(self, term: Term) -> str:
        """The text of the operand of a draw or a collective."""
        return argument_text(term.arguments[0], self.spelling)

    def spelling(self, term: Term) -> str:
        """The text of a term that depends on the program: variables, state, random numbers and collectives."""
        place, collectives, state = self.place, self.place.collectives, self.place.state
        match term.operation, term.arguments:
            case "name", (Variable() as variable,):
                return self.names[variable]
            case "state", ():
                return state
            case "float_type", ():
                return place.float_type or f"{state}.dtype"
            case "index", axes:
                return f"{state}.groups.{collectives.group(mesh_axes(axes))}.index"
            case "places", _:
                return f"places({self.operand(term)})"
            case (("uniform" | "at_least"), (_, int(count), *bound)):
                place.random = True
                part = f", {count}" if place.micro_batches else ""
                given = "".join(f"{argument_text(number, self.spelling)}, " for number in bound)
                return f"{term.operation}({given}{self.operand(term)}, *{state}.counters, {place.site}{part})"
            case "surrogate", given:
                return f"surrogate({', '.join(argument_text(part, self.spelling) for part in given)})"
            case "replicate", (_, tuple(axes)):
                return f"parallel.{collectives.replicate(mesh_axes(axes))}({self.operand(term)}, {state}.groups)"
            case "reduce", (_, tuple(axes)):
                return f"parallel.{collectives.reduce(mesh_axes(axes))}({self.operand(term)}, {state}.groups)"
            case "reduce_over", (_, tuple(dims), tuple(axes), str(kind), bool(free)):
                group = f"{state}.groups.{collectives.group(mesh_axes(axes))}"
                function = collectives.reduce_over(ReductionKind(kind), free)
                return f"parallel.{function}({self.operand(term)}, {argument_text(dims, self.spelling)}, {group})"
            case "standardised", (x, gain, bias, eps, tuple(axes), _):
                given = ", ".join(argument_text(part, self.spelling) for part in (x, gain, bias, eps))
                group = f"{state}.groups.{collectives.group(mesh_axes(axes))}"
                return f"parallel.{collectives.standardised()}({given}, {group})"
        raise TypeError(f"{term.operation} in a lowering")


def mesh_axes(axes: tuple[Argument, ...]) -> tuple[int, ...]:
    """The mesh axes among a term's arguments."""
    return tuple(axis for axis in axes if isinstance(axis, int))
