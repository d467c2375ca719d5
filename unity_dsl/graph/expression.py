"""Tensor expressions of a model: operator calls, infix arithmetic, views; each call becomes a node of the graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..index.equations.instance import Instance
from ..index.gradients.surrogates import stopped_inputs
from ..index.instantiation.instantiate import instantiate
from ..index.instantiation.operand_shape import Binding, Shape
from ..index.instantiation.view_call import takes_pattern
from ..index.library import Library
from ..syntax.ast import Binary, BlockDecl, Call, ModelExpr, ModelStatement, Name, Number, OperatorDecl, Return, View
from ..syntax.diagnostic import InputError, Label, fail, suggest
from ..syntax.rational import plain_number
from ..syntax.span import Span
from .chosen_lines import chosen_lines
from .graph import Buffer, Graph, Input, Node, Segment, Update, Value, Weight
from .model_parameters import Numeric, calculate, fold, whole
from .model_parameters import evaluate as evaluate_parameters
from .name_scope import Names, Scope
from .view_pattern import bind, lost_axes

MOST_PARTS = 1_000
"""Most parts of a `split`: each is an operator and has a name."""


@dataclass(frozen=True)
class Program:
    """What is the same everywhere in a model. `dtype` is the float type that operators without float operands return.
    `run` adds a statement of a block's body to the graph of a place.
    """

    library: Library
    blocks: Mapping[str, BlockDecl]
    parameters: Mapping[str, Numeric]
    declared: Mapping[str, Span | None]
    written: frozenset[str]
    dtype: str
    run: Callable[[Place, ModelStatement], None]
    instances: dict[Hashable, Instance] = field(default_factory=dict, compare=False, repr=False)

    def instance(
        self,
        operator: OperatorDecl,
        arguments: Sequence[Value],
        attributes: Mapping[str, Numeric],
        binding: Binding | None,
        span: Span | None,
    ) -> Instance:
        """An operator at the shapes of these values. Equal calls share one object. Raises E120 to E131."""
        sizes = tuple((value.shape, value.integer_range) for value in arguments)
        # Attributes are compared as text, because 2 and 2.0 differ for an operator.
        numbers = tuple((name, repr(value)) for name, value in attributes.items())
        key = operator.name, sizes, numbers, binding
        if key not in self.instances:
            shapes = [Shape(value.shape, value.integer_range, value.span) for value in arguments]
            self.instances[key] = instantiate(operator, shapes, attributes, binding=binding, span=span)
        return self.instances[key]


@dataclass(frozen=True)
class Keeper:
    """The graph that stores what the body of a scan declares, once for all iterations, under names with a prefix.

    `repeat` is the name of a repeat inside the scan. Its weights would differ from iteration to iteration.
    """

    draft: Draft
    prefix: str
    repeat: str = ""


@dataclass
class Draft:
    """A graph under construction; `around` is the graph that contains this body. `keeper`, if given, stores what is
    declared here. Names inside the paths of `shared` may be claimed. `modules` are the prefixes of the claimed paths,
    `called` the paths of blocks called in expressions, `iterations` how often repeats execute the graph.
    """

    names: Names
    around: Draft | None = None
    inputs: list[Input] = field(default_factory=list)
    weights: list[Weight] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    steps: list[Node | Segment] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    paths: dict[str, Span | None] = field(default_factory=dict)
    modules: set[str] = field(default_factory=set)
    keeper: Keeper | None = None
    iterations: int = 1
    shared: set[str] = field(default_factory=set)
    called: set[str] = field(default_factory=set)

    def graph(self) -> Graph:
        stored = tuple(self.inputs), tuple(self.weights), tuple(self.buffers)
        return Graph(*stored, tuple(self.steps), tuple(self.updates))

    def claim(self, path: str, span: Span | None, *, shared: bool = False) -> None:
        """Reserve the dotted name of a stored tensor or of a repeat. Names are the leaves of a tree of modules.

        Raises E206 if the name is taken, or if it lies inside a reserved name or a reserved name inside it.
        """
        if shared:
            self.shared.add(path)
        parts = path.split(".")
        around = [".".join(parts[:count]) for count in range(1, len(parts))]
        if path in self.paths or path in self.modules or self.paths.keys() & {*around} - self.shared:
            raise self._clash(path, span)
        self.paths[path] = span
        self.modules.update(around)

    def _clash(self, path: str, span: Span | None) -> InputError:
        """The E206 error for a name that cannot be reserved."""
        other = next(
            other
            for other in self.paths
            if path == other
            or (path.startswith(f"{other}.") and other not in self.shared)
            or other.startswith(f"{path}.")
        )
        first = self.paths[other]
        notes = () if first is None else (Label(first, f"`{other}` is declared here"),)
        clash = "declared twice" if path == other else f"a name inside `{min(path, other, key=len)}`, which is taken"
        help = "weights are named after what a block's call is assigned to: assign to another name"
        message = f"`{max(path, other, key=len)}` is {clash}"
        return fail("E206", message, span, help=help if "." in path else "", notes=notes)


@dataclass(frozen=True)
class Place:
    """Where a statement stands: the graph it adds to and the names it sees."""

    program: Program
    draft: Draft
    scope: Scope


# ---------------------------------------------------------------------------------------------- expressions


def tensor(place: Place, expr: ModelExpr, target: str | None = None) -> Value:
    """The tensor an expression stands for; the node that makes it is named `target`. Raises E223 for a number."""
    value = evaluate(place, expr, target)
    if isinstance(value, Value):
        return value
    help = "numbers are parameters: `model name[…]`, `block name[…]`"
    raise fail("E223", f"a tensor must stand here, not the number {value:g}", expr.span, help=help)


def evaluate(place: Place, expr: ModelExpr, target: str | None = None) -> Value | Numeric:
    """The tensor of an expression, or the number if it combines only numbers and parameters."""
    match expr:
        case Name():
            return place.scope.look_up(expr)
        case Number(value=value):
            return plain_number(value)
        case Binary():
            return _binary(place, expr, target)
        case View():
            return _view(place, expr, target)
        case Call():
            results = call(place, expr, () if target is None else (target,))
            if len(results) != 1:
                names = ", ".join(f"`{v.name}`" for v in results)
                message = f"`{expr.function}` returns {len(results)} tensors ({names}), one is needed here"
                raise fail("E212", message, expr.span, help="assign them first: `a, b = …`")
            return results[0]


def _binary(place: Place, expr: Binary, target: str | None) -> Value | Numeric:
    """Infix arithmetic: broadcasting operators for two tensors, `scale` and `shift` for a tensor and a number."""
    left, right = evaluate(place, expr.left), evaluate(place, expr.right)
    match left, right:
        case Value(), Value():
            names = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
            return _infix(place, names[expr.operator], (left, right), {}, expr.span, target)
        case Value(), int() | float():
            return _with_number(place, left, expr.operator, right, expr.span, target)
        case int() | float(), Value():
            return _number_with(place, left, expr.operator, right, expr.span, target)
        case int() | float(), int() | float():
            return calculate(expr.operator, left, right, expr.span)
    raise AssertionError(expr)


def _with_number(
    place: Place, left: Value, operator: str, right: Numeric, span: Span | None, target: str | None
) -> Value:
    match operator:
        case "+":
            return _infix(place, "shift", (left,), {"by": right}, span, target)
        case "-":
            return _infix(place, "shift", (left,), {"by": -right}, span, target)
        case "*":
            return _infix(place, "scale", (left,), {"factor": right}, span, target)
    return _infix(place, "scale", (left,), {"factor": calculate("/", 1.0, right, span)}, span, target)


def _number_with(
    place: Place, left: Numeric, operator: str, right: Value, span: Span | None, target: str | None
) -> Value:
    match operator:
        case "+":
            return _infix(place, "shift", (right,), {"by": left}, span, target)
        case "*":
            return _infix(place, "scale", (right,), {"factor": left}, span, target)
        case "-":
            negative = _infix(place, "scale", (right,), {"factor": -1}, span, target if left == 0 else None)
            return negative if left == 0 else _infix(place, "shift", (negative,), {"by": left}, span, target)
    inverse = _infix(place, "reciprocal", (right,), {}, span, target if left == 1 else None)
    return inverse if left == 1 else _infix(place, "scale", (inverse,), {"factor": left}, span, target)


def _infix(
    place: Place,
    name: str,
    arguments: Sequence[Value],
    attributes: Mapping[str, Numeric],
    span: Span | None,
    target: str | None,
) -> Value:
    operator = find_operator(place, name, span)
    return apply(place, operator, arguments, attributes, span, () if target is None else (target,))[0]


def _view(place: Place, view: View, target: str | None) -> Value:
    """A `rearrange` of the operand, or the operand itself if the view changes nothing."""
    operand = tensor(place, view.operand)
    binding = bind(view, operand, place.scope.numbers)
    lost = lost_axes(binding)
    if lost:
        names = ", ".join(f"`{name}`" for name in lost)
        help = f"reduce it: `reduce_sum({view.span.text})`" if view.span is not None else "reduce it by an operator"
        raise fail("E215", f"the result of a view must keep every axis: {names} is missing", view.span, help=help)
    if binding.source == binding.target:
        return operand
    operator = find_operator(place, "rearrange", view.span)
    targets = () if target is None else (target,)
    return apply(place, operator, (operand,), {}, view.span, targets, binding)[0]


# ---------------------------------------------------------------------------------------------- calls


def call(place: Place, expr: Call, targets: Sequence[str] = (), *, assigned: bool = False) -> tuple[Value, ...]:
    """The results of an operator call, of a block, of `split`, or of a `concat` of more than two.

    `assigned` says that the call is the whole right side of an assignment: a block's weights are then named after the
    first target, elsewhere after the block. Raises E210 (unknown operator) and what `inline` and instantiating raise.
    """
    if expr.function in place.program.blocks:
        path = targets[0] if assigned else place.scope.name_call(expr.function, place.draft.names, place.draft.called)
        return inline(place, expr, path, targets)
    attributes = {name: fold(value, place.scope.numbers) for name, value in expr.attributes}
    if expr.function == "split" and "split" not in place.program.library.operators:
        return _split(place, expr, targets)
    operator = find_operator(place, expr.function, expr.span)
    binding = None
    if len(expr.arguments) == 1 and isinstance(expr.arguments[0], View) and _names_axes(operator):
        view = expr.arguments[0]
        operand = tensor(place, view.operand)
        binding = bind(view, operand, place.scope.numbers)
        arguments = [operand]
    else:
        arguments = [tensor(place, argument) for argument in expr.arguments]
    if expr.function == "concat" and len(arguments) > 2:
        return (_joined(place, operator, arguments, attributes, expr.span, targets),)
    return apply(place, operator, arguments, attributes, expr.span, targets, binding)


def _joined(
    place: Place,
    operator: OperatorDecl,
    parts: Sequence[Value],
    attributes: Mapping[str, Numeric],
    span: Span | None,
    targets: Sequence[str] = (),
) -> Value:
    """`concat` of any number of parts, joined as a balanced binary tree: an element is copied about log2(n) times."""
    if len(parts) == 1:
        return parts[0]
    middle = (len(parts) + 1) // 2
    halves = [_joined(place, operator, half, attributes, span) for half in (parts[:middle], parts[middle:])]
    return apply(place, operator, halves, attributes, span, targets)[0]


def _names_axes(operator: OperatorDecl) -> bool:
    """Whether a pattern at the call says which axes are kept and which are reduced: `reduce_sum(x: [k.., r..])`."""
    groups = takes_pattern(operator)
    return groups is not None and groups[1] is not None


def find_operator(place: Place, name: str, span: Span | None) -> OperatorDecl:
    """The operator of this name. Raises E210 with the nearest name as help."""
    library, blocks = place.program.library, place.program.blocks
    if name not in library.operators:
        close = suggest(name, [*library.operators, *blocks, "split"])
        help = close or "`unityc list ops` names all; `--ops DIR` adds the .uop files of a folder of yours"
        raise fail("E210", f"no operator or block `{name}`", span, help=help)
    return library.operators[name]


def apply(
    place: Place,
    operator: OperatorDecl,
    arguments: Sequence[Value],
    attributes: Mapping[str, Numeric],
    span: Span | None,
    targets: Sequence[str] = (),
    binding: Binding | None = None,
) -> tuple[Value, ...]:
    """Add a node. Results are named after `targets`, else after the operator. Raises E217 where float types differ."""
    dtype = _result_dtype(place, operator.name, arguments, span)
    instance = place.program.instance(operator, arguments, attributes, binding, span)
    results = []
    for position, output in enumerate(instance.outputs):
        name = _name_result(place, operator.name, position, len(instance.outputs), targets)
        kind = dtype if output.integer_range is None else "int"
        results.append(Value(name, instance.shape(output), kind, output.integer_range, span=span))
    stopped = stopped_inputs(instance, place.program.library)
    node = Node(results[0].name, instance, tuple(arguments), tuple(results), span=span, stopped=stopped)
    place.draft.steps.append(node)
    return tuple(results)


def _name_result(place: Place, operator: str, position: int, count: int, targets: Sequence[str]) -> str:
    names, prefix = place.draft.names, place.scope.prefix
    if len(targets) == count:
        return names.after(targets[position])
    return names.numbered(prefix + operator)


def _result_dtype(place: Place, name: str, arguments: Sequence[Value], span: Span | None) -> str:
    """The common float type of the operands, or the program's if none is a float. Raises E217 if they differ."""
    floats = [value for value in arguments if value.dtype != "int"]
    for value in floats[1:]:
        if value.dtype != floats[0].dtype:
            notes = [Label(v.span, f"`{v.name}` is {v.dtype}") for v in (floats[0], value) if v.span is not None]
            message = f"`{name}` mixes {floats[0].dtype} (`{floats[0].name}`) and {value.dtype} (`{value.name}`)"
            help = "declare both with one type; a buffer may be stored in a narrower one"
            raise fail("E217", message, span, help=help, notes=notes)
    return floats[0].dtype if floats else place.program.dtype


