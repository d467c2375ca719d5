"""Well-formedness checks of one declaration, before any shape is known."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import isinf

from ...syntax.ast import (
    Apply,
    AttributeDecl,
    DimDecl,
    Expr,
    FactDecl,
    FunctionDecl,
    Name,
    NativeSteps,
    Number,
    OperatorDecl,
    ParallelDecl,
    Read,
    Reduce,
    Select,
    Size,
    Statement,
    TensorDecl,
    Uniform,
)
from ...syntax.diagnostic import InputError, fail, suggest
from ..equations.integer_results import check_results
from ..equations.term import ARITHMETIC, COMPARISONS, children, free_axes, is_rest, walk
from ..equations.where_conditions import defined_sizes, keys, leaves
from ..evaluation.extern import check_extern
from ..evaluation.native_calls import ARRAY_CALLS, NUMPY_CALLS, TORCH_CALLS, TRAINING, check_native, check_steps
from ..gradients.surrogates import steered
from ..instantiation.instantiate import parallel_operator
from .declared_bounds import check_reads
from .definition_size import check_definition, check_size

Functions = Mapping[str, FunctionDecl]
Slots = tuple[tuple[str, bool], ...]
"""Per dimension of a tensor: its name, and whether it is a rest group."""


# ---------------------------------------------------------------------------------------------- element functions


def check_function(function: FunctionDecl, functions: Functions) -> None:
    """Checks the names, derivatives, facts and native lines of an element function.

    Raises E101, E103, E104, E109, E110, E111, E136.
    """
    for parameter, derivative in function.derivatives:
        if parameter not in function.parameters:
            help = suggest(parameter, function.parameters)
            raise fail("E101", f"`{function.name}` has no parameter `{parameter}`", derivative.span, help=help)
        _check_parameters(derivative, function)
        _check_scalar(derivative, functions)
    given = {parameter for parameter, _ in function.derivatives}
    for parameter in function.parameters:
        if parameter not in given:
            help = f"add a line `derivative {parameter}: …`, or `surrogate {parameter}: …` for another gradient"
            raise fail("E110", f"`{function.name}` has no derivative by `{parameter}`", function.span, help=help)
    if function.definition is not None:
        _check_parameters(function.definition, function)
        _check_scalar(function.definition, functions)
        check_definition(function, functions)
    elif function.numpy is None or function.torch is None:
        help = "give a definition, `fn f(x) = …`, or both a `torch:` and a `numpy:` line"
        raise fail("E110", f"nothing says how to compute `{function.name}`", function.span, help=help)
    for _, derivative in function.derivatives:
        check_size(derivative, functions)
    for line, allowed in ((function.torch, TORCH_CALLS), (function.numpy, NUMPY_CALLS)):
        if line is not None:
            check_native(line, allowed, function.parameters, ())
    for fact in function.facts:
        _check_fact(fact, function, functions)
    _check_gradients(function, steered(functions))


def _check_gradients(function: FunctionDecl, replaced: Collection[str]) -> None:
    """Checks facts about, and definitions of, functions in `replaced`, whose gradient is not their own.

    Raises E111, E136.

    The prover knows these functions by name alone: a fact would be about values, and lose gradients.
    """
    for fact in function.facts:
        for node in (node for expr in (fact.claim, *fact.conditions) for node in walk(expr)):
            if isinstance(node, Apply) and node.function in replaced:
                message = f"a fact about `{node.function}`, which has a `surrogate`"
                raise fail("E136", message, node.span or fact.span, help="leave the fact out: it would never be used")
    if function.name in replaced and function.definition is not None:
        for node in walk(function.definition):
            if isinstance(node, Number) and isinf(node.value):
                raise fail("E111", "a function with a surrogate has no infinite values", node.span)


def _check_fact(fact: FactDecl, function: FunctionDecl, functions: Functions) -> None:
    """Checks the names of a fact: names of conditions must occur in its claim."""
    for expr in (fact.claim, *fact.conditions):
        _check_scalar(expr, functions)
        check_size(expr, functions)
        for node in walk(expr):
            if isinstance(node, Number) and isinf(node.value):
                raise fail("E111", "a fact is about real numbers", node.span, help="`inf` is none")
    if not any(isinstance(node, Apply) and node.function == function.name for node in walk(fact.claim)):
        raise fail("E111", f"a fact of `{function.name}` that does not mention it", fact.span)
    names = free_axes(fact.claim)
    for condition in fact.conditions:
        for name in free_axes(condition):
            if name not in names:
                help = suggest(name, names)
                raise fail("E101", f"`{name}` does not occur in the fact", condition.span, help=help)


def _check_parameters(expr: Expr, function: FunctionDecl) -> None:
    for node in walk(expr):
        if isinstance(node, Name) and node.name not in function.parameters:
            help = suggest(node.name, function.parameters)
            raise fail("E101", f"`{node.name}` is no parameter of `{function.name}`", node.span, help=help)


def _check_scalar(expr: Expr, functions: Functions) -> None:
    for node in walk(expr):
        match node:
            case Name(rest=False) | Number() | Select():
                pass
            case Apply():
                check_apply(node, functions)
            case _:
                raise fail("E111", "an element function reads no tensor and reduces nothing", node.span)


def check_apply(node: Apply, functions: Functions) -> None:
    """Checks that the function exists and gets as many arguments as it has parameters. Raises E103, E104."""
    if node.function in ARITHMETIC or node.function in COMPARISONS:
        return
    function = functions.get(node.function)
    if function is None:
        raise fail("E103", f"there is no function `{node.function}`", node.span, help=suggest(node.function, functions))
    if len(function.parameters) != len(node.arguments):
        parameters = ", ".join(function.parameters)
        message = f"`{node.function}({parameters})` takes {len(function.parameters)}, {len(node.arguments)} given"
        raise fail("E104", message, node.span)


# ---------------------------------------------------------------------------------------------- operators


def check_parallel(parallel: ParallelDecl, functions: Functions) -> None:
    """As `check_operator`, with `@p` as an axis; every device axis must be a declared degree."""
    for tensor in (*parallel.inputs, *parallel.outputs):
        for dim in tensor.dims:
            if dim.device and dim.name not in parallel.degrees:
                help = suggest(dim.name, parallel.degrees) or f"`{parallel.name}[{dim.name}](…)`"
                raise fail("E101", f"`{dim.name}` is no degree of `{parallel.name}`", dim.span, help=help)
        if tensor.merged:
            message = f"`{tensor.name}` of `{parallel.name}` has a dimension of several axes"
            raise fail("E112", message, tensor.span, help="a parallel op spreads whole dimensions: name it by one axis")
    taken = {attribute.name for attribute in parallel.attributes} | {dim.name for dim in _plain_dims(parallel)}
    for name in parallel.degrees:
        if name in taken:
            raise fail("E105", f"`{name}` is both a degree and something else", parallel.span)
    check_operator(parallel_operator(parallel), functions)


def _plain_dims(parallel: ParallelDecl) -> Iterable[DimDecl]:
    return (dim for tensor in (*parallel.inputs, *parallel.outputs) for dim in tensor.dims if not dim.device)


def check_operator(operator: OperatorDecl, functions: Functions) -> None:
    """Checks the names, ranks, sizes, reads and native line of an operator.

    Raises E101 to E112, and E128 for a read that is out of bounds at every size.
    """
    for device in _device_dims(operator):
        raise fail(
            "E111", f"`@{device.name}`: an operator has no device axes", device.span, help="declare a `parallel`"
        )
    _check_names(operator)
    dims = _check_dims(operator)
    _check_conditions(operator, dims)
    if operator.extern:
        check_extern(operator)
    else:
        check_results(operator)
    for statements in (operator.statements, operator.evaluation):
        if statements:
            _Body(operator, functions, dims).check(statements)
    check_reads(operator)
    names = [tensor.name for tensor in operator.inputs] + [attribute.name for attribute in operator.attributes]
    sizes = [name for name, rest in dims.items() if not rest]
    if isinstance(operator.torch, NativeSteps):
        check_steps(operator.torch, _asking(names, operator), sizes, [output.name for output in operator.outputs])
    elif operator.torch is not None:
        check_native(operator.torch, TORCH_CALLS, _asking(names, operator), sizes)
    if operator.numpy is not None:
        check_native(operator.numpy, ARRAY_CALLS, names, sizes)


def _asking(names: list[str], operator: OperatorDecl) -> list[str]:
    """The names that a `torch:` line may use, with `training` if there is an `eval` clause."""
    return [*names, TRAINING] if operator.evaluation else names


def _device_dims(operator: OperatorDecl) -> Iterable[DimDecl]:
    tensors = (*operator.inputs, *operator.outputs)
    return (dim for tensor in tensors for dim in tensor.dims if dim.device and not dim.name.startswith("@"))


def _check_names(operator: OperatorDecl) -> None:
    taken: set[str] = set()
    declarations: list[TensorDecl | AttributeDecl] = [*operator.inputs, *operator.outputs, *operator.attributes]
    for declared in declarations:
        if declared.name in taken:
            raise fail("E105", f"`{declared.name}` is declared twice in `{operator.name}`", declared.span)
        taken.add(declared.name)


def _check_dims(operator: OperatorDecl) -> dict[str, bool]:
    """The declared dimensions, and whether each is a rest group."""
    attributes = {attribute.name for attribute in operator.attributes}
    dims: dict[str, bool] = {}
    for tensor in (*operator.inputs, *operator.outputs):
        for dim in tensor.dims:
            if dims.setdefault(dim.name, dim.rest) != dim.rest:
                raise fail("E112", f"`{dim.name}` is one dimension here and `{dim.name}..` elsewhere", dim.span)
            if dim.name in attributes:
                raise fail("E105", f"`{dim.name}` is both an attribute and a dimension", dim.span)
        _check_groups(tensor)
        if tensor.integer_range is not None and dims.setdefault(tensor.integer_range, False):
            raise fail("E112", f"`int<{tensor.integer_range}>` needs one dimension, not a group", tensor.span)
    for name in defined_sizes(operator.conditions):
        if name not in attributes:
            dims.setdefault(name, False)
    read = {dim.name for tensor in operator.inputs for dim in tensor.dims}
    for output in operator.outputs:
        for dim in output.dims:
            if dim.rest and dim.name not in read:
                raise fail("E107", f"no input has `{dim.name}..`", dim.span, help=suggest(dim.name, read))
            if dim.broadcast:
                raise fail("E112", "a result does not broadcast: write it without `~`", dim.span)
    return dims


def _check_groups(tensor: TensorDecl) -> None:
    groups = [dim for dim in tensor.dims if dim.rest]
    if tensor.merged and (len(groups) > 1 or any(dim.broadcast for dim in groups)):
        message = f"`{tensor.name}` has a dimension of several axes beside " + (
            "two groups" if len(groups) > 1 else "a group that broadcasts"
        )
        raise fail("E112", message, tensor.span, help="one group `b..` at most: else nothing tells which is which")
    for dim in groups:
        if dim.broadcast and len(groups) > 1:
            raise fail("E112", "a broadcasting group must be the only group of its tensor", dim.span)
        if [other.name for other in groups].count(dim.name) > 1:
            raise fail("E112", f"`{dim.name}..` stands twice in `{tensor.name}`", dim.span)


def _check_conditions(operator: OperatorDecl, dims: Mapping[str, bool]) -> None:
    known = {name for name, rest in dims.items() if not rest} | {a.name for a in operator.attributes}
    known |= {f"{name}.." for name, rest in dims.items() if rest}
    groups = {dim.name for tensor in operator.inputs for dim in tensor.dims if dim.rest}
    known |= {f"rank({name})" for name in groups}
    for condition in operator.conditions:
        for node in walk(condition):
            _check_condition_node(node)
        for key, leaf in leaves(condition):
            if key not in known:
                message = f"`{key.removeprefix('@')}` is no size of `{operator.name}`"
                raise fail("E101", message, leaf.span, help=suggest(key, known))
    determined = {dim.name for tensor in operator.inputs for dim in tensor.dims}
    determined |= {tensor.integer_range for tensor in operator.inputs if tensor.integer_range is not None}
    determined |= {key for condition in operator.conditions for key in keys(condition)}
    for output in operator.outputs:
        sizes = [(dim.name, dim.span) for dim in output.dims if not dim.device]
        if output.integer_range is not None:
            sizes.append((output.integer_range, output.span))
        for name, span in sizes:
            if name not in determined:
                help = suggest(name, determined) or f"add `where {name} == …`"
                raise fail("E107", f"nothing determines the size of `{name}`", span, help=help)


def _check_condition_node(node: Expr) -> None:
    match node:
        case Apply("rank", arguments):
            if len(arguments) != 1 or not isinstance(arguments[0], Name):
                raise fail("E111", "`rank` takes the name of a group: `rank(f)`", node.span)
        case Apply(function):
            if function not in ARITHMETIC | COMPARISONS:
                raise fail("E103", f"`{function}` is no function of sizes", node.span, help="+ - * / // % and rank")
        case Name() | Size() | Number():
            pass
        case _:
            raise fail("E111", "a condition is about sizes, attributes and ranks", node.span)


# ---------------------------------------------------------------------------------------------- statements


@dataclass
class _Body:
    """One list of statements. `slots` are the dimensions of the tensors that the next statement may read."""

    operator: OperatorDecl
    functions: Functions
    dims: Mapping[str, bool]
    slots: dict[str, Slots] = field(default_factory=dict)

    def check(self, statements: tuple[Statement, ...]) -> None:
        outputs = {tensor.name: tensor for tensor in self.operator.outputs}
        self.slots = {tensor.name: _slots(tensor) for tensor in self.operator.inputs}
        for statement in statements:
            self.check_left(statement, outputs.get(statement.target))
            left = {name.name for name in statement.index}
            self.value(statement.value, left)
            check_size(statement.value, self.functions)
            for name in statement.index:
                if statement.target not in outputs:
                    self.require_size(name, statement.value)
            self.slots[statement.target] = tuple((name.name, is_rest(name)) for name in statement.index)
        for output in self.operator.outputs:
            if output.name not in self.slots:
                raise fail("E106", f"`{self.operator.name}` never computes `{output.name}`", output.span)

    def check_left(self, statement: Statement, output: TensorDecl | None) -> None:
        target = statement.target
        if target in self.slots:
            what = "an input" if target in {tensor.name for tensor in self.operator.inputs} else "computed above"
            raise fail("E106", f"`{target}` is {what}", statement.span)
        names = [name.name for name in statement.index]
        for name in statement.index:
            if names.count(name.name) > 1:
                raise fail("E105", f"`{name.name}` stands twice on the left: an index has one meaning", name.span)
            if name.name in {attribute.name for attribute in self.operator.attributes}:
                raise fail("E105", f"`{name.name}` is an attribute, not an index", name.span)
            self.require_group(name)
        if output is not None:
            wanted = _slots(output)
            if len(wanted) != len(names):
                message = f"`{target}` has {len(wanted)} dimensions, {_text(wanted)}, the left side {len(names)}"
                raise fail("E104", message, statement.span)
            for name, slot in zip(statement.index, wanted, strict=True):
                self.require_alignment(name, slot)

    def require_group(self, name: Expr) -> None:
        if is_rest(name) and not self.dims.get(name.name, False):
            groups = [dim for dim, rest in self.dims.items() if rest]
            raise fail("E101", f"there is no group `{name.name}..`", name.span, help=suggest(name.name, groups))
        if isinstance(name, Name) and not name.rest and self.dims.get(name.name, False):
            raise fail("E111", f"`{name.name}..` is a group, not one index", name.span, help=f"write `{name.name}..`")

    def require_alignment(self, index: Expr, slot: tuple[str, bool]) -> None:
        """Checks that a group is indexed by the same group, and any other dimension by one index."""
        name, rest = slot
        if rest != is_rest(index) or (is_rest(index) and index.name != name):
            wanted = f"`{name}..`" if rest else f"an index for `{name}`"
            raise fail("E104", f"expected {wanted} here", index.span)

    # ------------------------------------------------------------------------------------------ terms

    def value(self, expr: Expr, bound: set[str]) -> None:
        match expr:
            case Name():
                self.name(expr, bound)
            case Size():
                self.size(expr)
            case Read():
                self.read(expr, bound)
            case Uniform(index):
                for part in index:
                    if not isinstance(part, Name):
                        raise fail("E111", "`uniform` is indexed by axes", part.span or expr.span)
                    self.index(part, bound)
            case Reduce(_, axes, body):
                self.reduction(expr, axes, body, bound)
            case Apply():
                check_apply(expr, self.functions)
                self.values(children(expr), bound)
            case _:
                self.values(children(expr), bound)

    def values(self, exprs: Iterable[Expr], bound: set[str]) -> None:
        for expr in exprs:
            self.value(expr, bound)

    def name(self, expr: Name, bound: set[str], dim: str = "") -> None:
        if expr.rest:
            raise fail("E111", f"`{expr.name}..` is no number", expr.span, help=f"its size is `|{expr.name}..|`")
        if self.dims.get(expr.name, False):
            help = f"its size is `|{expr.name}..|`"
            raise fail("E111", f"`{expr.name}..` is a group, not one index", expr.span, help=help)
        attributes = [attribute.name for attribute in self.operator.attributes]
        if expr.name in bound or expr.name in attributes:
            return
        raise self.unbound(expr, {*bound, *attributes}, dim)

    def unbound(self, expr: Name, candidates: Collection[str], dim: str = "") -> InputError:
        """`dim`, the dimension that it indexes, is suggested first if it is bound."""
        name, help = expr.name, suggest(expr.name, candidates)
        if not help and dim in candidates:
            help = f"did you mean `{dim}`?"
        if name in self.slots:
            help = f"an element of it is `{name}{_text(self.slots[name])}`"
        elif name in self.dims and not help:
            help = f"reduce it, `sum({name}) …`, or put it on the left; its size is `|{name}|`"
        return fail("E101", f"index `{name}` is not bound", expr.span, help=help)

    def size(self, expr: Size) -> None:
        known = [f"{name}.." if rest else name for name, rest in self.dims.items()]
        shown = f"{expr.name}.." if expr.rest else expr.name
        if shown not in known:
            raise fail("E101", f"there is no dimension `{shown}`", expr.span, help=suggest(shown, known))

    def read(self, expr: Read, bound: set[str]) -> None:
        slots = self.slots.get(expr.tensor)
        if slots is None:
            help = suggest(expr.tensor, self.slots)
            raise fail("E102", f"there is no tensor `{expr.tensor}` here", expr.span, help=help)
        if len(slots) != len(expr.index):
            message = f"`{expr.tensor}` has {len(slots)} dimensions, {_text(slots)}, read with {len(expr.index)}"
            raise fail("E104", message, expr.span)
        for index, slot in zip(expr.index, slots, strict=True):
            self.require_alignment(index, slot)
            self.index(index, bound, slot[0])
        if expr.fill is not None:
            for node in walk(expr.fill):
                if isinstance(node, Read | Reduce | Uniform):
                    raise fail("E111", "the value outside a tensor is a number", node.span or expr.span)
            self.value(expr.fill, bound)

    def index(self, expr: Expr, bound: set[str], dim: str = "") -> None:
        """Checks an index expression: arithmetic of axes, sizes, attributes and integers."""
        for node in walk(expr):
            match node:
                case Name(name, True):
                    self.require_group(node)
                    if node is not expr:
                        raise fail("E111", f"`{name}..` cannot be computed with", node.span)
                    if name not in bound:
                        raise self.unbound(node, bound)
                case Name():
                    self.name(node, bound, dim)
                case Size():
                    self.size(node)
                case Number(value) if isinstance(value, int):
                    pass
                case Apply(function) if function in {"+", "-", "*", "//", "%", "neg"}:
                    pass
                case _:
                    help = "a value picks an element by a sum: `sum(v) [v == ids[n]] * w[v]`"
                    raise fail("E111", "an index is whole-number arithmetic of axes and sizes", node.span, help=help)

    def reduction(self, expr: Reduce, axes: Iterable[Expr], body: Expr, bound: set[str]) -> None:
        names: set[str] = set()
        for axis in axes:
            if not isinstance(axis, Name):
                raise fail("E111", "an operator has no device axes", axis.span)
            if axis.name in names:
                raise fail("E105", f"`{axis.name}` is reduced twice", axis.span)
            self.require_group(axis)
            names.add(axis.name)
        self.value(body, bound | names)
        for axis in axes:
            self.require_size(axis, body)

    def require_size(self, axis: Expr, value: Expr) -> None:
        """Checks that an index is a declared dimension, or is read bare in one, which gives its size."""
        if not isinstance(axis, Name) or axis.name in self.dims:
            return
        for node in walk(value):
            if isinstance(node, Read) and any(isinstance(i, Name) and i.name == axis.name for i in node.index):
                return
        help = suggest(axis.name, self.dims) or "an index that is no dimension must be read bare somewhere"
        raise fail("E107", f"nothing says how far the index `{axis.name}` runs", axis.span, help=help)


def _slots(tensor: TensorDecl) -> Slots:
    return tuple((dim.name, dim.rest) for dim in tensor.dims)


def _text(slots: Slots) -> str:
    return f"[{', '.join(name + '..' * rest for name, rest in slots)}]"