def _split(place: Place, expr: Call, targets: Sequence[str]) -> tuple[Value, ...]:
    """`split(x; dim=1, parts=2)`: equal slices along one dimension.

    Raises E211 (attributes), E205 (parts) or E214 (a dimension that does not exist or does not divide).
    """
    given = dict(expr.attributes)
    if len(expr.arguments) != 1 or set(given) != {"dim", "parts"}:
        raise fail("E211", "`split` takes one tensor, `dim` and `parts`", expr.span, help="`split(x; dim=1, parts=2)`")
    operand = tensor(place, expr.arguments[0])
    dim = fold(given["dim"], place.scope.numbers)
    parts = whole(given["parts"], place.scope.numbers, "`parts`")
    if parts > MOST_PARTS:
        message = f"`split` into {parts} parts, {MOST_PARTS} is the limit"
        raise fail("E226", message, given["parts"].span or expr.span, help="`scan` goes over positions")
    rank = len(operand.shape)
    if dim != int(dim) or not -rank <= dim < rank:
        raise fail("E214", f"`split`: dim = {dim} is not one of the {rank} dimensions of `{operand.name}`", expr.span)
    size = operand.shape[int(dim)]
    if size % parts:
        notes = () if operand.span is None else (Label(operand.span, f"`{operand.name}` comes from here"),)
        message = f"`split`: {parts} parts do not divide dimension {int(dim)} of size {size}"
        raise fail("E214", message, expr.span, notes=notes)
    step = size // parts
    operator = find_operator(place, "slice", expr.span)
    results: list[Value] = []
    for part in range(parts):
        attributes = {"dim": int(dim) % rank, "start": part * step, "stop": (part + 1) * step}
        named = (targets[part],) if len(targets) == parts else ()
        results += apply(place, operator, (operand,), attributes, expr.span, named)
    return tuple(results)


# ---------------------------------------------------------------------------------------------- blocks


def inline(place: Place, expr: Call, path: str, targets: Sequence[str]) -> tuple[Value, ...]:
    """The results of a block, whose statements are added under the prefix `path`. Results are named after `targets`,
    those without a target after `path`.

    Raises E211 (arguments and parameters) or E212 (number of results); a fault inside the block says who called it.
    """
    block = place.program.blocks[expr.function]
    arguments = [tensor(place, argument) for argument in expr.arguments]
    numbers = {**place.program.parameters, **_block_parameters(place, block, expr)}
    scope = Scope(
        numbers=numbers,
        declared={parameter.name: parameter.span for parameter in block.parameters},
        prefix=f"{path}.",
        block=block.name,
    )
    if len(arguments) != len(block.inputs):
        message = f"block `{block.name}` takes {len(block.inputs)} tensors ({', '.join(block.inputs)})"
        raise fail("E211", f"{message}, {len(arguments)} given", expr.span, notes=_note(block.span, "declared here"))
    for name, value in zip(block.inputs, arguments, strict=True):
        scope.check_free(name, block.span)
        scope.tensors[name] = value
    try:
        scope.statements = chosen_lines(block.body, numbers)
        return _run_block(Place(place.program, place.draft, scope), block, path, targets)
    except InputError as error:
        found = error.diagnostic
        notes = (*found.notes, *_note(expr.span, f"in block `{block.name}`, called here"))
        raise InputError(replace(found, notes=notes)) from None


def _run_block(place: Place, block: BlockDecl, path: str, targets: Sequence[str]) -> tuple[Value, ...]:
    *body, last = place.scope.statements
    for statement in body:
        place.program.run(place, statement)
    assert isinstance(last, Return), "the parser lets no other line end a block"
    if len(last.values) == 1 and len(targets) > 1 and isinstance(last.values[0], Call):
        results = call(place, last.values[0], targets)
    else:
        names = targets if len(targets) == len(last.values) else [path] * len(last.values)
        results = tuple(tensor(place, value, name) for value, name in zip(last.values, names, strict=True))
    if targets and len(results) != len(targets):
        message = f"block `{block.name}` returns {counted(len(results), 'tensor')} for {counted(len(targets), 'name')}"
        raise fail("E212", message, last.span)
    return results


def _block_parameters(place: Place, block: BlockDecl, expr: Call) -> dict[str, Numeric]:
    names = [parameter.name for parameter in block.parameters]
    for name, value in expr.attributes:
        if name not in names:
            help = suggest(name, names) or (f"it has {', '.join(f'`{n}`' for n in names)}" if names else "it has none")
            raise fail("E211", f"block `{block.name}` has no parameter `{name}`", value.span or expr.span, help=help)
    given = {name: fold(value, place.scope.numbers) for name, value in expr.attributes}
    return evaluate_parameters(block.parameters, given, place.program.parameters, f"block `{block.name}`", expr.span)


def counted(number: int, noun: str) -> str:
    """`1 name`, `2 names`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _note(span: Span | None, text: str) -> tuple[Label, ...]:
    return () if span is None else (Label(span, text),)
